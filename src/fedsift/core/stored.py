"""Columns of a file that is too large to hold: each is read when it is asked for, and forgotten.

Parquet, Feather and Arrow files keep columns apart, so that one can be read without the others. Where a file has more
than ``MOST_CELLS`` values, a ``Table`` holds ids and label, and of the features only where they stand: the methods ask
for one column (or a few) at a time. Rows that were taken, other names and new columns are remembered beside it.

The file must stay as it is as long as the table is used: size and time of its last change are compared at each reading.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedsift.errors import DataError

#: Values (rows x columns) of a file that are held in memory: half a gigabyte as decimal numbers.
MOST_CELLS = 2**26
_AT_ONCE = 2**24  # values that are read together where many columns are asked for


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def read_columns(path: Path, names: Sequence[str] | None) -> pl.DataFrame:
    """Columns of a Parquet, Feather or Arrow file."""
    read = pl.read_parquet if is_parquet(path) else pl.read_ipc
    return read(path, columns=None if names is None else list(names))


def schema_of(path: Path) -> dict[str, pl.DataType]:
    return dict(pl.read_parquet_schema(path) if is_parquet(path) else pl.read_ipc_schema(path))


def height_of(path: Path) -> int:
    scan = pl.scan_parquet(path) if is_parquet(path) else pl.scan_ipc(path)
    return int(scan.select(pl.len()).collect().item())


@dataclass(frozen=True, repr=False)
class Stored:
    """Some columns of a file and some of its rows; only what a ``Table`` needs of a frame."""

    path: Path
    where: str
    schema: Mapping[str, pl.DataType]
    height: int
    stamp: tuple[int, int]
    in_file: Mapping[str, str]  # a column's name there
    typed: Callable[[pl.DataFrame], pl.DataFrame]  # from the file's types to those of a table
    made: pl.DataFrame = field(default_factory=pl.DataFrame)  # columns that are not in the file
    rows: NDArray[np.int64] | None = None  # of the file; all

    @classmethod
    def open(
        cls, path: Path, names: Sequence[str], where: str, typed: Callable[[pl.DataFrame], pl.DataFrame],
        unsure: Collection[str],
    ) -> Stored:  # fmt: skip
        """``unsure`` are the columns that ``typed`` may give another type than the file does: they are read for it."""
        told = schema_of(path)
        schema, there = {name: told[name] for name in names}, {name: name for name in names}
        stored = cls(path, where, schema, height_of(path), _stamp(path), there, typed)
        sure = {name: stored.read([name]).dtypes[0] for name in names if name in unsure}
        return replace(stored, schema={**schema, **sure})

    # --- what a frame has ---

    @property
    def columns(self) -> list[str]:
        return list(self.schema)

    @property
    def width(self) -> int:
        return len(self.schema)

    @property
    def dtypes(self) -> list[pl.DataType]:
        return list(self.schema.values())

    def read(self, names: Sequence[str]) -> pl.DataFrame:
        """These columns, in memory."""
        there = [name for name in names if name in self.in_file]
        if _stamp(self.path) != self.stamp:
            raise DataError(f"{self.where}: the file was changed while it was being used; start again")
        columns = {name: self.made[name] for name in names if name not in self.in_file}
        if there:
            frame = self.typed(read_columns(self.path, sorted({self.in_file[name] for name in there})))
            frame = frame if self.rows is None else frame[self.rows]
            columns |= {name: frame[self.in_file[name]].alias(name) for name in there}
        return pl.DataFrame([columns[name] for name in names])

    def take(self, rows: NDArray[np.int64]) -> Stored:
        kept = rows if self.rows is None else self.rows[rows]
        made = self.made[rows] if self.made.width else self.made
        return replace(self, rows=kept, height=len(rows), made=made)

    def select(self, names: Sequence[str]) -> Stored:
        return replace(
            self,
            schema={name: self.schema[name] for name in names},
            in_file={name: self.in_file[name] for name in names if name in self.in_file},
            made=self.made.select([name for name in names if name in self.made.columns]),
        )

    def rename(self, names: Mapping[str, str]) -> Stored:
        return replace(
            self,
            schema={names.get(name, name): dtype for name, dtype in self.schema.items()},
            in_file={names.get(name, name): there for name, there in self.in_file.items()},
            made=self.made.rename({old: new for old, new in names.items() if old in self.made.columns}),
        )

    def added(self, new: pl.DataFrame) -> Stored:
        return replace(
            self,
            schema={**self.schema, **new.schema},
            in_file={name: there for name, there in self.in_file.items() if name not in new.columns},
            made=self.made.with_columns(new.get_columns()) if self.made.width else new,
        )


Frame = pl.DataFrame | Stored


def read(frame: Frame, names: Sequence[str]) -> pl.DataFrame:
    """Columns of either kind of frame, in memory."""
    return frame.select(names) if isinstance(frame, pl.DataFrame) else frame.read(names)


def taken(frame: Frame, rows: NDArray[np.int64]) -> Frame:
    if isinstance(frame, Stored):
        return frame.take(rows)
    return frame[rows] if frame.width else frame


def with_columns(frame: Frame, new: pl.DataFrame) -> Frame:
    if isinstance(frame, Stored):
        return frame.added(new)
    return frame.with_columns(new.get_columns()) if frame.width else new


def pieces(frame: Frame, names: Sequence[str]) -> Iterator[pl.DataFrame]:
    """All these columns, as many at a time as may be held."""
    if isinstance(frame, pl.DataFrame):
        yield frame.select(names)
        return
    width = max(1, _AT_ONCE // max(1, frame.height))
    for start in range(0, len(names), width):
        yield frame.read(names[start : start + width])


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
