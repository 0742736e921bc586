"""How sure a score is: would a column without any relation to the label score as high?

From the tables of bins and classes that the coordinator has opened anyway: the chi-squared test of independence gives a
p-value a column, and Benjamini and Hochberg's procedure over the columns of all parties the false-discovery rate at
which a column would be called related. Nothing is asked for it. Counts with noise give no p-value: their errors are not
those of sampling rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from fedsift.mpc.column_scores.label_tables import ColumnTables

Floats = NDArray[np.float64]
LEVEL = 0.05  # the false-discovery rate above which a report calls a column not told from noise


def independence(table: NDArray[np.float64]) -> float:
    """The p-value of the chi-squared test on a table of bins and classes; 1 where it has one bin or one class."""
    counts = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0].astype(float)
    freedom = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    if freedom <= 0:
        return 1.0
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), freedom))


def p_values(tables: Mapping[str, ColumnTables]) -> dict[str, list[float]]:
    """Of each party's columns, in their order."""
    return {name: [independence(np.asarray(part)) for part in each.columns()] for name, each in tables.items()}


def false_discovery(p: Floats) -> Floats:
    """The smallest false-discovery rate at which each hypothesis falls (Benjamini and Hochberg 1995)."""
    order = np.argsort(p, kind="stable")
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    lowest = np.minimum.accumulate(scaled[::-1])[::-1]
    found = np.empty(len(p))
    found[order] = np.minimum(lowest, 1.0)
    return found
