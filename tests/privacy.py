"""The loss of a release measured from below (``audit/attacks/privacy_loss.py``), from draws that were made before."""

from __future__ import annotations

import numpy as np

from fedsift.audit.attacks.privacy_loss import epsilon_from_below


def loss_from_below(first: np.ndarray, second: np.ndarray, delta: float = 1e-6) -> float:
    """A lower bound on epsilon at 95 %, from draws (draws x numbers) on two neighbouring tables.

    The direction in which they differ is taken from the half of the draws that the event is chosen on.
    """
    half = len(first) // 2
    direction = second[:half].mean(axis=0) - first[:half].mean(axis=0)
    return epsilon_from_below(
        next, iter(first), iter(second), len(first), statistic=lambda seen: float(seen @ direction), delta=delta
    ).epsilon
