"""From one score a column back to the labels of the rows: pure mathematics, for the attacks in ``attacks/scores.py``.

All filter scores for two classes are, exactly or nearly, quadratic forms of the labels u in {-1, 1}: the F statistic is
(x'u)^2 of a standardised column, Gini's purity the length of u's projection on the bins, and information value and
mutual information are close to that. So many scores are a phase retrieval problem:

1. start: the leading vectors of the sum of the columns' forms, weighted by how far each score is above their mean;
2. descend: least squares of the forms against what the scores say (from several starts);
3. climb: swap one row of each class for another as long as the exact scores come nearer to those told.

Class sizes are known. Ranks are turned into values again and again by those of the present labels; kept flags alone
give step 1 only, which is what the answer itself tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, eigsh

#: Rows times rows times columns in one look at all swaps; where there are more, a look at some of them.
MOST_CELLS, SOME_CELLS = 12_000_000, 2_000_000
_DENSE = 1000  # rows up to which all eigenvectors are computed


class Score(Protocol):
    """A score of columns as a function of labels (1 for class 1), and the quadratic form near to it."""

    features: np.ndarray  # rows x parts: the form of a column is the sum over its parts of (part'u)^2
    owner: np.ndarray  # the column of each part

    def of(self, labels: np.ndarray) -> np.ndarray:
        """The exact scores under these labels."""

    def form(self, scores: np.ndarray) -> np.ndarray:
        """What a score says about the quadratic form of its column."""

    def swaps(self, labels: np.ndarray, ones: np.ndarray, zeros: np.ndarray) -> np.ndarray:
        """Scores after each swap of one of the rows ``ones`` (first axis) with one of ``zeros``: ... x columns."""


@dataclass
class VarianceScore:
    """The F statistic of standardised columns (SFFS). It says |x'y| and nothing else."""

    columns: np.ndarray
    sizes: tuple[int, int]

    def __post_init__(self) -> None:
        self.features = self.columns
        self.owner = np.arange(self.columns.shape[1])

    def form(self, scores: np.ndarray) -> np.ndarray:
        rows = sum(self.sizes)
        between = rows * scores / (scores + rows - 2)
        return np.asarray(4 * between * self.sizes[0] * self.sizes[1] / rows)  # u = 2y - 1: (x'u)^2 = 4 (x'y)^2

    def _from_sums(self, sums: np.ndarray) -> np.ndarray:
        rows = sum(self.sizes)
        between = sums**2 * rows / (self.sizes[0] * self.sizes[1])
        return np.asarray(between / np.maximum((rows - between) / (rows - 2), 1e-9))

    def of(self, labels: np.ndarray) -> np.ndarray:
        return self._from_sums(self.columns.T @ labels)

    def swaps(self, labels: np.ndarray, ones: np.ndarray, zeros: np.ndarray) -> np.ndarray:
        sums = self.columns.T @ labels
        inside, outside = self.columns[ones], self.columns[zeros]
        return self._from_sums(sums - inside[:, None, :] + outside[None, :, :])


