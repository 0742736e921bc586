"""What a column may be: its kind, its numbers, and the checks of ids, labels and infinities.

Errors name the table, the column and the row; they quote an id where it is needed to find the row, a feature never.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl

from fedsift.core.stored import Frame, pieces
from fedsift.core.wanted import Loaded
from fedsift.errors import DataError

Kind = Literal["numeric", "boolean", "categorical", "date"]

#: Types that NumPy reads as numbers without our help.
PLAIN = {pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64}
_MICROSECONDS_A_DAY = 86_400e6


def kind_of(dtype: pl.DataType) -> Kind | None:
    if dtype == pl.Boolean:
        return "boolean"
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return "categorical"
    if dtype in (pl.Date, pl.Datetime):
        return "date"
    if dtype.is_numeric() or dtype in (pl.Duration, pl.Time, pl.Null):
        return "numeric"
    return None


def kinds_of(frame: Frame, where: str) -> dict[str, Kind]:
    known: dict[pl.DataType, Kind | None] = {}
    kinds: dict[str, Kind] = {}
    for name, dtype in frame.schema.items():
        if dtype not in known:
            known[dtype] = kind_of(dtype)
        kind = known[dtype]
        if kind is None:
            advice = "turn it into numbers, text, booleans or dates, or leave it out with columns=[...]"
            raise DataError(f"{where}: column {name!r} has the type {dtype}, which fedsift does not read; {advice}")
        kinds[name] = kind
    return kinds


def categories_of(frame: Frame, kinds: Mapping[str, Kind]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for piece in pieces(frame, [name for name, kind in kinds.items() if kind == "categorical"]):
        if piece.width:
            sets = piece.select(pl.all().cast(pl.String).drop_nulls().unique().sort().implode())
            found.update({name: sets[name][0].to_list() for name in piece.columns})
    return found


def as_float(name: str, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if dtype == pl.Date:
        return column.cast(pl.Int32).cast(pl.Float64)
    if dtype == pl.Datetime:
        return column.dt.epoch("us").cast(pl.Float64) / _MICROSECONDS_A_DAY
    if dtype == pl.Duration:
        return column.dt.total_microseconds().cast(pl.Float64) / _MICROSECONDS_A_DAY
    if dtype == pl.Time:
        return column.cast(pl.Int64).cast(pl.Float64) / (_MICROSECONDS_A_DAY * 1000)
    return column.cast(pl.Float64)


def text_ids(column: pl.Series, loaded: Loaded) -> pl.Series:
    """Ids as text: 7 and "7" are the same person, 7.0 is a mistake somebody made on the way."""
    where, name = loaded.where, column.name
    if column.dtype.is_float() or column.dtype.is_decimal():
        raise DataError(_DECIMAL_IDS.format(where=where, name=name))
    if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null)):
        raise DataError(f"{where}: the id column {name!r} has the type {column.dtype}; ids are text or whole numbers")
    ids = column.cast(pl.String).str.strip_chars()
    missing = ids.is_null() | (ids == "")
    if missing.any():
        row = loaded.locate(missing.arg_max() or 0)
        raise DataError(
            f"{where}: {row} has no id in column {name!r}; every row needs one: fill it in or remove the row"
        )
    if ids.str.contains(r"^[+-]?\d+\.0*$").all():
        raise DataError(_DECIMAL_IDS.format(where=where, name=name))
    if ids.n_unique() < len(ids):
        again = (~ids.is_first_distinct()).arg_max() or 0
        value = ids[again]
        first, second = loaded.locate((ids == value).arg_max() or 0), loaded.locate(again)
        advice = "a table has one row an id: remove or combine the repeated rows"
        raise DataError(f"{where}: the id {value!r} in column {name!r} appears twice, {first} and {second}; {advice}")
    return ids


_DECIMAL_IDS = (
    "{where}: the ids in column {name!r} are decimal numbers such as 7.0, which would not match another party's 7. "
    "pandas makes them from whole numbers when some are missing: remove the rows without an id, then convert with "
    "astype('int64'), or read the column as text"
)


def checked_label(column: pl.Series, loaded: Loaded) -> pl.Series:
    """Labels as int64, float64, booleans or text, with none missing."""
    where, name = loaded.where, column.name
    kind = kind_of(column.dtype)
    if kind is None or kind == "date":
        advice = "a label is a number, a boolean or text"
        raise DataError(f"{where}: the label column {name!r} has the type {column.dtype}; {advice}")
    if column.dtype.is_float():
        column = column.fill_nan(None)
    if column.null_count():
        row, count = loaded.locate(column.is_null().arg_max() or 0), column.null_count()
        advice = "remove these rows or fill the label in"
        raise DataError(f"{where}: {row} has no label in column {name!r} ({count} missing in all); {advice}")
    if column.dtype.is_float() and column.is_infinite().any():
        row = loaded.locate(column.is_infinite().arg_max() or 0)
        raise DataError(f"{where}: the label in {row} of column {name!r} is infinite; correct it or remove the row")
    if kind == "categorical":
        return column.cast(pl.String)
    if kind == "boolean":
        return column
    return column.cast(pl.Int64 if column.dtype.is_integer() else pl.Float64)


def checked_aside(column: pl.Series, where: str) -> pl.Series:
    """A column that says what rows are: numbers, booleans, dates, or text."""
    kind = kind_of(column.dtype)
    if kind is None or column.dtype in (pl.Duration, pl.Time):
        advice = "turn it into numbers, text, booleans or dates"
        raise DataError(f"{where}: column {column.name!r} is set aside and has the type {column.dtype}; {advice}")
    if kind == "categorical":
        return column.cast(pl.String)
    return column.fill_nan(None) if column.dtype.is_float() else column


def refuse_infinite(frame: Frame, loaded: Loaded) -> None:
    if not any(dtype.is_float() for dtype in set(frame.dtypes)):
        return
    floats = [name for name, dtype in frame.schema.items() if dtype.is_float()]
    for piece in pieces(frame, floats):
        infinite = piece.select(pl.all().is_infinite().any()).row(0)
        if any(infinite):
            column = piece.to_series(infinite.index(True))
            row = column.is_infinite().fill_null(False).arg_max() or 0
            advice = "correct it, or leave it missing"
            raise DataError(f"{loaded.where}: {loaded.locate(row)} of column {column.name!r} is infinite; {advice}")
