"""Sums over rows of products of different parties' columns, read by the coordinator and by nobody else.

Every two parties share secrets that the coordinator does not know (`mpc/pairs.py`). Under one-time masks A, B, C from
them they let the coordinator open X'Y for their matrices X and Y and nothing else: it gets X + A and X'B + C from one,
Y + B and A'(Y + B) - C from the other (`mpc/ring.py` has the argument). Numbers are fixed point in Z_2^64, so
sums are exact.

From these sums the coordinator fits a ridge over all parties' columns exactly (`JointRidge`): training sums give the
weights, sums over validation rows choose the penalty. It learns joint second moments of unnamed columns and target
(and each party's own), as in Fed-IIFE; parties learn their weights. A masked product is numbered, and a party refuses
to use a number twice.

Under an epsilon each party adds noise of its own to its share of every product, and to the sums of its own columns,
before they leave; a matrix is then opened once with each peer and no more, for two draws of the noise would halve it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Annotated, Literal

import numpy as np

from fedsift.core.arguments import MAX_CELLS, AtMost, Between
from fedsift.core.checks import check_known
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.dp import whole_gaussian_noise
from fedsift.engineer.flafe.features import read_record
from fedsift.errors import OperationRefused, OverflowGuard, ReplyError, SecurityError
from fedsift.mpc import pairs
from fedsift.mpc.pairs import Pairs, meet_all
from fedsift.mpc.ring import Ring

PENALTIES = tuple(10.0**e for e in range(-5, 2))


@dataclass
class JointMatrices:
    """A party's fixed-point matrices, by name, whose products with another party's may be opened."""

    by_name: dict[str, Ring]
    noise: float = 0.0  # standard deviation, in units of the ring, of what this party adds to every sum
    _opened: set[tuple[str, str]] = field(default_factory=set, repr=False)

    def covered(self, sums: Ring, name: str, peer: str) -> Ring:
        """Sums of products of a matrix with a peer's (or with itself: symmetric, and so is the noise), with noise."""
        if not self.noise:
            return sums
        if (name, peer) in self._opened:
            raise SecurityError("sums with noise are opened once: a second draw would halve it")
        self._opened.add((name, peer))
        noise = whole_gaussian_noise(sums.shape, self.noise).view(np.uint64) if sums.size else sums
        if not peer:
            upper = np.triu(noise)
            noise = upper + np.triu(noise, 1).T
        return sums + noise


Which = Literal["left", "right"]


@dataclass(frozen=True)
class Side:
    """One party's part of a masked product, in a request."""

    peer: Annotated[str, AtMost(200)]
    side: Which
    number: int
    matrix: str
    width: Annotated[int, Between(0, 100_000)]  # of the peer's matrix


# --- a party's side --------------------------------------------------------------------------------------------------


@operation(
    "flafe.masked_sides",
    times="4 x max_iter",
    discloses="masked",
    about="columns under one-time masks: only sums of products with another party's columns can be read",
    opened="aggregate: sums of products of its columns and the target with other parties' columns",
    concerns="own columns and labels",
    reply=[[Array("i", 2)]],
)
def masked_sides(party: Party, *, tasks: list[dict[str, str | int]]) -> list[list[Ring]]:
    """This party's part of each product. A mask is one side's by name: two that are both asked for the left one (or the
    right) draw two masks, not one that falls out of their difference."""
    pairs, held, parts = party.held(Pairs), party.held(JointMatrices), []
    for task in [read_record(Side, task, party.name) for task in tasks]:
        check_known(party.name, "masked_sides", "matrix", task.matrix, held.by_name)
        matrix = held.by_name[task.matrix]
        rows, own = matrix.shape
        if (rows + own) * task.width > MAX_CELLS:
            raise OperationRefused(party.name, "masked_sides", "the other's matrix is more than it has room for")
        left, right = (own, task.width) if task.side == "left" else (task.width, own)
        between = f"of {(party.name, task.peer) if task.side == 'left' else (task.peer, party.name)}"
        left_mask = pairs.mask(task.peer, f"left mask {between}", task.number, (rows, left))
        right_mask = pairs.mask(task.peer, f"right mask {between}", task.number, (rows, right))
        product_mask = pairs.mask(task.peer, f"product mask {between}", task.number, (left, right))
        if task.side == "left":
            share = matrix.T @ right_mask + product_mask
            parts.append([matrix + left_mask, held.covered(share, task.matrix, task.peer)])
        else:
            hidden = matrix + right_mask
            share = left_mask.T @ hidden - product_mask
            parts.append([hidden, held.covered(share, task.matrix, task.peer)])
    return parts


