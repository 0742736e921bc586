"""Fed-IIFE: new features for row-partitioned parties, built from pairs of columns that work together.

Overman and Klabjan, "Federated Automated Feature Engineering", section 4.1 (after their IIFE). The loop: score pairs
of features, combine the best ones, keep the combination that helps a federated linear model most on validation rows,
let it combine further, and stop when nothing helps any more.

``FedIIFE.as_published()`` is the paper's way: interaction information, five bivariate and four unary functions, FedAvg
for every candidate. The default is ours: pairs by an analysis of variance that is exact from sums, a richer closed set
of functions, candidates scored exactly from summed moments (see ``synergy.py`` and ``scoring.py``).

Departures: columns are standardised (and held within 5 deviations) before they are combined; the constants are part
of the formula, rounded to 4 digits. Pairs of a batch without gain are not tried again.

All numbers leave a party as secure sums; the coordinator learns totals. Parties learn the formulas and the models
that are compared. Features are formulas (``expressions.py``), and each party computes them on its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedsift.core.expressions import Column
from fedsift.core.federation import Federation
from fedsift.core.operation import together
from fedsift.crypto.dp import LEAST_DELTA, MOST_DELTA
from fedsift.engineer.bounds import Spending, check_bounds
from fedsift.engineer.fed_iife import private, scoring, synergy
from fedsift.engineer.fed_iife.scoring import FedAvgScorer, GramScorer, Scorer
from fedsift.engineer.fed_iife.search import Search
from fedsift.errors import DataError, ParameterError
from fedsift.models import fed_linear
from fedsift.mpc import horizontal_study
from fedsift.mpc.horizontal_study import (
    agree_columns,
    check_validation,
    describe_rows,
    load_columns,
    open_study,
    standardise,
)
from fedsift.mpc.secure_sum import SecureSum
from fedsift.select.base import Outcome, Selector, check_choice, check_number
from fedsift.select.engineered import add_engineered, engineered_view


class FedIIFE(Selector):
    """Build new features over row-partitioned parties.

    Parameters
    ----------
    synergy : how pairs are ranked: ``"anova"`` (ours), ``"interaction"`` (the paper), ``"random"`` (a null).
    scoring : how candidates are scored: ``"gram"`` (exact from sums), ``"fedavg"`` (the paper).
    functions : ``"rich"`` (u(a) * v(b), min, max over eight unary functions) or ``"paper"``.
    n_pairs : how many of the best pairs are combined (``paper``: in each iteration).
    max_features : at most so many new features.
    shortlist : candidates that are compared on validation rows in each iteration (``rich``).
    patience : stop after so many iterations in a row without gain; what they added is taken back.
    min_gain : what counts as a gain of the validation score.
    validation : share of each party's rows, or the name of the party whose rows are for validation (the paper's
        server-held set).
    max_columns : pairs are formed among at most so many columns, those most correlated with the target.
    neighbours, max_rows : of the interaction information: nearest neighbours, rows a party looks at.
    max_iter : FedAvg rounds for a batch of candidates.
    epsilon, delta : total privacy loss of a person's row over the run (``private.py``); None for no noise. With it new
        features are products of at most ``n_pairs`` pairs that stand out of the noise, and ``synergy`` to ``max_iter``
        play no part.
    bounds, target_bounds : with ``epsilon``, public ranges of columns (only these take part) and of an amount; None:
        ranges are drawn under the epsilon, at a price.
    protection : what leaves a party: ``"sums"`` (under masks: only totals over all parties can be read) or ``"open"``
        (research: each party's own sums in the clear; allows a single pooled party).
    progress : called with a dictionary after each new feature.

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=["dose", "age", "weight"])
    >>> fed = fs.Federation.split(X, X["dose"] * X["age"], parties=["north", "south"], partition="horizontal")
    >>> formula = fs.FedIIFE(max_features=1).fit(fed).selection_.engineered[0]
    >>> "dose" in formula, "age" in formula
    (True, True)
    """

    name = "fed_iife"
    paper = "Overman and Klabjan, Federated Automated Feature Engineering (Fed-IIFE)"
    partitions = ("horizontal",)
    leaks = "coordinator: totals over all parties (moments, pair tables, errors); parties: formulas and models"
    operations = together(
        horizontal_study.OPERATIONS, fed_linear.OPERATIONS, scoring.OPERATIONS, synergy.OPERATIONS, private.OPERATIONS,
        [add_engineered],
    )  # fmt: skip
    epsilon_parameters = ("epsilon",)

    def __init__(
        self,
        *,
        synergy: str = "anova",
        scoring: str = "gram",
        functions: str = "rich",
        n_pairs: int = 10,
        max_features: int = 40,
        shortlist: int = 20,
        patience: int = 5,
        min_gain: float = 1e-4,
        validation: float | str = 0.25,
        max_columns: int = 100,
        neighbours: int = 3,
        max_rows: int = 500,
        max_iter: int = 100,
        epsilon: float | None = None,
        delta: float = 1e-6,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        target_bounds: tuple[float, float] | None = None,
        random_state: Any = 0,
        protection: str = "sums",
        progress: Callable[[dict[str, Any]], None] | None = None,
    ):
        self.synergy = synergy
        self.scoring = scoring
        self.functions = functions
        self.n_pairs = n_pairs
        self.max_features = max_features
        self.shortlist = shortlist
        self.patience = patience
        self.min_gain = min_gain
        self.validation = validation
        self.max_columns = max_columns
        self.neighbours = neighbours
        self.max_rows = max_rows
        self.max_iter = max_iter
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.random_state = random_state
        self.protection = protection
        self.progress = progress

    @classmethod
    def as_published(cls, **others: Any) -> FedIIFE:
        """The paper's settings, as far as it gives them."""
        return cls(**{"synergy": "interaction", "scoring": "fedavg", "functions": "paper", "patience": 2, **others})

    def _check(self, fed: Federation) -> None:
        check_choice("synergy", self.synergy, ("anova", "interaction", "random"))
        check_choice("scoring", self.scoring, ("gram", "fedavg"))
        check_choice("functions", self.functions, ("rich", "paper"))
        check_choice("protection", self.protection, ("sums", "open"))
        if self.scoring == "fedavg" and self.functions == "rich":
            raise ParameterError("functions='rich' makes thousands of candidates; use it with scoring='gram'")
        for name in ("n_pairs", "shortlist", "patience", "neighbours", "max_iter"):
            check_number(name, getattr(self, name), 1, whole=True)
        check_number("max_features", self.max_features, 1, 500, whole=True)
        check_number("max_columns", self.max_columns, 2, 400, whole=True)
        check_number("max_rows", self.max_rows, 10, 5000, whole=True)
        check_number("min_gain", self.min_gain, 0)
        check_number("epsilon", self.epsilon, 1e-6, none=True)
        check_number("delta", self.delta, LEAST_DELTA, MOST_DELTA)
        check_bounds(self.bounds, self.target_bounds)
        if self.epsilon is not None and self.protection == "open":
            raise ParameterError("protection='open' shows each party's sums: an epsilon cannot hold there")
        check_validation(self.validation)
        if self.validation == 0:
            raise ParameterError("validation must be above 0: features are chosen on validation rows")
        if fed.names == "private":
            raise ParameterError("formulas name columns: FedIIFE needs a federation with names='shared'")

    def transform(self, fed: Federation) -> Federation:
        """The same federation with the engineered features as columns beside the others."""
        check_is_fitted(self, "selection_")
        return engineered_view(fed, self.selection_)

    # -- the conversation ----------------------------------------------------------------------------------------------

    def _select(self, fed: Federation) -> Outcome:
        if self.epsilon is not None:
            return self._select_privately(fed, self.epsilon)
        mark = len(fed.ledger)
        described = fed.ask(describe_rows, to=fed.parties, task=fed._task)
        search = self._search(SecureSum(fed, secure=self.protection != "open"), described)
        self.expressions_ = [step["formula"] for step in search.kept()]
        ledger = fed.ledger.since(mark)
        numeric, other = agree_columns(described)
        details = {
            "expressions": self.expressions_, "features": search.kept(), "ranking": search.ranking,
            "base_score": search.base, "score": search.best, "penalty": search.scorer.penalty,
            "bytes": ledger.bytes(), "rounds": ledger.rounds(), "columns_without_numbers": other,
            "candidates": len(search.scorer.formulas) - len(numeric),
        }  # fmt: skip
        return self._outcome(fed, search.column_scores(), details)

    def _select_privately(self, fed: Federation, epsilon: float) -> Outcome:
        """Everything that is chosen is made from sums that have noise."""
        plan = private.Plan(Spending.plan(epsilon, self.delta, self.bounds), len(fed.parties))
        budget = plan.budget(epsilon, self.delta)
        fed.ledger.note(f"differential privacy: epsilon {epsilon:g}, delta {self.delta:g} for a person's row")
        found, ranking = private.PrivateSearch(fed, plan, self.bounds, self.n_pairs).run(self.target_bounds)
        self.expressions_ = [each.formula for each in found]
        details = {
            "expressions": self.expressions_, "features": [asdict(each) for each in found],
            "ranking": [asdict(each) for each in ranking], "budget": budget.as_rows(),
            "epsilon_spent": budget.spent.epsilon,
        }  # fmt: skip
        scores: dict[str, float] = {}
        for each in ranking:
            for name in (each.first, each.second):
                scores[name] = max(scores.get(name, 0.0), each.score)
        return self._outcome(fed, scores, details)

    def _search(self, total: SecureSum, described: dict[str, Any]) -> Search:
        numeric, _ = agree_columns(described)
        if len(numeric) < 2:
            raise DataError(f"feature engineering needs two columns of numbers at least; there are {len(numeric)}")
        study = open_study(total, described, self.validation)
        if study.n_validation < 1:
            raise DataError("no validation rows: the parties have too few rows for this share; raise validation")
        total.ask_all(load_columns, columns=numeric)
        centre, deviation = standardise(total, len(numeric))
        columns = [str(Column(name)) for name in numeric]
        scorer: Scorer
        if self.scoring == "gram":
            scorer = GramScorer(total, study, columns)
        else:
            scorer = FedAvgScorer(total, study, columns, self.max_iter)
        search = Search(self, total, study, scorer, list(zip(numeric, centre, deviation)))
        search.run()
        return search

    def _outcome(self, fed: Federation, by_column: dict[str, float], details: dict[str, Any]) -> Outcome:
        """All columns stay; their scores are those of the best pair that they are in."""
        names = fed.column_names()
        scores = {p: np.array([by_column.get(c, 0.0) for c in columns]) for p, columns in names.items()}
        kept = {p: np.ones(len(columns), dtype=bool) for p, columns in names.items()}
        return Outcome(scores, kept, details, engineered=list(details["expressions"]))
