"""Labels from the weights of a linear model that a party keeps: the linear programme once more (security.md, line 7).

At the optimum the gradient is zero: X'(label - score) follows from the party's own weights, where the score is its own
part, which it can compute, and the others', which it cannot. It takes the others' part for a constant and looks for
labels in [-1, 1], of the known class sizes, whose sums come nearest. The baseline is the sign of its own scores, which
its weights, the answer that it is entitled to, give it anyway.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from fedsift.audit.exposure import Measure
from fedsift.audit.naming import matches
from fedsift.audit.registry import attack
from fedsift.audit.scoring import accuracy, auc, control_accuracy, nothing_to_read, own_rows_accuracy
from fedsift.audit.views import Message, Truth, View
from fedsift.core.table import Table
from fedsift.engineer.flafe.candidates import OwnFeatures
from fedsift.engineer.flafe.joint_moments import PENALTIES
from fedsift.engineer.flafe.statistics import LocalModel
from fedsift.models.design import Design

READS = ("hyfdca.keep_weights", "logistic.keep_weights", "keep_final_weights", "local_residual")
_MOST_ROWS = 1500  # of the programme: some seconds


def nearest_labels(columns: np.ndarray, sums: np.ndarray, total: float) -> np.ndarray | None:
    """Values in [-1, 1] with this total whose sums over the columns come nearest, in absolute distance."""
    rows, width = columns.shape
    cost = np.concatenate([1e-6 * np.random.default_rng(0).normal(size=rows), np.ones(width)])
    left = np.block([[columns.T, -np.eye(width)], [-columns.T, -np.eye(width)]])
    box: list[tuple[float, float | None]] = [(-1.0, 1.0)] * rows + [(0.0, None)] * width
    solved = linprog(
        cost, A_ub=left, b_ub=np.concatenate([sums, -sums]), A_eq=np.append(np.ones(rows), np.zeros(width))[None, :],
        b_eq=[total], bounds=box, method="highs",
    )  # fmt: skip
    return None if solved.x is None else np.asarray(solved.x[:rows])


def _own_weights(view: View, message: Message, own: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The party's columns as the model takes them, and their weights; None where they do not fit."""
    weights = np.asarray(message.content["weights"], dtype=np.float64)
    if matches("local_residual", message.operation):  # FLAFE: of standardised columns and features
        model = view.last_kept(LocalModel)
        return None if model is None or model.design.shape[1] != len(weights) else (model.design, weights)
    if weights.ndim != 2 or weights.shape[1] != 1:
        return None
    if matches("hyfdca.keep_weights", message.operation):  # of principal components, scaled to variance 1
        left, size, _ = np.linalg.svd(own, full_matrices=False)
        own = left[:, : len(weights)] * np.sqrt(len(own)) if len(weights) <= len(size) else own
    return (own, weights[:, 0]) if own.shape[1] == len(weights) else None


def _training(view: View, rows: int) -> np.ndarray:
    """FLAFE fits on its training rows."""
    own = view.last_kept(OwnFeatures)
    return np.ones(rows, dtype=bool) if own is None else own.train


def sums_at_optimum(
    view: View, message: Message, own: np.ndarray, weights: np.ndarray, sizes: tuple[int, int]
) -> np.ndarray:
    """What X't must be for labels t of -1 and 1, were the others' scores constant.

    Half squared distance to the working response (vertical logistic: -2 and 2, a penalty reg_lambda on the mean loss;
    HyFDCA with the logistic loss: a dual is about a half less a quarter of the score, their sum alpha times weights).
    """
    settings, scores = view.job.parameters, own @ weights
    if matches("local_residual", message.operation):  # a ridge of the standardised target, its penalty a small one
        train, (zeros, ones) = _training(view, len(own)), sizes
        mean, spread = (ones - zeros) / (zeros + ones), 2 * np.sqrt(zeros * ones) / (zeros + ones)
        fitted = own[train].T @ scores[train] + PENALTIES[0] * train.sum() * weights
        return np.asarray(spread * fitted + mean * own[train].sum(axis=0))
    if matches("hyfdca.keep_weights", message.operation):
        return np.asarray(2 * (float(settings.get("penalty", 1.0)) * weights + own.T @ scores / 4))
    return np.asarray((own.T @ scores + 4 * len(own) * float(settings.get("reg_lambda", 0.01)) * weights) / 2)


@attack(
    reads=READS, role="passive", target="labels", declared="partly", line=7,
    knows="the class sizes, the parameters of the model",
)  # fmt: skip
def final_weights(view: View, truth: Truth) -> Measure:
    """Labels from the final weights of the party's own columns."""
    told = [message for name in READS for message in view.requests(name)]
    own = _matrix(view.own_table)
    found = _own_weights(view, told[-1], own) if told else None
    if found is None or truth.n_classes != 2 or len(truth.labels) > _MOST_ROWS:
        return nothing_to_read(truth, "no weights, more than two classes, or too many rows for the programme")
    columns, weights = found
    sizes = zeros, ones = truth.class_sizes
    sums, used = sums_at_optimum(view, told[-1], columns, weights, sizes), _training(view, len(columns))
    values = nearest_labels(np.where(used[:, None], columns, 0.0), sums, float(ones - zeros))
    if values is None:
        return nothing_to_read(truth, "no labels explain the weights")
    scores = columns @ weights
    by_scores = (scores > np.quantile(scores, zeros / len(scores))).astype(np.int64)
    baseline = max(own_rows_accuracy(view, truth), accuracy(by_scores, truth.labels))
    labels = (values > 0).astype(np.int64)
    note = f"{len(weights)} columns, {len(labels)} rows; AUC of its own scores {auc(scores, truth.labels):.3f}"
    control = control_accuracy(view, truth, labels)
    return Measure("accuracy", accuracy(labels, truth.labels), truth.guess, baseline, control, note,
                   auc(values, truth.labels))  # fmt: skip


def _matrix(table: Table) -> np.ndarray:
    return Design.fit(table).matrix(table)
