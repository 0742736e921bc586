"""Gates on the inputs of a network on shares: which take part, and how much the loss would gain by each.

A gate s of an input multiplies its weights: dL/ds = sum over k of W[k] G[k], where G = dL/dW. Weights and gradients are
shared (owner: w and g; keeper and dealer: T and C, with W = w + T and G = g + C), and their product needs no
multiplication on shares: sin a sin b = (cos(a - b) - cos(a + b)) / 2, where a is the weight as an angle and b a
multiple of the gradient, so two masked angles are opened between owner and keeper and the cosines of their masks are
dealt, as for the network's own angles. For the small angles that weights and gradients are, the sine is the number
itself. The weights are those from before the batches: after them, W G would hold the squares of the gradients' noise
(measured: on Madelon 18 columns of noise stayed for that).

A norm is read in the same way: sum over k of W[k]^2 = 2 sum over k of (1 - cos W[k]), one masked angle a weight. (Above
a radian it grows more slowly, up to half a turn.)

The coordinator gets one number for each column, a sum over the rows of several batches or over a column's weights, from
two halves that carry a mask it does not know. Owner and keeper see uniform angles, and which inputs take part in the
next batches: a bit each. Inputs that are out for good leave the conversation (``drop_inputs``).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.splitnn.layers.shared_parts import Rows, exactly
from fedsift.models.splitnn.layers.shared_run import SharedRun
from fedsift.models.splitnn.layers.sine import (
    DELTA_BITS,
    INPUT_BITS,
    Angles,
    Floats,
    Short,
    angle_mask,
    angles_of,
    circle,
    lengthened,
    shortened_to,
    signed,
)
from fedsift.mpc.dealer import Dealt
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring

GAIN = 4.0  # a gradient of 1 is an angle of so many radians
NORM_GAIN = 2  # a weight of 1 radian is an angle of so many
PUBLIC_BITS, DEALT_BITS = 12, 36  # of cosines that both sides know, and of those that are dealt
DEALT_BYTES = 5  # of 8 travel
_READINGS = "100000 a session"


def multiplier(rows: int, unit: float) -> int:
    """What a sum of gradients in the ring is multiplied with, so that its mean over ``rows`` becomes GAIN radians."""
    return max(1, round(GAIN * unit**2 * 2.0 ** (64 - INPUT_BITS - DELTA_BITS) / (2 * math.pi * rows)))


def _angles(weights: Ring, gradient: Ring | None, times: int) -> Ring:
    """One side's shares of the angles of a reading: of weights for norms (``times`` 0), else a - b above a + b."""
    if not times:
        return weights * np.uint64(NORM_GAIN << INPUT_BITS)
    assert gradient is not None
    a, b = weights * np.uint64(1 << INPUT_BITS), gradient * np.uint64(times)
    return np.vstack([a - b, a + b])


def _half(hidden: Angles, cos: Ring, sin: Ring, columns: NDArray[np.int64]) -> Ring:
    """One side's share by column: of the sum of cosines, or of the difference between the upper and the lower ones."""
    cosine, sine = circle(hidden, PUBLIC_BITS)
    each = (cosine * cos + sine * sin).sum(axis=1, dtype=np.uint64)
    if len(each) == 2 * len(columns):
        less, more = np.split(each, 2)
        each = less - more
    total = np.zeros(int(columns.max(initial=-1)) + 1, dtype=np.uint64)
    np.add.at(total, columns, each)
    return total


@operation(
    "sine_gates.input_columns",
    when="protection=shares",
    discloses="control",
    about="how many inputs each of its columns makes (1, or one a category)",
    reply=Array("i"),
    times="1 a session",
)
def input_columns(party: Party) -> np.ndarray:
    return party.held(Rows).part.encoder.owner


