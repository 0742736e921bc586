"""Parties in processes of their own, for ``scale_measured.py``: what one of them takes of memory can be told."""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from fedsift.core.identity import Fingerprint, Identity, SigningKey
from fedsift.core.party import Site
from fedsift.core.table import Table
from fedsift.core.transports.base import Delivery, Transport


@dataclass(frozen=True)
class Usage:
    """Of one process: the most memory it ever had, and its CPU seconds."""

    memory: int
    cpu: float

    @classmethod
    def here(cls) -> Usage:
        return cls(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, time.process_time())


class Apart(Transport):
    """A process for each party, which reads its table there; bytes go through pipes."""

    name = "apart"

    def __init__(self, files: dict[str, Path], labels: dict[str, str | None]):
        private = {name: os.urandom(32) for name in files}
        known = {name: Fingerprint.of(SigningKey(key).public) for name, key in private.items()}
        spawned, self.lines = multiprocessing.get_context("spawn"), {}
        for name, file in files.items():
            self.lines[name], there = spawned.Pipe()
            told = (there, name, file, labels[name], private[name], known)
            spawned.Process(target=serve, args=told, daemon=True).start()
        self.before: dict[str, Usage] = {name: line.recv() for name, line in self.lines.items()}  # the table is read

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        result = {}

        def ask(name: str, data: bytes) -> None:
            start = time.perf_counter()
            self.lines[name].send_bytes(data)
            result[name] = Delivery(self.lines[name].recv_bytes(), time.perf_counter() - start)

        threads = [threading.Thread(target=ask, args=each) for each in requests.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return result

    def usage(self) -> dict[str, Usage]:
        """Of each party, CPU seconds since its table was read; they end with it."""
        for line in self.lines.values():
            line.send_bytes(b"")
        found: dict[str, Usage] = {name: line.recv() for name, line in self.lines.items()}
        return {name: Usage(each.memory, each.cpu - self.before[name].cpu) for name, each in found.items()}


def serve(
    line: Connection, name: str, file: Path, label: str | None, private: bytes, known: dict[str, Fingerprint]
) -> None:
    import fedsift._public  # noqa: F401  every operation and kind of message, as at a site

    identity = Identity(SigningKey(private), known)
    site = Site(name, Table.read(file, id=None, label=label, name=name), os.urandom(32), identity)
    line.send(Usage.here())
    while data := line.recv_bytes():
        line.send_bytes(site.receive(data))
    line.send(Usage.here())
