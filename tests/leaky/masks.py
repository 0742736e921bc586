"""Masks that are used twice: the same one hides two different messages, and the difference is no secret any more."""

from __future__ import annotations

import numpy as np

from fedsift.core.operation import ANY, operation
from fedsift.mpc.ring import uniform

BITS = 20


def ring(values):
    return np.rint(np.ldexp(np.asarray(values, dtype=float), BITS)).astype(np.int64).view(np.uint64)


def under_one_mask(party, values, fresh):
    """Under the mask of this run, drawn once; a fresh one each time where it is mended."""
    if fresh or "mask" not in party.state:
        party.state["mask"] = uniform(values.shape)
    return values + party.state["mask"]


@operation("leaky_masks.residual_shares", discloses="masked", about="labels under a mask", opened="nobody", reply=ANY)
def residual_shares(party, *, factor, fresh):
    return under_one_mask(party, ring(factor * party.labels().codes[:, None]), fresh)


@operation("leaky_masks.gradient_shares", discloses="control", about="acknowledgement", receives="masked")
def gradient_shares(party, *, share):
    """A passive party takes what is uniform to it."""


@operation("leaky_masks.hide_columns", discloses="masked", about="columns under a mask", opened="nobody", reply=ANY)
def hide_columns(party, *, factor, fresh):
    return under_one_mask(party, ring(factor * party.table.matrix(party.columns)), fresh)


@operation("leaky_masks.keep_cuts", discloses="control", about="acknowledgement", receives="masked")
def keep_cuts(party, *, box):
    """The label holder takes what is uniform to it."""


def twice(fresh=False):
    def conversation(fed):
        with fed.session("masks", {}) as run:
            for factor in (1.0, 2.0):
                shares = run.ask(residual_shares, to=run.active, factor=factor, fresh=fresh)
                run.ask(gradient_shares, to=run.passive, share=shares)
                for name in run.passive:
                    run.ask(keep_cuts, to=run.active, box=run.ask(hide_columns, to=name, factor=factor, fresh=fresh))

    return conversation
