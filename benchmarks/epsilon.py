"""Selection under differential privacy: how many of the best columns are still found.

    python benchmarks/epsilon.py --data DIR [--methods tables,sffs] [--only adult,1000] [--epsilons 1] [--draws 20]
    python benchmarks/epsilon.py --render                    results/epsilon.md from the rows

A line of results/epsilon.jsonl is some draws of one cell (method, data, epsilon), so cells can be made side by side and
in pieces (``--out``); lines of the same cell add up. ``tables`` measures information value and Gini from the same
noisy tables, ``sffs`` the F statistic, ``muse`` its search: plaintext twins of the federated runs, two parties with
half of the columns each (``tests/test_filter_privacy.py`` holds the runs to what they are made of,
``tests/test_muse_privacy.py`` MUSE's choices to the twin's). ``feature_election`` is a federated run of four parties
with rows, and so is everything without noise.

Real sets: of the five that the same method finds best without noise, how many are among its five best; generated ones
(100 columns, ten of them related to the label): how many of those ten are among the ten best. Rules and constants of
the search for bins were chosen on other tables (``mpc/column_scores/paid_bins.py``).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from provenance import commit

import fedsift as fs
from fedsift.core.party import Party, Site, read_labels
from fedsift.core.table import Table
from fedsift.evaluate import datasets
from fedsift.mpc.column_scores.f_statistic import f_statistic
from fedsift.mpc.column_scores.gini import gini_impurities
from fedsift.mpc.column_scores.label_tables import ColumnTables
from fedsift.mpc.column_scores.noise import TableNoise, drawn, rho_of
from fedsift.mpc.column_scores.noisy_f import f_of_tables
from fedsift.mpc.column_scores.paid_bins import coded, merge_small, searched
from fedsift.select.filters.information_value import information_value
from fedsift.select.muse import noisy_tables as muse_tables
from fedsift.select.muse.criteria import in_step, steps

RESULTS = Path(__file__).parent / "results"
EPSILONS = (None, 3.0, 1.0, 0.3)
BINS, MIN_CELL, DELTA = 10, 10, 1e-6
REAL = ("default_credit", "bank_marketing", "adult")
ROWS = (1_000, 10_000, 100_000, 1_000_000)
Scores = dict[str, dict[str, float]]  # by method and column
Counted = dict[str, tuple[np.ndarray, float]]  # by column: label counts of its bins, and the variance of their noise


class Data:
    """A table, its label as codes, and the two parties' halves of it; ``holder`` has the label."""

    def __init__(self, X: pd.DataFrame, y: np.ndarray, holder: list[str]):
        self.X, self.y, self.classes = X, y, int(y.max()) + 1
        other = [column for column in X if column not in set(holder)]
        self.sides = {"holder": as_party(X[holder]), "other": as_party(X[other])}
        self.planted: set[str] = set()

    def columns(self) -> int:
        return self.X.shape[1]


def as_party(X: pd.DataFrame) -> Party:
    return Party(Site("party", Table.read(X, id=None, name="party")), "")


def read_real(name: str, folder: Path) -> Data:
    X, y = datasets.load(name, folder)
    fed = fs.Federation.split(X, y, parties=2)
    return Data(X, read_labels(np.asarray(y), "all").codes, fed.column_names()[fed.active])


