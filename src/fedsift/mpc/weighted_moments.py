"""Sums of products of all parties' columns, weighted by numbers that the label holder alone knows: X'WX.

What Newton's method and the standard errors of a logistic model need. The coordinator opens the sums and nobody else;
it sees no row and no weight, and the label holder L no column of another party.

A product of what two parties hold is opened as in ``moments.py``: each sends its side under a one-time mask that both
know, and a share. Here the left side is hidden once and used with new right sides in every step. For a party q:

- columns of q with those of L: left X_q, right W X_L;
- columns of q with each other: left the products of every two of them, right w;
- columns of q with those of a third party r, q before r: r gives L its columns under a mask A that q and r share. Then
  X_q'W X_r = X_q'(W (X_r + A)) - (X_q o A)'w, two products of q and L, whose shares are added before they leave: the
  coordinator opens the difference alone.

Why it is secure (semi-honest, the coordinator with nobody): L receives X_r + A, uniform to it; the other parties
receive sizes only. The coordinator receives left sides, right sides and X_r + A, each under a mask of its own that it
does not know, and shares that say no more than the sum that they open.

A coordinator that deviates chooses the weights of the model, and with them which rows weigh: rows are refused where
the weights lie on fewer than ``FEWEST`` of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import MAX_CELLS, Between, LabelHolder, PartyName
from fedsift.core.federation import Federation
from fedsift.core.ledger import Release
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring, check_shape, from_ring, product, to_ring
from fedsift.mpc.shared_descent import Columns

Floats = NDArray[np.float64]
Width = Annotated[int, Between(1, 10**5)]
COLUMNS, SQUARES = "columns", "squares"
#: Rows that the weights must lie on, as (sum of weights)^2 / sum of their squares counts them.
FEWEST = 20
STEPS = "4 x max_iter or 100 a session"


@dataclass(frozen=True)
class Bits:
    """Fraction bits of the factors of a sum over rows, all weights at most 1/4 and columns of mean square 1."""

    room: int

    @classmethod
    def of(cls, rows: int) -> Bits:
        return cls(64 - int(rows).bit_length())  # a sum is at most a quarter of the rows

    @property
    def two(self) -> tuple[int, int]:
        """Of a left and a right side."""
        return self.room // 2, self.room - self.room // 2

    @property
    def three(self) -> tuple[int, int, int]:
        """Of q's column, the weight and r's column."""
        third = self.room // 3
        return third, third, self.room - 2 * third


@dataclass
class RowWeights:
    """The label holder's weight of each row, at the last scores that it has read."""

    values: Floats


@dataclass
class LeftSides:
    """What a party without labels multiplies with the label holder's right sides, by purpose."""

    label_width: int
    widths: dict[str, int]  # of the parties that it is the left of
    sides: dict[str, Ring] = field(repr=False)


@dataclass
class RightMasks:
    """What the label holder needs for its right sides: masks of the left ones, and third parties' covered columns."""

    left: dict[str, dict[str, Ring]] = field(repr=False)
    covered: dict[str, dict[str, Ring]] = field(repr=False)


