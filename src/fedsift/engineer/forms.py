"""New columns from one or two: what all engineers build with."""

from __future__ import annotations

from fedsift.core.expressions import Call, Expression, call


def scaled(feature: Expression, centre: float, deviation: float) -> Call:
    """Standardised, with constants of 4 digits: they need not be exact, and a formula should be readable."""
    made = call("scale", feature, numbers=(float(f"{centre:.4g}"), max(float(f"{deviation:.4g}"), 1e-300)))
    assert isinstance(made, Call)  # only a column stands for itself
    return made


def bivariate(a: Expression, b: Expression) -> list[Expression]:
    """The paper's five."""
    return [call("mul", a, b), call("min", a, b), call("max", a, b), call("div1", a, b), call("div1", b, a)]
