"""Requests and replies of an honest run, changed at random: another type, another size, a key less, bits flipped.

Each is taken under two limits: CPU seconds (those of the clock are the machine's, if others work on it), and memory.
The second is the operating system's own (``RLIMIT_AS``): a call that wants more than 64 MB beyond what the process has
gets a MemoryError, which is no typed answer.
"""

from __future__ import annotations

import copy
import ctypes
import random
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsift.core.exchange import Exchange
from fedsift.core.message import decode, encode, pack, unpack
from fedsift.core.operation import find_operation
from fedsift.core.party import UNFORESEEN, Site
from fedsift.core.transports.base import Delivery, Transport
from fedsift.errors import MessageError
from hostile.coordinator import TYPED

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**53, -(2**63), 10**40, 0.0, -0.5, 1e308, float("nan"), float("inf"), "", "x",
    "none", "x" * 20_000, b"", b"\x00" * 64, [], [[]], [None] * 50, {}, {"a": None}, {"bank": {}, "shop": []},
    np.zeros(0), np.zeros((3, 3)), np.full(4, np.nan), np.arange(5), -np.arange(5), np.zeros((0, 2**20)),
    np.array([2**62]), np.ones(3, dtype=bool), np.ones(3, dtype=np.uint64), np.zeros((1,) * 8), np.array(3.0),
]  # fmt: skip
LONGEST_S = 2.0
MOST_BYTES = 64 << 20
_M_ARENA_MAX = -8
_STATM, _STATUS, _PEAK = (Path(f"/proc/self/{name}") for name in ("statm", "status", "clear_refs"))


class Untyped(AssertionError):
    """A site answered with something unforeseen, or took too long."""


@dataclass
class Used:
    """What a call took."""

    grown: int = 0  # bytes that it made resident at most, where the system tells


@contextmanager
def limited(what: str, longest: float = LONGEST_S) -> Iterator[Used]:
    """No more than two seconds and 64 MB. Threads share one heap: one of their own would be 64 MB of addresses."""
    used, resident = Used(), _resident(again=True)
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if _STATM.exists():
        now = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES, hard))
    start, clock = time.process_time(), time.perf_counter()
    try:
        yield used
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        used.grown = _resident() - resident
    if time.process_time() - start > longest or time.perf_counter() - clock > 30 * longest:
        raise Untyped(f"{what} took {time.process_time() - start:.1f} CPU seconds")


def _resident(again: bool = False) -> int:
    """The most bytes that this process has had resident; ``again``: counted from now on."""
    if not _PEAK.exists():
        return 0
    if again:
        _PEAK.write_text("5")
    return next(int(line.split()[1]) << 10 for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))


class OneByOne(Transport):
    """Several requests in one message (folds side by side) are taken one after the other, as a site takes them."""

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        asked = {name: unpack(data) for name, data in requests.items()}
        told: dict[str, list[bytes | None]] = {name: [] for name in requests}
        for turn in range(max(map(len, asked.values()))):
            for name, reply in self.take(
                {name: each[turn] for name, each in asked.items() if turn < len(each)}
            ).items():
                told[name].append(reply)
        whole = {name: [reply for reply in replies if reply is not None] for name, replies in told.items()}
        gone = {name for name in told if len(whole[name]) < len(told[name])}
        return {n: Delivery(None, 0.0, "gone") if n in gone else Delivery(pack(whole[n]), 0.0) for n in requests}

    def take(self, requests: dict[str, bytes]) -> dict[str, bytes | None]:
        """The reply to each request; ``None`` for a party that is gone."""
        raise NotImplementedError


def is_typed(reply: dict[str, Any]) -> bool:
    """Refused by a check of its own. An error of Python that nobody foresaw is told as a refusal too (``UNFORESEEN``):
    to the coordinator it is one, here it is a fault."""
    return reply["error"] in TYPED and not str(reply["what"]).startswith(UNFORESEEN)