def generated(rows: int) -> Data:
    """Ten columns whose mean differs between the classes by 0.1 to 0.55 deviations, ninety of noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    shift = np.r_[0.1 + 0.05 * np.arange(10), np.zeros(90)]
    columns = [f"c{j}" for j in rng.permutation(100)]
    X = pd.DataFrame({name: rng.normal(size=rows) + shift[int(name[1:])] * y for name in columns})
    data = Data(X, y, columns[:50])
    data.planted = {f"c{j}" for j in range(10)}
    return data


# --- twins of the filters ---------------------------------------------------------------------------------------------


def counted(codes: np.ndarray, bins: int, data: Data) -> np.ndarray:
    flat = np.bincount(codes * data.classes + data.y, minlength=bins * data.classes)
    return flat.reshape(bins, data.classes)


def exact_tables(data: Data) -> Counted:
    found = {}
    for party in data.sides.values():
        for column in party.columns:
            codes, bins = merge_small(*party.binned(column, BINS, MIN_CELL), MIN_CELL)
            found[column] = counted(codes, bins, data).astype(float), 0.0
    return found


def noisy_tables(data: Data, epsilon: float) -> tuple[Counted, dict[str, tuple[np.ndarray, int]]]:
    """What the coordinator opens: the noise of both sides; and where the bins stand, with the least rows of one."""
    noise, found, stand = TableNoise(rho_of(epsilon, DELTA)), {}, {}
    holder = noise.holder_scale(data.columns())
    for name, party in data.sides.items():
        own = holder if name == "holder" else noise.party_scale(len(party.columns))
        variance = holder**2 + (0.0 if name == "holder" else own**2)
        least = noise.min_rows(own, MIN_CELL)
        for column, searched_one in zip(party.columns, searched(party, BINS, noise.edges_rho)):
            cells = counted(*searched_one.codes(BINS, least), data)
            added = drawn(cells.shape, holder) + (0 if name == "holder" else drawn(cells.shape, own))
            found[column] = cells + added, variance
            stand[column] = searched_one.stands(BINS, least), least
    return found, stand


def of_tables(data: Data, epsilon: float | None) -> Scores:
    """Information value and purity from the same tables."""
    tables = exact_tables(data) if epsilon is None else noisy_tables(data, epsilon)[0]
    totals = np.maximum(np.mean([table.sum(axis=0) for table, _ in tables.values()], axis=0), 1.0)
    values = {column: information_value(table, totals, variance) for column, (table, variance) in tables.items()}
    purity = {
        column: 1 - float(gini_impurities(ColumnTables(table, np.array([len(table)]), variance))[0])
        for column, (table, variance) in tables.items()
    }
    return {"information_value": values, "gini": purity}


def of_values(data: Data, epsilon: float | None) -> Scores:
    """The F statistic between the classes: of bins with noise, of values (categories by indicators) without."""
    if epsilon is None and data.planted:  # numbers alone: the twin of a run that would take minutes
        values = (data.X - data.X.mean()) / data.X.std(ddof=0)
        sums = values.to_numpy().T @ (data.y[:, None] == np.arange(data.classes - 1)).astype(float)
        return {"sffs": dict(zip(data.X, f_statistic(sums, np.bincount(data.y)).tolist()))}
    if epsilon is None:
        return {"sffs": fitted_scores(fs.SFFS(n_features=1), federation(data, "vertical"))}
    tables, stand = noisy_tables(data, epsilon)
    sizes = np.maximum(np.mean([table.sum(axis=0) for table, _ in tables.values()], axis=0), 1.0)
    sizes = sizes * (len(data.X) / sizes.sum())
    found = {}
    for column, (table, variance) in tables.items():
        at, least = stand[column]
        found[column] = float(f_of_tables(ColumnTables(table, np.array([len(table)]), variance), at, sizes, least)[0])
    return {"sffs": found}


class MuseTwin:
    """MUSE's search over tables with noise, in the clear: what ``select/muse/noisy_tables.py`` does under masks."""

    def __init__(self, data: Data, n_features: int, epsilon: float):
        self.data, self.rows = data, len(data.X)
        self.spending = muse_tables.Spending(rho_of(epsilon, DELTA), BINS, n_features)
        self.names: list[str] = []
        self.homes: list[str] = []
        self.bins: list[tuple[np.ndarray, int]] = []
        for name, party in data.sides.items():
            self.names += party.columns
            self.homes += [name] * len(party.columns)
            found = searched(party, BINS, muse_tables.EDGES_SHARE * self.spending.rho)
            codes, counts = coded(found, self.rows, BINS, self.spending.bin_rows(data.columns()))
            self.bins += [(codes[:, i], count) for i, count in enumerate(counts)]

    def _tables(self, step: int, home: str, chosen: tuple[np.ndarray, int], others: list[int]) -> list[Any]:
        """Of one column (or the label) of ``home`` with others, each with the noise of its two sides."""
        noise, found = self.spending.noise(step), []
        mine = noise.holder_scale(len(others))
        for i in others:
            theirs = 0.0 if self.homes[i] == home else noise.party_scale(sum(self.homes[j] != home for j in others))
            codes, count = self.bins[i]
            flat = np.bincount(codes * chosen[1] + chosen[0], minlength=count * chosen[1]).reshape(count, chosen[1])
            added = drawn(flat.shape, mine) + (drawn(flat.shape, theirs) if theirs else 0)
            found.append(muse_tables.Counted((flat + added).astype(float), mine**2 + theirs**2, self.rows))
        return found

    def chosen(self) -> list[str]:
        """The columns in the order of choice."""
        label = self._tables(0, "holder", (self.data.y, self.data.classes), list(range(len(self.names))))
        relevance = np.array([each.information() for each in label])
        entropies = np.array([each.entropies() for each in label])
        wanted = self.spending.n_features
        tells = entropies[:, 0], float(entropies[:, 1].mean())
        search = steps(wanted, "mrmr", relevance, *tells, beta=0.8, lam=0.5)
        step = itertools.count(1)

        def shared(asked: dict[str, tuple[int, np.ndarray]]) -> dict[str, np.ndarray]:
            best, others = asked[""]
            tables = self._tables(next(step), self.homes[best], self.bins[best], others.tolist())
            return {"": np.array([max(0.0, each.information()) for each in tables])}

        return [self.names[i] for i in in_step({"": search}, shared)[""].order]


