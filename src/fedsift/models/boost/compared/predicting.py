"""Rows on shares: who deals and relays what is said about them, and prediction by a model whose leaves are shares.

For a prediction every party says, for all nodes of all trees, which rows go left at its own cuts (nobody at the
others'), under a mask; who reaches a node and the leaves stay shares, and the label holder reads the sum of a row's
leaves alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import numpy as np

from fedsift.core.arguments import Between
from fedsift.core.federation import Federation
from fedsift.core.operation import ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import DataError, OperationRefused, ReplyError
from fedsift.models.boost.compared.ending import log_chance, opened_scores, show_scores
from fedsift.models.boost.compared.program import descended, ended, root_bits, scored
from fedsift.models.boost.compared.scales import Scales
from fedsift.models.boost.compared.state import Shares
from fedsift.models.boost.compared.taking_part import ROWS, heard_cuts, join_shares, row_step
from fedsift.models.boost.hidden.growing import check_neutral
from fedsift.models.boost.stored import SharedTrees, goes_left, stored_part
from fedsift.models.boost.tree import TreeSettings
from fedsift.models.predicted import Predicted, ScoresOpened
from fedsift.mpc.comparing import DealerSource, Program
from fedsift.mpc.dealer import Bits, Dealer, Dealt
from fedsift.mpc.pairs import Pairs, meet_all
from fedsift.mpc.ring import new_seed

T = TypeVar("T")
_MOST = 8_000_000  # rows x leaves of the trees that are walked together
_WORDS = {"uint16": np.uint16, "uint64": np.uint64}


@dataclass
class RowDealer:
    """The coordinator's part of every program about rows: the dealer's randomness, and relaying."""

    dealer: Dealer
    source: DealerSource
    step: int = 0
    scales: Scales = field(default_factory=lambda: Scales.of(True, 1, TreeSettings()))
    drawn: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)

    @classmethod
    def begin(cls, fed: Federation) -> RowDealer:
        """Seeds for every party, and one for all without labels together."""
        dealer, seed = Dealer.begin(fed), new_seed()
        each = {name: {"seed": b"" if name == fed.active else seed} for name in fed.parties}
        fed.ask(join_shares, to=fed.parties, each=each, holder=fed.active, first=fed.passive[0])
        return cls(dealer, DealerSource(dealer.of[fed.active], Dealt("the other parties", seed), ROWS))

    def run(
        self, fed: Federation, begin: Any, program: Program[T], answers: dict[str, SealedBox] | None = None,
        **arguments: Any,
    ) -> T:  # fmt: skip
        """A program about rows at all parties; what the dealer has at its end. ``answers``: for the label holder."""
        dealt, result = _dealt(program, self.source)
        each: dict[str, dict[str, Any]] = {name: {"dealt": dealt if name == fed.active else []} for name in fed.parties}
        if answers is not None:
            for name, fields in each.items():
                fields["boxes"] = answers if name == fed.active else {}
        said = fed.ask(begin, to=fed.parties, each=each, **arguments)
        first = fed.passive[0]
        while said[fed.active]:
            if set(said[fed.active]) != set(fed.passive) or set(said[first]) != {fed.active}:
                raise ReplyError(fed.active, "row_step", "the two sides of a program about rows are not at one step")
            heard = {name: {"boxes": {fed.active: said[fed.active][name]}} for name in fed.passive}
            heard[fed.active] = {"boxes": {first: said[first][fed.active]}}
            said = fed.ask(row_step, to=fed.parties, each=heard)
        return result


def _dealt(program: Program[T], source: DealerSource) -> tuple[list[np.ndarray], T]:
    """Run a program at the dealer, on nothing: the corrections for the label holder, and its result."""
    try:
        mine = next(program)
        while True:
            mine = program.send([np.zeros_like(part) for part in mine])
    except StopIteration as done:
        found, source.corrections = source.corrections, []
        return found, done.value


# --- the parties -----------------------------------------------------------------------------------------------------


@dataclass
class _Walk:
    """Trees of a kept model that rows walk down together."""

    model: str
    shared: SharedTrees = field(repr=False)
    output: int = 0
    found: list[np.ndarray] = field(default_factory=list, repr=False)  # scores of the outputs so far
    trees: list[int] = field(default_factory=list)
    level: int = 0
    bits: Bits = field(default_factory=lambda: np.zeros((0, 0), np.uint8), repr=False)
    going: Bits = field(default_factory=lambda: np.zeros((0, 0), np.uint8), repr=False)


@operation(
    "boost.begin_walk",
    when="protection=all",
    discloses="control",
    about="number of trees and their depth",
    reply={"trees": int, "depth": int, "logistic": bool, "width": int, "outputs": int},
    times="1000 a session",
    after="boost.join_shares",
)
def begin_walk(party: Party, *, model: str, output: Annotated[int, Between(0, 1000)]) -> dict[str, Any]:
    """Scores are the start score, as the label holder's share. Outputs (classes) come one after the other."""
    state, part = party.held(Shares), stored_part(party, model)
    shared = part.shared
    if shared is None or shared.number != state.number or (state.number and shared.first != state.first):
        raise DataError(f"party {party.name!r}: the model {model!r} was grown in another form, or by other parties")
    if state.number:
        party.held_here(ScoresOpened)
    if output >= shared.outputs or output != (party.held(_Walk).output + 1 if _Walk in party.state else 0):
        raise OperationRefused(party.name, "begin_walk", "outputs are walked one after the other")
    logistic, rows = shared.words == "uint16", party.n_rows
    state.scales = Scales.of(logistic, rows, TreeSettings())
    state.scales = _with_score(state.scales, shared.score_bits)
    state.scores = np.zeros((1, rows), _WORDS[shared.words])
    if state.number == 0 and logistic:
        state.scores = state.scales.scores(np.full((1, rows), part.labelled.base[output]))
    walk = party.held(_Walk) if output else party.keep(_Walk(model, shared))
    walk.output = output
    state.due, state.walks = shared.count, True
    nodes = len(shared.codes[0]) if shared.codes else 2
    return {"trees": state.due, "outputs": shared.outputs, "depth": nodes.bit_length() - 1, "logistic": logistic,
            "width": state.scales.leaf_width}  # fmt: skip


