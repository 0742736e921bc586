"""Prediction by a kept model: rows walk down all trees at once, and a party is asked only about rows at its splits.

The label holder knows the trees (party and split number at each node, leaf values); each party has its own split
records. A round asks every party about its nodes of the same step of all trees, so there are at most ``max_depth``
rounds. A party learns which rows reach its splits, the label holder one bit for each row and split asked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.errors import DataError, ReplyError
from fedsift.models.boost.compared.ending import show_scores
from fedsift.models.boost.compared.predicting import OPERATIONS as SHARED
from fedsift.models.boost.compared.predicting import walk_shared
from fedsift.models.boost.compared.taking_part import join_shares, row_step
from fedsift.models.boost.hidden.predicting import OPERATIONS as HIDDEN
from fedsift.models.boost.hidden.predicting import walk_hidden
from fedsift.models.boost.stored import Routes, StoredPart, goes_left, stored_part, tell_predicted, told_records
from fedsift.models.predicted import Predicted, ScoresOpened


@operation(
    "boost.route_rows",
    when="protection=open",
    times="10000 a session",
    discloses="pseudonymous",
    receives="pseudonymous",
    about="for rows at one of its splits: which go left, one bit a row",
    learns="which rows reach its splits",
    reply=Array("i"),
)
def route_rows(party: Party, *, model: str, splits: np.ndarray, counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    party.held_here(ScoresOpened)
    records = told_records(party, model)
    if len(rows) != counts.sum() or (len(splits) and (splits.min() < 0 or splits.max() >= len(records))):
        raise DataError(f"party {party.name!r}: a question about a split that model {model!r} does not have here")
    if len(rows) and (rows.min() < 0 or rows.max() >= party.n_rows):
        raise DataError(f"party {party.name!r}: a question about rows that are not there")
    ends, asked = np.cumsum(counts), [records[split] for split in splits.tolist()]
    every = [goes_left(party, model, record, np.arange(party.n_rows)) for record in asked]
    if asked:
        tell_predicted(party, "boost.route_rows", model, asked, np.stack(every))
    sides = [left[rows[end - count : end]] for left, count, end in zip(every, counts.tolist(), ends.tolist())]
    return np.packbits(np.concatenate(sides) if sides else np.zeros(0, bool))


@operation(
    "boost.walk_down",
    when="protection=open",
    times="10000 a session",
    discloses="pseudonymous",
    receives="pseudonymous",
    about="which rows are at another party's splits",
    learns="which way those rows go",
    reply=ByName({"splits": Array("i"), "counts": Array("i"), "rows": Array("i")}),
)
def walk_down(party: Party, *, model: str, sides: dict[str, NDArray[np.uint8]]) -> dict[str, Any]:
    """Take the answers in, go on through own splits, and ask about the next split of others."""
    part = stored_part(party, model)
    if Routes not in party.state:
        party.keep(Routes(np.zeros((len(part.trees), party.n_rows), dtype=np.int32)))
    routes = party.held(Routes)
    for name, asked in routes.asked.items():
        bits = np.unpackbits(sides.get(name, np.zeros(0, np.uint8))).astype(bool)
        if len(bits) < sum(len(rows) for _, _, rows in asked):
            raise ReplyError(name, "route_rows", f"party {name!r} answered for fewer rows than it was asked about")
        start = 0
        for tree, node, rows in asked:
            cut = part.trees[tree].nodes[node]
            routes.at[tree, rows] = np.where(bits[start : start + len(rows)], cut.left, cut.right)
            start += len(rows)
    routes.asked = {}
    for tree in range(len(part.trees)):
        _through_own(party, model, part, tree, routes)
    return {
        name: {
            "splits": np.array([part.trees[t].nodes[n].split for t, n, _ in asked], dtype=np.int64),
            "counts": np.array([len(rows) for *_, rows in asked], dtype=np.int64),
            "rows": np.concatenate([rows for *_, rows in asked]).astype(np.int32),
        }
        for name, asked in routes.asked.items()
    }


def _through_own(party: Party, model: str, part: StoredPart, tree: int, routes: Routes) -> None:
    """Children have larger numbers than their parents, so one pass in order is enough."""
    at = routes.at[tree]
    for number, node in enumerate(part.trees[tree].nodes):
        if node.is_leaf:
            continue
        rows = np.flatnonzero(at == number)
        if not len(rows):
            continue
        if node.party == party.name:
            left = goes_left(party, model, part.records[node.split], rows)
            at[rows] = np.where(left, node.left, node.right)
        else:
            routes.asked.setdefault(node.party, []).append((tree, number, rows))


@operation(
    "boost.predicted", times="1 a session", discloses="plain", about="predictions for the rows", reply=Array("f", 2)
)
def predicted(party: Party, *, model: str) -> np.ndarray:
    """The raw scores of the rows that have walked down: what the user asked for."""
    return _predicted(party, model).scores


@operation(
    "boost.hold_predicted",
    discloses="control",
    about="acknowledgement",
    learns="the predictions for the rows",
    role="active",
    times="1 a session",
)
def hold_predicted(party: Party, *, model: str) -> None:
    """The same, and they stay with the label holder."""
    _predicted(party, model)


def _predicted(party: Party, model: str) -> Predicted:
    part = stored_part(party, model)
    if part.shared is not None:
        return party.held(Predicted)
    at = party.held(Routes).at
    total = np.tile(np.array(part.labelled.base, dtype=np.float64), (party.n_rows, 1))
    for number, tree in enumerate(part.trees):
        width = total.shape[1] if tree.output < 0 else 1
        values = np.array([node.value or [0.0] * width for node in tree.nodes])
        total[:, tree.outputs] += values[at[number]]
    return party.keep(Predicted(total, part.labelled.classes))


OPERATIONS = (walk_down, route_rows, predicted, hold_predicted, *HIDDEN, *SHARED, join_shares, row_step, show_scores)
#: Of these, what leaves predictions with the label holder, and which way a row goes with nobody else.
HELD = (hold_predicted, *HIDDEN, *SHARED, join_shares, row_step, show_scores)


def predict_jointly(run: Federation, model: str, *, protection: str) -> np.ndarray:
    """Raw scores, rows x outputs. Runs at the coordinator, in a session of its own."""
    walk_jointly(run, model, protection=protection)
    return run.ask(predicted, to=run.active, model=model)


def walk_jointly(run: Federation, model: str, *, protection: str) -> None:
    """All rows down all trees; the label holder knows their leaves."""
    if protection == "all" and run.passive:
        walk_shared(run, model)
        return
    if protection != "open" and run.passive:
        walk_hidden(run, model)
        return
    questions = run.ask(walk_down, to=run.active, model=model, sides={})
    while questions:
        unknown = [name for name in questions if name not in run.passive]
        if unknown:
            raise DataError(f"the model needs the party {unknown[0]!r}, which is not in this federation")
        sides = run.ask(route_rows, to=list(questions), each=questions, model=model)
        questions = run.ask(walk_down, to=run.active, model=model, sides=sides)
