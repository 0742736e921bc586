"""Programs on shares of rows: openings, bits times numbers and tables against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_comparing import run

from fedsift.mpc.ring import uniform
from fedsift.mpc.row_programs import Lines, looked_up, opened, scaled, selected


def bit_shares(bits: np.ndarray):
    packed = np.packbits(bits, axis=-1)
    first = uniform((packed.size // 8 + 1,)).view(np.uint8)[: packed.size].reshape(packed.shape)
    return first, packed ^ first


def shares(numbers: np.ndarray):
    first = uniform(numbers.shape).astype(numbers.dtype)
    return first, numbers - first


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64])
def test_bits_times_numbers_are_numbers_or_zero(kind):
    rng = np.random.default_rng(0)
    bits, numbers = rng.integers(0, 2, (3, 21)), rng.integers(0, np.iinfo(kind).max, 21, dtype=kind, endpoint=True)

    def build(source, share):
        def program():
            seen = yield from opened(source, share[1])
            return (yield from scaled(source, share[0], 21, seen))

        return program()

    pair = list(zip(bit_shares(bits), shares(numbers)))
    found = run(build, *pair)
    np.testing.assert_array_equal(found[0][0] + found[1][0], bits.astype(kind) * numbers)
    np.testing.assert_array_equal(found[0][1] + found[1][1], bits)


def test_selected_numbers_are_kept_and_the_others_zero():
    rng = np.random.default_rng(1)
    bits, numbers = rng.integers(0, 2, (1, 50)), uniform((50,))
    pair = list(zip(bit_shares(bits), shares(numbers)))
    found = run(lambda source, share: selected(source, *share), *pair)
    np.testing.assert_array_equal(found[0] + found[1], np.where(bits[0], numbers, 0))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(2, 3, 3), (8, 4, 3), (32, 6, 5)]))
def test_a_line_is_looked_up_whatever_borrows_there_are(seed, sizes):
    rng, (cells, upper, under) = np.random.default_rng(seed), sizes
    lines = Lines(uniform((cells,)), uniform((cells,)), upper, under)
    width = 2 ** (upper + under)
    edges = np.arange(cells) * width
    numbers = np.concatenate([edges, edges + width - 1, rng.integers(0, cells * width, 40)]).astype(np.uint64)
    found = run(lambda source, share: looked_up(source, share, lines), *shares(numbers))
    np.testing.assert_array_equal(found[0] + found[1], lines.at(numbers))


def test_what_is_opened_of_a_number_that_is_looked_up_is_a_fair_coin():
    """200 numbers of 16 bits, 40 times, all equal: 128,000 coins a side, six deviations (2e-9)."""
    lines, seen = Lines(uniform((32,)), uniform((32,)), 6, 5), []
    for _ in range(40):
        run(lambda source, share: looked_up(source, share, lines), *shares(np.full(200, 77, np.uint64)), seen=seen)
    for side in (0, 1):
        parts = [
            np.unpackbits(np.ascontiguousarray(part).view(np.uint8).ravel()) for said in seen for part in said[side]
        ]
        coins = np.concatenate(parts)
        assert abs(coins.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(coins))
