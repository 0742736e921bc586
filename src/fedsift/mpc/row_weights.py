"""Rows that count differently in a descent whose residuals nobody reads (``shared_descent.py``).

The label holder L knows what each row weighs, w, and nobody else may. Residuals r lie in two shares, the coordinator's
s_C and L's s_L; what is wanted are shares of w r, row by row. L's helper H and L draw the same one-time mask a, and L
sends the coordinator, once, w + a. In a step

    C to H:  s_C + e       e from the seed of C and L          C:  (w + a) s_C - (a (s_C + e) + m)  =  w s_C - a e - m
    H to C:  a (s_C + e) + m   m from the seed of H and L      L:  w s_L + a e + m

so that both together are w r, exactly, in the ring. The step goes on with these shares in the place of the others.

Why it is secure (semi-honest, the coordinator with nobody): w + a is uniform to the coordinator, and a (s_C + e) + m is
by the fresh m; s_C + e is uniform to H by the fresh e; L is sent nothing. Weights are told in 256ths of their mean:
their digits take room in the ring, and columns are told the coarser for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import LabelHolder
from fedsift.core.design import counted_rows, design_of
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Labels, Party
from fedsift.errors import DataError, OperationRefused, ReplyError
from fedsift.mpc.column_scores.weighing import whole_weights
from fedsift.mpc.descent_columns import STEPS, Columns, Step
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import WEIGHT_BITS, WEIGHT_ROOM, Ring, check_shape, stream

_ROWS, _STEP, _FIRST = "weights of rows", "weighed rows", "renew before weighing"


def is_weighted(party: Party) -> bool:
    design = design_of(party)
    return design.weight is not None or design.class_weight is not None


def whole_row_weights(party: Party, labels: Labels) -> NDArray[np.int64] | None:
    """At the label holder: what rows count by their weight and class, 1 in the mean, in steps; ``None``: all alike."""
    whole_weights(party)  # refuses a row that would show in every sum
    counted = counted_rows(party, labels)
    if counted is None:
        return None
    shares = counted / counted.mean()
    if shares.max() >= WEIGHT_ROOM:
        raise DataError(
            f"party {party.name!r}: with its class's weight a row counts {WEIGHT_ROOM:g} times the mean or more, for "
            "which shared computing has no room; give class_weight smaller numbers, or take HyFDCA"
        )
    return np.asarray(np.maximum(np.rint(shares * 2**WEIGHT_BITS), 1), dtype=np.int64)


@operation(
    "descent.hide_row_weights", discloses="masked", role="active", concerns="labels",
    about="what its rows count, under one-time masks that it shares with one other party", opened="nobody",
    reply=Array("i", 2), times="1 a session", after="descent.hide_columns",
)  # fmt: skip
def hide_row_weights(party: Party) -> Ring:
    columns = party.held(Columns)
    if columns.row_weights is None or columns.reads_scores:
        raise OperationRefused(party.name, "hide_row_weights", "the rows of this run all count alike")
    whole = columns.row_weights[:, None].view(np.uint64)
    columns.weights_mask = party.held(Pairs).mask(columns.helper, _ROWS, 0, whole.shape)
    return np.asarray(whole + columns.weights_mask)


@operation(
    "descent.weigh_share", discloses="masked", receives="masked", role="passive",
    about="masks of the weights of rows times a share of residuals that is uniform to it, under fresh masks",
    opened="nobody", reply=Array("i", 2), times=STEPS,
)  # fmt: skip
def weigh_share(party: Party, *, share: Ring, step: Step, label_holder: LabelHolder) -> Ring:
    """The label holder's helper."""
    columns, met = party.held(Columns), party.held(Pairs)
    if not is_weighted(party) or columns.reads_scores or label_holder not in columns.helped:
        raise OperationRefused(party.name, "weigh_share", "the rows of this run all count alike, or another one helps")
    check_shape(share, (party.n_rows, columns.outputs), party.name)
    if columns.weights_mask is None:
        columns.weights_mask = met.mask(label_holder, _ROWS, 0, (party.n_rows, 1))
    return np.asarray(columns.weights_mask * share + met.mask(label_holder, _STEP, step, share.shape))


OPERATIONS = (hide_row_weights, weigh_share)


def weighed_by_holder(party: Party, columns: Columns, share: Ring, step: int, seed: bytes) -> Ring:
    """The label holder's share of weighted residuals; its share as it is where rows count alike."""
    if columns.row_weights is None:
        return share
    if columns.weights_mask is None:
        raise OperationRefused(party.name, "residual_shares", "what its rows count was not asked for")
    whole, renewed = columns.row_weights[:, None].view(np.uint64), stream(seed, _FIRST, step, share.shape)
    fresh = party.held(Pairs).mask(columns.helper, _STEP, step, share.shape)
    return np.asarray(whole * share + columns.weights_mask * renewed + fresh)


class Weighing:
    """At the coordinator: the hidden weights, and its share of weighted residuals in each step."""

    def __init__(self, run: Federation, helper: str):
        self.run, self.helper = run, helper
        self.hidden: Ring = run.ask(hide_row_weights, to=run.active)
        if self.hidden.shape != (run.n_rows, 1) or self.hidden.dtype != np.uint64:
            raise ReplyError(str(run.active), "hide_row_weights", "expected a masked number for each row")

    def share(self, scores: Ring, step: int, seed: bytes) -> Ring:
        told = scores + stream(seed, _FIRST, step, scores.shape)
        reply: Ring = self.run.ask(weigh_share, to=self.helper, share=told, step=step, label_holder=self.run.active)
        if reply.shape != scores.shape or reply.dtype != np.uint64:
            raise ReplyError(self.helper, "weigh_share", "expected a masked number for each row and output")
        return np.asarray(self.hidden * scores - reply)
