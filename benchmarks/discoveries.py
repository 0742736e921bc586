"""How much of what is kept is noise? Planted tables, many seeds: false discovery rate and power of ``fdr=0.1``.

    python benchmarks/discoveries.py [--seeds 50] [--secure 2] [--methods "NAME;NAME"] [--render]
    python benchmarks/discoveries.py --small [--seeds 50] [--methods "NAME;NAME"] [--designs "NAME;NAME"]

A table has 1,000 rows and 30 columns, of which 10 make the label: ``independent`` columns and a linear label;
``correlated`` ones (0.6 between neighbours, less further off); the same with classes (``logistic``); ``apart``: true
columns correlated with each other and noise with noise, none with the other kind; ``bent``: five columns by their
squares, five linearly; ``bent, correlated``. A column is noise if the label does not depend on it given all the others,
so that a neighbour of a true column is noise too; methods that ask whether a column has to do with the label at all
(Boruta with shuffled shadows, filters) keep it, which the table shows. Rows are runs with all columns at one party, so
that the same code runs without masks; beside them runs of three parties, Boruta's at ``protection="coordinator"``.
Seeds from 1,000 on; settings were chosen on others, but for two: ``q`` of Stable became 12 after q=8 had been seen
here, and Boruta's shadows ``alike`` after the shuffled ones had.

``--small``: 400 rows and 8 columns, of which 3 make the label, so that runs of several parties at each method's own
default (Boruta: ``protection="all"``, every step on shares) can be repeated as often; nothing was chosen on them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cells import Cells
from provenance import commit

import fedsift as fs

HERE = Path(__file__).parent / "results"
ROWS, COLUMNS, TRUE, FDR, FIRST_SEED = 1000, 30, 10, 0.1, 1000
SMALL_ROWS, SMALL_COLUMNS, SMALL_TRUE = 400, 8, 3
DESIGNS = ("independent", "apart", "correlated", "logistic", "bent", "bent, correlated")


def planted(design: str, seed: int, *, small: bool = False) -> tuple[pd.DataFrame, np.ndarray, set[str]]:
    """Columns, label, and the names of the columns that make it."""
    generator = np.random.default_rng(seed)
    rows, columns, count = (SMALL_ROWS, SMALL_COLUMNS, SMALL_TRUE) if small else (ROWS, COLUMNS, TRUE)
    X = generator.normal(size=(rows, columns))
    if design not in ("independent", "bent"):
        for column in range(1, columns):
            X[:, column] = 0.6 * X[:, column - 1] + 0.8 * X[:, column]
    if design == "apart":
        X[:, count:] = X[generator.permutation(rows)][:, count:]  # noise of other rows
    true = np.arange(count) if design == "apart" else generator.choice(columns, count, replace=False)
    parts = X[:, true] * generator.choice([-1.0, 1.0], count)
    if design.startswith("bent"):
        parts[:, : count // 2] = X[:, true[: count // 2]] ** 2
    score = parts.sum(axis=1)
    label = 0.35 * score + generator.normal(size=rows)
    if design == "logistic":
        label = (generator.random(rows) < 1 / (1 + np.exp(-score))).astype(int)
    names = [f"x{number:02d}" for number in range(columns)]
    return pd.DataFrame(X, columns=names), label, {names[number] for number in true}


def selectors(seed: int) -> dict[str, fs.Selector]:
    lasso = fs.FederatedLasso(max_iter=40, penalty=0.02)
    return {
        "Knockoffs": fs.Knockoffs(fdr=FDR, random_state=seed),
        "Knockoffs without squares": fs.Knockoffs(fdr=FDR, squares=False, random_state=seed),
        "Boruta": fs.Boruta(fdr=FDR, random_state=seed),
        "Boruta, shuffled": fs.Boruta(fdr=FDR, shadows="shuffled", random_state=seed),
        "Stable(FederatedLasso), q=12": fs.Stable(lasso, q=12, fdr=FDR, pairs=20, random_state=seed),
        "Stable(FederatedLasso), q=8": fs.Stable(lasso, q=8, fdr=FDR, pairs=20, random_state=seed),
    }


def measure(method: str, design: str, seed: int, parties: int, table: str = "") -> dict[str, Any]:
    X, y, true = planted(design, seed, small=table == "small")
    fitted = selectors(seed)[method].fit(fs.Federation.split(X, y, parties=parties, random_state=seed))
    kept = {column for columns in fitted.selected_.values() for column in columns}
    false = len(kept - true) / max(1, len(kept))
    told = {"kept": len(kept), "false": false, "power": len(kept & true) / len(true), "bytes": fitted.ledger_.bytes()}
    return {**told, "level": getattr(fitted, "protection", "")} if table else told


def of_small(frame: pd.DataFrame) -> list[str]:
    """The rows of small tables: every party's columns at the method's own default."""
    if not len(frame):
        return []
    lines = [
        "", "## Several parties, small tables", "", f"{SMALL_ROWS} rows and {SMALL_COLUMNS} columns, of which "
        f"{SMALL_TRUE} make the label; defaults of each method, so that Boruta runs at `all`.", "",
        "| method | level | table | parties | seeds | false | power | kept | MB a run |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    for (method, level, design, parties), mine in frame.groupby(["method", "level", "design", "parties"], sort=False):
        error = 2 * mine["false"].std(ddof=1) / np.sqrt(len(mine)) if len(mine) > 1 else float("nan")
        lines.append(
            f"| {method} | {level} | {design} | {parties} | {len(mine)} | {mine['false'].mean():.3f} ({error:.3f}) "
            f"| {mine['power'].mean():.3f} | {mine['kept'].mean():.1f} | {mine['bytes'].mean() / 1e6:.0f} |"
        )
    return lines


def render(cells: Cells) -> None:
    frame = cells.frame()
    small = frame[frame["table"] == "small"] if "table" in frame else frame[:0]
    frame = frame.drop(small.index)
    lines = [
        "# False discoveries", "", "Asked: 0.1. `false`: mean share of noise among the kept columns (two standard "
        "errors); `power`: mean share of the true columns that were kept. " + (__doc__ or "").split("\n\n")[2].strip(),
        "", "| method | table | seeds | false | power | kept | 3 parties: seeds, false, power |",
        "|---|---|--:|--:|--:|--:|---|",
    ]  # fmt: skip
    for method in selectors(0):
        for design in DESIGNS:
            mine = frame[(frame["method"] == method) & (frame["design"] == design)]
            pooled, secure = mine[mine["parties"] == 1], mine[mine["parties"] > 1]
            if not len(pooled):
                continue
            error = f"{2 * pooled['false'].std(ddof=1) / np.sqrt(len(pooled)):.3f}" if len(pooled) > 1 else "one seed"
            beside = f"{len(secure)}, {secure['false'].mean():.3f}, {secure['power'].mean():.2f}" if len(secure) else ""
            lines.append(
                f"| {method} | {design} | {len(pooled)} | {pooled['false'].mean():.3f} ({error}) "
                f"| {pooled['power'].mean():.3f} | {pooled['kept'].mean():.1f} | {beside} |"
            )
    stamp = f"`python benchmarks/discoveries.py` (commit {commit()}): {cells.frame()['cpu_s'].sum():,.0f} CPU-s in all."
    (HERE / "discoveries.md").write_text("\n".join([*lines, *of_small(small), "", stamp, ""]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--secure", type=int, default=2)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("--methods", default=";".join(selectors(0)), help="names, with semicolons between")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--parties", type=int, default=2, help="of small tables")
    parser.add_argument("--designs", default=";".join(DESIGNS), help="of small tables")
    parser.add_argument("--out", type=Path, default=HERE / "discoveries.jsonl")
    chosen = parser.parse_args()
    cells = Cells(chosen.out)
    if chosen.small:
        told = {"table": "small", "parties": chosen.parties}
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            for method in chosen.methods.split(";"):
                for design in chosen.designs.split(";"):
                    key = {"method": method, "design": design, "seed": seed, **told}
                    cells.run(lambda key=key: measure(**key), **key)
        return
    for method in () if chosen.render else chosen.methods.split(";"):
        for design in DESIGNS:
            for number in range(chosen.seeds):
                for parties in (1, 3) if number < chosen.secure else (1,):
                    seed = chosen.first + number
                    key = {"method": method, "design": design, "seed": seed, "parties": parties}
                    cells.run(lambda key=key: measure(**key), **key)
    render(cells)


if __name__ == "__main__":
    main()
