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
_BLOCK = 1 << 12  # numbers that are multiplied at a time: what stays near the processor


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
    for other in others:
        first = _added(first, other)
    return first


def _added(first: Wide, second: Wide) -> Wide:
    """Word by word: a word that is smaller than what was added to it has wrapped."""
    out = np.empty(np.broadcast_shapes(first.shape, second.shape), dtype=np.uint64)
    carry = np.zeros(out.shape[:-1], dtype=np.uint64)
    for k in range(WORDS):
        part = first[..., k] + second[..., k]
        wrapped = part < second[..., k]
        np.add(part, carry, out=out[..., k])
        carry = (wrapped | (out[..., k] < carry)).astype(np.uint64)
    return out


def total(numbers: Wide) -> Wide:
    """The sum of a list of numbers."""
    return _words(_limbs(numbers).sum(axis=0, dtype=np.uint64))


def minus(first: Wide, second: Wide) -> Wide:
    out = np.empty(np.broadcast_shapes(first.shape, second.shape), dtype=np.uint64)
    borrow = np.zeros(out.shape[:-1], dtype=np.uint64)
    for k in range(WORDS):
        part = first[..., k] - second[..., k]
        below = (first[..., k] < second[..., k]) | (part < borrow)
        np.subtract(part, borrow, out=out[..., k])
        borrow = below.astype(np.uint64)
    return out


def times(first: Wide, second: Wide) -> Wide:
    """Elementwise products."""
    if first.shape != second.shape or first.ndim != 2 or len(first) <= _BLOCK:
        return _times(first, second)
    starts = range(0, len(first), _BLOCK)
    return np.concatenate([_times(first[at : at + _BLOCK], second[at : at + _BLOCK]) for at in starts])


def _times(first: Wide, second: Wide) -> Wide:
    """In halves of words: sums of six lower or upper halves stay far below 2^64."""
    a, b = _halves(first), _halves(second)
    out = np.empty(np.broadcast_shapes(first.shape, second.shape), dtype=np.uint64)
    carry = np.zeros(out.shape[:-1], dtype=np.uint64)
    for place in range(_LIMBS):
        low, high = carry, np.zeros_like(carry)
        for i in range(place + 1):
            part = a[i] * b[place - i]
            low += part & _LOW
            part >>= _HALF
            high += part
        high += low >> _HALF
        if place % 2:
            out[..., place // 2] |= low << _HALF
        else:
            np.bitwise_and(low, _LOW, out=out[..., place // 2])
        carry = high
    return out


def _halves(numbers: Wide) -> list[Wide]:
    """Lower and upper half of every word, each as an array of its own."""
    return [part for k in range(WORDS) for part in (numbers[..., k] & _LOW, numbers[..., k] >> _HALF)]


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
