"""Information value under differential privacy: how many of the best columns are still found.

    python benchmarks/epsilon.py [--data DIR] [--draws 20]

The plaintext twin of ``InformationValue(epsilon=...)``: the same bins of ranks, the same noise of both sides, the same
scores (``tests/test_filter_privacy.py`` holds the federated run to it), two parties with half of the columns each. Real
sets: of the five that are best without noise, how many are among the five best; generated ones (100 columns, ten
of them related to the label): how many of those ten are among the ten best.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import fedsift as fs
from fedsift.core.party import Party, Site, read_labels
from fedsift.core.table import Table
from fedsift.evaluate import datasets
from fedsift.mpc.column_scores.noise import Noise, drawn, rank_bins
from fedsift.select.filters.information_value import information_value

EPSILONS = (3.0, 1.0, 0.3)
BINS, DELTA = 10, 1e-6


def tables_of(codes: np.ndarray, y: np.ndarray, classes: int) -> np.ndarray:
    """Columns x bins x classes."""
    return np.array([np.bincount(c * classes + y, minlength=BINS * classes).reshape(BINS, classes) for c in codes.T])


def noisy_values(tables: np.ndarray, epsilon: float, passive: np.ndarray) -> np.ndarray:
    """Information values of what the coordinator opens; ``passive`` marks the columns of the party without label."""
    columns, _, classes = tables.shape
    noise = Noise(epsilon, DELTA, int(tables[0].sum()), classes, BINS)
    holder = noise.holder_scale(int((~passive).sum()), int(passive.sum()))
    counted = tables[:, :, :-1] + drawn((columns * BINS, classes - 1), holder).reshape(columns, BINS, classes - 1)
    scale = noise.party_scale(int(passive.sum()))
    own = drawn((int(passive.sum()) * BINS, classes - 1), scale).reshape(-1, BINS, classes - 1)
    counted[passive] += own
    cells = np.concatenate([counted, tables.sum(axis=2, keepdims=True) - counted.sum(axis=2, keepdims=True)], axis=2)
    totals = np.maximum(cells.sum(axis=1).mean(axis=0), 1.0)
    variance = holder**2 + np.where(passive, scale**2, 0.0)
    return np.array([information_value(table, totals, float(v)) for table, v in zip(cells, variance)])


def real(name: str, folder: Path, draws: int) -> dict[float, float]:
    X, y = datasets.load(name, folder)
    fed = fs.Federation.split(X, y, parties=2)
    exact = fs.InformationValue(n_features=5).fit(fed).scores_
    best = set(exact[exact.selected].feature)
    party = Party(Site("all", Table.read(X, id=None, name="all")), "", {})
    labels = read_labels(np.asarray(y), "all")
    passive = np.isin(X.columns, fed.column_names()["party2"])
    hits: dict[float, list[int]] = {epsilon: [] for epsilon in EPSILONS}
    for _ in range(draws):
        tables = tables_of(rank_bins(party, BINS)[0], labels.codes, labels.n_classes)
        for epsilon in EPSILONS:
            values = noisy_values(tables, epsilon, passive)
            hits[epsilon].append(len(best & set(X.columns[np.argsort(-values)[:5]])))
    return {epsilon: float(np.mean(found)) for epsilon, found in hits.items()}


def generated(rows: int, draws: int) -> dict[float, float]:
    """Ten columns whose mean differs between the classes by 0.1 to 0.55 deviations, ninety of noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    shift = np.r_[0.1 + 0.05 * np.arange(10), np.zeros(90)]
    order = rng.permutation(100)
    tables = []
    for j in order:
        column = rng.normal(size=rows) + shift[j] * y
        codes = np.argsort(np.argsort(column)) * BINS // rows
        tables.append(tables_of(codes[:, None], y, 2)[0])
    passive = np.arange(100) >= 50
    hits = {}
    for epsilon in EPSILONS:
        found = [np.argsort(-noisy_values(np.array(tables), epsilon, passive))[:10] for _ in range(draws)]
        hits[epsilon] = float(np.mean([(order[each] < 10).sum() for each in found]))
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--draws", type=int, default=20)
    given = parser.parse_args()
    lines = []
    for name in ("default_credit", "bank_marketing", "adult"):
        columns = datasets.load(name, given.data)[0].shape[1]
        lines.append({"data": name, "of": 5, **real(name, given.data, given.draws), "chance": round(25 / columns, 2)})
        print(lines[-1], flush=True)
    for rows in (1_000, 10_000, 100_000, 1_000_000):
        lines.append({"data": f"generated, {rows:,} rows", "of": 10, **generated(rows, given.draws), "chance": 1.0})
        print(lines[-1], flush=True)
    print(pd.DataFrame(lines).to_string(index=False))


if __name__ == "__main__":
    main()
