"""What all sides of boosting on shares compute alike: the trees of a round, their shapes, sums and halves.

A level of a tree has 2^level nodes whether they exist or not, so that shapes do not show. Only left children are
multiplied; the right ones are what is left of the parent, on shares as well. A gradient sum and a hessian sum share one
64-bit number; rows are counted beside it, in 32 bits on the wire (a sum modulo 2^64 is one modulo 2^32).

What travels is read here too, as each side reads it: fields, types and sizes, before any computing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.hidden.cuts import Numbers, Shuffle, TreeCuts, key_shape
from fedsift.models.boost.tree import HESSIAN_SUM_BITS
from fedsift.mpc.dealer import Bits, Dealt
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring, product

Counts = NDArray[np.uint32]
_SHIFT = np.uint64(HESSIAN_SUM_BITS)
_HESSIAN = np.uint64(2**HESSIAN_SUM_BITS - 1)
_BELOW = np.uint64(2 ** (HESSIAN_SUM_BITS - 3))  # sums stay below 2^27 and half a unit a row
#: Deeper levels have more nodes than are worth padding.
MAX_DEPTH = 12


@dataclass(frozen=True)
class Tree:
    """A growing tree as everybody knows it."""

    model: int  # its place among the models that take part in the round
    bins: int
    depth: int
    outputs: int

    def as_list(self) -> list[int]:
        return [self.model, self.bins, self.depth, self.outputs]


@dataclass(frozen=True)
class Level:
    """One level of the trees that are deep enough for it."""

    number: int
    trees: tuple[Tree, ...]

    @classmethod
    def of(cls, trees: Sequence[Tree], number: int) -> Level:
        return cls(number, tuple(tree for tree in trees if tree.depth > number))

    @property
    def nodes(self) -> int:
        """Of each tree."""
        return 1 << self.number

    @property
    def summed(self) -> int:
        """Nodes of each tree that are multiplied: the root, or the left children."""
        return max(1, self.nodes // 2)

    def values(self) -> list[slice]:
        """Which columns of the gradients are a tree's."""
        return _slices([self.summed * tree.outputs for tree in self.trees])

    def counts(self) -> list[slice]:
        return _slices([self.summed] * len(self.trees))

    def nodes_of(self) -> list[slice]:
        """Which of all nodes of the level are a tree's."""
        return _slices([self.nodes] * len(self.trees))


def _slices(sizes: Sequence[int]) -> list[slice]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


# --- numbers ---------------------------------------------------------------------------------------------------------


def pack(g: Numbers, h: Numbers) -> Ring:
    """Whole gradients and hessians as one ring element each."""
    return (g.astype(np.uint64) << _SHIFT) + h.astype(np.uint64)


def unpack(sums: Ring) -> tuple[Numbers, Numbers]:
    """A sum of hessians may be a little below zero, where noise was added to it."""
    h = (sums + _BELOW) & _HESSIAN
    return (sums + _BELOW - h).view(np.int64) >> np.int64(HESSIAN_SUM_BITS), h.astype(np.int64) - np.int64(_BELOW)


