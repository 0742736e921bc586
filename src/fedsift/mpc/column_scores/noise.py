"""How much noise the sums of a filter get, and what it protects.

*Neighbours*: two federations whose tables differ in the values of one person at one party (all columns of that party,
at the label holder the label too). Ids and the number of rows are public; so are the numbers of columns, bins and
classes. Each party adds noise for its own rows, full for itself: a party's guarantee needs nobody else's noise and
nobody else's word. A person whose values are replaced at q parties has q times the rho.

*Bins* follow from ranks (``ranks``), ties by lot: no edge, no size of a bin and no number of bins depends on a value.
A replaced row moves at most one row over each edge between its old and its new rank, so each bin loses one row and
gains one.

*Sensitivity* (L2, squared, of the counted classes: all but the last), for each column:

====================  ===========================  ===========================
replaced              2 classes                    more
====================  ===========================  ===========================
a row, bin counts     bins                         2 bins
the label, counts     1                            2
a row, rank sums      4 n^2                        8 n^2
the label, rank sums  n^2                          2 n^2
====================  ===========================  ===========================

Rank sums: ranks are the whole numbers 2 r - (n - 1), so below n in size. A row that moves from u to v shifts those
between by 2 each, v - u in all, against its own move: its class's sum changes by at most 2n, those of the other classes
by 2n in all. A changed label: the old class loses at most n, the new one gains at most n.

*Mechanism*: discrete Gaussian noise on whole numbers (OpenDP), added under encryption by the party and to the masked
numbers by the label holder, before anything is opened: rho-zCDP with rho = sensitivity^2 / (2 scale^2), turned into
(epsilon, delta) by ``dp``. All columns of a run are one release; several runs add up.
"""

from __future__ import annotations

import functools
import math
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.checks import check_number
from fedsift.core.party import Party
from fedsift.crypto.dp import rho_to_epsilon, whole_gaussian_noise

#: Of the label holder's rho: for the sizes of the classes, where the sums themselves do not tell them.
SIZES_SHARE = 0.1


@dataclass(frozen=True)
class Noise:
    """The noise of one run, from public figures alone. ``bins`` is 0 for rank sums."""

    epsilon: float
    delta: float
    rows: int
    classes: int
    bins: int

    @property
    def rho(self) -> float:
        return _rho(self.epsilon, self.delta)

    def party_scale(self, columns: int) -> float:
        """Standard deviation of what a party adds to each of the sums of its own columns."""
        return math.sqrt(max(1, columns) * self._row / (2 * self.rho))

    def holder_scale(self, own: int, others: int) -> float:
        """Of what the label holder adds to the sums of everybody's columns: its own rows and the labels of others'."""
        share = 1.0 if self.bins else 1 - SIZES_SHARE
        return math.sqrt(max(1.0, own * self._row + others * self._label) / (2 * share * self.rho))

    def sizes_scale(self) -> float:
        """Of what the label holder adds to the sizes of the classes."""
        return math.sqrt(self._counted / (2 * SIZES_SHARE * self.rho))

    @property
    def _counted(self) -> int:
        return 1 if self.classes == 2 else 2

    @property
    def _row(self) -> float:
        return self._counted * (self.bins if self.bins else 4 * self.rows**2)

    @property
    def _label(self) -> float:
        return self._counted * (1 if self.bins else self.rows**2)

    def room_bits(self, largest: float, own: int, others: dict[str, int]) -> int:
        """Bits beside those of a count of rows that a slot needs for a sum, an offset and 32 deviations of noise."""
        parties = max((self.party_scale(count) for count in others.values()), default=0.0)
        reach = largest + 32 * (parties + self.holder_scale(own, sum(others.values())))
        return max(1, math.ceil(math.log2(4 * reach / max(1, self.rows))))


@functools.lru_cache(maxsize=64)
def _rho(epsilon: float, delta: float) -> float:
    """The largest rho within (epsilon, delta), by bisection, from below. (rho = epsilon is always too much.)"""
    low, high = 0.0, epsilon
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rho_to_epsilon(middle, delta) <= epsilon else (low, middle)
    return low


def make_noise(epsilon: float | None, delta: float, rows: int, classes: int, bins: int) -> Noise | None:
    return None if epsilon is None else Noise(float(epsilon), float(delta), rows, classes, bins)


def check_privacy(epsilon: Any, delta: Any) -> None:
    """Parameters of a filter."""
    check_number("epsilon", epsilon, 1e-6, none=True)
    check_number("delta", delta, 1e-15, 0.5)


def drawn(shape: tuple[int, int], scale: float) -> np.ndarray:
    """Noise from the operating system's randomness."""
    return whole_gaussian_noise(shape, scale) if shape[0] and shape[1] else np.zeros(shape, dtype=np.int64)


def ranks(party: Party) -> np.ndarray:
    """The rank of each row in each column (rows x columns), from 0; equal values by lot, missing ones first.

    Categories in the order of their names.
    """
    generator = np.random.default_rng(secrets.randbits(128))
    result = np.empty((party.n_rows, len(party.columns)), dtype=np.int64)
    for place, column in enumerate(party.columns):
        if party.table.kinds[column] == "categorical":
            values = party.table.codes(column)[0].astype(np.float64)
        else:
            values = party.table.values(column).astype(np.float64)
        lot = generator.permutation(party.n_rows)
        order = np.lexsort([lot, np.where(np.isnan(values), -np.inf, values)])
        result[order, place] = np.arange(party.n_rows)
    return result


def rank_bins(party: Party, bins: int) -> tuple[np.ndarray, list[int]]:
    """Equally full bins of ranks, for every column."""
    codes = (ranks(party) * bins // max(1, party.n_rows)).astype(np.int32)
    return codes, [bins] * len(party.columns)


def bin_sizes(rows: int, bins: int) -> np.ndarray:
    """How many rows each bin of ``rank_bins`` has: known from the number of rows."""
    return np.bincount(np.arange(rows) * bins // max(1, rows), minlength=bins)
