"""A residual that nobody can read, kept as shares, and its sums with products of two parties' columns.

The label holder has a residual r (one number a row). For every two parties P and Q, r is split into two shares, r_P at
P and r_Q at Q, that add up to r in Z_2^64. For columns x of P and y of Q

    sum over rows of x y r  =  sum (x r_P) y  +  sum x (y r_Q),

two sums of products of something P knows with something Q knows: one masked product (`masked_product.py`), which the
coordinator opens and in which neither party sees anything. Each party puts its columns into a secret order, with secret
signs, before every round: the coordinator reads the sums of *some* columns, and asks which ones only for the one that
it has chosen.

Taking a chosen product off the residual, r <- r - w x y, needs shares of the column x y. They come from a Beaver triple
that the coordinator deals (U to P, V to Q, shares of U V): P sends x - U to Q and Q sends y - V to P, each under a mask
from their common seed, so the coordinator, who knows U and V, cannot read them, and the two of them, who do not, cannot
either. A share that has to reach another pair of parties is split afresh for that pair.

Why it is secure (semi-honest, no two work together): a share, a masked vector and a difference with a fresh random
number are uniform to whoever sees one of them. All arithmetic is exact in the ring: x and y have ``f`` bits after the
point, r and the weights so many more that no rounding of shares is ever needed.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.engineer.flafe.joint_moments import MATRICES, SEEDS, fresh, to_ring
from fedsift.errors import DataError, OverflowGuard, ReplyError
from fedsift.mpc.shared_product import add_pairwise, ring_stream

SIDES, SHARES = "residual sides", "residual shares"  # own columns in the ring; share of the residual by pair
_ORDER, _HALF = "residual order", "residual triple"


def ring_bits(rows: int) -> tuple[int, int]:
    """Bits after the point of a column and of a weight, such that the largest sum fits."""
    room = 60 - int(rows).bit_length()  # a sign, and a residual of up to 2
    weight = 9
    column = min(12, (room - weight) // 4)
    if column < 5:
        raise OverflowGuard(f"{rows} rows are too many for exact sums in 64 bits")
    return column, weight


def pair_name(first: str, second: str) -> str:
    """One name for a pair of parties; JSON-safe and unambiguous enough for a key of a dictionary."""
    return f"{len(first)}:{first}|{second}"


# --- totals for the label holder -------------------------------------------------------------------------------------


def hidden_total(party: Party, values: np.ndarray, *, reader: str, others: list[str], number: int) -> np.ndarray:
    """A ring vector that only ``reader`` can unmask, and only as a sum over all ``others`` (and this party)."""
    seeds = {name: party.state[SEEDS][name] for name in others if name != party.name}
    masked = add_pairwise(values, party.name, seeds, "total for a reader", number)
    return masked + ring_stream(fresh(party, reader, number), "reader mask", number, values.shape)


def read_total(party: Party, sent: dict[str, np.ndarray], number: int) -> np.ndarray:
    total: Any = 0
    for name, vector in sent.items():
        total = total + (vector - ring_stream(fresh(party, name, number), "reader mask", number, vector.shape))
    return total


# --- shares ----------------------------------------------------------------------------------------------------------


@operation(
    "flafe.split_residual",
    discloses="masked",
    about="a share of the residual for every pair of other parties, masked for its receiver",
    reply=dict,
)
def split_residual(party: Party, *, pairs: list[Any]) -> dict[str, Any]:
    """The label holder shares its residual with each pair. In a pair of its own it keeps all of it."""
    share = party.state["residual"]
    party.state[SHARES] = {}
    out: dict[str, Any] = {}
    for first, second, number in pairs:
        if party.name in (first, second):
            party.state[SHARES][pair_name(first, second)] = share.copy()
        else:
            _split(party, share, first, second, number, out)
    return out


def _split(party: Party, share: np.ndarray, first: str, second: str, number: int, out: dict[str, Any]) -> None:
    """One part is a stream that ``first`` can make too; the rest goes to ``second`` under a mask."""
    part = ring_stream(fresh(party, first, number), "split", number, share.shape)
    rest = share - part + ring_stream(fresh(party, second, number), "split mask", number, share.shape)
    out.setdefault(second, {})[pair_name(first, second)] = rest


@operation("flafe.take_shares", discloses="control", receives="masked", about="acknowledgement")
def take_shares(party: Party, *, pairs: list[Any], senders: list[str], sent: dict[str, Any], weight: int) -> None:
    """Add ``weight`` times what each sender split to the own share of each pair that this party is in."""
    shares = party.state.setdefault(SHARES, {})
    rows = party.state[SIDES].shape[0]
    for first, second, number in pairs:
        if party.name not in (first, second):
            continue
        pair = pair_name(first, second)
        total = shares.get(pair, np.zeros(rows, dtype=np.uint64))
        for sender in senders:
            if sender in (first, second):  # it keeps its own share in a pair of its own
                continue
            seed = fresh(party, sender, number)
            if party.name == first:
                part = ring_stream(seed, "split", number, (rows,))
            else:
                part = sent[sender][pair] - ring_stream(seed, "split mask", number, (rows,))
            total = total + part * _ring(weight)
        shares[pair] = total


def _ring(number: int) -> np.ndarray:
    return np.array(number, dtype=np.int64).view(np.uint64)


# --- sums ------------------------------------------------------------------------------------------------------------


@operation("flafe.arrange_sides", discloses="control", about="acknowledgement")
def arrange_sides(party: Party, *, pairs: list[Any]) -> None:
    """Set up the matrices of this round's masked products: columns in a secret order, with secret signs."""
    sides = party.state[SIDES]
    party.state[_ORDER], party.state[MATRICES] = {}, {}
    generator = np.random.default_rng(secrets.randbits(256))
    for first, second, _ in pairs:
        if party.name not in (first, second):
            continue
        pair = pair_name(first, second)
        order, signs = generator.permutation(sides.shape[1]), generator.integers(2, size=sides.shape[1]) * 2 - 1
        party.state[_ORDER][pair] = (order, signs)
        columns = sides[:, order] * signs.astype(np.int64).view(np.uint64)
        share = party.state[SHARES].get(pair)
        share = np.zeros(len(sides), dtype=np.uint64) if share is None else share
        parts = [columns * share[:, None], columns]
        party.state[MATRICES][pair] = np.vstack(parts if party.name == first else parts[::-1])


