"""How a run of MUSE with noise shares its rho over its steps, from what the job says.

Step 0 counts every column with the label, step s every column that is left with the one that was chosen as s-th. What
is counted early is read more often: mRMR's k-th choice goes by the mean over k - 1 steps, so the noise of step s weighs
1 / (k - 1)^2 there, for each k > s. Shares by the roots of these weights' sums make the noise of all choices together
the least. All columns go on from step to step. (The most relevant ones alone went on once: then a column
that repeats nothing, and so is the next choice, was rarely among them, at any epsilon. To let go what scores badly at a
step, or would at the last one, makes the noise of the others smaller, and was tried: as who will repeat the next choice
is not known before it, the columns that repeat it crowd out one that does not, with as little noise as one likes.)

The shares were chosen on jm1, california_housing, phishing_websites, spambase, wine, fate_dvisits, usps, isolet, gina
(sets of few rows drawn up to 40,000), by how many of the five exact choices are found at epsilon 1: 4.5 by any share of
two to five tenths for the label, and as many by equal later shares. Counting the best
columns with the label once more before each choice was tried there too, for three to four tenths, and found no more.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsift.mpc.column_scores.noise import TableNoise, rho_of

EDGES_SHARE, LABEL_SHARE = 0.1, 0.3  # of a party's rho: for bins, for the tables with the label
_BIN = 2  # deviations of the noise in a table of two columns that a bin holds at least


@dataclass(frozen=True)
class Spending:
    """The noise of each step."""

    rho: float
    n_bins: int
    n_features: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Spending:
        epsilon, delta = float(parameters["epsilon"]), float(parameters["delta"])
        return cls(rho_of(epsilon, delta), int(parameters["n_bins"]), int(parameters["n_features"]))

    def noise(self, step: int, ranked: int = 0) -> TableNoise:
        """Of one step: the shares of all add up to what the edges of bins leave."""
        if step == 0:
            return TableNoise(self.rho, ranked, LABEL_SHARE)
        shares = _later_shares(self.n_features)
        return TableNoise(self.rho, ranked, (1 - EDGES_SHARE - LABEL_SHARE) * shares[step - 1])

    def bin_rows(self, columns: int, min_cell: int = 1) -> int:
        """Rows of a bin, at least, where there are so many columns in all: some deviations of what a party adds."""
        return max(min_cell, math.ceil(_BIN * self.noise(1).party_scale(columns)))


@functools.lru_cache(maxsize=64)
def _later_shares(n_features: int) -> tuple[float, ...]:
    """Of the steps 1 to ``n_features`` - 1 (one at least): roots of how much their noise weighs in later choices."""
    weights = itertools.accumulate(1 / k**2 for k in range(max(1, n_features - 1), 0, -1))
    roots = [math.sqrt(weight) for weight in weights][::-1]
    total = sum(roots)
    return tuple(root / total for root in roots)
