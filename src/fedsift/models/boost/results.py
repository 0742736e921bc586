"""What comes out of boosting: held-out scores, how often columns were used, and the parts that the parties keep.

Parts can be files: one a party, written and read at that party's site, in a folder that the site itself chose. A part
holds the party's own split records (column, bin edges, which side); the label holder's also the trees, which name other
parties and split numbers, never their columns. A request can neither name a path nor fetch a part.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, r2_score, roc_auc_score

from fedsift.core.binning import ColumnBins
from fedsift.core.federation import Federation
from fedsift.core.files import write_atomic
from fedsift.core.operation import Array, ByName, check_reply, operation
from fedsift.core.party import Labels, Party
from fedsift.errors import DataError, OperationRefused, ReplyError
from fedsift.models.boost.bins import SplitRecords
from fedsift.models.boost.growing_tree import Boosting
from fedsift.models.boost.tree import probabilities
from fedsift.models.parts import JobHash, check_job, job_of, part_file

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


@operation(
    "boost.column_uses",
    times="1 a session",
    discloses="aggregate",
    about="how often each column was cut, and with which gain",
    reply=[ByName(dict)],
)
def column_uses(party: Party) -> list[dict[str, Any]]:
    """For each model and party: column positions, number of splits, summed gain."""
    return [
        {name: _as_arrays(uses) for name, uses in model.uses.items()} for model in party.held(Boosting).models
    ]  # fmt: skip


_USES = {"columns": Array("i"), "splits": Array("i"), "gain": Array("f")}


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
    check_reply(_USES, uses, holder, "column_uses")
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
    reply={"trees": int, "rounds": int, "curve": list},
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
    party.keys[f"boost:{model}"] = {
        "model": model, "party": party.name, "records": state.records, "trees": trees,
        "base": booster.base.tolist(), "task": labels.task, "classes": list(labels.classes),
    }  # fmt: skip
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
    records = party.state.get(SplitRecords, SplitRecords()).records
    party.keys[f"boost:{model}"] = {"model": model, "party": party.name, "records": records}


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


@dataclass
class Routes:
    """At the label holder: the node of every row in every tree, and what the others were asked (open form)."""

    at: np.ndarray  # trees x rows
    asked: dict[str, list[tuple[int, int, np.ndarray]]] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredNode:
    """A leaf with its values, or a cut: whose it is, its number there, and the children's numbers."""

    value: list[float] | None = None
    party: str = ""
    split: int = -1
    left: int = -1
    right: int = -1

    @property
    def is_leaf(self) -> bool:
        return self.value is not None


@dataclass(frozen=True)
class StoredTree:
    """As the label holder knows it; ``output`` is -1 where a tree serves all outputs."""

    output: int
    nodes: list[StoredNode]

    @property
    def outputs(self) -> slice:
        return slice(None) if self.output < 0 else slice(self.output, self.output + 1)


@dataclass(frozen=True)
class SharedTrees:
    """Trees whose leaves are shares (level ``all``): own cuts of every node, codes of every leaf."""

    number: int
    first: str
    outputs: int
    score_bits: int
    words: str
    cuts: list[list[int]]
    codes: list[list[int]]

    @property
    def count(self) -> int:
        """Trees of one output."""
        return len(self.codes) // self.outputs


@dataclass(frozen=True)
class StoredPart:
    """What a site keeps of a model; ``trees`` and what follows at the label holder alone."""

    records: list[dict[str, Any]]
    trees: list[StoredTree]
    base: list[float]
    size: float
    task: str
    classes: tuple[str, ...]
    shared: SharedTrees | None

    @classmethod
    def read(cls, fields: dict[str, Any]) -> StoredPart:
        trees = [
            StoredTree(tree["output"], [StoredNode(**node) for node in tree["nodes"]])
            for tree in fields.get("trees", [])
        ]
        told = fields.get("shared")
        whole = told is not None and set(told) == set(SharedTrees.__dataclass_fields__)
        return cls(
            fields["records"], trees, fields.get("base", []), fields.get("size", 1.0), fields.get("task", ""),
            tuple(fields.get("classes", ())), SharedTrees(**told) if told is not None and whole else None,
        )  # fmt: skip


def stored_fields(party: Party, model: str) -> dict[str, Any]:
    """This site's part of a kept model, as its file has it."""
    part: dict[str, Any] | None = party.keys.get(f"boost:{model}")
    if part is None:
        raise DataError(f"party {party.name!r} has no part of the model {model!r}: fit it here, or load its file first")
    return part


def stored_part(party: Party, model: str) -> StoredPart:
    """The same, to be read."""
    return StoredPart.read(stored_fields(party, model))


def told_records(party: Party, model: str) -> list[dict[str, Any]]:
    """Own cuts of a kept model, to say which way rows go; refused of one that was grown so that nobody is told."""
    part = stored_part(party, model)
    if part.shared is not None:
        raise OperationRefused(
            party.name, "boost", f"the model {model[:60]!r} was grown with protection = 'all': no side of a row is told"
        )
    return part.records


def goes_left(party: Party, model: str, record: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """Which of the rows one split sends left."""
    bins = ColumnBins.read(record["bins"])
    codes = party.cached(("boost codes", model, bins.column), lambda: bins.codes(party.table))
    sides = np.append(np.array(record["left"], dtype=bool), bool(record["unseen_left"]))
    return np.asarray(sides[codes[rows]])  # -1, what training did not have, is the last entry


FORMAT, VERSION = "fedsift-boost-part", 2


@operation("boost.write_part", times="1 a session", discloses="control", about="acknowledgement")
def write_part(party: Party, *, model: str) -> None:
    content = {"format": FORMAT, "version": VERSION, "job": job_of(party, model), **stored_fields(party, model)}
    write_atomic(part_file(party, model).with_suffix(".json"), json.dumps(content, indent=1, allow_nan=False) + "\n")


@operation("boost.read_part", times="1 a session", discloses="control", about="acknowledgement")
def read_part(party: Party, *, model: str, job: JobHash) -> None:
    file = part_file(party, model).with_suffix(".json")
    try:
        part = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"party {party.name!r} has no file {file.name!r} in its model folder") from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise DataError(f"party {party.name!r}: {file.name!r} is not a model file") from None
    if not isinstance(part, dict) or part.get("format") != FORMAT or part.get("version") != VERSION:
        raise DataError(f"party {party.name!r}: {file.name!r} is not a model file of version {VERSION}")
    if part.get("party") != party.name or part.get("model") != model or not isinstance(part.get("records"), list):
        raise DataError(f"party {party.name!r}: {file.name!r} is the file of another party or model")
    check_job(party, model, file, part.get("job"), job)
    for record in part["records"]:
        ColumnBins.read(record["bins"])
    party.keys[f"boost:{model}"] = {
        key: value for key, value in part.items() if key not in ("format", "version", "job")
    }


OPERATIONS = (write_part, read_part)
