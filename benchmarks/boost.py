"""SecureBoost: speed and bytes beside the xgboost library, growth with size, and accuracy beside the library.

    python benchmarks/boost.py [--parts speed growth accuracy] [--sets NAME ...] [--quick] [--data DIR] [--out FILE]

Parties share this machine and its cores; CPU seconds are those of the whole process (all parties and the coordinator).
Bytes are counted twice where a message is relayed by the coordinator (label holder -> coordinator -> party); "once"
counts what the parties send. Settings: 2048-bit keys, depth 5, 32 bins, 80/20 split, seeds as stated. Peers were
measured on the same two cores, idle (see docs/secureboost.md); this run's load is in its header: compare CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path

import numpy as np
import pandas as pd
import xgboost
from sklearn.metrics import r2_score, roc_auc_score

import fedsift as fs
from fedsift.datasets import load
from fedsift.protocols.boost import SecureBoostClassifier, SecureBoostRegressor
from fedsift.protocols.histogram import public_key

OPEN = {"min_cell": 1, "min_leaf": 1, "first_tree_local": False}
ACCURACY = ("breast_cancer_wdbc", "spambase", "jm1", "airfoil_self_noise", "openml_586_fri_c3_1000_25")


def federation(X, y, parties: int, seed: int, task: str = "auto"):
    """Training and test views, and the true labels of the test rows."""
    fed = fs.Federation.split(X, y, parties=parties, task=task)
    train, test = fed.rows(train=0.8, random_state=seed)
    site = fed._link.transport.sites[fed.active]
    positions = [site.views[view._view][0] for view in (train, test)]
    train.ask(public_key, to=train.active, scheme="auto")  # key generation is no part of a tree
    return train, test, positions


def measured(model, train) -> dict[str, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    model.fit(train)
    facts = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    frame = model.ledger_.frame()
    facts["bytes"] = float(frame["bytes"].sum())
    facts["once"] = float(frame.loc[frame["receiver"] == "coordinator", "bytes"].sum())
    facts["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return facts


def library(X, y, rows, task: str, trees: int, **options) -> tuple[np.ndarray, float]:
    """Test predictions of the xgboost library on the pooled table, and its CPU seconds."""
    frame = X.apply(
        lambda c: c.astype("category") if c.dtype == object or str(c.dtype) in ("category", "string") else c
    )
    data = [xgboost.DMatrix(frame.iloc[r], np.asarray(y)[r], enable_categorical=True, nthread=2) for r in rows]
    objective = "reg:squarederror" if task == "regression" else "binary:logistic"
    settings = {"objective": objective, "tree_method": "hist", "max_depth": 5, "max_bin": 32, "nthread": 2, **options}
    start = time.process_time()
    booster = xgboost.train(settings, data[0], trees)
    seconds = time.process_time() - start
    return booster.predict(data[1]), seconds


def speed(folder, quick: bool) -> list[str]:
    lines = ["## Speed: 2 parties, depth 5, 32 bins, trees as stated", "",
             "| data | setting | trees | s a tree | CPU-s a tree | MB a tree (once) | memory MB | test AUC "
             "| library AUC | library CPU-s | CPU ratio |",
             "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for name in ("bank_marketing", "default_credit"):
        X, y = load(name, path=folder)
        for label, options in (("protection on", {}), ("protection off", OPEN)):
            trees = (3 if quick else 10) if not options else (2 if quick else 5)
            train, test, rows = federation(X, y, 2, 0)
            model = SecureBoostClassifier(n_estimators=trees, max_depth=5, max_bin=32, **options)
            facts = measured(model, train)
            encrypted = trees - (0 if options else 1)  # the first tree is local when protection is on
            guess, seconds = library(X, y, rows, "classification", trees)
            truth = np.asarray(y)[rows[1]]
            ours = roc_auc_score(truth, model.predict_proba(test)[:, 1])
            lines.append(
                f"| {name} | {label} | {trees} | {facts['wall'] / encrypted:.2f} | {facts['cpu'] / encrypted:.2f} "
                f"| {facts['bytes'] / encrypted / 1e6:.1f} ({facts['once'] / encrypted / 1e6:.1f}) "
                f"| {facts['memory']:.0f} | {ours:.4f} | {roc_auc_score(truth, guess):.4f} | {seconds:.3f} "
                f"| {facts['cpu'] / seconds:.0f} |"
            )
            print(lines[-1], flush=True)
    lines += ["", "Per tree, over the encrypted trees (with protection on the first tree is the label holder's own).",
              "Peers, 2 idle cores, same data: SecretFlow 1.13 OU 8.3 s, 14.6-15.3 CPU-s and 11.5-14.8 MB a tree; "
              "FATE 2.2 about 165 s a tree on default_credit; FedTree 10.6-10.9 s (512-bit keys).", ""]  # fmt: skip
    return lines


def growth(quick: bool) -> list[str]:
    base = {"rows": 4000, "columns": 10, "parties": 2, "depth": 4}
    steps = [("rows", 2000), ("rows", 8000), ("columns", 20), ("parties", 4), ("depth", 2), ("depth", 6)]
    lines = ["## Growth: generated data, 2 encrypted trees, 16 bins; one thing changed at a time", "",
             "| changed | s a tree | CPU-s a tree | MB a tree |", "|---|--:|--:|--:|"]  # fmt: skip
    for what, value in [("nothing", 0), *(steps[::2] if quick else steps)]:
        size = {**base, **({what: value} if value else {})}
        rng = np.random.default_rng(0)
        X = rng.normal(size=(size["rows"], size["columns"]))
        y = (X @ rng.normal(size=size["columns"]) + rng.normal(size=size["rows"]) > 0).astype(int)
        train, _, _ = federation(pd.DataFrame(X), y, size["parties"], 0)
        facts = measured(SecureBoostClassifier(n_estimators=2, max_depth=size["depth"], max_bin=16, **OPEN), train)
        label = f"{what} = {value}" if value else ", ".join(f"{k} {v}" for k, v in base.items())
        lines.append(f"| {label} | {facts['wall'] / 2:.2f} | {facts['cpu'] / 2:.2f} | {facts['bytes'] / 2e6:.1f} |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def accuracy(sets, folder, quick: bool) -> list[str]:
    seeds, trees = ((0,), 8) if quick else ((0, 1, 2), 12)
    lines = [f"## Accuracy on raw columns: 3 parties, {trees} trees of depth 4, 32 bins, {len(seeds)} seed(s)", "",
             "AUC (classes) or R2 (numbers) on untouched test rows; the library gets the pooled table.", "",
             "| data | library | protection off | difference | protection on | difference |",
             "|---|--:|--:|--:|--:|--:|"]  # fmt: skip
    for name in sets:
        X, y = load(name, path=folder)
        task = "classification" if y.nunique() == 2 else "regression"
        cls, metric = (
            (SecureBoostClassifier, roc_auc_score) if task == "classification" else (SecureBoostRegressor, r2_score)
        )
        found = []
        for seed in seeds:
            row = []
            for options in (None, OPEN, {}):
                train, test, rows = federation(X, y, 3, seed, task)
                truth = np.asarray(y)[rows[1]]
                if options is None:
                    row.append(metric(truth, library(X, y, rows, task, trees, max_depth=4)[0]))
                    continue
                model = cls(n_estimators=trees, max_depth=4, max_bin=32, **options).fit(train)
                guess = model.predict(test) if task == "regression" else model.predict_proba(test)[:, 1]
                row.append(metric(truth, guess))
            found.append(row)
        theirs, off, on = np.mean(found, axis=0)
        lines.append(f"| {name} | {theirs:.4f} | {off:.4f} | {off - theirs:+.4f} | {on:.4f} | {on - theirs:+.4f} |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["speed", "growth", "accuracy"])
    parser.add_argument("--sets", nargs="+", default=list(ACCURACY), help="data of the accuracy part")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", default=None)
    parser.add_argument("--out", default=str(Path(__file__).parent / "results" / "boost.md"))
    given = parser.parse_args()
    load_before = os.getloadavg()[0]
    lines = ["# SecureBoost", ""]
    if "speed" in given.parts:
        lines += speed(given.data, given.quick)
    if "growth" in given.parts:
        lines += growth(given.quick)
    if "accuracy" in given.parts:
        lines += accuracy(given.sets, given.data, given.quick)
    quick = " --quick" if given.quick else ""
    lines += [f"Command: `python benchmarks/boost.py --parts {' '.join(given.parts)}{quick}`. "
              f"Cores: {os.cpu_count()}. Load average before {load_before:.1f}, after {os.getloadavg()[0]:.1f} "
              "(above the number of cores the wall seconds say little)."]  # fmt: skip
    Path(given.out).parent.mkdir(parents=True, exist_ok=True)
    Path(given.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
