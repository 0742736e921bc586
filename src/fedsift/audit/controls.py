"""The control of an attack: the same knowledge on rows that did not take part (as Anonymeter's control attack does).

Far below the success, the attack has read the rows of this job; near to it, it has learnt what holds for everybody and
a row need not take part to be guessed. No message is about fresh rows, so what was found is carried over to them:

- labels or columns found by a party: a linear model of them on the party's own columns, asked about the fresh rows;
- bins of cells: the nearest found row by the party's own columns;
- who took part: the attack once more, with people who did not take part in the place of those who did;
- a coordinator has no columns that could carry anything over: its control is the guess.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestNeighbors

from fedsift.audit.exposure import Measure
from fedsift.audit.scoring import auc, standardise
from fedsift.audit.views import Fresh, Truth, View

_CELLS = "cells in their true bin"


def control_of(function: Callable[[View, Truth], Measure], target: str, view: View, truth: Truth,
               found: Measure) -> float | None:  # fmt: skip
    """The figure of the control in the attack's own measure; None where there are no fresh rows to ask about."""
    if found.control is not None or truth.fresh is None or found.note.startswith("nothing to read"):
        return found.control
    if target == "membership":
        return float(function(view, _elsewhere(truth)).value) if found.metric == "auc" else None
    about_rows = target == "labels" or found.metric in ("r2", "correlation", "records", _CELLS)
    if not about_rows:
        return None  # names, tables of counts and ids are not of single rows
    if view.table is None:
        return found.guess
    if not view.own_table.columns:
        return None  # a party without columns: nothing carries over
    if found.rows is not None and found.metric == "auc":
        return _labels(view, truth.fresh, found.rows)
    if found.columns is None or view.name not in truth.fresh.columns:
        return None
    return _cells(view, truth, found) if found.metric == _CELLS else _columns(view, truth.fresh, found)


def _elsewhere(truth: Truth) -> Truth:
    """As many people, drawn from half of the fresh rows, none of whom took part; the other half is left as the fresh
    rows."""
    assert truth.fresh is not None
    labels, columns, ids = truth.fresh.labels, truth.fresh.columns, dict(truth.ids)
    generator, half = np.random.default_rng(0), len(labels) // 2
    taken = generator.integers(0, half, len(truth.labels))
    one_table = all(len(each) == len(labels) for each in columns.values())
    if one_table:
        parts = {name: values[taken] for name, values in columns.items()}
        return Truth(
            labels[taken],
            parts,
            Fresh({n: v[half:] for n, v in columns.items()}, labels[half:]),
            ids,
            coded=truth.coded,
        )
    parts = {  # horizontal parties: each has fresh rows of its own
        name: columns[name][generator.integers(0, len(columns[name]) // 2, len(values))]
        for name, values in truth.columns.items()
    }
    rest = {name: values[len(values) // 2 :] for name, values in columns.items()}
    return Truth(labels[taken], parts, Fresh(rest, labels), ids, coded=truth.coded)


def _both(view: View, fresh: Fresh) -> tuple[np.ndarray, np.ndarray]:
    """The party's own columns of the job's rows and of the fresh ones, on one scale."""
    own = view.columns
    both = standardise(np.vstack([own, fresh.columns[view.name]]))
    return both[: len(own)], both[len(own) :]


def _labels(view: View, fresh: Fresh, rows: np.ndarray) -> float | None:
    if view.name not in fresh.columns or len(rows) != view.own_table.n_rows:
        return None
    own, others = _both(view, fresh)
    value = auc(np.asarray(Ridge(alpha=1.0).fit(own, rows).predict(others)), (fresh.labels == fresh.labels.max()) * 1)
    return max(value, 1 - value) if len(np.unique(fresh.labels)) == 2 else value


def _columns(view: View, fresh: Fresh, found: Measure) -> float | None:
    """Mean R2 over all columns (below 0 counts as 0), or mean size of the correlation."""
    own, others = _both(view, fresh)
    values = []
    for party, decoded in (found.columns or {}).items():
        true = np.nan_to_num(fresh.columns[party])
        predicted = np.asarray(Ridge(alpha=1.0).fit(own, decoded).predict(others)).reshape(len(others), -1)
        spread = true.var(axis=0)
        used = spread > 1e-12
        if found.metric == "r2" and used.any():
            share = 1 - ((true - predicted) ** 2).mean(axis=0)[used] / spread[used]
            values.append(float(np.clip(share, 0, 1).mean()))
    return float(np.mean(values)) if values else None


def _cells(view: View, truth: Truth, found: Measure) -> float | None:
    assert truth.fresh is not None
    own, others = _both(view, truth.fresh)
    nearest = NearestNeighbors(n_neighbors=1).fit(own).kneighbors(others, return_distance=False)[:, 0]
    values = []
    for party, guessed in (found.columns or {}).items():
        true, codes = truth.columns[party], (found.bins or {})[party]
        for number in range(guessed.shape[1]):
            like = _codes_like(true[:, number], codes[:, number], truth.fresh.columns[party][:, number])
            values.append(float((guessed[nearest, number] == like).mean()))
    return float(np.mean(values)) if values else None


def _codes_like(values: np.ndarray, codes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Bins of other values: those of the nearest value that has one."""
    order = np.argsort(np.nan_to_num(values), kind="stable")
    known = np.nan_to_num(values)[order]
    place = np.searchsorted(known, np.nan_to_num(others))
    left, right = np.clip(place - 1, 0, len(known) - 1), np.clip(place, 0, len(known) - 1)
    asked = np.nan_to_num(others)
    nearer = np.where(np.abs(known[left] - asked) <= np.abs(known[right] - asked), left, right)
    return np.asarray(codes[order[nearer]])
