"""How sure a difference between two models is, from the folds of a cross-validation.

The folds' differences are not independent: training parts overlap. Their mean is given with the corrected resampled t
interval of Nadeau and Bengio (2003): the variance of the mean of J folds is taken as (1/J + test/train) times the
variance between folds, with J - 1 degrees of freedom. It is wider than the plain interval (twice, for five folds), and
holds its level where that one does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean and where it lies with the given confidence; infinite where one fold says nothing of the spread."""

    mean: float
    low: float
    high: float

    def rounded(self, digits: int) -> Interval:
        return Interval(*(round(value, digits) for value in (self.mean, self.low, self.high)))


def corrected_interval(values: Sequence[float], test_share: float, confidence: float = 0.95) -> Interval:
    """Of the mean over folds; ``test_share`` is the share of rows that a fold tests."""
    found = np.asarray(values, dtype=np.float64)
    found = found[np.isfinite(found)]
    if not len(found):
        return Interval(float("nan"), float("-inf"), float("inf"))
    mean = float(found.mean())
    if len(found) < 2:
        return Interval(mean, float("-inf"), float("inf"))
    factor = 1.0 / len(found) + test_share / (1.0 - test_share)
    reach = float(stats.t.ppf(0.5 + confidence / 2, len(found) - 1) * np.sqrt(factor * found.var(ddof=1)))
    return Interval(mean, mean - reach, mean + reach)


Summary = dict[str, float | None]


def summaries(
    values: Mapping[str, Sequence[Mapping[str, float]]], metrics: Sequence[str], *, beside: str | None, share: float,
    digits: int,
) -> dict[str, dict[str, Summary]]:  # fmt: skip
    """Of each method and measure over its folds: mean, deviation, and the interval of the paired difference to
    ``beside``; rounded. ``share`` is the share of rows that a fold tests."""
    found = {method: {m: np.array([fold[m] for fold in folds]) for m in metrics} for method, folds in values.items()}
    others = found.get(beside or "", {})
    return {
        method: {m: _summary(mine[m], others.get(m) if method != beside else None, share, digits) for m in metrics}
        for method, mine in found.items()
    }


def _summary(mine: Floats, other: Floats | None, share: float, digits: int) -> Summary:
    found: Summary = {"mean": float(mine.mean()), "deviation": None, "low": None, "high": None}
    if len(mine) > 1:
        found["deviation"] = float(mine.std(ddof=1))
    if other is not None and len(other) == len(mine):
        interval = corrected_interval((mine - other).tolist(), share)
        found["low"], found["high"] = interval.low, interval.high
    return {
        key: None if value is None or not np.isfinite(value) else round(value, digits) for key, value in found.items()
    }
