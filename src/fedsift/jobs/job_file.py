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
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from fedsift.core.federation import Federation
from fedsift.core.job import NEUTRAL
from fedsift.core.table import Table
from fedsift.core.wanted import ColumnForm, Dates, Decimal, FileForm
from fedsift.errors import DataError, JobError, ParameterError
from fedsift.jobs.job_design import DesignSection, design_of
from fedsift.jobs.job_evaluate import EvaluateSection
from fedsift.jobs.job_model import ModelSection
from fedsift.jobs.job_rules import RulesSection, rules_of
from fedsift.jobs.text import (
    Key,
    Section,
    Source,
    called_now,
    expected,
    merge,
    nearest,
    parse_override,
    paths,
    question,
    validated,
)
from fedsift.methods import METHODS
from fedsift.select.base import Selector


class PartySection(Section):
    expected: ClassVar[str] = 'a table [parties.NAME] with file = "..."'

    file: str | None = Field(default=None, min_length=1, description='a file name in quotes, such as "bank.csv"')
    id: str | None = Field(default=None, min_length=1, description='the name of the id column, such as "customer"')
    label: str | None = Field(default=None, min_length=1, description='the name of the label column, such as "default"')
    columns: list[str] | None = Field(
        default=None, min_length=1, description='a list of column names, such as ["age", "sex"]'
    )
    categorical: list[str] = Field(default=[], description='a list of column names, such as ["postcode"]')
    aside: list[str] = Field(
        default=[], description='a list of columns that are no features but say what rows are, such as ["customer"]'
    )
    encode: dict[str, str | list[str]] = Field(
        default={}, description='by column what a text or a date becomes, such as {joined = ["month", "weekday"]}'
    )
    encoding: str | None = Field(default=None, min_length=1, description='the file\'s encoding, such as "cp1252"')
    separator: Literal[",", ";", "\t", "|"] | None = Field(
        default=None, description='what is between values: ",", ";", "\\t" or "|"'
    )
    decimal: Decimal | None = Field(default=None, description='the decimal mark, "." or ","')
    dates: Dates | None = Field(default=None, description='"day first" or "month first", for dates such as 01/02/2024')
    sheet: str | None = Field(default=None, min_length=1, description="the name of a sheet of an Excel file")
    forms: dict[str, ColumnForm] = Field(
        default={},
        description='by column "decimal point", "decimal comma", "day first", "month first" or "number"',
    )
    database: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description='for a file with a query: the environment variable with the address, such as "BANK_DB"',
    )
    missing: list[str] = Field(
        default=[], description='a list of texts that stand for no value, such as ["-999", "n.k."]'
    )
    price: float | None = Field(default=None, ge=0, description="what this party costs, a number 0 or more")
    prices: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default={}, description="by column what it costs, a number 0 or more, such as {income = 20}"
    )
    grid: list[int] | None = Field(
        default=None, min_length=2, max_length=2, description="row block and column block, such as [1, 2]"
    )

    @property
    def form(self) -> FileForm:
        told = self.sheet, self.forms, self.missing, self.database
        return FileForm(self.encoding, self.separator, self.decimal, self.dates, *told)


class MethodSection(Section):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str = Field(description='the name of a method, such as "information_value" (see: fedsift methods)')


class FederationSection(Section):
    partition: Literal["vertical", "horizontal", "hybrid"] = Field(
        default="vertical", description='"vertical", "horizontal" or "hybrid"'
    )
    task: Literal["auto", "classification", "regression"] = Field(
        default="auto", description='"auto", "classification" or "regression"'
    )
    min_overlap: int = Field(default=10, ge=1, description="a whole number, 1 or more")
    matching: Literal["curve", "keyed"] = Field(default="curve", description='"curve" or "keyed"')
    timeout: float | None = Field(default=None, gt=0, description="a number of seconds above 0")
    names: Literal["shared", "private"] = Field(default="shared", description='"shared" or "private"')
    rows: str = Field(
        default="all",
        pattern=r"^(all|as in [0-9a-f]{12,64})$",
        description='"all" or "as in JOB", 12 digits or more of an earlier job\'s hash, such as "as in 3f8a21c07b5e"',
    )
    coordinator: str = Field(
        default=NEUTRAL, min_length=1, description='who runs it: "neutral" (nobody who holds rows) or a party\'s name'
    )
    dealer: str | None = Field(
        default=None, min_length=1, description='who deals randomness: "neutral" or a party\'s name; else who runs it'
    )
    submitter: str | None = Field(
        default=None, min_length=1, description='who gets the results: "neutral" or a party\'s name; else who runs it'
    )

    @property
    def as_in(self) -> str | None:
        """The earlier job whose rows are used again."""
        return self.rows.removeprefix("as in ") if self.rows != "all" else None


