"""New features for people: a formula as one would write it, and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsift.core.expressions import Column, Expression, parse
from fedsift.errors import FedsiftError
from fedsift.report.record import Json, Report

_SIGNS = {"mul": " × ", "add": " + ", "sub": " − "}
#: By function: 0 is its argument, in brackets where it needs them, 1 and 2 its arguments without.
_SHAPES = {
    "square": "{0}²", "cube": "{0}³", "abs": "|{1}|", "sqrtabs": "√|{1}|", "logabs": "log(1 + 10 |{1}|)",
    "inverse": "1 / (|{1}| + 0.1)", "div1": "{0} / (|{2}| + 1)",
}  # fmt: skip
_WORTH = (("gain", "gain"), ("importance", "importance"), ("weight", "weight"))


@dataclass(frozen=True)
class Gain:
    """What a method measured for a feature, and what it calls that."""

    what: str
    value: float


def formula_gains(report: Report) -> dict[str, Gain]:
    """By formula: how much a feature helped, as the method's details have it."""
    told = report.details.get("features")
    found: dict[str, Gain] = {}
    for row in told if isinstance(told, list) else []:
        gain = _worth(row) if isinstance(row, Mapping) else None
        if gain is not None:
            found[str(row.get("formula"))] = gain
    return found


def _worth(row: Mapping[str, Json]) -> Gain | None:
    for key, what in _WORTH:
        value = row.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return Gain(what, float(value))
    return None


def readable_formula(formula: str) -> str:
    """``mul(scale(basket, 0.06, 1.0), scale(income, 0.05, 0.9))`` as ``basket × income``: every part is brought to mean
    0 and deviation 1 first, which is said once and not in each formula. What cannot be parsed stays as it is."""
    try:
        return _shown(parse(formula))
    except FedsiftError:
        return formula


def _shown(expression: Expression) -> str:
    if isinstance(expression, Column):
        return str(expression)
    parts = [_shown(each) for each in expression.arguments]
    if expression.function == "scale":
        return parts[0]
    if expression.function in _SIGNS:
        return _SIGNS[expression.function].join(map(_bracketed, parts))
    if expression.function in _SHAPES:
        return _SHAPES[expression.function].format(_bracketed(parts[0]), *parts)
    return f"{expression.function}({', '.join(parts)})"


def _bracketed(text: str) -> str:
    return f"({text})" if any(sign in text for sign in _SIGNS.values()) else text
