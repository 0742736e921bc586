"""In which bin a heavy or rare row lies, from weighted counts that the coordinator opens of each bin.

Weights are whole numbers of steps, and of each bin of every unnamed column their sum is opened. Where most rows weigh
the same, a sum says how many there are of the few that do not: with one such row each sum is a multiple of the common
weight, or one more of the other. The same where a row weighs so much that its bin stands out of bins of equal size. The
columns of one run then give the row's whole record, in bins without a name.

The attacker knows which weights there are and how often, as is published of a survey, and asks of every bin whether its
sum can be made with the row, and whether it can be made without it (all sums of subsets, as bits of one long number).
Where both can be, it takes the bin that is above its fair share the most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsift.audit.exposure import Measure
from fedsift.audit.opened_at_coordinator import opened_sums
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View, bins_told
from fedsift.core.binning import edges
from fedsift.core.design import Design
from fedsift.errors import ParameterError
from fedsift.mpc.column_scores.weighing import STEPS

Whole = NDArray[np.int64]
_MOST_SUM = 1 << 25  # steps in a bin, for the bits of all sums


def sums_of_subsets(weights: Whole) -> int:
    """A number whose bit s says whether some of these rows weigh s together."""
    found = 1
    for value, count in zip(*np.unique(weights, return_counts=True)):
        left, part = int(count), 1
        while left:  # count copies, in parts of 1, 2, 4, ...
            taken = min(part, left)
            found |= found << (int(value) * taken)
            left, part = left - taken, part * 2
    return found


def bin_of(sums: Whole, without: int, weight: int, fair: float) -> int:
    """The bin in which the row lies: where its sum needs the row, or else where it is the most above its share."""
    needed = [bool(without >> int(s) - weight & 1) if s >= weight else False for s in sums]
    spared = [bool(without >> int(s) & 1) for s in sums]
    for can, alone in ((True, False), (True, True)):
        likely = [place for place in range(len(sums)) if (needed[place], spared[place]) == (can, alone)]
        if likely:
            return max(likely, key=lambda place: float(sums[place] - fair))
    return int(np.argmax(sums))


def rarest(steps: Whole) -> int:
    """The row whose weight the fewest have; of those the heaviest."""
    values, place, counts = np.unique(steps, return_inverse=True, return_counts=True)
    del values
    return int(np.lexsort((-steps, counts[place.reshape(-1)]))[0])


def _weights(view: View, truth: Truth) -> np.ndarray | None:
    """What each row weighs; ``None`` where the job's design names no weight that is set aside."""
    jobs = [view.job_of(message.session) for message in view.replies("open_counts")]
    for job in jobs:
        try:
            named = Design.read(job.design).weight if job.design else None
        except ParameterError:
            continue
        if named is not None:
            party, _, column = named.partition(".")
            found = truth.aside.get(party, {}).get(column)
            return None if found is None else np.asarray(found, dtype=np.float64)
    return None


def true_bin(column: np.ndarray, row: int, steps: Whole, bins: int, cell: int) -> tuple[int, Whole, float]:
    """The sum of the bin that the row is in, those of all bins, and whether naming the bin of most rows is right."""
    codes = np.searchsorted(edges(column, bins, cell), column, side="right")
    sums, sizes = np.bincount(codes, weights=steps).astype(np.int64), np.bincount(codes)
    most = sizes == sizes.max()
    return int(sums[codes[row]]), np.sort(sums[sums > 0]), float(most[codes[row]] / most.sum())


@attack(
    reads=["open_counts", "masked_counts", "encrypt_weighted_classes"], role="coordinator", target="columns",
    knows="which weights rows have and how often, to score: which column is which", declared="in words",
)  # fmt: skip
def weighted_counts_place_a_row(view: View, truth: Truth) -> Measure:
    """Share of the passive parties' columns of numbers in which the bin of the row with the rarest weight is found."""
    weights = _weights(view, truth)
    if weights is None:
        return Measure("cells in their true bin", 0.0, 0.0, 0.0, note="nothing to read: rows have no weights")
    steps = np.maximum(np.rint(weights / weights.mean() * STEPS), 1).astype(np.int64)
    row, settings = rarest(steps), view.job.parameters
    without = sums_of_subsets(np.delete(steps, row)) if steps.sum() <= _MOST_SUM else 0
    bins, cell = bins_told(view.job, 10), int(settings.get("min_cell", 1) or 1)
    right, guesses = 0, []
    for each in opened_sums(view):
        if each.bins is None:
            continue
        parts = np.split(np.rint(each.sizes * STEPS).astype(np.int64), np.cumsum(each.bins)[:-1])
        for seen, column in zip(parts, truth.columns[each.party].T):
            if np.isnan(column).any():
                continue
            true, every, likely = true_bin(column, row, steps, bins, cell)
            if len(every) < 2 or not np.array_equal(np.sort(seen), every):
                continue  # a category, or bins that were joined otherwise
            right += int(seen[bin_of(seen, without, int(steps[row]), steps.sum() / len(seen))] == true)
            guesses.append(likely)
    if not guesses:
        return Measure("cells in their true bin", 0.0, 0.0, 0.0, note="nothing to read: no weighted counts of numbers")
    guess, alike = float(np.mean(guesses)), int((steps == steps[row]).sum())
    note = f"{right} of {len(guesses)} columns, of a row whose weight {alike} rows have"
    return Measure("cells in their true bin", right / len(guesses), guess, guess, note=note)
