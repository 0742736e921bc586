"""The sums of a level and the choice of its cuts, on shares: what each party does.

A party's candidates are summed by a product with the rows' shares: its own share it has, the label holder's comes under
a mask (and the label holder's candidates likewise, with the party that speaks for the others). Each party compares its
candidates with the label holder's help; the best ones are compared by the label holder and the speaking party. The
label holder learns who cuts each node, the owner of a cut which one it is; nobody else learns anything.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedsift.core.arguments import AtMost, PartyName
from fedsift.core.operation import ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.compared.program import Rows, Winners, best_cuts, leaves, winners
from fedsift.models.boost.compared.scales import Scales
from fedsift.models.boost.compared.state import (
    Growing,
    Shares,
    Talks,
    all_totals,
    by_owner,
    compared_sums,
    keep_histograms,
    keep_totals,
    node_gains,
    own_products,
)
from fedsift.models.boost.compared.taking_part import spread
from fedsift.models.boost.growing_tree import Boosting
from fedsift.models.boost.hidden.label_holder import HiddenGradients, read_corrections
from fedsift.models.boost.hidden.passive import HiddenCuts
from fedsift.models.boost.hidden.shares import Corrections, check_corrections, draw_counts, draw_splits, level_products
from fedsift.models.boost.stored import SplitRecords
from fedsift.models.boost.tree import least_gain
from fedsift.mpc.dealer import Dealt
from fedsift.mpc.fractions import Fractions
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring, from_lowest_bytes, lowest_bytes, uniform
from fedsift.mpc.wide import from_ints

_HIDDEN = "boost: gradients"


@operation(
    "boost.hide_level", when="protection=all", discloses="masked", receives="masked",
    about="its shares of the gradients by node, under a mask and sealed for the other side", opened="nobody",
    concerns="own columns and labels", reply=ByName(SealedBox), times="240000 a session",
)  # fmt: skip
def hide_level(party: Party) -> dict[str, SealedBox]:
    """The label holder for everybody, the speaking party for the label holder."""
    state, pairs, dealt = party.held(Shares), party.held(Pairs), party.held(Dealt)
    now, scales = state.growing(party)
    rows = state.rows.result
    if not isinstance(rows, Rows):
        raise OperationRefused(party.name, "hide_level", "the level has not been laid out to the end")
    now.rows = rows
    if not state.speaks(party):
        return {}
    values, counts = laid_out(rows)
    hidden = [
        lowest_bytes(values - dealt.draw(_HIDDEN, state.step, values.shape), scales.word),
        lowest_bytes(counts - draw_counts(dealt, "boost: counts", state.step, *counts.shape), scales.count),
    ]
    to = pairs.peers if state.number == 0 else [state.holder]
    return {name: pairs.seal(hidden, to=name, about=_HIDDEN, number=state.step) for name in to}


def laid_out(rows: Rows) -> tuple[Ring, np.ndarray]:
    """Rows x summed nodes."""
    return np.ascontiguousarray(rows.values.T), np.ascontiguousarray(rows.counts.T)


@operation(
    "boost.compare_level", when="protection=all", discloses="masked", receives="masked",
    about="numbers of the first step of comparing cuts, each under a fresh mask, sealed for the other party",
    opened="nobody", learns="nothing: gradients and nodes under masks that it does not have",
    concerns="own columns and labels", reply=ByName(SealedBox), times="240000 a session", after="boost.hide_level",
)  # fmt: skip
def compare_level(
    party: Party, *, boxes: dict[str, SealedBox], corrections: dict[str, Corrections],
    dealt: dict[str, list[np.ndarray]],
) -> dict[str, SealedBox]:  # fmt: skip
    """Its shares of the sums of a level, and the first step of comparing them with each peer. ``corrections``: the
    dealer's, of the parties whose candidates it multiplies; ``dealt``: the dealer's part for the label holder."""
    state, pairs, talks = party.held(Shares), party.held(Pairs), party.held(Talks)
    now, scales = state.growing(party)
    if now.rows is None:
        raise OperationRefused(party.name, "compare_level", "the level has not been laid out to the end")
    values, counts = laid_out(now.rows)
    _own_sums(party, state, now, boxes, values, counts, scales)
    _other_sums(party, now, corrections, values, counts)
    keep_totals(now, values, counts)
    answers = {}
    for name, talk in talks.of.items():
        owners, level = state.owners(party.name, name), now.now()
        shape, sums, totals = compared_sums(now, owners)
        limits = state.limits(now, [level.nodes] * len(level.trees)).repeated(len(owners))
        talk.source.corrections = list(dealt.get(name, []))
        message = talk.begin(best_cuts(talk.source, shape, sums, totals, scales, limits))
        answers[name] = talks.sealed(pairs, name, message)
    return answers


def _own_sums(
    party: Party, state: Shares, now: Growing, boxes: dict[str, SealedBox], values: Ring, counts: np.ndarray,
    scales: Scales,
) -> None:  # fmt: skip
    """Of own candidates: with the own share of the rows, and with the other's under a mask."""
    sender = state.first if state.number == 0 else state.holder
    if sender not in boxes:
        raise OperationRefused(party.name, "compare_level", "the other side's share of the rows is missing")
    hidden = party.held(Pairs).open(boxes[sender], sender=sender, about=_HIDDEN, number=state.step)
    shapes = [(*values.shape, scales.word), (*counts.shape, scales.count)]
    if not isinstance(hidden, list) or [(part.shape, part.dtype) for part in hidden] != [(s, np.uint8) for s in shapes]:
        raise ReplyError(sender, "hide_level", "it hid another number of rows or nodes than the level has")
    cuts, level = now.cuts[party.name], now.now()
    masks = party.held(HiddenCuts).masks
    theirs = from_lowest_bytes(hidden[0], np.uint64), from_lowest_bytes(hidden[1], np.uint32)
    parts = (
        level_products(level, masks, cuts, *theirs), draw_splits(party.held(Dealt), state.step, level, cuts),
        own_products(party, now, values, counts),
    )  # fmt: skip
    keep_histograms(now, party.name, [found + split + own for found, split, own in zip(*parts)])


