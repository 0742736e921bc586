"""How far long work is: loops say it, watchers show it. Nothing of this is sent to anybody.

A method writes ``for epoch in fed.track(range(epochs), "epoch")``, or ``fed.progress(done, of, "column")`` in a loop of
another kind. Loops may lie inside each other (fold, method, epoch). The time left is that of one loop and comes from
its own finished turns: before the first turn is over there is no estimate.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from fedsift.core.ledger import Ledger
    from fedsift.core.operation import Operation

Item = TypeVar("Item")
_RECENT = 10  # turns that an estimate is made of: long ago says little about turns that grow or shrink


class Loop:
    """One loop: ``done`` of ``of`` turns. It may end sooner (``at_most``); its turns may differ (not ``alike``)."""

    def __init__(self, what: str, of: int, at_most: bool = False, alike: bool = True):
        self.what, self.of, self.at_most, self.alike = what, of, at_most, alike
        self.done = 0
        self._turns: deque[float] = deque(maxlen=_RECENT)
        self._since = time.monotonic()  # when the turn that is going on began

    def move(self, done: int, of: int) -> None:
        now = time.monotonic()
        if done > self.done:
            self._turns.append((now - self._since) / (done - self.done))
        elif done < self.done:
            self._turns.clear()  # the same loop, begun anew
        self.done, self.of, self._since = done, of, now

    def left(self) -> float | None:
        """Seconds to the last turn's end, from the mean of the last turns; ``None`` while there is none to go by."""
        if not self._turns or (not self.alike and self.done < self.of):
            return None
        inside = time.monotonic() - self._since
        mean = fmean(self._turns)
        mean = fmean([*self._turns, inside]) if inside > mean else mean  # this turn is slower: so may be the rest
        return max(mean - inside, 0.0) + mean * max(self.of - self.done - 1, 0) if self.done < self.of else 0.0

    def facts(self) -> dict[str, Any]:
        left = self.left()
        return {
            "what": self.what, "done": self.done, "of": self.of, "at_most": self.at_most,
            "eta": None if left is None else round(left, 1),
        }  # fmt: skip


class Watcher:
    """Is told of the work as it goes. A subclass takes what it wants to know."""

    def asking(self, operation: Operation, round: int, ledger: Ledger) -> None:
        """Parties are about to be asked."""

    def asked(self, operation: Operation, round: int, ledger: Ledger) -> None:
        """All have answered (or failed)."""

    def waiting(self, until: Mapping[str, str]) -> None:
        """Parties whose people have to approve the job, and how long each waits for them; none: all have."""

    def moved(self, loops: Sequence[Loop]) -> None:
        """A loop began, went on or ended. The outermost comes first; none: no loop is running."""


_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("fedsift_watchers", default=())


@contextmanager
def watching(watcher: Watcher) -> Iterator[Watcher]:
    """Tell the watcher of every federation's work inside this block, from alignment on."""
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield watcher
    finally:
        _watchers.reset(token)


class Work:
    """The loops that are running in one federation, and word of them to the watchers."""

    def __init__(self) -> None:
        self.loops: list[Loop] = []

    def track(
        self, items: Iterable[Item], what: str, of: int | None = None, at_most: bool = False, alike: bool = True
    ) -> Iterator[Item]:
        """The items one by one; each that is finished counts. ``of`` is their number where they have no length."""
        total = len(items) if of is None and isinstance(items, Sized) else of
        if total is None:
            yield from items  # of unknown number: there is nothing to tell
            return
        loop = Loop(what, total, at_most, alike)
        depth = len(self.loops)
        self.loops.append(loop)
        try:
            self.tell()
            for done, item in enumerate(items, 1):
                yield item
                del self.loops[depth + 1 :]
                loop.move(done, total)
                self.tell()
        finally:
            del self.loops[depth:]
            self.tell()

    def progress(self, done: int, of: int, what: str, at_most: bool = False) -> None:
        """``done`` of ``of`` turns of the loop that is called ``what``; loops inside it are over."""
        place = next((i for i, loop in enumerate(self.loops) if loop.what == what), len(self.loops))
        if place == len(self.loops):
            self.loops.append(Loop(what, of, at_most))
        self.loops[place].move(done, of)
        del self.loops[place + 1 :]
        self.tell()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Loops that begin in this block end with it."""
        depth = len(self.loops)
        try:
            yield
        finally:
            if len(self.loops) > depth:
                del self.loops[depth:]
                self.tell()

    def tell(self) -> None:
        for watcher in _watchers.get():
            watcher.moved(self.loops)

    def waiting(self, until: Mapping[str, str]) -> None:
        for watcher in _watchers.get():
            watcher.waiting(until)

    def asking(self, operation: Operation, round: int, ledger: Ledger) -> None:
        for watcher in _watchers.get():
            watcher.asking(operation, round, ledger)

    def asked(self, operation: Operation, round: int, ledger: Ledger) -> None:
        for watcher in _watchers.get():
            watcher.asked(operation, round, ledger)
