"""Parties made from one table, for experiments. Their sites run the same code as real ones.

Here too: what a user says about who holds which labels and which block of a grid, checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import pandas as pd

from fedsift.core import splits
from fedsift.core.encoding import Encoders
from fedsift.core.operation import load_whole
from fedsift.core.party import Site
from fedsift.core.table import Table
from fedsift.errors import DataError, ParameterError

PARTITIONS = ("vertical", "horizontal", "hybrid")
#: What a federation may be told in one word.
WORDS = {"partition": PARTITIONS, "names": ("shared", "private"), "task": ("auto", "classification", "regression")}


def label_columns(
    label: tuple[str, str | None] | str | Mapping[str, str] | None, tables: Collection[str]
) -> dict[str, str | None]:
    """The label column of each label holder; ``None`` where its rows have no label (new ones, to predict)."""
    check_tables(tables)
    if label is None:
        raise ParameterError(
            "label=None: nobody would know what to predict. For vertical parties label is (party, column), for "
            "horizontal ones the label column's name, for hybrid ones {party: column}; to predict (party, None)"
        )
    if isinstance(label, str):
        return dict.fromkeys(tables, label)
    if isinstance(label, Mapping):
        check_parties("label", label, tables)
    elif not isinstance(label, tuple) or len(label) != 2:
        raise ParameterError(f"label must be (party, column), a column's name or {{party: column}}; got {label!r}")
    return dict(label) if isinstance(label, Mapping) else {label[0]: label[1]}


def check_tables(tables: object) -> None:
    """Tables come by the names of their parties."""
    if not isinstance(tables, Mapping):
        raise ParameterError(
            f"tables must be a dictionary, party name -> table, e.g. {{'bank': 'b.csv'}}; got {type(tables).__name__}"
        )
    if not tables:
        raise ParameterError("tables is empty: give at least two parties, e.g. {'bank': 'bank.csv', 'shop': ...}")
    odd = next((name for name in tables if not isinstance(name, str)), None)
    if odd is not None:
        raise ParameterError(f"a party's name is text; got {odd!r}")


def check_parties(argument: str, given: Collection[str], tables: Collection[str]) -> None:
    """Refuse a name that no party has: a limit on ``columns`` under a wrong name would limit nobody."""
    for name in given:
        if name not in tables:
            raise ParameterError(f"{argument} names the party {name!r}, but the parties are {', '.join(tables)}")


def check_grid(grid: object, tables: Collection[str], holders: Mapping[str, str | None]) -> dict[str, tuple[int, int]]:
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


def simulated_sites(
    X: object,
    y: object,
    *,
    parties: int | Sequence[str],
    partition: str,
    how: Any,
    duplicates: bool,
    random_state: splits.RandomState,
    label_party: str | None,
    grid: tuple[int, int] | None,
    aside: Mapping[str, Sized] | None = None,
) -> tuple[dict[str, Site], str | None]:
    """The sites and the name of the label holder (``None`` when every party has labels)."""
    frame = _frame(X)
    label = pd.Series(np.asarray(y), name="label") if not isinstance(y, pd.Series) else y.reset_index(drop=True)
    if len(frame) != len(label):
        raise DataError(f"X has {len(frame)} rows and y has {len(label)}")
    if aside and partition == "hybrid":
        raise ParameterError("aside is for vertical or horizontal parties; these are hybrid")
    names = [f"party{i + 1}" for i in range(parties)] if isinstance(parties, int) else list(parties)
    if partition == "hybrid":
        rows, columns = grid or (2, max(1, len(names) // 2))
        return _hybrid(frame, label, rows, columns, how, random_state, label_party)
    if len(names) < 1 or len(set(names)) != len(names):
        raise ParameterError(f"parties must be a positive number or different names; got {parties!r}")
    if partition == "horizontal":
        numbers = frame.select_dtypes("number").to_numpy(dtype=float)
        groups = splits.row_groups(
            len(frame), len(names), how=how, y=label.to_numpy(), X=numbers, random_state=random_state
        )
        told = {column: np.asarray(values) for column, values in (aside or {}).items()}
        odd = next((column for column, values in told.items() if len(values) != len(frame)), None)
        if odd is not None:
            raise DataError(f"the column {odd!r} to set aside has {len(told[odd])} rows, and X has {len(frame)}")
        return {
            n: _site(n, frame.iloc[g], label.iloc[g], {column: values[g] for column, values in told.items()})
            for n, g in zip(names, groups)
        }, None
    if label_party is not None and label_party not in names:
        raise ParameterError(f"label_party is {label_party!r}, but the parties are {', '.join(names)}")
    active = label_party or names[0]
    groups = splits.column_groups(frame.shape[1], len(names), how=how, random_state=random_state)
    if duplicates:
        groups = splits.duplicate_columns(groups, random_state=random_state)
    sites = {}
    for name, group in zip(names, groups):
        part = frame.iloc[:, list(group)]
        sites[name] = _site(name, part, label if name == active else None, aside if name == active else {})
    return sites, active


def _hybrid(
    frame: pd.DataFrame,
    label: pd.Series,
    row_blocks: int,
    column_blocks: int,
    how: Any,
    random_state: splits.RandomState,
    label_party: str | None,
) -> tuple[dict[str, Site], None]:
    blocks = [f"columns{c + 1}" for c in range(column_blocks)]
    if label_party is not None and label_party not in blocks:
        raise ParameterError(
            f"label_party is {label_party!r}; for a hybrid split it names a column block: {', '.join(blocks)}"
        )
    rows = splits.row_groups(len(frame), row_blocks, how="equal", random_state=random_state)
    columns = splits.column_groups(frame.shape[1], column_blocks, how=how, random_state=random_state)
    sites = {}
    for r, row_group in enumerate(rows):
        for c, column_group in enumerate(columns):
            name = f"rows{r + 1}-columns{c + 1}"
            part = frame.iloc[row_group, list(column_group)]
            holds_label = label_party in (None, blocks[c])
            sites[name] = _site(name, part, label.iloc[row_group] if holds_label else None)
    return sites, None


def hybrid_grid(names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Row block and column block of the parties that a hybrid split has made, from their names."""
    grid = {}
    for name in names:
        row, _, column = name.partition("-")
        grid[name] = (int(row.removeprefix("rows")) - 1, int(column.removeprefix("columns")) - 1)
    return grid


