"""Gates on the inputs of a network on shares: which take part, and how much the loss would gain by each.

A gate s of an input multiplies its weights: dL/ds = sum over k of W[k] G[k], where G = dL/dW. Weights and gradients are
shared (owner: w and g; keeper and dealer: T and C, with W = w + T and G = g + C), and their product needs no
multiplication on shares: sin a sin b = (cos(a - b) - cos(a + b)) / 2, where a is the weight as an angle and b a
multiple of the gradient, so two masked angles are opened between owner and keeper and the cosines of their masks are
dealt, as for the network's own angles. For the small angles that weights and gradients are, the sine is the number
itself. The weights are those from before the batches: after them, W G would hold the squares of the gradients' noise
(measured: on Madelon 18 columns of noise stayed for that).

The coordinator gets one number for each column, a sum over the rows of several batches, from two halves that carry a
mask it does not know. Owner and keeper see uniform angles, and which inputs take part in the next batches: a bit each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.splitnn.layers.shared_network import exactly
from fedsift.models.splitnn.layers.shared_parts import Rows
from fedsift.models.splitnn.layers.shared_run import SharedRun
from fedsift.models.splitnn.layers.sine import (
    DELTA_BITS,
    FORWARD_BITS,
    INPUT_BITS,
    TABLE_BITS,
    Angles,
    Floats,
    angle_mask,
    angles_of,
    circle,
    signed,
)
from fedsift.mpc.dealer import Dealt
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring

GAIN = 4.0  # a gradient of 1 is an angle of so many radians


def multiplier(rows: int, unit: float) -> int:
    """What a sum of gradients in the ring is multiplied with, so that its mean over ``rows`` becomes GAIN radians."""
    return max(1, round(GAIN * unit**2 * 2.0 ** (64 - INPUT_BITS - DELTA_BITS) / (2 * math.pi * rows)))


def _pair(weights: Ring, gradient: Ring, times: int) -> Ring:
    """a - b and a + b, as shares of angles, one below the other."""
    a, b = weights * np.uint64(1 << INPUT_BITS), gradient * np.uint64(times)
    return np.vstack([a - b, a + b])


def _half(hidden: Angles, cos: Ring, sin: Ring, columns: np.ndarray, count: int) -> Ring:
    """One side's share of 2 sum sin a sin b by column."""
    cosine, sine = circle(hidden, FORWARD_BITS)
    each = (cosine * cos + sine * sin).sum(axis=1, dtype=np.uint64)
    less, more = np.split(each, 2)
    total = np.zeros(count, dtype=np.uint64)
    np.add.at(total, columns, less - more)
    return total


@operation(
    "sine_gates.input_columns",
    discloses="control",
    about="how many inputs each of its columns makes (1, or one a category)",
    reply=np.ndarray,
    times="1 a session",
)
def input_columns(party: Party) -> np.ndarray:
    return party.held(Rows).part.encoder.owner


@operation(
    "sine_gates.set_gates", discloses="control", receives="aggregate", about="acknowledgement",
    learns="which of its inputs take part in the next batches",
)  # fmt: skip
def set_gates(party: Party, *, gates: dict[str, Any]) -> None:
    """Bits by owner: this party's own inputs, and those whose weights it keeps."""
    rows = party.held(Rows)
    for owner, bits in gates.items():
        inputs = rows.part.roles.owners.get(owner, -1)
        if not isinstance(bits, np.ndarray) or bits.shape != (inputs,) or bits.dtype != bool:
            raise OperationRefused(party.name, "set_gates", "gates are one bit for each input")
        if owner == party.name:
            rows.open, rows.gradient, rows.before = bits.astype(np.uint64), None, rows.part.weights
        elif owner in rows.part.kept:
            kept = rows.part.kept[owner]
            kept.open, kept.masks, kept.before = bits.astype(np.uint64), None, kept.weights


@operation(
    "sine_gates.send_weights",
    discloses="masked",
    about="its shares of weights and gradients, as angles under a mask, sealed to the keeper",
    reply=SealedBox,
)
def send_weights(party: Party, *, number: int, times: int) -> SealedBox:
    rows = party.held(Rows)
    if rows.gradient is None or rows.before is None:
        raise OperationRefused(party.name, "send_weights", "no gated batch was trained on since the last reading")
    share = angles_of(_pair(rows.before, rows.gradient, times))
    mask = angle_mask(party.held(Dealt), number, share.shape, f"gates of {party.name}")
    keeper = rows.part.roles.keeper_of(party.name)
    return party.held(Pairs).seal(share + mask, to=keeper, about="gates", number=number)


@operation(
    "sine_gates.join_weights",
    discloses="masked",
    receives="masked",
    about="half of the gradient of each gate under a mask; masked angles, sealed to the owner",
    learns="nothing: angles under masks",
    reply={"boxes": dict, "halves": dict},
)
def join_weights(party: Party, *, number: int, times: int, sent: dict[str, Any]) -> dict[str, Any]:
    """The keeper's side, for each owner: ``sent`` has the owner's box, its columns, and what the dealer adds."""
    rows, pairs, dealt = party.held(Rows), party.held(Pairs), party.held(Dealt)
    boxes, halves = {}, {}
    for owner, given in sent.items():
        kept = rows.part.kept.get(owner)
        if kept is None or kept.masks is None or kept.before is None:
            raise OperationRefused(party.name, "join_weights", f"no weights of {owner!r} were trained here")
        share = angles_of(_pair(kept.before, kept.masks, times))
        mask = angle_mask(dealt, number, share.shape, f"gates of {owner}")
        other = pairs.open(given["box"], sender=owner, about="gates", number=number)
        hidden = share + mask + exactly(other, share.shape, owner, np.uint16)
        cos, sin = (exactly(given[name], share.shape, "coordinator") for name in ("cos", "sin"))
        half = _half(hidden, cos, sin, _columns(given, owner, len(kept.weights)), int(given["count"]))
        halves[owner] = half + pairs.cancelling(owner, f"gates of {owner}", number, half.shape)
        boxes[owner] = pairs.seal(hidden, to=owner, about="hidden gates", number=number)
    return {"boxes": boxes, "halves": halves}


