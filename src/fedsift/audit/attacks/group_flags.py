"""Labels from which groups, or which columns, of a party go on to be scored one by one (SFFS with ``screen``).

A party is asked for the columns of the groups whose means differ most between the classes, or for exact sums of the
columns whose bits do. It has made the groups and knows the columns: a bit for each about the labels of all rows, beside
the answer. They are read as kept flags are (``inversion.py``); the kept flags themselves are the baseline.
"""

from __future__ import annotations

import numpy as np

from fedsift.audit.attacks.scores import own_party
from fedsift.audit.exposure import Measure
from fedsift.audit.inversion import VarianceScore, from_kept
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
from fedsift.mpc.column_scores.grouped_f import means_of_groups


def went_on(view: View) -> tuple[np.ndarray, np.ndarray] | None:
    """What the party knows of each group or column (rows x them), and which went on."""
    size, asked = view.job.parameters.get("screen"), view.requests("columns_of_groups")
    if asked and isinstance(size, int):
        means = means_of_groups(own_party(view), size).means
        return means, _flags(means.shape[1], asked[-1].content["kept"])
    exact = {message.view for message in view.requests("masked_class_sums")}
    parts = [m.content for m in view.requests("define_view") if m.content["view"] in exact]
    if not view.replies("masked_bit_sums") or not parts or parts[-1]["columns"] is None:
        return None
    return view.columns, _flags(view.columns.shape[1], parts[-1]["columns"])


def _flags(count: int, places: np.ndarray) -> np.ndarray:
    found = np.zeros(count, dtype=bool)
    found[np.asarray(places, dtype=np.int64)] = True
    return found


@attack(
    reads=["columns_of_groups", "masked_bit_sums"], role="passive", target="labels", declared="in words",
    knows="how it groups its own columns, the class sizes and names",
)  # fmt: skip
def groups_give_labels(view: View, truth: Truth) -> Measure:
    """Labels under which the groups or columns that went on score above the others."""
    seen = went_on(view)
    if seen is None or truth.n_classes != 2:
        return nothing_to_read(truth, "nothing went on, or there are more than two classes")
    means, flags = seen
    ones = truth.class_sizes[1]
    found = from_kept(VarianceScore(standardise(means), truth.class_sizes), flags, ones)
    if found is None:
        return nothing_to_read(truth, "all of its columns went on, or none")
    baseline = own_rows_accuracy(view, truth)
    if view.kept is not None:
        hinted = from_kept(VarianceScore(standardise(view.columns), truth.class_sizes), view.kept, ones)
        baseline = baseline if hinted is None else max(baseline, up_to_names(hinted, truth.labels))
    named = found if accuracy(found, truth.labels) >= 0.5 else 1 - found
    note = f"{int(flags.sum())} of {len(flags)} groups or columns, {len(truth.labels)} rows"
    control = control_accuracy(view, truth, named)
    return Measure("accuracy", accuracy(named, truth.labels), truth.guess, baseline, control, note,
                   auc(named, truth.labels))  # fmt: skip