def draw_counts(dealt: Dealt, purpose: str, number: int, rows: int, columns: int) -> Counts:
    """32-bit masks from the dealer."""
    words = dealt.draw(purpose, number, (rows, (columns + 1) // 2))
    return words.view(np.uint32).reshape(rows, -1)[:, :columns]


# --- products --------------------------------------------------------------------------------------------------------


@dataclass
class Piece:
    """Neighbouring candidates of a party, all rows: a mask, or what is under one."""

    first: int
    last: int
    held: Ring | None = field(default=None, repr=False)
    drawn: tuple[Dealt, str, int] | None = None  # a mask too large to be held: where it is drawn from again

    def matrix(self) -> Ring:
        if self.held is not None:
            return self.held
        assert self.drawn is not None
        dealt, purpose, number = self.drawn
        return dealt.again(purpose, number)


def times(pieces: Sequence[Piece], candidates: Numbers, right: Ring) -> Ring:
    """candidates' columns, transposed, times ``right`` (rows x b)."""
    out = np.zeros((len(candidates), right.shape[1]), dtype=np.uint64)
    for piece in pieces:
        where = np.flatnonzero((candidates >= piece.first) & (candidates < piece.last))
        local = candidates[where] - piece.first
        if len(local) == piece.last - piece.first:
            out[where] = product(piece.matrix().T, right)[local]
        elif len(local):
            out[where] = product(piece.matrix()[:, local].T, right)
    return out


def level_products(
    level: Level, pieces: dict[int, list[Piece]], trees: Sequence[TreeCuts], values: Ring, counts: Counts
) -> list[Ring]:
    """For each tree candidates x (summed nodes x outputs, then summed nodes): one product serves both."""
    found = []
    for tree, cuts, value, count in zip(level.trees, trees, level.values(), level.counts()):
        right = np.hstack([values[:, value], counts[:, count].astype(np.uint64)])
        found.append(times(pieces.get(tree.bins, ()), cuts.candidates, right))
    return found


def split_sizes(level: Level, trees: Sequence[TreeCuts]) -> list[int]:
    """How many numbers each tree's product has."""
    return [
        len(cuts.candidates) * level.summed * (tree.outputs + 1) for tree, cuts in zip(level.trees, trees)
    ]  # fmt: skip


def draw_splits(dealt: Dealt, number: int, level: Level, trees: Sequence[TreeCuts]) -> list[Ring]:
    """C of every tree."""
    sizes = split_sizes(level, trees)
    flat = dealt.draw("boost: split", number, (sum(sizes),))
    shapes = [(len(cuts.candidates), level.summed * (tree.outputs + 1)) for tree, cuts in zip(level.trees, trees)]
    return [flat[part].reshape(shape) for part, shape in zip(_slices(sizes), shapes)]


def next_histogram(level: Level, tree: Tree, above: Ring | None, products: Ring) -> Ring:
    """Shares of all nodes of the level (nodes x candidates x (outputs + 1)) from those of the level above."""
    wide = level.summed * tree.outputs
    values = products[:, :wide].reshape(len(products), level.summed, tree.outputs)
    fresh = np.concatenate([values, products[:, wide:, None]], axis=2).transpose(1, 0, 2)
    if above is None:
        return fresh
    out = np.empty((level.nodes, *fresh.shape[1:]), dtype=np.uint64)
    out[0::2], out[1::2] = fresh, above - fresh
    return out


# --- halves ----------------------------------------------------------------------------------------------------------


def draw_shuffles(pairs: Pairs, peer: str, number: int, level: Level, trees: Sequence[TreeCuts]) -> list[Shuffle]:
    """A fresh order of the candidates of every node, the same on both sides."""
    shapes = [key_shape(level.nodes, cuts) for cuts in trees]
    parts = _slices([a * b for a, b in shapes])
    keys = pairs.mask(peer, "boost: order", number, (sum(a * b for a, b in shapes),))
    return [Shuffle.draw(keys[part].reshape(shape), cuts) for part, shape, cuts in zip(parts, shapes, trees)]


@dataclass
class Half:
    """One party's half of the sums of a level, under a mask that only its peer has, too."""

    values: Ring
    counts: Counts

    def as_dict(self) -> dict[str, np.ndarray]:
        return {"values": self.values, "counts": self.counts}

    @classmethod
    def read(cls, told: Any, party: str) -> Half:
        """At the coordinator, from a reply of ``party``."""
        good = isinstance(told, dict) and set(told) == {"values", "counts"}
        if not good or not (_is_row(told["values"], np.uint64) and _is_row(told["counts"], np.uint32)):
            raise ReplyError(party, "half_sums", "what it sent is no half of the sums of a level")
        return cls(told["values"], told["counts"])


def _is_row(value: object, kind: type[np.unsignedinteger]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == kind and value.ndim == 1


def masked_half(
    pairs: Pairs, peer: str, number: int, histograms: Sequence[Ring], trees: Sequence[TreeCuts],
    shuffles: Sequence[Shuffle],
) -> Half:  # fmt: skip
    """The shares of a level, shuffled, all trees one after the other, ready for the coordinator."""
    shown = [shuffle.apply(cuts.spread(part)) for part, cuts, shuffle in zip(histograms, trees, shuffles)]
    empty = [np.zeros(0, dtype=np.uint64)]
    values = np.concatenate(empty + [part[:, :, :-1].ravel() for part in shown])
    counts = np.concatenate(empty + [part[:, :, -1].ravel() for part in shown])
    mask = pairs.cancelling(peer, "boost: half", number, (len(values) + len(counts),))
    return Half(values + mask[: len(values)], (counts + mask[len(values) :]).astype(np.uint32))


def open_halves(level: Level, trees: Sequence[TreeCuts], first: Half, second: Half) -> list[Numbers]:
    """Add the two halves up: for each tree nodes x sent x (gradients, hessians, rows). At the coordinator."""
    values, counts = first.values + second.values, first.counts + second.counts
    found, at, row = [], 0, 0
    for tree, cuts in zip(level.trees, trees):
        size = level.nodes * cuts.sent
        part = values[at : at + size * tree.outputs].reshape(level.nodes, cuts.sent, tree.outputs)
        rows = counts[row : row + size].reshape(level.nodes, cuts.sent, 1).astype(np.int64)
        found.append(np.concatenate([*unpack(part), rows], axis=2))
        at, row = at + size * tree.outputs, row + size
    return found


def half_sizes(level: Level, trees: Sequence[TreeCuts]) -> tuple[int, int]:
    """Lengths of the values and counts of a half."""
    sizes = [level.nodes * cuts.sent for cuts in trees]
    return sum(size * tree.outputs for size, tree in zip(sizes, level.trees)), sum(sizes)


#: Numbers of bins that a run cuts columns into.
Bins = Annotated[list[Annotated[int, Between(2, 1024)]], AtMost(1024)]
Places = Annotated[NDArray[np.int32], Between(0, 2**31 - 1)]


class LayoutFields(TypedDict):
    """Of each column of a party: how many candidates, and whether they are categories."""

    counts: Annotated[NDArray[np.int64], Between(0, 1024)]
    categories: NDArray[np.bool_]


class Corrections(TypedDict):
    """The dealer's, for one party: U'V - C of the gradients, and of the counts."""

    values: Ring
    counts: Counts


class CutFields(TypedDict):
    """The cuts of a level that fall to a party: nodes, options of each, places of each option, one after the other."""

    nodes: Places
    options: Places
    sizes: Places
    places: Places


def read_trees(fields: list[list[int]], party: Party) -> list[Tree]:
    """The trees of a round, from a request."""
    if any(len(each) != 4 or not 1 <= each[2] <= MAX_DEPTH or not 1 <= each[3] <= 10_000 for each in fields):
        raise OperationRefused(party.name, "boosting", "a tree has a model, bins, a depth and outputs, within bounds")
    return [Tree(*each) for each in fields]


def check_columns(chosen: np.ndarray, columns: int, party: Party) -> None:
    """Positions of columns of a party that has so many."""
    whole = chosen.ndim == 1 and chosen.dtype.kind in "iu"
    if not whole or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < columns):
        raise OperationRefused(party.name, "boosting", "a column number is out of range")


def check_corrections(
    told: Mapping[str, Corrections], level: Level, cuts: Mapping[str, Sequence[TreeCuts]], party: Party
) -> None:
    """One of the right size for every party."""
    for name, trees in cuts.items():
        counts = sum(len(part.candidates) * level.summed for part in trees)
        wanted = (sum(split_sizes(level, trees)) - counts,), (counts,)
        if name not in told or (told[name]["values"].shape, told[name]["counts"].shape) != wanted:
            raise OperationRefused(party.name, "own_half_sums", "corrections of another size than the level has")


def read_options(cuts: CutFields, party: Party) -> list[tuple[int, list[Numbers]]]:
    """Node and options of each cut, at its owner."""
    flat = all(each.ndim == 1 for each in (cuts["nodes"], cuts["options"], cuts["sizes"], cuts["places"]))
    if not flat or (cuts["options"] < 0).any():
        raise OperationRefused(party.name, "take_cuts", "its lists are no lists of numbers from 0 on")
    fits = len(cuts["nodes"]) == len(cuts["options"]) and cuts["options"].sum() == len(cuts["sizes"])
    if not fits or cuts["sizes"].sum() != len(cuts["places"]) or not (cuts["sizes"] > 0).all():
        raise OperationRefused(party.name, "take_cuts", "its lists of nodes, options and places do not fit each other")
    ends = np.cumsum(cuts["sizes"])
    pieces = iter(np.split(cuts["places"].astype(np.int64), ends[:-1]) if len(ends) else [])
    return [
        (int(node), [next(pieces) for _ in range(int(count))]) for node, count in zip(cuts["nodes"], cuts["options"])
    ]  # fmt: skip


def check_openings(owners: np.ndarray, parties: int, openings: Mapping[str, Bits], names: set[str], me: Party) -> None:
    """Whose cut each node is, and the dealer's openings for every party."""
    whole = owners.ndim == 1 and owners.dtype.kind == "i"
    if not whole or (len(owners) and not -1 <= owners.min() <= owners.max() < parties):
        raise OperationRefused(me.name, "divide_nodes", "a node is cut by a party that is not there")
    shape = (me.n_rows + 7) // 8
    if set(openings) != names or any(each.ndim != 2 or each.shape[1] != shape for each in openings.values()):
        raise OperationRefused(me.name, "divide_nodes", "openings are of other parties or rows")


def boxes_for(boxes: dict[str, Any], parties: Sequence[str], holder: str) -> dict[str, dict[str, SealedBox]]:
    """At the coordinator: what each party is sent of a reply in which the label holder has sealed something for all."""
    if set(boxes) != set(parties) or not all(isinstance(box, SealedBox) for box in boxes.values()):
        raise ReplyError(holder, "boosting", "it did not seal its part for every other party")
    return {name: {"box": boxes[name]} for name in parties}
