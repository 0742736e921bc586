"""How good scores are that nobody sees: measures of a model, computed by two parties on shares of its scores.

The label holder (party 0) and another party (party 1) have shares of the score of each row, modulo 2^64 in fixed point;
the label holder has the labels. Who sees the score of a row knows, where the other party has one column, the bin that
the row is in, and of more columns more with every model. So only the figure itself is opened.

**Ranks** are in ``ranking.py``: rows are sorted on shares, ties count half, and the area is exact.

**Classes**: which class is predicted follows from signs of differences; right rows are counted on shares.

**Errors of numbers** are squared or made positive in the wide ring and added up: exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsift.mpc.comparing import Program, Source, Word, chosen, conjunctions, either, negative, products
from fedsift.mpc.dealer import Bits
from fedsift.mpc.ring import Ring
from fedsift.mpc.wide import Wide, minus, shifted, widen


def word_for(rows: int) -> Word:
    """Counts and products of two of them fit into this."""
    return np.uint32 if rows < 2**16 else np.uint64


def padded(numbers: Ring) -> Ring:
    """Whole bytes of bits, so that parts of a list can be told apart when packed."""
    out = np.zeros(-(-len(numbers) // 8) * 8, dtype=np.uint64)
    out[: len(numbers)] = numbers
    return out


# --- counts ----------------------------------------------------------------------------------------------------------


def counted(source: Source, bits: Bits, count: int, word: Word) -> Program[NDArray[np.unsignedinteger]]:
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