@operation(
    "sine_gates.set_gates", when="protection=shares",
    discloses="control", receives="aggregate", about="acknowledgement", times=_READINGS,
    learns="which of its inputs take part in the next batches",
)  # fmt: skip
def set_gates(party: Party, *, gates: dict[str, NDArray[np.bool_]]) -> None:
    """Bits by owner: this party's own inputs, and those whose weights it keeps."""
    rows = party.held(Rows)
    part, rows.batches = rows.part, 0
    for owner, bits in gates.items():
        if bits.shape != (part.roles.owners.get(owner, -1),):
            raise OperationRefused(party.name, "set_gates", "gates are one bit for each input")
        if owner == party.name:
            part.gates, rows.gradient, rows.before = bits.astype(np.uint64), None, part.weights
        elif owner in part.kept:
            kept = part.kept[owner]
            kept.gates, kept.masks, kept.before = bits.astype(np.uint64), None, kept.weights


@operation(
    "sine_gates.drop_inputs", when="protection=shares",
    discloses="control", receives="aggregate", about="acknowledgement", times=_READINGS,
    learns="which inputs take part no longer",
)  # fmt: skip
def drop_inputs(party: Party, *, stay: dict[str, NDArray[np.bool_]]) -> None:
    """Go on with the inputs of each owner whose bit is set."""
    rows = party.held(Rows)
    owners = rows.part.roles.owners
    if set(stay) != set(owners) or any(bits.shape != (owners[o],) or not bits.any() for o, bits in stay.items()):
        raise OperationRefused(party.name, "drop_inputs", "one bit for each input, and one input at least stays")
    rows.only({owner: np.flatnonzero(bits) for owner, bits in stay.items()}, party.name)


@operation(
    "sine_gates.send_weights",
    when="protection=shares",
    discloses="masked",
    about="its shares of weights and gradients, as angles under a mask, sealed to the keeper",
    opened="nobody",
    reply=SealedBox,
    times=_READINGS,
)
def send_weights(party: Party, *, number: int, times: int) -> SealedBox:
    rows = party.held(Rows)
    rows.read(party)
    part = rows.part
    if times and (rows.gradient is None or rows.before is None):
        raise OperationRefused(party.name, "send_weights", "no gated batch was trained on since the last reading")
    if times:
        rows.check_sums(party)
    before = part.weights if rows.before is None else rows.before
    share = angles_of(_angles(before if times else part.weights, rows.gradient, times))
    mask = angle_mask(party.held(Dealt), number, share.shape, f"gates of {party.name}")
    return party.held(Pairs).seal(share + mask, to=part.roles.keeper_of(party.name), about="gates", number=number)


@operation(
    "sine_gates.join_weights",
    when="protection=shares",
    discloses="masked",
    receives="masked",
    about="half of the gradient of each gate, or of a column's norm, under a mask; masked angles, sealed to the owner",
    opened="aggregate: the gradient of each gate, a sum over the rows of several batches, or each column's norm",
    learns="nothing: angles under masks",
    reply={"boxes": ByName(SealedBox), "halves": ByName(Array("i"))},
    times=_READINGS,
)
def join_weights(
    party: Party, *, number: int, times: int, boxes: dict[str, SealedBox], columns: dict[str, NDArray[np.int64]],
    cos: dict[str, NDArray[np.uint8]], sin: dict[str, NDArray[np.uint8]],
) -> dict[str, dict[str, SealedBox] | dict[str, Ring]]:  # fmt: skip
    """The keeper's side, for each owner: its box, the columns of its inputs, and what the dealer adds."""
    rows, pairs, dealt = party.held(Rows), party.held(Pairs), party.held(Dealt)
    rows.read(party)
    if times:
        rows.check_sums(party)
    sent, halves = {}, {}
    for owner, box in boxes.items():
        kept = rows.part.kept.get(owner)
        if kept is None or (times and (kept.masks is None or kept.before is None)):
            raise OperationRefused(party.name, "join_weights", f"no weights of {owner!r} were trained here")
        before = kept.weights if kept.before is None else kept.before
        share = angles_of(_angles(before if times else kept.weights, kept.masks, times))
        mask = angle_mask(dealt, number, share.shape, f"gates of {owner}")
        other = pairs.open(box, sender=owner, about="gates", number=number)
        hidden = share + mask + exactly(other, share.shape, owner, np.uint16)
        tables = [_table(given.get(owner), share.shape) for given in (cos, sin)]
        half = _half(hidden, tables[0], tables[1], _columns(columns.get(owner), owner, len(kept.weights)))
        halves[owner] = half + pairs.cancelling(owner, f"gates of {owner}", number, half.shape)
        sent[owner] = pairs.seal(hidden, to=owner, about="hidden gates", number=number)
    return {"boxes": sent, "halves": halves}


