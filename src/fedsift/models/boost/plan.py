"""What the label holder is told about a model that is to grow: its settings, and which rows it learns from.

Rows are drawn by the label holder in secret, once a model (folds) or once a tree (samples).

``large_gradients`` is gradient-based one-side sampling (Ke et al. 2017, LightGBM; Chen et al. 2021, SecureBoost+): rows
that the model still gets wrong are kept, of the others a share is drawn and weighted up. On shares the rows left out
have zero gradients, and nobody is told which they are. In the open form they are not sent, and so are visible.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import wrong_record
from fedsift.core.design import column_of, design_of
from fedsift.core.job import Job
from fedsift.core.party import Labels, Party
from fedsift.core.row_draws import TRAIN, sides
from fedsift.errors import OperationRefused, ParameterError
from fedsift.models.boost.bins import SEARCHED_BINS, SEARCHED_PENALTY
from fedsift.models.boost.tree import TreeSettings

Plain = bool | int | float | str | None
ALL_ROWS: dict[str, Plain] = {"kind": "all"}
#: A plan as it travels.
PlanFields = dict[str, Plain | dict[str, Plain]]


@dataclass(frozen=True)
class Plan:
    """One model. ``rows`` is a rule by which the label holder draws the rows itself (``training_rows``)."""

    settings: TreeSettings
    n_estimators: int
    bins: int = 32
    rows: dict[str, Plain] = field(default_factory=lambda: dict(ALL_ROWS))
    base_score: float | None = None
    subsample: float = 1.0
    top_rate: float = 1.0  # below 1: gradient-based sampling
    other_rate: float = 0.0
    multi_output: bool = False
    early_stopping_rounds: int = 0
    seed: int = 0

    @property
    def by_gradient(self) -> bool:
        return self.top_rate < 1

    def as_dict(self) -> PlanFields:
        return asdict(self)

    @classmethod
    def read(cls, fields: PlanFields, party: Party) -> Plan:
        """At a party: exactly these fields, and what the accepted job says of them (``_other_than``)."""
        settings = fields.get("settings")
        wrong = "has no settings" if not isinstance(settings, dict) else wrong_record(TreeSettings, settings)
        wrong = wrong or wrong_record(cls, {**fields, "settings": TreeSettings()})
        if wrong:
            raise OperationRefused(party.name, "begin_boosting", f"a plan {wrong}")
        rest = {name: value for name, value in fields.items() if name != "settings"}
        plan = cls(settings=TreeSettings.read(fields["settings"]), **rest)  # type: ignore[arg-type]
        job = party.run.job
        if job is not None and plan.settings.min_rows < job.smallest_cell:
            raise OperationRefused(party.name, "begin_boosting", "cuts leave fewer rows than the accepted job allows")
        other = _other_than(job, plan) if job is not None else ""
        if other:
            raise OperationRefused(
                party.name, "begin_boosting", f"its {other!r} is another than that of the accepted job"
            )
        return plan


def _other_than(job: Job, plan: Plan) -> str:
    """Which setting of the plan the accepted job does not allow; empty where it allows all. What its method has no
    parameter for is as usual; what a search varies (``max_trees`` says that there is one) has its ranges, and a model
    of a fold's rows may have fewer trees that are less deep."""
    told, searched = job.parameters, "max_trees" in job.parameters
    by_gradient = told.get("sampling_method") == "gradient_based"
    usual = {**asdict(Plan(TreeSettings(), 0)), **asdict(TreeSettings())}
    names = {"bins": "n_bins", "seed": "random_state"}
    wanted = {name: told.get(names.get(name, name), value) for name, value in usual.items()} | {
        "top_rate": told["top_rate"] if by_gradient else 1.0,
        "other_rate": told["other_rate"] if by_gradient else 0.0,
        "leaf_wise": told.get("grow_policy") == "lossguide",
    }
    found = {**asdict(plan), **asdict(plan.settings)}
    ranges: dict[str, tuple[float, float]] = {}
    if searched:
        ranges = {"bins": SEARCHED_BINS, "max_depth": (1, told["max_depth"]), "n_estimators": (1, told["max_trees"]),
                  "gamma": (0, SEARCHED_PENALTY), "reg_lambda": (0, SEARCHED_PENALTY)}  # fmt: skip
    elif plan.rows.get("kind") == "fold":
        ranges = {name: (1, wanted[name]) for name in ("max_depth", "n_estimators")}
    for name, (low, high) in ranges.items():
        if not low <= found[name] <= high:
            return name
    free = {"settings", "min_rows", "rows", *ranges}
    other = next((name for name in found if name not in free and found[name] != wanted[name]), "")
    return other or ("" if plan.rows in _allowed_rows(job) else "rows")


