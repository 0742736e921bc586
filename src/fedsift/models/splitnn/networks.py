"""Networks at a party: built by name, never received. Weights in and out as plain arrays.

A module cannot travel in a message, so a request names a factory that the party itself has registered, with plain
parameters: ``register_model("mine", make)`` at every site that shall build it, where ``make(inputs, outputs,
**options)`` returns any ``torch.nn.Module`` from ``inputs`` to ``outputs`` numbers a row. Files hold arrays and JSON
(``numpy.savez`` without pickle). torch is an extra and is imported late.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsift.errors import DataError, MissingExtra, ParameterError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

MOST_WEIGHTS = 1 << 26  # of the dense layers of one network
_factories: dict[str, Callable[..., Module]] = {}
_seeding = threading.Lock()  # torch's default generator is global, and parties of one process are threads


def torch_module() -> Any:
    """torch, or the error that says how to install it."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "nn") from None
    return torch


def register_model(name: str, factory: Callable[..., Module]) -> None:
    """Let requests name ``factory`` at this party. Call it at every site that shall build the module."""
    if not name or not callable(factory):
        raise ParameterError(f"register_model takes a name and a function; got {name!r} and {factory!r}")
    _factories[name] = factory


def derived_seed(seed: int, *purpose: object) -> int:
    """A seed of its own for every party and purpose, the same in every run with the same ``seed``."""
    text = json.dumps([int(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


def build_model(name: str, inputs: int, outputs: int, options: Mapping[str, object], seed: int) -> Module:
    """The module of a registered factory, its first weights drawn from ``seed``."""
    torch = torch_module()
    if name not in _factories:
        raise ParameterError(
            f"no model {name!r} is registered at this party; known: {', '.join(sorted(_factories))}; "
            "use fedsift.models.splitnn.model.register_model(name, factory) here"
        )
    with _seeding, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = _factories[name](inputs, outputs, **options)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ParameterError(
                f"model {name!r} cannot be built with these options ({type(error).__name__})"
            ) from None
    if not isinstance(module, torch.nn.Module):
        raise ParameterError(f"the factory of model {name!r} returned no torch.nn.Module")
    return module


def dense(inputs: int, outputs: int, *, hidden: list[int] | tuple[int, ...] = (), dropout: float = 0.0) -> Module:
    """Dense layers with ReLU between them; no activation after the last."""
    nn = torch_module().nn
    layers: list[Module] = []
    sizes = [inputs, *map(int, hidden), outputs]
    if sum(before * after for before, after in pairwise(sizes)) > MOST_WEIGHTS:
        raise ParameterError(f"dense layers of {sizes} have more than {MOST_WEIGHTS:,} weights")
    width = inputs
    for size in hidden:
        layers += [nn.Linear(width, int(size)), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        width = int(size)
    return nn.Sequential(*layers, nn.Linear(width, outputs))


register_model("dense", dense)


def stacked_dense(inputs: int, outputs: int, *, hidden: list[int] | tuple[int, ...] = (), copies: int = 1) -> Module:
    """``copies`` dense networks side by side that begin alike: (copies x) rows x inputs -> copies x rows x outputs."""
    torch = torch_module()

    class StackedLinear(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, layer: Module):
            super().__init__()
            self.in_features, self.out_features = layer.in_features, layer.out_features
            self.weight = torch.nn.Parameter(layer.weight.detach().repeat(copies, 1, 1))
            self.bias = torch.nn.Parameter(layer.bias.detach().repeat(copies, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            x = x if x.dim() == 3 else x.expand(copies, *x.shape)
            return torch.baddbmm(self.bias, x, self.weight.transpose(1, 2))

    layers = [StackedLinear(m) if isinstance(m, torch.nn.Linear) else m for m in dense(inputs, outputs, hidden=hidden)]
    return torch.nn.Sequential(*layers)


register_model("stacked dense", stacked_dense)


def first_layer(module: Module, inputs: int, what: str) -> Module:
    """The dense layer that meets the inputs: what gates, penalties and the secure layer act on."""
    nn = torch_module().nn
    for layer in module.modules():
        if isinstance(layer, nn.Linear) or type(layer).__name__ == "StackedLinear":
            if layer.in_features == inputs:
                return layer
            break
    raise ParameterError(f"{what} must begin with torch.nn.Linear over its {inputs} inputs for this method")


def weights_of(module: Module) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def set_weights(module: Module, weights: dict[str, np.ndarray], what: str) -> None:
    torch = torch_module()
    own = module.state_dict()
    if set(own) != set(weights) or any(tuple(own[k].shape) != weights[k].shape for k in own):
        raise DataError(f"{what}: the saved weights do not fit the network; is the same model registered here?")
    module.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in weights.items()})


def write_arrays(path: str | Path, facts: Mapping[str, object], arrays: dict[str, np.ndarray]) -> Path:
    """One file: a JSON header and named arrays, complete or not there at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    header = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, facts=header, **{f"array/{k}": v for k, v in arrays.items()})
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(buffer.getvalue())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def read_arrays(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        with np.load(Path(path), allow_pickle=False) as archive:
            facts = json.loads(archive["facts"].tobytes().decode())
            arrays = {k.removeprefix("array/"): archive[k] for k in archive.files if k.startswith("array/")}
    except FileNotFoundError:
        raise DataError(f"there is no model file {str(path)!r}") from None
    except (ValueError, KeyError, OSError, zipfile.BadZipFile):
        raise DataError(f"{str(path)!r} is not a model file of fedsift, or it is damaged") from None
    return facts, arrays