# --- federated runs ---------------------------------------------------------------------------------------------------


def federation(data: Data, partition: str) -> fs.Federation:
    order = [column for party in data.sides.values() for column in party.columns]
    parties = 2 if partition == "vertical" else 4
    return fs.Federation.split(data.X[order], data.y, parties=parties, partition=partition)


def fitted_scores(selector: Any, fed: fs.Federation) -> dict[str, float]:
    scores = selector.fit(fed).scores_.groupby("feature")["score"].max()
    return {str(column): float(score) for column, score in scores.items()}


def of_muse(data: Data, epsilon: float | None) -> Scores:
    """MUSE keeps what it chooses: chosen columns score 1, others 0."""
    if epsilon is None:
        fitted = fs.Muse(n_features=_size(data), n_bins=BINS).fit(federation(data, "vertical"))
        chosen = {column for columns in fitted.selected_.values() for column in columns}
    else:
        chosen = set(MuseTwin(data, _size(data), epsilon).chosen())
    return {"muse": {column: float(column in chosen) for column in data.X}}


def of_election(data: Data, epsilon: float | None) -> Scores:
    """Votes (and, without noise, scores) of four parties with a quarter of the rows each."""
    selector = fs.FeatureElection(epsilon=epsilon, freedom_degree=0.5)
    return {"feature_election": fitted_scores(selector, federation(data, "horizontal"))}


METHODS: dict[str, Callable[[Data, float | None], Scores]] = {
    "tables": of_tables, "sffs": of_values, "muse": of_muse, "feature_election": of_election,
}  # fmt: skip


def _size(data: Data) -> int:
    return len(data.planted) or 5


def best_of(values: dict[str, float], count: int) -> set[str]:
    return set(sorted(values, key=values.__getitem__)[-count:])