def _table(dealt: Short | None, shape: tuple[int, ...]) -> Ring:
    return lengthened(exactly(dealt, (*shape, DEALT_BYTES), "coordinator", np.uint8))


@operation(
    "sine_gates.gate_half",
    when="protection=shares",
    discloses="masked",
    receives="masked",
    about="half of the gradient of each gate, a sum over the rows of several batches, or of each column's norm; under "
    "a mask, both halves give the sum",
    opened="aggregate: the gradient of each gate, a sum over the rows of several batches, or each column's norm",
    learns="nothing: angles under masks",
    reply=Array("i"),
    times=_READINGS,
)
def gate_half(party: Party, *, number: int, times: int, box: SealedBox, columns: NDArray[np.int64]) -> Ring:
    rows, pairs, dealt = party.held(Rows), party.held(Pairs), party.held(Dealt)
    keeper, inputs = rows.part.roles.keeper_of(party.name), len(rows.part.weights)
    shape = ((2 if times else 1) * inputs, rows.part.shape.width)
    hidden = exactly(pairs.open(box, sender=keeper, about="hidden gates", number=number), shape, keeper, np.uint16)
    cos, sin = (dealt.draw(f"{name} of gates", number, shape) for name in ("cos", "sin"))
    half = _half(hidden, cos, sin, _columns(columns, party.name, inputs))
    return half + pairs.cancelling(keeper, f"gates of {party.name}", number, half.shape)


def _columns(columns: NDArray[np.int64] | None, owner: str, inputs: int) -> NDArray[np.int64]:
    if columns is None or columns.shape != (inputs,) or columns.min(initial=0) < 0 or columns.max(initial=0) > inputs:
        raise ReplyError(owner, "gates", "each input belongs to a column")
    return columns


OPERATIONS = (input_columns, set_gates, drop_inputs, send_weights, join_weights, gate_half)


def check_owner(owner: NDArray[np.int64], inputs: int, columns: int, name: str) -> None:
    """Of each input the column that it is made of; the label holder's constant has none."""
    if not inputs - 1 <= len(owner) <= inputs or (len(owner) and not 0 <= owner.min() <= owner.max() < columns):
        raise ReplyError(name, "input_columns", "each input belongs to one of its columns")


