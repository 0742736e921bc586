"""Differential privacy of labels against everybody but their holder: what is counted, and the noise of each release.

**Neighbours** are two tables that differ in the label of one row (replaced by another class); ids and columns are the
same. **Releases**: the start score, once; of every level of every round the gradient sums of all bins of all columns
and of the nodes, from which cuts are chosen; of every round the leaves. Given what was released before, the nodes,
scores and hessians are the same for both tables, and one row's gradient differs, by 1 (by 1 in two of the trees of a
round where there are more than two classes). A row lies in one node of a level, in one bin of each column and in one
leaf. So the squared sensitivities are, times ``moved`` (1 or 2): 1 for the start and for the leaves of a round, and for
a level the number of columns and one for the nodes. Cuts of another party's columns are opened as running sums; their
noise is a running sum too, and because a column with missing values runs through its bins twice (``hidden/cuts.py``),
ordered columns of others count twice, whether they have any or not. In the open form the label holder decrypts sums of
bins itself, so every column counts once; the nodes that the other parties see follow from what was released.

**Noise**: discrete Gaussian, drawn by the label holder, whose labels it protects, from the operating system; added to
its half before it leaves (in the open form, to what it has decrypted, before it chooses). Passive parties and the
coordinator, also together, lack it. Every release is rho-zCDP with rho = sensitivity^2 / (2 scale^2); they add up, over
trees x depth, start and leaves, to the rho of (epsilon, delta). Gradients are rounded to a unit that follows from
public numbers; rounding can move them by one unit more, counted.

**Not covered.** It is no privacy of columns: the label holder reads left and right of node rows, and in the open form
sums, without noise.
Two jobs add up. The labels' names and the number of rows are public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedsift.crypto.dp import epsilon_to_rho, whole_gaussian_noise
from fedsift.errors import SecurityError

#: Shares of rho: the start score, the leaves; the rest is for the cuts.
START, LEAVES = 0.02, 0.28


@dataclass
class LabelNoise:
    """The noise of one run, from public numbers; what was released is counted."""

    epsilon: float
    delta: float
    rounds: int
    depth: int
    outputs: int  # trees of a round
    rows: int
    levels_left: int = 0
    leaves_left: int = 0

    def __post_init__(self) -> None:
        self.levels_left, self.leaves_left = self.rounds * self.depth, self.rounds

    @cached_property
    def rho(self) -> float:
        return epsilon_to_rho(self.epsilon, self.delta) * (1 - 1e-9)

    @property
    def moved(self) -> int:
        """In how many trees of a round (or classes) the gradient of a row changes."""
        return 1 if self.outputs == 1 else 2

    def start_scale(self) -> float:
        """Of counts of classes."""
        return math.sqrt(self.moved / (2 * START * self.rho))

    def level_scale(self, others: int, own: int) -> float:
        """Of every bin's gradient sum, given the columns of a tree."""
        rho = (1 - START - LEAVES) * self.rho / (self.rounds * self.depth)
        return math.sqrt(self.moved * (2 * others + own + 1) / (2 * rho))

    def leaf_scale(self) -> float:
        return math.sqrt(self.moved * self.rounds / (2 * LEAVES * self.rho))

    def largest_sum(self, bins: int, others: int, own: int) -> float:
        """Room for a sum of gradients and its noise."""
        return self.rows + 12 * math.sqrt(2 * bins) * max(self.level_scale(others, own), self.leaf_scale())

    def use_level(self) -> None:
        self.levels_left -= 1
        if self.levels_left < 0:
            raise SecurityError("more levels were asked for than the privacy budget was divided by")

    def use_leaves(self) -> None:
        self.leaves_left -= 1
        if self.leaves_left < 0:
            raise SecurityError("more trees were asked for than the privacy budget was divided by")


def whole_noise(shape: tuple[int, ...], scale: float, unit: float) -> NDArray[np.int64]:
    """For sums of whole numbers of this unit. A label moves them by 1 / unit, and one more for rounding."""
    return whole_gaussian_noise(shape, scale * (1 / unit + 1))


def running_noise(nodes: int, columns: NDArray[np.int64], free: int, scale: float, unit: float) -> NDArray[np.int64]:
    """Nodes x candidates: columns of so many cuts each, a running sum inside each, then so many free categories."""
    noise = whole_noise((nodes, int(columns.sum()) + free), scale, unit)
    start = 0
    for count in columns.tolist():
        noise[:, start : start + count] = np.cumsum(noise[:, start : start + count], axis=1)
        start += count
    return noise
