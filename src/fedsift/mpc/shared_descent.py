"""Scores and gradients of a linear model whose weights the coordinator moves and no party that holds rows sees.

A party that reads X'r of its own columns, or its weights step by step, can work out labels: X'y with labels of -1 and 1
is a linear programme, solved on Sonar (57 columns, 208 rows) without an error. So weights stay with the coordinator,
which holds no rows, and every party q computes with them blindly. All numbers are fixed point in Z_2^64.

Before the first step. Each party q has a helper: the label holder L for the others, the first other party for L. Both
draw the same one-time mask A_q (``pairs.py``); q sends the coordinator U_q = X_q + A_q.

A step at weights w. The coordinator draws seeds, one for L and one for L's helper, from which masks m_q of the weights
follow, and sends q only v_q = w_q + m_q. Every q without labels answers with X_q v_q under a mask shared with L (L's
helper adds A_L m_L), L keeps X_L v_L + sum of A_q m_q less those masks, and the coordinator subtracts U_q m_q:

    scores = (what the coordinator has) + (what L has),  two shares, each uniform to whoever holds it.

Then X_q'r for every q, opened by the coordinator alone, in one of two ways.

- Residuals linear in the scores (r = scores - target): nobody ever reads a score. The coordinator and L renew their
  shares by a mask e of the seed they have in common, q gets the coordinator's share + e (uniform to it), and the
  product with L's share is ``shared_product``'s: L sends V = share + B and A_q'V - C, q sends X_q'B + C - X_q'(its
  share), B and C from the seed of q and L. For L's own columns the helper knows A_L and computes A_L'(share + e).
- Any other ``Loss``: the coordinator's share goes to L, which reads the total score of each row in each step (with one
  other party: that party's), and the product is of X_q and r.

Why it is secure (semi-honest, the coordinator with nobody): v_q is uniform to q, for m_q is known to q's helper and the
coordinator only; share + e is uniform to q for the same reason. L receives seeds, v_L (masked by what its helper knows)
and, for a ``Loss``, the total scores. The coordinator receives U_q, scores and products under masks that it does not
know, each used once, and the sum that it is to open. So with linear residuals parties learn nothing at all before the
final weights, and with a loss the label holder learns total scores, the others nothing. The coordinator learns weights
and gradients of all columns. With L on its side it could read columns, with another party labels: where a data holder
runs the coordinator this form must not be used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, TypedDict

import numpy as np

from fedsift.core.arguments import MAX_CELLS, Between, LabelHolder, PartyName
from fedsift.core.federation import Federation
from fedsift.core.ledger import Release, scores_read
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, OverflowGuard, ReplyError
from fedsift.mpc import dealer, pairs
from fedsift.mpc.descent_columns import STEPS, GradientShares, OpenedResiduals, OwnGradient, ResidualShares, ScoreParts
from fedsift.mpc.descent_columns import Columns as Columns
from fedsift.mpc.descent_columns import Step as Step
from fedsift.mpc.descent_columns import spread as spread
from fedsift.mpc.pairs import Pairs, meet_all
from fedsift.mpc.ring import (
    RESIDUAL_ROOM,
    SCORE_ROOM,
    WEIGHT_BITS,
    Floats,
    Precision,
    Ring,
    check_shape,
    from_ring,
    new_seed,
    product,
    stream,
    to_ring,
)
from fedsift.mpc.ring import check_room as check_room
from fedsift.mpc.row_weights import Weighing, is_weighted, weighed_by_holder

_OPENED = "aggregate: sums of its columns times residuals, at weights of the coordinator's choice"


def _gradient(reply: ResidualShares | GradientShares) -> Release:
    """One sum a column and output: the coordinator opens them from all halves of the step."""
    return Release(reply.own.size, 53.0)


# --- what the parties do ----------------------------------------------------------------------------------------------


@operation(
    "descent.hide_columns", discloses="masked",
    about="its columns under one-time masks that it shares with one other party", opened="nobody",
    reply=Array("i", 2), times="1 a session",
)  # fmt: skip
def hide_columns(
    party: Party, *, helper: PartyName, widths: dict[PartyName, Annotated[int, Between(0, 10**6)]], reads_scores: bool
) -> Ring:
    """Once a run. ``widths`` are those of the parties that this one helps."""
    if party.n_rows * sum(widths.values()) > MAX_CELLS:
        raise OperationRefused(party.name, "hide_columns", "the other parties' columns are more than it has room for")
    columns, met = party.held(Columns), party.held(Pairs)
    if columns.helper:
        raise OperationRefused(party.name, "hide_columns", "its columns are hidden already in this run")
    columns.helper, columns.reads_scores = helper, reads_scores
    columns.precision = Precision.of(party.n_rows, reads_scores, is_weighted(party))
    exact = columns.precision.columns
    columns.ring = to_ring(columns.values, exact, 2.0 ** (62 - exact))
    columns.values = from_ring(columns.ring, exact)  # the same numbers for what is computed in the open
    columns.own_mask = met.mask(helper, f"columns of {party.name}", 0, columns.ring.shape)
    columns.helped = {
        name: met.mask(name, f"columns of {name}", 0, (party.n_rows, int(width))) for name, width in widths.items()
    }
    return columns.ring + columns.own_mask


def _weight_mask(seed: bytes, name: str, step: int, shape: tuple[int, int]) -> Ring:
    return stream(seed, f"weights of {name}", step, shape)


def _helped(columns: Columns, seed: bytes, step: int) -> Ring:
    """The sum of A m over the parties that this one helps."""
    total = np.zeros((len(columns.values), columns.outputs), dtype=np.uint64)
    for name, mask in columns.helped.items():
        total += product(mask, _weight_mask(seed, name, step, (mask.shape[1], columns.outputs)))
    return total


@operation(
    "descent.share_scores", discloses="masked", receives="masked",
    about="its rows' part of the scores, and of the sums of its columns times residuals, under one-time masks",
    opened="pseudonymous: where the label is classes, the score of each row in total over all parties",
    opened_by="active",
    releases=lambda reply: scores_read(reply.scores if reply.read else None), reply=ScoreParts, times=STEPS,
)  # fmt: skip
def share_scores(
    party: Party, *, weights: Ring, step: Step, label_holder: LabelHolder, seed: bytes | None
) -> ScoreParts:
    """A party without labels: columns times weights that it cannot read."""
    columns, met = party.held(Columns), party.held(Pairs)
    columns.check_weights(party, weights)
    own = product(columns.ring, weights) + met.mask(
        label_holder, columns.scores_mask, step, (party.n_rows, columns.outputs)
    )
    if seed is not None:
        own = own + _helped(columns, seed, step)
    products = _left_side(party, label_holder, step) if columns.reads_scores else None
    return ScoreParts(own, products, columns.read_here)


def _left_side(party: Party, label_holder: str, step: int) -> Ring:
    """X'B + C: this party's side of the product of its columns with what the label holder hides by B."""
    columns, met = party.held(Columns), party.held(Pairs)
    own = product(columns.ring.T, met.mask(label_holder, "residuals", step, (party.n_rows, columns.outputs)))
    return own + met.mask(label_holder, "products", step, own.shape)


def keep_share(party: Party, columns: Columns, weights: Ring, step: int, seed: bytes) -> Ring:
    met, shape = party.held(Pairs), (party.n_rows, columns.outputs)
    columns.check_weights(party, weights)
    total = product(columns.ring, weights) + _helped(columns, seed, step)
    for name in columns.helped:
        total = total - met.mask(name, columns.scores_mask, step, shape)
    return total


def _right_sides(party: Party, columns: Columns, residuals: Ring, step: int) -> dict[str, list[Ring]]:
    """V and the right share of the product of each other party's columns with ``residuals``."""
    met, sides = party.held(Pairs), {}
    for name, mask in columns.helped.items():
        hidden = residuals + met.mask(name, "residuals", step, residuals.shape)
        share = product(mask.T, hidden) - met.mask(name, "products", step, (mask.shape[1], columns.outputs))
        sides[name] = [hidden, share]
    return sides


