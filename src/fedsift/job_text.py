"""The text of a job file: its TOML, the line of each key, and changes from the command line.

``tomllib`` forgets where a key stood; a person who must mend the file wants to know.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fedsift.errors import JobError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Key = tuple[str, ...]
_BARE = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_HEADER = re.compile(rf"^\s*\[\s*({_BARE}(?:\s*\.\s*{_BARE})*)\s*\]")
_ASSIGNMENT = re.compile(rf"^\s*({_BARE}(?:\s*\.\s*{_BARE})*)\s*=")


@dataclass
class Source:
    """The text of a job file, its data, and where each key came from."""

    path: Path
    text: str
    data: dict[str, Any]
    overridden: dict[Key, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Source:
        if path.is_dir():
            raise JobError(f"{path} is a folder; give the job file inside it, such as {path / 'job.toml'}")
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            near = get_close_matches(path.name, [p.name for p in path.parent.glob("*.toml")], n=1)
            raise JobError(f"there is no job file {path}{question(near)}") from None
        except UnicodeDecodeError:
            raise JobError(f"{path} is not a text file in UTF-8; a job file is TOML text") from None
        except OSError as error:
            raise JobError(f"{path} cannot be read: {error.strerror}") from None
        try:
            return cls(path, text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise JobError(_bad_toml(path, text, str(error))) from None

    def where(self, key: Key) -> str:
        """'job.toml, line 7', or the --set option that the key came from."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.overridden:
                return f"--set {self.overridden[key[:length]]}"
            line = self._lines().get(key[:length])
            if line is not None:
                return f"{self.path}, line {line}"
        return str(self.path)

    def error(self, key: Key, what: str) -> JobError:
        return JobError(f"{self.where(key)}: {'.'.join(key)}: {what}")

    def _lines(self) -> dict[Key, int]:
        """Line of each key, found by reading the text as a person does: headers and 'key =' at the line's start."""
        lines: dict[Key, int] = {}
        table: Key = ()
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = _split_key(header.group(1))
                lines.setdefault(table, number)
            elif assignment := _ASSIGNMENT.match(line):
                lines.setdefault(table + _split_key(assignment.group(1)), number)
        return lines


def _split_key(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_BARE, dotted))


def _bad_toml(path: Path, text: str, message: str) -> str:
    found = re.search(r"\(at line (\d+), column \d+\)", message)
    what = re.sub(r"\s*\(at .*\)$", "", message)
    lines = text.splitlines()
    if not found or int(found.group(1)) > len(lines):
        return f"{path}: not valid TOML: {what} at the end of the file (a quote or bracket left open?)"
    number = int(found.group(1))
    line = lines[number - 1].strip()
    if path.suffix != ".toml":  # perhaps a table that was given by mistake: its lines are nobody's business
        return f"{path}, line {number}: not valid TOML; is this the job file?"
    hint = ""
    if re.match(rf"{_BARE}(\s*\.\s*{_BARE})*\s*=\s*(?!true|false)[A-Za-z]", line):
        hint = ' (text needs quotes: key = "text")'
    elif re.match(r"[^=\[\]#]+:\s", line):
        hint = " (TOML is written key = value, not key: value)"
    return f"{path}, line {number}: not valid TOML: {what}: {line[:80]}{hint}"


# --- --set -----------------------------------------------------------------------------------------------------------


def parse_override(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    advice = "write KEY=VALUE, such as --set method.n_features=20"
    if not equals or not key.strip() or not value.strip():
        raise JobError(f"--set {text}: {advice}")
    if re.fullmatch(r"[A-Za-z_][\w./ -]*", value) and value not in ("true", "false", "inf", "nan"):
        value = f'"{value}"'  # a bare word is meant as text: shells eat the quotes that TOML would want
    try:
        change = tomllib.loads(f"{key} = {value}")
    except tomllib.TOMLDecodeError:
        raise JobError(f"--set {text}: {value} is not a TOML value; {advice}") from None
    if "\n" in text:
        raise JobError(f"--set {text!r}: one key at a time; {advice}")
    return change


def merge(data: dict[str, Any], change: dict[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(data.get(key), dict):
            merge(data[key], value)
        else:
            data[key] = value


def paths(change: dict[str, Any]) -> Iterator[Key]:
    for key, value in change.items():
        if isinstance(value, dict) and value:
            yield from ((key, *rest) for rest in paths(value))
        else:
            yield (key,)


# --- nearest names ---------------------------------------------------------------------------------------------------


def question(near: Sequence[str]) -> str:
    return f"; did you mean {near[0]!r}?" if near else ""


def nearest(name: str, names: Sequence[str]) -> str:
    """'; did you mean ...?' or, when nothing is near, what there is."""
    by_lower = {n.lower().replace("-", "_"): n for n in names}
    near = get_close_matches(name.lower().replace("-", "_"), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else f"; there are: {', '.join(names)}"
