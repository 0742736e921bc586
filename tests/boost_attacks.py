"""Attacks on boosting, on arrays: labels from nodes and cells from left/right bits as the audit has them
(``audit/attacks``), and equations in the ring."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.metrics import roc_auc_score

from fedsift.audit.attacks.cut_bits import largest_left
from fedsift.audit.attacks.node_labels import spread_over


def node_attack(nodes: np.ndarray, y: np.ndarray, known: int = 40, draws: int = 10) -> float:
    """Mean AUC over the rows whose labels are not known."""
    inside, found = csr_matrix(nodes[nodes.any(axis=1)].T.astype(float)), []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        chosen = np.concatenate([rng.choice(np.flatnonzero(y == k), known // 2, replace=False) for k in (0, 1)])
        rest = np.setdiff1d(np.arange(len(y)), chosen)
        found.append(roc_auc_score(y[rest], spread_over(inside, chosen, y[chosen])[rest]))
    return float(np.mean(found))


def solve_ring(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """x with matrix x = right in Z_2^64, for at least as many equations as unknowns; ``None`` where there is none."""
    a, b = matrix.astype(np.uint64).copy(), right.astype(np.uint64)[:, None].copy()  # arrays wrap, scalars warn
    for column in range(a.shape[1]):
        odd = np.flatnonzero(a[column:, column] & np.uint64(1))
        if not len(odd):
            return None
        pivot = column + int(odd[0])
        a[[column, pivot]], b[[column, pivot]] = a[[pivot, column]], b[[pivot, column]]
        inverse = np.uint64(pow(int(a[column, column]), -1, 2**64))
        a[column], b[column] = a[column] * inverse, b[column] * inverse
        for row in range(len(a)):
            if row != column:
                factor = a[row, column : column + 1].copy()
                a[row], b[row] = a[row] - factor * a[column], b[row] - factor * b[column]
    return b[: a.shape[1], 0] if not b[a.shape[1] :].any() else None


def placed_cells(codes: np.ndarray, bits: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]) -> float:
    """Share of cells whose bin is guessed from left/right bits: (column, which of its bins go left, rows, went left).

    The attacker is given more than it has: which column every cut is of, and the sizes of all bins. Of the bins that a
    row may still lie in it guesses the largest.
    """
    return float((largest_left(codes, bits) == codes).mean())


def mode_guess(codes: np.ndarray) -> float:
    return float(np.mean([np.bincount(column).max() / len(column) for column in codes.T]))
