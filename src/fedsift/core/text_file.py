"""A text file as it is: its encoding, its separator, its records, and the frame that its columns make.

What is sniffed is told (``Written``) and can be said in the job file instead (``FileForm``).
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import polars as pl

from fedsift.core.text_types import MISSING, Settling
from fedsift.core.wanted import FileForm, Loaded, Wanted, Written
from fedsift.errors import DataError, ParameterError

SEPARATORS = ",;\t|"
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_GUESS_ROWS = 10_000  # types are guessed from so many rows; a later row that disagrees makes us look at all of them
_SEPARATOR_LINE = re.compile(rb"\"?sep=([,;\t|])\"?\r?\n", re.IGNORECASE)  # a first line that is for Excel
_SNIFFED = 200  # records by which the separator is found
# 007, or more digits than a whole number has: what a reader of numbers would change in silence.
_NOT_A_NUMBER = re.compile(rb"(?:^|[\n,;\t|\"])[ ]*[+-]?(?:0\d+|\d{19,})[ ]*(?=[,;\t|\"\r\n]|$)")


@dataclass(frozen=True)
class TextFile:
    """The bytes of a file in UTF-8, without a mark at the start, and how it was written."""

    data: bytes
    encoding: str
    separator: str
    where: str
    blank: tuple[int, ...] = ()  # lines without anything, and one that names the separator: they are no rows
    guessed: bool = False  # whether other encodings would have done as well
    before: int = 0  # lines of the file between the header and the first record, where this is a piece of one

    @classmethod
    def open(cls, path: Path, where: str, form: FileForm) -> TextFile:
        try:
            raw = path.read_bytes()
            raw = gzip.decompress(raw) if path.suffix.lower() == ".gz" else raw
        except (OSError, EOFError) as error:
            raise DataError(f"{where}: the file cannot be read ({type(error).__name__}); is it complete?") from None
        return cls.of(*_decoded(raw, where, form.encoding), path, where, form)

    @classmethod
    def of(cls, data: bytes, encoding: str, path: Path, where: str, form: FileForm) -> TextFile:
        """Of the text, in UTF-8."""
        if b"\n" not in data:
            data = data.replace(b"\r", b"\n")  # the line ends of old Macs
        data = data.rstrip(b"\r\n")
        if not data.strip():
            raise DataError(f"{where}: the file is empty; it needs a line with column names and one line a row")
        if named := _SEPARATOR_LINE.match(data):
            data = data[named.end() :]
        tabs = path.name.lower().removesuffix(".gz").endswith(".tsv")
        told = named.group(1).decode() if named else "\t" if tabs else None
        separator = form.separator or told or _separator(data, where)
        # Beyond ASCII, single bytes are letters of one language or another: nothing in them says of which.
        guessed = form.encoding is None and encoding in ("cp1252", "latin-1")
        blank: tuple[int, ...] = ()
        if separator.encode() in data.partition(b"\n")[0]:  # in a file of one column an empty line is a missing value
            data, blank = _without_blank_lines(data)
        if named:
            blank = (1, *(line + 1 for line in blank))
        return cls(data, encoding, separator, where, blank, guessed)

    def records(self, strict: bool = False) -> Any:
        """A reader of records one by one, with line numbers: for the header, and to find the place of an error."""
        text = io.TextIOWrapper(io.BytesIO(self.data), "utf-8", newline="")
        return csv.reader(text, delimiter=self.separator, strict=strict)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Records with the line at which each starts, or the line at which the file stops being CSV."""
        reader, line, width = self.records(strict=True), 1, 0
        try:
            for record in reader:
                width = width or len(record)
                if len(record) > width:
                    counts = f"{len(record)} values, but the header names {width} columns"
                    raise DataError(f"{self.where}: line {self._in_file(line)} has {counts}; correct it")
                yield self._in_file(line), record + [""] * (width - len(record))
                line = reader.line_num + 1
        except csv.Error:
            advice = "close or remove it"
            place = self._in_file(line)
            raise DataError(f"{self.where}: line {place} has a quotation mark that is not closed; {advice}") from None

    def line_of(self, row: int) -> int:
        reader = self.records()
        for _ in range(row + 1):  # the header and the rows before
            next(reader)
        return self._in_file(reader.line_num + 1)  # a quoted value may span lines, so this is not simply row + 2

    def _in_file(self, line: int) -> int:
        """A line's number in the file as it was, blank lines among it."""
        for blank in self.blank:
            line += blank <= line
        return line + (self.before if line > 1 else 0)

    def as_text(self, missing: list[str]) -> pl.DataFrame:
        """All columns, all values as they are written."""
        columns = list(range(len(next(self.records()))))
        options = {"separator": self.separator, "null_values": missing, "raise_if_empty": False, "columns": columns}
        return _frame(self, options, as_text=True)

    @property
    def told(self) -> str:
        return f"{self.encoding}, {_NAMES[self.separator]} between values"


