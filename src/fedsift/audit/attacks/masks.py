"""Labels and columns from numbers under masks: does anything at all come through?

A waiver that says "uniform to its reader" is an argument. Here it is tried: every whole number that a role got, row by
row, with what is left between any two of them (``numbers_seen.py``), is given to a learner that knows some rows. Masks
that are fresh, of the whole ring and in other hands leave it at a guess, which is what it makes of random numbers; a
mask that is used twice, is too short, or reaches the same reader by another way shows here whatever the protocol is.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.linear_model import LogisticRegression

from fedsift.audit.attacks.embedding_decoder import SHARE, decode, explained
from fedsift.audit.attacks.known_labels import auc_of, draw_known, labels_from_columns
from fedsift.audit.exposure import Measure
from fedsift.audit.numbers_seen import features, masked_numbers, sizes
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View

#: Operations whose request, reply or box holds numbers under masks, a number or more for each row.
MASKED = (
    # boosting on shares
    "hide_gradients", "divide_nodes", "hide_cuts", "keep_cuts", "half_sums", "own_half_sums", "take_cuts",
    "walk_hidden", "route_hidden", "begin_tree", "row_step", "hide_level", "take_winners", "divide_rows", "walk_cuts",
    "walk_rows", "begin_scores", "begin_loss",
    # linear descent, and predictions
    "hide_columns", "share_scores", "residual_shares", "gradient_shares", "logistic.part_scores",
    # networks on shares
    "sine_network.hide_rows", "sine_network.take_rows", "sine_network.send_angles", "sine_network.send_output",
    "sine_network.shorten_error", "sine_network.send_gradients", "sine_network.send_answer",
    # ranks, and measures on shares
    "correlate_ranks", "scores.begin_grading", "scores.grade_on",
)  # fmt: skip
_DRAWS = 5
_BY_LOT = 10  # tables of random numbers: the best that the same learner makes of them is the guess
CAME_OFF = 0.4  # mean size below which a number is not uniform (0.5, with a deviation of 0.29 / sqrt(rows))
_MOST_FEATURES = 60


def _looked_at(view: View, n_rows: int) -> tuple[np.ndarray, str]:
    seen = masked_numbers(view, n_rows)
    table = features(seen)
    if not table.size:
        return table, "nothing to read: no numbers row by row"
    size = sizes(table)
    off = size < CAME_OFF
    chosen = np.nan_to_num(table[:, off] if off.any() else table)[:, :_MOST_FEATURES]
    scaled = chosen / np.maximum(np.abs(chosen).max(axis=0), 1e-300)
    return scaled, f"{table.shape[1]} numbers a row, of {len(seen)} tables; least mean size {size[0]:.2f} of the ring"


def _labels(view: View, truth: Truth) -> Measure:
    table, note = _looked_at(view, len(truth.labels))
    baseline = 0.5
    if view.table is not None:
        known = draw_known(truth.labels)
        baseline = auc_of(truth.labels, known, partial(labels_from_columns, view.columns, known))
    if not table.size:
        return Measure("auc", 0.5, 0.5, baseline, note=note)
    generator = np.random.default_rng(0)
    by_lot = [_learnt(generator.uniform(-1, 1, table.shape), truth.labels) for _ in range(_BY_LOT)]
    known = draw_known(truth.labels)
    rows = _taught(table, known, (truth.labels[known] == truth.labels.max()).astype(int))
    return Measure("auc", _learnt(table, truth.labels), max(0.5, *by_lot), baseline, note=note, rows=rows)


def _learnt(table: np.ndarray, labels: np.ndarray) -> float:
    """Mean AUC over several draws of the known labels."""
    draws = [draw_known(labels, seed=seed) for seed in range(_DRAWS)]
    return float(np.mean([auc_of(labels, known, partial(_taught, table, known)) for known in draws]))


def _taught(table: np.ndarray, known: np.ndarray, labels: np.ndarray) -> np.ndarray:
    model = LogisticRegression(C=1.0, class_weight="balanced", max_iter=300).fit(table[known], labels)
    return np.asarray(model.decision_function(table))


def _columns(view: View, truth: Truth) -> Measure:
    n_rows = len(truth.labels)
    table, note = _looked_at(view, n_rows)
    known = np.sort(np.random.default_rng(0).choice(n_rows, max(20, round(SHARE * n_rows)), replace=False))
    values, baselines, found = [], [], {}
    for party, columns in truth.columns.items():
        if party == view.name or not columns.shape[1]:
            continue
        wanted = np.nan_to_num(columns)
        if view.table is not None:
            baselines.append(explained(wanted, decode(np.nan_to_num(view.columns), wanted, known), known))
        if table.size:
            found[party] = decode(table, wanted, known)
            values.append(explained(wanted, found[party], known))
    baseline = float(np.mean(baselines)) if baselines else 0.0
    return Measure("r2", float(np.mean(values)) if values else 0.0, 0.0, baseline, note=note, columns=found)


@attack(reads=MASKED, role="passive", target="labels", knows="40 labels", declared="denied")
def masks_hide_labels(view: View, truth: Truth) -> Measure:
    """AUC of labels that are learnt from all numbers under masks that the party got."""
    return _labels(view, truth)


@attack(reads=MASKED, role="coordinator", target="labels", knows="40 labels", declared="denied")
def masks_hide_labels_from_coordinator(view: View, truth: Truth) -> Measure:
    """AUC of labels that are learnt from all numbers under masks that the coordinator relays or joins."""
    return _labels(view, truth)


@attack(reads=MASKED, role="active", target="columns", knows="5 % of the rows of the other party", declared="denied")
def masks_hide_columns(view: View, truth: Truth) -> Measure:
    """R2 of the other parties' columns that are learnt from all numbers under masks that the label holder got."""
    return _columns(view, truth)


@attack(reads=MASKED, role="coordinator", target="columns", knows="5 % of the rows of the parties", declared="denied")
def masks_hide_columns_from_coordinator(view: View, truth: Truth) -> Measure:
    """R2 of columns that are learnt from all numbers under masks that the coordinator relays or joins."""
    return _columns(view, truth)
