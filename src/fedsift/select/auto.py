"""One recommendation: try what is allowed and cheap, measure it without pooling, take one, and say why.

The job names all candidates with all of their parameters, the model that measures them and the folds: whoever accepts
it knows what may be run. Then, one after the other:

1. a candidate that is not for such a table, or does not fit into the budget by the formulas of docs/scale.md, is left;
2. each other one is announced to every site as the job that it would be, and a site whose policy refuses it says so
   before anything is computed (a rehearsal);
3. the rest is cross-validated (``fs.evaluate``): in each fold the selector and then the model see training rows only;
4. of those within one standard error of the best, and within ``tolerance`` of it, the cheapest and least revealing is
   taken, one that random columns beat only where they beat all;
5. where no number of columns is given, the taken method is measured with twice as many, again and again, as long as
   that is better by more than the tolerance, and the fewest that are as good as the best number, or as all, are kept;
6. it is fitted on all rows. Nothing else is kept.

Each fit and each model is a job of its own: policies judge it, journals count what it releases. No clock is read: the
budget is of estimates, so that the same job takes the same choice anywhere.

Who learns what: of every candidate that is run, on every fold, what it gives away; the coordinator one score a
candidate, with all columns and random ones beside; a party which candidates were announced to it, and which method was
fitted last, that is which one won.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsift.core.design import WEIGHTED, check_served
from fedsift.core.federation import Federation
from fedsift.core.files import plain
from fedsift.core.operation import load_whole
from fedsift.errors import DataError, MissingExtra, ParameterError, PolicyRefused
from fedsift.select.base import Outcome, Selector, check_choice, check_number
from fedsift.select.contest import (
    CANDIDATES,
    LADDER,
    METRIC,
    MODELS,
    Candidate,
    Facts,
    Rung,
    Tried,
    Verdict,
    choose,
    enough,
    first_rung,
    over,
)

Announcement = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Bench:
    """What stands to the right of methods, handed over by ``_public.py``."""

    evaluate: Callable[..., Any]
    jobs: Callable[..., list[Announcement]]
    cost: Callable[..., Any]


class Auto(Selector):
    """Try several methods, measure them by cross-validation without pooling, and keep what the best choice keeps.

    Parameters
    ----------
    n_features : how many columns to keep. ``None``: as many as it takes, 5, 10, 20, 40, 80 or all of them.
    candidates : names of methods, or a dictionary of names with settings, the ones that you prefer first; by default
        Gini impurity, SFFS, a lasso, MUSE and the gain of boosted trees, the least revealing first.
    model : what measures the kept columns: ``additive`` or ``linear`` (on shares: nobody sees the score of a row),
        ``boost`` or ``network`` (the label holder reads scores of rows). Take the kind that you will train.
    folds : of the cross-validation.
    tolerance : how far below the best score a less revealing method may be, at most.
    max_minutes, max_bytes : of all fits together, by estimate; candidates beyond that are not run. Models are
        not in it.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(300, 6))
    >>> fed = fs.Federation.split(X, (X[:, 0] + X[:, 4] > 0).astype(int), parties=["bank", "shop"])
    >>> auto = fs.Auto(n_features=2, candidates=["gini", "sffs"], model="linear").fit(fed)
    >>> auto.selected_
    {'bank': ['f0'], 'shop': ['f4']}
    >>> auto.why_[:39]
    'Auto took gini, one of 2 candidates, fo'
    """

    name = "auto"
    paper = "none: cross-validation with the one-standard-error rule (Breiman et al. 1984) over the methods here"
    partitions = ("vertical",)
    designs = WEIGHTED  # a candidate that does not go by a part of the design is left out
    leaks = (
        "what its candidates and the model give away, on every fold; coordinator: one score a candidate; parties: "
        "which candidates were announced and which one was fitted last"
    )
    repeats_within = 1e-3
    #: Handed over by what stands to the right.
    find_method: ClassVar[Callable[[str], type[Selector]]]
    bench: ClassVar[Bench]

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        candidates: Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
        model: str = "additive",
        folds: int = 3,
        tolerance: float = 0.005,
        max_minutes: float = 60.0,
        max_bytes: float = 5e9,
        random_state: int = 0,
    ):
        self.n_features = n_features
        self.candidates = candidates
        self.model = model
        self.folds = folds
        self.tolerance = tolerance
        self.max_minutes = max_minutes
        self.max_bytes = max_bytes
        self.random_state = random_state

    @property
    def why_(self) -> str:
        """What was taken and why, in a paragraph."""
        return str(self.details_["why"])

    def entered(self) -> list[Candidate]:
        """The candidates, in the order of preference."""
        if self.candidates is None:
            return list(CANDIDATES)
        named = self.candidates
        given: Mapping[str, Mapping[str, Any]] = named if isinstance(named, Mapping) else {name: {} for name in named}
        return [Candidate(name, dict(settings)) for name, settings in given.items()]

    def made(self, candidate: Candidate, size: int | None = None) -> Selector:
        """A fresh selector that keeps so many columns, as it is announced to the sites and fitted."""
        load_whole()
        kind = type(self).find_method(candidate.name)
        if kind is type(self) or kind.jobs_within is not Selector.jobs_within:
            raise ParameterError(f"candidates: {candidate.name!r} fits other methods itself and cannot be one here")
        known = kind._get_param_names()
        unknown = sorted(set(candidate.settings) - set(known))
        if unknown:
            raise ParameterError(f"candidates: {candidate.name} has no parameter {unknown[0]!r}")
        own = {"n_features": self.n_features or size or LADDER[0], "random_state": self.random_state}
        given = {name: value for name, value in own.items() if name in known}
        return kind(**{**given, **candidate.settings})

    def sizes(self) -> tuple[int, ...]:
        """Numbers of columns that may be tried."""
        return LADDER if self.n_features is None else (self.n_features,)

    def announcement(self) -> Announcement:
        """All candidates with all of their parameters stand in the job; where it finds a number, those of the first."""
        name, told = super().announcement()
        told["candidates"] = {each.name: self.made(each).announcement()[1] for each in self.entered()}
        return name, plain(told)

    def jobs_within(self) -> list[Announcement]:
        found: list[Announcement] = []
        for candidate, size in ((each, size) for each in self.entered() for size in self.sizes()):
            selector = self.made(candidate, size)
            found.append(selector.announcement())
            for nulls in (True, False):  # all columns and random ones stand beside the first that is measured
                named = {candidate.name: selector}
                found += type(self).bench.jobs(named, self.model, self.folds, self.random_state, nulls=nulls)
        return [each for number, each in enumerate(found) if each not in found[:number]]

    def _check(self, fed: Federation) -> None:
        check_number("n_features", self.n_features, 1, whole=True, none=True)
        check_choice("model", self.model, tuple(MODELS))
        check_number("folds", self.folds, 2, 20, whole=True)
        check_number("tolerance", self.tolerance, 0, 1)
        check_number("max_minutes", self.max_minutes, 0)
        check_number("max_bytes", self.max_bytes, 0)
        check_number("random_state", self.random_state, 0, whole=True)
        entered = self.entered()
        if not entered:
            raise ParameterError("candidates is empty: name at least one method")
        for candidate in entered:
            selector = self.made(candidate)
            if fed.partition not in selector.partitions:
                served = " or ".join(selector.partitions)
                raise ParameterError(f"candidates: {candidate.name} is for {served} parties; these are {fed.partition}")

    def _run(self, fed: Federation, checked: bool) -> tuple[dict[str, list[str]], Outcome]:
        """The job itself asks for sizes and names alone; what is fitted and measured are jobs of their own."""
        with fed.session(*self.announcement()) as run:
            if not checked:
                self._check(run)
            names, columns = run.column_names(), run.n_columns
            facts = Facts(run.n_rows, sum(columns.values()), len(columns), run.task, run.n_classes)
        outside = fed.outside()
        outside._task = facts.task  # what the whole label says; the few values of a fold might look like another task
        nulls: dict[str, float] = {}
        admitted = self._admitted(outside, facts)
        tracked = outside.track(admitted, "candidate", len(admitted), alike=False)
        size = self.n_features or first_rung(facts.columns)
        tried = [each if not each.allowed else self._measured(outside, facts, each, nulls, size) for each in tracked]
        taken, best = choose(tried, self.folds, self.tolerance, nulls.get("random"))
        if taken is None:
            said = "; ".join(f"{each.name}: {each.reason}" for each in tried)
            raise ParameterError(f"no candidate may be run here. {said}")
        rungs = self._climbed(outside, facts, taken, nulls, size)
        step = enough(rungs, nulls, self.folds, self.tolerance)
        fitted = self.made(self._named(taken.name), step.columns).fit(outside)
        if step.columns == facts.columns:
            for mask in fitted.masks_.values():
                mask[:] = True
        kept = sum(int(mask.sum()) for mask in fitted.masks_.values())
        verdict = Verdict(facts, tried, taken, best, self.folds, self.model, kept, fitted.leaks, nulls, rungs, step)
        return names, self._outcome(fitted, verdict)

    def _climbed(self, fed: Federation, facts: Facts, taken: Tried, nulls: dict[str, float], size: int) -> list[Rung]:
        """The taken method with more and more columns as long as that helps and is paid for; all of them beside."""
        rungs = [Rung(size, taken.score, taken.deviation)]
        if self.n_features is not None or taken.score is None:
            return rungs
        candidate = self._named(taken.name)
        cost, spent = self._cost(candidate, facts), self._cost(candidate, facts)
        for columns in (number for number in LADDER if size < number < facts.columns):
            if "n_features" in candidate.settings or over(spent, cost, (60.0 * self.max_minutes, self.max_bytes)):
                break
            spent = (spent[0] + cost[0], spent[1] + cost[1])
            more = self._measured(fed, facts, taken, nulls, columns)
            if more.score is None:
                break
            rungs.append(Rung(columns, more.score, more.deviation))
            if more.score <= (rungs[-2].score or 0.0) + self.tolerance:
                break
        if "all" in nulls:
            rungs.append(Rung(facts.columns, nulls["all"], None))
        return rungs

    def _admitted(self, fed: Federation, facts: Facts) -> list[Tried]:
        """Conditions, budget and a rehearsal at every site: what is left of the candidates, and why the others go."""
        spent, found = (0.0, 0.0), []
        most = (60.0 * self.max_minutes, self.max_bytes)
        for candidate in self.entered():
            cost = self._cost(candidate, facts)
            reason = candidate.unsuited(facts) or over(spent, cost, most) or self._refused(fed, candidate)
            if not reason:
                spent = (spent[0] + cost[0], spent[1] + cost[1])
            found.append(Tried(candidate.name, reason, allowed=not reason))
        return found

    def _cost(self, candidate: Candidate, facts: Facts) -> tuple[float, float]:
        """Seconds and bytes of all fits of a candidate, by estimate; nothing where nobody has measured it."""
        told = type(self).bench.cost(candidate.name, rows=facts.rows, columns=facts.columns, parties=facts.parties)
        fits = candidate.work * (self.folds + 1)
        return (0.0, 0.0) if told is None else (fits * told.seconds, fits * told.bytes)

    def _refused(self, fed: Federation, candidate: Candidate) -> str:
        """Why the candidate would not run: a site refuses its job, or it takes no such table or design."""
        selector = self.made(candidate)
        try:
            check_served(fed.design, candidate.name, selector._serves())
            with fed.session(*selector.announcement()) as run:
                selector._check(run)
        except (PolicyRefused, ParameterError, DataError, MissingExtra) as error:
            return str(error)
        return ""

    def _measured(self, fed: Federation, facts: Facts, entry: Tried, nulls: dict[str, float], size: int) -> Tried:
        """One candidate over all folds; with the first of them all columns and random ones."""
        metric = METRIC[facts.task]
        try:
            result = type(self).bench.evaluate(
                fed, {entry.name: self.made(self._named(entry.name), size)}, model=self.model, cv=self.folds,
                random_state=self.random_state, nulls=not nulls,
            )  # fmt: skip
        except (PolicyRefused, ParameterError, DataError, MissingExtra) as error:
            return Tried(entry.name, str(error), allowed=True)
        lines = {line.method: line for line in result.lines()}
        if not nulls:
            random = result.null_of(entry.name)
            nulls |= {
                "random" if name == random else "all": lines[name].mean[metric] for name in lines if lines[name].null
            }
        mine = lines[entry.name]
        return Tried(entry.name, "", mine.mean[metric], mine.spread[metric], mine.bytes, allowed=True)

    def _named(self, name: str) -> Candidate:
        return next(each for each in self.entered() if each.name == name)

    def _outcome(self, fitted: Selector, verdict: Verdict) -> Outcome:
        details: dict[str, Any] = {
            "why": verdict.paragraph(), "chose": verdict.taken.name,
            "candidates": [each.record(self.folds) for each in verdict.tried],
            "metric": METRIC[verdict.facts.task], "nulls": verdict.nulls, "n_features": verdict.kept,
            "sizes": [each.record() for each in verdict.rungs],
        }  # fmt: skip
        scores: dict[str, list[float]] = {party: [] for party in fitted.masks_}
        for row in fitted.selection_.scores:  # in the order of the columns
            scores[row["party"]].append(row["score"])
        return Outcome({party: np.array(found) for party, found in scores.items()}, dict(fitted.masks_), details)


__all__ = ["Auto", "Bench"]