class OutputSection(Section):
    dir: str | None = Field(default=None, min_length=1, description='a folder name in quotes, such as "result"')
    mlflow: str | None = Field(
        default=None, min_length=1, description='the name of an MLflow experiment, such as "partners"'
    )


class JobFile(Section):
    """The whole file."""

    parties: dict[str, PartySection] = Field(min_length=1, description="one table [parties.NAME] for each party")
    method: MethodSection = Field(description='a table [method] with name = "..."')
    federation: FederationSection = Field(default_factory=FederationSection, description="a table [federation]")
    evaluate: EvaluateSection | None = Field(default=None, description="a table [evaluate]")
    model: ModelSection | None = Field(default=None, description='a table [model] with name = "..."')
    rules: RulesSection | None = Field(default=None, description="a table [rules]")
    design: DesignSection | None = Field(default=None, description="a table [design]")
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
        return self.path.parent / ((output.dir if output else None) or f"{self.path.stem}-result")

    @property
    def experiment(self) -> str | None:
        """The MLflow experiment that results go to, if any."""
        return None if self.settings.output is None else self.settings.output.mlflow

    def file(self, party: str) -> Path:
        return self.path.parent / str(self.settings.parties[party].file)

    def tables(self) -> dict[str, Table]:
        """Each party's table. In a deployment every party reads its own; here one process plays them all."""
        parties = self.settings.parties
        design, tables = design_of(self.settings.design), {}
        for name, party in parties.items():
            named = [column for column in design.columns_of(name) if column != party.label]
            told = party.model_copy(update={"aside": list(dict.fromkeys([*party.aside, *named]))})
            tables[name] = read_table(self.source, ("parties", name), told, name)
        return tables

    def federation(self, tables: Mapping[str, Table]) -> Federation:
        """The parties, aligned by private set intersection when they are vertical."""
        federation, parties = self.settings.federation, self.settings.parties
        if federation.as_in is not None:
            raise self.source.error(
                ("federation", "rows"),
                "the parties' own sites know the rows of an earlier job (--on), nobody here",
            )
        holders = {name: party.label for name, party in parties.items() if party.label is not None}
        holder, label = next(iter(holders.items()))
        labels: dict[str, Any] = {"vertical": (holder, label), "horizontal": label, "hybrid": holders}
        ids = {name: party.id for name, party in parties.items() if party.id is not None}
        return Federation.from_tables(
            tables,
            id=ids or None,
            label=labels[federation.partition],
            partition=federation.partition,
            task=federation.task,
            timeout=federation.timeout,
            names=federation.names,
            min_overlap=federation.min_overlap,
            matching=federation.matching,
            grid=self.grid(),
            coordinator=federation.coordinator,
            dealer=federation.dealer,
            submitter=federation.submitter,
        ).designed(design_of(self.settings.design))

    def grid(self) -> dict[str, tuple[int, int]] | None:
        """Row block and column block of each hybrid party."""
        if self.settings.federation.partition != "hybrid":
            return None
        return {name: (party.grid[0], party.grid[1]) for name, party in self.settings.parties.items() if party.grid}

    def selector(self) -> Selector:
        made = METHODS[self.method](**self.parameters)
        return made.set_rules(rules_of(self.settings.rules, self.party_prices, self.column_prices))

    @property
    def party_prices(self) -> dict[str, float]:
        """What parties cost, where the file says so."""
        return {name: party.price for name, party in self.settings.parties.items() if party.price is not None}

    @property
    def whole_prices(self) -> dict[str, float]:
        """What a party costs with all of its columns, where the file names a price."""
        parties = self.settings.parties.items()
        return {n: (p.price or 0.0) + sum(p.prices.values()) for n, p in parties if p.price is not None or p.prices}

    @property
    def column_prices(self) -> dict[str, float]:
        """What columns cost, by ``"party.column"``."""
        parties = self.settings.parties
        return {f"{name}.{column}": price for name in parties for column, price in parties[name].prices.items()}

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


def load_job(path: str | Path, overrides: Sequence[str] = (), *, files: bool = True) -> Job:
    """Read and check a job file; ``overrides`` are texts such as ``method.n_features=20``.

    Without ``files`` the parties' files are elsewhere (at their own sites), and what is said of them here is not used.
    """
    path = Path(path)
    source = Source.read(path)
    data = source.data
    for text in overrides:
        change = parse_override(text)
        merge(data, change)
        source.overridden.update(dict.fromkeys(paths(change), text))
    settings = validated(source, JobFile)
    _check_parties(source, settings, files)
    parameters = _method_parameters(source, settings.method)
    return Job(path, settings, parameters, source)


