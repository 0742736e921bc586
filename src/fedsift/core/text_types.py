"""The type of each column of a text file: the one that all of its values have.

Where a column could be read in two ways, or is nearly a column of numbers or of dates, nothing is guessed: the error
names the column and the line and says which word in the job file decides. It quotes no value.

Numbers as people write them: 1.234,56 and 1,234.56, 1 234,56, 1'234.56, € 5, 12 %.

A column is read under one decimal mark. Both marks are tried on all of its values: where one reading alone fits, that
is it; where both fit and give the same numbers, it does not matter; where they differ (1,234 may be a thousand or a
little more than one) nothing is guessed, and the error asks. One exception: points alone, in a file that shows no
other sign of decimal commas, are decimal points, as programs write them.

Dates as people write them. A form that means one day only is read; 01/02/2024 is read once somebody says how.

In a column of such dates a day above 12 tells the order of all of them. Years of two digits are refused: 45 may be a
birth or a plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from fedsift.core.wanted import Dates, Decimal, FileForm
from fedsift.errors import UnclearColumns

_TIME = r"(?:[ T]+(?P<t>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?))?"
_MONTHS = {
    name: number
    for number, names in enumerate(
        ("jan", "feb", "mar mär mrz", "apr", "may mai", "jun", "jul", "aug", "sep", "oct okt", "nov", "dec dez"), 1
    )
    for name in names.split()
}  # English and German, by their first letters
_NAMED = rf"(?P<n>(?i:{'|'.join(_MONTHS)}))[a-zA-Z]*"
#: What each part is: y, m, d; a and b where the order is not told; n a month's name; t a time of the day.
_FORMS = {
    "year-month-day": rf"^(?P<y>[0-9]{{4}})[-/.](?P<m>[0-9]{{1,2}})[-/.](?P<d>[0-9]{{1,2}}){_TIME}$",
    "day.month.year": rf"^(?P<d>[0-9]{{1,2}})\.(?P<m>[0-9]{{1,2}})\.(?P<y>[0-9]{{4}}){_TIME}$",
    "slashes": rf"^(?P<a>[0-9]{{1,2}})[/-](?P<b>[0-9]{{1,2}})[/-](?P<y>[0-9]{{4}}){_TIME}$",
    "day month year": rf"^(?P<d>[0-9]{{1,2}})[ .-]+{_NAMED}[ .,-]+(?P<y>[0-9]{{4}}){_TIME}$",
    "month day, year": rf"^{_NAMED} +(?P<d>[0-9]{{1,2}}),? +(?P<y>[0-9]{{4}}){_TIME}$",
}
_ISO = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}"  # and seconds, fractions, zones: polars reads them
_SHORT_YEAR = r"^(?:0?[1-9]|[12][0-9]|3[01])[./-](?:0?[1-9]|[12][0-9]|3[01])[./-][0-9]{2}$"
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
        numbers = {month: str(number) for month, number in _MONTHS.items()}
        found = found.with_columns(pl.col("n").str.to_lowercase().replace_strict(numbers, default=None).alias("m"))
    time = pl.col("t").fill_null("00:00")
    time = pl.when(time.str.count_matches(":") == 1).then(time + ":00").otherwise(time)
    two = [pl.col(part).str.zfill(2) for part in ("m", "d")]
    return found.select(it=pl.col("y") + "-" + two[0] + "-" + two[1] + " " + time.str.zfill(8))["it"]


_UNIT = r"€|\$|£|¥|EUR|USD|GBP|CHF|JPY"
_EXPONENT = r"(?:[eE][+-]?[0-9]{1,3})?"
_BODY = r"[0-9][0-9.,' ]*|[.,][0-9]+"
_WHOLE = rf"^\s*([+-]?)\s*({_UNIT})?\s*([+-]?)((?:{_BODY}){_EXPONENT})\s*({_UNIT}|%)?\s*$"
_SPECIAL = r"(?i)^[+-]?(?:inf|infinity)$"
_LEADING_ZERO = r"^[+-]?0[0-9]+$"
_TOO_LONG = r"^[+-]?[0-9]{19,}$"


def _style(decimal: str, thousands: str) -> str:
    groups = "|".join(rf"[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+" for mark in (thousands, " ", "'"))
    return rf"^(?:(?:[0-9]+|{groups})(?:{decimal}[0-9]*)?|{decimal}[0-9]+){_EXPONENT}$"


_STYLES: dict[Decimal, str] = {".": _style(r"\.", ","), ",": _style(",", r"\.")}


@dataclass(frozen=True)
class Parts:
    """The values of a text column, taken apart; null where a value is not written like a number."""

    sign: pl.Series
    unit: pl.Series
    body: pl.Series

    @property
    def count(self) -> int:
        return len(self.body) - self.body.null_count()

    def fits(self, decimal: Decimal) -> bool:
        return bool(self.body.drop_nulls().str.contains(_STYLES[decimal]).all())

    def read(self, decimal: Decimal) -> pl.Series:
        """The numbers under this decimal mark: whole ones as Int64 where all are and none is too large."""
        thousands = "." if decimal == "," else ","
        digits = self.body.str.replace_all(rf"[ '\{thousands}]", "")
        text = self.sign + (digits.str.replace_all(",", ".", literal=True) if decimal == "," else digits)
        whole = text.str.strip_prefix("+").cast(pl.Int64, strict=False)
        if whole.null_count() == text.null_count():
            return whole
        return text.cast(pl.Float64, strict=False)


def take_apart(column: pl.Series) -> Parts:
    """Sign, currency or percent sign and digits of each value; blanks and minus signs of all kinds are made one."""
    plain = column.str.replace_all("[\u00a0\u202f\u2009]", " ").str.replace_all("\u2212", "-", literal=True)
    plain = plain.str.replace_all("\u2019", "'", literal=True).str.strip_chars()
    found = pl.DataFrame({"it": plain}).select(pl.col("it").str.extract_groups(_WHOLE)).unnest("it")
    one, before, two, body, after = found.get_columns()
    either = pl.any_horizontal(pl.col("body").str.contains(style) for style in _STYLES.values())
    frame = pl.DataFrame(
        {"one": one, "before": before, "two": two, "body": body.str.strip_chars(), "after": after}
    ).with_columns(
        good=either
        & ~((pl.col("one").fill_null("") != "") & (pl.col("two").fill_null("") != ""))
        & ~(pl.col("before").is_not_null() & pl.col("after").is_not_null())
    )
    frame = frame.with_columns(pl.when(pl.col("good")).then(pl.col("body")).alias("body"))
    return Parts(
        sign=frame["one"].fill_null("") + frame["two"].fill_null(""),
        unit=frame.select(pl.coalesce("before", "after"))["before"],
        body=frame["body"],
    )


def keeps_its_zeros(column: pl.Series) -> bool:
    """Whether 007 or a number too long for a computer's whole numbers is in it: such a column is an id or a code."""
    return bool(column.str.contains(_LEADING_ZERO).any() or column.str.contains(_TOO_LONG).any())


