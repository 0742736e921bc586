"""What the label holder does where cuts are compared on shares: its share of every program, and dividing rows.

It learns who cuts a node and which rows of it go left there; no sum, nor which column it is. The node's own totals and
its own best cut enter the comparison as its share and are told to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.compared.program import NEVER, NodeFacts, Shape, best_cuts, finalists, flat_sums, winners
from fedsift.models.boost.compared.talks import Talk, Talks, purpose
from fedsift.models.boost.growing_tree import Boosting, Job, Node, cut_own, make_children, splittable
from fedsift.models.boost.hidden.label_holder import GRADIENTS, HiddenGradients, hidden_level, own_cuts, peer_shares
from fedsift.models.boost.hidden.wire import Corrections, check_corrections
from fedsift.models.boost.tree import (
    COMPARED_HESSIAN_BITS,
    Split,
    TreeSettings,
    Units,
    cut_gains,
    least_gain,
)
from fedsift.mpc.comparing import Fractions, Source
from fedsift.mpc.dealer import Bits, Dealt, open_and
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import product, to_ring, uniform

#: Bits of the summed gains of a column.
GAIN_BITS = 40


@dataclass
class Chosen:
    """State of a run: the bars of the level, who won its nodes, and the gain of every cut at each other party."""

    bars: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    owners: list[int] = field(default_factory=list)
    gains: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  # of every node: its model, the gain


@operation(
    "boost.begin_comparing",
    discloses="masked",
    about="numbers of the first step of comparing cuts, each under a fresh mask, sealed for the other parties",
    concerns="own columns and labels",
    role="active",
    after="boost.hide_gradients",
    reply=dict,
    times="240000 a session",
)
def begin_comparing(
    party: Party, *, corrections: dict[str, Corrections], dealt: dict[str, list[np.ndarray]]
) -> dict[str, SealedBox]:
    """Its shares of the sums of a level, and the first step of every program. ``dealt``: the dealer's corrections."""
    state, boosting, pairs = party.held(HiddenGradients), party.held(Boosting), party.held(Pairs)
    level, places = state.now()
    every = {name: [peer.tree_cuts[place] for place in places] for name, peer in state.peers.items()}
    check_corrections(corrections, level, every, party)
    if set(dealt) != set(every):
        raise OperationRefused(party.name, "begin_comparing", "the dealer's part is not that of its peers")
    if Talks not in party.state:
        sources = {name: Source(party.held(Dealt), purpose(name), 0) for name in state.peers}
        party.keep(Talks({name: Talk(source) for name, source in sources.items()}))
        party.keep(Chosen(gains={name: [] for name in state.peers}))
    talks, chosen, boxes = party.held(Talks), party.held(Chosen), {}
    nodes = []
    for place in places:
        job = boosting.jobs[place]
        found = own_cuts(boosting, job, state.places[place], state.parents[place])
        nodes += [(job, boosting.settings(job), node) for node in found]
    chosen.bars = _bars(nodes)
    facts = _facts(nodes)
    for name, peer in state.peers.items():
        shape = Shape.of(level, every[name])
        sums = peer_shares(state, peer, corrections[name])
        values, counts = flat_sums(sums)
        talk = talks.of[name]
        talk.source.corrections = list(dealt[name])
        boxes[name] = talks.sealed(pairs, name, talk.begin(best_cuts(talk.source, shape, values, counts, facts)))
    return boxes


_Places = list[tuple[Job, TreeSettings, "Node | None"]]


def _facts(nodes: _Places) -> NodeFacts:
    """Nodes that cannot be cut get a T that keeps denominators positive; their bar is too high anyway."""
    table = np.zeros((len(nodes), 6), dtype=np.int64)
    for number, (job, settings, node) in enumerate(nodes):
        penalty, most = _penalty(settings, job.units), 2**COMPARED_HESSIAN_BITS - 1
        weight = min(int(np.ceil(settings.min_child_weight / job.units.hessian)), most)
        if node is None:
            table[number] = 0, most - 2 * penalty, 0, penalty, weight, settings.min_rows
        else:
            table[number] = *node.total, len(node.train), penalty, weight, settings.min_rows
    return NodeFacts(*table.T)


def _penalty(settings: TreeSettings, units: Units) -> int:
    return max(1, round(settings.reg_lambda / units.hessian))


def _bars(nodes: _Places) -> tuple[list[int], list[int]]:
    """The fraction that another party's cut must beat: the best own cut, or the least gain that is worth a cut."""
    over, under = [], []
    for job, settings, node in nodes:
        if node is None:
            pair = NEVER, 1
        elif node.best is not None:
            pair = _own_fraction(job, settings, node, node.best[1])
        else:
            pair = _least_fraction(job, settings, node)
        over.append(pair[0])
        under.append(pair[1])
    return over, under


