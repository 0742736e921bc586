"""Feature Election: parties select by themselves, and a vote decides. The usual baseline for row-partitioned parties.

After NVIDIA FLARE's recipe of that name: each party selects on its own rows (lasso, elastic net, random forest or
mutual information); columns that all voters chose are kept (the intersection), and of those that some chose (the
union) the share ``freedom_degree`` with the highest scores, averaged by rows.

Departure: votes and scores travel as secure sums, so nobody learns how a single party voted. The coordinator learns
the number of votes of each column and its average score. A party whose rows have one class only abstains.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.party import Party
from fedsift.errors import DataError, ParameterError
from fedsift.mpc import horizontal_study
from fedsift.mpc.horizontal_study import (
    DESIGN,
    TARGET,
    agree_columns,
    describe_rows,
    load_columns,
    open_study,
    standardise,
)
from fedsift.mpc.secure_sum import SecureSum, both, summed
from fedsift.select.base import Outcome, Selector, check_choice, check_number

_METHODS = ("lasso", "elastic_net", "forest", "mutual_information")


@summed("election.cast_votes", about="votes for columns and their scores", receives="control")
def cast_votes(party: Party, *, method: str, alpha: float, n_local: int, task: str, seed: int) -> np.ndarray:
    """Votes (0 or 1), scores times rows, then the rows and the one voter that this party is."""
    design, target = party.state[DESIGN], party.state[TARGET]
    width = design.shape[1]
    y = target[:, 0] if task == "regression" else target.argmax(axis=1)
    if len(np.unique(y)) < 2 or len(y) < 5:
        return np.zeros(2 * width + 2)
    scores = local_scores(design, y, method, alpha, task, seed)
    if method in ("lasso", "elastic_net"):
        votes = scores > 0
    else:
        votes = np.zeros(width, dtype=bool)
        votes[np.argsort(-scores, kind="stable")[:n_local]] = True
    size = scores.max(initial=0.0)
    return np.concatenate([votes, len(y) * scores / (size if size > 0 else 1.0), [len(y), 1.0]])


def local_scores(design: np.ndarray, y: np.ndarray, method: str, alpha: float, task: str, seed: int) -> np.ndarray:
    """One number a column, never negative, from one party's own rows."""
    if method in ("lasso", "elastic_net"):
        from sklearn.linear_model import ElasticNet

        model = ElasticNet(alpha=alpha, l1_ratio=1.0 if method == "lasso" else 0.5, max_iter=20_000, tol=1e-3)
        targets = [y] if task == "regression" else [(y == label).astype(float) for label in np.unique(y)]
        return np.sum([np.abs(model.fit(design, each).coef_) for each in targets], axis=0)
    if method == "forest":
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        forest = RandomForestRegressor if task == "regression" else RandomForestClassifier
        return forest(n_estimators=100, random_state=seed).fit(design, y).feature_importances_
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

    estimate = mutual_info_regression if task == "regression" else mutual_info_classif
    return estimate(design, y, random_state=seed)


class FeatureElection(Selector):
    """Keep the columns that the parties elect.

    Parameters
    ----------
    method : how a party selects: ``lasso``, ``elastic_net``, ``forest`` or ``mutual_information``.
    freedom_degree : 0 keeps the intersection of the parties' choices, 1 their union.
    n_local : columns that a party chooses by forest or mutual information; half of them by default.
    alpha : penalty of lasso and elastic net on standardised columns.
    """

    name = "feature_election"
    paper = "NVIDIA FLARE, Feature Election (baseline), with votes under secure aggregation"
    partitions = ("horizontal",)
    leaks = "coordinator: number of votes and average score of each column, class names; no party's own vote"
    operations = (*horizontal_study.OPERATIONS, *both(cast_votes))

    def __init__(
        self,
        *,
        method: str = "lasso",
        freedom_degree: float = 0.5,
        n_local: int | None = None,
        alpha: float = 0.01,
        random_state: Any = 0,
        secure: bool = True,
    ):
        self.method = method
        self.freedom_degree = freedom_degree
        self.n_local = n_local
        self.alpha = alpha
        self.random_state = random_state
        self.secure = secure

    def _check(self, fed: Federation) -> None:
        check_choice("method", self.method, _METHODS)
        check_number("freedom_degree", self.freedom_degree, 0, 1)
        check_number("n_local", self.n_local, 1, whole=True, none=True)
        check_number("alpha", self.alpha, 1e-9)
        if fed.names == "private":
            raise ParameterError("columns are matched by name: FeatureElection needs a federation with names='shared'")

    def _select(self, fed: Federation) -> Outcome:
        described = fed.ask(describe_rows, to=fed.parties, task=fed._task)
        numeric, other = agree_columns(described)
        if not numeric:
            raise DataError("no column is a number at every party; there is nothing to vote on")
        total = SecureSum(fed, secure=self.secure)
        study = open_study(total, described, 0.0, self.random_state)
        total.ask_all(load_columns, columns=numeric)
        standardise(total, len(numeric))
        seed = int(np.random.default_rng(self.random_state).integers(2**31))
        sums = total.sum(
            cast_votes, (2 * len(numeric) + 2,), method=self.method, alpha=float(self.alpha), task=study.task,
            n_local=self.n_local or -(-len(numeric) // 2), seed=seed,
        )  # fmt: skip
        votes, scores = np.rint(sums[: len(numeric)]), sums[len(numeric) : -2] / max(sums[-2], 1.0)
        chosen = elect(votes, scores, round(sums[-1]), self.freedom_degree)
        names = fed.column_names()
        where = {name: i for i, name in enumerate(numeric)}
        by_party = {p: np.array([scores[where[c]] if c in where else 0.0 for c in cs]) for p, cs in names.items()}
        kept = {p: np.array([bool(c in where and chosen[where[c]]) for c in cs], dtype=bool) for p, cs in names.items()}
        counted = {name: int(count) for name, count in zip(numeric, votes)}
        details = {"votes": counted, "voters": round(sums[-1]), "without_numbers": other}
        return Outcome(by_party, kept, details)


def elect(votes: np.ndarray, scores: np.ndarray, voters: int, freedom_degree: float) -> np.ndarray:
    """The intersection, and the best ``freedom_degree`` of what is in the union besides."""
    everybody = (votes >= voters) & (votes > 0)
    contested = np.flatnonzero((votes > 0) & ~everybody)
    seats = int(np.ceil(freedom_degree * len(contested)))
    order = contested[np.argsort(-scores[contested], kind="stable")]
    chosen = everybody.copy()
    chosen[order[:seats]] = True
    return chosen
