"""A party shuffles one of its own columns under a draw of its own: how much worse a model is without that column.

Permutation importance (Breiman 2001): the column's values belong to other rows, everything else stays. The party draws
from its site's secret, so nobody else can undo it, and the model is measured on shares (``unseen.py``): what comes out
is one figure, no score of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import numpy as np

from fedsift.core.arguments import Between
from fedsift.core.party import Party
from fedsift.core.table import Table
from fedsift.errors import OperationRefused

#: The column of a request (its place in the view), ``None`` for all as they are, and how often it was shuffled before.
ColumnPlace = Annotated[int, Between(0, 10**6)] | None
Repeat = Annotated[int, Between(0, 1000)]


@dataclass(frozen=True)
class Shuffled:
    """Which column of which party, and which of several draws."""

    party: str
    column: int
    repeat: int = 0

    def told(self, name: str) -> dict[str, Any]:
        """What a party hears of it: its own column or nothing."""
        return {"shuffled": self.column if name == self.party else None, "repeat": self.repeat}


def told_each(names: list[str], shuffled: Shuffled | None) -> dict[str, dict[str, Any]]:
    nothing: dict[str, Any] = {"shuffled": None, "repeat": 0}
    return {name: nothing if shuffled is None else shuffled.told(name) for name in names}


class AsNumbers(Protocol):
    """How a model sees a party's columns: which, and how many numbers each makes."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def widths(self) -> Sequence[int]: ...

    def matrix(self, table: Table) -> np.ndarray: ...


def own_numbers(party: Party, design: AsNumbers, column: int | None, repeat: int) -> np.ndarray:
    """This view's rows as numbers, with one column shuffled among them; one that the model has not changes nothing."""
    values = design.matrix(party.table)
    if column is None:
        return values
    if column >= len(party.columns):
        raise OperationRefused(party.name, "shuffle", "it has no such column")
    names, widths = list(design.names), design.widths
    if party.columns[column] not in names:
        return values
    place = names.index(party.columns[column])
    start = sum(widths[:place])
    block = slice(start, start + widths[place])
    by_id = party.table.by_id  # alignment orders rows anew each time; the draw must not
    order = np.empty_like(by_id)
    order[by_id] = party.generator(f"explain: column {column}, {repeat}", 0).permutation(by_id)
    values[:, block] = values[order, block]
    return values
