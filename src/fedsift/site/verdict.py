"""The stored verdict of a site's own audit, and the rule ``require_audit`` that reads it.

``fedsift audit`` writes one small file for each job that it has attacked, into the folder ``audits`` beside
``party.toml``. It is for a method with all its parameters, this version of the software, this party's role, and a table
of the same *kind*: the same columns and label, about as many rows, and not too long ago. A table that grows daily stays
valid; one that has lost rows does not (fewer rows are easier to read). The worst figures are stored, not the verdict
alone: a policy that has become stricter since is the one that counts.

What leaves this site in a refusal is one sentence; why the stored audit does not count is told here only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from importlib import metadata
from pathlib import Path

from fedsift.core.files import plain, write_atomic
from fedsift.core.table import Table
from fedsift.errors import DataError, PolicyRefused
from fedsift.evaluate import announced
from fedsift.site.policy import Policy

FOLDER = "audits"
FORMAT, VERSION = "fedsift-verdict", 1
#: How far the table may have grown or shrunk since, and how old an audit may be.
GROWN, SHRUNK, VALID = 4.0, 0.8, timedelta(days=92)


@dataclass(frozen=True)
class Fingerprint:
    """What kind of table it is: a hash of its columns' names and kinds and of its label's, and the number of rows."""

    schema: str
    rows: int

    @classmethod
    def of(cls, table: Table) -> Fingerprint:
        told = [sorted(table.kinds.items()), table.label_name, None if table.label is None else table.label.dtype.kind]
        return cls(hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32], table.n_rows)


@dataclass(frozen=True)
class StoredVerdict:
    """What an audit at this site came to."""

    party: str
    holds_label: bool
    method: str
    parameters: str  # a hash of all of them, defaults included
    software: str
    schema: str
    rows: int
    made: str  # a time in UTC
    outcome: str  # "passed", "failed" or "incomplete", as the policy was then
    complete: bool  # every message was attacked or needs no attack, and something was measured
    label_auc: float  # the worst figures; of labels and of who took part
    column_r2: float
    format: str = FORMAT
    version: int = VERSION

    @property
    def file_name(self) -> str:
        return f"{self.party}-{self.method}-{self.parameters[:8]}-{self.software}.json"

    def save(self, folder: Path) -> Path:
        """Whole or not at all; an earlier audit of the same job is replaced."""
        return write_atomic(folder / self.file_name, json.dumps(asdict(self), indent=2) + "\n")


def software_version() -> str:
    """The version of fedsift that is installed here."""
    try:
        return metadata.version("fedsift")
    except metadata.PackageNotFoundError:
        return "unknown"


def parameters_hash(method: str, parameters: Mapping[str, object]) -> str:
    """A hash of all parameters of a method, those not given by their defaults."""
    kind = announced.find_job(method)
    told = {**(kind().get_params(deep=False) if kind is not None else {}), **parameters}
    text = json.dumps(plain(told), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def read_verdicts(folder: Path) -> list[StoredVerdict]:
    """The stored audits, the newest first. A file that is none is told by name: somebody has edited it."""
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            if told.get("format") != FORMAT or told.get("version") != VERSION:
                raise ValueError
            found.append(StoredVerdict(**told))
            datetime.fromisoformat(found[-1].made)
        except (ValueError, TypeError, AttributeError, OSError):
            raise DataError(f"{path} is no stored audit; delete it and run fedsift audit again") from None
    return sorted(found, key=lambda verdict: verdict.made, reverse=True)


def why_no_audit(
    folder: Path | None,
    policy: Policy,
    party: str,
    method: str,
    parameters: Mapping[str, object],
    table: Table,
    now: datetime | None = None,
) -> str:
    """Why no stored audit lets this job pass, for the people of this site; empty if one does."""
    mine = [v for v in read_verdicts(folder) if v.party == party] if folder is not None else []
    mine = [v for v in mine if v.method == method]
    if not mine:
        return f"there is no audit of {method} here"
    mine = [v for v in mine if v.parameters == parameters_hash(method, parameters)]
    if not mine:
        return f"there is an audit of {method}, but with other parameters"
    mine = [v for v in mine if v.software == software_version()]
    if not mine:
        return f"the audit is of another version of fedsift than {software_version()}"
    return _why_not(mine[0], policy, table, now or datetime.now(timezone.utc))


def _why_not(verdict: StoredVerdict, policy: Policy, table: Table, now: datetime) -> str:
    here = Fingerprint.of(table)
    if verdict.schema != here.schema or verdict.holds_label != (table.label is not None):
        return "the audit is of a table with other columns"
    if not SHRUNK * verdict.rows <= here.rows <= GROWN * verdict.rows:
        return f"the audit is of a table with {verdict.rows:,} rows; now there are {here.rows:,}"
    if not timedelta(0) <= now - datetime.fromisoformat(verdict.made) + timedelta(minutes=5) <= VALID:
        return f"the audit is of {verdict.made[:10]}; one is valid for {VALID.days} days"
    if not verdict.complete:
        return "the audit is incomplete: a message has no attack yet, or no attack had anything to read"
    if verdict.label_auc > policy.max_label_auc:
        told = f"with an AUC of {verdict.label_auc:.3f}; max_label_auc is {policy.max_label_auc:g}"
        return f"labels, or who took part, were read {told}"
    if verdict.column_r2 > policy.max_column_r2:
        return f"columns were read with an R2 of {verdict.column_r2:.3f}; max_column_r2 is {policy.max_column_r2:g}"
    return "" if verdict.outcome == "passed" else "the job did not pass its audit"


def check_audit(
    folder: Path | None, policy: Policy, party: str, method: str, parameters: Mapping[str, object], table: Table
) -> None:
    """Refuse a job that has not passed an audit here, where the policy asks for one."""
    if policy.require_audit and why_no_audit(folder, policy, party, method, parameters, table):
        raise PolicyRefused.by(
            "require_audit", party, "begin_job",
            "this party accepts a job only after an audit of its own that the job has passed, with this method, these "
            "parameters and this version. Ask the party to run: fedsift audit JOB.toml --party party.toml",
        )  # fmt: skip
