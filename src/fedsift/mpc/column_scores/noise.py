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

*Mechanism*: discrete Gaussian noise on whole numbers (OpenDP), added under encryption by the party and to the masked
numbers by the label holder, before anything is opened: rho-zCDP with rho = sensitivity^2 / (2 scale^2), turned into
(epsilon, delta) by ``dp``. All columns of a run are one release; several runs add up.
"""

from __future__ import annotations

import functools
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedsift.core.checks import check_number
from fedsift.core.federation import Federation
from fedsift.crypto.dp import LEAST_DELTA, MOST_DELTA, epsilon_to_rho, whole_gaussian_noise

#: Of the rho of whoever holds the columns: for the edges of their bins.
EDGES_SHARE = 0.3
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


def room_bits(largest: float, rows: int, *scales: float) -> int:
    """Bits beside those of a count of rows that a slot needs for a sum, an offset and 32 deviations of noise."""
    return max(1, math.ceil(math.log2(4 * (largest + 32 * sum(scales)) / max(1, rows))))


@functools.lru_cache(maxsize=64)
def rho_of(epsilon: float, delta: float) -> float:
    """The largest rho within (epsilon, delta)."""
    return epsilon_to_rho(epsilon, delta)


def check_privacy(epsilon: object, delta: object) -> None:
    """Parameters of a filter."""
    check_number("epsilon", epsilon, 1e-6, none=True)
    check_number("delta", delta, LEAST_DELTA, MOST_DELTA)


def note_hidden(fed: Federation, bins: Mapping[str, np.ndarray]) -> None:
    """Say how many columns noise has left nothing of; ``bins`` are those of each party's columns."""
    counts = np.concatenate([np.zeros(0), *bins.values()])
    if hidden := int((counts < 2).sum()):
        fed.ledger.note(
            f"noise: {hidden} of {len(counts)} columns show one bin only and so score nothing (or are the same in all "
            "rows); with more rows, fewer columns or a larger epsilon they show more"
        )


def drawn(shape: tuple[int, int], scale: float) -> np.ndarray:
    """Noise from the operating system's randomness."""
    return whole_gaussian_noise(shape, scale) if shape[0] and shape[1] else np.zeros(shape, dtype=np.int64)


def rank_classes(values: np.ndarray, classes: int) -> np.ndarray:
    """A regression target in equally full classes of ranks, ties by lot."""
    lot = np.random.default_rng(secrets.randbits(128)).permutation(len(values))
    result = np.empty(len(values), dtype=np.int32)
    result[np.lexsort([lot, values])] = np.arange(len(values)) * classes // max(1, len(values))
    return result
