"""The office of a site: what its people look at and decide, by the files that lie there. No value of a table is read.

The command line (``fedsift party pending | approve | refuse | stop``) and the desk's pages show the same things through
this one class, so that neither can do what the other cannot.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedsift.core.identity import SigningKey
from fedsift.deploy.status import ENDED, RUNNING, read_status, write_status
from fedsift.desk.past import PastJob, Refusal, ran_in, refused_by
from fedsift.errors import ParameterError
from fedsift.site import gate
from fedsift.site.approval import APPROVED, Approvals
from fedsift.site.decisions import Decision
from fedsift.site.journal import Journal, Line, Place, now
from fedsift.site.journal_facts import DECISION, JournalFacts
from fedsift.site.policy import Policy
from fedsift.site.record import NAME
from fedsift.site.secrets import Secrets, read_key
from fedsift.site.settings import PartyFile, load_party

RESULTS = "results"  # beside party.toml: a folder for each job that ran here


@dataclass(frozen=True)
class Person:
    """Who decides: a name, and the person's own key where the site knows persons by their keys."""

    name: str
    key: SigningKey | None = None

    @classmethod
    def of(cls, name: str | None, key: Path | None) -> Person:
        """As the command line names a person; without a name the user of this machine's account."""
        return cls(name or getpass.getuser(), None if key is None else SigningKey(read_key(key)))


@dataclass(frozen=True)
class JobHere:
    """A job that runs or ran at this site, as its status file says."""

    id: str
    folder: Path
    state: str
    method: str
    since: str
    at: str
    why: str

    @property
    def running(self) -> bool:
        return self.state == RUNNING

    @property
    def ledger(self) -> Path:
        return self.folder / NAME


class Office:
    """The files of one site."""

    def __init__(self, path: Path):
        self.path = path
        self.settings: PartyFile = load_party(path)[0]
        self.folder = path.parent
        self.secrets = Secrets.open(self.folder / self.settings.party.secrets)
        self.approvals: Approvals = self.settings.approvals(self.folder, self.secrets.signing_key.public)

    @property
    def name(self) -> str:
        return self.settings.party.name

    def decide(
        self, named: str, word: Literal["approved", "refused"], person: Person, *, why: str = "", sent: bool = False
    ) -> Decision:
        """Approve or refuse a request; the decision stands in the journal too."""
        request = self.approvals.find(named).request
        decision = self.approvals.decide(
            request, word, person.name, self.secrets.signing_key, why=why, sent=sent, person=person.key
        )
        self._note(request.main.hash.hex(), request.main.method, word, decision.by, f"{why} (audit: {decision.audit})")
        return decision

    def stop(self, named: str, person: Person, *, why: str = "") -> JobHere:
        """Stop a job that runs here: nothing of it leaves from now on, and its approval is taken back."""
        job = self.job(named)
        if not job.running:
            raise ParameterError(f"{named[:80]!r} does not run any more")
        gate.stop(job.folder, person.name, why)
        reason = f": {why}" if why else ""
        write_status(job.folder, ENDED, why=f"stopped by {person.name}{reason}")
        self._note("", job.method, "stopped", person.name, f"{why} (job {job.id})")
        with suppress(ParameterError):  # who may not decide may stop all the same
            self._take_back(job, person, why)
        return self.job(named)

    def _take_back(self, job: JobHere, person: Person, why: str) -> None:
        """Without it whoever submitted the job could begin it again at once."""
        ran = {file.stem.rpartition("-")[2] for file in gate.remembered(job.folder)}
        for standing in self.approvals.standings():
            if standing.state == APPROVED and standing.request.main.hash.hex() in ran:
                self.decide(standing.request.id, "refused", person, why=f"stopped: {why}")

    def jobs(self) -> list[JobHere]:
        """All jobs that ran or run here, the newest first."""
        folder = self.folder / RESULTS
        found = []
        for each in sorted(folder.iterdir()) if folder.is_dir() else ():
            told = {key: str(value) for key, value in read_status(each).items()}
            if "state" in told:
                why = told.get("why", told.get("refused", ""))
                fields = (told["state"], told.get("method", "?"), told.get("since", ""), told.get("at", ""), why)
                found.append(JobHere(each.name, each, *fields))
        return sorted(found, key=lambda job: (job.since, job.id), reverse=True)

    def job(self, named: str) -> JobHere:
        found = [job for job in self.jobs() if job.id == named]
        if len(found) != 1:
            raise ParameterError(f"no job here is called {named[:80]!r}")
        return found[0]

    def past_jobs(self) -> list[PastJob]:
        """All jobs that were put to this site's people or that it accepted, as far as its files tell; each once."""
        put = (job for each in self.approvals.standings(past=True) for job in each.request.jobs)
        found = {job.hash: PastJob(job) for job in put}
        for job in self.jobs():
            found |= {each.job.hash: each for each in ran_in(job.folder, self.name)}
        return list(found.values())

    def refused_by(self, policy: Policy) -> list[Refusal]:
        """Which of its past jobs these rules would have refused, and why."""
        with self._journal() as kept:
            return refused_by(policy, self.name, self.past_jobs(), kept)

    def journal(self) -> JournalFacts:
        with self._journal() as kept:
            return JournalFacts.of(kept, self.name, self.settings.policy)

    @contextmanager
    def _journal(self) -> Iterator[Journal]:
        kept = Journal.open(Place.of(self.folder, self.secrets.folder, self.name), self.secrets.journal_key)
        try:
            yield kept
        finally:
            kept.close()

    def _note(self, job: str, method: str, word: str, by: str, more: str) -> None:
        """A line in the journal that says who decided what; nothing was let out by it."""
        with self._journal() as kept, kept.writing() as journal:
            journal.add(
                Line(now(), job, "", method, word, "nobody", b"", 0, "", DECISION, note=f"by {by}: {more}"[:500])
            )
