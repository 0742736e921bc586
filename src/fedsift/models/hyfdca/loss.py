"""The three losses of HyFDCA and their dual coordinates, for all rows and outputs at once. Plain mathematics of arrays.

Scores and labels are rows x outputs; labels are -1 and 1, or a standardised amount. The primal is
sum loss(score, y) + alpha / 2 |w|^2; a row's dual coordinate enters the weights as w = 1/alpha sum dual * x.

Squared and logistic loss: the dual coordinate that is best at fixed scores is minus the slope of the loss. The hinge
has no slope at 1, so its dual is climbed with a proximal term: the best a in [0, 1] of
a (1 - y z) - GAMMA/2 (a - centre)^2, in closed form; ``centre`` is the dual of an earlier round, and in the end both
agree, so nothing is smoothed away.

Where rows count differently, a row's loss, its conjugate and its dual are multiplied by its weight; ``centre`` is of
the dual that is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsift.core.checks import check_size
from fedsift.errors import OperationRefused

LOSSES = ("squared", "logistic", "hinge")
GAMMA = 1.0


@dataclass(frozen=True)
class Duals:
    """What the label holder knows of its rows after a round: all rows x outputs."""

    signed: np.ndarray  # as they multiply the rows
    centre: np.ndarray  # where the proximal term of the hinge stands (in [0, 1]); unused by the others
    objective: np.ndarray  # by output: the loss that the descent is measured by (the hinge's: its proximal envelope)
    primal: np.ndarray  # by output: the loss itself
    dual: (
        np.ndarray
    )  # by output: minus the conjugate, so that primal + alpha/2 |w|^2 - dual + alpha/2 |w'|^2 is the gap
    moved: np.ndarray  # by output: squared distance of the duals from their centre, times GAMMA


def curvature(loss: str) -> float:
    """The largest second derivative of the loss (of the hinge: of its envelope)."""
    return {"squared": 1.0, "logistic": 0.25, "hinge": 1.0 / GAMMA}[loss]


def first_centre(loss: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.full(shape if loss == "hinge" else (0, shape[1]), 0.5)


def check_centres(party: str, step: str, moved: np.ndarray, outputs: int, loss: str) -> None:
    """Which outputs' centres a request moves: there are centres in the hinge loss alone."""
    check_size(party, step, "recentre", moved, outputs)
    if moved.any() and loss != "hinge":
        raise OperationRefused(party, step, f"the {loss} loss has no centres that could be moved")


def best_duals(
    loss: str, scores: np.ndarray, y: np.ndarray, centre: np.ndarray, weights: np.ndarray | None = None
) -> Duals:
    """The dual coordinates that are best at these scores, not yet times the ``weights`` of the rows (rows x 1); sums
    are weighted."""
    zero = np.zeros(scores.shape[1])

    def total(of_rows: np.ndarray) -> np.ndarray:
        return np.asarray((of_rows if weights is None else weights * of_rows).sum(axis=0))

    if loss == "squared":
        signed = y - scores
        primal = 0.5 * total(signed**2)
        return Duals(signed, centre, primal, primal, total(signed * y - 0.5 * signed**2), zero)
    if loss == "logistic":
        margin = y * scores
        part = np.exp(-np.logaddexp(0.0, margin))  # 1 / (1 + exp(margin)), without overflow
        primal = total(np.logaddexp(0.0, -margin))
        return Duals(y * part, centre, primal, primal, total(_entropy(part)), zero)
    slack = 1.0 - y * scores
    part = np.clip(centre + slack / GAMMA, 0.0, 1.0)
    away = GAMMA * total((part - centre) ** 2)
    envelope = total(part * slack) - 0.5 * away
    return Duals(y * part, centre, envelope, total(np.maximum(slack, 0.0)), total(part), away)


def _entropy(part: np.ndarray) -> np.ndarray:
    inside = np.clip(part, 1e-300, 1.0 - 1e-16)
    return np.asarray(-(inside * np.log(inside) + (1.0 - inside) * np.log1p(-inside)))


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Classes from scores of one against the rest: rows x classes."""
    chance = np.exp(-np.logaddexp(0.0, -scores))
    if chance.shape[1] == 1:
        return np.hstack([1.0 - chance, chance])
    return np.asarray(chance / np.maximum(chance.sum(axis=1, keepdims=True), 1e-300))
