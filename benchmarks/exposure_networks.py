"""What the attacks on split networks reach on every default, mean over twenty draws, beside the same without a message.

    python benchmarks/exposure_networks.py --data DIR [--sets phishing] [--methods splitnn] [--draws 20] [--jobs 16]
    python benchmarks/exposure_networks.py --render

A draw is a sample of 1,200 rows of the table, the two parties' columns (first and second half), a seed, and the rows or
labels that the attacker knows. For each default the passive party's and the label holder's whole views are recorded.

Labels, at the passive party, as AUC:

- *spectral*, *norm* (no label known; counted the better way round): each row's side along the first singular vector of
  its batch's numbers, and their length, over all tables of numbers under masks that the party got;
- *cosine* and *learner* (40 labels): closeness to known rows of either class, and a logistic regression on the least
  spread of these numbers;
- *batch gradients* (40 labels): the party solves each sum over a batch that it got, a number for each of its inputs,
  for the batch's rows, which it knows, and takes the cosine of what comes out;
- *heard* (no label; 40 labels): from which of its columns were said to go on, and when they left (``gate_bits.py``), by
  inversion, or as weights of its columns in a learner. Without a message: the columns kept, the answer, as weights, or
  no weights at all, whichever is better in the mean.

Columns, at the label holder, as R2 over the other party's columns: a *decoder* (5 % of the rows known) on all numbers
under masks, on all outputs that it read while the method ran and one prediction afterwards; *replay*: the first
batch's angles with first weights from the announced seed. Without a message: its own columns (and the prediction).

Without a message each attack gets uniform numbers of the same shape in the place of what it read.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from exposure import load
from provenance import commit
from sklearn.linear_model import LogisticRegression

from fedsift import methods as select
from fedsift.audit import record
from fedsift.audit.attacks.embedding_decoder import SHARE, decode, explained
from fedsift.audit.attacks.gate_bits import heard_of_columns, labels_from_gates
from fedsift.audit.attacks.known_labels import auc_of, draw_known
from fedsift.audit.attacks.many_scores import scores_read
from fedsift.audit.inversion import VarianceScore, from_kept
from fedsift.audit.numbers_seen import _batches, features, masked_numbers, rows_by_view
from fedsift.audit.scoring import auc, own_component, standardise
from fedsift.audit.views import Truth, View
from fedsift.core.message import walk
from fedsift.models.splitnn.layers import sine

HERE = Path(__file__).parent
ROWS_FILE, TABLE = HERE / "results" / "exposure_networks.jsonl", HERE / "results" / "exposure_networks.md"
SETS = ("phishing", "default", "bank")
N_ROWS, WIDEST = 1200, 60
LOTS = 4  # sets of known rows, and of uniform numbers, over which a draw takes the mean
PARTIES = ["bank", "shop"]


def _splitnn(seed: int) -> Any:
    from fedsift.models.splitnn.model import SplitNN

    return SplitNN(epochs=5, random_state=seed)


#: As they come, with fewer epochs: what an attack reads is there from the first ones; gates get all of theirs.
METHODS: dict[str, Callable[[int], Any]] = {
    "splitnn": _splitnn,
    "fedsdg": lambda seed: select.FedSDG(refit_epochs=2, random_state=seed),
    "stochastic_gate": lambda seed: select.StochasticGate(refit_epochs=2, random_state=seed),
    "group_lasso": lambda seed: select.GroupLasso(epochs=10, refit_epochs=2, random_state=seed),
    "vflfs": lambda seed: select.VFLFS(epochs=10, pretrain_epochs=2, refit_epochs=2, random_state=seed),
    "less_vfl": lambda seed: select.LessVFL(epochs=5, random_state=seed),
}


# --- labels, from numbers under masks -------------------------------------------------------------------------------


def either_way(score: np.ndarray, labels: np.ndarray) -> float:
    value = auc(score, labels)
    return max(value, 1 - value)


def spectral(table: np.ndarray) -> np.ndarray:
    """Side of each row along the first singular vector (Sun et al. 2022)."""
    centred = table - table.mean(axis=0)
    return np.asarray(centred @ np.linalg.svd(centred, full_matrices=False)[2][0])


def norm(table: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.norm(table, axis=1))


def cosine(table: np.ndarray, known: np.ndarray, hit: np.ndarray) -> np.ndarray:
    """Cosine to known rows of either class (Li et al. 2022)."""
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-300)
    sign = np.where(hit == 1, 1.0 / max(hit.sum(), 1), -1.0 / max((1 - hit).sum(), 1))
    return np.asarray(unit @ (unit[known].T @ sign))


def learnt(table: np.ndarray, known: np.ndarray, hit: np.ndarray) -> np.ndarray:
    model = LogisticRegression(class_weight="balanced", max_iter=300).fit(table[known], hit)
    return np.asarray(model.decision_function(table))


Known = list[np.ndarray]


def with_labels(attack: Callable[..., np.ndarray], table: np.ndarray, labels: np.ndarray, known: Known) -> float:
    """Mean AUC over several sets of known rows."""
    return float(np.mean([auc_of(labels, rows, partial(attack, table, rows)) for rows in known]))


def label_attacks(table: np.ndarray, labels: np.ndarray, known: Known) -> dict[str, float]:
    return {
        "spectral": either_way(spectral(table[:, : 4 * WIDEST]), labels), "norm": either_way(norm(table), labels),
        "cosine": with_labels(cosine, table, labels, known),
        "learner": with_labels(learnt, table[:, :WIDEST], labels, known),
    }  # fmt: skip


def batch_gradients(
    view: View, n_rows: int, columns: np.ndarray, lots: np.random.Generator | None = None
) -> np.ndarray:
    """Each sum over a batch that has a line for each input, solved for the rows of the batch: one table of rows.

    ``lots``: of uniform numbers in the place of what the party got.
    """
    views = rows_by_view(view, n_rows)
    batches, tables = _batches(view, views), []
    for box in view.boxes:
        rows = batches.get((box.session, box.step))
        if not box.is_opened or rows is None or len(tables) >= 40:
            continue
        for array in walk(box.content):
            if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 3:
                continue
            if array.shape[0] == len(rows):  # a line a row: looked at above
                continue
            sums = sine.signed(sine.lengthened(array)) / 2.0**63
            sums = sums if lots is None else lots.uniform(-1, 1, sums.shape)
            inputs = min(sums.shape[0], columns.shape[1])
            found = np.full((n_rows, sums.shape[1]), 0.0)
            found[rows] = np.linalg.lstsq(columns[rows][:, :inputs].T, sums[:inputs], rcond=1e-3)[0]
            tables.append(found)
    return np.hstack(tables)[:, : 8 * WIDEST] if tables else np.zeros((n_rows, 0))


# --- labels, from what a party hears of its columns ------------------------------------------------------------------


def heard(view: View) -> np.ndarray | None:
    """A number a column: how long it stayed among gates, or whether LESS-VFL's screen let it pass."""
    for message in view.requests("match_components"):
        return np.asarray(message.content["passed"], dtype=np.float64)
    return heard_of_columns(view)


