"""Table: one organisation's rows, as text ids plus named, typed columns.

A table never changes; every method gives a new one and shares the memory. Its ``repr`` shows sizes and kinds only, and
no error quotes a feature's value, so neither a log nor a traceback carries data out of the organisation.
"""

from __future__ import annotations

import gzip
import os
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from fedsift.core.columns import (
    PLAIN,
    Kind,
    as_float,
    categories_of,
    checked_aside,
    checked_label,
    kinds_of,
    refuse_infinite,
    text_ids,
)
from fedsift.core.encoding import Encoders, encoded
from fedsift.core.reading import from_pandas, load
from fedsift.core.stored import Frame, pieces, read, taken, with_columns
from fedsift.core.wanted import FileForm, Loaded, Wanted, Written, suggest
from fedsift.errors import DataError, ParameterError, UnclearColumns


@dataclass(frozen=True)
class ColumnFacts:
    """What is seen of a column: ``distinct`` values, those that are missing left out."""

    column: str
    kind: str
    missing: int
    distinct: int


@dataclass(frozen=True, repr=False, eq=False)
class Table:
    """Ids and typed columns; make one with :meth:`read`, which has the parameters.

    Examples
    --------
    >>> import pandas as pd
    >>> import fedsift as fs
    >>> frame = pd.DataFrame({"customer": [7, 8, 9], "age": [34.0, None, 51.0], "town": ["Ulm", "Bonn", "Ulm"]})
    >>> table = fs.Table.read(frame, id="customer")
    >>> table.columns, table.numeric_columns, table.n_rows
    (['age', 'town'], ['age'], 3)
    >>> table.take([0, 2]).values("age").tolist()
    [34.0, 51.0]
    """

    name: str
    id_name: str | None
    label_name: str | None
    _frame: Frame
    _ids: pl.Series
    _label: pl.Series | None
    # The categories of each text column as they were read. They stay when rows are taken, so that a code means the
    # same category in the training and in the test rows.
    _categories: Mapping[str, list[str]] = field(default_factory=dict)
    #: How the file was written; empty for a table that came from memory.
    written: Written = field(default_factory=Written)
    #: Columns that are no features but say what the rows are: groups, times, weights (``core/design.py``).
    aside: Mapping[str, pl.Series] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        id: str | None,
        label: str | None = None,
        columns: Sequence[str] | None = None,
        categorical: Collection[str] = (),
        name: str = "table",
        form: FileForm | None = None,
        aside: Collection[str] = (),
        encode: Encoders | None = None,
    ) -> Table:
        """A table from a CSV, TSV, Excel, Parquet or Feather file, a pandas, polars or Arrow table, or another Table.

        ``id=None`` numbers the rows. ``columns`` keeps some features only. ``categorical`` names columns that are codes
        although they look like numbers. ``name`` stands in error messages. ``form`` says how a text file is written,
        where that is not to be found out: its encoding, separator, decimal mark and order of dates. ``aside`` names
        columns that are no features but say what the rows are (``fs.Design``). ``encode`` says by column what a text
        or a date becomes (``core/encoding.py``): ``{"joined": ["month", "weekday"], "note": "words:16"}``.
        """
        for argument, given in (("columns", columns), ("categorical", categorical), ("aside", aside)):
            if isinstance(given, str):
                raise ParameterError(f"{argument}={given!r}: give a list of column names, [{given!r}]")
        if isinstance(source, Table):
            same = id in (None, source.id_name) and label in (None, source.label_name)
            if same and not categorical and not encode and set(aside) <= set(source.aside):
                kept = source if columns is None else source.select(columns)
                return replace(kept, name=name)
            id, label, source = id or source.id_name, label or source.label_name, source.to_polars()
        wanted = None if columns is None else list(dict.fromkeys([*columns, *aside]))
        loaded = load(source, name, Wanted(id, label, wanted, categorical, form or FileForm(), aside, encode or {}))
        frame, where = loaded.frame, loaded.where
        features = _features(loaded, encode or {}, wanted or (), [n for n in (id, label, *aside) if n is not None])
        if not max(frame.height, features.height):
            raise DataError(f"{where}: there are no rows; a table needs at least one")
        if not features.width and label is None:  # a party may hold the label alone
            raise DataError(f"{where}: there are no feature columns besides the id; add one")
        row_numbers = pl.Series("id", np.arange(max(frame.height, features.height))).cast(pl.String)
        ids = row_numbers if id is None else text_ids(frame[id], loaded)
        labels = None if label is None else checked_label(frame[label], loaded)
        kinds = kinds_of(features, where)
        refuse_infinite(features, loaded)
        beside = {column: checked_aside(frame[column], where) for column in aside}
        return cls(name, id, label, features, ids, labels, categories_of(features, kinds), loaded.written, beside)

    @classmethod
    def look(cls, source: object, name: str, form: FileForm | None = None) -> tuple[Table, dict[str, str]]:
        """All columns; those that could be read in several ways as text, with a line for each that says so."""
        try:
            return cls.read(source, id=None, name=name, form=form), {}
        except UnclearColumns as error:
            return cls.read(source, id=None, name=name, categorical=list(error.columns), form=form), error.columns

    # --- what it holds ---

    @cached_property
    def ids(self) -> np.ndarray:
        """The ids as text, one a row (read-only)."""
        ids = np.array(self._ids.to_list(), dtype=object)
        ids.flags.writeable = False
        return ids

    @cached_property
    def by_id(self) -> NDArray[np.int64]:
        """The rows in the order of their ids (read-only): what is drawn in it does not hang on the order of a file."""
        order = pl.DataFrame({"id": self._ids}).with_row_index("row").sort("id", maintain_order=True)
        rows = order["row"].to_numpy().astype(np.int64)
        rows.flags.writeable = False
        return rows

    def sorted_ids(self) -> Iterator[list[str]]:
        """All ids in their order, a million at a time."""
        for start in range(0, self.n_rows, 2**20):
            yield self._ids[self.by_id[start : start + 2**20]].to_list()

    @property
    def columns(self) -> list[str]:
        """The feature columns: neither the id nor the label."""
        return self._frame.columns

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        return kinds_of(self._frame, f"table {self.name!r}")

    @property
    def numeric_columns(self) -> list[str]:
        """The columns that :meth:`matrix` gives by default: all but the categorical ones."""
        return [name for name, kind in self.kinds.items() if kind != "categorical"]

    @property
    def label(self) -> np.ndarray | None:
        """The raw labels: whole numbers, decimal numbers, booleans, or text (as objects)."""
        if self._label is None:
            return None
        if self._label.dtype == pl.String:
            return np.array(self._label.to_list(), dtype=object)
        return np.array(self._label.to_numpy())

    @property
    def n_rows(self) -> int:
        return len(self._ids)

    @property
    def n_columns(self) -> int:
        return self._frame.width

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        counts = Counter(self.kinds.values())
        kinds = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
        text = f"Table {self.name!r}: {_plural(self.n_rows, 'row')}, {_plural(self.n_columns, 'column')}"
        text += f" ({kinds})" if kinds else ""
        return text + (f", label {self.label_name!r}" if self.label_name is not None else "")

    def values(self, column: str) -> np.ndarray:
        """A numeric, boolean or date column as float64, NaN where missing; dates are days since 1970-01-01 (UTC).

        The array is a copy: the caller may change it.
        """
        return next(self.each([column]))

    def each(self, columns: Sequence[str]) -> Iterator[np.ndarray]:
        """:meth:`values` of these columns, one after the other; of a large file they are read many at a time."""
        self._check_numeric(columns)
        for frame in pieces(self._frame, columns):
            for name, series in zip(frame.columns, frame.iter_columns()):
                plain = series if series.dtype in PLAIN else frame.select(as_float(name, series.dtype)).to_series()
                yield np.array(plain.to_numpy(), dtype=np.float64)

    def codes(self, column: str) -> tuple[np.ndarray, list[str]]:
        """A categorical column as int32 codes (-1 where missing) and the sorted categories they point into.

        The categories are those of the table as it was read; after :meth:`take` some may have no row.
        """
        self._check_known([column])
        if self.kinds[column] != "categorical":
            raise DataError(f"table {self.name!r}: column {column!r} is {self.kinds[column]}; use values({column!r})")
        categories = self._categories[column]
        text = read(self._frame, [column]).to_series().cast(pl.String)
        codes = text.cast(pl.Enum(categories)).to_physical().cast(pl.Int32).fill_null(-1)
        return np.array(codes.to_numpy()), list(categories)

    def column(self, name: str) -> pl.Series:
        """A feature column as it is."""
        self._check_known([name])
        return read(self._frame, [name])[name]

    def matrix(self, columns: Sequence[str] | None = None) -> np.ndarray:
        """Columns side by side as a new float64 array, rows x columns; by default :attr:`numeric_columns`."""
        names = self.numeric_columns if columns is None else list(columns)
        self._check_numeric(names)
        if not names:
            return np.empty((self.n_rows, 0))
        found, done = np.empty((self.n_rows, len(names))), 0
        for frame in pieces(self._frame, names):
            odd = [as_float(name, dtype) for name, dtype in frame.schema.items() if dtype not in PLAIN]
            found[:, done : done + frame.width] = (frame.with_columns(odd) if odd else frame).to_numpy()
            done += frame.width
        return found

    def describe(self) -> list[ColumnFacts]:
        """One record a column: its kind, how many values are missing and how many differ."""
        missing: dict[str, int] = {}
        distinct: dict[str, int] = {}
        for piece in pieces(self._frame, self.columns):
            frame = piece.with_columns(cs.float().fill_nan(None))
            missing |= zip(frame.columns, frame.null_count().row(0)) if frame.width else ()
            distinct |= frame.select(pl.all().drop_nulls().n_unique()).row(0, named=True) if frame.width else {}
        return [ColumnFacts(n, kind, missing[n], distinct[n]) for n, kind in self.kinds.items()]

    # --- new tables from this one ---

    def take(self, rows: Sequence[int] | np.ndarray) -> Table:
        """The rows at these positions, in this order; a row may be taken more than once."""
        index = np.asarray(rows)
        if index.size and index.dtype.kind not in "iu":
            advice = "give whole numbers; for a mask use numpy.flatnonzero(mask)"
            raise ParameterError(f"table {self.name!r}: take() got rows of type {index.dtype}; {advice}")
        index = index.astype(np.int64).ravel()
        if index.size and (index.min() < 0 or index.max() >= self.n_rows):
            bad = index[(index < 0) | (index >= self.n_rows)][0]
            raise ParameterError(f"table {self.name!r}: there is no row {bad}; it has rows 0 to {self.n_rows - 1}")
        label = None if self._label is None else self._label[index]
        aside = {name: column[index] for name, column in self.aside.items()}
        return replace(self, _frame=taken(self._frame, index), _ids=self._ids[index], _label=label, aside=aside)

    def select(self, columns: Sequence[str]) -> Table:
        """These feature columns in this order (possibly none); ids and label stay."""
        names = list(columns)
        self._check_known(names)
        categories = {n: self._categories[n] for n in names if n in self._categories}
        return replace(self, _frame=self._frame.select(names), _categories=categories)

    def rename(self, columns: Mapping[str, str] | None = None, *, name: str | None = None) -> Table:
        """Other names for feature columns (old: new), or for the table itself."""
        mapping = dict(columns or {})
        self._check_known(mapping)
        names = [mapping.get(n, n) for n in self.columns]
        self._check_free(names)
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise ParameterError(f"table {self.name!r}: rename() would give two columns the name {twice!r}")
        categories = {mapping.get(n, n): levels for n, levels in self._categories.items()}
        frame = self._frame.rename(mapping)
        return replace(self, name=self.name if name is None else name, _frame=frame, _categories=categories)

    def with_columns(self, columns: Mapping[str, Any]) -> Table:
        """More feature columns, one array each in the order of the rows; an existing name is replaced."""
        self._check_free(columns)
        where = f"table {self.name!r}"
        arrays = {name: v.to_pandas() if isinstance(v, pl.Series) else v for name, v in columns.items()}
        for name, values in arrays.items():
            if np.shape(values) != (self.n_rows,):
                shape = f"{self.n_rows} values, one a row"
                raise DataError(f"{where}: the new column {name!r} needs {shape}; it has the shape {np.shape(values)}")
        series = {n: pd.Series(v).reset_index(drop=True) for n, v in arrays.items()}
        new = from_pandas(pd.DataFrame(series), where, Wanted(None, None, None))
        kinds = kinds_of(new, where)
        refuse_infinite(new, Loaded(new, where, lambda row: f"row {row} (the first is 0)"))
        categories = {n: c for n, c in self._categories.items() if n not in columns} | categories_of(new, kinds)
        return replace(self, _frame=with_columns(self._frame, new), _categories=categories)

    # --- the way out ---

    def to_polars(self) -> pl.DataFrame:
        """Id (when it was a column), features, what is set aside and label, in this order."""
        head = [] if self.id_name is None else [self._ids.alias(self.id_name)]
        tail = [] if self._label is None else [self._label.alias(str(self.label_name))]
        aside = [column.alias(name) for name, column in self.aside.items()]
        return pl.DataFrame([*head, *read(self._frame, self.columns).get_columns(), *aside, *tail])

    def to_pandas(self) -> pd.DataFrame:
        return self.to_polars().to_pandas()

    def write(self, path: str | Path) -> Path:
        """Save as .csv, .csv.gz, .tsv, .parquet or .feather. The file appears complete or not at all."""
        path = Path(path)
        kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
        packed = path.name.lower().endswith(".gz")
        if kind not in ("csv", "tsv", "parquet", "feather") or (packed and kind not in ("csv", "tsv")):
            kinds = ".csv, .csv.gz, .tsv, .parquet or .feather"
            raise ParameterError(f"table {self.name!r}: cannot write {path.name!r}; the name must end in {kinds}")
        if not path.parent.is_dir():
            raise ParameterError(f"table {self.name!r}: there is no folder {str(path.parent)!r} to write into")
        frame = self.to_polars().with_columns(cs.float().fill_nan(None))
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        try:
            if kind in ("csv", "tsv"):
                data = frame.write_csv(separator="," if kind == "csv" else "\t").encode()
                partial.write_bytes(gzip.compress(data, mtime=0) if packed else data)
            elif kind == "parquet":
                frame.write_parquet(partial)
            else:
                frame.write_ipc(partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        return path

    # --- checks ---

    def _check_known(self, names: Iterable[str]) -> None:
        seen = set()
        for name in names:
            if name not in self.kinds:
                advice = suggest(str(name), self.columns)
                raise DataError(f"table {self.name!r}: there is no feature column {name!r}. {advice}")
            if name in seen:
                raise ParameterError(f"table {self.name!r}: column {name!r} is named twice")
            seen.add(name)

    def _check_numeric(self, names: Iterable[str]) -> None:
        self._check_known(names)
        text = next((n for n in names if self.kinds[n] == "categorical"), None)
        if text is not None:
            advice = f"use codes({text!r}), or leave it out"
            raise DataError(f"table {self.name!r}: column {text!r} is categorical and has no numbers; {advice}")

    def _check_free(self, names: Iterable[str]) -> None:
        taken = dict.fromkeys(self.aside, "column set aside") | {self.id_name: "id", self.label_name: "label"}
        for name in names:
            if name in taken:
                raise ParameterError(f"table {self.name!r}: {name!r} is the name of the {taken[name]}; take another")


def _features(loaded: Loaded, encode: Encoders, named: Sequence[str], apart: Sequence[str]) -> Frame:
    """The feature columns, with what encoders make of texts and dates; those of a large file stay where they are."""
    stored = [] if loaded.features is None else loaded.features.columns
    made = encoded(loaded.frame, encode, [name for name in named if name not in stored], loaded.where)
    own = made.drop([name for name in apart if name in made.columns])
    if loaded.features is None:
        return own
    return with_columns(loaded.features, own) if own.width else loaded.features


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
