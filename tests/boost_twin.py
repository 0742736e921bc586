"""Boosting at level all, in the clear: the same whole numbers, step by step, with Python's integers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedsift.models.boost.compared.scales import HALF_CELL, MORE_BITS, Scales
from fedsift.models.boost.tree import TreeSettings, least_gain


@dataclass
class Twin:
    """One model over small whole numbers: a candidate cut after every value of a column but the last."""

    X: np.ndarray
    parties: list[list[int]]  # columns of every party, in their order
    settings: TreeSettings
    scales: Scales
    target: np.ndarray  # 0 and 1, or a number of at most 1 in size
    scores: np.ndarray
    learnt: np.ndarray | None = None
    size: float = 1.0  # by which a number to predict was divided
    splits: dict[int, int] = field(default_factory=dict)
    gains: dict[int, float] = field(default_factory=dict)

    def gradients(self) -> tuple[np.ndarray, np.ndarray]:
        if self.scales.logistic:
            g, h = self.scales.apart(self.scales.sigmoid.at((self.scores + HALF_CELL).astype(np.uint64)))
        else:
            g, h = self.scores.copy(), np.full(len(self.scores), 2**self.scales.hessian)
        g = g - np.rint(np.ldexp(self.target, self.scales.gradient)).astype(np.int64)
        if self.learnt is not None:
            g, h = g * self.learnt, h * self.learnt
        return g, h

    def candidates(self) -> list[tuple[int, np.ndarray]]:
        return [
            (column, self.X[:, column] <= value)
            for columns in self.parties
            for column in columns
            for value in np.unique(self.X[:, column])[:-1]
        ]

    def grow(self) -> None:
        """One tree."""
        g, h = self.gradients()
        cuts, nodes, sums = self.candidates(), [np.ones(len(g), dtype=bool)], []
        for _ in range(self.settings.max_depth):
            below = []
            for rows in nodes:
                place = self.best(cuts, rows, g, h)
                left = np.zeros_like(rows) if place is None else rows & cuts[place][1]
                below += [left, rows & ~left]
                sums.append((rows, below[-2], below[-1], None if place is None else cuts[place][0]))
            nodes = below
        for rows, left, right, column in sums:
            if column is not None:
                gain = self.quotient(left, g, h)[1] + self.quotient(right, g, h)[1] - self.quotient(rows, g, h)[1]
                self.splits[column] = self.splits.get(column, 0) + 1
                unit = -self.scales.gradient - self.scales.score - MORE_BITS
                self.gains[column] = (
                    self.gains.get(column, 0.0) + gain * self.size**2 * 2.0**unit * 2**16 / self.scales.rate
                )
        for rows in nodes:
            self.scores[rows] += self.quotient(rows, g, h)[0]

    def best(self, cuts: list[tuple[int, np.ndarray]], rows: np.ndarray, g: np.ndarray, h: np.ndarray) -> int | None:
        """The first candidate of the largest fraction, if that is more than the bar."""
        s, (G, H), count = self.scales, (int(v[rows].sum()) for v in (g, h)), int(rows.sum())
        T, weight = H + 2 * s.penalty, H + s.penalty
        least = least_gain(self.settings) / self.size**2
        enough = max(1, int(np.ceil(np.ldexp(least, 2 * s.gradient - s.hessian))))
        over, under, found = enough * T * weight + G * G * s.penalty, weight, None
        for place, (_, bits) in enumerate(cuts):
            left = rows & bits
            n, a, w = int(left.sum()), int(h[left].sum()), int(g[left].sum())
            fits = min(n, count - n) >= s.least_rows and min(a, H - a) >= s.least_weight
            a += s.penalty
            top, bottom = ((w * T - a * G) ** 2 if fits else 0), a * (T - a)
            if top * under > over * bottom:
                over, under, found = top, bottom, place
        return found

    def loss(self, held: np.ndarray) -> int:
        """Of the held-out rows, in whole numbers."""
        if not self.scales.logistic:
            target = np.rint(np.ldexp(np.clip(self.target, -8, 8), self.scales.score)).astype(np.int64)
            return sum(int(part) ** 2 for part in (self.scores - target)[held])
        turned = np.where(self.target > 0.5, -self.scores, self.scores)[held]
        return int(self.scales.losses.at((turned + HALF_CELL).astype(np.uint64)).sum())

    def grow_until(self, held: np.ndarray, trees: int, patience: int) -> tuple[int, int]:
        """At most so many trees: how many were grown, and how many made the loss smaller to the end. The scores are
        those of the last."""
        best, kept, after = None, 0, {}
        for tree in range(trees):
            self.grow()
            loss = self.loss(held)
            after[tree + 1] = self.scores.copy()
            if best is None or loss < best:
                best, kept = loss, tree + 1
            if tree + 1 - kept >= patience:
                break
        self.scores = after[kept]
        return tree + 1, kept

    def quotient(self, rows: np.ndarray, g: np.ndarray, h: np.ndarray) -> tuple[int, int]:
        """The leaf of these rows, and |gradient x leaf| before it is rounded to the unit of a score."""
        s, G, H = self.scales, int(g[rows].sum()), int(h[rows].sum())
        divisor = (H + s.penalty) << max(0, s.shift)
        fine = min((abs(G) * s.rate << max(0, -s.shift)) // divisor, 2**s.leaf_bits - 1)
        leaf = fine >> MORE_BITS
        return (leaf if G < 0 else -leaf), abs(G) * fine
