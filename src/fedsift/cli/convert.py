"""``fedsift party convert``: a large text file or a query's answer, once, as a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedsift.cli import console
from fedsift.cli.party import Verbose
from fedsift.core.convert import convert as converted
from fedsift.core.wanted import FileForm

_SHOWN = 40  # remarks


def convert(
    file: Annotated[
        Path, typer.Argument(help="Your table: CSV, TSV (also .gz), or a query (.sql).", show_default=False)
    ],
    out: Annotated[Path, typer.Argument(help="The Parquet file to write.", show_default=False)],
    id: Annotated[str | None, typer.Option(help="The id column: its values stay as they are written.")] = None,
    label: Annotated[str | None, typer.Option(help="The label column, if you hold the label.")] = None,
    categorical: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns that are codes although they look like numbers.")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Of a text file; else it is found out.")] = None,
    separator: Annotated[str | None, typer.Option(help="Between values; else it is found out.")] = None,
    decimal: Annotated[Literal[".", ","] | None, typer.Option(help="The decimal mark.")] = None,
    dates: Annotated[Literal["day first", "month first"] | None, typer.Option(help="The order of dates.")] = None,
    database: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a query: the environment variable with the address.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Write a table that is too large to hold as a Parquet file, of which columns are read when they are asked for.

    Columns get the types that they would have if the file were read whole; some records at a time are in memory.
    """
    codes = [name.strip() for name in (categorical or "").split(",") if name.strip()]
    form = FileForm(encoding=encoding, separator=separator, decimal=decimal, dates=dates, database=database)
    done = converted(file, out, plain=[*codes, *([id] if id else [])], label=label, form=form)
    for name, remark in list(done.remarks.items())[:_SHOWN]:
        console.show(f"{name}: {remark}")
    if len(done.remarks) > _SHOWN:
        console.show(f"... and {len(done.remarks) - _SHOWN:,} more")
    console.show(f"written to {out}: {done.rows:,} rows, {done.columns:,} columns; name it in party.toml (file = ...)")
