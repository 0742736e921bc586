"""What a coordinator without rows makes of the sums that it opens, if it knows a public sample of the same kind.

Columns, bins and cuts come to it without names. Heavy values make sizes that are a column's fingerprint, and so do the
label sums: it computes the same from the sample and assigns each seen column to the nearest of the sample (names). And
it may ask whether a person whose record it knows took part (membership): who did pulls the sums a little to itself
(Homer et al. 2008), and over many columns little becomes much.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedsift.audit.exposure import Measure
from fedsift.audit.opened_at_coordinator import OpenedSums, opened_sums, root_counts
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc, standardise
from fedsift.audit.views import Fresh, Truth, View, bins_told
from fedsift.core.binning import edges
from fedsift.engineer.flafe.importance import BINS

_SAMPLE = "a public sample of the same kind of table (here: rows that did not take part)"
_SILENT = "nothing to read: there is no public sample, or nothing was opened"


def _named(right: int, total: int) -> Measure:
    guess = 1 / max(1, total)
    return Measure("columns named", right / max(1, total), guess, guess, note=f"{right} of {total}")


def _nearest(seen: np.ndarray, sample: np.ndarray) -> int:
    """How many of the seen columns (a row of numbers each) are assigned to themselves in the sample."""
    distance = np.abs(seen[:, None, :] - sample[None, :, :]).sum(axis=2)
    return int((linear_sum_assignment(distance)[1] == np.arange(len(seen))).sum())


def class_means(columns: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Means of the standardised columns in each class but the last."""
    values = standardise(columns)
    return np.column_stack([values[labels == k].mean(axis=0) for k in range(int(labels.max()))])


def bin_profile(sizes: np.ndarray, ones: np.ndarray, width: int) -> np.ndarray:
    """Shares of rows and of the first class in the bins of a column, each in descending order: bins have no names."""
    rows = max(1.0, float(sizes.sum()))
    both = [np.pad(np.sort(part / rows)[::-1], (0, width - len(part))) for part in (sizes, ones)]
    return np.concatenate(both)


def _sample_profiles(fresh: Fresh, party: str, bins: int, min_cell: int, width: int) -> np.ndarray:
    profiles = []
    for column in fresh.columns[party].T:
        values = np.nan_to_num(column)
        codes = np.searchsorted(edges(values, bins, min_cell), values, side="right")
        sizes, ones = np.bincount(codes), np.bincount(codes, weights=fresh.labels == 0)
        order = np.argsort(-sizes)[:width]
        profiles.append(bin_profile(sizes[order], ones[order], width))
    return np.array(profiles)


@attack(
    reads=["masked_class_sums", "open_class_sums", "masked_weighted_sums", "open_weighted_sums"], role="coordinator",
    target="columns", knows=_SAMPLE, declared="no",
)  # fmt: skip
def class_sums_name_columns(view: View, truth: Truth) -> Measure:
    """Share of a passive party's columns that are named rightly from their class sums."""
    opened = [each for each in opened_sums(view) if each.bins is None]
    right = total = 0
    for each in opened if truth.fresh is not None else []:
        assert truth.fresh is not None
        known = truth.indicators(each.party)[1]
        assert known is not None
        sample = class_means(known, truth.fresh.labels)
        if each.sums.shape == sample.shape:
            unit = np.abs(each.sums).max() / max(float(np.abs(sample * each.sizes[:-1]).max()), 1e-300)
            right += _nearest(each.sums / unit / np.maximum(each.sizes[:-1], 1), sample)
            total += len(sample)
    return _named(right, total) if total else Measure("columns named", 0.0, 0.0, 0.0, note=_SILENT)


