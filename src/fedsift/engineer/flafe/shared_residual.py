"""A residual that nobody can read, kept as shares, and its sums with products of two parties' columns.

The label holder has a residual r (one number a row). For every two parties P and Q, r is split into two shares, r_P at
P and r_Q at Q, that add up to r in Z_2^64. For columns x of P and y of Q

    sum over rows of x y r  =  sum (x r_P) y  +  sum x (y r_Q),

two sums of products of something P knows with something Q knows: one masked product (`joint_moments.py`), which the
coordinator opens and in which neither party sees anything. Each party puts its columns into a secret order, with secret
signs, before every round: the coordinator reads the sums of *some* columns, and asks which ones only for the one that
it has chosen.

Taking a chosen product off the residual, r <- r - w x y, needs shares of the column x y. They come from a Beaver triple
that the coordinator deals (U to P, V to Q, shares of U V): P sends x - U to Q and Q sends y - V to P, each under a mask
from their common secret (`mpc/pairs.py`), so the coordinator, who knows U and V, cannot read them, and the two of them,
who do not, cannot either. A share that has to reach another pair of parties is split afresh for that pair, and sealed.

Why it is secure (semi-honest, no two work together): a share, a masked vector and a difference with a fresh random
number are uniform to whoever sees one of them. All arithmetic is exact in the ring: x and y have ``f`` bits after the
point, r and the weights so many more that no rounding of shares is ever needed.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import numpy as np

from fedsift.core.arguments import PartyName
from fedsift.core.checks import check_known, check_positions
from fedsift.core.message import message
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.engineer.flafe.features import Position
from fedsift.engineer.flafe.joint_moments import JointMatrices
from fedsift.errors import DataError, OperationRefused, OverflowGuard, ParameterError, ReplyError
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring, new_seed, stream, to_ring

#: Two parties and the number of what is split for them.
NumberedPair = tuple[str, str, int]


@dataclass
class Sides:
    """A party's own columns, in the ring."""

    columns: Ring


@dataclass
class Residual:
    """The label holder's residual of the training rows, in the ring."""

    values: Ring


@dataclass
class ResidualShares:
    """A party's share of the residual, for each pair that it is in."""

    by_pair: dict[str, Ring] = field(default_factory=dict)


@dataclass(frozen=True)
class TakenOnce:
    """Shares of the residual have been taken in this session."""


@dataclass
class SecretOrder:
    """In which order and with which signs a party shows its columns in this round, for each pair that it is in."""

    by_pair: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


@message
@dataclass(frozen=True)
class NamedColumn:
    """A party's answer about the column that was chosen."""

    column: int
    sign: int
    square: float


@dataclass(frozen=True)
class DealtFactor:
    """A party's part of a Beaver triple, and the difference that it sent."""

    factor: Ring
    half: Ring
    second: bool
    difference: Ring


