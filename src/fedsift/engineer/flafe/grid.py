"""Who holds what in a vertical federation or in a grid: row blocks, and column groups that run through all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.grid import Grid
from fedsift.errors import DataError, ParameterError, ReplyError


@dataclass(frozen=True)
class Described:
    """A party's columns of numbers, those among them that never vary, and its number of rows."""

    numeric: list[str]
    flat: list[str]
    rows: int


@dataclass(frozen=True)
class Layout:
    """``blocks[b][group]`` is the party with the columns of ``group`` for the rows of block ``b``.

    Vertical parties are one block in which every party is a group of its own.
    """

    blocks: list[dict[str, str]]

    @classmethod
    def vertical(cls, fed: Federation) -> Layout:
        return cls([{name: name for name in fed.parties}])

    @classmethod
    def hybrid(cls, fed: Federation) -> Layout:
        """From the federation's grid, which must be whole: the paper's (and this) way needs straight divisions."""
        grid = Grid.of(fed)
        if len(grid.rows) < 2:
            raise ParameterError("this grid has one row block: use VerticalFLAFE for it")
        for block in grid.rows:
            if len(block) != len(grid.columns):
                raise ParameterError(
                    f"the row block {', '.join(block)} has {len(block)} parties and the grid {len(grid.columns)} "
                    "column blocks: every row block must be divided in the same way"
                )
        return cls([{f"columns{grid.column_of(name) + 1}": name for name in sorted(block, key=grid.column_of)}
                    for block in grid.rows])  # fmt: skip

    @property
    def groups(self) -> list[str]:
        return list(self.blocks[0])

    @property
    def parties(self) -> list[str]:
        return [name for block in self.blocks for name in block.values()]

    def members(self, group: str) -> list[str]:
        return [block[group] for block in self.blocks]

    def group_of(self, party: str) -> str:
        return next(group for block in self.blocks for group, name in block.items() if name == party)

    def each(self, by_group: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Arguments by party from arguments by group."""
        return {name: by_group[group] for block in self.blocks for group, name in block.items()}

    def same_numbers(self, described: dict[str, Described]) -> dict[str, list[str]]:
        """The numeric columns of each group that vary somewhere; an error names the party whose columns differ."""
        numeric = {}
        for group in self.groups:
            first, *others = members = self.members(group)
            flat = set.intersection(*(set(described[name].flat) for name in members))
            numeric[group] = [column for column in described[first].numeric if column not in flat]
            for name in others:
                odd = sorted(set(described[name].numeric) ^ set(described[first].numeric))
                if odd:
                    raise DataError(
                        f"parties of a column group must have the same columns of numbers: {odd[0]!r} differs between "
                        f"{first!r} and {name!r}"
                    )
        for block in self.blocks:
            rows = {described[name].rows for name in block.values()}
            if len(rows) > 1:
                raise DataError(f"the parties {', '.join(block.values())} share a row block but not a number of rows")
        return numeric


def told_rows(fed: Federation, layout: Layout) -> dict[str, int]:
    """Rows of each party in this view: one or more, as many as the others of its row block."""
    rows = {name: size.rows for name, size in fed.sizes().items()}
    for block in layout.blocks:
        first = next(iter(block.values()))
        wrong = [name for name in block.values() if not rows[name] or rows[name] != rows[first]]
        if wrong:
            raise ReplyError(wrong[-1], "count_table", "it does not hold the rows of the others of its block")
    return rows


def held_out_rows(rows: int, share: float, seed: int) -> np.ndarray:
    """Positions of validation rows, the same for all parties that share ``rows``: each draws them for itself."""
    return np.sort(np.random.default_rng([seed, 0]).permutation(rows)[: round(share * rows)])
