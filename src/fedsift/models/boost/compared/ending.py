"""The end of boosting on shares: gains of columns, scores of rows, and the parts of the model that the parties keep.

The coordinator opens one summed gain a column from two halves. The label holder reads scores of its rows where it is
asked for them (cross-validation, prediction), never those of a single tree. A model's leaves stay shares.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from fedsift.core.arguments import Between, PartyName
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.compared.program import column_gains
from fedsift.models.boost.compared.scales import MORE_BITS, RATE_BITS, Scales
from fedsift.models.boost.compared.state import Growing, Grown, Shares, Talks
from fedsift.models.boost.compared.taking_part import spread, start_score
from fedsift.models.boost.growing_tree import Boosting
from fedsift.models.boost.stored import Labelled, SharedTrees, SplitRecords, StoredPart
from fedsift.mpc.dealer import Bits
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring
from fedsift.mpc.row_programs import selected


@operation(
    "boost.finish_tree",
    when="protection=all",
    discloses="control",
    about="acknowledgement",
    times="20000 a session",
    after="boost.divide_rows",
)
def finish_tree(party: Party) -> None:
    """Take the new scores over."""
    state = party.held(Shares)
    now, _ = state.growing(party)
    found = state.rows.result
    if not isinstance(found, np.ndarray) or len(now.ends) != len(now.trees):
        raise OperationRefused(party.name, "finish_tree", "the trees have not been grown to the end")
    state.scores[now.models] += found
    for place in now.models:
        model = state.group[place]
        model.due -= 1
        model.unseen = model.plan.early_stopping_rounds > 0
    state.now, state.rows.result = None, None


@operation(
    "boost.finish_level", when="protection=all", discloses="control", about="acknowledgement", times="240000 a session"
)  # fmt: skip
def finish_level(party: Party) -> None:
    """The cuts of a level are taken, and its rows divided."""
    state = party.held(Shares)
    now: Growing | None = state.now
    if now is None:
        raise OperationRefused(party.name, "finish_level", "no tree is growing")
    now.level, now.going, now.bests, now.won = now.level + 1, None, {}, None
    state.step += 1


# --- gains -----------------------------------------------------------------------------------------------------------


def _cut_table(party: Party, model: Grown) -> Bits:
    """A row a column of its own, a bit a node of the model."""
    columns = np.array(model.columns, dtype=np.int64)
    return np.packbits(np.arange(len(party.columns))[:, None] == columns[None], axis=1)


def gain_bits(table: Bits, heights: list[int], own: int) -> Bits:
    """The own table in its place among those of the parties that are compared; zeros for the others'."""
    parts = [
        table if place == own else np.zeros((height, table.shape[1]), np.uint8) for place, height in enumerate(heights)
    ]
    return np.concatenate(parts)


@operation(
    "boost.begin_gains",
    when="protection=all",
    discloses="masked",
    receives="masked",
    about="gains of cuts and which column each is of, under fresh masks, sealed",
    opened="nobody",
    concerns="own columns and labels",
    reply=ByName(SealedBox),
    times="20000 a session",
)
def begin_gains(
    party: Party,
    *,
    model: int,
    heights: dict[PartyName, Annotated[int, Between(0, 100_000)]],
    dealt: dict[str, list[np.ndarray]],
) -> dict[str, SealedBox]:
    """The summed gain of each column, on shares: one program a pair. ``heights``: columns of every party."""
    state, talks, pairs = party.held(Shares), party.held(Talks), party.held(Pairs)
    compared = {each for name in talks.of for each in state.owners(party.name, name)}
    fits = heights.get(party.name) == len(party.columns) and compared <= set(heights)
    known = {each.number: each for each in state.group}
    if model not in known or not fits:
        raise OperationRefused(party.name, "begin_gains", "a model or columns that are not there")
    if known[model].due != 0 or known[model].unseen or known[model].summed:
        raise OperationRefused(party.name, "begin_gains", "gains are summed once, when all trees are grown")
    grown, state.gains = state.models[model], known[model]
    gains = np.concatenate([np.zeros(0, np.uint64), *grown.gains])
    table, boxes = _cut_table(party, grown), {}
    for name, talk in talks.of.items():
        names = state.owners(party.name, name)
        mine = names.index(party.name) if party.name in names else -1
        cut = gain_bits(table, [heights[each] for each in names], mine)
        talk.source.corrections = list(dealt.get(name, []))
        boxes[name] = talks.sealed(pairs, name, talk.begin(column_gains(talk.source, cut, gains)))
    return boxes


