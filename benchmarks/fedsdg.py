"""FedSDG-FS beside its baselines and nulls (Tables III and IV, Figures 4 and 7), and the ciphertext layer's cost.

    python benchmarks/fedsdg.py --data DIR [--sets madelon ...] [--parties 2 5 10] [--methods ...] [--seeds 20 21 ...]
    python benchmarks/fedsdg.py --render          the table from the cells that are there
    python benchmarks/fedsdg.py --data DIR --cost

A cell is one data set, method, number of parties and seed; each is appended to the .jsonl beside the table as it ends,
and cells that are there are not run again. Real Madelon: 2,000 training and 600 test rows, its 20 true columns are
those with |corr| > 0.2 to another column. Friedman: make_friedman1 plus 995 noise columns, 750 / 250 rows. The others:
80 / 20 rows. Columns are spread at random, one of the parties holds the label. Every selection is judged by the same
refitted split network on untouched test rows; filters keep as many columns as FedSDG found, and gates are compared at
the lambda that FedSDG chose (so the FedSDG cell of a data set and seed runs first).
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from split_cells import append_row, cell_of, read_rows, table

import fedsift as fs
from fedsift.evaluate.datasets import load
from fedsift.models.splitnn.layers.choice import own_networks
from fedsift.models.splitnn.model import SplitNN
from fedsift.select.fedsdg.selector import FedSDG
from fedsift.select.less_vfl.vflfs import VFLFS

SETS = ("madelon", "friedman", "arcene", "basehock", "relathe", "coil20", "isolet")
METHODS = {
    "fedsdg": "FedSDG-FS, lambda auto",
    "before": "FedSDG-FS as under ciphertexts (the version before shares), lambda auto",
    "all": "all columns (null)",
    "random": "random columns, same number (null)",
    "original_auto": "original gate, lambda auto",
    "dual": "dual gates, same lambda, all rows",
    "single": "single gate, Gini start, same lambda",
    "original": "original gate, same lambda",
    "gini": "Gini filter (MS-GINI), same number",
    "sffs": "SFFS, same number",
    "vflfs": "VFLFS, same number",
    "plain": "FedSDG-FS in the clear (Adam everywhere), lambda auto",
}
#: Data sets of the paper that keep a large share of their columns: lower prices are tried for them.
DENSE = (0.0001, 0.0003, 0.001, 0.0025, 0.005, 0.01)


def problem(name: str, seed: int, data: str | None) -> tuple[pd.DataFrame, np.ndarray, set[str], float]:
    if name == "friedman":
        from sklearn.datasets import make_friedman1

        values, target = make_friedman1(1000, 1000, noise=1.0, random_state=seed)
        return pd.DataFrame(values, columns=[f"f{i}" for i in range(1000)]), target, {f"f{i}" for i in range(5)}, 0.75
    X, y = load(name, path=data)
    X = pd.DataFrame(X).astype(float)
    X.columns = [str(c) for c in X.columns]
    if name != "madelon":
        return X, np.asarray(y), set(), 0.8
    correlation = np.abs(np.corrcoef(X.to_numpy().T))
    np.fill_diagonal(correlation, 0)
    return X, np.asarray(y), set(X.columns[correlation.max(axis=0) > 0.2]), 2000 / 2600


def refit(train: Any, test: Any, columns: dict[str, Any], seed: int) -> float:
    """The judge: the same network, in the clear, for every selection."""
    network = SplitNN(protection="open", epochs=60, weight_decay=1e-3, random_state=seed)
    network.fit(train.view(columns=columns))
    return network.score(test.view(columns=columns))


def selector_of(method: str, name: str, seed: int, first: dict[str, Any]) -> Any:
    """The selector of a cell. ``first`` is FedSDG's own cell: its number of columns and its lambda."""
    penalties = {} if name in ("madelon", "friedman") else {"penalties": DENSE}
    trace = {"random_state": seed, "trace_every": 20}
    if method in ("fedsdg", "plain"):
        return FedSDG(**penalties, **trace, protection="shares" if method == "fedsdg" else "open")
    if method == "original_auto":
        return FedSDG(**penalties, **trace, gates="input", init="half")
    if method in ("dual", "single", "original"):
        gates = "dual" if method == "dual" else "input"
        init = "half" if method == "original" else "gini"
        return FedSDG(penalty=first["lambda"], refit_epochs=1, gates=gates, init=init, **trace)
    found = max(1, first["columns"])
    if method == "before":
        raise SystemExit("cells of the version before networks on shares cannot be measured again")
    makers = {
        "random": lambda: fs.RandomFeatures(n_features=found, random_state=seed),
        "gini": lambda: fs.GiniFilter(n_features=found),
        "sffs": lambda: fs.SFFS(n_features=found),
        "vflfs": lambda: VFLFS(n_features=found, random_state=seed),
    }
    return makers[method]()