def _own_fraction(job: Job, settings: TreeSettings, node: Node, split: Split) -> tuple[int, int]:
    hist = next(iter(node.hists.values()))
    start = int(hist.groups[: split.column].sum())
    left = hist.sums[start : start + len(split.left)][split.left].sum(axis=0)
    penalty = _penalty(settings, job.units)
    whole, weight = int(node.total[1]) + 2 * penalty, int(left[1]) + penalty
    across = int(left[0]) * whole - int(node.total[0]) * weight
    return across * across, weight * (whole - weight)


def _least_fraction(job: Job, settings: TreeSettings, node: Node) -> tuple[int, int]:
    """The gain (w^2 / (a (T - a))) / T + G^2 / T - G^2 / (H + lambda) is to be more than the least one."""
    penalty, (g, h) = _penalty(settings, job.units), (int(value) for value in node.total)
    whole, scale = h + 2 * penalty, 20
    least = least_gain(settings) * whole * job.units.hessian / job.units.gradient**2
    over = (g * g * penalty << scale) // (h + penalty) + int(np.ldexp(least, scale)) + 1
    return min(over, NEVER), 1 << scale


@operation(
    "boost.begin_own_finals",
    discloses="masked",
    about="numbers of the first step of comparing the parties' best cuts, under fresh masks, sealed",
    concerns="own columns and labels",
    role="active",
    after="boost.begin_comparing",
    reply=SealedBox,
    times="240000 a session",
)
def begin_own_finals(party: Party, *, first: str, dealt: list[np.ndarray]) -> SealedBox:
    """With the party ``first``, which has got the others' shares of their best cuts."""
    boosting, talks, chosen = party.held(Boosting), party.held(Talks), party.held(Chosen)
    order, talk = boosting.order, talks.of[first]
    bests = {order.index(name): _best(talk, name) for name, talk in talks.of.items()}
    talk.source.corrections = list(dealt)
    finals = finalists(talk.source, len(order), order.index(boosting.me), chosen.bars, bests)
    kept = {name: talk.result for name, talk in talks.of.items()}
    message = talk.begin(winners(talk.source, finals))
    party.keep(_Bests(kept))
    return talks.sealed(party.held(Pairs), first, message)


@dataclass
class _Bests:
    """The label holder's shares of every party's best candidates of the level."""

    of: dict[str, Fractions]


def _best(talk: Talk, name: str) -> Fractions:
    if not isinstance(talk.result, Fractions):
        raise ReplyError(name, "begin_own_finals", "the candidates have not been compared to the end")
    return talk.result


@operation(
    "boost.tell_winners",
    discloses="masked",
    about="which of a party's cuts won, sealed for that party",
    learns="which party cuts each node",
    concerns="labels",
    role="active",
    after="boost.begin_own_finals",
    reply=dict,
    times="240000 a session",
)
def tell_winners(party: Party, *, first: str) -> dict[str, SealedBox]:
    """To every party: the nodes that it cuts, and the other share of the place of its cut there; noise elsewhere."""
    boosting, talks, state = party.held(Boosting), party.held(Talks), party.held(HiddenGradients)
    _, places = state.now()
    won = talks.of[first].result
    nodes = [node for place in places for node in state.places[place]]
    if not isinstance(won, list) or len(won) != len(nodes):
        raise ReplyError(party.name, "tell_winners", "the parties' best cuts have not been compared to the end")
    own = boosting.order.index(boosting.me)
    cuts = [place != own or (node is not None and node.best is not None) for place, node in zip(won, nodes)]
    owners = [place if node is not None and cut else -1 for place, node, cut in zip(won, nodes, cuts)]
    party.held(Chosen).owners = owners
    boxes = {}
    for name, best in party.held(_Bests).of.items():
        mine = np.array(owners) == boosting.order.index(name)
        shares = np.where(mine, best.label[:, 0, 0], uniform((len(owners),)))
        told = {"won": mine, "places": shares}
        boxes[name] = party.held(Pairs).seal(told, to=name, about="boost: winners", number=state.step)
    return boxes


