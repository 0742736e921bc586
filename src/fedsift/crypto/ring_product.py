"""Matrix products modulo 2^64: compiled (``_ring.c``), or by exact products of 16-bit parts in floating point.

NumPy multiplies unsigned integers without BLAS, thirty times slower. Without the compiled kernel a number is cut into
four parts of 16 bits; a sum of up to 2^20 products of two parts is below 2^52, so floating point computes it exactly,
and the ten products that matter modulo 2^64 are shifted and added.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsift.crypto.kernel import library

Ring = NDArray[np.uint64]
_ROWS = 1 << 14  # rows at a time in floating point: bounds the memory, and far below the 2^20 that are exact


def transposed_product(left: Ring, right: Ring) -> Ring:
    """``left.T @ right`` in Z_2^64, for ``left`` (n x a) and ``right`` (n x b)."""
    left, right = np.ascontiguousarray(left, dtype=np.uint64), np.ascontiguousarray(right, dtype=np.uint64)
    (rows, a), (also, b) = left.shape, right.shape
    if rows != also:
        raise ValueError(f"the matrices have {rows} and {also} rows")
    compiled = library()
    if compiled is not None:
        out = np.zeros((a, b), dtype=np.uint64)
        compiled.fedsift_ring_product(left.ctypes.data, right.ctypes.data, rows, a, b, out.ctypes.data)
        return out
    return in_parts(left, right)


def in_parts(left: Ring, right: Ring) -> Ring:
    """The same in floating point."""
    b = right.shape[1]
    out = np.zeros((left.shape[1], b), dtype=np.uint64)
    for start in range(0, len(left), _ROWS):
        rows = slice(start, start + _ROWS)
        wide = np.hstack([_part(right[rows], k) for k in range(4)])
        for i in range(4):
            found = _part(left[rows], i).T @ wide[:, : b * (4 - i)]
            for j in range(4 - i):
                out += found[:, j * b : (j + 1) * b].astype(np.uint64) << np.uint64(16 * (i + j))
    return out


def _part(values: Ring, k: int) -> NDArray[np.float64]:
    return ((values >> np.uint64(16 * k)) & np.uint64(0xFFFF)).astype(np.float64)