def is_infinite(column: pl.Series) -> pl.Series:
    return column.str.contains(_SPECIAL)


def units_of(parts: Parts) -> set[str]:
    """The currency and percent signs of the values that are numbers; '' where one has none."""
    known = parts.unit.filter(parts.body.is_not_null()).fill_null("")
    return set(known.unique().to_list())


def decimal_mark(parts: Parts, comma_file: bool) -> Decimal | Literal["two", "none"]:
    """The mark that fits; "two" where two readings differ, "none" where no mark fits all values."""
    point, comma = parts.fits("."), parts.fits(",")
    if point != comma:
        return "." if point else ","
    if not point:
        return "none"
    body = parts.body.drop_nulls()
    if not body.str.contains(r"[.,]").any():
        return "."
    return "." if not comma_file and not body.str.contains(",", literal=True).any() else "two"


#: What counts as "no value" in a text file, after surrounding blanks are removed.
MISSING = ("", "-", "--", ".", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "#N/A", "<NA>")

_WORTH_A_LOOK = "(?i)^(?:[-+.,0-9€$£¥\u2212]|[A-Z]{3}\\s*[0-9]|\\w+[ .-]+[0-9]|true$|false$|inf)"


@dataclass
class Settling:
    """One file's columns on their way from text to types."""

    where: str
    locate: Callable[[int], str]
    plain: Collection[str | None]  # kept as text: ids and codes
    label: str | None
    form: FileForm
    comma_file: bool  # whether the file shows that it is written with decimal commas
    remarks: dict[str, str] = field(default_factory=dict)

    def settle(self, frame: pl.DataFrame) -> pl.DataFrame:
        text = [n for n, t in frame.schema.items() if t == pl.String]
        if not frame.height:
            return frame
        if text:
            nothing = [*MISSING, *self.form.missing]
            cleaned = frame.select(pl.col(text).str.strip_chars().replace(nothing, None))
            frame = frame.with_columns(cleaned)
            numbers = dict(zip(text, cleaned.select(pl.all().cast(pl.Float64, strict=False).count()).row(0)))
            samples = dict(zip(text, cleaned.select(pl.all().drop_nulls().first()).row(0)))
            own = [name for name in text if name not in self.plain]
            frame = frame.with_columns(self._settled(frame, own, samples, numbers))
        return frame.with_columns(
            [self._compact(frame[name]) for name, kind in frame.schema.items() if kind == pl.Int64]
        )

    def _settled(
        self, frame: pl.DataFrame, names: list[str], samples: dict[str, Any], numbers: dict[str, int]
    ) -> list[pl.Series]:
        """Each column with its type; all that are unclear are told at once."""
        settled: list[pl.Series] = []
        unclear: dict[str, str] = {}
        for name in names:
            try:
                settled.append(self._column(frame[name], samples[name], numbers[name] > 0))
            except UnclearColumns as error:
                unclear |= error.columns
        if unclear:
            raise UnclearColumns("\n".join(unclear.values()), unclear)
        return settled

    def _column(self, column: pl.Series, sample: str | None, digits: bool) -> pl.Series:
        name = column.name
        if sample is None:
            return column.cast(pl.Float64, strict=False)
        if not digits and name not in self.form.forms and not column.str.contains(_WORTH_A_LOOK).any():
            return column
        if (settled := self._number(column)) is not None:
            return settled
        lower = column.str.to_lowercase()
        if lower.drop_nulls().is_in(["true", "false"]).all():
            return lower == "true"
        return self._date(column)

    def _number(self, column: pl.Series) -> pl.Series | None:
        """The column as numbers, ``None`` where it is none."""
        name, filled = column.name, len(column) - column.null_count()
        infinite = is_infinite(column).fill_null(False)
        parts = take_apart(column)
        count = parts.count + int(infinite.sum())
        if count < filled:
            if filled <= 2 * count and name != self.label:
                odd = (column.is_not_null() & parts.body.is_null() & ~infinite).arg_max() or 0
                raise self._mixed(name, f"mixes numbers and text: {count} of its {filled} values are numbers", odd)
            if self.form.forms.get(name) in ("number", "decimal point", "decimal comma"):
                raise self._error(name, f"is to be read as numbers, but {count} of its {filled} values are numbers")
            return None
        if keeps_its_zeros(column) and self.form.forms.get(name) != "number":
            self.remarks[name] = "leading zeros or very long numbers: kept as text"
            return column
        self._one_unit(name, parts)
        numbers = parts.read(self._mark(name, parts))
        if not infinite.any():
            return numbers.alias(name)
        both = pl.DataFrame({"n": numbers.cast(pl.Float64), "i": column.cast(pl.Float64, strict=False)})
        return both.select(pl.coalesce("n", "i")).to_series().alias(name)

    def _mark(self, name: str, parts: Parts) -> Decimal:
        told = self.form.decimal_of(name)
        found = decimal_mark(parts, self.comma_file)
        if told is not None:
            if not parts.fits(told):
                raise self._error(name, f"has numbers that do not fit decimal = {told!r}", self._how(name))
            found = told
        if found == "none":
            raise self._error(name, "has decimal points and decimal commas; write all of its numbers in one way")
        if found == "two":
            two = "has numbers such as 1,234 or 1.234, which may be above a thousand or hardly above one"
            raise self._error(name, two, f'say decimal = "." or "," for the file, or {self._how(name)}')
        if found == ",":
            self._remark(name, "decimal comma")
        elif parts.body.str.contains(",", literal=True).any():
            self._remark(name, "commas between thousands")
        if parts.body.str.contains("[ ']").any():
            self._remark(name, "blanks or apostrophes between thousands")
        return found

    def _one_unit(self, name: str, parts: Parts) -> None:
        units = units_of(parts)
        if len(units) > 1:
            kinds = "several currency or percent signs" if "" not in units else "numbers with and without a sign (%, €)"
            raise self._error(name, f"mixes {kinds}; write all of its numbers in one way")
        if unit := "".join(units):
            self._remark(name, "percent" if unit == "%" else f"money ({unit})")

    def _date(self, column: pl.Series) -> pl.Series:
        name, filled = column.name, len(column) - column.null_count()
        dated = read_dates(column, self.form.dates_of(name))
        count = int(dated.like.fill_null(False).sum())
        if count < filled:
            if count > 0 and filled <= 2 * count and name != self.label:
                odd = (column.is_not_null() & ~dated.like.fill_null(False)).arg_max() or 0
                short = bool(column.str.contains(_SHORT_YEAR)[odd])  # leave nobody to look for what is wrong with it
                why = "not (its year has two digits, which may mean two centuries: write four)" if short else "not"
                raise self._mixed(name, f"mixes dates and text: {count} of its {filled} values are dates", odd, why)
            return column
        if dated.problem:
            asked = "" if "four" in dated.problem else self._how(name, '"day first"')  # short years are not read
            raise self._error(name, dated.problem, asked)
        wrong = column.is_not_null() & dated.days.is_null()
        if wrong.any():
            raise self._mixed(name, "has dates", wrong.arg_max() or 0, "no day of the calendar")
        self.remarks[name] = f"dates ({dated.form})"
        return dated.days.alias(name)

    def _compact(self, column: pl.Series) -> pl.Series:
        days = None
        if column.name not in {*self.plain, self.label} and self.form.forms.get(column.name) != "number":
            days = compact_dates(column)
        if days is None:
            return column
        self.remarks[column.name] = 'dates (yearmonthday; "number" reads them as numbers)'
        return days

    def _remark(self, name: str, what: str) -> None:
        self.remarks[name] = f"{self.remarks[name]}, {what}" if name in self.remarks else what

    def _how(self, name: str, what: str = '"decimal comma"') -> str:
        return f"for this column alone forms = {{{name!r} = {what}}}".replace("'", '"')

    def _error(self, name: str, what: str, advice: str = "") -> UnclearColumns:
        told = "; ".join(each for each in (advice, f"if it holds codes, {self._codes(name)}") if each)
        return self._unclear(name, f"{what}; {told}")

    def _mixed(self, name: str, what: str, row: int, instead: str = "not") -> UnclearColumns:
        return self._unclear(
            name,
            f"{what}, {self.locate(row)} is {instead}. Correct that value or leave it empty; if it stands for no "
            f"value, say missing = [...] with it in the list; if the column holds codes, {self._codes(name)}",
        )

    def _codes(self, name: str) -> str:
        return f"say categorical = [{json.dumps(name, ensure_ascii=False)}]"

    def _unclear(self, name: str, what: str) -> UnclearColumns:
        line = f"{self.where}: column {name!r} {what}"
        return UnclearColumns(line, {name: line})
