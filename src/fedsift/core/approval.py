"""A job that has to wait for people: where a site's own rules ask for their approval, whoever announces it asks again.

The job waits at the site, in a file of its own (``site/approval.py``). A site that needs an approval answers the
announcement with ``ApprovalPending``; then all jobs that are planned (alignment, the method, what evaluating it takes)
are put to the sites in one proposal, so that people decide once, and the proposal is repeated, more and more rarely,
until all have approved or one has refused. Nothing else is asked meanwhile. A coordinator that ends, or is started
again days later, announces the same job (the same hash) and finds the request or the approval where it left it.

A coordinator hears "waiting until" or a refusal, no more. It cannot approve: an approval is a file that is signed with
the site's key, and no operation writes one.
"""

from __future__ import annotations

import copy
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Protocol

from fedsift.core.arguments import AtMost
from fedsift.core.exchange import Exchange
from fedsift.core.job import Job
from fedsift.core.operation import Answering, R, operation
from fedsift.core.party import MAX_VIEWS, Party, begin_job, end_session
from fedsift.errors import ApprovalPending, OperationRefused, PartyError, ReplyError

MAX_JOBS = 50  # in one proposal
FIRST_PAUSE, LONGEST_PAUSE, SLOWER = 1.0, 30.0, 1.5  # seconds between two questions
_ATTEMPTS = 3  # an approval may lapse between the last question and the announcement
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)?")


class Announcer(Protocol):
    """What a federation is here, which announces its jobs by this file."""

    parties: list[str]
    _link: Exchange
    _session: str
    _job: Job | None

    def ask(
        self, operation: Answering[R], *, to: Sequence[str], each: None = None, timeout: float | None = None,
        **same: Any,
    ) -> dict[str, R]: ...  # fmt: skip

    def job(self, method: str, parameters: Mapping[str, object]) -> Job: ...


@operation(
    "core.propose_jobs", discloses="control", about="until when the jobs wait for its people; nothing once approved",
    reply=str, times=MAX_VIEWS,
)  # fmt: skip
def propose_jobs(party: Party, *, jobs: Annotated[list[bytes], AtMost(MAX_JOBS)]) -> str:
    """Put jobs to the people of this site, all together; the same jobs again are the same request."""
    if not jobs:
        raise OperationRefused(party.name, "propose_jobs", "a proposal has at least one job")
    return party.site.proposed([Job.read(job, party.name) for job in jobs])


def plan(fed: Announcer, announcements: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Say which methods (names and parameters) will be announced, so that people approve all of them at once."""
    fed._link.planned = [fed.job(method, parameters) for method, parameters in announcements]


def announce(fed: Announcer, job: Job) -> None:
    """Put the job to every party of this session, and wait for the people of those that ask for approval."""
    for _ in range(_ATTEMPTS - 1):
        try:
            fed.ask(begin_job, to=fed.parties, job=job.canonical)
            return
        except ApprovalPending:
            with suppress(PartyError):  # those that have accepted it already: the run begins anew
                fed.ask(end_session, to=fed.parties, session=fed._session, timeout=5.0)
            _wait(fed, job)
            outer, dot, _ = fed._session.rpartition(".")
            fed._session = f"{outer}{dot}{secrets.token_hex(8)}"
    fed.ask(begin_job, to=fed.parties, job=job.canonical)


def _wait(fed: Announcer, job: Job) -> None:
    planned = {each.hash: each for each in (job, *fed._link.planned)}.values()  # each once
    asking = copy.copy(fed)
    asking._session, asking._job = "", None
    pause = FIRST_PAUSE
    while True:
        told = asking.ask(propose_jobs, to=fed.parties, jobs=[each.canonical for each in planned])
        odd = next((name for name, until in told.items() if not _TIME.fullmatch(until)), None)
        if odd is not None:
            raise ReplyError(odd, "propose_jobs", "its reply is no time")
        waiting = {name: until for name, until in told.items() if until}
        fed._link.work.waiting(waiting)
        if not waiting:
            return
        fed._link.transport.pause(pause)
        pause = min(pause * SLOWER, LONGEST_PAUSE)
