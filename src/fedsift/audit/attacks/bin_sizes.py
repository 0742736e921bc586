"""Bin sizes against a public sample: which column is which (security.md, line 14).

Information value sends, for every column of a party, the sizes of its bins under shuffled numbers and no name. Quantile
bins of a column with many values are all alike, but heavy values make sizes that are a column's fingerprint. Whoever
has a sample of the same kind of table (a census, a published benchmark, an earlier export) bins its columns the same
way and matches sorted sizes; the assignment with the smallest total distance names the columns.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View, bins_told
from fedsift.core.binning import edges


def sorted_sizes(column: np.ndarray, bins: int, min_cell: int) -> np.ndarray:
    """Shares of the rows in the bins of a column, largest first; few missing values joined to the next smallest."""
    values = column[~np.isnan(column)]
    codes = np.searchsorted(edges(values, bins, min_cell), values, side="right")
    sizes = np.unique(codes, return_counts=True)[1].tolist()
    if len(values) < len(column):
        sizes.append(len(column) - len(values))
    while len(sizes) > 1 and min(sizes) < min_cell:
        small = sizes.index(min(sizes))
        into = min((i for i in range(len(sizes)) if i != small), key=lambda i: sizes[i])
        sizes[into] += sizes[small]
        del sizes[small]
    return np.sort(np.array(sizes) / len(column))[::-1]


def match_columns(seen: list[np.ndarray], sample: list[np.ndarray]) -> np.ndarray:
    """For each seen list of shares the column of the sample that fits best, each used once."""
    width = max(len(s) for s in [*seen, *sample])
    padded = [np.array([np.pad(s, (0, width - len(s))) for s in side]) for side in (seen, sample)]
    distance = np.abs(padded[0][:, None, :] - padded[1][None, :, :]).sum(axis=2)
    return np.asarray(linear_sum_assignment(distance)[1])


@attack(
    reads=["label_sums", "masked_counts"],
    role="coordinator",
    target="columns",
    knows="a public sample of the same kind of table (here: rows that did not take part)",
    declared="sizes yes, the names no",
    line=14,
)
def sizes_name_columns(view: View, truth: Truth) -> Measure:
    """Share of a passive party's columns that are named rightly from the sizes of their bins."""
    if truth.fresh is None:
        return Measure("columns named", 0.0, 0.0, 0.0, note="nothing to read: there is no public sample to match with")
    settings = view.job.parameters
    bins = bins_told(view.job, 10)
    min_cell = int(settings.get("min_cell", 10))
    right, total = 0, 0
    for message in [*view.replies("label_sums"), *view.replies("masked_counts")]:
        counts, sizes = message.content["bins"], message.content["sizes"]
        if not len(sizes):  # with epsilon they are not sent
            continue
        rows = sizes[: counts[0]].sum()
        seen = [np.sort(part / rows)[::-1] for part in np.split(sizes, np.cumsum(counts)[:-1])]
        public = truth.fresh.columns[message.party]
        cell = max(1, round(min_cell * len(public) / rows))
        named = match_columns(seen, [sorted_sizes(column, bins, cell) for column in public.T])
        right += int((named == np.arange(len(seen))).sum())
        total += len(seen)
    if not total:
        return Measure("columns named", 0.0, 0.0, 0.0, note="nothing to read: no sizes of bins are told")
    return Measure("columns named", right / total, 1 / total, 1 / total, note=f"{right} of {total}")
