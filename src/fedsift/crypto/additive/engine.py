"""Vectors of numbers modulo a large odd number: what every engine of them offers (``montgomery``, ``cuda``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gmpy2
import numpy as np

Array = np.ndarray  # or a device's, which has the same functions


def split(raw: bytes, size: int) -> list[int]:
    return [int.from_bytes(raw[start : start + size], "little") for start in range(0, len(raw), size)]


class Modulus:
    """What both engines share. Exponents of one vector are treated alike: same steps, whatever their digits."""

    n: int

    def numbers(self, integers: Sequence[int]) -> Array:
        size = (self.n.bit_length() + 7) // 8
        return self.load(b"".join([int(each).to_bytes(size, "little") for each in integers]), size)

    def integers(self, a: Array) -> list[int]:
        size = (self.n.bit_length() + 7) // 8
        return split(self.dump(a, size), size)

    def load(self, raw: bytes, size: int) -> Array:
        """Numbers of ``size`` bytes each, little-endian."""
        raise NotImplementedError

    def dump(self, a: Array, size: int) -> bytes:
        raise NotImplementedError

    def take(self, a: Array, places: Array) -> Array:
        taken: Array = a[places]
        return taken

    def join(self, parts: Sequence[Array]) -> Array:
        return np.concatenate(parts)

    def grouped(self, values: Array, codes: Array, groups: Sequence[int]) -> Array | None:
        """Each group's product for each column of ``codes``, column after column, where an engine has its own way."""
        return None

    def product(self, a: Array, b: Array) -> Array:
        """Number by number; ``b`` may be a single one."""
        raise NotImplementedError

    def squared(self, a: Array, times: int) -> Array:
        """``a ** (2 ** times)``"""
        raise NotImplementedError

    def segments(self, values: Array, order: Array, bounds: Array) -> Array:
        """For each segment of ``order`` the product of the values at its positions; one for an empty segment."""
        raise NotImplementedError

    def power(self, a: Array, exponents: Sequence[int]) -> Array:
        """Each number to the power of its own exponent, none of them negative."""
        raise NotImplementedError

    def inverse(self, a: Array) -> Array:
        """One inversion for all: of the product, from which products of the others lead back to each."""
        if len(a) <= 1:
            return self.numbers([int(gmpy2.invert(each, self.n)) for each in self.integers(a)])
        half = len(a) // 2
        left, right = a[:half], a[half : 2 * half]
        both = self.inverse(np.concatenate([self.product(left, right), a[2 * half :]]))
        return np.concatenate([self.product(both[:half], right), self.product(both[:half], left), both[half:]])

    def power_table(self, base: int, digits: int) -> Any:
        """``base ** (d << 8 i)`` at place ``i << 8 | d``: a power of so many bytes is a product of as many entries."""
        rows = [self.numbers([base])]
        for _ in range(digits - 1):
            rows.append(self.squared(rows[-1], 8))
        first = np.concatenate(rows)
        table = np.stack([np.repeat(self.numbers([1]), digits, axis=0), first], axis=1)
        while (columns := table.shape[1]) < 256:  # all digits at once: d + columns from d
            step = np.repeat(self.product(table[:, -1], first), columns, axis=0)
            more = self.product(table.reshape(-1, *table.shape[2:]), step)
            table = np.concatenate([table, more.reshape(table.shape)], axis=1)
        return table.reshape(-1, *table.shape[2:])

    def table_powers(self, table: Any, exponents: bytes, count: int) -> Array:
        """The base of a ``power_table`` to so many exponents, little-endian, one after the other."""
        digits = np.frombuffer(exponents, np.uint8).reshape(count, -1 if exponents else 0)
        width = digits.shape[1]
        return self.segments(table, ((np.arange(width) << 8) + digits).ravel(), np.arange(count + 1) * width)


def check_lengths(a: Array, b: Sequence[int] | Array, *also: int) -> None:
    if len(b) not in (len(a), *also):
        raise IndexError(f"{len(a)} numbers do not go with {len(b)}")


def check_segments(values: Array, order: Array, bounds: Array) -> None:
    inside = not len(order) or (order.min() >= 0 and order.max() < len(values))
    if not inside or bounds[0] < 0 or bounds[-1] > len(order) or np.diff(bounds).min(initial=0) < 0:
        raise IndexError("a segment reaches outside the values")
