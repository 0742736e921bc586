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
    party: Party, rows: Rows, batch: Batch, from_active: SealedBox, from_helper: SealedBox | None,
    from_dealer: Short | None,
) -> None:  # fmt: skip
    """A passive owner's gradient step: the label holder's masked half, the helper's, and the two masked parts."""
    pairs, roles, width = party.held(Pairs), rows.part.roles, rows.part.shape.width
    size, inputs = (len(batch.rows), width), (roles.owners[party.name], width)
    message = pairs.open(from_active, sender=roles.active, about="gradients", number=batch.number)
    other = batch.delta
    if party.name != roles.helper:
        assert from_helper is not None
        half = pairs.open(from_helper, sender=roles.helper, about="half gradient", number=batch.number)
        other = exactly_short(half, size, DELTA_BYTES, roles.helper)
    assert other is not None
    delta = other + exactly_short(message.get("delta"), size, DELTA_BYTES, roles.active)
    gradient = exactly_short(message.get("gradient"), inputs, GRADIENT_BYTES, roles.active)
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


def for_owner(party: Party, rows: Rows, batch: Batch, owner: str) -> dict[str, Ring | Short]:
    """What a keeper sends to one owner: its half of the angles' gradients and of the weights', both masked."""
    assert batch.delta is not None
    mask = _delta_mask(party, rows, batch)
    delta = shortened_to(DELTA_BYTES, batch.delta + mask)
    return {"delta": delta, "gradient": _gradient_for(party, rows, batch, owner, mask)}


def to_owners(party: Party, rows: Rows, batch: Batch) -> dict[str, SealedBox]:
    pairs, mask, boxes = party.held(Pairs), _delta_mask(party, rows, batch), {}
    assert batch.delta is not None
    masked = batch.delta + mask
    for owner in rows.part.kept:
        sent = masked
        if owner != rows.part.roles.helper:
            sent = masked - third_mask(party, rows, batch, rows.part.roles.helper, owner)
        gradient = _gradient_for(party, rows, batch, owner, mask)
        message = {"delta": shortened_to(DELTA_BYTES, sent), "gradient": gradient}
        boxes[owner] = pairs.seal(message, to=owner, about="gradients", number=batch.number)
    return boxes
