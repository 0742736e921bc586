"""A party's side of a descent on shares (``shared_descent.py``): columns, what their scores are for, replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between, PartyName
from fedsift.core.message import message
from fedsift.core.party import Party
from fedsift.errors import DataError
from fedsift.mpc.ring import Floats, Precision, Ring, check_shape

Step = Annotated[int, Between(0, 10**9)]
STEPS = "4 x max_iter or rounds or 1000 a session"  # each opens sums at weights of the coordinator's choice
Loss = Callable[[Floats], tuple[Floats, Floats]]  # scores -> numbers for the coordinator (losses), residuals


@message
@dataclass(frozen=True)
class ScoreParts:
    """A party's part of the scores, and of the products with residuals where the label holder reads scores."""

    scores: Ring
    products: Ring | None
    read: bool


@message
@dataclass(frozen=True)
class ResidualShares:
    """A label holder's: for each party masked residuals and its share of a product, and a share of its own."""

    sides: dict[PartyName, list[Ring]]
    own: Ring


@message
@dataclass(frozen=True)
class GradientShares:
    """A party's share of its own sums, and of those that it helps with."""

    own: Ring
    helped: dict[PartyName, Ring]


@message
@dataclass(frozen=True)
class OwnGradient:
    """What a label holder's loss tells, and sums of its own columns times residuals."""

    loss: Floats
    own: Floats


@message
@dataclass(frozen=True)
class OpenedResiduals(OwnGradient):
    """The same, and for each party masked residuals with a share of a product."""

    sides: dict[PartyName, list[Ring]]


@dataclass
class Columns:
    """A party's side of one run. ``values`` are its columns as numbers (the label holder's: a last one of ones)."""

    values: Floats
    outputs: int
    target: Floats | None = None  # the label holder's, where residuals are linear: scores - target
    loss: Loss | None = None  # the label holder's, where they are not
    row_weights: NDArray[np.int64] | None = field(default=None, repr=False)  # the label holder's (``row_weights.py``)
    weights_mask: Ring | None = field(default=None, repr=False)  # of these, the label holder's and its helper's
    helper: str = ""
    reads_scores: bool = False
    use: str = "descent"  # or what else the scores are for, as this party was asked itself
    ring: Ring = field(default_factory=lambda: np.zeros((0, 0), np.uint64), repr=False)
    own_mask: Ring = field(default_factory=lambda: np.zeros((0, 0), np.uint64), repr=False)
    helped: dict[str, Ring] = field(default_factory=dict, repr=False)
    precision: Precision = field(default_factory=lambda: Precision(0, 0, 0))

    def check_final(self, party: str, weights: Floats) -> None:
        """Final weights that are kept: one of each column and output."""
        if weights.shape != (self.values.shape[1], self.outputs) or not np.isfinite(weights).all():
            raise DataError(f"party {party!r}: these weights do not fit its columns")

    @property
    def read_here(self) -> bool:
        """Whether the label holder reads the scores of a descent: each step is one more of every row."""
        return self.reads_scores and self.use == "descent"

    @property
    def scores_mask(self) -> str:
        """The name of the mask: a label holder that is told something else of these scores cannot take it off."""
        return f"scores: {self.use}, {'read' if self.reads_scores else 'shared'}"

    def check_weights(self, party: Party, weights: np.ndarray) -> None:
        check_shape(weights, (self.values.shape[1], self.outputs), party.name)


def spread(values: Floats) -> float:
    """The largest variance of a combination of the columns with weights of length 1."""
    side = values if values.shape[0] < values.shape[1] else values.T
    return float(np.linalg.eigvalsh(side @ side.T)[-1]) / len(values) if values.size else 0.0
