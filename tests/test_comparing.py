"""Computing on shares: every step against plain arithmetic, and what travels is uniform whatever the numbers are."""

from __future__ import annotations

from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.errors import SecurityError
from fedsift.mpc import fractions, wide
from fedsift.mpc.comparing import (
    DealerSource,
    Source,
    chosen,
    conjunctions,
    dealt_for,
    either,
    negative,
    products,
)
from fedsift.mpc.dealer import Dealt
from fedsift.mpc.fractions import Fractions, hidden, largest, multiplied, squares_where
from fedsift.mpc.ring import new_seed, uniform

NUMBERS = st.integers(-(2**190), 2**190)


def split(numbers):
    """Two shares of a list of Python numbers."""
    first = uniform((len(numbers), wide.WORDS))
    return first, wide.minus(wide.from_ints(numbers), first)


def joined(pair):
    return wide.to_ints(wide.add(*pair))


def run(build, first, second, seen=None):
    """A program at the dealer and at both parties; ``build(source, share)`` makes it."""
    seeds = new_seed(), new_seed()
    dealer = DealerSource(Dealt("a", seeds[0]), Dealt("b", seeds[1]), "test")
    corrections = dealt_for(build(dealer, first), dealer)
    sources = Source(Dealt("a", seeds[0]), "test", 0, corrections=corrections), Source(Dealt("b", seeds[1]), "test", 1)
    programs = [build(source, share) for source, share in zip(sources, (first, second))]
    mine = [next(program) for program in programs]
    results = []
    while not results:
        if seen is not None:
            seen.append(mine)
        mine_next = []
        for program, theirs in zip(programs, reversed(mine)):
            try:
                mine_next.append(program.send(theirs))
            except StopIteration as done:
                results.append(done.value)
        mine = mine_next
    sources[0].finish()
    assert len(results) == 2
    return results


@given(NUMBERS, NUMBERS)
def test_wide_numbers_are_pythons_modulo_2_to_the_192(a, b):
    x, y = wide.from_ints([a]), wide.from_ints([b])
    modulus = 2**192

    def centred(value):
        value %= modulus
        return value - modulus if value >= modulus // 2 else value

    assert wide.to_ints(x) == [a]
    assert wide.to_ints(wide.add(x, y, y)) == [centred(a + 2 * b)]
    assert wide.to_ints(wide.minus(x, y)) == [centred(a - b)]
    assert wide.to_ints(wide.times(x, y)) == [centred(a * b)]
    assert wide.to_ints(wide.shifted(x, 7)) == [centred(a * 128)]


def test_signed_words_keep_their_sign():
    assert wide.to_ints(wide.widen(np.array([-3, 5]))) == [-3, 5]
    assert wide.to_ints(wide.widen(np.array([2**64 - 3], dtype=np.uint64))) == [2**64 - 3]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_products_on_shares_are_products(pairs):
    a, b = split([x for x, _ in pairs]), split([y for _, y in pairs])
    found = run(lambda source, share: products(source, [share]), (a[0], b[0]), (a[1], b[1]))
    expected = wide.times(wide.add(*a), wide.add(*b))
    np.testing.assert_array_equal(wide.add(found[0][0], found[1][0]), expected)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(NUMBERS, st.integers(-2, 2)), min_size=1, max_size=30), st.sampled_from([192, 32]))
def test_the_sign_of_shared_numbers(numbers, bits):
    if bits == 32:
        numbers = [number % 2**31 * (1 if number > 0 else -1) for number in numbers]
    shares = split(numbers)
    found = run(lambda source, share: negative(source, share, bits), *shares)
    signs = np.unpackbits(found[0] ^ found[1], count=len(numbers))
    assert signs.tolist() == [int(number < 0) for number in numbers]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_either_of_two_private_bits(pairs):
    mine = [np.array(part) for part in zip(*pairs)]
    assert joined(run(either, *mine)) == [int(a or b) for a, b in pairs]


def test_ands_of_up_to_four_shared_bits():
    rng = np.random.default_rng(0)
    truth = [rng.integers(0, 256, (3, 5), dtype=np.uint8) for _ in range(4)]
    first = [rng.integers(0, 256, (3, 5), dtype=np.uint8) for _ in range(4)]
    second = [a ^ b for a, b in zip(truth, first)]
    wanted = [(0, 1), (0, 1, 2), (3, 2, 1, 0)]
    found = run(lambda source, share: conjunctions(source, share, wanted), first, second)
    for product, a, b in zip(wanted, *found):
        np.testing.assert_array_equal(a ^ b, np.bitwise_and.reduce([truth[i] for i in product]))


