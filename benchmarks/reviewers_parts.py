"""Smaller parts of the benchmark for reviewers: more test rows, splits and extra columns, FLARE's Feature Election.

``rest``: what the table's cells have kept, judged once more by models of the same training rows on *all* other rows of
the set, where it has more than 2,000: 600 test rows cannot tell methods apart that are 0.01 from each other.

``splits``: who holds which columns, after VertiBench (Wu et al. 2024). ``importance``: parties' shares of the total
importance (gain of boosted trees) are drawn from a Dirichlet distribution with 0.1, so that one party has nearly all.
``within``: columns that go together are at one party; ``across``: they are spread over all.

``extra``: as many columns again as the table has, after Cherepanova et al. (2023): ``random`` (normal noise),
``corrupted`` (a column plus normal noise of its own deviation), ``second-order`` (the product of two standardised
columns).
Then ``k`` is the number of real columns, at most 20.

``flare``: Madelon with rows at three parties, the Feature Election of NVIDIA FLARE (its local simulation) beside ours.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from ceilings import boosting
from cells import Cells
from reviewers import AUTO, AUTO_LIMIT, LIMIT, NULLS, PARTIES, Drawn, draw, federated, limited, measured, null
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

import fedsift as fs

REST_SETS = (
    "california_housing", "bank_marketing", "adult", "jm1", "default_credit", "phishing_websites", "spambase",
    "fate_epsilon_5k", "dna", "madelon", "gina_agnostic", "usps",
)  # fmt: skip
SPLIT_SETS = ("breast_cancer_wdbc", "spambase", "musk_v1")
SPLITS = ("random", "importance", "within", "across")
SPLIT_METHODS = ("gini", "muse", "top_gain", "less_vfl", "local_lasso")
EXTRA_SETS = ("california_housing", "breast_cancer_wdbc", "phishing_websites", "spambase")
EXTRA = ("random", "corrupted", "second-order")
EXTRA_METHODS = (
    "random", "all", "gini", "sffs", "muse", "federated_lasso", "top_gain", "less_vfl", "pooled L1",
    "pooled RFE, boosting", "pooled mRMR", "auto, boost",
)  # fmt: skip
Names = list[str] | None  # what the command asks for; all where it does not
ELECTIONS = {"lasso": "lasso", "random_forest": "forest", "mutual_info": "mutual_information"}


# --- more test rows --------------------------------------------------------------------------------------------------


def run_rest(cells: Cells, data: str | None, methods: Names = None, sets: Names = None) -> None:
    """A federated cell that has changed since is measured again: its columns stand in the row."""
    for row in [each for each in cells.rows if each["part"] == "table" and each["data"] in REST_SETS]:
        name, seed, method, columns = row["data"], row["seed"], row["method"], row.get("columns")
        wanted = method in (methods or [method]) and name in (sets or [name])
        if not wanted or (columns is None and method not in NULLS):
            continue

        def work(name: str = name, seed: int = seed, method: str = method, columns: Any = columns) -> dict[str, Any]:
            drawn = draw(name, seed, data, whole=True)
            judged = null(drawn, method) if columns is None else {"kept": len(columns), **drawn.judged(columns)}
            return {"test_rows": len(drawn.test_X), **judged}

        key = {} if columns is None else {"columns": columns}
        cells.run(lambda work=work: limited(work, 4 * LIMIT), part="rest", data=name, seed=seed, method=method, **key)


# --- splits of columns -----------------------------------------------------------------------------------------------


def groups_of(drawn: Drawn, how: str) -> list[list[str]]:
    """The columns of each party."""
    generator, columns = np.random.default_rng(drawn.seed), list(drawn.X.columns)
    if how == "random":
        return [list(part) for part in np.array_split(generator.permutation(columns), PARTIES)]
    if how == "importance":
        return by_importance(drawn, generator)
    related = np.nan_to_num(np.abs(np.corrcoef(drawn.X.to_numpy(), rowvar=False)))
    np.fill_diagonal(related, 1.0)
    distance = squareform(1 - np.clip((related + related.T) / 2, 0, 1), checks=False)
    tree = linkage(distance, "average")
    order = [columns[i] for i in np.argsort(fcluster(tree, max(2, len(columns) // 3), "maxclust"), kind="stable")]
    if how == "across":
        return [order[place::PARTIES] for place in range(PARTIES)]
    return [list(part) for part in np.array_split(np.array(order, dtype=object), PARTIES)]


def by_importance(drawn: Drawn, generator: np.random.Generator, alpha: float = 0.1) -> list[list[str]]:
    """Columns go, in any order, to the party that lacks most of its drawn share; each has one column at least."""
    model = boosting(drawn.task).fit(drawn.X.to_numpy(), drawn.y.to_numpy())
    weight = dict(zip(drawn.X.columns, model.feature_importances_ + 1e-6))
    share = generator.dirichlet([alpha] * PARTIES) * sum(weight.values())
    order = list(generator.permutation(drawn.X.columns))
    groups = [[order.pop()] for _ in range(PARTIES)]
    for column in order:
        lacking = [wanted - sum(weight[c] for c in group) for wanted, group in zip(share, groups)]
        groups[int(np.argmax(lacking))].append(column)
    return groups


def run_splits(cells: Cells, data: str | None, methods: Names = None, sets: Names = None) -> None:
    for name in sets or SPLIT_SETS:
        for method in methods or SPLIT_METHODS:
            for how in SPLITS:

                def work(name: str = name, method: str = method, how: str = how) -> dict[str, Any]:
                    drawn = draw(name, 0, data)
                    groups = groups_of(drawn, how)
                    sizes = [len(group) for group in groups]
                    return {"sizes": sizes, **federated(drawn, method, groups)}

                cells.run(lambda work=work: limited(work, LIMIT), part="splits", data=name, seed=0, split=how,
                          method=method)  # fmt: skip


# --- extra columns ---------------------------------------------------------------------------------------------------


def with_extra(drawn: Drawn, kind: str) -> Drawn:
    """The same rows with as many columns again, made of training rows' means and deviations."""
    generator = np.random.default_rng(1000 + drawn.seed)
    mean, spread = drawn.X.mean(), drawn.X.std().replace(0, 1.0)
    columns = list(drawn.X.columns)
    pairs = [generator.choice(len(columns), 2, replace=len(columns) < 2) for _ in columns]

    def extra(X: pd.DataFrame) -> pd.DataFrame:
        Z = ((X - mean) / spread).to_numpy()
        if kind == "random":
            made = generator.normal(size=Z.shape)
        elif kind == "corrupted":
            made = Z + generator.normal(size=Z.shape)
        else:
            made = np.column_stack([Z[:, a] * Z[:, b] for a, b in pairs])
        return X.join(pd.DataFrame(made, columns=[f"extra_{i}" for i in range(len(columns))]))

    return replace(drawn, X=extra(drawn.X), test_X=extra(drawn.test_X), fixed_k=min(20, len(columns)))


