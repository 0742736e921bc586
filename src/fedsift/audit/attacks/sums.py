"""Labels from exact sums X'y over a party's own columns: a linear programme (security.md, line 7).

The first step of a linear model starts from scores of zero, so its gradient at a party is X'y up to a known factor:
one equation a column for labels in {-1, 1}. Relaxed to the box [-1, 1] this is a linear programme. Its solution is
unique, and so the labels, long before there are as many columns as rows: where the own columns separate the classes it
is unique at once, for then X'y is the largest value that a weighted sum of the rows can take.

- vertical logistic regression: the party takes its masks off and has its gradient, -X'y / (2 n) in the first step;
- HyFDCA: the party has the sum of column times dual, a known multiple of X'y in the first round;
- federated lasso: the party gets its coefficients; after the first step those not at zero are X'y, moved by the
  penalty and stretched by a step size that it does not know (one unknown more), and a zero bounds X'y.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import accuracy, auc, nothing_to_read, own_rows_accuracy, standardise
from fedsift.audit.views import State, Truth, View


def signs_from_sums(
    columns: np.ndarray,
    sums: np.ndarray,
    sizes: tuple[int, int],
    *,
    along: np.ndarray | None = None,
    bounds: np.ndarray | None = None,
    tolerance: float = 1e-6,
    seed: int = 0,
) -> np.ndarray | None:
    """Values in [-1, 1] for the rows with ``columns.T @ t = sums``, class sizes as known; None if there are none.

    ``along`` adds an unknown non-negative factor k: ``columns.T @ t = sums + k * along``. Where ``bounds`` is finite
    the column's sum is only known to be at most that in size. Two random directions are searched: where they agree the
    solution is unique.
    """
    rows = len(columns)
    exact = np.ones(columns.shape[1], dtype=bool) if bounds is None else ~np.isfinite(bounds)
    extra = 0 if along is None else 1
    slack = tolerance * max(1.0, float(np.abs(sums).max(initial=1.0)))
    left = [np.ones((1, rows))]
    right = [np.array([float(sizes[1] - sizes[0])])]
    left.append(columns.T[exact])
    right.append(sums[exact])
    equal = np.vstack(left)
    if along is not None:
        equal = np.hstack([equal, np.concatenate([[0.0], -along[exact]])[:, None]])
    above = [np.hstack([equal, np.zeros((len(equal), 0))]), -equal]
    limits = [np.concatenate(right) + slack, -np.concatenate(right) + slack]
    if bounds is not None and (~exact).any():
        between = np.hstack([columns.T[~exact], np.zeros((int((~exact).sum()), extra))])
        above += [between, -between]
        limits += [bounds[~exact] + slack, bounds[~exact] + slack]
    box: list[tuple[float, float | None]] = [(-1.0, 1.0)] * rows + [(0.0, None)] * extra
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(2):
        # An unknown factor is as large as it can be: where the columns separate the classes no larger one is possible.
        direction = np.append(1e-6 * generator.normal(size=rows), np.full(extra, -1.0))
        solved = linprog(direction, A_ub=np.vstack(above), b_ub=np.concatenate(limits), bounds=box, method="highs")
        if solved.x is None:
            return None
        found.append(np.asarray(solved.x[:rows]))
    return np.asarray(np.mean(found, axis=0))


def _measure(view: View, truth: Truth, found: np.ndarray | None, columns: int) -> Measure:
    if found is None:
        return nothing_to_read(truth, "no labels explain the sums")
    value = accuracy((found > 0).astype(np.int64), truth.labels)
    settled = float((np.abs(found) > 0.999).mean())
    note = f"{columns} columns, {len(truth.labels)} rows, {settled:.2f} of the rows settled, auc {auc(found, truth.labels):.3f}"
    return Measure("accuracy", value, truth.guess, own_rows_accuracy(view, truth), note=note)


@attack(
    reads=["inner_products"], role="passive", target="labels", declared="partly", line=7,
    knows="the class sizes",
)  # fmt: skip
def first_gradient(view: View, truth: Truth) -> Measure:
    """Vertical logistic regression: the party's gradient in the first step."""
    steps = [s.values["logistic"] for s in view.states if isinstance(s.values.get("logistic"), dict)]
    steps = [s for s in steps if s.get("gradient") is not None and s.get("values") is not None]
    if not steps or truth.n_classes != 2:
        return nothing_to_read(truth, "the party has no gradient of its own (or there are more than two classes)")
    values, gradient = steps[0]["values"], steps[0]["gradient"]
    sums = -2.0 * len(values) * gradient[:, 0]
    found = signs_from_sums(values, sums, truth.class_sizes, tolerance=1e-4)
    return _measure(view, truth, found, values.shape[1])


def _sums_of_duals(state: State) -> tuple[Any, np.ndarray] | None:
    """The party's part of the model (columns, bits, loss) and its sums of column times dual, once there are any."""
    parts = [value for value in state.values.values() if all(hasattr(value, name) for name in ("x", "bits", "loss"))]
    rounds = [value for value in state.values.values() if isinstance(value, dict) and np.any(value.get("own", 0))]
    return (parts[0], rounds[0]["own"]) if parts and rounds else None


@attack(
    reads=["weigh_rows"], role="passive", target="labels", declared="partly", line=7,
    knows="the class sizes",
)  # fmt: skip
def first_duals(view: View, truth: Truth) -> Measure:
    """HyFDCA: the sum of column times dual in the first round, in which all scores are zero."""
    rounds = [pair for pair in map(_sums_of_duals, view.states) if pair is not None]
    if not rounds or truth.n_classes != 2:
        return nothing_to_read(truth, "the party has no sums of column times dual")
    part, ring = rounds[0]
    own = ring.view(np.int64).astype(np.float64)[:, 0] * 2.0 ** (-2 * part.bits)
    factor = 2.0 if part.loss == "logistic" else 1.0  # a dual is half a label at a score of zero, or the label
    found = signs_from_sums(part.x, factor * own, truth.class_sizes, tolerance=1e-4)
    return _measure(view, truth, found, part.x.shape[1])


@attack(
    reads=["partial_scores"], role="passive", target="labels", declared="partly", line=7,
    knows="the penalty alpha (it is announced), the class sizes",
)  # fmt: skip
def first_coefficients(view: View, truth: Truth) -> Measure:
    """Federated lasso: the party's coefficients after the first step."""
    sent = [m.content["weights"] for m in view.requests("partial_scores") if "weights" in m.content]
    moved = [w for w in sent if np.any(w)]
    if not moved or truth.n_classes != 2:
        return nothing_to_read(truth, "the party has no coefficients but zeros")
    weights, rows = np.asarray(moved[0])[:, 0], len(truth.labels)
    alpha = float(view.job.parameters.get("alpha", 0.01))
    columns = standardise(view.columns)
    if columns.shape[1] != len(weights):
        return nothing_to_read(truth, "written for tables of numbers")
    # The gradient at zero is -X't / (2 n) for labels t in {-1, 1}; soft thresholding took alpha off it.
    sums = 2.0 * rows * alpha * np.sign(weights)
    bounds = np.where(weights == 0, 2.0 * rows * alpha, np.inf)
    found = signs_from_sums(columns, sums, truth.class_sizes, along=weights * rows, bounds=bounds, tolerance=1e-5)
    return _measure(view, truth, found, columns.shape[1])
