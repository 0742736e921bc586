"""Another party's column from a combined one (FLAFE): whoever gets a * b and knows a divides.

A combined column goes to one of the two parties whose columns are in it. Without noise it has the other's column up to
rounding, wherever its own is not zero; with noise what is left shrinks with the budget. The attack does not know which
formula was used: it tries the combined column itself, less, plus, times and by each of its own operands, and takes for
every column of the other party the one that fits the known rows best, beside its own columns.
"""

from __future__ import annotations

import numpy as np

from fedsift.audit.attacks.embedding_decoder import SHARE, decode, explained
from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View
from fedsift.engineer.flafe.products import Combined, Operands

READS = ("open_combinations", "take_combinations")
_KNOWS = "5 % of the rows of the other party"
_MOST = 40  # combined columns that are looked at


def ways_back(combined: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Rows x guesses at the other operand."""
    found = [combined]
    for column in own.T:
        safe = np.where(np.abs(column) < 1e-6, np.nan, column)[:, None]
        found += [combined - column[:, None], combined / safe, combined * column[:, None]]
    return np.asarray(np.nan_to_num(np.hstack(found), nan=0.0, posinf=0.0, neginf=0.0))


def best_guess(guesses: np.ndarray, wanted: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Each wanted column by the one guess whose ranks follow the known rows best, as a straight line."""
    spread = np.clip(guesses, *np.quantile(guesses[known], [0.02, 0.98], axis=0))
    out = np.zeros_like(wanted, dtype=np.float64)
    left = spread[known] - spread[known].mean(axis=0)
    length = np.maximum(np.linalg.norm(left, axis=0), 1e-12)
    for number, column in enumerate(wanted.T):
        right = column[known] - column[known].mean()
        best = int(np.argmax(np.abs(left.T @ right) / length))
        slope = float(left[:, best] @ right / length[best] ** 2)
        out[:, number] = column[known].mean() + slope * (spread[:, best] - spread[known, best].mean())
    return out


def _measure(view: View, truth: Truth) -> Measure:
    held, own = view.last_kept(Combined), view.last_kept(Operands)
    combined = held.matrix(len(truth.labels))[:, :_MOST] if held is not None else np.zeros((0, 0))
    if own is None or combined.shape[0] != len(truth.labels) or not combined.shape[1]:
        return Measure("r2", 0.0, 0.0, 0.0, note="nothing to read: no combined column came here")
    n_rows = len(truth.labels)
    known = np.sort(np.random.default_rng(0).choice(n_rows, max(20, round(SHARE * n_rows)), replace=False))
    guesses, mine = ways_back(combined, own.columns), np.nan_to_num(view.columns)
    values, baselines, decoded = [], [], {}
    for party, columns in truth.columns.items():
        if party == view.name or not columns.shape[1]:
            continue
        wanted = np.nan_to_num(columns)
        nearest = best_guess(guesses, wanted, known)
        found = [decode(np.column_stack([mine, g]), w[:, None], known) for g, w in zip(nearest.T, wanted.T)]
        decoded[party] = np.hstack(found)
        values.append(explained(wanted, decoded[party], known))
        baselines.append(explained(wanted, decode(mine, wanted, known), known))
    note = f"{combined.shape[1]} combined columns; the mean over all columns of the others, used or not"
    return Measure("r2", float(np.mean(values)), 0.0, float(np.mean(baselines)), note=note, columns=decoded)


@attack(reads=READS, role="active", target="columns", knows=_KNOWS, declared="yes", line=12)
def products_at_holder(view: View, truth: Truth) -> Measure:
    """R2 of the other parties' columns from combined columns that the label holder was given."""
    return _measure(view, truth)


@attack(reads=READS, role="passive", target="columns", knows=_KNOWS, declared="yes", line=12)
def products_at_party(view: View, truth: Truth) -> Measure:
    """R2 of the other parties' columns from combined columns that the party was given."""
    return _measure(view, truth)
