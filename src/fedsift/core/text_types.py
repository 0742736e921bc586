"""The type of each column of a text file: the one that all of its values have.

Where a column could be read in two ways, or is nearly a column of numbers or of dates, nothing is guessed: the error
names the column and the line and says which word in the job file decides. It quotes no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import polars as pl

from fedsift.core import text_dates, text_numbers
from fedsift.core.wanted import Decimal, FileForm
from fedsift.errors import DataError

#: What counts as "no value" in a text file, after surrounding blanks are removed.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "#N/A", "<NA>")

_WORTH_A_LOOK = re.compile(r"[-+.,\d€$£¥\u2212]|[A-Z]{3}\s*\d|\w+[ .-]+\d|true$|false$|inf", re.IGNORECASE)


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
            cleaned = frame.select(pl.col(text).str.strip_chars().replace(list(MISSING), None))
            frame = frame.with_columns(cleaned)
            numbers = dict(zip(text, cleaned.select(pl.all().cast(pl.Float64, strict=False).count()).row(0)))
            samples = dict(zip(text, cleaned.select(pl.all().drop_nulls().first()).row(0)))
            own = [name for name in text if name not in self.plain]
            frame = frame.with_columns([self._column(frame[name], samples[name], numbers[name] > 0) for name in own])
        return frame.with_columns(
            [self._compact(frame[name]) for name, kind in frame.schema.items() if kind == pl.Int64]
        )

    def _column(self, column: pl.Series, sample: str | None, digits: bool) -> pl.Series:
        name = column.name
        if sample is None:
            return column.cast(pl.Float64, strict=False)
        if not digits and name not in self.form.forms and not _worth(column, sample):
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
        infinite = text_numbers.infinite(column).fill_null(False)
        parts = text_numbers.take_apart(column)
        count = parts.count + int(infinite.sum())
        if count < filled:
            if filled <= 2 * count and name != self.label:
                odd = (column.is_not_null() & parts.body.is_null() & ~infinite).arg_max() or 0
                raise self._mixed(name, f"mixes numbers and text: {count} of its {filled} values are numbers", odd)
            if self.form.forms.get(name) in ("number", "decimal point", "decimal comma"):
                raise self._error(name, f"is to be read as numbers, but {count} of its {filled} values are numbers")
            return None
        if text_numbers.keeps_its_zeros(column) and self.form.forms.get(name) != "number":
            self.remarks[name] = "leading zeros or very long numbers: kept as text"
            return column
        self._one_unit(name, parts)
        numbers = parts.read(self._mark(name, parts))
        if not infinite.any():
            return numbers.alias(name)
        both = pl.DataFrame({"n": numbers.cast(pl.Float64), "i": column.cast(pl.Float64, strict=False)})
        return both.select(pl.coalesce("n", "i")).to_series().alias(name)

    def _mark(self, name: str, parts: text_numbers.Parts) -> Decimal:
        told = self.form.decimal_of(name)
        found = text_numbers.decimal_mark(parts, self.comma_file)
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

    def _one_unit(self, name: str, parts: text_numbers.Parts) -> None:
        units = text_numbers.units(parts)
        if len(units) > 1:
            kinds = "several currency or percent signs" if "" not in units else "numbers with and without a sign (%, €)"
            raise self._error(name, f"mixes {kinds}; write all of its numbers in one way")
        if unit := "".join(units):
            self._remark(name, "percent" if unit == "%" else f"money ({unit})")

    def _date(self, column: pl.Series) -> pl.Series:
        name, filled = column.name, len(column) - column.null_count()
        dated = text_dates.read_dates(column, self.form.dates_of(name))
        count = int(dated.like.fill_null(False).sum())
        if count < filled:
            if count > 0 and filled <= 2 * count and name != self.label:
                odd = (column.is_not_null() & ~dated.like.fill_null(False)).arg_max() or 0
                raise self._mixed(name, f"mixes dates and text: {count} of its {filled} values are dates", odd)
            return column
        if dated.problem:
            raise self._error(name, dated.problem, self._how(name, '"day first"'))
        wrong = column.is_not_null() & dated.days.is_null()
        if wrong.any():
            raise self._mixed(name, "has a date that is no day of the calendar", wrong.arg_max() or 0)
        self.remarks[name] = f"dates ({dated.form})"
        return dated.days.alias(name)

    def _compact(self, column: pl.Series) -> pl.Series:
        days = None
        if column.name not in {*self.plain, self.label} and self.form.forms.get(column.name) != "number":
            days = text_dates.compact_dates(column)
        if days is None:
            return column
        self.remarks[column.name] = 'dates (yearmonthday; "number" reads them as numbers)'
        return days

    def _remark(self, name: str, what: str) -> None:
        self.remarks[name] = f"{self.remarks[name]}, {what}" if name in self.remarks else what

    def _how(self, name: str, what: str = '"decimal comma"') -> str:
        return f"for this column alone forms = {{{name!r} = {what}}}".replace("'", '"')

    def _error(self, name: str, what: str, advice: str = "") -> DataError:
        codes = f"if it holds codes, read it with categorical=[{name!r}]"
        told = "; ".join(each for each in (advice, codes) if each)
        return DataError(f"{self.where}: column {name!r} {what}; {told}")

    def _mixed(self, name: str, what: str, row: int) -> DataError:
        return DataError(
            f"{self.where}: column {name!r} {what}, {self.locate(row)} is not. Correct that value or leave it empty; "
            f"if the column holds codes, read it with categorical=[{name!r}]"
        )


def _worth(column: pl.Series, sample: str) -> bool:
    """A column of words is neither number, truth nor date: its first value says so, and a few others."""
    if _WORTH_A_LOOK.match(sample):
        return True
    return any(_WORTH_A_LOOK.match(value) for value in column.drop_nulls().gather_every(max(1, len(column) // 8))[:16])
