"""Early stopping on shares: whether trees still make the loss of held-out rows smaller, and nobody reads a loss.

After each tree the loss of the rows that a model holds out is summed on shares and compared with the smallest one so
far. Which rows these are the label holder alone knows: it turns the score of a row whose label is yes, and puts rows
that are not held out where a score costs nothing. With two classes a row's loss is looked up, as its chance is
(``scales.py``: the same cells); of a number it is the square of what is missing.

Opened is one bit a tree: whether as many trees as the job says went by without a smaller loss. It is 0 until the end,
so all bits together say how many trees a model has, which everybody sees anyway. When a model has all its trees
and was not stopped, the parties look back, bit by bit, for the last of them that made the loss smaller: the same
again. Several classes are a model each, and stop one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.ledger import Release
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.compared.predicting import RowDealer
from fedsift.models.boost.compared.scales import HALF_CELL, Scales
from fedsift.models.boost.compared.state import Shares
from fedsift.models.boost.compared.taking_part import spread
from fedsift.models.boost.growing_tree import Boosting
from fedsift.mpc.comparing import Program, Source, conjunctions, negative
from fedsift.mpc.dealer import Bits
from fedsift.mpc.ring import Ring
from fedsift.mpc.row_programs import Words, looked_up, selected, weighed

#: Where the score of a row that is not counted is put: the lowest.
_NOWHERE = 2**15
#: Held-out numbers farther than this from the start count as if they were as far (1: the farthest of training).
FARTHEST = 8.0


@dataclass(frozen=True)
class HeldOut:
    """Of models x rows, at the label holder (zeros at the others): what scores are multiplied with, and what is added
    (two classes) or taken off before (a number)."""

    turns: Words
    base: Words

    @classmethod
    def nothing(cls, scores: Words) -> HeldOut:
        return cls(np.zeros_like(scores), np.zeros_like(scores))

    @classmethod
    def of(cls, scales: Scales, held: np.ndarray, values: np.ndarray) -> HeldOut:
        """``held``: which rows are; ``values``: labels of 0 and 1, or numbers in the unit of scores."""
        if scales.logistic:
            turns = np.where(held, np.where(values > 0.5, -1, 1), 0).astype(np.int64)
            return cls(turns.astype(scales.words), np.where(held, 0, _NOWHERE).astype(scales.words))
        return cls(held.astype(scales.words), scales.scores(np.clip(values, -FARTHEST, FARTHEST)))


@dataclass(frozen=True)
class Compared:
    """After a tree of some models: shares of the smallest loss, and of whether it is this tree's (1 x bytes); of each
    model how many trees ago the last smaller one was, or -1 where it goes on."""

    best: Ring
    better: Bits
    back: np.ndarray


def compared(
    source: Source, scales: Scales, scores: Words, held: HeldOut, best: Ring, before: list[Bits], patience: int,
    grown: np.ndarray,
) -> Program[Compared]:  # fmt: skip
    """``before``: the bits of the trees before (the last one first); ``grown``: which models have all their trees."""
    source.word = 8
    loss = yield from _losses(source, scales, scores, held)
    rest = loss - best
    better = yield from negative(source, rest[:, None], bits=64)
    less = yield from selected(source, better, rest[None])
    seen, models = [better, *before], len(scores)
    stopped = np.zeros(models, dtype=bool)
    if len(seen) >= patience:
        turn = np.uint8(255 if source.number == 0 else 0)
        stopped = yield from _opened(source, [each ^ turn for each in seen[:patience]], models)
    back = np.where(stopped, patience, -1)
    left = grown & ~stopped
    for age, bits in enumerate(seen[:patience]):
        if not left.any():
            break
        asked = bits & np.packbits(left)[None]
        (theirs,) = yield [asked]
        found = left & np.unpackbits((asked ^ theirs)[0], count=models).astype(bool)
        back, left = np.where(found, age, back), left & ~found
    return Compared(best + less[0], better, back)


def _losses(source: Source, scales: Scales, scores: Words, held: HeldOut) -> Program[Ring]:
    """Shares of each model's loss."""
    if scales.logistic:
        turned = yield from weighed(source, held.turns, scores)
        middle = scores.dtype.type(HALF_CELL if source.number == 0 else 0)
        words = yield from looked_up(source, (turned + held.base + middle).ravel(), scales.losses)
        return np.asarray(words.reshape(scores.shape).sum(axis=1, dtype=np.uint64))
    own = scores - held.base  # (x + y)^2 of shares x of the label holder and y: x^2 is its own, 2 x y + y^2 is not
    weights = np.concatenate([held.turns * own * np.uint64(2), held.turns], axis=1)
    numbers = np.concatenate([scores, scores * scores], axis=1)
    if source.number == 0:
        numbers = np.zeros_like(numbers)
    products = yield from weighed(source, weights, numbers)
    return np.asarray((products.sum(axis=1, dtype=np.uint64)) + (held.turns * own * own).sum(axis=1, dtype=np.uint64))


def _opened(source: Source, rows: list[Bits], count: int) -> Program[np.ndarray]:
    """The AND of shared bits, opened to both."""
    while len(rows) > 1:
        places = [tuple(range(at, min(at + 4, len(rows)))) for at in range(0, len(rows), 4)]
        rows = yield from conjunctions(source, rows, places)
    (theirs,) = yield [rows[0]]
    return np.unpackbits((rows[0] ^ theirs)[0], count=count).astype(bool)


