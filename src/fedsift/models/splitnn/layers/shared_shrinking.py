"""The proximal step of a group lasso on weights that nobody has, by factors that no party hears.

W = w + T (owner and keeper; the dealer, who is the coordinator, knows T). W[j] becomes W[j] m[j] / 16, where the
coordinator alone knows the sixteenths m: told to the parties, they gave 0.742 of Colon's labels (guess 0.645).

**m W.** The coordinator splits m = p + q, uniform numbers: the owner draws p, the keeper is sent q. With a mask a that
the owner draws,

    m W = [p w + c]  +  [q T + q (w - a) + (p T + q a - c)]

where w - a travels sealed from the owner to the keeper and the last bracket comes from the dealer, who knows p, q, T
and a (c is drawn by the owner). The keeper draws a fresh T and sends the owner what is missing to it.

**/ 16, exactly.** Now m W = w + T again, with T known to the dealer. With v = w + 2^62 at the owner and r = -T at
keeper and dealer, v is the positive number m W + 2^62 under the mask r, so

    (m W + 2^62) / 16 = v / 16 - r / 16 + 2^60 [v wrapped],   v wrapped: r is 2^63 or more and v is not

rounded down, off by one at most. Owner and keeper know one of the two bits each. Their product comes from the dealer,
who knows r: the owner shows the keeper its bit c under a random bit a, b = c ^ a, and

    c r = b r + (1 - 2b) a r,   a r = o + k   (o drawn by the owner, k dealt to the keeper)

of which the four lower bits matter, for they are multiplied with 2^60. The keeper draws a fresh T once more.

Everything that owner and keeper see is uniform: p, q, w - a, the dealer's bracket, new shares, and b. Weights must stay
below a turn an input unit (2^58), which is far beyond where a sine has forgotten its argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.operation import ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused
from fedsift.models.splitnn.layers.shared_gates import SharedGates
from fedsift.models.splitnn.layers.shared_parts import Kept, Part, Rows, exactly
from fedsift.models.splitnn.layers.sine import OFFSET
from fedsift.mpc.dealer import Dealt
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring

STEP_BITS = 4
WHOLE = 1 << STEP_BITS
_ZERO, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
_SHIFT, _TOP, _WRAP = np.uint64(STEP_BITS), np.uint64(63), np.uint64(64 - STEP_BITS)
_STEPS = "100000 a session"
_NOTHING = "nothing: shares of weights and of what the lasso leaves of them"
Sixteenths = NDArray[np.uint8]


@dataclass
class Shrinking:
    """An owner's side of a step that has begun."""

    number: int
    masked: Ring  # v
    hidden: Ring  # b


def _coin(dealt: Dealt, number: int, shape: tuple[int, int]) -> Ring:
    """Random bits of the dealer's, as numbers."""
    return (dealt.bits("wraps", number, shape[0], 8 * shape[1]) & np.uint8(1)).astype(np.uint64)


def _owner_draws(dealt: Dealt, number: int, shape: tuple[int, int]) -> tuple[Ring, Ring, Ring]:
    """p, a and c."""
    left = dealt.draw("part of what is left", number, (shape[0], 1))
    return left, dealt.draw("weights to multiply", number, shape), dealt.draw("multiplied", number, shape)


def _wrapped(hidden: Ring, share: Ring) -> Ring:
    """One side's share of (1 - 2b) a r, as it is added."""
    return ((_ONE - _TWO * hidden) * share) << _WRAP


def _kept(party: Party, part: Part, owner: str) -> Kept:
    if owner not in part.kept:
        raise OperationRefused(party.name, "shrink", f"no weights of {owner!r} are kept here")
    return part.kept[owner]


@operation(
    "sine_lasso.send_factors", when="protection=shares",
    discloses="masked", about="its share of each weight under a mask, sealed to the keeper", opened="nobody",
    learns=_NOTHING, reply=SealedBox, times=_STEPS,
)  # fmt: skip
def send_factors(party: Party, *, number: int) -> SealedBox:
    """The owner's p w + c stays here; w - a goes to the keeper."""
    part = party.held(Rows).part
    left, mask, drawn = _owner_draws(party.held(Dealt), number, (len(part.weights), part.shape.width))
    hidden = part.weights - mask
    part.weights = left * part.weights + drawn
    keeper = part.roles.keeper_of(party.name)
    return party.held(Pairs).seal(hidden, to=keeper, about="factors", number=number)


