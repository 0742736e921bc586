"""Fixed point of boosting on shares: what a unit of a gradient, a hessian, a score and a leaf is worth, from public
numbers alone; and the sigmoid as lines.

A gradient sum stays below 2^34 and a hessian sum with its penalties below 2^27, whatever the labels are, so that both
share one word and can be compared (``program.py``). Scores of two classes are numbers of 16 bits in steps of 2^-10:
their sigmoid is looked up, 32 lines of width 2 around the even numbers from -32 to 30 (least squares; the chance is
within 0.03 of the true one, the hessian is the mean of a cell). A number to predict is scaled by its holder to at most
1 in size; there the gradient is the score less the target, and nothing is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedsift.errors import ParameterError
from fedsift.models.boost.tree import HESSIAN_SUM_BITS, TreeSettings
from fedsift.mpc.ring import Ring
from fedsift.mpc.row_programs import Lines

SCORE_BITS, CELLS, CELL_BITS = 10, 32, 11
HALF_CELL = 2 ** (CELL_BITS - 1)
RATE_BITS = 16
#: Bits of a leaf below those of a score, for gains.
MORE_BITS = 4
_SHIFT = np.uint64(HESSIAN_SUM_BITS)


def _bits(value: float) -> int:
    return int(np.ceil(np.log2(max(1.0, value))))


@dataclass(frozen=True)
class Scales:
    """Fractional bits of gradients, hessians and scores, and the settings of a tree in these units."""

    logistic: bool
    gradient: int
    hessian: int
    score: int
    penalty: int  # lambda, at least one unit
    rate: int  # learning rate, in units of 2^-RATE_BITS
    least_weight: int
    least_rows: int

    @classmethod
    def of(cls, logistic: bool, rows: int, settings: TreeSettings) -> Scales:
        gradient = 33 - _bits(rows * (2 if logistic else 8))
        hessian = 26 - _bits(rows * (0.25 if logistic else 1) + 2 * settings.reg_lambda + 2 * settings.min_child_weight)
        found = cls(
            logistic, gradient, hessian, SCORE_BITS if logistic else gradient,
            max(1, round(settings.reg_lambda * 2.0**hessian)), max(1, round(settings.learning_rate * 2**RATE_BITS)),
            int(np.ceil(settings.min_child_weight * 2.0**hessian)), settings.min_rows,
        )  # fmt: skip
        if 27 + max(0, found.shift) + found.leaf_bits > 62 or found.shift < -12 or hessian < 0:
            raise ParameterError(
                f"reg_lambda={settings.reg_lambda:g} and min_child_weight={settings.min_child_weight:g} leave no room "
                f"for the hessians of {rows} rows on shares; protection='coordinator' has it"
            )
        return found

    @property
    def words(self) -> type[np.unsignedinteger]:
        """Of a score: as wide as it needs to be."""
        return np.uint16 if self.logistic else np.uint64

    @property
    def shift(self) -> int:
        """A leaf is rate x gradient / ((hessian + lambda) 2^shift), with ``MORE_BITS`` below the unit of a score."""
        return RATE_BITS + self.gradient - self.hessian - self.score - MORE_BITS

    @property
    def leaf_bits(self) -> int:
        """Leaves are below 8 (2 where targets are at most 1) in size; what is larger becomes that."""
        return self.score + MORE_BITS + (3 if self.logistic else 1)

    def scores(self, values: NDArray[np.floating]) -> NDArray[np.unsignedinteger]:
        """Into words."""
        return np.rint(np.ldexp(values, self.score)).astype(np.int64).astype(self.words)

    def values(self, scores: NDArray[np.unsignedinteger]) -> NDArray[np.float64]:
        """Back, with their sign."""
        signed = scores.view(np.int16 if self.logistic else np.int64)
        return np.ldexp(signed.astype(np.float64), -self.score)

    def targets(self, values: NDArray[np.floating]) -> Ring:
        """What the label holder takes off the words of the chances (or scores)."""
        whole = np.rint(np.ldexp(values, self.gradient)).astype(np.int64)
        return whole.astype(np.uint64) << _SHIFT

    def from_scores(self, scores: NDArray[np.unsignedinteger], number: int) -> Ring:
        """Squared error: words of the scores and of a hessian of 1 (party 0's), on shares."""
        one = np.uint64(2**self.hessian if number == 0 else 0)
        return (scores.astype(np.uint64) << _SHIFT) + one

    @cached_property
    def sigmoid(self) -> Lines:
        """Chance and hessian of a score and half a cell, in one word: the first cell lies around zero."""
        width = 2.0 ** (CELL_BITS - SCORE_BITS)
        cell = np.arange(CELLS)
        left = (np.where(cell < CELLS // 2, cell, cell - CELLS) - 0.5) * width
        place = (np.arange(64) + 0.5) / 64
        chance = 1 / (1 + np.exp(-(left[:, None] + width * place)))
        slope = ((place - 0.5) * chance).sum(axis=1) / ((place - 0.5) ** 2).sum()
        step = np.rint(np.ldexp(slope, self.gradient - CELL_BITS)).astype(np.int64)
        middle = np.ldexp(chance.mean(axis=1), self.gradient)
        start = np.rint(middle - step * (2.0**CELL_BITS - 1) / 2).astype(np.int64)
        hessian = np.maximum(np.rint(np.ldexp((chance * (1 - chance)).mean(axis=1), self.hessian)), 1)
        words = (start.astype(np.uint64) << _SHIFT) + hessian.astype(np.uint64)
        return Lines(words, step.astype(np.uint64) << _SHIFT, upper=6, under=CELL_BITS - 6)
