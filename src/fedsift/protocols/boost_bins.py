"""A party's bins for boosting: edges that stay with the party, and groups of bins that may be shown to others.

``ColumnBins`` is fitted on training rows and places new rows later. ``safe_groups`` joins the bins of a node until
every group that will be summed has at least ``least`` rows, in the node and in its sibling (whose sums follow by
subtraction): so no sum that the label holder reads, or can compute, is about fewer rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.errors import DataError
from fedsift.party import MAX_CATEGORY_BINS, Party, quantile_edges
from fedsift.table import Table


@dataclass(frozen=True)
class ColumnBins:
    """How the values of one column fall into bins. Missing values have the last bin, where training had any."""

    column: str
    categories: tuple[str, ...] | None  # kept categories, each a bin; None for numbers
    edges: np.ndarray  # inner edges of a numeric column
    rest: bool  # a bin for the categories that were too many
    missing: bool

    @classmethod
    def fit(cls, table: Table, column: str, bins: int) -> ColumnBins:
        if table.kinds[column] == "categorical":
            codes, names = table.codes(column)
            frequency = np.bincount(codes[codes >= 0], minlength=len(names))
            kept = [int(i) for i in np.argsort(-frequency, kind="stable") if frequency[i] > 0]
            limit = MAX_CATEGORY_BINS
            rest = len(kept) > limit
            kept = sorted(kept[: limit - 1] if rest else kept)
            return cls(column, tuple(names[i] for i in kept), np.empty(0), rest, bool((codes < 0).any()))
        values = table.values(column)
        present = values[~np.isnan(values)]
        distinct = np.unique(present)
        if len(distinct) <= bins:
            edges = (distinct[1:] + distinct[:-1]) / 2
        else:
            edges = quantile_edges(present, bins)
        return cls(column, None, edges, False, len(present) < len(values))

    @property
    def ordered(self) -> bool:
        return self.categories is None

    @property
    def ordinary(self) -> int:
        """Bins of present values."""
        return len(self.edges) + 1 if self.categories is None else len(self.categories) + int(self.rest)

    @property
    def count(self) -> int:
        return max(1, self.ordinary + int(self.missing))

    def codes(self, table: Table) -> np.ndarray:
        """Bin of each row; -1 for what training did not have."""
        if self.column not in table.columns:
            raise DataError(f"table {table.name!r} lacks the column {self.column!r} that the model was trained with")
        if self.categories is None:
            values = table.values(self.column)
            codes = np.searchsorted(self.edges, values, side="right").astype(np.int16)
            absent = np.isnan(values)
        else:
            raw, names = table.codes(self.column)
            place = {name: number for number, name in enumerate(self.categories)}
            other = len(self.categories) if self.rest else -1
            lookup = np.array([place.get(name, other) for name in names] + [-1], dtype=np.int16)
            codes, absent = lookup[raw], raw < 0
        return np.where(absent, self.ordinary if self.missing else -1, codes).astype(np.int16)

    def as_dict(self) -> dict[str, Any]:
        categories = None if self.categories is None else list(self.categories)
        return {"column": self.column, "categories": categories, "edges": self.edges.tolist(), "rest": self.rest,
                "missing": self.missing}  # fmt: skip

    @classmethod
    def read(cls, fields: dict[str, Any]) -> ColumnBins:
        try:
            categories = fields["categories"]
            return cls(
                str(fields["column"]),
                None if categories is None else tuple(str(c) for c in categories),
                np.asarray(fields["edges"], dtype=np.float64),
                bool(fields["rest"]),
                bool(fields["missing"]),
            )
        except (KeyError, TypeError, ValueError):
            raise DataError("a saved split record is damaged: save the model again") from None


def fitted_bins(party: Party, bins: int) -> tuple[list[ColumnBins], np.ndarray]:
    """All columns of the party's view: their bins and the bin of each row (rows x columns)."""
    key = ("boost bins", bins)
    if key not in party._cache:
        fitted = [ColumnBins.fit(party.table, column, bins) for column in party.columns]
        codes = [b.codes(party.table) for b in fitted]
        # Without missing values in training -1 cannot occur here, so every code is a bin.
        party._cache[key] = (fitted, np.stack(codes, axis=1) if codes else np.zeros((party.n_rows, 0), np.int16))
    return party._cache[key]


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
    return (rows == 0) | (rows >= least)
