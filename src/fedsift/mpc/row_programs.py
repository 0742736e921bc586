"""Programs on shares of one number or bit a row, for long tables: openings, bits times numbers, tables looked up.

Written as those of ``comparing.py`` (a generator that runs at both parties and at the dealer), in machine words: bits
by exclusive or, eight to a byte, numbers modulo 2^64, or 2^32 and 2^16 where that is enough. What is opened carries a
fresh mask of which neither party has more than a share.

**A bit times a number** (``scaled``). With e = b ^ rho and E = x - V opened, b x = (e + (1 - 2 e) rho)(E + V): the
dealer gives shares of rho and of rho V.

**A table** (``looked_up``; after Ishai et al. 2013, one-time truth tables). A number x of few bits is opened as
c = x + r, r known to the dealer alone, which gives shares of the table turned by r. Here the table has a line a cell,
alpha + beta (place in the cell): given r the value is linear in the lower bits of c as well, but for the borrow from
below, which is a shared bit (compared in two small tables) that chooses between two neighbouring cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.mpc.comparing import Program, Source, conjunctions
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
    """Shares of bits (rows x bytes, ``count`` bits each) times opened numbers, and of the bits as numbers; one round.

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
    """Shares of shared numbers where a shared bit (one row of bytes) is set, else of zero; two rounds."""
    seen = yield from opened(source, numbers)
    product, _ = yield from scaled(source, bits, len(numbers), seen)
    return product[0]


@dataclass(frozen=True)
class Lines:
    """A function of numbers of few bits, modulo their range: a line a cell, both in 64-bit words.

    The upper bits of a number are its cell, counted from zero upwards (cells of negative numbers are the last ones); in
    the cell ``j`` the value is ``start[j] + slope[j] (lower bits)``.
    """

    start: Ring
    slope: Ring
    upper: int  # bits of the second-level comparison: the lower bits are ``upper + under``
    under: int

    @property
    def low(self) -> int:
        return self.upper + self.under

    def at(self, numbers: Ring) -> Ring:
        """In the clear."""
        cell = (numbers >> np.uint64(self.low)) % np.uint64(len(self.start))
        return self.start[cell] + self.slope[cell] * (numbers & np.uint64(2**self.low - 1))


def looked_up(source: Source, numbers: Words, lines: Lines) -> Program[Ring]:
    """Shares of the function's values, from shares of numbers modulo cells x 2^low; four rounds."""
    count, cells, low = len(numbers), len(lines.start), np.uint64(lines.low)
    inside = np.uint64(cells * 2**lines.low - 1)
    r = source.words((count,)) & inside
    below = r & np.uint64(2**lines.low - 1)

    def turned() -> NDArray[np.int64]:
        return (np.arange(cells)[None] - (r >> low).astype(np.int64)[:, None]) % cells

    start = source.given((count, cells), lambda: lines.start[turned()] - lines.slope[turned()] * below[:, None])
    slope = source.given((count, cells), lambda: lines.slope[turned()])
    kind = np.uint16 if inside < 2**16 else np.uint32
    hidden = ((numbers.astype(np.uint64) + r) & inside).astype(kind)
    (theirs,) = yield [hidden]
    c = (hidden.astype(np.uint64) + theirs.astype(np.uint64)) & inside
    place, cell, every = c & np.uint64(2**lines.low - 1), (c >> low).astype(np.int64), np.arange(count)
    before = (cell - 1) % cells
    here = start[every, cell] + slope[every, cell] * place
    other = start[every, before] + slope[every, before] * (place + np.uint64(2**lines.low))
    borrow = yield from _borrows(source, place, below, lines)
    return here + (yield from selected(source, borrow, other - here))


def _borrows(source: Source, place: Ring, below: Ring, lines: Lines) -> Program[Bits]:
    """Shares of whether numbers in the open are below numbers that the dealer knows: two digits, one round."""
    under = np.uint64(lines.under)
    high, low = below >> under, below & np.uint64(2**lines.under - 1)
    tops, ends = np.arange(2**lines.upper, dtype=np.uint64), np.arange(2**lines.under, dtype=np.uint64)
    less = _at(_table(source, high, tops, equal=False), place >> under)
    same = _at(_table(source, high, tops, equal=True), place >> under)
    less_below = _at(_table(source, low, ends, equal=False), place & np.uint64(2**lines.under - 1))
    (both,) = yield from conjunctions(source, [same, less_below], [(0, 1)])
    return less ^ both


def _table(source: Source, digit: Ring, values: Ring, *, equal: bool) -> Bits:
    """Shares, packed, of whether each value is below (or equal to) the dealer's digit of each row."""
    shape = (len(digit), -(-len(values) // 8))
    told = np.equal if equal else np.less
    return source.given_bits(shape, lambda: np.packbits(told(values[None], digit[:, None]), axis=1))


def _at(table: Bits, places: Ring) -> Bits:
    """One bit of every row, packed in a row."""
    byte = table[np.arange(len(table)), (places >> np.uint64(3)).astype(np.int64)]
    return np.packbits((byte >> (7 - (places & np.uint64(7))).astype(np.uint8)) & 1)[None]
