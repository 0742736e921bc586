"""What does each method cost for 2-50 parties, 10^4-10^8 rows, 10-10^5 columns? From small runs and stated formulas.

    python benchmarks/scale.py [--methods muse,gini] [--quick] [--data DIR] [--out FILE]

Every method is run in this process at a few small sizes. The ledger gives rounds, messages, bytes and the largest
message exactly. Parties are served one after the other and timed by CPU, so that a round's time is that of its busiest
party, as on machines of their own; the coordinator's own CPU time is added. The formulas are in scale_formulas.py:
each quantity is a sum of terms, their constants are fitted to the small runs (non-negative least squares of the
relative error) and checked on a size that was not fitted. Measurements are kept in the JSON file beside the table, so
that methods can be measured in several goes. No data set is read (--data is ignored): the data are generated.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from provenance import BINS, commit, count_old
from scale_formulas import GENERAL, LARGEST, ROUND_EFFORT, Size, Terms
from scale_formulas import SPECS as OTHERS
from scale_networks import NETWORKS
from scipy.optimize import nnls

import fedsift as fs
from fedsift.core.identity import introduce
from fedsift.core.party import Site
from fedsift.core.table import Table
from fedsift.core.transports.base import Delivery, Transport
from fedsift.crypto.additive import keys as additive
from fedsift.methods import METHODS
from fedsift.mpc import encrypted_histogram as histogram
from fedsift.mpc.psi import align

SPECS = OTHERS | NETWORKS
RESULT = Path(__file__).parent / "results" / "scale.md"
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- begin: written by benchmarks/scale.py -->", "<!-- end -->"
LATENCIES = (0.001, 0.03, 0.1)  # seconds one way; a round trip is two of them
ENGINE = 0.015  # seconds that FLARE adds to a round between processes (shared/dependencies.md)
BANDWIDTH = 100e6  # bytes a second at the coordinator, which everything passes
QUANTITIES = ("rounds", "bytes", "largest", "cpu")
#: rows, columns over all parties, parties, features asked for, effort; rows and columns times what a formula says
FITTED = [(240, 12, 2, 3, 1), (480, 12, 2, 3, 1), (240, 24, 2, 3, 1), (240, 24, 4, 3, 1), (240, 24, 2, 6, 1),
          (240, 12, 2, 3, 2), (480, 24, 4, 6, 2)]  # fmt: skip
HELD_OUT = (720, 36, 3, 5, 2)
SHOWN = [(2, 1e4, 10), (2, 1e6, 100), (10, 1e6, 1000), (50, 1e6, 1000), (2, 1e4, 1e5), (2, 1e8, 100),
         (10, 1e8, 1000), (50, 1e8, 1e5)]  # fmt: skip
KEPT = 20  # features asked for in the extrapolation
#: Operations whose messages are cut at ``BLOCK`` bytes, and the methods that have them.
CUTS, BLOCKED, BLOCK = ("boost.hide_cuts", "boost.keep_cuts"), ("muse.raise_rows",), 60e6
IN_PIECES = ("muse", "top_gain", "pso_evffs")
IN_BLOCKS = (
    "information_value",
    "gini",
    "sffs",
)  # labels of many rows go in several messages, the sums of columns in one


# --- measuring -------------------------------------------------------------------------------------------------------


class CpuSerial(Transport):
    """Serves the parties one after the other and gives CPU seconds in place of wall seconds."""

    name = "serial"

    def __init__(self, sites: dict[str, Site]):
        self.sites = sites
        introduce(sites)

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        result = {}
        for name, data in requests.items():
            start = time.process_time()
            result[name] = Delivery(self.sites[name].receive(data), time.process_time() - start)
        return result


def federation(method: str, size: Size) -> fs.Federation:
    rng = np.random.default_rng(0)
    n, d, p = int(size.n), int(size.d), int(size.p)
    y = np.arange(n) % 2
    X = pd.DataFrame(rng.normal(size=(n, d)) + 0.3 * y[:, None] * rng.random(d), columns=[f"c{i}" for i in range(d)])
    partition = "vertical" if method == "alignment" else METHODS[method].partitions[0]
    # On a grid p counts the column groups: each is divided into two row blocks, so there are twice as many parties.
    fed = fs.Federation.split(X, y, parties=p, partition=partition, grid=(2, p) if partition == "hybrid" else None)
    sites = fed._link.transport.sites
    if method == "alignment":
        ids = [f"person-{i}" for i in range(n)]
        for name, site in sites.items():
            frame = site.table.to_pandas().assign(id=ids)
            sites[name] = Site(name, Table.read(frame, id="id", label=site.table.label_name, name=name))
    fed._link.transport = CpuSerial(sites)
    return fed


def measure(method: str, size: Size) -> dict[str, float]:
    fed = federation(method, size)
    parameters = SPECS.get(method, GENERAL).parameters(size)
    start = time.process_time()
    if method == "alignment":
        align(fed)
    else:
        METHODS[method](**parameters).fit(fed)
    total = time.process_time() - start
    busiest: dict[int, float] = {}
    for entry in fed.ledger.entries:
        busiest[entry.round] = max(busiest.get(entry.round, 0.0), entry.seconds)
    coordinator = total - sum(entry.seconds for entry in fed.ledger.entries)
    return {
        "rounds": fed.ledger.rounds(),
        "messages": len(fed.ledger),
        "bytes": fed.ledger.bytes(),
        "largest": max(entry.bytes for entry in fed.ledger.entries if entry.operation not in (*CUTS, *BLOCKED)),
        "cuts": sum(entry.bytes for entry in fed.ledger.entries if entry.operation in CUTS),
        "cpu": sum(busiest.values()) + max(coordinator, 0.0),
    }


def cached_keys() -> None:
    """One key a process: making one takes seconds, once a run, and is a constant of its own."""
    keys: dict[str, additive.SecretKey] = {}

    def generate(scheme: str = "auto", bits: int = additive.MIN_BITS) -> additive.SecretKey:
        if scheme not in keys:
            keys[scheme] = additive.generate_key(scheme, bits)
        return keys[scheme]

    histogram.generate_key = generate


# --- formulas --------------------------------------------------------------------------------------------------------


def terms_of(method: str, quantity: str) -> Terms:
    spec = SPECS.get(method, GENERAL)
    of_bytes = {**spec.cuts, **spec.bytes}
    return {"rounds": spec.rounds, "bytes": of_bytes, "largest": spec.largest or LARGEST, "cpu": spec.cpu}[quantity]


def fit(method: str, quantity: str, runs: list[dict[str, Any]]) -> dict[str, float]:
    if quantity == "cpu":
        runs = runs[1:]  # the first one also loads libraries and makes the key
    spec, terms = SPECS.get(method, GENERAL), terms_of(method, quantity)
    if quantity == "bytes" and spec.cuts and all("cuts" in run for run in runs):
        rest = [run["bytes"] - run["cuts"] for run in runs]
        return _solved(spec.cuts, runs, [run["cuts"] for run in runs]) | _solved(spec.bytes, runs, rest)
    return _solved(terms, runs, [run[quantity] for run in runs])


def _solved(terms: Terms, runs: list[dict[str, Any]], wanted: list[float]) -> dict[str, float]:
    target = np.array(wanted, dtype=float)
    matrix = np.array([[term(Size(**run["size"])) for term in terms.values()] for run in runs])
    weight = 1 / np.maximum(target, 1e-3)
    found, _ = nnls(matrix * weight[:, None], target * weight)
    return dict(zip(terms, found.tolist()))


def value(method: str, quantity: str, constants: dict[str, float], size: Size) -> float:
    return sum(constants[name] * term(size) for name, term in terms_of(method, quantity).items())


def formula(constants: dict[str, float]) -> str:
    kept = {name: value for name, value in constants.items() if value > 1e-12}
    parts = [f"{value:.3g} {name}" if name != "1" else f"{value:.3g}" for name, value in kept.items()]
    return " + ".join(parts) or "0"


# --- the table -------------------------------------------------------------------------------------------------------


def human(count: float) -> str:
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def clock(seconds: float) -> str:
    for unit, size in (("years", 3.15e7), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size * 1.5:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"


def estimates(method: str, constants: dict[str, dict[str, float]], shape: tuple[float, float, float]) -> dict[str, Any]:
    p, n, d = shape
    effort = SPECS.get(method, GENERAL).effort
    d = max(d, 2 * p)
    size = Size(n, d, p, min(KEPT, d), effort)
    at = {quantity: value(method, quantity, constants[quantity], size) for quantity in QUANTITIES}
    at["largest"] = min(at["largest"], at["bytes"])
    if method in IN_PIECES:
        at["largest"] = max(at["largest"], min(BLOCK, at["bytes"]))
    slow = Size(n, d, p, size.k, ROUND_EFFORT.get(method, effort))
    at["rounds"] = value(method, "rounds", constants["rounds"], slow)
    if method in IN_BLOCKS:
        labels = constants["largest"]["n"] * n
        at["largest"] -= max(0.0, labels - histogram.BLOCK_BYTES)
        at["rounds"] += 2 * max(0, math.ceil(labels / histogram.BLOCK_BYTES) - 1)
    fixed = at["cpu"] + at["bytes"] / BANDWIDTH
    return {**at, "times": [fixed + at["rounds"] * (2 * latency + ENGINE) for latency in LATENCIES]}


def bend(method: str, constants: dict[str, dict[str, float]]) -> str:
    """What takes most of the time at a middling size, and where a run first takes a day or a message 1 GB."""
    middle = estimates(method, constants, (10, 1e6, 1000))
    shares = {
        "computing": middle["cpu"],
        "bytes": middle["bytes"] / BANDWIDTH,
        "round trips (30 ms)": middle["rounds"] * (2 * LATENCIES[1] + ENGINE),
    }
    limits = []
    for name, shapes in (
        ("rows", [(2, n, 100) for n in (1e4, 1e5, 1e6, 1e7, 1e8)]),
        ("columns", [(2, 1e5, d) for d in (10, 100, 1e3, 1e4, 1e5)]),
        ("parties", [(p, 1e5, 1000) for p in (2, 5, 10, 20, 50)]),
    ):
        place = {"rows": 1, "columns": 2, "parties": 0}[name]
        for shape in shapes:
            found = estimates(method, constants, shape)
            why = "a day" if found["times"][1] > 86400 else "a 1 GB message" if found["largest"] > 1e9 else ""
            if why:
                limits.append(f"{shape[place]:,.0f} {name}: {why}")
                break
    return f"{max(shares, key=lambda part: shares[part])} | {'; '.join(limits) or 'none in this range'}"


def table(runs: dict[str, list[dict[str, Any]]], load: str) -> tuple[str, str]:
    """The whole result, and the part of it that docs/scale.md quotes."""
    fitted: dict[str, dict[str, dict[str, float]]] = {}
    errors: dict[str, dict[str, float]] = {}
    for method, measured in runs.items():
        used = [run for run in measured if not run["held_out"]]
        test = next(run for run in measured if run["held_out"])
        fitted[method] = {quantity: fit(method, quantity, used) for quantity in QUANTITIES}
        errors[method] = {
            quantity: value(method, quantity, fitted[method][quantity], Size(**test["size"])) / test[quantity] - 1
            for quantity in QUANTITIES
        }
    summary = [load, "", *_old_bins(runs), *_glance(fitted), "", "## Where a method bends first", "",
               "| method | most of the time at 10 parties, 10^6 rows, 1,000 columns "
               "| first beyond a day (30 ms) or 1 GB a message |", "|---|---|---|",
               *(f"| {method} | {bend(method, constants)} |" for method, constants in fitted.items()), "",
               *_constants(fitted, errors)]  # fmt: skip
    lines = ["# Cost of each method, measured small and extrapolated", "", *summary]
    for method, constants in fitted.items():
        lines += _extrapolated(method, constants)
    return "\n".join(lines) + "\n", "\n".join(summary)


def _old_bins(runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    names = [method for method, measured in runs.items() if count_old(measured)[0]]
    return [f"**Old bins** (measured before commit {BINS}, not yet again): {', '.join(names)}.", ""] if names else []


def _glance(fitted: dict[str, Any]) -> list[str]:
    """Time at 30 ms and bytes, one line a method."""
    shapes = [(2, 1e4, 10), (2, 1e6, 100), (10, 1e6, 1000), (50, 1e6, 1000), (2, 1e4, 1e5), (2, 1e8, 100)]
    heads = [f"{p} parties, 10^{math.log10(n):.0f} rows, {max(d, 2 * p):,.0f} columns" for p, n, d in shapes]
    lines = ["## At a glance: time at 30 ms, and bytes over all links", "", f"| method | {' | '.join(heads)} |",
             f"|---|{'---|' * len(shapes)}"]  # fmt: skip
    for method, constants in fitted.items():
        found = [estimates(method, constants, shape) for shape in shapes]
        cells = [f"{clock(one['times'][1])}, {human(one['bytes'])}" for one in found]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


def update_page(summary: str) -> None:
    """Put the summary between the marks of docs/scale.md, where it is quoted."""
    if PAGE.exists():
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, mark, after = rest.partition(END)
        if mark:
            PAGE.write_text(f"{before}{BEGIN}\n{summary}\n{END}{after}", encoding="utf-8")


def _constants(fitted: dict[str, Any], errors: dict[str, dict[str, float]]) -> list[str]:
    lines = ["## Formulas", "", "| method | e stands for | rounds | bytes | CPU seconds on the longest path "
             "| error at the held-out size: rounds, bytes, largest message, CPU |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for method, constants in fitted.items():
        missed = ", ".join(f"{errors[method][quantity]:+.0%}" for quantity in QUANTITIES)
        says = SPECS.get(method, GENERAL).says or "-"
        cells = [formula(constants[quantity]) for quantity in ("rounds", "bytes", "cpu")]
        lines.append(f"| {method} | {says} | {' | '.join(cells)} | {missed} |")
    return lines


def _extrapolated(method: str, constants: dict[str, dict[str, float]]) -> list[str]:
    lines = ["", f"## {method}", "", "| parties | rows | columns | rounds | messages | bytes | largest message "
             "| computing | 1 ms | 30 ms | 100 ms |", "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for shape in SHOWN:
        found = estimates(method, constants, shape)
        p, n, d = shape
        cells = [f"{p:,}", f"{n:,.0f}", f"{max(d, 2 * p):,.0f}", f"{found['rounds']:,.0f}",
                 f"{found['rounds'] * 2 * p:,.0f}", human(found["bytes"]), human(found["largest"]), clock(found["cpu"]),
                 *(clock(seconds) for seconds in found["times"])]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="", help="with commas between; all by default")
    parser.add_argument("--quick", action="store_true", help="only make the table from what was measured before")
    parser.add_argument("--data", default=None, help="ignored: the data are generated")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    kept = given.out.with_suffix(".json")
    runs: dict[str, list[dict[str, Any]]] = json.loads(kept.read_text()) if kept.exists() else {}
    chosen = [name for name in given.methods.split(",") if name] or ["alignment", *METHODS]
    cached_keys()
    warnings.simplefilter("ignore")
    for method in [] if given.quick else chosen:
        start, measured = time.process_time(), []
        for place, numbers in enumerate([*FITTED, HELD_OUT]):
            spec, size = SPECS.get(method, GENERAL), Size(*numbers)
            size = replace(size, n=size.n * spec.rows, d=size.d * spec.columns)
            try:
                found = measure(method, size)
            except fs.FedsiftError as error:
                print(f"{method} {numbers}: {error}", flush=True)
                continue
            measured.append({**found, "size": asdict(size), "held_out": place == len(FITTED), "commit": commit()})
        if measured and measured[-1]["held_out"]:
            runs[method] = measured
        print(f"{method}: {time.process_time() - start:.1f} CPU-s, {len(measured)} runs", flush=True)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(runs, indent=1) + "\n")
    load = (
        f"`python benchmarks/scale.py`; {len(FITTED)} fitted sizes and one held out for each method; 2 classes, "
        "numbers only, 2048-bit keys made beforehand; "
        f"load at the end {os.getloadavg()[0]:.1f}. n rows, d columns over all parties, own = d / p, p parties, "
        f"k features asked for ({KEPT} in the tables), e effort (in the tables the defaults). Time = computing + "
        f"bytes / {BANDWIDTH / 1e6:.0f} MB/s + rounds x (2 x latency + {ENGINE * 1000:.0f} ms)."
    )
    ordered = {name: runs[name] for name in SPECS if name in runs} | runs
    text, summary = table(ordered, load)
    given.out.write_text(text, encoding="utf-8")
    if given.out == RESULT:
        update_page(summary)
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
