"""A linear model from sums that carry noise: rows cut to length 1, a ridge, and what stands out of the noise.

Pure functions of arrays, for the engineers under an epsilon: the parties cut their rows so that one row moves a sum no
further than stated, the coordinator makes the best of the sums. What it does with them costs no more privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: Bits after the point of a column, a target, a residual.
BITS = 10


def unit_rows(values: np.ndarray) -> np.ndarray:
    """Columns within +-1, scaled so that a row of evenly spread ones has length 1, and longer ones cut to it.

    A little shorter, so that rounding to ``BITS`` does not lengthen a row beyond 1.
    """
    width = max(1, values.shape[1])
    rows = values * math.sqrt(3 / width)
    most = 1 - math.sqrt(width) * 2.0 ** -(BITS + 1)
    length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return np.asarray(rows * np.minimum(1.0, most / np.maximum(length, 1e-300)))


def cut_rows(values: np.ndarray) -> np.ndarray:
    """Rows cut to length 1 as they are: ``unit_rows`` has scaled them already."""
    return unit_rows(values * math.sqrt(max(1, values.shape[1]) / 3))


@dataclass
class LocalFit:
    """A ridge from noisy sums: weights, means and covariances of the columns, by party."""

    weights: dict[str, np.ndarray]
    means: dict[str, np.ndarray]
    covariances: dict[str, np.ndarray]
    target_mean: float


def fit_moments(sums: np.ndarray, widths: dict[str, int], holder: str, rows: int, noise: float) -> LocalFit:
    """From the matrix of noisy sums, party after party; at ``holder`` a one comes first and the target last."""
    place, offset, one, target = {}, 0, 0, 0
    for name, width in widths.items():
        place[name] = slice(offset + (name == holder), offset + width - (name == holder))
        if name == holder:
            one, target = offset, offset + width - 1
        offset += width
    columns = np.concatenate([np.arange(at.start, at.stop) for at in place.values()])
    means = np.clip(sums[one] / rows, -1, 1)
    target_mean = float(means[target])
    centred = sums - rows * np.outer(means, means)
    inner = centred[np.ix_(columns, columns)]
    penalty = noise * math.sqrt(2 * max(1, len(columns)))  # about the largest eigenvalue that noise alone has
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    right = centred[columns, target]
    right = right * max(0.0, 1 - len(right) * noise**2 / max(float(right @ right), 1e-300))  # James and Stein
    found = np.zeros(len(sums))
    found[columns] = vectors @ ((vectors.T @ right) / (np.maximum(values, 0.0) + penalty))
    np.fill_diagonal(centred, np.maximum(np.diag(centred), noise))
    return LocalFit({n: found[at] for n, at in place.items()}, {n: means[at] for n, at in place.items()},
                    {n: centred[at, at] / rows for n, at in place.items()}, target_mean)  # fmt: skip


def shrunken(value: float, variance: float, count: int) -> float:
    """A sum less what noise explains: 0 where the largest of ``count`` sums of noise alone might be (Donoho and
    Johnstone's universal threshold, and one deviation)."""
    limit = (1 + math.sqrt(2 * math.log(max(2, count)))) ** 2 * variance
    return value * max(0.0, 1 - limit / max(value**2, 1e-300))