def pieces(path: Path, where: str, form: FileForm, size: int) -> Iterator[TextFile]:
    """A file in pieces of whole records, about ``size`` bytes each; each begins with the header."""
    encoding, first, header, done = form.encoding or _encoding_of(path, size), None, b"", 0
    with _opened(path, encoding, where) as file:
        try:
            for block in _blocks((line.encode() for line in file), size):
                lines = block.count(b"\n")
                if first is None:
                    first = TextFile.of(block, encoding, path, where, form)
                    reader = first.records()
                    next(reader)
                    header = b"\n".join(first.data.split(b"\n")[: reader.line_num])
                    yield first
                else:
                    body = block.removesuffix(b"\n").removesuffix(b"\r")
                    data = header + b"\n" + body
                    blank: tuple[int, ...] = ()
                    if first.separator.encode() in header:
                        data, blank = _without_blank_lines(data)
                    before = done - header.count(b"\n") - 1
                    yield TextFile(data, encoding, first.separator, where, blank, first.guessed, before)
                done += lines
        except (OSError, EOFError) as error:
            raise DataError(f"{where}: the file cannot be read ({type(error).__name__}); is it complete?") from None
        except UnicodeDecodeError:
            raise DataError(f"{where}: it is not {encoding} text from about line {done + 1} on") from None
    if first is None:
        raise DataError(f"{where}: the file is empty; it needs a line with column names and one line a row")


def load_text(path: Path, where: str, wanted: Wanted) -> Loaded:
    """The wanted columns of a text file, each with the type that all of its values have."""
    file = TextFile.open(path, where, wanted.form)
    header = next(file.records())
    names = [name.strip() for name in header]
    kept = wanted.of(names, where)
    position = {name: i for i, name in enumerate(names)}
    plain = {wanted.id, *wanted.categorical}  # kept as text: an id 007 is not 7
    options: dict[str, Any] = {
        "separator": file.separator,
        "null_values": [*MISSING, *wanted.form.missing],
        "raise_if_empty": False,
    }
    options["columns"] = [position[name] for name in kept]
    options["schema_overrides"] = {raw: pl.String for raw, name in zip(header, names) if name in plain}

    def locate(row: int) -> str:
        return f"line {file.line_of(row)}"

    def settled(comma_file: bool) -> tuple[pl.DataFrame, dict[str, str]]:
        doubt = comma_file or bool(wanted.form.forms) or wanted.form.decimal is not None
        frame = _frame(file, options, as_text=doubt or _NOT_A_NUMBER.search(file.data) is not None)
        frame.columns = kept
        work = Settling(where, locate, plain, wanted.label, wanted.form, comma_file)
        return work.settle(frame), work.remarks

    # Semicolons, and decimal commas in one column, are a sign that 1.234 in another may be a thousand.
    frame, remarks = settled(comma_file=file.separator == ";")
    if file.separator != ";" and any("decimal comma" in remark for remark in remarks.values()):
        frame, remarks = settled(comma_file=True)
    return Loaded(frame, where, locate, Written(file.told, remarks, wanted.form, file.guessed))


