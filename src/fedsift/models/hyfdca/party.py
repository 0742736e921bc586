"""A party's side of HyFDCA's rounds and of joint prediction. See ``hyfdca.py`` for the conversation.

Everything that is told in several rounds travels as a change since it was last told (in the ring, so without rounding
errors): a party that misses a round tells the change later, and the others go on with its last word.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import LabelHolder, PartyName
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.errors import DataError
from fedsift.models.design import LinearPart
from fedsift.models.hyfdca.loss import best_duals
from fedsift.models.hyfdca.setup import PART, STATE, Part
from fedsift.models.hyfdca.track import Decision, Track, from_bits, to_bits
from fedsift.models.parts import Predicted
from fedsift.mpc.group_sum import cover_for, fixed, hide, to_words, uncover
from fedsift.mpc.ring import Ring, stream

#: A round in which a party goes missing is played again without it.
ROUNDS = "2 x parties x rounds or 1000 a session"
SCORE_BITS = 32  # of the fraction of a score
GRAM_SHIFT = 30  # inner products are told with so many more bits: they get small
MEASURES = ("weights", "distance", "rebuilt", "balance", "objective", "primal", "dual", "moved")


class Copy(TypedDict):
    """Weights as the others have them by now, covered; fresh if they were moved since."""

    state: Ring
    number: int
    fresh: bool


class CatchUp(TypedDict, total=False):
    """What a party missed: of its columns, of the intercept."""

    state: Copy
    intercept: Copy


def _number(ring: Ring, bits: int) -> np.ndarray:
    return np.ldexp(ring.view(np.int64).astype(np.float64), -bits)


def _weights(part: Part, state: dict[str, Any]) -> np.ndarray:
    return part.metric @ state["track"].u


@operation(
    "hyfdca.step_and_score",
    times=ROUNDS,
    discloses="masked",
    receives="aggregate",
    about="its part of the scores of the rows, readable in sum and to the rows' label holder alone",
    learns="how to combine its last steps",
    reply={"scores": object},
)
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
) -> dict[str, Any]:
    """Move own weights; tell the change of own scores. ``after`` is the last round with this party that counted."""
    part, state = party.state[PART], party.state[STATE]
    if state["round"] != after:  # a round that was called off: as if it had not been
        state = state.get("before", {})
        if state.get("round") != after:
            raise DataError(f"party {party.name!r} has lost track of the rounds; fit again")
    before = {key: value for key, value in state.items() if key != "before"}
    state = {**before, "before": before, "round": this}
    caught_up = _catch_up(party, part, state, catch_up, decision)
    for name, fresh in (("track", "fresh"), ("intercept", "fresh intercept")):
        if name not in state:
            continue
        if decision is not None and name not in caught_up:
            state[name] = state[name].decided(decision)
        elif state[fresh]:
            state[name] = state[name].slid(rate)
        state[fresh] = False
    party.state[STATE] = state
    if party.name not in among:
        return {"scores": None}
    scores = fixed(part.x @ _weights(part, state), SCORE_BITS, f"party {party.name!r}: a score")
    change, state["scores"] = scores - state["scores"], scores
    return {"scores": hide(party, change, "scores", number, among, part.holder)}


def _catch_up(party: Party, part: Part, state: dict[str, Any], given: CatchUp, decision: Decision | None) -> set[str]:
    """Go where the others of the column block (the label holders) are by now, after rounds that this party missed."""
    done = set()
    for name, total, fresh, purpose, group, sent in (
        ("track", "total", "fresh", "state", part.column_group, given.get("state")),
        ("intercept", "balance total", "fresh intercept", "intercept", part.holder_group, given.get("intercept")),
    ):
        if name not in state or sent is None or group is None:
            continue
        track = state[name] if decision is None else state[name].decided(decision)
        bits = uncover(party, sent["state"], purpose, sent["number"], group, (3 * track.u.size,))
        u, g, told = from_bits(bits, track.u.shape, 3)
        state[name] = replace(track, u=u, g=g)
        state[total] = told.view(np.uint64).reshape(state[total].shape)
        state[fresh] = sent["fresh"]
        done.add(name)
    return done


@operation(
    "hyfdca.hand_over",
    times=ROUNDS,
    discloses="masked",
    about="weights of its columns for a party with the same columns that missed a round, readable to those alone",
    reply={"state": object, "intercept": object},
)
def hand_over(party: Party, *, number: int, columns: bool, holders: bool) -> dict[str, Any]:
    part, state = party.state[PART], party.state[STATE]
    reply: dict[str, Any] = {"state": None, "intercept": None}
    if columns and part.column_group is not None:
        bits = to_bits(state["track"].u, state["track"].g, state["total"].view(np.float64))
        reply["state"] = cover_for(party, bits, "state", number, part.column_group)
    if holders and part.holder_group is not None:
        bits = to_bits(state["intercept"].u, state["intercept"].g, state["balance total"].view(np.float64))
        reply["intercept"] = cover_for(party, bits, "intercept", number, part.holder_group)
    return reply


@operation(
    "hyfdca.raise_duals",
    times=ROUNDS,
    discloses="masked",
    receives="masked",
    about="duals of the rows less random numbers, for the other parties with these rows; their sum, for label holders",
    learns="the score of each of its rows: its own part, and the sum of the other parties' parts",
    reply={"duals": object, "corrections": dict, "balance": object},
)
def raise_duals(
    party: Party, *, number: int, scores: Ring | None, senders: list[PartyName], recentre: NDArray[np.bool_] | None,
    seed: bytes, peers: list[PartyName], among: list[PartyName],
) -> dict[str, Any]:  # fmt: skip
    """The label holder: the best dual coordinate of each row at its present score."""
    part, state = party.state[PART], party.state[STATE]
    if scores is not None:
        told = uncover(party, scores, "scores", number, senders[0], state["others"].shape)
        state["others"] = state["others"] + told
    if recentre is not None and recentre.any() and state["duals"] is not None:
        state["centre"] = np.where(recentre, state["duals"].signed * part.target, state["centre"])
    intercept = part.intercept_metric * state["intercept"].u
    total = _number(state["others"], SCORE_BITS) + part.x @ _weights(part, state) + intercept
    state["duals"] = best_duals(part.loss, total, part.target, state["centre"])
    duals = fixed(_bounded(state["duals"].signed), part.bits, f"party {party.name!r}: a dual")
    state["own"], state["sum of duals"] = part.x_ring.T @ duals, duals.sum(axis=0, dtype=np.uint64)
    reply: dict[str, Any] = {"duals": None, "corrections": {}, "balance": None}
    if peers:
        mask = stream(seed, "duals", number, duals.shape)
        reply["duals"] = cover_for(party, duals - mask, "duals", number, part.row_group)
        for name in peers:
            columns = part.hidden[name]
            share = stream(seed, f"share of {name}", number, (columns.shape[1], part.outputs))
            reply["corrections"][name] = cover_for(party, columns.T @ mask + share, "corrections", number, name)
    if part.holder_group is not None and party.name in among:
        change, state["balance sent"] = state["sum of duals"] - state["balance sent"], state["sum of duals"]
        reply["balance"] = hide(party, change, "balance", number, among, part.holder_group)
    return reply


def _bounded(duals: np.ndarray) -> np.ndarray:
    """Duals whose weighted sums fit the ring. Larger ones come from a step that went wrong and will be undone."""
    size = np.sqrt((duals**2).mean(axis=0))
    return duals * np.minimum(1.0, 16.0 / np.maximum(size, 16.0))


@operation(
    "hyfdca.weigh_rows",
    times=ROUNDS,
    discloses="masked",
    receives="masked",
    about="sums of the duals weighted by its columns, for the parties with the same columns",
    learns="for each of its columns the sum over its rows of column times dual",
    reply={"sum": object},
)
def weigh_rows(
    party: Party,
    *,
    number: int,
    duals: Ring | None,
    correction: Ring | None,
    share: Ring | None,
    among: list[PartyName],
) -> Any:
    part, state = party.state[PART], party.state[STATE]
    if duals is not None:
        shape = (party.n_rows, part.outputs)
        masked = uncover(party, duals, "duals", number, str(part.row_group), shape)
        rest = uncover(party, correction, "corrections", number, part.holder, state["own"].shape)
        state["own"] = part.x_ring.T @ masked + rest + share
    if part.column_group is None or party.name not in among:
        return {"sum": None}
    change, state["sent"] = state["own"] - state["sent"], state["own"]
    return {"sum": hide(party, change, "column sums", number, among, part.column_group)}


@operation(
    "hyfdca.finish_round",
    times=ROUNDS,
    discloses="masked",
    receives="masked",
    about="inner products of its gradient and last steps, sizes of weights, losses: readable in sum over all parties",
    learns="its columns' weights as the duals of all rows give them",
    reply={"totals": object},
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
) -> dict[str, Any]:
    """The gradient at the present weights; in a full round also what the coordinator needs to choose the step."""
    part, state = party.state[PART], party.state[STATE]
    if part.column_group is None:
        state["total"], state["fresh"] = state["own"], True
    elif total is not None:
        told = uncover(party, total, "column sums", number, part.column_group, state["own"].shape)
        state["total"], state["fresh"] = state["total"] + told, True
    weights = _weights(part, state)
    rebuilt = _number(state["total"], 2 * part.bits) / part.alpha
    gradient = part.metric.T @ (part.alpha * (weights - rebuilt))
    state["track"] = state["track"].measured(gradient, memory, full)
    if "intercept" in state:
        _balance(party, part, state, number, balance, memory, full)
    if not full:
        return {"totals": None}
    words = to_words(_vector(part, state, weights, rebuilt))
    return {"totals": hide(party, words, "totals", number, everyone, None)}


def _balance(
    party: Party, part: Part, state: dict[str, Any], number: int, given: Ring | None, memory: int, full: bool
) -> None:
    """The intercept is a column of ones that all label holders share: its gradient is minus the sum of the duals."""
    if part.holder_group is None:
        state["balance total"], state["fresh intercept"] = state["sum of duals"], True
    elif given is not None:
        told = uncover(party, given, "balance", number, part.holder_group, state["balance total"].shape)
        state["balance total"], state["fresh intercept"] = state["balance total"] + told, True
    gradient = -part.intercept_metric * _number(state["balance total"], part.bits)
    state["intercept"] = state["intercept"].measured(gradient[None, :], memory, full)


def _vector(part: Part, state: dict[str, Any], weights: np.ndarray, rebuilt: np.ndarray) -> np.ndarray:
    """Own part of the totals: inner products, then the MEASURES, each by output and as a mean over all rows."""
    track = state["track"]
    size = len(track.steps) + len(track.changes) + 1
    products, measures = np.zeros((part.outputs, size, size)), np.zeros((len(MEASURES), part.outputs))
    if part.first:
        products += track.products()
        for line, each in enumerate((weights, weights - rebuilt, rebuilt)):
            measures[line] = part.alpha * (each**2).sum(axis=0)
    if "intercept" in state:
        duals = state["duals"]
        measures[4:] = duals.objective, duals.primal, duals.dual, duals.moved
        if part.first_holder:
            products += state["intercept"].products()
            measures[3] = np.abs(_number(state["balance total"], part.bits))
    upper = products[(slice(None), *np.triu_indices(size))]  # they are symmetric
    return np.concatenate([2.0**GRAM_SHIFT * upper.ravel(), measures.ravel()]) / part.rows


@operation("hyfdca.keep_part", times="10 a session", discloses="control", about="acknowledgement")
def keep_part(party: Party, *, model: str, back: NDArray[np.bool_]) -> None:
    """Own weights stay at the site."""
    part, state = party.state[PART], party.state[STATE]

    def final(track: Track) -> np.ndarray:
        here = track.u if track.anchor is None else track.anchor[0]
        return here if track.best is None else np.where(back, track.best[0], here)

    intercept = part.intercept_metric * final(state["intercept"])[0] if "intercept" in state else None
    weights = part.metric @ final(state["track"])
    centre, scale = part.target_scale
    party.models.keep(model, LinearPart(part.design, weights, intercept, centre, scale, part.classes))


# --- prediction ------------------------------------------------------------------------------------------------------


@operation(
    "hyfdca.score_rows",
    times="1 a session",
    discloses="masked",
    about="its part of the scores of the rows, readable in sum and to the label holder alone",
    reply={"scores": object},
)
def score_rows(party: Party, *, model: str, number: int, among: list[PartyName], reader: LabelHolder) -> dict[str, Any]:
    own = party.models.part(model, LinearPart).scores(party.table)
    scores = fixed(own, SCORE_BITS, f"party {party.name!r}: a score")
    return {"scores": hide(party, scores, "scores", number, among, reader)}


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
        total = total + _number(uncover(party, scores, "scores", number, senders[0], total.shape), SCORE_BITS)
    return party.keep(Predicted(part.centre + part.scale * total, part.classes))


OPERATIONS = (
    step_and_score, hand_over, raise_duals, weigh_rows, finish_round, keep_part, score_rows, read_scores,
    hold_scores,
)  # fmt: skip
