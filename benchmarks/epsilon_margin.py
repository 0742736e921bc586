"""How near MUSE's choices are, beside the noise that any Gaussian mechanism of epsilon 1 needs: a figure from the data.

    python benchmarks/epsilon_margin.py --data DIR [--sets bank_marketing,adult] [--times 10,30] [--draws 8]

For each choice of the exact search (five columns, ten bins) the margin between the column taken and the next best; how
far one replaced row moves that margin (the farthest pair of rows that the table has); and how often the choice
would be right if the whole budget were spent on this one number, with Gaussian noise for just that movement: no
mechanism knows so much. ``noise now``: its deviation in tables with the noise of a run. Then the twin of a
run (``epsilon.py``) on the same table, each row so many times: the margins stay, the noise a row falls to that part.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
from epsilon import BINS, DELTA, RESULTS, Data, MuseTwin, best_of, of_muse, read_real
from provenance import commit
from scipy.stats import norm

from fedsift.core.binning import ColumnBins
from fedsift.evaluate import datasets
from fedsift.mpc.column_scores.noise import rho_of
from fedsift.select.muse.counted import Counted
from fedsift.select.muse.spending import Spending

CHOSEN, EPSILON = 5, 1.0


class Exact:
    """Bins of all columns, as a run without noise has them, and what two of them (the label is -1) have in common."""

    def __init__(self, data: Data):
        self.rows, self.names = len(data.X), [name for party in data.sides.values() for name in party.columns]
        tables = {name: party.table for party in data.sides.values() for name in party.columns}
        bins = {name: ColumnBins.fit(tables[name], name, BINS, 1) for name in self.names}
        self.codes = [bins[name].codes(tables[name]).astype(np.int64) for name in self.names] + [data.y]

    def cells(self, first: int, second: int) -> np.ndarray:
        a, b = self.codes[first], self.codes[second]
        shape = int(a.max()) + 1, int(b.max()) + 1
        return np.bincount(a * shape[1] + b, minlength=shape[0] * shape[1]).reshape(shape).astype(float)

    def shared(self, first: int, second: int) -> float:
        return Counted(self.cells(first, second), 0.0, self.rows).information()

    def moves(self, first: int, second: int) -> np.ndarray:
        """How far each row moves it, times the number of rows: the log of how much likelier its pair of bins is."""
        cells = self.cells(first, second)
        usual = np.outer(cells.sum(axis=1), cells.sum(axis=0)) / self.rows
        ratio = np.log(np.maximum(cells, 1) / usual.clip(1e-9))
        return np.asarray(ratio[self.codes[first], self.codes[second]])


def noise_now(exact: Exact, one: int, other: int, taken: list[int], columns: int, draws: int = 200) -> float:
    """Deviation of the difference of two scores in a run: each table has the noise of its two sides."""
    rng, spending = np.random.default_rng(0), Spending(rho_of(EPSILON, DELTA), BINS, CHOSEN)
    found = np.zeros(draws)
    for step, partner in enumerate([-1, *taken]):
        noise = spending.noise(step)
        variance = noise.holder_scale(columns) ** 2 + noise.party_scale(columns // 2) ** 2
        for column, sign in ((one, 1.0), (other, -1.0)):
            cells, weight = exact.cells(column, partner), sign * (1.0 if step == 0 else -1.0 / len(taken))
            noisy = [cells + rng.normal(0, math.sqrt(variance), cells.shape) for _ in range(draws)]
            found += weight * np.array([Counted(each, variance, exact.rows).information() for each in noisy])
    return float(found.std())


def choices(data: Data) -> list[str]:
    exact = Exact(data)
    columns, taken, lines = range(len(exact.names)), list[int](), []
    relevance = np.array([exact.shared(i, -1) for i in columns])
    redundancy = np.zeros(len(columns))
    for step in range(CHOSEN):
        score = relevance - redundancy / max(1, step)
        score[taken] = -np.inf
        best, second = (int(i) for i in np.argsort(-score)[:2])
        margin = float(score[best] - score[second])
        moves = exact.moves(best, -1) - exact.moves(second, -1)
        for each in taken:
            moves = moves - (exact.moves(best, each) - exact.moves(second, each)) / len(taken)
        farthest = float(moves.max() - moves.min()) / exact.rows
        right = float(norm.cdf(margin * math.sqrt(2 * rho_of(EPSILON, DELTA)) / farthest))
        now = noise_now(exact, best, second, taken, len(columns))
        lines.append(
            f"| {step + 1} | {exact.names[best]} | {exact.names[second]} | {1e4 * margin:.2f} | {1e4 * farthest:.2f} | "
            f"{right:.2f} | {1e4 * now:.1f} | {norm.cdf(margin / now):.2f} |"
        )
        taken.append(best)
        redundancy = redundancy + np.array([0.0 if i in taken else exact.shared(best, i) for i in columns])
    return lines


def repeated(data: Data, times: int, draws: int) -> tuple[float, int]:
    """How many of the exact five the twin finds where each row is there so many times."""
    X = pd.concat([data.X] * times, ignore_index=True)
    larger = Data(X, np.tile(data.y, times), data.sides["holder"].columns)
    best = best_of(of_muse(data, None)["muse"], CHOSEN)
    hits = [len(best & set(MuseTwin(larger, CHOSEN, EPSILON).chosen())) for _ in range(draws)]
    return float(np.mean(hits)), len(X)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get(datasets.FOLDER_VARIABLE, "data")))
    parser.add_argument("--sets", default="bank_marketing,adult,default_credit")
    parser.add_argument("--times", default="10,30")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS / "epsilon_margin.md")
    given = parser.parse_args()
    lines = ["# MUSE's margins under epsilon 1", "", (__doc__ or "").split("\n\n", 2)[2].strip()]
    for name in given.sets.split(","):
        head = "| choice | taken | next | margin, 1e-4 nats | one row moves it, 1e-4 | right at best | noise now, 1e-4 "
        lines += ["", f"## {name}", "", head + "| right now |", "|--:|---|---|--:|--:|--:|--:|--:|"]
        lines += choices(read_real(name, given.data))
        print("\n".join(lines[-6:]), flush=True)
    lines += ["", f"## {given.sets.split(',')[0]}, every row so many times", ""]
    lines += ["| times | rows | of the exact five | draws |", "|--:|--:|--:|--:|"]
    data = read_real(given.sets.split(",")[0], given.data)
    for times in [int(each) for each in given.times.split(",") if each]:
        hits, rows = repeated(data, times, given.draws)
        lines.append(f"| {times} | {rows:,} | {hits:.2f} | {given.draws} |")
        print(lines[-1], flush=True)
    lines += ["", f"`python benchmarks/epsilon_margin.py` (commit {commit()}, load {os.getloadavg()[0]:.1f})."]
    given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
