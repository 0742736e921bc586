"""Programs on shares of rows: openings, bits times numbers and tables against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_comparing import run

from fedsift.mpc.ring import uniform
from fedsift.mpc.row_programs import Steps, as_numbers, lengthened, looked_up, mixed, opened, scaled, selected


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
    bits, numbers = rng.integers(0, 2, (1, 50)), uniform((1, 50))
    pair = list(zip(bit_shares(bits), shares(numbers)))
    found = run(lambda source, share: selected(source, *share), *pair)
    np.testing.assert_array_equal(found[0] + found[1], np.where(bits, numbers, 0))


def steps_of(rng, cells: int, low: int) -> Steps:
    bits = (11, 9)
    values = np.stack([rng.integers(0, 2**size, cells) for size in bits], axis=1).astype(np.uint16)
    return Steps(values, bits, uniform((2,)), low)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(64, 1), (64, 5), (512, 7)]))
def test_a_value_is_looked_up_whatever_borrows_there_are(seed, sizes):
    rng, (cells, low) = np.random.default_rng(seed), sizes
    steps = steps_of(rng, cells, low)
    edges = np.arange(0, cells, 7) * 2**low
    numbers = np.concatenate([edges, edges + 2**low - 1, rng.integers(0, cells * 2**low, 40)]).astype(np.uint64)
    found = run(lambda source, share: looked_up(source, share, steps), *shares(numbers))
    np.testing.assert_array_equal(found[0] + found[1], steps.at(numbers))


def test_what_is_opened_of_a_number_that_is_looked_up_is_a_fair_coin():
    """200 numbers, 40 times, all equal: more than 300,000 coins a side, six deviations (2e-9)."""
    steps, seen = steps_of(np.random.default_rng(0), 512, 7), []
    for _ in range(40):
        run(lambda source, share: looked_up(source, share, steps), *shares(np.full(200, 77, np.uint64)), seen=seen)
    for side in (0, 1):
        parts = [
            np.unpackbits(np.ascontiguousarray(part).view(np.uint8).ravel()) for said in seen for part in said[side]
        ]
        coins = np.concatenate(parts)
        assert abs(coins.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(coins))


def test_bits_become_numbers_and_these_get_longer():
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 2**15, (2, 30)).astype(np.uint16)
    long = run(lengthened, *shares(numbers))
    np.testing.assert_array_equal(long[0] + long[1], numbers)
    bits = rng.integers(0, 2, (3, 21))
    found = run(lambda source, share: as_numbers(source, share, 21, np.uint16), *bit_shares(bits))
    np.testing.assert_array_equal(found[0] + found[1], bits)


def test_rows_of_bits_are_mixed_as_the_table_says():
    rng = np.random.default_rng(4)
    bits, table = rng.integers(0, 2, (5, 21)), rng.integers(0, 2, (5, 14))
    pair = list(zip(bit_shares(bits), bit_shares(table)))
    found = run(lambda source, share: mixed(source, *([part] for part in share), 14), *pair)
    np.testing.assert_array_equal(np.unpackbits(found[0][0] ^ found[1][0], axis=1, count=21), table.T @ bits % 2)


def test_words_that_travel_in_seven_bytes_are_right_modulo_2_to_the_56():
    rng = np.random.default_rng(5)
    bits, numbers = rng.integers(0, 2, (1, 50)), uniform((1, 50))

    def program(source, share):
        source.word = 7
        return selected(source, *share)

    found = run(program, *zip(bit_shares(bits), shares(numbers)))
    np.testing.assert_array_equal((found[0] + found[1]) << np.uint64(8), np.where(bits[0], numbers << np.uint64(8), 0))
