"""Gradient histograms under encryption: how rows lie in ciphertexts, how a level is summed, how the answer is read.

A row's gradients are non-negative integers (the first derivative shifted by ``2 ** bits``). A party adds up the
ciphertexts of the rows of each group. The shift grows with the number of rows in the group; the party, which knows that
number, tops it up to the number of rows of the whole table, so the label holder takes off one public constant and no
group size is ever sent. Of each column one group is left out, the largest: it follows from the node's total, which the
label holder knows, and leaving it out saves most of the additions of a skewed column.

Where several rows share a ciphertext (encryption and bytes cost a ``k``-th) an answer costs ``k - 1`` shifts more, and
slots beside it hold sums that nobody asked for: they are hidden by random numbers (see ``histogram``). Answers share
ciphertexts too, as many as fit: a shift each, and a decryption serves them all; of neighbouring answers the slots that
nobody asked for lie over each other. ``rows_per_ciphertext`` decides from sizes that are public.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, replace

import numpy as np

from fedsift.core.message import encode
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey, SecretKey
from fedsift.errors import OverflowGuard, ParameterError, ReplyError
from fedsift.models.boost.joint_powers import GroupTable, joint_sums
from fedsift.mpc.encrypted_histogram import COSTS, RowLayout, laid_out, pack, random_slots, unpack

_EXPONENT_BIT = {"ou": 0.036}  # microseconds by which a longer plaintext makes encryption dearer
_WIRE = 50.0  # microseconds for a ciphertext on a line of 40 Mbit/s; it goes to the coordinator and on from there

#: What the label holder's notes are about.
GRADIENTS = "encrypted gradients"


def vouched_parts(key: PublicKey, rows: Ciphertexts, layout: dict[str, int], sets: list[np.ndarray]) -> list[bytes]:
    """What the label holder vouches for to each party: its key, whose rows, encrypted how."""
    return [key.to_bytes(), rows.to_bytes(), encode(dict(sorted(layout.items()))), encode(sets)]


@dataclass(frozen=True)
class GradientLayout:
    """Public: depends on the number of rows, the outputs of a tree and the key alone."""

    rows: int
    outputs: int
    bits: int  # precision of a gradient
    per: int  # rows in a ciphertext
    lanes: int  # values in a ciphertext; a row takes several ciphertexts where all its values do not fit one

    @classmethod
    def fit(cls, rows: int, outputs: int, bits: int, per: int, plaintext_bits: int) -> GradientLayout:
        value_bits = bits + 1 + max(1, rows).bit_length()
        lanes = min(2 * outputs, plaintext_bits // value_bits)
        if lanes < 1:
            raise OverflowGuard(f"{rows} rows are too many for this key: a sum needs {value_bits} bits")
        layout = cls(rows, outputs, bits, per, lanes)
        if lanes < 2 * outputs or layout.row_layout.total_bits > plaintext_bits:
            layout = cls(rows, outputs, bits, 1, lanes)
        return layout

    @property
    def layers(self) -> int:
        return -(-2 * self.outputs // self.lanes)

    @property
    def row_layout(self) -> RowLayout:
        return RowLayout(self.rows, self.lanes, self.bits + 1 + max(1, self.rows).bit_length(), self.per)

    def answers(self, plaintext_bits: int) -> int:
        """Sums that share a ciphertext on the way back, ``answer_bits`` apart."""
        slots = plaintext_bits // self.row_layout.pitch  # answers and, between and around them, per - 1 other slots
        return max(1, (slots - self.per + 1) // self.per)

    @property
    def answer_bits(self) -> int:
        return self.per * self.row_layout.pitch

    @property
    def first_bit(self) -> int:
        """Where the first answer of a ciphertext begins."""
        return (self.per - 1) * self.row_layout.pitch

    def reply_bits(self, answers: int) -> int:
        """Of a ciphertext with so many answers."""
        return self.row_layout.pitch * (self.per * answers + self.per - 1)

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def read(cls, fields: dict[str, int], rows: int, plaintext_bits: int) -> GradientLayout:
        """From a message, checked: a party never sums under a layout that could overflow."""
        if set(fields) != set(cls.__dataclass_fields__):
            raise ParameterError("a gradient layout must have rows, outputs, bits, per and lanes")
        layout = cls(**{key: int(value) for key, value in fields.items()})
        expected = cls.fit(rows, layout.outputs, layout.bits, layout.per, plaintext_bits)
        if layout.rows != rows or layout != expected:
            raise ParameterError(f"a gradient layout for {layout.rows} rows does not fit this party's {rows} rows")
        return layout

    def top_ups(self, rows_in_group: list[int], layer: int) -> list[int]:
        """What makes the shift of each group's sum as large as if the group had all rows."""
        width = self.row_layout.value_bits
        gradient_lanes = range(max(0, min(self.lanes, self.outputs - layer * self.lanes)))
        one = sum(1 << (self.bits + lane * width) for lane in gradient_lanes)
        return [(self.rows - size) * one for size in rows_in_group]


