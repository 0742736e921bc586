"""How many numbers a reply holds, and how exact they are: what a site's journal adds up (``site/journal.py``).

A release is counted in bits: the number of statistics times the precision of each. Numbers are taken as they stand in
the reply: 53 bits for a float, as many as the largest one has for whole numbers, one for a truth value. Texts (names)
are none. An operation whose receiver reads something else than the reply says so itself (``releases=``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Who can read what an operation lets out (``opened_by=``).
#: ``result``: a figure of the answer itself, which is passed on; it counts whoever opened it.
READERS = ("coordinator", "active", "passive", "parties", "result")


@dataclass(frozen=True)
class Release:
    """So many numbers of so many bits each."""

    statistics: int
    precision: float

    @property
    def bits(self) -> float:
        return self.statistics * self.precision


def numbers_in(value: Any) -> Release:
    """The numbers of a reply, and the mean precision of one."""
    sizes = list(_numbers(value))
    count = sum(size for size, _ in sizes)
    bits = sum(size * precision for size, precision in sizes)
    return Release(count, bits / count if count else 0.0)


def rounded_numbers(value: Any) -> Release:
    """Figures that were rounded before they left: of each as many digits as the longest of them has."""
    told = [number for number in _plain_numbers(value) if math.isfinite(number)]
    decimals = max((_decimals(number) for number in told), default=0)
    largest = max((abs(number) for number in told), default=0.0)
    return Release(len(told), math.log2(10**decimals * max(1.0, largest) + 1.0))


def later(value: Any) -> Release:
    """Nothing yet: what is computed about these rows here leaves with a later step, so the rows are entered now."""
    return Release(0, 0.0)


def row_by_row(value: Any) -> Release:
    """A number of each row, which somebody reads: limited by how often, not in bits (any budget would be exceeded)."""
    return Release(1, 24.0)


def _plain_numbers(value: Any) -> Iterator[float]:
    if isinstance(value, np.ndarray):
        yield from (float(number) for number in value.ravel())
    elif isinstance(value, (int, float, np.generic)) and not isinstance(value, (bool, np.bool_)):
        yield float(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _plain_numbers(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _plain_numbers(item)


def _decimals(number: float) -> int:
    return next((places for places in range(16) if round(number, places) == number), 16)


def _numbers(value: Any) -> Iterator[tuple[int, float]]:
    if isinstance(value, np.ndarray):
        if value.size and value.dtype.kind in "fiub":
            yield value.size, _precision(value)
    elif isinstance(value, (bool, int, float, np.generic)):
        yield from _numbers(np.asarray(value))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _numbers(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers(item)


def _precision(values: np.ndarray) -> float:
    if values.dtype.kind == "b":
        return 1.0
    if values.dtype.kind == "f":
        return float(np.finfo(values.dtype).nmant + 1)
    return float(max(1, int(values.max()).bit_length(), int(values.min()).bit_length()))
