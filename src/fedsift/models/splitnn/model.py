"""SplitNN: one network over parties that keep their columns. Bottom models at the parties, top model at the label.

The baseline VFDNN of the papers. By default one network trains on shares (``layers/shared_run.py``): no party sees a
row's gradient, another's columns, or a weight. Where parties have networks of their own (``protection="lattice"``, and
``"open"`` for research: ``training.py`` says what leaks), any ``torch.nn.Module`` can be a half:
``register_model(name, factory)`` at the sites (a module cannot be sent).
"""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fedsift.core.federation import Federation
from fedsift.core.files import write_atomic
from fedsift.core.party import Site
from fedsift.errors import DataError, ParameterError
from fedsift.models.splitnn.inputs import InputEncoder
from fedsift.models.splitnn.layers import lattice, shared_network, shared_run
from fedsift.models.splitnn.layers.choice import check_protection, own_networks
from fedsift.models.splitnn.layers.shared_parts import Part
from fedsift.models.splitnn.networks import (
    read_arrays,
    register_model,
    set_weights,
    torch_module,
    weights_of,
    write_arrays,
)
from fedsift.models.splitnn.party_networks import Bottom, Top
from fedsift.models.splitnn.training import LABEL_PROTECTIONS, OPERATIONS, SplitRun

__all__ = ["SplitNN", "load_part", "register_model", "save_part"]

FORMAT = "fedsift-splitnn"
VERSION = 1


