"""Filter by Gini impurity under encrypted labels: the baseline MS-GINI of FedSDG-FS (Li et al. 2023).

The conversation is in ``mpc/column_scores/label_tables.py``; FedSDG-FS starts from it, too.
"""

from __future__ import annotations

from fedsift.core.federation import Federation
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.mpc.column_scores.gini import OPERATIONS, encrypted_gini
from fedsift.mpc.column_scores.noise import check_privacy
from fedsift.select.base import Outcome, Selector, check_choice, check_number, check_size
from fedsift.select.filters.opened import check_opener, note_privacy


class GiniFilter(Selector):
    """Keep the columns whose bins are purest in the label. Scores are 1 - impurity.

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least purity to keep; one of the two.
    bins : bins of a numeric column (twice as many at most, where heavy values lie between others).
    min_cell : bins with fewer rows are merged with a neighbour.
    scheme : additive encryption: ``auto``, ``ou`` or ``paillier``.
    epsilon, delta : differential privacy of each party's rows (``mpc/column_scores/noise.py``); None: exact counts.
    """

    name = "gini"
    paper = "Li et al. 2023, FedSDG-FS, Algorithm 1 (baseline MS-GINI)"
    leaks = "coordinator: sizes and label counts of shuffled, unnamed bins; parties: which of their columns were kept"
    operations = OPERATIONS
    cell_parameters = ("min_cell",)
    epsilon_parameters = ("epsilon",)

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        bins: int = 8,
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
        impurities = encrypted_gini(
            fed, bins=self.bins, min_cell=self.min_cell, scheme=self.scheme, epsilon=self.epsilon, delta=self.delta
        )
        note_privacy(fed, self.epsilon, self.delta, self.min_cell)
        return Outcome.best({name: 1 - g for name, g in impurities.items()}, self.n_features, self.threshold)
