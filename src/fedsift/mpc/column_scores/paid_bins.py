"""Bins under differential privacy: their edges are paid for, so that a replaced row moves one row of a table.

Bins that follow from a column's own quantiles move with every row: a replaced one shifts a row over each edge, in the
worst case of heavy values thousands. Here a party searches its edges by counts that carry noise of their own, and bins
are made from those counts alone (``core/binning.py``'s rule: heavy values apart, the rest at its quantiles). Given the
edges a replaced row leaves one cell of a column's table and enters another, whatever the number of bins.

*Numbers* lie on a fixed grid that knows nothing of the data: zero, and for either sign the powers of two from 2^-20 to
2^44, each cut into 2^12 steps. Negative ones, zero and positive ones are counted first; a range that holds many rows is
cut into ``WAYS``, again and again, ``LEVELS`` times. *Categories* go by a public hash of their name into ``BUCKETS``.
*Missing values* are one more range. What is below a few deviations of the noise counts as empty, and lies in its
neighbour's bin.

Neighbours are tables in which one row's values are replaced (``noise.py``). Each level's counts are of disjoint ranges:
a replaced row moves two of them by 1, so a level of one column has a squared L2 sensitivity of 2 and costs 1 / variance
with discrete Gaussian noise. The first level takes half of a column's rho, the others share the rest; categories have a
first level only. Which ranges are looked at depends on released counts only (adaptive composition of zCDP). Whether a
column holds numbers or categories is public.

The constants were chosen on generated tables and on spambase, phishing_websites, jm1 and california_housing, by how
many of the five best columns by information value are found at epsilon 3, 1 and 0.3. The tables of
``benchmarks/epsilon.py`` steered none of them (adult, without noise, showed what bins of ranks had missed).

``countable_bins`` are a party's bins as it lets others count them without noise: small ones merged, labels shuffled.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from fedsift.core.binning import ColumnBins, cuts_of, most_bins
from fedsift.core.party import Party
from fedsift.core.workers import side_by_side
from fedsift.crypto.dp import whole_gaussian_noise

LOWEST, POWERS = -20, 64  # of two: the first, and how many
STEPS = 1 << 12  # of the grid, from one power to the next
WAYS = 8  # ranges that a range is cut into
LEVELS = 6  # cuts until a range is a single step
BUCKETS = 256  # of the hash of a category

_ZERO = POWERS * STEPS  # the grid's place of zero, and of what is nearer to it than the first power
_MISSING = -1
_EMPTY = 4.0  # deviations of the noise: a range with less counts as empty
_PART_EMPTY = 3.0  # the same for a part of a range that is not empty


def places(values: np.ndarray) -> np.ndarray:
    """The place of each number on the grid, in the order of the numbers; missing ones are at ``_MISSING``."""
    fraction, power = np.frexp(np.nan_to_num(np.abs(values), nan=0.0, posinf=np.finfo(float).max))
    inside = np.floor((fraction - 0.5) * 2 * STEPS).astype(np.int64) + 1
    size = (power.astype(np.int64) - 1 - LOWEST) * STEPS + inside
    size = np.where(fraction > 0, np.clip(size, 0, POWERS * STEPS), 0)
    return np.where(np.isnan(values), _MISSING, _ZERO + np.where(values < 0, -size, size))


def numbers(at: np.ndarray) -> np.ndarray:
    """The numbers in the middle of places of the grid: the other way round."""
    size = np.maximum(np.abs(at - _ZERO) - 0.5, 0.0) / STEPS
    whole = np.floor(size)
    return np.asarray(
        np.sign(at - _ZERO) * np.where(at == _ZERO, 0.0, np.ldexp(1 + size - whole, whole.astype(np.int64) + LOWEST))
    )


def buckets(names: list[str]) -> np.ndarray:
    """The bucket of each category: by its name alone, the same in every table."""
    return np.array([blake2b(name.encode(), digest_size=8).digest()[0] % BUCKETS for name in names], dtype=np.int64)


@dataclass
class _Column:
    """Where the rows of one column lie, and the ranges found so far: their begins, ends and noisy counts."""

    places: np.ndarray
    in_order: np.ndarray = field(repr=False)  # the same, sorted
    ordered: bool
    begins: np.ndarray
    ends: np.ndarray
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, party: Party, column: str) -> _Column:
        """Before the search."""
        ordered = party.table.kinds[column] != "categorical"

        def placed() -> tuple[np.ndarray, np.ndarray]:
            if ordered:
                at = places(party.table.values(column))
            else:
                codes, names = party.table.codes(column)
                at = np.append(buckets(names), _MISSING)[codes]
            return at, np.sort(at)

        starts = np.array([_MISSING, 0, _ZERO, _ZERO + 1, 2 * _ZERO + 1])  # missing, negative, zero, positive
        starts = starts if ordered else np.arange(_MISSING, BUCKETS + 1)
        at, in_order = party.cached(("places", column), placed)
        return cls(at, in_order, ordered, starts[:-1], starts[1:])

    @classmethod
    def of_numbers(cls, values: np.ndarray) -> _Column:
        """The same for numbers that are no column of a table."""
        at = places(values)
        starts = np.array([_MISSING, 0, _ZERO, _ZERO + 1, 2 * _ZERO + 1])
        return cls(at, np.sort(at), True, starts[:-1], starts[1:])

    def exact(self, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        return np.asarray(np.searchsorted(self.in_order, ends) - np.searchsorted(self.in_order, begins))

    def to_cut(self, least: float) -> np.ndarray:
        """The ranges that hold many rows and more than one step."""
        if not self.ordered:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero((self.counts >= least) & (self.ends - self.begins > 1) & (self.begins != _MISSING))

    def cut(self, which: np.ndarray, noisy: np.ndarray, empty: float) -> None:
        """Put the parts of the ranges ``which`` in their place; what a range had is shared by parts that are not empty.

        A range none of whose parts shows stays as it is.
        """
        pieces = {}
        for place, counts in zip(which.tolist(), noisy):
            shown = np.where(counts < empty, 0.0, counts)
            if shown.sum() > 0:
                pieces[place] = shown * (self.counts[place] / shown.sum())
        begins, ends = _parts(self.begins, self.ends)
        rows = range(len(self.counts))
        self.counts = np.concatenate([pieces.get(i, self.counts[i : i + 1]) for i in rows])
        self.begins, self.ends = (
            np.concatenate([cut[i] if i in pieces else whole[i : i + 1] for i in rows])
            for cut, whole in ((begins, self.begins), (ends, self.ends))
        )

    def codes(self, n_bins: int, min_rows: int, most: int | None = None) -> tuple[np.ndarray, int]:
        """The bin of each row and how many bins there are, from the noisy counts.

        Categories that are too few share a bin, if any of them shows at all. Of ``most`` that have one of their own,
        the smallest takes them too, if together they are too few.
        """
        if self.ordered:
            edges = self._edges(n_bins, min_rows)
            codes, count = np.searchsorted(edges, self.places, side="right"), len(edges) + 1
        else:
            present = self.counts[1:]
            own = np.argsort(-present, kind="stable")[:most]
            own = np.sort(own[present[own] >= max(min_rows, 1)])
            lookup, count = np.full(BUCKETS, len(own), dtype=np.int64), len(own) + 1
            lookup[own] = np.arange(len(own))
            if len(own) and present.sum() - present[own].sum() < (1 if most is None else min_rows):
                lookup[lookup == len(own)], count = int(np.argmin(present[own])), len(own)
            codes = lookup[np.maximum(self.places, 0)]
        if self.counts[0] >= min_rows:
            codes, count = np.where(self.places == _MISSING, count, codes), count + 1
        return codes.astype(np.int32), count

    def _edges(self, n_bins: int, min_rows: int) -> np.ndarray:
        """Where bins of numbers begin, but the first."""
        present = np.rint(self.counts[1:]).astype(np.int64)
        full = np.flatnonzero(present > 0)
        after = np.asarray(cuts_of(present[full], n_bins, min_rows), dtype=np.int64) + 1
        return np.asarray(self.begins[1:][full][after])

    def stands(self, n_bins: int, min_rows: int) -> np.ndarray:
        """Where the bins of ``codes`` lie, of mean 0 and variance 1 by the noisy counts alone; missing values at 0.

        The bins of a category stand nowhere (NaN).
        """
        count = self.codes(n_bins, min_rows)[1]
        if not self.ordered:
            return np.full(count, np.nan)
        counts, edges, middle = np.maximum(self.counts[1:], 0.0), self._edges(n_bins, min_rows), self._middles()
        middle = middle / max(np.abs(middle[counts > 0]).max(initial=0.0), np.finfo(float).tiny)
        bins = np.searchsorted(edges, self.begins[1:], side="right")
        held = np.bincount(bins, counts, len(edges) + 1)
        found = np.bincount(bins, np.where(counts > 0, counts * middle, 0.0), len(edges) + 1) / np.maximum(held, 1e-9)
        shares = held / max(held.sum(), 1e-9)
        found = found - shares @ found
        spread = float(np.sqrt(shares @ found**2))
        found = found / spread if spread > 1e-9 else np.zeros(len(found))
        return np.append(found, np.zeros(count - len(found)))

    def _middles(self) -> np.ndarray:
        """Where the ranges of numbers stand: each in its middle.

        One wider than from one power of two to the next could not be searched, for it holds few rows: it stands at the
        end that is nearer to the column's median, as a clipped value does; the median's own at the end nearer to zero.
        """
        counts = np.maximum(self.counts[1:], 0.0)
        low, high = numbers(self.begins[1:]), numbers(self.ends[1:] - 1)
        median = np.searchsorted(np.cumsum(counts), counts.sum() / 2)
        nearer = np.where(np.arange(len(counts)) > median, low, high)
        nearer[median : median + 1] = min(low[median], high[median], key=abs) if median < len(low) else 0.0
        return np.asarray(np.where(self.ends[1:] - self.begins[1:] > STEPS, nearer, low / 2 + high / 2))

    def standardised(self, values: np.ndarray) -> np.ndarray:
        """Numbers held between the outermost ranges that show, of mean 0 and variance 1 by the noisy counts alone.

        Missing values are at 0, and so are all where the counts show one range only, or none.
        """
        counts, middle = np.maximum(self.counts[1:], 0.0), self._middles()
        full = np.flatnonzero(counts > 0)
        if len(full) < 2:
            return np.zeros(len(values))
        least, most = middle[full[0]], middle[full[-1]]
        size = max(abs(least), abs(most))
        stands, shares = middle[full] / size, counts[full] / counts[full].sum()
        mean = float(shares @ stands)
        spread = math.sqrt(float(shares @ (stands - mean) ** 2))
        held = (np.clip(values, least, most) / size - mean) / spread if spread > 1e-9 else np.zeros(len(values))
        return np.asarray(np.where(np.isnan(values), 0.0, held))


def _parts(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each range in ``WAYS`` equal parts (ranges x parts)."""
    at = begins[:, None] + (ends - begins)[:, None] * np.arange(WAYS + 1) // WAYS
    return at[:, :-1], at[:, 1:]


