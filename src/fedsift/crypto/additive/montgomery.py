"""Vectors of numbers modulo a large odd number: products, powers, and products of many at once.

``modulus(n)`` gives the fastest engine of this machine. ``_Kernel`` runs eight products side by side on AVX-512's
52-bit multiply-and-add (``_montgomery.c``, compiled when the package is installed): 0.2 us for a product of 2048 bits
where GMP takes 1.5; four on AVX2 in twice that; one after the other elsewhere, a quarter slower than GMP, on all cores.
``_Gmp`` does the same with gmpy2 where nothing was compiled. Where the machine has a graphics processor, ``cuda`` takes
what is large. All give the same numbers to the last bit; a vector is an array whose first axis counts the numbers.

Work is shared by all cores; Python's lock is free meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz

from fedsift.crypto.additive import cuda
from fedsift.crypto.additive.engine import Modulus, check_lengths, check_segments, split
from fedsift.crypto.kernel import library, shared

_LIMB = 52
_MAX_LIMBS = 96  # as in the C file
_PAIR = 13  # bytes of two limbs
_CONVERTED = 1 << 12  # numbers from or to bytes that are worth a thread of their own
_LARGE = 8_000  # products that are worth a thread of their own
_Array = np.ndarray


def modulus(n: int) -> Modulus:
    machine = cuda.machine()
    return cpu_modulus(n) if machine is None else cuda.Device(cpu_modulus(n), machine)


def cpu_modulus(n: int) -> Modulus:
    """For moduli that are secret: these stay out of a device's memory."""
    return _Kernel(n) if library() is not None and n.bit_length() + 2 <= _LIMB * _MAX_LIMBS else _Gmp(n)


def _in_pieces(part: Callable[[int, int], None], count: int) -> None:
    """``part(first, last)`` over so many numbers, side by side, some at a time: what lies between stays small."""

    def several(first: int, last: int) -> None:
        for start in range(first, last, _CONVERTED):
            part(start, min(start + _CONVERTED, last))

    shared(several, np.arange(count + 1), _CONVERTED)


