"""Short and near vectors of a lattice: enough of LLL for the attacks that need it (up to about 40 dimensions).

Lenstra, Lenstra and Lovász 1982 with Gram-Schmidt vectors in floating point (Schnorr and Euchner 1994): whole numbers
stay exact, and whoever uses a vector checks it against its equations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Real = NDArray[np.float64]
_DELTA = 0.99
_WEIGHT_BITS = 14  # of an equation against an unknown: numbers below 2^40 stay far inside 64 bits
_MOST_STEPS = 60_000


def reduced(basis: Whole) -> tuple[Whole, Real]:
    """An LLL-reduced basis of the same lattice (one vector a row), and its Gram-Schmidt vectors."""
    b = basis.astype(np.int64).copy()
    n = len(b)
    star, norms = np.zeros(b.shape), np.zeros(n)
    mu = np.eye(n)
    at = steps = 0
    while at < n and steps < _MOST_STEPS:
        steps += 1
        _project(b, star, norms, mu, at)
        if at and norms[at] < (_DELTA - mu[at, at - 1] ** 2) * norms[at - 1]:
            b[[at - 1, at]] = b[[at, at - 1]]
            at -= 1
        else:
            at += 1
    return b, star


def _project(b: Whole, star: Real, norms: Real, mu: Real, at: int) -> None:
    """Gram-Schmidt and size reduction of one vector; again while it got shorter, for its first figures were poor."""
    for _ in range(20):
        row = b[at].astype(np.float64)
        mu[at, :at] = (star[:at] @ row) / norms[:at]
        changed = False
        for j in range(at - 1, -1, -1):
            times = np.rint(mu[at, j])
            if times:
                b[at] -= np.int64(times) * b[j]
                mu[at, : j + 1] -= times * mu[j, : j + 1]
                changed = True
        if not changed:
            break
    row = b[at].astype(np.float64)
    for _ in range(2):  # twice is enough
        row -= ((star[:at] @ row) / norms[:at]) @ star[:at]
    star[at], norms[at] = row, max(float(row @ row), 1e-300)


@dataclass(frozen=True)
class Relations:
    """A reduced basis for ``sum of x_j * values_j = target``: unknown whole numbers x, few equations of large ones."""

    values: Whole  # unknowns x equations
    basis: Whole
    star: Real

    @classmethod
    def between(cls, values: Whole) -> Relations:
        unknowns = len(values)
        start = np.hstack([np.eye(unknowns, dtype=np.int64), values << _WEIGHT_BITS])
        return cls(values, *reduced(start))

    def solve(self, target: Whole, middle: Real) -> Whole | None:
        """Whole numbers near ``middle`` that meet all equations exactly (Babai 1986), or ``None``."""
        wanted = np.concatenate([middle, (target << _WEIGHT_BITS).astype(np.float64)])
        left, found = wanted.copy(), np.zeros(len(wanted), dtype=np.int64)
        for row, along in zip(self.basis[::-1], self.star[::-1]):
            times = np.rint(left @ along / (along @ along))
            left -= times * row
            found += np.int64(times) * row
        x = found[: len(self.values)]
        return x if (x @ self.values == target).all() else None