@dataclass
class BinScore:
    """A score that is a sum over the bins of a column of ``term(ones, size)``: Gini, information value, information."""

    codes: np.ndarray  # rows x columns
    sizes: tuple[int, int]
    kind: str  # "purity", "iv" or "information"

    def __post_init__(self) -> None:
        rows, columns = self.codes.shape
        self.width = int(self.codes.max(initial=0)) + 1
        flat = self.codes + self.width * np.arange(columns)
        counts = np.bincount(flat.ravel(), minlength=columns * self.width)
        self.bin_sizes = counts.reshape(columns, self.width)
        one_hot = np.zeros((rows, columns * self.width))
        np.put_along_axis(one_hot, flat, 1.0, axis=1)
        used = counts > 0
        # The overall share of class 1 is in every bin; what is left of a bin's sum tells about the column.
        self.features = one_hot[:, used] / np.sqrt(counts[used]) - np.sqrt(counts[used]) / rows
        self.owner = np.repeat(np.arange(columns), self.width)[used]

    def term(self, ones: np.ndarray, size: np.ndarray) -> np.ndarray:
        zeros, (n0, n1) = size - ones, self.sizes
        if self.kind == "purity":
            return np.asarray((ones**2 + zeros**2) / np.maximum(size, 1) / (n0 + n1))
        if self.kind == "iv":
            inside, outside = np.where(zeros == 0, 0.5, zeros) / n0, np.where(ones == 0, 0.5, ones) / n1
            return np.where(size > 0, (inside - outside) * np.log(inside / outside), 0.0)
        rows = n0 + n1
        parts = [
            np.where(cell > 0, cell / rows * np.log(np.maximum(cell, 1) * rows / np.maximum(size, 1) / total), 0.0)
            for cell, total in ((ones, n1), (zeros, n0))
        ]
        return np.asarray(parts[0] + parts[1])

    def _ones(self, labels: np.ndarray) -> np.ndarray:
        flat = self.codes[labels == 1] + self.width * np.arange(self.codes.shape[1])
        return np.bincount(flat.ravel(), minlength=self.bin_sizes.size).reshape(self.bin_sizes.shape)

    def of(self, labels: np.ndarray) -> np.ndarray:
        return np.asarray(self.term(self._ones(labels), self.bin_sizes).sum(axis=1))

    def form(self, scores: np.ndarray) -> np.ndarray:
        """The length of u on the bins less its mean: chi-square x 4 n0 n1 / n^2 is near to all three."""
        n0, n1 = self.sizes
        rows = n0 + n1
        if self.kind == "purity":
            base = (n0 / rows) ** 2 + (n1 / rows) ** 2
            return np.asarray(2 * rows * (scores - base))
        share = 4 * n0 * n1 / rows
        return np.asarray(share * scores if self.kind == "iv" else 2 * share * scores)

    def swaps(self, labels: np.ndarray, ones: np.ndarray, zeros: np.ndarray) -> np.ndarray:
        count, size, columns = self._ones(labels), self.bin_sizes, np.arange(self.codes.shape[1])
        here = self.term(count, size)
        less = self.term(np.maximum(count - 1, 0), size) - here
        more = self.term(np.minimum(count + 1, size), size) - here
        inside, outside = self.codes[ones], self.codes[zeros]
        down, up = less[columns, inside], more[columns, outside]
        change = (down[:, None, :] + up[None, :, :]) * (inside[:, None, :] != outside[None, :, :])
        return np.asarray(here.sum(axis=1) + change)


def cut(values: np.ndarray, ones: int) -> np.ndarray:
    """The rows with the largest values as class 1."""
    labels = np.zeros(len(values), dtype=np.int64)
    labels[np.argsort(values, kind="stable")[len(values) - ones :]] = 1
    return labels


def leading(score: Score, weights: np.ndarray, count: int = 3) -> list[np.ndarray]:
    """Step 1: leading vectors of the sum of the columns' forms, each column with its weight."""
    if not np.abs(weights).max(initial=0.0):
        weights = np.ones_like(weights)  # all scores are the same: no column counts more than another
    features, spread = score.features, weights[score.owner]
    if len(features) > _DENSE:  # by products alone: the matrix has rows x rows cells
        product = LinearOperator((len(features),) * 2, matvec=lambda v: features @ (spread * (features.T @ v)),
                                 dtype=np.float64)  # fmt: skip
        values, vectors = eigsh(product, k=count, which="LA", v0=np.random.default_rng(0).normal(size=len(features)))
    else:
        values, vectors = np.linalg.eigh((features * spread) @ features.T)
    return [vectors[:, i] * np.sqrt(len(vectors)) for i in np.argsort(-values)[:count]]


