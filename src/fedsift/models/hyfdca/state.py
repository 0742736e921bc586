"""What a party of HyFDCA keeps: its place and columns for the whole fit, and what changes from round to round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedsift.models.design import Design
from fedsift.models.hyfdca.loss import Duals, curvature
from fedsift.models.hyfdca.track import Track
from fedsift.mpc.ring import Ring


@dataclass
class Part:
    """What does not change during the rounds: a party's place in the grid, its columns and its metric."""

    holder: str  # who has the labels of these rows
    column_group: str | None  # name of the group that shares the columns; None: nobody else has them
    row_group: str | None
    holder_group: str | None
    first: bool  # speaks for its column block in sums over all blocks
    first_holder: bool
    loss: str
    alpha: float
    blocks: int
    rows: int  # over all row blocks
    outputs: int
    design: Design = field(default_factory=lambda: Design([], np.zeros(0), np.zeros(0)))
    raw: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    target: np.ndarray | None = None
    target_scale: tuple[float, float] = (0.0, 1.0)
    classes: tuple[str, ...] = ()
    x: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    x_ring: Ring = field(default_factory=lambda: np.zeros((0, 0), dtype=np.uint64))
    metric: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    hidden: dict[str, Ring] = field(default_factory=dict)  # the label holder's: E of each peer

    @property
    def bits(self) -> int:
        """Fractional bits of a column and of a dual: their products, summed over all rows, fit 62 bits."""
        return min(24, (58 - self.rows.bit_length()) // 2)

    @property
    def intercept_metric(self) -> float:
        return 1.0 / float(np.sqrt(curvature(self.loss) * self.rows))


class Means(NamedTuple):
    """Counts, sums and sizes of the columns (the label holders: of the target) over the group."""

    columns: np.ndarray
    target: np.ndarray | None


@dataclass(frozen=True)
class Walk:
    """Weights on their way down, and the sum over all rows of column times dual that they go by."""

    track: Track
    total: Ring
    fresh: bool = False  # whether the gradient is of this round, so that a plain step may follow it


@dataclass(frozen=True)
class Labels:
    """What the label holder keeps of its rows: scores from the others, centres, duals and their sum."""

    others: Ring
    centre: np.ndarray
    duals_sum: Ring
    duals_sent: Ring
    duals: Duals | None = None


@dataclass
class RoundState:
    """What changes during the rounds. What it holds is never changed in place: a round called off is undone by
    going back to ``before``."""

    columns: Walk
    own: Ring  # of own rows: column times dual
    sent: Ring  # the same, as last told
    scores: Ring  # as last told
    intercept: Walk | None = None  # the label holders'
    labels: Labels | None = None
    round: int = 0
    before: RoundState | None = None
