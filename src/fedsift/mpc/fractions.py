"""Fractions on shares: numbers that are opened under a mask once and multiplied often, and the largest of a group.

Programs as those of ``comparing.py``. A number x that was opened as x - u (``Hidden``) can be multiplied with any other
such number, and with a shared bit, without being sent again: the dealer gives shares of the products of the masks.
Numbers may travel in fewer 32-bit parts than they are computed in (``Source.parts``): everything is then right modulo
2^(32 parts), and whatever stands above means nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.mpc.comparing import Flags, Program, Source, conjunctions, negative
from fedsift.mpc.dealer import Bits
from fedsift.mpc.ring import Ring
from fedsift.mpc.wide import WORDS, Wide, add, minus, narrow, signed, times, where, widened

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Hidden:
    """A list of shared numbers as both parties have it: less a mask, in the open, and a share of the mask."""

    rest: Wide
    mask: Wide

    def at(self, places: Places) -> Hidden:
        return Hidden(self.rest[places], self.mask[places])

    def minus(self, other: Hidden) -> Hidden:
        return Hidden(minus(self.rest, other.rest), minus(self.mask, other.mask))

    def share(self, number: int) -> Wide:
        return add(self.rest, self.mask) if number == 0 else self.mask


def hidden(source: Source, numbers: Sequence[Wide]) -> Program[list[Hidden]]:
    """Open lists of numbers, each under a fresh mask; one round."""
    masks = [source.wide(part.shape[:-1]) for part in numbers]
    mine = [narrow(minus(part, mask), source.parts) for part, mask in zip(numbers, masks)]
    theirs = yield list(mine)
    return [Hidden(add(widened(a), widened(b)), mask) for a, b, mask in zip(mine, theirs, masks)]


def multiplied(source: Source, first: Hidden, second: Hidden) -> Wide:
    """Shares of elementwise products; nothing is sent but the dealer's part."""
    share = add(
        source.product(first.mask, second.mask), times(first.rest, second.mask), times(first.mask, second.rest)
    )  # fmt: skip
    return add(share, times(first.rest, second.rest)) if source.number == 0 else share


def squares_where(source: Source, bits: Bits, numbers: Hidden) -> Program[Wide]:
    """Shares of the squares of numbers where a shared bit (packed) is set, else of zero; one round."""
    count, mask, rest = len(numbers.rest), numbers.mask, numbers.rest
    rho = source.bits(*bits.shape)
    ones, square = source.as_numbers(rho, count), source.product(mask, mask)
    masked, masked_square = source.product(ones, mask), source.product(ones, square)
    mine = bits ^ rho
    (theirs,) = yield [mine]
    flipped = np.unpackbits((mine ^ theirs)[0], count=count).astype(bool)
    twice, public = add(rest, rest), times(rest, rest)
    whole = add(times(twice, mask), square)
    if source.number == 0:
        whole = add(whole, public)
    turned = add(times(ones, public), times(twice, masked), masked_square)  # rho x^2
    return add(where(flipped, whole), signed(flipped, turned))


# --- the largest fraction --------------------------------------------------------------------------------------------


@dataclass
class Fractions:
    """Shares of groups x places of fractions (numerators and positive denominators), and of two words for each."""

    over: Wide
    under: Wide
    label: Ring
    sums: Ring

    @classmethod
    def empty(cls, groups: int, places: int) -> Fractions:
        """Zeros."""
        wide, words = (groups, places, WORDS), (groups, places)
        return cls(*(np.zeros(shape, dtype=np.uint64) for shape in (wide, wide, words, words)))

    def parts(self) -> tuple[Wide, Wide, Ring, Ring]:
        return self.over, self.under, self.label, self.sums

    def __getitem__(self, places: slice) -> Fractions:
        return Fractions(*(part[:, places] for part in self.parts()))

    def padded(self, count: int) -> Fractions:
        """With so many places of zeros more."""
        return Fractions(*(np.pad(part, [(0, 0), (0, count)] + [(0, 0)] * (part.ndim - 2)) for part in self.parts()))

    def where(self, these: Flags) -> Fractions:
        """Those of some places (groups x places), as one list."""
        return Fractions(*(part[these] for part in self.parts()))


#: So few fractions are compared four at a time: their messages cost more than what is in them.
_FEW = 2048


def largest(source: Source, found: Fractions, sizes: Places | None = None) -> Program[Fractions]:
    """The largest fraction of every group (groups x 1), the first of equal ones. Exact where over x under is below
    2^(32 parts - 2) (``Source.parts``). ``sizes``: how many of its places each group uses (the first ones; at least
    one), where not all do: the rest is not compared.

    Of two neighbours the larger one stays; where few are left, of four, each compared with each: twice the comparisons
    in little more than half the rounds.
    """
    width = found.over.shape[1]
    used = np.arange(width) < (np.full(len(found.over), width) if sizes is None else sizes)[:, None]
    while width > 1:
        side = 4 if width > 2 and used.sum() <= _FEW else 2
        missing = -width % side
        used = np.pad(used, ((0, 0), (0, missing)))
        found = yield from _best_of(source, found.padded(missing), used, side)
        used = used[:, ::side]
        width = used.shape[1]
    return found