@operation(
    "descent.residual_shares", discloses="masked", receives="masked",
    about="its share of the residuals under one-time masks, and of products with its own columns", opened=_OPENED,
    releases=_gradient, concerns="own columns and labels", reply=ResidualShares, times=STEPS,
)  # fmt: skip
def residual_shares(party: Party, *, weights: Ring, step: Step, seed: bytes) -> ResidualShares:
    """The label holder, where residuals are linear in the scores. It reads none of them."""
    columns, met = party.held(Columns), party.held(Pairs)
    if columns.target is None:
        raise OperationRefused(party.name, "residual_shares", "this run's residuals are not linear in the scores")
    exact = columns.precision.columns + columns.precision.weights
    share = keep_share(party, columns, weights, step, seed) - to_ring(columns.target, exact, 2.0 ** (62 - exact))
    share = weighed_by_holder(party, columns, share, step, seed)
    renewed = stream(seed, "renew", step, share.shape)
    own = product(columns.ring.T, share) + product(columns.own_mask.T, renewed)
    own = own + met.mask(columns.helper, "own products", step, own.shape)
    return ResidualShares(_right_sides(party, columns, share - renewed, step), own)


@operation(
    "descent.gradient_shares", discloses="masked", receives="masked",
    about="its share of the sums of its columns times residuals, under one-time masks", opened=_OPENED,
    releases=_gradient, reply=GradientShares, times=STEPS,
)  # fmt: skip
def gradient_shares(party: Party, *, share: Ring, step: Step, label_holder: LabelHolder) -> GradientShares:
    """A party without labels, where residuals are linear in the scores. ``share`` is uniform to it."""
    columns, met = party.held(Columns), party.held(Pairs)
    if columns.reads_scores:
        raise OperationRefused(party.name, "gradient_shares", "this run's residuals are not linear in the scores")
    check_shape(share, (party.n_rows, columns.outputs), party.name)
    own = _left_side(party, label_holder, step) - product(columns.ring.T, share)
    helped = {}
    for name, mask in columns.helped.items():
        given = product(mask.T, share)
        helped[name] = given + met.mask(name, "own products", step, given.shape)
    return GradientShares(own, helped)


