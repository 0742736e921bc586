"""Every value in every request and reply, changed in every way, one at a time: what draws at random reach late.

    PYTHONPATH=tests python -m hostile.sweep [--processes 16] [--cases sffs muse] [--kinds requests orders replies]

An honest run of each case; the first and the last time that a step is asked of a party, each value in its request (of
a list or dictionary the first and the last item) is left out, made another size, and put as each of ``ODD``; so is each
value in its reply. ``orders``: at the same places each step of the run comes in the place of the one that is due, and
the one that is due twice. The demands are those of ``fuzz.py``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np

from fedsift.core.message import decode, encode
from fedsift.core.party import Site
from fedsift.errors import MessageError
from hostile.cases import fit, sites_of
from hostile.fuzz import ALL
from hostile.mutants import ODD, Lying, OneByOne, Recorded, limited, received
from hostile.strikes import ENOUGH, Tally, heard_out, strike, unheard

Path = tuple[Any, ...]
_INSIDE = {"requests": "arguments", "replies": "ok"}


def changes(data: bytes, kind: str) -> Iterator[bytes]:
    """Each change of a message's content, one at a time."""
    inside = _INSIDE[kind]
    told = decode(data)
    for path in _paths(told[inside], (inside,)) if inside in told else ():  # a refusal has nothing inside
        for how in range(len(ODD) + len(_SIZES)):
            message = decode(data)
            place: Any = message
            for key in path[:-1]:
                place = place[key]
            if how < len(ODD):
                place[path[-1]] = copy(ODD[how])
            elif not _SIZES[how - len(ODD)](place, path[-1]):
                continue
            try:
                yield encode(message)
            except MessageError:  # no message any more
                continue


def _paths(value: Any, at: Path) -> Iterator[Path]:
    yield at
    keys: list[Any] = []
    if isinstance(value, (dict, list)):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    for key in dict.fromkeys([*keys[:1], *keys[-1:]] if len(keys) > 8 or isinstance(value, list) else keys):
        yield from _paths(value[key], (*at, key))


def _left_out(place: Any, key: Any) -> bool:
    del place[key]
    return True


def _twice(place: Any, key: Any) -> bool:
    """Of a list or an array each item twice; of a number, its double."""
    value = place[key]
    place[key] = np.concatenate([value, value]) if isinstance(value, np.ndarray) and value.ndim else value
    if isinstance(value, (list, str, bytes, int, float)) and not isinstance(value, bool):
        place[key] = value * 2
    return place[key] is not value


def _one_less(place: Any, key: Any) -> bool:
    value = place[key]
    if (isinstance(value, (list, bytes, str)) and value) or (isinstance(value, np.ndarray) and value.shape > (0,)):
        place[key] = value[:-1]
        return True
    return False


def _of_array(place: Any, key: Any, change: Any) -> bool:
    if not isinstance(place[key], np.ndarray):
        return False
    place[key] = change(place[key])
    return True


_SIZES = [
    _left_out, _twice, _one_less,
    lambda place, key: _of_array(place, key, lambda a: a[None]),
    lambda place, key: _of_array(place, key, np.ravel),
    lambda place, key: _of_array(place, key, np.zeros_like),
    lambda place, key: _of_array(place, key, lambda a: a[..., :0]),
    lambda place, key: _of_array(place, key, lambda a: np.full_like(a, _largest(a))),
    lambda place, key: _of_array(place, key, lambda a: np.full_like(a, -_largest(a) if a.dtype.kind in "if" else 1)),
    lambda place, key: _of_array(place, key, lambda a: a.astype(np.float64)),
    lambda place, key: _of_array(place, key, lambda a: np.nan_to_num(a.astype(np.float64)).astype(np.int64)),
    lambda place, key: _of_array(place, key, lambda a: a.T.copy()),
]  # fmt: skip


def _largest(numbers: np.ndarray) -> Any:
    return np.iinfo(numbers.dtype).max if numbers.dtype.kind in "iu" else 1e300 if numbers.dtype == np.float64 else 1


def _turns(record: Recorded) -> dict[tuple[int, str], None]:
    """Exchange and party: the first and the last time that it is asked a step."""
    asked: dict[tuple[str, str], list[int]] = {}
    for turn, steps in enumerate(record.asked):
        for name, step in steps.items():
            asked.setdefault((step, name), []).append(turn)
    return {(turn, name): None for (_, name), turns in asked.items() for turn in dict.fromkeys((turns[0], turns[-1]))}


class Sweeping(OneByOne):
    """An honest run; at the turns that are named each site gets every change of its request first."""

    name = "sweeping"

    def __init__(self, sites: dict[str, Site], at: dict[tuple[int, str], None]):
        self.sites, self.at, self.turn, self.tally = sites, at, 0, Tally()

    def take(self, requests: dict[str, bytes]) -> dict[str, bytes | None]:
        for name, data in requests.items():
            if (self.turn, name) in self.at:
                self.tally.add(strike(self.sites[name], data, list(changes(data, "requests"))))
        self.turn += 1
        return {name: self.sites[name].handle(data) for name, data in requests.items()}


