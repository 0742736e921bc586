"""From somebody's file or DataFrame to one polars frame in which every column has one known type.

What can be wrong with a source is found here, before any protocol starts. A message names the table, the column and
the row and says what to do; it never quotes a feature's value, because messages end up in logs and tickets that more
people read than the table itself.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from fedsift.core import stored
from fedsift.core.database import load_query
from fedsift.core.encoding import source_of
from fedsift.core.excel_file import load_excel
from fedsift.core.text_file import load_text
from fedsift.core.wanted import Loaded, Wanted, kind_of_file
from fedsift.errors import DataError

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", ".feather", ".arrow", ".ipc", ".xlsx", ".sql")

_ONE_TYPE = {"string", "boolean", "integer", "floating", "date", "datetime", "datetime64", "time", "timedelta"}
_NUMBERS = {"decimal", "mixed-integer-float", "empty"}


def load(source: Any, name: str, wanted: Wanted) -> Loaded:
    """Read any accepted source. Text is typed, Python objects are refused unless they are of one type."""
    if isinstance(source, (str, Path)):
        return _load_file(Path(source), name, wanted)
    where = f"table {name!r}"
    wanted.form.check_for(f"a {type(source).__name__}", where)
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
    kind = kind_of_file(path)
    wanted.form.check_for(kind, where)
    if kind == "text":
        return load_text(path, where, wanted)
    if kind == "Excel":
        return load_excel(path, where, wanted)
    if kind == "a query":
        loaded = load_query(path, where, wanted)
        return replace(loaded, frame=_typed(loaded.frame, wanted))
    try:
        return _load_columns(path, where, wanted)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise DataError(f"{where}: the file cannot be read ({reason[0][:200]}); is it complete?") from None


def _load_columns(path: Path, where: str, wanted: Wanted) -> Loaded:
    """A Parquet, Feather or Arrow file; of one with very many values the features stay where they are."""
    schema = stored.schema_of(path)
    names = wanted.of(list(schema), where)
    told = (source_of(name) for name in wanted.columns or ())
    own_columns = {wanted.id, wanted.label, *wanted.aside, *wanted.encode, *(each[1] for each in told if each)}
    features = [name for name in names if name not in own_columns]
    if stored.height_of(path) * len(features) <= stored.MOST_CELLS:
        return Loaded(_typed(stored.read_columns(path, names), wanted), where, _row_number)
    unsure = {name for name in features if schema[name] in (pl.String, pl.Null)} | set(wanted.categorical)
    kept = stored.Stored.open(path, features, where, lambda frame: _typed(frame, wanted), unsure)
    own = [name for name in names if name in own_columns]
    frame = _typed(stored.read_columns(path, own), wanted) if own else pl.DataFrame()
    return Loaded(frame, where, _row_number, features=kept)


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
