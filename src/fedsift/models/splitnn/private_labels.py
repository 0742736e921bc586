"""The option ``label_epsilon`` of every network: what is checked before anything is asked, and what a run says of it.

What it is, and how the copy of the labels is drawn, is in ``core/labels.py``.
"""

from __future__ import annotations

from fedsift.core.federation import Federation
from fedsift.core.labels import is_epsilon, range_of
from fedsift.errors import ParameterError


def check_label_epsilon(fed: Federation, epsilon: object, between: object) -> None:
    """``between``: the public range of a label that is a number; classes need none."""
    if between is not None and range_of(between) is None:
        raise ParameterError(f"label_range must be (low, high), two numbers; got {between!r}")
    if epsilon is None:
        return
    if not is_epsilon(epsilon):
        raise ParameterError(f"label_epsilon must be a number from 0.001 to 100, or None; got {epsilon!r}")
    if fed.task == "regression" and between is None:
        raise ParameterError(
            f"label_epsilon={epsilon:g} for a number as label needs label_range=(low, high), which is public: bounds "
            "from the rows would tell about them"
        )


def note_label_epsilon(fed: Federation, epsilon: float | None) -> None:
    if epsilon is not None:
        fed.ledger.note(
            f"epsilon {epsilon:g} for the label of one row, in this run: the label holder drew a randomised copy of "
            "its labels, and everything was computed from the copy. It is no privacy of columns"
        )
