"""Products modulo 2^64: the compiled kernel and the floating-point parts against NumPy's own integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.crypto.kernel import engine, in_parts, transposed_product
from fedsift.mpc.ring import product, uniform


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 600), st.integers(1, 40), st.integers(1, 40))
def test_every_way_equals_numpy(rows, a, b):
    left, right = uniform((rows, a)), uniform((rows, b))
    expected = left.T @ right
    np.testing.assert_array_equal(transposed_product(left, right), expected)
    np.testing.assert_array_equal(in_parts(left, right), expected)
    for compiled in filter(None, map(engine, ("AVX-512", "AVX2", "portable"))):
        out = np.zeros((a, b), dtype=np.uint64)
        compiled.fedsift_ring_product(left.ctypes.data, right.ctypes.data, rows, a, b, out.ctypes.data)
        np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(product(left.T, right), expected)


def test_the_largest_numbers_of_many_rows_are_exact():
    rows = 40_000
    left = np.full((rows, 3), 2**64 - 1, dtype=np.uint64)
    right = np.full((rows, 2), 2**64 - 1, dtype=np.uint64)
    for way in (transposed_product, in_parts):
        np.testing.assert_array_equal(way(left, right), np.full((3, 2), rows, dtype=np.uint64))


def test_views_and_another_number_of_rows():
    left, right = uniform((50, 9)), uniform((50, 6))
    np.testing.assert_array_equal(transposed_product(left[::2, 1:5], right[::2]), left[::2, 1:5].T @ right[::2])
    with pytest.raises(ValueError, match="50 and 49 rows"):
        transposed_product(left, right[1:])