@operation(
    "boost.divide_compared",
    discloses="masked",
    receives="masked",
    about="gradients of the rows of the next level's nodes, under a mask and sealed",
    learns="which rows of a node go left where another party's column was cut",
    concerns="labels",
    role="active",
    after="boost.tell_winners",
    reply=GRADIENTS,
    times="240000 a session",
)
def divide_compared(party: Party, *, answers: dict[str, SealedBox], openings: dict[str, np.ndarray]) -> dict[str, Any]:
    """Cut the nodes, and hide the gradients of the next level."""
    state, boosting, chosen = party.held(HiddenGradients), party.held(Boosting), party.held(Chosen)
    level, places = state.now()
    told = {
        name: party.held(Pairs).open(box, sender=name, about="boost: left", number=state.step)
        for name, box in answers.items()
    }
    for number, place in enumerate(places):
        job, nodes = boosting.jobs[place], state.places[place]
        below: list[Node | None] = []
        for inside, node in enumerate(nodes):
            index = number * level.nodes + inside
            owner = boosting.order[chosen.owners[index]] if node and chosen.owners[index] >= 0 else ""
            answer = (told[owner], openings[owner]) if owner in told else None
            pair = _divided(party, job, node, owner, index, answer) if node and owner else (None, None)
            gain = _gain(job, boosting.settings(job), node, pair[0]) if node and pair[0] else 0.0
            for name, gains in chosen.gains.items():
                gains.append((job.model, gain if name == owner else 0.0))
            below += [child if child and splittable(boosting, job, child) else None for child in pair]
        state.parents[place], state.places[place] = nodes, below
    state.step, state.level = state.step + 1, state.level + 1
    return hidden_level(party, state, boosting)


def _divided(
    party: Party, job: Job, node: Node, owner: str, index: int, answer: tuple[dict[str, np.ndarray], Bits] | None
) -> tuple[Node, Node]:
    """The children of a node; ``answer`` is the owner's, with the dealer's correction, where it is another party."""
    boosting = party.held(Boosting)
    if answer is None:
        if owner != boosting.me or node.best is None:
            raise ReplyError(owner, "divide_compared", "a cut without an answer")
        left, record = cut_own(boosting, job, node, node.best[1])
        return make_children(job, node, owner, record, left)
    told, opening = answer
    mine, nodes = party.held(HiddenGradients).nodes[index], len(party.held(HiddenGradients).nodes)
    if not len(opening) == len(told["hidden"]) == len(told["answers"]) == len(told["records"]) == nodes:
        raise ReplyError(owner, "take_winners", "it answered for another number of nodes than the level has")
    bits = open_and(mine, told["hidden"][index], told["answers"][index], opening[index])
    left = np.unpackbits(bits, count=party.n_rows).astype(bool)[node.rows]
    return make_children(job, node, owner, int(told["records"][index]), left)


def _gain(job: Job, settings: TreeSettings, node: Node, left: Node) -> float:
    """Of a cut whose rows are known now."""
    usable = np.ones(1, dtype=bool)
    return float(cut_gains(left.total[None], node.total, 2, job.units, settings, usable)[0])


@operation(
    "boost.own_gain_halves",
    discloses="masked",
    receives="masked",
    about="its half of the gain of each column of another party, under a mask",
    opened="aggregate: the summed gain of each column",
    concerns="own columns and labels",
    role="active",
    after="boost.divide_compared",
    reply={"boxes": dict, "halves": dict, "unit": float},
    times="1 a session",
)
def own_gain_halves(
    party: Party, *, boxes: dict[str, SealedBox], corrections: dict[str, list[np.ndarray]]
) -> dict[str, Any]:
    """Gains of cuts (known here) times which column each is of (known there), on shares: one product a model."""
    chosen, pairs, dealt, boosting = party.held(Chosen), party.held(Pairs), party.held(Dealt), party.held(Boosting)
    largest = max((gain for gains in chosen.gains.values() for _, gain in gains), default=0.0)
    unit = 2.0 ** (np.ceil(np.log2(largest)) - GAIN_BITS) if largest > 0 else 1.0
    answers, halves = {}, {}
    for place, (name, box) in enumerate(boxes.items()):
        columns = pairs.open(box, sender=name, about="boost: columns", number=0)
        hidden, parts = [], []
        for model in range(len(boosting.models)):
            gains = np.array([gain for of, gain in chosen.gains[name] if of == model])[:, None] / unit
            right = to_ring(gains, 0, 2.0**60)
            mask = dealt.draw("boost: gains", place * len(boosting.models) + model, right.shape)
            hidden.append(right - mask)
            parts.append(product(columns[model].T, right)[:, 0] + corrections[name][model])
        half = np.concatenate(parts)
        halves[name] = half + pairs.cancelling(name, "boost: gains", 0, half.shape)
        answers[name] = pairs.seal(hidden, to=name, about="boost: gains", number=0)
    return {"boxes": answers, "halves": halves, "unit": float(unit)}


OPERATIONS = (begin_comparing, begin_own_finals, tell_winners, divide_compared, own_gain_halves)
