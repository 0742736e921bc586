"""The text of a job file or a party file: its TOML, the line of each key, and changes from the command line.

``tomllib`` forgets where a key stood; a person who must mend the file wants to know. A file's tables are pydantic
models (``Section``); what is wrong with one becomes a sentence that names the file, the line, the key and what was
expected.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from fedsift.errors import JobError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Key = tuple[str, ...]
_BARE = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_HEADER = re.compile(rf"^\s*\[\s*({_BARE}(?:\s*\.\s*{_BARE})*)\s*\]")
_ASSIGNMENT = re.compile(rf"^\s*({_BARE}(?:\s*\.\s*{_BARE})*)\s*=")


def toml_value(value: object) -> str:
    """A text, a number, a list or a table in one line as TOML has it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_value(key)} = {toml_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


@dataclass
class Source:
    """The text of a file, its data, and where each key came from."""

    path: Path
    text: str
    data: dict[str, Any]
    overridden: dict[Key, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, kind: str = "job") -> Source:
        """``kind`` is what people call the file: ``job`` or ``party``."""
        if path.is_dir():
            raise JobError(f"{path} is a folder; give the {kind} file inside it, such as {path / f'{kind}.toml'}")
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            near = get_close_matches(path.name, [p.name for p in path.parent.glob("*.toml")], n=1)
            raise JobError(f"there is no {kind} file {path}{question(near)}") from None
        except UnicodeDecodeError:
            raise JobError(f"{path} is not a text file in UTF-8; a {kind} file is TOML text") from None
        except OSError as error:
            raise JobError(f"{path} cannot be read: {error.strerror}") from None
        try:
            return cls(path, text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise JobError(_bad_toml(path, text, str(error), kind)) from None

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


def _bad_toml(path: Path, text: str, message: str, kind: str) -> str:
    found = re.search(r"\(at line (\d+), column \d+\)", message)
    what = re.sub(r"\s*\(at .*\)$", "", message)
    lines = text.splitlines()
    if not found or int(found.group(1)) > len(lines):
        return f"{path}: not valid TOML: {what} at the end of the file (a quote or bracket left open?)"
    number = int(found.group(1))
    line = lines[number - 1].strip()
    if path.suffix != ".toml":  # perhaps a table that was given by mistake: its lines are nobody's business
        return f"{path}, line {number}: not valid TOML; is this the {kind} file?"
    hint = ""
    if re.match(rf"{_BARE}(\s*\.\s*{_BARE})*\s*=\s*(?!true|false)[A-Za-z]", line):
        hint = ' (text needs quotes: key = "text")'
    elif re.match(r"[^=\[\]#]+:\s", line):
        hint = " (TOML is written key = value, not key: value)"
    return f"{path}, line {number}: not valid TOML: {what}: {line[:80]}{hint}"


# --- sections ---------------------------------------------------------------------------------------------------------


class Section(BaseModel):
    """A table of a file. The descriptions of its keys are what error messages quote as expected."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    expected: ClassVar[str] = "a table"  # where a file has one for each name


AnySection = TypeVar("AnySection", bound=Section)


def validated(source: Source, root: type[AnySection]) -> AnySection:
    """The file's data as ``root``, or all complaints at once."""
    try:
        return root.model_validate(source.data)
    except ValidationError as error:
        complaints = dict.fromkeys(_explain(source, root, problem) for problem in error.errors())
        raise JobError("\n".join(complaints)) from None


def _explain(source: Source, root: type[Section], problem: Mapping[str, Any]) -> str:
    """One pydantic problem as a sentence with its place."""
    key: Key = ()
    for part in problem["loc"]:
        if _is_value(root, key):  # what follows tells which place in the value, or which kind of value, was tried
            break
        key = (*key, str(part))
    name, where = ".".join(key), source.where(key)
    if problem["type"] == "extra_forbidden":
        section = _section_at(root, key[:-1])
        near = nearest(key[-1], list(section.model_fields) if section else [])
        return f"{where}: {name}: unknown key{_at_home(root, key[-1])}{near}"
    if problem["type"] == "missing":
        return f"{where}: {name} is missing: expected {expected(root, key)}"
    return f"{where}: {name}: expected {expected(root, key)}; got {_shown(problem['input'])}"


def _at_home(root: type[Section], key: str) -> str:
    """Where a key that stands in the wrong table belongs."""
    tables = [(name,) for name in root.model_fields] + [(name, "NAME") for name in root.model_fields]
    sections = {table: _section_at(root, table) for table in tables}
    homes = [".".join(table) for table, section in sections.items() if section and key in section.model_fields]
    return f" here; it belongs to [{'] or ['.join(homes)}]" if homes else ""


def _is_value(root: type[Section], key: Key) -> bool:
    section = _section_at(root, key[:-1]) if key else None
    found = section.model_fields.get(key[-1]) if section is not None else None
    return found is not None and get_origin(found.annotation) is not dict and _section_at(root, key) is None


def _section_at(root: type[Section], key: Key) -> type[Section] | None:
    """The section that a key names; a table of sections (``[parties.NAME]``) takes one part more."""
    section: type[Section] | None = root
    parts = list(key)
    while parts and section is not None:
        found = section.model_fields.get(parts.pop(0))
        kinds = [] if found is None else [found.annotation, *get_args(found.annotation)]
        if found is not None and get_origin(found.annotation) is dict:
            if not parts:
                return None
            parts.pop(0)
        section = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)), None)
    return section


def expected(root: type[Section], key: Key) -> str:
    """The description of the key, or of the nearest key above it."""
    for length in range(len(key), 0, -1):
        section = _section_at(root, key[: length - 1])
        if section is not None and key[length - 1] in section.model_fields:
            return str(section.model_fields[key[length - 1]].description)
        inner = _section_at(root, key[:length])
        if section is None and inner is not None:
            return inner.expected
    return "something else"


def _shown(value: object) -> str:
    """A value as TOML writes it; long ones by their kind."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value)} values"
    return f'"{value}"' if isinstance(value, str) else str(value)


# --- --set -----------------------------------------------------------------------------------------------------------


def parse_override(text: str) -> dict[str, object]:
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


def paths(change: dict[str, object]) -> Iterator[Key]:
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


#: Parameters of methods that had another name before.
RENAMED = {
    "alpha": "penalty", "bins": "n_bins", "iterations": "max_iter", "lambda_": "penalty", "lambdas": "penalties",
    "price": "size_penalty", "release": "protection", "rounds": "max_iter", "secure": "protection", "tolerance": "tol",
}  # fmt: skip


def called_now(name: str, names: Sequence[str]) -> str:
    """The same for a parameter, which may be an earlier version's."""
    now = RENAMED.get(name)
    return f"; it is called {now!r} now" if now in names else nearest(name, names)