class OutOfOrder(Sweeping):
    """At each of those turns: each step of the whole run in the place of the one that is due, and that one twice."""

    name = "out of order"

    def __init__(self, sites: dict[str, Site], at: dict[tuple[int, str], None], record: Recorded):
        super().__init__(sites, at)
        self.record = record

    def take(self, requests: dict[str, bytes]) -> dict[str, bytes | None]:
        due = [name for name in requests if (self.turn, name) in self.at]
        for name in due:
            known = [data for (_, asked), data in self.record.requests.items() if asked == name]
            others = [_in_place_of(data, requests[name], 0) for data in known]
            self.tally.add(strike(self.sites[name], requests[name], others))
        self.turn += 1
        replies: dict[str, bytes | None] = {name: self.sites[name].handle(data) for name, data in requests.items()}
        for name in due:
            again = _in_place_of(requests[name], requests[name], 1)
            self.tally.add(strike(self.sites[name], requests[name], [again]))
        return replies


def _in_place_of(data: bytes, due: bytes, later: int) -> bytes:
    """A request as if it were the one that is due: its job, session, view and round."""
    wanted = decode(due)
    place = {name: wanted[name] for name in ("session", "view", "job")}
    return encode({**decode(data), **place, "round": wanted["round"] + later})


class OneChange(Lying):
    """A recorded run's replies, one of them as given."""

    def __init__(self, record: Recorded, at: int, liar: str, lie: bytes):
        self.replies, self.at, self.liar, self.lie, self.turn = record.replies, at, liar, lie, 0


def sweep_requests(name: str) -> Tally:
    return _swept(name, lambda record, at: Sweeping(sites_of(ALL[name]), at))


def sweep_orders(name: str) -> Tally:
    return _swept(name, lambda record, at: OutOfOrder(sites_of(ALL[name]), at, record))


def _swept(name: str, make: Callable[[Recorded, dict[tuple[int, str], None]], Sweeping]) -> Tally:
    case = ALL[name]
    record = Recorded(sites_of(case))
    fit(case, record)
    turns = _turns(record)
    sweeping = make(record, turns)
    try:
        fit(case, sweeping)
    except Exception:  # what no copy could be made of was changed: a run for each turn
        tally = Tally()
        for turn in turns:
            sweeping = make(record, {turn: None})
            with suppress(Exception):
                fit(case, sweeping)
            tally.add(sweeping.tally)
        return tally
    return sweeping.tally


def sweep_replies(name: str) -> Tally:
    case, tally = ALL[name], Tally()
    if case.live:  # its replies cannot be played again
        return tally
    record = Recorded(sites_of(case))
    fit(case, record)
    for turn, liar in _turns(record):
        errors = 0
        for number, lie in enumerate(changes(record.replies[turn][liar], "replies")):
            where, told = f"{name}, {record.asked[turn][liar]} of {liar} at {turn}, change {number}", len(tally.errors)
            _play(case, record, OneChange(record, turn, liar, lie), where, tally)
            errors += len(tally.errors) - told
            if errors >= ENOUGH:
                break
    return tally


def _play(case: Any, record: Recorded, played: OneChange, where: str, tally: Tally) -> None:
    start = time.process_time()
    with heard_out(where, tally), limited(where) as used:
        received(record, played)
        fit(case, played)
    tally.sent += 1
    tally.slowest = max(tally.slowest, time.process_time() - start)
    tally.largest = max(tally.largest, used.grown)


SWEEPS = {"requests": sweep_requests, "orders": sweep_orders, "replies": sweep_replies}


def swept(kind: str, name: str) -> tuple[str, str, Tally, float]:
    """One case, in a process of its own."""
    warnings.simplefilter("ignore")
    start = time.process_time()
    random.seed(0)
    try:
        with unheard("fedsift"):
            tally = SWEEPS[kind](name)
    except Exception as error:
        tally = Tally(errors=[f"{name}: no honest run: {type(error).__name__}: {error}"[:900]])
    return kind, name, tally, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--cases", nargs="*", default=list(ALL))
    parser.add_argument("--kinds", nargs="*", default=list(SWEEPS), choices=list(SWEEPS))
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    totals = {kind: Tally() for kind in options.kinds}
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(swept, kind, name) for kind in options.kinds for name in options.cases]
        for done in as_completed(waiting):
            kind, name, tally, spent = done.result()
            totals[kind].add(tally)
            for error in tally.errors:
                print(f"ERROR {kind} {error}", flush=True)
            told = f"slowest {tally.slowest:.2f} s, largest {tally.largest >> 20} MB, {spent:.1f} CPU-s"
            print(f"{kind} {name}: {tally.sent} sent, {tally.refused} refused, {tally.failed} failed, typed, "
                  f"{tally.accepted} accepted, {told}", flush=True)  # fmt: skip
    print(json.dumps({kind: {**vars(total), "errors": len(total.errors)} for kind, total in totals.items()}))
    sys.exit(1 if any(total.errors for total in totals.values()) else 0)


if __name__ == "__main__":
    main()
