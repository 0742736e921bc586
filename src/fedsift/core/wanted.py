"""What a caller wants from a table's source, how its file is written, and what was read from it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from fedsift.core.encoding import Encoders, needed
from fedsift.core.stored import Stored
from fedsift.errors import DataError, ParameterError

_PANDAS_INDEX = re.compile(r"^__index_level_\d+__$")  # what pandas calls an unnamed index inside a Parquet file
_LONG = 60  # characters of a column's name that a message shows
Decimal = Literal[".", ","]
Dates = Literal["day first", "month first"]
ColumnForm = Literal["decimal point", "decimal comma", "day first", "month first", "number"]
_COLUMN_FORMS = get_args(ColumnForm)
_AS_TOLD: tuple[ColumnForm, ...] = ("decimal comma", "day first", "month first")  # what a remark says in these words


_IN_CELLS = ("decimal", "dates", "forms", "missing")
#: What may be said of which kind of file.
_SAID_OF = {"text": ("encoding", "separator", *_IN_CELLS), "Excel": ("sheet", *_IN_CELLS), "a query": ("database",)}
_WHOSE = {"sheet": "an Excel file", "database": "a file with a query (.sql)"}
_ENDINGS = {
    ".csv": "text",
    ".tsv": "text",
    ".xlsx": "Excel",
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".sql": "a query",
}


def kind_of_file(path: Path) -> str:
    """What a file is by its name's ending."""
    return _ENDINGS.get(Path(path.name.lower().removesuffix(".gz")).suffix, "Feather")


@dataclass(frozen=True)
class FileForm:
    """How a file is written, where that is not to be found out; ``forms`` (by column) go before the file's.

    ``database`` is for a file with a query: the environment variable that holds the database's address.
    ``missing`` are texts that stand for no value, beside the usual ones.

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
    missing: Sequence[str] = ()
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

    @classmethod
    def read(cls, told: object) -> FileForm:
        """From :meth:`told`, as a result or model folder keeps it."""
        try:
            texts = dict(told)  # type: ignore[call-overload]
            forms, missing = dict(texts.pop("forms", {})), list(texts.pop("missing", []))
            if all(isinstance(each, str) for each in (*texts.values(), *forms, *forms.values(), *missing)):
                return cls(**texts, forms=forms, missing=missing)
        except (TypeError, ValueError):
            pass
        raise DataError("what is said of a file's form (separator, decimal mark, dates) cannot be read")

    def check_for(self, kind: str, where: str) -> None:
        """Refuse what says nothing of a file of this kind: it would be passed over in silence."""
        odd = [name for name in self.told() if name not in _SAID_OF.get(kind, ())]
        if odd:
            of = _WHOSE.get(odd[0], "a text file")
            raise DataError(f"{where}: {odd[0]} is said of {of}, and this is {kind}; leave it out")

    def of_kind(self, kind: str) -> FileForm:
        """The same without what says nothing of a file of this kind."""
        return FileForm(**{name: value for name, value in self.told().items() if name in _SAID_OF.get(kind, ())})

    def told(self) -> dict[str, Any]:
        """What is said, as a job file would say it."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given |= {"forms": dict(self.forms), "missing": list(self.missing)}
        return {name: value for name, value in given.items() if value}

    def of_columns(self, names: Collection[str]) -> FileForm:
        """The same, for a file that has these columns only."""
        return replace(self, forms={name: form for name, form in self.forms.items() if name in names})


@dataclass(frozen=True)
class Written:
    """How a file turned out to be written: what ``fedsift check`` shows, so that a wrong guess is seen."""

    file: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)  # column -> remark, where there is one
    form: FileForm = FileForm()
    guessed: bool = False  # whether the encoding is one of several that would have done

    @property
    def again(self) -> FileForm:
        """How the next file of this kind is to be read: as this one was, also where its own values leave it open."""
        found: dict[str, ColumnForm] = {}
        for name, remark in self.columns.items():
            for form in _AS_TOLD:
                if form in remark:
                    found[name] = form
        return replace(self.form, forms={**found, **self.form.forms})


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
        alone = " One column only: is the header its first line, and what separates values?" if len(names) == 1 else ""
        for role, name in (("id", self.id), ("label", self.label)):
            if name is not None and name not in known:
                raise DataError(f"{where}: the {role} column {name!r} is not there. {suggest(name, names)}{alone}")
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
    shown = [known if len(known) <= _LONG else f"{known[:_LONG]}..." for known in list(by_lower.values())[:8]]
    return f"There are: {', '.join(shown)}{', ...' if len(by_lower) > len(shown) else '.'}" if shown else "It has none."


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse columns that cannot be told apart or have no name."""
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not name.strip():
            advice = "name it, remove lines above the header, or save without a row index (pandas: index=False)"
            raise DataError(f"{where}: column {position} has no name; {advice}")
        if name in seen:
            raise DataError(f"{where}: columns {seen[name]} and {position} are both named {name!r}; rename one of them")
        seen[name] = position
