"""Candidate cuts of a party's columns: one bit a row (does it go left?), the same for the whole training.

An ordered column of k bins has a candidate after each bin but the last; where values are missing, each once with them
on the right and once, from the last to the first, on the left: of equally good cuts plain boosting takes the first.
Categories are cut by subsets (Fisher 1958), which only sums can choose: there every category is a bit of its own, and
the categories of a column are a block. Where nobody reads sums, a category is cut from all others.

How many candidates each column has, and which columns have categories, is known to all (``Layout``). Which is which in
what the coordinator opens is not: cuts of a node are shuffled among each other, blocks likewise, and the categories
inside a block (``Shuffle``), afresh for every node, from a key that only the two parties have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.binning import ColumnBins
from fedsift.errors import ReplyError
from fedsift.mpc.ring import Ring

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
_PIECE = 7_500_000  # elements of a masked piece (60 MB): larger tables send their cuts in several messages


@dataclass(frozen=True)
class Layout:
    """Of each column of a party: how many candidates it has, and whether they are categories."""

    counts: Numbers
    categories: Flags

    @classmethod
    def read(cls, counts: np.ndarray, categories: np.ndarray, columns: int, party: str) -> Layout:
        if len(counts) != columns or len(categories) != columns or (counts < 0).any() or (counts > 1024).any():
            raise ReplyError(party, "describe_cuts", "it described another number of columns, or impossible cuts")
        return cls(counts.astype(np.int64), categories.astype(bool))

    @property
    def starts(self) -> Numbers:
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    def pieces(self, rows: int) -> list[tuple[int, int]]:
        """First and last candidate of each piece: neighbours, as many as fit a message with all rows."""
        total, step = int(self.counts.sum()), max(1, _PIECE // max(1, rows))
        return [(first, min(first + step, total)) for first in range(0, total, step)]

    def tree(self, columns: Numbers) -> TreeCuts:
        """The candidates of a tree that may use these columns: first the cuts, then the blocks."""
        starts = self.starts
        spans = [np.arange(starts[c], starts[c + 1]) for c in columns.tolist()]
        plain = [span for span, c in zip(spans, columns.tolist()) if not self.categories[c]]
        blocks = [span for span, c in zip(spans, columns.tolist()) if self.categories[c]]
        empty = [np.zeros(0, dtype=np.int64)]
        return TreeCuts(
            np.concatenate(empty + plain + blocks).astype(np.int64),
            int(sum(map(len, plain))),
            np.array([len(block) for block in blocks], dtype=np.int64),
            np.array([len(span) for span in plain], dtype=np.int64),
        )


@dataclass(frozen=True)
class TreeCuts:
    """The candidates of one tree: ``cuts`` of them are cuts, the rest blocks of categories of the given sizes."""

    candidates: Numbers
    cuts: int
    blocks: Numbers
    columns: Numbers  # how many of the cuts are of each column

    @property
    def width(self) -> int:
        """Of all blocks: the size of the largest."""
        return int(self.blocks.max(initial=0))

    @property
    def sent(self) -> int:
        """Numbers that are opened for a node: every block is filled up to the largest."""
        return self.cuts + len(self.blocks) * self.width

    def spread(self, sums: Ring) -> Ring:
        """Sums (nodes x candidates x values) with every block filled up to the same size."""
        if not len(self.blocks):
            return sums
        nodes, _, values = sums.shape
        out = np.zeros((nodes, self.sent, values), dtype=sums.dtype)
        out[:, : self.cuts] = sums[:, : self.cuts]
        start, place = self.cuts, self.cuts
        for size in self.blocks.tolist():
            out[:, place : place + size] = sums[:, start : start + size]
            start, place = start + size, place + self.width
        return out


@dataclass(frozen=True)
class Shuffle:
    """The order in which the candidates of each node are opened: nodes x sent, the old place of each new one."""

    order: Numbers
    cuts: int
    width: int

    @classmethod
    def draw(cls, keys: Ring, tree: TreeCuts) -> Shuffle:
        """From random keys (nodes x (sent + blocks)) that both parties have."""
        nodes, blocks = len(keys), len(tree.blocks)
        cuts = np.argsort(keys[:, : tree.cuts], axis=1)
        if not blocks:
            return cls(cuts, tree.cuts, 0)
        inside = np.argsort(keys[:, tree.cuts : tree.sent].reshape(nodes, blocks, tree.width), axis=2)
        outside = np.argsort(keys[:, tree.sent :], axis=1)
        places = tree.cuts + outside[:, :, None] * tree.width + np.take_along_axis(inside, outside[:, :, None], axis=1)
        return cls(np.concatenate([cuts, places.reshape(nodes, -1)], axis=1), tree.cuts, tree.width)

    def apply(self, sums: Ring) -> Ring:
        return np.take_along_axis(sums, self.order[:, :, None], axis=1)


def key_shape(nodes: int, tree: TreeCuts) -> tuple[int, int]:
    return nodes, tree.sent + len(tree.blocks)


# --- the owner's side ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """What a candidate (or a set of categories) means to its owner."""

    column: int
    left: Flags  # of the column's bins
    missing_left: bool


def candidate_count(bins: ColumnBins) -> int:
    if not bins.ordered:
        return bins.count
    return max(0, 2 * bins.ordinary - 1 if bins.missing else bins.ordinary - 1)


def candidate_bits(bins: ColumnBins, codes: np.ndarray) -> Flags:
    """Rows x candidates: which rows go left."""
    if not bins.ordered:
        return np.asarray(codes[:, None] == np.arange(bins.count))
    if not bins.missing:
        return codes[:, None] <= np.arange(bins.ordinary - 1)
    right = codes[:, None] <= np.arange(bins.ordinary)  # the bin of missing values is the last
    left = right[:, :-1] | (codes == bins.ordinary)[:, None]
    return np.hstack([right, left[:, ::-1]])


def read_cut(bins: ColumnBins, column: int, places: Numbers) -> Cut:
    """The cut of one candidate, or of several categories that go left together."""
    left = np.zeros(bins.count, dtype=bool)
    if not bins.ordered:
        left[places] = True
        return Cut(column, left, False)
    place = int(places[0])
    with_missing = bins.missing and place >= bins.ordinary
    left[: (2 * bins.ordinary - 2 - place if with_missing else place) + 1] = True
    if bins.missing:
        left[-1] = with_missing
    return Cut(column, left, with_missing)


def first_of(options: list[Cut]) -> Cut:
    """Of equally good cuts the one that plain boosting takes: the first column, its first cut, missing values right;
    where only cuts with missing values on the left are as good, the last of them."""
    column = min(cut.column for cut in options)
    here = [cut for cut in options if cut.column == column]
    right = [cut for cut in here if not cut.missing_left]
    return min(right, key=lambda cut: int(cut.left.sum())) if right else max(here, key=lambda cut: int(cut.left.sum()))
