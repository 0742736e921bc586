"""Stability of columns between two samples of rows: what the samples tell of a column, and a figure of a row.

- *sides*: where a job parts rows by the value of one party's column (``by``, ``at``), everybody is told which rows the
  two samples have. That is a bit of the column for each row; two jobs at other values are two bits. Whoever knows the
  column for a few rows has the rest as exactly as these bits go.
- *a row that moved*: the index of a column with and without one row says which bin that row is in, up to the name of
  the bin: rows that move it by the same amount are in the same bin. Two digits of a sum over hundreds of rows do not
  move; exact ones do.
"""

from __future__ import annotations

import numpy as np

from fedsift.audit.attacks.embedding_decoder import SHARE, decode, explained
from fedsift.audit.exposure import Measure
from fedsift.audit.numbers_seen import rows_by_view
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc
from fedsift.audit.views import Truth, View

_BINS = 10
_MOST_COLUMNS = 50


@attack(
    reads=["sample_rows", "keep_sample"], role="active", target="columns", declared="yes",
    knows="5 % of the rows of the other party, and the column by which the job parts rows",
)  # fmt: skip
def sides_give_column(view: View, truth: Truth) -> Measure:
    """R2 of the column by whose values rows were parted, from which rows lie on which side."""
    n_rows = len(truth.labels)
    rows = rows_by_view(view, n_rows)
    sides: dict[tuple[str, str], list[np.ndarray]] = {}
    for message in view.requests("keep_sample"):
        by, _, column = str(view.job_of(message.session).parameters.get("by") or "").partition(".")
        if by != view.name and column in truth.names.get(by, ()) and message.view in rows:
            sides.setdefault((by, column), []).append(np.isin(np.arange(n_rows), rows[message.view]))
    own, values, baselines = np.nan_to_num(view.columns), [], []
    known = np.sort(np.random.default_rng(0).choice(n_rows, max(20, round(SHARE * n_rows)), replace=False))
    for (party, column), bits in sides.items():
        wanted = np.nan_to_num(truth.columns[party][:, [list(truth.names[party]).index(column)]])
        sides_of = np.unique(np.array(bits), axis=1, return_inverse=True)[1].reshape(-1)
        values.append(explained(wanted, _means(sides_of, wanted, known), known))
        baselines.append(explained(wanted, decode(own, wanted, known), known))
    if not values:
        return Measure("r2", 0.0, 0.0, 0.0, note="nothing to read: no rows were parted by another party's column")
    note = f"{sum(map(len, sides.values()))} parts by {len(sides)} columns"
    return Measure("r2", float(np.mean(values)), 0.0, float(np.mean(baselines)), note=note)


def _means(codes: np.ndarray, wanted: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Of each row what the known rows on its side have on average."""
    found = np.full(wanted.shape, wanted[known].mean())
    for code in np.unique(codes[known]):
        found[codes == code] = wanted[known][codes[known] == code].mean()
    return found


@attack(
    reads=["compare_sample"], role="coordinator", target="columns", declared="no defence",
    knows="which row was left out of each of the later jobs",
)  # fmt: skip
def index_of_row_left_out(view: View, truth: Truth) -> Measure:
    """AUC of which rows share a bin of a column, from how far each row moves its stability index."""
    n_rows = len(truth.labels)
    rows = rows_by_view(view, n_rows)
    told: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for message in view.replies("compare_sample"):
        if message.view in rows:
            told.setdefault(message.party, []).append((rows[message.view], np.asarray(message.content, dtype=float)))
    values = []
    for party, runs in told.items():
        whole, first = max(runs, key=lambda run: len(run[0]))
        later = [(np.setdiff1d(whole, r), psi - first) for r, psi in runs if len(r) == len(whole) - 1]
        if len(later) < 2 or any(len(gone) != 1 for gone, _ in later):
            continue
        places, moves = np.array([gone[0] for gone, _ in later]), np.array([move for _, move in later])
        one, other = np.triu_indices(len(places), 1)
        for column in range(min(moves.shape[1], _MOST_COLUMNS)):
            numbers = truth.columns[party][:, column]
            bins = np.searchsorted(np.nanquantile(numbers, np.arange(1, _BINS) / _BINS), numbers)[places]
            same = (bins[one] == bins[other]).astype(np.int64)
            values.append(auc(-np.abs(moves[one, column] - moves[other, column]), same))
    if not values:
        return Measure("auc", 0.5, 0.5, 0.5, note="nothing to read: no two jobs about rows and rows less one")
    return Measure("auc", float(np.mean(values)), 0.5, 0.5, note=f"{len(values)} columns")
