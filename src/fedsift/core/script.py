"""The script of a run at one site: which job it belongs to, what was asked already, what may come next.

A request is looked at in this order: it names the job that this run has accepted; it is not one that was answered
before (the same bytes again get the stored reply, nothing is computed twice; an older round is refused, for a mask
belongs to a round); its operation is for this party's role, comes after the step that it needs, and has not been asked
as often as it declares. Counts are of the whole job, sessions inside its session
included, unless the operation says otherwise.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedsift.core.job import Job
from fedsift.core.operation import Operation
from fedsift.errors import OperationRefused

#: A session inside a session carries the outer one's name first; so many may be open in one run at the same time.
MAX_SESSIONS = 1000
_EACH = " a session"
_UNSAID = object()


def run_of(session: str) -> str:
    """The run that a session belongs to."""
    return session.partition(".")[0]


def _counted(marked: Operation, session: str) -> str:
    """Under which name an operation is counted."""
    return f"{marked.id} in {session}" if str(marked.times).endswith(_EACH) else marked.id


@dataclass
class _Answered:
    round: int
    digest: bytes
    reply: bytes


def other_form(marked: Operation, job: Job) -> str:
    """Which parameter of the job says that this is a step of another form of the method; empty where none does."""
    for form in marked.when:
        parameter, _, values = form.partition("=")
        told = job.says(parameter)
        if told not in values.split("|") and not (parameter == "protection" and len(job.parties) == 1):
            return f"{parameter} = {told!r}"
    return ""


@dataclass
class Run:
    """What a site remembers of one run."""

    job: Job | None = None
    asked: Counter[str] = field(default_factory=Counter)
    answered: dict[str, _Answered] = field(default_factory=dict)  # session -> its last request
    kept: dict[type, Any] = field(default_factory=dict, repr=False)  # for all sessions of the run: keys, say

    def check_job(self, named: bytes, party: str, operation: str) -> None:
        """The request must name the job that was accepted for this run, and no other."""
        if named and self.job is None:
            raise OperationRefused(
                party, operation, "it names a job that was not announced in this session: announce it first (begin_job)"
            )
        if self.job is not None and named != self.job.hash:
            raise OperationRefused(
                party, operation,
                f"it names another job than the one that this party has accepted ({self.job.method!r}, "
                f"{self.job.hash.hex()[:12]}): all parties must be told the same; start the job again",
            )  # fmt: skip

    def stored_reply(self, session: str, round: int, data: bytes, party: str, operation: str) -> bytes | None:
        """The reply to the same bytes, if they are the session's last request; a round that is over is refused."""
        last = self.answered.get(session)
        if last is None or round > last.round:
            return None
        if round == last.round and hashlib.sha256(data).digest() == last.digest:
            return last.reply
        raise OperationRefused(party, operation, "its round is over: a later request of this session was answered")

    def count(self, marked: Operation, session: str) -> None:
        """Note that the operation is about to run."""
        self.asked.update({marked.id, _counted(marked, session)})

    def keep_reply(self, session: str, round: int, data: bytes, reply: bytes) -> None:
        self.answered[session] = _Answered(round, hashlib.sha256(data).digest(), reply)

    def check_step(self, marked: Operation, arguments: Mapping[str, Any], session: str, party: str) -> None:
        """Refuse a step that is not this party's, comes too early or too often, or is not as the job says.

        (A party alone has nobody to be protected from: methods take their open form.)
        """

        def refused(what: str) -> OperationRefused:
            return OperationRefused(party, marked.short_name, what)

        if session not in self.answered and len(self.answered) >= MAX_SESSIONS:
            raise refused(f"more than {MAX_SESSIONS} sessions in one run")
        if marked.after and not any(self.asked[before] for before in marked.after):
            raise refused(f"it comes after {' or '.join(marked.after)}, which was not asked in this run")
        most = self.most(marked)
        if most is not None and self.asked[_counted(marked, session)] >= most:
            raise refused(f"it was asked {most} times already in this run, which is as often as it declares")
        if self.job is None:
            return
        if marked.role not in ("any", self.job.role_of(party)):
            raise refused(f"it is for {marked.role} parties, and this one is {self.job.role_of(party)}")
        for name, mark in marked.named(arguments):
            if name not in self.job.parties or (mark.labels and self.job.role_of(name) != "active"):
                whose = "label holders" if mark.labels else "parties"
                raise refused(f"it speaks of {name[:60]!r}, which is none of the {whose} of the accepted job")
        other = other_form(marked, self.job)
        if other:
            raise refused(f"it is no step of a job with {other}, which this party has accepted")
        if marked.min_cell in arguments and arguments[marked.min_cell] < self.job.smallest_cell:
            raise refused("it would count smaller groups of rows than the accepted job allows")
        for setting in marked.settings:
            name, _, parameter = setting.partition("=")
            wanted = self.job.parameters.get(parameter or name, _UNSAID)
            if wanted is not _UNSAID and name in arguments and arguments[name] != wanted:
                raise refused(f"its {name!r} is another than that of the accepted job")

    def most(self, marked: Operation) -> int | None:
        """How often the operation may be asked in this run; ``None`` where that is not declared."""
        if marked.times is None or isinstance(marked.times, int):
            return marked.times
        product = 1
        for factor in marked.times.removesuffix(_EACH).split(" x "):
            product *= self._factor(factor.strip())
        return product

    def _factor(self, factor: str) -> int:
        """A number, the number of parties, or a parameter of the job: of ``"max_iter or rounds or 100"`` the first
        that there is."""
        for choice in map(str.strip, factor.split(" or ")):
            if choice.isdigit():
                return int(choice)
            if self.job is not None:
                value = len(self.job.parties) if choice == "parties" else self.job.parameters.get(choice)
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
        return 1