@operation(
    "flafe.own_sides",
    times=2,
    discloses="aggregate",
    about="sums of products of its own unnamed columns",
    reply=[Array("i", 2)],
)
def own_sides(party: Party, *, names: list[str]) -> list[Ring]:
    held = party.held(JointMatrices)
    for name in names:
        check_known(party.name, "own_sides", "matrix", name, held.by_name)
    return [held.covered(held.by_name[name].T @ held.by_name[name], name, "") for name in names]


def fraction_bits(rows: int, limit: float) -> int:
    """Bits after the point such that a sum of ``rows`` products of values within ``limit`` fits the ring."""
    bits = (62 - int(rows).bit_length() - 2 * max(0, int(np.ceil(np.log2(max(limit, 1.0)))))) // 2
    if bits < 8:
        raise OverflowGuard(f"{rows} rows are too many for exact sums in 64 bits")
    return min(bits, 24)


# --- the coordinator's side ------------------------------------------------------------------------------------------


class JointProducts:
    """Numbers the products of a run and opens them. One for each session: parties meet once."""

    def __init__(self, fed: Federation, parties: Sequence[str]):
        self.fed, self.parties, self._number = fed, list(parties), 0
        if len(self.parties) > 1:
            meet_all(fed, self.parties)

    def number(self) -> int:
        self._number += 1
        return self._number

    def open(self, wanted: Sequence[tuple[str, str, int, str, str, int]]) -> list[Ring]:
        """X'Y in the ring for each (left party, its matrix, its width, right party, its matrix, its width)."""
        tasks: dict[str, list[Side]] = {}
        sides: tuple[Which, Which] = ("left", "right")
        for left, left_matrix, left_width, right, right_matrix, right_width in wanted:
            number = self.number()
            for name, peer, side, matrix, width in (
                (left, right, sides[0], left_matrix, right_width), (right, left, sides[1], right_matrix, left_width),
            ):  # fmt: skip
                tasks.setdefault(name, []).append(Side(peer, side, number, matrix, width))
        names = list(tasks)
        parts = self.fed.ask(masked_sides, to=names, each={n: {"tasks": [asdict(t) for t in tasks[n]]} for n in names})
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
            for name, piece, own in ((left, pieces[0], left_width), (right, pieces[1], right_width)):
                if len(piece) != 2:
                    raise ReplyError(name, "masked_sides", "a product has two parts")
                _check(name, piece[0], (len(pieces[0][0]), own))
                _check(name, piece[1], (left_width, right_width))
            (hidden_left, left_share), (hidden_right, right_share) = pieces
            opened.append(hidden_left.T @ hidden_right - left_share - right_share)
        return opened

    def gram(self, widths: dict[str, int], matrix: str) -> Ring:
        """All sums of products of all parties' columns, in the ring, party after party."""
        names = [name for name in self.parties if widths[name]]
        offset = dict(zip(names, np.cumsum([0, *(widths[name] for name in names)]).tolist()))
        own = self.fed.ask(own_sides, to=names, names=[matrix])
        for name in names:  # before anything is made in sizes that parties told
            _check(name, own[name][0] if own[name] else None, (widths[name], widths[name]))
        total = np.zeros((sum(widths[name] for name in names),) * 2, dtype=np.uint64)
        for name in names:
            at = slice(offset[name], offset[name] + widths[name])
            total[at, at] = own[name][0]
        pairs = list(combinations(names, 2))
        opened = self.open([(a, matrix, widths[a], b, matrix, widths[b]) for a, b in pairs]) if pairs else []
        for (a, b), product in zip(pairs, opened):
            rows, columns = slice(offset[a], offset[a] + widths[a]), slice(offset[b], offset[b] + widths[b])
            total[rows, columns], total[columns, rows] = product, product.T
        return total


def _check(name: str, array: object, shape: tuple[int, int]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.uint64 or array.shape != shape:
        raise ReplyError(name, "masked_sides", f"its share should be a table of {shape[0]} x {shape[1]} numbers")


def ridge_weights(
    train: np.ndarray, features: np.ndarray, targets: np.ndarray, penalty: float, rows: int
) -> np.ndarray:
    """Exact weights (features x targets) from the matrix of sums."""
    inner = train[np.ix_(features, features)] + penalty * rows * np.eye(len(features))
    return np.asarray(np.linalg.lstsq(inner, train[np.ix_(features, targets)], rcond=None)[0])


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


OPERATIONS = (*pairs.OPERATIONS, own_sides, masked_sides)
