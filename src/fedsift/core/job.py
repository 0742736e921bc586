"""The job: what all sides agree on before anything is computed, the same for everybody, and its hash.

A coordinator puts the job to each site once (``core.begin_job``). The site judges it by its policy, keeps it, and from
then on reads every setting from what it has accepted: ``party.job.parameters["n_bins"]``. Every later message of the
run names the hash, so that sites that were told different things, or that run different versions, stop at once.

Who runs the coordinator, who deals randomness and who gets the results decides what may be opened where: ``"neutral"``
is an organisation that holds no rows, anything else the name of a party. ``Job.neutral`` asks all three.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fedsift.errors import OperationRefused, ParameterError
from fedsift.version import VERSION

NEUTRAL = "neutral"
UNSAID = "unsaid"
_MAX_BYTES = 1 << 20


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

    def __post_init__(self) -> None:
        for what in ("coordinator", "dealer", "submitter"):
            if getattr(self, what) not in (NEUTRAL, *self.parties):
                named = ", ".join(map(repr, self.parties))
                raise ParameterError(f"{what} must be {NEUTRAL!r} or one of {named}; got {getattr(self, what)!r}")

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
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

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


def _well_formed(fields: Mapping[str, Any]) -> bool:
    texts = ("method", "partition", "task", "coordinator", "dealer", "submitter", "version")
    parties, labels = fields["parties"], fields["label_parties"]
    return (
        all(isinstance(fields[name], str) for name in texts)
        and isinstance(fields["parameters"], dict)
        and isinstance(parties, list)
        and isinstance(labels, list)
        and all(isinstance(name, str) for name in (*parties, *labels))
        and len(set(parties)) == len(parties) > 0
        and set(labels) <= set(parties)
        and (fields["active"] is None or fields["active"] in parties)
    )