@operation(
    "sine_gates.gate_half",
    discloses="masked",
    receives="masked",
    about="half of the gradient of each gate, under a mask; both halves give a sum over the rows of several batches",
    learns="nothing: angles under masks",
    reply=np.ndarray,
)
def gate_half(party: Party, *, number: int, box: SealedBox, columns: Any, count: int) -> Ring:
    rows, pairs, dealt = party.held(Rows), party.held(Pairs), party.held(Dealt)
    keeper = rows.part.roles.keeper_of(party.name)
    shape = (2 * len(rows.part.weights), rows.part.shape.width)
    hidden = exactly(pairs.open(box, sender=keeper, about="hidden gates", number=number), shape, keeper, np.uint16)
    cos, sin = (dealt.draw(f"{name} of gates", number, shape) for name in ("cos", "sin"))
    half = _half(hidden, cos, sin, _columns({"columns": columns}, party.name, shape[0] // 2), count)
    return half + pairs.cancelling(keeper, f"gates of {party.name}", number, half.shape)


def _columns(given: dict[str, Any], owner: str, inputs: int) -> np.ndarray:
    columns = given["columns"]
    if not isinstance(columns, np.ndarray) or columns.shape != (inputs,) or columns.dtype.kind != "i":
        raise ReplyError(owner, "gates", "each input belongs to a column")
    return columns


OPERATIONS = (input_columns, set_gates, send_weights, join_weights, gate_half)


class SharedGates:
    """The coordinator's side: gates of all owners' columns, and readings of their gradients."""

    def __init__(self, run: SharedRun):
        self.run, self.fed = run, run.fed
        run.hide()
        owners = list(run.widths)
        found = run.fed.ask(input_columns, to=owners)
        counts = run.fed.n_columns
        self.counts = {name: counts[name] for name in owners}
        self.columns: dict[str, np.ndarray] = {}
        for name in owners:  # the label holder's constant is an input of no column: the last place, always open
            extra = np.full(run.widths[name] - len(found[name]), self.counts[name])
            self.columns[name] = np.concatenate([found[name], extra]).astype(np.int64)
        self._number = 0

    def set(self, gates: dict[str, np.ndarray]) -> None:
        """Let the columns whose bit is 1 take part from now on."""
        run = self.run
        assert run._dealer is not None
        bits = {n: np.append(gates[n], True)[self.columns[n]].astype(bool) for n in run.widths}
        each = {m: {"gates": {o: b for o, b in bits.items() if m in (o, run.roles.keeper_of(o))}} for m in run.members}
        self.fed.ask(set_gates, to=run.members, each=each)
        run._dealer.open = {n: b.astype(np.uint64) for n, b in bits.items()}
        run._dealer.masks, run.seen = {}, 0

    def gradients(self) -> dict[str, Floats]:
        """dL/ds of each column, the mean over the rows that were trained on since the gates were set."""
        run, owners, rows = self.run, list(self.run.widths), max(1, self.run.seen)
        self._number += 1
        number, times = self._number, multiplier(rows, run.shape.unit)
        boxes = self.fed.ask(send_weights, to=owners, number=number, times=times)
        dealt = {owner: self._dealt(owner, number) for owner in owners}
        sizes = {n: {"columns": self.columns[n], "count": self.counts[n] + 1} for n in owners}
        keepers = sorted({run.roles.keeper_of(owner) for owner in owners})
        each = {
            k: {"sent": {o: {"box": boxes[o], **dealt[o], **sizes[o]} for o in run.roles.kept_by(k)}} for k in keepers
        }
        joined = self.fed.ask(join_weights, to=keepers, each=each, number=number, times=times)
        hidden = {o: joined[run.roles.keeper_of(o)]["boxes"][o] for o in owners}
        back = {o: {"box": hidden[o], **sizes[o]} for o in owners}
        halves = self.fed.ask(gate_half, to=owners, each=back, number=number)
        scale = 2.0 ** -(FORWARD_BITS + TABLE_BITS + 1) / GAIN
        return {o: signed(joined[run.roles.keeper_of(o)]["halves"][o] + halves[o])[:-1] * scale for o in owners}

    def _dealt(self, owner: str, number: int) -> dict[str, Ring]:
        """What the keeper lacks to the owner's shares of the cosines of the masks."""
        run = self.run
        assert run._dealer is not None
        of, shape = run._dealer.of, (2 * run.widths[owner], run.shape.width)
        mask: Any = np.uint16(0)
        for name in (owner, run.roles.keeper_of(owner)):
            mask = mask + angle_mask(of[name], number, shape, f"gates of {owner}")
        cosine, sine = circle(mask, TABLE_BITS)
        return {
            "cos": cosine - of[owner].draw("cos of gates", number, shape),
            "sin": sine - of[owner].draw("sin of gates", number, shape),
        }