def run_extra(cells: Cells, data: str | None, methods: Names = None, sets: Names = None) -> None:
    for method in methods or EXTRA_METHODS:
        for name in sets or EXTRA_SETS:
            for kind in EXTRA:

                def work(name: str = name, method: str = method, kind: str = kind) -> dict[str, Any]:
                    drawn = with_extra(draw(name, 0, data), kind)
                    found = measured(drawn, method)
                    kept = found.get("columns", [])
                    real = sum(not column.startswith("extra_") for column in kept)
                    return {"k": drawn.k, **found, "real": real / len(kept) if kept else None}

                limit = AUTO_LIMIT if method in AUTO else 2 * LIMIT
                cells.run(lambda work=work, limit=limit: limited(work, limit), part="extra", data=name, seed=0,
                          split=kind, method=method)  # fmt: skip


# --- FLARE -----------------------------------------------------------------------------------------------------------


def true_columns(X: pd.DataFrame) -> set[str]:
    """Madelon's: those that go along with another column."""
    related = np.abs(np.corrcoef(X.to_numpy(), rowvar=False))
    np.fill_diagonal(related, 0.0)
    return {column for column, most in zip(X.columns, related.max(axis=0)) if most > 0.2}


def flare_columns(drawn: Drawn, method: str) -> list[str]:
    """The columns that NVIDIA's own simulation elects on three parts of the training rows."""
    from nvflare.app_opt.feature_election import FeatureElection

    logging.disable(logging.WARNING)
    election = FeatureElection(freedom_degree=0.5, fs_method=method, wait_time_after_min_received=0)
    fed_rows = np.array_split(np.arange(len(drawn.X)), PARTIES)
    parts = [(drawn.X.iloc[rows], drawn.y.iloc[rows]) for rows in fed_rows]
    found = election.simulate_election(parts, feature_names=list(drawn.X.columns))
    return list(np.array(drawn.X.columns)[np.asarray(election.global_mask, dtype=bool)]) if found else []


def run_flare(cells: Cells, data: str | None, methods: Names = None, sets: Names = None) -> None:
    for theirs, ours in ELECTIONS.items():
        for who in ("flare", "fedsift"):
            for seed in range(3):

                def work(theirs: str = theirs, ours: str = ours, who: str = who, seed: int = seed) -> dict[str, Any]:
                    drawn, start = draw("madelon", seed, data), time.process_time()
                    if who == "flare":
                        columns = flare_columns(drawn, theirs)
                    else:
                        fitted = fs.FeatureElection(method=ours, freedom_degree=0.5).fit(drawn.federation("horizontal"))
                        columns = list(next(iter(fitted.selected_.values())))
                    spent, true = time.process_time() - start, true_columns(drawn.X)
                    return {"kept": len(columns), "true": len(true & set(columns)), "of_true": len(true),
                            "fit_cpu_s": round(spent, 2), **drawn.judged(columns)}  # fmt: skip

                cells.run(lambda work=work: limited(work, 4 * LIMIT), part="flare", data="madelon", seed=seed,
                          method=f"{who}: {ours}")  # fmt: skip


PARTS: dict[str, Callable[[Cells, str | None, Names, Names], None]] = {
    "rest": run_rest,
    "splits": run_splits,
    "extra": run_extra,
    "flare": run_flare,
}
