"""The Gini impurity of every column, from label counts that are summed under encryption: FedSDG-FS, Algorithm 1.

Li et al. 2023. A column's impurity is 1 - (1/n) sum over bins b and classes c of s_bc^2 / n_b, where s_bc counts class
c in bin b. Departures: the counts are opened by the coordinator from two halves (``label_tables.py``), so nothing is
squared under encryption, and no party that holds rows sees an impurity; equal-frequency bins with heavy values apart.
"""

from __future__ import annotations

import numpy as np

from fedsift.core.federation import Federation
from fedsift.mpc.column_scores.counting import TableSettings
from fedsift.mpc.column_scores.label_tables import OPERATIONS, ColumnTables, label_tables

__all__ = ["OPERATIONS", "encrypted_gini", "gini_impurities"]


def gini_impurities(table: ColumnTables) -> np.ndarray:
    """Mean impurity of the bins of each column, weighted by their size.

    With noise in the counts, what its curvature adds to sum s^2 / n in the mean is taken off (to second order).
    """
    sizes = np.maximum(table.cells.sum(axis=1), 1)
    squares, classes = (table.cells**2).sum(axis=1), table.cells.shape[1]
    bias = table.variance * ((classes - 2) / sizes + classes * squares / sizes**3)
    parts = squares / sizes - np.where(sizes**2 > 9 * classes * table.variance, bias, squares / sizes)
    order = np.argsort(parts, kind="stable")  # bins come shuffled: the same sum in every run, and copies tie
    purity = np.bincount(table.owner[order], weights=parts[order], minlength=len(table.bins))
    rows = np.bincount(table.owner, weights=sizes, minlength=len(table.bins))
    impurity = np.asarray(1 - purity / np.maximum(rows, 1), dtype=np.float64)
    return impurity if table.variance else np.clip(impurity, 0.0, 1.0)


def encrypted_gini(fed: Federation, *, n_bins: int, min_cell: int, scheme: str) -> dict[str, np.ndarray]:
    """The impurity of every column of every party, at the coordinator."""
    tables = label_tables(fed, TableSettings(n_bins, min_cell), scheme)
    return {name: gini_impurities(table) for name, table in tables.items()}
