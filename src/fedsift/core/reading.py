"""From somebody's file or DataFrame to one polars frame in which every column has one known type.

What can be wrong with a source is found here, before any protocol starts. A message names the table, the column and
the row and says what to do; it never quotes a feature's value, because messages end up in logs and tickets that more
people read than the table itself.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
import io
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from fedsift.errors import DataError

#: What counts as "no value" in a text file, after surrounding blanks are removed.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?")

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", ".feather", ".arrow", ".ipc")

_GUESS_ROWS = 10_000  # types are guessed from so many rows; a later row that disagrees makes us look at all of them
_COMMA_NUMBER = r"^[+-]?\d+(\.\d{3})*,\d+$"
_WORTH_A_LOOK = re.compile(r"[-+.\d]|true$|false$|inf", re.IGNORECASE)  # else a word: neither number, truth nor date
_DATES = {  # the forms that mean one day only; 01/02/2024 does not, and stays text
    r"^\d{4}-\d{1,2}-\d{1,2}$": "%Y-%m-%d",
    r"^\d{4}/\d{1,2}/\d{1,2}$": "%Y/%m/%d",
    r"^\d{1,2}\.\d{1,2}\.\d{4}$": "%d.%m.%Y",
    r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}": None,  # ISO 8601 with a time: polars reads its variants itself
}
_PANDAS_INDEX = re.compile(r"^__index_level_\d+__$")  # what pandas calls an unnamed index inside a Parquet file
_ONE_TYPE = {"string", "boolean", "integer", "floating", "date", "datetime", "datetime64", "time", "timedelta"}
_NUMBERS = {"decimal", "mixed-integer-float", "empty"}


@dataclass(frozen=True)
class Wanted:
    """Which columns the caller needs; everything else is left unread where the format allows it."""

    id: str | None
    label: str | None
    columns: Sequence[str] | None
    categorical: Collection[str] = ()

    def of(self, names: Sequence[str], where: str) -> list[str]:
        """The needed names in the source's order, or an error that names the nearest column."""
        check_names(names, where)
        known = set(names)
        for role, name in (("id", self.id), ("label", self.label)):
            if name is not None and name not in known:
                raise DataError(f"{where}: the {role} column {name!r} is not there. {suggest(name, names)}")
        if self.id is not None and self.id == self.label:
            raise DataError(f"{where}: {self.id!r} cannot be both the id and the label; name two columns")
        for name in (*(self.columns or ()), *self.categorical):
            if name not in known:
                raise DataError(f"{where}: column {name!r} is not there. {suggest(name, names)}")
        if self.columns is None:
            return [n for n in names if n == self.id or not _PANDAS_INDEX.match(n)]
        kept = {*self.columns, self.id, self.label}
        return [n for n in names if n in kept]


@dataclass(frozen=True)
class Loaded:
    """A frame, the words for its source, and how to name one of its rows to a person."""

    frame: pl.DataFrame
    where: str
    locate: Callable[[int], str]