@operation(
    "boost.gain_halves",
    when="protection=all",
    discloses="masked",
    about="its half of the gain of each column, under a mask; how often each of its own was cut",
    opened="aggregate: the summed gain of each column, and how often it was cut",
    concerns="own columns and labels",
    reply={"halves": ByName(Array("i")), "splits": Array("i"), "unit": float},
    times="20000 a session",
    after="boost.begin_gains",
)
def gain_halves(party: Party, *, model: int) -> dict[str, Any]:
    """For the coordinator."""
    state, pairs = party.held(Shares), party.held(Pairs)
    learnt, state.gains = state.gains, None
    if learnt is None or model != learnt.number:
        raise OperationRefused(party.name, "gain_halves", "a model that is not there")
    halves: dict[str, Ring] = {}
    for name, talk in party.held(Talks).of.items():
        if not isinstance(talk.result, np.ndarray):
            raise OperationRefused(party.name, "gain_halves", "gains have not been summed to the end")
        mask = pairs.cancelling(name, "boost: gains", state.summed, talk.result.shape)
        halves[name] = talk.result + mask
    state.summed, learnt.summed = state.summed + 1, True
    columns = np.array(state.models[model].columns, dtype=np.int64)
    splits = np.bincount(columns[columns >= 0], minlength=len(party.columns)).astype(np.int64)
    return {"halves": halves, "splits": splits, "unit": _gain_unit(party, state, model, learnt.scales)}


