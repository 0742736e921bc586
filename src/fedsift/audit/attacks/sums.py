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

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import accuracy, auc, control_accuracy, nothing_to_read, own_rows_accuracy, standardise
from fedsift.audit.views import State, Truth, View


@dataclass(frozen=True)
class Sums:
    """What is known of ``columns.T @ t`` for labels t of -1 and 1.

    ``value`` is the sum of each column, or ``value + k * along`` with one unknown factor k from 0 on. Where ``bound``
    is finite, the sum is only known to be at most that in size.
    """

    columns: np.ndarray
    value: np.ndarray
    along: np.ndarray | None = None
    bound: np.ndarray | None = None

    def inequalities(self, total: float, slack: float) -> tuple[np.ndarray, np.ndarray]:
        """``left @ (t, k) <= right``; ``total`` is the sum of all labels."""
        exact = np.ones(len(self.value), dtype=bool) if self.bound is None else ~np.isfinite(self.bound)
        equal = np.vstack([np.ones(len(self.columns)), self.columns.T[exact]])
        value = np.append(total, self.value[exact])
        factor = np.zeros((len(equal), 0))
        if self.along is not None:
            factor = -np.append(0.0, self.along[exact])[:, None]
        left, right = [np.hstack([equal, factor])], [value + slack, slack - value]
        left.append(-left[0])
        if self.bound is not None and not exact.all():
            between = np.hstack([self.columns.T[~exact], np.zeros((int((~exact).sum()), factor.shape[1]))])
            left += [between, -between]
            right += [self.bound[~exact] + slack] * 2
        return np.vstack(left), np.concatenate(right)


def signs_from_sums(sums: Sums, sizes: tuple[int, int], *, tolerance: float = 1e-4, seed: int = 0) -> np.ndarray | None:
    """Values in [-1, 1] for the rows that give these sums, class sizes as known; None if there are none.

    Two random directions are searched and their mean is taken: rows at -1 or 1 in it are settled.
    """
    rows, extra = len(sums.columns), int(sums.along is not None)
    slack = tolerance * max(1.0, float(np.abs(sums.value).max(initial=1.0)))
    left, right = sums.inequalities(float(sizes[1] - sizes[0]), slack)
    box: list[tuple[float, float | None]] = [(-1.0, 1.0)] * rows + [(0.0, None)] * extra
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(2):
        # An unknown factor is as large as it can be: where the columns separate the classes no larger one is possible.
        direction = np.append(1e-6 * generator.normal(size=rows), np.full(extra, -1.0))
        solved = linprog(direction, A_ub=left, b_ub=right, bounds=box, method="highs")
        if solved.x is None:
            return None
        found.append(np.asarray(solved.x[:rows]))
    return np.asarray(np.mean(found, axis=0))


def _measure(view: View, truth: Truth, sums: Sums, tolerance: float = 1e-4) -> Measure:
    found = signs_from_sums(sums, truth.class_sizes, tolerance=tolerance)
    if found is None:
        return nothing_to_read(truth, "no labels explain the sums")
    labels = (found > 0).astype(np.int64)
    settled = float((np.abs(found) > 0.999).mean())
    return Measure(
        "accuracy", accuracy(labels, truth.labels), truth.guess, own_rows_accuracy(view, truth),
        control_accuracy(view, truth, labels),
        f"{len(sums.value)} columns, {len(labels)} rows, {settled:.2f} of the rows settled", auc(found, truth.labels),
    )  # fmt: skip


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
    return _measure(view, truth, Sums(values, -2.0 * len(values) * gradient[:, 0]))


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
    return _measure(view, truth, Sums(part.x, factor * own))


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
    alpha = float(view.job.parameters.get("penalty", 0.01))
    columns = standardise(view.columns)
    if columns.shape[1] != len(weights):
        return nothing_to_read(truth, "written for tables of numbers")
    # The gradient at zero is -X't / (2 n) for labels t in {-1, 1}; soft thresholding took alpha off it.
    bound = np.where(weights == 0, 2.0 * rows * alpha, np.inf)
    sums = Sums(columns, 2.0 * rows * alpha * np.sign(weights), weights * rows, bound)
    return _measure(view, truth, sums, tolerance=1e-5)
