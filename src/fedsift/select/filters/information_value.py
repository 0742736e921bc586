"""Filter by information value (weight of evidence), from label counts that are summed under encryption.

What credit scoring calls IV, and FATE and SecretFlow offer: IV = sum over bins of (P(bin|yes) - P(bin|no)) *
ln(P(bin|yes) / P(bin|no)). More than two classes: one against the rest, averaged by class size. An empty cell counts
as 0.5, as is usual. Equal-frequency bins; a bin a category; a bin for missing values; bins below ``min_cell`` merged.

The coordinator opens the counts from two halves (``mpc/column_scores/label_tables.py``) and computes the values; a
party learns which of its columns were kept, the label holder nothing about the others' columns. Rounds: 5.
"""

from __future__ import annotations

import numpy as np

from fedsift.core.federation import Federation
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.mpc.column_scores.label_tables import OPERATIONS, class_sizes, label_tables
from fedsift.mpc.column_scores.noise import check_privacy
from fedsift.select.base import Outcome, Selector, check_choice, check_number, check_size
from fedsift.select.filters.opened import check_opener, note_privacy


def information_value(table: np.ndarray, totals: np.ndarray, variance: float = 0.0) -> float:
    """IV of one column from its bins x classes counts and the sizes of the classes.

    ``variance`` is that of noise in each count: what its curvature adds in the mean is taken off (to second order).
    """
    classes = range(len(totals)) if len(totals) > 2 else [0]
    rows, sizes = totals.sum(), table.sum(axis=1)
    value, weight = 0.0, 0.0
    least = np.maximum(0.5, np.minimum(np.sqrt(variance), sizes / 4)) if variance else np.full(len(table), 0.5)
    for k in classes:
        inside, outside = _shares(table[:, k], sizes, least, totals[k], rows - totals[k])
        part = float(((inside - outside) * np.log(inside / outside)).sum())
        if variance:
            spread = variance * (len(totals) - 1 if k == len(totals) - 1 else 1)
            part -= 0.5 * spread * float(_curvature(inside, outside, totals[k], rows - totals[k]).sum())
        value += totals[k] * part
        weight += totals[k]
    return value / weight if len(table) > 1 else 0.0


def _shares(
    counts: np.ndarray, sizes: np.ndarray, least: np.ndarray, yes: float, no: float
) -> tuple[np.ndarray, np.ndarray]:
    """P(bin | yes) and P(bin | no); no count below ``least``."""
    rest = sizes - counts
    return np.where(counts < least, least, counts) / yes, np.where(rest < least, least, rest) / no


def _curvature(p: np.ndarray, q: np.ndarray, yes: float, no: float) -> np.ndarray:
    """The second derivative of (p - q) ln(p / q) by the count in the bin, whose size stays."""
    a, b = 1 / yes, -1 / no
    return np.asarray(2 * (a - b) * (a / p - b / q) + (p - q) * (b**2 / q**2 - a**2 / p**2))


class InformationValue(Selector):
    """Keep the columns with the highest information value.

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least value to keep (0.02 is the usual "some use", which noise
        reaches on small tables: about (bins - 1)(1/yes + 1/no)); one of the two.
    bins : equal-frequency bins of a numeric column.
    min_cell : bins with fewer rows are merged with a neighbour before anybody counts them.
    scheme : additive encryption: ``auto``, ``ou`` or ``paillier``.
    epsilon, delta : differential privacy of each party's rows (``mpc/column_scores/noise.py``); None: exact counts.
    """

    name = "information_value"
    paper = "Weight of evidence as in FATE and SecretFlow (baseline FATE-IV of MUSE)"
    leaks = "coordinator: sizes and label counts of shuffled, unnamed bins; parties: which of their columns were kept"
    operations = OPERATIONS
    cell_parameters = ("min_cell",)
    epsilon_parameters = ("epsilon",)

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        bins: int = 10,
        min_cell: int = 10,
        scheme: str = "auto",
        epsilon: float | None = None,
        delta: float = 1e-6,
    ):
        self.n_features = n_features
        self.threshold = threshold
        self.bins = bins
        self.min_cell = min_cell
        self.scheme = scheme
        self.epsilon = epsilon
        self.delta = delta

    def _check(self, fed: Federation) -> None:
        check_size(self.n_features, self.threshold)
        check_choice("scheme", self.scheme, SCHEMES)
        check_number("bins", self.bins, 2, 100, whole=True)
        check_number("min_cell", self.min_cell, 1, whole=True)
        check_privacy(self.epsilon, self.delta)
        check_opener(fed, self.epsilon)

    def _select(self, fed: Federation) -> Outcome:
        tables = label_tables(
            fed, n_bins=self.bins, min_cell=self.min_cell, scheme=self.scheme, epsilon=self.epsilon, delta=self.delta
        )
        totals = np.maximum(class_sizes(tables), 1.0)
        values = {
            name: np.array([information_value(part, totals, table.variance) for part in table.columns()], dtype=float)
            for name, table in tables.items()
        }
        note_privacy(fed, self.epsilon, self.delta, self.min_cell)
        return Outcome.best(values, self.n_features, self.threshold)