# --- the parties -----------------------------------------------------------------------------------------------------


def _due(state: Shares) -> list[int]:
    """The models of the group whose last tree has not been looked at."""
    return [place for place, model in enumerate(state.group) if model.unseen]


@operation(
    "boost.begin_loss",
    when=("protection=all", "early_stopping_rounds=set"),
    discloses="masked",
    about="scores of the rows and which of them were held out, under fresh masks, sealed for the other side",
    opened="nobody",
    concerns="own columns and labels",
    reply=ByName(SealedBox),
    times="20000 a session",
    after="boost.finish_tree",
)
def begin_loss(party: Party, *, dealt: list[np.ndarray]) -> dict[str, SealedBox]:
    """Of all models that have a new tree: whether the loss of the rows that they hold out is smaller than before."""
    state, scales = party.held(Shares), party.held(Shares).scales
    places = _due(state)
    if not places or scales is None or state.now is not None:
        raise OperationRefused(party.name, "begin_loss", "there is no new tree whose loss could be compared")
    scores, models = state.scores[places], [state.group[place] for place in places]
    if len({len(model.seen) for model in models}) != 1:
        raise OperationRefused(party.name, "begin_loss", "models that stop together have as many trees each")
    held = HeldOut.nothing(scores)
    if state.number == 0:
        parts = [_held_out(party, state, scales, place) for place in places]
        held = HeldOut(np.stack([part.turns for part in parts]), np.stack([part.base for part in parts]))
    best = np.array([model.best for model in models], dtype=np.uint64)
    before = [np.packbits([model.seen[age] for model in models])[None] for age in range(len(models[0].seen))]
    grown = np.array([model.due == 0 for model in models])
    patience = models[0].plan.early_stopping_rounds
    program = compared(state.rows.source, scales, scores, held, best, before, patience, grown)
    return state.begin_rows(party, program, dealt)


def _held_out(party: Party, state: Shares, scales: Scales, place: int) -> HeldOut:
    """At the label holder."""
    boosting = party.held(Boosting)
    (model, output), labels = state.learner(boosting, place), boosting.labels
    values = labels.values if state.outputs == 1 else (labels.values == output).astype(float)
    if labels.task == "regression":
        middle, size = spread(model, values)
        values = (values - middle) / size
    return HeldOut.of(scales, ~model.train, values)


def _numbers_of_trees(told: dict[str, Any]) -> Release:
    """How many trees a model has: as many bits as the most rounds of a session take."""
    return Release(len(told["kept"]), 14.0)


@operation(
    "boost.tell_stopped",
    when=("protection=all", "early_stopping_rounds=set"),
    discloses="aggregate",
    about="of each model that is at its end, how many trees it has",
    learns="the same",
    concerns="own columns and labels",
    opened_by="parties",
    releases=_numbers_of_trees,
    reply={"models": Array("i"), "kept": Array("i")},
    times="20000 a session",
    after="boost.begin_loss",
)
def tell_stopped(party: Party) -> dict[str, Any]:
    """Take the comparison over. What grew after the smallest loss is dropped."""
    state = party.held(Shares)
    found, places = state.rows.result, _due(state)
    if not isinstance(found, Compared) or found.back.shape != (len(places),):
        raise OperationRefused(party.name, "tell_stopped", "losses have not been compared to the end")
    bits, ended = np.unpackbits(found.better[0], count=len(places)).tolist(), []
    for place, best, bit, back in zip(places, found.best.tolist(), bits, found.back.tolist()):
        model = state.group[place]
        model.best, model.seen, model.unseen = best, [bit, *model.seen][: model.plan.early_stopping_rounds - 1], False
        if back >= 0:
            kept = len(state.grown(place).leaves) - back
            model.due = 0
            state.grown(place).cut_off(kept, model.plan.settings.max_depth)
            ended.append((model.number, kept))
    state.rows.result = None
    told = np.array(ended, dtype=np.int64).reshape(-1, 2)
    return {"models": told[:, 0], "kept": told[:, 1]}


OPERATIONS = (begin_loss, tell_stopped)


# --- the conversation ------------------------------------------------------------------------------------------------


def compare_losses(
    fed: Federation, rows: RowDealer, models: int, grown: np.ndarray, before: int, patience: int
) -> dict[int, int]:  # fmt: skip
    """After a tree of so many models: how many trees those have that are at their end. ``before``: trees before."""
    scores = np.zeros((models, fed.n_rows), rows.scales.words)
    seen = [np.zeros((1, (models + 7) // 8), np.uint8)] * min(before, patience - 1)
    best = np.zeros(models, np.uint64)
    program = compared(rows.source, rows.scales, scores, HeldOut.nothing(scores), best, seen, patience, grown)
    rows.run(fed, begin_loss, program)
    told = fed.ask(tell_stopped, to=fed.parties)
    mine = told[fed.active]
    for name, reply in told.items():
        same = all(np.array_equal(reply[part], mine[part]) for part in ("models", "kept"))
        if not same or len(mine["models"]) != len(mine["kept"]) or (mine["kept"] < 1).any():
            raise ReplyError(name, "tell_stopped", "the parties do not agree on how many trees a model has")
    return dict(zip(mine["models"].tolist(), mine["kept"].tolist()))
