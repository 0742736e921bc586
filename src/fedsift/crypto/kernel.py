"""The compiled arithmetic: large moduli (``_montgomery.c``), points (``_ristretto.c``), 2^64 (``_ring.c``).

They compute eight things side by side with AVX-512's 52-bit multiply-and-add. The library is compiled when the package
is installed and is optional: whoever calls ``library()`` has another way where it is ``None``.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np


def library() -> Any:
    """The compiled library, or ``None``; ``state()`` says why."""
    return _load()[0]


def state() -> str:
    """In words for people: which arithmetic runs here."""
    return _load()[1]


@functools.cache
def _load() -> tuple[Any, str]:
    found = importlib.util.find_spec("fedsift.crypto._kernel")
    if os.environ.get("FEDSIFT_KERNEL") == "off":
        return None, "none: switched off by FEDSIFT_KERNEL"
    if found is None or found.origin is None:
        return None, "none: no C compiler when fedsift was installed"
    try:
        loaded = ctypes.CDLL(found.origin)
        if not loaded.fedsift_supported():
            return None, "none: this processor has no AVX-512 IFMA"
    except (OSError, AttributeError):
        return None, "none: the compiled library cannot be loaded; install fedsift again"
    at, number = ctypes.c_void_p, ctypes.c_int64
    modulus: list[Any] = [at, ctypes.c_uint64, at, ctypes.c_int]  # n, its inverse, the result, limbs
    loaded.fedsift_products.argtypes = [at, at, number, number, *modulus]
    loaded.fedsift_squares.argtypes = [at, number, number, *modulus]
    loaded.fedsift_powers.argtypes = [at, number, at, number, at, *modulus]
    loaded.fedsift_segments.argtypes = [at, at, at, number, number, at, *modulus]
    loaded.fedsift_ristretto_scale.argtypes = [at, number, at, number, at]
    loaded.fedsift_ristretto_scale.restype = number
    loaded.fedsift_ristretto_map.argtypes = [at, number, at]
    if hasattr(loaded, "fedsift_ring_product"):  # a library of an older build lacks it
        loaded.fedsift_ring_product.argtypes = [at, at, number, number, number, at]
        loaded.fedsift_ring_product.restype = None
    return loaded, "AVX-512"


def shared(part: Callable[[int, int], Any], work: np.ndarray, large: int) -> list[Any]:
    """``part(first, last)`` over all elements, cut by their cumulated ``work`` into as many parts as there are cores.

    ``large`` is the work that is worth a thread of its own. Python's lock is free inside the library.
    """
    cores = min(os.cpu_count() or 1, max(1, int(work[-1]) // large))
    if cores == 1:
        return [part(0, len(work) - 1)]
    cuts = np.searchsorted(work, np.linspace(0, work[-1], cores + 1)[1:-1]).tolist()
    with ThreadPoolExecutor(cores) as pool:
        return list(pool.map(part, [0, *cuts], [*cuts, len(work) - 1]))
