"""One changed request after the other at one site, each on the very state that an honest run has left there.

Requests that are refused before they run leave that state as it was. Where one was run, accepted or not, what was asked
is counted and its round is over: the rest would be refused for that alone, and the operation never be reached again. So
after each that has changed anything the site gets a copy of its state back. (A child by ``fork`` would be exact, but
the threads of Polars do not live through it.)
"""

from __future__ import annotations

import copy
import logging
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import GeneratorType
from typing import Any

import numpy as np

from fedsift.core.message import decode
from fedsift.core.party import UNFORESEEN, Site
from fedsift.errors import FedsiftError
from hostile.mutants import Untyped, is_typed, limited

ENOUGH = 5  # errors of a unit


@dataclass
class Tally:
    """What came of changed messages."""

    sent: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0  # typed, while running
    slowest: float = 0.0  # CPU seconds of one
    largest: int = 0  # bytes that one has made resident
    errors: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("sent", "accepted", "refused", "failed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest, self.largest = max(self.slowest, other.slowest), max(self.largest, other.largest)
        self.errors += other.errors


def memory(site: Site) -> tuple[Any, ...]:
    """What a site remembers between requests, down to what each step keeps; rows and numbers by identity."""
    runs = {name: (run.job, Counter(run.asked), {s: a.round for s, a in run.answered.items()}, _kept(run.kept))
            for name, run in site.runs.items()}  # fmt: skip
    sessions = {name: _kept(state) for name, state in site.sessions.items()}
    models = _kept(site.models._parts), dict(site.models.jobs)
    return runs, sessions, {name: id(view) for name, view in site.views.items()}, _kept(site.keys), models


def _kept(store: dict[Any, Any]) -> dict[Any, int]:
    return {key: id(value) for key, value in store.items()}


class Before:
    """A copy of what a site keeps, to go back to: all that runs, views, keys and models are, down to the last number.

    Not the journal (nothing is taken off it), nor what cannot be copied: secret keys, and tensors that carry gradients
    and programs under way, after which there is no going back.
    Changed requests meet copies; the run goes on with what it had.
    """

    def __init__(self, site: Site):
        self.site, self.own, self.whole = site, _stores(site), True
        shared = (site.table, site.identity, site, *vars(site.table).values())
        self.shared: dict[int, Any] = {id(each): each for each in shared}
        self.kept = self._copied(_stores(site))

    def bring_back(self) -> None:
        for name, value in self._copied(self.kept).items():
            vars(self.site)[name] = value

    def end(self) -> None:
        vars(self.site).update(self.own)

    def _copied(self, stores: dict[str, Any]) -> dict[str, Any]:
        """All at once: what two steps hold together they hold together in the copy."""
        while True:
            try:
                return copy.deepcopy(stores, dict(self.shared))
            except Exception as error:
                frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
                whole = next(f.f_locals["x"] for f in reversed(frames) if f.f_code is copy.deepcopy.__code__)
                self.shared[id(whole)] = whole
                self.whole = (
                    self.whole and not isinstance(whole, GeneratorType) and "torch" not in type(whole).__module__
                )


def _stores(site: Site) -> dict[str, Any]:
    names = ("runs", "sessions", "views", "keys", "models", "_accepted")
    return {name: vars(site)[name] for name in names if name in vars(site)}


class _Places(logging.Handler):
    """Where the site's last unforeseen error was raised, and what it said: that stands in its log alone."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.last = f"{record.exc_info[1]}"[:160] + raised_in(record.exc_info[1])


def raised_in(error: BaseException) -> str:
    """The last lines of fedsift that an error came through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "fedsift" in f.filename]
    return "".join(f" [{Path(frame.filename).name}:{frame.lineno}]" for frame in frames[-2:])


PLACES = _Places()


@contextmanager
def unheard(name: str) -> Iterator[logging.Logger]:
    """What a logger says is passed on to nobody meanwhile: it is in the tally."""
    logger = logging.getLogger(name)
    before, logger.propagate = logger.propagate, False
    try:
        yield logger
    finally:
        logger.propagate = before


@contextmanager
def heard_out(where: str, tally: Tally) -> Iterator[None]:
    """A coordinator that hears changed replies goes on or refuses them in words; anything else is an error."""
    try:
        yield
        tally.accepted += 1
    except FedsiftError as error:
        tally.refused += 1
        if UNFORESEEN in str(error):
            tally.errors.append(f"{where}: {error}"[:900])
    except Exception as error:
        tally.errors.append(f"{where}: {type(error).__name__}: {error}{raised_in(error)}"[:900])


def strike(site: Site, data: bytes, mutants: Iterable[bytes]) -> Tally:
    """Send each of the changed forms of this request; raise nothing: what is wrong stands in the tally."""
    with unheard("fedsift.core.party") as logger:
        logger.addHandler(PLACES)
        try:
            return _struck(site, data, mutants)
        finally:
            logger.removeHandler(PLACES)


def _struck(site: Site, data: bytes, mutants: Iterable[bytes]) -> Tally:
    tally, operation, kept = Tally(), str(decode(data)["operation"]), Before(site)
    kept.bring_back()
    before = memory(site)
    for mutant in mutants:
        try:
            changed = send(site, operation, mutant, before, tally)
        except Untyped as error:
            known = {told.partition(" to ")[0] for told in tally.errors}
            tally.errors += [str(error)] * (str(error).partition(" to ")[0] not in known)  # one of a kind
            changed = True
        if len(tally.errors) >= ENOUGH or (
            changed and not kept.whole
        ):  # a graph of gradients is gone, a program has gone on
            break
        if changed:
            kept.bring_back()
            before = memory(site)
    kept.end()
    return tally


def send(site: Site, operation: str, mutant: bytes, before: tuple[Any, ...], tally: Tally) -> bool:
    """Whether it was run: what the site remembers may be another now."""
    start = time.process_time()
    tally.sent += 1
    with limited(operation) as used:
        reply = decode(site.handle(mutant))
    tally.slowest = max(tally.slowest, time.process_time() - start)
    tally.largest = max(tally.largest, used.grown)
    if "ok" in reply:
        tally.accepted += 1
        return True
    if not is_typed(reply):
        raise Untyped(f"{operation}: {reply['what']}: {PLACES.last} to {_said(mutant)}"[:900])
    if memory(site) == before:
        tally.refused += 1
        return False
    _check_counted(site, before, operation)
    tally.failed += 1
    return True


def _check_counted(site: Site, before: tuple[Any, ...], operation: str) -> None:
    """What has changed is that something was asked, and what it has used up: an operation that failed while it ran."""
    now = memory(site)
    asked = sum((run[1] for run in now[0].values()), Counter())
    told = sum((run[1] for run in before[0].values()), Counter())
    if asked == told:
        parts = [str(this)[:300] for this, then in zip(now, before) if this != then]
        raise Untyped(f"{operation}: refused before it ran, it has changed what the site remembers: {parts}")
    kept = [name for name, state in now[1].items() if not state.items() <= before[1].get(name, {}).items()]
    if kept or now[2:] != before[2:]:
        raise Untyped(f"{operation}: it failed, and has changed what the site keeps for other steps")


def _said(data: bytes) -> str:
    """A changed request, in short."""
    try:
        request = decode(data)
    except Exception:  # of a message that cannot be read
        return repr(data[:100])
    return _short(request.get("arguments", request) if isinstance(request, dict) else request)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.ravel()[:3]}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{str(key)[:40]}: {_short(item)}" for key, item in list(value.items())[:8]) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_short(item) for item in value[:3]) + f" ({len(value)})]"
    return repr(value)[:60]
