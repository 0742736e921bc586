"""How much noise the sums of a filter get, and what it protects.

*Neighbours*: two federations whose tables differ in the values of one person at one party (all columns of that party,
at the label holder the label too). Ids and the number of rows are public; so are the numbers of columns, bins and
classes. Each party adds noise for its own rows, full for itself: a party's guarantee needs nobody else's noise and
nobody else's word. A person whose values are replaced at q parties has q times the rho.

*Tables* are counted in bins whose edges are paid for (``paid_bins.py``, ``EDGES_SHARE`` of the rho of whoever holds the
columns): given the edges, a replaced row leaves one cell of each of its columns' tables and enters another, a changed
label likewise, so the squared L2 sensitivity is 2 a table, whatever the number of bins and classes. A regression target
has classes of ranks, ties by lot: a replaced one moves at most one row out of each class and one into it, 2 classes in
all.

*Rank sums* (the F statistic) have no bins. Ranks, ties by lot, are the whole numbers 2 r - (n - 1), so below n in size.
A row that moves from u to v shifts those between by 2 each, v - u in all, against its own move: its class's sum changes
by at most 2n, those of the other classes by 2n in all. A changed label: the old class loses at most n, the new one
gains at most n. Squared, of the counted classes (all but the last), for each column:

====================  ==========  ==========
replaced              2 classes   more
====================  ==========  ==========
a row                 4 n^2       8 n^2
the label             n^2         2 n^2
====================  ==========  ==========

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
from fedsift.crypto.dp import epsilon_to_rho, whole_gaussian_noise

#: Of the rho of whoever holds the columns: for the edges of their bins.
EDGES_SHARE = 0.3
#: Of the label holder's rho: for the sizes of the classes, where the sums themselves do not tell them.
SIZES_SHARE = 0.1
#: Deviations of its own noise that a party wants in a bin: fewer rows would tell nothing.
BIN_DEVIATIONS = 12


@dataclass(frozen=True)
class TableNoise:
    """The noise of one run's label tables, from public figures alone.

    ``ranked`` is the number of classes of a regression target, else 0; ``rho`` of the whole, of which ``share`` is for
    these tables.
    """

    rho: float
    ranked: int = 0
    share: float = 1 - EDGES_SHARE

    @property
    def edges_rho(self) -> float:
        """For the bins of all columns of one party."""
        return EDGES_SHARE * self.rho

    def party_scale(self, tables: int) -> float:
        """Standard deviation of what a party adds to each cell of its own tables."""
        return math.sqrt(max(1, tables) / (self.share * self.rho))

    def holder_scale(self, tables: int) -> float:
        """Of what the label holder adds to everybody's: its own rows, and its labels in all of them."""
        return math.sqrt(max(1, tables) * max(1, self.ranked) / (self.share * self.rho))

    def min_rows(self, scale: float, min_cell: int) -> int:
        """Of a bin."""
        return max(min_cell, math.ceil(BIN_DEVIATIONS * scale))


@dataclass(frozen=True)
class RankNoise:
    """The noise of one run's rank sums, from public figures alone."""

    rho: float
    rows: int
    classes: int

    def party_scale(self, columns: int) -> float:
        """Standard deviation of what a party adds to each of the sums of its own columns."""
        return math.sqrt(max(1, columns) * self._row / (2 * self.rho))

    def holder_scale(self, own: int, others: int) -> float:
        """Of what the label holder adds to the sums of everybody's columns: its own rows and the labels of others'."""
        return math.sqrt(max(1.0, own * self._row + others * self._label) / (2 * (1 - SIZES_SHARE) * self.rho))

    def sizes_scale(self) -> float:
        """Of what the label holder adds to the sizes of the classes."""
        return math.sqrt(self._counted / (2 * SIZES_SHARE * self.rho))

    @property
    def _counted(self) -> int:
        return 1 if self.classes == 2 else 2

    @property
    def _row(self) -> float:
        return self._counted * 4.0 * self.rows**2

    @property
    def _label(self) -> float:
        return self._counted * float(self.rows) ** 2


def room_bits(largest: float, rows: int, *scales: float) -> int:
    """Bits beside those of a count of rows that a slot needs for a sum, an offset and 32 deviations of noise."""
    return max(1, math.ceil(math.log2(4 * (largest + 32 * sum(scales)) / max(1, rows))))


@functools.lru_cache(maxsize=64)
def rho_of(epsilon: float, delta: float) -> float:
    """The largest rho within (epsilon, delta)."""
    return epsilon_to_rho(epsilon, delta)


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


def rank_classes(values: np.ndarray, classes: int) -> np.ndarray:
    """A regression target in equally full classes of ranks, ties by lot."""
    lot = np.random.default_rng(secrets.randbits(128)).permutation(len(values))
    result = np.empty(len(values), dtype=np.int32)
    result[np.lexsort([lot, values])] = np.arange(len(values)) * classes // max(1, len(values))
    return result
