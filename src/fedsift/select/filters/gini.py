"""Filter by Gini impurity under encrypted labels: the baseline MS-GINI of FedSDG-FS (Li et al. 2023).

The conversation is in ``mpc/column_scores/gini.py``; FedSDG-FS starts from it, too.
"""

from __future__ import annotations

from fedsift.core.federation import Federation
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.mpc.column_scores import gini
from fedsift.mpc.column_scores.gini import encrypted_gini
from fedsift.select.base import Outcome, Selector, check_choice, check_number, check_size


class GiniFilter(Selector):
    """Keep the columns whose bins are purest in the label. Scores are 1 - impurity.

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least purity to keep; one of the two.
    bins : bins of a numeric column (twice as many at most, where heavy values lie between others).
    min_cell : bins with fewer rows are merged with a neighbour.
    scheme : additive encryption: ``auto``, ``ou`` or ``paillier``.
    """

    name = "gini"
    paper = "Li et al. 2023, FedSDG-FS, Algorithm 1 (baseline MS-GINI)"
    leaks = "label holder: one impurity an unnamed column, nothing finer; others: which of their columns were kept"
    operations = gini.OPERATIONS
    cell_parameters = ("min_cell",)

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        bins: int = 8,
        min_cell: int = 5,
        scheme: str = "auto",
    ):
        self.n_features = n_features
        self.threshold = threshold
        self.bins = bins
        self.min_cell = min_cell
        self.scheme = scheme

    def _check(self, fed: Federation) -> None:
        check_size(self.n_features, self.threshold)
        check_choice("scheme", self.scheme, SCHEMES)
        check_number("bins", self.bins, 2, 100, whole=True)
        check_number("min_cell", self.min_cell, 1, whole=True)

    def _select(self, fed: Federation) -> Outcome:
        impurities = encrypted_gini(fed, bins=self.bins, min_cell=self.min_cell, scheme=self.scheme)
        if self.min_cell == 1:
            fed.ledger.note("min_cell=1: the impurity of a column may tell the class of a single row")
        return Outcome.best({name: 1 - g for name, g in impurities.items()}, self.n_features, self.threshold)
