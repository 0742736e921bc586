"""Filters under differential privacy: how many of the best columns are still found.

    python benchmarks/epsilon.py --data DIR [--draws 20]     measure; writes results/epsilon.jsonl
    python benchmarks/epsilon.py --render                    results/epsilon.md from the rows

The plaintext twin of ``InformationValue(epsilon=...)``: the same search for edges, the same noise of both sides, the
same scores (``tests/test_filter_privacy.py`` holds the federated run to it), two parties with half of the columns each.
Real sets: of the five that are best without noise, how many are among the five best; generated ones (100 columns, ten
of them related to the label): how many of those ten are among the ten best. Rules and constants of the search were
chosen on other tables (``mpc/column_scores/paid_bins.py``).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from provenance import commit

import fedsift as fs
from fedsift.core.party import Party, Site, read_labels
from fedsift.core.table import Table
from fedsift.evaluate import datasets
from fedsift.mpc.column_scores.countable_bins import merge_small
from fedsift.mpc.column_scores.noise import TableNoise, drawn, rho_of
from fedsift.mpc.column_scores.paid_bins import paid_bins
from fedsift.select.filters.information_value import information_value

RESULTS = Path(__file__).parent / "results"
EPSILONS = (3.0, 1.0, 0.3)
BINS, MIN_CELL, DELTA = 10, 10, 1e-6
REAL = ("default_credit", "bank_marketing", "adult")
ROWS = (1_000, 10_000, 100_000, 1_000_000)


def noisy_values(sides: dict[str, Party], y: np.ndarray, epsilon: float) -> dict[str, float]:
    """Information values of what the coordinator opens; the label holder is the side ``holder``."""
    noise, classes = TableNoise(rho_of(epsilon, DELTA)), int(y.max()) + 1
    holder = noise.holder_scale(sum(len(party.columns) for party in sides.values()))
    tables: dict[str, tuple[np.ndarray, float]] = {}
    for name, party in sides.items():
        own = holder if name == "holder" else noise.party_scale(len(party.columns))
        variance = holder**2 + (0.0 if name == "holder" else own**2)
        codes, counts = paid_bins(party, BINS, noise.edges_rho, noise.min_rows(own, MIN_CELL))
        for column, code, count in zip(party.columns, codes.T, counts):
            exact = np.bincount(code * classes + y, minlength=count * classes).reshape(count, classes)
            added = drawn(exact.shape, holder) + (0 if name == "holder" else drawn(exact.shape, own))
            tables[column] = exact + added, variance
    totals = np.maximum(np.mean([table.sum(axis=0) for table, _ in tables.values()], axis=0), 1.0)
    return {column: information_value(table, totals, variance) for column, (table, variance) in tables.items()}


def as_party(X: pd.DataFrame) -> Party:
    return Party(Site("party", Table.read(X, id=None, name="party")), "", {})


def exact_values(sides: dict[str, Party], y: np.ndarray) -> dict[str, float]:
    """Information values without noise, in the bins of a run without epsilon."""
    classes = int(y.max()) + 1
    totals = np.bincount(y).astype(float)
    values = {}
    for party in sides.values():
        for column in party.columns:
            codes, count = merge_small(*party.binned(column, BINS, MIN_CELL), MIN_CELL)
            table = np.bincount(codes * classes + y, minlength=count * classes).reshape(count, classes)
            values[column] = information_value(table, totals)
    return values


def best_of(values: dict[str, float], count: int) -> set[str]:
    return set(sorted(values, key=values.__getitem__)[-count:])


def found(sides: dict[str, Party], y: np.ndarray, best: set[str], draws: int) -> dict[str, float]:
    """Mean number of the best columns among as many with the highest noisy values."""
    hits = {"no noise": float(len(best & best_of(exact_values(sides, y), len(best))))}
    for epsilon in EPSILONS:
        each = [noisy_values(sides, y, epsilon) for _ in range(draws)]
        hits[f"epsilon {epsilon:g}"] = float(np.mean([len(best & best_of(values, len(best))) for values in each]))
    return hits


def real(name: str, folder: Path, draws: int) -> dict[str, float]:
    X, y = datasets.load(name, folder)
    fed = fs.Federation.split(X, y, parties=2)
    exact = fs.InformationValue(n_features=5).fit(fed).scores_
    names = fed.column_names()
    sides = {"holder": as_party(X[names["party1"]]), "other": as_party(X[names["party2"]])}
    best = set(exact[exact.selected].feature)
    codes = read_labels(np.asarray(y), "all").codes
    return {"rows": len(X), "of": 5, "chance": 25 / X.shape[1], **found(sides, codes, best, draws)}


def generated(rows: int, draws: int) -> dict[str, float]:
    """Ten columns whose mean differs between the classes by 0.1 to 0.55 deviations, ninety of noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    shift = np.r_[0.1 + 0.05 * np.arange(10), np.zeros(90)]
    columns = [f"c{j}" for j in rng.permutation(100)]
    X = pd.DataFrame({name: rng.normal(size=rows) + shift[int(name[1:])] * y for name in columns})
    sides = {"holder": as_party(X[columns[:50]]), "other": as_party(X[columns[50:]])}
    return {"rows": rows, "of": 10, "chance": 1.0, **found(sides, y, {f"c{j}" for j in range(10)}, draws)}


def render() -> str:
    """The table: a data set a row."""
    rows = [json.loads(line) for line in (RESULTS / "epsilon.jsonl").read_text().splitlines()]
    heads = ["data", "rows", "of", "no noise", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS), "chance", "draws"]
    lines = [
        "# Filters with epsilon",
        "",
        "`python benchmarks/epsilon.py --data DIR`: of the best columns by information value, how many are among as",
        "many with the highest noisy values; mean over so many draws. Two parties, 10 bins, delta 1e-6.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" + "--:|" * (len(heads) - 1),
    ]
    for row in rows:
        told = [
            row["data"],
            f"{row['rows']:,}",
            row["of"],
            *(f"{row[head]:.2f}" if head in row else "-" for head in heads[3:7]),
        ]
        lines.append("| " + " | ".join(map(str, [*told, f"{row['chance']:.2f}", row["draws"]])) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="data sets, or numbers of generated rows")
    parser.add_argument("--render", action="store_true")
    given = parser.parse_args()
    if not given.render:
        path = RESULTS / "epsilon.jsonl"
        old = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        wanted = given.only or [*REAL, *map(str, ROWS)]
        rows = {row["data"]: row for row in old}
        for name in wanted:
            draws = given.draws
            measured = generated(int(name), draws) if name.isdigit() else real(name, given.data, draws)
            label = "generated, 100 columns, " + name if name.isdigit() else name
            rows[label] = {"data": label, "draws": draws, **measured, "commit": commit()}
            print(rows[label], flush=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    (RESULTS / "epsilon.md").write_text(render())


if __name__ == "__main__":
    main()
