"""Measures of predictions against the truth, and class probabilities from raw scores. Plain functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, f1_score, r2_score, roc_auc_score

from fedsift.errors import ParameterError, ReplyError

#: Measures by task; the first is the one that a comparison sorts by.
METRICS = {
    "classification": ("accuracy", "auc", "f1_micro", "f1_macro"),
    "regression": ("r2", "1-rae"),
    "survival": ("c_index",),
}


def check_metrics(metrics: Any, task: str) -> tuple[str, ...]:
    known = METRICS[task]
    if metrics is None:
        return known
    names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in names:
        if name not in known:
            raise ParameterError(f"metrics for {task} are {', '.join(known)}; got {name!r}")
    if not names:
        raise ParameterError(f"metrics is empty; choose from {', '.join(known)}")
    return names


def measure(metric: str, y: np.ndarray, predicted: np.ndarray) -> float:
    """One of the measures that need predictions only."""
    if metric == "accuracy":
        return float(accuracy_score(y, predicted))
    if metric in ("f1_micro", "f1_macro"):
        return float(f1_score(y, predicted, average=metric[3:], zero_division=0.0))
    if metric == "r2":
        return float(r2_score(y, predicted)) if len(y) > 1 else float("nan")
    if metric == "1-rae":
        return one_minus_rae(y, predicted)
    raise ParameterError(f"no measure {metric!r}")


def one_minus_rae(y: np.ndarray, predicted: np.ndarray) -> float:
    """1 - relative absolute error: 1 is perfect, 0 is as good as always saying the mean of these rows."""
    spread = np.abs(y - y.mean()).sum()
    return float(1.0 - np.abs(y - predicted).sum() / spread) if spread > 0 else float("nan")


def auc(y: np.ndarray, confidence: np.ndarray, classes: Sequence[Any] | NDArray[Any]) -> float:
    """Area under the ROC curve; more than two classes: each against the rest, averaged over the classes in ``y``.

    A class that the training rows did not have gets no scores, so it counts as a coin toss.
    """
    if confidence.ndim == 1:
        confidence = np.column_stack([-confidence, confidence])
    present = [k for k in np.unique(y) if (y != k).any()]
    if not present:
        return float("nan")
    if len(classes) == 2 and set(present) <= set(classes):
        return float(roc_auc_score(y == classes[1], confidence[:, 1]))
    column = {k: i for i, k in enumerate(classes)}
    values = [roc_auc_score(y == k, confidence[:, column[k]]) if k in column else 0.5 for k in present]
    return float(np.mean(values))


def fitting(scores: NDArray[np.float64], classes: Sequence[object], holder: str) -> NDArray[np.float64]:
    """Scores as the label holder sent them: as many a row as there are classes, one for two of them or for a number,
    which has none."""
    fits = {0: {1}, 1: set(), 2: {1, 2}}.get(len(classes), {len(classes)})
    if scores.ndim != 2 or scores.shape[1] not in fits:
        raise ReplyError(holder, "predict", "another number of scores a row than the model has classes")
    return scores


def probabilities(scores: np.ndarray, link: str = "softmax") -> NDArray[np.float64]:
    """Rows x classes from raw scores: one a row (of the second class) or one a class."""
    if link == "given":
        return np.asarray(scores, dtype=np.float64)
    if scores.shape[1] == 1:
        second = 1.0 / (1.0 + np.exp(-np.clip(scores, -500.0, 500.0)))
        return np.hstack([1.0 - second, second])
    if link == "one against the rest":  # the chances of all classes are brought to a sum of 1
        chance = 1.0 / (1.0 + np.exp(-np.clip(scores, -500.0, 500.0)))
        return np.asarray(chance / np.maximum(chance.sum(axis=1, keepdims=True), 1e-12))
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
