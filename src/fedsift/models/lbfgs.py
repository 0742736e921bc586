"""Quasi-Newton steps: the direction from inner products alone (limited-memory BFGS, Chen et al. 2014), and a descent.

Where the vectors are spread over parties, whoever computes the direction has only the table of their inner products,
and gives back how to combine them. ``descend`` is the coordinator's loop, over all weights together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.mpc.shared_descent import SharedDescent, check_room

Floats = NDArray[np.float64]


def direction(products: np.ndarray, first_step: float) -> np.ndarray:
    """Coefficients of the step in the basis (steps, gradient changes, gradient); ``products`` is their Gram matrix.

    ``first_step`` scales the negative gradient while nothing is remembered.
    """
    memory = (len(products) - 1) // 2
    coefficients = np.zeros(len(products))
    coefficients[-1] = -1.0
    useful = [i for i in range(memory) if products[i, memory + i] > 1e-12 * products[memory + i, memory + i]]
    if not useful:
        return coefficients * first_step
    alphas = {}
    for i in reversed(useful):
        alphas[i] = float(products[i] @ coefficients) / products[i, memory + i]
        coefficients[memory + i] -= alphas[i]
    last = useful[-1]
    coefficients *= products[last, memory + last] / products[memory + last, memory + last]
    for i in useful:
        beta = float(products[memory + i] @ coefficients) / products[i, memory + i]
        coefficients[i] += alphas[i] - beta
    return coefficients


@dataclass(frozen=True)
class Descended:
    """Where a descent ended: weights by party, the length of the gradient in each step, and how far the scores of the
    rows are spread about the intercept (the widest output)."""

    weights: dict[str, Floats]
    curve: list[float]
    deviation: float


def descend(
    run: Federation, descent: SharedDescent, wide: float, *, max_iter: int, tol: float, reg_lambda: float, memory: int
) -> Descended:
    """Minimise the quadratic loss on all weights together, for all classes at once.

    ``wide`` is the sum of the parties' spreads; the label holder's last weight is an intercept, which is not shrunk.
    """
    ends = np.cumsum([descent.widths[name] for name in run.parties])
    here = np.zeros((int(ends[-1]), descent.outputs))
    intercept = int(dict(zip(run.parties, ends))[run.active]) - 1
    first = 1.0 / (0.25 * (1 + sum(run.n_columns.values())) ** 0.5 + reg_lambda)
    history: list[tuple[Floats, Floats]] = []
    last: tuple[Floats, Floats] | None = None
    curve: list[float] = []
    start, spread = np.zeros_like(here), np.zeros(descent.outputs)
    for _ in run.track(range(max_iter), "step", at_most=True):
        check_room(np.linalg.norm(here, axis=0), wide, 2.0)
        _, found = descent.at(dict(zip(run.parties, np.split(here, ends[:-1]))))
        sums = np.vstack(list(found.values()))
        start = start if curve else sums  # X't, less what weights add: X'X w is what they add
        spread = (np.delete(here, intercept, axis=0) * np.delete(sums - start, intercept, axis=0)).sum(axis=0)
        shrunk = float(reg_lambda) * here
        shrunk[intercept] = 0.0
        gradient = sums / 4 + shrunk
        if last is not None:
            history = [*history, (last[0], gradient - last[1])][-int(memory) :]
        basis = np.array([*(s for s, _ in history), *(y for _, y in history), gradient]).reshape(
            2 * len(history) + 1, -1
        )
        curve.append(float(np.linalg.norm(gradient)))
        if curve[-1] < tol:
            break
        step = (direction(basis @ basis.T, first) @ basis).reshape(here.shape)
        here, last = here + step, (step, gradient)
    deviation = float(np.sqrt(max(0.0, spread.max(initial=0.0))))
    return Descended(dict(zip(run.parties, np.split(here, ends[:-1]))), curve, deviation)
