"""Sums over rows of products of different parties' columns, read by the coordinator and by nobody else.

Every two parties share a secret seed (Diffie-Hellman of fresh keys, salted by both, unknown to the coordinator). Under
one-time masks from it they let the coordinator open X'Y for their matrices X and Y and nothing else:
`masked_product.py` has the protocol and the argument. Numbers are fixed point in Z_2^64, so sums are exact.

From these sums the coordinator fits a ridge over all parties' columns exactly (`JointRidge`): training sums give the
weights, sums over validation rows choose the penalty. It learns joint second moments of unnamed columns and target
(and each party's own), as in Fed-IIFE; parties learn their weights. A masked product is numbered, and a party refuses
to use a number twice: the same mask on two matrices would show their difference.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealKey, frame, pair_key
from fedsift.errors import OverflowGuard, ReplyError, SecurityError
from fedsift.mpc.shared_product import hide_left, left_share, open_product, right_message

MATRICES, SEEDS = "joint matrices", "joint seeds"  # fixed-point matrices by name; seeds by peer
_KEYS, _USED = "joint keys", "joint numbers"
PENALTIES = tuple(10.0**e for e in range(-5, 2))


# --- a party's side --------------------------------------------------------------------------------------------------


@operation(
    "flafe.offer_pair_key",
    discloses="control",
    about="a public key and a salt, made for this run",
    reply={"key": bytes, "salt": bytes},
)
def offer_pair_key(party: Party) -> dict[str, bytes]:
    key, salt = SealKey.generate(), secrets.token_bytes(16)
    party.state[_KEYS] = (key, salt)
    return {"key": key.public, "salt": salt}


@operation("flafe.meet_pairs", discloses="control", about="acknowledgement")
def meet_pairs(party: Party, *, offers: dict[str, Any]) -> None:
    """Derive a seed with every peer."""
    key, salt = party.state[_KEYS]
    if offers.get(party.name) != {"key": key.public, "salt": salt}:
        raise SecurityError(f"party {party.name!r}: the list of public keys does not hold its own")
    seeds = {}
    for name, offer in offers.items():
        if name != party.name:
            salts = [offers[each]["salt"] for each in sorted((name, party.name))]
            seeds[name] = pair_key(key, offer["key"], name=name, purpose="joint moments", context=frame(*salts))
    party.state[SEEDS], party.state[_USED] = seeds, set()
    party.state["joint publics"] = {name: offer["key"] for name, offer in offers.items()}


def fresh(party: Party, peer: str, number: int) -> bytes:
    """The seed for a numbered use with that peer, once."""
    used = party.state[_USED]
    if (peer, number) in used:
        raise SecurityError(f"party {party.name!r} refuses to mask two things with number {number}")
    used.add((peer, number))
    return party.state[SEEDS][peer]


@operation(
    "flafe.masked_sides",
    discloses="masked",
    about="columns under one-time masks: only sums of products with another party's columns can be read",
    reply=list,
)
def masked_sides(party: Party, *, tasks: list[Any]) -> list[Any]:
    """For each task (peer, side, number, matrix, width of the peer's matrix) this party's part of the product."""
    parts = []
    for task in tasks:
        matrix = party.state[MATRICES][task["matrix"]]
        number, width = task["number"], task["width"]
        seed = fresh(party, task["peer"], number)
        if task["side"] == "left":
            parts.append([hide_left(matrix, seed, number), left_share(matrix, seed, number, width)])
        else:
            parts.append(list(right_message(matrix, seed, number, number, width)))
    return parts


@operation("flafe.own_sides", discloses="aggregate", about="sums of products of its own unnamed columns", reply=list)
def own_sides(party: Party, *, names: list[str]) -> list[Any]:
    return [(m := party.state[MATRICES][name]).T @ m for name in names]


def fraction_bits(rows: int, limit: float) -> int:
    """Bits after the point such that a sum of ``rows`` products of values within ``limit`` fits the ring."""
    bits = (62 - int(rows).bit_length() - 2 * max(0, int(np.ceil(np.log2(max(limit, 1.0)))))) // 2
    if bits < 8:
        raise OverflowGuard(f"{rows} rows are too many for exact sums in 64 bits")
    return min(bits, 24)


def to_ring(values: np.ndarray, bits: int) -> np.ndarray:
    return np.rint(values * 2.0**bits).astype(np.int64).view(np.uint64)


def from_ring(values: np.ndarray, bits: int) -> np.ndarray:
    return values.view(np.int64).astype(np.float64) / 2.0**bits


# --- the coordinator's side ------------------------------------------------------------------------------------------


class JointProducts:
    """Numbers the products of a run and opens them."""

    def __init__(self, fed: Federation, parties: Sequence[str]):
        self.fed, self.parties, self._number = fed, list(parties), 0
        if len(self.parties) > 1:
            fed.ask(meet_pairs, to=self.parties, offers=fed.ask(offer_pair_key, to=self.parties))

    def number(self) -> int:
        self._number += 1
        return self._number

    def open(self, wanted: Sequence[tuple[str, str, int, str, str, int]]) -> list[np.ndarray]:
        """X'Y in the ring for each (left party, its matrix, its width, right party, its matrix, its width)."""
        tasks: dict[str, list[dict[str, Any]]] = {}
        for left, left_matrix, left_width, right, right_matrix, right_width in wanted:
            number = self.number()
            for name, peer, side, matrix, width in (
                (left, right, "left", left_matrix, right_width), (right, left, "right", right_matrix, left_width),
            ):  # fmt: skip
                tasks.setdefault(name, []).append(
                    {"peer": peer, "side": side, "number": number, "matrix": matrix, "width": width}
                )
        names = list(tasks)
        parts = self.fed.ask(masked_sides, to=names, each={name: {"tasks": tasks[name]} for name in names})
        for name in names:
            if len(parts[name]) != len(tasks[name]):
                raise ReplyError(name, "masked_sides", "another number of products than was asked for")
        position = dict.fromkeys(names, 0)
        opened = []
        for left, _, left_width, right, _, right_width in wanted:
            pieces = []
            for name in (left, right):
                pieces.append(parts[name][position[name]])
                position[name] += 1
            _check(left, pieces[0][1], (left_width, right_width))
            _check(right, pieces[1][1], (left_width, right_width))
            opened.append(open_product(pieces[0][0], pieces[0][1], pieces[1][0], pieces[1][1]))
        return opened

    def gram(self, widths: dict[str, int], matrix: str) -> np.ndarray:
        """All sums of products of all parties' columns, in the ring, party after party."""
        names = [name for name in self.parties if widths[name]]
        offset = dict(zip(names, np.cumsum([0, *(widths[name] for name in names)]).tolist()))
        size = sum(widths[name] for name in names)
        total = np.zeros((size, size), dtype=np.uint64)
        own = self.fed.ask(own_sides, to=names, names=[matrix])
        for name in names:
            at = slice(offset[name], offset[name] + widths[name])
            _check(name, own[name][0], (widths[name], widths[name]))
            total[at, at] = own[name][0]
        pairs = list(combinations(names, 2))
        opened = self.open([(a, matrix, widths[a], b, matrix, widths[b]) for a, b in pairs]) if pairs else []
        for (a, b), product in zip(pairs, opened):
            rows, columns = slice(offset[a], offset[a] + widths[a]), slice(offset[b], offset[b] + widths[b])
            total[rows, columns], total[columns, rows] = product, product.T
        return total


def _check(name: str, array: Any, shape: tuple[int, int]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.uint64 or array.shape != shape:
        raise ReplyError(name, "masked_sides", f"its share should be a table of {shape[0]} x {shape[1]} numbers")


def ridge_weights(
    train: np.ndarray, features: np.ndarray, targets: np.ndarray, penalty: float, rows: int
) -> np.ndarray:
    """Exact weights (features x targets) from the matrix of sums."""
    inner = train[np.ix_(features, features)] + penalty * rows * np.eye(len(features))
    return np.linalg.lstsq(inner, train[np.ix_(features, targets)], rcond=None)[0]


def squared_error(gram: np.ndarray, features: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
    """Summed squared error over the rows of ``gram``, from its sums alone."""
    cross, inner = gram[np.ix_(features, targets)], gram[np.ix_(features, features)]
    own = np.trace(gram[np.ix_(targets, targets)])
    return float(own - 2 * (weights * cross).sum() + (weights * (inner @ weights)).sum())


def best_ridge(
    train: np.ndarray, check: np.ndarray, features: np.ndarray, targets: np.ndarray, rows: int
) -> tuple[float, float, np.ndarray]:
    """R2 on the checking rows, penalty and weights of the best ridge."""
    total = max(float(np.trace(check[np.ix_(targets, targets)])), 1e-300)
    tried = []
    for penalty in PENALTIES:
        weights = ridge_weights(train, features, targets, penalty, rows)
        tried.append((1 - squared_error(check, features, targets, weights) / total, penalty, weights))
    return max(tried, key=lambda each: each[0])


OPERATIONS = (offer_pair_key, meet_pairs, own_sides, masked_sides)
