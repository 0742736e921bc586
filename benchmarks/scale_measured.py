"""Large runs, measured: a million and ten million rows, fifty parties, thousands of columns; memory and cores among it.

    python benchmarks/scale_measured.py CELL ... [--out FILE] [--commit HASH]   run some cells, a process each
    python benchmarks/scale_measured.py --list                                  what there is
    python benchmarks/scale_measured.py --render                                the table in docs/scale.md

All parties and the coordinator are in one process, which generates the data before the clock starts: memory is that of
everybody together, and a second figure says how much of it came on top of the tables. Where parties are ``apart`` each
is a process of its own that reads a Parquet file, and memory is that of the largest party, libraries and all. ``busy``
is CPU time over wall time and the cores that the process may use. Rows go to results/scale_measured.jsonl, each with
its commit and load.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
import psutil
from provenance import commit
from scale_apart import Apart

import fedsift as fs
from fedsift.core.party import Site
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.core.workers import available
from fedsift.crypto.additive import cuda
from fedsift.crypto.kernel import state
from fedsift.mpc.psi import align

RESULT = Path(__file__).parent / "results" / "scale_measured.jsonl"
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- begin: written by benchmarks/scale_measured.py -->", "<!-- end: measured -->"


@dataclass(frozen=True)
class Cell:
    """One run: what, among how many, on how many rows and columns of all parties together."""

    what: str
    parties: int
    rows: int
    columns: int
    cores: int | None = None  # fewer than there are
    stored: bool = False  # tables stay in Parquet files, of which columns are read when they are asked for
    first: int | None = None  # the columns of the first party; the others share the rest
    apart: bool = False  # a process a party; tables in Parquet files
    asked: int = 20  # features


MATCHING, VALUE, GINI, TREE = "matching ids", "information value", "gini", "one tree, depth 5 (ciphertexts)"
MUSE = "muse"
CELLS = {
    "match2": Cell(MATCHING, 2, 10**6, 2, cores=2),
    "match16": Cell(MATCHING, 2, 10**6, 2),
    "match_ten": Cell(MATCHING, 2, 10**7, 2),
    "match_fifty": Cell(MATCHING, 50, 200_000, 50),
    "iv_million": Cell(VALUE, 2, 10**6, 100),
    "iv_ten": Cell(VALUE, 2, 10**7, 100),
    "iv_million_apart": Cell(VALUE, 2, 10**6, 101, stored=True, first=1, apart=True),
    "gini_million_apart": Cell(GINI, 2, 10**6, 101, stored=True, first=1, apart=True),
    "muse_million_apart": Cell(MUSE, 2, 10**6, 101, stored=True, first=1, apart=True, asked=3),
    "tree_million_apart": Cell(TREE, 2, 10**6, 101, stored=True, first=1, apart=True),
    "iv_ten_apart": Cell(VALUE, 2, 10**7, 101, stored=True, first=1, apart=True),
    "gini_ten_apart": Cell(GINI, 2, 10**7, 101, stored=True, first=1, apart=True),
    "muse_ten_apart": Cell(MUSE, 2, 10**7, 101, stored=True, first=1, apart=True, asked=3),
    "tree_ten_apart": Cell(TREE, 2, 10**7, 101, stored=True, first=1, apart=True),
    "iv_fifty": Cell(VALUE, 50, 10**6, 100),
    "iv_600": Cell(VALUE, 2, 800_000, 600),
    "iv_wide": Cell(VALUE, 2, 800_000, 3000),
    "gini": Cell(GINI, 2, 800_000, 100),
    "tree": Cell(TREE, 2, 800_000, 100),
    "tree_wide": Cell(TREE, 2, 800_000, 3000),
    "tree_gpu": Cell(TREE, 2, 10**6, 1001, first=1),
    "small_apart": Cell(VALUE, 2, 20_000, 11, stored=True, first=1, apart=True),
    "small_apart_muse": Cell(MUSE, 2, 20_000, 11, stored=True, first=1, apart=True, asked=3),
    "small_apart_tree": Cell(TREE, 2, 20_000, 11, stored=True, first=1, apart=True),
    "small_match": Cell(MATCHING, 5, 2000, 5),
    "small_iv": Cell(VALUE, 2, 5000, 20),
    "small_tree": Cell(TREE, 2, 20_000, 100),
}


def federation(cell: Cell, folder: Path) -> fs.Federation:
    """Tables with ids where they are to be matched, else in one order; the first party has the label."""
    label, done, sites, files = np.arange(cell.rows) % 2, 0, {}, {}
    for place in range(cell.parties):
        own = cell.columns // cell.parties
        if cell.first is not None:
            own = cell.first if not place else (cell.columns - cell.first) // (cell.parties - 1)
        name, columns, done = f"p{place}", range(done, done + own), done + own
        if cell.stored:  # in a process of its own, whose memory is not counted
            done_by = multiprocessing.get_context("spawn").Process(target=made, args=(cell, place, columns, folder))
            done_by.start()
            done_by.join()
        files[name] = folder / f"p{place}.parquet"
        if cell.apart:
            continue
        source = files[name] if cell.stored else frame_of(cell, place, columns, label)
        id = "id" if cell.what == MATCHING else None
        table = Table.read(source, id=id, label=None if place else "y", name=name)
        sites[name] = Site(name, table, os.urandom(32))  # its own secret, as a site has one that is deployed
    if cell.apart:
        apart = Apart(files, {name: None if number else "y" for number, name in enumerate(files)})
        return fs.Federation(apart, list(files), active="p0")
    return fs.Federation(InProcess(sites), list(sites), active="p0")


def frame_of(cell: Cell, place: int, columns: range, label: np.ndarray) -> pl.DataFrame:
    def column(number: int) -> pl.Series:
        values = np.random.default_rng(number).standard_normal(cell.rows, dtype=np.float32)
        return pl.Series(f"c{number}", (values + 0.01 * (number % 50) * label).astype(np.float32))

    with ThreadPoolExecutor(available()) as pool:
        frame = pl.DataFrame(list(pool.map(column, columns)))
    if cell.what == MATCHING:
        numbers = np.random.default_rng(place).permutation(cell.rows) + cell.rows // 20 * (place % 2)
        frame = frame.with_columns(pl.Series("id", numbers).cast(pl.String).alias("id"))
    return frame if place else frame.with_columns(pl.Series("y", label))


def made(cell: Cell, place: int, columns: range, folder: Path) -> None:
    label = np.arange(cell.rows) % 2
    frame_of(cell, place, columns, label).write_parquet(folder / f"p{place}.parquet")


def work(cell: Cell) -> Callable[[fs.Federation], object]:
    if cell.what == MATCHING:
        return align
    if cell.what == VALUE:
        return fs.InformationValue(n_features=cell.asked).fit
    if cell.what == GINI:
        return fs.GiniFilter(n_features=cell.asked).fit
    if cell.what == MUSE:
        return fs.Muse(n_features=cell.asked).fit
    return fs.SecureBoostClassifier(n_estimators=1, max_depth=5, first_tree_local=False, protection="open").fit


class Watch(threading.Thread):
    """The most memory that the process has while something runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.process, self.ended = psutil.Process(), threading.Event()
        self.before = self.most = self.process.memory_info().rss

    def run(self) -> None:
        while not self.ended.wait(0.05):
            self.most = max(self.most, self.process.memory_info().rss)


