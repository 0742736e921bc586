"""PSO-EVFFS beside its nulls: the paper's Tables 3 to 6, on rows that steered nothing.

    python benchmarks/pso.py [--parts methods parties inits secure] [--sets sonar musk_v1 ...] [--seeds N] [--quick]

70/30 split by seed; test rows are touched once, by the final model. Masks are judged by the same downstream model
for every method: boosted trees (50 trees, depth 4, 16 bins) on the selected columns. Because SecureBoost gives the same
trees as a pooled table (tests/test_boost.py), "methods" and "inits" run with all columns at one party, where nothing
needs encryption; "parties" and "secure" run with several parties, 2048-bit keys and the default protection.

The last two columns of "methods" are the paper's own protocol, fitness on the test rows, which the package does not
offer: its AUC is the fitness of the best particle, with true and with shuffled labels. It measures the optimism.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import fedsift as fs
from fedsift.datasets import load
from fedsift.protocols.boost import SecureBoostClassifier
from fedsift.protocols.boost_results import auc
from fedsift.protocols.boost_scoring import held_out
from fedsift.protocols.histogram import public_key
from fedsift.protocols.vertical_logistic import VerticalLogisticRegression
from fedsift.select.nulls import RandomFeatures
from fedsift.select.pso_evffs import PsoEvffs
from fedsift.select.top_gain import TopGain

PAPER = {  # Table 5, three participants: VFLR, SecureBoost, PSO-EVFFS
    "sonar": (0.770, 0.788, 0.910), "musk_v1": (0.773, 0.833, 0.906), "dna": (0.968, 0.975, 0.982),
    "isolet5": (0.823, 0.831, 0.960), "cnae9": (0.818, 0.941, 0.979), "yale32": (0.739, 0.675, 0.795),
    "orl32": (0.673, 0.728, 0.798), "coil20": (0.774, 0.943, 0.992),
}  # fmt: skip


class OnTestRows(PsoEvffs):
    """The paper's way, for the column that shows its optimism: fitness is the score of the test rows."""

    train: Any = None

    def _scores(self, fed, boosters):
        for booster in boosters:
            booster.rows = {"kind": "listed", "train": self.train}
        return held_out(fed, boosters, self._protocol(), self.metric) if boosters else np.zeros(0)


class Trial:
    """One data set, one seed: a federation, its training and test views, the truth of the test rows."""

    def __init__(self, name: str, seed: int, folder, parties: int = 1, shuffled: bool = False):
        X, y = load(name, path=folder)
        y = np.asarray(y)
        if shuffled:
            y = np.random.default_rng(1000 + seed).permutation(y)
        self.fed = fs.Federation.split(X, y, parties=parties, how="random", random_state=seed, task="classification")
        self.train, self.test = self.fed.rows(train=0.7, random_state=seed)
        site = self.fed._link.transport.sites[self.fed.active]
        self.rows = [site.views[view._view][0] for view in (self.train, self.test)]
        self.truth = y[self.rows[1]]
        self.columns = X.shape[1]

    def auc(self, model, view) -> float:
        return auc(self.truth, model.predict_proba(view))

    def judged(self, selector) -> tuple[float, int]:
        """Test AUC of the common downstream model on the selected columns, and their number."""
        train, test = (self.train, self.test) if selector is None else map(selector.transform, (self.train, self.test))
        model = SecureBoostClassifier(n_estimators=50, max_depth=4, max_bin=16).fit(train)
        return self.auc(model, test), self.columns if selector is None else selector.selection_.n_selected


def swarm_options(quick: bool) -> dict[str, Any]:
    return {"popsize": 16, "iterations": 6, "models": 6} if quick else {"popsize": 50, "iterations": 20}


