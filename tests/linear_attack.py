"""Labels of -1 and 1 from sums of known columns over them: a linear programme (the attack on linear models)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog


def labels_from_sums(columns: np.ndarray, sums: np.ndarray, total: float, tolerance: float = 1e-4) -> np.ndarray | None:
    """Signs of a point of the box [-1, 1] with these sums and this sum of labels; None if there is none."""
    left = np.vstack([np.ones(len(columns)), columns.T])
    right = np.append(total, sums)
    slack = tolerance * max(1.0, float(np.abs(sums).max(initial=1.0)))
    generator = np.random.default_rng(0)
    found = []
    for _ in range(2):
        solved = linprog(
            1e-6 * generator.normal(size=len(columns)), A_ub=np.vstack([left, -left]),
            b_ub=np.concatenate([right + slack, slack - right]), bounds=(-1, 1), method="highs",
        )  # fmt: skip
        if solved.x is None:
            return None
        found.append(solved.x)
    return np.where(np.mean(found, axis=0) > 0, 1.0, -1.0)