def _other_sums(
    party: Party, now: Growing, corrections: dict[str, Corrections], values: Ring, counts: np.ndarray
) -> None:
    """Of other parties' candidates, which it has under a mask."""
    peers = party.held(HiddenGradients).peers if HiddenGradients in party.state else {}
    level = now.now()
    check_corrections(corrections, level, {name: now.cuts[name][: len(level.trees)] for name in peers}, party)
    for name, peer in peers.items():
        cuts = now.cuts[name]
        found = level_products(level, peer.hidden, cuts, values, counts)
        sent = read_corrections(level, cuts, corrections[name])
        keep_histograms(now, name, [a + b for a, b in zip(found, sent)])


def _bests(party: Party, state: Shares, now: Growing) -> dict[str, Fractions]:
    """Shares of the best cuts of every node, by whose they are."""
    found: dict[str, Fractions] = {}
    for name, talk in party.held(Talks).of.items():
        if not isinstance(talk.result, Fractions):
            raise OperationRefused(party.name, "begin_finals", "its candidates have not been compared to the end")
        found |= by_owner(talk.result, state.owners(party.name, name))
    now.bests = found
    return found


@operation(
    "boost.pass_best", when="protection=all", discloses="masked",
    about="its shares of its best cuts, sealed for the party that compares them", opened="nobody", role="passive",
    after="boost.compare_level", reply=SealedBox, times="240000 a session",
)  # fmt: skip
def pass_best(party: Party) -> SealedBox:
    """To the speaking party; the places of its cuts stay here."""
    state = party.held(Shares)
    now, _ = state.growing(party)
    best = _bests(party, state, now)[party.name]
    shares = [best.over, best.under, best.sums]
    return party.held(Pairs).seal(shares, to=state.first, about="boost: best", number=state.step)


def _won(party: Party, step: str) -> Winners:
    """Of the last program with the party that speaks for the others, or (at that one) with the label holder."""
    state = party.held(Shares)
    found = party.held(Talks).of[state.first if state.number == 0 else state.holder].result
    if not isinstance(found, Winners):
        raise OperationRefused(party.name, step, "the parties' best cuts have not been compared to the end")
    return found


