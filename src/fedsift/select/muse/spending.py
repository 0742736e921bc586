"""How a run of MUSE with noise shares its rho over its steps, from what the job says and the number of columns.

Step 0 counts every column with the label, step s the column that was chosen as s-th with those that go on. All meet the
first choice; from the second on only the best go on, three for each column that is still to be chosen
(``criteria.steps`` says which are the best). A step's share is as large as its number of tables: every table of two
columns carries about the same noise, and what is not spent on columns that will not be chosen makes it smaller for the
others. (Who goes on was once decided by relevance alone: then a column that repeats nothing, and so is the next choice,
was rarely among them, at any epsilon.)

The shares, the cells and how many go on were chosen on jm1, california_housing, phishing_websites, spambase, wine,
fate_dvisits, usps, isolet, gina (sets of few rows drawn up to 40,000) and generated tables with and without categories,
by how many of the five exact choices are found at epsilon 1. Counting the best with the label once more before each
choice was tried there too, for three tenths to four tenths of rho, and found no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.mpc.column_scores.noise import TableNoise, rho_of

EDGES_SHARE, LABEL_SHARE = 0.2, 0.3  # of a party's rho: for bins, for the tables with the label
_GO_ON = 3  # columns for each that is still to be chosen
_DEVIATIONS = 20  # of the noise that a cell of two columns' table holds on average: fewer bins where it would not


@dataclass(frozen=True)
class Spending:
    """The noise of each step. ``columns`` is how many there are in all."""

    rho: float
    n_bins: int
    n_features: int
    columns: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any], columns: int) -> Spending:
        epsilon, delta = float(parameters["epsilon"]), float(parameters["delta"])
        return cls(rho_of(epsilon, delta), int(parameters["n_bins"]), int(parameters["n_features"]), columns)

    def go_on(self, chosen: int) -> int:
        """How many columns are counted with the one that was chosen as ``chosen``-th."""
        left = max(1, self.columns - chosen)
        return left if chosen == 1 else min(left, _GO_ON * (self.n_features - chosen))

    def noise(self, step: int, ranked: int = 0) -> TableNoise:
        """Of one step: the shares of all add up to what the edges of bins leave, whatever ``columns`` is."""
        share = LABEL_SHARE
        if step:
            planned = sum(self.go_on(chosen) for chosen in range(1, self.n_features))
            share = (1 - EDGES_SHARE - LABEL_SHARE) * self.go_on(step) / planned
        return TableNoise(self.rho, ranked, share)

    def joint_scale(self) -> float:
        """Of what a party adds at most to a table of two columns."""
        return self.noise(1).party_scale(self.go_on(1)) if self.n_features > 1 else self.noise(0).party_scale(1)

    def joint_bins(self, rows: int) -> int:
        """Bins in tables of two columns: as many as asked for, or so few that their cells hold more than noise."""
        return int(np.clip(math.sqrt(rows / (_DEVIATIONS * self.joint_scale())), 2, self.n_bins))
