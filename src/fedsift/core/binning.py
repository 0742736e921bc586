"""Bins of a column: which values lie together when a method counts or sums by bin.

Numbers are cut on ranks, so that any increasing transform of a column, and its negation, leaves every bin as it was:

1. Where there are at most ``n_bins`` different values, each has a bin of its own.
2. Else a value that fills a bin's share of the rows by itself (a heavy zero, a cap) has a bin of its own; what is left
   is looked at again with the bins that are left, until no value is heavy any more.
3. The other rows are cut at their own quantiles, at the gap between values that is nearest; of two equally near gaps
   the outer one is taken, and both where they lie on either side of the middle. A heavy value cuts, too.

So every bin has rows, and a column has at most ``2 * n_bins`` of them; mostly ``n_bins`` or fewer: more only where
other values lie on both sides of heavy ones. Categories have a bin each, up to ``MAX_CATEGORY_BINS``; missing values
have one of their own, the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.table import Table
from fedsift.errors import DataError

#: A categorical column keeps a bin for each of its most frequent categories; the rest share one.
MAX_CATEGORY_BINS = 64
_COMPARED = 80  # edges of a column that are compared with every value, and not searched
_BLOCK = 1 << 16  # values that stay in a core's memory meanwhile


def most_bins(n_bins: int) -> int:
    """The most bins that any column can have, missing values included."""
    return max(2 * n_bins, MAX_CATEGORY_BINS) + 1


def edges(values: np.ndarray, n_bins: int, min_rows: int = 1) -> np.ndarray:
    """Inner edges of the bins of a column without missing values. A value that reaches an edge lies to its right."""
    distinct, counts = np.unique(values, return_counts=True)
    return _edges_between(distinct, cuts_of(counts, n_bins, min_rows))


def codes_of(values: np.ndarray, n_bins: int) -> np.ndarray:
    """The bin of each value, for many columns without missing values at once (columns x rows)."""
    ordered = np.sort(values, axis=1)
    codes = np.zeros(values.shape, dtype=np.int32)
    rows = values.shape[1]
    even = (ordered[:, 1:] > ordered[:, :-1]).all(axis=1) if rows > n_bins else np.zeros(len(values), dtype=bool)
    if even.any():  # no value repeats: the cuts are the same for all such columns
        for place in cuts_of(np.ones(rows, dtype=np.int64), n_bins):
            codes[even] += values[even] >= ordered[even, place + 1][:, None]
    for column in np.flatnonzero(~even):
        first = np.concatenate([np.ones(min(rows, 1), dtype=bool), ordered[column, 1:] > ordered[column, :-1]])
        counts = np.diff(np.append(np.flatnonzero(first), rows))
        starts = ordered[column, first][np.asarray(cuts_of(counts, n_bins), dtype=np.int64) + 1]
        codes[column] = np.searchsorted(starts, values[column], side="right")
    return codes


def cuts_of(counts: np.ndarray, n_bins: int, min_rows: int = 1) -> list[int]:
    """The positions ``i`` of the distinct values, in order, after which a bin ends."""
    if len(counts) <= n_bins and (counts >= min_rows).all():
        return list(range(len(counts) - 1))
    light = np.ones(len(counts), dtype=bool)
    while True:
        left = n_bins - int((~light).sum())
        heavy = light & (counts * left >= counts[light].sum()) & (counts >= min_rows)
        if left <= 1 or not heavy.any():
            break
        light &= ~heavy
    around = {i + side for i in np.flatnonzero(~light).tolist() for side in (-1, 0)}
    around -= _beside_few(counts, light, min_rows)
    places = np.flatnonzero(light)
    for bins in range(max(left, 1), 0, -1):
        cuts = around | {int(places[i]) for i in _quantile_cuts(counts[light], bins)}
        cuts = {cut for cut in cuts if 0 <= cut < len(counts) - 1}
        ends = np.cumsum(counts)[sorted(cuts)]
        if min_rows <= 1 or (np.diff(np.concatenate([[0], ends, [counts.sum()]])) >= min_rows).all():
            return sorted(cuts)
    return []


def _beside_few(counts: np.ndarray, light: np.ndarray, min_rows: int) -> set[int]:
    """The cuts between too few rows and a heavy value that are left out, so that those rows lie in its bin.

    Of two heavy values the one with fewer rows takes them; two that have the same number lie in one bin then. The few
    are no longer ``light``.
    """
    out: set[int] = set()
    ends = np.flatnonzero(np.diff(np.concatenate([[False], light, [False]]).astype(np.int8)))
    for first, after in ends.reshape(-1, 2).tolist():
        if counts[first:after].sum() >= min_rows:
            continue
        light[first:after] = False
        beside = [place for place in (first - 1, after) if 0 <= place < len(counts)]
        least = min((int(counts[place]) for place in beside), default=0)
        out |= {min(place, after - 1) for place in beside if counts[place] == least}
    return out


def _quantile_cuts(counts: np.ndarray, n_bins: int) -> set[int]:
    """After which values to cut for bins of about equal numbers of rows, none of which is filled by one value."""
    reached = np.append(np.cumsum(counts) * n_bins, 0)  # in whole numbers, so that ties are ties; [-1] is before all
    total = int(counts.sum())
    cuts: set[int] = set()
    for target in [total * share for share in range(1, n_bins)] if total else []:
        after = int(np.searchsorted(reached[:-1], target))
        if reached[after] == target:
            cuts.add(after)
            continue
        short, over = target - int(reached[after - 1]), int(reached[after]) - target
        outward = 2 * target - total * n_bins  # below 0 in the lower half, above it in the upper
        if short < over or (short == over and outward <= 0):
            cuts.add(after - 1)
        if over < short or (short == over and outward >= 0):
            cuts.add(after)
    return {cut for cut in cuts if 0 <= cut < len(counts) - 1}


def _between(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How many edges each value reaches; of a few edges each is compared, which takes a fifth of a search's time."""
    if len(edges) > _COMPARED:
        return np.searchsorted(edges, values, side="right").astype(np.int16)
    codes = np.zeros(len(values), dtype=np.uint8)
    for start in range(0, len(values), _BLOCK):
        block, reached = values[start : start + _BLOCK], codes[start : start + _BLOCK]
        for edge in edges:
            reached += block >= edge
    return codes.astype(np.int16)


