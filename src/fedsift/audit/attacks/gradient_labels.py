"""Labels from the gradients that a split network sends back to a party, row by row.

With cross-entropy the gradient of a row's loss in the network's output is (probability - label): its sign is the label.
The chain rule carries it to the party's embedding through weights that all rows share, so that gradients of the two
classes point into opposite directions (Li et al. 2022: norm and cosine; Sun et al. 2022: spectral). No label need be
known: the first singular vector of a batch separates the classes. Which side is called 1 is one bit; scores without a
known label are counted either way round.

``labels_from_summed`` is the same for a party that gets one sum over a batch only (embedding' d): as long as its
embedding has as many independent columns as the batch has rows, the sum is solved for d.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fedsift.audit.attacks.known_labels import auc_of, draw_known, labels_from_columns
from fedsift.audit.exposure import Measure
from fedsift.audit.network_messages import Batch, gradients_of_own
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View

READS = ["bottom_round", "encrypt_lattice"]
Pairs = list[tuple[np.ndarray, np.ndarray]]  # of each batch: its rows, and their gradients


def networks_apart(array: np.ndarray) -> list[np.ndarray]:
    """Rows x width of each of the networks that were trained side by side."""
    return [array] if array.ndim == 2 else list(array)


def spectral_scores(batches: Pairs, n_rows: int) -> np.ndarray:
    """Mean sign of each row along its batch's first singular vector. ``batches``: rows, and their gradients."""
    total, seen, before = np.zeros(n_rows), np.zeros(n_rows), None
    for rows, gradient in batches:
        if not np.isfinite(gradient).all() or not gradient.any():
            continue
        direction = np.linalg.svd(gradient, full_matrices=False)[2][0]
        if before is not None and direction @ before < 0:
            direction = -direction  # weights move little from batch to batch: the direction goes on
        along = gradient @ direction
        total[rows] += np.sign(along)
        seen[rows] += 1
        before = direction
    return total / np.maximum(seen, 1)


def norm_scores(batches: Pairs, n_rows: int) -> np.ndarray:
    """Mean length of each row's gradient, relative to its batch: the rarer class is further from what is expected."""
    total, seen = np.zeros(n_rows), np.zeros(n_rows)
    for rows, gradient in batches:
        lengths = np.linalg.norm(gradient, axis=1)
        total[rows] += lengths / max(float(lengths.mean()), 1e-300)
        seen[rows] += 1
    return total / np.maximum(seen, 1)


def cosine_scores(batches: Pairs, n_rows: int, known: np.ndarray, hit: np.ndarray) -> np.ndarray:
    """Mean cosine to the gradients of known rows of class 1, less that to known rows of the others."""
    total, seen = np.zeros(n_rows), np.zeros(n_rows)
    sign = np.zeros(n_rows)
    sign[known] = np.where(hit == 1, 1.0, -1.0)
    for rows, gradient in batches:
        unit = gradient / np.maximum(np.linalg.norm(gradient, axis=1, keepdims=True), 1e-300)
        if sign[rows].any():
            total[rows] += unit @ (unit.T @ sign[rows])
            seen[rows] += 1
    return total / np.maximum(seen, 1)


def labels_from_summed(embedding: np.ndarray, summed: np.ndarray) -> np.ndarray:
    """The rows' own part d in ``summed = embedding.T @ d`` (least squares), along its main direction."""
    d = np.linalg.lstsq(embedding.T, summed, rcond=None)[0]
    d = d.reshape(len(embedding), -1)
    return np.asarray(d @ np.linalg.svd(d, full_matrices=False)[2][0])


def either_way(labels: np.ndarray, score: np.ndarray) -> float:
    """AUC where the naming of the two classes is free."""
    value = float(roc_auc_score(labels, score))
    return max(value, 1 - value)


