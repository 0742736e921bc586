"""Filter by Gini impurity under encrypted labels: the baseline MS-GINI of FedSDG-FS (Li et al. 2023).

FedSDG-FS starts from the same impurities (``mpc/column_scores/gini.py``).
"""

from __future__ import annotations

import numpy as np

from fedsift.mpc.column_scores.gini import gini_impurities
from fedsift.mpc.column_scores.label_tables import ColumnTables
from fedsift.select.filters.label_tables import LabelTableFilter
from fedsift.select.sureness import one_sided


class GiniFilter(LabelTableFilter):
    """Keep the columns whose bins are purest in the label. Scores are 1 - impurity.

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least purity to keep; one of the two.
    n_bins : bins of a numeric column (twice as many at most, where heavy values lie between others).
    min_cell : bins with fewer rows are merged with a neighbour before anybody counts them.
    scheme : additive encryption: ``auto``, ``ou`` or ``paillier``.
    epsilon, delta : differential privacy of each party's rows (``mpc/column_scores/noise.py``); None: exact counts.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> fs.GiniFilter(n_features=2).fit(fed).selected_
    {'bank': [], 'shop': ['petal length (cm)', 'petal width (cm)']}
    """

    name = "gini"
    paper = "Li et al. 2023, FedSDG-FS, Algorithm 1 (baseline MS-GINI)"

    def _scores(self, table: ColumnTables, totals: np.ndarray) -> np.ndarray:
        return 1 - gini_impurities(table)

    def _noise_reaches(self, freedom: np.ndarray, totals: np.ndarray, level: float) -> np.ndarray:
        """The purity of one bin, and what noise adds to it: for each class a share of chi-squared."""
        shares = totals / totals.sum()
        part = one_sided(freedom, level / (1 if len(totals) == 2 else len(totals)))
        return np.asarray((shares**2).sum() + (shares * (1 - shares)).sum() * part / totals.sum())
