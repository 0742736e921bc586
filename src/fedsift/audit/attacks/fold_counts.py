"""Labels from how many rows of each class the folds have, which the coordinator is told beside each figure.

A figure on shares comes with the number of rows of each class among the rows that it is about, and the coordinator
knows which rows these are (it relays the views). Each count is an equation about labels with coefficients 0 and 1: ten
folds tell next to nothing about 800 rows, rows with and without one tell that row's label, and as many random subsets
as a half of the rows would tell all labels. A site's journal refuses row sets that cut its table into parts of fewer
than ``min_rows`` rows.
"""

from __future__ import annotations

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.numbers_seen import rows_by_view
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc
from fedsift.audit.views import Truth, View

_PULL = 1e-3


@attack(
    reads=["scores.tell_figures", "count_classes"], role="coordinator", target="labels", declared="in words",
    knows="which rows each figure is about",
)  # fmt: skip
def fold_counts_give_labels(view: View, truth: Truth) -> Measure:
    """AUC of labels that are solved for from the class sizes of all folds on which figures were opened."""
    n_rows = len(truth.labels)
    rows = rows_by_view(view, n_rows)
    counts: dict[bytes, tuple[np.ndarray, float]] = {}
    for name in ("scores.tell_figures", "count_classes"):
        for message in view.replies(name):
            facts = np.asarray(message.content["facts"], dtype=np.float64)
            if len(facts) == 2 and message.view in rows:
                counts[rows[message.view].tobytes()] = (rows[message.view], facts[1])
    if not counts or truth.n_classes != 2:
        return Measure("auc", 0.5, 0.5, 0.5, note="nothing to read: no figures on shares of two classes")
    matrix = np.zeros((len(counts), n_rows))
    for line, (inside, _) in zip(matrix, counts.values()):
        line[inside] = 1.0
    wanted = np.array([count for _, count in counts.values()], dtype=np.float64)
    share = wanted.sum() / matrix.sum()
    gram = matrix @ matrix.T + _PULL * np.eye(len(matrix))
    score = matrix.T @ np.linalg.solve(gram, wanted - share * matrix.sum(axis=1))
    return Measure("auc", auc(score, truth.labels), 0.5, 0.5, note=f"{len(counts)} sets of rows")
