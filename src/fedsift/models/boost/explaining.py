"""Shapley values of boosted trees over parties: computed by the label holder, if the partners' policies let it.

The values of a row need the side that it takes at every cut, also at cuts that it never reaches. A partner seals these
sides for the label holder (form ``plain`` when opened: a site's default policy refuses it; ``boost.tell_sides`` among
its exceptions allows it knowingly, for so many cuts are most of a column). The label holder has the trees and counts
how many of the explained rows reach each node (the background). It releases mean absolute values, rounded; those of
single rows stay with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd

from fedsift.core.arguments import AtMost, LabelHolder
from fedsift.core.federation import Federation
from fedsift.core.ledger import rounded_numbers, row_by_row
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import DataError, ReplyError
from fedsift.models.boost.stored import StoredNode, goes_left, stored_part, told_records
from fedsift.models.tree_shap import Cut, Feature, Leaf, Node, covers, shapley_of_tree
from fedsift.mpc import pairs
from fedsift.mpc.pairs import Pairs, meet_all

_ABOUT = "boost: sides"
DIGITS = 4
Name = Annotated[str, AtMost(200)]


@dataclass(frozen=True)
class Explained:
    """At the label holder: rows x outputs for each feature that the trees use."""

    values: dict[Feature, np.ndarray]


def _sides(party: Party, model: str) -> dict[str, np.ndarray]:
    """Of each of its cuts: the number of its column, and which rows go left (packed bits)."""
    records, every = told_records(party, model), np.arange(party.n_rows)
    names = [record.bins.column for record in records]
    missing = next((name for name in names if name not in party.columns), None)
    if missing is not None:
        raise DataError(f"party {party.name!r} lacks the column {missing!r} that the model uses")
    left = [np.packbits(goes_left(party, model, record, every)) for record in records]
    return {
        "columns": np.array([party.columns.index(name) for name in names], dtype=np.int64),
        "left": np.array(left, dtype=np.uint8).reshape(len(records), -(-party.n_rows // 8)),
    }


@operation(
    "boost.tell_sides",
    discloses="masked",
    about="which way every row goes at each of its cuts, sealed for the label holder",
    opened="plain: which way every row goes at each of its cuts",
    opened_by="active",
    releases=row_by_row,
    reply=SealedBox,
    role="passive",
    times="1 a session",
)
def tell_sides(party: Party, *, model: Name, holder: LabelHolder) -> SealedBox:
    return party.held(Pairs).seal(_sides(party, model), to=holder, about=_ABOUT, number=0)


@operation(
    "boost.explain_rows",
    discloses="control",
    receives="plain",
    about="acknowledgement",
    learns="which way every row goes at each of the other parties' cuts",
    role="active",
    times="1 a session",
)
def explain_rows(party: Party, *, model: Name, boxes: Annotated[dict[str, SealedBox], AtMost(1000)]) -> None:
    """The Shapley values of these rows, which stay here."""
    sides = {party.name: _sides(party, model)}
    for name, box in boxes.items():
        sides[name] = party.held(Pairs).open(box, sender=name, about=_ABOUT, number=0)
        if sides[name]["left"].shape != (len(sides[name]["columns"]), -(-party.n_rows // 8)):
            raise ReplyError(name, "tell_sides", "it told other rows or cuts than there are")
    part = stored_part(party, model)
    values: dict[Feature, np.ndarray] = {}
    outputs = len(part.labelled.base)
    for tree in part.trees:
        nodes = [_node(node, sides, party.n_rows) for node in tree.nodes]
        for feature, moved in shapley_of_tree(nodes, covers(nodes, party.n_rows), party.n_rows).items():
            total = values.setdefault(feature, np.zeros((party.n_rows, outputs)))
            total[:, tree.outputs] += moved
    party.keep(Explained(values))


def _node(node: StoredNode, sides: dict[str, dict[str, np.ndarray]], rows: int) -> Node:
    if node.is_leaf:
        return Leaf(np.array(node.value, dtype=np.float64))
    owner, split = node.party, node.split
    if owner not in sides or split >= len(sides[owner]["columns"]):
        raise ReplyError(owner, "tell_sides", "it did not tell about all of its cuts")
    left = np.unpackbits(sides[owner]["left"][split], count=rows).astype(bool)
    return Cut((owner, int(sides[owner]["columns"][split])), left, node.left, node.right)


_IMPORTANCE = {"parties": [str], "columns": Array("i"), "values": Array("f")}


@operation(
    "boost.tell_importance",
    discloses="aggregate",
    about="how much each column moves predictions, on average over the rows, rounded",
    reply=_IMPORTANCE,
    role="active",
    concerns="own columns and labels",
    opened_by="result",
    releases=rounded_numbers,
    times="1 a session",
    after="boost.explain_rows",
)
def tell_importance(party: Party) -> dict[str, object]:
    values = party.held_here(Explained).values
    means = [round(float(np.abs(moved).mean(axis=0).sum()), DIGITS) for moved in values.values()]
    columns = np.array([column for _, column in values], dtype=np.int64)
    return {"parties": [name for name, _ in values], "columns": columns, "values": np.array(means, dtype=np.float64)}


@operation(
    "boost.tell_explanations",
    discloses="plain",
    about="how much each column moves the prediction of each row, by its id",
    reply={"ids": [str], "parties": [str], "columns": Array("i"), "values": Array("f", 3)},
    role="active",
    concerns="own columns and labels",
    times="1 a session",
    after="boost.explain_rows",
)
def tell_explanations(party: Party) -> dict[str, object]:
    """To whoever asked, where the policy of the label holder lets it: features x rows x outputs, in its own order."""
    values, order = party.held_here(Explained).values, np.argsort(party.row_numbers, kind="stable")
    table = np.array([moved[order] for moved in values.values()])
    return {
        "ids": [str(name) for name in party.table.ids[order]],
        "parties": [name for name, _ in values],
        "columns": np.array([column for _, column in values], dtype=np.int64),
        "values": table.reshape(len(values), party.n_rows, -1),
    }


OPERATIONS = (*pairs.OPERATIONS, tell_sides, explain_rows, tell_importance, tell_explanations)


# --- the coordinator's side -------------------------------------------------------------------------------------------


def explain_jointly(run: Federation, model: str, *, rows: bool) -> dict[str, Any]:
    """Global values, and with ``rows`` those of each row; inside the model's session."""
    boxes = {}
    if run.passive:
        meet_all(run)
        boxes = run.ask(tell_sides, to=run.passive, model=model, holder=run.active)
    run.ask(explain_rows, to=run.active, model=model, boxes=boxes)
    asked = tell_explanations if rows else tell_importance
    told: dict[str, Any] = run.ask(asked, to=run.active)
    parties, columns, values = told["parties"], told["columns"].tolist(), told["values"]
    known = all(0 <= column < run.n_columns.get(party, 0) for party, column in zip(parties, columns))
    if not known or not len(parties) == len(columns) == len(values):
        raise ReplyError(run.active, asked.short_name, "it told of columns that there are not, or no value of each")
    if rows and (len(told["ids"]) != run.n_rows or values.shape[1] != run.n_rows or not values.shape[2]):
        raise ReplyError(run.active, asked.short_name, "it told of other rows than there are")
    return told


def importance_frame(told: dict[str, Any], names: dict[str, list[str]]) -> pd.DataFrame:
    """A line a column that the trees use, the most important first."""
    values = told["values"]
    means = values if values.ndim == 1 else np.abs(values).mean(axis=1).sum(axis=1)
    rows = [
        {"party": party, "column": int(column), "feature": names[party][column], "importance": float(value)}
        for party, column, value in zip(told["parties"], told["columns"], means)
    ]
    found = pd.DataFrame(rows, columns=["party", "column", "feature", "importance"])
    return found.sort_values("importance", ascending=False, ignore_index=True)
