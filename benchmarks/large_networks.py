"""One run of each network on 10^5 rows x 100 columns: bytes, rounds, and the time that the cost model gives at 30 ms.
And of 10 epochs on few rows, on shares and in the clear: how much CPU the protection costs; and on 8,000 rows what is
found, and scored on 4,000 others, under ``label_epsilon``.

    python benchmarks/large_networks.py [--methods fedsdg splitnn] [--rows 100000] [--columns 100] [--out FILE]
    python benchmarks/large_networks.py --cost | --epsilon
    python benchmarks/large_networks.py --render

Parties are served one after the other and timed by CPU (``scale.py``): a round takes as long as its busiest party, plus
a round trip of 2 x 30 ms and FLARE's 15 ms, and all bytes pass the coordinator at 100 MB a second. The table is drawn:
ten columns tell, alone, by a square or two together, the others are noise.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from provenance import commit
from scale import BANDWIDTH, ENGINE, CpuSerial

import fedsift as fs

HERE = Path(__file__).parent
ROWS_FILE, TABLE = HERE / "results" / "large_networks.jsonl", HERE / "results" / "large_networks.md"
LATENCY = 0.03
METHODS = {
    "fedsdg": fs.FedSDG, "stochastic_gate": fs.StochasticGate, "group_lasso": fs.GroupLasso, "vflfs": fs.VFLFS,
    "less_vfl": fs.LessVFL, "splitnn": fs.SplitNN,
}  # fmt: skip
#: The same number of epochs in both forms, and of refits.
COST = {
    f"{name}, 10 epochs, {form}": partial(maker, epochs=10, protection=form, **more)
    for name, maker, more in (
        ("splitnn", fs.SplitNN, {}), ("group_lasso", fs.GroupLasso, {"refit_epochs": 1}),
        ("vflfs", fs.VFLFS, {"refit_epochs": 1}),
    )
    for form in ("shares", "open")
}  # fmt: skip
ALL = {**METHODS, **COST}
TRUE = 10


def table(rows: int, columns: int, seed: int, task: str = "two classes") -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)).astype(np.float32)
    places = rng.permutation(columns)[:TRUE]
    a = X[:, places]
    signal = a[:, :6].sum(axis=1) + a[:, 6] ** 2 - 1 + (a[:, 7] ** 2 - 1) + 2 * a[:, 8] * a[:, 9]
    names = [f"{'true' if j in places else 'noise'}{j}" for j in range(columns)]
    noisy = signal + rng.normal(size=rows)
    return pd.DataFrame(X, columns=names), noisy if task == "regression" else (noisy > 0).astype(int)


def measure(name: str, rows: int, columns: int, seed: int) -> dict[str, Any]:
    X, y = table(rows, columns, seed)
    fed = fs.Federation.split(X, y, parties=2)
    sites = fed._link.transport.sites
    fed._link.transport = CpuSerial(sites)
    begun = time.process_time()
    fitted = ALL[name](random_state=seed).fit(fed)
    total = time.process_time() - begun
    busiest: dict[int, float] = {}
    for entry in fed.ledger.entries:
        busiest[entry.round] = max(busiest.get(entry.round, 0.0), entry.seconds)
    coordinator = max(total - sum(entry.seconds for entry in fed.ledger.entries), 0.0)
    rounds, sent = fed.ledger.rounds(), fed.ledger.bytes()
    cpu = sum(busiest.values()) + coordinator
    seconds = cpu + rounds * (2 * LATENCY + ENGINE) + sent / BANDWIDTH
    kept = [c for names in getattr(fitted, "selected_", {}).values() for c in names]
    hits = sum(c.startswith("true") for c in kept)
    return {
        "method": name, "rows": rows, "columns": columns, "seed": seed, "CPU seconds": round(total, 1),
        "CPU seconds on the way": round(cpu, 1), "rounds": rounds, "GB": round(sent / 1e9, 3),
        "minutes at 30 ms": round(seconds / 60, 1), "kept": len(kept) or None,
        "precision": round(hits / len(kept), 3) if kept else None, "recall": hits / TRUE if kept else None,
    }  # fmt: skip


def under_epsilon(name: str, task: str, epsilon: float | None, seed: int) -> dict[str, Any]:
    """What a method finds of the ten columns that tell, and how its network scores other rows."""
    X, y = table(12_000, 30, seed, task)
    tables = {"bank": X.iloc[:, :15].assign(y=y), "shop": X.iloc[:, 15:]}
    tables = {who: part.assign(id=np.arange(len(X))) for who, part in tables.items()}
    train, test = (
        fs.Federation.from_tables({w: t.iloc[rows] for w, t in tables.items()}, id="id", label=("bank", "y"))
        for rows in (slice(8000), slice(8000, None))
    )
    between = (-20.0, 20.0) if task == "regression" else None
    fitted = METHODS[name](label_epsilon=epsilon, label_range=between, random_state=seed).fit(train)
    kept = [c for names in getattr(fitted, "selected_", {}).values() for c in names]
    hits = sum(c.startswith("true") for c in kept)
    return {
        "method": name, "task": task, "label_epsilon": epsilon, "seed": seed, "kept": len(kept) or None,
        "true kept": hits if kept else None, "score": round(getattr(fitted, "network_", fitted).score(test), 3),
    }  # fmt: skip


def epsilon_table(rows: list[dict[str, Any]]) -> str:
    shown = ["method", "task", "label_epsilon", "kept", "true kept", "score", "commit"]
    lines = ["| " + " | ".join(shown) + " |", "|---|---|" + "--:|" * (len(shown) - 2)]
    last = {(row["method"], row["task"], row["label_epsilon"]): row for row in rows}
    lines += ["| " + " | ".join("" if row[c] is None else str(row[c]) for c in shown) + " |" for row in last.values()]
    return (
        "\n## Under label_epsilon\n\n`--epsilon`: 8,000 rows, 30 columns of which ten tell, accuracy or R2 on 4,000 "
        "other rows; numbers in a label_range of (-20, 20), where they have a deviation of about 4. One seed.\n\n"
        + "\n".join(lines) + "\n"
    )  # fmt: skip


def table_of(rows: list[dict[str, Any]]) -> str:
    shown = ["method", "rows", "columns", "GB", "minutes at 30 ms", "rounds", "CPU seconds", "kept", "precision",
             "recall", "commit"]  # fmt: skip
    last = {(row["method"], row["rows"], row["columns"], row["seed"]): row for row in rows}
    lines = ["| " + " | ".join(shown) + " |", "|---|" + "--:|" * (len(shown) - 1)]
    lines += [
        "| " + " | ".join("" if row[c] is None else str(row[c]) for c in shown) + " |"
        for row in sorted(last.values(), key=lambda row: (row["rows"], list(ALL).index(row["method"])))
    ]
    return (
        "# Networks on 10^5 rows x 100 columns\n\n`python benchmarks/large_networks.py`, then `--render`. Two parties, "
        "default settings (where no epochs are named), bytes of both directions and all links; ten of the columns "
        "tell.\n\n" + "\n".join(lines)
        + "\n"
    )  # fmt: skip


def write(out: Path, row: dict[str, Any]) -> None:
    row = {**row, "commit": os.environ.get("FEDSIFT_COMMIT") or commit()}
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(ALL))
    parser.add_argument("--cost", action="store_true", help="10 epochs of 5,000 rows x 30 columns in both forms")
    parser.add_argument("--epsilon", action="store_true", help="what is found under label_epsilon")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROWS_FILE)
    parser.add_argument("--render", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.cost:
        given.methods, given.rows, given.columns = list(COST), 5000, 30
        ALL["splitnn, 10 epochs, open"](epochs=1).fit(fs.Federation.split(*table(200, 12, 0), parties=2))  # loads torch
    if given.epsilon:
        for name in ("splitnn", "less_vfl", "group_lasso"):
            for task, epsilons in (("two classes", (1.0, 3.0, None)), ("regression", (3.0, 10.0, None))):
                for epsilon in epsilons:
                    write(given.out, under_epsilon(name, task, epsilon, given.seed))
        return
    for name in [] if given.render else given.methods:
        write(given.out, measure(name, given.rows, given.columns, given.seed))
    if given.render:
        rows = [json.loads(line) for line in given.out.read_text(encoding="utf-8").splitlines() if line.strip()]
        text = table_of([row for row in rows if "rows" in row])
        TABLE.write_text(text + epsilon_table([row for row in rows if "task" in row]), encoding="utf-8")


if __name__ == "__main__":
    main()
