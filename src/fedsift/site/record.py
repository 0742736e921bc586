"""A site's own ledger: one line for each request that it answered or refused, written as it happens.

The coordinator keeps a ledger too, but it is the coordinator's. This one lies at the site, and is there however a job
ends: finished, refused, cut off. A line says what the reply was, in which form it left, and what its receiver can open
or compute of it; of the data it holds nothing.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path

from fedsift.core.operation import Operation

NAME = "ledger.csv"
COLUMNS = ("at", "session", "round", "operation", "form", "about", "opened", "received", "sent", "outcome")


class SiteLedger:
    """Appends to a file; every line is on disk before the reply leaves."""

    def __init__(self, path: Path):
        self.path = path
        if not path.exists():
            self._append(COLUMNS)

    def answered(self, marked: Operation, session: str, round: int, received: int, sent: int) -> None:
        """A reply is about to leave."""
        self._line(session, round, marked.id, marked.discloses, marked.about, marked.opened, received, sent, "answered")

    def refused(self, operation: str, session: str, round: int, received: int, why: str) -> None:
        """Nothing leaves but the refusal."""
        self._line(session, round, operation[:200], "control", "", "", received, 0, why[:300])

    def _line(self, *values: str | int) -> None:
        self._append((time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), *values))

    def _append(self, values: tuple[str | int, ...]) -> None:
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(values)
