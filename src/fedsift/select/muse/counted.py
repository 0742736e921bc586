"""A joint table with noise, and the mutual information and entropies that can be said of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Counted:
    """A joint table with noise of a known variance in each cell."""

    cells: np.ndarray
    variance: float
    rows: int

    def information(self) -> float:
        """Mutual information in nats, less what noise and few rows add to it; 0 where a side has one bin."""
        down, across = self.cells.shape
        if min(down, across) < 2:
            return 0.0
        parts = [
            (self.cells, 1, 1.0),
            (self.cells.sum(axis=1), across, -1.0),
            (self.cells.sum(axis=0), down, -1.0),
            (self.cells.sum(), down * across, 1.0),
        ]
        total = sum(sign * self._weight(counts, summands) for counts, summands, sign in parts)
        return float(total / self.rows - (down - 1) * (across - 1) / (2 * self.rows))

    def entropies(self) -> tuple[float, float]:
        """Of the column and of the one that it was counted with."""
        full = self._weight(self.cells.sum(), self.cells.size)
        down, across = self.cells.shape
        sides = (self.cells.sum(axis=1), across), (self.cells.sum(axis=0), down)
        first, second = (max(0.0, (full - self._weight(*side)) / self.rows) for side in sides)
        return (first if down > 1 else 0.0), (second if across > 1 else 0.0)

    def _weight(self, counts: np.ndarray, summands: int) -> float:
        """The sum of n ln n, less half of the noise's variance times its curvature 1 / n.

        Below the noise's deviation it goes on as a straight line, which noise does not bend.
        """
        variance = summands * self.variance
        floor = max(1.0, float(np.sqrt(variance)))
        shown = np.maximum(counts, floor)
        bent = np.where(counts > 2 * floor, variance / (2 * shown), 0.0)
        return float((counts * np.log(shown) - bent).sum())