@operation(
    "boost.begin_finals",
    when="protection=all",
    discloses="masked",
    receives="masked",
    about="numbers of the first step of comparing the parties' best cuts, under fresh masks, sealed",
    opened="nobody",
    learns="to the speaking party: other parties' shares of their best cuts, uniform numbers",
    concerns="own columns and labels",
    after="boost.compare_level",
    reply=SealedBox,
    times="240000 a session",
)
def begin_finals(
    party: Party, *, order: list[PartyName], boxes: dict[str, SealedBox], dealt: list[np.ndarray]
) -> SealedBox:
    """Between the label holder and the speaking party. ``order``: of the parties, in which ties fall."""
    state, talks = party.held(Shares), party.held(Talks)
    now, scales = state.growing(party)
    peer = state.first if state.number == 0 else state.holder
    if not state.speaks(party) or sorted(order) != sorted([party.name, *party.held(Pairs).peers]):
        raise OperationRefused(party.name, "begin_finals", "the order of the parties is not of this run's parties")
    bests = _bests(party, state, now)
    for name, box in boxes.items():
        bests[name] = _passed(party, state, name, box, bests[party.name])
    talk, level = talks.of[peer], now.now()
    nodes = [level.nodes] * len(level.trees)
    least = from_ints(_least(party, state, now.models[: len(nodes)], scales) if state.number == 0 else [0] * len(nodes))
    talk.source.corrections = list(dealt)
    program = winners(
        talk.source, now.totals[-1], [bests[name] for name in order], order.index(state.holder), scales,
        state.limits(now, nodes), np.repeat(least, nodes, axis=0),
    )  # fmt: skip
    return talks.sealed(party.held(Pairs), peer, talk.begin(program))


def _least(party: Party, state: Shares, places: list[int], scales: Scales) -> list[int]:
    """Of models the least gain, in units of gradients^2 / hessians."""
    boosting, found = party.held(Boosting), []
    for place in places:
        model, _ = state.learner(boosting, place)
        size = spread(model, boosting.labels.values)[1] if boosting.labels.task == "regression" else 1.0
        least = np.ldexp(least_gain(model.settings) / size**2, 2 * scales.gradient - scales.hessian)
        found.append(max(1, int(np.ceil(least))))
    return found


def _passed(party: Party, state: Shares, name: str, box: SealedBox, like: Fractions) -> Fractions:
    shares = party.held(Pairs).open(box, sender=name, about="boost: best", number=state.step)
    shapes = [like.over.shape, like.under.shape, like.sums.shape]
    if not isinstance(shares, list) or [part.shape for part in shares] != shapes:
        raise ReplyError(name, "pass_best", "it passed on another number of cuts than the level has nodes")
    return Fractions(shares[0], shares[1], np.zeros_like(shares[2]), shares[2])


@operation(
    "boost.tell_winners",
    when="protection=all",
    discloses="masked",
    about="which of a party's cuts won, sealed for that party",
    opened="nobody",
    learns="which party cuts each node",
    concerns="labels",
    role="active",
    after="boost.begin_finals",
    reply=ByName(SealedBox),
    times="240000 a session",
)
def tell_winners(party: Party, *, order: list[PartyName]) -> dict[str, SealedBox]:
    """To every party: the nodes that it cuts, and the other share of the place of its cut there; noise elsewhere."""
    state, talks = party.held(Shares), party.held(Talks)
    now, _ = state.growing(party)
    won, known = _won(party, "tell_winners"), set(talks.of) <= set(now.bests)
    if not known or sorted(order) != sorted([party.name, *party.held(Pairs).peers]):
        raise OperationRefused(party.name, "tell_winners", "the parties' best cuts have not been compared to the end")
    now.won = won
    now.left.append(won.left)
    boxes = {}
    for name in talks.of:
        mine = won.owners == order.index(name) + 1
        shares = np.where(mine, now.bests[name].label[:, 0], uniform((len(mine),)))
        told = {"won": mine, "places": shares}
        boxes[name] = party.held(Pairs).seal(told, to=name, about="boost: winners", number=state.step)
    own = won.owners == order.index(party.name) + 1
    now.going = _take(party, now, own, won.own)
    return boxes


