"""The Gini impurity of every column, from label counts that are summed under encryption: FedSDG-FS, Algorithm 1.

Li et al. 2023. A column's impurity is 1 - (1/n) sum over bins b and classes c of s_bc^2 / n_b, where s_bc counts class
c in bin b. Departures: the counts are opened by the coordinator from two halves (``label_tables.py``), so nothing is
squared under encryption, and no party that holds rows sees an impurity; equal-frequency bins with heavy values apart.
"""

from __future__ import annotations

import numpy as np

from fedsift.core.federation import Federation
from fedsift.mpc.column_scores.label_tables import OPERATIONS, ColumnTables, label_tables

__all__ = ["OPERATIONS", "encrypted_gini", "gini_impurities"]


def gini_impurities(table: ColumnTables) -> np.ndarray:
    """Mean impurity of the bins of each column, weighted by their size; squares corrected for the noise in them."""
    sizes = table.cells.sum(axis=1)
    rows = np.bincount(table.owner, weights=sizes, minlength=len(table.bins))
    classes = table.cells.shape[1]
    # Noise adds its variance to each counted square, and that of all others to the square of the rest.
    squares = (table.cells**2).sum(axis=1) - 2 * (classes - 1) * table.variance
    purity = np.bincount(table.owner, weights=squares / np.maximum(sizes, 1), minlength=len(table.bins))
    impurity = np.asarray(1 - purity / np.maximum(rows, 1), dtype=np.float64)
    return impurity if table.variance else np.clip(impurity, 0.0, 1.0)


def encrypted_gini(
    fed: Federation, *, bins: int, min_cell: int, scheme: str, epsilon: float | None = None, delta: float = 1e-6
) -> dict[str, np.ndarray]:
    """The impurity of every column of every party, at the coordinator."""
    tables = label_tables(fed, n_bins=bins, min_cell=min_cell, scheme=scheme, epsilon=epsilon, delta=delta)
    return {name: gini_impurities(table) for name, table in tables.items()}
