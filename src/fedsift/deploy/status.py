"""How a job stands, in a small file that anybody at the site can read: whole or not there, never half of one.

A party writes ``status.json`` into the folder of each job: ``running`` while it answers, then ``finished``, ``failed``
(the coordinator said why) or ``ended`` (the job went away without a word). A process that was killed cannot write, so
the next job at the site closes what a dead process left ``running``.
"""

from __future__ import annotations

import calendar
import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedsift.core.files import write_atomic

NAME = "status.json"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
RUNNING, FINISHED, FAILED, ENDED = "running", "finished", "failed", "ended"


def write_status(folder: Path, state: str, **facts: object) -> None:
    """Set the state; what is known from before (the method, the start) stays."""
    content = {**read_status(folder), **facts, "state": state, "at": _now()}
    if state == RUNNING:
        content |= {"since": _now(), "process": os.getpid()}
    write_atomic(folder / NAME, json.dumps(content, indent=2) + "\n")


def read_status(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def close_abandoned(results: Path) -> None:
    """Mark jobs as ended whose process died without saying so."""
    if not results.is_dir():
        return
    for folder in results.iterdir():
        status = read_status(folder)
        if status.get("state") == RUNNING and not _alive(status.get("process")):
            write_status(folder, ENDED, why="the party's process died while the job ran")


def remove_old(results: Path, days: int, now: float | None = None) -> list[str]:
    """Remove the folders of jobs that ended more than so many days ago; a folder without a state is nobody's job."""
    gone, moment = [], time.time() if now is None else now
    for folder in results.iterdir() if results.is_dir() else ():
        status = read_status(folder)
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            ended = calendar.timegm(time.strptime(status["at"], _TIME))
            if status["state"] != RUNNING and moment - ended > days * 86_400:
                shutil.rmtree(folder, ignore_errors=True)
                gone.append(folder.name)
    return gone


def _alive(process: object) -> bool:
    if not isinstance(process, int) or process <= 0:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _now() -> str:
    return time.strftime(_TIME, time.gmtime())