def measure(
    name: str, method: str, parties: int, seed: int, data: str | None, first: dict[str, Any], refits: int
) -> dict[str, Any]:
    """One cell; its score is the mean over ``refits`` seeds of the judging network."""
    X, y, true, share = problem(name, seed, data)
    fed = fs.Federation.split(X, y, parties=parties, how="random", random_state=seed)
    train, test = fed.rows(train=share, random_state=seed)
    row: dict[str, Any] = {"data": name, "method": method, "parties": parties, "seed": seed}
    start = time.process_time()
    if method == "all":
        columns = {p: np.arange(count) for p, count in train.n_columns.items()}
        row["columns"] = X.shape[1]
    else:
        selector = selector_of(method, name, seed, first).fit(train)
        row["CPU seconds"] = time.process_time() - start
        row["MiB"] = selector.ledger_.bytes() / 2**20
        columns = {p: np.flatnonzero(mask) for p, mask in selector.masks_.items()}
        kept = [c for chosen in selector.selected_.values() for c in chosen]
        row["columns"] = len(kept)
        row |= {k: selector.details_[k] for k in ("lambda", "path") if k in selector.details_}
        if hasattr(selector, "network_"):
            row["own score"] = selector.network_.score(test)
        if true:
            hits = sum(c in true for c in kept)
            row |= {"precision": hits / max(1, len(kept)), "recall": hits / len(true)}
    row["share kept"] = row["columns"] / X.shape[1]
    if row["columns"]:
        row["refits"] = [refit(train, test, columns, seed + 1000 * again) for again in range(refits)]
    row["score"] = float(np.mean(row.get("refits", [np.nan])))
    row["cell CPU seconds"] = time.process_time() - start
    return row


def run_cells(arguments: Any, path: Path) -> None:
    done = {cell_of(row): row for row in read_rows(path)}
    for seed in arguments.seeds:
        for name in arguments.sets:
            for parties in arguments.parties:
                first = done.get((name, "fedsdg", parties, seed))
                for method in arguments.methods:
                    if (name, method, parties, seed) in done and not arguments.again:
                        continue
                    if first is None and method not in ("fedsdg", "all", "plain", "original_auto"):
                        print(f"skipped {name} {method}: run the fedsdg cell of seed {seed} first")
                        continue
                    row = measure(name, method, parties, seed, arguments.data, first or {}, arguments.refits)
                    append_row(path, row)
                    first = row if method == "fedsdg" else first


