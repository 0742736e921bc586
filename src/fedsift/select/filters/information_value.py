"""Filter by information value (weight of evidence), from label counts that are summed under encryption.

What credit scoring calls IV, and FATE and SecretFlow offer: IV = sum over bins of (P(bin|yes) - P(bin|no)) *
ln(P(bin|yes) / P(bin|no)). More than two classes: one against the rest, averaged by class size. An empty cell counts
as 0.5, as is usual. Equal-frequency bins; a bin a category; a bin for missing values; bins below ``min_cell`` merged.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedsift.core.design import DRAWN
from fedsift.core.federation import Federation
from fedsift.core.operation import together
from fedsift.errors import ParameterError
from fedsift.mpc.column_scores.label_tables import OPERATIONS, ColumnTables
from fedsift.select.base import Outcome, check_choice, check_number
from fedsift.select.filters.label_tables import LabelTableFilter
from fedsift.select.filters.woe import KINDS as WOE_KINDS
from fedsift.select.filters.woe import OPERATIONS as WOE_OPERATIONS
from fedsift.select.filters.woe import tell_weights, woe_view
from fedsift.select.sureness import one_sided

#: With noise: deviations of it that a bin must hold to be looked at.
_SHOWN = 3.0


def information_value(
    table: np.ndarray, totals: np.ndarray, variance: float = 0.0, bias_correction: bool = False
) -> float:
    """IV of one column from its bins x classes counts and the sizes of the classes.

    ``variance`` is that of noise in each count: what its curvature adds in the mean is taken off (to second order), and
    bins that hold hardly more than noise are left out. ``bias_correction`` takes off what a column without any relation
    to the label has in the mean: the result is 0 there, on average, with few bins and with many.
    """
    classes, rows = len(totals), float(totals.sum())
    table = table[table.sum(axis=1) >= _SHOWN * np.sqrt(classes * variance)]
    table = table[np.lexsort(table.T)]  # bins come shuffled: the same sum in every run, and copies tie
    if len(table) < 2:
        return 0.0
    value, weight = 0.0, 0.0
    for k in range(classes) if classes > 2 else [0]:
        yes, no = float(totals[k]), rows - float(totals[k])
        counts = table[:, k]
        inside = _share(counts, table, yes, variance)
        outside = _share(table.sum(axis=1) - counts, table, no, variance * (classes - 1))
        part = float(((inside - outside) * np.log(inside / outside)).sum())
        part -= 0.5 * float(_curvature(inside, outside, variance / yes**2).sum())
        part -= 0.5 * float(_curvature(outside, inside, variance * (classes - 1) / no**2).sum())
        if bias_correction:
            part -= (np.count_nonzero(table.sum(axis=1)) - 1) * (1 / yes + 1 / no)
        value += totals[k] * part
        weight += totals[k]
    return value / weight


def _share(counts: np.ndarray, table: np.ndarray, total: float, variance: float) -> np.ndarray:
    """P(bin | class); no count below 0.5, or below its noise where the bin has room for it."""
    least = np.maximum(0.5, np.minimum(np.sqrt(variance), table.sum(axis=1) / 4))
    return np.asarray(np.maximum(counts, least) / total)


def _curvature(p: np.ndarray, q: np.ndarray, variance: float) -> np.ndarray:
    """The second derivative of (p - q) ln(p / q) by p, times the variance of p."""
    return np.asarray(variance * (1 / p + q / p**2))


class InformationValue(LabelTableFilter):
    """Keep the columns with the highest information value.

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least value to keep (0.02 is the usual "some use"; a note says
        where a column of noise would reach it); one of the two.
    n_bins : bins of a numeric column (twice as many at most, where heavy values lie between others).
    min_cell : bins with fewer rows are merged with a neighbour before anybody counts them.
    scheme : additive encryption: ``auto``, ``ou`` or ``paillier``.
    epsilon, delta : differential privacy of each party's rows (``mpc/column_scores/noise.py``); None: exact counts.
    woe : ``bins`` or ``monotone``: tell each party the weights of evidence of its kept columns (``woe.py``), for two
        classes; ``woe_transform`` and the party's own selection file then put them in the place of values.
    woe_digits : decimals of a weight.
    bias_correction : take off what noise adds to the value, about (bins - 1)(1/yes + 1/no): else columns with many
        categories look better than they are.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> fs.InformationValue(n_features=2).fit(fed).selected_
    {'bank': [], 'shop': ['petal length (cm)', 'petal width (cm)']}
    """

    name = "information_value"
    paper = "Weight of evidence as in FATE and SecretFlow (baseline FATE-IV of MUSE)"
    leaks = LabelTableFilter.leaks + ", with woe rounded weights of evidence of their bins"
    operations = together(OPERATIONS, WOE_OPERATIONS)

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        n_bins: int = 10,
        min_cell: int = 10,
        scheme: str = "auto",
        epsilon: float | None = None,
        delta: float = 1e-6,
        woe: str | None = None,
        woe_digits: int = 3,
        bias_correction: bool = True,
    ):
        super().__init__(
            n_features=n_features, threshold=threshold, n_bins=n_bins, min_cell=min_cell, scheme=scheme,
            epsilon=epsilon, delta=delta,
        )  # fmt: skip
        self.woe = woe
        self.woe_digits = woe_digits
        self.bias_correction = bias_correction

    def _serves(self) -> tuple[str, ...]:
        return super()._serves() if self.woe is None else DRAWN

    def _check(self, fed: Federation) -> None:
        super()._check(fed)
        check_number("woe_digits", self.woe_digits, 1, 9, whole=True)
        check_choice("bias_correction", self.bias_correction, (True, False))
        if self.woe is None:
            return
        check_choice("woe", self.woe, WOE_KINDS)
        if self.epsilon is not None:
            raise ParameterError("weights of evidence are of exact counts: give woe or epsilon, one of the two")
        if fed.task != "classification" or fed.n_classes != 2:
            raise ParameterError("weights of evidence are for a label of two classes")

    def _scores(self, table: ColumnTables, totals: np.ndarray) -> np.ndarray:
        correct = self.bias_correction
        return np.array([information_value(p, totals, table.variance, correct) for p in table.columns()], dtype=float)

    def _noise_reaches(self, freedom: np.ndarray, totals: np.ndarray, level: float) -> np.ndarray:
        """IV of noise is about (1/yes + 1/no) times chi-squared, one class against the rest averaged by size."""
        part = one_sided(freedom, level / (1 if len(totals) == 2 else len(totals)))
        scales = 1 / totals + 1 / (totals.sum() - totals)
        mean = scales[0] if len(totals) == 2 else float((totals * scales).sum() / totals.sum())
        return np.asarray(mean * (part - (freedom if self.bias_correction else 0)))

    def _after(self, fed: Federation, tables: dict[str, ColumnTables], totals: np.ndarray, outcome: Outcome) -> None:
        if self.woe is None:
            return
        found = tell_weights(fed, tables, totals, outcome.selected, self.woe, self.woe_digits)
        names = fed.column_names()
        outcome.details["woe"] = {
            "part": found.part,
            "weights": {
                party: {names[party][place]: weights.tolist() for place, weights in mine.items()}
                for party, mine in found.weights.items()
            },
        }

    def woe_transform(self, fed: Federation) -> Federation:
        """The same federation with weights of evidence in the place of the kept columns; each party computes its own.

        Examples
        --------
        >>> import fedsift as fs, numpy as np
        >>> X = np.random.default_rng(0).normal(size=(3000, 4))
        >>> fed = fs.Federation.split(X, X[:, 0] + X[:, 3] > 0, parties=["bank", "shop"])
        >>> fitted = fs.InformationValue(n_features=2, woe="monotone").fit(fed)
        >>> fitted.woe_transform(fed).column_names()
        {'bank': ['woe(f0)'], 'shop': ['woe(f3)']}
        """
        check_is_fitted(self, "selection_")
        if self.woe is None:
            raise ParameterError("it has no weights of evidence: give woe='bins' or 'monotone', and fit again")
        return woe_view(fed, self.details_["woe"]["part"])