class _Kernel(Modulus):
    """Rows of 52-bit limbs in Montgomery's form, below 2n."""

    def __init__(self, n: int, compiled: Any = None):
        self.n = int(n)
        self.limbs = -(-(self.n.bit_length() + 2) // (2 * _LIMB)) * 2  # two bits free, and an even number
        self._library = compiled or library()
        self._row = self._split(self.n.to_bytes(self._bytes, "little"))
        self._inverse = -pow(self.n, -1, 1 << _LIMB) % (1 << _LIMB)
        radix = 1 << _LIMB * self.limbs
        self._enter = self._split((radix * radix % self.n).to_bytes(self._bytes, "little"))
        self._leave = self._split((1).to_bytes(self._bytes, "little"))
        self._one = self._split((radix % self.n).to_bytes(self._bytes, "little"))

    @property
    def _bytes(self) -> int:
        return self.limbs // 2 * _PAIR

    def _split(self, raw: bytes) -> _Array:
        """Bytes to limbs: 13 bytes hold two."""
        parts = np.frombuffer(raw, np.uint8).reshape(-1, self.limbs // 2, _PAIR)
        pair = np.zeros((len(parts), self.limbs // 2, 2, 8), np.uint8)
        pair[..., 0, :7], pair[..., 1, :7] = parts[..., :7], parts[..., 6:]
        limbs = pair.reshape(len(parts), self.limbs, 8).view("<u8")[..., 0]
        limbs[:, 0::2] &= np.uint64((1 << _LIMB) - 1)
        limbs[:, 1::2] >>= np.uint64(4)
        return limbs

    def _join(self, limbs: _Array) -> bytes:
        shifted = np.ascontiguousarray(limbs)
        shifted[:, 1::2] <<= np.uint64(4)
        pair = shifted.view(np.uint8).reshape(len(limbs), self.limbs // 2, 2, 8)
        parts = np.zeros((len(limbs), self.limbs // 2, _PAIR), np.uint8)
        parts[..., :7] = pair[..., 0, :7]
        parts[..., 6:] |= pair[..., 1, :7]
        return parts.tobytes()

    def load(self, raw: bytes, size: int) -> _Array:
        if size > self._bytes:
            return self.numbers([each % self.n for each in split(raw, size)])
        rows = np.frombuffer(raw, np.uint8).reshape(-1, size)
        limbs = np.empty((len(rows), self.limbs), np.uint64)

        def part(start: int, end: int) -> None:
            wide = np.zeros((end - start, self._bytes), np.uint8)
            wide[:, :size] = rows[start:end]
            some = limbs[start:end]
            some[:] = self._split(wide.tobytes())
            here = some.ctypes.data  # each product takes the place of its number
            self._library.fedsift_products(here, self._enter.ctypes.data, end - start, 1, *self._to(some))

        _in_pieces(part, len(rows))
        return limbs

    def dump(self, a: _Array, size: int) -> bytes:
        plain = self.product(a, self._leave)  # at most n, and n itself only for zero
        wide = np.zeros((len(a), max(size, self._bytes)), np.uint8)

        def part(start: int, end: int) -> None:
            some = plain[start:end]
            some[(some == self._row).all(axis=1)] = 0
            joined = np.frombuffer(self._join(some), np.uint8)
            wide[start:end, : self._bytes] = joined.reshape(end - start, self._bytes)

        _in_pieces(part, len(a))
        return wide[:, :size].tobytes()

    def product(self, a: _Array, b: _Array) -> _Array:
        check_lengths(a, b, 1)  # C would read outside the arrays
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        out = np.empty_like(a)

        def part(start: int, end: int) -> None:
            other = b if len(b) == 1 else b[start:end]
            self._library.fedsift_products(
                a[start:end].ctypes.data, other.ctypes.data, end - start, len(other), *self._to(out[start:end])
            )

        shared(part, np.arange(len(a) + 1), _LARGE)
        return out

    def squared(self, a: _Array, times: int) -> _Array:
        a = np.ascontiguousarray(a)
        out = np.empty_like(a)

        def part(start: int, end: int) -> None:
            self._library.fedsift_squares(a[start:end].ctypes.data, end - start, times, *self._to(out[start:end]))

        shared(part, np.arange(len(a) + 1) * times, _LARGE)
        return out

    def segments(self, values: _Array, order: _Array, bounds: _Array) -> _Array:
        lengths = np.diff(bounds)
        check_segments(values, order, bounds)
        longest = max(64, int(lengths.sum()) // 64)  # a lane with a long segment would work on alone at the end
        pieces = np.maximum(1, -(-lengths // longest))
        if pieces.max(initial=0) > 1:
            starts = np.repeat(bounds[:-1], pieces)
            ends = np.cumsum(pieces)
            number = np.arange(ends[-1]) - np.repeat(ends - pieces, pieces)
            cut = np.append(starts + number * longest, bounds[-1])
            return self.segments(self.segments(values, order, cut), np.arange(ends[-1]), np.append(0, ends))
        values = np.ascontiguousarray(values)
        order, bounds = np.ascontiguousarray(order, np.int64), np.ascontiguousarray(bounds, np.int64)
        out = np.empty((len(lengths), self.limbs), np.uint64)

        def part(first: int, last: int) -> None:
            self._library.fedsift_segments(
                values.ctypes.data, order.ctypes.data, bounds.ctypes.data, first, last, self._one.ctypes.data,
                *self._to(out),
            )  # fmt: skip

        shared(part, bounds - bounds[0], _LARGE)
        return out

    def power(self, a: _Array, exponents: Sequence[int]) -> _Array:
        check_lengths(a, exponents)
        a = np.ascontiguousarray(a)
        size = max([(int(e).bit_length() + 7) // 8 for e in exponents], default=0)
        digits = np.frombuffer(b"".join([int(e).to_bytes(size, "big") for e in exponents]), np.uint8)
        out = np.empty_like(a)

        def part(start: int, end: int) -> None:
            self._library.fedsift_powers(
                a[start:end].ctypes.data, end - start, digits[start * size :].ctypes.data, size, self._one.ctypes.data,
                *self._to(out[start:end]),
            )  # fmt: skip

        shared(part, np.arange(len(a) + 1) * size * 10, _LARGE)
        return out

    def _to(self, out: _Array) -> tuple[Any, ...]:
        return self._row.ctypes.data, self._inverse, out.ctypes.data, self.limbs


class _Gmp(Modulus):
    """Plain numbers of GMP in an array of objects."""

    def __init__(self, n: int):
        self.n, self._n = int(n), mpz(n)

    def load(self, raw: bytes, size: int) -> _Array:
        return self._array([mpz(each) % self._n for each in split(raw, size)])

    def dump(self, a: _Array, size: int) -> bytes:
        return b"".join([int(each).to_bytes(size, "little") for each in a])

    def product(self, a: _Array, b: _Array) -> _Array:
        check_lengths(a, b, 1)
        return a * b % self._n if len(a) else a

    def squared(self, a: _Array, times: int) -> _Array:
        return self._raised(a, mpz(1) << times)

    def segments(self, values: _Array, order: _Array, bounds: _Array) -> _Array:
        check_segments(values, order, bounds)
        listed, n, products = values[order].tolist(), self._n, []
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
            product = mpz(1)
            for value in listed[start:end]:
                product = product * value % n
            products.append(product)
        return self._array(products)

    def power(self, a: _Array, exponents: Sequence[int]) -> _Array:
        check_lengths(a, exponents)
        if len(set(exponents)) == 1:
            return self._raised(a, mpz(exponents[0]))
        return self._array([gmpy2.powmod(x, int(e), self._n) for x, e in zip(a, exponents)])

    def _raised(self, a: _Array, exponent: Any) -> _Array:
        """gmpy2 frees Python's lock while it raises a list to a power."""
        values = a.tolist()
        parts = shared(
            lambda start, end: gmpy2.powmod_base_list(values[start:end], exponent, self._n), np.arange(len(a) + 1), 16
        )
        return self._array([each for part in parts for each in part])

    @staticmethod
    def _array(values: list[Any]) -> _Array:
        out = np.empty(len(values), dtype=object)
        out[:] = values
        return out