def paid_bins(party: Party, n_bins: int, rho: float, min_rows: int) -> tuple[np.ndarray, list[int]]:
    """Bin of each row for all columns (rows x columns) and the number of bins of each, for ``rho`` in all.

    ``min_rows`` is how many rows a bin should have: what it has is known up to noise only.
    """
    return coded(searched(party, n_bins, rho), party.n_rows, n_bins, min_rows)


def coded(
    columns: list[_Column], rows: int, n_bins: int, min_rows: int, most: int | None = None
) -> tuple[np.ndarray, list[int]]:
    """Bin of each row and number of bins, of all columns, from their counts."""
    found = [column.codes(n_bins, min_rows, most) for column in columns]
    codes = np.stack([codes for codes, _ in found], axis=1) if found else np.zeros((rows, 0), np.int32)
    return codes, [count for _, count in found]


def searched(party: Party, n_bins: int, rho: float) -> list[_Column]:
    """The columns with the ranges and noisy counts that were found for ``rho`` in all: all that bins are made of."""
    return _search([_Column.of(party, column) for column in party.columns], party.n_rows, n_bins, rho)


def standardised(values: np.ndarray, n_bins: int, rho: float) -> np.ndarray:
    """Numbers (rows x columns) held within bounds, of mean 0 and variance 1, by counts that cost ``rho``.

    Given the counts, what becomes of a row follows from its own values alone. Counts are as fine as ``n_bins`` needs.
    """
    columns = _search([_Column.of_numbers(column) for column in values.T], len(values), n_bins, rho)
    found = [column.standardised(each) for column, each in zip(columns, values.T)]
    return np.stack(found, axis=1) if found else np.zeros((len(values), 0))


