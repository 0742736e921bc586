"""Parties behind NVIDIA FLARE: each one publishes ``handle(bytes) -> bytes``, the coordinator calls it.

FLARE carries the bytes (mutual TLS, certificates, streaming of large payloads); this file only sends the calls of one
round together and turns whatever may happen to a call into a ``Delivery``. So the same bytes are sent and counted as
in one process, and the same errors come out: no answer in time is ``timeout``, a party that cannot be reached is
``gone``, and an answer that is not bytes is empty bytes, which the exchange refuses as no valid message.

A late answer to a call that was given up belongs to that call alone: FLARE matches replies to requests, and each call
here waits in a thread of its own, so it can never be taken for the answer to a later request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from fedsift.core.transports.base import Aborted, Delivery, Transport
from fedsift.errors import PolicyRefused

#: FLARE wants a number of seconds. Without a limit of the job's own, a party may compute for so long.
LONGEST = 7 * 24 * 3600.0
#: FLARE ends a call at its own limit; if even that fails, the coordinator goes on after so many seconds more.
GRACE = 30.0

#: Calls ``handle`` of one party with the request's bytes and the seconds it may take.
Call = Callable[[bytes, float], Any]


class Flare(Transport):
    """The coordinator's end. ``calls`` are the parties; ``aborted`` tells whether FLARE has ended the job.

    ``lost`` are parties that FLARE has given up: who waits for one of them need not wait for a limit to pass.
    ``stopped`` are those whose people have stopped the job: nobody waits for anybody any more.
    """

    name = "flare"

    def __init__(
        self,
        calls: Mapping[str, Call],
        aborted: Callable[[], bool] = lambda: False,
        lost: Collection[str] = (),
        stopped: Collection[str] = (),
    ):
        self.calls = dict(calls)
        self.aborted = aborted
        self.lost = lost
        self.stopped = stopped

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        limit = LONGEST if timeout is None else timeout
        start = time.perf_counter()
        answers: dict[str, SimpleQueue[Delivery | Aborted]] = {}
        for name, data in requests.items():
            answers[name] = SimpleQueue()
            threading.Thread(
                target=self._call, args=(name, data, limit, answers[name]), name=f"fedsift-{name}", daemon=True
            ).start()
        result: dict[str, Delivery] = {}
        try:
            for name, answer in answers.items():
                result[name] = self._wait(name, answer, start, limit)
        except Aborted:
            answered = [name for name, answer in answers.items() if name in result or _has_answer(answer)]
            raise Aborted([name for name in requests if name not in answered]) from None
        return result

    def pause(self, seconds: float) -> None:
        """The same, but a job that was ended does not wait on."""
        until = time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0:
            if self.aborted():
                raise Aborted
            self._check_stopped()
            time.sleep(min(0.5, left))

    def _check_stopped(self) -> None:
        for name in sorted(self.stopped):
            raise PolicyRefused.by("stop", name, "attend", "its people have stopped this job. Ask them")

    def _call(self, name: str, data: bytes, limit: float, answer: SimpleQueue[Delivery | Aborted]) -> None:
        start = time.perf_counter()
        failure, reply = "gone", None
        try:
            if name in self.calls:
                reply = self.calls[name](data, limit)
                reply = bytes(reply) if isinstance(reply, (bytes, bytearray, memoryview)) else b""
                failure = ""
        except Exception as error:
            if _is_abort(error) or self.aborted():
                answer.put(Aborted())
                return
            failure = "timeout" if _is_timeout(error) else "gone"
        answer.put(Delivery(reply, time.perf_counter() - start, failure))

    def _wait(self, name: str, answer: SimpleQueue[Delivery | Aborted], start: float, limit: float) -> Delivery:
        """The answer, looking up twice a second to see whether the job or the party was ended meanwhile."""
        while True:
            try:
                found = answer.get(timeout=0.5)
            except Empty:
                if self.aborted():
                    raise Aborted from None
                self._check_stopped()
                if name in self.lost:
                    return Delivery(None, time.perf_counter() - start, "gone")
                if time.perf_counter() - start > limit + GRACE:
                    return Delivery(None, time.perf_counter() - start, "timeout")
                continue
            if isinstance(found, Aborted):
                raise found
            return found


def _has_answer(answer: SimpleQueue[Delivery | Aborted]) -> bool:
    return not answer.empty() and isinstance(answer.get(), Delivery)


def _is_timeout(error: BaseException) -> bool:
    """FLARE wraps what went wrong; its wrapper keeps the cause or the name of its type."""
    cause = getattr(error, "cause", None) or error.__cause__
    return isinstance(error, TimeoutError) or isinstance(cause, TimeoutError) or "Timeout" in _kind(error)


def _is_abort(error: BaseException) -> bool:
    return type(error).__name__ == "RunAborted"


def _kind(error: BaseException) -> str:
    return str(getattr(error, "cause_type", "") or "")
