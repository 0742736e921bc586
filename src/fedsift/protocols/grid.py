"""The grid of a federation: which parties share rows and which share columns; and alignment of its row blocks.

A vertical federation is a grid of one row block, a horizontal one of one column block. A hybrid one is told which
party stands where (``Federation.from_tables(..., grid=...)``, or by the split that simulated it).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.errors import AlignmentError, DataError, ParameterError
from fedsift.federation import Federation
from fedsift.protocols.align import _SIZE, align, blind_again, blind_ids, keep_shared
from fedsift.secure import oprf


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


def label_columns(label: tuple[str, str] | str | Mapping[str, str], tables: Collection[str]) -> dict[str, str]:
    """The label column of each party that has one."""
    if isinstance(label, str):
        return dict.fromkeys(tables, label)
    return dict(label) if isinstance(label, Mapping) else {label[0]: label[1]}


def check_grid(grid: Any, tables: Collection[str], holders: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """The grid that a user gave for hybrid tables: every party on a place of its own, a label in every row block."""
    if not isinstance(grid, Mapping):
        raise ParameterError(
            "hybrid parties need grid={party: (row block, column block)}: who shares rows and columns?"
        )
    odd = sorted(set(tables) ^ set(grid))
    if odd:
        raise ParameterError(f"grid must name every party once; {odd[0]!r} is not in both tables and grid")
    unknown = sorted(set(holders) - set(tables))
    if unknown:
        raise ParameterError(f"label names the party {unknown[0]!r}, but the parties are {', '.join(tables)}")
    places: dict[tuple[int, int], str] = {}
    for name, given in grid.items():
        if not isinstance(given, (tuple, list)) or len(given) != 2 or not all(isinstance(each, int) for each in given):
            raise ParameterError(f"grid[{name!r}] must be (row block, column block), two whole numbers; got {given!r}")
        place = (given[0], given[1])
        if place in places:
            raise ParameterError(f"grid puts {places[place]!r} and {name!r} on the same place {place}")
        places[place] = name
    for row in sorted({place[0] for place in places}):
        if not any(place[0] == row and name in holders for place, name in places.items()):
            raise ParameterError(f"no party of row block {row} has a label: name one in label={{party: column}}")
    return {name: place for place, name in places.items()}


def aligned(fed: Federation, *, by_id: bool, min_overlap: int) -> Federation:
    """The federation with its rows in the same order wherever parties share rows, whatever its partition."""
    if fed.partition == "hybrid":
        return align_blocks(fed, by_id=by_id, min_overlap=min_overlap)
    if fed.partition == "vertical":
        if by_id:
            return align(fed, min_overlap=min_overlap)
        fed._check_same_length()
    return fed


def align_blocks(fed: Federation, *, by_id: bool, min_overlap: int) -> Federation:
    """A view in which row i is the same id at all parties of a row block. What is learned: as in ``align``."""
    blocks = Grid.of(fed).rows
    if not by_id:
        sizes = fed.sizes()
        for block in blocks:
            counts = {name: sizes[name]["rows"] for name in block}
            if len(set(counts.values())) > 1:
                raise DataError(f"without an id the tables of a row block must have the same rows; got {counts}")
        return fed
    with fed.session() as run:
        for block in blocks:
            _align_block(run, block, min_overlap)
    return fed.named_view("aligned")


def _align_block(run: Federation, block: list[str], min_overlap: int) -> None:
    lists = run.ask(blind_ids, to=block)
    for step in range(1, len(block)):
        holder = {block[(i + step) % len(block)]: block[i] for i in range(len(block))}
        each = {who: {"points": lists[owner]} for who, owner in holder.items()}
        raised = run.ask(blind_again, to=block, each=each, last=step == len(block) - 1)
        lists = {owner: raised[who] for who, owner in holder.items()}
    if len(block) == 1:
        lists = {block[0]: oprf.pseudonyms(lists[block[0]], b"fedsift alignment", _SIZE)}
    found = {
        name: {data[i : i + _SIZE]: i // _SIZE for i in range(0, len(data), _SIZE)} for name, data in lists.items()
    }
    shared = sorted(set.intersection(*(set(index) for index in found.values())))
    if len(shared) < min_overlap:
        raise AlignmentError(
            f"only {len(shared)} ids are shared by {', '.join(block)}, which are told to share rows (fewer than "
            f"min_overlap={min_overlap}): is the grid right, and are ids written the same way?"
        )
    each = {name: {"positions": np.array([index[p] for p in shared], dtype=np.int64)} for name, index in found.items()}
    run.ask(keep_shared, to=block, each=each, view="aligned")
