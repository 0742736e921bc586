"""Encrypted histograms: values of the label holder's rows, summed by bins of other parties' columns.

The label holder encrypts non-negative integers for each row (class indicators, or gradients) and sends them to the
other parties; they add up ciphertexts bin by bin and send the sums back. Nobody but the key holder can read a value,
and the key holder sees sums only.

*Several rows in one ciphertext.* A plaintext has hundreds of bits and a row needs few, so ``RowLayout`` puts ``k``
rows into one, row ``p`` at ``2 ** (p * pitch)``. A party sums the ciphertexts of its rows of position ``p`` and gets,
at that position, what it wants, and beside it, at the others, sums of rows it did not ask for. It shifts the ``k``
sums so that what it wants meets in the middle, adds them, and hides every other slot by a random number 40 bits wider
than what the slot can hold. So encryption, and the bytes of the labels, cost a ``k``-th; the number of additions is
the same. The pitch leaves room for the mask, hence no carry: the middle slot is exact.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto.additive.grouped import group_sums
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey, SecretKey, generate_key
from fedsift.errors import OverflowGuard, ParameterError

HIDING_BITS = 40
_WORD = 64

#: CPU microseconds, measured: to encrypt, to decrypt, to shift (once, and a bit of the shift). Only ratios matter.
COSTS = {"ou": (18, 50, 1, 0.22), "paillier": (180, 700, 2, 1.2)}


@dataclass(frozen=True)
class RowLayout:
    """How the rows' values lie in ciphertexts. Public: it depends on the number of rows and classes only."""

    rows: int  # rows in all
    values: int  # values of a row that share a ciphertext
    value_bits: int  # room for the largest sum of one value
    per_ciphertext: int  # rows in a ciphertext
    answers_per: int = 1  # sums that are packed into one answer (only when rows do not share ciphertexts)

    @classmethod
    def fit(
        cls, rows: int, values: int, row_bits: int, plaintext_bits: int, *, answers: int = 0, scheme: str = "ou"
    ) -> RowLayout:
        """The cheapest layout that fits; ``row_bits`` is the size of a single row's value.

        Rows that share a ciphertext save encryptions, but each of the ``answers`` (sums asked for) then costs a shift
        a row. Where rows do not share, answers do, if that is cheaper than to decrypt them one by one.
        """
        value_bits = row_bits + max(1, rows).bit_length()
        payload = values * value_bits
        if payload > plaintext_bits:
            raise OverflowGuard(f"{values} values of {value_bits} bits do not fit a plaintext of {plaintext_bits} bits")
        encrypt, decrypt, shift, shift_bit = COSTS[scheme]
        pitch = payload + HIDING_BITS + 1
        together = plaintext_bits // payload if shift + shift_bit * payload < decrypt + encrypt else 1

        def cost(per: int) -> float:
            if per == 1:
                return encrypt * rows + answers * ((decrypt + encrypt) / together + shift + shift_bit * payload)
            return encrypt * rows / per + answers * ((per - 1) * (shift + shift_bit * pitch) + decrypt + encrypt)

        most = max(1, min(rows, (plaintext_bits // pitch + 1) // 2))
        per = min(range(1, most + 1), key=cost)
        return cls(rows, values, value_bits, per, together if per == 1 else 1)

    @property
    def payload_bits(self) -> int:
        return self.values * self.value_bits

    @property
    def pitch(self) -> int:
        return self.payload_bits + (HIDING_BITS + 1 if self.per_ciphertext > 1 else 0)

    @property
    def total_bits(self) -> int:
        return (2 * self.per_ciphertext - 1) * self.pitch

    @property
    def answer_bits(self) -> int:
        """Of what one ciphertext of an answer holds."""
        return self.total_bits if self.per_ciphertext > 1 else self.payload_bits * self.answers_per

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def read(cls, fields: dict[str, Any], rows: int) -> RowLayout:
        """From a message, checked: a party never sums under a layout that could overflow."""
        if set(fields) != set(cls.__dataclass_fields__):
            raise ParameterError(f"a row layout must have {', '.join(cls.__dataclass_fields__)}")
        if not all(type(value) is int and value < 2**53 for value in fields.values()):
            raise ParameterError("a row layout has whole numbers")
        layout = cls(**fields)
        if layout.rows != rows or min(asdict(layout).values()) < 1:
            raise ParameterError(f"a row layout for {layout.rows} rows does not fit this party's {rows} rows")
        return layout


@dataclass
class JobKeys:
    """A party's secret keys of one job, by scheme."""

    secrets: dict[str, SecretKey] = field(default_factory=dict, repr=False)


def own_key(party: Party, scheme: str = "auto") -> SecretKey:
    """The party's additive key of this job; made at first use, never sent, forgotten with the job.

    A key of its own for each job: what was learned about one, or encrypted under it, is of no use in the next.
    """
    keys: dict[str, SecretKey] = party.run.kept.setdefault(JobKeys, JobKeys()).secrets
    if scheme not in keys:
        keys[scheme] = generate_key(scheme)
    return keys[scheme]


@operation(
    "labels.public_key", times="1 a session", discloses="control", about="public key", reply=PublicKey,
    settings=("scheme",),
)  # fmt: skip
def public_key(party: Party, *, scheme: str) -> PublicKey:
    return own_key(party, scheme).public


def encrypt_rows(key: PublicKey, values: np.ndarray, layout: RowLayout, row_bits: int) -> Ciphertexts:
    """Non-negative integers, rows x values, below ``2 ** row_bits``."""
    if values.shape != (layout.rows, layout.values):
        raise ParameterError(f"expected {layout.rows} x {layout.values} values, got {values.shape}")
    if values.size and (values.min() < 0 or int(values.max()).bit_length() > row_bits):
        raise OverflowGuard(f"a row's value does not fit its {row_bits} bits")
    return key.encrypt(laid_out(values, layout))


def laid_out(values: np.ndarray, layout: RowLayout) -> list[int]:
    """Non-negative integers (rows x values) as the layout puts rows and their values into numbers."""
    per, most = layout.per_ciphertext, int(values.max(initial=0)).bit_length()
    count, width = -(-len(values) // per), -(-per * layout.pitch // 8)
    if most > _WORD - 8:  # a value and a shift of up to seven bits do not fit a word
        return _one_by_one(values, layout)
    numbers = np.zeros((count, width + 8), np.uint8)
    for row in range(min(per, len(values))):
        for place in range(values.shape[1]):
            byte, shift = divmod(row * layout.pitch + place * layout.value_bits, 8)
            words = values[row::per, place].astype("<u8") << np.uint64(shift)
            numbers[: len(words), byte : byte + 8] |= words.view(np.uint8).reshape(-1, 8)
    raw, width = numbers.tobytes(), width + 8
    return [int.from_bytes(raw[start : start + width], "little") for start in range(0, len(raw), width)]


def _one_by_one(values: np.ndarray, layout: RowLayout) -> list[int]:
    bits, per, pitch = layout.value_bits, layout.per_ciphertext, layout.pitch
    rows = [sum(int(value) << (place * bits) for place, value in enumerate(row)) for row in values.tolist()]
    return [
        sum(row << (place * pitch) for place, row in enumerate(rows[start : start + per]))
        for start in range(0, len(rows), per)
    ]


def binned_sums(
    key: PublicKey, rows: Ciphertexts, layout: RowLayout, codes: np.ndarray, groups: list[int]
) -> Ciphertexts:
    """For each column of ``codes`` the encrypted sum of each bin's rows, column after column: ready to be sent."""
    return finish(key, aligned_sums(key, rows, layout, codes, groups), layout)


def finish(key: PublicKey, sums: Ciphertexts, layout: RowLayout) -> Ciphertexts:
    """What leaves the party: masked where rows shared a ciphertext, packed where they did not, and blinded."""
    return key.blind(packed(key, sums, layout))


def packed(key: PublicKey, sums: Ciphertexts, layout: RowLayout) -> Ciphertexts:
    """Sums as they lie in answers, not yet blinded."""
    return pack(key, hide_neighbours(key, sums, layout), layout.payload_bits, layout.answers_per)


def aligned_sums(
    key: PublicKey, rows: Ciphertexts, layout: RowLayout, codes: np.ndarray, groups: list[int]
) -> Ciphertexts:
    """The sums before masking and blinding: for further computation at the same party, not for sending."""
    return _align(key, rows, layout, lambda part, here: group_sums(key, part, codes[here], groups))


def _align(
    key: PublicKey, rows: Ciphertexts, layout: RowLayout, sums_of: Callable[[Ciphertexts, slice], Ciphertexts]
) -> Ciphertexts:
    """Sum the rows of each position apart, then shift the results so that they meet in the middle slot."""
    per = layout.per_ciphertext
    expected = -(-layout.rows // per)
    if len(rows) != expected:
        raise ParameterError(f"expected {expected} row ciphertexts, got {len(rows)}")
    total: Ciphertexts | None = None
    for place in range(min(per, layout.rows)):
        here = slice(place, layout.rows, per)  # of the parties' columns nothing is copied
        sums = sums_of(rows.take(np.arange(len(range(layout.rows)[here]))) if per > 1 else rows, here)
        total = sums if total is None else key.add(key.scale(total, 1 << layout.pitch), sums)
    if total is None:
        raise ParameterError("there are no rows to sum")
    return total if per <= layout.rows else key.scale(total, 1 << (layout.pitch * (per - layout.rows)))


def hide_neighbours(key: PublicKey, sums: Ciphertexts, layout: RowLayout) -> Ciphertexts:
    """Hide every slot but the middle one: those hold sums that nobody asked for."""
    per = layout.per_ciphertext
    if per == 1:
        return sums
    masks = [random_slots(layout, 2 * per - 1, {per - 1: 0}) for _ in range(len(sums))]
    return key.add_plain(sums, masks)


def random_slots(layout: RowLayout, slots: int, filled: dict[int, int]) -> int:
    """What is added to a ciphertext: a given number where a slot has one, elsewhere a mask wider than what it hides."""
    number = secrets.randbits(slots * layout.pitch) & _masked_bits(layout, slots, frozenset(filled))
    for slot, given in filled.items():
        number += given << (slot * layout.pitch)
    return number


@functools.lru_cache(maxsize=64)
def _masked_bits(layout: RowLayout, slots: int, filled: frozenset[int]) -> int:
    """Ones where masks have their bits."""
    ones = (1 << (layout.payload_bits + HIDING_BITS)) - 1
    return sum(ones << (slot * layout.pitch) for slot in range(slots) if slot not in filled)


def read_sums(key: SecretKey, sums: Ciphertexts, layout: RowLayout, count: int) -> list[list[int]]:
    """The key holder's view: ``values`` integers for each of the ``count`` bins."""
    return split_sums(key.decrypt(sums, bits=layout.answer_bits), layout, count)


def split_sums(numbers: list[int], layout: RowLayout, count: int) -> list[list[int]]:
    """Answers taken apart: ``values`` integers for each of the ``count`` bins."""
    numbers = unpack(numbers, layout.payload_bits, layout.answers_per, count)
    low = (layout.per_ciphertext - 1) * layout.pitch
    mask = (1 << layout.value_bits) - 1
    return [
        [(number >> (low + place * layout.value_bits)) & mask for place in range(layout.values)] for number in numbers
    ]


def spread(values: np.ndarray, layout: RowLayout) -> list[int]:
    """Integers (bins x values, of either sign) as they are added to the answers that hold those bins."""
    payloads = [
        sum(int(value) << (place * layout.value_bits) for place, value in enumerate(row)) for row in values.tolist()
    ]
    if layout.per_ciphertext > 1:
        return [payload << ((layout.per_ciphertext - 1) * layout.pitch) for payload in payloads]
    return join(payloads, layout.payload_bits, layout.answers_per) if len(payloads) > 1 else payloads


def pack(key: PublicKey, numbers: Ciphertexts, width: int, per: int) -> Ciphertexts:
    """``per`` non-negative ciphertexts of ``width`` bits in one: a decryption costs more than the shifts."""
    if per == 1 or len(numbers) <= 1:
        return numbers
    padded = -(-len(numbers) // per) * per
    if padded != len(numbers):
        numbers = Ciphertexts.concat([numbers, key.encrypt([0] * (padded - len(numbers)))])
    total = numbers.take(range(per - 1, padded, per))
    for place in range(per - 2, -1, -1):
        total = key.add(key.scale(total, 1 << width), numbers.take(range(place, padded, per)))
    return total


def join(numbers: list[int], width: int, per: int) -> list[int]:
    """What ``pack`` does, for plain numbers."""
    return [
        sum(number << (place * width) for place, number in enumerate(numbers[start : start + per]))
        for start in range(0, len(numbers), per)
    ]


def unpack(numbers: list[int], width: int, per: int, count: int) -> list[int]:
    """The ``count`` numbers that ``pack`` or ``join`` put together."""
    if per == 1 or count <= 1:
        return numbers
    mask = (1 << width) - 1
    return [(number >> (place * width)) & mask for number in numbers for place in range(per)][:count]


def weighted_sums(
    key: PublicKey, rows: Ciphertexts, layout: RowLayout, weights: np.ndarray, weight_bits: int
) -> Ciphertexts:
    """For each column of non-negative integer ``weights`` the encrypted sum of weight x row, not yet masked.

    Weights are cut into digits of 6 bits; rows with the same digit are added first (a histogram), so a row costs one
    addition a digit instead of one exponentiation.
    """
    digit_bits = 6
    base = 1 << digit_bits
    columns = weights.shape[1]

    def sums_of(part: Ciphertexts, here: slice) -> Ciphertexts:
        total: Ciphertexts | None = None
        for shift in range((weight_bits - 1) // digit_bits * digit_bits, -1, -digit_bits):
            codes = ((weights[here] >> shift) & (base - 1)).astype(np.int32)
            value = _digit_weighted(key, group_sums(key, part, codes, [base] * columns), columns, base)
            total = value if total is None else key.add(key.scale(total, base), value)
        if total is None:
            raise ParameterError("weights need at least one bit")
        return total

    return _align(key, rows, layout, sums_of)


def _digit_weighted(key: PublicKey, tables: Ciphertexts, columns: int, base: int) -> Ciphertexts:
    """sum over d of d * table[d], by running sums: two additions a digit value and no multiplication."""
    running = tables.take([column * base + base - 1 for column in range(columns)])
    total = running
    for digit in range(base - 2, 0, -1):
        running = key.add(running, tables.take([column * base + digit for column in range(columns)]))
        total = key.add(total, running)
    return total
