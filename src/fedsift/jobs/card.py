"""The card of a trained model: what a reader must know of it, and what new rows need to be like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fedsift.core.files import plain, write_atomic
from fedsift.core.wanted import FileForm, kind_of_file
from fedsift.errors import DataError

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
    leaks: str  # of the selection
    opened: list[str]  # what somebody could open, form first
    versions: dict[str, str]

    def write(self) -> dict[str, Any]:
        """Plain data, as ``card.json`` has it."""
        told = asdict(self)
        exposure = {"selection": told.pop("leaks"), "opened": told.pop("opened")}
        made: dict[str, Any] = plain(
            {"format": FORMAT, "version": 1, "class": told.pop("kind"), **told, "exposure": exposure}
        )
        return made

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> ModelCard:
        given = {name: value for name, value in told.items() if name not in ("format", "version", "class", "exposure")}
        known = {each.name for each in fields(PartyData)}
        data = {
            name: PartyData(**{key: value for key, value in facts.items() if key in known})
            for name, facts in given.pop("data").items()
        }
        return cls(
            kind=told["class"], leaks=told["exposure"]["selection"], opened=told["exposure"]["opened"], data=data,
            **given,
        )  # fmt: skip

    def save(self, folder: Path) -> None:
        write_atomic(folder / CARD, json.dumps(self.write(), indent=1, allow_nan=False) + "\n")

    def text(self) -> str:
        """For people."""
        figures = ", ".join(f"{name} {value:.3f}" for name, value in self.metrics.items() if value is not None)
        parties = [
            f"- {name}: {facts.rows:,} rows, columns {', '.join(facts.columns) or 'none'}"
            + (" (label holder)" if name == self.label_holder else "")
            for name, facts in self.data.items()
        ]
        lines = [
            f"# {self.kind} over {len(self.data)} parties", "",
            f"Job {self.job_hash[:16]}, model {self.model}, {self.rows:,} shared rows, {self.task}.",
            f"Columns chosen by {self.method}.", "", "## Data", *parties, "",
            "## How good", f"{figures or 'not measured'} ({self.metrics_of}).", "",
            "## What was sent", f"{self.messages:,} messages, {self.bytes:,} bytes. Nothing was pooled.",
            *(f"- {line}" for line in self.opened), "", "## Notes", *(f"- {note}" for note in self.notes),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def read_card(folder: Path) -> ModelCard:
    try:
        told = json.loads((folder / CARD).read_text(encoding="utf-8"))
        if told["format"] == FORMAT:
            return ModelCard.read(told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise DataError(f"{folder} is no model folder: give the folder that fedsift train wrote")
