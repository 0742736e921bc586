"""Two parties compute on shares with a dealer's randomness: products, signs and choices; nobody sees a number.

A program is written once, as a generator: ``theirs = yield mine`` sends arrays to the other party and gets its own. The
same code runs in three places, which differ by their ``Source`` of randomness alone: at the two parties, where it gives
shares of random numbers, and at the dealer, where it gives the numbers themselves and writes down what does not follow
from a seed (``corrections``, for party 0). The dealer computes on nothing: it is given zeros, and only shapes matter.

Numbers are added modulo 2^192 (``wide.py``), bits by exclusive or, eight to a byte. Everything that is opened carries
a mask of which neither party knows more than a share, used once, so each message is uniform to its receiver whatever
the numbers are (Beaver 1991, products of several bits likewise); the dealer must not see the messages (``pairs.py``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsift.errors import SecurityError
from fedsift.mpc.dealer import Bits, Dealt
from fedsift.mpc.ring import Ring
from fedsift.mpc.wide import BITS, WORDS, Wide, add, minus, signed, times, where, widen

Message = list[np.ndarray]
T = TypeVar("T")
Program = Generator[Message, Message, T]
Flags = NDArray[np.bool_]
Word = type[np.uint32] | type[np.uint64]


# --- randomness ------------------------------------------------------------------------------------------------------


@dataclass
class Source:
    """A party's shares of the dealer's random numbers, in the order in which a program asks for them.

    ``number`` is 0 or 1. Party 0 takes what does not follow from its seed from ``corrections``.
    """

    dealt: Dealt
    purpose: str
    number: int
    drawn: int = 0
    corrections: list[np.ndarray] = field(default_factory=list)

    def wide(self, shape: tuple[int, ...]) -> Wide:
        """A share of uniform numbers."""
        return self._draw((*shape, WORDS))

    def bits(self, rows: int, width: int) -> Bits:
        """A share of uniform bits, so many bytes a row."""
        return self._draw((max(1, -(-rows * width // 8)),)).view(np.uint8)[: rows * width].reshape(rows, width)

    def own(self, owner: int, rows: int, width: int) -> Bits:
        """Uniform bits that one party alone knows; nothing (zeros) to the other."""
        drawn = self.bits(rows, width)
        return drawn if self.number == owner else np.zeros_like(drawn)

    def product(self, first: Wide, second: Wide) -> Wide:
        """A share of the products of random numbers."""
        return self._derived(np.broadcast_shapes(first.shape, second.shape))

    def conjunctions(self, masks: Bits, parts: Sequence[Sequence[int]]) -> Bits:
        """Shares of ANDs of random bits (masks x rows x bytes), one for each part."""
        shape = (len(parts), *masks.shape[1:])
        if self.number == 0:
            return self._next(shape, np.uint8)
        return self.bits(shape[0] * shape[1], shape[2]).reshape(shape)

    def as_numbers(self, bits: Bits, count: int) -> Wide:
        """A share, as numbers, of random bits."""
        return self._derived((count, WORDS))

    def words(self, shape: tuple[int, ...], word: Word = np.uint64) -> NDArray[Any]:
        """A share of uniform numbers of 32 or 64 bits."""
        return self._drawn(shape, word)

    def word_product(self, first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
        """A share of the products of random numbers of 32 or 64 bits."""
        return self.given(first.shape, lambda: first * second, first.dtype.type)

    def as_words(self, bits: Bits, count: int, word: Word) -> NDArray[Any]:
        """Shares, as numbers of 32 or 64 bits, of rows of random bits."""
        return self.given((len(bits), count), lambda: np.unpackbits(bits, axis=1, count=count), word)

    def given(self, shape: tuple[int, ...], make: Callable[[], np.ndarray], kind: type = np.uint64) -> np.ndarray:
        """A share of what ``make`` gives at the dealer, from whole random numbers; modulo the size of ``kind``."""
        return self._next(shape, kind) if self.number == 0 else self._drawn(shape, kind)

    def given_bits(self, shape: tuple[int, ...], make: Callable[[], Bits]) -> Bits:
        """The same of bits, by exclusive or."""
        return self._next(shape, np.uint8) if self.number == 0 else self._drawn(shape, np.uint8)

    def finish(self) -> None:
        if self.corrections:
            raise SecurityError(f"party {self.dealt.owner!r}: the dealer sent more corrections than were needed")

    def _derived(self, shape: tuple[int, ...]) -> Wide:
        return self._next(shape, np.uint64) if self.number == 0 else self._draw(shape)

    def _next(self, shape: tuple[int, ...], kind: type) -> np.ndarray:
        found = self.corrections.pop(0) if self.corrections else None
        if found is None or found.shape != shape or found.dtype != kind:
            raise SecurityError(f"party {self.dealt.owner!r}: the dealer's corrections are of another shape")
        return found

    def _drawn(self, shape: tuple[int, ...], kind: type) -> np.ndarray:
        """Uniform numbers of another width, in whole words."""
        size = math.prod(shape)
        return self._draw((max(1, -(-size * np.dtype(kind).itemsize // 8)),)).view(kind)[:size].reshape(shape)

    def _draw(self, shape: tuple[int, ...]) -> Ring:
        self.drawn += 1
        return self.dealt.draw(self.purpose, self.drawn - 1, shape)


class DealerSource(Source):
    """The same at the dealer: whole random numbers, from both seeds; collects the corrections."""

    def __init__(self, first: Dealt, second: Dealt, purpose: str):
        super().__init__(second, purpose, number=2)
        self.first = Source(first, purpose, 0)

    def wide(self, shape: tuple[int, ...]) -> Wide:
        return add(self.first.wide(shape), super().wide(shape))

    def bits(self, rows: int, width: int) -> Bits:
        return self.first.bits(rows, width) ^ super().bits(rows, width)

    def own(self, owner: int, rows: int, width: int) -> Bits:
        drawn = self.first.bits(rows, width), super().bits(rows, width)
        return drawn[owner]

    def product(self, first: Wide, second: Wide) -> Wide:
        return self._correct(times(first, second))

    def conjunctions(self, masks: Bits, parts: Sequence[Sequence[int]]) -> Bits:
        shape = (len(parts), *masks.shape[1:])
        value = np.array([np.bitwise_and.reduce(masks[list(part)]) for part in parts], np.uint8).reshape(shape)
        self.corrections.append(value ^ super().bits(shape[0] * shape[1], shape[2]).reshape(shape))
        return value

    def as_numbers(self, bits: Bits, count: int) -> Wide:
        return self._correct(widen(np.unpackbits(bits[0], count=count)))

    def words(self, shape: tuple[int, ...], word: Word = np.uint64) -> NDArray[Any]:
        return self.first.words(shape, word) + super().words(shape, word)

    def given(self, shape: tuple[int, ...], make: Callable[[], np.ndarray], kind: type = np.uint64) -> np.ndarray:
        value: np.ndarray = make().astype(kind)
        self.corrections.append(value - self._drawn(shape, kind))
        return value

    def given_bits(self, shape: tuple[int, ...], make: Callable[[], Bits]) -> Bits:
        value = make()
        self.corrections.append(value ^ self._drawn(shape, np.uint8))
        return value

    def _correct(self, value: Wide) -> Wide:
        self.corrections.append(minus(value, self._draw(value.shape)))
        return value


def dealt_for(program: Program[T], source: DealerSource) -> list[np.ndarray]:
    """Run a program at the dealer, on nothing: the corrections for party 0."""
    try:
        mine = next(program)
        while True:
            mine = program.send([np.zeros_like(part) for part in mine])
    except StopIteration:
        found, source.corrections = source.corrections, []
        return found


# --- bits ------------------------------------------------------------------------------------------------------------


def conjunctions(source: Source, inputs: Sequence[Bits], products: Sequence[tuple[int, ...]]) -> Program[list[Bits]]:
    """ANDs of several shared bits each, in one round: every product names its inputs by their places.

    With e = x ^ m opened for every input, an AND of x's is the exclusive or, over all subsets, of the AND of the m's
    inside (shares from the dealer) and of the e's outside.
    """
    values = np.stack(inputs)
    masks = source.bits(len(inputs) * values.shape[1], values.shape[2]).reshape(values.shape)
    wanted = sorted({part for product in products for part in _subsets(product) if len(part) > 1})
    joint = source.conjunctions(masks, wanted)
    known: dict[tuple[int, ...], Bits] = {(i,): mask for i, mask in enumerate(masks)}
    known.update(zip(wanted, joint))
    hidden = values ^ masks
    (theirs,) = yield [hidden]
    opened = hidden ^ theirs
    found = []
    for product in products:
        total = np.zeros_like(opened[0])
        for part in _subsets(product):
            rest = [opened[i] for i in product if i not in part]
            if part:
                total ^= reduce(np.bitwise_and, rest, known[part])
            elif source.number == 0:
                total ^= reduce(np.bitwise_and, rest)
        found.append(total)
    return found


@cache
def _subsets(places: tuple[int, ...]) -> list[tuple[int, ...]]:
    ordered = sorted(places)
    return [part for size in range(len(ordered) + 1) for part in itertools.combinations(ordered, size)]


def negative(source: Source, numbers: Wide, bits: int = BITS) -> Program[Bits]:
    """Shares of the sign bit of each of a list of numbers modulo 2^bits, packed in one row.

    The sign is the highest bit of both shares and the carry from below; carries are joined four places at a time.
    """
    table = _bit_table(numbers, bits)
    own = table[:-1]
    nothing = np.zeros_like(own)
    first, second = (nothing, own) if source.number else (own, nothing)
    (carry,) = yield from conjunctions(source, [first, second], [(0, 1)])
    passing = own
    while len(carry) > 1:
        missing = -len(carry) % 4
        carry = np.concatenate([np.zeros((missing, carry.shape[1]), np.uint8), carry])
        fill = np.full((missing, carry.shape[1]), 255 if source.number == 0 else 0, np.uint8)
        passing = np.concatenate([fill, passing])
        g, p = [carry[i::4] for i in range(4)], [passing[i::4] for i in range(4)]
        joined = yield from conjunctions(
            source, [*p, *g[:3]], [(3, 6), (3, 2, 5), (3, 2, 1, 4), (3, 2, 1, 0)]
        )  # fmt: skip
        carry, passing = g[3] ^ joined[0] ^ joined[1] ^ joined[2], joined[3]
    return table[-1:] ^ carry


def _bit_table(numbers: Wide, bits: int) -> Bits:
    """Place by place (lowest first) the bits of all numbers, packed."""
    size = len(numbers), 8 * numbers.shape[1]
    raw = np.ascontiguousarray(numbers.astype("<u8")).view(np.uint8).reshape(size)[:, : -(-bits // 8)]
    return np.packbits(np.unpackbits(raw, axis=1, bitorder="little")[:, :bits].T, axis=1)


def either(source: Source, mine: Flags) -> Program[Wide]:
    """Shares, as numbers, of whether one of the two parties has a bit set (each knows its own)."""
    count, packed = len(mine), np.packbits(mine)[None]
    alpha, beta = source.own(0, *packed.shape), source.own(1, *packed.shape)
    both = source.as_numbers(alpha & beta, count)
    masked = packed ^ (beta if source.number == 1 else alpha)
    (theirs,) = yield [masked]
    ours, others = (np.unpackbits(part[0], count=count).astype(bool) for part in (masked, theirs))
    mask = np.unpackbits((beta if source.number == 1 else alpha)[0], count=count)
    # A bit x = e ^ m is e + (1 - 2 e) m, so the product of two is this and the other side's part:
    product = add(signed(ours, where(others, widen(mask))), signed(ours ^ others, both))
    if source.number == 0:
        product = add(product, widen((ours & others).astype(np.uint64)))
    return minus(widen(mine.astype(np.uint64)), product)


# --- numbers ---------------------------------------------------------------------------------------------------------


def products(
    source: Source, pairs: Sequence[tuple[Wide, Wide]], places: NDArray[np.int64] | None = None
) -> Program[list[Wide]]:
    """Shares of elementwise products, one round. With ``places`` the first factors are shorter: ``x[places] y``."""
    masks, hidden = [], []
    for x, y in pairs:
        u, v = source.wide(x.shape[:-1]), source.wide(y.shape[:-1])
        masks.append((_at(u, places), v, source.product(_at(u, places), v)))
        hidden += [minus(x, u), minus(y, v)]
    theirs = yield hidden
    opened = [add(a, b) for a, b in zip(hidden, theirs)]
    found = []
    for number, (u, v, product) in enumerate(masks):
        d, e = _at(opened[2 * number], places), opened[2 * number + 1]
        share = add(product, times(d, v), times(u, e))
        found.append(add(share, times(d, e)) if source.number == 0 else share)
    return found


def _at(values: Wide, places: NDArray[np.int64] | None) -> Wide:
    return values if places is None else values[places]


def chosen(source: Source, bits: Bits, first: Sequence[Wide], second: Sequence[Wide]) -> Program[list[Wide]]:
    """Shares of ``first`` where a shared bit is 1, else of ``second``; one round."""
    count = len(first[0])
    rho = source.bits(*bits.shape)
    number = source.as_numbers(rho, count)
    differences = [minus(a, b) for a, b in zip(first, second)]
    masks = [source.wide((count,)) for _ in differences]
    joint = [source.product(number, mask) for mask in masks]
    hidden: Message = [bits ^ rho, *(minus(x, mask) for x, mask in zip(differences, masks))]
    theirs = yield hidden
    flipped = np.unpackbits((hidden[0] ^ theirs[0])[0], count=count).astype(bool)
    found = []
    for x, share, mine, other, rest in zip(differences, joint, hidden[1:], theirs[1:], second):
        masked = add(times(add(mine, other), number), share)  # rho x
        found.append(add(rest, where(flipped, x), signed(flipped, masked)))
    return found


# --- the largest fraction --------------------------------------------------------------------------------------------


@dataclass
class Fractions:
    """Shares of groups x places of fractions (numerators and positive denominators), and of two numbers for each."""

    over: Wide
    under: Wide
    label: Wide
    sums: Wide

    @classmethod
    def empty(cls, groups: int, places: int) -> Fractions:
        """Zeros."""
        return cls(*(np.zeros((groups, places, WORDS), dtype=np.uint64) for _ in range(4)))

    def parts(self) -> tuple[Wide, Wide, Wide, Wide]:
        return self.over, self.under, self.label, self.sums

    def __getitem__(self, places: slice) -> Fractions:
        return Fractions(*(part[:, places] for part in self.parts()))

    def flat(self) -> list[Wide]:
        return [part.reshape(-1, WORDS) for part in self.parts()]


def largest(source: Source, found: Fractions) -> Program[Fractions]:
    """The largest fraction of every group (groups x 1), the first of equal ones. Exact where
    over x under is below 2^190."""
    while found.over.shape[1] > 1:
        groups, width = found.over.shape[:2]
        pairs = width // 2
        left, right = found[: 2 * pairs : 2], found[1 : 2 * pairs : 2]
        a, b = left.flat(), right.flat()
        here, there = yield from products(source, [(a[0], b[1]), (b[0], a[1])])
        smaller = yield from negative(source, minus(here, there))
        best = yield from chosen(source, smaller, b, a)
        parts = [part.reshape(groups, pairs, WORDS) for part in best]
        rest = found[2 * pairs :]
        found = Fractions(*(np.concatenate([part, more], axis=1) for part, more in zip(parts, rest.parts())))
    return found
