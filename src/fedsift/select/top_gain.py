"""Top-k by SecureBoost gain, with k chosen by cross-validation: the plain method that must stand beside the swarm.

One booster over all columns ranks them by the gain of their splits. For each fold of the training rows a ranking is
made anew without that fold, boosters on the best k columns are scored on it for several k, and the k with the highest
mean score, less a price for each column, wins. Boosters of folds compare numbers of columns with each other and are
nobody's model: they have half as many trees, a level less deep. Rankings, then all folds and all k, grow in lock-step:
what is dear is a tree after another, not one beside another. Which rows a fold has, only the label holder knows.

Where ``n_features`` is more than the columns that the booster cuts, a booster over the columns that are left ranks them
next, and so on; fewer are kept only where no column that is left has any gain, and ``details_`` says so.

What is given away is SecureBoost's (docs/secureboost.md), and to the coordinator the gain of each column. With some
twenty boosters over the same rows the label holder would place most cells of the others' columns from left and right of
node rows, so that the default is the level at which nobody is told these.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedsift.core.federation import Federation
from fedsift.models.boost.growing import Booster
from fedsift.models.boost.plan import Plain, fold_rules
from fedsift.models.boost.results import METRICS
from fedsift.models.boost.scoring import OPERATIONS, Protection, by_party, flat, held_out, uses
from fedsift.models.boost.settings import WEIGHED_OPENLY, check_boosting, serves, tree_settings
from fedsift.select.base import Outcome, Selector, check_choice, check_number


class TopGain(Selector):
    """Keep the columns with the highest gain in a SecureBoost model.

    Parameters
    ----------
    n_features : how many to keep; ``None`` lets cross-validation choose.
    max_share : the largest share of all columns that cross-validation tries.
    price : what keeping every column would cost, in units of the score; k columns cost their share of it.
    folds, metric : of the cross-validation; ``auto`` is AUC or R2.
    n_estimators, max_depth, learning_rate, multi_output, n_bins, gamma, reg_lambda, min_child_weight : as in
        SecureBoostClassifier, of the booster that ranks.
    protection, first_tree_local, min_cell, min_leaf, scheme : likewise, but the default is ``"all"``. What that cannot
        do (rows that count differently, ``multi_output``) is refused; ``"coordinator"`` can, and shows what it shows.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> kept = fs.TopGain(n_features=2, n_estimators=3).fit(fed).selected_
    >>> sum(len(columns) for columns in kept.values())
    2
    """

    name = "top_gain"
    paper = "baseline beside PSO-EVFFS: gain ranking of SecureBoost"
    leaks = "coordinator: one gain a column; label holder: who cuts a node, scores of held-out rows; nobody: rows, sums"
    operations = OPERATIONS
    cell_parameters = ("min_cell", "min_leaf")
    otherwise = WEIGHED_OPENLY
    _steps = 6  # numbers of columns that cross-validation tries

    def __init__(
        self,
        *,
        n_features: int | None = None,
        max_share: float = 1 / 3,
        price: float = 0.01,
        folds: int = 3,
        metric: str = "auto",
        n_estimators: int = 24,
        max_depth: int = 4,
        learning_rate: float = 0.3,
        multi_output: bool = False,
        n_bins: int = 16,
        gamma: float = 0.0,
        reg_lambda: float = 1.0,
        min_child_weight: float = 1.0,
        protection: str = "all",
        first_tree_local: bool = True,
        min_cell: int = 10,
        min_leaf: int = 5,
        scheme: str = "auto",
        random_state: int = 0,
    ):
        self.n_features = n_features
        self.max_share = max_share
        self.price = price
        self.folds = folds
        self.metric = metric
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.multi_output = multi_output
        self.n_bins = n_bins
        self.gamma = gamma
        self.reg_lambda = reg_lambda
        self.min_child_weight = min_child_weight
        self.protection = protection
        self.first_tree_local = first_tree_local
        self.min_cell = min_cell
        self.min_leaf = min_leaf
        self.scheme = scheme
        self.random_state = random_state

    def _serves(self) -> tuple[str, ...]:
        return serves(self)

    def _check(self, fed: Federation) -> None:
        check_number("n_features", self.n_features, 1, whole=True, none=True)
        check_number("max_share", self.max_share, 1e-9, 1)
        check_number("price", self.price, 0)
        check_number("folds", self.folds, 2, 20, whole=True)
        check_choice("metric", self.metric, METRICS)
        check_boosting(self, fed)

    def _select(self, fed: Federation) -> Outcome:
        protection = Protection(
            self.protection, max(self.min_cell, self.min_leaf), self.first_tree_local, scheme=self.scheme
        )
        columns = sum(fed.n_columns.values())
        whole = self._booster(by_party(fed, np.arange(columns)))
        rules = fold_rules(self.folds, int(self.random_state)) if self.n_features is None else []
        ranked = uses(fed, [whole, *(self._of_fold(whole.columns, rule) for rule in rules)], protection, "gain")
        details: dict[str, object] = {}
        size = self.n_features
        if size is None:
            sizes = sizes_to_try(columns, self.max_share, self._steps)
            boosters = []
            for rule, gain in zip(rules, ranked[1:]):
                order = np.argsort(-flat(gain, fed), kind="stable")
                boosters += [self._of_fold(by_party(fed, order[:k]), rule) for k in sizes]
            scores = held_out(fed, boosters, protection, self.metric).reshape(len(rules), len(sizes)).mean(axis=0)
            size = sizes[int(np.argmax(scores - self.price * np.array(sizes) / columns))]
            details["curve"] = [{"columns": k, "score": float(s)} for k, s in zip(sizes, scores)]
        total = self._with_more(fed, flat(ranked[0], fed), size, protection)
        used = int((total > 0).sum())
        if used < size:
            details["fewer"] = f"only {used} of {columns} columns have any gain, so {max(1, used)} of {size} are kept"
            fed.ledger.note(f"top_gain: {details['fewer']}")
        parted = dict(zip(fed.n_columns, np.split(total, np.cumsum(list(fed.n_columns.values()))[:-1])))
        outcome = Outcome.best(parted, max(1, min(size, used)), None)
        outcome.details.update(details, n_features=size, columns_with_gain=used)
        return outcome

    def _with_more(self, fed: Federation, gain: np.ndarray, size: int, protection: Protection) -> np.ndarray:
        """Rank columns that were never cut by boosters over those alone, below all that were, until there are enough.

        The first tree is grown on all parties' columns where the label holder has none left.
        """
        while 0 < (gain > 0).sum() < size and (gain == 0).any():
            left = np.flatnonzero(gain == 0)
            places = by_party(fed, left)
            local = protection.first_tree_local and len(places[str(fed.active)]) > 0
            more = flat(uses(fed, [self._booster(places)], replace(protection, first_tree_local=local), "gain")[0], fed)
            if not more.any():
                break
            gain = gain + more * (gain[gain > 0].min() / (2 * more.max()))
        return gain

    def _of_fold(self, columns: dict[str, np.ndarray], rule: dict[str, Plain]) -> Booster:
        """A smaller one, on the rows of a fold: it takes part in a comparison alone."""
        whole = self._booster(columns)
        settings = replace(whole.settings, max_depth=max(min(2, self.max_depth), self.max_depth - 1))
        trees = max(min(4, self.n_estimators), -(-self.n_estimators // 2))
        return replace(whole, rows=rule, n_estimators=trees, settings=settings)

    def _booster(self, columns: dict[str, np.ndarray]) -> Booster:
        return Booster(
            tree_settings(self), columns, self.n_estimators, bins=self.n_bins, multi_output=bool(self.multi_output),
            seed=int(self.random_state),
        )  # fmt: skip


def sizes_to_try(columns: int, share: float, steps: int) -> list[int]:
    """Numbers of columns, evenly spaced in ratio, up to a share of all."""
    most = max(1, round(share * columns))
    return sorted({round(float(k)) for k in np.geomspace(1, most, steps)})
