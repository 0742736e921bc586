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

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedsift.core.expressions import Column, Expression, call, parse
from fedsift.core.federation import Federation
from fedsift.core.operation import together
from fedsift.engineer.fed_iife import scoring, synergy
from fedsift.engineer.fed_iife.scoring import FedAvgScorer, GramScorer, Scorer, use_columns
from fedsift.engineer.fed_iife.synergy import all_pairs, anova_scores, interaction_scores
from fedsift.engineer.forms import bivariate, nesting, scaled, unary_forms
from fedsift.errors import DataError, ParameterError
from fedsift.models import fed_linear
from fedsift.mpc import horizontal_study
from fedsift.mpc.horizontal_study import (
    Study,
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

#: The paper's unary functions.
UNARY = ("square", "abs", "sqrtabs", "sigmoid")
_MAX_NESTING = 12  # a feature nested deeper than this combines no further


class _CrowdChanged(Exception):
    """A party left: totals from before and after do not belong to the same rows."""


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
        horizontal_study.OPERATIONS, fed_linear.OPERATIONS, scoring.OPERATIONS, synergy.OPERATIONS, [add_engineered]
    )

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
        mark, present = len(fed.ledger), list(fed.parties)
        left: dict[str, str] = {}
        while True:
            described = fed.ask(describe_rows, to=present, task=fed._task)
            total = SecureSum(fed, secure=self.protection != "open", parties=present)
            try:
                search = self._search(total, described)
                break
            except _CrowdChanged:  # begin again with those who are left
                present = total.parties
                left.update(total.left)
        self.expressions_ = [step["formula"] for step in search.kept()]
        ledger = fed.ledger.since(mark)
        numeric, other = agree_columns(described)
        details = {
            "expressions": self.expressions_, "features": search.kept(), "ranking": search.ranking,
            "base_score": search.base, "score": search.best, "penalty": search.scorer.penalty,
            "bytes": ledger.bytes(), "rounds": ledger.rounds(), "left": left, "columns_without_numbers": other,
            "candidates": len(search.scorer.formulas) - len(numeric),
        }  # fmt: skip
        return self._outcome(fed, search.column_scores(), details)

    def _search(self, total: SecureSum, described: dict[str, Any]) -> _Search:
        numeric, _ = agree_columns(described)
        if len(numeric) < 2:
            raise DataError(f"feature engineering needs two columns of numbers at least; there are {len(numeric)}")
        study = open_study(total, described, self.validation, self.random_state)
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
        search = _Search(self, total, study, scorer, list(zip(numeric, centre, deviation)))
        search.run()
        search.check_crowd()
        return search

    def _outcome(self, fed: Federation, by_column: dict[str, float], details: dict[str, Any]) -> Outcome:
        """All columns stay; their scores are those of the best pair that they are in."""
        names = fed.column_names()
        scores = {p: np.array([by_column.get(c, 0.0) for c in columns]) for p, columns in names.items()}
        kept = {p: np.ones(len(columns), dtype=bool) for p, columns in names.items()}
        return Outcome(scores, kept, details, engineered=list(details["expressions"]))


