"""What one person's row can change in a released cross-party column, and the noise that covers it.

Columns are standardised and held within ``clip`` deviations, then divided so that the limit is ``BOUND``: a linear
model does not care, and every clip looks the same under encryption. A product of powers (p, q) then lies within
+-BOUND^(p+q), or within [0, BOUND^(p+q)] where both powers are even: replacing one row changes one value of the column
by the width of that range at most. That is the sensitivity, for each function its own.

The paper takes 2 * clip^4 for every function and counts the epsilon of a single value: `paper_scale`. As one row is in
every released column, the epsilons of all columns add up; `plan_noise` says the total either way.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsift.crypto.dp import Budget, release_gaussian
from fedsift.engineer.flafe.features import BOUND, FUNCTIONS
from fedsift.errors import ParameterError


def sensitivity(function: str) -> float:
    """How far one row can move its value of the column (in units where inputs lie within +-BOUND)."""
    first, second = FUNCTIONS[function]
    limit = BOUND ** (first + second)
    return limit if first % 2 == 0 and second % 2 == 0 else 2 * limit


def paper_scale(function: str, clip: float, epsilon: float) -> float:
    """The paper's 2 c^4 / epsilon, in the same units."""
    first, second = FUNCTIONS[function]
    return 2 * clip**4 / epsilon * (BOUND / clip) ** (first + second)


@dataclass(frozen=True)
class Noise:
    """Laplace scales by function (empty: none) and the budget that covers all columns together."""

    scales: dict[str, float]
    budget: Budget | None
    column_epsilon: float = 0.0

    def spend(self, function: str, columns: int, about: str) -> None:
        """Account for the release of some columns, or raise ``BudgetExceeded`` before anything is released."""
        if self.budget is not None:
            self.budget.spend(epsilon=columns * self.column_epsilon, about=f"{columns} columns {function} of {about}")

    def told(self, epsilon: float | None, calibration: str, columns: int) -> str:
        """What the ledger says about it."""
        if self.budget is None:
            return "epsilon=None: a holder can work out the other party's column from a combined one"
        if calibration == "paper":
            return (
                f"calibration='paper': epsilon {epsilon:g} is that of a single released value; over the "
                f"{columns} released columns it adds up to {self.budget.epsilon:g} for a row"
            )
        return f"differential privacy: epsilon {epsilon:g} for a row over all released columns"


def plan_noise(
    epsilon: float | None,
    functions: Sequence[str],
    columns: int,
    *,
    clip: float,
    calibration: str,
    column_epsilon: float | None,
) -> Noise:
    """Scales for ``columns`` released columns in all. ``calibration='paper'``: epsilon is that of a single value."""
    if epsilon is None:
        if column_epsilon is not None:
            raise ParameterError("column_epsilon is a part of epsilon: set epsilon (the total of the run) as well")
        return Noise({}, None)
    if calibration == "paper":
        scales = {name: paper_scale(name, clip, epsilon) for name in functions}
        return Noise(scales, Budget(epsilon * max(columns, 1)), epsilon)
    each = epsilon / max(columns, 1) if column_epsilon is None else column_epsilon
    return Noise({name: sensitivity(name) / each for name in functions}, Budget(epsilon), each)


def choose_by_exponential(scores: np.ndarray, sensitivity_of_score: float, rho: float) -> int:
    """A position, likelier the higher its score: the exponential mechanism, rho-zCDP (epsilon = sqrt(8 rho)).

    McSherry and Talwar 2007; Cesar and Rogers 2021 for the zCDP bound. Drawn by the operating system's generator.
    """
    epsilon = math.sqrt(8 * rho)
    logits = np.asarray(scores, dtype=np.float64) * (epsilon / (2 * sensitivity_of_score))
    weights = np.cumsum(np.exp(logits - logits.max()))
    point = (secrets.randbits(53) + 0.5) * 2.0**-53 * weights[-1]
    return int(min(np.searchsorted(weights, point), len(weights) - 1))


@dataclass
class StatisticsBudget:
    """The zCDP of a run of ``rounds`` choices and moments: half for each kind, the same for every round.

    ``budget`` is None without epsilon: the largest sum is taken and nothing is added to it.
    """

    budget: Budget | None
    rounds: int

    def __post_init__(self) -> None:
        self.rho = self.budget.left_rho * (1 - 1e-6) / (2 * self.rounds) if self.budget is not None else 0.0

    def choose(self, scores: np.ndarray, bound: float) -> int:
        """``scores`` are |sums|; one row's contribution lies within +-bound, so replacing it moves a sum by 2 bound."""
        if self.budget is None:
            return int(np.argmax(scores))
        self.budget.spend_rho(self.rho, "choice of a cross-party feature", mechanism="exponential")
        return choose_by_exponential(scores, 2 * bound, self.rho)

    def release(self, value: float, bound: float) -> tuple[float, float]:
        """The sum with Gaussian noise, and the variance of that noise."""
        if self.budget is None:
            return value, 0.0
        self.budget.spend_rho(self.rho, "moment of the chosen feature")
        noisy = float(release_gaussian([value], 2 * bound, self.rho)[0])
        return noisy, (2 * bound) ** 2 / (2 * self.rho)
