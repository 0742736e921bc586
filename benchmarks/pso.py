"""PSO-EVFFS beside its nulls: the paper's Tables 3 to 6, on rows that steered nothing.

    python benchmarks/pso.py [--parts methods parties inits secure levels] [--sets sonar musk_v1 ...] [--rows ...]
                            [--seeds N] [--quick]

70/30 split by seed; test rows are touched once, by the final model. Masks are judged by the same downstream model
for every method: boosted trees (50 trees, depth 4, 16 bins) on the selected columns. With more than 10 classes one tree
serves all classes, in that model and in every search. Because SecureBoost gives the same trees as a pooled table
(tests/test_boost.py), "methods" and "inits" run with all columns at one party, where nothing needs encryption;
"parties" and "secure" run with several parties and 2048-bit keys at protection "coordinator" (the default then).

The last two columns of "methods" are the paper's own protocol, fitness on the test rows, which the package does not
offer: its AUC is the fitness of the best particle, with true and with shuffled labels. It measures the optimism.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from cells import Cells, Sections

import fedsift as fs
from fedsift.evaluate.datasets import load
from fedsift.models.boost import rounds
from fedsift.models.boost.model import SecureBoostClassifier
from fedsift.models.boost.results import auc
from fedsift.models.boost.scoring import held_out
from fedsift.models.vertical_logistic import VerticalLogisticRegression
from fedsift.mpc.encrypted_histogram import public_key
from fedsift.select.baselines.nulls import RandomFeatures
from fedsift.select.pso.selector import PsoEvffs
from fedsift.select.top_gain import TopGain

PAPER = {  # Table 5, three participants: VFLR, SecureBoost, PSO-EVFFS
    "sonar": (0.770, 0.788, 0.910), "musk_v1": (0.773, 0.833, 0.906), "dna": (0.968, 0.975, 0.982),
    "isolet5": (0.823, 0.831, 0.960), "cnae9": (0.818, 0.941, 0.979), "yale32": (0.739, 0.675, 0.795),
    "orl32": (0.673, 0.728, 0.798), "coil20": (0.774, 0.943, 0.992),
}  # fmt: skip


MANY_CLASSES = 10  # above, one tree serves all classes: a tree a class would take that many times as long


class OnTestRows(PsoEvffs):
    """The paper's way, for the column that shows its optimism: fitness is the score of the test rows."""

    train: Any = None

    def _scores(self, fed, boosters):
        listed = np.zeros(fed.n_rows, dtype=bool)
        listed[self.train] = True
        # No request can name rows: the label holder's own draw is replaced, which only works in one process.
        with mock.patch.object(rounds, "training_rows", return_value=listed):
            return held_out(fed, boosters, self._protection(), self.metric) if boosters else np.zeros(0)


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
        self.trees = {"multi_output": True} if len(np.unique(y)) > MANY_CLASSES else {}

    def auc(self, model, view) -> float:
        return auc(self.truth, model.predict_proba(view))

    def judged(self, selector) -> tuple[float, int]:
        """Test AUC of the common downstream model on the selected columns, and their number."""
        train, test = (self.train, self.test) if selector is None else map(selector.transform, (self.train, self.test))
        model = SecureBoostClassifier(n_estimators=50, max_depth=4, n_bins=16, **self.trees).fit(train)
        return self.auc(model, test), self.columns if selector is None else selector.selection_.n_selected


LONG = {"max_trees": 50, "popsize": 20, "iterations": 8}  # a particle of up to 50 trees costs eight times as much
_TEMPORARY = tempfile.TemporaryDirectory()
CHECKPOINTS = Path(_TEMPORARY.name)  # --checkpoints: where a search of half an hour goes on after an interruption


def swarm_options(quick: bool) -> dict[str, Any]:
    return {"popsize": 16, "iterations": 6, "models": 6} if quick else {"popsize": 50, "iterations": 20}


ROWS = ("all columns", "random third", "TopGain", "swarm best", "swarm vote", "swarm vote, 50 trees", "VFLR, all",
        "paper's protocol", "the same, shuffled labels")  # fmt: skip


