"""A party's inputs on the principal axes of its own columns: what plain gradient steps need to learn from many columns.

Correlated columns make the loss a narrow valley: at a rate that its walls allow, plain steps do not get along it
(Isolet's 617 columns: 12 % accuracy). A party knows the shape of its own part of the valley. So it turns its inputs to
their principal axes and divides each by sqrt(variance + RIDGE x mean variance): the walls are even, and axes that carry
little stay small. At most ``MOST_AXES`` axes take part, so a wide table costs fewer bytes as well. No message, and
nobody hears of it but by the number of inputs, which follows from the numbers of columns and rows.

An axis mixes columns: for networks that only predict. Gates and group lasso need inputs that belong to a column.
RIDGE, the number of axes and the rates were chosen in floating point on Isolet, Gina, USPS, Musk, Sonar, COIL20, CNAE9,
Colon, ARCENE, BASEHOCK and RELATHE, splits 100 to 105.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
WIDE = 64  # inputs of all parties; with fewer, columns are taken as they are
MOST_AXES = 256  # of one party
RIDGE = 4.0


def axes_of(inputs: int, rows: int) -> int:
    """How many axes a party with so many inputs takes."""
    return min(inputs, rows, MOST_AXES)


@dataclass(frozen=True)
class Basis:
    """Where the axes begin, and the axes (inputs x axes), each divided by its scale."""

    centre: Floats
    axes: Floats

    spread: float  # root of the mean variance of the training rows along the scaled axes

    def evened(self, spread: float) -> float:
        """What a spread meant for inputs of variance 1 is for these."""
        return spread / self.spread

    def turned(self, inputs: Floats) -> Floats:
        return np.asarray((inputs - self.centre) @ self.axes)

    @classmethod
    def fit(cls, inputs: Floats) -> Basis:
        """From training rows; the smaller of the two matrices of products is taken apart."""
        rows, count = inputs.shape
        centre = inputs.mean(axis=0)
        centred = inputs - centre
        if count <= rows:
            variances, axes = np.linalg.eigh(centred.T @ centred / rows)
        else:
            variances, sides = np.linalg.eigh(centred @ centred.T / rows)
            axes = centred.T @ (sides / np.sqrt(np.maximum(rows * variances, 1e-9)))
        kept = np.argsort(-variances, kind="stable")[: axes_of(count, rows)]
        variances = np.maximum(variances, 0.0)
        scale = variances[kept] + RIDGE * max(float(variances.mean()), 1e-12)
        spread = float(np.sqrt(np.mean(variances[kept] / scale))) or 1.0
        return cls(centre, axes[:, kept] / np.sqrt(scale), spread)
