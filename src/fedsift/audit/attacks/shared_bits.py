"""Bins of a passive party's cells at the level ``all``, where left and right of every cut are shares.

At the level ``coordinator`` the label holder reads which rows go left, and places cells (``cut_bits.py``). At ``all``
each side holds a share of every bit and of every node, and this asks whether a learner that knows 5 % of the other
party's rows makes more of all these numbers, and of what is left between any two, than of the label holder's own
columns.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from fedsift.audit.attacks.bin_membership import columns_tried
from fedsift.audit.attacks.embedding_decoder import SHARE
from fedsift.audit.attacks.masks import CAME_OFF
from fedsift.audit.exposure import Measure
from fedsift.audit.numbers_seen import features, masked_numbers, sizes
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View, bins_told
from fedsift.core.binning import codes_of

BINS = 4  # a learner with few known rows cannot tell more of them apart
_MOST_FEATURES = 60
_MOST_COLUMNS = 10


def placed(values: np.ndarray, codes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The bins into which a forest that is taught the known rows puts every cell."""
    forests = [RandomForestClassifier(30, min_samples_leaf=2, random_state=0) for _ in codes.T]
    return np.stack([f.fit(values[known], c[known]).predict(values) for f, c in zip(forests, codes.T)], axis=1)


@attack(
    reads=["take_winners", "divide_rows", "walk_rows"], role="active", target="columns", declared="denied",
    knows="5 % of the rows of the other party, and the bins of its columns",
)  # fmt: skip
def shared_bits_give_cells(view: View, truth: Truth) -> Measure:
    """Share of cells put into their bin, from shares of which rows go left and the holder's own columns."""
    rows = len(truth.labels)
    table = features(masked_numbers(view, rows))
    size = sizes(table)
    seen = np.nan_to_num(table[:, size < CAME_OFF] if (size < CAME_OFF).any() else table)[:, :_MOST_FEATURES]
    seen = seen / np.maximum(np.abs(seen).max(axis=0, initial=0.0), 1e-300)
    known = np.zeros(rows, dtype=bool)
    known[np.random.default_rng(0).permutation(rows)[: max(20, round(SHARE * rows))]] = True
    own, values, baselines, guesses = np.nan_to_num(view.columns), [], [], []
    found, true = {}, {}
    for party, columns in truth.columns.items():
        if party == view.name or not columns.shape[1]:
            continue
        tried = min(columns.shape[1], columns_tried(rows), _MOST_COLUMNS)
        codes = codes_of(np.nan_to_num(columns[:, :tried]).T, min(bins_told(view.job, 32), BINS)).T
        guesses.append(float(np.mean([np.bincount(column).max() / rows for column in codes.T])))
        baselines.append(float((placed(own, codes, known) == codes)[~known].mean()))
        if table.size:
            found[party], true[party] = placed(np.hstack([own, seen]), codes, known), codes
            values.append(float((found[party] == codes)[~known].mean()))
    metric = "cells in their true bin"
    guess, baseline = (float(np.mean(each)) if each else 0.0 for each in (guesses, baselines))
    if not values:
        return Measure(metric, guess, guess, baseline, note="nothing to read: no numbers row by row")
    note = f"{table.shape[1]} numbers a row; least mean size {size[0]:.2f} of the ring"
    return Measure(metric, float(np.mean(values)), guess, baseline, note=note, columns=found, bins=true)
