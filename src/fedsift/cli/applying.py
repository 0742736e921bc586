"""``fedsift apply``: a party keeps the selected columns of its own table, every value as it stands in the file."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from fedsift.cli import console
from fedsift.core.encoding import source_of
from fedsift.core.excel_file import copy_columns
from fedsift.core.expressions import columns_of, parse
from fedsift.core.files import write_atomic
from fedsift.core.table import Table
from fedsift.core.text_file import TextFile
from fedsift.core.wanted import FileForm, kind_of_file
from fedsift.errors import DataError, ParameterError
from fedsift.jobs.text import nearest
from fedsift.select.selection import Selection


def apply(
    selection: Annotated[Path, typer.Argument(help="selection.json or selection-PARTY.json.", show_default=False)],
    file: Annotated[Path, typer.Argument(help="Your table: CSV, TSV, Excel, Parquet or Feather.", show_default=False)],
    party: Annotated[str | None, typer.Option(help="Whose columns, when the selection has several parties'.")] = None,
    id: Annotated[str | None, typer.Option(help="The id column, which is kept.", metavar="COLUMN")] = None,
    label: Annotated[str | None, typer.Option(help="The label column, which is kept.", metavar="COLUMN")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; else NAME-selected beside FILE.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="The traceback of an error.")] = False,
) -> None:
    """Keep the selected columns of your own table. Needs no other party.

    No value is changed: what stands in the file stands in the new one. Where the run has told weights of evidence, they
    stand in the place of values.
    """
    loaded = Selection.load(selection)
    whose = _whose(loaded, selection, party)
    columns, formulas = loaded.selected[whose], loaded.engineered_for(whose)
    if not columns and not formulas:
        raise DataError(f"{selection} keeps no column of party {whose!r}: there is nothing to write")
    target = out or file.with_name(_selected_name(file.name))
    if target.exists() and target.samefile(file):
        raise ParameterError(f"{target} is the table itself; give another file (--out FILE)")
    id = id or loaded.details.get("id")  # a run writes the party's own id into its copy
    form = FileForm.read(loaded.details.get("form", {})).of_kind(kind_of_file(file))
    kept = [*([id] if id else []), *columns, *([label] if label else [])]
    if (
        not formulas
        and not loaded.evidence
        and not any(source_of(column) for column in columns)
        and _ending(file) == _ending(target)
        and _ending(file) in ("csv", "tsv", "parquet", "xlsx")
    ):
        rows = _copy(file, target, kept, whose, form.of_columns(()))
    else:
        needed = [*columns, *(column.name for text in formulas for column in columns_of(parse(text)))]
        needed = list(dict.fromkeys(needed))
        source = Table.read(file, id=id, label=label, columns=needed, name=whose, form=form.of_columns(needed))
        rows = source.n_rows
        loaded.apply(source, whose).write(target)
    new = f", {len(formulas)} new: {', '.join(formulas)}" if formulas else ""
    new += f", {len(loaded.evidence)} of them as weights of evidence" if loaded.evidence else ""
    console.show(f"{target}: {rows:,} rows, {len(columns)} columns kept for {whose!r}: {', '.join(columns)}{new}")
    if id is None:
        console.remark("no id column was kept; --id COLUMN keeps it")


def _whose(loaded: Selection, selection: Path, party: str | None) -> str:
    if party is None and len(loaded.selected) != 1:
        raise ParameterError(f"{selection} is for {', '.join(loaded.selected)}: say which with --party NAME")
    whose = party if party is not None else next(iter(loaded.selected))
    if whose not in loaded.selected:
        raise ParameterError(f"{selection} has no party {whose!r}{nearest(whose, list(loaded.selected))}")
    return whose


def _ending(path: Path) -> str:
    return path.name.lower().removesuffix(".gz").rpartition(".")[2]


def _copy(file: Path, target: Path, kept: list[str], whose: str, form: FileForm) -> int:
    """The kept columns as they are: texts letter by letter, with the file's own separator and encoding."""
    codes = [] if _ending(file) == "parquet" else kept
    Table.read(file, id=None, columns=kept, categorical=codes, name=whose, form=form)
    if _ending(file) == "parquet":
        frame = pl.read_parquet(file, columns=kept).select(kept)
        data = io.BytesIO()
        frame.write_parquet(data)
        write_atomic(target, data.getvalue())
        return frame.height
    if _ending(file) == "xlsx":
        sheet, rows = copy_columns(file, kept, f"table {whose!r} ({file.name})", form.sheet)
        write_atomic(target, sheet)
        return rows
    source = TextFile.open(file, f"table {whose!r} ({file.name})", form)
    records = source.rows()
    names = [name.strip() for name in next(records)[1]]
    places = [names.index(name) for name in kept]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=source.separator, lineterminator="\n")
    writer.writerow(kept)
    count = 0
    for _, record in records:
        writer.writerow([record[place] for place in places])
        count += 1
    data_bytes = text.getvalue().encode(source.encoding)
    write_atomic(target, gzip.compress(data_bytes, mtime=0) if target.name.endswith(".gz") else data_bytes)
    return count


def _selected_name(name: str) -> str:
    stem, dot, suffix = name.partition(".")
    return f"{stem}-selected{dot}{suffix}"
