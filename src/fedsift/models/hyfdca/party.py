"""A party's side of HyFDCA's rounds and of joint prediction. See ``hyfdca.py`` for the conversation.

Everything that is told in several rounds travels as a change since it was last told (in the ring, so without rounding
errors): a party that misses a round tells the change later, and the others go on with its last word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import LabelHolder, PartyName
from fedsift.core.ledger import Release, other_persons, scores_read
from fedsift.core.message import message
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.errors import DataError, OperationRefused
from fedsift.models.design import LinearPart
from fedsift.models.hyfdca.loss import best_duals, check_centres
from fedsift.models.hyfdca.state import Labels, Part, RoundState, Walk
from fedsift.models.hyfdca.track import Decision, Track, from_bits, to_bits
from fedsift.models.predicted import Predicted, ScoresOpened
from fedsift.mpc.group_sum import cover_for, fixed, hide, to_words, uncover
from fedsift.mpc.ring import Ring, stream

#: A round in which a party goes missing is played again without it.
ROUNDS = "2 x parties x rounds or 1000 a session"
SCORE_BITS = 32  # of the fraction of a score
GRAM_SHIFT = 30  # inner products are told with so many more bits: they get small
MEASURES = 8  # numbers by output beside the inner products: see ``search.Measures``
MAYBE_RING = (Array("i", (1, 2)), type(None))


@message
@dataclass(frozen=True)
class Copy:
    """Weights as the others have them by now, covered; fresh if they were moved since."""

    state: Ring
    number: int
    fresh: bool


@message
@dataclass(frozen=True)
class CatchUp:
    """What a party missed: of its columns, of the intercept."""

    state: Copy | None = None
    intercept: Copy | None = None


@message
@dataclass(frozen=True)
class HandedOver:
    """Weights of the columns and the intercept, covered for who missed a round."""

    state: Ring | None
    intercept: Ring | None


@message
@dataclass(frozen=True)
class RaisedDuals:
    """Duals for the parties with the same rows, a correction for each of these, and the change of the duals' sum."""

    duals: Ring | None
    corrections: dict[str, Ring]
    balance: Ring | None


def _number(ring: Ring, bits: int) -> np.ndarray:
    return np.ldexp(ring.view(np.int64).astype(np.float64), -bits)


def _weights(part: Part, state: RoundState) -> np.ndarray:
    return np.asarray(part.metric @ state.columns.track.u)


def _labels(party: Party, part: Part, state: RoundState) -> tuple[np.ndarray, Walk, Labels]:
    if part.target is None or state.intercept is None or state.labels is None:
        raise OperationRefused(party.name, "raise_duals", "this party does not hold the labels of its rows")
    return part.target, state.intercept, state.labels


@operation(
    "hyfdca.step_and_score", times=ROUNDS, discloses="masked", receives="aggregate",
    about="its part of the scores of the rows, readable in sum and to the rows' label holder alone",
    opened="pseudonymous: the sum of all parties' scores of each row, in each round", opened_by="active",
    learns="how to combine its last steps", releases=scores_read, reply=MAYBE_RING,
)  # fmt: skip
def step_and_score(
    party: Party,
    *,
    after: int,
    this: int,
    number: int,
    decision: Decision | None,
    rate: float,
    catch_up: CatchUp,
    among: list[PartyName],
) -> Ring | None:
    """Move own weights; tell the change of own scores. ``after`` is the last round with this party that counted."""
    part, before = party.held(Part), party.held(RoundState)
    if before.round != after:  # a round that was called off: as if it had not been
        if before.before is None or before.before.round != after:
            raise DataError(f"party {party.name!r} has lost track of the rounds; fit again")
        before = before.before
    before = replace(before, before=None)
    columns = _moved(party, before.columns, "state", part.column_group, catch_up.state, decision, rate)
    state = replace(before, before=before, round=this, columns=columns)
    if before.intercept is not None:
        sent = catch_up.intercept
        state.intercept = _moved(party, before.intercept, "intercept", part.holder_group, sent, decision, rate)
    party.keep(state)
    if party.name not in among:
        return None
    scores = fixed(part.x @ _weights(part, state), SCORE_BITS, f"party {party.name!r}: a score")
    change, state.scores = scores - state.scores, scores
    return hide(party, change, "scores", number, among, part.holder)