def descend(score: Score, wanted: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Step 2: least squares of the forms against ``wanted``, by their square roots (all columns count alike)."""
    features, owner, columns = score.features, score.owner, len(wanted)
    target = np.sqrt(np.maximum(wanted, 0.0))

    def loss(u: np.ndarray) -> tuple[float, np.ndarray]:
        parts = features.T @ u
        size = np.sqrt(np.bincount(owner, parts**2, minlength=columns) + 1e-9)
        gap = size - target
        return float((gap**2).sum()), 2 * features @ ((gap / size)[owner] * parts)

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-1.2, 1.2)] * len(start),
                     options={"maxiter": 300})  # fmt: skip
    return np.asarray(found.x)


def distance(score: Score, told: np.ndarray, labels: np.ndarray) -> float:
    gap = _bent(score.of(labels)) - _bent(told)
    return float(gap @ gap)


def _bent(scores: np.ndarray) -> np.ndarray:
    """Square roots: a few large scores do not outvote the many small ones."""
    return np.asarray(np.sqrt(np.maximum(scores, 0.0)))


def climb(score: Score, told: np.ndarray, labels: np.ndarray, steps: int = 60) -> np.ndarray:
    """Step 3: the swap of two rows that brings the scores nearest to those told, until none does."""
    return climb_down(score, lambda scores: ((_bent(scores) - _bent(told)) ** 2).sum(axis=-1), labels, steps)


def climb_down(
    score: Score, loss: Callable[[np.ndarray], np.ndarray], labels: np.ndarray, steps: int = 60
) -> np.ndarray:
    """The swap of two rows after which the scores (... x columns) have the least ``loss``, until none lowers it."""
    labels, here = labels.copy(), float(loss(score.of(labels)))
    generator = np.random.default_rng(0)
    for _ in range(steps):
        ones, zeros = _candidates(labels, int(score.owner.max()) + 1, generator)
        losses = loss(score.swaps(labels, ones, zeros))
        place = np.unravel_index(int(np.argmin(losses)), losses.shape)
        if losses[place] >= here - 1e-15:
            break
        here = float(losses[place])
        labels[ones[place[0]]], labels[zeros[place[1]]] = 0, 1
    return labels


def _candidates(labels: np.ndarray, columns: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of class 1 and of class 0 to swap: all, or some of them where all would take too long."""
    ones, zeros = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)
    if len(ones) * len(zeros) * columns <= MOST_CELLS:
        return ones, zeros
    side = max(2, int((SOME_CELLS / columns) ** 0.5))
    return generator.permutation(ones)[:side], generator.permutation(zeros)[:side]


def invert(score: Score, told: np.ndarray, ones: int, *, starts: int = 8, seed: int = 0) -> np.ndarray:
    """Labels whose scores are nearest to ``told``."""
    generator = np.random.default_rng(seed)
    wanted = score.form(told)
    first = leading(score, wanted - wanted.mean())
    points = first + [generator.normal(size=len(first[0])) for _ in range(max(0, starts - len(first)))]
    best, best_distance = cut(first[0], ones), np.inf
    for point in points:
        found = descend(score, wanted, np.clip(point, -1.0, 1.0))
        for way in (found, -found):
            labels = climb(score, told, cut(way, ones))
            gap = distance(score, told, labels)
            if gap < best_distance:
                best, best_distance = labels, gap
        if best_distance < 1e-12 * max(1.0, float(told @ told)):
            break
    return best


def invert_ranks(score: Score, ranks: np.ndarray, ones: int, *, turns: int = 6) -> np.ndarray:
    """Labels from the order of the scores alone: values for the ranks are taken from the present labels, in turns."""
    labels = cut(leading(score, ranks - ranks.mean())[0], ones)
    best, best_fit = labels, -1.0
    if len(ranks) < 2:
        return labels
    for _ in range(turns):
        for way in (labels, 1 - labels):
            start = cut(way + 0.0, ones)
            told = np.sort(score.of(start))[ranks]
            found = climb(score, told, cut(descend(score, score.form(told), 2.0 * start - 1.0), ones))
            fit = float(np.corrcoef(np.argsort(np.argsort(score.of(found))), ranks)[0, 1])
            if fit > best_fit:
                best, best_fit, labels = found, fit, found
    return best


def from_kept(score: Score, kept: np.ndarray, ones: int) -> np.ndarray | None:
    """What the answer alone tells: labels under which the kept columns score above the others; None without a hint."""
    if not kept.any() or kept.all():
        return None
    weights = np.where(kept, 1.0 / kept.sum(), -1.0 / (~kept).sum())
    first = leading(score, weights)[0]
    ways = [cut(first, ones), cut(-first, ones)]
    return max(ways, key=lambda labels: float(weights @ _bent(score.of(labels))))
