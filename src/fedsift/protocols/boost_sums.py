"""Gradient histograms under encryption: how rows lie in ciphertexts, how a level is summed, how the answer is read.

A row's gradients are non-negative integers (the first derivative shifted by ``2 ** bits``). A party adds up the
ciphertexts of the rows of each group. The shift grows with the number of rows in the group; the party, which knows that
number, tops it up to the number of rows of the whole table, so the label holder takes off one public constant and no
group size is ever sent. Of each column one group is left out, the largest: it follows from the node's total, which the
label holder knows, and leaving it out saves most of the additions of a skewed column.

Two ways to save, never both: several rows in one ciphertext (encryption and bytes cost a ``k``-th, each answer costs
``k - 1`` shifts), or several answers in one ciphertext (an answer costs one shorter shift, a decryption serves many).
``rows_per_ciphertext`` decides from sizes that are public.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedsift.errors import OverflowGuard, ParameterError, ReplyError
from fedsift.protocols.histogram import HIDING_BITS, RowLayout, pack, unpack
from fedsift.secure.additive import Ciphertexts, PublicKey, SecretKey

# Microseconds of one core, measured with Okamoto-Uchiyama at 2048 bits; only their ratios matter. A ciphertext on the
# wire is priced as on a line of 40 Mbit/s.
_ENCRYPT, _WIRE, _DECRYPT, _BLIND, _SCALE, _SCALE_BIT = 50.0, 50.0, 450.0, 60.0, 40.0, 2.8


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
        value_bits = bits + 2 + max(1, rows).bit_length()
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
        return RowLayout(self.rows, self.lanes, self.bits + 2 + max(1, self.rows).bit_length(), self.per)

    def answers(self, plaintext_bits: int) -> int:
        """Sums that share a ciphertext on the way back."""
        return 1 if self.per > 1 else max(1, plaintext_bits // self.row_layout.payload_bits)

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def read(cls, fields: dict[str, Any], rows: int, plaintext_bits: int) -> GradientLayout:
        """From a message, checked: a party never sums under a layout that could overflow."""
        if set(fields) != set(cls.__dataclass_fields__):
            raise ParameterError("a gradient layout must have rows, outputs, bits, per and lanes")
        layout = cls(**{key: int(value) for key, value in fields.items()})
        expected = cls.fit(rows, layout.outputs, layout.bits, layout.per, plaintext_bits)
        if layout.rows != rows or layout != expected:
            raise ParameterError(f"a gradient layout for {layout.rows} rows does not fit this party's {rows} rows")
        return layout

    def top_up(self, rows_in_group: int, layer: int) -> int:
        """What makes the shift of a group's sum as large as if it had all rows."""
        width = self.row_layout.value_bits
        gradient_lanes = range(max(0, min(self.lanes, self.outputs - layer * self.lanes)))
        return sum(((self.rows - rows_in_group) << self.bits) << (lane * width) for lane in gradient_lanes)


