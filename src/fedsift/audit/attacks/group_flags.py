"""Labels from which groups of a party's columns go on to be scored one by one (SFFS with ``screen``).

A party is asked for the columns of the groups whose means differ most between the classes. It has made the groups and
knows their means: a bit for each group about the labels of all rows, beside the answer. They are read as kept flags are
(``inversion.py``); the kept flags themselves are the baseline.
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


@attack(
    reads=["columns_of_groups"], role="passive", target="labels", declared="in words",
    knows="how it groups its own columns, the class sizes and names",
)  # fmt: skip
def groups_give_labels(view: View, truth: Truth) -> Measure:
    """Labels under which the groups that went on score above the others."""
    size, asked = view.job.parameters.get("screen"), view.requests("columns_of_groups")
    if not asked or not isinstance(size, int) or truth.n_classes != 2:
        return nothing_to_read(truth, "no groups went on, or there are more than two classes")
    means = means_of_groups(own_party(view), size).means
    flags = np.zeros(means.shape[1], dtype=bool)
    flags[asked[-1].content["kept"]] = True
    ones = truth.class_sizes[1]
    found = from_kept(VarianceScore(standardise(means), truth.class_sizes), flags, ones)
    if found is None:
        return nothing_to_read(truth, "all of its groups went on, or none")
    baseline = own_rows_accuracy(view, truth)
    if view.kept is not None:
        hinted = from_kept(VarianceScore(standardise(view.columns), truth.class_sizes), view.kept, ones)
        baseline = baseline if hinted is None else max(baseline, up_to_names(hinted, truth.labels))
    named = found if accuracy(found, truth.labels) >= 0.5 else 1 - found
    note = f"{int(flags.sum())} of {len(flags)} groups, {len(truth.labels)} rows"
    control = control_accuracy(view, truth, named)
    return Measure("accuracy", accuracy(named, truth.labels), truth.guess, baseline, control, note,
                   auc(named, truth.labels))  # fmt: skip