def _pairs(batches: Sequence[Batch]) -> Pairs:
    """Rows and gradients of the longest-trained network (and of its first copy)."""
    with_gradient = [b for b in batches if b.gradient is not None]
    if not with_gradient:
        return []
    names = [b.model for b in with_gradient]
    longest = max(dict.fromkeys(names), key=names.count)
    return [
        (b.rows, networks_apart(np.asarray(b.gradient, dtype=np.float64))[0])
        for b in with_gradient
        if b.model == longest
    ]


def _measure(view: View, truth: Truth, value: float, note: str, rows: np.ndarray | None = None) -> Measure:
    """Beside what the attacker's own columns give with 40 known labels."""
    known = draw_known(truth.labels)
    baseline = auc_of(truth.labels, known, lambda hit: labels_from_columns(view.columns, known, hit))
    return Measure("auc", value, 0.5, baseline, note=note, rows=rows)


def _unlabelled(view: View, truth: Truth, scores: Callable[[Pairs, int], np.ndarray]) -> Measure:
    pairs = _pairs(gradients_of_own(view))
    if not pairs:
        return _measure(view, truth, 0.5, "nothing to read: no gradient")
    if len(np.unique(truth.labels)) != 2:
        return _measure(view, truth, 0.5, "not run: for two classes only")
    score = scores(pairs, len(truth.labels))
    seen = np.unique(np.concatenate([rows for rows, _ in pairs]))
    return _measure(view, truth, either_way(truth.labels[seen], score[seen]), f"{len(pairs)} batches", score)


@attack(reads=READS, role="passive", target="labels", knows="nothing beside its messages", declared="in words", line=8)
def gradient_spectral(view: View, truth: Truth) -> Measure:
    """AUC of the side on which a row's gradients lie, along the first singular vector of its batches."""
    return _unlabelled(view, truth, spectral_scores)


@attack(reads=READS, role="passive", target="labels", knows="nothing beside its messages", declared="in words", line=8)
def gradient_norm(view: View, truth: Truth) -> Measure:
    """AUC of the length of a row's gradients."""
    return _unlabelled(view, truth, norm_scores)


@attack(reads=READS, role="passive", target="labels", knows="40 labels", declared="in words", line=8)
def gradient_cosine(view: View, truth: Truth) -> Measure:
    """AUC of the angle between a row's gradients and those of known rows; classes one against the rest."""
    pairs = _pairs(gradients_of_own(view))
    if not pairs:
        return _measure(view, truth, 0.5, "nothing to read: no gradient")
    known = draw_known(truth.labels)
    value = auc_of(truth.labels, known, lambda hit: cosine_scores(pairs, len(truth.labels), known, hit))
    rows = cosine_scores(pairs, len(truth.labels), known, (truth.labels[known] == truth.labels.max()).astype(int))
    return _measure(view, truth, value, f"{len(pairs)} batches", rows)


@attack(reads=["bottom_round"], role="passive", target="labels", knows="40 labels, its own half", declared="no", line=8)
def model_completion(view: View, truth: Truth) -> Measure:
    """A top model of its own on the embedding that it has trained with the label holder (Fu et al. 2022)."""
    batches = [b for b in gradients_of_own(view) if b.embedding is not None]
    if not batches:
        return _measure(view, truth, 0.5, "nothing to read: no embedding")
    longest = max({b.model for b in batches}, key=[b.model for b in batches].count)
    mine = [b for b in batches if b.model == longest]
    width = networks_apart(np.asarray(mine[0].embedding))[0].shape[1]
    table = np.zeros((len(truth.labels), width))
    for batch in mine:  # the last epoch stays
        table[batch.rows] = networks_apart(np.asarray(batch.embedding))[0]
    table /= np.maximum(table.std(axis=0), 1e-9)
    known = draw_known(truth.labels)

    def taught(hit: np.ndarray) -> np.ndarray:
        model = LogisticRegression(C=0.1, class_weight="balanced", max_iter=500).fit(table[known], hit)
        return np.asarray(model.decision_function(table))

    rows = taught((truth.labels[known] == truth.labels.max()).astype(int))
    return _measure(view, truth, auc_of(truth.labels, known, taught), f"embedding of {width}", rows)