def _best_of(source: Source, found: Fractions, used: Flags, side: int) -> Program[Fractions]:
    """Of every ``side`` neighbours the largest; those that are used come first, and one alone stays as it is."""
    kept, several = found[::side], used[:, 1::side]
    if not several.any():
        return kept
    lists = [found[place::side].where(several) for place in range(side)]
    there = [used[:, place::side][several] for place in range(side)]
    over = np.concatenate([part.over[flags] for part, flags in zip(lists, there)])
    under = np.concatenate([part.under[flags] for part, flags in zip(lists, there)])
    seen = yield from hidden(source, [over, under])
    counts = [int(flags.sum()) for flags in there]
    places = [np.cumsum(flags) - 1 + sum(counts[:number]) for number, flags in enumerate(there)]
    wins = yield from _winning(source, seen, places, there)
    first = np.concatenate([places[0][flags] for flags in there[1:]])
    differences = [part.at(np.arange(counts[0], len(over))).minus(part.at(first)) for part in seen]
    words = [
        np.concatenate([(part - whole)[flags] for part, flags in zip(parts, there[1:])])
        for whole, parts in (
            (lists[0].label, [part.label for part in lists[1:]]), (lists[0].sums, [part.sums for part in lists[1:]]),
        )
    ]  # fmt: skip
    added, added_words = yield from _where(source, wins, differences, words)
    best, ends = lists[0], np.cumsum(counts[1:])[:-1]
    for part, more in zip((best.over, best.under), added):
        for flags, values in zip(there[1:], np.split(more, ends)):
            part[flags] = add(part[flags], values)
    for word, more in zip((best.label, best.sums), added_words):
        for flags, values in zip(there[1:], np.split(more, ends)):
            word[flags] += values
    kept = Fractions(*(part.copy() for part in kept.parts()))
    for part, better in zip(kept.parts(), best.parts()):
        part[several] = better
    return kept


def _winning(
    source: Source, seen: Sequence[Hidden], places: Sequence[Places], there: Sequence[Flags]
) -> Program[Bits]:  # fmt: skip
    """Shares of whether each neighbour but the first is larger than all before it and no smaller than those after it,
    list after list, where it is used. ``places``: where a list's numbers stand among those that were ``seen``."""
    over, under = seen
    pairs = list(itertools.combinations(range(len(there)), 2))
    left = np.concatenate([places[a][there[b]] for a, b in pairs])
    right = np.concatenate([places[b][there[b]] for _, b in pairs])
    here, other = multiplied(source, over.at(left), under.at(right)), multiplied(source, over.at(right), under.at(left))
    lost = yield from negative(source, minus(here, other), bits=32 * source.parts)
    if len(there) == 2:
        return lost
    bits = np.zeros((len(pairs), len(there[0])), dtype=np.uint8)  # whether b is larger than a; unused ones never are
    ends = np.cumsum([int(there[b].sum()) for _, b in pairs])[:-1]
    for row, (_, b), found in zip(bits, pairs, np.split(np.unpackbits(lost[0], count=len(left)), ends)):
        row[there[b]] = found
    at = {pair: number for number, pair in enumerate(pairs)}
    ab, ac, ad, bc, bd, cd = (at[pair] for pair in pairs)
    wanted = [(ab, bc), (ab, bd), (ab, bc, bd), (ac, bc), (ac, bc, cd), (ad, bd, cd)]
    packed = [row[None] for row in np.packbits(bits, axis=1)]
    b_c, b_d, b_cd, c, c_d, last = yield from conjunctions(source, packed, wanted)
    best = [packed[ab] ^ b_c ^ b_d ^ b_cd, c ^ c_d, last]
    rows = [np.unpackbits(part[0], count=len(flags))[flags] for part, flags in zip(best, there[1:])]
    return np.packbits(np.concatenate(rows))[None]


def _where(
    source: Source, bits: Bits, numbers: Sequence[Hidden], words: Sequence[Ring]
) -> Program[tuple[list[Wide], list[Ring]]]:
    """Shares of opened numbers, and of words, where a shared bit is set, else of zero; one round."""
    count = len(words[0])
    rho = source.bits(*bits.shape)
    ones = source.as_numbers(rho, count)
    low = ones[:, 0]
    joint = [source.product(ones, part.mask) for part in numbers]
    masks = [source.words((count,)) for _ in words]
    word_joint = [source.word_product(low, mask) for mask in masks]
    mine = [bits ^ rho, *(part - mask for part, mask in zip(words, masks))]
    theirs = yield list(mine)
    flipped: Flags = np.unpackbits((mine[0] ^ theirs[0])[0], count=count).astype(bool)
    found = []
    for part, masked in zip(numbers, joint):
        turned = add(times(part.rest, ones), masked)  # rho x
        found.append(add(where(flipped, part.share(source.number)), signed(flipped, turned)))
    found_words = []
    for word, a, b, masked_word in zip(words, mine[1:], theirs[1:], word_joint):
        turned_word = (a + b) * low + masked_word
        found_words.append(np.where(flipped, word - turned_word, turned_word))
    return found, found_words
