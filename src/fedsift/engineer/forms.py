"""New columns from one or two: what all engineers build with."""

from __future__ import annotations

import numpy as np

from fedsift.core.expressions import Call, Column, Expression, call


def scaled(feature: Expression, centre: float, deviation: float) -> Call:
    """Standardised, with constants of 4 digits: they need not be exact, and a formula should be readable."""
    made = call("scale", feature, numbers=(float(f"{centre:.4g}"), max(float(f"{deviation:.4g}"), 1e-300)))
    assert isinstance(made, Call)  # only a column stands for itself
    return made


def bivariate(a: Expression, b: Expression) -> list[Expression]:
    """The paper's five."""
    return [call("mul", a, b), call("min", a, b), call("max", a, b), call("div1", a, b), call("div1", b, a)]


def unary_forms(column: Column, centre: float, deviation: float) -> list[Expression]:
    """The eight forms of a column; roots, logarithms and inverses keep the column's own zero."""
    z = scaled(column, centre, deviation)
    t = scaled(column, 0.0, float(np.hypot(centre, deviation)))
    return [
        z, call("square", z), call("cube", z), call("sqrtabs", t), call("logabs", t), call("inverse", t),
        call("exp", z), call("sigmoid", z),
    ]  # fmt: skip


def nesting(expression: Expression) -> int:
    return 1 + max(map(nesting, expression.arguments)) if isinstance(expression, Call) else 0
