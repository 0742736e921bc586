"""Two jobs, one on rows and one on rows minus one: what is known of that row (security.md, line 15).

Each job's answer is a sum over many rows; the difference of two answers is a statement about one person.

- a passive party (SFFS, exact scores): under either label of the row, its F statistics of the first job and its own
  values give those of the second up to a sign a column; only the true label fits all columns.
- the label holder (SFFS, per-class sums): the sums of a standardised column with and without the row give the row's
  standardised value: one unknown, one equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq

from fedsift.audit.attacks.scores import results_told
from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import standardise
from fedsift.audit.views import Message, Truth, View
from fedsift.core.federation import Federation


def two_jobs(make: Callable[[], Any], rows: Sequence[int]) -> Callable[[Federation], list[Any]]:
    """What somebody runs who may submit jobs: the method on all rows, and without each of ``rows`` in turn."""

    def conversation(fed: Federation) -> list[Any]:
        fitted = [make().fit(fed)]
        everybody = np.arange(fed.n_rows)
        for row in rows:
            fitted.append(make().fit(fed.view(rows=np.delete(everybody, row))))
        return fitted

    return conversation


def left_out(view: View, rows: int) -> list[int]:
    """The row that each view of all rows but one leaves out, in order."""
    found = []
    for message in view.requests("define_view"):
        listed = message.content.get("rows")
        if listed is not None and len(listed) == rows - 1:
            found.append(int(np.setdiff1d(np.arange(rows), listed)[0]))
    return found


def label_from_scores(
    columns: np.ndarray, row: int, before: np.ndarray, after: np.ndarray, sizes: tuple[int, int]
) -> int:
    """The label of a row from the F statistics with and without it: that which explains the second by the first."""
    full, part = standardise(columns), standardise(np.delete(columns, row, axis=0))
    spread = columns.std(axis=0)
    varies = spread > 1e-12
    centre = (columns.mean(axis=0) - np.delete(columns, row, axis=0).mean(axis=0))[varies]
    left = np.delete(columns, row, axis=0).std(axis=0)[varies]
    size = np.sqrt(_between(before[varies], len(full)) * sizes[0] * sizes[1] / len(full))
    gaps = []
    for label in (0, 1):
        counts = (sizes[0] - (label == 0), sizes[1] - (label == 1))
        told = np.sqrt(_between(after[varies], len(part)) * counts[0] * counts[1] / len(part))
        # Class 1's sum of standardised values, without the row, moved to the other mean and deviation.
        moved = [
            np.abs(((sign * size - label * full[row, varies]) * spread[varies] + counts[1] * centre) / left)
            for sign in (1.0, -1.0)
        ]
        gaps.append(float(np.minimum(np.abs(moved[0] - told), np.abs(moved[1] - told)).sum()))
    return int(np.argmin(gaps))


def _between(statistic: np.ndarray, rows: int) -> np.ndarray:
    return np.asarray(rows * statistic / (statistic + rows - 2))


def value_from_sums(before: float, after: float, sizes: tuple[int, int], label: int) -> float | None:
    """The standardised value of a row from class 0's sum of a column with and without it; None without a solution."""
    rows = sum(sizes)
    counted = sizes[0] - (label == 0)

    def gap(z: float) -> float:
        deviation = np.sqrt(rows / (rows - 1) - z * z * rows / (rows - 1) ** 2)
        return float((before - (label == 0) * z + counted * z / (rows - 1)) / deviation - after)

    end = np.sqrt(rows - 1) * 0.999
    grid = np.linspace(-end, end, 801)
    values = np.array([gap(z) for z in grid])
    roots = [
        float(brentq(gap, grid[i], grid[i + 1])) for i in np.flatnonzero(np.sign(values[:-1]) != np.sign(values[1:]))
    ]
    return min(roots, key=abs) if roots else None


@attack(
    reads=["keep_result"], role="passive", target="labels", declared="no defence", line=15,
    knows="that one row was left out of the second job, and which; the class sizes",
)  # fmt: skip
def label_of_row_left_out(view: View, truth: Truth) -> Measure:
    """Labels of rows that were left out of a second job, from the party's own exact scores of both (SFFS)."""
    rows = left_out(view, len(truth.labels))
    told = results_told(view)
    if not rows or len(told) != len(rows) + 1 or view.job.method != "sffs" or np.isnan(told[0]).any():
        return Measure("labels", truth.guess, truth.guess, truth.guess, note="nothing to read: no such two jobs")
    found = [
        label_from_scores(view.columns, row, told[0], after, truth.class_sizes) for row, after in zip(rows, told[1:])
    ]
    right = int((np.array(found) == truth.labels[rows]).sum())
    return Measure("labels", right / len(rows), truth.guess, truth.guess, note=f"{right} of {len(rows)} rows")


def opened_sums(view: View, message: Message, rows: int, name: str) -> np.ndarray:
    """Class 0's sums of a party's standardised columns, as the label holder decrypts them for F statistics."""
    from fedsift.mpc.encrypted_histogram import RowLayout, read_sums

    content = message.content
    reply, bits = content["replies"][name], int(content["bits"])
    key = next(k for label, k in view.keys.items() if label.startswith("additive:"))
    layout = RowLayout.read(content["layouts"][0], rows)
    opened = np.array(read_sums(key, reply["sums"][0], layout, len(reply["owner"])), dtype=object)[:, 0]
    zeros = int((_labels(view, rows, message) == 0).sum())
    fraction = bits - 5 if content["clip"] else bits - 2 - (rows.bit_length() + 1) // 2
    return np.asarray((opened - (1 << (bits - 1)) * zeros).astype(np.float64) / 2.0**fraction)


def _labels(view: View, rows: int, message: Message) -> np.ndarray:
    """The label holder's own labels of the rows of a request."""
    _, codes = np.unique(np.asarray(view.own_table.label), return_inverse=True)
    if rows == len(codes):
        return codes
    listed = next(m.content["rows"] for m in view.requests("define_view") if m.content["view"] == message.view)
    return np.asarray(codes[listed])


@attack(
    reads=["f_statistics"], role="active", target="columns", declared="no defence", line=15,
    knows="that one row was left out of the second job, and which",
)  # fmt: skip
def values_of_row_left_out(view: View, truth: Truth) -> Measure:
    """Standardised values of a row in another party's columns, from the per-class sums of both jobs (SFFS)."""
    rows = len(truth.labels)
    gone, asked = left_out(view, rows), view.requests("f_statistics")
    if not gone or len(asked) != len(gone) + 1 or truth.n_classes != 2:
        return Measure("values", 0.0, 0.0, 0.0, note="nothing to read: no such two jobs")
    right, total = 0, 0
    for name in asked[0].content["replies"]:
        truly = standardise(truth.columns[name])
        before = opened_sums(view, asked[0], rows, name)
        for row, message in zip(gone, asked[1:]):
            after = opened_sums(view, message, rows - 1, name)
            label = int(_labels(view, rows, asked[0])[row])
            for column in range(len(before)):
                value = value_from_sums(before[column], after[column], truth.class_sizes, label)
                right += value is not None and abs(value - truly[row, column]) < 0.01
                total += 1
    return Measure("values", right / max(1, total), 0.0, 0.0, note=f"{right} of {total} z-scores within 0.01")
