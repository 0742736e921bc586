"""Labels from what would tell a party how much its columns matter: scores of shadows, losses when it shuffles.

One score a column tells labels from about one column a row on (``scores.py``). Two methods make as many more numbers
as are asked for, of columns that the party can make itself, because it draws them:

- *shadows* (Boruta): copies of its columns in an order of its own. Ten rounds are ten times as many scores.
- *permutation importance*: how much worse the model is when one of its columns is shuffled. With w the column's weight
  and p the party's own draw, the change of an AUC is nearly linear in the labels: w (x - x[p])'y, and each repeat is an
  equation of its own.

So neither may be told to a party that holds rows: gains and figures go to a coordinator without any.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.inversion import VarianceScore, invert
from fedsift.audit.registry import attack
from fedsift.audit.scoring import (
    accuracy,
    auc,
    control_accuracy,
    nothing_to_read,
    own_rows_accuracy,
    own_rows_auc,
    standardise,
)
from fedsift.audit.views import Truth, View

_MOST_SCORES = 400


def _shadowed(view: View) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Columns with their shadows (rows x columns), and the exact scores that were told of them."""
    for message in view.requests("hear_gains"):
        columns = view.columns
        for order, scores in zip(message.content["orders"], message.content["scores"]):
            yield columns[np.asarray(order)], np.asarray(scores, dtype=np.float64)


@attack(
    reads=["add_shadows", "hear_gains"], role="passive", target="labels", declared="denied",
    knows="its own shadows, how columns are scored, the class sizes and names",
)  # fmt: skip
def scores_of_shadows(view: View, truth: Truth) -> Measure:
    """Labels from exact scores of the party's columns and of their shadows."""
    told = list(_shadowed(view))
    if not told or truth.n_classes != 2:
        return nothing_to_read(truth, "no score of a column or shadow is told to a party")
    columns = standardise(np.hstack([part for part, _ in told])[:, :_MOST_SCORES])
    found = invert(VarianceScore(columns, truth.class_sizes), np.concatenate([s for _, s in told])[:_MOST_SCORES],
                   truth.class_sizes[1])  # fmt: skip
    named = found if accuracy(found, truth.labels) >= 0.5 else 1 - found
    note = f"{columns.shape[1]} scores of {view.columns.shape[1]} columns and their shadows"
    return Measure("accuracy", accuracy(named, truth.labels), truth.guess, own_rows_accuracy(view, truth),
                   control_accuracy(view, truth, named), note, auc(named, truth.labels))  # fmt: skip


@attack(
    reads=["tell_figures", "hear_figures"], role="passive", target="labels", declared="denied",
    knows="its own weights, and in which order it has shuffled each of its columns",
)  # fmt: skip
def importances_give_labels(view: View, truth: Truth) -> Measure:
    """AUC of labels that are solved for from how much worse a model gets when the party shuffles a column."""
    equations, losses = [], []
    for message in view.requests("hear_figures"):
        column = standardise(view.columns)[:, int(message.content["column"])]
        order, weight = np.asarray(message.content["order"]), float(message.content["weight"])
        equations.append(weight * (column - column[order]))
        losses.append(float(message.content["loss"]))
    if not equations or truth.n_classes != 2:
        note = "nothing to read: figures are opened by the coordinator, from halves"
        return Measure("auc", 0.5, 0.5, own_rows_auc(view, truth), note=note)
    matrix, wanted = np.array(equations), np.array(losses)
    products = matrix @ matrix.T
    penalty = 0.01 * np.trace(products) / len(products) * np.eye(len(products))
    score = matrix.T @ np.linalg.solve(products + penalty, wanted)
    note = f"{len(losses)} figures of {view.columns.shape[1]} columns"
    return Measure("auc", auc(score, truth.labels), 0.5, own_rows_auc(view, truth), note=note, rows=score)
