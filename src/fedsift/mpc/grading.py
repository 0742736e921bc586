"""How good scores are that nobody sees: measures of a model, computed by two parties on shares of its scores.

The label holder (party 0) and another party (party 1) have shares of the score of each row, modulo 2^64 in fixed point;
the label holder has the labels. Who sees the score of a row knows, where the other party has one column, the bin that
the row is in, and of more columns more with every model. So only the figure itself is opened.

**Ranks by cuts.** Whether a score is above each of a fixed, even grid of cuts is read off the bits of the score: the
carry from below the grid and two signs (beyond the ends) by ``negative``, the few bits of the grid by an adder, and
from these, two bits a round, one bit a cut. Bits are counted over all rows and over rows of the class, and of these
counts, still shares, the area under the curve is a sum of products (two rows of one cell count half).

**What the grid costs.** Only pairs of rows of both classes within one cell are judged as ties: the figure is off by at
most half of their share, and by far less as a rule: within a cell of width h the classes hardly differ, so the error is
of second order in h. With 256 cells over four to eight deviations of the scores to each side it stays below 3e-4
(tests/test_grading.py).

**Errors of numbers** are squared or made positive in the wide ring and added up: exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.mpc.comparing import Program, Source, Word, chosen, conjunctions, either, negative, products
from fedsift.mpc.dealer import Bits
from fedsift.mpc.ring import Ring
from fedsift.mpc.wide import Wide, minus, shifted, widen

MOST_CELLS, LEAST_CELLS = 256, 64
_ROOM = 2**22  # rows x cells of one figure, where the rows leave a choice
_ONE = np.uint64(1)
#: The least and the largest reach of a grid.
REACHES = (-10, 10)


@dataclass(frozen=True)
class Grid:
    """Even cells between -2^reach and 2^reach of scores with ``fraction`` bits behind the point."""

    fraction: int
    reach: int
    bits: int  # of the number of cells

    @classmethod
    def of(cls, rows: int, fraction: int, reach: int) -> Grid:
        cells = MOST_CELLS
        while cells > LEAST_CELLS and rows * cells > _ROOM:
            cells //= 4
        return cls(fraction, reach, cells.bit_length() - 1)

    @classmethod
    def reaching(cls, deviation: float) -> int:
        """The reach that leaves four to eight deviations to each side."""
        return int(np.clip(np.ceil(np.log2(4.0 * max(deviation, 1e-9))), *REACHES))

    @property
    def cells(self) -> int:
        return int(2**self.bits)

    @property
    def low(self) -> int:
        """Bits of a score below those of the grid."""
        return self.fraction + self.reach + 1 - self.bits

    def cell(self, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """In the open, for an oracle: the number of cuts that each score (in fixed point) is above."""
        return np.clip((scores - 1 + (1 << (self.fraction + self.reach))) >> self.low, 0, self.cells - 1)


def word_for(rows: int) -> Word:
    """Counts and products of two of them fit into this."""
    return np.uint32 if rows < 2**16 else np.uint64


# --- bits of a score -------------------------------------------------------------------------------------------------


def above_cuts(source: Source, scores: Ring, grid: Grid) -> Program[Bits]:
    """Shares of whether each score is above each cut from the second cell on: cells - 1 rows of packed bits."""
    rows = len(scores)
    moved = padded(scores)
    if source.number == 0:
        moved = moved + np.uint64((1 << (grid.fraction + grid.reach)) - 1)
    carry, under, over = yield from _ends(source, moved, grid)
    own = np.stack([np.packbits(((moved >> np.uint64(grid.low + j)) & _ONE).astype(bool)) for j in range(grid.bits)])
    bits = yield from _sum_bits(source, own, carry)
    inside = yield from _clipped(source, bits, under, over)
    above = yield from _thermometer(source, inside)
    return above[:, : -(-rows // 8)]


def padded(numbers: Ring) -> Ring:
    """Whole bytes of bits, so that parts of a list can be told apart when packed."""
    out = np.zeros(-(-len(numbers) // 8) * 8, dtype=np.uint64)
    out[: len(numbers)] = numbers
    return out


def _ends(source: Source, moved: Ring, grid: Grid) -> Program[list[Bits]]:
    """Shares of the carry into the grid's bits, of being below the grid, and of being above it."""
    below = moved << np.uint64(63 - grid.low)  # without its highest bit: the carry stands there in the sum
    below = below & np.uint64(2**63 - 1)
    top = np.uint64((1 << (grid.fraction + grid.reach + 1)) - 1) if source.number == 0 else np.uint64(0)
    signs = yield from negative(source, np.concatenate([below, moved, top - moved])[:, None], bits=64)
    return list(signs.reshape(3, 1, -1))