def suggest(name: str, names: Iterable[str]) -> str:
    """'Did you mean ...?', or the first columns when nothing is near."""
    by_lower = {n.lower(): n for n in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if near:
        return f"Did you mean {by_lower[near[0]]!r}?"
    shown = list(by_lower.values())[:8]
    return f"There are: {', '.join(shown)}{', ...' if len(by_lower) > len(shown) else '.'}" if shown else "It has none."


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse columns that cannot be told apart or have no name."""
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not name.strip():
            advice = "name it, or save the table without its row index (pandas: index=False)"
            raise DataError(f"{where}: column {position} has no name; {advice}")
        if name in seen:
            raise DataError(f"{where}: columns {seen[name]} and {position} are both named {name!r}; rename one of them")
        seen[name] = position


def load(source: Any, name: str, wanted: Wanted) -> Loaded:
    """Read any accepted source. Text is typed, Python objects are refused unless they are of one type."""
    if isinstance(source, (str, Path)):
        return _load_file(Path(source), name, wanted)
    where = f"table {name!r}"
    if isinstance(source, pd.DataFrame):
        frame = from_pandas(source, where, wanted)
    elif isinstance(source, (pa.Table, pa.RecordBatch)):
        frame = _from_arrow(source, where, wanted)
    elif isinstance(source, (pl.DataFrame, pl.LazyFrame)):
        frame = source.lazy().collect()
    else:
        kinds = "a path, a pandas or polars DataFrame, a pyarrow Table or a fedsift Table"
        raise DataError(f"{where}: cannot read a {type(source).__name__}; give {kinds}")
    return Loaded(_typed(_pick(frame, where, wanted), wanted), where, _row_number)


def _row_number(row: int) -> str:
    return f"row {row} (the first is 0)"


def _pick(frame: pl.DataFrame, where: str, wanted: Wanted) -> pl.DataFrame:
    names = wanted.of(frame.columns, where)
    return frame if len(names) == frame.width else frame.select(names)


def _typed(frame: pl.DataFrame, wanted: Wanted) -> pl.DataFrame:
    """Columns with no value at all are numbers, whatever the format calls them; categories on request are text."""
    for name in (n for n in wanted.categorical if n in frame.columns):
        column = frame[name].fill_nan(None) if frame.schema[name].is_float() else frame[name]
        frame = frame.with_columns(column.cast(pl.String))
    if not {pl.String, pl.Null} & set(frame.dtypes):
        return frame
    text = [n for n, t in frame.schema.items() if t in (pl.String, pl.Null)]
    empty = [n for n, missing in zip(text, frame.select(text).null_count().row(0)) if missing == frame.height]
    return frame.with_columns(pl.col(empty).cast(pl.Float64)) if empty else frame


# --- files -----------------------------------------------------------------------------------------------------------


def _load_file(path: Path, name: str, wanted: Wanted) -> Loaded:
    where = f"table {name!r} ({path.name})"
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if suffix.lower() not in SUFFIXES:
        raise DataError(
            f"{where}: files of type {suffix or '(none)'!r} cannot be read; save it as {', '.join(SUFFIXES)}"
        )
    if not path.is_file():
        raise DataError(f"{where}: there is no file {str(path)!r}; check the path and the folder you work in")
    if suffix.lower().startswith((".csv", ".tsv")):
        return _load_text(path, where, wanted, "\t" if suffix.lower().startswith(".tsv") else None)
    parquet = suffix.lower() in (".parquet", ".pq")
    try:
        names = None
        if wanted.columns is not None:
            schema: Iterable[str] = pl.read_parquet_schema(path) if parquet else pl.read_ipc_schema(path)
            names = wanted.of(list(schema), where)
        frame = pl.read_parquet(path, columns=names) if parquet else pl.read_ipc(path, columns=names)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise DataError(f"{where}: the file cannot be read ({reason[0][:200]}); is it complete?") from None
    return Loaded(_typed(_pick(frame, where, wanted), wanted), where, _row_number)


def _load_text(path: Path, where: str, wanted: Wanted, separator: str | None) -> Loaded:
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    except (OSError, EOFError) as error:
        raise DataError(f"{where}: the file cannot be read ({type(error).__name__}); is it complete?") from None
    data = data.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
    if not data.strip():
        raise DataError(f"{where}: the file is empty; it needs a line with column names and one line a row")
    if separator is None:
        first_line = data[: data.find(b"\n")] if b"\n" in data else data
        separator = max(",;\t", key=lambda mark: first_line.count(mark.encode()))
    header = next(_records(data, separator, where))
    names = [name.strip() for name in header]
    kept = wanted.of(names, where)
    position = {name: i for i, name in enumerate(names)}
    plain = {wanted.id, *wanted.categorical}  # kept as text: an id 007 is not 7
    options: dict[str, Any] = {"separator": separator, "null_values": list(MISSING), "raise_if_empty": False}
    options["columns"] = [position[name] for name in kept]
    options["schema_overrides"] = {raw: pl.String for raw, name in zip(header, names) if name in plain}

    def locate(row: int) -> str:
        return f"line {_line_of(data, separator, where, row)}"

    frame = _frame_of_text(data, separator, where, len(header), options)
    frame.columns = kept
    return Loaded(_settle_text(frame, where, locate, plain, wanted.label), where, locate)


def _frame_of_text(data: bytes, separator: str, where: str, width: int, options: dict[str, Any]) -> pl.DataFrame:
    """Typed by the first rows; as text when a later row disagrees; slowly and strictly when polars gives up."""
    if data.count(b'"') % 2 == 0:  # else polars might take the rest of the file for one value
        for guess in ({"infer_schema_length": _GUESS_ROWS}, {"infer_schema": False}):
            with contextlib.suppress(pl.exceptions.PolarsError):
                return pl.read_csv(data, **guess, **options)
    frame: pl.DataFrame = _read_strictly(data, separator, where, width)[:, options["columns"]]
    return frame


def _records(data: bytes, separator: str, where: str, strict: bool = False) -> Any:
    """Records one by one, with line numbers: for the header, and to find the place of an error."""
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", errors="surrogateescape", newline="")
    reader = csv.reader(text, delimiter=separator, strict=strict)
    if any("\udc80" <= mark <= "\udcff" for mark in text.readline()):
        raise DataError(f"{where}: the file is not UTF-8 text; save it as CSV with the encoding UTF-8")
    text.seek(0)
    return reader


def _line_of(data: bytes, separator: str, where: str, row: int) -> int:
    reader = _records(data, separator, where)
    for _ in range(row + 1):  # the header and the rows before
        next(reader)
    return int(reader.line_num + 1)  # a quoted value may span lines, so this is not simply row + 2


def _read_strictly(data: bytes, separator: str, where: str, width: int) -> pl.DataFrame:
    """All values as text, or the line at which the file stops being CSV."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{where}: line {line} is not UTF-8 text; save the file with the encoding UTF-8") from None
    reader = _records(data, separator, where, strict=True)
    rows: list[list[str | None]] = []
    line = 1
    try:
        for record in reader:
            if len(record) > width:
                counts = f"{len(record)} values, but the header names {width} columns"
                raise DataError(f"{where}: line {line} has {counts}; correct it")
            rows.append(record + [None] * (width - len(record)))
            line = reader.line_num + 1
    except csv.Error:
        raise DataError(f"{where}: line {line} has a quotation mark that is not closed; close or remove it") from None
    return pl.DataFrame(rows[1:], schema=[(str(i), pl.String) for i in range(width)], orient="row")


