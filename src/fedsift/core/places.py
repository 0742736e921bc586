"""What a user says about who holds which labels and which block of a grid, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedsift.errors import ParameterError

PARTITIONS = ("vertical", "horizontal", "hybrid")
#: What a federation may be told in one word.
WORDS = {"partition": PARTITIONS, "names": ("shared", "private"), "task": ("auto", "classification", "regression")}


def label_columns(
    label: tuple[str, str | None] | str | Mapping[str, str] | None, tables: Collection[str]
) -> dict[str, str | None]:
    """The label column of each label holder; ``None`` where its rows have no label (new ones, to predict)."""
    if label is None:
        raise ParameterError(
            "label=None: nobody would know what to predict. For vertical parties label is (party, column), for "
            "horizontal ones the label column's name, for hybrid ones {party: column}; to predict (party, None)"
        )
    if isinstance(label, str):
        return dict.fromkeys(tables, label)
    if isinstance(label, Mapping):
        check_parties("label", label, tables)
    return dict(label) if isinstance(label, Mapping) else {label[0]: label[1]}


def check_parties(argument: str, given: Collection[str], tables: Collection[str]) -> None:
    """Refuse a name that no party has: a limit on ``columns`` under a wrong name would limit nobody."""
    for name in given:
        if name not in tables:
            raise ParameterError(f"{argument} names the party {name!r}, but the parties are {', '.join(tables)}")


def check_grid(grid: Any, tables: Collection[str], holders: Mapping[str, str | None]) -> dict[str, tuple[int, int]]:
    """The grid that a user gave for hybrid tables: every party on a place of its own, a label in every row block."""
    if not isinstance(grid, Mapping):
        raise ParameterError(
            "hybrid parties need grid={party: (row block, column block)}: who shares rows and columns?"
        )
    odd = sorted(set(tables) ^ set(grid))
    if odd:
        raise ParameterError(f"grid must name every party once; {odd[0]!r} is not in both tables and grid")
    check_parties("label", holders, tables)
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