def _search(columns: list[_Column], rows: int, n_bins: int, rho: float) -> list[_Column]:
    each = rho / max(1, len(columns))
    for column in columns:
        scale = math.sqrt((2 if column.ordered else 1) / each)
        first = column.exact(column.begins, column.ends) + whole_gaussian_noise(len(column.begins), scale)
        column.counts = np.where(first < _EMPTY * scale, 0.0, first)
    scale = math.sqrt(2 * LEVELS / each)
    for _ in range(LEVELS):
        for column in columns:
            which = column.to_cut(max(rows / (4 * n_bins), _EMPTY * scale))
            if len(which):
                begins, ends = _parts(column.begins[which], column.ends[which])
                noisy = column.exact(begins, ends) + whole_gaussian_noise(begins.shape, scale)
                column.cut(which, noisy, _PART_EMPTY * scale)
    return columns


def merge_small(codes: np.ndarray, count: int, min_cell: int) -> tuple[np.ndarray, int]:
    """Merge bins of fewer than ``min_cell`` rows with the next smallest."""
    sizes = np.bincount(codes, minlength=count).tolist()
    target = list(range(count))
    alive = [bin for bin in range(count) if sizes[bin] > 0]
    while len(alive) > 1:
        small = min(alive, key=lambda bin: sizes[bin])
        if sizes[small] >= min_cell:
            break
        into = min((bin for bin in alive if bin != small), key=lambda bin: sizes[bin])
        sizes[into] += sizes[small]
        target = [into if t == small else t for t in target]
        alive.remove(small)
    renumber = {bin: number for number, bin in enumerate(alive)}
    lookup = np.array([renumber.get(t, 0) for t in target], dtype=np.int32)
    return lookup[codes], len(alive)


