"""The range of a column under an epsilon: public, from the user, or paid for. Never from the table for nothing.

A column that is shifted and scaled by its own mean and deviation is moved in *every* row when one row is replaced
(measured: 12 to 317 times as far as noise for one value covers). A range that does not depend on the table moves one
row only. So with ``epsilon`` an engineer takes

- ``bounds={"age": (0, 120), "shop.basket": (0, 500)}``: public ranges, and only columns that are named take part; or
- ``bounds=None``: each party finds the ranges of its own columns at ``PAID`` of the run's rho, from a histogram with
  Gaussian noise over powers of two of either sign, and a second one over sixteen equal parts of the span of the first.
  Replacing a row moves one count down and one up: sensitivity sqrt(2).

Values outside of a range are held at its ends, missing ones stand in its middle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from fedsift.core.job import Job
from fedsift.crypto.dp import Budget, epsilon_to_rho, whole_gaussian_noise
from fedsift.errors import DataError, ParameterError

#: Of the run's rho, for ranges that the user does not give.
PAID = 0.15
_FINE = 16
_POWERS = 2.0 ** np.arange(-20, 41)
#: Where the pieces of the first histogram of a paid range begin and end; values beyond are held there.
EDGES = np.concatenate([-_POWERS[::-1], _POWERS])


@dataclass(frozen=True)
class Range:
    """From ``low`` to ``high``."""

    low: float
    high: float

    @property
    def centre(self) -> float:
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Spending:
    """The rho of a job: what ranges take of it, and what is left for all other releases."""

    rho: float
    paid: bool

    @classmethod
    def of(cls, job: Job) -> Spending:
        """From the accepted job alone."""
        return cls.plan(job.parameters["epsilon"], job.parameters["delta"], job.parameters["bounds"])

    @classmethod
    def plan(cls, epsilon: float, delta: float, bounds: object) -> Spending:
        return cls(epsilon_to_rho(float(epsilon), float(delta)), bounds is None)

    @property
    def ranges(self) -> float:
        return PAID * self.rho if self.paid else 0.0

    @property
    def rest(self) -> float:
        return self.rho - self.ranges


P = TypeVar("P", bound="SumsPlan")


@dataclass(frozen=True)
class SumsPlan:
    """The noise of a run that releases sums of products of two columns, and then of two and a residual.

    From public figures alone: what the job may spend, and how far a replaced row moves either (an engineer says).
    """

    spending: Spending
    parties: int
    first: ClassVar[float]  # of the rho that ranges leave, for the sums of two; the rest is for those of three

    @classmethod
    def of(cls: type[P], job: Job) -> P:
        return cls(Spending.of(job), len(job.parties))

    def sums_scale(self, length: float) -> float:
        """Standard deviation for the sums of v v', v = (1, columns and target), of which ``length`` is the largest
        squared length without the 1: a replaced row moves the upper triangle by sqrt(2) (length + 1/2) at most (L2; the
        worst are two rows with inner product -1/2)."""
        return math.sqrt(2) * (length + 0.5) / math.sqrt(2 * self.first * self.spending.rest)

    def residual_scale(self, moved: float) -> float:
        """The same for the sums with the residual, which a replaced row moves by ``moved`` at most (L2)."""
        return moved / math.sqrt(2 * (1 - self.first) * self.spending.rest)

    def budget(self, epsilon: float, delta: float) -> Budget:
        """What the run spends, release by release."""
        budget, rest = self.paid(epsilon, delta), self.spending.rest * (1 - 1e-9)
        budget.spend_rho(self.first * rest, "sums of products of two columns")
        budget.spend_rho((1 - self.first) * rest, "sums of products of two columns and the residual")
        return budget

    def paid(self, epsilon: float, delta: float) -> Budget:
        """What ranges have cost."""
        budget = Budget(epsilon, delta)
        if self.spending.paid:
            budget.spend_rho(self.spending.ranges, "ranges of columns")
        return budget


def check_bounds(bounds: object, target_bounds: object) -> None:
    """Raise ``ParameterError`` for what is no mapping of columns to (low, high), or no such pair."""
    if bounds is not None and (not isinstance(bounds, Mapping) or not bounds):
        raise ParameterError(f"bounds must be a mapping of columns to (low, high), or None; got {bounds!r}")
    pairs = {f"bounds[{name!r}]": pair for name, pair in (bounds or {}).items()}
    for name, pair in {**pairs, **({} if target_bounds is None else {"target_bounds": target_bounds})}.items():
        good = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        if (
            not good
            or not all(isinstance(end, (int, float, np.number)) and np.isfinite(end) for end in pair)
            or pair[0] >= pair[1]
        ):
            raise ParameterError(f"{name} must be two numbers, the lower first; got {pair!r}")


def bounded_columns(job: Job, columns: Sequence[str], owner: str = "") -> list[str]:
    """Those of a party's columns of numbers that take part: with a public range, or all where none is public."""
    known = job.parameters["bounds"]
    return [name for name in columns if known is None or name in known or f"{owner}.{name}" in known]


