"""Prediction on shares: rows walk down all trees level by level, and no party learns which rows reach its cuts.

At every level the label holder asks each party about all of its cuts there, whether rows reach them or not: which rows
do is a bit a row under a mask. The party's answer opens for those rows alone, by an AND on shares (``mpc/dealer.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import PartyName
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import DataError, OperationRefused, ReplyError
from fedsift.models.boost.hidden.growing import check_neutral
from fedsift.models.boost.stored import (
    Routes,
    StoredNode,
    StoredPart,
    StoredTree,
    goes_left,
    stored_part,
    tell_predicted,
    told_records,
)
from fedsift.models.predicted import ScoresOpened
from fedsift.mpc import dealer as dealing
from fedsift.mpc import pairs
from fedsift.mpc.dealer import Bits, Dealer, Dealt, and_correction, answer_and, open_and
from fedsift.mpc.pairs import Pairs, meet_all


@dataclass
class _Asked:
    """The cuts of one party at the current level: (tree, node), and which rows are there."""

    places: list[tuple[int, int]]
    inside: Bits


@dataclass
class _Walk:
    step: int = 0
    asked: dict[str, _Asked] = field(default_factory=dict)


@operation(
    "boost.walk_hidden",
    when="protection=coordinator",
    times="100 a session",
    discloses="masked",
    receives="masked",
    about="which of its cuts a party is asked about (all of a level); which rows are there, under a mask",
    opened="nobody",
    learns="which way rows go that reach another party's cut",
    reply={"more": bool, "ask": ByName({"splits": Array("i"), "box": SealedBox})},
)
def walk_hidden_level(
    party: Party, *, model: str, answers: dict[str, SealedBox], openings: dict[str, Bits]
) -> dict[str, Any]:
    """Take the answers in, go on through own cuts of the level, and ask about those of others."""
    part = stored_part(party, model)
    if _Walk not in party.state:
        party.keep(_Walk())
        party.keep(Routes(np.zeros((len(part.trees), party.n_rows), dtype=np.int32)))
    walk, at = party.held(_Walk), party.held(Routes).at
    if not set(answers) == set(openings) == set(walk.asked):
        raise OperationRefused(party.name, "walk_hidden", "it takes answers and openings of the parties that it asked")
    for name, asked in walk.asked.items():
        if openings[name].shape != asked.inside.shape:
            raise OperationRefused(party.name, "walk_hidden", "an opening is for another number of rows or cuts")
        answer = party.held(Pairs).open(answers[name], sender=name, about="boost: route", number=walk.step - 1)
        if answer["hidden"].shape != asked.inside.shape or answer["answers"].shape != asked.inside.shape:
            raise ReplyError(name, "route_hidden", "it answered about another number of rows or cuts")
        left = open_and(asked.inside, answer["hidden"], answer["answers"], openings[name])
        for (tree, node), bits in zip(asked.places, left):
            _step(at[tree], part.trees[tree].nodes[node], node, np.unpackbits(bits, count=party.n_rows))
    places = _places(part.trees, walk.step)
    walk.asked = {}
    for name, found in places.items():
        if name == party.name:
            for tree, node in found:
                cut = part.trees[tree].nodes[node]
                _step(at[tree], cut, node, goes_left(party, model, part.records[cut.split], np.arange(party.n_rows)))
        else:
            inside = np.stack([np.packbits(at[tree] == node) for tree, node in found])
            walk.asked[name] = _Asked(found, inside)
    walk.step += 1
    return {
        "more": walk.step <= max((_depth(tree.nodes) for tree in part.trees), default=0),
        "ask": {name: _question(party, part, name, asked, walk.step - 1) for name, asked in walk.asked.items()},
    }


def _question(party: Party, part: StoredPart, name: str, asked: _Asked, step: int) -> dict[str, object]:
    nodes = [part.trees[tree].nodes[node] for tree, node in asked.places]
    masks = party.held(Dealt).bits(f"boost: rows at {name}", step, len(nodes), party.n_rows)
    hidden = party.held(Pairs).seal(asked.inside ^ masks, to=name, about="boost: rows", number=step)
    return {"splits": np.array([cut.split for cut in nodes], dtype=np.int64), "box": hidden}


def _step(at: np.ndarray, cut: StoredNode, node: int, left: np.ndarray) -> None:
    here = at == node
    at[here] = np.where(left.astype(bool)[here], cut.left, cut.right)


def _places(trees: list[StoredTree], level: int) -> dict[str, list[tuple[int, int]]]:
    """The cuts of every party at one level of all trees."""
    found: dict[str, list[tuple[int, int]]] = {}
    for number, tree in enumerate(trees):
        nodes = tree.nodes
        here = [0]
        for _ in range(level):
            here = [child for n in here if not nodes[n].is_leaf for child in (nodes[n].left, nodes[n].right)]
        for node in here:
            if not nodes[node].is_leaf:
                found.setdefault(nodes[node].party, []).append((number, node))
    return found


def _depth(nodes: list[StoredNode]) -> int:
    """Levels of cuts. Children have larger numbers than their parents."""
    depth = [0] * len(nodes)
    for number, node in enumerate(nodes):
        if not node.is_leaf:
            depth[node.left] = depth[node.right] = depth[number] + 1
    return max(depth)


@operation(
    "boost.route_hidden",
    when="protection=coordinator",
    times="100 a session",
    discloses="masked",
    receives="masked",
    about="which rows go left at its cuts, under a mask; the label holder reads them for the rows that are there",
    opened="pseudonymous: which rows go left at its cuts, of the rows that are there",
    opened_by="active",
    reply=SealedBox,
)
def route_hidden(
    party: Party, *, model: str, peer: PartyName, step: int, splits: NDArray[np.integer[Any]], box: SealedBox
) -> SealedBox:
    """Answer about its cuts of one level."""
    party.held_here(ScoresOpened)
    records, dealt = told_records(party, model), party.held(Dealt)
    if splits.ndim != 1 or not len(splits) or not 0 <= splits.min() <= splits.max() < len(records):
        raise DataError(f"party {party.name!r}: a question about a split that model {model!r} does not have here")
    hidden = party.held(Pairs).open(box, sender=peer, about="boost: rows", number=step)
    every, rows = np.arange(party.n_rows), party.n_rows
    asked = [records[split] for split in splits.tolist()]
    lefts = np.stack([goes_left(party, model, record, every) for record in asked])
    bits = np.packbits(lefts, axis=1)
    if hidden.shape != bits.shape:
        raise DataError(f"party {party.name!r}: a question about other rows than are here")
    tell_predicted(party, "boost.route_hidden", model, asked, lefts)
    a, r = dealt.bits("boost: route", step, len(splits), rows), dealt.bits("boost: reply", step, len(splits), rows)
    d, s = answer_and(bits, hidden, a, r)
    return party.held(Pairs).seal({"hidden": d, "answers": s}, to=peer, about="boost: route", number=step)


OPERATIONS = (*pairs.OPERATIONS, *dealing.OPERATIONS, walk_hidden_level, route_hidden)


def walk_hidden(run: Federation, model: str) -> None:
    """All rows down all trees, inside a session; ``predicted`` reads the leaves."""
    check_neutral(run, "prediction")
    meet_all(run)
    dealer = Dealer.begin(run)
    step = 0
    told = run.ask(walk_hidden_level, to=run.active, model=model, answers={}, openings={})
    while told["more"]:
        ask = told["ask"]
        unknown = [name for name in ask if name not in run.passive]
        if unknown:
            raise DataError(f"the model needs the party {unknown[0]!r}, which is not in this federation")
        answers, openings = {}, {}
        if ask:
            answers = run.ask(route_hidden, to=list(ask), each=ask, model=model, peer=run.active, step=step)
        for name, question in ask.items():
            cuts, theirs = len(question["splits"]), dealer.of[name]
            openings[name] = and_correction(
                theirs.bits("boost: route", step, cuts, run.n_rows),
                dealer.of[run.active].bits(f"boost: rows at {name}", step, cuts, run.n_rows),
                theirs.bits("boost: reply", step, cuts, run.n_rows),
            )
        step += 1
        told = run.ask(walk_hidden_level, to=run.active, model=model, answers=answers, openings=openings)
