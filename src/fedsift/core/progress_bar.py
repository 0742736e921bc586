"""Long work, shown: a bar on a terminal, now and then a line elsewhere, JSON for scripts.

    with fs.progress():
        selector.fit(fed)

It shows how far the loops are, the time left where a loop has finished a turn to go by, the round, the step that the
parties are at, and the bytes so far. It goes to stderr and holds no values and no column names.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from fedsift.core.ledger import COORDINATOR, Entry, Ledger
from fedsift.core.operation import Operation
from fedsift.core.progress import Loop, Watcher, watching
from fedsift.core.terminal import clean, log_line, open_console, remark, rough, size

_EVERY = 30.0  # seconds between two lines where no bar can be drawn


class Shown(Watcher):
    """Keeps where the work stands: the stage, the loops, the round, the step, the bytes."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.stage = ""
        self.loops: list[Loop] = []
        self.round, self.step = 0, ""
        self._ledger: Ledger | None = None
        self._counted, self._bytes = 0, 0

    def say(self, text: str) -> None:
        """A new stage."""
        self.stage = text

    def asking(self, operation: Operation, round: int, ledger: Ledger) -> None:
        if ledger is not self._ledger:
            self._ledger, self._counted, self._bytes = ledger, 0, 0
        self.round, self.step = round, operation.short_name

    def waiting(self, until: Mapping[str, str]) -> None:
        """A new stage too, told once: the same again is no news."""
        text = waiting_words(until)
        if text != self.stage:
            self.say(text)

    def moved(self, loops: Sequence[Loop]) -> None:
        self.loops = [loop for loop in loops if loop.of > 1]

    @property
    def bytes(self) -> int:
        """All that went over the wire so far; what was counted before is not counted again."""
        if self._ledger is not None:
            new = self._ledger.since(self._counted)
            self._counted, self._bytes = self._counted + len(new), self._bytes + new.bytes()
        return self._bytes

    def words(self) -> str:
        """``column 12 of 50 (about 30 s left)  round 59  match_bins  4.1 MB``."""
        parts = [", ".join(loop_words(loop, self._timed() is loop) for loop in self.loops) or self.stage]
        if self.round:
            parts += [f"round {self.round}", self.step, size(self.bytes)]
        return "  ".join(part for part in parts if part)

    def _timed(self) -> Loop | None:
        """The outermost loop that has finished a turn: of it the time left is shown."""
        return next((loop for loop in self.loops if loop.left() is not None), None)

    def facts(self) -> dict[str, Any]:
        """Where it stands, for scripts; ``what``, ``done``, ``of`` and ``eta`` are those of the outermost loop."""
        loops = [loop.facts() for loop in self.loops]
        return {
            "event": "progress", "stage": self.stage, **(loops[0] if loops else {}), "inside": loops[1:],
            "round": self.round, "bytes": self.bytes, "elapsed": round(time.monotonic() - self.started, 1),
        }  # fmt: skip


def waiting_words(until: Mapping[str, str]) -> str:
    """``waiting for approval at bank until 2026-11-23 10:00 UTC``."""
    told = [f"{name} until {time[:16].replace('T', ' ')} UTC" for name, time in until.items()]
    return f"waiting for approval at {', '.join(told)}" if told else "approved by all who have to"


def loop_words(loop: Loop, timed: bool) -> str:
    text = f"{loop.what} {min(loop.done + 1, loop.of)} of {loop.of}"
    left = loop.left() if timed else None
    if left is None or loop.done >= loop.of:
        return text
    return f"{text} ({'at most' if loop.at_most else 'about'} {rough(left)} left)"


class _KnownBar(BarColumn):
    """A bar where the end is known, and nothing where it is not: the spinner and the clock show that work goes on."""

    def render(self, task: Task) -> Any:
        return super().render(task) if task.fields.get("known") else Text("")