@attack(
    reads=["open_counts", "masked_counts"], role="coordinator", target="columns",
    knows=_SAMPLE, declared="no",
)  # fmt: skip
def label_counts_name_columns(view: View, truth: Truth) -> Measure:
    """Share of a passive party's columns that are named rightly from sizes and label counts of their bins."""
    settings = view.job.parameters
    bins = bins_told(view.job, 10)
    right = total = 0
    for each in opened_sums(view):
        if each.bins is None or truth.fresh is None or len(each.bins) != truth.fresh.columns[each.party].shape[1]:
            continue
        width = int(each.bins.max(initial=1))
        ends = np.cumsum(each.bins)[:-1]
        parts = zip(np.split(each.sizes, ends), np.split(each.sums[:, 0], ends))
        seen = np.array([bin_profile(size, ones, width) for size, ones in parts])
        cell = max(1, round(int(settings.get("min_cell", 5)) * len(truth.fresh.labels) / max(1, len(truth.labels))))
        right += _nearest(seen, _sample_profiles(truth.fresh, each.party, bins, cell, width))
        total += len(seen)
    return _named(right, total) if total else Measure("columns named", 0.0, 0.0, 0.0, note=_SILENT)


@attack(
    reads=["masked_class_sums", "open_class_sums", "masked_weighted_sums", "open_weighted_sums"], role="coordinator",
    target="membership", declared="no",
    knows="whole records of people, half of whom took part, and a public sample",
)  # fmt: skip
def class_sums_tell_members(view: View, truth: Truth) -> Measure:
    """AUC of whether a person took part, from class sums of many columns."""
    values = [found for each in opened_sums(view) if each.bins is None
              and (found := membership_auc(each, truth)) is not None]  # fmt: skip
    if not values:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    return Measure("auc", float(np.mean(values)), 0.5, 0.5, note=f"{len(values)} parties")


def membership_auc(opened: OpenedSums, truth: Truth) -> float | None:
    """Half of the fresh rows are the public sample, the other half people who did not take part."""
    if truth.fresh is None or len(opened.sizes) != 2:
        return None
    inside, outside = truth.indicators(opened.party)
    if outside is None or opened.sums.shape[0] != inside.shape[1]:
        return None
    half = len(outside) // 2
    public, public_labels = outside[:half], truth.fresh.labels[:half]
    centre, spread = np.nanmean(public, axis=0), np.maximum(np.nanstd(public, axis=0), 1e-12)

    def scaled(rows: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(np.nan_to_num((rows - centre) / spread), -5, 5))

    unit = _unit(opened.sums[:, 0], scaled(public), public_labels, opened.sizes)
    first = opened.sums[:, 0] / unit
    pull = []  # of the released mean from the public one, in each class
    for k, total in ((0, first), (1, -first)):
        pull.append(total / max(1, opened.sizes[k]) - scaled(public)[public_labels == k].mean(axis=0))
    people = np.vstack([scaled(inside), scaled(outside[half:])])
    labels = np.concatenate([truth.labels, truth.fresh.labels[half:]])
    score = (people * np.array(pull)[labels]).sum(axis=1)
    return auc(score, np.repeat([1, 0], [len(inside), len(outside) - half]))


def _unit(sums: np.ndarray, public: np.ndarray, labels: np.ndarray, sizes: np.ndarray) -> float:
    """Fixed point: by how much the opened sums are too large, from the sums that the sample leads to expect."""
    expected = public[labels == 0].mean(axis=0) * sizes[0]
    ratio = float(np.linalg.norm(sums)) / max(float(np.linalg.norm(expected)), 1e-9)
    return max(float(2.0 ** np.rint(np.log2(ratio))), 1e-300)


@attack(
    reads=["open_counts", "masked_counts", "open_targets", "masked_targets"],
    role="coordinator", target="membership", declared="no",
    knows="whole records of people, half of whom took part, a public sample, and which column is which",
)  # fmt: skip
def label_counts_tell_members(view: View, truth: Truth) -> Measure:
    """AUC of whether a person took part, from label counts of the bins of many columns."""
    bins = bins_told(view.job, BINS if view.replies("open_targets") else 10)
    values = [found for each in opened_sums(view) if each.bins is not None
              and (found := counted_auc(each, truth, bins)) is not None]  # fmt: skip
    if not values:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    return Measure("auc", float(np.mean(values)), 0.5, 0.5, note=f"{len(values)} parties")


