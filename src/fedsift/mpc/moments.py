"""Mean products of all parties' columns over the rows, opened by the coordinator and by nobody else. One round.

What correlations, variance inflation, a linear model with its standard errors and knockoffs need is X'X over all
columns. A party sends the products of its own columns; of every two parties the coordinator opens X'Y from what both
send under one-time masks that it does not know (``ring.py`` has the argument). It sees no row of anything.

A party that holds rows learns nothing. Where one of them runs the coordinator, gets the results or deals, nothing is
opened: with its own columns in hand, a table of sums is a set of equations about the others' rows.

Two columns of few values each are another matter: a product of nine digits *is* their table of counts (of 60 pairs of
the phishing table all 60 were found), whose small cells are single people; and a small cell nobody can see before it is
opened. So a party refuses such columns (``check_few_values``) unless the accepted job says ``open_tables``, and then
those with a value that fewer than ``min_cell`` rows have.

Columns have mean 0 and mean square 1 (or 0, where they are constant), so that no sum is above the number of rows, and
as many fraction bits as leave room for that in 64 bits: 26 for a thousand rows, 20 for a million.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between, PartyName
from fedsift.core.federation import Federation
from fedsift.core.ledger import Release
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, OverflowGuard, ReplyError
from fedsift.mpc import pairs
from fedsift.mpc.pairs import Pairs, meet_all
from fedsift.mpc.ring import Ring, from_ring, product, to_ring

Floats = NDArray[np.float64]


#: A column of at most so many values gives tables away: with four a table of two such columns has nine free cells, and
#: one product of 27 bits leaves of those near a public sample's mostly one; with more values it leaves many.
FEW_VALUES = 4


@dataclass(frozen=True)
class MomentColumns:
    """A party's columns, of mean 0 and mean square 1, whose products with the others' may be opened once."""

    values: Floats

    @property
    def ring(self) -> Ring:
        return to_ring(self.values, fraction_bits(len(self.values)), 2.0**37)


def check_few_values(party: Party, columns: Mapping[str, Floats]) -> None:
    """Refuse columns of which an exact product is a table of counts, unless the accepted job agrees to these."""
    for name, values in columns.items():
        counts = np.unique(values[~np.isnan(values)], return_counts=True)[1]
        if not 1 < len(counts) <= FEW_VALUES:
            continue
        if party.job.parameters.get("open_tables") is not True:
            raise OperationRefused(
                party.name, "moments",
                f"{name!r} has {FEW_VALUES} values or fewer: its exact products with other such columns are their "
                "tables of counts, however small a cell is; leave it out, or agree on open_tables=True",
            )  # fmt: skip
        if counts.min() < (party.job.smallest_cell or 1):
            raise OperationRefused(
                party.name,
                "moments",
                f"a value of {name!r} is that of fewer rows than the job's min_cell; leave it out",
            )


def fraction_bits(rows: int) -> int:
    """Such that a sum of ``rows`` products fits the ring."""
    bits = (62 - int(rows).bit_length()) // 2
    if bits < 16:
        raise OverflowGuard(f"{rows} rows are too many for exact sums in 64 bits")
    return bits


def scaled(values: Floats) -> Floats:
    """Columns with mean 0 and mean square 1; missing values stand at the mean, constant columns at 0."""
    present = ~np.isnan(values)
    size = np.where(present, np.abs(values), 0.0).max(axis=0, initial=0.0)
    unit = np.where(size > 0, size, 1.0)
    inside = np.where(present, values, 0.0) / unit
    mean = inside.sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    centred = np.where(present, inside - mean, 0.0)
    centred = centred - centred.mean(axis=0)
    spread = np.sqrt((centred**2).mean(axis=0))
    flat = spread <= 1e-12
    return np.asarray(np.where(flat, 0.0, centred / np.where(flat, 1.0, spread)))


def _held(party: Party) -> Ring:
    if not party.job.neutral:
        raise OperationRefused(party.name, "moments", "a party of this job runs the coordinator or gets the results")
    return party.held_here(MomentColumns).ring


def _opened(reply: dict[str, list[Ring]]) -> Release:
    return Release(sum(share.size for _, share in reply.values()), 53.0)


@operation(
    "moments.own_products",
    discloses="aggregate",
    about="mean products of its own unnamed columns with each other",
    reply=Array("i", 2),
    times=1,
    concerns="own columns and labels",
    sums=True,
)
def own_products(party: Party) -> Ring:
    ring = _held(party)
    return product(ring.T, ring)


@operation(
    "moments.masked_sides",
    discloses="masked",
    about="columns under one-time masks: only sums of products with another party's columns can be read",
    reply={"sides": ByName([Array("i", 2)])},
    opened="aggregate: mean products of its unnamed columns with other parties', to the coordinator",
    concerns="own columns and labels",
    times=1,
    after="pairs.meet",
    releases=lambda reply: _opened(reply["sides"]),
    sums=True,
)
def masked_sides(
    party: Party, *, widths: dict[PartyName, Annotated[int, Between(1, 10**6)]]
) -> dict[str, dict[str, list[Ring]]]:
    """This party's part of the product with each peer; of two the one that comes first in the job is the left."""
    met, ring, order = party.held(Pairs), _held(party), list(party.job.parties)
    rows, own = ring.shape
    sides = {}
    for peer, width in widths.items():
        if peer not in met.peers:
            raise OperationRefused(party.name, "masked_sides", "it has not met this peer")
        is_left = order.index(party.name) < order.index(peer)
        left, right = (own, width) if is_left else (width, own)
        left_mask = met.mask(peer, "moments: left", 0, (rows, left))
        right_mask = met.mask(peer, "moments: right", 0, (rows, right))
        both = met.mask(peer, "moments: product", 0, (left, right))
        if is_left:
            sides[peer] = [ring + left_mask, product(ring.T, right_mask) + both]
        else:
            hidden = ring + right_mask
            sides[peer] = [hidden, product(left_mask.T, hidden) - both]
    return {"sides": sides}


