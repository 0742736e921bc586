"""Who can read what a step lets out, by the accepted job."""

from __future__ import annotations

from fedsift.core.job import NEUTRAL, Job
from fedsift.core.ledger import Release, numbers_in, other_persons
from fedsift.core.operation import Operation

COORDINATOR, NOBODY = "coordinator", "nobody"
RESULT = "result"  # who opens a figure of the answer itself


def readers_of(marked: Operation, job: Job, holders: tuple[str, ...]) -> tuple[str, ...]:
    """Of those that hold rows of the same people (``holders``); ``("coordinator",)`` is one who holds none of them, and
    the party whose step it is is no reader."""
    opened_by = marked.opened_by
    if marked.opened_form in ("control", "ciphertext", "masked"):
        return (NOBODY,)
    if opened_by in (COORDINATOR, RESULT):
        runs = [name for name in dict.fromkeys((job.coordinator, job.submitter)) if name in holders]
        return tuple(runs) or (COORDINATOR,)
    roles = {"active": ("active",), "passive": ("passive",)}.get(opened_by, ("active", "passive"))
    return tuple(name for name in holders if job.role_of(name) in roles) or (COORDINATOR,)


def reader_of_noise(job: Job, party: str) -> str:
    """Who reads what carries noise."""
    return COORDINATOR if job.coordinator in (NEUTRAL, party) else job.coordinator


def released_to(marked: Operation, job: Job, holders: tuple[str, ...], value: object) -> Release:
    """What a reply releases. Sums that parties with the same columns read are of other persons, and no numbers about
    these, unless ids were matched with one of them: the job calls parties horizontal that are not."""
    if marked.releases is other_persons and job.partition == "horizontal" and holders:
        return numbers_in(value)
    return marked.released(value)
