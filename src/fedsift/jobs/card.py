"""The card of a trained model: what a reader must know of it, and what new rows need to be like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fedsift.core.files import plain, write_atomic
from fedsift.core.ledger import Ledger
from fedsift.core.table import Table
from fedsift.core.wanted import FileForm, kind_of_file
from fedsift.errors import DataError
from fedsift.jobs.cost import exposure
from fedsift.jobs.origin import form_of
from fedsift.jobs.runs import Run
from fedsift.models.base import FederatedModel
from fedsift.report.readings import PERSON, Roles, readings
from fedsift.report.summary import versions

FORMAT = "fedsift-trained"
CARD = "card.json"


@dataclass(frozen=True)
class PartyData:
    """A party's rows and columns that the model was trained on, and how its file was read."""

    rows: int
    columns: list[str]
    id: str | None = None
    categorical: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    form: dict[str, Any] = field(default_factory=dict)

    @property
    def codes(self) -> list[str]:
        """Columns that the model takes as categories, although they may look like numbers."""
        kinds = [column for column, kind in self.kinds.items() if kind == "categorical"]
        return list(dict.fromkeys([*kinds, *(name for name in self.categorical if name in self.columns)]))

    def form_of(self, file: Path, columns: list[str] | None = None) -> FileForm:
        """How a new file is to be read, as the job of the training read the first one."""
        form = FileForm.read(self.form).of_columns(self.columns if columns is None else columns)
        return form.of_kind(kind_of_file(file))


@dataclass(frozen=True)
class Read:
    """What somebody can finally read, of whose data: ``about`` one person or a total."""

    reader: str
    what: str
    about: str
    of: list[str]


@dataclass(frozen=True)
class Exposure:
    """What the selection gives away, what attacks have read of it, and what could be opened in this run."""

    selection: str
    opened: list[str]  # form first
    measured: str = "none measured"
    read: list[Read] = field(default_factory=list)