@operation(
    "descent.open_residuals", discloses="aggregate", receives="masked",
    about="loss, sums of its own columns times residuals, and residuals under one-time masks",
    learns="the total score of each row in this step",
    reply=OpenedResiduals, times=STEPS,
)  # fmt: skip
def open_residuals(party: Party, *, weights: Ring, scores: Ring, step: Step, seed: bytes) -> OpenedResiduals:
    """The label holder, where residuals need the scores themselves."""
    columns, bits = party.held(Columns), party.held(Columns).precision
    if columns.loss is None:
        raise OperationRefused(party.name, "open_residuals", "nobody reads scores in this run")
    check_shape(scores, (party.n_rows, columns.outputs), party.name)
    total = from_ring(scores + keep_share(party, columns, weights, step, seed), bits.columns + bits.weights)
    if np.abs(total).max(initial=0.0) >= SCORE_ROOM:
        raise OverflowGuard(f"a score grew beyond {SCORE_ROOM:g}; use a stronger penalty")
    loss, residuals = columns.loss(total)
    _check_size(residuals)
    ring = to_ring(residuals, bits.residuals, 2.0 ** (62 - bits.residuals))
    return OpenedResiduals(loss, columns.values.T @ residuals, _right_sides(party, columns, ring, step))


@operation(
    "descent.own_gradient", discloses="aggregate",
    about="loss, and sums of its own columns times residuals",
    reply=OwnGradient, times=STEPS,
)  # fmt: skip
def own_gradient(party: Party, *, weights: Floats) -> OwnGradient:
    """A label holder that is alone."""
    columns = party.held(Columns)
    columns.check_weights(party, weights)
    scores = columns.values @ weights
    if columns.loss is not None:
        loss, residuals = columns.loss(scores)
    elif columns.target is not None:
        loss, residuals = np.zeros(0), scores - columns.target
        if columns.row_weights is not None:
            residuals = residuals * columns.row_weights[:, None] / 2.0**WEIGHT_BITS
    else:
        raise OperationRefused(party.name, "own_gradient", "it has no labels in this run")
    return OwnGradient(loss, columns.values.T @ residuals)


