"""MUSE: the paper's Tables III to VII and Figure 8, and the speed of federated mutual information.

    python benchmarks/muse.py [--quick] [--parts accuracy,counts,speed,growth] [--sets colon,yale32] [--seeds 5]
                              [--data DIR] [--out FILE]

Accuracy uses the plaintext twin of each method in the folds (the tests prove the federated result identical, and the
first fold of every seed is checked against a real federated run here, except on USPS, where matching the ids of twenty
parties takes a minute): 20 parties, log-normal column counts, half of
them with copies of others' columns, 50 features, 15 bins, 10 folds, linear SVM (C = 1) and 3-NN.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from cells import Cells, Sections
from muse_plain import BINS, FEATURES, methods, plain_muse
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fedsift.core import splits
from fedsift.core.federation import Federation
from fedsift.core.party import Party
from fedsift.evaluate import datasets
from fedsift.select.muse.contingency import Entropies, column_codes, number_codes, pair_information
from fedsift.select.muse.mutual_information import BinMatching, Pairs
from fedsift.select.muse.rank_correlation import redundancy, unit_ranks
from fedsift.select.muse.selector import Muse

PARTIES, FOLDS = 20, 10


# --- accuracy ---------------------------------------------------------------------------------------------------------


def models():
    return {
        "SVM": make_pipeline(StandardScaler(), SVC(kernel="linear", C=1.0)),
        "3-NN": make_pipeline(StandardScaler(), KNeighborsClassifier(3)),
    }


def first_redundancy(X, chosen):
    ranks = unit_ranks(np.ascontiguousarray(X[:, chosen[:10]].T))
    matrix = ranks @ ranks.T
    np.fill_diagonal(matrix, 1.0)
    return redundancy(matrix)


def accuracy(name, seed, folder, check, jobs):
    """Means over the folds by method and setting: SVM, 3-NN, redundancy; so many folds side by side."""
    frame, target = datasets.load(name, folder)
    values, y = frame.to_numpy(dtype=float), target.to_numpy(dtype=int)
    groups = splits.column_groups(values.shape[1], PARTIES, how="lognormal", random_state=seed)
    groups = splits.duplicate_columns(groups, random_state=seed)
    positions = np.concatenate(groups)
    X = values[:, positions]
    original = np.unique(positions, return_index=True)[1]
    outside = methods(X, y, groups, original, np.random.default_rng(seed))
    # NCI9's largest class has 9 rows: there folds cannot be stratified.
    kind = StratifiedKFold if np.bincount(y).max() >= FOLDS else KFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small classes are not in every fold
        parts = list(kind(FOLDS, shuffle=True, random_state=seed).split(X, y))
    folds = [
        Fold(number, train, test, X, y, groups, original, np.random.default_rng((seed, number)), outside)
        for number, (train, test) in enumerate(parts)
    ]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(Fold.rows, folds) if jobs > 1 else map(Fold.rows, folds))
    if check:
        _check_federated(frame, y, seed, folds[0].train, positions, found[0][1])
    rows = [row for each, _ in found for row in each]
    means = pd.DataFrame(rows).groupby(["method", "setting"], sort=False).mean().round(3)
    return {"rows": means.reset_index().to_dict("records")}


@dataclass
class Fold:
    """One fold of one split, and what was selected from all rows."""

    number: int
    train: np.ndarray
    test: np.ndarray
    X: np.ndarray
    y: np.ndarray
    groups: list
    original: np.ndarray
    rng: np.random.Generator
    outside: dict

    def rows(self):
        """Scores of every method inside and outside the fold, and the columns of MUSE inside it."""
        X, y, train, test = self.X, self.y, self.train, self.test
        inside = methods(X[train], y[train], self.groups, self.original, self.rng)
        rows, known = [], {}  # methods often choose the same columns: these are scored once
        for setting, chosen in (("inside", inside), ("outside", self.outside)):
            for method, columns in chosen.items():
                key = tuple(sorted(columns))
                if key not in known:
                    known[key] = {
                        model_name: 100 * model.fit(X[train][:, columns], y[train]).score(X[test][:, columns], y[test])
                        for model_name, model in models().items()
                    }
                found = {**known[key], "redundancy": first_redundancy(X[train], columns)}
                rows.append({"method": method, "setting": setting, **found})
        return rows, list(inside["MUSE (mrmr)"])


def _check_federated(frame, y, seed, train, positions, expected):
    fed = Federation.split(frame, y, parties=PARTIES, how="lognormal", duplicates=True, random_state=seed)
    fitted = Muse(n_features=FEATURES, n_bins=BINS).fit(fed.view(rows=train))
    offsets = dict(zip(fed.parties, np.cumsum([0, *fed.n_columns.values()])))
    places = {(p, c): offsets[p] + i for p, cs in fed.column_names().items() for i, c in enumerate(cs)}
    found = [places[p, c] for p, c in fitted.order_[["party", "feature"]].itertuples(index=False)]
    if found != list(expected):
        raise SystemExit(f"the federated run chose other columns than its plaintext twin (seed {seed})")


def accuracy_part(names, seeds, folder, cells, jobs):
    for name in names:
        for seed in range(seeds):
            cells.run(
                lambda n=name, s=seed: accuracy(n, s, folder, n != "usps", jobs), part="accuracy", data=name, seed=seed
            )
    rows = [
        {"data": c["data"], "seed": c["seed"], "bins": c.get("bins", ""), **r}
        for c in cells.rows
        if c["part"] == "accuracy"
        for r in c["rows"]
    ]
    return [*accuracy_tables(pd.DataFrame(rows)), f"\n{cells.made('accuracy')}"]


def accuracy_tables(frame):
    lines = [
        f"{PARTIES} parties, log-normal column counts (mu 4, sigma 2), half of the parties with copies worth half of "
        f"their columns, {FEATURES} features, {BINS} equal-frequency bins, {FOLDS} stratified folds (NCI9: "
        "plain ones, its classes are too small), columns standardised on training rows for both models. *Inside*: "
        "selection, bins and scaling see the training rows of a fold only. *Outside* (the paper's protocol): selection "
        "sees all rows, so test rows steer it. ± is the deviation over seeds. Departures: lasso is solved at one party "
        "(same objective, alpha 0.01, at most 100 steps); information value without merging of small bins.",
    ]
    for name in dict.fromkeys(frame["data"]):
        part = frame[frame["data"] == name]
        old = ", old bins" if (part["bins"] == "old").any() else ""
        by_seed = part.groupby(["method", "setting", "seed"], sort=False)[["SVM", "3-NN", "redundancy"]].mean()
        mean = by_seed.groupby(["method", "setting"], sort=False).mean().unstack("setting")
        spread = by_seed.groupby(["method", "setting"], sort=False).std().unstack("setting").fillna(0.0)
        old = ", old bins" if (part["bins"] == "old").any() else ""
        lines += [
            f"\n### {name}, {part['seed'].nunique()} split seeds{old}\n",
            "| method | SVM inside | 3-NN inside | SVM outside | 3-NN outside | redundancy of first 10 (inside) |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        for method in mean.index:
            m, s = mean.loc[method], spread.loc[method]
            few = method in ("all original columns (OFS)", "all columns with copies (AFP)")
            cells = [
                f"{m['SVM', 'inside']:.1f} ± {s['SVM', 'inside']:.1f}",
                f"{m['3-NN', 'inside']:.1f} ± {s['3-NN', 'inside']:.1f}",
                f"{m['SVM', 'outside']:.1f}",
                f"{m['3-NN', 'outside']:.1f}",
                "-" if few else f"{m['redundancy', 'inside']:.2f}",
            ]
            lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


# --- number of computations (Figure 8) --------------------------------------------------------------------------------


def counts(folder):
    frame, _ = datasets.load("nci9", folder)
    lines = [
        "| parties | features | all pairs | after preselection | made here (at most) | saved by preselection |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for parties, wanted in [(5, 50), (10, 50), (20, 50), (40, 50), (20, 10), (20, 20), (20, 30), (20, 40)]:
        found = []
        for seed in range(5):
            groups = splits.column_groups(frame.shape[1], parties, how="lognormal", random_state=seed)
            sizes = np.array([len(g) for g in splits.duplicate_columns(groups, random_state=seed)])
            kept = np.minimum(sizes, wanted)
            label = sizes[1:].sum()

            def pairs(s):
                return (s.sum() ** 2 - (s**2).sum()) // 2

            lazy = label + min(pairs(kept), (wanted - 1) * (kept.sum() - kept[kept > 0].min()))
            found.append((label + pairs(sizes), label + pairs(kept), lazy))
        everything, preselected, lazy = np.mean(found, axis=0)
        lines.append(
            f"| {parties} | {wanted} | {everything:,.0f} | {preselected:,.0f} | {lazy:,.0f} | "
            f"{everything / preselected:.0f}x |"
        )
    return lines


# --- speed ------------------------------------------------------------------------------------------------------------


def clocks():
    return np.array([time.perf_counter(), time.process_time()])


def plain_pairs(fed, wanted):
    """The same tables counted over the pooled codes: binning, counting and mutual information in the clear."""
    sites = fed._link.transport.sites
    codes = {name: column_codes(Party(sites[name], fed._view), BINS, "quantile") for name in fed.parties}
    counting = Entropies(fed.n_rows)
    own = Party(sites[fed.active], fed._view).labels().codes.astype(np.uint8)[None]

    def side(name, columns):
        return np.repeat(own, len(columns), axis=0) if len(columns) and columns[0] < 0 else codes[name][columns]

    return [pair_information(side(p.left, p.left_columns), side(p.right, p.right_columns), counting)[0] for p in wanted]


def all_pairs(fed, limit):
    """Label pairs, and pairs of the first ``limit`` columns of every two parties."""
    columns = {name: np.arange(count) for name, count in fed.n_columns.items()}
    wanted = [Pairs(n, columns[n], fed.active, np.full(len(columns[n]), -1)) for n in fed.passive]
    for i, a in enumerate(fed.parties):
        for b in fed.parties[i + 1 :]:
            left, right = np.meshgrid(columns[a][:limit], columns[b][:limit], indexing="ij")
            wanted.append(Pairs(a, left.ravel(), b, right.ravel()))
    return wanted


_federations: dict = {}


def speed_of(name, folder, how, duplicates, parties=PARTIES, limit=FEATURES, rows=None, columns=None):
    frame, target = datasets.load(name, folder)
    if columns:
        frame = frame.iloc[:, :columns]
    fed = Federation.split(frame, target, parties=parties, how=how, duplicates=duplicates, random_state=0)
    _federations[name] = fed
    if rows:
        order = np.random.default_rng(0).permutation(len(frame))
        fed = fed.view(rows=np.sort(order[:rows]))
    wanted = all_pairs(fed, limit)
    with fed.session() as run:
        start = clocks()
        matching = BinMatching(run, keys="two", min_cell=None)
        setup = clocks() - start
        start = clocks()
        matching.prepare(n_bins=BINS, binning="quantile")
        found = matching.information(wanted)
        matched = clocks() - start
    start = clocks()
    expected = plain_pairs(fed, wanted)
    plain = clocks() - start
    worst = max((np.abs(a - b).max(initial=0.0) for a, b in zip(found, expected)), default=0.0)
    if worst > 1e-9:
        raise SystemExit(f"federated and plain mutual information differ by {worst}")
    return {
        "rows": fed.n_rows,
        "columns": sum(fed.n_columns.values()),
        "parties": parties,
        "pairs": sum(map(len, wanted)),
        "setup": setup,
        "matched": matched,
        "plain": plain,
        "bytes": fed.ledger.bytes(),
    }


HEAD = [
    "| data | rows | columns | parties | pairs of columns | OPRF, once (s, cpu) | tables (s, cpu) | plain (s, cpu) | "
    "ratio, wall (cpu) | MB |",
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
]


def speed_row(name, r):
    ratio = r["matched"] / np.maximum(r["plain"], 1e-9)
    times = [f"{r[key][0]:.2f}, {r[key][1]:.2f}" for key in ("setup", "matched", "plain")]
    return (
        f"| {name} | {r['rows']:,} | {r['columns']:,} | {r['parties']} | {r['pairs']:,} | {' | '.join(times)} | "
        f"{ratio[0]:.1f}x ({ratio[1]:.1f}x) | {r['bytes'] / 1e6:.0f} |"
    )


def speed(folder, quick):
    lines = ["### All pairs up front (every table that the paper would count)\n", *HEAD]
    settings = [("nci9", "equal", False), ("nci9", "lognormal", True)]
    for name, how, duplicates in settings + ([] if quick else [("usps", "lognormal", True)]):
        lines.append(speed_row(f"{name}, {how}", speed_of(name, folder, how, duplicates)))
        print(f"  speed {name} {how} done", file=sys.stderr, flush=True)
    lines += [
        "\n### Whole fits (tables as the search needs them, mRMR, 50 features, 20 parties)\n",
        "| data | fit, row secrets known (s, cpu) | plain selection (s, cpu) | rounds | MB | tables counted |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in ["nci9"] if quick else ["nci9", "usps"]:
        lines.append(_fit_row(name, folder))
        print(f"  fit {name} done", file=sys.stderr, flush=True)
    lines.append(
        f"\nPeak memory of the whole process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB."
    )
    return lines


def _fit_row(name, folder):
    frame, target = datasets.load(name, folder)
    fed = _federations[name]
    start = clocks()
    fitted = Muse(n_features=FEATURES, n_bins=BINS).fit(fed)
    times = [clocks() - start]
    groups = splits.duplicate_columns(
        splits.column_groups(frame.shape[1], PARTIES, how="lognormal", random_state=0), random_state=0
    )
    start = clocks()
    X = np.ascontiguousarray(frame.to_numpy(dtype=float)[:, np.concatenate(groups)].T)
    y = np.unique(target, return_inverse=True)[1].astype(np.uint8)
    plain_muse(number_codes(X, BINS, "quantile"), y, groups, FEATURES, "mrmr", True)
    times.append(clocks() - start)
    cells = " | ".join(f"{wall:.1f}, {cpu:.1f}" for wall, cpu in times)
    made = fitted.details_["federated_computations"]["made"]
    return f"| {name} | {cells} | {fitted.ledger_.rounds()} | {fitted.ledger_.bytes() / 1e6:.0f} | {made:,} |"


def growth(folder):
    lines = list(HEAD)
    series = {"rows": [], "columns": [], "parties": []}
    for rows in (500, 1000, 2000, 4000):
        found = speed_of("usps", folder, "equal", False, parties=4, limit=40, rows=rows)
        series["rows"].append((rows, found["matched"][1]))
        lines.append(speed_row("rows", found))
    for columns in (64, 128, 256):
        found = speed_of("usps", folder, "equal", False, parties=4, limit=1000, rows=1000, columns=columns)
        series["columns"].append((columns, found["matched"][1]))
        lines.append(speed_row("columns", found))
    for parties in (2, 4, 8, 16, 32):
        found = speed_of("usps", folder, "equal", False, parties=parties, limit=10, rows=1000)
        series["parties"].append((parties, found["matched"][1]))
        lines.append(speed_row("parties", found))
    for name, points in series.items():
        lines += [
            "\n```mermaid\nxychart-beta",
            f'    title "CPU seconds of all tables by {name}"',
            f"    x-axis {[x for x, _ in points]}",
            f'    y-axis "seconds" 0 --> {1.1 * max(y for _, y in points):.3f}',
            f"    line {[round(float(y), 3) for _, y in points]}\n```",
        ]
    return lines


PARTS = {
    "accuracy": "Accuracy (Tables III, IV, VI, VII) and redundancy (Table V)",
    "counts": "Federated computations on NCI9 (Figure 8), mean of 5 splits",
    "growth": "Growth (USPS; columns in equal blocks)",
    "speed": "Speed",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="Colon, one seed, and the small speed runs")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--sets", default="colon,yale32,tox_171,nci9,pixraw10p,relathe,usps")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="folds side by side")
    parser.add_argument("--data", default=os.environ.get(datasets.FOLDER_VARIABLE))
    parser.add_argument("--out", default=str(Path(__file__).parent / "results" / "muse.md"))
    options = parser.parse_args()
    names = ["colon"] if options.quick else options.sets.split(",")
    seeds = 1 if options.quick else options.seeds
    out = Path(options.out)
    cells = Cells(out.with_suffix(".jsonl"))
    page = Sections(out, "# MUSE", list(PARTS.values()))
    run = {
        "accuracy": lambda: accuracy_part(names, seeds, options.data, cells, options.jobs),
        "counts": lambda: counts(options.data),
        "growth": lambda: growth(options.data),
        "speed": lambda: speed(options.data, options.quick),
    }
    for part in options.parts.split(","):
        started, load = time.perf_counter(), os.getloadavg()[0]
        chosen = f" --sets {','.join(names)} --seeds {seeds}" if part == "accuracy" else ""
        command = f"python benchmarks/muse.py --parts {part}{chosen}"
        page.write(PARTS[part], "\n".join(run[part]()), command, started, load)


if __name__ == "__main__":
    main()
