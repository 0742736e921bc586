"""Why feature election with epsilon misses columns of default_credit, and what sums with noise can reach there at best.

    python benchmarks/epsilon_election.py --data DIR [--sets default_credit,jm1] [--draws 20]

Of the five columns with the best scores without noise, how many are among the best five. *Without noise*: values of
each of four parties as they are, held within their outermost thousandths, or with rows cut to R^2 = 1 a column; and of
all columns or of the ten that have most in common with the class. *At best*: all of the budget on one matrix of sums of
(x, t)(x, t)', standardised by all rows for nothing, one lasso of all rows; whichever of so many constants (length of
rows, weight of the class, ridge, values held or not) found most, chosen after the fact. ``parties``: how many add full
noise, each for itself, as in a run; 1 is a pooled table, which nobody has.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
from pathlib import Path

import numpy as np
from epsilon import DELTA, RESULTS, best_of, federation, read_real
from provenance import commit

from fedsift.evaluate import datasets
from fedsift.mpc.column_scores.noise import rho_of
from fedsift.select.baselines.local_scores import local_scores

ALPHA, HELD, TEN = 0.01, 0.001, 10
LENGTHS, WEIGHTS, RIDGES = (0.5, 1.0, 2.0), (0.5, 1.5), (0.0, 0.1, 0.3, 1.0)


class Rows:
    """Standardised numbers by party, the class of each row, and the exact five."""

    def __init__(self, name: str, folder: Path):
        fed = federation(read_real(name, folder), "horizontal")
        tables = [site.table for site in fed.simulated.values()]
        self.names = [column for column in tables[0].columns if tables[0].kinds[column] != "categorical"]
        self.classes = [np.unique(table.label, return_inverse=True)[1] for table in tables]
        x = np.vstack([table.matrix(self.names) for table in tables])
        x = np.where(np.isnan(x), np.nanmean(x, axis=0), x)
        spread = x.std(axis=0)
        self.x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        self.y = np.concatenate(self.classes)
        self.sizes = [len(each) for each in self.classes]
        self.best = self.five(self.elected(self.x))

    def elected(self, x: np.ndarray, only: int | None = None) -> np.ndarray:
        """Scores of the election without noise, of columns as they are given."""
        found = np.zeros(x.shape[1])
        for part, y in zip(np.split(x, np.cumsum(self.sizes)[:-1]), self.classes):
            common = np.abs((part - part.mean(axis=0)).T @ (y - y.mean()))
            going = np.argsort(-common)[:only]
            scores = local_scores(part[:, going], y, "lasso", ALPHA, "classification", 0)
            found[going] += len(y) * scores / max(scores.max(), 1e-12)
        return found

    def five(self, scores: np.ndarray) -> set[str]:
        return best_of(dict(zip(self.names, scores.tolist())), 5)

    def hits(self, scores: np.ndarray) -> int:
        return len(self.best & self.five(scores))

    def held(self) -> np.ndarray:
        return np.clip(self.x, *np.quantile(self.x, [HELD, 1 - HELD], axis=0))

    def cut(self, x: np.ndarray, length: float) -> np.ndarray:
        long = np.sqrt((x**2).sum(axis=1, keepdims=True))
        return np.asarray(x * np.minimum(1.0, math.sqrt(length * x.shape[1]) / np.maximum(long, 1e-9)))


def without_noise(rows: Rows) -> list[str]:
    forms = {"as they are": rows.x, "held": rows.held(), "rows cut": rows.cut(rows.x, 1.0)}
    forms["held, rows cut"] = rows.cut(rows.held(), 1.0)
    return [
        f"| {name} | {rows.hits(rows.elected(x))} | {rows.hits(rows.elected(x, TEN))} |" for name, x in forms.items()
    ]


def fitted(products: np.ndarray, common: np.ndarray) -> np.ndarray:
    """A lasso of products of columns and of columns with the class."""
    from sklearn.linear_model import Lasso

    sizes, turned = np.linalg.eigh(products)
    roots = np.sqrt(np.maximum(sizes, 1e-2) * len(products))
    aim = len(products) * (turned.T @ common) / roots
    model = Lasso(alpha=ALPHA, fit_intercept=False, max_iter=5_000)
    return np.abs(model.fit(roots[:, None] * turned.T, aim).coef_)


def at_best(rows: Rows, epsilon: float, parties: int, draws: int) -> tuple[float, float, int]:
    """The mean of the best constants, the median over all of them, and how many there are."""
    rng, count, width = np.random.default_rng(0), len(rows.y), rows.x.shape[1]
    t, means = rows.y - rows.y.mean(), []
    for x, length, weight in itertools.product((rows.x, rows.held()), LENGTHS, WEIGHTS):
        cut, most = rows.cut(x, length), math.sqrt(length * width)
        lift = weight * most / np.abs(t).max()
        scale = math.sqrt(2 * parties) * (1 + weight**2) * most**2 / math.sqrt(2 * rho_of(epsilon, DELTA))
        exact = np.hstack([cut, lift * t[:, None]])
        exact = exact.T @ exact
        for ridge in RIDGES:
            found = []
            for _ in range(draws):
                noise = np.triu(rng.normal(0, scale / math.sqrt(2), exact.shape), 1)
                noise = noise + noise.T + np.diag(rng.normal(0, scale, len(exact)))
                told = (exact + noise) / count
                extra = ridge * math.sqrt(2 * width) * scale / count
                found.append(rows.hits(fitted(told[:-1, :-1] + extra * np.eye(width), told[:-1, -1] / lift)))
            means.append(float(np.mean(found)))
    return max(means), float(np.median(means)), len(means)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get(datasets.FOLDER_VARIABLE, "data")))
    parser.add_argument("--sets", default="default_credit,jm1")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS / "epsilon_election.md")
    given = parser.parse_args()
    lines = ["# Feature election: what noise leaves at best", "", (__doc__ or "").split("\n\n", 2)[2].strip()]
    for name in given.sets.split(","):
        rows = Rows(name, given.data)
        lines += ["", f"## {name}, without noise", "", "| values | all columns | ten columns |", "|---|--:|--:|"]
        lines += without_noise(rows)
        lines += ["", f"## {name}, at best", "", "| epsilon | parties | best | median | constants | draws |"]
        lines += ["|--:|--:|--:|--:|--:|--:|"]
        for epsilon, parties in ((1.0, 4), (1.0, 1)):
            best, median, constants = at_best(rows, epsilon, parties, given.draws)
            lines.append(f"| {epsilon:g} | {parties} | {best:.2f} | {median:.2f} | {constants} | {given.draws} |")
        print("\n".join(lines[-14:]), flush=True)
    lines += ["", f"`python benchmarks/epsilon_election.py` (commit {commit()}, load {os.getloadavg()[0]:.1f})."]
    given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
