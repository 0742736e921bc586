"""The record of an audit (``audit.json``), typed: what every rendering of it is made of.

It stands with the report because a run's report shows the audit of the same job. The keys of the JSON are the names of
the fields, but for the two ends of a message (``from`` and ``to``, which Python keeps for itself).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fedsift.core.files import plain, read_plain, write_plain

FORMAT, VERSION = "fedsift-audit", 1
EMPTY = "nothing was tested"


@dataclass(frozen=True)
class Line:
    """One exposure, as it was judged."""

    attack: str
    role: str
    party: str
    target: str
    metric: str
    value: float
    guess: float
    baseline: float
    control: float | None
    cpu_seconds: float
    knows: str
    declared: str
    note: str
    auc: float | None
    added: float
    adds: bool
    concerns: bool
    figure: float
    limit: float
    over: bool
    why: str
    found_nothing: bool
    how: str
    reads: list[str]
    stage: str = ""  # of a job that does more than select columns: the part that was attacked

    @property
    def titled(self) -> str:
        return readable(self.attack) + (f" ({self.stage})" if self.stage else "")

    @property
    def whom(self) -> str:
        return "the coordinator" if self.role == "coordinator" else f"{self.party} ({self.role})"

    @property
    def judged(self) -> str:
        """What it comes to, in words."""
        if self.over:
            return f"over the limit: {self.figure:.3f} > {self.limit:.3f}"
        if not self.concerns:
            return f"not judged: {self.why}"
        return f"below the limit: {self.figure:.3f}" if self.adds else "adds nothing"


@dataclass
class Disclosed:
    """What leaves for whom, or what a party learns."""

    operation: str
    what: str
    form: str
    learned: bool
    relayed: bool
    senders: Annotated[list[str], Field(alias="from")]
    receivers: Annotated[list[str], Field(alias="to")]
    messages: int
    bytes: int


@dataclass(frozen=True)
class Covered:
    """A kind of message, and which attacks read it or why none does."""

    operation: str
    form: str
    about: str
    status: str  # "attacked", "needs none" or "none yet"
    why: str  # the attacks by name, the waiver, or what is still to come


@dataclass(frozen=True)
class Verdict:
    """What it comes to, and why."""

    outcome: str  # "passed", "failed" or "incomplete"
    reasons: tuple[str, ...]
    label_auc: float  # the worst figures that concern the site and add to guess and baseline
    column_r2: float
    untested: tuple[str, ...] = ()  # what is here and no attack on it had anything to read

    @property
    def is_empty(self) -> bool:
        """Whether nothing was tested at all: no pass, whatever else is said."""
        return self.outcome == "incomplete" and any(reason.startswith(EMPTY) for reason in self.reasons)


@dataclass(frozen=True)
class SiteRead:
    """Whose audit it is; no party where all files are here."""

    party: str | None
    holds_label: bool
    stand_ins: str


@dataclass(frozen=True)
class Limits:
    """What the site's policy allows."""

    max_label_auc: float
    max_column_r2: float


@dataclass(frozen=True)
class AuditRecord:
    """The whole of it; ``table`` is the fingerprint of the site's own one."""

    format: str
    version: int
    made: str
    software: str
    job: str
    method: str
    parameters: dict[str, object]
    lowered: dict[str, object]
    leaks: str
    partition: str
    names: str
    site: SiteRead
    table: dict[str, object] | None
    active: str | None
    parties: dict[str, int]
    rows: int
    fresh_rows: int
    seconds: float
    limits: Limits
    policy: dict[str, object]
    exposures: list[Line]
    broken: dict[str, str]
    skipped: list[str]
    coverage: list[Covered]
    disclosures: list[Disclosed]
    forms: dict[str, str]
    notes: list[str]
    verdict: Verdict
    caveats: list[str]

    @property
    def outcome(self) -> str:
        return self.verdict.outcome

    @property
    def lines(self) -> list[Line]:
        """Over the limit first, then what concerns the site, then by what the messages add."""
        return sorted(self.exposures, key=lambda line: (not line.over, not line.concerns, -line.added))

    @property
    def tried(self) -> list[Line]:
        """The lines that had something to read."""
        return [line for line in self.lines if not line.found_nothing]

    @classmethod
    def read(cls, data: object) -> AuditRecord:
        """From plain data; ``ValueError`` where it is no record of an audit."""
        return read_plain(cls, data)

    def write(self) -> dict[str, object]:
        return write_plain(self)


def read_audit(job: Path, method: str, parameters: Mapping[str, object]) -> AuditRecord | None:
    """The audit that lies beside a job file, if it is of this method with these parameters."""
    try:
        text = (job.parent / f"{job.stem}-audit" / "audit.json").read_text(encoding="utf-8")
        record = AuditRecord.read(json.loads(text))
    except (OSError, ValueError):
        return None
    same = (record.format, record.method, record.parameters) == (FORMAT, method, plain(parameters))
    return record if same else None


def readable(attack: str) -> str:
    return attack.replace("_", " ")
