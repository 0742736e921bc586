"""Columns on one scale, by the rows of a party's own view."""

from __future__ import annotations

import numpy as np

from fedsift.core.party import Party

#: No value of a clipped column lies further out.
CLIPPED_BOUND = 15.5


def standardised(party: Party) -> tuple[np.ndarray, np.ndarray]:
    """Columns with mean 0 and variance 1 (rows x columns; categories as indicators), and the column each belongs to."""
    table, parts, owner = party.table, [], []
    numbers = table.each([column for column in party.columns if table.kinds[column] != "categorical"])
    for number, column in enumerate(party.columns):
        if table.kinds[column] == "categorical":
            codes, count = party.binned(column, 2)
            block = (codes[:, None] == np.arange(count)).astype(np.float64)
        else:
            values = next(numbers)  # read many at a time: opening a wide file costs more than a column
            present = values[~np.isnan(values)]
            block = np.where(np.isnan(values), present.mean() if len(present) else 0.0, values)[:, None]
        centred = block - block.mean(axis=0)
        spread = np.sqrt((centred**2).mean(axis=0))
        flat = spread <= 1e-12 * np.abs(block).max(axis=0, initial=0.0)
        parts.append(np.where(flat, 0.0, centred / np.where(flat, 1.0, spread)))
        owner += [number] * block.shape[1]
    values = np.hstack(parts) if parts else np.zeros((party.n_rows, 0))
    return values, np.asarray(owner, dtype=np.int64)


def clipped(party: Party, clip: float) -> tuple[np.ndarray, np.ndarray]:
    """Standardised columns; with ``clip`` their few far values are brought in and they are standardised again."""
    values, owner = standardised(party)
    if clip:
        values = np.clip(values, -clip, clip)
        values = values - values.mean(axis=0)
        spread = values.std(axis=0)
        values = np.clip(values / np.where(spread > 0, spread, 1.0), -CLIPPED_BOUND, CLIPPED_BOUND)
    return values, owner
