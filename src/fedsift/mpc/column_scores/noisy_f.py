"""The F statistic under differential privacy: from label tables with noise, whose bins stand at values.

A column's values have no public bounds, and a sum of values needs them; a sum of ranks has them, but ranks are another
statistic (of the five best columns of bank_marketing three were the same, with no noise at all). So the conversation is
that of the other filters (``label_tables.py``): edges are paid for, a table's squared L2 sensitivity is 2, every class
is counted. Where a bin stands follows from the noisy counts that it was made of (``paid_bins.py``), so that it costs
nothing: each party tells it, standardised. The sum of a column over a class is then that of count x place; a category
is scored by its best bin, as an indicator. What lies beyond the last place that could be searched counts as clipped.

Neighbours, budget and mechanism: ``noise.py``, *tables*.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc.column_scores.counting import DEFAULT_BINS, BinPlaces, TableSettings
from fedsift.mpc.column_scores.label_tables import (
    OPERATIONS as TABLES,
)
from fedsift.mpc.column_scores.label_tables import (
    ColumnTables,
    class_sizes,
    label_tables,
)


@operation(
    "f_test.bin_places",
    when="epsilon=set",
    discloses="aggregate",
    about="where the bins of unnamed columns stand, of mean 0 and variance 1, from counts with noise",
    reply=Array("f", finite=False),
    epsilon="epsilon",
    after=("tables.masked_counts", "tables.open_counts"),
    times=1,
)
def bin_places(party: Party) -> NDArray[np.float64]:
    """Of all columns, one after the other; NaN for a category."""
    kept = party.run.kept.pop(BinPlaces, None)
    if not isinstance(kept, BinPlaces):
        raise OperationRefused(party.name, "bin_places", "the tables of this run must be counted first")
    return kept.places


OPERATIONS = (*TABLES, bin_places)


def noisy_f(fed: Federation, *, scheme: str, epsilon: float, delta: float) -> dict[str, NDArray[np.float64]]:
    """F of every column of every party, at the coordinator."""
    settings = TableSettings(DEFAULT_BINS, 1, epsilon, delta)
    with fed.session() as run:
        tables = label_tables(run, settings, scheme)
        places: dict[str, NDArray[np.float64]] = run.ask(bin_places, to=run.parties)
    sizes = np.maximum(class_sizes(tables), 1.0)
    sizes = sizes * (fed.n_rows / sizes.sum())
    for name, told in places.items():
        if len(told) != tables[name].bins.sum() or np.isinf(told).any():
            raise ReplyError(name, "bin_places", "expected a place for each of its bins")
    least = {name: settings.least_rows(fed.n_columns, name == fed.active, name) for name in fed.parties}
    return {name: f_of_tables(tables[name], places[name], sizes, least[name]) for name in fed.parties}


def f_of_tables(
    tables: ColumnTables, places: NDArray[np.float64], sizes: NDArray[np.float64], least: float
) -> NDArray[np.float64]:
    """F of each column. ``sizes`` of the classes add up to the rows; bins were made to have ``least`` rows or more."""
    ends = np.cumsum(tables.bins)
    parts = np.split(np.asarray(places, dtype=np.float64), ends[:-1])
    found = [_f(cells, at, sizes, tables.variance, least) for cells, at in zip(tables.columns(), parts)]
    return np.array(found, dtype=np.float64)


def _f(cells: np.ndarray, at: np.ndarray, sizes: np.ndarray, variance: float, least: float) -> float:
    """What is known is put right first: a class has as many rows in every column, a bin at least half of ``least``."""
    bins = len(cells)
    if bins < 2:
        return 0.0
    cells = cells - (cells.sum(axis=0) - sizes) / bins
    held = np.maximum(cells.sum(axis=1), max(0.5, least / 2))
    shares = held / held.sum()
    if np.isnan(at).any():  # a category: each bin as an indicator
        scaled = (np.eye(bins) - shares[:, None]) / np.sqrt(shares * (1 - shares))[:, None]
        return max(_of_places(row, cells, sizes, variance) for row in scaled)
    centred = at - shares @ at
    spread = float(np.sqrt(shares @ centred**2))
    return _of_places(centred / spread, cells, sizes, variance) if spread > 1e-9 else 0.0


def _of_places(at: np.ndarray, cells: np.ndarray, sizes: np.ndarray, variance: float) -> float:
    """F of a column of mean 0 and variance 1, less what noise adds to the squares in the mean."""
    classes, rows = len(sizes), float(sizes.sum())
    p = sizes / rows
    sums = at @ cells
    sums = sums - p * sums.sum()  # the column's sum over all rows is 0
    noise = variance * float((at**2).sum() - at.sum() ** 2 / len(at)) * ((1 - p) ** 2 + (classes - 1) * p**2)
    between = float(np.clip(((sums**2 - noise) / sizes).sum(), 0.0, 0.99 * rows))
    return (between / (classes - 1)) / ((rows - between) / (rows - classes))
