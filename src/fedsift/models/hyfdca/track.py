"""A block of weights on its way down: position, gradient, and what quasi-Newton steps remember. Arrays only.

The weights of a column block lie with the parties that hold the columns; each keeps a ``Track`` of the same numbers.
A step is a combination of remembered vectors whose coefficients come from inner products summed over all blocks
(``lbfgs.direction``), so the blocks move as one although nobody sees them together. A track never changes in place: a
round that is called off is undone by keeping the old one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedsift.core.message import message
from fedsift.errors import DataError


@message
@dataclass(frozen=True)
class Decision:
    """What a full round came to, for each output: whether to go back, what to forget, how to combine vectors."""

    back: NDArray[np.bool_]
    forget: NDArray[np.bool_]
    coefficients: NDArray[np.float64]


@dataclass(frozen=True)
class Track:
    """All arrays are weights x outputs, in the metric of the block (see ``hyfdca_party.Part``).

    ``anchor`` is where the last full round measured, ``best`` where the objective was smallest.
    """

    u: np.ndarray
    g: np.ndarray
    anchor: tuple[np.ndarray, np.ndarray] | None = None
    best: tuple[np.ndarray, np.ndarray] | None = None
    steps: tuple[np.ndarray, ...] = ()
    changes: tuple[np.ndarray, ...] = ()

    @classmethod
    def start(cls, width: int, outputs: int) -> Track:
        return cls(np.zeros((width, outputs)), np.zeros((width, outputs)))

    def measured(self, g: np.ndarray, memory: int, full: bool) -> Track:
        """With the gradient at the present position; a full round also remembers the step since the last full one."""
        if not full:
            return replace(self, g=g)
        steps, changes = self.steps, self.changes
        if self.anchor is not None:
            steps = (*steps, self.u - self.anchor[0])[-memory:]
            changes = (*changes, g - self.anchor[1])[-memory:]
        return replace(self, g=g, steps=steps, changes=changes, anchor=(self.u, g))

    def products(self) -> np.ndarray:
        """Inner products of all remembered vectors and the gradient: outputs x vectors x vectors."""
        basis = self._basis()
        return np.asarray(np.einsum("ido,jdo->oij", basis, basis))

    def decided(self, decision: Decision) -> Track:
        """Act on a full round: outputs that got worse go back, for the others this is the new best; then step."""
        back, forget = decision.back, decision.forget
        if back.shape != (self.u.shape[1],) or forget.shape != back.shape:
            raise DataError("a step is decided for each output")
        if self.anchor is None or (back.any() and self.best is None):
            raise DataError("a step was decided before a full round was measured")
        u, g = self.anchor
        if back.any() and self.best is not None:
            u, g = np.where(back, self.best[0], u), np.where(back, self.best[1], g)
        moved = replace(
            self, u=u, g=g, anchor=(u, g), best=(u, g),
            steps=tuple(np.where(forget, 0.0, each) for each in self.steps),
            changes=tuple(np.where(forget, 0.0, each) for each in self.changes),
        )  # fmt: skip
        basis = moved._basis()
        if decision.coefficients.shape != (u.shape[1], len(basis)):
            raise DataError(f"a step needs {u.shape[1]} x {len(basis)} coefficients")
        step = np.einsum("oi,ido->do", decision.coefficients, basis)
        return replace(moved, u=u + step)

    def slid(self, rate: float) -> Track:
        """A plain step, between full rounds."""
        return replace(self, u=self.u - rate * self.g)

    def _basis(self) -> np.ndarray:
        return np.array([*self.steps, *self.changes, self.g])


def to_bits(*arrays: np.ndarray) -> np.ndarray:
    """Floats as they are in memory, for a message under a cover: the other copy must have exactly the same numbers."""
    return np.concatenate([np.ascontiguousarray(each, dtype=np.float64).ravel().view(np.uint64) for each in arrays])


def from_bits(bits: np.ndarray, shape: tuple[int, int], count: int) -> list[np.ndarray]:
    return [each.view(np.float64).reshape(shape) for each in np.split(np.ascontiguousarray(bits), count)]