def ring_bits(rows: int) -> tuple[int, int]:
    """Bits after the point of a column and of a weight, such that the largest sum fits."""
    room = 59 - int(rows).bit_length()  # a sign, and a residual of up to 16
    weight = 9
    column = min(12, (room - weight) // 4)
    if column < 5:
        raise OverflowGuard(f"{rows} rows are too many for exact sums in 64 bits")
    return column, weight


def read_pairs(party: Party, told: list[list[str | int]]) -> list[NumberedPair]:
    """From a request: pairs of different parties of the job."""
    found = []
    for each in told:
        if len(each) != 3 or not isinstance(each[2], int) or not all(isinstance(name, str) for name in each[:2]):
            raise ParameterError("a pair of the request is two parties and a number")
        first, second, number = str(each[0]), str(each[1]), each[2]
        if first == second or not {first, second} <= set(party.job.parties):
            raise OperationRefused(party.name, "pairs", "a pair is two parties of the accepted job")
        found.append((first, second, number))
    return found


def pair_name(first: str, second: str) -> str:
    """One name for a pair of parties; JSON-safe and unambiguous enough for a key of a dictionary."""
    return f"{len(first)}:{first}|{second}"


# --- totals for the label holder -------------------------------------------------------------------------------------


def hidden_total(party: Party, values: Ring, *, reader: str, others: list[str], number: int) -> Ring:
    """A ring vector that only ``reader`` can unmask, and only as a sum over all ``others`` (and this party)."""
    pairs = party.held(Pairs)
    masked = values + pairs.mask(reader, f"mask for {reader}", number, values.shape)
    for name in others:
        if name != party.name:
            masked = masked + pairs.cancelling(name, f"total for {reader}", number, values.shape)
    return masked


def read_total(party: Party, sent: dict[str, Ring], number: int) -> Ring:
    """What the reader makes of all that the others sent (at least one did)."""
    pairs = party.held(Pairs)
    opened = [
        vector - pairs.mask(name, f"mask for {party.name}", number, vector.shape) for name, vector in sent.items()
    ]
    return np.asarray(np.sum(opened, axis=0, dtype=np.uint64))


# --- shares ----------------------------------------------------------------------------------------------------------


@operation(
    "flafe.split_residual",
    when="protection=statistics",
    times=1,
    discloses="ciphertext",
    about="a share of the residual for every pair of other parties, sealed for its receiver",
    opened="nobody",
    reply=ByName(ByName(SealedBox)),
)
def split_residual(party: Party, *, pairs: list[list[str | int]]) -> dict[str, dict[str, SealedBox]]:
    """The label holder shares its residual with each pair. In a pair of its own it keeps all of it."""
    share, shares = party.held(Residual).values, party.keep(ResidualShares())
    out: dict[str, dict[str, SealedBox]] = {}
    for first, second, number in read_pairs(party, pairs):
        if party.name in (first, second):
            shares.by_pair[pair_name(first, second)] = share.copy()
        else:
            _split(party, share, first, second, number, out)
    return out


def _split(
    party: Party, share: Ring, first: str, second: str, number: int, out: dict[str, dict[str, SealedBox]]
) -> None:  # fmt: skip
    """One part is a mask that ``first`` can make too; the rest goes to ``second``, sealed: under a mask whoever relays
    it could add to one row what it likes, and read that row's columns from the sums."""
    secrets_with = party.held(Pairs)
    part = secrets_with.mask(first, f"split by {party.name}", number, share.shape)
    box = secrets_with.seal(share - part, to=second, about=f"rest of {party.name}", number=number)
    out.setdefault(second, {})[pair_name(first, second)] = box


@operation(
    "flafe.take_shares",
    when="protection=statistics",
    times="2 x max_iter",
    discloses="control",
    receives="ciphertext",
    about="acknowledgement",
)
def take_shares(
    party: Party,
    *,
    pairs: list[list[str | int]],
    senders: list[PartyName],
    sent: dict[str, dict[str, SealedBox]],
    weight: int,
) -> None:
    """Add ``weight`` times what each sender split to the own share of each pair that this party is in.

    Under an epsilon it is taken as it is, once: the noise is made for a residual of that size.
    """
    if party.job.parameters.get("epsilon") is not None and (weight != 1 or TakenOnce in party.state):
        raise OperationRefused(party.name, "take_shares", "under an epsilon shares are taken once, and with weight 1")
    party.keep(TakenOnce())
    if ResidualShares not in party.state:
        party.keep(ResidualShares())
    shares, secrets_with = party.held(ResidualShares).by_pair, party.held(Pairs)
    rows = len(party.held(Sides).columns)
    for first, second, number in read_pairs(party, pairs):
        if party.name not in (first, second):
            continue
        pair = pair_name(first, second)
        total = shares.get(pair, np.zeros(rows, dtype=np.uint64))
        for sender in senders:
            if sender in (first, second):  # it keeps its own share in a pair of its own
                continue
            if party.name == first:
                part = secrets_with.mask(sender, f"split by {sender}", number, (rows,))
            else:
                box = sent.get(sender, {}).get(pair)
                part = secrets_with.open(box, sender=sender, about=f"rest of {sender}", number=number)
                if not isinstance(part, np.ndarray) or part.shape != (rows,) or part.dtype != np.uint64:
                    raise ReplyError(sender, "take_shares", f"expected its share of {rows} rows")
            total = total + part * _ring(weight)
        shares[pair] = total


def _ring(number: int) -> Ring:
    return np.array(number, dtype=np.int64).view(np.uint64)


# --- sums ------------------------------------------------------------------------------------------------------------


@operation(
    "flafe.arrange_sides",
    when=("protection=statistics", "epsilon=none"),
    times="max_iter",
    discloses="control",
    about="acknowledgement",
)
def arrange_sides(party: Party, *, pairs: list[list[str | int]]) -> None:
    """Set up the matrices of this round's masked products: columns in a secret order, with secret signs."""
    sides, shares = party.held(Sides).columns, party.held(ResidualShares).by_pair
    orders, matrices = party.keep(SecretOrder()).by_pair, party.keep(JointMatrices({})).by_name
    generator = np.random.default_rng(secrets.randbits(256))
    for first, second, _ in read_pairs(party, pairs):
        if party.name not in (first, second):
            continue
        pair = pair_name(first, second)
        order = generator.permutation(sides.shape[1])
        signs = np.asarray(generator.integers(2, size=len(order)) * 2 - 1)
        orders[pair] = (order, signs)
        columns = sides[:, order] * signs.astype(np.int64).view(np.uint64)
        share = shares.get(pair, np.zeros(len(sides), dtype=np.uint64))
        parts = [columns * share[:, None], columns]
        matrices[pair] = np.vstack(parts if party.name == first else parts[::-1])


@operation(
    "flafe.name_choice",
    when=("protection=statistics", "epsilon=none"),
    times="max_iter",
    discloses="aggregate",
    about="which of its columns was chosen, its secret sign, and its mean square",
    reply=NamedColumn,
)
def name_choice(party: Party, *, pair: str, position: Position) -> NamedColumn:
    check_known(party.name, "name_choice", "pair", pair, party.held(SecretOrder).by_pair)
    order, signs = party.held(SecretOrder).by_pair[pair]
    if position >= len(order):
        raise DataError(f"party {party.name!r} has no column at position {position}")
    column = int(order[position])
    sides = party.held(Sides).columns
    values = sides[:, column].view(np.int64) / 2.0 ** ring_bits(len(sides))[0]
    return NamedColumn(column, int(signs[position]), float((values**2).mean()))


# --- shares of a product ---------------------------------------------------------------------------------------------


def deal_triple(rows: int) -> tuple[dict[str, object], dict[str, object]]:
    """The coordinator's part: U and half a product for the first party, V and the other half for the second."""
    first, second = new_seed(), new_seed()
    u, half = (stream(first, name, 0, (rows,)) for name in ("factor", "half"))
    v = stream(second, "factor", 0, (rows,))
    return {"seed": first, "rest": None}, {"seed": second, "rest": u * v - half}


@operation(
    "flafe.hide_factor",
    when=("protection=statistics", "epsilon=none"),
    times="2 x max_iter or 200 x parties or 50",
    discloses="masked",
    receives="masked",
    about="a column less a random vector, masked for the other party of the pair",
    opened="nobody",
    reply=Array("i"),
)
def hide_factor(
    party: Party, *, peer: PartyName, columns: list[int], number: int, seed: bytes, rest: Ring | None
) -> Ring:  # fmt: skip
    """``columns`` one after the other as one long vector."""
    sides = party.held(Sides).columns
    check_positions(party.name, "hide_factor", "columns", np.array(columns, dtype=np.int64), sides.shape[1])
    values = sides[:, columns].T.ravel()
    factor = stream(seed, "factor", 0, values.shape)
    half = stream(seed, "half", 0, values.shape) if rest is None else rest
    if half.shape != values.shape:
        raise DataError(f"party {party.name!r} was dealt a triple of another length")
    dealt = party.keep(DealtFactor(factor, half, rest is not None, values - factor))
    return dealt.difference + party.held(Pairs).mask(peer, f"to {peer}", number, values.shape)


def multiply_shares(party: Party, peer: str, sent: Ring, number: int) -> Ring:
    """This party's share of the product, from the peer's hidden factor. What was dealt is used once."""
    dealt = party.held(DealtFactor)
    del party.state[DealtFactor]
    own = dealt.difference
    if sent.shape != own.shape or sent.dtype != np.uint64:
        raise ReplyError(peer, "hide_factor", "its factor has another length than the column")
    other = sent - party.held(Pairs).mask(peer, f"to {party.name}", number, own.shape)
    share = dealt.factor * other + dealt.half
    return share + own * other if dealt.second else share


@operation(
    "flafe.share_product",
    when=("protection=statistics", "epsilon=none"),
    times="max_iter",
    discloses="ciphertext",
    receives="masked",
    about="its share of a product column, split for the other pairs of parties and sealed for the receivers",
    opened="nobody",
    reply=ByName(ByName(SealedBox)),
)
def share_product(
    party: Party, *, peer: PartyName, sent: Ring, number: int, pairs: list[list[str | int]], weight: int
) -> dict[str, dict[str, SealedBox]]:
    """Take the product off the residual of the pairs that this party is in, and give the others their parts."""
    share, shares = multiply_shares(party, peer, sent, number), party.held(ResidualShares).by_pair
    out: dict[str, dict[str, SealedBox]] = {}
    for first, second, split_number in read_pairs(party, pairs):
        pair = pair_name(first, second)
        if party.name in (first, second):
            known = shares.get(pair, np.zeros(len(share), dtype=np.uint64))
            shares[pair] = known + share * _ring(weight)
        else:
            _split(party, share, first, second, split_number, out)
    return out


def column_ring(values: np.ndarray, bits: int, powers: int) -> Ring:
    """Columns within +-1 and (``powers=2``) their squares, side by side, in the ring."""
    return np.hstack([to_ring(values**power, bits, 2.0) for power in range(1, powers + 1)])


OPERATIONS = (split_residual, take_shares, arrange_sides, name_choice, hide_factor, share_product)
