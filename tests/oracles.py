"""Slow and obvious: what fast code has to equal."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np


def slow_bins(values, n_bins: int, min_rows: int = 1) -> np.ndarray:
    """The bin of each value, by the words at the head of ``binning.py``, a value at a time."""
    rows = Counter(float(value) for value in values)
    distinct = sorted(rows)
    if len(distinct) <= n_bins and min(rows.values(), default=min_rows) >= min_rows:
        return np.array([distinct.index(value) for value in values])
    heavy: set[float] = set()
    while (left := n_bins - len(heavy)) > 1:
        share = Fraction(sum(rows[v] for v in distinct if v not in heavy), left)
        found = {v for v in distinct if v not in heavy and rows[v] >= max(share, min_rows)}
        if not found:
            break
        heavy |= found
    apart, few = _apart(distinct, rows, heavy, min_rows)
    light = [v for v in distinct if v not in heavy and v not in few]
    for bins in range(max(left, 1), 0, -1):
        ends = apart | _ends(light, rows, bins)  # values after which a bin ends
        codes = np.array([sum(end < value for end in ends) for value in values])
        codes = np.unique(codes, return_inverse=True)[1]
        if np.bincount(codes).min() >= min_rows or bins == 1:
            return codes if np.bincount(codes).min() >= min_rows else np.zeros_like(codes)
    raise AssertionError("not reached")


def _apart(distinct, rows, heavy, min_rows):
    """Where heavy values are cut off, and the values that are too few to stand beside one."""
    ends = {v for i, v in enumerate(distinct[:-1]) if v in heavy or distinct[i + 1] in heavy}
    few: set[float] = set()
    run: list[float] = []
    for value in [*distinct, None]:
        if value is not None and value not in heavy:
            run.append(value)
            continue
        if run and sum(rows[v] for v in run) < min_rows:
            few |= set(run)
            at = distinct.index(run[0]), distinct.index(run[-1])
            sides = {}
            if at[0] > 0:
                sides[distinct[at[0] - 1]] = rows[distinct[at[0] - 1]]  # the end is the heavy value below
            if at[1] < len(distinct) - 1:
                sides[run[-1]] = rows[distinct[at[1] + 1]]  # the end is the last of the few
            ends -= {end for end, size in sides.items() if size == min(sides.values())}
        run = []
    return ends, few


def _ends(light, rows, bins):
    """The ends of equally full bins: the nearest gap, of two the outer one, around the middle both."""
    total = sum(rows[v] for v in light)
    ends: set[float] = set()
    for share in range(1, bins):
        target = Fraction(total * share, bins)
        gaps, below = {}, 0
        for i, value in enumerate(light):
            gaps[i - 1] = abs(target - below)
            below += rows[value]
        gaps[len(light) - 1] = abs(target - below)
        near = [gap for gap in gaps if gaps[gap] == min(gaps.values())]
        if len(near) > 1 and target != Fraction(total, 2):
            near = [max(near) if 2 * target > total else min(near)]
        ends |= {light[gap] for gap in near if 0 <= gap < len(light) - 1}
    return ends


def gini_impurity(codes: np.ndarray, classes: np.ndarray, n_bins: int, n_classes: int) -> float:
    """Mean impurity of the bins of one column, weighted by their size."""
    table = np.bincount(codes * n_classes + classes, minlength=n_bins * n_classes).reshape(n_bins, n_classes)
    return float(1 - ((table**2).sum(axis=1) / np.maximum(table.sum(axis=1), 1)).sum() / len(codes))
