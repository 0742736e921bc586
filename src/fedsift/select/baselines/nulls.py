"""The nulls that every result stands beside: all columns, and as many random ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.simulate import PARTITIONS
from fedsift.errors import ParameterError
from fedsift.select.base import Outcome, Selector, check_number


class AllFeatures(Selector):
    """Keep every column.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> fs.AllFeatures().fit(fed).selected_["bank"]
    ['sepal length (cm)', 'sepal width (cm)']
    """

    name = "all"
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
    """Keep ``n_features`` columns drawn at random: what any method must beat.

    Over all columns of vertical parties; where parties share columns, over the names that all of them have (horizontal)
    or that any has (hybrid), and every party keeps the same ones.

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> kept = fs.RandomFeatures(n_features=2, random_state=1).fit(fed).selected_
    >>> sum(len(columns) for columns in kept.values())
    2
    """

    name = "random"
    paper = "null"
    partitions = PARTITIONS
    leaks = "nothing"

    def __init__(self, *, n_features: int = 10, random_state: Any = 0):
        self.n_features = n_features
        self.random_state = random_state

    def _check(self, fed: Federation) -> None:
        check_number("n_features", self.n_features, 1, whole=True)
        if fed.partition != "vertical" and fed.names == "private":
            raise ParameterError("columns are matched by name: RandomFeatures needs a federation with names='shared'")

    def _select(self, fed: Federation) -> Outcome:
        generator = np.random.default_rng(self.random_state)
        if fed.partition == "vertical":
            scores = {name: generator.random(count) for name, count in fed.n_columns.items()}
            return Outcome.best(scores, self.n_features, None)
        names = fed.column_names()
        everyone = fed.partition == "horizontal"
        pool = [
            column for column in dict.fromkeys(column for columns in names.values() for column in columns)
            if not everyone or all(column in columns for columns in names.values())
        ]  # fmt: skip
        drawn = dict(zip(pool, generator.random(len(pool))))
        kept = set(sorted(pool, key=lambda column: -drawn[column])[: self.n_features])
        return Outcome(
            {party: np.array([drawn.get(column, 0.0) for column in columns]) for party, columns in names.items()},
            {party: np.array([c in kept for c in columns], dtype=bool) for party, columns in names.items()},
        )
