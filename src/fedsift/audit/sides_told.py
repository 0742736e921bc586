"""Left or right of another party's cuts, as the label holder reads it from its own messages and boxes.

At the level ``coordinator`` it opens them while trees grow, and once more when rows are predicted: of the rows that are
at a cut, which go left. In the open form it is told them when rows walk down. Rows are those of the table, whichever
view of it a step was about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.audit.naming import matches
from fedsift.audit.views import Message, View
from fedsift.mpc.dealer import Bits, Dealt, open_and


@dataclass(frozen=True)
class CutSeen:
    """Rows of one node that one party cut, and which of them went left."""

    party: str
    rows: np.ndarray
    left: np.ndarray  # of these rows


def told_growing(view: View) -> Iterator[CutSeen]:
    """While trees grow: the answers in sealed boxes, opened with the label holder's own nodes and the dealer's help."""
    seeds, rows_of = _dealt(view), _rows_of_views(view)
    sealed = {(b.session, b.step): b.content for b in view.boxes if not b.is_opened and b.about == "boost: gradients"}
    steps: dict[str, int] = {}
    for request in view.requests("divide_nodes"):
        step = steps.get(request.session, 0)
        steps[request.session] = step + 1
        hidden, owners = sealed.get((request.session, step)), request.content["owners"]
        dealt, rows = seeds.get(request.session), rows_of.get(request.view)
        if hidden is None or dealt is None or rows is None:
            continue
        fresh = Dealt(dealt.owner, dealt.seed)  # what it drew itself, once more
        nodes = hidden["nodes"] ^ fresh.bits("boost: nodes", step, len(hidden["nodes"]), len(rows))
        for name, opening in request.content["openings"].items():
            cut = np.flatnonzero(owners == view.job.parties.index(name))
            for answer in _boxed(view, request, name, "boost: left", step):
                yield from _opened(name, nodes[cut], answer, opening, rows)


def told_predicting(view: View) -> Iterator[CutSeen]:
    """Rows that walk down on shares: the same of each level of all trees, of whichever rows are predicted."""
    seeds, rows_of = _dealt(view), _rows_of_views(view)
    steps: dict[str, int] = {}
    for request in view.requests("walk_hidden"):
        step = steps.get(request.session, 0)  # answers are to the question of the step before
        steps[request.session] = step + 1
        dealt, rows = seeds.get(request.session), rows_of.get(request.view)
        if dealt is None or rows is None:
            continue
        for name, opening in request.content["openings"].items():
            (asked,) = _boxed(view, request, name, "boost: rows", step - 1)
            masks = Dealt(dealt.owner, dealt.seed).bits(f"boost: rows at {name}", step - 1, len(asked), len(rows))
            for answer in _boxed(view, request, name, "boost: route", step - 1):
                yield from _opened(name, asked ^ masks, answer, opening, rows)


def told_walking(view: View) -> Iterator[CutSeen]:
    """The open form: the label holder asks about rows, and is told a bit for each."""
    asked: dict[str, dict[str, np.ndarray]] = {}
    rows_of = _rows_of_views(view)
    for message in view.messages:
        if not matches("walk_down", message.operation):
            continue
        if not message.is_request:
            asked = message.content
            continue
        rows = rows_of.get(message.view, np.zeros(0, np.int64))
        for name, question in asked.items() if len(rows) else ():
            bits = np.unpackbits(message.content["sides"][name]).astype(bool)
            ends = np.cumsum(question["counts"])
            for end, count in zip(ends, question["counts"]):
                here = question["rows"][end - count : end].astype(np.int64)
                yield CutSeen(name, rows[here], bits[end - count : end])
        asked = {}


def _dealt(view: View) -> dict[str, Dealt]:
    return {state.session: state.values[Dealt] for state in view.states if Dealt in state.values}


def _boxed(view: View, request: Message, peer: str, about: str, step: int) -> list[Any]:
    wanted = (request.session, peer, about, step)
    return [box.content for box in view.boxes if (box.session, box.peer, box.about, box.step) == wanted]


def _opened(party: str, nodes: Bits, answer: dict[str, Bits], opening: Bits, rows: np.ndarray) -> Iterator[CutSeen]:
    """Of each node the rows that are there, and which of them go left."""
    for here, sides in zip(nodes, open_and(nodes, answer["hidden"], answer["answers"], opening)):
        there = np.unpackbits(here, count=len(rows)).astype(bool)
        yield CutSeen(party, rows[there], np.unpackbits(sides, count=len(rows)).astype(bool)[there])


def _rows_of_views(view: View) -> dict[str, np.ndarray]:
    """Which rows of the table each view has, as the party was told."""
    rows = {"": np.arange(view.own_table.n_rows)}
    for message in view.messages:
        if message.is_request and matches("define_view", message.operation) and message.view in rows:
            chosen = message.content["rows"]
            rows[message.content["view"]] = rows[message.view] if chosen is None else rows[message.view][chosen]
    return rows