# --- types of text ---------------------------------------------------------------------------------------------------


def _settle_text(
    frame: pl.DataFrame, where: str, locate: Callable[[int], str], plain: Collection[str | None], label: str | None
) -> pl.DataFrame:
    """Give each text column the type that all of its values have."""
    text = [n for n, t in frame.schema.items() if t == pl.String]
    if not text or not frame.height:
        return frame
    cleaned = frame.select(pl.col(text).str.strip_chars().replace(list(MISSING), None))
    filled = dict(zip(text, cleaned.select(pl.all().count()).row(0)))
    numbers = dict(zip(text, cleaned.select(pl.all().cast(pl.Float64, strict=False).count()).row(0)))
    samples = dict(zip(text, cleaned.select(pl.all().drop_nulls().first()).row(0)))
    settled = {}
    for name in text:
        if name in plain:
            continue
        if 0 < numbers[name] < filled[name] <= 2 * numbers[name] and name != label:
            column = cleaned[name]
            row = (column.is_not_null() & column.cast(pl.Float64, strict=False).is_null()).arg_max()
            raise DataError(
                f"{where}: column {name!r} mixes numbers and text: {numbers[name]} of its {filled[name]} values are "
                f"numbers, {locate(row or 0)} is not. Correct that value or leave it empty; if the column holds codes "
                f"and no numbers, read it with categorical=[{name!r}]"
            )
        if _WORTH_A_LOOK.match(samples[name] or "0"):
            settled[name] = _settle_column(cleaned[name], samples[name], numbers[name] == filled[name], where)
    return frame.with_columns(cleaned).with_columns(**settled)


def _settle_column(column: pl.Series, sample: str, numeric: bool, where: str) -> pl.Series:
    if numeric:
        whole = column.cast(pl.Int64, strict=False)
        return whole if whole.null_count() == column.null_count() else column.cast(pl.Float64, strict=False)
    if re.match(_COMMA_NUMBER, sample) and column.str.contains(_COMMA_NUMBER).mean() == 1.0:
        advice = "save the file with decimal points and without thousands separators"
        raise DataError(f"{where}: the numbers of column {column.name!r} are written with a comma; {advice}")
    if sample.lower() in ("true", "false"):
        lower = column.str.to_lowercase()
        return lower == "true" if lower.drop_nulls().is_in(["true", "false"]).all() else column
    for pattern, form in _DATES.items():
        if re.match(pattern, sample) and column.str.contains(pattern).all():
            dates = column.str.to_date(form, strict=False) if form else column.str.to_datetime(strict=False)
            return dates if dates.null_count() == column.null_count() else column
    return column


