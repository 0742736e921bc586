"""The grid of a federation: which parties share rows and which share columns.

A vertical federation is a grid of one row block, a horizontal one of one column block. A hybrid one is told which
party stands where (``Federation.from_tables(..., grid=...)``, or by the split that simulated it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsift.core.federation import Federation
from fedsift.errors import DataError


@dataclass(frozen=True)
class Grid:
    """Row blocks and column blocks as lists of party names, and the label holder of each row block."""

    rows: list[list[str]]
    columns: list[list[str]]
    holders: list[str]  # one a row block: the first of its parties that has the label

    @classmethod
    def of(cls, fed: Federation) -> Grid:
        place, labelled = fed.grid, set(fed.label_parties)
        rows = _blocks({name: place[name][0] for name in fed.parties})
        columns = _blocks({name: place[name][1] for name in fed.parties})
        holders = []
        for block in rows:
            having = [name for name in block if name in labelled]
            if not having:
                raise DataError(f"no party of the row block {', '.join(block)} holds the label; one of them must")
            holders.append(having[0])
        return cls(rows, columns, holders)

    def row_of(self, name: str) -> int:
        return next(number for number, block in enumerate(self.rows) if name in block)

    def column_of(self, name: str) -> int:
        return next(number for number, block in enumerate(self.columns) if name in block)


def _blocks(number_of: Mapping[str, int]) -> list[list[str]]:
    return [
        [name for name, number in number_of.items() if number == block] for block in sorted(set(number_of.values()))
    ]