@dataclass(frozen=True)
class ModelCard:
    """Data, job, figures, what was sent and what it tells."""

    model: str
    kind: str  # the class of the model
    parameters: dict[str, Any]
    job_hash: str
    task: str
    classes: list[Any]
    label_holder: str
    label: str | None
    data: dict[str, PartyData]
    rows: int
    method: str
    selection: dict[str, Any]
    metrics: dict[str, float | None]
    metrics_of: str
    bytes: int
    messages: int
    notes: list[str]
    exposure: Exposure
    versions: dict[str, str]

    def write(self) -> dict[str, Any]:
        """Plain data, as ``card.json`` has it."""
        told = asdict(self)
        made: dict[str, Any] = plain({"format": FORMAT, "version": 1, "class": told.pop("kind"), **told})
        return made

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> ModelCard:
        given = {name: value for name, value in told.items() if name not in ("format", "version", "class")}
        exposure, known = dict(given.pop("exposure")), {each.name for each in fields(PartyData)}
        read = [Read(**line) for line in exposure.pop("read", [])]
        data = {
            name: PartyData(**{key: value for key, value in facts.items() if key in known})
            for name, facts in given.pop("data").items()
        }
        return cls(kind=told["class"], data=data, exposure=Exposure(**exposure, read=read), **given)

    def save(self, folder: Path) -> None:
        """For programs and for people."""
        write_atomic(folder / CARD, json.dumps(self.write(), indent=1, allow_nan=False) + "\n")
        write_atomic(folder / "card.md", self.text())

    def text(self) -> str:
        """For people."""
        figures = ", ".join(f"{name} {value:.3f}" for name, value in self.metrics.items() if value is not None)
        parties = [
            f"- {name}: {facts.rows:,} rows, columns {', '.join(facts.columns) or 'none'}"
            + (" (label holder)" if name == self.label_holder else "")
            for name, facts in self.data.items()
        ]
        made = self.versions
        classes = f"the classes of {self.label}: {', '.join(map(str, self.classes))}"
        lines = [
            f"# {self.kind} over {len(self.data)} parties", "",
            f"It predicts {classes if self.classes else f'the number {self.label}'}. Job {self.job_hash[:16]}, "
            f"model {self.model}, {self.rows:,} shared rows.", "",
            "## Data", *parties, "",
            "## How it was made", f"- columns chosen by {_set_to(self.method, self.selection)}",
            f"- trained as {_set_to(self.kind, self.parameters)}",
            f"- fedsift {made['fedsift']}, Python {made['python']}, numpy {made['numpy']}", "",
            "## How good", f"{figures or 'not measured'} ({self.metrics_of}).", "",
            "## Who can read what in the end", *_readers(self.exposure.read),
            f"- when it predicts, {self.label_holder}, of the others (one person): the score of each row that it asks "
            "about; they count how often, and how many rows a day are asked alone", "",
            "## What was inferred by attacks", f"Selection by {self.method}: {self.exposure.measured} as "
            "docs/exposure.md has it. fedsift audit JOB.toml attacks a rehearsal of this very job and model.", "",
            "## What was sent", f"{self.messages:,} messages, {self.bytes:,} bytes. Nothing was pooled.",
            "", "## Notes", *(f"- {note}" for note in self.notes),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def model_card(run: Run, model: FederatedModel) -> ModelCard:
    """What a reader must know of a model."""
    fed, ledger, settings = run.fed, run.ledger(), run.job.settings.parties
    scores = run.evaluation.lines()[0].mean if run.evaluation is not None else {}
    told = sorted({(e.form, e.about) for e in ledger.entries if e.form not in ("control", "ciphertext", "masked")})
    data = {}
    for name in fed.parties:
        table, columns = run.tables[name], run.own_selection(name).selected[name]
        data[name] = PartyData(
            table.n_rows, columns, settings[name].id, list(settings[name].categorical or ()), _kinds(table, columns),
            form_of(table),
        )  # fmt: skip
    opened = [f"{form}: {about}" for form, about in told]
    made = ModelCard(
        model=model.model_id_, kind=type(model).__name__, parameters=model.get_params(deep=False),
        job_hash=model.job_hash_, task=model.task_, classes=list(getattr(model, "classes_", ())),
        label_holder=fed.active, label=settings[fed.active].label, data=data, rows=fed.n_rows, method=run.job.method,
        selection=run.selector.get_params(deep=False), metrics=dict(scores),
        metrics_of="one split, 0.7 of the rows for training; nothing pooled", bytes=ledger.bytes(),
        messages=len(ledger), notes=list(ledger.notes), versions=versions(),
        exposure=Exposure(run.selector.leaks, opened, exposure(run.job.method), _read_by(run, ledger)),
    )  # fmt: skip
    return ModelCard.read(made.write())  # as its file has it


def _kinds(table: Table, columns: list[str]) -> dict[str, str]:
    """Nothing where the table is elsewhere: its party knows."""
    if not isinstance(table, Table):
        return {}
    return {column: "categorical" if table.kinds[column] == "categorical" else "numeric" for column in columns}


def _read_by(run: Run, ledger: Ledger) -> list[Read]:
    """Who can finally read what, of whose data: one person's or a total."""
    fed, who = run.fed, run.fed.job("", {})
    roles = Roles(tuple(fed.parties), (fed.active,), fed.partition, who.coordinator, who.submitter)
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for line in readings(ledger, roles):
        found.setdefault((line.reader, line.what, line.grain), {})[line.owner] = None
    return [Read(reader, what, grain, list(owners)) for (reader, what, grain), owners in sorted(found.items())]


def _set_to(name: str, parameters: Mapping[str, object]) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in parameters.items() if value is not None)
    return f"{name} ({shown})" if shown else name


def _readers(read: list[Read]) -> list[str]:
    """What is about one person first."""
    ordered = sorted(read, key=lambda line: line.about != PERSON)
    return [f"- {line.reader}, of {', '.join(line.of)} ({line.about}): {line.what}" for line in ordered]


def read_card(folder: Path) -> ModelCard:
    try:
        told = json.loads((folder / CARD).read_text(encoding="utf-8"))
        if told["format"] == FORMAT:
            return ModelCard.read(told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise DataError(f"{folder} is no model folder: give the folder that fedsift train wrote")
