"""Shadows of a party's own columns: the same values in another order, which the party draws and tells nobody.

``shuffled``: any order. ``alike``: the order of a Gaussian knockoff of the column given the party's other columns
(``knockoff_sums.py``), so that the shadow goes with each of them as the column itself does and knows nothing more about
the label. Only the order is taken from it: a shadow has the values of its column, each as often. Categories are always
shuffled, and so are the places of missing values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsift.core.party import Party
from fedsift.mpc.moments import scaled
from fedsift.select.knockoff_sums import knockoff_scales, shrunk, square_root
from fedsift.select.knockoffs import normal_scores

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
ALIKE, SHUFFLED = SHADOWS = ("alike", "shuffled")


def shadow_orders(party: Party, generator: np.random.Generator, rounds: int, *, alike: bool) -> dict[str, list[Whole]]:
    """For each column and round: from which row of the site's table each row's shadow takes its value.

    Rows outside of the view keep their own. Drawn in the order of the ids: alignment orders rows anew each time.
    """
    inside = party.table.by_id
    rows = party.row_numbers[inside]
    values = {
        name: party.table.values(name)[inside] for name in party.columns if party.table.kinds[name] != "categorical"
    }
    varies = [name for name, column in values.items() if len(np.unique(column[~np.isnan(column)])) > 1]
    wanted: dict[str, list[Floats]] = {}
    if alike and varies:
        scores = scaled(np.column_stack([normal_scores(values[name]) for name in varies]))
        drawn = [_knockoffs(scores, generator) for _ in range(rounds)]
        wanted = {name: [each[:, place] for each in drawn] for place, name in enumerate(varies)}
    orders: dict[str, list[Whole]] = {}
    for name in party.columns:
        orders[name] = []
        for round in range(rounds):
            order = np.arange(party.site.table.n_rows)
            if name in wanted:
                order[rows] = rows[_matched(values[name], wanted[name][round], generator)]
            else:
                order[rows] = generator.permutation(rows)
            orders[name].append(order)
    return orders


def _knockoffs(scores: Floats, generator: np.random.Generator) -> Floats:
    """Gaussian knockoffs of columns of mean 0 and mean square 1."""
    model = shrunk(scores.T @ scores / len(scores), len(scores))
    scales, inverse = np.diag(knockoff_scales(model, 1)), np.linalg.inv(model)
    kept = np.eye(len(model)) - inverse @ scales
    root = square_root(2 * scales - scales @ inverse @ scales)
    return np.asarray(scores @ kept + generator.normal(size=scores.shape) @ root)


def _matched(values: Floats, wanted: Floats, generator: np.random.Generator) -> Whole:
    """From which row each row takes its value, so that values come in the order of ``wanted``; holes anywhere."""
    present = np.flatnonzero(~np.isnan(values))
    holes = np.flatnonzero(np.isnan(values))
    drawn = generator.permutation(len(values))
    filled, empty = drawn[: len(present)], drawn[len(present) :]
    order = np.empty(len(values), dtype=np.int64)
    order[filled[np.argsort(wanted[filled], kind="stable")]] = present[np.argsort(values[present], kind="stable")]
    order[empty] = holes
    return order
