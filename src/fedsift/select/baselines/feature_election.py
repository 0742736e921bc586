"""Feature Election: parties select by themselves, and a vote decides. The usual baseline for row-partitioned parties.

After NVIDIA FLARE's recipe of that name: each party selects on its own rows (lasso, elastic net, random forest or
mutual information); columns that all voters chose are kept (the intersection), and of those that some chose (the
union) the share ``freedom_degree`` with the highest scores, averaged by rows.

Departure: votes and scores travel as secure sums, so nobody learns how a single party voted. The coordinator learns
the number of votes of each column and its average score. A party whose rows have one class only abstains. With
``epsilon`` a party votes by a linear model that it fits to sums with noise (``noisy_fit.py``), or, by another method,
its rows vote in blocks and the counts carry noise (``noisy_votes.py``): no mean or deviation is sent.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.party import Party
from fedsift.errors import DataError, ParameterError
from fedsift.mpc import horizontal_study
from fedsift.mpc.column_scores.noise import check_privacy
from fedsift.mpc.horizontal_study import (
    agree_columns,
    describe_rows,
    design_of,
    load_columns,
    open_study,
    standardise,
    target_of,
)
from fedsift.mpc.secure_sum import SecureSum, both, summed
from fedsift.select.base import Outcome, Selector, check_choice, check_number, note_privacy
from fedsift.select.baselines.local_scores import LINEAR, METHODS, ballot, local_scores
from fedsift.select.baselines.noisy_fit import CHANCE
from fedsift.select.baselines.noisy_votes import VotingSettings, block_votes, elected, noisy_ballot


@summed(
    "election.cast_votes",
    when="epsilon=none",
    about="votes for columns and their scores",
    receives="control",
    times="parties",
)
def cast_votes(party: Party, *, seed: int, task: Literal["classification", "regression"]) -> np.ndarray:
    """Votes (0 or 1), scores times rows, then the rows and the one voter that this party is."""
    design, target = design_of(party), target_of(party)
    told, width = party.job.parameters, design.shape[1]
    y = target[:, 0] if task == "regression" else target.argmax(axis=1)
    if len(np.unique(y)) < 2 or len(y) < 5:
        return np.zeros(2 * width + 2)
    scores = local_scores(design, y, str(told["method"]), float(told["penalty"]), task, seed)
    half = -(-width // 2)
    votes = ballot(scores, width if told["method"] in LINEAR else int(told["n_local"] or half))
    size = scores.max(initial=0.0)
    return np.concatenate([votes, len(y) * scores / (size if size > 0 else 1.0), [len(y), 1.0]])


class FeatureElection(Selector):
    """Keep the columns that the parties elect.

    Parameters
    ----------
    method : how a party selects: ``lasso``, ``elastic_net``, ``forest`` or ``mutual_information``.
    freedom_degree : 0 keeps the intersection of the parties' choices, 1 their union.
    n_local : columns that a party chooses by forest or mutual information; half of them by default. With ``epsilon``:
        that a party (or a block of its rows) votes for at most, by any method; 5 by default.
    penalty : of lasso and elastic net on standardised columns.
    protection : what leaves a party: ``"sums"`` (under masks: only totals over all parties can be read) or ``"open"``
        (research: each party's own votes).
    epsilon, delta : differential privacy of each party's rows (``noisy_fit.py``, ``noisy_votes.py``); None: exact votes
        and scores. Where blocks vote, a column is kept that more than ``1 - freedom_degree`` of all of them voted for.
    n_blocks : with ``epsilon`` and forest or mutual information, how many blocks of rows of a party vote (fewer where
        they would have under 20 rows).

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["north", "south"], partition="horizontal")
    >>> fs.FeatureElection(method="mutual_information", n_local=2).fit(fed).selected_["north"]
    ['petal length (cm)', 'petal width (cm)']
    """

    name = "feature_election"
    paper = "NVIDIA FLARE, Feature Election (baseline), with votes under secure aggregation"
    partitions = ("horizontal",)
    leaks = "coordinator: number of votes and average score of each column, class names; no party's own vote"
    operations = (*horizontal_study.OPERATIONS, *both(cast_votes, noisy_ballot, block_votes))
    epsilon_parameters = ("epsilon",)

    def __init__(
        self,
        *,
        method: str = "lasso",
        freedom_degree: float = 0.5,
        n_local: int | None = None,
        penalty: float = 0.01,
        random_state: Any = 0,
        protection: str = "sums",
        epsilon: float | None = None,
        delta: float = 1e-6,
        n_blocks: int = 100,
    ):
        self.method = method
        self.freedom_degree = freedom_degree
        self.n_local = n_local
        self.penalty = penalty
        self.random_state = random_state
        self.protection = protection
        self.epsilon = epsilon
        self.delta = delta
        self.n_blocks = n_blocks

    def _check(self, fed: Federation) -> None:
        check_choice("method", self.method, METHODS)
        check_number("freedom_degree", self.freedom_degree, 0, 1)
        check_number("n_local", self.n_local, 1, whole=True, none=True)
        check_number("penalty", self.penalty, 1e-9)
        check_choice("protection", self.protection, ("sums", "open"))
        check_privacy(self.epsilon, self.delta)
        check_number("n_blocks", self.n_blocks, 1, 10_000, whole=True)
        if fed.names == "private":
            raise ParameterError("columns are matched by name: FeatureElection needs a federation with names='shared'")

    def _select(self, fed: Federation) -> Outcome:
        described = fed.ask(describe_rows, to=fed.parties, task=fed._task)
        numeric, other = agree_columns(described)
        if not numeric:
            raise DataError("no column is a number at every party; there is nothing to vote on")
        total = SecureSum(fed, secure=self.protection != "open")
        return (self._exact if self.epsilon is None else self._noisy)(fed, total, described, numeric, other)

    def _exact(
        self, fed: Federation, total: SecureSum, described: dict[str, Any], numeric: list[str], other: list[str]
    ) -> Outcome:
        study = open_study(total, described, 0.0)
        total.ask_all(load_columns, columns=numeric)
        standardise(total, len(numeric))
        seed = int(np.random.default_rng(self.random_state).integers(2**31))
        sums = total.sum(cast_votes, (2 * len(numeric) + 2,), task=study.task, seed=seed)
        return self._counted(fed, sums, numeric, other)

    def _counted(self, fed: Federation, sums: np.ndarray, numeric: list[str], other: list[str]) -> Outcome:
        """The election, from the parties' ballots added up."""
        votes, scores = np.rint(sums[: len(numeric)]), sums[len(numeric) : -2] / max(sums[-2], 1.0)
        chosen = elect(votes, scores, round(sums[-1]), self.freedom_degree)
        details = {"votes": dict(zip(numeric, votes.astype(int).tolist())), "voters": round(sums[-1])}
        return self._outcome(fed, numeric, scores, chosen, {**details, "without_numbers": other})

    def _noisy(
        self, fed: Federation, total: SecureSum, described: dict[str, Any], numeric: list[str], other: list[str]
    ) -> Outcome:
        regression = any(facts["amount"] for facts in described.values())
        note_privacy(fed, self.epsilon, self.delta)
        if self.method in LINEAR:
            self._note_chance(fed, len(numeric))
            sums = total.sum(noisy_ballot, (2 * len(numeric) + 2,), columns=numeric, regression=regression)
            return self._counted(fed, sums, numeric, other)
        sums = total.sum(block_votes, (len(numeric) + 1,), columns=numeric, regression=regression)
        votes, blocks = sums[:-1], round(sums[-1])
        settings = VotingSettings.of(self.announcement()[1], len(numeric))
        scale = settings.scale * np.sqrt(len(total.parties))
        chosen = elected(votes, blocks, float(scale), self.freedom_degree)
        details = {"votes": dict(zip(numeric, np.rint(votes).astype(int).tolist())), "voters": blocks}
        return self._outcome(fed, numeric, votes / max(1, blocks), chosen, {**details, "without_numbers": other})

    def _note_chance(self, fed: Federation, columns: int) -> None:
        """From public figures: how far noise moves what a column and the target have in common, at a mean party."""
        fit = VotingSettings.of(self.announcement()[1], columns).fit
        noise = fit.target_scale(columns) * len(fed.parties) / max(1, fed.n_rows)
        if noise > CHANCE:
            fed.ledger.note(
                f"noise: a column's covariance with the target, {CHANCE * 10:g} at most, is off by {noise:.2g} at a "
                "party: votes are mostly chance; with more rows, fewer columns or a larger epsilon they say more"
            )

    def _outcome(
        self, fed: Federation, numeric: list[str], scores: np.ndarray, chosen: np.ndarray, details: dict[str, Any]
    ) -> Outcome:
        names = fed.column_names()
        where = {name: i for i, name in enumerate(numeric)}
        by_party = {p: np.array([scores[where[c]] if c in where else 0.0 for c in cs]) for p, cs in names.items()}
        kept = {p: np.array([bool(c in where and chosen[where[c]]) for c in cs], dtype=bool) for p, cs in names.items()}
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
