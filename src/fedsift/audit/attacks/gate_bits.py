"""Labels from the gates of a party's own columns: bits that it hears while a network trains (FedSDG on shares).

A gate that is open more often belongs to a column that helps. That is a score of each column, in the rough: as many
bits as there are blocks of batches. The labels under which the columns with open gates would score highest are found
as from kept flags (``inversion.py``); the kept flags themselves, the answer, are the baseline.
"""

from __future__ import annotations

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.inversion import Score, VarianceScore, cut, from_kept, invert_ranks, leading
from fedsift.audit.registry import attack
from fedsift.audit.scoring import (
    accuracy,
    auc,
    control_accuracy,
    nothing_to_read,
    own_rows_accuracy,
    standardise,
    up_to_names,
)
from fedsift.audit.views import Truth, View

_MOST_ROWS = 1000  # for the search by ranks


def gates_heard(view: View) -> np.ndarray | None:
    """How often each of the party's columns took part, of all times; None for columns of several inputs."""
    width = view.columns.shape[1]
    told = [m.content["gates"].get(view.name) for m in view.requests("set_gates")]
    told = [np.asarray(bits)[:width] for bits in told if bits is not None and len(bits) in (width, width + 1)]
    return np.mean(told, axis=0) if told else None


def labels_from_gates(score: Score, gates: np.ndarray, ones: int) -> np.ndarray:
    """Step 1 of the inversion with the gates as weights; by their order too, where that is quick."""
    if len(score.features) <= _MOST_ROWS:
        ranks = np.argsort(np.argsort(gates, kind="stable"), kind="stable")
        return invert_ranks(score, ranks, ones, turns=3)
    return cut(leading(score, gates - gates.mean())[0], ones)


@attack(
    reads=["set_gates"], role="passive", target="labels", declared="in words",
    knows="how gates come about, the class sizes and names",
)  # fmt: skip
def gates_give_labels(view: View, truth: Truth) -> Measure:
    """Labels from how often each of the party's columns took part."""
    gates = gates_heard(view)
    if gates is None or truth.n_classes != 2 or np.ptp(gates) == 0:
        return nothing_to_read(truth, "no gates that differ, or more than two classes")
    ones = truth.class_sizes[1]
    score = VarianceScore(standardise(view.columns), truth.class_sizes)
    found = labels_from_gates(score, gates, ones)
    named = found if accuracy(found, truth.labels) >= 0.5 else 1 - found
    baseline = own_rows_accuracy(view, truth)
    if view.kept is not None and len(view.kept) == len(gates):
        hinted = from_kept(score, view.kept, ones)
        baseline = baseline if hinted is None else max(baseline, up_to_names(hinted, truth.labels))
    note = f"{len(view.requests('set_gates'))} bits a column, {len(gates)} columns"
    control = control_accuracy(view, truth, named)
    return Measure("accuracy", accuracy(named, truth.labels), truth.guess, baseline, control, note,
                   auc(named, truth.labels))  # fmt: skip