def test_a_choice_takes_the_first_where_the_bit_is_set():
    bits = np.array([1, 0, 1, 1, 0], dtype=np.uint8)
    mask = np.random.default_rng(0).integers(0, 256, (1, 1), dtype=np.uint8)
    a, b = split([1, 2, 3, 4, 5]), split([-1, -2, -3, -4, -5])
    shares = [(mask, a[0], b[0]), (mask ^ np.packbits(bits)[None], a[1], b[1])]
    found = run(lambda source, s: chosen(source, s[0], [s[1]], [s[2]]), *shares)
    assert joined([part[0] for part in found]) == [1, -2, 3, 4, -5]


def with_parts(parts, program):
    """A program whose wide numbers travel in so many 32-bit parts."""

    def build(source, share):
        source.parts = parts
        return program(source, share)

    return build


@pytest.mark.parametrize("few", [0, 12, 2048], ids=["two at a time", "two, then four", "four at a time"])
@pytest.mark.parametrize("parts", [6, 5])
@settings(max_examples=10, deadline=None)
@given(st.integers(2, 19), st.integers(1, 3), st.integers(0, 2**32))
def test_the_largest_fraction_is_found_and_ties_fall_to_the_first(few, parts, width, groups, seed):
    """Groups use some of their places; the others are never the largest, whatever stands in them."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, width + 1, groups)
    sizes[0] = width
    over, under = rng.integers(0, 6, (groups, width)), rng.integers(1, 4, (groups, width))
    labels = np.tile(np.arange(width), (groups, 1)).astype(np.uint64)
    top = {6: 2**136, 5: 2**106}[parts]
    wides = [split([v * size for v in part.ravel().tolist()]) for part, size in ((over, top), (under, 2**47))]
    words = [(noise := uniform(part.shape), part - noise) for part in (labels, labels * np.uint64(7))]
    shape = (groups, width, wide.WORDS)
    halves = [
        Fractions(*(part[side].reshape(shape) for part in wides), *(part[side] for part in words)) for side in (0, 1)
    ]
    with mock.patch.object(fractions, "_FEW", few):
        found = run(with_parts(parts, lambda source, share: largest(source, share, sizes)), *halves)
    best = (found[0].label + found[1].label)[:, 0].tolist()
    assert (found[0].sums + found[1].sums)[:, 0].tolist() == [7 * place for place in best]
    for group in range(groups):
        values = [Fraction(int(a), int(b)) for a, b in zip(over[group], under[group])][: sizes[group]]
        assert best[group] == values.index(max(values))


@pytest.mark.parametrize("parts", [6, 5])
def test_opened_numbers_are_multiplied_and_squared_without_being_sent_again(parts):
    rng = np.random.default_rng(parts)
    first, second = ([int(v) for v in rng.integers(-(2**60), 2**60, 11)] for _ in range(2))
    kept = rng.integers(0, 2, 11, dtype=np.uint8)
    noise = rng.integers(0, 256, (1, 2), dtype=np.uint8)
    a, b = split(first), split(second)

    def program(source, share):
        x, y = yield from hidden(source, share[:2])
        square = yield from squares_where(source, share[2], x)
        return multiplied(source, x, y.minus(x)), square

    bits = noise, noise ^ np.packbits(kept)[None]
    seen = []
    found = run(with_parts(parts, program), *((*pair, part) for *pair, part in zip(a, b, bits)), seen=seen)
    product, square = ([value % 2 ** (32 * parts) for value in joined(pair)] for pair in zip(*found))
    assert product == [x * (y - x) % 2 ** (32 * parts) for x, y in zip(first, second)]
    assert square == [x * x * int(keep) for x, keep in zip(first, kept)]
    assert [part.nbytes for message in seen for part in message[0]] == [11 * 4 * parts] * 2 + [2]


def test_what_travels_does_not_depend_on_the_numbers():
    """Bits of the messages over many runs: a coin, for numbers that are all equal as for others."""
    for numbers in ([0] * 8, [2**180] * 8):
        seen = []
        for _ in range(30):
            run(lambda source, share: negative(source, share), *split(numbers), seen=seen)
        for side in (0, 1):
            bits = np.concatenate([np.unpackbits(part.ravel()) for message in seen for part in message[side]])
            assert abs(bits.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(bits))


def test_corrections_of_another_shape_are_refused():
    source = Source(Dealt("a", new_seed()), "test", 0, corrections=[np.zeros((2, 3), np.uint64)])
    with pytest.raises(SecurityError, match="another shape"):
        next(products(source, [(uniform((4, 3)), uniform((4, 3)))]))
    with pytest.raises(SecurityError, match="more corrections"):
        Source(Dealt("a", new_seed()), "test", 0, corrections=[np.zeros(1)]).finish()
