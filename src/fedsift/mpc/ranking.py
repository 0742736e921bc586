"""How many pairs of rows scores put into the right order, exactly, by two parties on shares: nobody sees the order.

The area under a curve needs the place of each row among all, ties counted half. So the rows are sorted by their scores,
on shares, and of each row, now at a place that nobody can trace to it, the first and the last place of those with
the same score are found.

**Sorting** goes by digits of the score, the lowest first (radix sort; on shares after Hamada et al. 2014 and Asharov et
al. 2022). Of each digit: bits to indicators of its values, indicators to numbers, whose sums over the rows before tell
where each row goes. These places are opened after each party has shuffled the rows under an order of its own that the
other does not know: what is opened is a permutation, uniform whatever the scores are. Then shares are put there.

**Ties**: neighbours with equal scores are found by their bits, and the ends of each run of equals are passed on over
1, 2, 4, ... places. A row of the other class at places s to e counts n - e - s of twice the pairs, beside members x
others.

**What counts as equal**: a score's bits from ``lowest_bit`` on, 2^-26 and less of the deviation of the scores. Rows
with the same numbers in the model's columns have the same score to the last bit, and are ties; different scores that
close together are rare (in a test, none), so that the area is that of ``sklearn`` to 1e-6 (tests/test_grading.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedsift.errors import SecurityError
from fedsift.mpc.comparing import Program, Source, Word, conjunctions, negative
from fedsift.mpc.dealer import Bits
from fedsift.mpc.ring import Ring

Words = NDArray[np.unsignedinteger]
#: The least and the largest reach (the power of two that is four to eight deviations of the scores).
REACHES = (-10, 10)
_FINE = 29  # bits below a reach that scores are told apart by
_MANY = 2**17  # rows from which digits are shorter: fewer bytes, more rounds
_TOP = np.uint64(1 << 63)
_ONE = np.uint64(1)


def reach_of(deviation: float) -> int:
    """Which power of two is four to eight deviations."""
    return int(np.clip(np.ceil(np.log2(4.0 * max(deviation, 1e-9))), *REACHES))


def lowest_bit(fraction: int, reach: int) -> int:
    """The bit of a score (with ``fraction`` bits behind the point) from which on it is told apart from others."""
    return max(0, fraction + reach - _FINE) // 4 * 4


def twice_the_pairs(
    source: Source, scores: Ring, label: Bits, members: Sequence[int], low: int, word: Word
) -> Program[Words]:
    """Shares of twice the number of pairs of a row of the class and another in which the first has the higher score.

    ``scores``: blocks x rows, each block sorted by itself. ``label`` (packed, all blocks behind each other) and
    ``members`` of each block are the label holder's.
    """
    blocks, rows = scores.shape
    keys = yield from score_bits(source, scores.reshape(-1), low)
    inside = np.unpackbits(label, count=blocks * rows)[:, None]
    bits = yield from _sorted(source, np.concatenate([keys, inside], axis=1), blocks, rows)
    first, last = yield from _ties(source, bits[:, :-1], blocks, rows, word)
    worth = np.zeros_like(first) - first - last
    if source.number == 0:
        worth += word(rows)
    mine = yield from _where(source, bits[:, -1], worth)
    counted: Words = (worth - mine).reshape(blocks, rows).sum(axis=1, dtype=word)
    if source.number == 0:
        counted += np.array([member * (rows - member) for member in members], dtype=word)
    return counted


# --- bits of scores --------------------------------------------------------------------------------------------------


def score_bits(source: Source, scores: Ring, low: int) -> Program[Bits]:
    """Shares of the bits of each score from ``low`` on, the lowest first, in an order of scores: rows x bits."""
    rows = len(scores)
    moved = np.zeros(-(-rows // 8) * 8, dtype=np.uint64)
    moved[:rows] = scores + _TOP if source.number == 0 else scores
    carry = np.zeros((1, len(moved) // 8), dtype=np.uint8)
    if low:  # of the bits below: where they overflow, the highest bit of their sum is set
        below = (moved & np.uint64((1 << low) - 1)) << np.uint64(63 - low)
        carry = yield from negative(source, below[:, None], bits=64)
    own = np.stack([np.packbits(((moved >> np.uint64(place)) & _ONE).astype(bool)) for place in range(low, 64)])
    bits = yield from _sum_bits(source, own, carry)
    return np.unpackbits(bits, axis=1, count=rows).T


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


# --- sorting ---------------------------------------------------------------------------------------------------------


def _sorted(source: Source, bits: Bits, blocks: int, rows: int) -> Program[Bits]:
    """The rows (bits, of which all but the last are the score) of each block in the order of their scores."""
    digit = 4 if len(bits) <= _MANY else 2
    for start in range(0, bits.shape[1] - 1, digit):
        planes = np.packbits(bits[:, start : start + digit].T, axis=1)
        places = yield from _places(source, planes, blocks, rows)
        for owner in (0, 1):
            bits, places = yield from _shuffled(source, owner, bits, places)
        (theirs,) = yield [places]
        bits = _put(source, bits, places + theirs)
    return bits


def _places(source: Source, planes: Bits, blocks: int, rows: int) -> Program[Words]:
    """Shares of where each row goes, by one digit (its bits), rows of the same digit in their order."""
    total, word = blocks * rows, np.uint32
    marks = yield from _indicators(source, planes)
    mask = source.bits(*marks.shape)
    numbers = source.as_words(mask, total, word)
    hidden = marks ^ mask
    (theirs,) = yield [hidden]
    opened = np.unpackbits(hidden ^ theirs, axis=1, count=total).astype(bool)
    shares = np.where(opened, word(0) - numbers, numbers)  # a mark is e + (1 - 2 e) m, e in the open and m its mask
    if source.number == 0:
        shares += opened
    inside = shares.reshape(-1, blocks, rows)
    before = np.cumsum(inside, axis=2, dtype=word) - inside
    sums = inside.sum(axis=2, dtype=word)
    place = before + (np.cumsum(sums, axis=0, dtype=word) - sums)[:, :, None]
    if source.number == 0:
        place += (np.arange(blocks, dtype=word) * word(rows))[None, :, None]
    found = yield from _times(source, opened, mask, numbers, place.reshape(-1, total))
    summed: Words = found.sum(axis=0, dtype=word)
    return summed


def _indicators(source: Source, planes: Bits) -> Program[Bits]:
    """Shares of whether the bits are those of 0, of 1, of 2, ...: a row each."""
    places = range(len(planes))
    groups = [group for size in range(2, len(planes) + 1) for group in combinations(places, size)]
    found = yield from conjunctions(source, [plane[None] for plane in planes], groups)
    all_of: dict[tuple[int, ...], Bits] = {(): np.full_like(planes[0], 255 if source.number == 0 else 0)}
    all_of.update({(place,): planes[place] for place in places})
    all_of.update(zip(groups, (bits[0] for bits in found)))
    marks = []
    for value in range(2 ** len(planes)):
        ones = {place for place in places if value >> place & 1}
        mark = np.zeros_like(planes[0])
        for group, bits in all_of.items():
            if ones <= set(group):
                mark = mark ^ bits
        marks.append(mark)
    return np.array(marks)


def _times(source: Source, opened: Bits, mask: Bits, numbers: Words, values: Words) -> Program[Words]:
    """Shares of bits times values; a bit is masked by ``mask`` (as ``numbers`` too), and what is left is ``opened``."""
    word = values.dtype.type
    blind = source.words(values.shape, word)
    count = values.shape[-1]
    joint = source.given(
        values.shape, lambda: np.unpackbits(mask, axis=-1, count=count).reshape(values.shape).astype(word) * blind, word
    )
    hidden = values - blind
    (theirs,) = yield [hidden]
    product = (hidden + theirs) * numbers + joint  # of the mask and the value
    found: Words = np.where(opened, values - product, product)
    return found


def _shuffled(source: Source, owner: int, bits: Bits, numbers: Words) -> Program[tuple[Bits, Words]]:
    """Shares of the same rows in an order that one of the two parties draws and the other does not know.

    The other sends its shares under a mask; the dealer gives both shares of the mask in the new order.
    """
    order = source.order(owner, len(bits))
    packed = np.packbits(bits, axis=1)
    mask = source.own(1 - owner, *packed.shape)
    blind = source.own_words(1 - owner, numbers.shape, numbers.dtype.type)
    moved = source.given_bits(packed.shape, lambda: mask[order])
    words = source.given(numbers.shape, lambda: blind[order], numbers.dtype.type)
    mine = source.number == owner
    theirs = yield [np.zeros_like(packed), np.zeros_like(numbers)] if mine else [packed ^ mask, numbers - blind]
    if mine:
        moved, words = moved ^ (packed ^ theirs[0])[order], words + (numbers + theirs[1])[order]
    return np.unpackbits(moved, axis=1, count=bits.shape[1]), words


def _put(source: Source, bits: Bits, places: Words) -> Bits:
    """The rows at their places (the dealer, who computes on nothing, leaves them where they are)."""
    if source.number > 1:
        return bits
    if places.max(initial=0) >= len(bits) or (np.bincount(places, minlength=len(bits)) != 1).any():
        raise SecurityError(f"party {source.dealt.owner!r}: what was opened is no order of the rows")
    out = np.empty_like(bits)
    out[places] = bits
    return out


# --- ties ------------------------------------------------------------------------------------------------------------


def _ties(source: Source, keys: Bits, blocks: int, rows: int, word: Word) -> Program[tuple[Words, Words]]:
    """Shares of the first place of the scores that are equal to each row's, in its block, and of that after the last.

    A run of equals begins where a score differs from that before it; that place is passed on to those behind it.
    """
    total = blocks * rows
    same = keys ^ np.roll(keys, 1, axis=0)
    if source.number == 0:
        same = same ^ np.uint8(1)
    alike = yield from _all(source, list(np.packbits(same.T, axis=1)[:, None]))
    starts = np.unpackbits(alike[0], count=total)
    if source.number == 0:
        starts = starts ^ np.uint8(1)
    starts[::rows] = 1 if source.number == 0 else 0
    ends = np.roll(starts, -1)
    known: Words = np.tile(np.arange(rows + 1, dtype=word)[:-1], blocks)
    after: Words = np.tile(np.arange(rows + 1, dtype=word)[1:], blocks)
    values = np.concatenate([known, after[::-1]])
    flags, place = np.concatenate([starts, ends[::-1]]), np.arange(2 * total) % total
    if source.number == 1:
        values = np.zeros_like(values)
    step = 1
    while step < rows:
        back = np.arange(2 * total) - np.where(place >= step, step, 0)
        flags, values = yield from _passed_on(source, flags, values, back)
        step *= 2
    return values[:total], values[total:][::-1]


def _all(source: Source, bits: list[Bits]) -> Program[Bits]:
    """Whether all of them are set, four at a time."""
    while len(bits) > 1:
        groups = [tuple(range(at, min(at + 4, len(bits)))) for at in range(0, len(bits), 4)]
        bits = yield from conjunctions(source, bits, groups)
    return bits[0]


def _passed_on(source: Source, flags: Bits, values: Words, back: NDArray[np.int64]) -> Program[tuple[Bits, Words]]:
    """Where a flag is not set, the value and the flag of the row at ``back``; one round."""
    count, word = len(flags), values.dtype.type
    packed = np.packbits(flags)[None]
    mask = source.bits(*packed.shape)
    number, blind = source.as_words(mask, count, word)[0], source.words((count,), word)

    def own() -> Bits:
        return np.unpackbits(mask[0], count=count)

    joint = source.given((count,), lambda: own().astype(word) * blind, word)
    pairs = source.given_bits(packed.shape, lambda: np.packbits(own() & own()[back])[None])
    gaps = values - values[back]
    hidden = [packed ^ mask, gaps - blind]
    theirs = yield hidden
    opened = np.unpackbits((hidden[0] ^ theirs[0])[0], count=count)
    product = (hidden[1] + theirs[1]) * number + joint
    kept = values[back] + np.where(opened.astype(bool), gaps - product, product)
    rest = own()
    both = (opened[back] & rest) ^ (opened & rest[back]) ^ np.unpackbits(pairs[0], count=count)
    if source.number == 0:
        both = both ^ (opened & opened[back])
    return flags ^ flags[back] ^ both, kept


def _where(source: Source, bits: Bits, values: Words) -> Program[Words]:
    """Shares of the values where a bit is set, and of nothing elsewhere."""
    count, word = len(bits), values.dtype.type
    packed = np.packbits(bits)[None]
    mask = source.bits(*packed.shape)
    number = source.as_words(mask, count, word)[0]
    hidden = packed ^ mask
    (theirs,) = yield [hidden]
    opened = np.unpackbits((hidden ^ theirs)[0], count=count).astype(bool)
    return (yield from _times(source, opened, mask[0], number, values))
