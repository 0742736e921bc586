"""Texts and dates as columns of numbers or few categories, by rules that a party declares and computes alone.

A rule stands in the name of the column that it makes: ``month(joined)`` is the month of ``joined``,
``words:16:3(note)`` counts words of ``note`` that fall into the third of sixteen buckets. So a selection that keeps
``month(joined)`` says by itself how new rows get it (``fedsift apply``, ``Selection.apply``), and nothing is learned
from the rows: no message, no order of categories, no clock. Buckets are a public hash of the text in small letters, the
same at every party.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl

from fedsift.errors import DataError, ParameterError

_NAME = re.compile(r"^(?P<rule>[a-z]+(?::[0-9-]+)?)(?::(?P<place>\d+))?\((?P<source>.+)\)$")
_DATES = ("year", "quarter", "month", "weekday", "day", "hour")
_MOST_BUCKETS = 1024
RULES = (*_DATES, "age:2026-01-01", "hash:16", "words:16", "length", "value")
#: What a column's rule is said to be: one or several.
Encoders = Mapping[str, "str | Sequence[str]"]


@dataclass(frozen=True)
class Rule:
    """How one column becomes others."""

    kind: str
    argument: str = ""

    @classmethod
    def read(cls, text: str) -> Rule:
        kind, _, argument = text.partition(":")
        rule = cls(kind, argument)
        if kind in (*_DATES, "length", "value") and not argument:
            return rule
        if kind in ("hash", "words") and argument.isdigit() and 2 <= int(argument) <= _MOST_BUCKETS:
            return rule
        if kind == "age" and _as_date(argument) is not None:
            return rule
        raise ParameterError(
            f"there is no encoder {text!r}; there are {', '.join(RULES)} (a date to count from; 2 to {_MOST_BUCKETS} "
            "buckets)"
        )

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.argument}" if self.argument else self.kind

    def names(self, source: str) -> list[str]:
        """The columns that it makes of one."""
        if self.kind == "value":
            return [source]
        if self.kind == "words":
            return [f"{self.text}:{place}({source})" for place in range(int(self.argument))]
        return [f"{self.text}({source})"]

    def made(self, column: pl.Series, where: str) -> dict[str, pl.Series]:
        """Those columns, missing where the value is."""
        names = self.names(column.name)
        if self.kind == "value":
            return {names[0]: column}
        if self.kind in (*_DATES, "age"):
            return {names[0]: self._of_date(_dates(column, where, self.text)).alias(names[0])}
        text = column.cast(pl.String).str.to_lowercase()
        if self.kind == "length":
            return {names[0]: text.str.len_chars().cast(pl.Float64).alias(names[0])}
        if self.kind == "hash":
            return {names[0]: _hashed(text, int(self.argument)).alias(names[0])}
        return {name: values.alias(name) for name, values in zip(names, _words(text, int(self.argument)))}

    def _of_date(self, dates: pl.Series) -> pl.Series:
        if self.kind == "age":
            until = _as_date(self.argument)
            return (pl.Series([until]) - dates.cast(pl.Date)).dt.total_days().cast(pl.Float64) / 365.25
        if self.kind == "hour" and dates.dtype == pl.Date:
            return pl.Series([0.0] * len(dates))
        found: pl.Series = getattr(dates.dt, self.kind)()
        return found.cast(pl.Float64)


def source_of(name: str) -> tuple[Rule, str] | None:
    """The rule and the source that a column's name tells; ``None`` for a name that tells none."""
    found = _NAME.match(name)
    if found is None:
        return None
    try:
        rule = Rule.read(found["rule"])
    except ParameterError:
        return None
    return (rule, found["source"]) if name in rule.names(found["source"]) else None


def encoded(frame: pl.DataFrame, encode: Encoders, named: Sequence[str], where: str) -> pl.DataFrame:
    """The frame with what the rules make in the place of their columns, and the columns that are ``named`` by rules.

    A source that nobody asked for but its rules is left out.
    """
    made: dict[str, pl.Series] = {}
    for source, rules in encode.items():
        for text in [rules] if isinstance(rules, str) else rules:
            made |= Rule.read(text).made(frame[source], where)
    sources = {source for source in encode if source not in made}
    for name in named:
        told = source_of(name)
        if name in frame.columns or name in made or told is None:
            continue
        rule, source = told
        made |= {name: rule.made(frame[source], where)[name]}
        sources |= {source} - set(named)
    return frame.with_columns(**made).drop(sources)


def needed(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The columns to read for these: themselves, or the source that a name tells."""
    there = set(known)
    read = []
    for name in names:
        told = None if name in there else source_of(name)
        read.append(told[1] if told is not None and told[1] in there else name)
    return list(dict.fromkeys(read))


def _as_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _dates(column: pl.Series, where: str, rule: str) -> pl.Series:
    if column.dtype in (pl.Date, pl.Datetime):
        return column
    if column.dtype == pl.String:
        read = column.str.to_date("%Y-%m-%d", strict=False)
        if read.null_count() == column.null_count():
            return read
    raise DataError(
        f"{where}: column {column.name!r} has no dates (or not as 2024-01-31), and {rule!r} is an encoder of dates"
    )


def _bucket(text: str, buckets: int) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") % buckets


def _hashed(text: pl.Series, buckets: int) -> pl.Series:
    """The bucket of each text as a category."""
    told = {value: f"h{_bucket(value, buckets)}" for value in text.drop_nulls().unique()}
    return text.replace_strict(told, return_dtype=pl.String, default=None)


def _words(text: pl.Series, buckets: int) -> list[pl.Series]:
    """How many words of each text fall into each bucket."""
    counts = np.zeros((len(text), buckets))
    known: dict[str, int] = {}
    for row, value in enumerate(text):
        if value is None:
            counts[row] = np.nan
            continue
        for word in re.findall(r"\w+", value):
            counts[row, known.setdefault(word, _bucket(word, buckets))] += 1
    return [pl.Series(counts[:, place]).fill_nan(None) for place in range(buckets)]