def upper(width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every two of so many columns, each with itself too."""
    first, second = np.triu_indices(width)
    return first, second


def _peer(name: str, what: str) -> str:
    return f"{what} with {name}"


def _check_job(party: Party, operation: str) -> None:
    if not party.job.neutral:
        raise OperationRefused(party.name, operation, "a party of this job runs the coordinator or gets the results")


# --- what the parties do ----------------------------------------------------------------------------------------------


@operation(
    "weighted.hide_sides", discloses="masked",
    about="its columns and products of every two of them under one-time masks shared with the label holder, and its "
    "columns under masks shared with other parties", opened="nobody",
    reply={"sides": ByName(Array("i", 2)), "covered": ByName(Array("i", 2))}, role="passive", times=1,
    after="pairs.meet",
)  # fmt: skip
def hide_sides(
    party: Party, *, label_holder: LabelHolder, label_width: Width, peers: dict[PartyName, Width]
) -> dict[str, dict[str, Ring]]:
    """Once. ``peers`` are the other parties without labels, with the numbers of their columns."""
    _check_job(party, "hide_sides")
    met, values, bits = party.held(Pairs), party.held_here(Columns).values, Bits.of(party.n_rows)
    width = values.shape[1]
    if party.n_rows * width * (width + sum(peers.values())) > MAX_CELLS:
        raise OperationRefused(party.name, "hide_sides", "products of so many columns are more than there is room for")
    first, second = upper(width)
    sides = {COLUMNS: _ring(values, bits.two[0]), SQUARES: _ring(values[:, first] * values[:, second], bits.two[0])}
    covered, after = {}, {}
    order = list(party.job.parties)
    for peer, other in peers.items():
        is_left = order.index(party.name) < order.index(peer)
        cover = met.mask(peer, "weighted: cover", 0, (party.n_rows, other if is_left else width))
        if is_left:
            own = _ring(values, bits.three[0])
            after[peer] = other
            sides[_peer(peer, COLUMNS)] = own
            sides[_peer(peer, "cover")] = (own[:, :, None] * cover[:, None, :]).reshape(party.n_rows, -1)
        else:
            covered[peer] = _ring(values, bits.three[2]) + cover
    party.keep(LeftSides(label_width, after, sides))
    hidden = {
        name: side + met.mask(label_holder, f"weighted left: {name}", 0, side.shape) for name, side in sides.items()
    }
    return {"sides": hidden, "covered": covered}


@operation(
    "weighted.keep_covered", discloses="control", receives="masked", about="acknowledgement",
    learns="nothing: other parties' columns under masks that it does not know", role="active", times=1,
    after="pairs.meet",
)  # fmt: skip
def keep_covered(
    party: Party,
    *,
    widths: dict[PartyName, Width],
    order: list[PartyName],
    covered: dict[PartyName, dict[PartyName, Ring]],
) -> None:
    """``covered`` has for each party the columns of those after it, under the masks that the two share."""
    _check_job(party, "keep_covered")
    after = {name: set(order[place + 1 :]) for place, name in enumerate(order)}
    if len(after) != len(order) or set(after) != set(widths) or {n: set(t) for n, t in covered.items()} != after:
        raise OperationRefused(party.name, "keep_covered", "widths, order and columns are not of the same parties")
    met, rows, left = party.held(Pairs), party.n_rows, {}
    for name, width in widths.items():
        shapes = {COLUMNS: width, SQUARES: width * (width + 1) // 2}
        for peer in order[order.index(name) + 1 :]:
            check_shape(covered[name][peer], (rows, widths[peer]), party.name)
            shapes |= {_peer(peer, COLUMNS): width, _peer(peer, "cover"): width * widths[peer]}
        if rows * sum(shapes.values()) > MAX_CELLS:
            raise OperationRefused(party.name, "keep_covered", "so many columns are more than there is room for")
        left[name] = {what: met.mask(name, f"weighted left: {what}", 0, (rows, size)) for what, size in shapes.items()}
    party.keep(RightMasks(left, covered))


@operation(
    "weighted.left_shares", discloses="masked", receives="control",
    about="its share of the weighted sums of products of its columns",
    opened="aggregate: weighted mean products of its unnamed columns, to the coordinator",
    reply=ByName(Array("i", 2)), role="passive", times=STEPS, after="weighted.hide_sides",
    releases=lambda reply: Release(sum(share.size for share in reply.values()), 53.0),
    concerns="own columns and labels", sums=True,
)  # fmt: skip
def left_shares(party: Party, *, label_holder: LabelHolder, step: Annotated[int, Between(1, 10**6)]) -> dict[str, Ring]:
    met, left, rows = party.held(Pairs), party.held_here(LeftSides), party.n_rows

    def share(what: str, right: int) -> Ring:
        mask = met.mask(label_holder, f"weighted right: {what}", step, (rows, right))
        return product(left.sides[what].T, mask)

    found = {COLUMNS: share(COLUMNS, left.label_width), SQUARES: share(SQUARES, 1)}
    for peer, width in left.widths.items():
        cover = share(_peer(peer, "cover"), 1).reshape(-1, width)
        found[_peer(peer, COLUMNS)] = share(_peer(peer, COLUMNS), width) - cover
    return {what: each + met.mask(label_holder, f"weighted both: {what}", step, each.shape)
            for what, each in found.items()}  # fmt: skip


@operation(
    "weighted.right_sides", discloses="masked",
    about="weights of the rows, its columns and others' masked columns times them, under one-time masks, and weighted "
    "mean products of its own columns",
    opened="aggregate: weighted mean products of unnamed columns, to the coordinator",
    reply={"own": Array("f", 2), "sides": ByName(ByName([Array("i", 2)]))}, role="active", times=STEPS,
    concerns="own columns and labels",
    after=("descent.open_residuals", "descent.own_gradient"), releases=lambda reply: Release(reply["own"].size, 53.0),
    sums=True,
)  # fmt: skip
def right_sides(party: Party, *, step: Annotated[int, Between(1, 10**6)]) -> dict[str, Any]:
    """At the weights of the scores that were read last."""
    weights, values = party.held(RowWeights).values, party.held_here(Columns).values
    if weights.sum() ** 2 < FEWEST * (weights**2).sum():
        raise OperationRefused(
            party.name, "right_sides", "the model weighs too few rows: classes are (nearly) separated"
        )
    own = values.T @ (weights[:, None] * values)
    if RightMasks not in party.state:
        return {"own": own, "sides": {}}
    met, masks, bits, sides = party.held(Pairs), party.held_here(RightMasks), Bits.of(party.n_rows), {}
    for name, left in masks.left.items():
        right = {COLUMNS: _ring(weights[:, None] * values, bits.two[1]), SQUARES: _ring(weights[:, None], bits.two[1])}
        for peer, covered in masks.covered[name].items():
            small = _ring(weights[:, None], bits.three[1])
            right |= {_peer(peer, COLUMNS): small * covered, _peer(peer, "cover"): small}
        sides[name] = _right_shares(met, name, left, right, step, list(masks.covered[name]))
    return {"own": own, "sides": sides}


def _right_shares(
    met: Pairs, name: str, left: dict[str, Ring], right: dict[str, Ring], step: int, peers: list[str]
) -> dict[str, list[Ring]]:
    """Hidden right sides, each with its share; those of a third party's two products have one share together."""
    hidden = {what: side + met.mask(name, f"weighted right: {what}", step, side.shape) for what, side in right.items()}
    shares = {what: product(left[what].T, side) for what, side in hidden.items()}
    found = {}
    for what in (COLUMNS, SQUARES, *(_peer(peer, COLUMNS) for peer in peers)):
        share, sides = shares[what], [hidden[what]]
        if what not in (COLUMNS, SQUARES):
            cover = what.replace(COLUMNS, "cover", 1)
            share, sides = share - shares[cover].reshape(share.shape), [hidden[what], hidden[cover]]
        found[what] = [*sides, share - met.mask(name, f"weighted both: {what}", step, share.shape)]
    return found


def _ring(values: Floats, bits: int) -> Ring:
    return to_ring(values, bits, 2.0 ** (62 - bits))


OPERATIONS = (hide_sides, keep_covered, left_shares, right_sides)


# --- the coordinator's side -------------------------------------------------------------------------------------------


class WeightedMoments:
    """Weighted mean products of all columns, step by step, inside a session in which the parties have met and kept
    their ``Columns``, and the label holder its ``RowWeights``.

    Parameters
    ----------
    run : the session. widths : columns of each party, the label holder's with the intercept.
    """

    def __init__(self, run: Federation, widths: Mapping[str, int]):
        self.run, self.widths, self.step = run, dict(widths), 0
        ends = np.cumsum([0, *(widths[name] for name in run.parties)]).tolist()
        self.place = {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(run.parties)}
        self.passive = [name for name in run.passive if widths[name]]
        self.hidden: dict[str, dict[str, Ring]] = {}
        if not self.passive:
            return
        each = {n: {"peers": {p: widths[p] for p in self.passive if p != n}} for n in self.passive}
        replies = run.ask(
            hide_sides, to=self.passive, each=each, label_holder=run.active, label_width=widths[run.active]
        )
        self.hidden = {name: reply["sides"] for name, reply in replies.items()}
        covered = {
            name: {peer: self._covered(replies, name, peer) for peer in self.passive[place + 1 :]}
            for place, name in enumerate(self.passive)
        }
        mine = {name: widths[name] for name in self.passive}
        run.ask(keep_covered, to=run.active, widths=mine, order=self.passive, covered=covered)

    def _covered(self, replies: dict[str, Any], name: str, peer: str) -> Ring:
        table = replies[peer]["covered"].get(name) if isinstance(replies[peer]["covered"], dict) else None
        return _checked(peer, table, (self.run.n_rows, self.widths[peer]))

    def open(self) -> Floats:
        """X'WX / rows of all columns, party after party."""
        self.step += 1
        run, size = self.run, sum(self.widths[name] for name in self.run.parties)
        total = np.zeros((size, size))
        given = run.ask(left_shares, to=self.passive, label_holder=run.active, step=self.step) if self.passive else {}
        reply = run.ask(right_sides, to=run.active, step=self.step)
        own = reply["own"]
        if own.shape != (self.widths[run.active],) * 2:
            raise ReplyError(run.active, "right_sides", "expected products of its own columns")
        total[self.place[run.active], self.place[run.active]] = own
        for name in self.passive:
            self._fill(total, name, given[name], reply["sides"].get(name, {}))
        return total / run.n_rows

    def _fill(self, total: Floats, name: str, left: object, right: dict[str, list[Ring]]) -> None:
        """One party's products with the label holder's columns, its own, and those of the parties after it."""
        bits, width, place = Bits.of(self.run.n_rows), self.widths[name], self.place
        active = self.run.active
        found = self._opened(name, COLUMNS, left, right, (width, self.widths[active]))
        total[place[name], place[active]] = from_ring(found, bits.room)
        total[place[active], place[name]] = total[place[name], place[active]].T
        first, second = upper(width)
        pairs = from_ring(self._opened(name, SQUARES, left, right, (len(first), 1)), bits.room)[:, 0]
        inside = np.zeros((width, width))
        inside[first, second] = inside[second, first] = pairs
        total[place[name], place[name]] = inside
        for peer in self.passive[self.passive.index(name) + 1 :]:
            found = self._opened(name, _peer(peer, COLUMNS), left, right, (width, self.widths[peer]))
            total[place[name], place[peer]] = from_ring(found, bits.room)
            total[place[peer], place[name]] = total[place[name], place[peer]].T

    def _opened(self, name: str, what: str, left: object, right: dict[str, list[Ring]], shape: tuple[int, int]) -> Ring:
        rows, sides = self.run.n_rows, right.get(what)
        wide = what in (COLUMNS, SQUARES)
        if not isinstance(sides, list) or len(sides) != (2 if wide else 3) or not isinstance(left, dict):
            raise ReplyError(self.run.active, "right_sides", f"expected its side of the products with {name!r}")
        shares = _checked(name, left.get(what), shape) + _checked(self.run.active, sides[-1], shape)
        hidden = _checked(name, self.hidden[name].get(what), (rows, shape[0]))
        opened = product(hidden.T, _checked(self.run.active, sides[0], (rows, shape[1])))
        if not wide:
            cover = _checked(
                name, self.hidden[name].get(what.replace(COLUMNS, "cover", 1)), (rows, shape[0] * shape[1])
            )
            opened = opened - product(cover.T, _checked(self.run.active, sides[1], (rows, 1))).reshape(shape)
        return opened - shares


def _checked(name: str, table: object, shape: tuple[int, int]) -> Ring:
    if not isinstance(table, np.ndarray) or table.dtype != np.uint64 or table.shape != shape:
        raise ReplyError(name, "weighted moments", f"expected numbers of the shape {shape}")
    return table