class Mutating(Transport):
    """Before each honest request it sends changed ones, and looks at what comes back."""

    name = "mutating"

    def __init__(self, sites: dict[str, Site], seed: int, each: int, only_refused: bool = False):
        self.sites, self.each, self.only_refused = sites, each, only_refused
        self.random = random.Random(seed)
        self.sent = self.accepted = 0

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        for name, data in requests.items():
            for _ in range(self.each):
                self._attack(self.sites[name], data)
        return {name: Delivery(self.sites[name].handle(data), 0.0) for name, data in requests.items()}

    def _attack(self, site: Site, data: bytes) -> None:
        mutant = mutated(data, self.random)
        if self.only_refused:
            mutant = _without_an_argument(mutant)
        with limited(str(decode(data)["operation"])):
            answer = site.handle(mutant)
        reply = decode(answer)
        self.sent += 1
        if "ok" in reply:
            self.accepted += 1
        elif not is_typed(reply):
            raise Untyped(f"{reply} to {decode(mutant)}"[:900])


class Recorded(OneByOne):
    """Writes down what the sites of an honest run replied, exchange by exchange."""

    name = "recorded"

    def __init__(self, sites: dict[str, Site]):
        self.sites = sites
        self.replies: list[dict[str, bytes]] = []
        self.asked: list[dict[str, str]] = []  # which operations they were
        self.requests: dict[tuple[str, str], bytes] = {}  # the last of each operation to each party

    def take(self, requests: dict[str, bytes]) -> dict[str, bytes | None]:
        self.requests |= {(str(decode(data)["operation"]), name): data for name, data in requests.items()}
        self.asked.append({name: str(decode(data)["operation"]) for name, data in requests.items()})
        self.replies.append({name: self.sites[name].handle(data) for name, data in requests.items()})
        return {**self.replies[-1]}


class Lying(OneByOne):
    """Plays an honest run's replies, one of them changed; so a mutant costs a coordinator's work and no party's."""

    name = "lying"

    def __init__(self, replies: list[dict[str, bytes]], rng: random.Random):
        self.replies = replies
        self.at = rng.randrange(len(replies))
        self.liar = rng.choice(list(replies[self.at]))
        self.lie = mutated(replies[self.at][self.liar], rng, 0.3)
        self.turn = 0

    def take(self, requests: dict[str, bytes]) -> dict[str, bytes | None]:
        told = dict(self.replies[self.turn]) if self.turn < len(self.replies) else {}
        if self.turn == self.at:
            told[self.liar] = self.lie
        self.turn += 1
        return {name: told.get(name) for name in requests}


def received(record: Recorded, lying: Lying) -> None:
    """What a coordinator does first with the changed reply: the very code of a run. Most end here, in a typed error,
    and need no run that gets so far."""
    name = lying.liar
    marked = find_operation(record.asked[lying.at][name], name)
    Exchange(record, None)._receive(marked, 1, name, Delivery(lying.lie, 0.0), None)


def mutated(data: bytes, rng: random.Random, flips: float = 0.1) -> bytes:
    """One to three changes."""
    if rng.random() < flips:
        return flipped(data, rng)
    request = decode(data)
    for _ in range(rng.randint(1, 3)):
        _change(request, rng)
    try:
        return encode(request)
    except MessageError:  # a key that is no text, say
        return data[: rng.randrange(len(data))]


def _without_an_argument(data: bytes) -> bytes:
    """Surely refused, and late: everything else about it may be right."""
    try:
        request = decode(data)
    except MessageError:
        return data
    if isinstance(request.get("arguments"), dict):
        request["arguments"]["further"] = 1
    return encode(request)


def flipped(data: bytes, rng: random.Random) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw[: rng.randrange(len(raw))]) if rng.random() < 0.3 else bytes(raw)


def _change(request: dict[str, Any], rng: random.Random) -> None:
    """Somewhere inside, mostly in the arguments."""
    arguments = request.get("arguments")
    inside = isinstance(arguments, dict) and len(arguments) and rng.random() > 0.15
    place: Any = arguments if inside else request
    while isinstance(place, (dict, list)) and place:
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.6:
            place = place[key]
            continue
        what = rng.random()
        if what < 0.1:
            del place[key]
        elif what < 0.15 and isinstance(place, dict):
            place[f"{key}2"] = copy.copy(rng.choice(ODD))
        elif what < 0.3 and isinstance(place[key], np.ndarray) and place[key].size:
            place[key] = place[key][: rng.randrange(len(place[key]))] if place[key].ndim else place[key] * 2
        else:
            place[key] = copy.copy(rng.choice(ODD))
        return
