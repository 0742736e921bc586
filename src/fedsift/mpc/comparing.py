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
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsift.errors import SecurityError
from fedsift.mpc.dealer import Bits, Dealt
from fedsift.mpc.ring import Ring, from_lowest_bytes, lowest_bytes
from fedsift.mpc.wide import BITS, WORDS, Wide, add, minus, narrow, signed, times, where, widen, widened

Message = list[np.ndarray]
T = TypeVar("T")
Program = Generator[Message, Message, T]
Flags = NDArray[np.bool_]
Word = type[np.uint32] | type[np.uint64]
PARTS = BITS // 32


# --- randomness ------------------------------------------------------------------------------------------------------


@dataclass
class Source:
    """A party's shares of the dealer's random numbers, in the order in which a program asks for them.

    ``number`` is 0 or 1. Party 0 takes what does not follow from its seed from ``corrections``. Where wide numbers are
    only needed modulo 2^(32 parts), the dealer sends so many of their parts, and so many bytes of a ``word``.
    """

    dealt: Dealt
    purpose: str
    number: int
    drawn: int = 0
    corrections: list[np.ndarray] = field(default_factory=list)
    parts: int = PARTS  # 32-bit parts of a wide number that the dealer sends
    word: int = 8  # bytes of a number of 64 bits that it sends

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

    def words(self, shape: tuple[int, ...], word: Word = np.uint64) -> NDArray[np.unsignedinteger]:
        """A share of uniform numbers of 32 or 64 bits."""
        return self._drawn(shape, word)

    def own_words(self, owner: int, shape: tuple[int, ...], word: Word = np.uint64) -> NDArray[np.unsignedinteger]:
        """Uniform numbers that one party alone knows; nothing (zeros) to the other."""
        drawn = self.words(shape, word)
        return drawn if self.number == owner else np.zeros_like(drawn)

    def order(self, owner: int, count: int) -> NDArray[np.int64]:
        """A uniform order that one party alone knows; to the other, none (as they are)."""
        return np.argsort(self.own_words(owner, (count,)), kind="stable")

    def word_product(self, first: np.ndarray, second: np.ndarray) -> NDArray[np.unsignedinteger]:
        """A share of the products of random numbers of 32 or 64 bits."""
        return self.given(first.shape, lambda: first * second, first.dtype.type)

    def as_words(self, bits: Bits, count: int, word: Word) -> NDArray[np.unsignedinteger]:
        """Shares, as numbers of 32 or 64 bits, of rows of random bits."""
        return self.given((len(bits), count), lambda: np.unpackbits(bits, axis=1, count=count), word)

    def given(self, shape: tuple[int, ...], make: Callable[[], np.ndarray], kind: type = np.uint64) -> np.ndarray:
        """A share of what ``make`` gives at the dealer, from whole random numbers; modulo the size of ``kind``."""
        if self.number == 0 and kind is np.uint64 and self.word < 8:
            return from_lowest_bytes(self._next((*shape, self.word), np.uint8), np.uint64)
        return self._next(shape, kind) if self.number == 0 else self._drawn(shape, kind)

    def given_bits(self, shape: tuple[int, ...], make: Callable[[], Bits]) -> Bits:
        """The same of bits, by exclusive or."""
        return self._next(shape, np.uint8) if self.number == 0 else self._drawn(shape, np.uint8)

    def finish(self) -> None:
        if self.corrections:
            raise SecurityError(f"party {self.dealt.owner!r}: the dealer sent more corrections than were needed")

    def _derived(self, shape: tuple[int, ...]) -> Wide:
        return widened(self._next((*shape[:-1], self.parts), np.uint32)) if self.number == 0 else self._draw(shape)

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

    def own_words(self, owner: int, shape: tuple[int, ...], word: Word = np.uint64) -> NDArray[np.unsignedinteger]:
        drawn = self.first.words(shape, word), super().words(shape, word)
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

    def words(self, shape: tuple[int, ...], word: Word = np.uint64) -> NDArray[np.unsignedinteger]:
        return np.asarray(self.first.words(shape, word) + super().words(shape, word))

    def given(self, shape: tuple[int, ...], make: Callable[[], np.ndarray], kind: type = np.uint64) -> np.ndarray:
        value: np.ndarray = make().astype(kind)
        sent = value - self._drawn(shape, kind)
        self.corrections.append(lowest_bytes(sent, self.word) if kind is np.uint64 and self.word < 8 else sent)
        return value

    def given_bits(self, shape: tuple[int, ...], make: Callable[[], Bits]) -> Bits:
        value = make()
        self.corrections.append(value ^ self._drawn(shape, np.uint8))
        return value

    def _correct(self, value: Wide) -> Wide:
        self.corrections.append(narrow(minus(value, self._draw(value.shape)), self.parts))
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

    z = x + r is opened, r a mask that the dealer alone knows. The sign of x is the highest bit of z and of r, and the
    borrow from below, which is whether what is left of z is smaller than what is left of r.
    """
    wide = numbers.shape[1] == WORDS
    mask = source.wide((len(numbers),)) if wide else source.words(numbers.shape)
    hidden = _bytes(add(numbers, mask) if wide else numbers + mask, bits)
    (theirs,) = yield [hidden]
    first, second = (_words(part, numbers.shape[1]) for part in (hidden, theirs))
    opened = add(first, second) if wide else first + second
    shape = (1, -(-len(numbers) // 8))
    top = source.given_bits(shape, lambda: _bit(mask, bits - 1)[None])
    borrow = yield from smaller(source, opened, mask, bits - 1)
    return (top ^ _bit(opened, bits - 1) if source.number == 0 else top) ^ borrow


def _bytes(numbers: Wide, bits: int) -> Bits:
    """As they travel: the lowest bytes of each number."""
    raw = np.ascontiguousarray(numbers.astype("<u8")).view(np.uint8).reshape(len(numbers), 8 * numbers.shape[1])
    return np.ascontiguousarray(raw[:, : -(-bits // 8)])


def _words(raw: Bits, words: int) -> Wide:
    out = np.zeros((len(raw), 8 * words), dtype=np.uint8)
    out[:, : raw.shape[1]] = raw
    return out.view("<u8").astype(np.uint64)


def _bit(numbers: Wide, place: int) -> Bits:
    word, at = divmod(place, 64)
    return np.packbits(((numbers[:, word] >> np.uint64(at)) & np.uint64(1)).astype(np.uint8))


_DIGIT = 3


def smaller(source: Source, opened: Wide, mask: Wide, bits: int) -> Program[Bits]:
    """Shares of whether the lowest bits of numbers in the open are smaller than those of numbers that the dealer knows.

    Digit by digit the dealer gives shares of whether each value is below its digit; two neighbours of these tell
    whether it is equal. Digits are then joined four at a time.
    """
    count, digits = len(opened), -(-bits // _DIGIT)
    top = np.array([min(bits - _DIGIT * place, _DIGIT) for place in range(digits)])

    def tables() -> Bits:
        return (np.uint8(1) << _digits(mask, top)) - np.uint8(1)  # a bit for each value below the digit

    table = source.given_bits((digits, count), tables)
    public = _digits(opened, top)
    less = (table >> public) & np.uint8(1)
    before = np.where(public > 0, (table >> (public - (public > 0))) & np.uint8(1), np.uint8(source.number == 0))
    carry, passing = np.packbits(less, axis=1), np.packbits(before ^ less, axis=1)
    while len(carry) > 1:
        carry, passing = yield from _joined(source, carry, passing)
    return carry


def _digits(numbers: Wide, sizes: NDArray[np.int64]) -> Bits:
    """Digits x numbers, lowest first; the last may have fewer bits."""
    out = np.empty((len(sizes), len(numbers)), dtype=np.uint8)
    for place, size in enumerate(sizes.tolist()):
        word, at = divmod(_DIGIT * place, 64)
        found = numbers[:, word] >> np.uint64(at)
        if at + size > 64:
            found = found | (numbers[:, word + 1] << np.uint64(64 - at))
        out[place] = (found & np.uint64(2**size - 1)).astype(np.uint8)
    return out


def _joined(source: Source, carry: Bits, passing: Bits) -> Program[tuple[Bits, Bits]]:
    """Four neighbours become one: the highest carry that the places above it pass on."""
    missing, last = -len(carry) % 4, len(carry) <= 4
    carry = np.concatenate([np.zeros((missing, carry.shape[1]), np.uint8), carry])
    fill = np.full((missing, carry.shape[1]), 255 if source.number == 0 else 0, np.uint8)
    passing = np.concatenate([fill, passing])
    g, p = [carry[i::4] for i in range(4)], [passing[i::4] for i in range(4)]
    wanted = [(2, 5), (2, 1, 4), (2, 1, 0, 3)]
    inputs = [*p[1:], *g[:3]]
    if not last:  # nobody asks whether the whole passes anything on
        inputs, wanted = [*inputs, p[0]], [*wanted, (2, 1, 0, 6)]
    joined = yield from conjunctions(source, inputs, wanted)
    return g[3] ^ joined[0] ^ joined[1] ^ joined[2], joined[-1]


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