@operation(
    "sine_lasso.multiply_kept", when="protection=shares",
    discloses="masked", about="its share of each product, masked, sealed to the owner", opened="nobody",
    receives="masked", learns=_NOTHING, reply=ByName(SealedBox), times=_STEPS,
)  # fmt: skip
def multiply_kept(
    party: Party, *, number: int, boxes: dict[str, SealedBox], left: dict[str, NDArray[np.uint64]],
    dealt: dict[str, NDArray[np.uint64]],
) -> dict[str, SealedBox]:  # fmt: skip
    part, pairs, sent = party.held(Rows).part, party.held(Pairs), {}
    for owner, box in boxes.items():
        kept = _kept(party, part, owner)
        shape = kept.weights.shape
        hidden = exactly(pairs.open(box, sender=owner, about="factors", number=number), shape, owner)
        mine = exactly(left.get(owner), (shape[0], 1), "coordinator")
        own = mine * (kept.weights + hidden) + exactly(dealt.get(owner), shape, "coordinator")
        kept.weights = party.held(Dealt).draw(f"product of {owner}", number, shape)
        sent[owner] = pairs.seal(own - kept.weights, to=owner, about="product", number=number)
    return sent


@operation(
    "sine_lasso.send_wraps", when="protection=shares",
    discloses="masked", about="one bit of its share of each weight under a random bit, sealed", opened="nobody",
    receives="masked", learns=_NOTHING, reply=SealedBox, times=_STEPS,
)  # fmt: skip
def send_wraps(party: Party, *, number: int, box: SealedBox) -> SealedBox:
    part, pairs = party.held(Rows).part, party.held(Pairs)
    shape, keeper = (len(part.weights), part.shape.width), part.roles.keeper_of(party.name)
    product = exactly(pairs.open(box, sender=keeper, about="product", number=number), shape, keeper)
    masked = part.weights + product + OFFSET
    hidden = (_ONE - (masked >> _TOP)) ^ _coin(party.held(Dealt), number, shape)
    party.keep(Shrinking(number, masked, hidden))
    return pairs.seal(hidden.astype(np.uint8), to=keeper, about="wraps", number=number)


@operation(
    "sine_lasso.shrink_kept", when="protection=shares",
    discloses="masked", about="its new share of each weight, masked, sealed to the owner", opened="nobody",
    receives="masked", learns=_NOTHING, reply=ByName(SealedBox), times=_STEPS,
)  # fmt: skip
def shrink_kept(
    party: Party, *, number: int, boxes: dict[str, SealedBox], dealt: dict[str, NDArray[np.uint8]]
) -> dict[str, SealedBox]:
    part, pairs, sent = party.held(Rows).part, party.held(Pairs), {}
    for owner, box in boxes.items():
        kept = _kept(party, part, owner)
        shape = kept.weights.shape
        mask = _ZERO - kept.weights
        shown = exactly(pairs.open(box, sender=owner, about="wraps", number=number), shape, owner, np.uint8)
        hidden = shown.astype(np.uint64) & _ONE
        share = exactly(dealt.get(owner), shape, "coordinator", np.uint8).astype(np.uint64)
        own = _ZERO - (mask >> _SHIFT) + ((hidden * (mask >> _TOP)) << _WRAP) + _wrapped(hidden, share)
        kept.weights = party.held(Dealt).draw(f"shrunk of {owner}", number, shape)
        sent[owner] = pairs.seal(own - kept.weights, to=owner, about="shrunk", number=number)
    return sent