def measured(name: str) -> dict[str, object]:
    cell = CELLS[name]
    if cell.cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: cell.cores])
    with tempfile.TemporaryDirectory(prefix="fedsift-scale-") as folder:
        fed = federation(cell, Path(folder))
        watch = Watch()
        watch.start()
        wall, cpu = time.perf_counter(), time.process_time()
        work(cell)(fed)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        watch.ended.set()
    transport, memory = fed._link.transport, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    apart = transport.usage() if isinstance(transport, Apart) else {}
    cpu += sum(each.cpu for each in apart.values())
    return {
        "cell": name, **asdict(cell), "cores": available(), "wall": wall, "cpu": cpu,
        "busy": cpu / wall / available(), "bytes": fed.ledger.bytes(), "rounds": fed.ledger.rounds(),
        "largest": max(entry.bytes for entry in fed.ledger.entries),
        "memory": max(watch.most, memory), "on_top": watch.most - watch.before,
        "party_memory": {name: each.memory for name, each in apart.items()},
        "engine": state(), "gpu": cuda.state(), "load": os.getloadavg()[0],
    }  # fmt: skip


def rows() -> list[dict[str, object]]:
    """The last row of each cell, number of cores and way of computing (``FEDSIFT_KERNEL`` chooses a slower one)."""
    lines = RESULT.read_text(encoding="utf-8").splitlines() if RESULT.exists() else []
    last = {
        (row["cell"], row["cores"], row["engine"], row.get("gpu", "none")[:4] == "none"): row
        for row in map(json.loads, lines)
    }
    return sorted(last.values(), key=lambda row: list(CELLS).index(row["cell"]))


def memory_of(row: dict[str, object]) -> str:
    """Memory in two cells of the table."""
    parties = row.get("party_memory")
    if parties:
        return f"{max(parties.values()) / 1e9:.1f} GB at the largest party | -"
    return f"{row['memory'] / 1e9:.1f} GB | {row['on_top'] / 1e9:.1f} GB"


def what_of(row: dict[str, object]) -> str:
    """What was run, and with which arithmetic where it is not the fastest."""
    return str(row["what"]) + ("" if row["engine"] == "AVX-512" else f", {row['engine']}")


def table() -> str:
    lines = [
        "| what | parties | rows | columns | cores | time | CPU | busy | load | bytes | largest message | memory "
        "| on top of tables | commit |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]  # fmt: skip
    for row in rows():
        lines.append(
            f"| {what_of(row)} | {row['parties']} | {row['rows']:,} | {row['columns']:,} | {row['cores']} "
            f"| {row['wall']:.1f} s | {row['cpu']:.1f} s | {row['busy']:.0%} "
            f"| {row['load']:.0f} | {row['bytes'] / 1e6:,.1f} MB "
            f"| {row['largest'] / 1e6:,.1f} MB | {memory_of(row)} | {row['commit']} |"
        )
    there = {row["cell"] for row in rows()}
    missing = [cell for name, cell in CELLS.items() if name not in there and not name.startswith("small")]
    listed = [f"{cell.what} ({cell.parties} parties, {cell.rows:,} rows, {cell.columns:,} columns)" for cell in missing]
    return "\n".join(lines) + (f"\n\nNot measured yet: {'; '.join(listed)}." if listed else "")


def render() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{PAGE} has no place for the measured rows")
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", help="names of cells; --list shows them")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--here", action="store_true", help="in this process: print one row")
    parser.add_argument("--commit", default=os.environ.get("FEDSIFT_COMMIT", ""), help="where there is no repository")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    if given.list:
        print("\n".join(f"{name}: {cell}" for name, cell in CELLS.items()))
    for name in given.cells:
        if given.here:
            print(json.dumps(measured(name)))
            continue
        command = [sys.executable, __file__, name, "--here"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name}: failed\n{done.stderr[-2000:]}", flush=True)
            continue
        row = {**json.loads(done.stdout.splitlines()[-1]), "commit": given.commit or commit()}
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    if given.render:
        render()


if __name__ == "__main__":
    main()