def _edges_between(distinct: np.ndarray, cuts: list[int]) -> np.ndarray:
    """Halfway between neighbouring values, and above the lower one even where no number lies between them."""
    lower, upper = distinct[cuts], distinct[[i + 1 for i in cuts]]
    halfway = lower / 2 + upper / 2
    return np.where((halfway > lower) & (halfway <= upper), halfway, upper)


@dataclass(frozen=True)
class ColumnBins:
    """How the values of one column fall into bins: fitted on some rows, it places others later.

    Missing values have the last bin, where the fitted rows had any.
    """

    column: str
    categories: tuple[str, ...] | None  # kept categories, each a bin; None for numbers
    edges: np.ndarray  # inner edges of a numeric column
    rest: bool  # a bin for the categories that were too many
    missing: bool

    @classmethod
    def fit(cls, table: Table, column: str, n_bins: int, min_rows: int = 1) -> ColumnBins:
        """The bins of a column. Bins of numbers have at least ``min_rows`` rows, unless the whole column has fewer."""
        if table.kinds[column] == "categorical":
            codes, names = table.codes(column)
            frequency = np.bincount(codes[codes >= 0], minlength=len(names))
            kept = [int(i) for i in np.argsort(-frequency, kind="stable") if frequency[i] > 0]
            rest = len(kept) > MAX_CATEGORY_BINS
            kept = sorted(kept[: MAX_CATEGORY_BINS - 1] if rest else kept)
            return cls(column, tuple(names[i] for i in kept), np.empty(0), rest, bool((codes < 0).any()))
        values = table.values(column)
        present = values[~np.isnan(values)]
        return cls(column, None, edges(present, n_bins, min_rows), False, len(present) < len(values))

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
        """Bin of each row; -1 for what the fitted rows did not have."""
        if self.column not in table.columns:
            raise DataError(f"table {table.name!r} lacks the column {self.column!r} that the model was trained with")
        if self.categories is None:
            values = table.values(self.column)
            codes = _between(values, self.edges)
            absent = np.isnan(values)
        else:
            raw, names = table.codes(self.column)
            place = {name: number for number, name in enumerate(self.categories)}
            other = len(self.categories) if self.rest else -1
            lookup = np.array([place.get(name, other) for name in names] + [-1], dtype=np.int16)
            codes, absent = lookup[raw], raw < 0
        return np.where(absent, self.ordinary if self.missing else -1, codes).astype(np.int16)

    def as_dict(self) -> dict[str, object]:
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


def used_bins(table: Table, column: str, n_bins: int, min_rows: int) -> tuple[np.ndarray, int]:
    """Bin of each row and the number of bins. Those without a row are left out: an empty bin is never a message."""
    used, codes = np.unique(ColumnBins.fit(table, column, n_bins, min_rows).codes(table), return_inverse=True)
    return codes.astype(np.int32), len(used)
