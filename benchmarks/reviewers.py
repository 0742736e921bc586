"""All methods on the same twenty data sets, judged alike; splits of columns; extra columns; FLARE's Feature Election.

    python benchmarks/reviewers.py --data DIR [--part table|rest|splits|extra|flare] [--methods A,B] [--sets A,B]
    python benchmarks/reviewers_page.py

Rows: at most 2,000 (a draw by the seed), 70 % for training, classes alike in both parts. Text becomes its place in the
alphabet, a gap the training median. Three parties hold columns, dealt at random; methods for parties that hold rows get
the same columns and three parts of the training rows. Every method keeps ``k`` columns: a third of them, at least 3 and
at most 20; one that chooses its own number is cut to its ``k`` highest scores.

Judge (``ceilings.py``): one centralised model on the chosen columns, on test rows that no method saw: boosted trees
and a linear model; AUC (one against the rest), R2 for amounts. ``random`` is the mean of five draws.

`Auto` measures by the kind of model that it is then judged by, on training rows alone. With ``any number`` it keeps as
many columns as it finds worth keeping; all others keep ``k``.

`top_gain` and `boruta` grow at ``protection="coordinator"`` here, not at their default (``all``), which takes
many times as long; cells of `top_gain` from before commit e08a9f8 have 30 trees, later ones 24. `Auto` runs its
candidates as they are by default.

A cell (data, seed, method) runs in a process of its own with LIMIT CPU seconds. One that is over is written down as
``over the limit``; after two such sets a method is not tried on sets with more cells (rows x columns x classes), which
are written down as ``not tried``. Nothing is dropped silently.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch  # noqa: F401  # once, not in every process
from ceilings import CEILINGS, judge
from cells import Cells
from sklearn.model_selection import train_test_split

import fedsift as fs
from fedsift.evaluate import datasets
from fedsift.methods import METHODS

RESULTS = Path(__file__).parent / "results" / "reviewers.jsonl"
REGRESSION = ("california_housing", "fate_student", "openml_586_fri_c3_1000_25")
#: Small tables first; three of amounts, four of more than two classes.
SETS = (
    "wine_quality_red", "california_housing", "fate_student", "openml_586_fri_c3_1000_25", "breast_cancer_wdbc",
    "sonar", "bank_marketing", "adult", "jm1", "default_credit", "phishing_websites", "spambase", "musk_v1",
    "fate_epsilon_5k", "colon", "dna", "madelon", "gina_agnostic", "usps", "cnae9",
)  # fmt: skip
ROWS, TRAIN, PARTIES, DRAWS = 2000, 0.7, 3, 5
LIMIT = 15  # CPU seconds of a cell
AUTO_LIMIT = 400  # of Auto, which runs several methods in folds
#: In the order of their cost. What is not here: METHODS that make features and drop none (they have no ``k``).
FEDERATED = (
    "information_value", "gini", "sffs", "muse", "federated_lasso", "top_gain", "knockoffs", "feature_election",
    "less_vfl", "group_lasso", "local_lasso", "vflfs", "stable", "boruta", "fed_halving", "stochastic_gate", "fedsdg",
    "pso_evffs",
)  # fmt: skip
MAKES_FEATURES = ("vertical_flafe", "hybrid_flafe", "fed_iife")
#: A recommendation for the model that it is judged by, with as many columns as all others or a number of its own.
AUTO: dict[str, dict[str, Any]] = {
    "auto, linear": {"model": "linear"}, "auto, boost": {"model": "boost"},
    "auto, linear, any number": {"model": "linear", "n_features": None},
    "auto, boost, any number": {"model": "boost", "n_features": None},
}  # fmt: skip
NULLS = ("all", "random")
#: Their default level, ``all``, grows the same trees but for rounding and noise in opened sums, far slower.
AT_COORDINATOR = ("top_gain", "boruta")


@dataclass
class Drawn:
    """A table as one seed draws it."""

    X: pd.DataFrame
    y: pd.Series
    test_X: pd.DataFrame
    test_y: pd.Series
    task: str
    seed: int
    fixed_k: int | None = None

    @property
    def k(self) -> int:
        return self.fixed_k or min(20, max(3, round(self.X.shape[1] / 3)))

    @property
    def cells(self) -> int:
        return self.X.size * (1 if self.task == "regression" else int(self.y.nunique()))

    def judged(self, columns: list[str]) -> dict[str, float]:
        parts = self.X[columns].to_numpy(float), self.test_X[columns].to_numpy(float)
        return judge(parts[0], self.y.to_numpy(), parts[1], self.test_y.to_numpy(), self.task)

    def federation(self, partition: str = "vertical", groups: list[list[str]] | None = None) -> fs.Federation:
        if groups is None:
            how = "random" if partition == "vertical" else "equal"
            return fs.Federation.split(
                self.X, self.y, parties=PARTIES, partition=partition, how=how, random_state=self.seed, task=self.task
            )
        tables = {f"party{i + 1}": self.X[group].copy() for i, group in enumerate(groups)}
        tables["party1"]["target of rows"] = self.y
        return fs.Federation.from_tables(tables, id=None, label=("party1", "target of rows"), task=self.task)


def draw(name: str, seed: int, data: str | None, *, whole: bool = False) -> Drawn:
    """The same training rows either way; test rows are those of the draw, or the ``whole`` rest of the table."""
    X, y = datasets.load(name, path=data)
    task = "regression" if name in REGRESSION else "classification"
    for column in X.columns:
        if not pd.api.types.is_numeric_dtype(X[column]):
            codes = X[column].astype("category").cat.codes.astype(float)
            X[column] = codes.where(codes >= 0)
    X = X.astype(float)
    X.columns = [str(column) for column in X.columns]
    more_X, more_y = X[:0], y[:0]
    if len(X) > ROWS:
        order = np.random.default_rng(seed).permutation(len(X))
        if whole:
            more_X, more_y = X.iloc[order[ROWS:]], y.iloc[order[ROWS:]]
        X, y = X.iloc[order[:ROWS]], y.iloc[order[:ROWS]]
    strata = y if task == "classification" else None
    if strata is not None and y.value_counts().min() < 4:
        common = y.isin(y.value_counts()[lambda counts: counts >= 4].index)
        X, y = X[common], y[common]
        y = pd.Series(np.unique(y, return_inverse=True)[1], index=y.index, name=y.name)
        strata = y
    X, test_X, y, test_y = train_test_split(X, y, train_size=TRAIN, stratify=strata, random_state=seed)
    parts = X, pd.concat([test_X, more_X]), y, pd.concat([test_y, more_y])
    X, test_X, y, test_y = (part.reset_index(drop=True) for part in parts)
    typical = X.median()
    return Drawn(X.fillna(typical), y, test_X.fillna(typical), test_y, task, seed)


# --- one cell --------------------------------------------------------------------------------------------------------


def best_of(fitted: Any, k: int | None) -> list[str]:
    """The kept columns, at most ``k``: those with the highest scores; parties with rows have the same columns."""
    kept = fitted.scores_[fitted.scores_["selected"]].sort_values("score", ascending=False, kind="stable")
    return list(dict.fromkeys(kept["feature"]))[:k]


def federated(drawn: Drawn, method: str, groups: list[list[str]] | None = None) -> dict[str, Any]:
    kind = METHODS[method.partition(",")[0]]
    partition = "vertical" if "vertical" in kind.partitions and method != "fed_halving" else "horizontal"
    given: dict[str, Any] = dict(AUTO.get(method, {}))
    if "n_features" in kind._get_param_names():
        given.setdefault("n_features", drawn.k)
    if method in AT_COORDINATOR:
        given["protection"] = "coordinator"
    if "open_tables" in kind._get_param_names():  # knockoffs of categories, as the two benches have them
        given["open_tables"] = True
    fed = drawn.federation(partition, groups)
    start = time.process_time()
    fitted = kind(**given).fit(fed)
    spent, columns = (
        time.process_time() - start,
        best_of(fitted, None if given.get("n_features", 0) is None else drawn.k),
    )
    told = {"kept": len(columns), "fit_cpu_s": round(spent, 2), "mb": round(fitted.ledger_.bytes() / 1e6, 2)}
    more = {"chose": fitted.details_["chose"], "why": fitted.why_} if method in AUTO else {}
    return {**told, **more, **drawn.judged(columns), "columns": columns}


def ceiling(drawn: Drawn, method: str) -> dict[str, Any]:
    start = time.process_time()
    places = CEILINGS[method](drawn.X.to_numpy(float), drawn.y.to_numpy(), drawn.task, drawn.k)
    columns = [drawn.X.columns[place] for place in places]
    return {"kept": len(columns), "fit_cpu_s": round(time.process_time() - start, 2), **drawn.judged(columns),
            "columns": columns}  # fmt: skip


def null(drawn: Drawn, method: str) -> dict[str, Any]:
    if method == "all":
        return {"kept": drawn.X.shape[1], **drawn.judged(list(drawn.X.columns))}
    generator = np.random.default_rng(drawn.seed)
    draws = [drawn.judged(list(generator.choice(drawn.X.columns, drawn.k, replace=False))) for _ in range(DRAWS)]
    return {"kept": drawn.k, **pd.DataFrame(draws).mean().round(4).to_dict()}


def measured(drawn: Drawn, method: str) -> dict[str, Any]:
    if method == "size":
        return {"rows": len(drawn.X), "width": drawn.X.shape[1], "k": drawn.k, "cells": drawn.cells}
    if method in NULLS:
        return null(drawn, method)
    return ceiling(drawn, method) if method in CEILINGS else federated(drawn, method)


def limited(work: Callable[[], dict[str, Any]], seconds: int) -> dict[str, Any]:
    """In a process of its own, which the system ends after so many CPU seconds."""
    here, there = mp.Pipe(duplex=False)

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        try:
            there.send(work())
        except Exception as error:
            there.send({"not_run": f"{type(error).__name__}: {str(error)[:200]}"})

    process = mp.get_context("fork").Process(target=run)
    process.start()
    there.close()
    try:
        found: dict[str, Any] = here.recv()
    except EOFError:
        found = {"not_run": "over the limit", "limit_cpu_s": seconds}
    process.join()
    return found


# --- the parts -------------------------------------------------------------------------------------------------------


def run_table(
    cells: Cells, data: str | None, methods: list[str], seeds: list[int], sets: list[str], most: int = LIMIT
) -> None:
    """Tables are read in the processes of the cells alone: threads of a reader do not survive a fork."""

    def once(name: str, seed: int, method: str) -> Callable[[], dict[str, Any]]:
        limit = AUTO_LIMIT if method in AUTO else most
        return lambda: limited(lambda: measured(draw(name, seed, data), method), limit)

    sizes = {name: once(name, 0, "size")()["cells"] for name in sets}
    for seed in seeds:
        for method in methods:
            over: list[int] = []
            for name in sets:
                hopeless = sum(sizes[name] >= size for size in over) >= 2
                work = (lambda: {"not_run": "not tried"}) if hopeless else once(name, seed, method)
                row = cells.run(work, part="table", data=name, seed=seed, method=method)
                if row.get("not_run") == "over the limit":
                    over.append(sizes[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get(datasets.FOLDER_VARIABLE))
    parser.add_argument("--part", default="table")
    parser.add_argument("--methods", help="names with commas between, a comma within a name as ';'; all of the part")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--sets", help="names with commas between; all of the part")
    parser.add_argument("--limit", type=int, default=LIMIT, help="CPU seconds of a cell that is not Auto's")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    methods = None if given.methods is None else [name.replace(";", ",") for name in given.methods.split(",")]
    sets = None if given.sets is None else given.sets.split(",")
    cells = Cells(given.out)
    if given.part == "table":
        seeds = [int(seed) for seed in given.seeds.split(",")]
        every = [*NULLS, *CEILINGS, *FEDERATED, *AUTO]
        run_table(cells, given.data, methods or every, seeds, sets or list(SETS), given.limit)
    else:
        from reviewers_parts import PARTS

        PARTS[given.part](cells, given.data, methods, sets)


if __name__ == "__main__":
    main()