@operation(
    "sine_lasso.take_shrunk", when="protection=shares",
    discloses="control", receives="masked", about="acknowledgement", times=_STEPS,
    learns="nothing: a share of its weights",
)  # fmt: skip
def take_shrunk(party: Party, *, number: int, box: SealedBox) -> None:
    part, begun = party.held(Rows).part, party.held(Shrinking)
    if begun.number != number:
        raise OperationRefused(party.name, "shrink", "another step has begun")
    shape, keeper = part.weights.shape, part.roles.keeper_of(party.name)
    message = party.held(Pairs).open(box, sender=keeper, about="shrunk", number=number)
    share = party.held(Dealt).draw("wrapped", number, shape)
    own = (begun.masked >> _SHIFT) - (OFFSET >> _SHIFT) + _wrapped(begun.hidden, share)
    part.weights = own + exactly(message, shape, keeper)


OPERATIONS = (send_factors, multiply_kept, send_wraps, shrink_kept, take_shrunk)


class SharedShrinking:
    """The coordinator's side of proximal steps, beside the readings of the norms that they need."""

    def __init__(self, gates: SharedGates):
        self.gates = gates
        self._number = 0

    def shrink(self, sixteenths: dict[str, Sixteenths]) -> None:
        """Leave so many sixteenths of each column's weights."""
        if any(values.max(initial=0) > WHOLE for values in sixteenths.values()):
            raise ValueError(f"what is left of a column is at most {WHOLE} sixteenths")
        run, fed = self.gates.run, self.gates.fed
        self._number += 1
        number, owners = self._number, list(run.widths)
        wholes = {n: np.append(sixteenths[n], WHOLE)[self.gates.columns[n]].astype(np.uint64) for n in owners}
        boxes = fed.ask(send_factors, to=owners, number=number)
        left, dealt = {}, {}
        for n in owners:
            left[n], dealt[n] = self._split(n, wholes[n][:, None], number)
        each = self._by_keeper(boxes=boxes, left=left, dealt=dealt)
        products = fed.ask(multiply_kept, to=list(each), each=each, number=number)
        self._drawn_anew("product", number)
        boxes = fed.ask(send_wraps, to=owners, each=self._by_owner(products), number=number)
        each = self._by_keeper(boxes=boxes, dealt={n: self._wraps(n, number) for n in owners})
        shrunk = fed.ask(shrink_kept, to=list(each), each=each, number=number)
        self._drawn_anew("shrunk", number)
        fed.ask(take_shrunk, to=owners, each=self._by_owner(shrunk), number=number)

    def _by_keeper(self, **given: Mapping[str, object]) -> dict[str, dict[str, dict[str, object]]]:
        roles = self.gates.run.roles
        keepers = sorted({roles.keeper_of(owner) for owner in self.gates.run.widths})
        return {k: {what: {o: of[o] for o in roles.kept_by(k)} for what, of in given.items()} for k in keepers}

    def _by_owner(self, sent: dict[str, dict[str, SealedBox]]) -> dict[str, dict[str, SealedBox]]:
        run = self.gates.run
        return {n: {"box": sent[run.roles.keeper_of(n)][n]} for n in run.widths}

    def _drawn_anew(self, what: str, number: int) -> None:
        """The dealer's knowledge of T follows the keepers' fresh ones."""
        run, dealer = self.gates.run, self.gates.dealer
        for n in run.widths:
            keeper = dealer.of[run.roles.keeper_of(n)]
            dealer.weights[n] = keeper.draw(f"{what} of {n}", number, dealer.weights[n].shape)

    def _split(self, owner: str, whole: Ring, number: int) -> tuple[Ring, Ring]:
        """q, and what the keeper lacks to the product."""
        dealer = self.gates.dealer
        kept = dealer.weights[owner]
        left, mask, drawn = _owner_draws(dealer.of[owner], number, (kept.shape[0], kept.shape[1]))
        other = whole - left
        return other, left * kept + other * mask - drawn

    def _wraps(self, owner: str, number: int) -> Sixteenths:
        """The keeper's share of a r, of which four bits count."""
        dealer = self.gates.dealer
        inputs, width = dealer.weights[owner].shape
        coin = _coin(dealer.of[owner], number, (inputs, width))
        rest = coin * ((_ZERO - dealer.weights[owner]) >> _TOP)
        rest = rest - dealer.of[owner].draw("wrapped", number, (inputs, width))
        return (rest & np.uint64(WHOLE - 1)).astype(np.uint8)
