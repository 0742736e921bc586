"""Screening of wide tables: CPU seconds beside every column's, and how many of the best columns are found.

    python benchmarks/screening.py [--most COLUMNS] [--out FILE]
    python benchmarks/screening.py --files FOLDER --write          # the widest table as Parquet files (4 GB)
    python benchmarks/screening.py --files FOLDER [--out FILE]     # screened coarsely from these files

Two parties with half of the columns each. Columns come in blocks of twenty with a common part (correlation 0.5), or
are independent; six blocks (or 120 columns) tell about the label, weakly. ``SFFS`` scores every column,
and with ``screen`` one bit of every column or groups first; found is the share of its twenty best columns that the
screened run keeps among its own twenty. Chance is the share of columns that are scored at all. CPU seconds count all
threads; reading the table is not in them, but where it comes from files: these are read a column at a time, and the
best columns are those of the F statistic on the pooled table.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from cells import Cells

import fedsift as fs

RESULTS = Path(__file__).parent / "results" / "screening.md"
BLOCK, KEPT, PARTIES = 20, 20, ("lab", "clinic")
#: Rows, columns, what columns are like, seed.
CASES = [
    *((2000, 4000, kind, seed) for seed in range(3) for kind in ("blocks", "independent")),
    (10_000, 4000, "blocks", 0), (10_000, 4000, "independent", 0),
    (10_000, 100_000, "independent", 0), (10_000, 100_000, "blocks", 0),
]  # fmt: skip
#: How columns are screened: by bits or the size of a group, and the share that goes on; none: every column.
FORMS: dict[str, dict[str, Any]] = {
    "every column": {}, "coarse, a twentieth goes on": {"screen": "coarse", "screen_share": 0.05},
    "coarse, a hundredth goes on": {"screen": "coarse", "screen_share": 0.01},
    "groups of 10, a tenth goes on": {"screen": 10, "screen_share": 0.1},
    "groups of 20, a fiftieth goes on": {"screen": 20, "screen_share": 0.02},
}  # fmt: skip


def table(rows: int, columns: int, kind: str, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(rows, columns)).astype(np.float32)
    common = rng.normal(size=(rows, columns // BLOCK)).astype(np.float32)
    if kind == "blocks":
        own = (own + np.repeat(common, BLOCK, axis=1)) * np.float32(np.sqrt(0.5))
        signal = common[:, :6].sum(axis=1) / np.sqrt(6)
    else:
        signal = own[:, :120].sum(axis=1) / np.sqrt(120)
    y = (signal + 1.5 * rng.normal(size=rows) > 0).astype(int)
    return pd.DataFrame(own[:, rng.permutation(columns)]).add_prefix("c"), y


def measure(rows: int, columns: int, kind: str, seed: int) -> list[dict[str, Any]]:
    """All forms on one table; the first is what the others are held against."""
    fed = fs.Federation.split(*table(rows, columns, kind, seed), parties=["lab", "clinic"])
    fed.column_names(), fed.n_classes
    found, best = [], set()
    for form, settings in FORMS.items():
        start, wall = time.process_time(), time.perf_counter()
        fitted = fs.SFFS(n_features=KEPT, **settings).fit(fed)
        seconds = {"cpu_s": round(time.process_time() - start, 2), "wall_s": round(time.perf_counter() - wall, 1)}
        kept = {(party, column) for party, names in fitted.selected_.items() for column in names}
        best = best or kept
        scored = sum(fitted.details_.get("screened", {"all": columns}).values())
        found.append(
            {"form": form, **seconds, "mb": round(fitted.ledger_.bytes() / 1e6, 1),
             "found": len(kept & best) / KEPT, "chance": scored / columns}
        )  # fmt: skip
    return found


def write_files(rows: int, columns: int, seed: int, folder: Path) -> None:
    """Independent columns, one file a party, never both in memory; beside them the twenty best by the plain F."""
    rng = np.random.default_rng(seed)
    telling = {party: rng.normal(size=(60, rows)).astype(np.float32) for party in PARTIES}
    signal = sum(part.sum(axis=0) for part in telling.values()) / np.sqrt(120)
    y, score = (signal + 1.5 * rng.normal(size=rows) > 0).astype(int), {}
    for party, part in telling.items():
        own = rng.standard_normal((columns // 2, rows), dtype=np.float32)
        own[rng.choice(len(own), len(part), replace=False)] = part
        related = (own @ (y - y.mean()).astype(np.float32)) / own.std(axis=1)
        score |= {(party, f"c{place}"): value**2 for place, value in enumerate(related)}
        names = [f"c{place}" for place in range(len(own))]
        table = pa.Table.from_arrays([pa.array(values) for values in own], names)
        pq.write_table(
            table if party != PARTIES[0] else table.append_column("y", pa.array(y)), folder / f"{party}.parquet"
        )
        del own, table
    (folder / "best.json").write_text(json.dumps(sorted(score, key=lambda each: -score[each])[:KEPT]))


def measure_files(columns: int, folder: Path) -> list[dict[str, Any]]:
    best = {(party, column) for party, column in json.loads((folder / "best.json").read_text())}
    files = {party: str(folder / f"{party}.parquet") for party in PARTIES}
    fed = fs.Federation.from_tables(files, id=None, label=(PARTIES[0], "y"), task="classification")
    fed.column_names(), fed.n_classes
    found = []
    for form in [name for name in FORMS if name.startswith("coarse, a hundredth")]:
        start, wall = time.process_time(), time.perf_counter()
        fitted = fs.SFFS(n_features=KEPT, **FORMS[form]).fit(fed)
        kept = {(party, column) for party, names in fitted.selected_.items() for column in names}
        scored = sum(fitted.details_["screened"].values())
        found.append(
            {"form": form, "cpu_s": round(time.process_time() - start, 2),
             "wall_s": round(time.perf_counter() - wall, 1), "mb": round(fitted.ledger_.bytes() / 1e6, 1),
             "found": len(kept & best) / KEPT, "chance": scored / columns}
        )  # fmt: skip
    return found


def render(cells: Cells) -> str:
    heads = ["columns", "rows", "columns are", "form", "CPU s", "wall s", "MB", "found", "chance", "seeds", "load"]
    cores = ", ".join(map(str, sorted({row.get("cores", 2) for row in cells.rows})))
    lines = ["# Screening of wide tables", "", f"`python benchmarks/screening.py`: {KEPT} columns kept, two parties, "
             "means over seeds. At a load above the", f"number of cores ({cores}) wall seconds say little.", "",
             f"| {' | '.join(heads)} |", "|" + "--:|" * 2 + "---|" * 2 + "--:|" * 7]  # fmt: skip
    shapes = dict.fromkeys((row["rows"], row["columns"], row["kind"]) for row in cells.rows)
    for rows, columns, kind in shapes:
        mine = [row for row in cells.rows if (row["rows"], row["columns"], row["kind"]) == (rows, columns, kind)]
        for form in FORMS:
            told = [each for row in mine for each in row["forms"] if each["form"] == form]
            if not told:
                continue
            mean = {name: float(np.mean([each[name] for each in told])) for name in told[0] if name != "form"}
            lines.append(
                f"| {columns:,} | {rows:,} | {kind} | {form} | {mean['cpu_s']:.1f} | {mean['wall_s']:.1f} | "
                f"{mean['mb']:.1f} | {mean['found']:.2f} | {mean['chance']:.2f} | {len(told)} | {mine[0]['load']} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=100_000, help="columns of the widest table")
    parser.add_argument("--out", type=Path, default=RESULTS.with_suffix(".jsonl"))
    parser.add_argument("--files", type=Path)
    parser.add_argument("--write", action="store_true", help="write the files of --files first, and measure nothing")
    given = parser.parse_args()
    cells, cores = Cells(given.out), len(os.sched_getaffinity(0))
    if given.files is not None:
        if given.write:
            return write_files(10_000, given.most, 0, given.files)
        key = {"rows": 10_000, "columns": given.most, "kind": "independent, from files", "seed": 0}
        cells.run(lambda: {"forms": measure_files(given.most, given.files), "cores": cores}, **key)
        given.out.with_suffix(".md").write_text(render(cells), encoding="utf-8")
        return
    for rows, columns, kind, seed in (case for case in CASES if case[1] <= given.most):
        key = {"rows": rows, "columns": columns, "kind": kind, "seed": seed}
        cells.run(lambda key=key: {"forms": measure(**key), "cores": cores}, **key)  # type: ignore[misc]
        given.out.with_suffix(".md").write_text(render(cells), encoding="utf-8")


if __name__ == "__main__":
    main()
