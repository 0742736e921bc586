"""The gradient step of a network on shares: what the two computing members send to an owner, and how it steps.

A member's half of the gradients of a batch's angles travels under a mask of its own, its part of the gradient of an
owner's weights under another; the dealer adds the third part. All that an owner sees is uniform.
"""

from __future__ import annotations

import numpy as np

from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.models.splitnn.layers.shared_parts import Batch, Rows, exactly_short
from fedsift.models.splitnn.layers.sine import DELTA_BYTES, GRADIENT_BYTES, Short, angle_gradients, shortened_to
from fedsift.mpc.dealer import Dealt
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring


def learn(
    party: Party, rows: Rows, batch: Batch, from_keeper: SealedBox, from_helper: SealedBox | None,
    from_dealer: Short | None,
) -> None:  # fmt: skip
    """An owner's gradient step: the keeper's masked half, its own or the helper's, and the two masked parts."""
    pairs, roles, width = party.held(Pairs), rows.part.roles, rows.part.shape.width
    size, inputs, keeper = (len(batch.rows), width), (roles.owners[party.name], width), roles.keeper_of(party.name)
    message = pairs.open(from_keeper, sender=keeper, about="gradients", number=batch.number)
    other = batch.delta
    if party.name not in roles.computing:
        assert from_helper is not None
        half = pairs.open(from_helper, sender=roles.helper, about="half gradient", number=batch.number)
        other = exactly_short(half, size, DELTA_BYTES, roles.helper)
    assert other is not None
    delta = other + exactly_short(message.get("delta"), size, DELTA_BYTES, keeper)
    gradient = exactly_short(message.get("gradient"), inputs, GRADIENT_BYTES, keeper)
    dealt = exactly_short(from_dealer, inputs, GRADIENT_BYTES, "coordinator")
    rows.step_weights(batch, delta, gradient, dealt)


def after_error(rows: Rows, batch: Batch, first: bool) -> None:
    """This side's share of the angles' gradients, and of the loss."""
    assert batch.error is not None
    assert batch.again is not None
    assert batch.hidden is not None
    batch.delta = angle_gradients(batch.hidden, batch.error, batch.shares, rows.part.shape.signs())
    squares = batch.shares.square - (np.uint64(2) * batch.error * batch.again).sum(dtype=np.uint64)
    rows.loss = rows.loss + squares + ((batch.error**2).sum(dtype=np.uint64) if first else np.uint64(0))


def _delta_mask(party: Party, rows: Rows, batch: Batch) -> Ring:
    return party.held(Dealt).draw("gradient", batch.number, (len(batch.rows), rows.part.shape.width))


def third_mask(party: Party, rows: Rows, batch: Batch, peer: str, owner: str) -> Ring:
    """Label holder and helper mask what a third owner gets of each: a half alone would show how it was computed."""
    shape = (len(batch.rows), rows.part.shape.width)
    return party.held(Pairs).mask(peer, f"half gradient of {owner}", batch.number, shape)


def _gradient_for(party: Party, rows: Rows, batch: Batch, owner: str, mask: Ring) -> Short:
    dealt, shape = party.held(Dealt), rows.part.kept[owner].weights.shape
    masks = (
        dealt.draw(f"kept of {owner}", batch.number, shape),
        dealt.draw(f"dealt of {owner}", batch.number, shape),
    )
    return shortened_to(GRADIENT_BYTES, rows.step_kept(batch, owner, mask, masks))


def to_owners(party: Party, rows: Rows, batch: Batch) -> dict[str, SealedBox]:
    """A keeper's half to each owner whose weights it keeps, and the helper's to those whose weights the label holder
    keeps: of these halves nobody sees one alone."""
    pairs, roles, mask, boxes = party.held(Pairs), rows.part.roles, _delta_mask(party, rows, batch), {}
    assert batch.delta is not None
    masked = batch.delta + mask
    for owner in rows.part.kept:
        sent = masked
        if owner not in roles.computing:
            sent = masked - third_mask(party, rows, batch, roles.helper, owner)
        gradient = _gradient_for(party, rows, batch, owner, mask)
        message = {"delta": shortened_to(DELTA_BYTES, sent), "gradient": gradient}
        boxes[owner] = pairs.seal(message, to=owner, about="gradients", number=batch.number)
    for owner in roles.owners if party.name == roles.helper else ():
        if owner not in roles.computing:
            half = shortened_to(DELTA_BYTES, batch.delta + third_mask(party, rows, batch, roles.active, owner))
            boxes[owner] = pairs.seal(half, to=owner, about="half gradient", number=batch.number)
    return boxes
