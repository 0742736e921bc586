"""The job file: which files, which id, which label, which method. TOML in, a checked ``Job`` out.

A job file is the one thing that a newcomer writes by hand, so each complaint names the file, the line, the key, what
was expected and the nearest valid name. Nothing in a job file is evaluated: it holds text, numbers and lists only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsift.errors import DataError, JobError, ParameterError
from fedsift.federation import Federation
from fedsift.job_text import Key, Source, merge, nearest, parse_override, paths, question
from fedsift.select import METHODS, Selector
from fedsift.table import Table


class _Section(BaseModel):
    """A table of the job file. The descriptions of its keys are what error messages quote as expected."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PartySection(_Section):
    file: str = Field(min_length=1, description='a file name in quotes, such as "bank.csv"')
    id: str | None = Field(default=None, min_length=1, description='the name of the id column, such as "customer"')
    label: str | None = Field(default=None, min_length=1, description='the name of the label column, such as "default"')
    columns: list[str] | None = Field(
        default=None, min_length=1, description='a list of column names, such as ["age", "sex"]'
    )
    categorical: list[str] = Field(default=[], description='a list of column names, such as ["postcode"]')


class MethodSection(_Section):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str = Field(description='the name of a method, such as "information_value" (see: fedsift methods)')


class FederationSection(_Section):
    partition: Literal["vertical", "horizontal"] = Field(default="vertical", description='"vertical" or "horizontal"')
    task: Literal["auto", "classification", "regression"] = Field(
        default="auto", description='"auto", "classification" or "regression"'
    )
    min_overlap: int = Field(default=10, ge=1, description="a whole number, 1 or more")
    timeout: float | None = Field(default=None, gt=0, description="a number of seconds above 0")
    names: Literal["shared", "private"] = Field(default="shared", description='"shared" or "private"')


class EvaluateSection(_Section):
    model: Literal["forest", "linear", "svm", "knn"] = Field(
        default="forest", description='"forest", "linear", "svm" or "knn"'
    )
    train: float = Field(default=0.7, gt=0, lt=1, description="the share of training rows, between 0 and 1")
    folds: int | None = Field(default=None, ge=2, description="a number of folds, 2 or more (in place of train)")
    seed: int = Field(default=0, ge=0, description="a whole number, 0 or more")
    nulls: bool = Field(default=True, description="true or false")


class OutputSection(_Section):
    dir: str = Field(min_length=1, description='a folder name in quotes, such as "result"')


class JobFile(_Section):
    """The whole file."""

    parties: dict[str, PartySection] = Field(min_length=1, description="one table [parties.NAME] for each party")
    method: MethodSection = Field(description='a table [method] with name = "..."')
    federation: FederationSection = Field(default_factory=FederationSection, description="a table [federation]")
    evaluate: EvaluateSection | None = Field(default=None, description="a table [evaluate]")
    output: OutputSection | None = Field(default=None, description="a table [output]")


@dataclass(frozen=True)
class Job:
    """A checked job file: reads its tables, makes its federation and its selector."""

    path: Path
    settings: JobFile
    parameters: dict[str, Any]  # of the method, as its constructor takes them
    source: Source = field(repr=False)

    @property
    def method(self) -> str:
        return self.settings.method.name

    @property
    def out(self) -> Path:
        """Where the result goes unless ``--out`` says otherwise: beside the job file."""
        output = self.settings.output
        return self.path.parent / (output.dir if output else f"{self.path.stem}-result")

    def file(self, party: str) -> Path:
        return self.path.parent / self.settings.parties[party].file

    def tables(self) -> dict[str, Table]:
        """Each party's table. In a deployment every party reads its own; here one process plays them all."""
        return {name: self._table(name, party) for name, party in self.settings.parties.items()}

    def _table(self, name: str, party: PartySection) -> Table:
        try:
            return Table.read(
                self.file(name), id=party.id, label=party.label, columns=party.columns,
                categorical=party.categorical, name=name,
            )  # fmt: skip
        except DataError as error:
            if "is not there" not in str(error):
                raise
            key = next((key for key in ("id", "label") if f"the {key} column" in str(error)), "columns")
            raise DataError(f"{self.source.where(('parties', name, key))}: {error}") from None

    def federation(self, tables: Mapping[str, Table]) -> Federation:
        """The parties, aligned by private set intersection when they are vertical."""
        federation, parties = self.settings.federation, self.settings.parties
        holders = {name: party.label for name, party in parties.items() if party.label is not None}
        holder, label = next(iter(holders.items()))
        ids = {name: party.id for name, party in parties.items() if party.id is not None}
        return Federation.from_tables(
            tables,
            id=ids or None,
            label=label if federation.partition == "horizontal" else (holder, label),
            partition=federation.partition,
            task=federation.task,
            timeout=federation.timeout,
            names=federation.names,
            min_overlap=federation.min_overlap,
        )

    def selector(self) -> Selector:
        return METHODS[self.method](**self.parameters)

    def check_parameters(self, selector: Selector, fed: Federation) -> None:
        """Let the method look at its parameters before anything is sent; say where a bad one stands."""
        try:
            if fed.partition not in selector.partitions:
                served = " or ".join(selector.partitions)
                raise self.source.error(
                    ("federation", "partition"), f"{self.method} is for {served} parties; these are {fed.partition}"
                )
            selector._check(fed)
        except ParameterError as error:
            what = str(error).replace(" or None", ' or "none"')  # TOML has no null
            named = re.match(r"\w+", what)
            key = ("method", named.group()) if named and named.group() in self.parameters else ("method",)
            raise JobError(f"{self.source.where(key)}: method{'.' if len(key) > 1 else ': '}{what}") from None


