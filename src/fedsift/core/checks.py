"""Checks of parameters, of scores and of what a step is asked with: the message says what is expected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedsift.core.arguments import MAX_CELLS, MAX_ITEMS
from fedsift.core.message import message
from fedsift.errors import OperationRefused, ParameterError, PolicyRefused, ReplyError

_MAX_CLASSES = 10_000
T = TypeVar("T")


def check_number(
    name: str, value: object, low: float, high: float | None = None, *, whole: bool = False, none: bool = False
) -> None:
    """Raise ``ParameterError`` unless the value is a number within the bounds."""
    if none and value is None:
        return
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    span = f"at least {low}" if high is None else f"between {low} and {high}"
    number = value if isinstance(value, kinds) and not isinstance(value, bool) else None
    if number is None or not (number >= low and (high is None or number <= high)):
        kind = "a whole number" if whole else "a number"
        raise ParameterError(f"{name} must be {kind} {span}{' or None' if none else ''}; got {value!r}")


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def check_scores(scores: object, columns: Mapping[str, int], party: str) -> dict[str, np.ndarray]:
    """Scores that one party computed for all, in the order of the parties and checked against their columns."""
    if not isinstance(scores, dict) or set(scores) != set(columns):
        raise ReplyError(party, "scores", f"expected scores for {', '.join(columns)}")
    for name, count in columns.items():
        values = scores[name]
        if not isinstance(values, np.ndarray) or values.shape != (count,) or not np.isfinite(values).all():
            raise ReplyError(party, "scores", f"expected {count} finite scores for party {name!r}")
    return {name: scores[name] for name in columns}


def could_check(check: Callable[[T], object], fed: T) -> bool:
    """Whether a method's parameters could be checked before its job is announced: a site may keep to itself what kind
    of label it has until then."""
    try:
        check(fed)
    except PolicyRefused:
        return False
    return True


@message
@dataclass(frozen=True)
class TableSize:
    """Rows and columns of a party's table, or of a view of it."""

    rows: int
    columns: int


@message
@dataclass(frozen=True)
class LabelFacts:
    """What a label holder tells of its label: the kind of task, and how many classes (0 for a number)."""

    task: str
    classes: int


def checked_sizes(counted: dict[str, TableSize]) -> dict[str, TableSize]:
    """Rows and columns as the parties told them, if tables can have so many."""
    for name, size in counted.items():
        if not (0 <= size.rows <= MAX_CELLS and 0 <= size.columns <= MAX_ITEMS):
            raise ReplyError(name, "count_table", "no table has so many rows and columns")
    return counted


def checked_label(told: LabelFacts, holder: str) -> LabelFacts:
    """Task and number of classes as a label holder told them, if there can be so many."""
    if told.task not in ("classification", "regression") or not 0 <= told.classes <= _MAX_CLASSES:
        raise ReplyError(holder, "describe_label", "no label has such a task or so many classes")
    return told


# --- what a step checks of the numbers that it is asked with, against what this party holds: schemas know no sizes ---
# (Whatever is missed here is refused all the same when NumPy raises, and counted as a fault by ``make fuzz``.)


def check_size(party: str, step: str, name: str, numbers: np.ndarray, *shape: int | None) -> None:
    """Numbers of another shape than what they are for; ``None`` for any length."""
    fits = numbers.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, numbers.shape))
    if numbers.dtype.kind not in "fiub" or not fits:
        told = " x ".join("any" if want is None else str(want) for want in shape)
        raise OperationRefused(party, step, f"its {name!r} should be {told} numbers")


def check_positions(party: str, step: str, name: str, positions: np.ndarray, count: int, low: int = 0) -> None:
    """Positions, in a row, out of ``count``."""
    whole = positions.ndim == 1 and positions.dtype.kind in "iu"
    if not whole or (positions.size and not low <= positions.min() <= positions.max() < count):
        raise OperationRefused(party, step, f"its {name!r} should be positions among {count}")


def check_known(party: str, step: str, what: str, name: object, known: Collection[object]) -> None:
    """A name that this party has nothing under."""
    if name not in known:
        raise OperationRefused(party, step, f"it has no {what} of that name")


def check_above_zero(party: str, step: str, name: str, numbers: object) -> None:
    """What is divided by."""
    if not np.all(np.asarray(numbers) > 0):
        raise OperationRefused(party, step, f"its {name!r} should be above zero")
