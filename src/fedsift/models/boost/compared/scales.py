"""Fixed point of boosting on shares: what a unit of a gradient, a hessian, a score and a leaf is worth, from public
numbers alone; and the sigmoid in steps.

A gradient sum and a hessian sum with its penalties share one word and can be compared (``program.py``): with two
classes they stay below 2^28 and 2^25 whatever the labels are, so that a word has 56 bits and a product of fractions
160; with a number to predict below 2^34 and 2^27, in 64 and 192 bits. Scores of two classes are numbers of 16 bits in
steps of 2^-10: their sigmoid is looked up in 512 cells, an eighth wide (the chance is within 0.016 of the true one). A
number to predict is scaled by its holder to at most 1 in size; there the gradient is the score less the target, and
nothing is looked up.

Models that grow together have the same units and settings of their own (``Limits``): penalties that are small beside
the rows leave units as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedsift.errors import ParameterError
from fedsift.models.boost.tree import TreeSettings
from fedsift.mpc.ring import Ring
from fedsift.mpc.row_programs import Steps

SCORE_BITS, CELLS, CELL_BITS = 10, 512, 7
HALF_CELL = 2 ** (CELL_BITS - 1)
#: Bits of a chance that is looked up; its hessian has two less.
CHANCE_BITS = 11
RATE_BITS = 16
#: Bits of a leaf below those of a score, for gains.
MORE_BITS = 4
_LEAST_PENALTY = 64  # room that every model has for penalties, so that those of a search have the same units


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
    count: int = 4  # bytes of a number of rows that travel

    @classmethod
    def of(cls, logistic: bool, rows: int, settings: TreeSettings) -> Scales:
        gradient = 28 - _bits(rows) if logistic else 33 - _bits(8 * rows)
        penalties = 2 * settings.reg_lambda + 2 * settings.min_child_weight
        most = rows * (0.25 if logistic else 1) + max(_LEAST_PENALTY, penalties)
        hessian = (25 if logistic else 26) - _bits(most)
        found = cls(
            logistic, gradient, hessian, SCORE_BITS if logistic else gradient,
            max(1, round(settings.reg_lambda * 2.0**hessian)), max(1, round(settings.learning_rate * 2**RATE_BITS)),
            int(np.ceil(settings.min_child_weight * 2.0**hessian)), settings.min_rows, 3 if rows < 2**22 else 4,
        )  # fmt: skip
        if 27 + max(0, found.shift) + found.leaf_bits > 62 or found.shift < -12 or hessian < (4 if logistic else 0):
            raise ParameterError(
                f"reg_lambda={settings.reg_lambda:g} and min_child_weight={settings.min_child_weight:g} leave no room "
                f"for the hessians of {rows} rows on shares; protection='coordinator' has it"
            )
        return found

    @property
    def units(self) -> tuple[bool, int, int, int, int]:
        """What models must have in common to grow together."""
        return self.logistic, self.gradient, self.hessian, self.score, self.count

    @property
    def low(self) -> int:
        """Bits of the hessian in a word: the highest of them stays free."""
        return 26 if self.logistic else 28

    @property
    def high(self) -> int:
        """Bits of the gradient above them, likewise."""
        return 30 if self.logistic else 36

    @property
    def offset(self) -> int:
        """Added to a gradient sum, it is never negative."""
        return int(2 ** (self.high - 2))

    @property
    def parts(self) -> int:
        """Of 32 bits, of a product of fractions."""
        return 5 if self.logistic else 6

    @property
    def word(self) -> int:
        """Bytes of a word that travel."""
        return (self.low + self.high) // 8

    def together(self, gradients: NDArray[np.int64], hessians: NDArray[np.int64]) -> Ring:
        """Words of both."""
        return (gradients.astype(np.uint64) << np.uint64(self.low)) + hessians.astype(np.uint64)

    def apart(self, words: Ring) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Gradients and hessians of words, whatever stands above them."""
        hessians = words & np.uint64(2**self.low - 1)
        up = np.uint64(64 - self.low - self.high)
        gradients = ((words - hessians) << up).view(np.int64) >> np.int64(64 - self.high)
        return gradients, hessians.astype(np.int64)

    @property
    def words(self) -> type[np.unsignedinteger]:
        """Of a score: as wide as it needs to be."""
        return np.uint16 if self.logistic else np.uint64

    @property
    def shift(self) -> int:
        """A leaf is rate x gradient / ((hessian + lambda) 2^shift), with ``MORE_BITS`` below the unit of a score."""
        return RATE_BITS + self.gradient - self.hessian - self.score - MORE_BITS

    @property
    def leaf_width(self) -> int:
        """Bits of a leaf in the unit of a score, and its sign."""
        return self.leaf_bits - MORE_BITS + 1

    @property
    def leaf_bits(self) -> int:
        """Leaves are below 8 (2 where targets are at most 1) in size; what is larger becomes that."""
        return self.score + MORE_BITS + (3 if self.logistic else 1)

    def scores(self, values: NDArray[np.floating]) -> NDArray[np.unsignedinteger]:
        """Into words."""
        return np.asarray(np.rint(np.ldexp(values, self.score)).astype(np.int64).astype(self.words))

    def values(self, scores: NDArray[np.unsignedinteger]) -> NDArray[np.float64]:
        """Back, with their sign."""
        signed = scores.view(np.int16 if self.logistic else np.int64)
        return np.ldexp(signed.astype(np.float64), -self.score)

    def targets(self, values: NDArray[np.floating]) -> Ring:
        """What the label holder takes off the words of the chances (or scores)."""
        whole = np.rint(np.ldexp(values, self.gradient)).astype(np.int64)
        return np.asarray(whole.astype(np.uint64) << np.uint64(self.low))

    def from_scores(self, scores: NDArray[np.unsignedinteger], number: int) -> Ring:
        """Squared error: words of the scores and of a hessian of 1 (party 0's), on shares."""
        one = np.uint64(2**self.hessian if number == 0 else 0)
        return (scores.astype(np.uint64) << np.uint64(self.low)) + one

    @cached_property
    def sigmoid(self) -> Steps:
        """Chance and hessian of a score and half a cell, in one word: the first cell lies around zero."""
        cell = np.arange(CELLS)
        middle = np.ldexp(np.where(cell < CELLS // 2, cell, cell - CELLS).astype(float), CELL_BITS - SCORE_BITS)
        chance = 1 / (1 + np.exp(-middle))
        size = min(CHANCE_BITS, self.gradient), min(CHANCE_BITS, self.hessian)
        bits = size[0], size[1] - 2
        whole = np.rint(np.ldexp(chance, size[0])), np.maximum(np.rint(np.ldexp(chance * (1 - chance), size[1])), 1)
        values = np.stack([np.minimum(part, 2**b - 1) for part, b in zip(whole, bits)], axis=1).astype(np.uint16)
        weights = [2 ** (self.low + self.gradient - size[0]), 2 ** (self.hessian - size[1])]
        return Steps(values, bits, np.array(weights, dtype=np.uint64), CELL_BITS)

    @cached_property
    def losses(self) -> Steps:
        """What a score costs a row whose label is no (of yes the score is turned), in units of a score; none at the
        lowest, where rows are put that are not counted."""
        cell = np.arange(CELLS)
        middle = np.ldexp(np.where(cell < CELLS // 2, cell, cell - CELLS).astype(float), CELL_BITS - SCORE_BITS)
        whole = np.rint(np.ldexp(np.logaddexp(0.0, middle), SCORE_BITS)).astype(np.uint16)
        return Steps(whole[:, None], (15,), np.ones(1, np.uint64), CELL_BITS)


@dataclass(frozen=True)
class Limits:
    """Settings of models with the same units, one number a node: penalty, rate, least weight and least rows."""

    penalty: Ring
    rate: Ring
    weight: Ring
    rows: Ring

    @classmethod
    def of(cls, models: Sequence[Scales], nodes: Sequence[int]) -> Limits:
        """Of so many nodes of each model."""
        told = [(model.penalty, model.rate, model.least_weight, model.least_rows) for model in models]
        return cls(*np.repeat(np.array(told, dtype=np.uint64).reshape(-1, 4), nodes, axis=0).T)

    def repeated(self, times: int) -> Limits:
        return Limits(*(np.tile(part, times) for part in (self.penalty, self.rate, self.weight, self.rows)))
