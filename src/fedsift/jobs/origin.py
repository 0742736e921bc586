"""What a run was made of, as its ``run.json`` says it: the job file, what ``--set`` changed, a digest of each file."""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fedsift.core.table import Table
from fedsift.jobs.job_file import Job
from fedsift.report.record import RunFacts
from fedsift.report.summary import versions


def origin(job: Job, out: Path) -> dict[str, Any] | None:
    """The job file as seen from the result folder ``out``, the changes to it, and the parties' files by digest.

    Nothing where parties read their files at their own sites: a digest of a small table could be guessed at.
    """
    if any(party.file is None for party in job.settings.parties.values()):
        return None
    return {
        "file": os.path.relpath(job.path.absolute(), out.absolute()),
        "set": list(dict.fromkeys(job.source.overridden.values())),
        "inputs": {name: _digest(job.file(name)) for name in job.settings.parties},
    }


def form_of(table: Sized) -> dict[str, object]:
    """How a party's file was written, so that it or a later one is read alike; nothing where the table is elsewhere."""
    return table.written.again.told() if isinstance(table, Table) else {}


class Sized(Protocol):
    """A table, or what a coordinator knows of one."""

    @property
    def n_rows(self) -> int: ...

    @property
    def label_name(self) -> str | None: ...


def run_facts(job: Job, tables: Mapping[str, Sized]) -> RunFacts:
    """What the report says of the run: label, rows, files by digest, and the commands that repeat it."""
    made = origin(job, Path())
    changed = "".join(f" --set {shlex.quote(text)}" for text in (made or {}).get("set", []))
    run = f"fedsift run {job.path.name}{changed}"
    names = [table.label_name for table in tables.values() if isinstance(table.label_name, str)]
    return RunFacts(
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        label=names[0] if names else "",
        rows={name: table.n_rows for name, table in tables.items()} if made is not None else {},
        inputs=made["inputs"] if made is not None else {},
        commands=[f"{run} --on flare --kit DIR"] if made is None else
        [run, "fedsift reproduce RESULT-FOLDER  # runs it again and compares"],
    )  # fmt: skip


def damaged(record: Mapping[str, Any]) -> str:
    """Why a record of a run cannot be shown: another version made it, or something is missing."""
    here, there = versions()["fedsift"], (record.get("versions") or {}).get("fedsift")
    if there not in (None, here):
        return f"the record of the run was made by fedsift {there}, and this is {here}: use the same version"
    return "the record of the run is damaged (something is missing in it): run the job again"


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
