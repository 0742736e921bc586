"""What people at a site have a say in while jobs come: approve them before they begin, stop them while they run.

A stop is a file in the job's folder (``stop.json``). From the moment that it is there the site answers nothing more of
that job, and a reply that was being computed does not leave.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsift.core.files import write_atomic
from fedsift.core.job import Job
from fedsift.errors import DataError, PolicyRefused
from fedsift.site.approval import Approvals
from fedsift.site.policy import Policy

log = logging.getLogger("fedsift.site.approval")
STOP = "stop.json"
_JOB, _MAX_JOBS = "job-", 1000


@contextmanager
def readable(approvals: Approvals | None, policy: Policy, party: str, operation: str) -> Iterator[Approvals | None]:
    """Where people have to approve and their files cannot be read, no job begins; why is told in this site's log."""
    if approvals is None and policy.approval != "policy":
        raise PolicyRefused.by("approval", party, operation, "its people approve jobs, and it has no place for that")
    try:
        yield approvals
    except (DataError, OSError) as error:
        log.error("%s: %s", party, error)
        raise PolicyRefused.by(
            "approval", party, operation, "it cannot read what its people decided. Its own log says why"
        ) from None


def stop(folder: Path, by: str, why: str) -> Path:
    """Stop the job of this folder; the first word stands."""
    file = folder / STOP
    if not file.exists():
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        write_atomic(file, json.dumps({"by": by[:100], "why": why[:1000], "at": at}) + "\n")
    return file


def remember(folder: Path | None, job: Job) -> None:
    """Keep the accepted job in the folder of its run, for people who look it up later."""
    if folder is not None and len(remembered(folder)) < _MAX_JOBS:
        write_atomic(folder / f"{_JOB}{job.hash.hex()}.json", job.canonical)


def remembered(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_JOB}*.json"))


def is_stopped(folder: Path) -> bool:
    return (folder / STOP).exists()


def check_going_on(party: str, operation: str, folder: Path | None) -> None:
    """Refuse everything of a job that was stopped. Who stopped it and why stays here."""
    if folder is not None and is_stopped(folder):
        raise PolicyRefused.by("stop", party, operation, "its people have stopped this job. Ask them")
