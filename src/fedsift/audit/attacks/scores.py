"""Labels from a party's own exact scores (security.md, line 6): SFFS, information value, Gini, MUSE's relevance.

At the end of a job a party is told the score of each of its columns; MUSE tells it the mutual information with the
label before that, and FedSDG the Gini impurities. A score is one number, but there is one a column, and from about one
column a row on they fix the labels of all rows (``inversion.py``). The weaker forms (two digits, ranks) are measured
beside it. The baseline is what the kept flags alone tell, the answer that the party is entitled to.

Scores hardly change when the two classes swap their names, so which class is which is given to the attack for nothing,
as it is to every baseline: one bit, which one known row would settle.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.inversion import (
    MOST_CELLS,
    BinScore,
    Score,
    VarianceScore,
    distance,
    from_kept,
    invert,
    invert_ranks,
)
from fedsift.audit.registry import attack
from fedsift.audit.scoring import accuracy, auc, control_accuracy, nothing_to_read, own_rows_accuracy, up_to_names
from fedsift.audit.views import Truth, View
from fedsift.core.party import Party, Site
from fedsift.core.scaling import standardised
from fedsift.mpc.column_scores.paid_bins import countable_bins
from fedsift.select.muse.contingency import column_codes

#: Columns that the search looks at, at most: more only make it slower.
MOST_COLUMNS = 600

Form = Callable[[Score, np.ndarray, int], np.ndarray]


def own_party(view: View) -> Party:
    """The attacker computes on its own table as its operations do."""
    return Party(Site(view.name, view.own_table), "")


def score_of(view: View, method: str, sizes: tuple[int, int], columns: np.ndarray) -> Score | None:
    """The score of a method over the party's own ``columns`` (numbers); None for a method without one."""
    party, settings = own_party(view), view.job.parameters
    if method == "sffs":
        values, owner = standardised(party)
        return VarianceScore(values[:, columns], sizes) if len(owner) == len(party.columns) else None
    if method in ("information_value", "gini"):
        codes, _ = countable_bins(party, int(settings["n_bins"]), int(settings["min_cell"]), shuffle=False)
        return BinScore(codes[:, columns].astype(np.int64), sizes, "iv" if method == "information_value" else "purity")
    if method == "muse":
        codes = column_codes(party, int(settings["n_bins"]), str(settings["binning"]))
        return BinScore(codes[columns].T.astype(np.int64), sizes, "information")
    return None


def told_scores(view: View) -> tuple[str, np.ndarray] | None:
    """The method, and the scores that came with the first result, by the party's columns; NaN where none did."""
    told = results_told(view)
    if not told or np.isnan(told[0]).all():
        return None
    if view.job.method == "muse" and not _flags(
        told[0]
    ):  # below the chosen columns, which have their place in the order, relevance less 2
        return "muse", np.where(told[0] <= 0, told[0] + 2.0, np.nan)
    return view.job.method, told[0]


def results_told(view: View) -> list[np.ndarray]:
    """The scores of the party's own columns that each job's result told it; NaN for a column without."""
    told = []
    for message in view.requests("keep_result"):
        content: dict[str, Any] = json.loads(message.content["selection"])
        by_name = {row["feature"]: row.get("score") for row in content.get("scores", [])}
        scores = [by_name.get(name) for name in view.own_table.columns]
        told.append(np.array([np.nan if score is None else float(score) for score in scores]))
    return told


def told_relevance(view: View) -> tuple[str, np.ndarray] | None:
    """The mutual information with the label that MUSE lets a party preselect by."""
    for message in view.requests("preselect"):
        if "relevance" in message.content:
            return "muse", np.asarray(message.content["relevance"], dtype=np.float64)
    return None


def told_impurity(view: View) -> tuple[str, np.ndarray] | None:
    """The Gini impurities that FedSDG begins its gates with."""
    for message in view.requests("take_importance"):
        if "impurity" in message.content:
            return "gini", 1.0 - np.asarray(message.content["impurity"], dtype=np.float64)
    return None