def _frame(file: TextFile, options: dict[str, Any], as_text: bool) -> pl.DataFrame:
    """Typed by the first rows; as text when a later row disagrees; slowly and strictly when polars gives up."""
    if file.data.count(b'"') % 2 == 0:  # else polars might take the rest of the file for one value
        guesses: list[dict[str, Any]] = [{"infer_schema_length": _GUESS_ROWS}, {"infer_schema": False}]
        for guess in guesses[as_text:]:
            with contextlib.suppress(pl.exceptions.PolarsError):
                return pl.read_csv(file.data, **guess, **options)
    rows = [record for _, record in file.rows()]
    schema = [(str(i), pl.String) for i in range(len(rows[0]))]
    frame: pl.DataFrame = pl.DataFrame(rows[1:], schema=schema, orient="row")[:, options["columns"]]
    return frame


# --- what is sniffed -------------------------------------------------------------------------------------------------


def _decoded(raw: bytes, where: str, encoding: str | None) -> tuple[bytes, str]:
    """The text in UTF-8 and the encoding that it had. Only text may come out wrong by a guess, and it is told."""
    if encoding is None:
        encoding = _encoding(raw)
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise ParameterError(f"{where}: there is no encoding {encoding!r}; try utf-8, cp1252 or utf-16") from None
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{where}: line {line} is not {encoding} text; say encoding = ... in the job file") from None
    return text.removeprefix("\ufeff").encode(), encoding


def _opened(path: Path, encoding: str, where: str) -> TextIO:
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        return cast(TextIO, opened(path, "rt", encoding=encoding, newline=""))
    except LookupError:
        raise ParameterError(f"{where}: there is no encoding {encoding!r}; try utf-8, cp1252 or utf-16") from None


def _encoding_of(path: Path, size: int) -> str:
    """As ``_encoding`` says, of a file that is not held: by its first bytes, and by whether all of it can be read."""
    with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
        start = file.read(2_000)
    found = _encoding(start[: start.rfind(b"\n") + 1] or start)
    if found not in ("utf-8", "cp1252", "latin-1"):
        return found
    for encoding in ("utf-8", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError), _opened(path, encoding, path.name) as text:
            while text.read(size):
                pass
            return encoding
    return "latin-1"


def _blocks(lines: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Whole records of so many bytes or a few more: a record ends at a line's end outside quotation marks."""
    held: list[bytes] = []
    length = quotes = 0
    for line in lines:
        held.append(line)
        length, quotes = length + len(line), quotes + line.count(b'"')
        if length >= size and quotes % 2 == 0:
            yield b"".join(held)
            held, length = [], 0
    if held:
        yield b"".join(held)


def _encoding(raw: bytes) -> str:
    if raw.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    start = raw[:2000]
    if start.count(0) > len(start) // 4:  # every other byte of Latin letters in UTF-16
        return "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
    for encoding in ("utf-8", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            raw.decode(encoding)
            return encoding
    return "latin-1"


def _separator(data: bytes, where: str) -> str:
    """The mark that cuts every record into as many values as the header; two such marks are asked about."""
    start = data[:1_000_000].decode("utf-8", errors="ignore")
    widths = {mark: _widths(start, mark) for mark in SEPARATORS}
    even = [mark for mark, found in widths.items() if found[0] > 1 and set(found) == {found[0]}]
    if len(even) > 1:
        both = " or ".join(_NAMES[mark] for mark in even)
        raise DataError(f"{where}: {both} may be between its values; say separator = {even[0]!r} or {even[1]!r}")
    return even[0] if even else max(SEPARATORS, key=lambda mark: widths[mark][0])


def _without_blank_lines(data: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The data without lines that hold nothing, and which these were; such a line inside a quoted value stays."""
    if b"\n\n" not in data and b"\n\r\n" not in data:
        return data, ()
    kept, blank, quotes = [], [], 0
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip() and quotes % 2 == 0:
            blank.append(number)
        else:
            kept.append(line)
            quotes += line.count(b'"')
    return b"\n".join(kept), tuple(blank)


def _widths(start: str, mark: str) -> list[int]:
    reader = csv.reader(io.StringIO(start, newline=""), delimiter=mark)
    found: list[int] = []
    with contextlib.suppress(csv.Error):
        for record in reader:
            if record:
                found.append(len(record))
            if len(found) > _SNIFFED:
                break
    return (found[:-1] if len(found) > 2 else found) or [0]  # the last may be cut off