def rows_per_ciphertext(rows: int, columns: int, bins: int, depth: int, outputs: int, bits: int, room: int) -> int:
    """The cheapest packing for one tree, from a model of its cost."""
    nodes = 1 + min(2 ** max(0, depth - 1) - 1, rows // 20)
    answers = nodes * columns * bins * 0.6
    best, lowest = 1, float("inf")
    for per in range(1, 7):
        layout = GradientLayout.fit(rows, outputs, bits, per, room)
        if layout.per != per:
            break
        shape = layout.row_layout
        if per == 1:
            share = layout.answers(room)
            answer = shape.payload_bits * _SCALE_BIT + _SCALE + (_DECRYPT + _BLIND + _WIRE) / share
        else:
            answer = (per - 1) * (shape.pitch * _SCALE_BIT + _SCALE) + _DECRYPT + _BLIND + _WIRE
        cost = rows / per * (_ENCRYPT + _WIRE) * layout.layers + answers * layout.layers * answer
        if cost < lowest:
            best, lowest = per, cost
    return best


def encrypt_sets(key: PublicKey, sets: list[np.ndarray], layout: GradientLayout) -> Ciphertexts:
    """Several sets of row gradients (rows x values, signed) one after the other, layer after layer."""
    numbers: list[int] = []
    shape = layout.row_layout
    limit = 1 << (layout.bits + 1)
    for values in sets:
        shifted = values.copy()
        shifted[:, : layout.outputs] += 1 << layout.bits
        if shifted.size and (shifted.min() < 0 or shifted.max() > limit):
            raise OverflowGuard(f"a gradient does not fit its {layout.bits} bits")
        for start in range(0, 2 * layout.outputs, layout.lanes):
            rows = [0] * len(values)
            for lane, column in enumerate(shifted[:, start : start + layout.lanes].T.tolist()):
                shift = lane * shape.value_bits
                rows = [row | (value << shift) for row, value in zip(rows, column)]
            for first in range(0, len(rows), layout.per):
                numbers.append(
                    sum(row << (place * shape.pitch) for place, row in enumerate(rows[first : first + layout.per]))
                )
    return key.encrypt(numbers)


def set_offsets(sizes: list[int], layout: GradientLayout) -> np.ndarray:
    """Where each set begins in the vector of ciphertexts, and where the last one ends."""
    lengths = [-(-size // layout.per) * layout.layers for size in sizes]
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@dataclass
class Ask:
    """Sums of one node: groups of row numbers within a gradient set."""

    start: int  # where the set begins
    size: int  # rows of the set
    groups: list[np.ndarray]


def encrypted_sums(key: PublicKey, store: Ciphertexts, layout: GradientLayout, asks: list[Ask]) -> Ciphertexts:
    """The sums of all groups of all nodes, layer after layer, topped up, masked and blinded: ready to be sent."""
    sizes = [len(rows) for ask in asks for rows in ask.groups]
    if not sizes:
        return key.encrypt([])
    return (
        _packed_answers(key, store, layout, asks, sizes)
        if layout.per == 1
        else _aligned_answers(key, store, layout, asks, sizes)
    )


def _packed_answers(
    key: PublicKey, store: Ciphertexts, layout: GradientLayout, asks: list[Ask], sizes: list[int]
) -> Ciphertexts:
    lists = [
        (rows + (ask.start + layer * ask.size)).tolist()
        for layer in range(layout.layers)
        for ask in asks
        for rows in ask.groups
    ]
    width, per = layout.row_layout.payload_bits, layout.answers(key.plaintext_bits)
    packed = pack(key, key.select_sums(store, lists), width, per)
    tops = [layout.top_up(size, layer) for layer in range(layout.layers) for size in sizes]
    if len(tops) > 1:
        tops = [
            sum(top << (place * width) for place, top in enumerate(tops[first : first + per]))
            for first in range(0, len(tops), per)
        ]
    return key.blind(key.add_plain(packed, tops))


def _aligned_answers(
    key: PublicKey, store: Ciphertexts, layout: GradientLayout, asks: list[Ask], sizes: list[int]
) -> Ciphertexts:
    """Rows share ciphertexts: sum each position apart, shift the sums to meet in the middle, hide the rest."""
    shape, per = layout.row_layout, layout.per
    lists = [
        (ask.start + rows[rows % per == place] // per).tolist()
        for place in range(per)
        for ask in asks
        for rows in ask.groups
    ]
    sums = key.select_sums(store, lists)
    count = len(sizes)
    total = sums.take(range(count))
    for place in range(1, per):
        total = key.add(key.scale(total, 1 << shape.pitch), sums.take(range(place * count, (place + 1) * count)))
    middle = (per - 1) * shape.pitch
    others = [slot for slot in range(2 * per - 1) if slot != per - 1]
    bits = shape.payload_bits + HIDING_BITS
    tops = [
        (layout.top_up(size, 0) << middle) + sum(secrets.randbits(bits) << (slot * shape.pitch) for slot in others)
        for size in sizes
    ]
    return key.blind(key.add_plain(total, tops))


def read_sums(key: SecretKey, answer: Ciphertexts, layout: GradientLayout, count: int, party: str) -> np.ndarray:
    """The label holder's view: groups x (2 * outputs), with the shift taken off."""
    shape, room = layout.row_layout, key.public.plaintext_bits
    wanted, per = count * layout.layers, layout.answers(room)
    expected = wanted if wanted <= 1 else -(-wanted // per)
    if len(answer) != expected:
        raise ReplyError(party, "level_sums", f"party {party!r} sent {len(answer)} ciphertexts instead of {expected}")
    if layout.per == 1:
        opened = key.decrypt(answer, bits=shape.payload_bits * min(per, max(1, wanted)))
        numbers = unpack(opened, shape.payload_bits, per, wanted)
    else:
        middle, mask = (layout.per - 1) * shape.pitch, (1 << shape.payload_bits) - 1
        numbers = [(number >> middle) & mask for number in key.decrypt(answer, bits=shape.total_bits)]
    mask = (1 << shape.value_bits) - 1
    lanes = [[(number >> (lane * shape.value_bits)) & mask for lane in range(layout.lanes)] for number in numbers]
    table = np.array(lanes, dtype=np.int64).reshape(layout.layers, count, layout.lanes)
    values = np.concatenate(list(table), axis=1)[:, : 2 * layout.outputs]
    values[:, : layout.outputs] -= layout.rows << layout.bits
    return values
