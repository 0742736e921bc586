"""The settings of the halves of a network as they travel, with bounds: a request names no other field.

Here too: gradients in the clear that say less about labels than they would (``protected``: for research, by name), and
the option ``label_epsilon`` of every network: what is checked before anything is asked, and what a run says of it. How
the copy of the labels is drawn is in ``core/labels.py``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between, MayMiss
from fedsift.core.federation import Federation
from fedsift.core.labels import is_epsilon, range_of
from fedsift.core.message import message
from fedsift.core.party import Party, Task
from fedsift.errors import ParameterError, ReplyError

#: Embeddings or gradients of a batch: a line a row. The half that takes them says whose are not finite.
Rows = Annotated[NDArray[np.float32], MayMiss()]
Layers = Annotated[list[Annotated[int, Between(1, 100_000)]], AtMost(50)]
#: What is multiplied with: rates, prices, spreads.
Scale = Annotated[float, Between(0, 1e6)]
#: What a registered model is built with; ``hidden`` of the dense ones, anything plain of others.
Options = Annotated[dict[str, bool | int | float | str | Layers | None], AtMost(50)]


Blur = Literal["max_norm", "noise"]
UNSAID_EPOCHS, PRICES = 1000, 20  # of a training, and one after the other, where the job says nothing of it


@message
@dataclass(frozen=True)
class GateSettings:
    """Of stochastic gates; several prices are several networks side by side."""

    sigma: Scale
    price: float | Annotated[list[float], AtMost(1000)]
    embedding: bool
    init: str | float | None
    rate: Scale


@dataclass(frozen=True)
class HalfSettings:
    """What both halves have."""

    seed: int
    batch_size: Annotated[int, Between(1, 1 << 24)]
    rate: Scale
    model: str
    options: Options
    decay: Scale = 0.0


@message
@dataclass(frozen=True)
class BottomSettings(HalfSettings):
    """A party's half."""

    width: Annotated[int, Between(1, 100_000)] = 1
    gates: GateSettings | None = None
    shadows: Annotated[int, Between(0, 100_000)] = 0
    equal_norm: Scale | None = None
    prox: Scale | None = None
    components: Annotated[list[int], AtMost(100_000)] | None = None


@message
@dataclass(frozen=True)
class TopSettings(HalfSettings):
    """The label holder's half."""

    task: Task = "auto"
    protection: Blur | None = None
    protection_scale: Scale = 1.0
    interactive: Scale | None = None


def most_epochs(party: Party) -> int:
    """How long the accepted job trains at most: its epochs, of a method that looks for its price at each of some
    prices; where they follow from the number of rows, so many that they never do."""
    told = {} if party.run.job is None else party.run.job.parameters
    epochs = [value for name, value in told.items() if name.endswith("epochs")]
    whole = sum(value if isinstance(value, int) else UNSAID_EPOCHS for value in epochs) if epochs else UNSAID_EPOCHS
    return whole * (PRICES if any(name.startswith("lambda") for name in told) else 1)


def embeddings_of(replies: Mapping[str, object]) -> dict[str, Rows]:
    """At the coordinator, before they are passed on: whoever sent something else is named."""
    found: dict[str, Rows] = {}
    for name, rows in replies.items():
        if not isinstance(rows, np.ndarray) or rows.dtype != np.float32:
            raise ReplyError(name, "embedding", f"party {name!r} sent no embedding of its rows")
        found[name] = rows
    return found


LABEL_PROTECTIONS = (None, "max_norm", "noise")


def protected(gradient: np.ndarray, how: str, scale: float) -> np.ndarray:
    """Gradients that say less about labels; the noise is from the operating system.

    ``max_norm`` (Li et al. 2022): each row gets noise along its own gradient so that all rows have, in expectation,
    the norm of the largest; ``noise``: Gaussian noise of ``scale`` times the mean row norm in every component.
    """
    generator = np.random.default_rng(secrets.randbits(128))
    norms = np.linalg.norm(gradient, axis=1, keepdims=True)
    if how == "max_norm":
        ratio = norms.max(initial=0.0) / np.maximum(norms, 1e-12)
        deviation = np.minimum(np.sqrt(np.maximum(ratio**2 - 1, 0.0)), 1e3)
        return np.asarray(
            (gradient * (1 + scale * deviation * generator.standard_normal(norms.shape))).astype(np.float32)
        )
    noise = generator.standard_normal(gradient.shape) * scale * norms.mean() / np.sqrt(gradient.shape[1])
    return np.asarray((gradient + noise).astype(np.float32))


def check_label_epsilon(fed: Federation, epsilon: object, between: object) -> None:
    """``between``: the public range of a label that is a number; classes need none."""
    if between is not None and range_of(between) is None:
        raise ParameterError(f"label_range must be (low, high), two numbers; got {between!r}")
    if epsilon is None:
        return
    if not is_epsilon(epsilon):
        raise ParameterError(f"label_epsilon must be a number from 0.001 to 100, or None; got {epsilon!r}")
    if fed.task == "regression" and between is None:
        raise ParameterError(
            f"label_epsilon={epsilon:g} for a number as label needs label_range=(low, high), which is public: bounds "
            "from the rows would tell about them"
        )


def note_label_epsilon(fed: Federation, epsilon: float | None) -> None:
    if epsilon is not None:
        fed.ledger.note(
            f"epsilon {epsilon:g} for the label of one row, in this run: the label holder drew a randomised copy of "
            "its labels, and everything was computed from the copy. It is no privacy of columns"
        )
