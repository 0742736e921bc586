"""The compiled arithmetic: large moduli (``_montgomery.c``), points (``_ristretto.c``), 2^64 (``_ring.c``), hashes.

They compute eight or sixteen things side by side with AVX-512's 52-bit multiply-and-add; moduli and 2^64 have a second
way with AVX2 (``_avx2.c``), and all a way for every other processor (``_portable.c``, ``_ristretto_portable.c``), the
same numbers to the bit. The library is compiled when the package is installed and is optional: whoever calls
``library()`` has another way where it is ``None``. FEDSIFT_KERNEL chooses one by name (``AVX-512``, ``AVX2``,
``portable``) or none (``off``).

``product`` multiplies matrices modulo 2^64: compiled, or by exact products of 16-bit parts in floating point. NumPy
multiplies unsigned integers without BLAS, thirty times slower. Without the compiled kernel a number is cut into four
parts of 16 bits; a sum of up to 2^20 products of two parts is below 2^52, so floating point computes it exactly, and
the ten products that matter modulo 2^64 are shifted and added.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.workers import side_by_side, workers

_ENGINES = {  # the fastest first: how the names of products and of points begin, and what says whether they run
    "AVX-512": ("fedsift_", "fedsift_", "fedsift_supported"),
    "AVX2": ("fedsift_avx2_", "fedsift_portable_", "fedsift_avx2"),
    "portable": ("fedsift_portable_", "fedsift_portable_", "fedsift_portable"),
}


def library() -> Any:
    """The compiled arithmetic (moduli, 2^64, points, hashes), or ``None``; ``state()`` says which, or why."""
    return _load()[0]


def state() -> str:
    """In words for people: which arithmetic runs here."""
    return _load()[1]


@functools.cache
def _load() -> tuple[Any, str]:
    asked = os.environ.get("FEDSIFT_KERNEL", "on")
    if asked == "off":
        return None, "none: switched off by FEDSIFT_KERNEL"
    if importlib.util.find_spec("fedsift.crypto._kernel") is None:
        return None, "none: no C compiler when fedsift was installed"
    for name in _ENGINES:
        if asked in ("on", name) and (found := engine(name)) is not None:
            return found, name
    return None, "none: the compiled library cannot be loaded or has nothing for this processor; install fedsift again"


def engine(name: str) -> object:
    """The compiled library with one of its ways of computing, or ``None`` where the processor cannot."""
    found = importlib.util.find_spec("fedsift.crypto._kernel")
    products, points, asks = _ENGINES[name]
    try:
        loaded = ctypes.CDLL(found.origin if found and found.origin else "")
        return _declared(loaded, products, points) if getattr(loaded, asks)() else None
    except (OSError, AttributeError):
        return None


def _declared(loaded: object, products: str, points: str) -> object:
    """The library with the types of its functions, under one name each, whichever arithmetic runs."""
    at, number = ctypes.c_void_p, ctypes.c_int64
    modulus: list[object] = [at, ctypes.c_uint64, at, ctypes.c_int]  # n, its inverse, the result, limbs
    types: dict[str, tuple[str, list[object], object]] = {
        "products": (products, [at, at, number, number, *modulus], None),
        "squares": (products, [at, number, number, *modulus], None),
        "powers": (products, [at, number, at, number, at, *modulus], None),
        "segments": (products, [at, at, at, number, number, at, *modulus], None),
        "ring_product": (products, [at, at, number, number, number, at], None),
        "ristretto_map": (points, [at, number, at], None),
        "ristretto_map_scale": (points, [at, number, at, number, at], None),
        "ristretto_scale": (points, [at, number, at, number, at], number),
        "sha512": ("fedsift_", [at, number, at, at, number, at, number, number, at], None),
    }
    for name, (prefix, arguments, result) in types.items():
        function = getattr(loaded, prefix + name)
        function.argtypes, function.restype = arguments, result
        setattr(loaded, f"fedsift_{name}", function)
    return loaded


def shared(part: Callable[[int, int], Any], work: np.ndarray, large: int) -> list[Any]:
    """``part(first, last)`` over all elements, cut by their cumulated ``work`` into as many parts as there are workers.

    ``large`` is the work that is worth a thread of its own. Python's lock is free inside the library.
    """
    cores = min(workers(), max(1, int(work[-1]) // large))
    cuts = np.searchsorted(work, np.linspace(0, work[-1], cores + 1)[1:-1]).tolist()
    return side_by_side(lambda ends: part(*ends), zip([0, *cuts], [*cuts, len(work) - 1]))


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