def methods(sets, seeds, folder, quick, cells: Cells, rows) -> str:
    options = swarm_options(quick)
    for name in sets:
        for seed in range(seeds):
            for row in rows or ROWS:
                cells.run(
                    lambda n=name, s=seed, r=row: one_method(n, s, folder, options, r),
                    part="methods", data=name, seed=seed, row=row, popsize=options["popsize"],
                )  # fmt: skip
    return f"{methods_text(cells)}\n\n{cells.made('methods')}"


def methods_text(cells: Cells) -> str:
    """A line a data set; where it was run with swarms of two sizes, the larger one counts."""
    lines = ["Mean test AUC ± deviation over seeds (columns kept). Swarm: particles x iterations; with up to 50 "
             f"trees a particle: {LONG['popsize']} x {LONG['iterations']}.", "",
             "| data | swarm | seeds | " + " | ".join(ROWS) + " | paper: VFLR / SecureBoost / swarm |",
             "|---|" + "--:|" * (len(ROWS) + 3)]  # fmt: skip
    sizes = {options["popsize"]: options for options in map(swarm_options, (False, True))}
    means: dict[str, list[float]] = {row: [] for row in ROWS}
    for name in PAPER:
        mine = [row for row in cells.rows if row["part"] == "methods" and row["data"] == name]
        if not mine:
            continue
        size = sizes[max(row["popsize"] for row in mine)]
        table = {row: [c for c in mine if c["row"] == row and c["popsize"] == size["popsize"]] for row in ROWS}
        shown = []
        for row in ROWS:
            aucs = [each["auc"] for each in table[row]]
            means[row].append(float(np.mean(aucs)) if aucs else np.nan)
            kept = [each["kept"] for each in table[row] if each["kept"] is not None]
            shown.append(
                (f"{np.mean(aucs):.3f} ± {np.std(aucs):.3f}" + (f" ({np.mean(kept):.0f})" if kept else ""))
                if aucs
                else "not run"
            )
        paper = " / ".join(f"{value:.3f}" for value in PAPER[name])
        swarm = f"{size['popsize']} x {size['iterations']}"
        lines.append(f"| {name} | {swarm} | {len(table[ROWS[0]])} | " + " | ".join(shown) + f" | {paper} |")
    whole = [f"{np.mean(values):.3f}" if not np.isnan(values).any() else "" for values in means.values()]
    lines.append("| mean of the data sets | | | " + " | ".join(whole) + " | |")
    return "\n".join(lines)


def one_method(name: str, seed: int, folder, options: dict[str, Any], row: str) -> dict[str, Any]:
    """Test AUC and the number of columns kept, of one row of the table."""
    if row in ROWS[-2:]:
        other = Trial(name, seed, folder, shuffled=row == ROWS[-1])
        search = OnTestRows(**options, **other.trees, price=0.0, final="best", refit=False, random_state=seed)
        search.train = other.rows[0]
        return {"auc": float(search.fit(other.fed).details_["best_fitness"]), "kept": None}
    trial = Trial(name, seed, folder)
    if row == "VFLR, all":
        return {"auc": _logistic(trial), "kept": None}
    options = {**options, **trial.trees}
    third = max(1, round(trial.columns / 3))
    # The best particle and the vote come from one search: the second reads where the first ended.
    search, long = (str(CHECKPOINTS / f"{name}-{seed}-{options['popsize']}{kind}.json") for kind in ("", "-long"))
    selector = {
        "all columns": None,
        "random third": RandomFeatures(n_features=third, random_state=seed),
        "TopGain": TopGain(random_state=seed, **trial.trees),
        "swarm best": PsoEvffs(**options, final="best", refit=False, random_state=seed, checkpoint=search),
        "swarm vote": PsoEvffs(**options, final="vote", refit=False, random_state=seed, checkpoint=search),
        "swarm vote, 50 trees": PsoEvffs(**{**options, **LONG}, refit=False, random_state=seed, checkpoint=long),
    }[row]
    score, kept = trial.judged(None if selector is None else selector.fit(trial.train))
    return {"auc": float(score), "kept": int(kept)}


def _logistic(trial: Trial) -> float:
    model = VerticalLogisticRegression(max_iter=10).fit(trial.train)
    return trial.auc(model, trial.test)


INITS = ("ris", "pis", "fiis")