Reached = tuple[str, float, float] | tuple[str, float, float, float]


def heard_attacks(view: View, truth: Truth, known: Known) -> Iterator[Reached]:
    """With what was heard, and with the columns kept alone; in a learner also with all columns alike."""
    told = heard(view)
    kept = view.kept if view.kept is not None else np.ones(len(view.own_table.columns), dtype=bool)
    if told is None or len(told) != view.columns.shape[1]:
        return
    columns, ones = standardise(view.columns), truth.class_sizes[1]
    score = VarianceScore(columns, truth.class_sizes)
    own = either_way(own_component(columns), truth.labels)
    hinted = from_kept(score, kept, ones)
    answer = own if hinted is None else max(own, either_way(hinted.astype(float), truth.labels))
    by_time = own
    if np.ptp(told) > 0:
        by_time = either_way(labels_from_gates(score, told, ones).astype(float), truth.labels)
    yield "heard", by_time, answer
    stays = 0.2 + 0.8 * told / max(told.max(), 1e-12)
    chosen = 0.2 + 0.8 * kept
    yield (
        "heard, 40 labels", with_labels(learnt, columns * stays, truth.labels, known),
        with_labels(learnt, columns * chosen, truth.labels, known), with_labels(learnt, columns, truth.labels, known),
    )  # fmt: skip