def countable_bins(party: Party, n_bins: int, min_cell: int, *, shuffle: bool = True) -> tuple[np.ndarray, list[int]]:
    """Bin of each row for all columns (rows x columns) and the number of bins of each column.

    No bin has fewer than ``min_cell`` rows (unless the whole column has), and bin numbers are shuffled by the
    operating system's generator, so that a number says nothing about the values in it.
    """
    generator = np.random.default_rng(secrets.randbits(128))
    table, counts = party.table, [0] * len(party.columns)
    # A byte or two a cell, column after column: of a long table the bins are all that is in memory.
    codes = np.empty((party.n_rows, len(counts)), np.min_scalar_type(most_bins(n_bins)), order="F")

    def fill(place: int) -> None:
        # Numbers are cut into large enough bins to begin with: what is merged are categories and missing values.
        bins = ColumnBins.fit(table, party.columns[place], n_bins, min_cell)
        codes[:, place], counts[place] = merge_small(bins.codes(table), bins.count, min_cell)

    side_by_side(fill, range(len(counts)))
    if shuffle:
        orders = [generator.permutation(count).astype(codes.dtype) for count in counts]

        def turn(place: int) -> None:
            codes[:, place] = orders[place][codes[:, place]]

        side_by_side(turn, range(len(counts)))
    return codes, counts
