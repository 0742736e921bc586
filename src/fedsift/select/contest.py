"""Which methods may stand for a choice, what came of each, which of them is taken, and the paragraph that says why.

Nothing here talks to a party: ``auto.py`` has the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any

from fedsift.core.terminal import rough, size

#: What measures a candidate, by task: of classes one against the rest, of amounts the share that is explained.
METRIC = {"classification": "auc", "regression": "r2"}
_WORDS = {"auc": "AUC", "r2": "R2"}
#: The models that may measure, in words.
MODELS = {
    "additive": "an additive model", "linear": "a linear model", "boost": "boosted trees", "network": "a network",
}  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """What the coordinator knows before it tries anything."""

    rows: int
    columns: int
    parties: int
    task: str
    classes: int

    def words(self) -> str:
        label = f"{self.classes} classes" if self.task == "classification" else "amounts"
        return f"{self.rows:,} rows, {self.columns:,} columns of {self.parties} parties and a label of {label}"


@dataclass(frozen=True)
class Candidate:
    """A method that may be tried, and for which tables.

    Parameters
    ----------
    name, settings : as in a job file.
    least_rows, most_columns, most_classes : what it is for; beyond that it is not run.
    shows_scores : with classes the label holder reads scores of rows in each of its rounds, which a site's policy
        counts (``max_row_scores``): it is run for amounts alone.
    work : a fit with these settings, in fits with the method's own defaults, of which estimates are.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    least_rows: int = 0
    most_columns: int = 100_000
    most_classes: int = 1_000
    shows_scores: bool = False
    work: float = 1.0

    def unsuited(self, facts: Facts) -> str:
        """Why it is not for such a table; empty where it is."""
        if facts.rows < self.least_rows:
            return f"it is for {self.least_rows:,} rows and more"
        if facts.columns > self.most_columns:
            return f"it is for {self.most_columns:,} columns at most"
        if facts.classes > self.most_classes:
            return f"it is for {self.most_classes} classes at most"
        if self.shows_scores and facts.task == "classification":
            return "with classes it shows the label holder scores of rows; name it in candidates where that may be"
        return ""


#: One method of each kind, the cheapest and least revealing first: by bytes, and by what attacks read of their runs
#: (docs/exposure.md). Information value is left out: it opens the same tables as Gini impurity. Conditions are for this
#: list; a method that a user names is run in any case.
CANDIDATES = (
    Candidate("gini"),
    Candidate("sffs"),
    Candidate("federated_lasso", most_columns=20_000, shows_scores=True),
    Candidate("muse", least_rows=50, most_columns=20_000),
    # A tree is grown for every class, and every bin of every column of every node compared on shares. Eight trees, a
    # third of the method's own: it is fitted on every fold, and a tree costs more than a fit of the others.
    Candidate("top_gain", {"n_estimators": 8}, least_rows=100, most_columns=1_000, most_classes=10, work=1 / 3),
)


#: Numbers of columns that are tried where none is given: each twice the one before, so that few are measured.
LADDER = (5, 10, 20, 40, 80)


def first_rung(columns: int) -> int:
    """The number that candidates are compared with: about a third of the columns, 5 to 20."""
    return next((number for number in LADDER[:2] if 3 * number >= columns), LADDER[2])


@dataclass(frozen=True)
class Rung:
    """A method with so many columns, as it was measured."""

    columns: int
    score: float | None
    deviation: float | None = None  # between folds

    def record(self) -> dict[str, Any]:
        return {"columns": self.columns, "score": self.score}


def enough(rungs: Sequence[Rung], nulls: Mapping[str, float], folds: int, tolerance: float) -> Rung:
    """The fewest columns that are within one standard error and the tolerance of the best number.

    Where random columns are as good as the method's, its choice is worth nothing, and the most columns are kept.
    """
    first, most = rungs[0], rungs[-1]
    if first.score is None or len(rungs) == 1:
        return first
    if first.score <= nulls.get("random", -inf):
        return most
    best = max(rungs, key=lambda rung: rung.score or 0.0)
    error = max(((rung.deviation or 0.0) / sqrt(folds) for rung in rungs), default=0.0)
    least = (best.score or 0.0) - min(error, tolerance)
    return next(rung for rung in rungs if (rung.score or 0.0) >= least)


@dataclass(frozen=True)
class Tried:
    """What came of a candidate: a score over the folds, or why it has none."""

    name: str
    reason: str = ""  # why it was not run, or not to its end
    score: float | None = None
    deviation: float | None = None  # between folds
    bytes: float = 0.0  # of one fit
    allowed: bool = False  # by the conditions, the budget and every site's policy

    def error(self, folds: int) -> float:
        return (self.deviation or 0.0) / sqrt(folds)

    def record(self, folds: int) -> dict[str, Any]:
        told = {"score": self.score, "standard_error": self.error(folds), "bytes": round(self.bytes)}
        return {"method": self.name, **({"not_run": self.reason} if self.score is None else told)}