def _sum_bits(source: Source, own: Bits, carry: Bits) -> Program[Bits]:
    """Shares of the bits (lowest first) of the sum of both parties' own bits and a shared carry; four bits a round."""
    nothing = np.zeros_like(own)
    first, second = (nothing, own) if source.number else (own, nothing)
    (both,) = yield from conjunctions(source, [first, second], [(0, 1)])
    carries = [carry]
    for start in range(0, len(own) - 1, 4):
        width = min(4, len(own) - 1 - start)
        inputs = [
            carries[-1],
            *(both[start + j][None] for j in range(width)),
            *(own[start + j][None] for j in range(width)),
        ]
        wanted = [(k, *(1 + width + i for i in range(k, j + 1))) for j in range(width) for k in range(j + 1)]
        found = yield from conjunctions(source, inputs, wanted)
        joint = dict(zip([(j, k) for j in range(width) for k in range(j + 1)], found))
        for j in range(width):
            total = both[start + j][None]
            for k in range(j + 1):
                total = total ^ joint[j, k]
            carries.append(total)
    return own ^ np.concatenate(carries)


def _clipped(source: Source, bits: Bits, under: Bits, over: Bits) -> Program[Bits]:
    """All zeros below the grid, all ones above it."""
    all_ones = np.uint8(255 if source.number == 0 else 0)
    inputs = [*(bit[None] for bit in bits), under ^ all_ones, over ^ all_ones]
    found = yield from conjunctions(source, inputs, [(j, len(bits), len(bits) + 1) for j in range(len(bits))])
    return np.concatenate(found) ^ over


def _thermometer(source: Source, bits: Bits) -> Program[Bits]:
    """From the bits of a number (lowest first, an even number of them): whether it is at least 1, 2, 3, ..."""
    low, high = bits[0], bits[1]
    (both,) = yield from conjunctions(source, [low[None], high[None]], [(0, 1)])
    marks = np.concatenate([both ^ low ^ high, high[None], both])
    for j in range(2, len(bits), 2):
        low, high = bits[j], bits[j + 1]
        inputs = [*(mark[None] for mark in marks), low[None], high[None]]
        n, a, b = len(marks), len(marks), len(marks) + 1
        wanted = [(a, b), *((i, a) for i in range(n)), *((i, b) for i in range(n)), *((i, a, b) for i in range(n))]
        found = [part[0] for part in (yield from conjunctions(source, inputs, wanted))]
        joint, with_low, with_high, with_both = (
            found[0],
            *(np.array(found[1 + k * n : 1 + (k + 1) * n]) for k in range(3)),
        )
        either_one = low ^ high ^ joint
        # at least i, one quarter of the range after the other; between them the quarter's own mark
        first = marks ^ either_one ^ (with_low ^ with_high ^ with_both)
        second = high ^ (with_low ^ with_both)
        third = joint ^ (with_high ^ with_both)
        marks = np.concatenate([first, either_one[None], second, high[None], third, joint[None], with_both])
    return marks


# --- counts ----------------------------------------------------------------------------------------------------------


def counted(source: Source, bits: Bits, count: int, word: Word) -> Program[NDArray[Any]]:
    """Shares of how many of the first ``count`` bits of each row are set."""
    mask = source.bits(*bits.shape)
    numbers = source.as_words(mask, count, word)
    hidden = bits ^ mask
    (theirs,) = yield [hidden]
    shares = np.zeros(len(bits), dtype=word)
    for place, opened in enumerate(hidden ^ theirs):  # a bit is e + (1 - 2 e) m, where e is opened and m masks it
        flipped = np.unpackbits(opened, count=count).astype(bool)
        signed = np.where(flipped, np.zeros_like(numbers[place]) - numbers[place], numbers[place])
        shares[place] = signed.sum(dtype=word)
        if source.number == 0:
            shares[place : place + 1] += word(flipped.sum())
    return shares


