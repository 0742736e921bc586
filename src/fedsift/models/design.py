"""A party's own columns as numbers of mean 0 and variance 1, the same way for training rows and for new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.binning import MAX_CATEGORY_BINS, ColumnBins
from fedsift.core.table import Table
from fedsift.errors import DataError
from fedsift.models.parts import model_part


@dataclass(frozen=True)
class Design:
    """Fitted on training rows: categories become indicators, missing values take the mean, constants become zero."""

    columns: list[tuple[str, tuple[str, ...] | None]]  # name, and its categories (None: a number)
    means: np.ndarray
    scales: np.ndarray

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]

    @property
    def widths(self) -> list[int]:
        """How many numbers each column makes."""
        return [1 if categories is None else len(categories) for _, categories in self.columns]

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
        away = np.where(present, raw - means, 0)
        unit = np.exp2(
            np.ceil(np.log2(np.maximum(np.abs(away).max(axis=0, initial=0.0), 1e-300)))
        )  # exact to divide by
        spread = unit * np.sqrt(((away / unit) ** 2).mean(axis=0))
        flat = spread <= 1e-12 * np.maximum(1.0, np.abs(means))
        return cls(columns, means, np.where(flat, np.inf, spread))

    def matrix(self, table: Table) -> np.ndarray:
        """Rows x numbers."""
        missing = [name for name, _ in self.columns if name not in table.columns]
        if missing:
            raise DataError(f"table {table.name!r} lacks the column {missing[0]!r} that the model was trained with")
        raw = _raw(table, self.columns)
        return np.asarray(np.where(np.isnan(raw), 0.0, raw - self.means) / self.scales)


@dataclass(frozen=True)
class BinnedDesign:
    """Fitted on training rows: an indicator for each bin of each column (core/binning.py), mean 0 and variance 1.

    What the training rows did not have (a new category) stands at the mean of all bins.
    """

    columns: list[ColumnBins]
    means: np.ndarray
    scales: np.ndarray

    @property
    def names(self) -> list[str]:
        return [bins.column for bins in self.columns]

    @property
    def widths(self) -> list[int]:
        """How many numbers each column makes."""
        return [1 if bins.count <= 2 else bins.count for bins in self.columns]

    @classmethod
    def fit(cls, table: Table, n_bins: int, min_rows: int) -> BinnedDesign:
        columns = [ColumnBins.fit(table, name, n_bins, min_rows) for name in table.columns]
        raw = _indicators(table, columns)
        means, spread = raw.mean(axis=0), raw.std(axis=0)
        return cls(columns, means, np.where(spread > 0, spread, np.inf))

    def matrix(self, table: Table) -> np.ndarray:
        """Rows x bins."""
        raw = _indicators(table, self.columns)
        return np.asarray(np.where(np.isnan(raw), 0.0, raw - self.means) / self.scales)


def _indicators(table: Table, columns: list[ColumnBins]) -> np.ndarray:
    """Of two bins one indicator says all; a row without a bin has none."""
    blocks = []
    for bins in columns:
        codes = bins.codes(table)
        block = (codes[:, None] == np.arange(1 if bins.count <= 2 else bins.count)).astype(np.float64)
        block[codes < 0] = np.nan
        blocks.append(block)
    return np.hstack(blocks) if blocks else np.zeros((table.n_rows, 0))


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


@model_part
@dataclass(frozen=True)
class LinearPart:
    """A party's part of a linear model: its design and weights; a label holder's also intercept, scale and classes."""

    design: Design
    weights: np.ndarray
    intercept: np.ndarray | None = None
    centre: float = 0.0  # of a number as label: score = centre + scale * (sum of all parties' parts)
    scale: float = 1.0
    classes: tuple[str, ...] = ()

    def scores(self, table: Table) -> np.ndarray:
        """This party's part of the rows' scores, without centre and scale."""
        return self.of(self.design.matrix(table))

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """The same of rows that are numbers already."""
        own = numbers @ self.weights
        return np.asarray(own if self.intercept is None else own + self.intercept)

    def to_plain(self) -> dict[str, object]:
        columns = [[name, None if kinds is None else list(kinds)] for name, kinds in self.design.columns]
        return {
            "columns": columns, "means": self.design.means, "scales": self.design.scales, "weights": self.weights,
            "intercept": self.intercept, "centre": self.centre, "scale": self.scale, "classes": list(self.classes),
        }  # fmt: skip

    @classmethod
    def from_plain(cls, content: dict[str, Any]) -> LinearPart:
        columns = [(str(name), None if kinds is None else tuple(map(str, kinds))) for name, kinds in content["columns"]]
        design = Design(columns, content["means"], content["scales"])
        return cls(
            design, content["weights"], content["intercept"], float(content["centre"]), float(content["scale"]),
            tuple(map(str, content["classes"])),
        )  # fmt: skip
