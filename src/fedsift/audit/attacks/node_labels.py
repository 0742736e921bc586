"""Labels from the rows that lie together in the nodes of boosted trees, with a few labels known.

A tree is grown so that the rows of a node have like gradients, and the gradient of a row is its label less the model's
opinion so far. A party that is told which rows lie in which node (SecureBoost's instance spaces) therefore sees which
rows are alike *in the label*, whatever its own columns say. Forty known labels are enough to name the groups: they are
spread over the graph of rows and nodes (Zhou et al. 2003, as a walk from rows to nodes and back).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy import sparse

from fedsift.audit.attacks.known_labels import auc_of, draw_known, labels_from_columns
from fedsift.audit.boost_messages import leaves_seen
from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View

_FROM_NODES = 0.9  # of a row's opinion comes from the nodes it lies in; the rest is its own, known or none
_ROUNDS = 30
_DRAWS = 5  # of the known labels: a single draw of 40 says little


def leaf_matrix(trees: Sequence[np.ndarray]) -> sparse.csr_matrix:
    """Rows x leaves of all trees, from the number of each row's deepest node in each tree."""
    blocks = []
    for codes in trees:
        place = np.unique(codes, return_inverse=True)[1]
        blocks.append(sparse.csr_matrix((np.ones(len(place)), (np.arange(len(place)), place))))
    return sparse.hstack(blocks).tocsr()


def spread_labels(trees: Sequence[np.ndarray], known: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """A score of every row for class 1: the known labels (0 or 1) walk from rows to nodes and back."""
    inside = leaf_matrix(trees)
    start = np.zeros(inside.shape[0])
    share = labels.mean()
    start[known] = np.where(labels == 1, 1 / max(share, 1e-9), -1 / max(1 - share, 1e-9))
    up = sparse.diags(1 / np.asarray(inside.sum(axis=0)).ravel()) @ inside.T
    down = inside / len(trees)
    score = start
    for _ in range(_ROUNDS):
        score = _FROM_NODES * (down @ (up @ score)) + (1 - _FROM_NODES) * start
    return score


@attack(
    reads=["level_sums", "route_rows"],
    role="passive",
    target="labels",
    knows="40 labels, its own columns",
    declared="in words",
    line=4,
)
def nodes_give_labels(view: View, truth: Truth) -> Measure:
    """AUC of the spread labels over the other rows, the mean of several draws of the known ones.

    Classes one against the rest where there are several.
    """
    trees = [codes for codes in leaves_seen(view) if len(np.unique(codes)) > 1]
    values, baselines = [], []
    for seed in range(_DRAWS):
        known = draw_known(truth.labels, seed=seed)
        baselines.append(auc_of(truth.labels, known, partial(labels_from_columns, view.columns, known)))
        if trees:
            values.append(auc_of(truth.labels, known, partial(spread_labels, trees, known)))
    if not trees:
        return Measure("auc", 0.5, 0.5, float(np.mean(baselines)), note="nothing to read: no node was spoken of")
    spread = f"{len(trees)} trees; {_DRAWS} draws from {min(values):.3f} to {max(values):.3f}"
    rows = spread_labels(trees, known, (truth.labels[known] == truth.labels.max()).astype(int))
    return Measure("auc", float(np.mean(values)), 0.5, float(np.mean(baselines)), note=spread, rows=rows)
