"""What the filters cost whose sums the coordinator opens from two halves: seconds, CPU seconds and bytes of one fit.

    python benchmarks/filters.py --data DIR

Two parties in one process. Two targets: information value on default_credit below 1 s and 4 MB, Gini impurity on 10,304
columns of 100 rows (the size of raw faces; here generated) below 15 CPU-s. Keys are made beforehand: a site has its own
for each job, about 0.1 CPU-s. CPU seconds count all threads.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cells import Cells

import fedsift as fs
from fedsift.evaluate import datasets
from fedsift.mpc import encrypted_histogram as histogram

RESULTS = Path(__file__).parent / "results" / "filters.md"


def default_credit(data: str | None) -> tuple[pd.DataFrame, pd.Series]:
    return datasets.load("default_credit", path=data)


def faces(data: str | None) -> tuple[pd.DataFrame, pd.Series]:
    """Ten classes of ten rows; every hundredth column differs between them."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 10)
    X = rng.integers(0, 256, size=(100, 10_304)).astype(float)
    X[:, ::100] += 40 * y[:, None]
    return pd.DataFrame(X, columns=[f"p{i}" for i in range(X.shape[1])]), pd.Series(y, name="target")


CASES = {
    "information value, default_credit": (fs.InformationValue, default_credit),
    "Gini, 10,304 columns of 100 rows": (fs.GiniFilter, faces),
}


def measure(name: str, data: str | None) -> dict[str, Any]:
    method, load = CASES[name]
    X, y = load(data)
    fed = fs.Federation.split(X, y, parties=2)
    fed.ask(histogram.public_key, to=fed.active, scheme="auto")
    fed.column_names(), fed.n_classes  # what a user's first look has asked for already
    start, processor = time.perf_counter(), time.process_time()
    fitted = method(n_features=10).fit(fed)
    cpu, wall = time.process_time() - processor, time.perf_counter() - start
    size = {"rows": len(X), "columns": X.shape[1], "fit_cpu_s": round(cpu, 2), "fit_wall_s": round(wall, 2)}
    return {**size, "mb": round(fitted.ledger_.bytes() / 1e6, 2)}


def render(cells: Cells) -> str:
    heads = ["fit", "rows", "columns", "CPU s", "wall s", "MB", "load", "commit"]
    lines = ["# Filters opened from two halves: what a fit costs", "",
             "`python benchmarks/filters.py --data DIR`: two parties, 10 bins, 10 columns kept. At a load above the",
             "number of cores (2) wall seconds say little.", "",
             f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]  # fmt: skip
    for row in cells.rows:
        told = [row["case"], f"{row['rows']:,}", f"{row['columns']:,}", f"{row['fit_cpu_s']:.2f}",
                f"{row['fit_wall_s']:.2f}", f"{row['mb']:.2f}", row["load"], row["commit"]]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, told))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get(datasets.FOLDER_VARIABLE))
    given = parser.parse_args()
    cells = Cells(RESULTS.with_suffix(".jsonl"))
    for name in CASES:
        cells.run(lambda name=name: measure(name, given.data), case=name)  # type: ignore[misc]
    RESULTS.write_text(render(cells), encoding="utf-8")


if __name__ == "__main__":
    main()
