"""How a run of MUSE with noise shares its rho over its steps, from what the job says.

Step 0 counts every column with the label, step s every column that is left with the one that was chosen as s-th; these
steps have equal shares. All columns go on from step to step. (The most relevant ones alone went on once: then a column
that repeats nothing, and so is the next choice, was rarely among them, at any epsilon. To let go what scores badly at a
step, or would at the last one, makes the noise of the others smaller, and was tried: as who will repeat the next choice
is not known before it, the columns that repeat it crowd out one that does not, with as little noise as one likes.)

The shares were chosen on jm1, california_housing, phishing_websites, spambase, wine, fate_dvisits, usps, isolet, gina
(sets of few rows drawn up to 40,000), by how many of the five exact choices are found at epsilon 1. Counting the best
columns with the label once more before each choice was tried there too, for three to four tenths, and found no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsift.mpc.column_scores.noise import TableNoise, rho_of

EDGES_SHARE, LABEL_SHARE = 0.1, 0.4  # of a party's rho: for bins, for the tables with the label
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
        later = (1 - EDGES_SHARE - LABEL_SHARE) / max(1, self.n_features - 1)
        return TableNoise(self.rho, ranked, LABEL_SHARE if step == 0 else later)

    def bin_rows(self, columns: int, min_cell: int = 1) -> int:
        """Rows of a bin, at least, where there are so many columns in all: some deviations of what a party adds."""
        return max(min_cell, math.ceil(_BIN * self.noise(1).party_scale(columns)))
