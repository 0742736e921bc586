"""A site with a policy: ``party.toml`` names the data and the rules, ``open_site`` makes the end that a transport asks.

Everything here is decided by the file on this machine. A request carries the name of an operation, its arguments and
the name of a view; there is no operation that reads a file or takes a path, and the table is loaded before the first
request, with the allowed columns only. Whatever else stands in the data file is never in memory while a job runs.

Every request is judged before its operation runs (``policy.py``), and views of rows that an operation has defined are
judged before its acknowledgement leaves: one that is too small is taken back. Rows that a view names twice count once.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedsift.core.exchange import Request
from fedsift.core.identity import Identity
from fedsift.core.job import PREDICTIONS, Run, run_of
from fedsift.core.job import Job as Contract
from fedsift.core.message import decode
from fedsift.core.operation import Operation, find_operation
from fedsift.core.party import Party, Site, begin_job, define_view, describe_label
from fedsift.core.table import Table
from fedsift.errors import FedsiftError, OperationRefused, ParameterError, PolicyRefused
from fedsift.evaluate import announced
from fedsift.jobs.job_file import Job
from fedsift.mpc import psi
from fedsift.mpc.shared_rows import VIEW
from fedsift.site import gate, verdict
from fedsift.site.approval import Approvals
from fedsift.site.few_rows import FewRows
from fedsift.site.journal import Journal, Place
from fedsift.site.journal_noise import is_noisy
from fedsift.site.journal_rules import Asked, JournalRules
from fedsift.site.policy import ERRORS, Policy, is_core
from fedsift.site.record import SiteLedger
from fedsift.site.secrets import Secrets
from fedsift.site.settings import load_party, read_party
from fedsift.site.submitted import Announcement, purpose_of, read_submitted

MAX_RUNS = 100  # under way at the same time


def open_site(path: str | Path, job: Job | Mapping[str, object] | None = None) -> PolicySite:
    """The site of a party file.

    ``job`` is what the site already knows of the job that it is opened for: a ``Job``, or a mapping with ``parties``
    and ``method`` (its ``name`` and parameters), maybe with ``evaluate``. A job that the policy refuses is refused
    here, before any data are read, and the site then runs this method, what evaluating it takes, and nothing else.
    """
    settings, source = load_party(path)
    name, accepted = settings.party.name, None
    if job is not None:
        parties, accepted = read_submitted(job)
        if name not in parties:
            told = ", ".join(parties)
            raise ParameterError(f"the job has no party {name!r} (the name in {path}); it has {told}")
        for each in accepted:
            settings.policy.check_job(name, *each)
    own = Secrets.open(Path(path).parent / settings.party.secrets)
    identity = Identity(own.signing_key, settings.pins())
    table, persons = read_party(source, settings.party)
    journal = Journal.open(Place.of(Path(path).parent, own.folder, name), own.journal_key)
    site = PolicySite(name, table, settings.policy, accepted, own.draw_secret, identity, journal, persons)
    site.workers, site.engine = settings.party.workers, settings.party.engine
    site.pad_rows = settings.party.pad_rows
    site.keep_results = settings.party.keep_results
    site.audits = Path(path).parent / verdict.FOLDER
    site.approvals = settings.approvals(Path(path).parent, own.signing_key.public, verdict.Fingerprint.of(table))
    site.few.only = None if job is None else purpose_of(job)
    for each in accepted or ():
        site.check_audit(*each)
    return site


class PolicySite(Site):
    """A site that judges every request by its policy. ``handle`` answers a refused one with a ``PolicyRefused``."""

    def __init__(
        self, name: str, table: Table, policy: Policy, accepted: list[Announcement] | None = None,
        secret: bytes | None = None, identity: Identity | None = None, journal: Journal | None = None,
        persons: np.ndarray | None = None,
    ):  # fmt: skip
        super().__init__(name, table, secret, identity)
        self.policy, self.min_cell = policy, policy.min_cell
        self.accepted = accepted  # the only jobs, when the site was opened for one
        self.job_folder: Path | None = None  # where a deployed site keeps its part of the result
        self.ledger: SiteLedger | None = None  # what it answered and refused, in a file of its own
        self.keep_results = 366  # days after which the folder of a job that has ended is removed
        self.audits: Path | None = None  # where this site's own audits are stored
        self.approvals: Approvals | None = None  # what its people have to approve
        self.journal = JournalRules(name, table, persons, policy, journal or Journal.in_memory())
        self.rows_of_job = self.journal.rows_of_job
        self.few = FewRows(name, self.journal)  # that may be predicted
        self._accepted = dict(self.views)  # views as they were when they were last judged
        self._distinct: dict[str, tuple[Any, int]] = {}  # view -> its rows, and how many different ones they are
        self._all = np.arange(table.n_rows)
        codes = self._all if persons is None else np.unique(persons, return_inverse=True)[1]
        self._persons = codes.reshape(-1)  # of each row, a number that its person's rows share
        self._most_rows = int(np.bincount(self._persons).max(initial=1))  # that one person has

    def _before(self, marked: Operation, request: Request) -> None:
        gate.check_going_on(self.name, marked.short_name, self.job_folder)
        run, arguments = self.runs.get(run_of(request.session)), request.arguments
        if marked is begin_job:
            job = Contract.read(arguments["job"], self.name)
            self._judge_job(job, request.session)
            self._check_approved(job)
            gate.remember(self.job_folder, job)
            return
        job_here, rows = run.job if run is not None else None, self.views.get(request.view, (None, None))[0]
        self._judge(marked, arguments, job_here)
        self.few.check_step(marked, arguments, job_here)
        if self.few.is_closed(marked, job_here, rows):
            self.policy.check_rows(self.name, marked.short_name, self.distinct_rows(request.view))
        if marked is define_view:
            self._check_order(arguments.get("rows"))
        if marked in psi.LISTS and run is not None and run.job is not None:
            self._enter_alignment(run.job, attempt_of(run))
        if not is_core(marked) and marked not in psi.OPERATIONS and request.view in self.views:
            self._judge_rows(marked, request.view, run)
            if marked.sums and not (run is not None and run.job is not None and is_noisy(run.job)):
                self._judge_sums(marked, request.view)
        asked = self._asked(marked, request)
        if asked is not None:
            self._enter(asked)

    def _failed(self, marked: Operation, request: Request) -> None:
        """That an operation failed on these rows tells one bit about them, like a refusal."""
        run = self.runs.get(run_of(request.session))
        if run is not None and run.job is not None and touches_rows(marked):
            self.journal.note_refusal(marked, run.job, attempt_of(run))

    def _check_order(self, rows: np.ndarray | None) -> None:
        """Rows in the order of the view, each once. One that is named a thousand times counts once in every rule here
        and weighs a thousand in a sum; one that changes places with another is put beside somebody else's columns."""
        if rows is not None and (np.diff(rows) <= 0).any():
            raise OperationRefused(
                self.name, "define_view", "a view names rows in the order of the one that it is taken of, each once"
            )

    def _asked(self, marked: Operation, request: Request) -> Asked | None:
        """For the journal: what is about to be computed, about which rows and columns; ``None`` where nothing is."""
        run = self.runs.get(run_of(request.session))
        if run is None or run.job is None or request.view not in self.views or not touches_rows(marked):
            return None
        rows, columns = self.views[request.view]
        return Asked(
            marked, run.job, attempt_of(run), self._all if rows is None else rows,
            tuple(self.table.columns if columns is None else columns),
        )  # fmt: skip

    def _judge(self, marked: Operation, arguments: dict[str, object], job: Contract | None) -> None:
        self.policy.check_operation(self.name, marked, arguments, job)

    def _judge_rows(self, marked: Operation, view: str, run: Run | None) -> None:
        """Refuse too few persons, but for predictions. Where one has several rows, a refusal tells something about
        them, and counts."""
        if self.few.allows(run.job if run is not None else None, self.views[view][0]):
            return
        job = run.job if run is not None and self._most_rows > 1 else None
        if job is not None:
            self.journal.check_refusals(marked.short_name, job)
        try:
            self.policy.check_rows(self.name, marked.short_name, self.distinct_rows(view))
        except PolicyRefused:
            if run is not None and job is not None:
                self.journal.note_refusal(marked, job, attempt_of(run))
            raise

    def _judge_sums(self, marked: Operation, view: str) -> None:
        """Of no column may the two largest values make up nearly all of the sum: it would tell them."""
        rows, columns = self.views[view]
        table = self.table if columns is None else self.table.select(columns)
        share = 0.0
        for column in table.numeric_columns:
            values = np.abs(np.nan_to_num(table.values(column)))
            values = values if rows is None else values[rows]
            total = values.sum()
            if total > 0:
                share = max(share, float(np.partition(values, -min(2, len(values)))[-2:].sum() / total))
        self.policy.check_share(self.name, marked.short_name, share)

    def _enter(self, asked: Asked) -> None:
        if asked.job.purpose == PREDICTIONS:  # of each row by itself: nothing that cuts the table
            if asked.job.role_of(self.name) != "active":
                self.journal.check_refusals(asked.marked.short_name, asked.job)
        elif tells(asked.marked):
            self.journal.enter(asked)
        else:
            self.journal.enter_rows(asked, told=asked.marked is describe_label)

    def enter_part(self, party: Party, rows: np.ndarray, step: str) -> None:
        """What is told about these rows, and about the others of the view, is told apart: they cut the table."""
        if party.run.job is not None:
            job, attempt = party.run.job, attempt_of(party.run)
            asked = Asked(find_operation(step, self.name), job, attempt, rows, tuple(party.columns))
            self.journal.enter_rows(asked, told=False)

    def tell_sides(self, party: Party, step: str, sides: int, held: float, answer: bytes = b"") -> None:
        """On which side of cuts the label holder hears that rows lie: refused, before it leaves, where it is much."""
        if sides and party.run.job is not None:
            job, attempt = party.run.job, attempt_of(party.run)
            asked = Asked(find_operation(step, self.name), job, attempt, party.row_numbers, tuple(party.columns))
            self.journal.tell_sides(asked, sides, held, answer)

    def _enter_alignment(self, job: Contract, attempt: str) -> None:
        self.journal.enter_alignment(job, attempt, self.few.ids_of(job))

    def _write(self, asked: Asked, value: object) -> None:
        self.journal.write(asked, value)

    def check_audit(self, method: str, parameters: dict[str, object]) -> None:
        """Refuse a job that this site's own stored audits do not let pass, where its policy asks for one."""
        verdict.check_audit(self.audits, self.policy, self.name, method, parameters, self.table)

    def _judge_job(self, job: Contract, session: str) -> None:
        self.policy.check_job(self.name, job.method, job.parameters)
        self.policy.check_partition(self.name, job)
        self.few.check_job(job)
        if job.partition == "vertical" and set(job.label_parties) - {job.active}:
            raise OperationRefused(self.name, "begin_job", "of parties that share rows one is the label holder")
        if self.pad_rows > 1 and job.partition != "vertical":
            raise OperationRefused(
                self.name,
                "begin_job",
                "it tells its rows rounded up (pad_rows): only jobs that match ids can do with it",
            )
        self.policy.check_partners(self.name, job)
        self.policy.check_rows_by(self.name, job)
        self.policy.check_persons(self.name, job, self._most_rows)
        if job.method != psi.JOB:
            self.check_audit(job.method, dict(job.parameters))
        known = announced.find_job(job.method)
        missing = sorted(set(known().get_params(deep=False)) - set(job.parameters)) if known is not None else ()
        if missing:
            raise OperationRefused(
                self.name, "begin_job", f"the job leaves out {missing[0]!r} of {job.method!r}: all parameters are told"
            )
        if not session:
            raise OperationRefused(self.name, "begin_job", "a job is put to a party inside a session")
        if len(self.runs) >= MAX_RUNS:
            raise OperationRefused(self.name, "begin_job", f"{MAX_RUNS} jobs are under way here; end one of them first")
        if self.accepted is None or job.method == psi.JOB:
            return
        asked = [told for method, told in self.accepted if method == job.method]
        differ = [
            [name for name in job.parameters if name in told and told[name] != job.parameters[name]] for told in asked
        ]
        changed = min(differ, key=len, default=[])
        if not asked or changed:
            what = f"its {changed[0]!r} is another" if changed else "start another job"
            submitted = f"this run is for the method {self.accepted[0][0]!r} as submitted"
            raise PolicyRefused.by("methods", self.name, "begin_job", f"{submitted}: {what}")

    def _check_approved(self, job: Contract) -> None:
        with gate.readable(self.approvals, self.policy, self.name, "begin_job") as approvals:
            if approvals is not None:
                approvals.check(job)

    def proposed(self, jobs: Sequence[Contract]) -> str:
        """Jobs that the policy allows, put to this site's people; one that it refuses never reaches them."""
        for job in jobs:
            self._judge_job(job, "a proposal")
        with gate.readable(self.approvals, self.policy, self.name, "propose_jobs") as approvals:
            return approvals.proposed(jobs) if approvals is not None else ""

    def _after(self, marked: Operation, request: Request, value: object) -> None:
        gate.check_going_on(self.name, marked.short_name, self.job_folder)
        run = self.runs.get(run_of(request.session))
        self.few.take(marked, run.job if run is not None else None, self.views.get(VIEW, (None, None))[0])
        for name, view in list(self.views.items()):
            if self._accepted.get(name) is not view:
                self._judge_view(marked, name, run)
                self._accepted[name] = view
        asked = self._asked(marked, request)
        if asked is not None and tells(marked):
            self._write(asked, value)

    def handle(self, data: bytes) -> bytes:
        reply = super().handle(data)
        if self.ledger is not None:
            self._note_refusal(data, reply)
        return reply

    def _answered(self, marked: Operation, request: Request, received: int, sent: int) -> None:
        if self.ledger is not None:
            self.ledger.answered(marked, request.session, request.round, received, sent)

    def _note_refusal(self, data: bytes, reply: bytes) -> None:
        """A refused request stands in the site's ledger too; one that cannot be read at all without its name."""
        told = decode(reply)
        if self.ledger is None or "error" not in told:
            return
        try:
            request = decode(data)
            name, session, round = str(request["operation"]), str(request["session"]), int(request["round"])
        except (FedsiftError, KeyError, TypeError, ValueError):
            name, session, round = "?", "", 0
        self.ledger.refused(name, session[:100], round, len(data), f"{told['error']}: {told['what']}")

    def _judge_view(self, marked: Operation, name: str, run: Run | None) -> None:
        try:
            self._judge_rows(marked, name, run)
        except PolicyRefused:
            before = self._accepted.get(name)
            if before is None:
                del self.views[name]
            else:
                self.views[name] = before
            raise

    def distinct_rows(self, view: str) -> int:
        """How many persons a view is about: a row that is named twice is still one, and so are two rows of one."""
        rows = self.views[view][0]
        if rows is None:
            rows = self._all
        counted, count = self._distinct.get(view, (None, 0))
        if counted is not rows:
            count = len(np.unique(self._persons[rows]))
            self._distinct[view] = (rows, count)
        return count

    def _told(self, error: FedsiftError, text: str) -> str:
        if ERRORS in self.policy.exceptions or isinstance(error, OperationRefused):
            return text  # a refusal is written from the policy and the request alone
        return "the text stays in this party's log (its policy: exceptions)"


@dataclass(frozen=True)
class Attempt:
    """A run under a name of this site's own. The coordinator names sessions, and could use a name twice."""

    name: str = field(default_factory=lambda: secrets.token_hex(8))


def attempt_of(run: Run) -> str:
    attempt: Attempt = run.kept.setdefault(Attempt, Attempt())
    return attempt.name


def touches_rows(marked: Operation) -> bool:
    """Whether what an operation does, and that it fails, depends on the rows of its view: all of a method's, and of the
    core's those that read labels."""
    return tells(marked) or marked is describe_label or not (is_core(marked) or marked in psi.OPERATIONS)


def tells(marked: Operation) -> bool:
    """Whether an operation's reply belongs into the journal: all but control, names, and the ids of an alignment,
    unless it says itself that something is released."""
    if marked.releases is not None:
        return True
    return marked.discloses != "control" and marked not in psi.OPERATIONS and not is_core(marked)
