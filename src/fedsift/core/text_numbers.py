"""Numbers as people write them: 1.234,56 and 1,234.56, 1 234,56, 1'234.56, € 5, 12 %.

A column is read under one decimal mark. Both marks are tried on all of its values: where one reading alone fits, that
is it; where both fit and give the same numbers, it does not matter; where they differ (1,234 may be a thousand or a
little more than one) nothing is guessed, and the error asks. One exception: points alone, in a file that shows no
other sign of decimal commas, are decimal points, as programs write them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from fedsift.core.wanted import Decimal

_UNIT = r"€|\$|£|¥|EUR|USD|GBP|CHF|JPY"
_EXPONENT = r"(?:[eE][+-]?\d{1,3})?"
_BODY = r"\d[\d.,' ]*|[.,]\d+"
_WHOLE = rf"^\s*([+-]?)\s*({_UNIT})?\s*([+-]?)((?:{_BODY}){_EXPONENT})\s*({_UNIT}|%)?\s*$"
_SPECIAL = r"(?i)^[+-]?(?:inf|infinity)$"
_LEADING_ZERO = r"^[+-]?0\d+$"
_TOO_LONG = r"^[+-]?\d{19,}$"


def _style(decimal: str, thousands: str) -> str:
    groups = "|".join(rf"[1-9]\d{{0,2}}(?:{mark}\d{{3}})+" for mark in (thousands, " ", "'"))
    return rf"^(?:(?:\d+|{groups})(?:{decimal}\d*)?|{decimal}\d+){_EXPONENT}$"


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


def infinite(column: pl.Series) -> pl.Series:
    return column.str.contains(_SPECIAL)


def units(parts: Parts) -> set[str]:
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
