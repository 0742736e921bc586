"""``fedsift init``: a first job file from the files themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from fedsift.cli import console
from fedsift.core.files import write_atomic
from fedsift.core.table import Table
from fedsift.errors import ParameterError
from fedsift.methods import METHODS

#: Ids of a file of which one row in twenty is there twice are still its ids; who wrote the file has to clear them up.
_MOSTLY = 0.95


def init(
    files: Annotated[list[Path], typer.Argument(help="One file a party.", show_default=False)],
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column to predict.")] = None,
    method: Annotated[str, typer.Option(help="The method.")] = "information_value",
    out: Annotated[Path, typer.Option(metavar="FILE", help="The job file to write.")] = Path("job.toml"),
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="The traceback of an error.")] = False,
) -> None:
    """Look at the parties' files and write a job file.

    The ids are the columns that have the most values in common. Read the file before you run it.
    """
    if out.exists():
        raise ParameterError(f"{out} is there already; give another file (--out FILE)")
    if len(files) < 2:
        raise ParameterError("give two files or more, one for each party (one party alone: fedsift party init)")
    if method not in METHODS:
        raise ParameterError(f"there is no method {method!r}; fedsift methods lists them")
    read = {file.name.partition(".")[0]: Table.look(file, file.name) for file in files}
    tables, asked = {name: each[0] for name, each in read.items()}, {name: each[1] for name, each in read.items()}
    if len(tables) < len(files):
        raise ParameterError("two files have the same name, which would be two parties' name; rename one")
    holders = [name for name, table in tables.items() if label in table.columns]
    if label is None or len(holders) != 1:
        found = "no file has" if not holders else f"{' and '.join(holders)} have"
        what = "say which column is to be predicted" if label is None else f"{found} a column {label!r}"
        raise ParameterError(f"{what}: --label COLUMN, a column of one file")
    ids = shared_ids(tables)
    if ids[holders[0]] == label:
        raise ParameterError(
            f"{label!r} is the column by which the rows of these files meet: it cannot be the label, too"
        )
    write_atomic(out, job_text(dict(zip(tables, files)), ids, holders[0], label, method, out, asked))
    for name, column in ids.items():
        console.show(f"{name}: rows are matched by {column!r}")
        if again := _repeated(tables[name], column):
            console.show(f"to decide: {name}: {again} rows have an id of another row: remove or combine them")
    for line in (line for each in asked.values() for line in each.values()):
        console.show(f"to decide: {line}")
    told = "answer the questions in it" if any(asked.values()) else "read it"
    console.show(f"written to {out}: {told}, then: fedsift check {out}")


def shared_ids(tables: dict[str, Table]) -> dict[str, str]:
    """For each table the column whose values hardly ever repeat and that meets most of the first table's."""
    names = list(tables)
    values = {name: _id_columns(table) for name, table in tables.items()}
    best: tuple[int, str, dict[str, str]] = (0, "", {})
    for own, keys in values[names[0]].items():
        met = {names[0]: own}
        least = len(keys)
        for other in names[1:]:
            shared = {column: len(keys & theirs) for column, theirs in values[other].items()}
            column = max(shared, key=lambda each: shared[each], default="")
            least = min(least, shared.get(column, 0))
            met[other] = column
        if least > best[0]:
            best = (least, own, met)
    others = [line for other in names[1:] if (line := _written_otherwise(names[0], other, values))]
    if others or not best[0]:
        none = "no columns of these files have values in common, by which rows could be matched"
        raise ParameterError("; ".join(others) or none)
    return best[2]


def _written_otherwise(first: str, other: str, values: Mapping[str, Mapping[str, set[str]]]) -> str:
    """Where few or no ids of two files meet, whether more would if they were written in one way."""
    plain = _most_shared(values[first], values[other])
    if 2 * plain[0] >= min((len(keys) for name in (first, other) for keys in values[name].values()), default=0) > 0:
        return ""
    bare = _most_shared(*({column: _bare(keys) for column, keys in values[name].items()} for name in (first, other)))
    if bare[0] > 2 * plain[0]:
        return (
            f"{other}: {bare[2]!r} has {bare[0]} values of {bare[1]!r} of {first} once leading zeros, capitals and "
            f"marks are left out, and {plain[0]} as they are: write them in one way (a spreadsheet cuts leading zeros; "
            "keep such a column as text)"
        )
    return "" if plain[0] else f"{other}: no column has values of a column of {first}, by which rows could be matched"


def _most_shared(mine: Mapping[str, set[str]], theirs: Mapping[str, set[str]]) -> tuple[int, str, str]:
    """How many values the best pair of columns shares, and which columns these are."""
    pairs = ((len(keys & met), own, column) for own, keys in mine.items() for column, met in theirs.items())
    return max(pairs, default=(0, "", ""))


def _bare(values: set[str]) -> set[str]:
    signs = {re.sub(r"[\W_]", "", value).casefold() for value in values} - {""}
    return {each.lstrip("0") or "0" for each in signs}


def _id_columns(table: Table) -> dict[str, set[str]]:
    """Columns that may be ids: no holes, no dates and no fractions, and hardly a value that stands twice."""
    rows = table.to_polars()
    full = [r.column for r in table.describe() if not r.missing and r.distinct >= _MOSTLY * table.n_rows]
    whole = [n for n in full if not rows.schema[n].is_float() and not rows.schema[n].is_temporal()]
    return {name: set(rows[name].cast(str).str.strip_chars().to_list()) for name in whole}


def _repeated(table: Table, column: str) -> int:
    return table.n_rows - int(table.to_polars()[column].n_unique())


def job_text(
    files: dict[str, Path],
    ids: dict[str, str],
    holder: str,
    label: str,
    method: str,
    out: Path,
    asked: Mapping[str, Mapping[str, str]],
) -> str:
    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    lines = ["# Written by `fedsift init`. `fedsift check` shows how each column is read and what to look at again."]
    for name, file in files.items():
        near = file.absolute().parent == out.absolute().parent
        lines += ["", f"[parties.{text(name)}]", f"file = {text(file.name if near else str(file.absolute()))}"]
        lines += [f"id = {text(ids[name])}", *([f"label = {text(label)}"] if name == holder else [])]
        if asked[name]:
            lines += ["# To decide (nothing is guessed):", *(f"# - {line}" for line in asked[name].values())]
            lines += ["# As codes, if that is what they are:", f"# categorical = {text(list(asked[name]))}"]
    return "\n".join([*lines, "", "[method]", f"name = {text(method)}", ""])
