"""What one person's row can change in what FLAFE releases under an epsilon, and the noise that covers it.

*Neighbours*: two federations whose tables differ in the values of one person, at all parties, label included. Ids, the
number of rows, names and kinds of columns are public; so are the job's parameters.

*Bounds*: ``engineer/bounds.py``. No mean, deviation, importance, forest or validation score is taken from the table.

*Composition*: zCDP, the rhos of all releases of a run add up to the one that (epsilon, delta) allows (`crypto/dp.py`).

``protection="columns"``: a product of powers (p, q) of columns within +-BOUND lies within +-BOUND^(p+q), or within
[0, BOUND^(p+q)] where both powers are even. A replaced row moves one value of every released column by that width at
most: each of m columns gets Gaussian noise for rho / m.

``protection="statistics"``: a party's row is cut to length 1, the target to +-1. With P parties,

- the sums of products v v' over rows, v = (1, columns of all, target): where A = P + 1 is the largest squared length of
  (columns, target), a replaced row moves the upper triangle by sqrt(2) (A + 1/2) at most (L2; the worst are two rows
  with inner product -1/2);
- the sums x_p x_q' r for every two parties, r the residual within ``1 + (P - 1) / 2``: by 2 |r| sqrt(P (P - 1) / 2).

Each party adds the whole noise to what it sends, before anything can be opened: the coordinator reads sums under two
noises, and a party that knows its own still faces the other's.
"""

from __future__ import annotations

import math

from fedsift.crypto.dp import Budget
from fedsift.engineer.bounds import SumsPlan
from fedsift.engineer.flafe.features import BOUND, FUNCTIONS

#: A passive party's part of the residual is held within this; the label holder's within 1.
SCORE_LIMIT = 0.5


def sensitivity(function: str) -> float:
    """How far one row can move its value of the column (in units where inputs lie within +-BOUND)."""
    first, second = FUNCTIONS[function]
    limit = BOUND ** (first + second)
    return limit if first % 2 == 0 and second % 2 == 0 else 2 * limit


class Plan(SumsPlan):
    """The noise of one run, from public figures alone."""

    first = 0.6

    def column_scale(self, function: str, columns: int) -> float:
        """Standard deviation of the noise on one of ``columns`` released columns."""
        return sensitivity(function) * math.sqrt(columns / (2 * self.spending.rest))

    @property
    def moment_scale(self) -> float:
        """Of what a party adds to a sum of products of two columns: rows have length 1 at each party, and a target."""
        return self.sums_scale(self.parties + 1)

    @property
    def residual_limit(self) -> float:
        return 1 + SCORE_LIMIT * (self.parties - 1)

    @property
    def product_scale(self) -> float:
        """Of what a party adds to a sum of products of two columns and the residual, for every two parties."""
        return self.residual_scale(2 * self.residual_limit * math.sqrt(self.parties * (self.parties - 1) / 2))

    def columns_budget(self, epsilon: float, delta: float) -> Budget:
        """What a run spends that releases combined columns."""
        budget = self.paid(epsilon, delta)
        budget.spend_rho(self.spending.rest * (1 - 1e-9), "all combined columns")
        return budget
