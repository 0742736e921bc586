"""Numbers modulo 2^192, three 64-bit words each (lowest first): room for exact cross products of fractions on shares.

An array of numbers has one axis more than its shape, the words. Everything wraps, as in ``ring.py``; a number above
half of the ring is negative.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Wide = NDArray[np.uint64]
WORDS = 3
BITS = 64 * WORDS
_LIMBS, _LOW = 2 * WORDS, np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def widen(values: NDArray[np.integer]) -> Wide:
    """Whole numbers of 64 bits; signed ones keep their sign."""
    out = np.zeros((*np.shape(values), WORDS), dtype=np.uint64)
    array = np.asarray(values)
    out[..., 0] = array.astype(np.uint64)
    if array.dtype.kind == "i":
        out[array < 0, 1:] = np.uint64(2**64 - 1)
    return out


def from_ints(values: Iterable[int]) -> Wide:
    """A list of Python numbers of any size below 2^191."""
    raw = b"".join((value % 2**BITS).to_bytes(8 * WORDS, "little") for value in values)
    return np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(-1, WORDS)


def to_ints(numbers: Wide) -> list[int]:
    """The numbers of a list back, with their sign."""
    raw = [int.from_bytes(row.astype("<u8").tobytes(), "little") for row in numbers.reshape(-1, WORDS)]
    return [value - 2**BITS if value >> (BITS - 1) else value for value in raw]


def add(first: Wide, *others: Wide) -> Wide:
    total = _limbs(first)
    for other in others:
        total = total + _limbs(other)
    return _words(total)


def total(numbers: Wide) -> Wide:
    """The sum of a list of numbers."""
    return _words(_limbs(numbers).sum(axis=0, dtype=np.uint64))


def minus(first: Wide, second: Wide) -> Wide:
    total = _limbs(first) + _limbs(~second)
    total[..., 0] += np.uint64(1)
    return _words(total)


def times(first: Wide, second: Wide) -> Wide:
    """Elementwise products."""
    a, b = _limbs(first), _limbs(second)
    total = np.zeros(np.broadcast_shapes(a.shape, b.shape), dtype=np.uint64)
    for i in range(_LIMBS):
        parts = a[..., i : i + 1] * b[..., : _LIMBS - i]
        total[..., i:] += parts & _LOW
        total[..., i + 1 :] += parts[..., :-1] >> _HALF
    return _words(total)


def shifted(numbers: Wide, bits: int) -> Wide:
    """Times 2^bits."""
    return times(numbers, from_ints([2**bits])[0])


def narrow(numbers: Wide, parts: int) -> NDArray[np.uint32]:
    """The lowest 32-bit parts, as numbers travel where the highest are not needed."""
    limbs = np.ascontiguousarray(numbers.astype("<u8")).view("<u4")
    return limbs[..., :parts].astype(np.uint32)


def widened(parts: NDArray[np.uint32]) -> Wide:
    """Back, with zeros above."""
    out = np.zeros((*parts.shape[:-1], _LIMBS), dtype="<u4")
    out[..., : parts.shape[-1]] = parts
    return out.view("<u8").astype(np.uint64)


def signed(negative: NDArray[np.bool_], numbers: Wide) -> Wide:
    """Minus the number where ``negative``."""
    return np.where(negative[..., None], minus(np.zeros_like(numbers), numbers), numbers)


def where(chosen: NDArray[np.bool_], numbers: Wide) -> Wide:
    """The number where ``chosen``, else zero."""
    return numbers * chosen[..., None].astype(np.uint64)


def _limbs(numbers: Wide) -> Wide:
    out = np.empty((*numbers.shape[:-1], _LIMBS), dtype=np.uint64)
    out[..., 0::2], out[..., 1::2] = numbers & _LOW, numbers >> _HALF
    return out


def _words(limbs: Wide) -> Wide:
    for i in range(_LIMBS - 1):
        limbs[..., i + 1] += limbs[..., i] >> _HALF
    limbs &= _LOW
    return limbs[..., 0::2] | (limbs[..., 1::2] << _HALF)
