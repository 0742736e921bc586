"""The job: what all sides agree on before anything is computed; and its script, what may be asked next at one site.

A coordinator puts the job to each site once (``core.begin_job``). The site judges it by its policy, keeps it, and from
then on reads every setting from what it has accepted: ``party.job.parameters["n_bins"]``. Every later message of the
run names the hash, so that sites that were told different things, or that run different versions, stop at once.

Who runs the coordinator, who deals randomness and who gets the results decides what may be opened where: ``"neutral"``
is an organisation that holds no rows, anything else the name of a party. ``Job.neutral`` asks all three.

A request is looked at in this order: it names the job that this run has accepted; it is not one that was answered
before (the same bytes again get the stored reply, nothing is computed twice; an older round is refused, for a mask
belongs to a round); its operation is for this party's role, comes after the step that it needs, and has not been asked
as often as it declares. Counts are of the whole job, sessions inside its session
included, unless the operation says otherwise.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from fedsift.core.operation import Operation
from fedsift.errors import OperationRefused, ParameterError
from fedsift.version import VERSION

NEUTRAL = "neutral"
UNSAID = "unsaid"
#: What a job may be for alone: scores of rows by a model that the parties have kept. A site that accepts it answers
#: nothing else of the model, and may allow it on few rows (``site/few_rows.py``).
PREDICTIONS = "predictions"
_MAX_BYTES = 1 << 20
_MAY_BE_LEFT_OUT = ("design", "purpose")


@dataclass(frozen=True)
class Job:
    """One accepted job.

    Parameters
    ----------
    method, parameters : the method's name in job files and all its parameters, defaults included, as plain values.
    parties : who takes part, in order.
    active : the label holder of vertical parties; ``label_parties`` are all that hold labels.
    partition, task : of the federation, as the user said it (``task`` may be ``"auto"``).
    coordinator, dealer, submitter : ``"neutral"`` or a party's name.
    version : of fedsift.
    design : how rows belong together and what they count (``core/design.py``); a job without one says nothing of it.
    purpose : ``"predictions"`` where the job is for these alone, else empty, and nothing is said of it.
    """

    method: str
    parameters: Mapping[str, Any]
    parties: tuple[str, ...]
    active: str | None = None
    label_parties: tuple[str, ...] = ()
    partition: str = "vertical"
    task: str = "auto"
    coordinator: str = NEUTRAL
    dealer: str = NEUTRAL
    submitter: str = NEUTRAL
    version: str = VERSION
    design: Mapping[str, Any] = field(default_factory=dict)
    purpose: str = ""

    def __post_init__(self) -> None:
        for what in ("coordinator", "dealer", "submitter"):
            if getattr(self, what) not in (NEUTRAL, *self.parties):
                named = ", ".join(map(repr, self.parties))
                raise ParameterError(f"{what} must be {NEUTRAL!r} or one of {named}; got {getattr(self, what)!r}")
        if self.purpose not in ("", PREDICTIONS):
            raise ParameterError(f"a job is for {PREDICTIONS!r} alone, or says nothing; got {self.purpose[:60]!r}")

    @property
    def random_state(self) -> Any:
        """The seed of the job, if its method has one."""
        return self.parameters.get("random_state")

    @property
    def neutral(self) -> bool:
        """Whether nobody who holds rows runs the coordinator, deals the randomness or gets the results."""
        return self.coordinator == self.dealer == self.submitter == NEUTRAL

    def says(self, parameter: str) -> str:
        """A parameter as a word, for steps that belong to one form of a method: ``none``, ``set`` for a number,
        ``unsaid`` where the method has no such parameter."""
        value = self.parameters.get(parameter, UNSAID)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return "set"
        return "none" if value is None else str(value)

    @property
    def smallest_cell(self) -> int:
        """The fewest rows that a group has, where the method has such a parameter: the larger of these counts."""
        told = [self.parameters.get(name) for name in ("min_cell", "min_leaf")]
        return max((least for least in told if isinstance(least, int)), default=0)

    def role_of(self, party: str) -> str:
        """``"active"`` for a party with labels, else ``"passive"``."""
        return "active" if party == self.active or party in self.label_parties else "passive"

    @cached_property
    def canonical(self) -> bytes:
        """The same job has the same bytes everywhere."""
        told = {name: value for name, value in asdict(self).items() if name not in _MAY_BE_LEFT_OUT or value}
        return json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

    @cached_property
    def hash(self) -> bytes:
        return hashlib.sha256(self.canonical).digest()

    @classmethod
    def read(cls, data: bytes, party: str, *, any_version: bool = False) -> Job:
        """From an announcement, checked; ``party`` is who reads it. ``any_version`` is for records of earlier jobs."""

        def refused(what: str) -> OperationRefused:
            return OperationRefused(party, "begin_job", what)

        try:
            fields = json.loads(data) if len(data) <= _MAX_BYTES else None
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise refused("what was announced is no job")
        told = fields.get("version")
        if told != VERSION and not any_version:
            raise refused(
                f"the job is of fedsift {str(told)[:20]!r} and this party runs {VERSION!r}: install the same "
                f"everywhere (pip install fedsift=={VERSION})"
            )
        fields = {"design": {}, "purpose": "", **fields}
        if set(fields) != set(cls.__dataclass_fields__):
            raise refused(f"a job has {', '.join(cls.__dataclass_fields__)}")
        if not _well_formed(fields):
            raise refused("a field of the job has the wrong type")
        lists = {name: tuple(fields[name]) for name in ("parties", "label_parties")}
        try:
            job = cls(**{**fields, **lists})
        except ParameterError as error:
            raise refused(str(error)) from None
        if party not in job.parties:
            raise refused("this party is none of the job's parties")
        if job.canonical != data:
            raise refused("the job is not written in its canonical form")
        return job


def _well_formed(fields: Mapping[str, object]) -> bool:
    texts = ("method", "partition", "task", "coordinator", "dealer", "submitter", "version", "purpose")
    parties, labels = fields["parties"], fields["label_parties"]
    return (
        all(isinstance(fields[name], str) for name in texts)
        and isinstance(fields["parameters"], dict)
        and isinstance(fields["design"], dict)
        and isinstance(parties, list)
        and isinstance(labels, list)
        and all(isinstance(name, str) for name in (*parties, *labels))
        and len(set(parties)) == len(parties) > 0
        and set(labels) <= set(parties)
        and (fields["active"] is None or fields["active"] in parties)
    )


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

    def stored_reply(self, session: str, round: int, digest: bytes, party: str, operation: str) -> bytes | None:
        """The reply to the same bytes, if they are the session's last request; a round that is over is refused."""
        last = self.answered.get(session)
        if last is None or round > last.round:
            return None
        if round == last.round and digest == last.digest:
            return last.reply
        raise OperationRefused(party, operation, "its round is over: a later request of this session was answered")

    def count(self, marked: Operation, session: str) -> None:
        """Note that the operation is about to run."""
        self.asked.update({marked.id, _counted(marked, session)})

    def keep_reply(self, session: str, round: int, digest: bytes, reply: bytes) -> None:
        self.answered[session] = _Answered(round, digest, reply)

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
