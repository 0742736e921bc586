"""Spearman correlations of columns of different parties, and the paper's measure of redundancy (MUSE, equation 15).

Ranks are standardised to length one, so that a correlation is an inner product. Inside a party it is computed there;
across two parties by ``masked_product``: the coordinator reads the correlation and nothing of a row. It runs after
``BinMatching``, whose pair secrets and row order it uses. Rounds: 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between, PartyName
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc.ring import Ring, hide_left, left_share, open_product, right_message
from fedsift.select.muse.state import Matching

_BITS = 30  # fractional bits of a rank: an inner product of unit vectors then needs 61 of the ring's 64


def unit_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks (equal values share their mean rank) of each column, centred and of length one; 0 for constant columns.

    ``values``: columns x rows. A missing value takes the mean rank.
    """
    from scipy.stats import rankdata  # slow to import, needed here only

    missing = np.isnan(values)
    ranks = rankdata(np.where(missing, np.inf, values), axis=1)
    present = np.maximum((~missing).sum(axis=1, keepdims=True), 1)
    mean = np.where(missing, 0.0, ranks).sum(axis=1, keepdims=True) / present
    centred = np.where(missing, 0.0, ranks - mean)
    length = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(centred, length, out=np.zeros_like(centred), where=length > 0))


def redundancy(correlations: np.ndarray) -> float:
    """Distance between the correlation matrix and the identity (equation 15): 0 if no two columns are related."""
    return float(np.sqrt(((correlations - np.eye(len(correlations))) ** 2).sum()))


def _ranks(party: Party, columns: NDArray[np.int64]) -> np.ndarray:
    """Rows x columns, in the order of the row secrets. Categories are ranked by their (alphabetical) number."""
    table, names = party.table, party.columns
    values = np.empty((len(columns), party.n_rows))
    for place, column in enumerate(columns):
        name = names[int(column)]
        if table.kinds[name] == "categorical":
            codes = table.codes(name)[0].astype(np.float64)
            values[place] = np.where(codes < 0, np.nan, codes)
        else:
            values[place] = table.values(name)
    matching: Matching | None = party.state.get(Matching)
    return unit_ranks(values if matching is None else values[:, matching.order]).T


@message
@dataclass(frozen=True)
class Ranks:
    """Correlations inside a party; for each peer two tables of ranks under one-time masks."""

    own: NDArray[np.float64]
    left: dict[str, list[Ring]]
    right: dict[str, list[Ring]]


@operation(
    "muse.correlate_ranks",
    when="epsilon=none",
    discloses="aggregate",
    about="rank correlations inside the party, and ranks of selected columns under one-time masks",
    reply=Ranks,
    times=1,
)
def correlate_ranks(
    party: Party, *, columns: NDArray[np.int64], peers: dict[PartyName, Annotated[int, Between(0, 10_000)]]
) -> Ranks:
    """``peers``: how many columns each other party takes part with. Of two parties, the first in name is the left."""
    if Ranks in party.state:
        raise OperationRefused(party.name, "correlate_ranks", "a mask is used once: correlations were asked before")
    inside = columns.ndim == 1 and (columns >= 0).all() and (columns < len(party.columns)).all()
    matching: Matching | None = party.state.get(Matching)
    seeds = {} if matching is None else matching.seeds
    if not inside or not set(peers) <= set(seeds):
        raise OperationRefused(party.name, "correlate_ranks", "there is no such column, or no such peer")
    ranks = _ranks(party, columns)
    ring = np.rint(np.ldexp(ranks, _BITS)).astype(np.int64).view(np.uint64)
    left, right = {}, {}
    for peer, width in peers.items():
        seed = seeds[peer]
        if party.name < peer:
            left[peer] = [hide_left(ring, seed, 0), left_share(ring, seed, 0, width)]
        else:
            right[peer] = list(right_message(ring, seed, 0, 0, width))
    return party.keep(Ranks(ranks.T @ ranks, left, right))


def spearman_matrix(fed: Federation, places: Sequence[tuple[str, int]]) -> np.ndarray:
    """Rank correlations of the given (party, column) places, in their order."""
    mine: dict[str, list[int]] = {}
    for place, (party, _) in enumerate(places):
        mine.setdefault(party, []).append(place)
    each = {
        name: {
            "columns": np.array([places[p][1] for p in spots], dtype=np.int64),
            "peers": {peer: len(theirs) for peer, theirs in mine.items() if peer != name},
        }
        for name, spots in mine.items()
    }
    replies: dict[str, Ranks] = fed.ask(correlate_ranks, to=list(mine), each=each) if mine else {}
    matrix = np.eye(len(places))
    for a, spots in mine.items():
        for b, others in mine.items():
            if a == b:
                block = replies[a].own
            elif a < b:
                block = _opened(replies[a].left.get(b), replies[b].right.get(a), a, b)
            else:
                continue
            if block.shape != (len(spots), len(others)):
                raise ReplyError(a, "correlate_ranks", f"expected correlations of {len(spots)} columns")
            matrix[np.ix_(spots, others)] = block
            matrix[np.ix_(others, spots)] = block.T
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _opened(left: list[Ring] | None, right: list[Ring] | None, a: str, b: str) -> np.ndarray:
    for name, parts in ((a, left), (b, right)):
        if parts is None or [part.ndim for part in parts] != [2, 2]:
            raise ReplyError(name, "correlate_ranks", "expected two masked tables")
    if left is None or right is None or left[0].shape[0] != right[0].shape[0] or left[1].shape != right[1].shape:
        raise ReplyError(b, "correlate_ranks", f"its tables do not fit those of {a!r}")
    product = open_product(*left, *right)
    return np.ldexp(product.view(np.int64).astype(np.float64), -2 * _BITS)
