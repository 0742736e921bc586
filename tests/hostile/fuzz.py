"""Changed requests and replies by the hundred thousand, in processes side by side.

    PYTHONPATH=tests python -m hostile.fuzz --requests 500000 --replies 500000 [--processes 16] [--seed 0]

A unit is one job and one seed. For requests: sites with the default rules (but for those that would end a run early)
follow an honest coordinator up to a step drawn at random; there they get changed forms of the next request, hundreds
of them, each on the state that the honest run has left (``strikes.py``), and the run ends. So every
step of every method is reached, whatever a changed request did that was accepted.
Each gets a typed answer within two CPU-seconds and 64 MB; one that was refused before it ran leaves the site as it was,
and one that failed while it ran is counted as asked and leaves what other steps remember (``memory``). For replies: an
honest run is recorded, and its replies are played to the coordinator again and again, one of them changed. What it
refuses on receipt is found by its own code for that, without a run up to there.
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
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from itertools import zip_longest

from fedsift.core.party import Site
from fedsift.core.transports.base import Transport
from fedsift.errors import FedsiftError
from hostile.cases import CASES, MORE, fit, sites_of
from hostile.mutants import LONGEST_S, Lying, OneByOne, Recorded, limited, mutated, received
from hostile.strikes import ENOUGH, Tally, heard_out, strike, unheard

ALL = {**CASES, **MORE}
EACH = 200  # changed forms of one request
LARGEST = {"requests": 4_000, "replies": 500}  # a unit: a site's or a coordinator's set-up is paid once for so many
Unit = tuple[str, str, int, int]  # kind, case, seed, how many
Result = tuple[str, str, Tally, float]  # kind, case, what came of it, CPU seconds


class _Struck(Exception):
    """The step was attacked; the run is over."""


class Strike(OneByOne):
    """Honest up to its ``at``-th exchange; there each site gets ``each`` changed forms of its request."""

    name = "strike"

    def __init__(self, sites: dict[str, Site], at: int, each: int, rng: random.Random):
        self.sites, self.at, self.each, self.rng = sites, at, each, rng
        self.turn, self.tally = 0, Tally()

    def take(self, requests: dict[str, bytes]) -> dict[str, bytes | None]:
        self.turn += 1
        if self.turn == self.at:
            for name, data in requests.items():
                mutants = [mutated(data, self.rng) for _ in range(self.each)]
                self.tally.add(strike(self.sites[name], data, mutants))
            raise _Struck
        return {name: self.sites[name].handle(data) for name, data in requests.items()}


class OneLie(OneByOne):
    """Sites that answer honestly but for one reply."""

    name = "one lie"

    def __init__(self, sites: dict[str, Site], at: int, rng: random.Random):
        self.sites, self.at, self.rng, self.turn = sites, at, rng, 0

    def take(self, requests: dict[str, bytes]) -> dict[str, bytes | None]:
        self.turn += 1
        told = {name: self.sites[name].handle(data) for name, data in requests.items()}
        if self.turn == self.at:
            liar = self.rng.choice(list(told))
            told[liar] = mutated(told[liar], self.rng, 0.3)
        return {**told}


def strike_requests(name: str, seed: int, wanted: int, each: int = EACH) -> Tally:
    case, rng, tally = ALL[name], random.Random(f"{name} {seed}"), Tally()
    record = Recorded(sites_of(case))
    fit(case, record)
    while tally.sent < wanted:
        strike = Strike(sites_of(case), rng.randint(1, len(record.replies)), each, rng)
        try:
            fit(case, strike)
        except (_Struck, FedsiftError):  # what an honest run may end in: draws of a made-up table
            pass
        except Exception as error:
            tally.errors.append(f"{name}, seed {seed}: {type(error).__name__}: {error}"[:900])
        tally.add(strike.tally)
        if len(tally.errors) >= ENOUGH:
            break
    return tally


def strike_replies(name: str, seed: int, wanted: int) -> Tally:
    case, tally, start = ALL[name], Tally(), time.process_time()
    record = Recorded(sites_of(case))
    fit(case, record)
    longest = LONGEST_S + (time.process_time() - start if case.live else 0.0)  # a live one is a whole run of both sides
    for number in range(-(-wanted // 10) if case.live else wanted):
        start, rng = time.process_time(), random.Random(f"{name} {seed} {number}")
        played: Transport = Lying(record.replies, rng)
        if case.live:
            played = OneLie(sites_of(case), rng.randint(1, len(record.replies)), rng)
        with heard_out(f"{name}, seed {seed}, reply {number}", tally), limited(name, longest) as used:
            if isinstance(played, Lying):
                received(record, played)
            fit(case, played)
        if len(tally.errors) >= ENOUGH:
            break
        tally.sent += 1
        tally.slowest = max(tally.slowest, time.process_time() - start)
        tally.largest = max(tally.largest, used.grown)
    return tally


STRIKES = {"requests": strike_requests, "replies": strike_replies}


def unit(kind: str, name: str, seed: int, wanted: int) -> Result:
    """One unit, in a process of its own."""
    warnings.simplefilter("ignore")
    start = time.process_time()
    try:
        with unheard("fedsift"):
            tally = STRIKES[kind](name, seed, wanted)
    except Exception as error:  # the honest run that is struck did not get through
        tally = Tally(errors=[f"{name}, seed {seed}: no honest run: {type(error).__name__}: {error}"[:900]])
    return kind, name, tally, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500_000)
    parser.add_argument("--replies", type=int, default=500_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no unit after so many")
    parser.add_argument("--cases", nargs="*", default=list(ALL))
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    units = _units({kind: getattr(options, kind) for kind in STRIKES}, options.cases, options.seed)
    found = {(kind, name): Tally() for kind in STRIKES for name in options.cases}
    seconds: Counter[tuple[str, str]] = Counter()
    start = time.monotonic()
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        waiting: set[Future[Result]] = set()
        for each in units:
            waiting.add(pool.submit(unit, *each))
            if len(waiting) >= 2 * options.processes:
                done = next(as_completed(waiting))
                waiting.remove(done)
                _take(done.result(), found, seconds)
            if time.monotonic() - start > 60 * options.minutes:
                break
        for done in as_completed(waiting):
            _take(done.result(), found, seconds)
    _show(found, seconds, time.monotonic() - start)


def _units(totals: dict[str, int], cases: list[str], seed: int) -> list[Unit]:
    """Every case in turn, requests and replies in turn, so that a run that is cut off has some of all."""
    kinds: list[list[Unit]] = []
    for kind, total in totals.items():
        size = max(1, min(LARGEST[kind], -(-total // len(cases))))
        numbers = range(-(-total // size))
        kinds.append([(kind, cases[n % len(cases)], 1_000_000 * seed + n // len(cases), size) for n in numbers])
    return [unit for turn in zip_longest(*kinds) for unit in turn if unit is not None]


def _take(result: Result, found: dict[tuple[str, str], Tally], seconds: Counter[tuple[str, str]]) -> None:
    kind, name, tally, spent = result
    found[kind, name].add(tally)
    seconds[kind, name] += spent  # type: ignore[assignment]
    for error in tally.errors:
        print(f"ERROR {kind} {error}", flush=True)
    told = f"slowest {tally.slowest:.2f} s, largest {tally.largest >> 20} MB, {spent:.1f} CPU-s"
    print(f"unit {kind} {name}: {tally.sent} sent, {told}", flush=True)  # in case it is cut off


def _show(found: dict[tuple[str, str], Tally], seconds: Counter[tuple[str, str]], wall: float) -> None:
    """A line a case, then the totals as JSON; ends with 1 where there was an error."""
    for (kind, name), tally in found.items():
        if tally.sent:
            print(
                f"{kind:9}{name:22}{tally.sent:>8} sent {tally.refused:>8} refused {tally.failed:>7} failed, typed "
                f"{tally.accepted:>7} accepted  slowest {tally.slowest:.2f} s  largest "
                f"{tally.largest >> 20} MB  {tally.sent / seconds[kind, name]:.0f}/s"
            )
    totals = {}
    for kind in STRIKES:
        total = Tally()
        for (each, _), tally in found.items():
            if each == kind:
                total.add(tally)
        totals[kind] = {**vars(total), "errors": len(total.errors)}
    print(json.dumps({**totals, "wall_s": round(wall, 1), "cpu_s": round(sum(seconds.values()), 1)}))
    sys.exit(1 if any(total["errors"] for total in totals.values()) else 0)


if __name__ == "__main__":
    main()