#: What a method lists that uses this layer.
OPERATIONS = (*pairs.OPERATIONS, own_products, masked_sides)


def open_moments(run: Federation, widths: Mapping[str, int]) -> Floats:
    """Mean products of all columns, party after party, inside a session; parties have kept their ``MomentColumns``."""
    names = [name for name in run.parties if widths[name]]
    ends = np.cumsum([0, *(widths[name] for name in names)]).tolist()
    place = {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(names)}
    total = np.zeros((ends[-1], ends[-1]), dtype=np.uint64)
    own, sides = run.ask(own_products, to=names), {}
    if len(names) > 1:
        meet_all(run, names)
        each = {name: {"widths": {peer: widths[peer] for peer in names if peer != name}} for name in names}
        sides = run.ask(masked_sides, to=names, each=each)
    for name in names:
        total[place[name], place[name]] = _checked(name, own[name], (widths[name], widths[name]))
    for left, right in combinations(names, 2):
        shape = (widths[left], widths[right])
        hidden = [_side(a, sides[a], b, 0, (run.n_rows, widths[a])) for a, b in ((left, right), (right, left))]
        shares = [_side(a, sides[a], b, 1, shape) for a, b in ((left, right), (right, left))]
        opened = product(hidden[0].T, hidden[1]) - shares[0] - shares[1]
        total[place[left], place[right]], total[place[right], place[left]] = opened, opened.T
    return np.asarray(from_ring(total, 2 * fraction_bits(run.n_rows)) / run.n_rows)


def _side(name: str, reply: Mapping[str, object], peer: str, part: int, shape: tuple[int, int]) -> Ring:
    sides = reply["sides"]
    pair = sides.get(peer) if isinstance(sides, dict) else None
    if not isinstance(pair, list) or len(pair) != 2:
        raise ReplyError(name, "masked_sides", f"expected its part of the product with {peer!r}")
    return _checked(name, pair[part], shape)


def _checked(name: str, table: object, shape: tuple[int, int]) -> Ring:
    if not isinstance(table, np.ndarray) or table.dtype != np.uint64 or table.shape != shape:
        raise ReplyError(name, "moments", f"expected numbers of the shape {shape}")
    return table
