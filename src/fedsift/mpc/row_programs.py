"""Programs on shares of one number or bit a row, for long tables: openings, products, tables looked up.

Written as those of ``comparing.py`` (a generator that runs at both parties and at the dealer), in machine words: bits
by exclusive or, eight to a byte, numbers modulo 2^64, or 2^32 and 2^16 where that is enough. What is opened carries a
fresh mask of which neither party has more than a share.

**A bit times a number** (``scaled``). With e = b ^ rho and E = x - V opened, b x = (e + (1 - 2 e) rho)(E + V): the
dealer gives shares of rho and of rho V.

**A table** (``looked_up``; after Ishai et al. 2013, one-time truth tables). A number x of few bits is opened as
c = x + r, r known to the dealer alone, which gives shares of one bit a cell, set in the cell of r. Seen from c that is
the cell of x, and every bit of the value there is an exclusive or of some of these shares. A borrow from below the
cells is a shared bit that chooses between two neighbours.

**Bits become numbers** (``as_numbers``, ``lengthened``). A bit is opened under a bit of which the dealer gives shares
as a number of 16 bits; a number that leaves the highest bit of its 16 free wraps if and only if one of its shares has
that bit set, so it gets its 64 bits by one AND of private bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedsift.mpc.comparing import Program, Source, conjunctions, smaller
from fedsift.mpc.dealer import Bits
from fedsift.mpc.ring import Ring

Words = NDArray[np.unsignedinteger]


@dataclass
class Opened:
    """A shared number as both parties have it: x less a mask, in the open, and a share of the mask."""

    rest: Words
    mask: Words

    def share(self, number: int) -> Words:
        return self.rest + self.mask if number == 0 else self.mask


def opened(source: Source, numbers: Words) -> Program[Opened]:
    """Open numbers under a mask, for products to come; one round."""
    mask = source.words(numbers.shape).astype(numbers.dtype)
    hidden = numbers - mask
    (theirs,) = yield [hidden]
    return Opened(hidden + theirs, mask)


def unpacked(bits: Bits, count: int) -> NDArray[np.uint8]:
    return np.unpackbits(bits, axis=-1, count=count)


def scaled(source: Source, bits: Bits, count: int, numbers: Opened) -> Program[tuple[Words, Words]]:
    """Shares of bits (rows x bytes, ``count`` bits each) times opened numbers (a list, or one for each row of bits),
    and of the bits as numbers; one round.

    Everything is modulo the size of the numbers' words.
    """
    kind, shape = numbers.rest.dtype.type, (len(bits), count)
    rho = source.bits(*bits.shape)
    ones = source.given(shape, lambda: unpacked(rho, count), kind)
    masked = source.given(shape, lambda: unpacked(rho, count).astype(kind) * numbers.mask, kind)
    hidden = bits ^ rho
    (theirs,) = yield [hidden]
    flipped = unpacked(hidden ^ theirs, count).astype(bool)
    whole = numbers.share(source.number)
    turned = ones * numbers.rest + masked
    product = np.where(flipped, whole - turned, turned)
    return product, np.where(flipped, kind(source.number == 0) - ones, ones)


def selected(source: Source, bits: Bits, numbers: Words) -> Program[Words]:
    """Shares of shared numbers (lists x count) where a shared bit (lists x bytes) is set, else of zero; two rounds."""
    seen = yield from opened(source, numbers)
    product, _ = yield from scaled(source, bits, numbers.shape[1], seen)
    return product


def weighed(source: Source, weights: Words, numbers: Words) -> Program[Words]:
    """Shares of shared numbers times weights that party 0 alone knows (zeros at the other); one round.

    The weights less a mask of party 0's own, and the other party's shares less one of its own, are exchanged; the
    dealer gives shares of the masks' products.
    """
    kind = numbers.dtype.type
    mine, theirs = (source.own_words(owner, numbers.shape).astype(kind) for owner in (0, 1))
    both = source.given(numbers.shape, lambda: mine * theirs, kind)
    (heard,) = yield [weights - mine if source.number == 0 else numbers - theirs]
    return np.asarray(both + (weights * (numbers + heard) if source.number == 0 else heard * theirs))


# --- bits into numbers -----------------------------------------------------------------------------------------------


def as_numbers(source: Source, bits: Bits, count: int, kind: type[np.unsignedinteger]) -> Program[Words]:
    """Shares, as numbers, of rows of shared bits; one round."""
    rho = source.bits(*bits.shape)
    ones = source.given((len(bits), count), lambda: unpacked(rho, count), kind)
    hidden = bits ^ rho
    (theirs,) = yield [hidden]
    return np.where(unpacked(hidden ^ theirs, count).astype(bool), kind(source.number == 0) - ones, ones)


def lengthened(source: Source, numbers: NDArray[np.uint16]) -> Program[Ring]:
    """Shares modulo 2^64 of rows of numbers below 2^15, from shares modulo 2^16; one round."""
    count, top = numbers.shape[1], (numbers >> np.uint16(15)).astype(np.uint64)
    packed = np.packbits(top.astype(np.uint8), axis=1)
    alpha, beta = source.own(0, *packed.shape), source.own(1, *packed.shape)
    both = source.given(numbers.shape, lambda: unpacked(alpha & beta, count))
    mask = beta if source.number == 1 else alpha
    masked = packed ^ mask
    (theirs,) = yield [masked]
    ours, others = (unpacked(part, count).astype(np.uint64) for part in (masked, theirs))
    # A bit x = e ^ m is e + (1 - 2 e) m, so the product of two is this and the other side's part:
    product = _signed(ours, others * unpacked(mask, count)) + _signed(ours ^ others, both)
    if source.number == 0:
        product = product + (ours & others)
    return numbers.astype(np.uint64) - ((top - product) << np.uint64(16))


def _signed(negative: Ring, numbers: Ring) -> Ring:
    return np.where(negative.astype(bool), -numbers, numbers)


def mixed(source: Source, bits: Sequence[Bits], tables: Sequence[Bits], width: int) -> Program[list[Bits]]:
    """Shares of products of bit matrices, by exclusive or: for every bit of a row of a table (rows x bytes, ``width``
    bits) the exclusive or of those rows of ``bits`` whose row of the table has it; one round for all."""
    rho, turn = source.bits(*_joined(bits).shape), source.bits(*_joined(tables).shape)
    ends = np.cumsum([len(part) for part in bits])[:-1]

    def apart(rows: Bits, table: Bits) -> Bits:
        pairs = zip(np.split(rows, ends), np.split(table, ends))
        return np.stack([_mixed(part, codes, width) for part, codes in pairs])

    joint = source.given_bits((len(bits), width, rho.shape[1]), lambda: apart(rho, turn))
    hidden, hidden_table = _joined(bits) ^ rho, _joined(tables) ^ turn
    theirs = yield [hidden, hidden_table]
    first, second = hidden ^ theirs[0], hidden_table ^ theirs[1]
    own = turn ^ second if source.number == 0 else turn
    return list(joint ^ apart(first, own) ^ apart(rho, second))


def _joined(parts: Sequence[Bits]) -> Bits:
    return np.concatenate(list(parts))


def _mixed(bits: Bits, table: Bits, width: int) -> Bits:
    """In the clear."""
    chosen = np.unpackbits(table, axis=1, count=width).astype(bool)
    nothing = np.zeros((1, bits.shape[1]), np.uint8)
    return np.stack([np.bitwise_xor.reduce(np.concatenate([nothing, bits[column]]), axis=0) for column in chosen.T])


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """A function of numbers of few bits, modulo their range: constant on cells of 2^low numbers, 64 cells or more.

    Its value is a sum of whole numbers (a row a cell, a column a part, each of so many bits, at most 15) times weights.
    """

    values: NDArray[np.uint16]
    bits: tuple[int, ...]
    weights: Ring
    low: int

    @property
    def cells(self) -> int:
        return len(self.values)

    def at(self, numbers: Ring) -> Ring:
        """In the clear."""
        cell = (numbers >> np.uint64(self.low)) % np.uint64(self.cells)
        return np.asarray((self.values[cell].astype(np.uint64) * self.weights).sum(axis=1, dtype=np.uint64))

    @cached_property
    def seen(self) -> Ring:
        """Bits of all parts x cells c x words: in the place j, the bit of the value of the cell c - j."""
        cell = np.arange(self.cells)
        turned = self.values[(cell[:, None] - cell[None]) % self.cells]
        bits = [(turned[:, :, part] >> k) & 1 for part, size in enumerate(self.bits) for k in range(size)]
        return np.stack([np.packbits(bit.astype(np.uint8), axis=1).view(np.uint64) for bit in bits])

    def read(self, spots: Ring, cells: NDArray[np.int64]) -> Bits:
        """Shares of the bits of the values (bits x rows, packed) from shares of a bit a cell (rows x words)."""
        found = []
        for table in self.seen:
            word = np.bitwise_xor.reduce(spots & table[cells], axis=1)
            for half in (32, 16, 8, 4, 2, 1):
                word = word ^ (word >> np.uint64(half))
            found.append(np.packbits((word & np.uint64(1)).astype(np.uint8)))
        return np.stack(found)

    def joined(self, bits: Words) -> Words:
        """Numbers of the parts from numbers of their bits (bits x rows)."""
        ends = np.cumsum((0, *self.bits)).tolist()
        return np.stack([
            sum((bits[at + k] << bits.dtype.type(k) for k in range(size)), np.zeros_like(bits[0]))
            for at, size in zip(ends, self.bits)
        ])  # fmt: skip


def looked_up(source: Source, numbers: Words, steps: Steps) -> Program[Ring]:
    """Shares of the function's values, from shares of numbers modulo cells x 2^low; five rounds."""
    count, cells, low = len(numbers), steps.cells, np.uint64(steps.low)
    inside = np.uint64(cells * 2**steps.low - 1)
    r = source.words((count,)) & inside

    def spot() -> Bits:
        byte, bit = np.divmod((r >> low).astype(np.int64), 8)
        out = np.zeros((count, cells // 8), dtype=np.uint8)
        out[np.arange(count), byte] = 128 >> bit
        return out

    spots = source.given_bits((count, cells // 8), spot)
    kind = np.uint16 if inside < 2**16 else np.uint32
    hidden = ((numbers.astype(np.uint64) + r) & inside).astype(kind)
    (theirs,) = yield [hidden]
    c = (hidden.astype(np.uint64) + theirs.astype(np.uint64)) & inside
    borrow = yield from smaller(source, c[:, None], r[:, None], steps.low)
    cell, words = (c >> low).astype(np.int64), np.ascontiguousarray(spots).view(np.uint64)
    here = steps.read(words, cell)
    other = here ^ steps.read(words, (cell - 1) % cells)
    size = len(here)
    turned = yield from conjunctions(source, [*other[:, None], borrow], [(k, size) for k in range(size)])
    bits = yield from as_numbers(source, here ^ np.concatenate(turned), count, np.uint16)
    parts = yield from lengthened(source, steps.joined(bits).astype(np.uint16))
    return np.asarray((parts * steps.weights[:, None]).sum(axis=0, dtype=np.uint64))