def _with_score(scales: Scales, bits: int) -> Scales:
    return Scales(**{**scales.__dict__, "score": bits})


@operation(
    "boost.walk_cuts",
    when="protection=all",
    discloses="masked",
    about="which rows go left at its cuts, under a mask that the label holder does not have",
    opened="nobody",
    reply=ByName(SealedBox),
    times="1000000 a session",
    after="boost.begin_walk",
)
def walk_cuts(party: Party, *, start: int, stop: int, level: int) -> dict[str, SealedBox]:
    """One level of some trees; the label holder keeps its own."""
    state, pairs, walk = party.held(Shares), party.held(Pairs), party.held(_Walk)
    records, shared = stored_part(party, walk.model).records, walk.shared
    count = shared.count
    if not 0 <= start < stop <= count or level != (walk.level if walk.trees else 0):
        raise OperationRefused(party.name, "walk_cuts", "levels of trees are walked one after the other")
    if level == 0:
        walk.trees = [walk.output * count + tree for tree in range(start, stop)]
        walk.bits = root_bits(state.number, len(walk.trees), party.n_rows)
    every, nodes = np.arange(party.n_rows), 2**level
    bits = np.zeros((len(walk.trees) * nodes, (party.n_rows + 7) // 8), np.uint8)
    for place, tree in enumerate(walk.trees):
        for node, cut in enumerate(shared.cuts[tree][nodes - 1 : 2 * nodes - 1]):
            if cut >= 0:
                left = goes_left(party, walk.model, records[cut], every)
                bits[place * nodes + node] = np.packbits(left)
    if state.number == 0:
        walk.going = bits
        return {}
    others = [name for name in pairs.peers if name != state.holder]
    mask, walk.going = state.masked_cuts(party, others, party.n_rows, len(bits))
    return {state.holder: pairs.seal(bits ^ mask, to=state.holder, about="boost: left", number=state.step)}


@operation(
    "boost.walk_rows",
    when="protection=all",
    discloses="masked",
    receives="masked",
    about="which rows are at a node and which go left, under fresh masks, sealed for the other side",
    opened="nobody",
    learns="nothing: bits under masks that it does not have",
    concerns="own columns and labels",
    reply=ByName(SealedBox),
    times="1000000 a session",
    after="boost.walk_cuts",
)
def walk_rows(party: Party, *, boxes: dict[str, SealedBox], dealt: list[np.ndarray]) -> dict[str, SealedBox]:
    """The next level, or at the last one the leaves."""
    state, walk = party.held(Shares), party.held(_Walk)
    if walk.going.shape != walk.bits.shape:
        raise OperationRefused(party.name, "walk_rows", "the cuts of this level have not been told")
    if state.number == 0:
        for name in party.held(Pairs).peers:
            walk.going = walk.going ^ heard_cuts(party, name, boxes, state.step, walk.going.shape)
    leaves = [np.array(walk.shared.codes[tree], dtype=np.uint64) for tree in walk.trees]
    source, state.step = state.rows.source, state.step + 1
    if 2 * len(walk.bits) == sum(map(len, leaves)) and state.scales is not None:
        ends = ended(walk.bits, walk.going, len(leaves), 0)
        program = scored(source, state.scores, ends, leaves, state.scales.leaf_width)
        return state.begin_rows(party, program, dealt)
    return state.begin_rows(party, descended(source, walk.bits, walk.going), dealt)


@operation(
    "boost.walked", when="protection=all", discloses="control", about="acknowledgement", times="1000000 a session"
)
def walked(party: Party) -> None:
    """Take the level over."""
    state, walk = party.held(Shares), party.held(_Walk)
    found = state.rows.result
    if isinstance(found, tuple):
        walk.bits, walk.level = found[1], walk.level + 1
    elif isinstance(found, np.ndarray) and len(found) == len(walk.trees):
        state.due -= len(walk.trees)
        state.scores = state.scores + found.sum(axis=0, dtype=found.dtype)
        walk.trees, walk.level = [], 0
    else:
        raise OperationRefused(party.name, "walked", "the level has not been walked to the end")
    state.rows.result = None


@operation(
    "boost.hear_predicted",
    when="protection=all",
    discloses="control",
    receives="masked",
    about="acknowledgement",
    learns="the predictions for its rows",
    concerns="labels",
    role="active",
    times="1000 a session",
)
def hear_predicted(party: Party, *, box: SealedBox) -> None:
    """The label holder's scores of its rows; after the last output they are its predictions."""
    walk = party.held(_Walk)
    part, outputs = stored_part(party, walk.model), walk.shared.outputs
    (values,) = opened_scores(party, walk.output, box, party.held(Shares).scores)
    labelled = part.labelled
    if labelled.task == "regression":
        values = labelled.base[0] + labelled.size * values
    walk.found.append(values if outputs == 1 else log_chance(values))
    if len(walk.found) == outputs:
        party.keep(Predicted(np.column_stack(walk.found), labelled.classes))


OPERATIONS = (begin_walk, walk_cuts, walk_rows, walked, hear_predicted)


# --- the conversation ------------------------------------------------------------------------------------------------


def walk_shared(run: Federation, model: str) -> None:
    """All rows down all trees, inside a session; the label holder has the predictions at the end."""
    check_neutral(run, "prediction")
    meet_all(run)
    rows, output, outputs = RowDealer.begin(run), 0, 1
    while output < outputs:
        told = run.ask(begin_walk, to=run.parties, model=model, output=output)
        if any(reply != told[run.active] for reply in told.values()):
            raise DataError(f"the parties' parts of the model {model!r} are not of one model")
        outputs = told[run.active]["outputs"]
        _walk(run, rows, **told[run.active])
        box = run.ask(show_scores, to=run.passive[0], number=output)
        run.ask(hear_predicted, to=run.active, box=box)
        output += 1


def _walk(
    run: Federation, rows: RowDealer, *, trees: int, depth: int, logistic: bool, width: int, outputs: int
) -> None:  # fmt: skip
    """The trees of one output, as many together as fit."""
    words: type[np.unsignedinteger] = np.uint16 if logistic else np.uint64
    wide, together = (run.n_rows + 7) // 8, max(1, _MOST // max(1, run.n_rows * 2**depth))
    for start in range(0, trees, together):
        stop = min(trees, start + together)
        for level in range(depth):
            said = run.ask(walk_cuts, to=run.parties, start=start, stop=stop, level=level)
            answers = {name: said[name][run.active] for name in run.passive}
            bits = np.zeros(((stop - start) * 2**level, wide), np.uint8)
            program: Program[Any] = descended(rows.source, bits, bits)
            if level == depth - 1:
                scores, leaves = np.zeros((1, run.n_rows), words), np.zeros((stop - start, 2**depth), np.uint64)
                program = scored(rows.source, scores, ended(bits, bits, stop - start, 0), list(leaves), width)
            rows.run(run, walk_rows, program, answers)
            run.ask(walked, to=run.parties)
