"""SecureBoost: speed and bytes beside the xgboost library, growth with size, and accuracy beside the library.

    python benchmarks/boost.py [--parts speed growth accuracy] [--sets NAME ...] [--seeds 0 1 2] [--quick]
                               [--data DIR] [--out FILE]
    FEDSIFT_KERNEL=off python benchmarks/boost.py --parts speed

Each part writes its own section of the result file and leaves the others alone; ``--sets`` replaces only the rows of
those data sets (speed: bank_marketing, default_credit; accuracy: see ``ACCURACY``), so a part can be run in pieces.

Parties share this machine and its cores; CPU seconds are those of the whole process (all parties and the coordinator).
Bytes are counted twice where a message is relayed by the coordinator (label holder -> coordinator -> party); "once"
counts what the parties send. Settings: 2048-bit keys, depth 5, 32 bins, 80/20 split, seeds as stated. Peers were
measured on the same two cores, idle (see docs/secureboost.md); this run's load is in its header: compare CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import time
from pathlib import Path

import numpy as np
import pandas as pd
import xgboost
from provenance import commit
from sklearn.metrics import r2_score, roc_auc_score

import fedsift as fs
from fedsift.evaluate.datasets import load
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.mpc.encrypted_histogram import public_key

OPEN = {"min_cell": 1, "min_leaf": 1, "first_tree_local": False}
SAMPLED = {"sampling_method": "gradient_based", "top_rate": 0.2, "other_rate": 0.1}
SPEED = ("bank_marketing", "default_credit")
#: A name with "+holes": a tenth of the values are deleted at random (seed 0), for us and for the library.
ACCURACY = ("breast_cancer_wdbc", "spambase", "jm1+holes", "airfoil_self_noise", "openml_586_fri_c3_1000_25+holes")


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


def speed(names, folder, quick: bool) -> tuple[list[str], dict[str, str]]:
    lines = ["## Speed a tree: 2 parties, depth 5, 32 bins", "",
             "Per tree, over the encrypted trees (with protection on the first tree is the label holder's own). "
             "Sampling: a fifth of the rows by gradient and a tenth of the others. Peers, 2 idle cores: SecretFlow "
             "1.13 OU 8.3 s, 14.6-15.3 CPU-s, 14.8 MB (bank) and 11.5 MB (default) a tree; FATE 2.2 about 165 s a tree "
             "on default_credit; FedTree 10.6-10.9 s (512-bit keys).", "",
             "| data | setting | trees | s a tree | CPU-s a tree | MB a tree, once | with relay | memory MB | test AUC "
             "| library AUC | library CPU-s | CPU ratio |",
             "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    settings = {
        "exact, protection on": {}, "exact, protection off": OPEN,
        "exact, on, 1 row a ciphertext": {"rows_per_ciphertext": 1}, "sampled, protection on": SAMPLED,
    }  # fmt: skip
    if os.environ.get("FEDSIFT_KERNEL") == "off":  # what a machine without AVX-512 or without a compiler gets
        settings = {"exact, on, gmpy2 instead of the kernel": {}}
    rows_found = {}
    for name in names:
        X, y = load(name, path=folder)
        for label, options in settings.items():
            trees = (3 if quick else 10) if options is not OPEN else (2 if quick else 5)
            train, test, rows = federation(X, y, 2, 0)
            model = SecureBoostClassifier(n_estimators=trees, max_depth=5, max_bin=32, **options)
            facts = measured(model, train)
            encrypted = trees - (0 if options is OPEN else 1)
            guess, seconds = library(X, y, rows, "classification", trees)
            truth = np.asarray(y)[rows[1]]
            ours = roc_auc_score(truth, model.predict_proba(test)[:, 1])
            rows_found[f"{name} {label}"] = (
                f"| {name} | {label} | {trees} | {facts['wall'] / encrypted:.2f} | {facts['cpu'] / encrypted:.2f} "
                f"| {facts['once'] / encrypted / 1e6:.2f} | {facts['bytes'] / encrypted / 1e6:.1f} "
                f"| {facts['memory']:.0f} | {ours:.4f} | {roc_auc_score(truth, guess):.4f} | {seconds:.3f} "
                f"| {facts['cpu'] / seconds:.0f} |"
            )
            print(rows_found[f"{name} {label}"], flush=True)
    return lines, rows_found


def growth(quick: bool) -> tuple[list[str], dict[str, str]]:
    base = {"rows": 10_000, "columns": 20, "parties": 2, "depth": 5}
    steps = [("rows", 5000), ("rows", 20_000), ("rows", 40_000), ("columns", 10), ("columns", 40), ("parties", 3),
             ("parties", 5), ("depth", 3), ("depth", 7)]  # fmt: skip
    if quick:
        base, steps = {**base, "rows": 2000}, [("rows", 4000), ("columns", 10), ("depth", 3)]
    sizes = ", ".join(f"{value} {name}" for name, value in base.items())
    lines = [f"## Growth: generated numbers, 2 encrypted trees, 32 bins; {sizes}; one thing changed at a time", "",
             "Protection off, so both trees are encrypted; 80 % of the rows train.", "",
             "| changed | s a tree | CPU-s a tree | MB a tree, once | with relay |",
             "|---|--:|--:|--:|--:|"]  # fmt: skip
    found = {}
    for what, value in [("nothing", 0), *steps]:
        size = {**base, **({what: value} if value else {})}
        rng = np.random.default_rng(0)
        X = rng.normal(size=(size["rows"], size["columns"]))
        y = (X @ rng.normal(size=size["columns"]) + rng.normal(size=size["rows"]) > 0).astype(int)
        train, _, _ = federation(pd.DataFrame(X), y, size["parties"], 0)
        facts = measured(SecureBoostClassifier(n_estimators=2, max_depth=size["depth"], max_bin=32, **OPEN), train)
        label = f"{what} = {value}" if value else "nothing"
        found[label] = (
            f"| {label} | {facts['wall'] / 2:.2f} | {facts['cpu'] / 2:.2f} | {facts['once'] / 2e6:.2f} "
            f"| {facts['bytes'] / 2e6:.1f} |"
        )
        print(found[label], flush=True)
    return lines, found


def accuracy(names, folder, quick: bool, seeds) -> tuple[list[str], dict[str, str]]:
    trees = 4 if quick else 12
    lines = [f"## Accuracy on raw columns: 3 parties, {trees} trees of depth 4, 32 bins", "",
             "AUC (classes) or R2 (numbers) on untouched test rows (a fifth); the library gets the pooled table. "
             '"+holes": a tenth of the values deleted at random, for both. Sampled: protection on, a fifth of the rows '
             "by gradient and a tenth of the others. Means: in brackets the difference to the library.", "",
             "| data | seed | rows x columns | library | protection off | protection on | sampled |",
             "|---|---|---|--:|--:|--:|--:|"]  # fmt: skip
    found = {}
    for name in names:
        X, y = load(name.removesuffix("+holes"), path=folder)
        if name.endswith("+holes"):
            X = X.astype(float).mask(np.random.default_rng(0).random(X.shape) < 0.1)
        for seed in seeds:
            cells = " | ".join(f"{score:.4f}" for score in scored(X, y, seed, trees))
            found[f"{name} {seed}"] = f"| {name} | {seed} | {X.shape[0]} x {X.shape[1]} | {cells} |"
            print(found[f"{name} {seed}"], flush=True)
    return lines, found


def with_means(rows: dict[str, str]) -> dict[str, str]:
    """A line of means after the seeds of each data set."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in rows.values()]
    result = {}
    for name in dict.fromkeys(line[0] for line in cells):
        mine = [line for line in cells if line[0] == name and line[1].isdigit()]
        result.update(
            {f"{name} {line[1]}": f"| {' | '.join(line)} |" for line in sorted(mine, key=lambda c: int(c[1]))}
        )
        means = np.array([[float(value) for value in line[3:]] for line in mine]).mean(axis=0)
        ours = " | ".join(f"**{mean:.4f}** ({mean - means[0]:+.4f})" for mean in means[1:])
        result[f"{name} mean"] = f"| {name} | mean of {len(mine)} | {mine[0][2]} | **{means[0]:.4f}** | {ours} |"
    return result