def _check_parties(source: Source, settings: JobFile, files: bool) -> None:
    parties, partition = settings.parties, settings.federation.partition
    for name, party in parties.items():
        check_name(source, ("parties", name), name)
        if files:
            _check_given(source, name, party.file)
            check_file(source, ("parties", name, "file"), str(party.file))
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
    _check_grid(source, settings, labels)
    if settings.rules is not None:
        settings.rules.check(source, parties)
    if settings.design is not None:
        settings.design.check(source, parties, partition, labels)
    for role in ("coordinator", "dealer", "submitter"):
        runner = getattr(settings.federation, role)
        if runner not in (None, NEUTRAL, *parties):
            near = nearest(runner, [NEUTRAL, *parties])
            raise source.error(("federation", role), f"there is no party {runner!r}{near}")
    without = [name for name, party in parties.items() if party.id is None]
    if without and len(without) < len(parties):
        raise source.error(
            ("parties", without[0]),
            f"id is missing, but other parties have one: expected {expected(JobFile, ('parties', without[0], 'id'))}",
        )


def _check_grid(source: Source, settings: JobFile, labels: list[str]) -> None:
    hybrid = settings.federation.partition == "hybrid"
    taken: dict[tuple[int, ...], str] = {}
    for name, party in settings.parties.items():
        if hybrid and party.grid is None:
            raise source.error(
                ("parties", name), "hybrid parties say where they stand: grid = [row block, column block]"
            )
        if not hybrid and party.grid is not None:
            raise source.error(("parties", name, "grid"), 'grid is for partition = "hybrid" under [federation]')
        if party.grid is not None and (other := taken.setdefault(tuple(party.grid), name)) != name:
            raise source.error(("parties", name, "grid"), f"{other} stands on this place already")
    for block in sorted({place[0] for place in taken}):
        if not any(place[0] == block and name in labels for place, name in taken.items()):
            raise source.error(("parties",), f'no party of row block {block} has a label (label = "...")')


def _check_given(source: Source, name: str, file: str | None) -> None:
    if file is None:
        wanted = expected(JobFile, ("parties", name, "file"))
        raise JobError(f"{source.where(('parties', name))}: parties.{name}.file is missing: expected {wanted}")


# A job file and a party file share the next three.


def check_name(source: Source, key: Key, name: str) -> None:
    if not re.fullmatch(r"[\w][\w .-]*", name) or name == "coordinator":
        advice = "letters, digits, spaces, '-', '_' and '.', and not 'coordinator'"
        raise source.error(key, f"this cannot be a party's name; take {advice}")


def check_file(source: Source, key: Key, file: str) -> None:
    path = source.path.parent / file
    if not path.is_file():
        there = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
        near = get_close_matches(path.name, there, n=1, cutoff=0.5)
        what = f"there is no file {file!r} (a path starts at the folder of {source.path.name})"
        raise source.error(key, what + question(near))


def read_table(source: Source, key: Key, section: PartySection, name: str) -> Table:
    """A party's table; a column that is not in the file is complained about with its place in ``source``."""
    try:
        return Table.read(
            source.path.parent / str(section.file), id=section.id, label=section.label, columns=section.columns,
            categorical=section.categorical, name=name, form=section.form, aside=section.aside,
            encode=section.encode,
        )  # fmt: skip
    except ParameterError as error:
        if "there is no encoder" not in str(error):
            raise
        raise source.error((*key, "encode"), str(error)) from None
    except DataError as error:
        if "is not there" not in str(error):
            raise
        raise DataError(f"{source.where((*key, _about(section, str(error))))}: {error}") from None


def _about(section: PartySection, complaint: str) -> str:
    """Which key of a party's table named the column that is not there."""
    for role in ("id", "label"):
        if f"the {role} column" in complaint:
            return role
    lists = {"categorical": section.categorical, "forms": section.forms, "encode": section.encode}
    named = (key for key, names in lists.items() if any(f"column {name!r} is not there" in complaint for name in names))
    return next(named, "aside" if "to set aside" in complaint else "columns")


def _method_parameters(source: Source, section: MethodSection) -> dict[str, object]:
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
                ("method", name), f"unknown parameter of {section.name}{called_now(name, list(defaults) or ['(none)'])}"
            )
        if value == "none" and not isinstance(defaults[name], str):
            given[name] = None
    if given.get("threshold") is not None and "n_features" in defaults and "n_features" not in given:
        given["n_features"] = None  # a threshold replaces the default number, which TOML could not unset
    return given
