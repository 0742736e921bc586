"""What partners gain: which of them join the label holder, and what the figures of these models say of each.

Plain arithmetic on one figure a model and fold, at the coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np
from numpy.typing import NDArray

from fedsift.evaluate.intervals import corrected_interval
from fedsift.evaluate.worth import Gain, PartnerLine

#: With more partners than this, only single ones, all, and all but one are tried: no Shapley shares.
MAX_SHARED = 4

Folds = NDArray[np.float64]


def coalition_name(partners: tuple[str, ...]) -> str:
    """Under which name the models of the label holder with these partners are measured."""
    return "with " + ", ".join(sorted(partners)) if partners else "alone"


def shuffled_name(partner: str) -> str:
    return f"shuffled {partner}"


def coalitions(partners: list[str]) -> list[tuple[str, ...]]:
    """Which partners join the label holder: all subsets, or of many partners none, each, all but each, and all."""
    if len(partners) <= MAX_SHARED:
        return [group for size in range(len(partners) + 1) for group in combinations(partners, size)]
    whole = tuple(partners)
    others = [tuple(name for name in whole if name != out) for out in whole]
    return [(), *((name,) for name in whole), *others, whole]


def shapley(worth: dict[frozenset[str], Folds], partner: str, partners: list[str]) -> Folds:
    """The partner's share of the joint gain, in each fold: its mean gain over all orders of joining."""
    others = [name for name in partners if name != partner]
    total = np.zeros_like(worth[frozenset()])
    for size in range(len(others) + 1):
        weight = factorial(size) * factorial(len(others) - size) / factorial(len(partners))
        for group in combinations(others, size):
            total = total + weight * (worth[frozenset((*group, partner))] - worth[frozenset(group)])
    return total


@dataclass(frozen=True)
class Gains:
    """What every partner adds, all of them together, and the mean of each coalition; rounded."""

    lines: list[PartnerLine]
    together: Gain
    scores: dict[str, float]


def gains(figures: Mapping[str, Sequence[float]], partners: list[str], *, null: bool, digits: int) -> Gains:
    """From the figures of each model (by the name of its coalition), fold by fold; every gain is paired over folds."""
    worth = {frozenset(group): np.array(figures[coalition_name(group)]) for group in coalitions(partners)}
    alone, everybody = worth[frozenset()], worth[frozenset(partners)]

    def gain(values: Folds) -> Gain:
        found = corrected_interval(values.tolist(), 1.0 / len(values)).rounded(digits)
        mean, low, high = (value if np.isfinite(value) else None for value in (found.mean, found.low, found.high))
        return Gain(float("nan") if mean is None else mean, low, high)

    lines = [
        PartnerLine(
            name,
            adds=gain(worth[frozenset([name])] - alone),
            beyond=gain(everybody - worth[frozenset(partners) - {name}]),
            share=gain(shapley(worth, name, partners)) if len(partners) <= MAX_SHARED else None,
            null=gain(np.array(figures[shuffled_name(name)]) - alone) if null else None,
        )
        for name in partners
    ]
    scores = {coalition_name(tuple(group)): round(float(found.mean()), digits) for group, found in worth.items()}
    return Gains(lines, gain(everybody - alone), scores)
