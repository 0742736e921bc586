"""Several conversations side by side: what all of them ask next travels together, one message a party and round.

A cross-validation trains the same model fold by fold. Between machines every question is a round trip, so folds one
after the other cost as many round trips as there are folds. ``in_step`` runs them in turns: each goes on until it asks
something, then the questions of all are sent as one message to each party, and each gets its own answers. So the rounds
of many conversations are those of the longest. None is written differently for it, and each request stays what it was:
judged, counted and answered by itself, in the order of the conversations.

Each conversation has a thread, but only one runs at any time, in a fixed order: nothing depends on who was faster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, Generic, Protocol, TypeVar

from fedsift.core.ledger import Entry, Ledger
from fedsift.core.message import MOST_TOGETHER, pack_parts, unpack
from fedsift.core.progress import Work
from fedsift.core.relayed import Parts, whole
from fedsift.core.transports.base import Aborted, Delivery
from fedsift.errors import MessageError

T = TypeVar("T")
#: Numbers (rows x columns) of all conversations that go side by side: parties keep those of each.
ROOM = 2**24


class Link(Protocol):
    """What several conversations share (``exchange.py``)."""

    book: Ledger

    @property
    def work(self) -> Work: ...
    def next_round(self) -> int: ...
    def carry(self, requests: Mapping[str, bytes | Parts], limit: float | None) -> dict[str, Delivery]: ...


class Conversing(Protocol):
    """A federation, as far as it matters here."""

    @property
    def _link(self) -> Link: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def n_columns(self) -> dict[str, int]: ...
    def progress(self, done: int, of: int, what: str) -> None: ...


def in_step(fed: Conversing, turns: Sequence[Callable[[], T]], what: str, at_once: int = MOST_TOGETHER) -> list[T]:
    """The results of all conversations, in their order; ``at_once`` of them side by side. ``what`` each of them is.

    The first that fails ends the others, at their next question. Inside such a conversation they go one by one.
    """
    together = 1 if _side.get() is not None else max(1, min(at_once, MOST_TOGETHER))
    results: list[T] = []
    with fed._link.work.inside():
        for at in range(0, len(turns), together):
            fed.progress(at, len(turns), what)
            part = turns[at : at + together]
            results += [turn() for turn in part] if len(part) == 1 else _Group(fed._link, part).run()
        fed.progress(len(turns), len(turns), what)
    return results


def room_for(fed: Conversing, numbers: int = 0) -> int:
    """How many conversations over all of this view's cells may go side by side; ``numbers`` of a row, where parties
    keep more of them than there are columns (a column in eight bins is eight)."""
    return max(1, ROOM // max(1, fed.n_rows * max(numbers, sum(fed.n_columns.values()))))


class _Unwatched(Work):
    """Loops of all conversations but the first are told to nobody: they are at the same place."""

    def tell(self) -> None:
        pass


class Side(Generic[T]):
    """One conversation: its thread, what it asks, a ledger and loops of its own."""

    def __init__(self, group: _Group[T], turn: Callable[[], T], number: int):
        self.group, self.turn = group, turn
        self.ledger, self.told, self.noted = Ledger(), 0, 0  # how much of it stands in the common one
        self.work = group.link.work if number == 0 else _Unwatched()
        self.asked: Mapping[str, bytes | Parts] | None = None
        self.limit: float | None = None
        self.given: dict[str, Delivery] = {}
        self.stopped = self.over = False
        self.result: list[T] = []
        self.error: Exception | None = None
        self._go = threading.Semaphore(0)
        context = copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name=f"fedsift-side-{number}", daemon=True
        )

    @property
    def round(self) -> int:
        return self.group.round

    def carry(self, requests: Mapping[str, bytes | Parts], limit: float | None) -> dict[str, Delivery]:
        """Called by the exchange, in this conversation's thread: wait until all have asked, and for the answers."""
        if self.group.dead:
            raise Aborted
        before = self.stopped
        self.asked, self.limit = requests, limit
        self.group.back.release()
        self._go.acquire()
        if self.group.dead or self.stopped != before:
            raise Aborted
        return self.given

    def resume(self) -> None:
        """Called by the group: go on until the next question, or the end."""
        if not self._thread.ident:
            self._thread.start()
        else:
            self._go.release()
        self.group.back.acquire()

    def _run(self) -> None:
        _side.set(self)
        try:
            self.result.append(self.turn())
        except Exception as error:
            self.error = error
        finally:
            self.over, self.asked = True, None
            self.group.back.release()


_side: ContextVar[Side[Any] | None] = ContextVar("fedsift conversation", default=None)


def side_of(link: Link) -> Side[object] | None:
    """The conversation that is running, where it is one of several over this link."""
    side = _side.get()
    return side if side is not None and side.group.link is link else None


class _Group(Generic[T]):
    """The conversations, and who runs now."""

    def __init__(self, link: Link, turns: Sequence[Callable[[], T]]):
        self.link, self.round, self.dead = link, 0, False
        self.back = threading.Semaphore(0)
        self.sides = [Side(self, turn, number) for number, turn in enumerate(turns)]

    def run(self) -> list[T]:
        try:
            while going := [side for side in self.sides if not side.over]:
                self.round = self.link.next_round()
                for side in going:
                    side.resume()
                    if side.error is not None:
                        self._stop()
                self._note()
                asking = [side for side in self.sides if side.asked is not None]
                if asking:
                    self._carry(asking)
        except BaseException:
            self._end()
            raise
        failed = [side.error for side in self.sides if side.error is not None]
        for error in failed:
            if not isinstance(error, Aborted):
                raise error
        if failed:
            raise failed[0]
        return [side.result[0] for side in self.sides]

    def _stop(self) -> None:
        """One has failed: the others end, and may still tell the parties so."""
        for side in self.sides:
            side.stopped = True

    def _end(self) -> None:
        """The job is over, or somebody interrupted it: nobody asks anything more."""
        self.dead = True
        for side in self.sides:
            if not side.over:
                side.resume()
        self._note()

    def _carry(self, asking: Sequence[Side[T]]) -> None:
        together: dict[str, list[Side[T]]] = {}
        for side in asking:
            for name in side.asked or ():
                together.setdefault(name, []).append(side)
        sent = {name: pack_parts([(side.asked or {})[name] for side in sides]) for name, sides in together.items()}
        limits = [side.limit for side in asking]
        limit = None if None in limits else sum(each for each in limits if each is not None)
        for side in asking:
            side.asked, side.given = None, {}
        for name, came in self.link.carry(sent, limit).items():
            for side, answer in zip(together[name], _apart(came, len(together[name]))):
                side.given[name] = answer

    def _note(self) -> None:
        """Into the ledger of all, what is new in theirs: answers to the last questions, and then the next ones."""
        fresh: list[Entry] = []
        for side in self.sides:
            entries, notes = side.ledger.entries, side.ledger.notes
            fresh += entries[side.told :]
            for note in notes[side.noted :]:
                self.link.book.note(note)
            side.told, side.noted = len(entries), len(notes)
        for entry in sorted(fresh, key=lambda entry: entry.round):
            self.link.book.add(entry)


def _apart(came: Delivery, count: int) -> list[Delivery]:
    """What came for each of so many requests; what is no such message is no answer to any of them."""
    if came.data is None or count == 1:
        return [came] * count
    try:
        found = unpack(whole(came.data))
    except MessageError:
        found = []
    if len(found) != count:  # an error of the site, say
        found = [found[0] if len(found) == 1 else b""] * count
    return [Delivery(data, came.seconds / count, came.failure) for data in found]