def _site(name: str, part: pd.DataFrame, label: pd.Series | None, aside: Mapping[str, Sized] | None = None) -> Site:
    part = part.reset_index(drop=True)
    for column, values in (aside or {}).items():
        if column in part.columns or len(values) != len(part):
            raise DataError(f"party {name!r}: the column {column!r} to set aside is there already, or of other rows")
        part = part.assign(**{column: np.asarray(values)})
    label_name = None
    if label is not None:
        label_name = str(label.name or "label")
        while label_name in part.columns:
            label_name += "_"
        part = pd.concat([part, label.rename(label_name).reset_index(drop=True)], axis=1)
    return Site(name, Table.read(part, id=None, label=label_name, name=name, aside=list(aside or {})))


def _frame(X: object) -> pd.DataFrame:
    if isinstance(X, pd.DataFrame):
        frame = X.reset_index(drop=True)
        frame.columns = [str(column) for column in frame.columns]
        return frame
    array = np.asarray(X)
    if array.ndim != 2:
        raise DataError(f"X must be a table (two dimensions), got {array.ndim}")
    return pd.DataFrame(array, columns=[f"f{i}" for i in range(array.shape[1])])


def open_tables(
    tables: Mapping[str, object],
    id: str | Mapping[str, str] | None,
    labels: Mapping[str, str | None],
    columns: Mapping[str, Sequence[str]],
    categorical: Mapping[str, Sequence[str]],
    aside: Mapping[str, Sequence[str]],
    encode: Mapping[str, Encoders],
) -> dict[str, Site]:
    """A site without a policy for each table, as ``Federation.from_tables`` takes them; matching needs the whole."""
    load_whole()
    for argument, given in (("columns", columns), ("categorical", categorical), ("aside", aside), ("encode", encode)):
        check_parties(argument, given, tables)
    if isinstance(id, Mapping):
        check_parties("id", id, tables)
        without = next((name for name in tables if name not in id), None)
        if without is not None:
            raise ParameterError(f"id has no column for the party {without!r}; give one for each party, or id=None")
    return {
        name: Site(
            name,
            Table.read(
                source, id=id.get(name) if isinstance(id, Mapping) else id, label=labels.get(name), name=name,
                columns=columns.get(name), categorical=categorical.get(name, ()), aside=aside.get(name, ()),
                encode=encode.get(name),
            ),
        )
        for name, source in tables.items()
    }  # fmt: skip
