"""Weights of evidence of one party's columns: which bin a value falls into, and what number stands for it.

A party applies them to its own table with nobody else: the bins are its own, the numbers came from a run
(``select/filters/woe.py``). A value that the run did not see (a new category, a first missing value) is neutral: 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.binning import ColumnBins
from fedsift.core.table import Table
from fedsift.errors import DataError

Floats = NDArray[np.float64]


def woe_name(column: str) -> str:
    """What a column is called once its weights of evidence stand in its place."""
    return f"woe({column})"


@dataclass(frozen=True)
class ColumnEvidence:
    """One column: its bins, and the weight of each."""

    bins: ColumnBins
    weights: tuple[float, ...]

    def values(self, table: Table) -> Floats:
        """The weight of each row."""
        codes = self.bins.codes(table)
        known = np.append(np.asarray(self.weights, dtype=np.float64), 0.0)  # the last, -1, is for what is new
        return np.asarray(known[codes])

    def as_dict(self) -> dict[str, object]:
        return {**self.bins.as_dict(), "weights": list(self.weights)}

    @classmethod
    def read(cls, fields: Mapping[str, object]) -> ColumnEvidence:
        bins = ColumnBins.read(dict(fields))
        weights = fields.get("weights")
        if not isinstance(weights, Sequence) or len(weights) != bins.count:
            raise DataError(f"the weights of evidence of {bins.column!r} are damaged: run the job again")
        return cls(bins, tuple(float(weight) for weight in weights))


@dataclass(frozen=True)
class Evidence:
    """A party's columns whose weights are known."""

    columns: tuple[ColumnEvidence, ...]

    def values(self, table: Table) -> dict[str, Floats]:
        return {woe_name(each.bins.column): each.values(table) for each in self.columns}

    def as_dicts(self) -> list[dict[str, object]]:
        return [each.as_dict() for each in self.columns]

    @classmethod
    def read(cls, listed: object) -> Evidence:
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise DataError("weights of evidence must be a list of columns")
        return cls(tuple(ColumnEvidence.read(each) for each in listed))