# --- frames of other libraries ---------------------------------------------------------------------------------------


def _from_arrow(source: Any, where: str, wanted: Wanted) -> pl.DataFrame:
    names = wanted.of(source.schema.names, where)
    try:
        frame = pl.from_arrow(source.select(names))
    except (pl.exceptions.PolarsError, pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{where}: polars cannot take over this Arrow table ({type(error).__name__})") from None
    assert isinstance(frame, pl.DataFrame)
    return frame


def from_pandas(source: pd.DataFrame, where: str, wanted: Wanted) -> pl.DataFrame:
    """Blocks of equal NumPy type are handed over at once: 10,000 columns one by one would take a second."""
    if wanted.id is not None and wanted.id not in source.columns and wanted.id in source.index.names:
        source = source.reset_index(level=wanted.id)
    source = source.set_axis([str(name) for name in source.columns], axis=1)
    names = wanted.of(list(source.columns), where)
    source = source if len(names) == source.shape[1] else source[names]
    blocks: dict[Any, list[str]] = {}
    for name, dtype in zip(names, source.dtypes):
        plain = isinstance(dtype, np.dtype) and dtype.kind in "iufb"
        blocks.setdefault(dtype if plain else None, []).append(name)
    others = blocks.pop(None, [])
    frames = []
    for dtype, block in blocks.items():
        known = dtype.itemsize in (1, 2, 4, 8) and dtype != np.float16
        # A copy, column by column in memory: polars shares it, and the caller's frame may change later.
        values = np.array(source[block].to_numpy(), dtype=dtype if known else np.float64, order="F", copy=True)
        frames.append(pl.from_numpy(values, schema=block, orient="row"))
    if others:
        columns = {name: _plain_column(source[name], where, name == wanted.id) for name in others}
        frames.append(_from_pandas_columns(pd.DataFrame(columns), where))  # a frame from a dict is a copy, too
    return pl.concat(frames, how="horizontal").select(names) if frames else pl.DataFrame()


def _from_pandas_columns(source: pd.DataFrame, where: str) -> pl.DataFrame:
    try:
        return pl.from_pandas(source)
    except (pl.exceptions.PolarsError, pa.ArrowException, TypeError, ValueError, OverflowError):
        if source.shape[1] > 1:  # find the one to blame
            return pl.concat([_from_pandas_columns(source[[name]], where) for name in source], how="horizontal")
        name, dtype = source.columns[0], source.dtypes.iloc[0]
        advice = "turn it into numbers, text, booleans or dates, or leave it out with columns=[...]"
        raise DataError(
            f"{where}: column {name!r} has the type {dtype}, which fedsift does not read; {advice}"
        ) from None


def _plain_column(column: pd.Series, where: str, is_id: bool) -> pd.Series:
    """A column that Arrow can take over: no Python objects of several types, categories as text."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.rename_categories([str(c) for c in column.cat.categories])
    if column.dtype != object:
        return column
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind in _ONE_TYPE:
        return column
    if kind in _NUMBERS:
        return column.astype(float)
    present = [(row, value) for row, value in enumerate(column) if not _is_missing(value)]
    if is_id and all(isinstance(value, (str, int, np.integer)) for _, value in present):
        return pd.Series([None if _is_missing(v) else str(v) for v in column], index=column.index, dtype=object)
    first = _family(present[0][1])
    odd = next(((row, value) for row, value in present if _family(value) != first), None)
    if odd is None:
        advice = "turn it into numbers, text, booleans or dates, or leave it out with columns=[...]"
        raise DataError(f"{where}: column {column.name!r} holds values of type {first}; {advice}")
    raise DataError(
        f"{where}: column {column.name!r} mixes types: it starts with {first}, {_row_number(odd[0])} is "
        f"{_family(odd[1])}. Give all values one type, for example with astype(str) or pandas.to_numeric"
    )


def _is_missing(value: object) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def _family(value: object) -> str:
    """Types that may stand in one column share a family."""
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    return "number" if isinstance(value, (int, float, np.number)) else type(value).__name__
