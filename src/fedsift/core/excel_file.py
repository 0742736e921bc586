"""A sheet of an Excel file, by openpyxl where it is installed. Cells become text and are typed as a CSV file's are.

A cell that holds a formula has the value that Excel stored with it; one that no program has computed yet is refused,
because it would look like a missing value.
"""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path
from typing import Any

import polars as pl

from fedsift.core.text_types import Settling
from fedsift.core.wanted import Loaded, Wanted, Written, suggest
from fedsift.errors import DataError, MissingExtra


def load_excel(path: Path, where: str, wanted: Wanted) -> Loaded:
    try:
        import openpyxl
    except ImportError:
        raise MissingExtra("openpyxl", "excel") from None
    try:
        values = openpyxl.load_workbook(path, read_only=True, data_only=True)
        formulas = openpyxl.load_workbook(path, read_only=True)
    except Exception as error:  # openpyxl raises what its parsers raise
        raise DataError(f"{where}: the file cannot be read ({type(error).__name__}); is it complete?") from None
    sheet = _sheet(values.sheetnames, where, wanted.form.sheet)
    records = [list(row) for row in values[sheet].iter_rows(values_only=True)]
    written = [list(row) for row in formulas[sheet].iter_rows(values_only=True)]
    while records and all(cell is None for cell in records[-1]):
        records.pop()
    if not records:
        raise DataError(f"{where}: the sheet is empty; it needs a row with column names and one row for each record")
    names = [str(cell if cell is not None else "").strip() for cell in records[0]]
    kept = wanted.of(names, where)
    columns = {}
    for place, name in enumerate(names):
        if name in kept:
            _refuse_uncomputed(records, written, place, name, where)
            columns[name] = pl.Series(name, [_text(row[place]) for row in records[1:]], dtype=pl.String)
    plain = {wanted.id, *wanted.categorical}
    work = Settling(where, lambda row: f"row {row + 2} of the sheet", plain, wanted.label, wanted.form, False)
    frame = work.settle(pl.DataFrame([columns[name] for name in kept]))
    return Loaded(frame, where, work.locate, Written(f"Excel, sheet {sheet!r}", work.remarks, wanted.form))


def copy_columns(path: Path, kept: list[str], where: str, wanted: str | None) -> tuple[bytes, int]:
    """A new Excel file of these columns, every cell as it is (of a formula its value); and how many rows it has."""
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    sheet = _sheet(book.sheetnames, where, wanted)
    records = [list(row) for row in book[sheet].iter_rows()]
    while records and all(cell.value is None for cell in records[-1]):
        records.pop()
    names = [str(cell.value if cell.value is not None else "").strip() for cell in records[0]]
    places = [names.index(name) for name in kept]
    new = openpyxl.Workbook()
    new.active.title = sheet
    for row, record in enumerate(records, 1):
        for column, place in enumerate(places, 1):
            cell = new.active.cell(row, column, record[place].value)
            cell.number_format = record[place].number_format or "General"
            if isinstance(cell.value, str):
                cell.data_type = "s"  # a text that begins with = stays a text
    data = io.BytesIO()
    new.save(data)
    return data.getvalue(), len(records) - 1


def _sheet(names: list[str], where: str, wanted: str | None) -> str:
    if wanted is not None and wanted not in names:
        raise DataError(f"{where}: there is no sheet {wanted!r}. {suggest(wanted, names)}")
    if wanted is None and len(names) > 1:
        raise DataError(f"{where}: it has the sheets {', '.join(names)}; say which with sheet = ... in the job file")
    return wanted or names[0]


def _refuse_uncomputed(records: list[Any], written: list[Any], place: int, name: str, where: str) -> None:
    for row, (value, text) in enumerate(zip(records, written)):
        if value[place] is None and isinstance(text[place], str) and text[place].startswith("="):
            advice = "open the file in Excel and save it"
            raise DataError(f"{where}: row {row + 1} of column {name!r} has a formula without its value; {advice}")


def _text(cell: object) -> str | None:
    """A cell as a CSV file with decimal points would have it."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, dt.datetime):
        return cell.date().isoformat() if cell.time() == dt.time() else cell.isoformat(sep=" ", timespec="seconds")
    if isinstance(cell, (dt.date, dt.time)):
        return cell.isoformat()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return repr(cell)
