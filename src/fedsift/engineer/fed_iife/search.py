"""The loop of Fed-IIFE: score pairs, combine the best, keep what helps, let it combine further."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Protocol

import numpy as np

from fedsift.core.expressions import Column, Expression, bivariate, call, nesting, parse, scaled, unary_forms
from fedsift.engineer.fed_iife.scoring import GramScorer, use_columns
from fedsift.engineer.fed_iife.synergy import all_pairs, anova_scores, interaction_scores
from fedsift.mpc.horizontal_study import Study
from fedsift.mpc.secure_sum import SecureSum

#: The paper's unary functions.
UNARY = ("square", "abs", "sqrtabs", "sigmoid")
_MAX_NESTING = 12  # a feature nested deeper than this combines no further


class Settings(Protocol):
    """What a search reads of the method that it works for (``FedIIFE``)."""

    random_state: Any
    functions: Any
    synergy: str
    neighbours: int
    max_rows: int
    max_columns: int
    n_pairs: int
    max_features: int
    shortlist: int
    min_gain: float
    patience: int
    progress: Callable[[dict[str, Any]], None] | None


class Search:
    """One run of the loop: what was tried, what was kept, what it gained."""

    def __init__(
        self, owner: Settings, total: SecureSum, study: Study, scorer: Any, columns: list[tuple[str, float, float]]
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
        return interaction_scores(self.total, pairs, neighbours=owner.neighbours, max_rows=owner.max_rows)

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
