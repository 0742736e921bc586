"""Which rows a model learns from: drawn by the label holder, within classes, from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.errors import ParameterError
from fedsift.party import Labels


def fold_numbers(labels: Labels, rows: int, folds: int, seed: int) -> np.ndarray:
    """The fold of each row: classes (or quantile classes of a number) are spread evenly over the folds."""
    generator = np.random.default_rng(seed)
    fold = np.empty(rows, dtype=np.int64)
    offset = 0
    for k in range(labels.n_classes):
        members = generator.permutation(np.flatnonzero(labels.codes == k))
        fold[members] = (np.arange(len(members)) + offset) % folds
        offset += len(members)
    return fold


def training_rows(rule: dict[str, Any], labels: Labels, rows: int) -> np.ndarray:
    """A boolean for each row. The rest is held out: it goes down the trees, and no sum ever holds it."""
    kind = rule["kind"]
    if kind == "all":
        return np.ones(rows, dtype=bool)
    if kind == "fold":
        return fold_numbers(labels, rows, rule["folds"], rule["seed"]) != rule["fold"]
    if kind == "validation":
        folds = max(2, round(1 / rule["share"]))
        return fold_numbers(labels, rows, folds, rule["seed"]) != 0
    if kind == "listed":
        listed = np.zeros(rows, dtype=bool)
        listed[np.asarray(rule["train"], dtype=np.int64)] = True
        return listed
    raise ParameterError(f"unknown kind of rows {kind!r}")