def counted_auc(opened: OpenedSums, truth: Truth, bins: int) -> float | None:
    """As ``membership_auc``. Bins have no names: they are taken in the order of their share of class 0, as the sample's
    are, and a record counts by how much fuller its cells (bin and class) are than those of the sample."""
    if truth.fresh is None or opened.bins is None or truth.n_classes != 2:
        return None
    inside, outside = (np.nan_to_num(t.columns[opened.party]) for t in (truth, truth.fresh))
    if len(opened.bins) != inside.shape[1]:
        return None
    half = len(outside) // 2
    people = np.vstack([inside, outside[half:]])
    labels = np.concatenate([truth.labels, truth.fresh.labels[half:]])
    score, used = np.zeros(len(people)), 0
    ends = np.cumsum(opened.bins)
    for number, (end, count) in enumerate(zip(ends, opened.bins)):
        public = outside[:half, number]
        inner = edges(public, bins)
        if len(inner) + 1 != count:
            continue
        codes = np.searchsorted(inner, public, side="right")
        cells = np.stack([np.bincount(codes[truth.fresh.labels[:half] == k], minlength=count) for k in (0, 1)], axis=1)
        expected = (cells + 0.5) / (half + count)
        sizes, zeros = opened.sizes[end - count : end], opened.sums[end - count : end, 0]
        seen = np.column_stack([zeros, sizes - zeros]) / max(1, sizes.sum())
        place = np.empty(count, dtype=np.int64)  # of each bin of the sample among those seen
        place[np.argsort(expected[:, 0] / expected.sum(axis=1))] = np.argsort(seen[:, 0] / seen.sum(axis=1))
        mine = np.searchsorted(inner, people[:, number], side="right")
        score += np.clip(seen[place[mine], labels] / expected[mine, labels] - 1, -2, 2)
        used += 1
    return auc(score, np.repeat([1, 0], [len(inside), len(outside) - half])) if used else None


@attack(reads=["half_sums", "own_half_sums"], role="coordinator", target="columns", knows=_SAMPLE, declared="no")
def cut_sizes_name_columns(view: View, truth: Truth) -> Measure:
    """Share of candidate cuts at a root that are put to a column that has such a cut."""
    bins = bins_told(view.job, 32)
    right, guess = [], []
    for party, trees in root_counts(view).items() if truth.fresh is not None else ():
        assert truth.fresh is not None
        sample, true = truth.fresh.columns[party], truth.columns[party]
        rows = len(true)
        public = [np.cumsum(sizes_in_order(c, bins)) / len(c) for c in sample.T]
        real = [np.round(np.cumsum(sizes_in_order(c, bins))).astype(int) for c in true.T]
        for count in trees[0]:
            gaps = [np.abs(shares - count / rows).min(initial=1.0) for shares in public]
            has = [bool((prefix == count).any()) for prefix in real]
            right.append(has[int(np.argmin(gaps))])
            guess.append(float(np.mean(has)))
    if not right:
        return Measure("columns named", 0.0, 0.0, 0.0, note=_SILENT)
    note = f"{len(right)} candidate cuts"
    return Measure("columns named", float(np.mean(right)), float(np.mean(guess)), float(np.mean(guess)), note=note)


def sizes_in_order(column: np.ndarray, bins: int) -> np.ndarray:
    """Rows in each bin of a column, from its lowest values on."""
    values = column[~np.isnan(column)]
    return np.bincount(np.searchsorted(edges(values, bins), values, side="right"))


@attack(
    reads=["half_sums", "own_half_sums"], role="coordinator", target="columns", declared="no",
    knows="that the rows of every root are the same",
)  # fmt: skip
def cuts_followed_over_trees(view: View, truth: Truth) -> Measure:
    """Share of shuffled candidate cuts that are recognised at the root of the next tree, by the rows that they send."""
    followed, total = 0.0, 0
    for trees in root_counts(view).values():
        for before, after in itertools.pairwise(trees):
            for count, times in zip(*np.unique(before, return_counts=True)):
                there = int((after == count).sum())
                followed += min(times, there) / max(times, there, 1)  # one right match is expected in a group
            total += len(before)
    if not total:
        return Measure("cuts followed", 0.0, 0.0, 0.0, note="nothing to read: fewer than two trees")
    guess = float(np.mean([1 / len(t[0]) for t in root_counts(view).values() if len(t[0])]))
    return Measure("cuts followed", followed / total, guess, guess, note=f"{total} candidate cuts")
