"""The records of what people at a site were asked and decided: a request, a decision, its signatures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Literal

from fedsift.core.identity import SigningKey
from fedsift.core.job import Job
from fedsift.methods import METHODS

_TITLE = b"fedsift decision v1\n"


def as_text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def as_time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class Request:
    """Jobs that people decide on together, and the kind of table that the site had when they were put to it."""

    party: str
    jobs: tuple[Job, ...]
    asked: str
    until: str
    schema: str
    rows: int

    @property
    def id(self) -> str:
        return request_id(self.jobs)

    @property
    def main(self) -> Job:
        """What people came for: the first job that is more than an alignment."""
        return next((job for job in self.jobs if job.method in METHODS), self.jobs[-1])

    def covers(self, job: Job) -> bool:
        """Whether it is one of these jobs; ``task = "auto"`` stands for the task that the label turns out to be."""
        return any(job in (each, replace(each, task=job.task) if each.task == "auto" else each) for each in self.jobs)


def request_id(jobs: Sequence[Job]) -> str:
    """The hash of a job, or of several together."""
    return jobs[0].hash.hex() if len(jobs) == 1 else hashlib.sha256(b"".join(job.hash for job in jobs)).hexdigest()


@dataclass(frozen=True)
class Decision:
    """What one person decided. ``sent``: whether the reason goes to whoever submitted the job."""

    party: str
    request: str
    jobs: tuple[str, ...]
    software: str
    schema: str
    rows: int
    audit: str
    word: Literal["approved", "refused"]
    by: str
    at: str
    until: str
    why: str = ""
    sent: bool = False

    @property
    def statement(self) -> bytes:
        return _TITLE + json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Signed:
    """A decision with the site's signature, and the person's where the site knows the persons' keys."""

    decision: Decision
    signature: str
    person: str = ""  # the person's public key, and signature
    person_signature: str = ""

    @classmethod
    def by(cls, decision: Decision, site: SigningKey, person: SigningKey | None = None) -> Signed:
        own = ("", "") if person is None else (person.public.hex(), person.sign(decision.statement).hex())
        return cls(decision, site.sign(decision.statement).hex(), *own)