def _moved(
    party: Party, walk: Walk, purpose: str, group: str | None, sent: Copy | None, decision: Decision | None, rate: float
) -> Walk:
    """One step of the weights; after rounds that this party missed, first go where the others of the group are."""
    if sent is not None and group is not None:
        track = walk.track if decision is None else walk.track.decided(decision)
        bits = uncover(party, sent.state, purpose, sent.number, group, (3 * track.u.size,))
        u, g, told = from_bits(bits, track.u.shape, 3)
        walk = Walk(replace(track, u=u, g=g), told.view(np.uint64).reshape(walk.total.shape), sent.fresh)
    elif decision is not None:
        return replace(walk, track=walk.track.decided(decision), fresh=False)
    return replace(walk, track=walk.track.slid(rate) if walk.fresh else walk.track, fresh=False)


@operation(
    "hyfdca.hand_over",
    times=ROUNDS,
    discloses="masked",
    about="weights of its columns for a party with the same columns that missed a round, readable to those alone",
    opened="aggregate: weights of its columns, to a party with the same columns",
    opened_by="parties",
    releases=other_persons,
    reply=HandedOver,
)
def hand_over(party: Party, *, number: int, columns: bool, holders: bool) -> HandedOver:
    part, state = party.held(Part), party.held(RoundState)
    weights = intercept = None
    if columns and part.column_group is not None:
        weights = cover_for(party, _bits(state.columns), "state", number, part.column_group)
    if holders and part.holder_group is not None and state.intercept is not None:
        intercept = cover_for(party, _bits(state.intercept), "intercept", number, part.holder_group)
    return HandedOver(weights, intercept)


def _bits(walk: Walk) -> np.ndarray:
    return to_bits(walk.track.u, walk.track.g, walk.total.view(np.float64))


def _sums_told(reply: RaisedDuals) -> Release:
    """What the other parties with these rows read of a round: a sum for each of their columns and outputs."""
    return Release(sum(correction.size for correction in reply.corrections.values()), 53.0)


@operation(
    "hyfdca.raise_duals", times=ROUNDS, discloses="masked", receives="masked",
    about="duals of the rows less random numbers, for the other parties with these rows; their sum, for label holders",
    opened="aggregate: in each round, for each column of the other parties with these rows, the sum of column times "
    "dual (tells about labels)", opened_by="passive", concerns="labels", releases=_sums_told,
    learns="the score of each of its rows: its own part, and the sum of the other parties' parts", reply=RaisedDuals,
)  # fmt: skip
def raise_duals(
    party: Party, *, number: int, scores: Ring | None, senders: list[PartyName], recentre: NDArray[np.bool_] | None,
    seed: bytes, peers: list[PartyName], among: list[PartyName],
) -> RaisedDuals:  # fmt: skip
    """The label holder: the best dual coordinate of each row at its present score."""
    part, state = party.held(Part), party.held(RoundState)
    target, walk, labels = _labels(party, part, state)
    others, centre = labels.others, labels.centre
    if scores is not None:
        others = others + uncover(party, scores, "scores", number, _first(party, senders), others.shape)
    if recentre is not None:
        check_centres(party.name, "raise_duals", recentre, target.shape[1], part.loss)
        if recentre.any() and labels.duals is not None:
            centre = np.where(recentre, labels.duals.signed * target, centre)
    intercept = part.intercept_metric * walk.track.u
    total = _number(others, SCORE_BITS) + part.x @ _weights(part, state) + intercept
    best = best_duals(part.loss, total, target, centre)
    duals = fixed(_bounded(best.signed), part.bits, f"party {party.name!r}: a dual")
    duals_sum = duals.sum(axis=0, dtype=np.uint64)
    state.own, state.labels = part.x_ring.T @ duals, Labels(others, centre, duals_sum, labels.duals_sent, best)
    covered, balance, corrections = None, None, {}
    if peers and part.row_group is not None:
        mask = stream(seed, "duals", number, duals.shape)
        covered = cover_for(party, duals - mask, "duals", number, part.row_group)
        for name in peers:
            columns = part.hidden[name]
            share = stream(seed, f"share of {name}", number, (columns.shape[1], part.outputs))
            corrections[name] = cover_for(party, columns.T @ mask + share, "corrections", number, name)
    if part.holder_group is not None and party.name in among:
        state.labels = replace(state.labels, duals_sent=duals_sum)
        balance = hide(party, duals_sum - labels.duals_sent, "balance", number, among, part.holder_group)
    return RaisedDuals(covered, corrections, balance)