def inits(sets, seeds, folder, quick, cells: Cells) -> str:
    """Table 4; a line for all that was ever measured, of the larger swarm where there are two."""
    options = swarm_options(quick)

    def once(name: str, init: str, seed: int) -> dict[str, Any]:
        trial = Trial(name, seed, folder)
        swarm = PsoEvffs(**options, **trial.trees, init=init, final="best", random_state=seed).fit(trial.train)
        return {"auc": trial.auc(swarm.model_, swarm.transform(trial.test)), "kept": swarm.selection_.n_selected}

    for name in sets:
        for seed in range(seeds):
            for init in INITS:
                cells.run(
                    lambda n=name, i=init, s=seed: once(n, i, s),
                    part="inits", data=name, init=init, seed=seed, popsize=options["popsize"],
                )  # fmt: skip
    lines = ["Table 4: test AUC of the refitted best particle (columns kept), mean ± deviation over seeds.", "",
             "| data | swarm | seeds | RIS | PIS | FIIS |", "|---|--:|--:|--:|--:|--:|"]  # fmt: skip
    sizes = {each["popsize"]: each for each in map(swarm_options, (False, True))}
    for name in PAPER:
        mine = [row for row in cells.rows if row["part"] == "inits" and row["data"] == name]
        if not mine:
            continue
        size = sizes[max(row["popsize"] for row in mine)]
        shown = []
        for init in INITS:
            found = [row for row in mine if row["init"] == init and row["popsize"] == size["popsize"]]
            aucs, kept = [row["auc"] for row in found], [row["kept"] for row in found]
            shown.append(f"{np.mean(aucs):.3f} ± {np.std(aucs):.3f} ({np.mean(kept):.0f})" if found else "not run")
        lines.append(
            f"| {name} | {size['popsize']} x {size['iterations']} | {len(found)} | " + " | ".join(shown) + " |"
        )
    return "\n".join(lines)