def measure(
    method: str, data: Data, epsilons: Iterable[float | None], draws: int
) -> Iterable[tuple[str, float | None, list[int], float]]:
    """By score and epsilon, hits of each draw and what chance gives; one draw without noise, which is exact."""
    count = _size(data)
    exact = {} if data.planted else METHODS[method](data, None)
    for epsilon in epsilons:
        hits: dict[str, list[int]] = {}
        for _ in range(1 if epsilon is None else draws):
            for name, values in METHODS[method](data, epsilon).items():
                best = data.planted or best_of(exact[name], count)
                hits.setdefault(name, []).append(len(best & best_of(values, count)))
                chance = round(count**2 / len(values), 2)
        for name, each in hits.items():
            yield name, epsilon, each, chance


# --- the page ---------------------------------------------------------------------------------------------------------


def render(rows: list[dict[str, Any]]) -> str:
    """A method and data set a line."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        cell = cells.setdefault((row["method"], row["data"]), {**row, "draws": {}, "means": {}, "commits": []})
        cell["commits"] += [] if row["commit"] in cell["commits"] else [row["commit"]]
        if "hits" in row:
            cell["draws"].setdefault(row["epsilon"], []).extend(row["hits"])
        else:  # rows from before draws were kept; hits of the same cell take their place
            cell["means"][row["epsilon"]] = row["mean"], row["draws"]
    heads = ["method", "data", "rows", "of", "no noise", *(f"epsilon {e:g}" for e in EPSILONS if e), "chance", "draws"]
    heads.append("commits")
    lines = [
        "# Selection with epsilon",
        "",
        "`python benchmarks/epsilon.py --data DIR`: of the best columns (real sets: the five that the method finds",
        "best without noise; generated: the ten that are related to the label) how many are among as many that it",
        "finds best with noise; mean over so many draws at each epsilon. Two parties with half of the columns each,",
        "feature election four with a quarter of the rows; 10 bins, delta 1e-6. Chance: as many drawn at random.",
        "",
        "| " + " | ".join(heads) + " |",
        "|---|---|" + "--:|" * (len(heads) - 2),
    ]
    for (method, name), cell in sorted(cells.items(), key=lambda item: (item[0][0], item[1]["rows"])):
        found = {**cell["means"], **{e: (np.mean(hits), len(hits)) for e, hits in cell["draws"].items()}}
        means = [f"{found[e][0]:.2f}" if e in found else "-" for e in EPSILONS]
        numbers = sorted({count for epsilon, (_, count) in found.items() if epsilon})
        draws = "-".join(map(str, numbers[:1] + numbers[1:][-1:]))
        told = [method, name, f"{cell['rows']:,}", cell["of"], *means, f"{cell['chance']:.2f}", draws]
        told.append(" ".join(cell["commits"]))
        lines.append("| " + " | ".join(map(str, told)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get(datasets.FOLDER_VARIABLE, "data")))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--only", default=",".join([*REAL, *map(str, ROWS)]), help="data sets, numbers of rows")
    parser.add_argument("--epsilons", default=",".join(str(e or "none") for e in EPSILONS))
    parser.add_argument("--out", type=Path, default=RESULTS / "epsilon.jsonl")
    parser.add_argument("--render", action="store_true")
    given = parser.parse_args()
    epsilons = [None if each == "none" else float(each) for each in given.epsilons.split(",")]
    for name in [] if given.render else given.only.split(","):
        data = generated(int(name)) if name.isdigit() else read_real(name, given.data)
        of, label = _size(data), f"generated, 100 columns, {int(name):,}" if name.isdigit() else name
        told = {"data": label, "rows": len(data.X), "of": of}
        for method in given.methods.split(","):
            for scored, epsilon, hits, chance in measure(method, data, epsilons, given.draws):
                row = {"method": scored, **told, "chance": chance, "epsilon": epsilon, "hits": hits, "commit": commit()}
                print(row, flush=True)
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    if given.out == RESULTS / "epsilon.jsonl":
        rows = [json.loads(line) for line in given.out.read_text(encoding="utf-8").splitlines()]
        (RESULTS / "epsilon.md").write_text(render(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
