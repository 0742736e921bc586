"""Checks of parameters and of scores: the message quotes the bad value and says what is expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedsift.core.arguments import MAX_CELLS, MAX_ITEMS
from fedsift.core.message import message
from fedsift.errors import ParameterError, ReplyError

_MAX_CLASSES = 10_000


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