def scored(X, y, seed: int, trees: int) -> list[float]:
    """Test score of the library and of three settings of ours."""
    task = "classification" if y.nunique() == 2 else "regression"
    numbers = task == "regression"
    cls, metric = (SecureBoostRegressor, r2_score) if numbers else (SecureBoostClassifier, roc_auc_score)
    train, test, rows = federation(X, y, 3, seed, task)
    truth = np.asarray(y)[rows[1]]
    scores = [metric(truth, library(X, y, rows, task, trees, max_depth=4)[0])]
    for options in (OPEN, {}, SAMPLED):
        model = cls(n_estimators=trees, max_depth=4, max_bin=32, random_state=seed, **options).fit(train)
        scores.append(metric(truth, model.predict(test) if numbers else model.predict_proba(test)[:, 1]))
    return scores


# --- the result file: a section a part -----------------------------------------------------------------------------


def write_section(file: Path, lines: list[str], rows: dict[str, str], command: str, keys: int) -> None:
    """Replace one section; rows of an earlier run with the same heading stay unless they were measured again."""
    text = file.read_text(encoding="utf-8") if file.exists() else "# SecureBoost\n"
    sections = re.split(r"(?m)^(?=## )", text)
    part = " ".join(lines[0].split()[:2]).removesuffix(":")
    kept: dict[str, str] = {}
    for section in sections:
        if section.split("\n")[0] == lines[0]:
            for line in section.split("\n"):
                if line.startswith("| ") and line not in lines:
                    kept[" ".join(cell.strip() for cell in line.split("|")[1 : 1 + keys])] = line
    rows = {**kept, **rows}
    if part == "## Accuracy":
        rows = with_means(rows)
    body = "\n".join([*lines, *rows.values(), "", command]) + "\n\n"
    places = [number for number, section in enumerate(sections) if section.startswith(part)]
    sections = [section for number, section in enumerate(sections) if number not in places[1:]]
    if places:
        sections[places[0]] = body
    else:
        sections.append(body)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n\n".join(section.strip("\n") for section in sections) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["speed", "growth", "accuracy"])
    parser.add_argument("--sets", nargs="+", default=None, help="data of the speed or the accuracy part")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the accuracy part")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", default=None)
    parser.add_argument("--out", default=str(Path(__file__).parent / "results" / "boost.md"))
    given = parser.parse_args()
    for part in given.parts:
        load_before = os.getloadavg()[0]
        if part == "speed":
            lines, rows = speed(given.sets or SPEED, given.data, given.quick)
        elif part == "growth":
            lines, rows = growth(given.quick)
        else:
            lines, rows = accuracy(given.sets or ACCURACY, given.data, given.quick, given.seeds)
        options = f" --sets {' '.join(given.sets)}" if given.sets and part != "growth" else ""
        options += " --quick" if given.quick else ""
        options += f" --seeds {' '.join(map(str, given.seeds))}" if part == "accuracy" else ""
        command = (f"Last command: `python benchmarks/boost.py --parts {part}{options}` (commit {commit()}). "
                   f"Cores: {os.cpu_count()}. Load average before {load_before:.1f}, after {os.getloadavg()[0]:.1f} "
                   "(above the number of cores the wall seconds say little).")  # fmt: skip
        write_section(Path(given.out), lines, rows, command, 1 if part == "growth" else 2)


if __name__ == "__main__":
    main()