# --- columns ----------------------------------------------------------------------------------------------------


def replayed(view: View, n_rows: int, seed: int, wanted: np.ndarray, lots: np.random.Generator | None = None) -> float:
    """Correlation squared of the other party's columns, from the first angles and first weights of the seed."""
    batches = _batches(view, rows_by_view(view, n_rows))
    for box in view.boxes:
        rows = batches.get((box.session, box.step))
        if not box.is_opened or box.about != "angles" or rows is None:
            continue
        angles = np.asarray(box.content).astype(np.uint16).view(np.int16) / 2.0**15
        angles = angles if lots is None else lots.uniform(-1, 1, angles.shape)
        weights = sine.first_weights(np.random.default_rng(seed), wanted.shape[1], wanted.shape[1], angles.shape[1])
        found = np.linalg.lstsq(sine.signed(weights).T / 2.0**58, angles.T, rcond=None)[0].T
        pairs = [np.corrcoef(found[:, j], wanted[rows][:, j])[0, 1] for j in range(wanted.shape[1])]
        return float(np.mean(np.nan_to_num(pairs) ** 2))
    return 0.0


def column_attacks(view: View, truth: Truth, seed: int, generator: np.random.Generator) -> Iterator[Any]:
    n_rows = len(truth.labels)
    known = np.sort(generator.choice(n_rows, max(20, round(SHARE * n_rows)), replace=False))
    wanted = np.nan_to_num(next(columns for name, columns in truth.columns.items() if name != view.name))
    own = np.nan_to_num(view.columns)

    def reached(table: np.ndarray) -> float:
        return explained(wanted, decode(table, wanted, known), known)

    table = np.nan_to_num(features(masked_numbers(view, n_rows)))[:, :WIDEST]
    by_lot = generator.uniform(-1, 1, table.shape)
    if table.size:
        yield "decoder, masks", reached(np.hstack([own, table])), reached(np.hstack([own, by_lot]))
    outputs = [scores for scores in scores_read(view) if len(scores) == n_rows]
    if outputs:
        one = np.hstack([own, outputs[-1]])
        yield "decoder, one prediction", reached(one), reached(own)
    scaled = standardise(wanted)
    yield "replay", replayed(view, n_rows, seed, scaled), replayed(view, n_rows, seed, scaled, generator)


# --- a cell ----------------------------------------------------------------------------------------------------


def conversation(method: Any) -> Callable[[Any], Any]:
    """Fit, then one prediction by the network, as its user would."""

    def talk(fed: Any) -> Any:
        fitted = method.fit(fed)
        (fitted.network_ if hasattr(fitted, "network_") else fitted).predict(fed)
        return fitted

    return talk


