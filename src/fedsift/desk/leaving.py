"""What a job would let out of a site: declared by its operations, in words, and finally readable by whom."""

from __future__ import annotations

from dataclasses import dataclass

from fedsift.core.job import Job
from fedsift.core.operation import Operation
from fedsift.evaluate import announced
from fedsift.mpc import psi
from fedsift.site.policy import listed

ACKNOWLEDGEMENT = "acknowledgement"


@dataclass(frozen=True)
class Leaving:
    """One kind of thing: as it travels, and what its reader can open or compute of it."""

    operation: str
    what: str
    form: str
    opened: str
    opened_form: str
    readers: str


def leaving(job: Job, party: str) -> list[Leaving]:
    """What the job's method lists for this party's role. Which of it is asked for depends on the job's parameters:
    ``fedsift party check`` rehearses that."""
    role = job.role_of(party)
    found = [
        Leaving(marked.id, marked.about, marked.discloses, marked.opened.partition(":")[2].strip(), marked.opened_form,
                _readers(marked, job, party))
        for marked in listed(job.method, job.purpose)
        if marked.role in ("any", role) and marked.about != ACKNOWLEDGEMENT and marked.discloses != "control"
    ]  # fmt: skip
    order = ["plain", "pseudonymous", "aggregate", "masked", "ciphertext", "control"]
    return sorted(found, key=lambda line: (order.index(line.opened_form), line.operation))


def _readers(marked: Operation, job: Job, party: str) -> str:
    others = [name for name in job.parties if name != party]
    holders = [name for name in others if job.role_of(name) == "active"]
    runner = "the coordinator" + ("" if job.coordinator == "neutral" else f" ({job.coordinator})")
    if marked.opened_form in ("ciphertext", "masked"):
        return "nobody alone"
    if marked.opened_by == "result":
        return "who gets the result" + ("" if job.submitter == "neutral" else f" ({job.submitter})")
    if marked.opened_by == "active":
        return ", ".join(holders) or runner
    if marked.opened_by == "passive":
        return ", ".join(name for name in others if name not in holders) or runner
    return ", ".join(others) if marked.opened_by == "parties" else runner


def meaning(job: Job) -> str:
    """What a job is for, in a sentence."""
    if job.method == psi.JOB:
        return "Find the rows that the parties share, by ids under pseudonyms."
    known = announced.find_job(job.method)
    text = (known.__doc__ or "").strip().partition("\n")[0] if known is not None else ""
    return text or "Unknown here."


def gives_away(job: Job) -> str:
    """What its method says of itself."""
    known = announced.find_job(job.method)
    return str(getattr(known, "leaks", "") or "")
