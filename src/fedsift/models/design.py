"""A party's own columns as numbers of mean 0 and variance 1, the same way for training rows and for new ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsift.core.binning import MAX_CATEGORY_BINS
from fedsift.core.table import Table
from fedsift.errors import DataError


@dataclass(frozen=True)
class Design:
    """Fitted on training rows: categories become indicators, missing values take the mean, constants become zero."""

    columns: list[tuple[str, tuple[str, ...] | None]]  # name, and its categories (None: a number)
    means: np.ndarray
    scales: np.ndarray

    @classmethod
    def fit(cls, table: Table) -> Design:
        columns: list[tuple[str, tuple[str, ...] | None]] = []
        for name in table.columns:
            if table.kinds[name] != "categorical":
                columns.append((name, None))
                continue
            codes, categories = table.codes(name)
            count = np.bincount(codes[codes >= 0], minlength=len(categories))
            kept = np.argsort(-count, kind="stable")[:MAX_CATEGORY_BINS]
            columns.append((name, tuple(categories[i] for i in sorted(kept.tolist()) if count[i] > 0)))
        raw = _raw(table, columns)
        present = ~np.isnan(raw)
        means = np.where(present, raw, 0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
        spread = np.sqrt((np.where(present, raw - means, 0) ** 2).mean(axis=0))
        flat = spread <= 1e-12 * np.maximum(1.0, np.abs(means))
        return cls(columns, means, np.where(flat, np.inf, spread))

    def matrix(self, table: Table) -> np.ndarray:
        """Rows x numbers."""
        missing = [name for name, _ in self.columns if name not in table.columns]
        if missing:
            raise DataError(f"table {table.name!r} lacks the column {missing[0]!r} that the model was trained with")
        raw = _raw(table, self.columns)
        return np.where(np.isnan(raw), 0.0, raw - self.means) / self.scales


def _raw(table: Table, columns: list[tuple[str, tuple[str, ...] | None]]) -> np.ndarray:
    blocks = []
    for name, categories in columns:
        if categories is None:
            blocks.append(table.values(name)[:, None])
            continue
        codes, names = table.codes(name)
        place = {category: number for number, category in enumerate(names)}
        wanted = np.array([place.get(category, -2) for category in categories])
        blocks.append((codes[:, None] == wanted).astype(np.float64))
    return np.hstack(blocks) if blocks else np.zeros((table.n_rows, 0))