def ranges_of(job: Job, values: np.ndarray, columns: Sequence[str], owner: str, paid: int) -> dict[str, Range]:
    """The range of each column (``values``: rows x columns), public or drawn at one of ``paid`` parts of the price.

    A column whose drawn range does not stand out of the noise has none.
    """
    known = job.parameters["bounds"]
    if known is not None:
        return {name: Range(*map(float, known.get(f"{owner}.{name}", known.get(name)))) for name in columns}
    each = Spending.of(job).ranges / max(paid, 1)
    drawn = {name: paid_range(column, each) for name, column in zip(columns, values.T)}
    return {name: found for name, found in drawn.items() if found is not None}


def target_range(job: Job, target: np.ndarray, party: str, paid: int) -> Range:
    """The range of an amount that is to be predicted, public or drawn."""
    known = job.parameters["target_bounds"]
    if known is not None:
        return Range(float(known[0]), float(known[1]))
    spending = Spending.of(job)
    if not spending.paid:
        raise DataError(f"party {party!r}: bounds are public, so the target needs public ones too: set target_bounds")
    found = paid_range(target, spending.ranges / paid)
    if found is None:
        raise DataError(
            f"party {party!r}: the range of the target does not stand out of the noise; set target_bounds, or a larger "
            "epsilon, or bring more rows"
        )
    return found


def paid_range(values: np.ndarray, rho: float) -> Range | None:
    """From the lowest to the highest piece of the line that is not empty, by two histograms, rho-zCDP together."""
    coarse = occupied(*noisy_counts(values, EDGES, rho / 2), EDGES)
    if coarse is None:
        return None
    fine = fine_edges(coarse)
    return occupied(*noisy_counts(values, fine, rho / 2), fine) or coarse


def fine_edges(coarse: Range) -> np.ndarray:
    """Of the second histogram."""
    return np.linspace(coarse.low, coarse.high, _FINE + 1)


def occupied(noisy: np.ndarray, scale: float, edges: np.ndarray) -> Range | None:
    """The span of the pieces whose number of rows, with noise of deviation ``scale``, noise alone would not show."""
    seen = np.flatnonzero(noisy > scale * (2 + math.sqrt(2 * math.log(len(noisy)))))
    return Range(float(edges[seen[0]]), float(edges[seen[-1] + 1])) if len(seen) else None


def noisy_counts(values: np.ndarray, edges: np.ndarray, rho: float) -> tuple[np.ndarray, float]:
    """Rows in each piece, with Gaussian noise, rho-zCDP; and its deviation. A replaced row is sqrt(2) in L2."""
    counts, scale = piece_counts(values, edges), 1 / math.sqrt(rho)
    return counts + whole_gaussian_noise(len(counts), scale), scale


def piece_counts(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Rows in each piece between two edges; those beyond the ends are in the first and the last."""
    return np.histogram(np.clip(values[~np.isnan(values)], edges[0], edges[-1]), edges)[0]