def _first(party: Party, senders: list[str]) -> str:
    """Of those whose scores were added up: it has put the cover on."""
    if not senders:
        raise OperationRefused(party.name, "scores", "there are scores of other parties, and nobody who sent them")
    return senders[0]


def _bounded(duals: np.ndarray) -> np.ndarray:
    """Duals whose weighted sums fit the ring. Larger ones come from a step that went wrong and will be undone."""
    size = np.sqrt((duals**2).mean(axis=0))
    return np.asarray(duals * np.minimum(1.0, 16.0 / np.maximum(size, 16.0)))


@operation(
    "hyfdca.weigh_rows", times=ROUNDS, discloses="masked", receives="masked",
    about="sums of the duals weighted by its columns, for the parties with the same columns",
    opened="aggregate: sums of duals weighted by its columns, in total over the parties with the same columns",
    opened_by="parties", releases=other_persons,
    learns="for each of its columns the sum over its rows of column times dual", reply=MAYBE_RING,
)  # fmt: skip
def weigh_rows(
    party: Party,
    *,
    number: int,
    duals: Ring | None,
    correction: Ring | None,
    share: Ring | None,
    among: list[PartyName],
) -> Ring | None:
    part, state = party.held(Part), party.held(RoundState)
    if duals is not None and share is not None:
        shape = (party.n_rows, part.outputs)
        masked = uncover(party, duals, "duals", number, str(part.row_group), shape)
        rest = uncover(party, correction, "corrections", number, part.holder, state.own.shape)
        state.own = part.x_ring.T @ masked + rest + share
    if part.column_group is None or party.name not in among:
        return None
    change, state.sent = state.own - state.sent, state.own
    return hide(party, change, "column sums", number, among, part.column_group)


@operation(
    "hyfdca.finish_round",
    times=ROUNDS,
    discloses="masked",
    receives="masked",
    about="inner products of its gradient and last steps, sizes of weights, losses: readable in sum over all parties",
    opened="aggregate: inner products of gradients and last steps, sizes of weights, losses, summed over all parties",
    learns="its columns' weights as the duals of all rows give them",
    reply=MAYBE_RING,
    settings=("memory",),
)
def finish_round(
    party: Party,
    *,
    number: int,
    total: Ring | None,
    balance: Ring | None,
    full: bool,
    everyone: list[PartyName],
    memory: int,
) -> Ring | None:
    """The gradient at the present weights; in a full round also what the coordinator needs to choose the step."""
    part, state = party.held(Part), party.held(RoundState)
    walk_now = _summed(party, state.columns, state.own, total, "column sums", number, part.column_group)
    intercept = state.intercept
    if intercept is not None and state.labels is not None:  # all that may be refused, before anything changes
        labels_sum = state.labels.duals_sum
        intercept = _summed(party, intercept, labels_sum, balance, "balance", number, part.holder_group)
    weights = _weights(part, state)
    rebuilt = _number(walk_now.total, 2 * part.bits) / part.alpha
    gradient = part.metric.T @ (part.alpha * (weights - rebuilt))
    state.columns = replace(walk_now, track=state.columns.track.measured(gradient, memory, full))
    if intercept is not None and state.labels is not None:
        # The intercept is a column of ones that all label holders share: its gradient is minus the sum of the duals.
        slope = -part.intercept_metric * _number(intercept.total, part.bits)
        state.intercept = replace(intercept, track=intercept.track.measured(slope[None, :], memory, full))
    if not full:
        return None
    words = to_words(_vector(part, state, weights, rebuilt))
    return hide(party, words, "totals", number, everyone, None)


def _summed(
    party: Party, walk: Walk, own: Ring, change: Ring | None, purpose: str, number: int, group: str | None
) -> Walk:
    """With the sum over the group: own where there is no group, else its last change where one was told."""
    if group is None:
        return replace(walk, total=own, fresh=True)
    if change is None:
        return walk
    told = uncover(party, change, purpose, number, group, walk.total.shape)
    return replace(walk, total=walk.total + told, fresh=True)


