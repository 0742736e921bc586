"""HyFDCA's coordinator between rounds: is it better, is it enough, which step next? From totals over all parties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsift.models.hyfdca.track import Decision
from fedsift.models.lbfgs import direction

_RECENTRE = 0.1  # the hinge's duals take a new centre when the gradient is so small beside their distance from the old
_SHORTEST = 2.0**-12  # of a plain step where rows count differently: what they weigh the coordinator does not know
_SLACK = 1e-9  # relative: below it the objective is rounding, and the gradient is the better judge


@dataclass(frozen=True)
class Measures:
    """What a full round adds up over all parties: inner products of gradients and steps, and by output (as a mean over
    all rows) sizes of weights, losses and how far the duals moved."""

    products: np.ndarray
    weights: np.ndarray
    distance: np.ndarray
    rebuilt: np.ndarray
    balance: np.ndarray
    objective: np.ndarray
    primal: np.ndarray
    dual: np.ndarray
    moved: np.ndarray


class Search:
    """All arrays have an entry for each output (class); outputs share rounds and nothing else."""

    def __init__(self, loss: str, tol: float, outputs: int, weighted: bool = False):
        self.loss, self.tol = loss, tol
        self.length, self.least = np.ones(outputs), _SHORTEST if weighted else 1.0
        self.best = np.full(outputs, np.inf)
        self.back = np.zeros(outputs, dtype=bool)
        self.bound = np.full(outputs, np.inf)
        self.plain = np.zeros(outputs, dtype=bool)
        self.stuck = np.zeros(outputs, dtype=bool)
        self.slide = 1.0  # how far to go in rounds without everybody: less when that made things worse

    def judge(self, measures: Measures, since_last: int) -> dict[str, float]:
        """``since_last`` counts the rounds since the last measures: 1 if everybody took part in both."""
        objective = measures.objective + measures.weights / 2
        self.back = objective > self.best + _SLACK * np.abs(self.best)
        primal = measures.primal + measures.weights / 2
        if self.loss == "hinge":
            gap = np.abs(primal - measures.dual + measures.rebuilt / 2) + measures.balance
            bound = gap / np.maximum(primal, 1e-12)
        else:  # here loss and conjugate add up to score times dual, and the gap is alpha/2 |w - w'|^2
            gap = measures.distance / 2
            distance = np.sqrt(np.maximum(measures.distance, 0) / np.maximum(measures.weights, 1e-18))
            bound = np.maximum(distance, 10 * measures.balance)
        self.bound = np.where(self.back, np.inf, bound)
        # A plain step from the best place that makes things worse: no more digits to gain.
        failed = self.back & self.plain & (since_last == 1)
        self.stuck = failed & (self.length <= self.least)
        self.length = np.where(failed, np.maximum(self.length / 4, self.least), self.length)
        if since_last > 1:
            self.slide = self.slide / 2 if self.back.any() else min(1.0, 1.2 * self.slide)
        self.best = np.minimum(self.best, objective)
        shown = float(np.max(bound))
        return {"objective": float(self.best.sum()), "gap": float(np.max(gap)), "bound": shown}

    def enough(self) -> bool:
        return bool(((self.bound <= self.tol) | self.stuck).all())

    def converged(self) -> bool:
        return bool((self.bound <= self.tol).all())

    def decision(self, measures: Measures) -> tuple[Decision, np.ndarray]:
        """For the parties: where to go back, what to forget, how to combine; for the label holders: new centres."""
        products = measures.products
        recentre = np.zeros(len(products), dtype=bool)
        if self.loss == "hinge":
            slope = np.sqrt(np.maximum(products[:, -1, -1], 0))
            recentre = ~self.back & (slope < _RECENTRE * np.sqrt(np.maximum(measures.moved, 0)))
            self.best = np.where(recentre, np.inf, self.best)
        self.plain = self.back | recentre
        coefficients = np.zeros(products.shape[:2])
        for output, table in enumerate(products):
            if self.plain[output]:
                coefficients[output, -1] = -self.length[output]
            else:
                coefficients[output] = direction(table, 1.0)
        return Decision(self.back, self.plain, coefficients), recentre
