"""What attacks on labels share: a few labels that the attacker knows, the AUC over the others, the plain baseline."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import roc_auc_score

KNOWN = 40  # labels: a handful of customers that both sides have spoken about


def draw_known(labels: np.ndarray, count: int = KNOWN, seed: int = 0) -> np.ndarray:
    """Rows whose label the attacker knows: drawn by lot, one of each class at least."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(labels))
    first = [order[labels[order] == k][:1] for k in np.unique(labels)]
    return np.unique(np.concatenate([*first, order])[: max(count, len(first))])


def auc_of(labels: np.ndarray, known: np.ndarray, score: Callable[[np.ndarray], np.ndarray]) -> float:
    """AUC over the rows that are not known; ``score`` makes a score of every row from the known rows' 0/1 labels.

    More than two classes: the mean over the classes, each against the rest.
    """
    rest = np.setdiff1d(np.arange(len(labels)), known)
    classes = np.unique(labels)
    found = []
    for k in classes[1:] if len(classes) == 2 else classes:
        hit = (labels == k).astype(np.int64)
        if 0 < hit[rest].sum() < len(rest):
            found.append(float(roc_auc_score(hit[rest], score(hit[known])[rest])))
    return float(np.mean(found)) if found else 0.5


def labels_from_columns(columns: np.ndarray, known: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """A score of every row for class 1 by a forest that was taught the known rows."""
    if not columns.shape[1]:
        return np.zeros(len(columns))
    filled = np.nan_to_num(columns, nan=-1e6)
    forest = ExtraTreesClassifier(300, class_weight="balanced", random_state=0)
    return np.asarray(forest.fit(filled[known], labels).predict_proba(filled)[:, -1])