class _Search:
    """One run of the loop: what was tried, what was kept, what it gained."""

    def __init__(
        self, owner: FedIIFE, total: SecureSum, study: Study, scorer: Any, columns: list[tuple[str, float, float]]
    ):
        self.owner, self.total, self.study, self.scorer = owner, total, study, scorer
        self.names = [name for name, _, _ in columns]
        self.generator = np.random.default_rng(owner.random_state)
        self.features: list[Expression] = [scaled(Column(name), m, s) for name, m, s in columns]
        self.forms = [unary_forms(Column(name), m, s) for name, m, s in columns]
        self.base = self.best = float(scorer.score)
        self.steps: list[dict[str, Any]] = []
        self.best_length = 0
        self.misses = 0
        self.ranking: list[dict[str, Any]] = []

    def run(self) -> None:
        if self.owner.functions == "rich":
            self._rich()
        else:
            self._published()

    def check_crowd(self) -> None:
        if self.total.left:
            raise _CrowdChanged

    def kept(self) -> list[dict[str, Any]]:
        return self.steps[: self.best_length]

    def column_scores(self) -> dict[str, float]:
        scores: dict[str, float] = {}
        for row in self.ranking:
            for name in (row["first"], row["second"]):
                scores[name] = max(scores.get(name, 0.0), row["score"])
        return scores

    # -- pairs -----------------------------------------------------------------------------------------------------

    def _rank(self, pairs: np.ndarray, width: int) -> np.ndarray:
        """Scores of these pairs of the first ``width`` chosen features (or of columns, before there are any)."""
        owner = self.owner
        if owner.synergy == "random":
            return self.generator.random(len(pairs))
        if owner.synergy == "anova":
            order = {(a, b): i for i, (a, b) in enumerate(all_pairs(width).tolist())}
            scores = anova_scores(self.total, self.study, width)
            return scores[[order[a, b] for a, b in pairs.tolist()]]
        return interaction_scores(
            self.total, pairs, neighbours=owner.neighbours, max_rows=owner.max_rows,
            seed=int(self.generator.integers(2**31)),
        )  # fmt: skip

    def _screened(self) -> list[int]:
        """Columns among which pairs are formed."""
        limit = self.owner.max_columns
        if len(self.names) <= limit or not isinstance(self.scorer, GramScorer):
            return list(range(min(len(self.names), limit)))
        strength = (self.scorer._target[: len(self.names)] ** 2).sum(axis=1)
        return sorted(np.argsort(-strength, kind="stable")[:limit].tolist())

    def _best_columns(self) -> list[tuple[int, int]]:
        """The best pairs of columns; the ranking is part of the result."""
        columns = self._screened()
        self.total.ask_all(use_columns, positions=np.array(columns))
        pairs = all_pairs(len(columns))
        scores = self._rank(pairs, len(columns))
        order = np.argsort(-scores, kind="stable")
        named = [(columns[a], columns[b]) for a, b in pairs[order].tolist()]
        self.ranking = [
            {"first": self.names[a], "second": self.names[b], "score": float(score)}
            for (a, b), score in zip(named, scores[order])
        ]
        return named[: self.owner.n_pairs]

    # -- ours ------------------------------------------------------------------------------------------------------

    def _rich(self) -> None:
        scorer: GramScorer = self.scorer
        pairs = self._best_columns()
        used = sorted({column for pair in pairs for column in pair})
        formulas = [str(form) for column in used for form in self.forms[column][1:]]
        for a, b in pairs:
            for u, v in product(self.forms[a], self.forms[b]):
                formulas += [str(call(function, u, v)) for function in ("mul", "min", "max")]
        scorer.offer(formulas)
        while len(self.steps) < self.owner.max_features:
            self.total.fed.progress(len(self.steps), self.owner.max_features, "new feature", at_most=True)
            gains = scorer.gains()
            short = [int(i) for i in np.argsort(-gains, kind="stable")[: self.owner.shortlist] if np.isfinite(gains[i])]
            if not short:
                return
            scores = scorer.validate(short)
            pick = int(np.argmax(scores))
            if self._add(short[pick], float(scores[pick])):
                return
            scorer.offer(self._descendants(short[pick], used))

    def _descendants(self, position: int, columns: Sequence[int]) -> list[str]:
        """What a new feature makes with the columns that are in play."""
        feature = parse(self.scorer.formulas[position])
        if nesting(feature) > _MAX_NESTING:
            return []
        grown = scaled(feature, *self.scorer.centre[position])
        made = [call("square", grown), call("cube", grown)]
        made += [call("mul", grown, form) for column in columns for form in self.forms[column]]
        return [str(each) for each in made]

    # -- the paper's -----------------------------------------------------------------------------------------------

    def _published(self) -> None:
        scorer = self.scorer
        self._best_columns()
        columns = {name: i for i, name in enumerate(self.names)}
        known = {(columns[row["first"]], columns[row["second"]]): row["score"] for row in self.ranking}
        while len(self.steps) < self.owner.max_features and known:
            self.total.fed.progress(len(self.steps), self.owner.max_features, "new feature", at_most=True)
            pairs = sorted(known, key=lambda pair: -known[pair])[: self.owner.n_pairs]
            formulas = [str(f) for a, b in pairs for f in bivariate(self.features[a], self.features[b])]
            position, score = self._try(formulas)
            if position >= 0:
                found = parse(scorer.formulas[position])
                refined, better = self._try([str(call(name, found)) for name in UNARY])
                if better > score:
                    position, score = refined, better
            if position < 0 or score < self.best + self.owner.min_gain:
                self.misses += 1
                if self.misses >= self.owner.patience:
                    return
                for pair in pairs:
                    del known[pair]
                continue
            self._add(position, score)
            known.update(self._new_pairs(position))

    def _try(self, formulas: Sequence[str]) -> tuple[int, float]:
        """The best of these formulas and its score; -1 if none can be chosen."""
        self.scorer.offer(formulas)
        candidates = self.scorer.candidates(formulas)
        if not candidates:
            return -1, -np.inf
        scores = self.scorer.validate(candidates)
        best = int(np.argmax(scores))
        return candidates[best], float(scores[best])

    def _new_pairs(self, position: int) -> dict[tuple[int, int], float]:
        """Scores of the newest feature with all earlier ones."""
        self.features.append(scaled(parse(self.scorer.formulas[position]), *self.scorer.centre[position]))
        width = len(self.features)
        self.total.ask_all(use_columns, positions=np.array(self.scorer.chosen))
        pairs = np.array([(i, width - 1) for i in range(width - 1)])
        return {(int(a), int(b)): float(s) for (a, b), s in zip(pairs, self._rank(pairs, width))}

    def _add(self, position: int, score: float) -> bool:
        """Keep a feature; true when it is time to stop."""
        self.check_crowd()
        self.scorer.accept(position)
        step = {"formula": self.scorer.formulas[position], "score": score, "gain": score - self.best}
        self.steps.append(step)
        if score >= self.best + self.owner.min_gain:
            self.best, self.best_length, self.misses = score, len(self.steps), 0
        else:
            self.misses += 1
        if self.owner.progress is not None:
            self.owner.progress({**step, "features": len(self.steps)})
        return self.misses >= self.owner.patience


# --- formulas --------------------------------------------------------------------------------------------------------
