"""How attacks are scored, and what their attacker reaches without the messages.

Labels are scored by accuracy (or AUC where the attack gives a ranking). The baseline of a party that knows no label is
what its own rows say: two clusters, or the first principal component, with the orientation given to it for nothing.
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from fedsift.audit.exposure import Measure
from fedsift.audit.views import Truth, View


def accuracy(found: np.ndarray, labels: np.ndarray) -> float:
    return float((found == labels).mean())


def up_to_names(found: np.ndarray, labels: np.ndarray) -> float:
    """Accuracy for two classes when the attack says who belongs together and not which class it is: the better name."""
    return max(accuracy(found, labels), accuracy(1 - found, labels))


def auc(score: np.ndarray, labels: np.ndarray) -> float:
    """Chance that a row of class 1 ranks above one of class 0; ties count half."""
    positive = labels == 1
    if positive.all() or not positive.any():
        return 0.5
    order = np.argsort(score, kind="stable")
    _, place, count = np.unique(score[order], return_inverse=True, return_counts=True)
    rank = np.empty(len(score))
    rank[order] = (np.cumsum(count) - (count - 1) / 2)[place]
    ones = int(positive.sum())
    return float((rank[positive].sum() - ones * (ones + 1) / 2) / (ones * (len(score) - ones)))


def standardise(columns: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1, missing values at the mean, constant columns zero."""
    filled = np.where(np.isnan(columns), np.nanmean(np.where(np.isnan(columns).all(axis=0), 0.0, columns), axis=0),
                      columns)  # fmt: skip
    centred = filled - filled.mean(axis=0)
    spread = centred.std(axis=0)
    return np.asarray(centred / np.where(spread > 1e-12, spread, 1.0))


def own_component(columns: np.ndarray) -> np.ndarray:
    """A number for each row from its own columns alone: the first principal component."""
    values = standardise(columns)
    if values.shape[1] == 0:
        return np.zeros(len(values))
    left, size, _ = np.linalg.svd(values, full_matrices=False)
    return np.asarray(left[:, 0] * size[0])


def own_rows_accuracy(view: View, truth: Truth) -> float:
    """Accuracy of a party's own rows cut at the class share along the first component, the better way round.

    The coordinator has no rows: it guesses.
    """
    if view.table is None or len(np.unique(truth.labels)) != 2:
        return truth.guess
    score = own_component(view.columns)
    ones = int((truth.labels == 1).sum())
    order = np.argsort(score, kind="stable")
    best = truth.guess
    for ranked in (order, order[::-1]):
        found = np.zeros(len(score), dtype=np.int64)
        found[ranked[len(score) - ones :]] = 1
        best = max(best, accuracy(found, truth.labels))
    return best


def own_rows_auc(view: View, truth: Truth) -> float:
    """AUC of the first component of a party's own rows, the better way round; 0.5 for the coordinator."""
    if view.table is None:
        return 0.5
    value = auc(own_component(view.columns), truth.labels)
    return max(value, 1 - value)


def control_accuracy(view: View, truth: Truth, found: np.ndarray) -> float | None:
    """What the labels found say about rows that did not take part: a linear model of them on the party's own columns.

    Far below the attack's success, the attack read these rows; near to it, it learnt what holds for everybody. None
    without fresh rows or without a table.
    """
    if truth.fresh is None or view.table is None or not view.own_table.columns or len(np.unique(found)) != 2:
        return None
    own, fresh = view.columns, truth.fresh.columns[view.name]
    both = standardise(np.vstack([own, fresh]))
    model = LogisticRegression(max_iter=200).fit(both[: len(own)], found)
    return accuracy(model.predict(both[len(own) :]), truth.fresh.labels)


def nothing_to_read(truth: Truth, why: str) -> Measure:
    """For attacks on labels whose message is not there (any more)."""
    return Measure("accuracy", truth.guess, truth.guess, truth.guess, note=f"nothing to read: {why}")
