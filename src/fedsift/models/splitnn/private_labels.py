"""Labels under an epsilon: a network on shares learns from a randomised copy of them, drawn once a job by their holder.

Randomised response (Warner 1965; of k classes: Kairouz et al. 2016): a row's class stays with the probability
e^epsilon / (e^epsilon + k - 1), else it becomes one of the others, each alike. Neighbouring tables differ in the class
of one row; which rows take part, their columns, and the names of the classes are no secret here. Gradients, losses,
norms, gates, the columns kept and every prediction follow from the copy, so whatever anybody but the label holder sees
of the job costs a row's label ``epsilon`` at most, however many epochs there are and whatever the others compute from
it: no delta, no composition within a job. Jobs add up: each draws a copy of its own (``total_epsilon`` of a site).

It is no privacy of columns: those are hidden by the shares, and what an answer tells of them it tells with an epsilon
too. A rate of flips instead of noise in gradients, because no gradient is opened that noise could be put on, and noise
in every step would have to pay for all steps.

The copy is of the whole table, so a row has one wherever it appears. Estimates are put right afterwards
(``Targets.presented``): of a class that is there with the share s, the copy has q + (p - q) s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.core.labels import Labels, read_labels
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, ParameterError
from fedsift.mpc.ring import uniform

Codes = NDArray[np.int32]
_SLACK = 2.0**-48  # by so much a class stays less often than epsilon allows: more than floating point takes


def stays(epsilon: float, classes: int) -> float:
    """The probability that a row's class in the copy is its own."""
    return 1.0 / (1.0 + (classes - 1) * math.exp(-epsilon)) - _SLACK


def randomised(codes: Codes, classes: int, epsilon: float) -> Codes:
    """Each code, or another one; drawn from the operating system."""
    draws, others = uniform((len(codes),)), uniform((len(codes),))
    kept = draws < np.uint64(int(stays(epsilon, classes) * 2**64))
    other = 1 + (others % np.uint64(classes - 1)).astype(np.int32)
    return np.where(kept, codes, (codes + other) % classes).astype(np.int32)


@dataclass(frozen=True)
class PrivateLabels:
    """The copy of one job: the class of each row of the site's table."""

    epsilon: float
    codes: Codes
    classes: tuple[str, ...]

    @property
    def truth(self) -> float:
        return stays(self.epsilon, len(self.classes))

    def of(self, party: Party) -> Labels:
        """The copy of this view's rows."""
        codes = self.codes[party.row_numbers]
        return Labels("classification", codes, len(self.classes), self.classes, codes.astype(np.float64))

    def names(self, party: Party) -> NDArray[np.str_]:
        return np.asarray(self.classes)[self.codes[party.row_numbers]]


def private_labels(party: Party, task: str) -> PrivateLabels | None:
    """The copy that this job learns from, drawn when it is first asked for; ``None`` where the job has no epsilon."""
    job = party.run.job
    epsilon = None if job is None else job.parameters.get("epsilon")
    if epsilon is None:
        return None
    held = party.run.kept.get(PrivateLabels)
    if isinstance(held, PrivateLabels):
        return held
    label = party.site.table.label
    if label is None or not isinstance(epsilon, (int, float)) or not 0 < epsilon <= 100:
        raise OperationRefused(party.name, "epsilon", "the job's epsilon is no number above 0, or there is no label")
    labels = read_labels(label, party.name, task=task)
    if labels.task == "regression":
        raise OperationRefused(party.name, "epsilon", "a network's epsilon is for classes")
    copy = PrivateLabels(float(epsilon), randomised(labels.codes, labels.n_classes, float(epsilon)), labels.classes)
    party.run.kept[PrivateLabels] = copy
    return copy


def check_epsilon(
    fed: Federation, epsilon: float | None, protection: str, also: Mapping[str, bool] | None = None
) -> None:
    """Before anything is asked. ``also``: what else must hold, by the words of the message."""
    if epsilon is None:
        return
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 1e-3 <= epsilon <= 100:
        raise ParameterError(f"epsilon must be a number from 0.001 to 100, or None; got {epsilon!r}")
    needs = {"protection='shares'": protection == "shares", "classes as labels": fed.task == "classification"}
    needs |= also or {}
    missing = [what for what, holds in needs.items() if not holds]
    if missing:
        raise ParameterError(f"epsilon={epsilon:g} needs {', '.join(missing)}: other looks at labels have no noise")


def note_epsilon(fed: Federation, epsilon: float | None) -> None:
    if epsilon is not None:
        fed.ledger.note(
            f"epsilon {epsilon:g} for the label of one row, in this run: the label holder drew a randomised copy of "
            "its labels, and everything was computed from the copy. It is no privacy of columns"
        )
