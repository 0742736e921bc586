"""The nulls that every result stands beside: all columns, and as many random ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.federation import PARTITIONS, Federation
from fedsift.select.base import Outcome, Selector, check_number


class AllFeatures(Selector):
    """Keep every column."""

    paper = "null"
    partitions = PARTITIONS
    leaks = "nothing"

    def __init__(self) -> None:
        pass

    def _select(self, fed: Federation) -> Outcome:
        columns = fed.n_columns
        return Outcome(
            {name: np.ones(count) for name, count in columns.items()},
            {name: np.ones(count, dtype=bool) for name, count in columns.items()},
        )


class RandomFeatures(Selector):
    """Keep ``n_features`` columns drawn at random over all parties: what any method must beat."""

    paper = "null"
    leaks = "nothing"

    def __init__(self, *, n_features: int = 10, random_state: Any = 0):
        self.n_features = n_features
        self.random_state = random_state

    def _check(self, fed: Federation) -> None:
        check_number("n_features", self.n_features, 1, whole=True)

    def _select(self, fed: Federation) -> Outcome:
        generator = np.random.default_rng(self.random_state)
        scores = {name: generator.random(count) for name, count in fed.n_columns.items()}
        return Outcome.best(scores, self.n_features, None)
