"""What a party without labels does where cuts are compared on shares.

It sees masked gradients and masked steps of comparisons, and learns which of its own cuts were taken, and in which
node. One of several such parties takes part in the last comparison for all: it gets their shares of their best cuts,
which are uniform numbers without the label holder's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.bins import SplitRecords, split_record
from fedsift.models.boost.compared.program import NodeFacts, Shape, best_cuts, finalists, flat_sums, winners
from fedsift.models.boost.compared.talks import Talk, Talks, purpose
from fedsift.models.boost.hidden.passive import HiddenCuts, own_shares
from fedsift.mpc.comparing import Fractions, Source
from fedsift.mpc.dealer import Dealt, answer_and
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring, product


@dataclass
class Taken:
    """State of a run: the best candidates of the level (shares), and the column cut in every node of the run."""

    best: Fractions | None = field(default=None, repr=False)
    columns: list[tuple[int, int]] = field(default_factory=list)  # model, column; -1 where another party cuts


@operation(
    "boost.compare_own",
    discloses="masked",
    receives="masked",
    about="numbers of the first step of comparing its cuts, each under a fresh mask, sealed for the label holder",
    learns="nothing: gradients and nodes under masks that it does not have",
    role="passive",
    after="boost.expect_trees",
    reply=SealedBox,
    times="240000 a session",
)
def compare_own(party: Party, *, box: SealedBox) -> SealedBox:
    """Its shares of the sums of a level, and the first step."""
    state = party.held(HiddenCuts)
    if Talks not in party.state:
        party.keep(Talks({state.peer: Talk(Source(party.held(Dealt), purpose(party.name), 1))}))
        party.keep(Taken())
    level, places = state.now()
    shape = Shape.of(level, [state.tree_cuts[place] for place in places])
    values, counts = flat_sums(own_shares(party, state, box))
    talks = party.held(Talks)
    talk = talks.of[state.peer]
    message = talk.begin(best_cuts(talk.source, shape, values, counts, NodeFacts.unknown(shape.nodes)))
    return talks.sealed(party.held(Pairs), state.peer, message)


def _best(party: Party) -> Fractions:
    result = party.held(Talks).of[party.held(HiddenCuts).peer].result
    if not isinstance(result, Fractions):
        raise OperationRefused(party.name, "begin_finals", "its candidates have not been compared to the end")
    return result


@operation(
    "boost.pass_best",
    discloses="masked",
    about="its shares of its best cuts, sealed for the party that compares them",
    role="passive",
    after="boost.compare_own",
    reply=SealedBox,
    times="240000 a session",
)
def pass_best(party: Party, *, first: str) -> SealedBox:
    """The places of its cuts stay here."""
    best = party.held(Taken).best = _best(party)
    shares = [best.over, best.under]
    return party.held(Pairs).seal(shares, to=first, about="boost: best", number=party.held(HiddenCuts).step)


@operation(
    "boost.begin_finals",
    discloses="masked",
    receives="masked",
    about="numbers of the first step of comparing the parties' best cuts, under fresh masks, sealed",
    learns="other parties' shares of their best cuts: uniform numbers",
    role="passive",
    after="boost.compare_own",
    reply=SealedBox,
    times="240000 a session",
)
def begin_finals(party: Party, *, order: list[str], boxes: dict[str, SealedBox]) -> SealedBox:
    """For all parties without labels, with the label holder."""
    state, talks, pairs = party.held(HiddenCuts), party.held(Talks), party.held(Pairs)
    talk, best = talks.of[state.peer], _best(party)
    if sorted(order) != sorted([*boxes, party.name, state.peer]):
        raise OperationRefused(party.name, "begin_finals", "the order of the parties is not of this run's parties")
    party.held(Taken).best = best
    bests = {order.index(party.name): best}
    for name, box in boxes.items():
        shares = pairs.open(box, sender=name, about="boost: best", number=state.step)
        if not isinstance(shares, list) or [part.shape for part in shares] != [best.over.shape] * 2:
            raise ReplyError(name, "pass_best", "it passed on another number of cuts than the level has nodes")
        bests[order.index(name)] = Fractions(shares[0], shares[1], np.zeros_like(shares[0]))
    finals = finalists(talk.source, len(order), order.index(state.peer), ([], []), bests)
    return talks.sealed(pairs, state.peer, talk.begin(winners(talk.source, finals)))


@operation(
    "boost.take_winners",
    discloses="masked",
    about="which rows go left, under a mask; the label holder reads them for the rows of the node alone",
    learns="which of its cuts were taken",
    role="passive",
    after="boost.compare_own",
    reply=SealedBox,
    times="240000 a session",
)
def take_winners(party: Party, *, box: SealedBox) -> SealedBox:
    """An answer for every node of the level; where another party cuts, it has no rows."""
    state, taken, dealt, pairs = party.held(HiddenCuts), party.held(Taken), party.held(Dealt), party.held(Pairs)
    records, (level, places) = party.held(SplitRecords).records, state.now()
    told = pairs.open(box, sender=state.peer, about="boost: winners", number=state.step)
    nodes, rows = level.nodes * len(level.trees), party.n_rows
    best = taken.best
    if best is None or state.nodes is None or told["won"].shape != (nodes,) or told["places"].shape != (nodes,):
        raise OperationRefused(party.name, "take_winners", "the winners are not of this level's nodes")
    opened = best.label[:, 0, 0] + told["places"]  # where it has won; noise elsewhere
    bits, numbers = np.zeros((nodes, (rows + 7) // 8), np.uint8), np.full(nodes, -1, dtype=np.int64)
    for node in range(nodes):
        tree = node // level.nodes
        column = -1
        if told["won"][node]:
            candidates = state.tree_cuts[places[tree]].candidates
            place = int(opened[node])
            if place >= len(candidates):
                raise OperationRefused(party.name, "take_winners", "a cut that is none of its candidates")
            own = state.cuts[level.trees[tree].bins]
            cut = own.cut(candidates[place : place + 1])
            bits[node] = np.packbits(cut.left[own.codes[:, cut.column]])
            numbers[node], column = len(records), cut.column
            records.append(split_record(own.bins[cut.column], cut.left, cut.missing_left))
        taken.columns.append((state.models[level.trees[tree].model], column))
    a, r = dealt.bits("boost: left", state.step, nodes, rows), dealt.bits("boost: answer", state.step, nodes, rows)
    d, s = answer_and(bits, state.nodes, a, r)
    answer = pairs.seal(
        {"hidden": d, "answers": s, "records": numbers}, to=state.peer, about="boost: left", number=state.step
    )
    state.step, state.level, state.nodes, taken.best = state.step + 1, state.level + 1, None, None
    return answer


@operation(
    "boost.hide_cut_columns",
    discloses="masked",
    about="which column each cut is of, under a mask and sealed for the label holder",
    role="passive",
    after="boost.take_winners",
    reply=SealedBox,
    times="1 a session",
)
def hide_cut_columns(party: Party, *, models: int) -> SealedBox:
    """A table a model: nodes x columns, 1 where the node was cut at the column."""
    tables = _column_tables(party, models)
    dealt = party.held(Dealt)
    hidden = [table - dealt.keep("boost: columns", model, table.shape) for model, table in enumerate(tables)]
    return party.held(Pairs).seal(hidden, to=party.held(HiddenCuts).peer, about="boost: columns", number=0)


def _column_tables(party: Party, models: int) -> list[Ring]:
    found = []
    for model in range(models):
        columns = np.array([column for of, column in party.held(Taken).columns if of == model], dtype=np.int64)
        found.append((columns[:, None] == np.arange(len(party.columns))).astype(np.uint64))
    return found


@operation(
    "boost.gain_halves",
    discloses="masked",
    receives="masked",
    about="its half of the gain of each of its columns, under a mask; how often each was cut",
    opened="aggregate: the summed gain of each column, and how often it was cut",
    learns="nothing: gains of cuts under masks that it does not have",
    role="passive",
    after="boost.hide_cut_columns",
    reply={"half": Array("i"), "splits": Array("i", 2)},
    times="1 a session",
)
def gain_halves(party: Party, *, box: SealedBox) -> dict[str, Any]:
    state, dealt, pairs = party.held(HiddenCuts), party.held(Dealt), party.held(Pairs)
    gains = pairs.open(box, sender=state.peer, about="boost: gains", number=0)
    parts = []
    for model, hidden in enumerate(gains):
        mask = dealt.again("boost: columns", model)
        split = dealt.draw("boost: gain splits", model, (len(party.columns),))
        parts.append(product(mask.T, hidden)[:, 0] + split)
    half = np.concatenate(parts)
    splits = np.stack([table.sum(axis=0).astype(np.int64) for table in _column_tables(party, len(gains))])
    return {"half": half + pairs.cancelling(state.peer, "boost: gains", 0, half.shape), "splits": splits}


OPERATIONS = (compare_own, pass_best, begin_finals, take_winners, hide_cut_columns, gain_halves)
