"""What a site's process of a FLARE job does beside answering: it looks whether people stop the job, here or elsewhere.

Twice a second the attendant looks for the stop of this site's own people, and every two seconds it asks the coordinator
how far the job is. A stop is told to the coordinator at once, which ends the job; the other sites hear of it by the
answer to their next question, also in the middle of a long computation, and their processes end. Of how far the job is
the coordinator can tell numbers alone: the page of a site's people shows no sentence that somebody else wrote.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedsift.core.files import write_atomic
from fedsift.deploy.status import ENDED, FINISHED, RUNNING, read_status, write_status
from fedsift.site.gate import is_stopped

NAME = "progress.json"
_LOOK = 0.5  # seconds between two looks whether people have stopped the job
_ASK = 2.0  # seconds between two questions how far the job is
LIMIT = 2.0  # seconds for the coordinator to answer
_LAST_WORD = 1.5  # seconds to refuse what is asked, before the process ends
_ITS_OWN_END = 2.0  # seconds for a process to end by itself, once FLARE has ended a job that has said no end of its own
_MOST = 10**9

#: Tells the coordinator whether this site's people have stopped the job; gives how far it is.
Ask = Callable[[bool], object]


@dataclass(frozen=True)
class Progress:
    """How far a job is, as its coordinator counts: turns of its outermost loop, seconds left where it knows, rounds."""

    done: int = 0
    of: int = 0
    left: float | None = None
    round: int = 0

    @classmethod
    def told(cls, facts: Mapping[str, Any]) -> Progress:
        """From what a coordinator sent: numbers, or nothing."""
        left = facts.get("left")
        known = isinstance(left, (int, float)) and not isinstance(left, bool) and math.isfinite(left)
        whole = [_whole(facts.get(name)) for name in ("done", "of", "round")]
        return cls(whole[0], whole[1], min(max(float(left or 0), 0.0), float(_MOST)) if known else None, whole[2])


def _whole(value: object) -> int:
    return min(max(value, 0), _MOST) if isinstance(value, int) and not isinstance(value, bool) else 0


def read_progress(folder: Path) -> Progress | None:
    with suppress(OSError, ValueError):
        told = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return Progress.told(told) if isinstance(told, dict) else None
    return None


class Attendant:
    """``ask`` reaches the coordinator, ``aborted`` tells whether FLARE has ended the job, ``leave`` ends a process."""

    def __init__(
        self, folder: Path, ask: Ask, aborted: Callable[[], bool], leave: Callable[[int], Any] = os._exit,
        sleep: Callable[[float], None] = time.sleep,
    ):  # fmt: skip
        self._folder, self._ask, self._aborted, self._leave, self._sleep = folder, ask, aborted, leave, sleep
        self._ended = False

    def start(self) -> None:
        threading.Thread(target=self.attend, name="fedsift attendant", daemon=True).start()

    def end(self) -> None:
        """The job has come to its end, and FLARE ends the process."""
        self._ended = True

    def attend(self) -> None:
        """Until the job is stopped or ended; then this process ends, whatever it is computing."""
        looks, over = 0, False
        while not (is_stopped(self._folder) or self._aborted()):
            if self._ended:
                return
            over = looks % round(_ASK / _LOOK) == 0 and self._hear(stopped=False)
            if over:
                break
            looks += 1
            self._sleep(_LOOK)
        if is_stopped(self._folder):
            self._hear(stopped=True)
        elif not over and read_status(self._folder).get("state") == FINISHED:
            return  # FLARE ends every job like this: cut off, a process that is closing down would make it a failed one
        self._sleep(_LAST_WORD if over or is_stopped(self._folder) else _ITS_OWN_END)
        if read_status(self._folder).get("state") == RUNNING:
            write_status(self._folder, ENDED, why="the job was stopped at another site, or ended by who runs it")
        self._leave(1)

    def _hear(self, *, stopped: bool) -> bool:
        """How far the job is, kept in its folder; whether it is over. A server that does not answer says nothing."""
        with suppress(Exception):  # FLARE raises many kinds, and the next look comes soon
            told = self._ask(stopped)
            if isinstance(told, dict):
                write_atomic(self._folder / NAME, json.dumps(asdict(Progress.told(told))) + "\n")
                return told.get("over") is True
        return False
