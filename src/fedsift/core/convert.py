"""A table that is too large to hold, written once as a Parquet file: of that, columns are read when they are asked for.

A text file is read twice, some records at a time. First its values go as texts into a file of their own; then each
column is given the type that all of its values have (``text_types.py``, the same rules as for a file that is held),
one column at a time; at last the columns are put side by side, some rows at a time. A query's rows come from the
database some at a time. What lies between is in a folder beside the result, and gone when that is there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from fedsift.core import database, text_file
from fedsift.core.text_types import MISSING, Settling
from fedsift.core.wanted import FileForm, Wanted, check_names, kind_of_file
from fedsift.errors import DataError, ParameterError, UnclearColumns

_BYTES = 1 << 26  # of a text file that are looked at together
_CELLS = 1 << 24  # rows x columns that are put side by side at once
_ROWS = 1 << 16  # of a query's answer


@dataclass(frozen=True)
class Converted:
    """What was written."""

    rows: int
    columns: int
    remarks: dict[str, str] = field(default_factory=dict)  # how columns were read, where it is worth a word


def convert(
    source: Path, target: Path, *, plain: Collection[str] = (), label: str | None = None, form: FileForm | None = None
) -> Converted:
    """``source`` (text, or a query with its database) as a Parquet file; ``plain`` columns stay text: ids and codes."""
    where, form = f"file {source.name!r}", form or FileForm()
    kind = kind_of_file(source)
    if kind not in ("text", "a query"):
        raise ParameterError(f"{where}: a text file or a query is converted; {kind} files are read as they are")
    if target.suffix.lower() != ".parquet":
        raise ParameterError(f"{target.name!r}: the name of what is written ends in .parquet")
    if target.exists():
        raise ParameterError(f"{target} is there already; remove it or give another name")
    if not source.is_file():
        raise DataError(f"{where}: there is no file {str(source)!r}; check the path and the folder you work in")
    form.check_for(kind, where)
    with tempfile.TemporaryDirectory(prefix=".fedsift-", dir=target.parent) as made:
        folder, partial = Path(made), Path(made) / "whole.parquet"
        if kind == "a query":
            done = _from_query(source, partial, where, form)
        else:
            done = _Text(source, folder, where, form, {*plain}, label).typed(partial)
        partial.replace(target)
    return done


def _from_query(source: Path, partial: Path, where: str, form: FileForm) -> Converted:
    rows, writer = 0, None
    try:
        for frame in database.batches(source, where, form, _ROWS):
            table = frame.to_arrow()
            if writer is None:
                check_names(frame.columns, where)
                writer = pq.ParquetWriter(partial, table.schema)
            try:
                writer.write_table(table.cast(writer.schema))
            except (pa.ArrowException, ValueError):
                raise DataError(
                    f"{where}: rows from {rows:,} on have other types than those before; give each column one type in "
                    "the query (CAST)"
                ) from None
            rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    if writer is None or not rows:
        raise DataError(f"{where}: the query gives no rows")
    return Converted(rows, len(writer.schema))


class _Text:
    """One text file on its way."""

    def __init__(
        self, source: Path, folder: Path, where: str, form: FileForm, plain: set[str], label: str | None
    ):  # fmt: skip
        self.source, self.folder, self.where, self.form = source, folder, where, form
        self.plain, self.label = plain, label
        self.texts = folder / "texts.parquet"
        self.separator, self.names = ",", [""]

    def typed(self, partial: Path) -> Converted:
        rows = self._as_texts()
        frame = _height(self.texts)
        comma = self.separator == ";"
        remarks = self._columns(comma)
        if not comma and any("decimal comma" in remark for remark in remarks.values()):
            remarks = self._columns(True)  # 1.234 in another column may be a thousand
        step = max(1, _CELLS // max(1, len(self.names)))
        self._side_by_side(partial, frame, step)
        return Converted(rows, len(self.names), remarks)

    def _as_texts(self) -> int:
        """All values as texts, in a file whose columns can be read one by one."""
        rows, writer, schema = 0, None, None
        try:
            for piece in text_file.pieces(self.source, self.where, self.form, _BYTES):
                if schema is None:
                    self.separator = piece.separator
                    self.names = [name.strip() for name in next(piece.records())]
                    Wanted(None, self.label, None, self.plain, self.form).of(self.names, self.where)
                    schema = pa.schema([(name, pa.large_string()) for name in self.names])
                    writer = pq.ParquetWriter(self.texts, schema)
                frame = piece.as_text([*MISSING, *self.form.missing])
                frame.columns = self.names
                assert writer is not None
                writer.write_table(frame.to_arrow().cast(schema))
                rows += frame.height
        finally:
            if writer is not None:
                writer.close()
        if not rows:
            raise DataError(f"{self.where}: there are no rows; a table needs at least one")
        return rows

    def _columns(self, comma: bool) -> dict[str, str]:
        """Each column with its type, in a file of its own."""
        work = Settling(self.where, _record, self.plain, self.label, self.form, comma)
        unclear: dict[str, str] = {}
        for number, name in enumerate(self.names):
            try:
                frame = work.settle(pl.read_parquet(self.texts, columns=[name]))
            except UnclearColumns as error:
                unclear |= error.columns
                continue
            frame.write_parquet(self._column(number), row_group_size=max(1, _CELLS // max(1, len(self.names))))
        if unclear:
            raise UnclearColumns("\n".join(unclear.values()), unclear)
        return work.remarks

    def _column(self, number: int) -> Path:
        return self.folder / f"column{number}.parquet"

    def _side_by_side(self, partial: Path, rows: int, step: int) -> None:
        schema = pa.schema([pq.read_schema(self._column(number)).field(0) for number in range(len(self.names))])
        with pq.ParquetWriter(partial, schema) as writer:
            for start in range(0, rows, step):
                parts = [
                    pl.scan_parquet(self._column(number)).slice(start, step).collect().to_arrow().column(0)
                    for number in range(len(self.names))
                ]
                columns = [part.cast(kind.type) for part, kind in zip(parts, schema)]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _height(path: Path) -> int:
    return int(pq.ParquetFile(path).metadata.num_rows)


def _record(row: int) -> str:
    return f"record {row + 1:,}"