def measured(view: View, truth: Truth, told: tuple[str, np.ndarray] | None, form: Form) -> Measure:
    if told is None or truth.n_classes != 2:
        return nothing_to_read(truth, "the party was told no scores (or there are more than two classes)")
    method, scores = told
    columns = _looked_at(scores, truth.class_sizes)
    score = score_of(view, method, truth.class_sizes, columns)
    if score is None:
        return nothing_to_read(truth, f"no attack on the scores of {method!r}")
    ones = truth.class_sizes[1]
    found = form(score, scores[columns], ones)
    baseline = own_rows_accuracy(view, truth)
    if view.kept is not None:
        everything = score_of(view, method, truth.class_sizes, np.arange(len(scores)))
        hinted = None if everything is None else from_kept(everything, view.kept, ones)
        baseline = baseline if hinted is None else max(baseline, up_to_names(hinted, truth.labels))
    note = f"{len(scores)} columns, {len(truth.labels)} rows, distance {distance(score, scores[columns], found):.1e}"
    named = found if accuracy(found, truth.labels) >= 0.5 else 1 - found
    success, control, ranked = (
        accuracy(named, truth.labels),
        control_accuracy(view, truth, named),
        auc(named, truth.labels),
    )
    if view.kept is not None and np.array_equal(scores, view.kept):
        baseline, note = (
            max(baseline, success),
            f"{note}; told are the kept flags alone",
        )  # the answer cannot add to itself
    return Measure("accuracy", success, truth.guess, baseline, control, note, ranked)


def _flags(scores: np.ndarray) -> bool:
    """Whether kept columns score 1 and the others 0, as a party is told (``Selection.for_party``)."""
    return bool(np.isin(scores, (0.0, 1.0)).all())


def _looked_at(scores: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    """The highest scores and, evenly, some of the others."""
    most = min(MOST_COLUMNS, max(50, MOST_CELLS // (sizes[0] * sizes[1])), int((~np.isnan(scores)).sum()))
    order = np.argsort(-scores, kind="stable")
    order = order[~np.isnan(scores[order])]
    rest = order[most // 2 :]
    step = np.linspace(0, len(rest) - 1, most - most // 2).astype(int) if len(rest) else np.zeros(0, dtype=int)
    return np.unique(np.concatenate([order[: most // 2], rest[step]]))


def exactly(score: Score, told: np.ndarray, ones: int) -> np.ndarray:
    return invert(score, told, ones)


def two_digits(score: Score, told: np.ndarray, ones: int) -> np.ndarray:
    """As if the scores had been told to two significant digits."""
    size = 10.0 ** (np.floor(np.log10(np.maximum(np.abs(told), 1e-300))) - 1)
    return invert(score, np.round(told / size) * size, ones)


def only_ranks(score: Score, told: np.ndarray, ones: int) -> np.ndarray:
    """As if only the order of the scores had been told."""
    return invert_ranks(score, np.argsort(np.argsort(told, kind="stable"), kind="stable"), ones)


@attack(
    reads=["keep_result"], role="passive", target="labels", declared="no", line=6,
    knows="how its own columns are scored, the class sizes and names",
)  # fmt: skip
def scores_of_result(view: View, truth: Truth) -> Measure:
    """Labels from the scores of the party's own columns that come with the result."""
    return measured(view, truth, told_scores(view), exactly)


@attack(
    reads=["preselect"], role="passive", target="labels", declared="no", line=6,
    knows="how its own columns are binned, the class sizes and names",
)  # fmt: skip
def relevance_of_columns(view: View, truth: Truth) -> Measure:
    """Labels from the mutual information of the party's own columns with the label (MUSE)."""
    return measured(view, truth, told_relevance(view), exactly)


@attack(
    reads=["take_importance"], role="passive", target="labels", declared="no", line=6,
    knows="how its own columns are binned, the class sizes and names",
)  # fmt: skip
def impurity_of_columns(view: View, truth: Truth) -> Measure:
    """Labels from the Gini impurities of the party's own columns (FedSDG's first gates)."""
    return measured(view, truth, told_impurity(view), exactly)


@attack(
    reads=["keep_result"], role="passive", target="labels", declared="no", line=6,
    knows="two significant digits of the scores of its own columns, the class sizes and names",
)  # fmt: skip
def rounded_scores_of_result(view: View, truth: Truth) -> Measure:
    """Labels from the scores of the party's own columns, as if they were told to two digits."""
    return measured(view, truth, told_scores(view), two_digits)


@attack(
    reads=["keep_result"], role="passive", target="labels", declared="no", line=6,
    knows="the order of the scores of its own columns, the class sizes and names",
)  # fmt: skip
def ranks_of_result(view: View, truth: Truth) -> Measure:
    """Labels from the order of the party's own columns by their scores, as if nothing else were told."""
    return measured(view, truth, told_scores(view), only_ranks)
