"""What comes out of boosting: held-out scores, how often columns were used, and what each party keeps of the trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, r2_score, roc_auc_score

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Labels, Party
from fedsift.errors import ReplyError
from fedsift.models.boost.growing_tree import Boosting
from fedsift.models.boost.stored import Labelled, SplitRecords, StoredPart
from fedsift.models.boost.tree import probabilities

METRICS = ("auto", "auc", "accuracy", "f1", "r2")


def score(metric: str, labels: Labels, margins: np.ndarray, rows: np.ndarray) -> float:
    """Of the given rows; ``auto`` is AUC (one class against the rest, averaged) or R2."""
    target = labels.values[rows]
    if labels.task == "regression":
        return float(r2_score(target, margins[rows, 0]))
    chance = probabilities(margins[rows])
    if metric in ("auto", "auc"):
        return auc(target.astype(np.int64), chance)
    guess = chance.argmax(axis=1)
    if metric == "accuracy":
        return float(accuracy_score(target, guess))
    return float(f1_score(target, guess, average="macro"))


def auc(target: np.ndarray, chance: np.ndarray) -> float:
    """Area under the curve; for several classes the mean of one against the rest over the classes that occur."""
    areas = []
    for k in [1] if chance.shape[1] == 2 else range(chance.shape[1]):
        members = target == k
        if members.any() and not members.all():
            areas.append(roc_auc_score(members, chance[:, k]))
    return float(np.mean(areas)) if areas else 0.5


@operation(
    "boost.held_out_scores",
    times="1 a session",
    discloses="aggregate",
    about="one score a model, of the rows that were held out",
    reply=[float],
    settings=("metric",),
)
def held_out_scores(party: Party, *, metric: str) -> list[float]:
    state = party.held(Boosting)
    held = [(model.margins, np.flatnonzero(~model.train)) for model in state.models]
    if state.objective.survival is not None:
        return [state.objective.concordance(*each) for each in held]
    return [score(metric, state.labels, *each) for each in held]


_USES = {"columns": Array("i"), "splits": Array("i"), "gain": Array("f")}


@operation(
    "boost.column_uses",
    times="1 a session",
    discloses="aggregate",
    about="how often each column was cut, and with which gain",
    reply=[ByName(_USES)],
)
def column_uses(party: Party) -> list[dict[str, Any]]:
    """For each model and party: column positions, number of splits, summed gain."""
    return [
        {name: _as_arrays(uses) for name, uses in model.uses.items()} for model in party.held(Boosting).models
    ]  # fmt: skip


def all_uses(
    fed: Federation, models: int, cuts: list[tuple[str, int, int, int, float]]
) -> list[dict[str, dict[str, np.ndarray]]]:
    """What the label holder knows of its own columns, and the cuts of the others' that were chosen on shares."""
    own = fed.ask(column_uses, to=fed.active)
    if len(own) != models:
        raise ReplyError(fed.active, "column_uses", "another number of models than were grown")
    for model in own:
        for name, uses in model.items():
            _check_uses(uses, fed.n_columns.get(name, 0), fed.active)
    found = [dict(model) for model in own]
    tables: dict[tuple[int, str], dict[int, list[float]]] = {}
    for party, number, column, splits, gain in cuts:
        use = tables.setdefault((number, party), {}).setdefault(column, [0, 0.0])
        use[0], use[1] = use[0] + splits, use[1] + gain
    for (number, party), columns in tables.items():
        found[number][party] = _as_arrays(columns)
    return found


def _check_uses(uses: Any, columns: int, holder: str) -> None:
    places = uses["columns"]
    inside = not len(places) or 0 <= places.min() <= places.max() < columns
    if not inside or not len(places) == len(uses["splits"]) == len(uses["gain"]):
        raise ReplyError(holder, "column_uses", "it names columns that a party does not have")


def _as_arrays(uses: dict[int, list[float]]) -> dict[str, np.ndarray]:
    return {
        "columns": np.array(list(uses), dtype=np.int64),
        "splits": np.array([use[0] for use in uses.values()], dtype=np.int64),
        "gain": np.array([use[1] for use in uses.values()], dtype=np.float64),
    }


@operation(
    "boost.keep_model",
    when="protection=coordinator|open",
    times="1 a session",
    discloses="control",
    about="number of trees and the validation curve",
    reply={"trees": int, "rounds": int, "curve": [float]},
)
def keep_model(party: Party, *, model: str) -> dict[str, Any]:
    """Put the trees (which party, which split number, leaf values) and own records into this site's store."""
    state = party.held(Boosting)
    booster = state.models[0]
    by_round = 1 if booster.plan.multi_output else state.outputs
    trees = booster.trees
    if booster.history:
        trees = trees[: (int(np.argmin(booster.history)) + 1) * by_round]
    labels = state.labels
    labelled = Labelled(booster.base.tolist(), labels.task, labels.classes)
    party.models.keep(model, StoredPart(state.own.records, trees, labelled))
    return {
        "trees": len(trees),
        "rounds": len(trees) // by_round,
        "curve": [float(value) for value in booster.history],
    }


@operation(
    "boost.keep_records",
    when="protection=coordinator|open",
    times="1 a session",
    discloses="control",
    about="acknowledgement",
)
def keep_records(party: Party, *, model: str) -> None:
    """Move this run's split records into the site's own store, under the model's name."""
    party.models.keep(model, StoredPart(party.state.get(SplitRecords, SplitRecords()).records))


@operation(
    "boost.class_names",
    discloses="plain",
    about="names of the classes",
    reply=[str],
    needs=("class names",),
    times="1 a session",
)
def class_names(party: Party) -> list[str]:
    return list(party.held(Boosting).labels.classes)