def load_job(path: str | Path, overrides: Sequence[str] = ()) -> Job:
    """Read and check a job file; ``overrides`` are texts such as ``method.n_features=20``."""
    path = Path(path)
    source = Source.read(path)
    data = source.data
    for text in overrides:
        change = parse_override(text)
        merge(data, change)
        source.overridden.update(dict.fromkeys(paths(change), text))
    try:
        settings = JobFile.model_validate(data)
    except ValidationError as error:
        raise JobError("\n".join(_explain(source, problem) for problem in error.errors())) from None
    _check_parties(source, settings)
    parameters = _method_parameters(source, settings.method)
    return Job(path, settings, parameters, source)


# --- complaints ------------------------------------------------------------------------------------------------------


def _explain(source: Source, problem: Mapping[str, Any]) -> str:
    """One pydantic problem as a sentence with its place."""
    key = tuple(str(part) for part in problem["loc"])
    model: Any = _model_at(key[:-1])
    name = ".".join(key)
    where = source.where(key)
    if problem["type"] == "extra_forbidden":
        known = list(model.model_fields) if model else []
        return f"{where}: {name}: unknown key{nearest(key[-1], known)}"
    expected = _expected(key)
    if problem["type"] == "missing":
        return f"{where}: {name} is missing: expected {expected}"
    return f"{where}: {name}: expected {expected}; got {_shown(problem['input'])}"


def _model_at(key: Key) -> type[BaseModel] | None:
    """The section that a key names."""
    if not key:
        return JobFile
    if key[0] == "parties":
        return PartySection if len(key) == 2 else None
    sections: dict[str, type[BaseModel]] = {
        "method": MethodSection,
        "federation": FederationSection,
        "evaluate": EvaluateSection,
        "output": OutputSection,
    }
    return sections.get(key[0]) if len(key) == 1 else None


def _expected(key: Key) -> str:
    """The description of the key, or of the nearest key above it."""
    for length in range(len(key), 0, -1):
        model = _model_at(key[: length - 1])
        if model is not None and key[length - 1] in model.model_fields:
            return str(model.model_fields[key[length - 1]].description)
        if key[:length] == ("parties", key[length - 1]) and length == 2:
            return 'a table [parties.NAME] with file = "..."'
    return "something else"


def _shown(value: Any) -> str:
    """A value as TOML writes it; long ones by their kind."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value)} values"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _check_parties(source: Source, settings: JobFile) -> None:
    parties, partition = settings.parties, settings.federation.partition
    for name, party in parties.items():
        if not re.fullmatch(r"[\w][\w .-]*", name) or name == "coordinator":
            advice = "letters, digits, spaces, '-', '_' and '.', and not 'coordinator'"
            raise source.error(("parties", name), f"this cannot be a party's name; take {advice}")
        if not (source.path.parent / party.file).is_file():
            folder = (source.path.parent / party.file).parent
            there = [p.name for p in folder.iterdir() if p.is_file()] if folder.is_dir() else []
            near = get_close_matches(Path(party.file).name, there, n=1, cutoff=0.5)
            what = f"there is no file {party.file!r} (a path starts at the job file's folder)"
            raise source.error(("parties", name, "file"), what + question(near))
    labels = [name for name, party in parties.items() if party.label is not None]
    if partition == "vertical" and len(labels) != 1:
        given = f"{' and '.join(labels)} have one" if labels else "none has one"
        raise source.error(
            ("parties", labels[1], "label") if labels else ("parties",),
            f'exactly one party has a label (label = "..."); {given}',
        )
    if partition == "horizontal":
        names = {party.label for party in parties.values()}
        if len(names) != 1 or None in names:
            raise source.error(("parties",), "horizontal parties all have the label, under the same name")
    without = [name for name, party in parties.items() if party.id is None]
    if without and len(without) < len(parties):
        raise source.error(
            ("parties", without[0]),
            f"id is missing, but other parties have one: expected {_expected(('parties', without[0], 'id'))}",
        )


def _method_parameters(source: Source, section: MethodSection) -> dict[str, Any]:
    """The method's parameters, each checked to exist. TOML has no null: the text "none" stands for it."""
    if section.name not in METHODS:
        raise source.error(
            ("method", "name"), f"there is no method {section.name!r}{nearest(section.name, list(METHODS))}"
        )
    method = METHODS[section.name]
    defaults = method().get_params(deep=False)
    given = dict(section.model_extra or {})
    for name, value in given.items():
        if name not in defaults:
            raise source.error(
                ("method", name), f"unknown parameter of {section.name}{nearest(name, list(defaults) or ['(none)'])}"
            )
        if value == "none" and not isinstance(defaults[name], str):
            given[name] = None
    if given.get("threshold") is not None and "n_features" in defaults and "n_features" not in given:
        given["n_features"] = None  # a threshold replaces the default number, which TOML could not unset
    return given