class SplitNN(BaseEstimator):
    """A network split between parties.

    Parameters
    ----------
    protection : ``"shares"`` (default): one network of ``width`` sines, on shares from end to end; the coordinator
        deals the randomness and must be neutral. ``"lattice"``: networks of the parties' own, the layer between them
        under ciphertexts, for two organisations of which one runs the coordinator; a party sees the gradients of its
        embeddings, which tell about labels. ``"open"``: everything in the clear, for research.
    width : sines of the network on shares.
    epochs, batch_size : passes over the rows, and rows of a step.
    learning_rate : by default 0.5 (plain steps, smaller ones at the end) on shares, and 0.003 (Adam) elsewhere.
    bottom, bottom_options : not on shares: registered model of each party and its options; ``dense`` takes ``hidden``
        and ``dropout``.
    top, top_options : the same for the label holder's top model.
    embedding : not on shares: numbers a row that a party sends, one for all or by party. Smaller leaks less.
    weight_decay : Adam's, not on shares.
    patience : stop when the training loss has not improved for so many epochs.
    label_protection : ``None``, ``"max_norm"`` or ``"noise"``: blur gradients before they leave the label holder.
    label_protection_scale : how much (noise relative to the gradients). Of ``"open"`` only.
    random_state : the same gives the same network; on shares to the precision of its fixed point (about 1e-3).

    Examples
    --------
    >>> import fedsift as fs, numpy as np, pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 4)), columns=list("abcd"))
    >>> fed = fs.Federation.split(X, (X["a"] * X["c"] > 0).astype(int), parties=2)
    >>> fs.SplitNN(epochs=40).fit(fed).score(fed) > 0.9
    True
    """

    operations = (*OPERATIONS, *lattice.OPERATIONS, *shared_run.OPERATIONS)

    def __init__(
        self,
        *,
        bottom: str = "dense",
        bottom_options: dict[str, Any] | None = None,
        top: str = "dense",
        top_options: dict[str, Any] | None = None,
        embedding: int | dict[str, int] = 100,
        epochs: int = 30,
        batch_size: int = 128,
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        patience: int | None = None,
        label_protection: str | None = None,
        label_protection_scale: float = 1.0,
        protection: str = "shares",
        width: int = 32,
        random_state: Any = 0,
    ):
        self.bottom = bottom
        self.bottom_options = bottom_options
        self.top = top
        self.top_options = top_options
        self.embedding = embedding
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.label_protection = label_protection
        self.label_protection_scale = label_protection_scale
        self.protection = protection
        self.width = width
        self.random_state = random_state

    def fit(self, fed: Federation, y: Any = None) -> SplitNN:
        """Train over the federation's rows. ``y`` is ignored: labels stay with their party."""
        self._check(fed)
        if self.protection != "shares":
            torch_module()
        mark, start = len(fed.ledger), time.perf_counter()
        self.model_ = f"splitnn-{secrets.token_hex(6)}"
        with fed.session() as run:
            split = self._start(run)
            split.train(self.epochs, patience=self.patience)
            self._keep(run, split)
        self.loss_curve_, self.training_ = split.loss_curve, split.story()
        self.seconds_ = time.perf_counter() - start
        self.ledger_ = fed.ledger.since(mark)
        self.traffic_ = self.ledger_.traffic()
        return self

    def _keep(self, run: Federation, split: SplitRun) -> None:
        """Let the parties keep what was trained, and remember who holds it."""
        split.keep()
        self.task_, self.widths_ = run.task, split.widths
        self.facts_ = split.facts()

    def _start(self, run: Federation) -> SplitRun:
        seed, rate = seed_of(self.random_state), self.learning_rate
        if self.protection == "shares":
            split = shared_run.SharedRun.begin(
                run, self.model_, width=self.width, seed=seed, rate=0.5 if rate is None else rate,
                batch_size=self.batch_size,
            )  # fmt: skip
            split.epochs = self.epochs
            return split
        rate = 0.003 if rate is None else rate
        common = {"seed": seed, "batch_size": self.batch_size, "rate": rate, "decay": self.weight_decay}
        bottom_options = {"hidden": [100]} if self.bottom_options is None else self.bottom_options
        top_options = {"hidden": [50]} if self.top_options is None else self.top_options
        bottom = {**common, "model": self.bottom, "options": bottom_options}
        top = {
            **common, "model": self.top, "options": top_options,
            "protection": self.label_protection, "protection_scale": float(self.label_protection_scale),
        }  # fmt: skip
        return own_networks(self.protection).start(run, self.model_, self.embedding, bottom, top)

    def predict_proba(self, fed: Federation) -> np.ndarray:
        """Class probabilities, rows x classes, in the order of the sorted classes."""
        if self.task_ != "classification":
            raise ParameterError("predict_proba is for classification; this network predicts numbers: use predict")
        return self._outputs(fed)

    def predict(self, fed: Federation) -> np.ndarray:
        """Class numbers (positions in the sorted classes) or target values."""
        out = self._outputs(fed)
        return out.argmax(axis=1) if self.task_ == "classification" else out[:, 0]

    def score(self, fed: Federation, y: Any = None) -> float:
        """Accuracy or R2, computed by the label holder."""
        with fed.session() as run:
            return self._run(run).score(run)

    def _outputs(self, fed: Federation) -> np.ndarray:
        with fed.session() as run:
            return self._run(run).predict(run)

    def _run(self, fed: Federation) -> SplitRun:
        check_is_fitted(self, "model_")
        missing = [name for name in self.widths_ if name not in fed.parties]
        if missing:
            raise ParameterError(f"the network needs party {missing[0]!r}, which this federation does not have")
        if self.protection == "shares":
            return shared_run.SharedRun.again(fed, self.model_, self.facts_)
        return own_networks(self.protection)(fed, self.model_, self.widths_, self.batch_size)

    def save(self, path: str | Path) -> Path:
        """The coordinator's part: which model, which parties. Weights are at the parties: ``save_part`` there."""
        check_is_fitted(self, "model_")
        facts = {"format": FORMAT, "version": VERSION, "model": self.model_, "task": self.task_,
                 "widths": self.widths_, "facts": self.facts_, "parameters": self.get_params(deep=False)}  # fmt: skip
        return write_atomic(path, json.dumps(facts, indent=2, default=str) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> SplitNN:
        try:
            facts = json.loads(Path(path).read_text(encoding="utf-8"))
            if facts["format"] != FORMAT or facts["version"] != VERSION:
                raise KeyError("format")
            network = cls(**facts["parameters"])
            network.model_, network.task_ = str(facts["model"]), str(facts["task"])
            network.widths_ = {str(k): int(v) for k, v in facts["widths"].items()}
            network.facts_ = dict(facts["facts"])
        except FileNotFoundError:
            raise DataError(f"there is no network file {str(path)!r}") from None
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DataError(f"{str(path)!r} is not a network file of this version of fedsift") from None
        return network

    def forget(self, fed: Federation) -> None:
        """Let the parties delete their halves."""
        check_is_fitted(self, "model_")
        self._run(fed).forget()

    def _check(self, fed: Federation) -> None:
        if not isinstance(fed, Federation):
            raise ParameterError(f"fit takes a Federation, got {type(fed).__name__}; see Federation.from_tables")
        if fed.partition != "vertical":
            raise ParameterError(f"SplitNN is for vertical parties; these are {fed.partition}")
        for name in ("epochs", "batch_size"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ParameterError(f"{name} must be a whole number of at least 1; got {getattr(self, name)!r}")
        if check_protection(self.protection) == "shares":
            self._check_shares()
        if self.protection != "open" and self.label_protection is not None:
            raise ParameterError("label_protection is of protection='open': the others compute exact gradients")
        if self.label_protection not in LABEL_PROTECTIONS:
            raise ParameterError(f"label_protection must be one of {LABEL_PROTECTIONS}; got {self.label_protection!r}")
        if isinstance(self.embedding, dict):
            missing = [name for name in fed.parties if name not in self.embedding]
            if missing:
                raise ParameterError(f"embedding names no width for party {missing[0]!r}")
        elif not isinstance(self.embedding, int) or self.embedding < 1:
            raise ParameterError(f"embedding must be a whole number of at least 1; got {self.embedding!r}")

    def _check_shares(self) -> None:
        if not isinstance(self.width, int) or self.width < 2:
            raise ParameterError(f"width must be a whole number of at least 2; got {self.width!r}")
        own = [name for name in ("bottom_options", "top_options") if getattr(self, name) is not None]
        own += [name for name in ("bottom", "top") if getattr(self, name) != "dense"]
        if own:
            raise ParameterError(
                f"{own[0]} is for networks of the parties' own, with protection='lattice' or 'open'; on shares there "
                "is one network of sines, of which you choose the width"
            )


def seed_of(random_state: Any) -> int:
    """A whole number from what scikit-learn allows as random_state (drawn afresh for ``None``)."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(np.random.default_rng(random_state).integers(2**31))


def save_part(site: Site, model: str, path: str | Path) -> Path:
    """Write one party's halves (weights and encoder, no row) to a file of its own. Run at that party."""
    facts: dict[str, Any] = {"format": FORMAT, "version": VERSION, "model": model, "party": site.name}
    arrays: dict[str, np.ndarray] = {}
    bottom: Bottom | None = site.keys.get(f"model:{model}/bottom")
    top: Top | None = site.keys.get(f"model:{model}/top")
    shares: Part | None = site.keys.get(shared_network.KEY.format(model))
    if shares is not None:
        facts["shares"], arrays = shares.plain(), shares.arrays()
        return write_arrays(path, facts, arrays)
    if bottom is None and top is None:
        raise DataError(f"party {site.name!r} holds no part of the network {model!r}")
    if bottom is not None:
        facts["bottom"] = {"settings": bottom.settings, "encoder": bottom.encoder.to_plain()}
        arrays |= {f"bottom/{k}": v for k, v in weights_of(bottom.module).items()}
    if top is not None:
        facts["top"] = {"settings": top.settings, "widths": top.widths, "task": top.task, "outputs": top.outputs,
                        "classes": list(top.classes), "centre": top.centre, "spread": top.spread}  # fmt: skip
        arrays |= {f"top/{k}": v for k, v in weights_of(top.module).items()}
    share = site.keys.get(f"model:{model}/share")
    if share is not None:
        arrays |= {f"share of/{n}": part for n, part in share.items()} if isinstance(share, dict) else {"share": share}
    return write_arrays(path, facts, arrays)


def load_part(site: Site, path: str | Path) -> str:
    """Read back what ``save_part`` wrote, at the same party; the name of the network."""
    facts, arrays = read_arrays(path)
    try:
        if facts["format"] != FORMAT or facts["version"] != VERSION:
            raise KeyError("format")
        model, party = str(facts["model"]), str(facts["party"])
        if party != site.name:
            raise DataError(f"{str(path)!r} is the part of party {party!r}, not of {site.name!r}")
        if "shares" in facts:
            site.keys[shared_network.KEY.format(model)] = Part.load(model, facts["shares"], arrays)
        if "bottom" in facts:
            bottom = Bottom.__new__(Bottom)
            bottom.settings = facts["bottom"]["settings"]
            bottom.encoder = InputEncoder.from_plain(facts["bottom"]["encoder"])
            bottom.setup(party)
            bottom.matrix, bottom._cached, bottom.pending = None, {}, None
            set_weights(bottom.module, _part(arrays, "bottom/"), str(path))
            site.keys[f"model:{model}/bottom"] = bottom
        if "top" in facts:
            top = Top.__new__(Top)
            for name in ("settings", "widths", "task", "outputs", "classes", "centre", "spread"):
                setattr(top, name, facts["top"][name])
            top.setup()
            set_weights(top.module, _part(arrays, "top/"), str(path))
            site.keys[f"model:{model}/top"] = top
        shares = _part(arrays, "share of/")
        if shares or "share" in arrays:
            site.keys[f"model:{model}/share"] = shares or arrays["share"]
    except (KeyError, TypeError):
        raise DataError(f"{str(path)!r} is not a part of a network of this version of fedsift") from None
    return model


def _part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
