"""What a caller wants from a table's source, how its file is written, and what was read from it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import polars as pl

from fedsift.core.encoding import Encoders, needed
from fedsift.core.stored import Stored
from fedsift.errors import DataError, ParameterError

_PANDAS_INDEX = re.compile(r"^__index_level_\d+__$")  # what pandas calls an unnamed index inside a Parquet file
Decimal = Literal[".", ","]
Dates = Literal["day first", "month first"]
ColumnForm = Literal["decimal point", "decimal comma", "day first", "month first", "number"]
_COLUMN_FORMS = get_args(ColumnForm)


@dataclass(frozen=True)
class FileForm:
    """How a file is written, where that is not to be found out; ``forms`` (by column) go before the file's.

    ``database`` is for a file with a query: the environment variable that holds the database's address.

    Examples
    --------
    >>> import fedsift as fs
    >>> fs.FileForm(decimal=",", forms={"seen": "day first"}).decimal
    ','
    """

    encoding: str | None = None
    separator: str | None = None
    decimal: Decimal | None = None
    dates: Dates | None = None
    sheet: str | None = None
    forms: Mapping[str, ColumnForm] = field(default_factory=dict)
    database: str | None = None

    def __post_init__(self) -> None:
        allowed = {"separator": (None, ",", ";", "\t", "|"), "decimal": (None, ".", ","),
                   "dates": (None, "day first", "month first")}  # fmt: skip
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                told = " or ".join(repr(value) for value in values[1:])
                raise ParameterError(f"{name} must be {told}; got {getattr(self, name)!r}")
        for name, given in self.forms.items():
            if given not in _COLUMN_FORMS:
                raise ParameterError(f"the form of column {name!r} must be one of {', '.join(_COLUMN_FORMS)}")

    def decimal_of(self, column: str) -> Decimal | None:
        own = self.forms.get(column)
        return {"decimal point": ".", "decimal comma": ","}.get(own or "", self.decimal)  # type: ignore[return-value]

    def dates_of(self, column: str) -> Dates | None:
        own = self.forms.get(column)
        return own if own in ("day first", "month first") else self.dates


@dataclass(frozen=True)
class Written:
    """How a file turned out to be written: what ``fedsift check`` shows, so that a wrong guess is seen."""

    file: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)  # column -> remark, where there is one


@dataclass(frozen=True)
class Wanted:
    """Which columns the caller needs; everything else is left unread where the format allows it."""

    id: str | None
    label: str | None
    columns: Sequence[str] | None
    categorical: Collection[str] = ()
    form: FileForm = FileForm()
    aside: Collection[str] = ()
    encode: Encoders = field(default_factory=dict)

    def of(self, names: Sequence[str], where: str) -> list[str]:
        """The needed names in the source's order, or an error that names the nearest column."""
        check_names(names, where)
        known = set(names)
        for role, name in (("id", self.id), ("label", self.label)):
            if name is not None and name not in known:
                raise DataError(f"{where}: the {role} column {name!r} is not there. {suggest(name, names)}")
        for name in self.aside:
            if name not in known:
                raise DataError(f"{where}: the column {name!r} to set aside is not there. {suggest(name, names)}")
            if name in (self.id, self.label):
                raise DataError(f"{where}: {name!r} cannot be set aside: it is the id or the label already")
        if self.id is not None and self.id == self.label:
            raise DataError(f"{where}: {self.id!r} cannot be both the id and the label; name two columns")
        columns = needed(self.columns or (), names)
        for name in (*columns, *self.encode, *self.categorical, *self.form.forms):
            if name not in known:
                raise DataError(f"{where}: column {name!r} is not there. {suggest(name, names)}")
        if self.columns is None:
            return [n for n in names if n == self.id or not _PANDAS_INDEX.match(n)]
        kept = {*columns, *self.encode, self.id, self.label}
        return [n for n in names if n in kept]


@dataclass(frozen=True)
class Loaded:
    """A frame, the words for its source, and how to name one of its rows to a person."""

    frame: pl.DataFrame
    where: str
    locate: Callable[[int], str]
    written: Written = Written()
    features: Stored | None = None  # the columns that are not in ``frame``, of a file that is too large to hold


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
