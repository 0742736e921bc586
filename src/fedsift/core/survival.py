"""Times until something happens, where some rows were last seen before it did: what the label holder makes of them.

The residual of the null model: a row that was seen until t has the cumulative hazard H(t) behind it (Nelson and Aalen's
estimate of all rows, Breslow's rule for ties); its residual is 1 - H(t) where it happened and -H(t) where it had not
yet. It is positive where it happened sooner than for others. For a column x the sum of x times residual is what the
score test of Cox's model looks at, and for a column of 0 and 1 the log-rank test's observed less expected events; so a
filter that scores columns by how the residual differs along them ranks them as these tests do, and any method for a
number serves. (Therneau, Grambsch and Fleming 1990 look for covariates in this way.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def at_risk(times: Numbers, weights: Numbers) -> tuple[NDArray[np.int64], Numbers]:
    """Of each row the place of its time among the distinct ones, and the weight of rows seen so long or longer."""
    _, place = np.unique(times, return_inverse=True)
    place = place.reshape(-1)
    risk = np.bincount(place, weights=weights)[::-1].cumsum()[::-1]
    return place, risk


def cumulative_hazard(times: Numbers, events: NDArray[np.bool_], weights: Numbers) -> Numbers:
    """Nelson and Aalen's estimate at the time of each row."""
    place, risk = at_risk(times, weights)
    happened = np.bincount(place, weights=weights * events, minlength=len(risk))
    return np.asarray(np.cumsum(happened / risk)[place])


def residuals(times: Numbers, events: NDArray[np.bool_], weights: Numbers | None = None) -> Numbers:
    """Martingale residuals of the null model, one a row. Weighted they add up to 0."""
    counted = np.ones(len(times)) if weights is None else weights
    return np.asarray(events.astype(np.float64) - cumulative_hazard(times, events, counted))


def concordance(times: Numbers, events: NDArray[np.bool_], risk: Numbers) -> float:
    """Harrell's C: of the pairs of which is known who came first, the share where that row has the higher risk.

    Equal risks count half. Pairs of one time count where one of the two events happened there and the other did not.
    """
    order = np.lexsort((events, -times))  # the longest first; of one time those without an event first
    rank = np.unique(risk, return_inverse=True)[1].reshape(-1) + 1
    tree = np.zeros(int(rank.max(initial=0)) + 1, dtype=np.int64)
    better, ties, pairs, seen, start = 0, 0, 0, 0, 0
    while start < len(order):
        end = start
        here = times[order[start]], events[order[start]]
        while end < len(order) and (times[order[end]], events[order[end]]) == here:
            end += 1
        block = order[start:end]
        if here[1]:
            for row in block:
                below, upto = _below(tree, int(rank[row]) - 1), _below(tree, int(rank[row]))
                better, ties, pairs = better + below, ties + upto - below, pairs + seen
        for row in block:
            _add(tree, int(rank[row]))
        seen += len(block)
        start = end
    return (better + 0.5 * ties) / pairs if pairs else 0.5


def _below(tree: NDArray[np.int64], place: int) -> int:
    """How many of the rows that were added have a rank of at most this (a Fenwick tree)."""
    total = 0
    while place > 0:
        total += int(tree[place])
        place -= place & -place
    return total


def _add(tree: NDArray[np.int64], place: int) -> None:
    while place < len(tree):
        tree[place] += 1
        place += place & -place