@operation(
    "flafe.name_choice",
    discloses="aggregate",
    about="which of its columns was chosen, its secret sign, and its mean square",
    reply={"column": int, "sign": int, "square": float},
)
def name_choice(party: Party, *, pair: str, position: int, bits: int) -> dict[str, Any]:
    order, signs = party.state[_ORDER][pair]
    if not 0 <= position < len(order):
        raise DataError(f"party {party.name!r} has no column at position {position}")
    column = int(order[position])
    values = party.state[SIDES][:, column].view(np.int64) / 2.0**bits
    return {"column": column, "sign": int(signs[position]), "square": float((values**2).mean())}


# --- shares of a product ---------------------------------------------------------------------------------------------


def deal_triple(rows: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The coordinator's part: U and half a product for the first party, V and the other half for the second."""
    first: dict[str, Any] = {"seed": secrets.token_bytes(32), "rest": None}
    u, half = (ring_stream(first["seed"], name, 0, (rows,)) for name in ("factor", "half"))
    second_seed = secrets.token_bytes(32)
    v = ring_stream(second_seed, "factor", 0, (rows,))
    return first, {"seed": second_seed, "rest": u * v - half}


@operation(
    "flafe.hide_factor",
    discloses="masked",
    receives="masked",
    about="a column less a random vector, masked for the other party of the pair",
    reply=Array("i"),
)
def hide_factor(party: Party, *, peer: str, columns: list[int], number: int, seed: bytes, rest: Any) -> np.ndarray:
    """``columns`` one after the other as one long vector."""
    values = party.state[SIDES][:, columns].T.ravel()
    factor = ring_stream(seed, "factor", 0, values.shape)
    half = ring_stream(seed, "half", 0, values.shape) if rest is None else rest
    if half.shape != values.shape:
        raise DataError(f"party {party.name!r} was dealt a triple of another length")
    party.state[_HALF] = (factor, half, rest is not None, values - factor)
    return values - factor + ring_stream(fresh(party, peer, number), f"to {peer}", number, values.shape)


def multiply_shares(party: Party, peer: str, sent: np.ndarray, number: int) -> np.ndarray:
    """This party's share of the product, from the peer's hidden factor."""
    factor, half, second, own = party.state.pop(_HALF)
    if sent.shape != own.shape or sent.dtype != np.uint64:
        raise ReplyError(peer, "hide_factor", "its factor has another length than the column")
    other = sent - ring_stream(party.state[SEEDS][peer], f"to {party.name}", number, own.shape)
    share = factor * other + half
    return share + own * other if second else share


@operation(
    "flafe.share_product",
    discloses="masked",
    receives="masked",
    about="its share of a product column, split for the other pairs of parties and masked for the receivers",
    reply=dict,
)
def share_product(
    party: Party, *, peer: str, sent: np.ndarray, number: int, pairs: list[Any], weight: int
) -> dict[str, Any]:
    """Take the product off the residual of the pairs that this party is in, and give the others their parts."""
    share = multiply_shares(party, peer, sent, number)
    out: dict[str, Any] = {}
    for first, second, split_number in pairs:
        pair = pair_name(first, second)
        if party.name in (first, second):
            known = party.state[SHARES].get(pair, np.zeros(len(share), dtype=np.uint64))
            party.state[SHARES][pair] = known + share * _ring(weight)
        else:
            _split(party, share, first, second, split_number, out)
    return out


def column_ring(values: np.ndarray, bits: int, powers: int) -> np.ndarray:
    """Columns within +-1 and (``powers=2``) their squares, side by side, in the ring."""
    return np.hstack([to_ring(values**power, bits) for power in range(1, powers + 1)])


OPERATIONS = (split_residual, take_shares, arrange_sides, name_choice, hide_factor, share_product)