def _check_size(residuals: Floats) -> None:
    if np.sqrt((residuals**2).mean(axis=0).max(initial=0.0)) >= RESIDUAL_ROOM:
        raise OverflowGuard("the residuals grew beyond what the masks leave room for; use a stronger penalty")


_STEPS = (share_scores, residual_shares, gradient_shares, open_residuals, own_gradient)
OPERATIONS = (*pairs.OPERATIONS, hide_columns, *_STEPS)


# --- the coordinator's side -------------------------------------------------------------------------------------------


check_neutral = partial(dealer.check_neutral, because="it reads sums of columns times residuals")


class ForShare(TypedDict):
    """What the label holder needs for its share of the scores."""

    weights: Ring
    step: int
    seed: bytes


class SharedDescent:
    """Gradients of a linear model, step by step. The parties must have kept their ``Columns``.

    Parameters
    ----------
    run : a session. widths : columns of each party as numbers, the label holder's with the intercept.
    outputs : scores a row. reads_scores : whether the label holder's residuals need the total scores (a ``Loss``).
    """

    def __init__(self, run: Federation, widths: Mapping[str, int], outputs: int, *, reads_scores: bool):
        self.run, self.widths, self.outputs, self.reads_scores = run, dict(widths), outputs, reads_scores
        self.rows, self.step = run.n_rows, 0
        weighed = run.design.weight is not None or run.design.class_weight is not None
        self.bits, self.weighing = Precision.of(self.rows, reads_scores, weighed), None
        if not run.passive:
            return
        check_neutral(run, "descent under masks")
        self.helper = run.passive[0]  # of the label holder
        meet_all(run)
        each = {
            name: {"helper": run.active, "widths": self._widths([run.active] if name == self.helper else [])}
            for name in run.passive
        }
        each[run.active] = {"helper": self.helper, "widths": self._widths(run.passive)}
        self.hidden = run.ask(hide_columns, to=run.parties, each=each, reads_scores=reads_scores)
        for name, table in self.hidden.items():
            _check(name, "hide_columns", table, (self.rows, self.widths[name]))
        if weighed and not reads_scores:
            self.weighing = Weighing(run, self.helper)

    def _widths(self, names: list[str]) -> dict[str, int]:
        return {name: self.widths[name] for name in names}

    @property
    def resolution(self) -> float:
        """How finely weights are told; a gradient is that of the weights told."""
        return 0.0 if not self.run.passive else 2.0**-self.bits.weights

    def at(self, weights: Mapping[str, Floats]) -> tuple[Floats, dict[str, Floats]]:
        """What the label holder's ``Loss`` tells (nothing where residuals are linear), and X'r / rows of each party."""
        self.step += 1
        run = self.run
        if not run.passive:
            reply = run.ask(own_gradient, to=run.active, weights=weights[run.active])
            return reply.loss, {run.active: self._told(reply, "own_gradient")}
        scores, given, parts = self.scores_at(weights)
        if self.reads_scores:
            return self._after_opening(run.ask(open_residuals, to=run.active, scores=scores, **given), parts)
        if self.weighing is not None:
            scores = self.weighing.share(scores, self.step, given["seed"])
        return np.zeros(0), self._unopened(run.ask(residual_shares, to=run.active, **given), scores, given["seed"])

    def scores_at(self, weights: Mapping[str, Floats]) -> tuple[Ring, ForShare, dict[str, ScoreParts]]:
        """The coordinator's shares of the scores, what the label holder needs for its own, and the parties' replies."""
        run = self.run
        seeds = {run.active: new_seed(), self.helper: new_seed()}
        masks = {name: self._mask(seeds, name) for name in run.parties}
        told = {n: to_ring(weights[n], self.bits.weights, 2.0 ** (62 - self.bits.weights)) + masks[n] for n in masks}
        each = {n: {"weights": told[n], "seed": seeds[n] if n == self.helper else None} for n in run.passive}
        parts = run.ask(share_scores, to=run.passive, each=each, step=self.step, label_holder=run.active)
        scores = np.zeros((self.rows, self.outputs), dtype=np.uint64)
        for name in run.parties:
            if name in parts:
                scores = scores + _check(name, "share_scores", parts[name].scores, scores.shape)
            scores = scores - product(self.hidden[name], masks[name])
        return scores, ForShare(weights=told[run.active], step=self.step, seed=seeds[run.active]), parts

    def _mask(self, seeds: Mapping[str, bytes], name: str) -> Ring:
        seed = seeds[self.helper if name == self.run.active else self.run.active]
        return _weight_mask(seed, name, self.step, (self.widths[name], self.outputs))

    def _told(self, reply: OwnGradient, operation: str) -> Floats:
        """The label holder's own gradient, if it has its shape and its loss is not empty where there is one."""
        active, told = self.run.active, reply.loss.ndim == 1 and (reply.loss.size or not self.reads_scores)
        if reply.own.shape != (self.widths[active], self.outputs) or not told:
            raise ReplyError(active, operation, "expected a loss and a number for each of its columns")
        return np.asarray(reply.own / self.rows)

    def _after_opening(self, reply: OpenedResiduals, parts: dict[str, ScoreParts]) -> tuple[Floats, dict[str, Floats]]:
        run = self.run
        found = {run.active: self._told(reply, "open_residuals")}
        for name in run.passive:
            found[name] = self._opened(self._product(name, reply.sides, parts[name].products, "open_residuals"))
        return reply.loss, {name: found[name] for name in run.parties}

    def _unopened(self, reply: ResidualShares, scores: Ring, seed: bytes) -> dict[str, Floats]:
        run, active = self.run, self.run.active
        share = scores + stream(seed, "renew", self.step, scores.shape)
        shares = run.ask(gradient_shares, to=run.passive, share=share, step=self.step, label_holder=active)
        found = {}
        for name in run.passive:
            found[name] = self._opened(self._product(name, reply.sides, shares[name].own, "residual_shares"))
        shape = (self.widths[active], self.outputs)
        own = _check(active, "residual_shares", reply.own, shape)
        other = _check(self.helper, "gradient_shares", shares[self.helper].helped.get(active), shape)
        found[active] = self._opened(product(self.hidden[active].T, scores) + own - other)
        return {name: found[name] for name in run.parties}

    def _product(self, name: str, sides: dict[str, list[Ring]], left: Ring | None, operation: str) -> Ring:
        active = self.run.active
        pair = sides.get(name, [])
        if len(pair) != 2:
            raise ReplyError(active, operation, f"expected masked residuals for {name!r}")
        shape = (self.widths[name], self.outputs)
        hidden = _check(active, operation, pair[0], (self.rows, self.outputs))
        right = _check(active, operation, pair[1], shape)
        return product(self.hidden[name].T, hidden) - _check(name, "gradient", left, shape) - right

    def _opened(self, total: Ring) -> Floats:
        return from_ring(total, self.bits.columns + self._residual_bits()) / self.rows

    def _residual_bits(self) -> int:
        more = 0 if self.weighing is None else WEIGHT_BITS
        return self.bits.residuals if self.reads_scores else self.bits.columns + self.bits.weights + more


def _check(name: str, operation: str, table: object, shape: tuple[int, ...]) -> Ring:
    if not isinstance(table, np.ndarray) or table.dtype != np.uint64 or table.shape != shape:
        raise ReplyError(name, operation, f"expected masked numbers of shape {shape}")
    return table