class _Words(TextColumn):
    """Where the work stands, asked for anew at each drawing: the time left goes down while a step is under way."""

    def __init__(self, shown: Shown):
        super().__init__("", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        self.shown = shown

    def render(self, task: Task) -> Text:
        return Text(clean(self.shown.words() or "starting"))


class Bar(Shown):
    """One line that is drawn anew ten times a second."""

    def __init__(self) -> None:
        super().__init__()
        bar = _KnownBar(bar_width=16, table_column=Column(min_width=16, no_wrap=True))
        clock = TimeElapsedColumn(table_column=Column(min_width=7, no_wrap=True))
        columns = (SpinnerColumn(), _Words(self), bar, clock)
        self._bar = Progress(*columns, console=open_console(stderr=True), transient=True, expand=True)
        self._task = self._bar.add_task("", total=1, known=False)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def moved(self, loops: Sequence[Loop]) -> None:
        super().moved(loops)
        if self.loops:
            outer = self.loops[0]
            self._bar.update(self._task, total=outer.of, completed=outer.done, known=True)
        else:
            self._bar.update(self._task, total=1, completed=0, known=False)


class Lines(Shown):
    """Lines on stderr: each stage, and where it stands every ``every`` seconds; with ``asks`` every single ask."""

    def __init__(self, *, stages: bool = True, asks: bool = False, as_json: bool = False, every: float = _EVERY):
        super().__init__()
        self._stages, self._asks, self._json, self._every = stages, asks, as_json, every
        self._mark = 0  # messages in the ledger before the ask that is going on
        self._told = 0.0
        self._end = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="fedsift progress", daemon=True)

    def __enter__(self) -> Lines:
        if self._stages and not self._json:
            self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._clock.is_alive():
            self._clock.join()

    def _tick(self) -> None:
        """From a thread of its own, so that a single long step is seen to go on too."""
        while not self._end.wait(self._every):
            remark(f"{self.words()}  {rough(time.monotonic() - self.started)} so far")

    def say(self, text: str) -> None:
        super().say(text)
        if self._stages and self._json:
            log_line({"event": "step", "text": text})
        elif self._stages:
            remark(text)

    def moved(self, loops: Sequence[Loop]) -> None:
        """In JSON: a line a second at most, and one for the last turn of the outermost loop."""
        super().moved(loops)
        if not (self._json and self._stages and self.loops):
            return
        now, last = time.monotonic(), len(self.loops) == 1 and self.loops[0].done >= self.loops[0].of
        if last or now - self._told >= 1.0:
            self._told = now
            log_line(self.facts())

    def asking(self, operation: Operation, round: int, ledger: Ledger) -> None:
        super().asking(operation, round, ledger)
        self._mark = len(ledger)

    def asked(self, operation: Operation, round: int, ledger: Ledger) -> None:
        if not self._asks:
            return
        facts = _ask_facts([entry for entry in ledger.since(self._mark).entries if entry.round == round])
        if self._json:
            log_line(facts)
        else:
            remark(_ask_text(facts))


def _ask_facts(entries: Sequence[Entry]) -> dict[str, Any]:
    """One ask: what each party was sent, what it replied, and how long it worked. The parties work side by side."""
    parties: dict[str, dict[str, Any]] = {}
    for e in entries:
        outward = e.sender == COORDINATOR
        side = parties.setdefault(e.receiver if outward else e.sender, {"sent": 0, "received": 0, "seconds": 0.0})
        side["received" if outward else "sent"] += e.bytes
        if not outward:
            side |= {"seconds": round(e.seconds, 6), "form": e.form}
    return {
        "event": "ask",
        "round": entries[0].round,
        "operation": entries[0].operation,
        "bytes": sum(e.bytes for e in entries),
        "seconds": max(side["seconds"] for side in parties.values()),
        "parties": parties,
    }


def _ask_text(facts: Mapping[str, Any]) -> str:
    sides = [
        f"{name} got {size(side['received'])}, gave {size(side['sent'])} in {side['seconds']:.2f} s"
        for name, side in facts["parties"].items()
    ]
    return f"round {facts['round']}  {facts['operation']}  {'; '.join(sides)}"


@contextmanager
def follow(quiet: bool = False, verbose: bool = False, log_json: bool = False, every: float = _EVERY) -> Iterator[Any]:
    """What the command line shows: a bar on a terminal, lines elsewhere (or when every ask is wanted)."""
    shown: AbstractContextManager[object]
    if quiet or verbose or log_json or not sys.stderr.isatty():
        shown = Lines(stages=not quiet, asks=log_json or (verbose and not quiet), as_json=log_json, every=every)
    else:
        shown = Bar()
    with shown as watcher, watching(watcher):
        yield watcher


@contextmanager
def progress(*, every: float = _EVERY) -> Iterator[None]:
    """Show how far the work of this block is: a bar on a terminal, elsewhere a line every ``every`` seconds at most.

    Examples
    --------
    >>> import fedsift as fs
    >>> with fs.progress(every=60):
    ...     pass  # selector.fit(fed)
    """
    with follow(every=every):
        yield
