"""The record of an audit (``audit.json``) read into types: what the annex and the evidence are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from fedsift.report.exposures import in_order, judged, whom

T = TypeVar("T")


def _taken(kind: type[T], data: Mapping[str, Any], **made: object) -> T:
    """A dataclass from the entries of the same names, and what was made of others."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: made[name] if name in made else data[name] for name in names})


@dataclass(frozen=True)
class Line:
    """One exposure, as it was judged."""

    attack: str
    target: str
    metric: str
    value: float
    guess: float
    baseline: float
    control: float | None
    knows: str
    how: str
    over: bool
    concerns: bool
    found_nothing: bool
    whom: str
    judged: str


@dataclass(frozen=True)
class Disclosed:
    """What leaves for whom, or what a party learns."""

    operation: str
    what: str
    form: str
    learned: bool
    relayed: bool
    senders: list[str]
    receivers: list[str]
    bytes: int


@dataclass(frozen=True)
class Attacked:
    """A kind of message, and which attacks read it or why none does."""

    operation: str
    form: str
    about: str
    status: str
    why: str


@dataclass(frozen=True)
class SiteRead:
    """Whose audit it is; no party where all files are here."""

    party: str | None
    holds_label: bool
    stand_ins: str


@dataclass(frozen=True)
class AuditRecord:
    """The whole of it; ``lines`` come over the limit first."""

    job: str
    method: str
    made: str
    software: str
    rows: int
    active: str | None
    names: str
    parties: dict[str, int]
    parameters: dict[str, object]
    policy: dict[str, object]
    limits: dict[str, float]
    forms: dict[str, str]
    caveats: list[str]
    outcome: str
    reasons: list[str]
    untested: list[str]  # what is here and no attack on it had anything to read
    site: SiteRead
    lines: list[Line]
    coverage: list[Attacked]
    disclosures: list[Disclosed]

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> AuditRecord:
        verdict = data["verdict"]
        return _taken(
            cls, data, outcome=verdict["outcome"], reasons=verdict["reasons"], untested=verdict["untested"],
            site=_taken(SiteRead, data["site"]),
            lines=[_taken(Line, e, whom=whom(e), judged=judged(e)) for e in in_order(data["exposures"])],
            coverage=[_taken(Attacked, each) for each in data["coverage"]],
            disclosures=[_taken(Disclosed, d, senders=d["from"], receivers=d["to"]) for d in data["disclosures"]],
        )  # fmt: skip
