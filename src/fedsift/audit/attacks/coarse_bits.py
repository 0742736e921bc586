"""What a coordinator makes of the first pass of a coarse screening (``mpc/column_scores/coarse_f.py``).

Of every column it opens how many rows are above the mean and their label counts. With a public sample of the same kind
it computes the same: a column that is seldom above its mean is told from others by that (names), and who took part
pulls the counts of all columns a little to the bits of its own record (membership, Homer et al. 2008).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedsift.audit.exposure import Measure
from fedsift.audit.opened_at_coordinator import OpenedSums, opened_bits
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc
from fedsift.audit.views import Truth, View

_READS = ("masked_bit_sums", "open_bit_sums")
_SILENT = "nothing to read: there is no public sample, or nothing was opened"


def _above(columns: np.ndarray) -> np.ndarray:
    return np.asarray(columns > np.nanmean(columns, axis=0), dtype=np.float64)


def _shares(opened: OpenedSums) -> tuple[np.ndarray, np.ndarray]:
    """Of each column: the share of rows above the mean, and in class 0."""
    rows, first = opened.sizes[:2].sum(), opened.sums[:2, 0].sum()
    return opened.sizes[1::2] / max(1, rows), opened.sums[1::2, 0] / max(1.0, first)


@attack(
    reads=_READS, role="coordinator", target="columns", declared="no",
    knows="a public sample of the same kind of table (here: rows that did not take part)",
)  # fmt: skip
def bits_name_columns(view: View, truth: Truth) -> Measure:
    """Share of a passive party's columns that are named rightly from how many rows are above the mean, by class."""
    right = total = 0
    for each in opened_bits(view) if truth.fresh is not None else []:
        assert truth.fresh is not None
        bits = _above(truth.fresh.columns[each.party])
        if bits.shape[1] * 2 != len(each.sizes):
            continue
        sample = np.stack([bits.mean(axis=0), bits[truth.fresh.labels == 0].mean(axis=0)], axis=1)
        distance = np.abs(np.stack(_shares(each), axis=1)[:, None, :] - sample[None, :, :]).sum(axis=2)
        right += int((linear_sum_assignment(distance)[1] == np.arange(len(sample))).sum())
        total += len(sample)
    if not total:
        return Measure("columns named", 0.0, 0.0, 0.0, note=_SILENT)
    return Measure("columns named", right / total, 1 / total, 1 / total, note=f"{right} of {total}")


@attack(
    reads=_READS, role="coordinator", target="membership", declared="no",
    knows="whole records of people, half of whom took part, a public sample, and which column is which",
)  # fmt: skip
def bits_tell_members(view: View, truth: Truth) -> Measure:
    """AUC of whether a person took part, from the label counts of the halves of many columns."""
    values = [found for each in opened_bits(view) if (found := _members(each, truth)) is not None]
    if not values:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    return Measure("auc", float(np.mean(values)), 0.5, 0.5, note=f"{len(values)} parties")


def _members(opened: OpenedSums, truth: Truth) -> float | None:
    """Half of the fresh rows are the public sample, the other half people who did not take part."""
    if truth.fresh is None or truth.n_classes != 2:
        return None
    inside, outside = truth.columns[opened.party], truth.fresh.columns[opened.party]
    if 2 * inside.shape[1] != len(opened.sizes):
        return None
    half = len(outside) // 2
    public, labels = outside[:half], truth.fresh.labels[:half]
    centre = np.nanmean(public, axis=0)
    people = np.asarray(np.vstack([inside, outside[half:]]) > centre, dtype=np.float64)
    theirs = np.concatenate([truth.labels, truth.fresh.labels[half:]])
    zeros, first = opened.sums[1::2, 0], opened.sums[:2, 0].sum()
    rest = opened.sizes[:2].sum() - first
    score = np.zeros(len(people))
    for k, seen in ((0, zeros / max(1.0, first)), (1, (opened.sizes[1::2] - zeros) / max(1.0, rest))):
        expected = np.asarray(public[labels == k] > centre, dtype=np.float64).mean(axis=0)
        weight = (seen - expected) / np.maximum(expected * (1 - expected), 0.01)
        score = np.where(theirs == k, (people - expected) @ weight, score)
    return auc(score, np.repeat([1, 0], [len(inside), len(outside) - half]))
