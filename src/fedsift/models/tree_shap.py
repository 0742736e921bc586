"""Shapley values of trees, as pure mathematics: how much each feature moves the prediction of each row.

Lundberg et al. 2018 (path-dependent TreeSHAP): a feature that is not known goes both ways, by the shares of rows that
go there. Written leaf by leaf over all rows at once. With the features of a leaf's path, o (does the row agree with all
their cuts) and z (the product of the shares of rows that do), the leaf's value v gives feature i

    v (o_i - z_i) sum over sets S of the others of |S|! (u - |S| - 1)! / u! prod in S of o, prod outside of z,

and the inner sums by size are the coefficients of the product of (z_k + o_k t).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import NDArray

Feature = tuple[str, int]  # a party, and the number of its column
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Cut:
    """An inner node: its feature, which rows go left, its children."""

    feature: Feature
    left: Flags
    first: int
    second: int


@dataclass(frozen=True)
class Leaf:
    value: Floats  # one number an output


Node = Cut | Leaf


def covers(nodes: Sequence[Node], rows: int) -> Floats:
    """How many rows reach each node; children have larger numbers than their parents."""
    here: dict[int, Flags] = {0: np.ones(rows, dtype=bool)}
    found = np.zeros(len(nodes))
    for number, node in enumerate(nodes):
        found[number] = here[number].sum()
        if isinstance(node, Cut):
            here[node.first], here[node.second] = here[number] & node.left, here[number] & ~node.left
    return found


def shapley_of_tree(nodes: Sequence[Node], cover: Floats, rows: int) -> dict[Feature, Floats]:
    """Rows x outputs for each feature of the tree. ``cover`` says how many rows of the background reach each node."""
    found: dict[Feature, Floats] = {}

    def walk(number: int, path: Mapping[Feature, tuple[Flags, float]]) -> None:
        node = nodes[number]
        if isinstance(node, Leaf):
            for feature, moved in _of_leaf(node.value, path).items():
                found[feature] = found.get(feature, np.zeros_like(moved)) + moved
            return
        for child, agrees in ((node.first, node.left), (node.second, ~node.left)):
            share = cover[child] / cover[number] if cover[number] else 0.5
            before, ratio = path.get(node.feature, (np.ones(rows, dtype=bool), 1.0))
            walk(child, {**path, node.feature: (before & agrees, ratio * share)})

    walk(0, {})
    return found


def _of_leaf(value: Floats, path: Mapping[Feature, tuple[Flags, float]]) -> dict[Feature, Floats]:
    features, size = list(path), len(path)
    found: dict[Feature, Floats] = {}
    for feature in features:
        by_size = [np.ones(len(path[feature][0]))]
        for other in features:
            if other == feature:
                continue
            agrees, ratio = path[other]
            grown = [ratio * part for part in by_size] + [np.zeros_like(by_size[0])]
            for place, part in enumerate(by_size):
                grown[place + 1] = grown[place + 1] + agrees * part
            by_size = grown
        weights = [factorial(k) * factorial(size - k - 1) / factorial(size) for k in range(size)]
        agrees, ratio = path[feature]
        inner = sum(weight * part for weight, part in zip(weights, by_size))
        found[feature] = ((agrees - ratio) * inner)[:, None] * value[None, :]
    return found