def _vector(part: Part, state: RoundState, weights: np.ndarray, rebuilt: np.ndarray) -> np.ndarray:
    """Own part of the totals: inner products, then the MEASURES, each by output and as a mean over all rows."""
    track = state.columns.track
    size = len(track.steps) + len(track.changes) + 1
    products, measures = np.zeros((part.outputs, size, size)), np.zeros((MEASURES, part.outputs))
    if part.first:
        products += track.products()
        for line, each in enumerate((weights, weights - rebuilt, rebuilt)):
            measures[line] = part.alpha * (each**2).sum(axis=0)
    if state.intercept is not None and state.labels is not None and state.labels.duals is not None:
        duals = state.labels.duals
        measures[4:] = duals.objective, duals.primal, duals.dual, duals.moved
        if part.first_holder:
            products += state.intercept.track.products()
            measures[3] = np.abs(_number(state.intercept.total, part.bits))
    upper = products[(slice(None), *np.triu_indices(size))]  # they are symmetric
    return np.concatenate([2.0**GRAM_SHIFT * upper.ravel(), measures.ravel()]) / part.rows


@operation("hyfdca.keep_part", times="10 a session", discloses="control", about="acknowledgement")
def keep_part(party: Party, *, model: str, back: NDArray[np.bool_]) -> None:
    """Own weights stay at the site."""
    part, state = party.held(Part), party.held(RoundState)

    def final(track: Track) -> np.ndarray:
        here = track.u if track.anchor is None else track.anchor[0]
        return here if track.best is None else np.where(back, track.best[0], here)

    walk = state.intercept
    intercept = None if walk is None else part.intercept_metric * final(walk.track)[0]
    weights = part.metric @ final(state.columns.track)
    centre, scale = part.target_scale
    party.models.keep(model, LinearPart(part.design, weights, intercept, centre, scale, part.classes))


# --- prediction ------------------------------------------------------------------------------------------------------


@operation(
    "hyfdca.score_rows", times="1 a session", discloses="masked",
    about="its part of the scores of the rows, readable in sum and to the label holder alone",
    opened="pseudonymous: the score of each row, in total over all parties", opened_by="active", reply=MAYBE_RING,
)  # fmt: skip
def score_rows(party: Party, *, model: str, number: int, among: list[PartyName], reader: LabelHolder) -> Ring | None:
    party.held_here(ScoresOpened)
    own = party.models.part(model, LinearPart).scores(party.table)
    scores = fixed(own, SCORE_BITS, f"party {party.name!r}: a score")
    return hide(party, scores, "scores", number, among, reader)


@operation(
    "hyfdca.read_scores",
    times="1 a session",
    discloses="plain",
    receives="masked",
    about="predicted scores of the rows",
    learns="the sum of the other parties' scores of each row",
    reply=Array("f", 2),
)
def read_scores(party: Party, *, model: str, number: int, scores: Ring | None, senders: list[PartyName]) -> np.ndarray:
    return _read_scores(party, model, number, scores, senders).scores


@operation(
    "hyfdca.hold_scores",
    discloses="control",
    receives="masked",
    about="acknowledgement",
    learns="the sum of the other parties' scores of each row",
    role="active",
    times="1 a session",
)
def hold_scores(party: Party, *, model: str, number: int, scores: Ring | None, senders: list[PartyName]) -> None:
    """The same, and they stay with the label holder."""
    _read_scores(party, model, number, scores, senders)


def _read_scores(party: Party, model: str, number: int, scores: Ring | None, senders: list[PartyName]) -> Predicted:
    part = party.models.part(model, LinearPart)
    total = part.scores(party.table)
    if scores is not None:
        told = uncover(party, scores, "scores", number, _first(party, senders), total.shape)
        total = total + _number(told, SCORE_BITS)
    return party.keep(Predicted(part.centre + part.scale * total, part.classes))


OPERATIONS = (
    step_and_score, hand_over, raise_duals, weigh_rows, finish_round, keep_part, score_rows, read_scores,
    hold_scores,
)  # fmt: skip
