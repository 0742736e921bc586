"""Small pure functions about FLAFE's features: formulas of combined ones, records for the result, counts and units."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.core.expressions import Call, Column, Expression, call, parse
from fedsift.engineer.flafe.combine import BOUND, FUNCTIONS, Pair


def column_unit(function: str, scales: dict[str, float]) -> float:
    """A public size by which a combined column is divided before sums: its usual spread and that of the noise."""
    return float(BOUND ** (sum(FUNCTIONS[function]) / 2) + 1.5 * scales.get(function, 0.0))


def is_column(text: str) -> bool:
    formula = parse(text)
    return isinstance(formula, Call) and isinstance(formula.arguments[0], Column)


def count_candidates(columns: int) -> int:
    """How many candidates ``columns`` columns make."""
    return 3 * columns + 4 * columns * (columns - 1)


def top(scores: np.ndarray, count: int) -> list[int]:
    order = np.argsort(-scores, kind="stable")[:count]
    return [int(i) for i in order if scores[i] > 0]


def cross_formula(first: str, second: str, function: str) -> Expression:
    """The formula of a combined feature."""
    parts = [
        call("square", parse(text)) if power == 2 else parse(text)
        for text, power in zip((first, second), FUNCTIONS[function])
    ]
    return call("mul", *parts)


def feature_record(
    group: str, position: int, operands: dict[str, list[str]], held: list[tuple[Pair, str]], scores: np.ndarray
) -> dict[str, Any]:
    own = operands[group]
    record: dict[str, Any] = {"position": int(position), "importance": float(scores[position]), "party": group}
    if position < len(own):
        return record | {"formula": own[position]}
    pair, function = held[position - len(own)]
    left, right = operands[pair.first][pair.i], operands[pair.second][pair.j]
    return record | {
        "formula": str(cross_formula(left, right, function)), "holder": group, "function": function,
        "first": pair.first, "second": pair.second, "left": left, "right": right,
    }  # fmt: skip
