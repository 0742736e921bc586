"""What a run was made of, as its ``run.json`` says it: the job file, what ``--set`` changed, a digest of each file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from fedsift.jobs.job_file import Job


def origin(job: Job, out: Path) -> dict[str, Any]:
    """The job file as seen from the result folder ``out``, the changes to it, and the parties' files by digest."""
    return {
        "file": os.path.relpath(job.path.absolute(), out.absolute()),
        "set": list(dict.fromkeys(job.source.overridden.values())),
        "inputs": {name: _digest(job.file(name)) for name in job.settings.parties},
    }


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
