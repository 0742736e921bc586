"""What each method needs, costs and gives away, measured on one small table: the table of docs/choosing.md.

    python benchmarks/choosing.py [--only NAME,NAME] [--render]

The breast cancer data that scikit-learn ships (569 rows, 30 columns), dealt to 3 parties: columns, or rows for methods
that are for rows. Defaults, except where SIZES says otherwise. Rounds and bytes are those of one ``fit`` (both
directions, through the coordinator); CPU seconds are those of all parties together. Which labels a method takes is
found by trying it on a small table with two classes, three classes and amounts. What was measured is kept in
results/choosing.json; ``--render`` writes the page's table from it and from the registry without measuring.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from choosing_words import WORDS
from exposure_defaults import worst_by_default
from provenance import BINS, commit, count_old
from sklearn.datasets import load_breast_cancer

import fedsift as fs
from fedsift.crypto.additive.keys import MIN_BITS, SecretKey, generate_key
from fedsift.errors import FedsiftError
from fedsift.methods import METHODS
from fedsift.mpc import encrypted_histogram as histogram

HERE = Path(__file__).parent
FIGURES = HERE / "results" / "choosing.json"
PAGE = HERE.parent / "docs" / "choosing.md"
#: Where a default would take long for what it shows here.
SIZES: dict[str, dict[str, Any]] = {
    "muse": {"n_features": 10},
    "fedsdg": {"penalty": 0.003, "epochs": 30, "refit_epochs": 20},
    "stochastic_gate": {"penalty": 0.003, "epochs": 30, "refit_epochs": 20},
    "pso_evffs": {"popsize": 6, "iterations": 2, "models": 3, "max_trees": 3},
    "top_gain": {"n_estimators": 8},
    "fed_iife": {"max_features": 10},
    "stable": {"selector": "sffs", "pairs": 5},
}
#: Small enough to see in a moment which labels a method takes.
TINY: dict[str, dict[str, Any]] = {
    "fedsdg": {"penalty": 0.01, "epochs": 1, "refit_epochs": 1},
    "stochastic_gate": {"penalty": 0.01, "epochs": 1, "refit_epochs": 1},
    "less_vfl": {"pretrain_epochs": 1, "epochs": 1, "stage_epochs": 1},
    "local_lasso": {"pretrain_epochs": 1, "epochs": 1, "stage_epochs": 1},
    "group_lasso": {"epochs": 1},
    "vflfs": {"epochs": 1, "pretrain_epochs": 1},
    "pso_evffs": {"popsize": 2, "iterations": 1, "models": 1, "folds": 2, "max_trees": 1, "max_depth": 2},
    "top_gain": {"n_estimators": 1, "max_depth": 2, "folds": 2},
    "federated_lasso": {"max_iter": 2},
    "fed_iife": {"n_pairs": 2, "max_features": 1},
    "boruta": {"rounds": 2, "n_estimators": 2, "max_depth": 2},
    "auto": {"n_features": 2, "candidates": ["gini", "sffs"], "model": "linear", "folds": 2},
    "stable": {"selector": "sffs", "pairs": 1, "blocks": 2},
    "fed_halving": {"candidates": 2, "levels": 1, "max_iter": 1, "refinements": 1, "halvings": 1},
}
HOLDS = {"vertical": "columns", "horizontal": "rows", "hybrid": "both (a grid)"}
BEGIN, END = "<!-- table: python benchmarks/choosing.py -->", "<!-- end of table -->"


@cache
def one_key(scheme: str = "auto", bits: int = MIN_BITS) -> SecretKey:
    """A key takes 1 to 9 seconds, by luck: here it is made once, so that seconds can be set side by side."""
    return generate_key(scheme, bits)


def partition_of(name: str) -> str:
    return METHODS[name].partitions[0]


def deal(X: pd.DataFrame, y: pd.Series, partition: str) -> fs.Federation:
    """Three parties, or a grid of two by two."""
    return fs.Federation.split(X, y, parties=4 if partition == "hybrid" else 3, partition=partition)


def measure(name: str) -> dict[str, Any]:
    histogram.generate_key = one_key
    one_key()
    data = load_breast_cancer(as_frame=True)
    fed = deal(data.data, data.target, partition_of(name))
    parameters = SIZES.get(name, {})
    start = time.process_time()
    fitted = METHODS[name](**parameters).fit(fed)
    seconds = time.process_time() - start
    shared = {(party if fed.partition == "vertical" else "", c) for party, cs in fitted.selected_.items() for c in cs}
    return {
        "partition": fed.partition, "parameters": {key: repr(value) for key, value in parameters.items()},
        "kept": len(shared), "rounds": fitted.ledger_.rounds(), "bytes": fitted.ledger_.bytes(),
        "cpu_seconds": round(seconds, 1), "ciphertexts": fitted.ledger_.encryption()["ciphertexts"],
        "masked_bytes": fitted.ledger_.encryption()["masked_bytes"],
        "forms": sorted({e.form for e in fitted.ledger_.entries if e.operation != "share_names"} - {"control"}),
        "labels": labels_of(name),
    }  # fmt: skip


def labels_of(name: str) -> list[str]:
    """Which labels it takes, by trying."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 6)), columns=list("abcdef"))
    signal = (X["a"] + X["d"] + 0.1 * rng.normal(size=60)).to_numpy()
    tried = {"two classes": signal > 0, "more classes": np.digitize(signal, [-1, 1]), "amounts": signal}
    taken = []
    for kind, label in tried.items():
        label = pd.Series(label.astype(float if kind == "amounts" else int), name="label")
        try:
            fed = deal(X, label, partition_of(name))
            METHODS[name](**TINY.get(name, {})).fit(fed)
            taken.append(kind)
        except FedsiftError:
            continue
    return taken