def _take(party: Party, now: Growing, mine: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Write own cuts down: of each node a bit a row, who goes left; nobody where the cut is another's."""
    records, state, nodes = party.held(SplitRecords), party.held(Shares), now.now().nodes
    bits = np.zeros((len(mine), (party.n_rows + 7) // 8), np.uint8)
    for node, (won, place) in enumerate(zip(mine.tolist(), places.tolist())):
        tree, number, column = node // nodes, -1, -1
        if won:
            own = party.held(HiddenCuts).cuts[now.trees[tree].bins]
            candidates = now.cuts[party.name][tree].candidates
            if not 0 <= place < len(candidates):
                raise OperationRefused(party.name, "take_winners", "a cut that is none of its candidates")
            cut = own.cut(candidates[place : place + 1])
            bits[node] = np.packbits(cut.left[own.codes[:, cut.column]])
            column = cut.column
            number = records.add(own.bins[column], cut.left, cut.missing_left)
        now.own[tree].append(number)
        state.grown(now.models[tree]).columns.append(column)
    return bits


@operation(
    "boost.take_winners",
    when="protection=all",
    discloses="masked",
    receives="masked",
    about="which rows go left at its cuts, under a mask that the label holder does not have",
    opened="nobody",
    learns="which of its cuts were taken",
    role="passive",
    after="boost.compare_level",
    reply=SealedBox,
    times="240000 a session",
)
def take_winners(party: Party, *, box: SealedBox) -> SealedBox:
    """An answer for every node of the level, whoever cuts it."""
    state, pairs = party.held(Shares), party.held(Pairs)
    now, _ = state.growing(party)
    told = pairs.open(box, sender=state.holder, about="boost: winners", number=state.step)
    nodes = now.now().nodes * len(now.now().trees)
    if told["won"].shape != (nodes,) or told["places"].shape != (nodes,):
        raise ReplyError(state.holder, "tell_winners", "it told about another number of nodes than the level has")
    places = (now.bests[party.name].label[:, 0] + told["places"]).astype(np.int64)
    if state.speaks(party):
        now.left.append(_won(party, "take_winners").left)
    bits = _take(party, now, told["won"].astype(bool), places)
    others = [name for name in pairs.peers if name != state.holder]
    mask, now.going = state.masked_cuts(party, others, party.n_rows, nodes)
    return pairs.seal(bits ^ mask, to=state.holder, about="boost: left", number=state.step)


# --- leaves ----------------------------------------------------------------------------------------------------------


@operation(
    "boost.begin_leaves",
    when="protection=all",
    discloses="masked",
    receives="masked",
    about="numbers of the first step of dividing sums, under fresh masks, sealed",
    opened="nobody",
    concerns="own columns and labels",
    after="boost.begin_finals",
    reply=SealedBox,
    times="20000 a session",
)
def begin_leaves(party: Party, *, dealt: list[np.ndarray]) -> SealedBox:
    """Leaves of the trees, between the label holder and the speaking party."""
    state, talks = party.held(Shares), party.held(Talks)
    now, scales = state.growing(party)
    if len(now.left) != now.trees[0].depth:
        raise OperationRefused(party.name, "begin_leaves", "the trees' cuts have not been compared to the end")
    peer = state.first if state.number == 0 else state.holder
    talk, limits = talks.of[peer], state.limits(now, [len(part) for part in now.leaf_parts])
    talk.source.corrections = list(dealt)
    return talks.sealed(
        party.held(Pairs), peer, talk.begin(leaves(talk.source, all_totals(now), scales, limits))
    )  # fmt: skip


@operation(
    "boost.keep_leaves",
    when="protection=all",
    discloses="masked",
    receives="masked",
    about="the speaking party's shares of the leaves, sealed for the parties that it speaks for",
    opened="nobody",
    learns="a share of the leaves: uniform numbers",
    concerns="own columns and labels",
    reply=ByName(SealedBox),
    times="40000 a session",
)
def keep_leaves(party: Party, *, boxes: Annotated[dict[str, SealedBox], AtMost(1)]) -> dict[str, SealedBox]:
    """Write the trees' leaves and gains down; the speaking party passes its shares on to the others."""
    state, pairs = party.held(Shares), party.held(Pairs)
    now, _ = state.growing(party)
    peer = state.first if state.number == 0 else state.holder
    if state.speaks(party):
        found = party.held(Talks).of[peer].result
        if not isinstance(found, tuple):
            raise OperationRefused(party.name, "keep_leaves", "the leaves have not been divided to the end")
        shares = [np.asarray(part) for part in found]
    else:
        if set(boxes) != {state.first}:
            raise OperationRefused(party.name, "keep_leaves", "shares of the leaves come from one party")
        shares = pairs.open(boxes[state.first], sender=state.first, about="boost: leaves", number=state.step)
    if len(shares) != 2 or any(part.shape != (now.leaf_parts[-1].stop,) for part in shares) or now.leaves:
        raise ReplyError(state.first, "keep_leaves", "leaves of other trees")
    for tree, part, own in zip(now.trees, now.leaf_parts, now.own):
        model, codes = state.grown(tree.model), shares[0][part][2**tree.depth - 1 :]
        now.leaves.append(codes.astype(np.uint64))
        model.cuts.append(own)
        model.leaves.append(codes.tolist())
        model.gains.append(node_gains(shares[1][part], tree.depth))
    if party.name != state.first:
        return {}
    others = [name for name in pairs.peers if name != state.holder]
    return {name: pairs.seal(shares, to=name, about="boost: leaves", number=state.step) for name in others}


OPERATIONS = (
    hide_level, compare_level, pass_best, begin_finals, tell_winners, take_winners, begin_leaves, keep_leaves,
)  # fmt: skip