class SharedGates:
    """The coordinator's side: gates of all owners' columns, and readings of their gradients or norms."""

    def __init__(self, run: SharedRun):
        self.run, self.fed = run, run.fed
        self.dealer = run.hide()
        found = run.fed.ask(input_columns, to=list(run.widths))
        self.counts = {name: run.fed.n_columns[name] for name in run.widths}
        self.columns: dict[str, NDArray[np.int64]] = {}
        for name in run.widths:
            check_owner(found[name], run.widths[name], self.counts[name], name)
            # the label holder's constant is an input of no column: the last place, always open
            extra = np.full(run.widths[name] - len(found[name]), self.counts[name])
            self.columns[name] = np.concatenate([found[name], extra]).astype(np.int64)
        self._number = 0

    def set(self, gates: dict[str, np.ndarray]) -> None:
        """Let the columns whose bit is 1 take part from now on."""
        run = self.run
        bits = {n: np.append(gates[n], True)[self.columns[n]].astype(bool) for n in run.widths}
        each = {m: {"gates": {o: b for o, b in bits.items() if m in (o, run.roles.keeper_of(o))}} for m in run.members}
        self.fed.ask(set_gates, to=run.members, each=each)
        self.dealer.gates = {n: b.astype(np.uint64) for n, b in bits.items()}
        self.dealer.masks, run.seen = {}, 0

    def drop(self, out: dict[str, np.ndarray]) -> None:
        """Columns whose bit is 1 leave the conversation; one input of every owner stays."""
        run = self.run
        stay = {n: ~np.append(out[n], False)[self.columns[n]].astype(bool) for n in run.widths}
        for bits in stay.values():
            bits[0] |= not bits.any()
        if all(bits.all() for bits in stay.values()):
            return
        self.fed.ask(drop_inputs, to=run.members, stay=stay)
        self.dealer.only({n: np.flatnonzero(bits) for n, bits in stay.items()})
        self.columns = {n: self.columns[n][bits] for n, bits in stay.items()}
        run.widths = {n: len(columns) for n, columns in self.columns.items()}
        run.seen = 0

    def gradients(self) -> dict[str, Floats]:
        """dL/ds of each column, the mean over the rows since the gates were set; infinite for a column that is out."""
        scale = 2.0 ** -(PUBLIC_BITS + DEALT_BITS + 1) / GAIN
        found = self._read(multiplier(max(1, self.run.seen), self.run.shape.unit))
        return {name: values * scale for name, values in found.items()}

    def norms(self) -> dict[str, Floats]:
        """The norm of each column's weights, in radians."""
        scale, norms = 2.0 ** -(PUBLIC_BITS + DEALT_BITS), {}
        for name, values in self._read(0).items():
            inputs = np.bincount(self.columns[name], minlength=self.counts[name] + 1)[: self.counts[name]]
            squares = 2 * (inputs * self.run.shape.width - values * scale) / NORM_GAIN**2
            norms[name] = np.sqrt(np.maximum(squares, 0.0))
        return norms

    def _read(self, times: int) -> dict[str, Floats]:
        """One number a column, from two halves."""
        run, owners = self.run, list(self.run.widths)
        self._number += 1
        number = self._number
        boxes = self.fed.ask(send_weights, to=owners, number=number, times=times)
        dealt = {owner: self._dealt(owner, number, 2 if times else 1) for owner in owners}
        places = {n: np.unique(self.columns[n], return_inverse=True) for n in owners}
        columns = {n: inverse.astype(np.int64) for n, (_, inverse) in places.items()}
        each = {}
        for keeper in sorted({run.roles.keeper_of(owner) for owner in owners}):
            mine = run.roles.kept_by(keeper)
            each[keeper] = {
                "boxes": {o: boxes[o] for o in mine}, "columns": {o: columns[o] for o in mine},
                "cos": {o: dealt[o][0] for o in mine}, "sin": {o: dealt[o][1] for o in mine},
            }  # fmt: skip
        joined = self.fed.ask(join_weights, to=list(each), each=each, number=number, times=times)
        for owner in owners:
            keeper = run.roles.keeper_of(owner)
            if not (owner in joined[keeper]["boxes"] and owner in joined[keeper]["halves"]):
                raise ReplyError(keeper, "join_weights", f"it told nothing about the weights of {owner!r}")
        back = {o: {"box": joined[run.roles.keeper_of(o)]["boxes"][o], "columns": columns[o]} for o in owners}
        halves = self.fed.ask(gate_half, to=owners, each=back, number=number, times=times)
        found = {}
        for owner in owners:
            keeper, shape = run.roles.keeper_of(owner), places[owner][0].shape
            kept = exactly(joined[keeper]["halves"][owner], shape, keeper)
            opened = signed(kept + exactly(halves[owner], shape, owner))
            values = np.full(self.counts[owner] + 1, np.inf)
            values[places[owner][0]] = opened
            found[owner] = values[:-1]
        return found

    def _dealt(self, owner: str, number: int, angles: int) -> tuple[Short, Short]:
        """What the keeper lacks to the owner's shares of the cosines of the masks."""
        run, of = self.run, self.dealer.of
        shape = (angles * run.widths[owner], run.shape.width)
        mask = np.zeros(shape, dtype=np.uint16)
        for name in (owner, run.roles.keeper_of(owner)):
            mask = mask + angle_mask(of[name], number, shape, f"gates of {owner}")
        cosine, sine = circle(mask, DEALT_BITS)
        return (
            shortened_to(DEALT_BYTES, cosine - of[owner].draw("cos of gates", number, shape)),
            shortened_to(DEALT_BYTES, sine - of[owner].draw("sin of gates", number, shape)),
        )
