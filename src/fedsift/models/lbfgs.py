"""The quasi-Newton direction from inner products alone (limited-memory BFGS, Chen et al. 2014).

The vectors are spread over parties, so whoever computes the direction has only the table of their inner products, and
gives back how to combine them.
"""

from __future__ import annotations

import numpy as np


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