def _word_products(source: Source, first: NDArray[Any], second: NDArray[Any]) -> Program[NDArray[Any]]:
    word = first.dtype.type
    u, v = source.words(first.shape, word), source.words(second.shape, word)
    product = source.word_product(u, v)
    hidden = [first - u, second - v]
    theirs = yield hidden
    d, e = hidden[0] + theirs[0], hidden[1] + theirs[1]
    share = product + d * v + u * e
    return share + d * e if source.number == 0 else share


def with_label(source: Source, bits: Bits, label: Bits) -> Program[Bits]:
    """Shares of each row of bits where the label's bit is set too."""
    last = len(bits)
    inputs = [*(row[None] for row in bits), label[None]]
    return np.concatenate((yield from conjunctions(source, inputs, [(i, last) for i in range(last)])))


def concordant(source: Source, above: Bits, label: Bits, rows: int, members: int, word: Word) -> Program[NDArray[Any]]:
    """A share of twice the number of pairs of a row of the class and another in which the first has the higher cell
    (pairs of one cell count once). ``members`` is the label holder's: how many rows are of the class."""
    joint = yield from with_label(source, above, label)
    counts = yield from counted(source, np.concatenate([above, joint]), rows, word)
    everybody, inside = (np.zeros(len(above) + 2, dtype=word) for _ in range(2))
    everybody[1:-1], inside[1:-1] = counts[: len(above)], counts[len(above) :]
    if source.number == 0:
        everybody[0], inside[0] = rows, members
    others = everybody - inside
    pairs = yield from _word_products(
        source, inside[:-1] - inside[1:], others[:1] + others[:1] - others[:-1] - others[1:]
    )
    return pairs.sum(dtype=word, keepdims=True)


# --- the likeliest class ---------------------------------------------------------------------------------------------


def likeliest(source: Source, scores: Ring) -> Program[Bits]:
    """Shares of which class is predicted: classes x packed rows. One score is that of the second of two classes."""
    outputs = scores.shape[1]
    if outputs == 1:
        less = yield from negative(source, (np.uint64(0) - padded(scores[:, 0]))[:, None], bits=64)
        return np.concatenate([_inverted(source, less), less])
    pairs = [(c, d) for c in range(outputs) for d in range(c + 1, outputs)]
    gaps = np.concatenate([padded(scores[:, c] - scores[:, d]) for c, d in pairs])
    less = yield from negative(source, gaps[:, None], bits=64)
    beaten = dict(zip(pairs, less.reshape(len(pairs), 1, -1)))
    wins = [
        [beaten[d, c] if d < c else _inverted(source, beaten[c, d]) for d in range(outputs) if d != c]
        for c in range(outputs)
    ]
    return np.concatenate((yield from _all_of(source, wins)))


def _inverted(source: Source, bits: Bits) -> Bits:
    return ~bits if source.number == 0 else bits


def _all_of(source: Source, lists: list[list[Bits]]) -> Program[list[Bits]]:
    """The AND of each list, four at a time."""
    while len(lists[0]) > 1:
        inputs = [bits for each in lists for bits in each]
        size = len(lists[0])
        groups = [
            tuple(range(k * size + i, k * size + min(i + 4, size)))
            for k in range(len(lists))
            for i in range(0, size, 4)
        ]
        found = yield from conjunctions(source, inputs, groups)
        each = len(groups) // len(lists)
        lists = [found[k * each : (k + 1) * each] for k in range(len(lists))]
    return [each[0] for each in lists]


# --- errors of a number ----------------------------------------------------------------------------------------------


def lifted(source: Source, numbers: Ring) -> Program[Wide]:
    """The same numbers (below 2^62 in size) in the wide ring: shares wrap just where one has its highest bit set."""
    offset = np.uint64(2**62 if source.number == 0 else 0)
    moved = numbers + offset
    wrapped = yield from either(source, (moved >> np.uint64(63)).astype(bool))
    return minus(minus(widen(moved), shifted(wrapped, 64)), widen(np.full(len(moved), offset)))


def squares(source: Source, numbers: Ring) -> Program[Wide]:
    """Shares of the squares, in the wide ring."""
    values = yield from lifted(source, numbers)
    (found,) = yield from products(source, [(values, values)])
    return found


def sizes(source: Source, numbers: Ring) -> Program[Wide]:
    """Shares of the numbers without their sign, in the wide ring."""
    values = yield from lifted(source, numbers)
    signs = yield from negative(source, numbers[:, None], bits=64)
    (found,) = yield from chosen(source, signs, [minus(np.zeros_like(values), values)], [values])
    return found
