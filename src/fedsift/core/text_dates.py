"""Dates as people write them. A form that means one day only is read; 01/02/2024 is read once somebody says how.

In a column of such dates a day above 12 tells the order of all of them. Years of two digits are refused: 45 may be a
birth or a plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from fedsift.core.wanted import Dates

_TIME = r"(?:[ T]+(?P<t>\d{1,2}:\d{2}(?::\d{2})?))?"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED = rf"(?P<n>(?i:{'|'.join(_MONTHS)}))[a-z]*"
#: What each part is: y, m, d; a and b where the order is not told; n a month's name; t a time of the day.
_FORMS = {
    "year-month-day": rf"^(?P<y>\d{{4}})[-/.](?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}}){_TIME}$",
    "day.month.year": rf"^(?P<d>\d{{1,2}})\.(?P<m>\d{{1,2}})\.(?P<y>\d{{4}}){_TIME}$",
    "slashes": rf"^(?P<a>\d{{1,2}})[/-](?P<b>\d{{1,2}})[/-](?P<y>\d{{4}}){_TIME}$",
    "day month year": rf"^(?P<d>\d{{1,2}})[ .-]+{_NAMED}[ .,-]+(?P<y>\d{{4}}){_TIME}$",
    "month day, year": rf"^{_NAMED} +(?P<d>\d{{1,2}}),? +(?P<y>\d{{4}}){_TIME}$",
}
_ISO = r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}"  # with seconds, fractions, zones: polars reads its variants itself
_SHORT_YEAR = r"^(?:0?[1-9]|[12]\d|3[01])[./-](?:0?[1-9]|[12]\d|3[01])[./-]\d{2}$"
_WHICH = 'has dates such as 01/02/2024, which may mean two days; say dates = "day first" or "month first"'
_COMPACT = (19_000_101, 21_001_231)


@dataclass(frozen=True)
class Dated:
    """What a column's values are as dates: those that could be read, or why they could not."""

    days: pl.Series
    like: pl.Series  # which values are written like dates
    form: str
    problem: str = ""


def read_dates(column: pl.Series, order: Dates | None) -> Dated:
    filled = column.is_not_null()
    if (column.str.contains(_ISO) | ~filled).all() and filled.any():
        return Dated(column.str.to_datetime(strict=False), filled, "year-month-day and time")
    if (column.str.contains(_SHORT_YEAR) | ~filled).all() and filled.any():
        return _asked(column, filled, "has years of two digits, which may mean two centuries; write them with four")
    frame = pl.DataFrame({"it": column})
    parts = {
        form: frame.select(pl.col("it").str.extract_groups(pattern)).unnest("it") for form, pattern in _FORMS.items()
    }
    matched = {form: found["y"].is_not_null() for form, found in parts.items()}
    like = pl.Series(column.name, [False] * len(column))
    for which in matched.values():
        like = like | which
    used = [form for form, which in matched.items() if which.any()]
    if "slashes" in used:
        told = _order(parts["slashes"])
        if told == "both":
            return _asked(column, like, "has dates with the day first and dates with the month first")
        if order is not None and told is not None and told != order:
            return _asked(column, like, f"has a number above 12 where {order!r} has the month")
        order = order or told  # type: ignore[assignment]
        if order is None:
            return _asked(column, like, _WHICH)
    texts = [_as_iso(parts[form], order) for form in used]
    timed = any(found["t"].is_not_null().any() for form, found in parts.items() if form in used)
    text = pl.select(pl.coalesce(texts)).to_series() if texts else _nothing(column)
    days = text.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False) if texts else _nothing(column)
    shown = [f"{order or ''}".strip() if form == "slashes" else form for form in used]
    return Dated((days if timed else days.cast(pl.Date)).alias(column.name), like, " or ".join(shown))


def compact_dates(column: pl.Series) -> pl.Series | None:
    """20240131 in every row, of several days: dates without marks."""
    known = column.drop_nulls()
    if known.n_unique() < 3 or known.min() < _COMPACT[0] or known.max() > _COMPACT[1]:  # type: ignore[operator]
        return None
    days = column.cast(pl.String).str.to_date("%Y%m%d", strict=False)
    return days if days.null_count() == column.null_count() else None


def _asked(column: pl.Series, like: pl.Series, problem: str) -> Dated:
    return Dated(_nothing(column), like, "", problem)


def _nothing(column: pl.Series) -> pl.Series:
    return pl.Series(column.name, [None] * len(column), dtype=pl.Date)


def _order(found: pl.DataFrame) -> str | None:
    first, second = (found[part].cast(pl.Int32).max() for part in ("a", "b"))
    day, month = (first or 0) > 12, (second or 0) > 12  # type: ignore[operator]
    return "both" if day and month else "day first" if day else "month first" if month else None


def _as_iso(found: pl.DataFrame, order: Dates | None) -> pl.Series:
    """'2024-01-31 00:00:00' of each value of one form; null for the others."""
    names = set(found.columns)
    if "a" in names:
        found = found.rename({"a": "d", "b": "m"} if order == "day first" else {"a": "m", "b": "d"})
    elif "n" in names:
        numbers = {month: str(number) for number, month in enumerate(_MONTHS, 1)}
        found = found.with_columns(pl.col("n").str.to_lowercase().replace_strict(numbers, default=None).alias("m"))
    time = pl.col("t").fill_null("00:00")
    time = pl.when(time.str.count_matches(":") == 1).then(time + ":00").otherwise(time)
    two = [pl.col(part).str.zfill(2) for part in ("m", "d")]
    return found.select(it=pl.col("y") + "-" + two[0] + "-" + two[1] + " " + time.str.zfill(8))["it"]
