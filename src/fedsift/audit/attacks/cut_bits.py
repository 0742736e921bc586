"""Which bin each row of a passive party's column lies in, from which rows went left at its cuts.

The label holder reads, for the rows of a node, which go left (``audit/sides_told.py``): on shares while trees grow and
when rows are predicted (level ``coordinator``), and in the clear in the open form. Every cut narrows the bins that a
row may lie in. Of rows that a model learned from a prediction tells nothing new; of others it tells as much, once for
each model: many models, each grown on rows of its own, place the rows that all of them predict. The attack is given
more than the label holder has: which column each cut is of, between which bins, and the bins' sizes; of the bins that
are left it guesses the largest.
"""

from __future__ import annotations

import numpy as np

from fedsift.audit.attacks.bin_membership import columns_tried, true_bins
from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.sides_told import CutSeen, told_growing, told_predicting, told_walking
from fedsift.audit.views import Truth, View, bins_told

_MOST_COLUMNS = 60


def cuts_seen(view: View) -> list[CutSeen]:
    """Every cut of another party's column that the label holder has read."""
    return [*told_growing(view), *told_walking(view), *told_predicting(view)]


Bit = tuple[int, np.ndarray, np.ndarray, np.ndarray]  # column, bins on the left, rows, which of them went left


def placed_cells(codes: np.ndarray, values: np.ndarray, cuts: list[CutSeen]) -> np.ndarray:
    """The bin that each cell is put into (rows x columns of bin numbers)."""
    return largest_left(codes, [bit for seen in cuts for bit in _said(codes, values, seen)])


def largest_left(codes: np.ndarray, bits: list[Bit]) -> np.ndarray:
    """Of the bins that a cell may still lie in the largest, after bits (column, bins on the left, rows, went left)."""
    guessed = np.zeros_like(codes)
    for column in range(codes.shape[1]):
        sizes = np.bincount(codes[:, column])
        possible = np.ones((len(codes), len(sizes)), dtype=bool)
        for which, left_bins, rows, left in bits:
            if which == column:
                possible[rows] &= np.where(left[:, None], left_bins, ~left_bins)
        guessed[:, column] = np.where(possible, sizes, -1).argmax(axis=1)
    return guessed


def _said(codes: np.ndarray, values: np.ndarray, seen: CutSeen) -> list[Bit]:
    """What a cut says of bins. One that was grown on other rows may lie within a bin, which is then on both sides."""
    found = _meant(codes, seen)
    if found is not None:
        return [(*found, seen.rows, seen.left)]
    sides = [seen.rows[seen.left], seen.rows[~seen.left]]
    if not all(len(rows) for rows in sides):
        return []
    for column in range(codes.shape[1]):
        left, right = (values[rows, column] for rows in sides)
        if left.max() < right.min():
            of, every = codes[:, column], np.arange(int(codes[:, column].max()) + 1)
            below, above = every <= of[sides[0]].max(), every < of[sides[1]].min()
            yes = np.ones(len(seen.rows), dtype=bool)
            return [(column, below, sides[0], yes[seen.left]), (column, above, sides[1], ~yes[~seen.left])]
    return []


def _meant(codes: np.ndarray, seen: CutSeen) -> tuple[int, np.ndarray] | None:
    """The column that was cut and its bins on the left: the first that explains the bits (given to the attacker)."""
    for column in range(codes.shape[1]):
        bins = int(codes[:, column].max()) + 1
        here = codes[seen.rows, column]
        left = np.bincount(here[seen.left], minlength=bins) > 0
        right = np.bincount(here[~seen.left], minlength=bins) > 0
        if (left & right).any() or not left.any() or not right.any():
            continue
        last = int(np.flatnonzero(left).max())
        if not right[: last + 1].any():  # an ordered cut: bins without rows of the node fall to their side
            left = np.arange(bins) <= last
        return column, left
    return None


@attack(
    reads=["take_cuts", "divide_nodes", "walk_down"],
    role="active",
    target="columns",
    knows="which column each cut is of, and the sizes of its bins (more than it has)",
    declared="in words",
)
def bits_give_cells(view: View, truth: Truth) -> Measure:
    """Share of the cells of passive parties' columns that are put into their true bin."""
    return _cells(view, truth, cuts_seen(view), np.arange(len(truth.labels)))


@attack(
    reads=["walk_hidden"],
    role="active",
    target="columns",
    knows="which column each cut is of, and the sizes of its bins (more than it has)",
    declared="in words",
)
def predictions_give_cells(view: View, truth: Truth) -> Measure:
    """The same of the rows that were predicted, from all predictions and nothing else."""
    cuts = list(told_predicting(view))
    return _cells(view, truth, cuts, np.unique(np.concatenate([seen.rows for seen in cuts])) if cuts else np.arange(0))


def _cells(view: View, truth: Truth, cuts: list[CutSeen], rows: np.ndarray) -> Measure:
    bins = bins_told(view.job, 32)
    placed, mode, found, true = [], [], {}, {}
    for party, columns in truth.columns.items():
        if party == view.name or not columns.shape[1]:
            continue
        most = min(_MOST_COLUMNS, max(columns.shape[1] if len(columns) < 5000 else columns_tried(len(columns)), 1))
        filled = np.where(np.isnan(columns), -np.inf, columns)[:, :most]
        codes = np.stack([true_bins(np.nan_to_num(c, neginf=-1e300), True, bins, 1) for c in filled.T], axis=1)
        mode.append(float(np.mean([np.bincount(c).max() / len(c) for c in codes.T])))
        theirs = [seen for seen in cuts if seen.party == party]
        found[party], true[party] = placed_cells(codes, filled, theirs), codes
        if len(rows):
            placed.append(float((found[party] == codes)[rows].mean()))
    guess = float(np.mean(mode))
    note = f"{len(cuts)} cuts" if cuts else "nothing to read: no cut of another party's column"
    share = float(np.mean(placed)) if placed else guess
    return Measure("cells in their true bin", share, guess, guess, note=note, columns=found, bins=true)