def expected_answers(rows: int, columns: float, bins: float, depth: float) -> float:
    """Sums of one tree, before any has been grown."""
    nodes = 1 + min(2 ** max(0, depth - 1) - 1, rows // 20)
    return nodes * columns * bins * 0.6


def rows_per_ciphertext(
    rows: float, answers: float, total: int, outputs: int, bits: int, key: PublicKey, parties: int = 1
) -> int:
    """The cheapest packing for one tree: ``rows`` of ``total`` take part and are sent to so many ``parties``."""
    encrypt, decrypt, shift, shift_bit = COSTS[key.scheme]
    best, lowest = 1, float("inf")
    for per in itertools.count(1):
        layout = GradientLayout.fit(total, outputs, bits, per, key.plaintext_bits)
        if layout.per != per:
            break
        pitch, share = layout.row_layout.pitch, layout.answers(key.plaintext_bits)
        answer = (per - 1 / share) * (pitch * shift_bit + shift) + (decrypt + encrypt + 2 * _WIRE) / share
        row = encrypt + (per - 1) * pitch * _EXPONENT_BIT.get(key.scheme, 0.0) + (1 + parties) * _WIRE
        cost = layout.layers * (rows / per * row + answers * answer)
        if cost < lowest:
            best, lowest = per, cost
    return best


def encrypt_sets(key: PublicKey, sets: list[np.ndarray], layout: GradientLayout) -> Ciphertexts:
    """Several sets of row gradients (rows x values, signed) one after the other, layer after layer."""
    numbers: list[int] = []
    limit = 1 << (layout.bits + 1)
    for values in sets:
        shifted = values.copy()
        shifted[:, : layout.outputs] += 1 << layout.bits
        if shifted.size and (shifted.min() < 0 or shifted.max() > limit):
            raise OverflowGuard(f"a gradient does not fit its {layout.bits} bits")
        for start in range(0, 2 * layout.outputs, layout.lanes):
            numbers += laid_out(shifted[:, start : start + layout.lanes], layout.row_layout)
    return key.encrypt(numbers)


def set_offsets(sizes: list[int], layout: GradientLayout) -> np.ndarray:
    """Where each set begins in the vector of ciphertexts, and where the last one ends."""
    lengths = [-(-size // layout.per) * layout.layers for size in sizes]
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@dataclass
class Ask:
    """Sums of one node: the rows of a gradient set that are in it, by their group in each column."""

    start: int  # where the set begins
    size: int  # rows of the set
    table: GroupTable  # its rows are numbers within the set

    def layer(self, number: int) -> GroupTable:
        """The same table over ciphertexts, where a row has one or several to itself."""
        return replace(self.table, rows=self.table.rows + (self.start + number * self.size))

    def place(self, place: int, per: int) -> GroupTable:
        """The rows that lie at one place of the ciphertexts they share."""
        here = self.table.rows % per == place
        rows = self.start + self.table.rows[here] // per
        return self.table.part(here, rows)


def encrypted_sums(key: PublicKey, store: Ciphertexts, layout: GradientLayout, asks: list[Ask]) -> Ciphertexts:
    """The sums of all groups of all nodes, layer after layer, topped up, masked and blinded: ready to be sent."""
    asked = [ask.table.sizes[ask.table.sizes > 0] for ask in asks]
    sizes = np.concatenate(asked).tolist() if asked else []
    if not sizes:
        return key.encrypt([])
    tops = [top for layer in range(layout.layers) for top in layout.top_ups(sizes, layer)]
    per = 1 if len(tops) == 1 else layout.answers(key.plaintext_bits)
    packed = pack(key, _places(key, store, layout, asks, len(sizes)), layout.row_layout.pitch, layout.per * per)
    shape, numbers = layout.row_layout, []
    for first in range(0, len(tops), per):
        here = tops[first : first + per] + [0] * (per - len(tops[first : first + per]))
        filled = {layout.per * (place + 1) - 1: top for place, top in enumerate(here)}
        numbers.append(random_slots(shape, layout.per * (per + 1) - 1, filled))
    return key.blind(key.add_plain(packed, numbers))


def _places(key: PublicKey, store: Ciphertexts, layout: GradientLayout, asks: list[Ask], count: int) -> Ciphertexts:
    """The sums in the order in which ``pack`` lays them a pitch apart, group after group.

    Where rows share ciphertexts each place is summed apart. The sum of place i moves up by ``per - 1 - i`` slots, so
    that the places of a group meet in one slot; the next group begins ``per`` slots higher. So both moves are one
    chain of shifts by a single slot.
    """
    per = layout.per
    if per == 1:
        return joint_sums(key, store, [ask.layer(number) for number in range(layout.layers) for ask in asks])
    sums = joint_sums(key, store, [ask.place(place, per) for place in range(per) for ask in asks])
    order = np.arange(per * count).reshape(per, count)[::-1]
    return sums.take(order.T.ravel())


def read_sums(key: SecretKey, answer: Ciphertexts, layout: GradientLayout, count: int, party: str) -> np.ndarray:
    """The label holder's view: groups x (2 * outputs), with the shift taken off."""
    shape, room = layout.row_layout, key.public.plaintext_bits
    wanted = count * layout.layers
    per = 1 if wanted <= 1 else layout.answers(room)
    expected = -(-wanted // per)
    if len(answer) != expected:
        raise ReplyError(party, "level_sums", f"party {party!r} sent {len(answer)} ciphertexts instead of {expected}")
    opened = key.decrypt(answer, bits=layout.reply_bits(per))
    numbers = unpack([number >> layout.first_bit for number in opened], layout.answer_bits, per, wanted)
    mask = (1 << shape.value_bits) - 1
    lanes = [[(number >> (lane * shape.value_bits)) & mask for lane in range(layout.lanes)] for number in numbers]
    table = np.array(lanes, dtype=np.int64).reshape(layout.layers, count, layout.lanes)
    values = np.concatenate(list(table), axis=1)[:, : 2 * layout.outputs]
    values[:, : layout.outputs] -= layout.rows << layout.bits
    return values
