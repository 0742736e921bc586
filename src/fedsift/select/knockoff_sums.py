"""Knockoffs from sums alone: the mathematics, on arrays; ``knockoffs.py`` has the conversation.

A knockoff of a column is another column that goes with all the others as the column itself does, and knows nothing
more about the label (Barber and Candes 2015; Candes et al. 2018). What the label prefers to its knockoffs is no noise.
For Gaussian columns with correlations S, ``copies`` knockoffs at once of every column (Gimenez and Zou 2019) are

    X~ = X (I - S^-1 D) + E,    E Gaussian with covariance (I x D) + (J x (D - D S^-1 D)),    J all ones,

with a diagonal D below (copies + 1) / copies S. A linear model needs of them only sums over rows: X'X~, X~'X~, X~'y.
Given X'X, X'y and y'y these have a known distribution, because E is drawn without a look at the rows: E'[X y] is
Gaussian with the covariance of the sums, and the rest of E'E is Wishart. So whoever has the sums draws knockoffs of
rows that it never sees (He et al. 2022, "GhostKnockoff"), and gets exactly what knockoffs of the rows would give.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
_SWEEPS, _STEPS = 12, 1000


def knockoff_scales(correlation: Floats, copies: int) -> Floats:
    """The diagonal of D: as unlike their columns as knockoffs can be, by maximal entropy (Spector and Janson 2022).

    Each step takes the best value of one column given the others: with c the largest value that leaves
    (copies + 1) / copies S - D positive, log(c - d) + copies log(d) is largest at c copies / (copies + 1).
    """
    size = len(correlation)
    top = (copies + 1) / copies
    low = float(np.linalg.eigvalsh(correlation)[0])
    scales = np.full(size, max(0.5 * top * low, 1e-10))
    inverse = np.linalg.inv(top * correlation - np.diag(scales))
    for _ in range(_SWEEPS):
        for j in range(size):
            most = scales[j] + 1 / inverse[j, j]
            change = min(most * copies / (copies + 1), 1.0) - scales[j]
            inverse += change / (1 - change * inverse[j, j]) * np.outer(inverse[:, j], inverse[j])
            scales[j] += change
        inverse = np.linalg.inv(top * correlation - np.diag(scales))  # rank-one updates gather rounding
    return scales


def shrunk(correlation: Floats, rows: int) -> Floats:
    """Towards no correlation, by as much as the sums of so few rows are unsure: a matrix that can be inverted."""
    part = min(0.5, len(correlation) / (10.0 * rows)) + 1e-6
    return np.asarray((1 - part) * correlation + part * np.eye(len(correlation)))


def with_knockoffs(
    gram: Floats, targets: int, rows: int, copies: int, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Mean products of columns and knockoffs with each other and with the label, which has the last ``targets``.

    ``gram`` holds mean products over the rows of columns of variance 1. Copy by copy after the columns themselves.
    """
    size = len(gram) - targets
    model = shrunk(gram[:size, :size], rows)
    scales = np.diag(knockoff_scales(model, copies))
    inverse = np.linalg.inv(model)
    kept = np.eye(size) - inverse @ scales
    tied = scales - scales @ inverse @ scales
    covariance = np.kron(np.eye(copies), scales) + np.kron(np.ones((copies, copies)), tied)
    root, seen = square_root(covariance), square_root(gram)
    along = generator.normal(size=(size * copies, len(gram)))
    across = root @ along @ seen / np.sqrt(rows)  # E'[X y] / rows
    width = size * copies
    free = generator.normal(size=(width, max(rows - len(gram), 0))) if rows - len(gram) < width else None
    rest = free @ free.T if free is not None else _wishart(width, rows - len(gram), generator)
    within = root @ (along @ along.T + rest) @ root.T / rows
    carried = np.vstack([np.eye(size), *[kept.T] * copies])  # what a column of [X X~] has of X
    linear = carried @ gram[:size]
    linear[size:] += across
    sums = carried @ gram[:size, :size] @ carried.T
    sums[size:] += across[:, :size] @ carried.T
    sums[:, size:] += carried @ across[:, :size].T
    sums[size:, size:] += within
    return sums, linear[:, size:]


def square_root(matrix: Floats) -> Floats:
    """The symmetric one: it moves no further than the matrix does, so that rounding draws no other knockoffs."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _wishart(size: int, freedom: int, generator: np.random.Generator) -> Floats:
    """By Bartlett's decomposition; ``freedom`` is at least ``size``."""
    root = np.tril(generator.normal(size=(size, size)), -1)
    root[np.diag_indices(size)] = np.sqrt(generator.chisquare(freedom - np.arange(size)))
    return np.asarray(root @ root.T)


def lasso(gram: Floats, linear: Floats, alpha: float) -> Floats:
    """Coefficients (columns x targets) of a lasso from mean products, by FISTA."""
    rate = 1 / float(np.linalg.eigvalsh(gram)[-1])
    here = ahead = np.zeros_like(linear)
    pace = 1.0
    for _ in range(_STEPS):
        moved = ahead - rate * (gram @ ahead - linear)
        found = np.sign(moved) * np.maximum(np.abs(moved) - rate * alpha, 0.0)
        further = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        step = found - here
        ahead, here, pace = found + (pace - 1) / further * step, found, further
        if np.abs(step).max(initial=0.0) < 1e-7:
            break
    return here


def contrasts(importance: Floats) -> tuple[Whole, Floats]:
    """Of importances (copies + 1 x columns): which of a column and its knockoffs wins, and by how much."""
    winner = importance.argmax(axis=0)
    ordered = np.sort(importance, axis=0)[::-1]
    return winner, ordered[0] - np.median(ordered[1:], axis=0)


def discoveries(winner: Whole, margin: Floats, copies: int, fdr: float) -> NDArray[np.bool_]:
    """Columns that win by so much that knockoffs seldom do: in the mean ``fdr`` of them are false."""
    for least in np.unique(margin[margin > 0]):
        far = margin >= least
        false = (1 + (far & (winner > 0)).sum()) / copies
        if false <= fdr * max(1, (far & (winner == 0)).sum()):
            return np.asarray(far & (winner == 0))
    return np.zeros(len(margin), dtype=bool)
