"""How far MUSE's mutual information with noise is from what exact tables say: two columns of different bins.

    python benchmarks/epsilon_pairs.py --data DIR [--sets jm1,spambase] [--epsilon 1] [--draws 6]

For each set (rows drawn up to 40,000 where there are fewer) the columns with the label, and three columns with all
others, at the noise of a run that chooses five of two parties' columns; error: root mean square over draws, against the
table of ten exact bins, median over the pairs; geometric mean over the sets. ``plain``: the sum of all cells, corrected
for noise, as it was read before. Nothing is kept: what ``select/muse/counted.py`` says of its choice is this.
"""

from __future__ import annotations

import argparse
import math
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
from epsilon import BINS, DELTA, Data, as_party

from fedsift.core.party import read_labels
from fedsift.evaluate import datasets
from fedsift.mpc.column_scores.noise import rho_of
from fedsift.mpc.column_scores.paid_bins import coded, searched
from fedsift.select.muse.counted import Counted
from fedsift.select.muse.spending import EDGES_SHARE, Spending

SETS = ("jm1", "california_housing", "phishing_websites", "spambase", "wine_quality_red", "fate_dvisits")
ROWS, CHOSEN, FEWER = 40_000, 5, (4, 7, BINS)


def read(name: str, folder: Path) -> Data:
    X, y = datasets.load(name, folder)
    rows = np.random.default_rng(7).integers(0, len(X), ROWS)
    X, y = X.iloc[rows].reset_index(drop=True), np.asarray(y)[rows]
    if len(np.unique(y)) > 12:
        y = np.searchsorted(np.quantile(y, [0.25, 0.5, 0.75]), y)
    return Data(X, read_labels(y, "all").codes, list(X)[: math.ceil(X.shape[1] / 2)])


def table(first: tuple[np.ndarray, int], second: tuple[np.ndarray, int]) -> np.ndarray:
    flat = np.bincount(first[0] * second[1] + second[0], minlength=first[1] * second[1])
    return flat.reshape(first[1], second[1]).astype(float)


def plain(counted: Counted) -> float:
    """The sum of all cells, each corrected for the noise in it."""
    cells, rows = counted.cells, counted.rows
    down, across = cells.shape
    if min(down, across) < 2:
        return 0.0
    sides = (cells, 1, 1.0), (cells.sum(axis=1), across, -1.0), (cells.sum(axis=0), down, -1.0)
    total = sum(sign * counted._weight(held, summands) for held, summands, sign in sides)
    total += counted._weight(cells.sum(), cells.size)
    return total / rows - (down - 1) * (across - 1) / (2 * rows)


def errors(data: Data, epsilon: float, draws: int) -> dict[tuple[str, int, str], float]:
    rng, spending = np.random.default_rng(0), Spending(rho_of(epsilon, DELTA), BINS, CHOSEN)
    whole, columns, label = as_party(data.X), data.columns(), (data.y, data.classes)

    def bins(budget: float, n_bins: int, least: int) -> list[tuple[np.ndarray, int]]:
        found = [searched(party, n_bins, budget) for party in data.sides.values()]
        codes, counts = coded([each for side in found for each in side], len(data.X), n_bins, least, most=n_bins)
        return [(codes[:, i], count) for i, count in enumerate(counts)]

    exact = bins(1e6, BINS, 1)
    told = [Counted(table(each, label), 0.0, whole.n_rows).information() for each in exact]
    chosen = np.argsort(told)[::-1][[0, 2, 4]].tolist()
    found: dict[tuple[str, int, str], float] = {}
    for n_bins in FEWER:
        own = bins(EDGES_SHARE * spending.rho, n_bins, spending.bin_rows(columns))
        pairs = {"label": [(i, exact[i], label, own[i], label) for i in range(columns)]}
        pairs["columns"] = [(i, exact[i], exact[b], own[i], own[b]) for b in chosen for i in range(columns) if i != b]
        for kind, listed in pairs.items():
            noise = spending.noise(0 if kind == "label" else 1)
            variance = noise.holder_scale(columns) ** 2 + noise.party_scale(columns // 2) ** 2
            off = defaultdict(list)
            for _, first, second, own_first, own_second in listed:
                truth = Counted(table(first, second), 0.0, whole.n_rows).information()
                cells = table(own_first, own_second)
                noisy = [Counted(cells + rng.normal(0, variance**0.5, cells.shape), variance, whole.n_rows)
                         for _ in range(draws)]  # fmt: skip
                for how, read_off in (("plain", plain), ("weighed", Counted.information)):
                    off[how].append(np.sqrt(np.mean([(read_off(each) - truth) ** 2 for each in noisy])))
            found |= {(kind, n_bins, how): float(np.median(values)) for how, values in off.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get(datasets.FOLDER_VARIABLE, "data")))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--draws", type=int, default=6)
    given = parser.parse_args()
    all_sets = [errors(read(name, given.data), given.epsilon, given.draws) for name in given.sets.split(",")]
    for key in all_sets[0]:
        print(*key, f"{math.exp(float(np.mean([math.log(each[key]) for each in all_sets]))):.4f}")


if __name__ == "__main__":
    main()