def methods(sets, seeds, folder, quick) -> list[str]:
    head = ["all columns", "random third", "TopGain", "swarm best", "swarm vote", "swarm vote, 50 trees", "VFLR, all",
            "paper's protocol", "the same, shuffled labels", "paper: VFLR / SecureBoost / swarm"]  # fmt: skip
    lines = [f"## Methods: mean test AUC (columns kept), {seeds} seeds, swarm {swarm_options(quick)}", "",
             "| data | " + " | ".join(head) + " |", "|---|" + "--:|" * len(head)]  # fmt: skip
    for name in sets:
        table = [_methods_once(name, seed, folder, quick) for seed in range(seeds)]
        cells = []
        for column in zip(*table):
            aucs = np.array([c[0] for c in column])
            kept = "" if column[0][1] is None else f" ({np.mean([c[1] for c in column]):.0f})"
            cells.append("not run" if np.isnan(aucs).any() else f"{aucs.mean():.3f} ± {aucs.std():.3f}{kept}")
        lines.append(f"| {name} | " + " | ".join(cells) + " | " + " / ".join(f"{v:.3f}" for v in PAPER[name]) + " |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def _methods_once(name: str, seed: int, folder, quick: bool) -> list[tuple[float, Any]]:
    trial, options = Trial(name, seed, folder), {**swarm_options(quick), "random_state": seed}
    third = max(1, round(trial.columns / 3))
    best = PsoEvffs(**options, final="best", refit=False).fit(trial.train)
    voted = PsoEvffs(**options, final="vote", refit=False).fit(trial.train)
    result: list[tuple[float, Any]] = [
        trial.judged(None),
        trial.judged(RandomFeatures(n_features=third, random_state=seed).fit(trial.train)),
        trial.judged(TopGain(random_state=seed).fit(trial.train)),
        trial.judged(best), trial.judged(voted),
        (np.nan, None) if quick else trial.judged(PsoEvffs(**options, max_trees=50, refit=False).fit(trial.train)),
        (_logistic(trial), None),
    ]  # fmt: skip
    for shuffled in (False, True):
        other = Trial(name, seed, folder, shuffled=shuffled)
        search = OnTestRows(**options, price=0.0, final="best", refit=False)
        search.train = other.rows[0]
        result.append((search.fit(other.fed).details_["best_fitness"], None))
    return result


def _logistic(trial: Trial) -> float:
    model = VerticalLogisticRegression(max_iter=10).fit(trial.train)
    return trial.auc(model, trial.test)


def inits(sets, seeds, folder, quick) -> list[str]:
    lines = [f"## Initialisation (Table 4): test AUC of the refitted best particle, {seeds} seeds", "",
             "| data | RIS | PIS | FIIS |", "|---|--:|--:|--:|"]  # fmt: skip
    for name in sets:
        cells = []
        for init in ("ris", "pis", "fiis"):
            found = []
            for seed in range(seeds):
                trial = Trial(name, seed, folder)
                swarm = PsoEvffs(**swarm_options(quick), init=init, final="best", random_state=seed).fit(trial.train)
                found.append(trial.auc(swarm.model_, swarm.transform(trial.test)))
            cells.append(f"{np.mean(found):.3f} ± {np.std(found):.3f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def secure(name, parties, folder, options) -> list[str]:
    """Real encryption: time, CPU and bytes of one swarm."""
    lines = [f"## Encrypted: {name}, 2048-bit keys, default protection, swarm {options}", "",
             "| parties | test AUC (vote, refitted) | columns | fits asked | fits done | s | CPU-s | MB | rounds |",
             "|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for count in parties:
        trial = Trial(name, 0, folder, parties=count)
        trial.train.ask(public_key, to=trial.train.active, scheme="auto")
        wall, cpu = time.perf_counter(), time.process_time()
        swarm = PsoEvffs(**options).fit(trial.train)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        score = trial.auc(swarm.model_, swarm.transform(trial.test))
        facts, ledger = swarm.details_, swarm.ledger_
        lines.append(
            f"| {count} | {score:.3f} | {swarm.selection_.n_selected} | {facts['fits_asked']} | {facts['fits_done']} "
            f"| {wall:.0f} | {cpu:.0f} | {ledger.bytes() / 1e6:.0f} | {ledger.rounds()} |"
        )
        print(lines[-1], flush=True)
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["methods", "inits", "parties", "secure"])
    parser.add_argument("--sets", nargs="+", default=["sonar", "musk_v1"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", default=None)
    parser.add_argument("--out", default=str(Path(__file__).parent / "results" / "pso.md"))
    given = parser.parse_args()
    load_before, lines = os.getloadavg()[0], ["# PSO-EVFFS", ""]
    small = {"popsize": 10, "iterations": 3, "models": 6}
    if "methods" in given.parts:
        lines += methods(given.sets, given.seeds, given.data, given.quick)
    if "inits" in given.parts:
        lines += inits(given.sets, given.seeds, given.data, given.quick)
    if "parties" in given.parts:
        lines += secure(given.sets[0], (2, 3, 5), given.data, small)
    if "secure" in given.parts:
        lines += secure("sonar", (3,), given.data, small if given.quick else {"popsize": 50, "iterations": 20})
    quick = " --quick" if given.quick else ""
    lines.append(
        f"Command: `python benchmarks/pso.py --parts {' '.join(given.parts)} --sets {' '.join(given.sets)} "
        f"--seeds {given.seeds}{quick}`. Cores: {os.cpu_count()}. Load average before {load_before:.1f}, after "
        f"{os.getloadavg()[0]:.1f} (above the number of cores the wall seconds say little)."
    )
    Path(given.out).parent.mkdir(parents=True, exist_ok=True)
    Path(given.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