def cell(name: str, data: str, draw: int, folder: Path) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    begun = time.process_time()
    X, y, _ = load(data, folder, 4 * N_ROWS)
    generator = np.random.default_rng([draw, 17])
    rows = np.sort(generator.choice(len(y), min(N_ROWS, len(y)), replace=False))
    X, y = X.iloc[rows].reset_index(drop=True), np.asarray(y)[rows]
    seen = record(X, y, conversation(METHODS[name](draw)), parties=PARTIES)
    labels = seen.truth.labels
    known = [draw_known(labels, seed=LOTS * draw + each) for each in range(LOTS)]
    party, holder = (seen[each] for each in PARTIES[::-1])
    found: list[Reached] = []
    table = np.nan_to_num(features(masked_numbers(party, len(labels))))
    if table.size:
        lots = [label_attacks(generator.uniform(-1, 1, table.shape), labels, known[:1]) for _ in range(LOTS)]
        for attack, value in label_attacks(table, labels, known).items():
            found.append((attack, value, float(np.mean([lot[attack] for lot in lots]))))
    own = standardise(party.columns)
    solved = batch_gradients(party, len(labels), own)
    if solved.size:
        lots_solved = batch_gradients(party, len(labels), own, generator)
        found.append((
            "batch gradients", with_labels(cosine, solved, labels, known),
            with_labels(cosine, lots_solved, labels, known),
        ))  # fmt: skip
    found += list(heard_attacks(party, seen.truth, known))
    found += list(column_attacks(holder, seen.truth, draw, generator))
    spent = round(time.process_time() - begun, 2)
    return [
        {"method": name, "data": data, "draw": draw, "attack": attack, "value": round(value, 4),
         "without": round(base, 4), **({"alike": round(more[0], 4)} if more else {}), "CPU seconds": spent}
        for attack, value, base, *more in found
    ]  # fmt: skip


def table_of(rows: list[dict[str, Any]]) -> str:
    """One line an attack and method: on each set the mean with messages, and what they add."""
    frame = pd.DataFrame(rows).drop_duplicates(["method", "data", "draw", "attack"], keep="last")
    lines = ["| attack | method | " + " | ".join(f"{s} | adds" for s in SETS) + " | draws |",
             "|---|---|" + "--:|--:|" * len(SETS) + "--:|"]  # fmt: skip
    for attack in dict.fromkeys(frame["attack"]):
        for method in METHODS:
            cells, most = [], 0
            for data in SETS:
                part = frame[(frame["attack"] == attack) & (frame["method"] == method) & (frame["data"] == data)]
                most = max(most, len(part))
                mean, base = part["value"].mean(), part["without"].mean()
                if "alike" in part and part["alike"].notna().all():
                    base = max(base, part["alike"].mean())
                cells += ["", ""] if part.empty else [f"{mean:.3f}", f"{mean - base:+.3f}"]
            if most:
                lines.append(f"| {attack} | {method} | " + " | ".join(cells) + f" | {most} |")
    commits = ", ".join(sorted(set(frame["commit"])))
    return (
        "# Attacks on networks\n\n`python benchmarks/exposure_networks.py --data DIR`, then `--render`. "
        f"{N_ROWS} rows a draw. Labels: AUC at the passive party; decoders and replay: R2 of the other party's columns "
        "at the label holder. *adds*: the mean less that of the same attack without any message (uniform numbers in "
        f"place of masked ones; the columns kept, or its own columns, alone, whichever is better). "
        f"Commits: {commits}.\n\n"
        + "\n".join(lines) + "\n"
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("FEDSIFT_DATA"))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROWS_FILE)
    parser.add_argument("--render", action="store_true")
    given = parser.parse_args()
    if not given.render:
        at = os.environ.get("FEDSIFT_COMMIT") or commit()
        cells = [(m, s, d) for d in range(given.draws) for m in given.methods for s in given.sets]
        with ProcessPoolExecutor(given.jobs) as pool, given.out.open("a", encoding="utf-8") as file:
            waiting = {pool.submit(cell, *each, Path(given.data)): each for each in cells}
            for done in as_completed(waiting):
                for row in done.result():
                    file.write(json.dumps({**row, "commit": at}) + "\n")
                file.flush()
                print(*waiting[done], flush=True)
        return
    rows = [json.loads(line) for line in given.out.read_text(encoding="utf-8").splitlines() if line.strip()]
    TABLE.write_text(table_of(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
