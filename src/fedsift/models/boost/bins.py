"""A party's bins for boosting: edges that stay with the party, and groups of bins that may be shown to others.

``safe_groups`` joins the bins of a node until
every group that will be summed has at least ``least`` rows, in the node and in its sibling (whose sums follow by
subtraction): so no sum that the label holder reads, or can compute, is about fewer rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedsift.core.binning import ColumnBins
from fedsift.core.party import Party
from fedsift.core.workers import side_by_side
from fedsift.errors import OperationRefused

#: Bins of a number that a search may take, where the job's method has no ``n_bins`` (the swarm's range).
SEARCHED_BINS = (5, 20)
#: The largest penalty (gamma, reg_lambda) that a search may take.
SEARCHED_PENALTY = 20


def fitted_bins(party: Party, bins: int) -> tuple[list[ColumnBins], np.ndarray]:
    """All columns of the party's view: their bins and the bin of each row (rows x columns)."""
    most = _binned_once(party, bins)

    def fit() -> tuple[list[ColumnBins], np.ndarray]:
        table = party.table
        fine = side_by_side(lambda column: ColumnBins.fit(table, column, most), party.columns)
        fitted = fine if bins == most else [merged(each, bins) for each in fine]
        # Without missing values in training -1 cannot occur here, so every code is a bin: mostly a byte a cell.
        kind = np.min_scalar_type(max((each.count for each in fitted), default=1))
        codes = np.zeros((party.n_rows, len(fitted)), kind, order="F")

        def fill(place: int) -> None:
            codes[:, place] = fitted[place].codes(table)

        side_by_side(fill, range(len(fitted)))
        return fitted, codes

    return party.cached(("boost bins", bins, most), fit)


def held_bits(cuts: np.ndarray) -> float:
    """How many bits say in which bins of all columns a row lies, at most, where these are their candidate cuts."""
    return float(np.log2(1.0 + cuts).sum())


def chosen_codes(codes: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Some of the columns; nothing is copied where it is all of them."""
    if np.array_equal(columns, np.arange(codes.shape[1])):
        return codes
    chosen = np.empty((len(codes), len(columns)), codes.dtype, order="F")

    def fill(place: int) -> None:
        chosen[:, place] = codes[:, columns[place]]

    side_by_side(fill, range(len(columns)))
    return chosen


def _binned_once(party: Party, bins: int) -> int:
    """Of how many bins the one binning is that all of a job's are merged from: sums over several that cut a column in
    different places would tell about the few rows between two cuts. Other bins than the job allows are refused."""
    job = party.run.job
    if job is None:
        return bins
    told = job.parameters.get("n_bins")
    allowed = (told, told) if isinstance(told, int) else SEARCHED_BINS
    if not allowed[0] <= bins <= allowed[1]:
        raise OperationRefused(party.name, "bins", "these are other bins than the accepted job allows")
    return allowed[1]


def merged(fine: ColumnBins, bins: int) -> ColumnBins:
    """Neighbouring bins of a number joined until there are at most so many."""
    there = len(fine.edges) + 1
    if there <= bins:
        return fine
    return replace(fine, edges=fine.edges[np.unique(np.rint(np.arange(1, bins) * there / bins).astype(int)) - 1])


def safe_groups(node: np.ndarray, sibling: np.ndarray, least: int, ordered: bool) -> np.ndarray:
    """The new group of each group, given the rows of the node and of its sibling in each.

    Ordered groups are joined with neighbours, categories with the next rarest. Groups without rows say nothing and may
    stay.
    """
    count = len(node)
    if least <= 1 or (_fine(node, least) & _fine(sibling, least)).all():
        return np.arange(count)
    order = np.arange(count) if ordered else np.argsort(node + sibling, kind="stable")
    blocks: list[list[int]] = [[]]
    sizes = [[0, 0]]
    for group in order.tolist():
        blocks[-1].append(group)
        sizes[-1] = [sizes[-1][0] + int(node[group]), sizes[-1][1] + int(sibling[group])]
        if all(size == 0 or size >= least for size in sizes[-1]) and any(sizes[-1]):
            blocks.append([])
            sizes.append([0, 0])
    while len(blocks) > 1 and not (blocks[-1] and all(size == 0 or size >= least for size in sizes[-1])):
        rest, last = blocks.pop(), sizes.pop()
        blocks[-1] += rest
        sizes[-1] = [sizes[-1][0] + last[0], sizes[-1][1] + last[1]]
    into = np.empty(count, dtype=np.int64)
    for number, block in enumerate(blocks):
        into[block] = number
    return into


def _fine(rows: np.ndarray, least: int) -> np.ndarray:
    return np.asarray((rows == 0) | (rows >= least))