def _allowed_rows(job: Job) -> list[dict[str, Plain]]:
    """All rows, those of a fold of the job's folds, or those that are not held out for its early stopping."""
    told, rules = job.parameters, [ALL_ROWS]
    if told.get("early_stopping_rounds"):
        rules.append({"kind": "validation", "share": told["validation_fraction"], "seed": job.random_state})
    if "folds" in told:
        rules += fold_rules(told["folds"], job.random_state)
    return rules


def fold_rules(folds: int, seed: int) -> list[dict[str, Plain]]:
    """Each fold in turn is held out."""
    return [{"kind": "fold", "fold": f, "folds": folds, "seed": seed} for f in range(folds)]


def fold_numbers(labels: Labels, party: Party, folds: int, seed: int) -> np.ndarray:
    """The fold of each row: classes (or quantile classes of a number) are spread evenly over the folds."""
    generator = party.generator(f"boost: {folds} folds", seed)
    order = party.table.by_id  # alignment orders rows anew each time; the draw must not
    fold = np.empty(party.n_rows, dtype=np.int64)
    offset = 0
    for k in range(labels.n_classes):
        members = generator.permutation(order[labels.codes[order] == k])
        fold[members] = (np.arange(len(members)) + offset) % folds
        offset += len(members)
    return fold


def training_rows(rule: dict[str, Any], labels: Labels, party: Party) -> np.ndarray:
    """A boolean for each row. The rest is held out: it goes down the trees, and no sum ever holds it."""
    kind = rule.get("kind")
    if design_of(party).deals is not None and kind in ("fold", "validation"):
        return _designed_rows(rule, party)
    needed = {"fold": ("folds", "fold", "seed"), "validation": ("share", "seed")}.get(str(kind), ())
    if not all(name in rule for name in needed):
        raise ParameterError(f"rows of the kind {kind!r} are told by {', '.join(needed)}")
    if kind == "all":
        return np.ones(party.n_rows, dtype=bool)
    if kind == "fold":
        return np.asarray(fold_numbers(labels, party, rule["folds"], rule["seed"]) != rule["fold"])
    if kind == "validation":
        folds = max(2, round(1 / rule["share"]))
        return np.asarray(fold_numbers(labels, party, folds, rule["seed"]) != 0)
    raise ParameterError(f"unknown kind of rows {kind!r}")


def _designed_rows(rule: dict[str, Any], party: Party) -> NDArray[np.bool_]:
    """By groups or by time: what is held out are whole groups, or all that is not earlier."""
    part = design_of(party).deals
    if column_of(party, str(part)) is None:
        raise OperationRefused(
            party.name, "begin_boosting",
            f"it holds rows out by itself, and the design's {part} column is another party's: give it to the label "
            "holder, or take settings that hold no rows out",
        )  # fmt: skip
    if rule["kind"] == "fold":
        return np.asarray(sides(party, int(rule["folds"]), 0.5)[int(rule["fold"])] == TRAIN)
    return np.asarray(sides(party, 1, 1 - float(rule["share"]))[0] == TRAIN)


def large_gradients(
    g: np.ndarray, train: np.ndarray, top_rate: float, other_rate: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn a tree from (a boolean each), and the weight of each row.

    The ``top_rate`` of the training rows with the largest gradients (all outputs together; equal ones at random), and
    ``other_rate`` of them from the rest, weighted so that the rest counts as much as if all of it were there.
    """
    rows = np.flatnonzero(train)
    size = np.abs(g[rows]).sum(axis=1)
    order = rows[np.lexsort((generator.random(len(rows)), -size))]
    top = int(np.ceil(top_rate * len(rows)))
    others = order[top:]
    count = min(len(others), int(np.ceil(other_rate * len(rows))))
    drawn = generator.choice(others, size=count, replace=False)
    chosen, weights = np.zeros(len(train), dtype=bool), np.ones(len(train))
    chosen[order[:top]] = True
    chosen[drawn] = True
    weights[drawn] = len(others) / max(1, count)
    return chosen, weights
