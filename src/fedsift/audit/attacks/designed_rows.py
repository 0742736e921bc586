"""Draws by groups and by time: do many of them tell whose rows are the same, and when each row was?

Folds of whole groups keep a person's rows on one side. Two rows that are on one side in every draw may be of one
person; dealt anew each time, other rows part after a few draws and the persons are left. So the shipped draws are made
of ten parts that never change: then many draws say no more than a few did. Draws by time are in order of time, and that
is what they are for; the figure says how exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View
from fedsift.core.row_draws import TEST, TRAIN

_READS = ["draw_designed_rows"]
Bits = NDArray[np.int64]


def masks(view: View, n_rows: int) -> Bits:
    """Draws x rows: which side each row was on, of all draws about all rows."""
    found = [np.asarray(message.content) for message in view.replies(_READS[0])]
    whole = [each for each in found if each.ndim == 2 and each.shape[1] == n_rows]
    return np.vstack(whole) if whole else np.zeros((0, n_rows), dtype=np.int64)


def linked(bits: Bits, persons: NDArray[np.int64]) -> float:
    """How often a row that is named as another's person is: any row that was on the same side in every draw."""
    _, pattern = np.unique(bits, axis=1, return_inverse=True)
    pattern = pattern.reshape(-1)
    right, named = 0.0, 0
    for mine in np.unique(pattern):
        counts = np.bincount(persons[pattern == mine])
        size = int(counts.sum())
        if size > 1:
            right += float((counts * (counts - 1)).sum()) / (size - 1)
        named += size
    return right / max(1, named)


def _guess(persons: NDArray[np.int64]) -> float:
    return linked(np.zeros((1, len(persons)), dtype=np.int64), persons)


@attack(reads=_READS, role="coordinator", target="ids", knows="nothing beside the draws", declared="ten parts")
def persons_from_draws(view: View, truth: Truth) -> Measure:
    """Share of rows that are linked to another row of the same person, from the sides in all draws of a run.

    The baseline is what ten parts tell, of which every draw is made: ten times as much as a guess.
    """
    column = _named(view, truth, "group")
    bits = masks(view, len(truth.labels))
    if column is None or not len(bits):
        return Measure("accuracy", 0.0, 0.0, 0.0, note="nothing to read: no rows were drawn by groups")
    persons = np.unique(column.astype(str), return_inverse=True)[1].reshape(-1)
    guess = _guess(persons)
    patterns = len(np.unique(bits, axis=1).T)
    parts = min(10, len(np.unique(persons)))
    note = f"{len(bits)} folds, which tell {patterns} parts of the rows apart"
    return Measure("accuracy", linked(bits, persons), guess, min(1.0, parts * guess), note=note)


@attack(reads=_READS, role="coordinator", target="columns", knows="that rows are drawn by time", declared="yes")
def times_from_draws(view: View, truth: Truth) -> Measure:
    """R2 of the rank of each row's time from the folds in which it is tested or learned from: told by design."""
    column = _named(view, truth, "time")
    bits = masks(view, len(truth.labels))
    if column is None or not len(bits):
        return Measure("r2", 0.0, 0.0, 0.0, note="nothing to read: no rows were drawn by time")
    rank = np.unique(column, return_inverse=True)[1].reshape(-1).astype(np.float64)
    late = (bits != TRAIN).sum(axis=0) + (bits == TEST).sum(axis=0) / (1.0 + len(bits))
    return Measure("r2", float(np.corrcoef(late, rank)[0, 1] ** 2), 0.0, 0.0, note=f"{len(bits)} folds")


def _named(view: View, truth: Truth, part: str) -> NDArray[np.generic] | None:
    """The column of the design of the last job that has one."""
    for message in reversed(view.messages):
        named = str(view.job_of(message.session).design.get(part, ""))
        party, _, column = named.partition(".")
        if column in truth.aside.get(party, {}):
            return np.asarray(truth.aside[party][column])
    return None
