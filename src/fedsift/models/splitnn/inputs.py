"""A party's table as a network sees it: scaled numbers, indicators for categories, nothing missing.

Everything is fitted on the rows of the training view, inside the party, and travels nowhere. A number is standardised
and a missing one becomes the mean, with an indicator beside it if values were missing in training. A category becomes
indicators (an embedding is what the first layer makes of them); rare and unseen ones share an indicator. ``owner``
says which column each input belongs to, so that gates and penalties treat a column as one thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.table import Table
from fedsift.errors import DataError

MAX_CATEGORIES = 64
MOST_INPUTS = MAX_CATEGORIES + 2  # of a column: also for the other categories, and for what is missing


@dataclass(frozen=True)
class ColumnEncoder:
    """How one column becomes inputs."""

    name: str
    mean: float = 0.0
    scale: float = 1.0
    missing: bool = False
    categories: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        return (1 if self.categories is None else len(self.categories) + 1) + self.missing

    def encode(self, table: Table) -> np.ndarray:
        if self.categories is None:
            values = table.values(self.name).astype(np.float64)
            absent = np.isnan(values)
            blocks = [np.where(absent, 0.0, (np.where(absent, 0.0, values) - self.mean) / self.scale)[:, None]]
        else:
            codes, names = table.codes(self.name)
            place = {category: number for number, category in enumerate(self.categories)}
            lookup = np.array([place.get(name, len(place)) for name in names] + [-1], dtype=np.int64)
            numbers = lookup[np.asarray(codes, dtype=np.int64)]  # a missing code is -1: the last entry of lookup
            absent = numbers < 0
            blocks = [(numbers[:, None] == np.arange(len(place) + 1)).astype(np.float64)]
        if self.missing:
            blocks.append(absent.astype(np.float64)[:, None])
        return np.hstack(blocks)


class InputEncoder:
    """All columns of a party. ``fit`` looks at training rows only."""

    def __init__(self, columns: list[ColumnEncoder]):
        self.columns = columns

    @classmethod
    def fit(cls, table: Table, names: list[str]) -> InputEncoder:
        return cls([_fit_column(table, name) for name in names])

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def widths(self) -> list[int]:
        """How many inputs each column makes."""
        return [column.width for column in self.columns]

    @property
    def owner(self) -> np.ndarray:
        """The column (by number) of each input."""
        return np.repeat(np.arange(len(self.columns)), self.widths).astype(np.int64)

    def matrix(self, table: Table) -> np.ndarray:
        missing = [column.name for column in self.columns if column.name not in table.columns]
        if missing:
            raise DataError(f"table {table.name!r} lacks the column {missing[0]!r} that the network was trained with")
        parts = [column.encode(table) for column in self.columns]
        matrix = np.hstack(parts) if parts else np.zeros((table.n_rows, 0))
        return matrix.astype(np.float32)

    def to_plain(self) -> list[dict[str, object]]:
        return [
            {
                "name": c.name,
                "mean": c.mean,
                "scale": c.scale,
                "missing": c.missing,
                "categories": None if c.categories is None else list(c.categories),
            }
            for c in self.columns
        ]

    @classmethod
    def from_plain(cls, fields: list[dict[str, Any]]) -> InputEncoder:
        return cls(
            [
                ColumnEncoder(
                    str(f["name"]),
                    float(f["mean"]),
                    float(f["scale"]),
                    bool(f["missing"]),
                    None if f["categories"] is None else tuple(str(c) for c in f["categories"]),
                )
                for f in fields
            ]
        )


def _fit_column(table: Table, name: str) -> ColumnEncoder:
    if table.kinds[name] == "categorical":
        codes, names = table.codes(name)
        codes = np.asarray(codes, dtype=np.int64)
        counts = np.bincount(codes[codes >= 0], minlength=len(names))
        kept = np.sort(np.argsort(-counts, kind="stable")[:MAX_CATEGORIES])
        categories = tuple(names[i] for i in kept if counts[i] > 0)
        return ColumnEncoder(name, missing=bool((codes < 0).any()), categories=categories)
    values = table.values(name).astype(np.float64)
    absent = np.isnan(values)
    present = values[~absent]
    mean = float(present.mean()) if len(present) else 0.0
    spread = float(present.std()) if len(present) else 0.0
    flat = not spread > 1e-12 * max(1.0, abs(mean))
    return ColumnEncoder(name, mean, 1.0 if flat else spread, missing=bool(absent.any()))
