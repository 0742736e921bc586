"""A party's bins as it lets others count them: small bins merged, labels shuffled."""

from __future__ import annotations

import secrets

import numpy as np

from fedsift.core.binning import ColumnBins, most_bins
from fedsift.core.party import Party
from fedsift.core.workers import side_by_side


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