def render(path: Path, out: Path) -> None:
    rows = read_rows(path)
    if not rows:
        print(f"no cells in {path} yet")
        return
    order = list(METHODS)
    rows.sort(key=lambda r: (SETS.index(r["data"]), r["parties"], order.index(r["method"]), r["seed"]))
    seeds = sorted({row["seed"] for row in rows})
    shown = [{**row, "method": METHODS[row["method"]]} for row in rows]
    columns = ["columns", "share kept", "precision", "recall", "score", "own score", "MiB", "CPU seconds"]
    note = (
        f"`python benchmarks/fedsdg.py --data DIR`, then `--render`. Seeds {', '.join(map(str, seeds))}; score is "
        "accuracy (Friedman: R2) on untouched test rows of a network refitted in the clear on the selected columns, "
        "own score that of the selector's own `network_`. FedSDG-FS and the gates train on shares unless the method "
        "says otherwise; rows without an own score are of the version before, whose gates trained as under "
        "ciphertexts. CPU seconds of the "
        f"selection, two cores shared with other work (load {os.getloadavg()[0]:.1f} when this was written)."
    )
    text = f"# FedSDG-FS\n\n{note}\n\n{table(shown, ['data', 'parties', 'method'], columns)}\n"
    out.write_text(text, encoding="utf-8")
    print(text)


def ciphertext_cost(data: str | None, out: Path, head: str) -> None:
    """An epoch of Madelon, two parties, in each form, in CPU seconds of all threads (steady on a shared machine)."""
    X, y, _, share = problem("madelon", 0, data)
    fed = fs.Federation.split(X, y, parties=2, how="random", random_state=0)
    train, _ = fed.rows(train=share, random_state=0)
    names = {"open": "open", "lattice": "BFV lattice, 128 bits (4 batches, times 4)"}
    lines = ["| one epoch (16 batches of 128 rows) | CPU seconds | times plain | MiB, one way |", "|---|--:|--:|--:|"]
    plain = 0.0
    for form in names:
        times = 4 if form == "lattice" else 1
        view = train if times == 1 else train.view(rows=np.arange(2048 // times))
        with view.session() as session:
            settings = FedSDG(protection=form, init="half", random_state=0)._settings([0.003], False)
            run = own_networks(form).start(session, "m", 100, *settings)
            repeat = 5 if form == "open" else 1
            run.train(1)  # warm: the first steps load libraries and make keys
            mark, start = len(fed.ledger), time.process_time()
            run.train(repeat, first=1)
            seconds = times * (time.process_time() - start) / repeat
            size = times * fed.ledger.since(mark).bytes() / 2**20 / repeat / 2  # each message passes the coordinator
        plain = plain or seconds
        lines.append(f"| {names[form]} | {seconds:.2f} | {seconds / plain:.4g} | {size:.1f} |")
        print(lines[-1], flush=True)
        out.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="Madelon, two parties, one seed, four methods")
    parser.add_argument("--data", help="folder with the Parquet files")
    parser.add_argument("--out", default="benchmarks/results/fedsdg.md")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--methods", nargs="+", default=[m for m in METHODS if m != "before"], choices=list(METHODS))
    parser.add_argument("--parties", nargs="+", type=int, default=[2, 5, 10])
    parser.add_argument("--seeds", nargs="+", type=int, default=[20, 21, 22, 23, 24], help="0 to 19 set the defaults")
    parser.add_argument("--refits", type=int, default=1, help="seeds of the judging network; their mean counts")
    parser.add_argument("--again", action="store_true", help="measure cells that are there anew; the last counts")
    parser.add_argument("--render", action="store_true", help="make the table from the cells that are there")
    parser.add_argument("--cost", action="store_true", help="measure the layer under ciphertexts alone")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    out = Path(arguments.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if arguments.cost:
        note = (
            "`python benchmarks/fedsdg.py --data DIR --cost`: gated training as FedSDG-FS does it (d -> 100 -> 100, "
            "top 200 -> 50 -> 2), one run after the other in one process. "
            f"Load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, shared with other work."
        )
        head = f"# The protected interactive layer, Madelon, 2 parties\n\n{note}\n\n"
        ciphertext_cost(arguments.data, out.with_name("secure_layer.md"), head)
        return
    path = out.with_suffix(".jsonl")
    if arguments.quick:
        arguments.sets, arguments.parties, arguments.seeds = ["madelon"], [2], arguments.seeds[:1]
        arguments.methods = ["fedsdg", "all", "random", "gini"]
    if not arguments.render:
        run_cells(arguments, path)
    render(path, out)


if __name__ == "__main__":
    main()
