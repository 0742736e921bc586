"""Exact tables from Gini's "one impurity" (security.md, line 11).

The number that the label holder opens for a column is not an impurity but an exact integer: the sum over bins of
q_b^2 (s_b^2 + t_b^2), q_b = round(2^28 / sqrt(n_b)), where s_b and t_b count the classes in a bin of n_b rows. For a
column of two bins there are about n^2 / 4 tables, and the integer has 60 bits: one table fits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View
from fedsift.core.binning import most_bins

_SCALE_BITS = 28
_HIDING_BITS = 40


def tables_of(number: int, sizes: tuple[int, int]) -> list[tuple[int, int]]:
    """All (rows, rows of class 1) of the smaller bin (or the first of two equal ones) that give this integer."""
    zeros, ones = sizes
    rows = zeros + ones
    found = []
    scale = [0] + [round(2**_SCALE_BITS / float(np.sqrt(n))) ** 2 for n in range(1, rows)]
    for size in range(1, rows // 2 + 1):
        low, high = max(0, size - zeros), min(size, ones)
        inside = np.arange(low, high + 1, dtype=np.uint64)
        near, far = np.uint64(scale[size] % 2**64), np.uint64(scale[rows - size] % 2**64)
        first = inside * inside + (np.uint64(size) - inside) ** np.uint64(2)
        rest = np.uint64(ones) - inside
        second = rest * rest + (np.uint64(rows - size) - rest) ** np.uint64(2)
        same = near * first + far * second == np.uint64(number % 2**64)  # exact modulo 2^64: wraps on purpose
        found += [(size, int(s)) for s in inside[same]]
    return found


def _opened(view: View, rows: int, bins: int) -> dict[str, list[tuple[int, int]]]:
    """What the label holder opens of each party's columns: (padded number of bins, the integer)."""
    most = 1 << (most_bins(bins) - 1).bit_length()
    term = _SCALE_BITS + (rows.bit_length() + 1) // 2 + 1
    pitch = 2 * (term + _HIDING_BITS) + (most * 2).bit_length() + 4
    key = next(k for name, k in view.keys.items() if name.startswith("additive:"))
    lanes = min((key.public.plaintext_bits // pitch + 1) // 2, 2)
    slot = (1 << pitch) - 1
    result: dict[str, list[tuple[int, int]]] = {}
    for message in view.requests("open_impurities"):
        for name, reply in message.content["replies"].items():
            counts = reply["bins"].tolist()
            owner = np.repeat(np.arange(len(counts)), counts)
            squares = [0] * len(counts)
            for masked in reply["masked"]:
                for j, number in zip(owner.tolist(), key.decrypt(masked, bits=lanes * pitch)):
                    squares[j] += sum(((number >> (lane * pitch)) & slot) ** 2 for lane in range(lanes))
            middle = (lanes - 1) * pitch
            corrections = key.decrypt(reply["corrections"], bits=(2 * lanes - 1) * pitch)
            opened = [s - ((c >> middle) & slot) for s, c in zip(squares, corrections)]
            result[name] = list(zip(counts, opened))
    return result


def _true_table(column: np.ndarray, labels: np.ndarray) -> tuple[int, int]:
    """Of a column of two values: rows and rows of class 1 of its smaller bin."""
    inside = column == np.unique(column)[0]
    if 2 * inside.sum() > len(column):
        inside = ~inside
    return int(inside.sum()), int((labels[inside] == 1).sum())


@attack(
    reads=["open_impurities"], role="active", target="columns", declared="denied", line=11,
    knows="its own labels",
)  # fmt: skip
def integers_give_tables(view: View, truth: Truth) -> Measure:
    """Share of the other parties' columns of two values whose whole 2 x 2 table is found, and no other."""
    settings: Any = view.job.parameters
    right, total = 0, 0
    if truth.n_classes == 2 and view.requests("open_impurities"):
        for name, columns in _opened(view, len(truth.labels), int(settings.get("n_bins", 8))).items():
            for place, (bins, number) in enumerate(columns):
                column = truth.columns[name][:, place]
                if bins != 2 or len(np.unique(column)) != 2:
                    continue
                found = tables_of(number, truth.class_sizes)
                size, ones = _true_table(column, truth.labels)
                twin = (size, truth.class_sizes[1] - ones) if 2 * size == len(truth.labels) else (size, ones)
                total += 1
                right += bool(found) and set(found) <= {(size, ones), twin}
    if not total:
        return Measure(
            "tables found", 0.0, 0.0, 0.0, note="nothing to read: no column of two values, or not two classes"
        )
    share = right / total
    return Measure("tables found", share, 0.0, 0.0, note=f"{right} of {total} columns of two values")
