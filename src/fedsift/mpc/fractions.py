"""Fractions on shares: numbers that are opened under a mask once and multiplied often, and the largest of a group.

Programs as those of ``comparing.py``. A number x that was opened as x - u (``Hidden``) can be multiplied with any other
such number, and with a shared bit, without being sent again: the dealer gives shares of the products of the masks.
Numbers may travel in fewer 32-bit parts than they are computed in (``Source.parts``): everything is then right modulo
2^(32 parts), and whatever stands above means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.mpc.comparing import Flags, Program, Source, negative
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

    def where(self, these: Flags) -> Fractions:
        """Those of some places (groups x places), as one list."""
        return Fractions(*(part[these] for part in self.parts()))


def largest(source: Source, found: Fractions, sizes: Places | None = None) -> Program[Fractions]:
    """The largest fraction of every group (groups x 1), the first of equal ones. Exact where over x under is below
    2^(32 parts - 2) (``Source.parts``). ``sizes``: how many of its places each group uses (the first ones; at least
    one), where not all do: the rest is not compared."""
    width = found.over.shape[1]
    used = np.arange(width) < (np.full(len(found.over), width) if sizes is None else sizes)[:, None]
    while width > 1:
        even = width - width % 2
        left, right, rest = found[:even:2], found[1:even:2], found[even:]
        both = used[:, 1:even:2]
        best = yield from _better(source, left.where(both), right.where(both))
        kept = [part.copy() for part in left.parts()]
        for part, better in zip(kept, best):
            part[both] = better
        found = Fractions(*(np.concatenate([part, more], axis=1) for part, more in zip(kept, rest.parts())))
        used = np.concatenate([used[:, :even:2], used[:, even:]], axis=1)
        width = found.over.shape[1]
    return found


def _better(source: Source, left: Fractions, right: Fractions) -> Program[list[NDArray[np.uint64]]]:
    """Of two lists the right one where it is larger, else the left one; lists of the four parts."""
    wide = [left.over, left.under, right.over, right.under]
    over, under, other_over, other_under = yield from hidden(source, wide)
    here, there = multiplied(source, over, other_under), multiplied(source, other_over, under)
    lost = yield from negative(source, minus(here, there), bits=32 * source.parts)
    words = [(left.label, right.label), (left.sums, right.sums)]
    differences = [other_over.minus(over), other_under.minus(under)]
    added, added_words = yield from _where(source, lost, differences, [b - a for a, b in words])
    mine = [add(part, more) for part, more in zip(wide[:2], added)]
    return [*mine, *(a + more for (a, _), more in zip(words, added_words))]


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
