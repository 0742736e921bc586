"""Jobs that wait for the people of a site, and what these people decided: small files beside the journal.

``approval = "person"`` (or ``"two persons"``) in ``party.toml``: a job that the policy allows is not accepted yet. It
is written into the folder ``approvals-NAME``, where it waits until somebody decides (``fedsift party approve``) or its
time is over; the coordinator hears until when, and asks again. Files, so that a restart of the site, of the desk
or of the server loses nothing.

A decision names the jobs by their hashes, the version of fedsift, the kind of the table, what this site's own audit
says of the job, who decided, when and why. It is signed with the site's key, and with the person's own where
``[approvers]`` names one. Everything is checked again when the job comes: another job, another version, another table,
another key or a time that is over needs a new decision. The last word of each person counts, and one refusal that
stands is enough.

What the coordinator is told: "waiting until", or one sentence for a refusal and for a time that is over alike; the
reason only where the person chose to send it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

from fedsift.core.identity import Fingerprint, SigningKey, is_signed
from fedsift.core.job import Job
from fedsift.errors import ApprovalPending, DataError, OperationRefused, ParameterError, PolicyRefused
from fedsift.methods import METHODS
from fedsift.site import verdict
from fedsift.site.decisions import Decision, Request, Signed, as_text, as_time, request_id
from fedsift.site.policy import Policy
from fedsift.version import VERSION

REQUEST = "request.json"
FORMAT = "fedsift-approval"
APPROVED, REFUSED, WAITING = "approved", "refused", "waiting"
LAPSED = "lapsed"  # nobody decided in time
VOID = "void"  # approved, but for another table or version, or too long ago
NEEDED = {"policy": 0, "person": 1, "two persons": 2}
MAX_WAITING = 100  # requests at a site at the same time
MAX_DECISIONS = 1000  # on one request
MAX_WHY = 1000
SHORT = 12  # digits of a request that people are shown, and the fewest that name one


def now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Standing:
    """How a request stands now: ``state`` is approved, refused, waiting, lapsed or void."""

    request: Request
    state: str
    until: str
    decisions: tuple[Decision, ...]
    missing: int  # persons who still have to approve
    last_asked: str = ""  # when whoever submitted it asked for the last time


class Approvals:
    """The folder of one site. ``table`` is the kind of table that it has now; ``None`` where nobody has read it."""

    def __init__(
        self, folder: Path, party: str, policy: Policy, public: bytes, approvers: Mapping[str, Fingerprint],
        table: verdict.Fingerprint | None = None, audits: Path | None = None,
    ):  # fmt: skip
        self.folder, self.party, self.policy = folder, party, policy
        self.table, self.audits = table, audits
        self._public, self._approvers = public, approvers

    @classmethod
    def place(cls, folder: Path, party: str) -> Path:
        """Beside the journal."""
        return folder / f"approvals-{party}"

    @property
    def needed(self) -> int:
        return NEEDED[self.policy.approval]

    # -- what a coordinator meets ----------------------------------------------------------------------------------

    def check(self, job: Job) -> None:
        """Refuse to begin a job that is not approved: nothing is written down, a proposal does that."""
        if self.needed and not any(
            standing.state == APPROVED for standing in self.standings() if standing.request.covers(job)
        ):
            raise ApprovalPending(self.party, "begin_job", "its people have to approve this job first")

    def proposed(self, jobs: Sequence[Job]) -> str:
        """Until when the jobs wait here; empty once they are approved. A new request is filed."""
        if not self.needed or all(self._is_approved(job) for job in jobs):
            return ""
        standing = self._find(request_id(jobs))
        if standing is None:
            return self._file(tuple(jobs)).until
        if standing.state in (LAPSED, VOID):
            self._put_aside(standing.request)
        if standing.state == VOID:  # people decide again
            return self._file(tuple(jobs)).until
        if standing.state in (REFUSED, LAPSED):  # whoever asks once more for what nobody decided files it anew
            raise self._refusal(standing)
        with contextlib.suppress(OSError):
            os.utime(self.folder / standing.request.id / REQUEST)  # so that people see that somebody still waits
        return "" if standing.state == APPROVED else standing.until

    def _is_approved(self, job: Job) -> bool:
        with contextlib.suppress(ApprovalPending):
            self.check(job)
            return True
        return False

    def _refusal(self, standing: Standing) -> PolicyRefused:
        told = [decision.why for decision in standing.decisions if decision.word == REFUSED and decision.sent]
        reason = f": {told[-1]}" if told and told[-1] else ""
        return PolicyRefused.by(
            "approval", self.party, "propose_jobs", f"its people did not approve this job{reason}. Ask them"
        )

    # -- what people meet ------------------------------------------------------------------------------------------

    def standings(self, *, past: bool = False) -> list[Standing]:
        """All requests, the newest first, with ``past`` also those that were put aside; a file that cannot be read is
        told to the site's own people."""
        found = [self._standing(request, folder) for request, folder in self._requests(past)]
        return sorted(found, key=lambda standing: standing.request.asked, reverse=True)

    def find(self, named: str) -> Standing:
        """The request whose id begins so."""
        text = named.strip().lower()
        found = [each for each in self.standings() if len(text) >= SHORT and each.request.id.startswith(text)]
        if len(found) != 1:
            raise ParameterError(f"no request here is called {named[:80]!r}: fedsift party pending lists them")
        return found[0]

    def decide(
        self, request: Request, word: Literal["approved", "refused"], by: str, site: SigningKey, *,
        why: str = "", sent: bool = False, person: SigningKey | None = None,
    ) -> Decision:  # fmt: skip
        """Write down what somebody decided; ``site`` and ``person`` sign it."""
        by = " ".join(by.split())
        self._check_person(by, why, person)
        folder = self.folder / request.id
        if word == APPROVED and self._standing(request, folder).state == LAPSED:
            raise ParameterError("its time is over: whoever submitted it has to submit it again")
        decision = Decision(
            self.party, request.id, tuple(job.hash.hex() for job in request.jobs), VERSION, request.schema,
            request.rows, self.audit_of(request), word, by, as_text(now()),
            as_text(now() + timedelta(days=self.policy.approval_days)), why, sent,
        )  # fmt: skip
        signed = Signed.by(decision, site, person)
        text = json.dumps({"format": FORMAT, **asdict(signed)}, indent=2) + "\n"
        if not any(_write_new(folder / f"decision-{n:04}.json", text) for n in range(1, MAX_DECISIONS + 1)):
            raise DataError(f"{folder} holds {MAX_DECISIONS} decisions: move it away")
        return decision

    def audit_of(self, request: Request) -> str:
        """What this site's own audits say of the request's main job, for the decision."""
        found = stored_audit(self.audits, self.party, request.main)
        if found is None:
            return "none"
        figures = f"labels and who took part AUC {found.label_auc:.3f}, columns R2 {found.column_r2:.3f}"
        return f"{found.file_name} of {found.made[:10]}: {found.outcome}, {figures}"

    def _check_person(self, by: str, why: str, person: SigningKey | None) -> None:
        if not by or len(by) > 100 or not by.isprintable():
            raise ParameterError("who decides gives a name of 1 to 100 letters (--by NAME)")
        if len(why) > MAX_WHY:
            raise ParameterError(f"a reason has at most {MAX_WHY} characters")
        if self._approvers and by not in self._approvers:
            raise ParameterError(f"{by!r} is none of this site's [approvers]: {', '.join(self._approvers)}")
        if self._approvers and (person is None or person.fingerprint != self._approvers[by]):
            raise ParameterError(f"{by!r} decides with the key that party.toml names for this person (--key FILE)")

    # -- files -----------------------------------------------------------------------------------------------------

    def _find(self, id: str) -> Standing | None:
        return next((standing for standing in self.standings() if standing.request.id == id), None)

    def _requests(self, past: bool) -> Iterator[tuple[Request, Path]]:
        for file in sorted(self.folder.glob(f"[!.]*/{REQUEST}")) if self.folder.is_dir() else ():
            if past or "." not in file.parent.name:
                yield self._read_request(file), file.parent

    def _read_request(self, file: Path) -> Request:
        told = _read(file)
        try:
            jobs = tuple(Job.read(str(text).encode(), self.party, any_version=True) for text in told["jobs"])
            request = Request(
                self.party, jobs, str(told["asked"]), str(told["until"]), str(told["schema"]), told["rows"]
            )
            as_time(request.asked), as_time(request.until)
            sound = bool(jobs) and request.id == file.parent.name.partition(".")[0] and isinstance(request.rows, int)
        except (KeyError, TypeError, ValueError, OperationRefused):
            sound = False
        if not sound:
            raise DataError(f"{file} is no request: move {file.parent} away")
        return request

    def _decisions(self, request: Request, folder: Path) -> tuple[Decision, ...]:
        """Those that are really about this request, and signed as this site asks for; others do not count."""
        found = []
        for file in sorted(folder.glob("decision-*.json")):
            try:
                told = {key: value for key, value in _read(file).items() if key != "format"}
                decision = Decision(**{**told["decision"], "jobs": tuple(told["decision"]["jobs"])})
                signed = Signed(**{**told, "decision": decision})
                as_time(decision.at), as_time(decision.until)
                if decision.word in (APPROVED, REFUSED) and self._is_signed(signed, request):
                    found.append(decision)
            except (KeyError, TypeError, ValueError):
                continue
        return tuple(found)

    def _is_signed(self, signed: Signed, request: Request) -> bool:
        told = signed.decision
        if (told.party, told.request) != (self.party, request.id):
            return False
        if told.jobs != tuple(job.hash.hex() for job in request.jobs):
            return False
        if not is_signed(told.statement, bytes.fromhex(signed.signature), self._public):
            return False
        if not self._approvers:
            return True
        public = bytes.fromhex(signed.person)
        known = told.by in self._approvers and Fingerprint.of(public) == self._approvers[told.by]
        return known and is_signed(told.statement, bytes.fromhex(signed.person_signature), public)

    def _standing(self, request: Request, folder: Path) -> Standing:
        decisions = self._decisions(request, folder)
        last = {decision.by.casefold(): decision for decision in decisions}  # the last word of each person
        moment = now()
        valid = [told for told in last.values() if told.word == APPROVED and self._holds(told, moment)]
        missing = max(0, self.needed - len(valid))
        until = request.until
        if any(decision.word == REFUSED for decision in last.values()):
            state = REFUSED
        elif "." in folder.name:
            state = VOID if decisions else LAPSED
        elif not missing:
            state, until = APPROVED, min((told.until for told in valid), default=until)
        elif len(last) >= self.needed or len(valid) < len(last):
            state = VOID
        else:
            state = LAPSED if moment >= as_time(request.until) else WAITING
        return Standing(request, state, until, decisions, missing, _changed(folder / REQUEST))

    def _holds(self, told: Decision, moment: datetime) -> bool:
        """Whether an approval is of this version and this kind of table, and its time is not over."""
        same = told.software == VERSION and moment < as_time(told.until)
        if self.table is None:
            return same
        grown = verdict.SHRUNK * told.rows <= self.table.rows <= verdict.GROWN * told.rows
        return same and told.schema == self.table.schema and grown

    def _file(self, jobs: tuple[Job, ...]) -> Request:
        if self.table is None:
            raise DataError("a request is filed by the site, which has read its table")
        if sum(standing.state == WAITING for standing in self.standings()) >= MAX_WAITING:
            raise PolicyRefused.by(
                "approval", self.party, "propose_jobs", "as many jobs wait for its people as may wait. Ask them"
            )
        moment = now()
        until = moment + timedelta(days=self.policy.approval_days)
        request = Request(self.party, jobs, as_text(moment), as_text(until), self.table.schema, self.table.rows)
        told = {"format": FORMAT, "jobs": [job.canonical.decode() for job in jobs], "asked": request.asked,
                "until": request.until, "schema": request.schema, "rows": request.rows}  # fmt: skip
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self.folder / f".{secrets.token_hex(8)}.partial"
        partial.mkdir(mode=0o700)
        _write_new(partial / REQUEST, json.dumps(told, indent=2) + "\n")
        try:
            partial.rename(self.folder / request.id)
        except OSError:  # another process of this site has filed it just now
            (partial / REQUEST).unlink()
            partial.rmdir()
        return request

    def _put_aside(self, request: Request) -> None:
        """What is over stays in the folder, under another name."""
        with contextlib.suppress(OSError):
            (self.folder / request.id).rename(self.folder / f"{request.id}.{secrets.token_hex(4)}")


def stored_audit(audits: Path | None, party: str, job: Job) -> verdict.StoredVerdict | None:
    """The newest audit of this very method, parameters and version at this site."""
    if audits is None or job.method not in METHODS:
        return None
    wanted = (party, job.method, verdict.parameters_hash(job.method, job.parameters), verdict.software_version())
    found = verdict.read_verdicts(audits)
    return next((v for v in found if (v.party, v.method, v.parameters, v.software) == wanted), None)


def _changed(file: Path) -> str:
    with contextlib.suppress(OSError):
        return as_text(datetime.fromtimestamp(file.stat().st_mtime, timezone.utc))
    return ""


def _read(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(f"{file} cannot be read: move {file.parent} away") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise DataError(f"{file} is of another fedsift: move {file.parent} away")
    return told


def _write_new(file: Path, text: str) -> bool:
    """A new file, private, on disk when this returns; ``False`` where there is one already."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    return True
