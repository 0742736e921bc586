"""All parties in this process, a thread each; the same bytes as over a network.

The heavy libraries either release Python's lock or use both cores inside one call, so threads are enough. They are
daemon threads: a party that hangs cannot keep the program from ending. Those that do not hang are ended before Python
is: a thread that still frees what a C++ library made while the interpreter goes would abort the whole program.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref

from fedsift.core.identity import introduce
from fedsift.core.party import Site
from fedsift.core.transports.base import Delivery, Transport

_Job = tuple[bytes, "queue.SimpleQueue[Delivery]"]
_LAST_WAIT_S = 2.0
_workers: weakref.WeakKeyDictionary[threading.Thread, queue.SimpleQueue[_Job | None]] = weakref.WeakKeyDictionary()


class InProcess(Transport):
    name = "inprocess"

    def __init__(self, sites: dict[str, Site]):
        self.sites = sites
        introduce(sites)
        self._queues: dict[str, queue.SimpleQueue[_Job | None]] = {}

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        start = time.perf_counter()
        replies: dict[str, queue.SimpleQueue[Delivery]] = {}
        for name, data in requests.items():
            replies[name] = queue.SimpleQueue()
            self._worker(name).put((data, replies[name]))
        result = {}
        for name, reply in replies.items():
            left = None if timeout is None else max(0.0, start + timeout - time.perf_counter())
            try:
                result[name] = reply.get(timeout=left)
            except queue.Empty:
                self._queues.pop(name).put(None)  # the thread ends after its work; the next request gets a new one
                result[name] = Delivery(None, time.perf_counter() - start, "timeout")
        return result

    def _worker(self, name: str) -> queue.SimpleQueue[_Job | None]:
        if name not in self._queues:
            self._queues[name] = queue.SimpleQueue()
            thread = threading.Thread(
                target=_serve, args=(self.sites, name, self._queues[name]), name=f"fedsift-{name}", daemon=True
            )
            _workers[thread] = self._queues[name]
            thread.start()
        return self._queues[name]

    def close(self) -> None:
        for jobs in self._queues.values():
            jobs.put(None)
        self._queues.clear()

    def __del__(self) -> None:
        self.close()


def _serve(sites: dict[str, Site], name: str, jobs: queue.SimpleQueue[_Job | None]) -> None:
    """A party's thread. It knows the sites but not the transport, so that a forgotten transport ends its threads."""
    while (job := jobs.get()) is not None:
        data, reply = job
        start = time.perf_counter()
        site = sites.get(name)
        answer = site.receive(data) if site is not None else None
        reply.put(Delivery(answer, time.perf_counter() - start, "" if answer is not None else "gone"))
        del job, data, reply, site, answer  # nothing of the last request is kept while waiting for the next


@atexit.register
def _end_workers() -> None:
    running = list(_workers.items())
    for _, jobs in running:
        jobs.put(None)
    deadline = time.monotonic() + _LAST_WAIT_S
    for thread, _ in running:
        thread.join(max(0.0, deadline - time.monotonic()))