def choose(
    tried: Sequence[Tried], folds: int, tolerance: float, random: float | None = None
) -> tuple[Tried | None, Tried | None]:
    """Who is taken, and the best. The first (cheapest, least revealing) within one standard error of the best, never
    more than ``tolerance`` below it, and better than ``random`` columns unless none is. Without any score: the first
    that is allowed."""
    scored = [each for each in tried if each.score is not None]
    if not scored:
        return next((each for each in tried if each.allowed), None), None
    best = max(scored, key=lambda each: each.score or 0.0)
    least = (best.score or 0.0) - min(best.error(folds), tolerance)
    good = [each for each in scored if (each.score or 0.0) >= least]
    beaten = -inf if random is None else random
    return next((each for each in good if (each.score or 0.0) > beaten), best), best


@dataclass(frozen=True)
class Verdict:
    """All that the paragraph is about."""

    facts: Facts
    tried: Sequence[Tried]
    taken: Tried
    best: Tried | None
    folds: int
    model: str
    kept: int
    leaks: str
    nulls: dict[str, float]  # "all", "random" -> score
    rungs: Sequence[Rung] = ()
    step: Rung | None = None  # the number of columns that was taken

    def paragraph(self) -> str:
        """What was chosen and why, for whoever reads the report."""
        count = len(self.tried)
        said = [f"Auto took {self.taken.name}, one of {count} candidates, for {self.facts.words()}."]
        said += self._measured() if self.best is not None else [
            "No candidate could be cross-validated, so it is the first of those that all sites allow; how good it is "
            "here, nobody knows."
        ]  # fmt: skip
        said.append(f"What it gives away: {self.leaks}.")
        left = [f"{each.name} ({each.reason})" for each in self.tried if each.score is None and each.reason]
        if left:
            said.append(f"Not measured: {'; '.join(left)}.")
        return " ".join(said)

    def _measured(self) -> list[str]:
        measure, taken, best = _WORDS[METRIC[self.facts.task]], self.taken, self.best
        assert best is not None
        mine, error = taken.score or 0.0, taken.error(self.folds)
        figures = f"{measure} {mine:.3f} (standard error {error:.3f}, {size(round(taken.bytes))} a fit)"
        count = self.rungs[0].columns if len(self.rungs) > 1 else self.kept
        said = [
            f"Over {self.folds} folds, selection inside each and nothing pooled, its {count} columns give "
            f"{MODELS[self.model]} {figures}; all columns {_told(self.nulls, 'all')}, random ones "
            f"{_told(self.nulls, 'random')}."
        ]
        others = [each for each in self.tried if each.score is not None and each is not taken]
        if best is not taken:
            said.append(
                f"{best.name} was best with {best.score:.3f}; {taken.name} is as good within the error and stands "
                "before it in the list, which has the cheaper and less revealing methods first."
            )
        elif others:
            said.append("It was the best.")
        if others:
            said.append(f"The others: {', '.join(f'{each.name} {each.score:.3f}' for each in others)}.")
        return [*said, *self._number(), *self._warnings(mine, error)]

    def _number(self) -> list[str]:
        """Which numbers of columns were measured, and which one is kept."""
        if len(self.rungs) < 2 or self.step is None:
            return []
        shown = ", ".join(f"{rung.columns}: {rung.score:.3f}" for rung in self.rungs if rung.score is not None)
        whole = self.step.columns == self.facts.columns
        reason = "all are kept" if whole else f"{self.step.columns} are the fewest that are as good as the best"
        return [f"Columns that were tried, and what they give: {shown}; {reason}."]

    def _warnings(self, mine: float, error: float) -> list[str]:
        said = []
        if mine <= self.nulls.get("random", -1.0):
            said.append("It is not better than random columns of the same number: do not rely on it.")
        if len(self.rungs) < 2 and self.nulls.get("all", -1.0) > mine + error:
            said.append("All columns do better: selecting costs accuracy here, or more columns should be kept.")
        return said


def _told(scores: dict[str, float], name: str) -> str:
    return f"{scores[name]:.3f}" if name in scores else "not measured"


def over(spent: tuple[float, float], cost: tuple[float, float], most: tuple[float, float]) -> str:
    """Why a candidate does not fit into what is left of the budget (seconds, bytes); empty where it does."""
    if spent[0] + cost[0] > most[0]:
        return f"its fits take about {rough(cost[0])}, more than is left of max_minutes"
    if spent[1] + cost[1] > most[1]:
        return f"its fits send about {size(round(cost[1]))}, more than is left of max_bytes"
    return ""