def _gain_unit(party: Party, state: Shares, model: int, scales: Scales) -> float:
    """What a unit of a gain is worth: the label holder's knowledge (0 elsewhere)."""
    if state.number == 1:
        return 0.0
    boosting = party.held(Boosting)
    found = boosting.models[model // state.outputs]
    size = spread(found, boosting.labels.values)[1] if boosting.labels.task == "regression" else 1.0
    rate = scales.rate / 2**RATE_BITS
    return float(np.ldexp(size**2 / rate, -scales.gradient - scales.score - MORE_BITS))


# --- scores ----------------------------------------------------------------------------------------------------------


@operation(
    "boost.begin_scores",
    when="protection=all",
    discloses="masked",
    about="scores of the rows and which of them were held out, under fresh masks, sealed for the other side",
    opened="nobody",
    concerns="own columns and labels",
    reply=ByName(SealedBox),
    times="20000 a session",
    after="boost.finish_tree",
)
def begin_scores(party: Party, *, dealt: list[np.ndarray]) -> dict[str, SealedBox]:
    """Of all models of the group, scores of the rows that were held out, zeros for others, on shares. Which these are
    the label holder knows."""
    state = party.held(Shares)
    if any(model.plan.early_stopping_rounds for model in state.group):
        raise OperationRefused(party.name, "begin_scores", "rows are held out to stop by; nobody reads their scores")
    held = np.zeros((len(state.group), (party.n_rows + 7) // 8), np.uint8)
    if state.number == 0:
        models = [state.learner(party.held(Boosting), place)[0] for place in range(len(state.group))]
        held = np.packbits(~np.stack([model.train for model in models]), axis=1)
    return state.begin_rows(party, selected(state.rows.source, held, state.scores), dealt)


@operation(
    "boost.show_scores",
    when="protection=all",
    discloses="masked",
    about="its share of the scores of the rows, sealed for the label holder",
    opened="pseudonymous: the score of each row, summed over all trees",
    opened_by="active",
    role="passive",
    reply=SealedBox,
    times="20000 a session",
)
def show_scores(party: Party, *, number: int) -> SealedBox:
    """The sum over all trees of each model of a group, once: of a prediction, or of rows that were held out."""
    state = party.held(Shares)
    shown = state.scores if state.walks else state.rows.result
    due = [state.due] if state.walks else [model.due for model in state.group]
    grown = state.now is None and isinstance(shown, np.ndarray) and shown.shape == state.scores.shape
    if party.name != state.first or not grown or not due or set(due) != {0}:
        raise OperationRefused(party.name, "show_scores", "one party shows scores, once, when all trees are grown")
    state.due = -1
    for model in state.group:
        model.due = -1
    return party.held(Pairs).seal(shown, to=state.holder, about="boost: scores", number=number)


@operation(
    "boost.hear_scores",
    when="protection=all",
    discloses="control",
    receives="masked",
    about="acknowledgement",
    learns="the scores of its rows, summed over all trees of a model",
    concerns="labels",
    role="active",
    times="20000 a session",
)
def hear_scores(party: Party, *, number: int, box: SealedBox) -> None:
    """At the end of the models of a group, for held-out scores."""
    boosting, state = party.held(Boosting), party.held(Shares)
    found = opened_scores(party, number, box, state.rows.result)
    for place, values in enumerate(found):
        model, output = state.learner(boosting, place)
        if boosting.labels.task == "regression":
            middle, size = spread(model, boosting.labels.values)
            values = middle + size * values
        model.margins[:, output] = values if state.outputs == 1 else log_chance(values)


def log_chance(scores: np.ndarray) -> np.ndarray:
    """Of a class against the rest: what several classes' chances are shared out by."""
    return np.asarray(-np.logaddexp(0.0, -scores))


def opened_scores(party: Party, number: int, box: SealedBox, own: object) -> np.ndarray:
    """At the label holder: both shares together."""
    state = party.held(Shares)
    if state.scales is None or not isinstance(own, np.ndarray):
        raise OperationRefused(party.name, "hear_scores", "there are no scores")
    theirs = party.held(Pairs).open(box, sender=state.first, about="boost: scores", number=number)
    if not isinstance(theirs, np.ndarray) or theirs.dtype != own.dtype or theirs.shape != own.shape:
        raise ReplyError(state.first, "show_scores", "it showed scores of other rows")
    return state.scales.values(own + theirs)


# --- what is kept ----------------------------------------------------------------------------------------------------


@operation(
    "boost.keep_tree_shares",
    when="protection=all",
    discloses="control",
    about="acknowledgement",
    times="1 a session",
    reply={"trees": int, "rounds": int},
)
def keep_tree_shares(party: Party, *, model: str) -> dict[str, int]:
    """This party's part of the model: its cuts, and its share of every leaf."""
    state = party.held(Shares)
    grown, scales = [state.models[number] for number in sorted(state.models)], state.scales
    unseen = any(model.unseen for model in state.group)
    if scales is None or state.now is not None or unseen or len(grown) != state.outputs:
        raise OperationRefused(party.name, "keep_tree_shares", "no model has been grown to the end")
    rounds = max(len(each.cuts) for each in grown)
    shared = SharedTrees(
        state.number, state.first, state.outputs, scales.score, np.dtype(scales.words).name,
        [cuts for each in grown for cuts in filled(each.cuts, rounds, -1)],
        [codes for each in grown for codes in filled(each.leaves, rounds, 0)],
    )  # fmt: skip
    labelled = Labelled([], "", ())
    if state.number == 0:
        boosting = party.held(Boosting)
        labels, found = boosting.labels, boosting.models[0]
        base, size = [start_score(boosting, found, output) for output in range(state.outputs)], 1.0
        if labels.task == "regression":
            middle, size = spread(found, labels.values)
            base = [middle]
        labelled = Labelled(base, labels.task, labels.classes, size)
    party.models.keep(model, StoredPart(party.held(SplitRecords).records, labelled=labelled, shared=shared))
    return {"trees": sum(len(each.cuts) for each in grown), "rounds": rounds}


def filled(trees: list[list[int]], rounds: int, nothing: int) -> list[list[int]]:
    """As many trees for every class: those that one has not are cut nowhere, and add nothing."""
    return trees + [[nothing] * len(trees[0])] * (rounds - len(trees))


OPERATIONS = (
    finish_tree,
    finish_level,
    begin_gains,
    gain_halves,
    begin_scores,
    show_scores,
    hear_scores,
    keep_tree_shares,
)
