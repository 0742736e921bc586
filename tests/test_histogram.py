"""Encrypted sums by bins, with several rows in a ciphertext, against plain sums."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import cached_key
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.crypto.additive.keys import SCHEMES
from fedsift.errors import OverflowGuard, ParameterError
from fedsift.mpc import encrypted_histogram as histogram
from fedsift.mpc.column_scores.paid_bins import merge_small
from fedsift.mpc.encrypted_histogram import HIDING_BITS, RowLayout


@pytest.mark.parametrize("scheme", SCHEMES[1:])
@pytest.mark.parametrize(("rows", "values", "row_bits"), [(1, 1, 1), (2, 1, 1), (37, 1, 1), (40, 3, 20), (23, 2, 200)])
@pytest.mark.parametrize("answers", [0, 10**6])
def test_binned_sums_equal_plain_sums(scheme, rows, values, row_bits, answers):
    """With rows that share ciphertexts (few answers) and with answers that do (many)."""
    key = cached_key(scheme)
    rng = np.random.default_rng(rows)
    table = np.array(
        [[int(rng.integers(0, 2**62)) % (1 << min(row_bits, 62)) for _ in range(values)] for _ in range(rows)]
    )
    layout = RowLayout.fit(rows, values, row_bits, key.public.plaintext_bits, answers=answers, scheme=scheme)
    assert (layout.per_ciphertext == 1) or (layout.answers_per == 1 and not answers)
    encrypted = histogram.encrypt_rows(key.public, table, layout, row_bits)
    assert len(encrypted) == -(-rows // layout.per_ciphertext)
    groups = [3, 5]
    codes = np.stack([rng.integers(0, g, rows) for g in groups], axis=1)
    got = histogram.read_sums(
        key, histogram.binned_sums(key.public, encrypted, layout, codes, groups), layout, sum(groups)
    )
    expected = [
        [int(sum(table[codes[:, j] == g, v].tolist())) for v in range(values)]
        for j, n in enumerate(groups)
        for g in range(n)
    ]
    assert got == expected


def test_several_rows_share_a_ciphertext(key):
    assert RowLayout.fit(30_000, 1, 1, key.public.plaintext_bits).per_ciphertext >= 6


def test_neighbouring_slots_are_hidden_from_the_key_holder(key):
    """Rows that share a ciphertext with a bin's rows must not show: their slots look random and differ each time."""
    rows = 24
    layout = RowLayout.fit(rows, 1, 1, key.public.plaintext_bits)
    assert layout.per_ciphertext > 1
    encrypted = histogram.encrypt_rows(key.public, np.ones((rows, 1), np.int64), layout, 1)
    codes = (np.arange(rows) % 2)[:, None]
    views = []
    for _ in range(2):
        sums = histogram.binned_sums(key.public, encrypted, layout, codes, [2])
        views.append(key.decrypt(sums, bits=layout.total_bits))
    mask = (1 << layout.pitch) - 1
    for slot in range(2 * layout.per_ciphertext - 1):
        a, b = ((view[0] >> (slot * layout.pitch)) & mask for view in views)
        if slot == layout.per_ciphertext - 1:
            assert a == b == rows // 2
        else:
            assert a != b
            assert a.bit_length() > layout.payload_bits + HIDING_BITS - 30  # a 2^-30 chance to fail


@given(st.integers(1, 2000), st.integers(1, 5), st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_layouts_fit_their_plaintext(rows, values, row_bits):
    layout = RowLayout.fit(rows, values, row_bits, 680)
    assert layout.total_bits <= 680
    assert layout.value_bits >= row_bits + np.ceil(np.log2(rows + 1))


def test_a_layout_that_cannot_fit_raises():
    with pytest.raises(OverflowGuard):
        RowLayout.fit(1000, 40, 60, 680)


def test_values_that_exceed_their_bits_raise(key):
    layout = RowLayout.fit(2, 1, 4, key.public.plaintext_bits)
    for bad in ([[16], [0]], [[-1], [0]]):
        with pytest.raises(OverflowGuard):
            histogram.encrypt_rows(key.public, np.array(bad), layout, 4)


def test_a_layout_for_other_rows_is_refused():
    fields = RowLayout.fit(10, 1, 1, 680).as_dict()
    with pytest.raises(ParameterError):
        RowLayout.read(fields, 11)
    with pytest.raises(ParameterError):
        RowLayout.read({**fields, "extra": 1}, 10)


def test_weighted_sums_equal_plain_sums(key):
    rng = np.random.default_rng(0)
    rows, bits = 30, 36
    labels = rng.integers(0, 2, (rows, 2))
    weights = rng.integers(0, 2**bits, (rows, 3))
    layout = RowLayout.fit(rows, 2, 1 + bits, key.public.plaintext_bits)
    encrypted = histogram.encrypt_rows(key.public, labels, layout, 1)
    raw = histogram.weighted_sums(key.public, encrypted, layout, weights, bits)
    got = histogram.read_sums(key, histogram.finish(key.public, raw, layout), layout, 3)
    assert got == (weights.T.astype(object) @ labels.astype(object)).tolist()


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_packing_answers_loses_nothing(key, count):
    numbers = [(7919 * i) % 1000 for i in range(count)]
    packed = histogram.pack(key.public, key.public.encrypt(numbers), 10, 3)
    assert len(packed) == (count if count == 1 else -(-count // 3))
    assert histogram.unpack(key.decrypt(packed, bits=30), 10, 3, count) == numbers


@given(
    codes=st.lists(st.integers(0, 6), min_size=1, max_size=60),
    min_cell=st.integers(1, 12),
)
@settings(max_examples=200, deadline=None)
def test_merged_bins_are_large_enough(codes, min_cell):
    codes = np.array(codes)
    merged, count = merge_small(codes, 7, min_cell)
    sizes = np.bincount(merged, minlength=count)
    assert len(sizes) == count
    assert sizes.min() >= min_cell or count == 1


@pytest.mark.parametrize(
    ("rows", "values", "bits", "per"), [(1_000, 1, 1, 5), (1_001, 2, 22, 3), (3, 1, 4, 5), (7, 3, 57, 2)]
)
def test_rows_laid_out_together_are_those_laid_out_one_by_one(rows, values, bits, per):
    """With numbers that do not fit a word and its shift, and with a last ciphertext that is not full."""
    layout = RowLayout(rows, values, bits + 10, per)
    table = np.random.default_rng(0).integers(0, 1 << bits, (rows, values))
    table[0] = (1 << bits) - 1
    assert histogram.laid_out(table, layout) == histogram._one_by_one(table, layout)


def test_masks_fill_all_their_bits_and_no_others():
    layout = RowLayout(100, 2, 20, 2)
    drawn = [histogram.random_slots(layout, 3, {1: 5}) for _ in range(400)]
    width, slots = layout.payload_bits + HIDING_BITS, range(3)
    parts = [[(number >> (slot * layout.pitch)) & ((1 << layout.pitch) - 1) for slot in slots] for number in drawn]
    assert {part[1] for part in parts} == {5}
    for slot in (0, 2):
        ever, always = 0, (1 << layout.pitch) - 1
        for part in parts:
            ever, always = ever | part[slot], always & part[slot]
        assert ever == (1 << width) - 1
        assert always == 0
