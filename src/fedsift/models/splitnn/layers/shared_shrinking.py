"""The proximal step of a group lasso on weights that nobody has: W[j] becomes W[j] m[j] / 16, exactly.

W = w + T (owner and keeper; the dealer knows T). With v = m w + 2^62 at the owner and r = -m T at keeper and dealer, v
is the positive number m W + 2^62 under the mask r, so

    (m W + 2^62) / 16 = v / 16 - r / 16 + 2^60 [v wrapped],   v wrapped: r is 2^63 or more and v is not

rounded down, off by one at most. Owner and keeper know one of the two bits each. Their product comes from the dealer,
who knows r: the owner shows the keeper its bit c under a random bit a, b = c ^ a, and

    c r = b r + (1 - 2b) a r,   a r = o + k   (o drawn by the owner, k dealt to the keeper)

of which the four lower bits matter, for they are multiplied with 2^60. Then the keeper draws a fresh T and sends the
owner what its share lost by that. To the keeper b is a coin, and k is uniform; to the owner the new share is uniform.
Both hear the sixteenths m: what the lasso leaves of each column.

Weights must stay below a turn an input unit (2^58), which is far beyond where a sine has forgotten its argument.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused
from fedsift.models.splitnn.layers.shared_gates import SharedGates
from fedsift.models.splitnn.layers.shared_parts import Rows, exactly
from fedsift.models.splitnn.layers.sine import OFFSET
from fedsift.mpc.dealer import Dealt
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring

STEP_BITS = 4
WHOLE = 1 << STEP_BITS
_ZERO, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
_SHIFT, _TOP, _WRAP = np.uint64(STEP_BITS), np.uint64(63), np.uint64(64 - STEP_BITS)
_STEPS = "100000 a session"
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


def _left(party: str, sixteenths: Sixteenths | None, inputs: int) -> Ring:
    if sixteenths is None or sixteenths.shape != (inputs,) or sixteenths.max(initial=0) > WHOLE:
        raise OperationRefused(party, "shrink", "what is left is a number of sixteenths for each input")
    return sixteenths.astype(np.uint64)[:, None]


def _wrapped(hidden: Ring, share: Ring) -> Ring:
    """One side's share of (1 - 2b) a r, as it is added."""
    return ((_ONE - _TWO * hidden) * share) << _WRAP


@operation(
    "sine_lasso.send_wraps", discloses="masked", about="one bit of its share of each weight under a random bit, sealed",
    receives="aggregate", learns="what the lasso leaves of each of its columns, in sixteenths", reply=SealedBox,
    times=_STEPS,
)  # fmt: skip
def send_wraps(party: Party, *, number: int, sixteenths: NDArray[np.uint8]) -> SealedBox:
    part = party.held(Rows).part
    inputs, width = part.weights.shape
    masked = part.weights * _left(party.name, sixteenths, inputs) + OFFSET
    hidden = (_ONE - (masked >> _TOP)) ^ _coin(party.held(Dealt), number, (inputs, width))
    party.keep(Shrinking(number, masked, hidden))
    keeper = part.roles.keeper_of(party.name)
    return party.held(Pairs).seal(hidden.astype(np.uint8), to=keeper, about="wraps", number=number)


@operation(
    "sine_lasso.shrink_kept", discloses="masked", about="its new share of each weight, masked, sealed to the owner",
    receives="masked", learns="what the lasso leaves of each column whose weights it keeps, in sixteenths", reply=dict,
    times=_STEPS,
)  # fmt: skip
def shrink_kept(
    party: Party, *, number: int, boxes: dict[str, SealedBox], sixteenths: dict[str, NDArray[np.uint8]],
    dealt: dict[str, NDArray[np.uint8]],
) -> dict[str, SealedBox]:  # fmt: skip
    part, pairs, sent = party.held(Rows).part, party.held(Pairs), {}
    for owner, box in boxes.items():
        if owner not in part.kept:
            raise OperationRefused(party.name, "shrink", f"no weights of {owner!r} are kept here")
        kept = part.kept[owner]
        shape = kept.weights.shape
        mask = _ZERO - kept.weights * _left(party.name, sixteenths.get(owner), shape[0])
        shown = exactly(pairs.open(box, sender=owner, about="wraps", number=number), shape, owner, np.uint8)
        hidden = shown.astype(np.uint64) & _ONE
        share = exactly(dealt.get(owner), shape, "coordinator", np.uint8).astype(np.uint64)
        own = _ZERO - (mask >> _SHIFT) + ((hidden * (mask >> _TOP)) << _WRAP) + _wrapped(hidden, share)
        kept.weights = party.held(Dealt).draw(f"shrunk of {owner}", number, shape)
        sent[owner] = pairs.seal(own - kept.weights, to=owner, about="shrunk", number=number)
    return sent


@operation(
    "sine_lasso.take_shrunk", discloses="control", receives="masked", about="acknowledgement", times=_STEPS,
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


OPERATIONS = (send_wraps, shrink_kept, take_shrunk)


class SharedShrinking:
    """The coordinator's side of proximal steps, beside the readings of the norms that they need."""

    def __init__(self, gates: SharedGates):
        self.gates = gates
        self._number = 0

    def shrink(self, sixteenths: dict[str, Sixteenths]) -> None:
        """Leave so many sixteenths of each column's weights."""
        run, fed, dealer = self.gates.run, self.gates.fed, self.gates.dealer
        self._number += 1
        number, owners = self._number, list(run.widths)
        left = {n: np.append(sixteenths[n], WHOLE)[self.gates.columns[n]].astype(np.uint8) for n in owners}
        boxes = fed.ask(send_wraps, to=owners, each={n: {"sixteenths": left[n]} for n in owners}, number=number)
        dealt = {n: self._dealt(n, left[n], number) for n in owners}
        each = {
            k: {what: {o: given[o] for o in run.roles.kept_by(k)} for what, given in
                (("boxes", boxes), ("sixteenths", left), ("dealt", dealt))}
            for k in sorted({run.roles.keeper_of(owner) for owner in owners})
        }  # fmt: skip
        sent = fed.ask(shrink_kept, to=list(each), each=each, number=number)
        back = {n: {"box": sent[run.roles.keeper_of(n)][n]} for n in owners}
        fed.ask(take_shrunk, to=owners, each=back, number=number)
        for n in owners:
            keeper = dealer.of[run.roles.keeper_of(n)]
            dealer.weights[n] = keeper.draw(f"shrunk of {n}", number, dealer.weights[n].shape)

    def _dealt(self, owner: str, left: Sixteenths, number: int) -> Sixteenths:
        """The keeper's share of a r, of which four bits count."""
        dealer = self.gates.dealer
        inputs, width = dealer.weights[owner].shape
        mask = _ZERO - dealer.weights[owner] * left.astype(np.uint64)[:, None]
        coin = _coin(dealer.of[owner], number, (inputs, width))
        rest = coin * (mask >> _TOP) - dealer.of[owner].draw("wrapped", number, (inputs, width))
        return (rest & np.uint64(WHOLE - 1)).astype(np.uint8)