# --- the page --------------------------------------------------------------------------------------------------------


def size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def hidden(facts: dict[str, Any]) -> str:
    """How what is sent is hidden, from the messages that were sent (the names of columns apart)."""
    words = [word for word, sent in (("encrypted", facts["ciphertexts"]), ("masked", facts["masked_bytes"])) if sent]
    words += [form for form in ("pseudonymous", "plain") if form in facts["forms"]]
    return ", ".join(words) or "nothing to hide"


def costs(name: str, facts: dict[str, Any]) -> str:
    method = METHODS[name]
    labels = "any" if facts["labels"] == ["two classes", "more classes", "amounts"] else ", ".join(facts["labels"])
    labels = "not needed" if method.paper == "null" else labels
    holds = ", ".join(HOLDS[partition] for partition in method.partitions)
    spent = f"{facts['rounds']:,} | {size(facts['bytes'])} | {facts['cpu_seconds']:g}"
    page = WORDS[name]["page"] if (PAGE.parent / WORDS[name]["page"]).is_file() else "index.md"
    return f"| [`{name}`]({page}) | {holds} | {labels} | {spent} | {hidden(facts)} |"


def attacked(name: str) -> str:
    """The worst figure of the audit's attacks on a method, in a few words."""
    found = worst_by_default(name)
    if found is None:
        return "none measured"
    worst, smaller = found
    known = f"guess {worst['guess']:.2f}, baseline {worst['baseline']:.2f}; {worst['set']}"
    known += ", a smaller run" if smaller else ""
    return f"{worst['target']}, by the {worst['role']} role: {worst['metric']} {worst['value']:.2f} ({known})"


def table(figures: dict[str, Any]) -> str:
    known = {name: figures[name] for name in METHODS if name in figures}
    smaller = [
        f"`{name}` {', '.join(f'{key}={value}' for key, value in facts['parameters'].items())}"
        for name, facts in known.items()
        if facts["parameters"]
    ]
    return "\n".join([
        BEGIN,
        "### What it needs and what it costs",
        "| method | parties hold | label | rounds | bytes | CPU s | how it travels |",
        "|---|---|---|--:|--:|--:|---|",
        *(costs(name, facts) for name, facts in known.items()),
        "",
        "Rounds, bytes and CPU seconds are of one `fit` on scikit-learn's breast cancer table: 569 rows, 30 columns, 3",
        "parties of the first kind in the second column. Defaults, except: " + "; ".join(smaller) + ".",
        "Bytes count both directions through the coordinator; keys were made beforehand. Command:",
        "`python benchmarks/choosing.py`.",
        *old_bins(known),
        "",
        "### When it is good, when not, and who learns what",
        "| method | good when | not when | who learns what | [attacks](exposure.md) read at most |",
        "|---|---|---|---|---|",
        *(f"| `{name}` | {WORDS[name]['good']} | {WORDS[name]['not']} | {METHODS[name].leaks} | {attacked(name)} |"
          for name in known),
        "",
        "The last column is the attack that adds most to guess and baseline over all sets of the page",
        "[Exposure](exposure.md): success (guess, baseline), of runs in the form that the method has by default and,",
        "where that was measured, as large. Of *a smaller run* (fewer trees, epochs, rounds) a default one may show",
        "more.",
        "Attacks are lower bounds; none measured is no news.",
        END,
    ])  # fmt: skip


def old_bins(figures: dict[str, Any]) -> list[str]:
    """The methods whose line was measured before bins saw every column."""
    names = [f"`{name}`" for name, facts in figures.items() if count_old([facts])[0]]
    return [f"**Old bins** (measured before commit {BINS}, not yet again): {', '.join(names)}."] if names else []


def render(page: str, figures: dict[str, Any]) -> str:
    """The page with a fresh table."""
    block = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    return block.sub(lambda _: table(figures), page)


def read() -> dict[str, Any]:
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else {}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="measure these methods alone, with commas between")
    options.add_argument("--render", action="store_true", help="measure nothing")
    given = options.parse_args()
    names = [] if given.render else [name for name in given.only.split(",") if name] or list(METHODS)
    measured = {}
    for name in names:
        measured[name] = {**measure(name), "commit": commit()}
        print(name, measured[name], flush=True)
    figures = {**read(), **measured}  # read late: another run may have written meanwhile
    figures = {name: figures[name] for name in METHODS if name in figures}
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