def secure(sets, parties, seeds, folder, options, cells: Cells) -> str:
    """Real encryption: test score, time, CPU and bytes of whole swarms; a line for all that was ever measured."""
    for name in sets:
        for count in parties:
            for seed in range(seeds):
                cells.run(
                    lambda n=name, c=count, s=seed: one_secure(n, c, s, folder, options),
                    part="secure", data=name, parties=count, seed=seed, popsize=options["popsize"],
                )  # fmt: skip
    head = ["data", "parties", "seeds", "test AUC (vote, refitted)", "columns", "fits asked", "fits done", "s",
            "CPU-s", "MB", "rounds", "load"]  # fmt: skip
    lines = [f"2048-bit keys, default protection, swarm {options}; means over seeds.", "",
             "| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]  # fmt: skip
    kinds = {"auc": ".3f", "kept": ".0f", "fits_asked": ".0f", "fits_done": ".0f", "seconds": ".0f",
             "cpu_s": ".0f", "megabytes": ".0f", "rounds": ".0f", "load": ".1f"}  # fmt: skip
    frame = cells.frame()
    frame = frame[(frame.part == "secure") & (frame.popsize == options["popsize"])]
    for name in PAPER:
        for count, found in frame[frame.data == name].groupby("parties"):
            shown = [format(found[key].mean(), kind) for key, kind in kinds.items()]
            lines.append(f"| {name} | {count:.0f} | {len(found)} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def one_secure(name: str, parties: int, seed: int, folder, options: dict[str, Any]) -> dict[str, Any]:
    trial = Trial(name, seed, folder, parties=parties)
    trial.train.ask(public_key, to=trial.train.active, scheme="auto")
    start = time.perf_counter()
    swarm = PsoEvffs(**options, **trial.trees, protection="coordinator", random_state=seed).fit(trial.train)
    seconds = time.perf_counter() - start
    facts, ledger = swarm.details_, swarm.ledger_
    return {
        "auc": trial.auc(swarm.model_, swarm.transform(trial.test)), "kept": swarm.selection_.n_selected,
        "fits_asked": facts["fits_asked"], "fits_done": facts["fits_done"], "seconds": seconds,
        "megabytes": ledger.bytes() / 1e6, "rounds": ledger.rounds(),
    }  # fmt: skip


#: Level, particles and iterations: a whole swarm at level "all" is reckoned from these.
LEVELS = (("coordinator", 4, 2), ("all", 4, 2), ("all", 12, 2), ("all", 50, 3))


def levels(folder, quick: bool, cells: Cells) -> str:
    """What the first iterations of a swarm cost at both levels on shares, stage 1 (10 models) among it."""
    for level, popsize, iterations in LEVELS[: 3 if quick else None]:
        cells.run(
            lambda told=(level, popsize, iterations): one_level(*told, folder),
            part="levels", data="sonar", settings=level, popsize=popsize,
        )  # fmt: skip
    head = ["data", "parties", "level", "particles", "iterations", "fits", "CPU-s", "MB", "rounds", "memory MB", "load"]
    lines = ["| " + " | ".join(head) + " |", "|---|--:|---|" + "--:|" * (len(head) - 3)]
    for row in cells.rows:
        if row["part"] == "levels":
            told = [row.get(name, "not noted") for name in ("settings", "popsize", "iterations", "fits_done", "cpu_s",
                                                            "megabytes", "rounds", "memory_mb", "load")]  # fmt: skip
            lines.append(f"| {row['data']} | 3 | " + " | ".join(str(each) for each in told) + " |")
    return "\n".join(lines)


def one_level(level: str, popsize: int, iterations: int, folder) -> dict[str, Any]:
    trial = Trial("sonar", 0, folder, parties=3)
    swarm = PsoEvffs(popsize=popsize, iterations=iterations, patience=None, refit=False, protection=level)
    swarm.fit(trial.train)
    return {
        "iterations": iterations, "fits_done": swarm.details_["fits_done"],
        "megabytes": round(swarm.ledger_.bytes() / 1e6, 1), "rounds": swarm.ledger_.rounds(),
        "memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }  # fmt: skip


PARTS = {
    "methods": "Methods (Tables 3 and 5)",
    "inits": "Initialisation (Table 4)",
    "parties": "Encrypted: 2, 3 and 5 parties (Table 6), small swarm",
    "secure": "Encrypted: a whole swarm of the paper's size",
    "levels": "Levels: what a swarm costs where nobody is told a row",
}
SMALL = {"popsize": 10, "iterations": 3, "models": 6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--sets", nargs="+", choices=list(PAPER), default=["sonar", "musk_v1"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", nargs="+", choices=ROWS, help="only these rows of the methods' table")
    parser.add_argument("--quick", action="store_true", help="swarms of 16 x 6 instead of the paper's 50 x 20")
    parser.add_argument("--data", default=None)
    parser.add_argument("--checkpoints", type=Path, help="folder where an interrupted search is kept and goes on")
    parser.add_argument("--out", default=str(Path(__file__).parent / "results" / "pso.md"))
    given = parser.parse_args()
    if given.checkpoints:
        global CHECKPOINTS
        given.checkpoints.mkdir(parents=True, exist_ok=True)
        CHECKPOINTS = given.checkpoints
    out = Path(given.out)
    cells = Cells(out.with_suffix(".jsonl"))
    about = (__doc__ or "").split("[--quick]")[1].strip()
    page = Sections(out, f"# PSO-EVFFS\n\n{about}", list(PARTS.values()))
    whole = SMALL if given.quick else {"popsize": 50, "iterations": 20}
    run = {
        "methods": lambda: methods(given.sets, given.seeds, given.data, given.quick, cells, given.rows),
        "inits": lambda: inits(given.sets, given.seeds, given.data, given.quick, cells),
        "parties": lambda: secure(given.sets, (2, 3, 5), given.seeds, given.data, SMALL, cells),
        "secure": lambda: secure(["sonar"], (3,), 1, given.data, whole, cells),
        "levels": lambda: levels(given.data, given.quick, cells),
    }
    for part in given.parts:
        started, load_before = time.perf_counter(), os.getloadavg()[0]
        quick = " --quick" if given.quick else ""
        command = f"python benchmarks/pso.py --parts {part} --sets {' '.join(given.sets)} --seeds {given.seeds}{quick}"
        page.write(PARTS[part], run[part](), command, started, load_before)


if __name__ == "__main__":
    main()
