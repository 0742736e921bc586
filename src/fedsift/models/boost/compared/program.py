"""The best cut of every node, computed on shares by the label holder (party 0) and another party (party 1).

With G and H the gradient and hessian sums of a node, L those that go left, T = H + 2 lambda and a = L's H + lambda, the
gain of a cut is (L's G - a G / T)^2 T / (a (T - a)), and a part that is the same for all cuts of the node. So the
candidates are fractions w^2 / (a (T - a)) with w = L's G T - a G: whole numbers, compared exactly by cross products.

Sums come as shares of one 64-bit number (``hidden/shares.py``). A number that leaves the highest bit of its ring free
wraps if and only if one of its shares has that bit set, so both sums are lifted into the wide ring exactly, by one OR
of private bits each. Candidates that leave too few rows or too little weight on a side get the numerator zero; four
signs decide that. The node's own G, H and rows, lambda and the least weight are the label holder's alone: they enter
as its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsift.models.boost.hidden.cuts import Numbers, TreeCuts
from fedsift.models.boost.hidden.shares import Counts, Level
from fedsift.models.boost.tree import COMPARED_GRADIENT_BITS, COMPARED_HESSIAN_BITS, HESSIAN_SUM_BITS
from fedsift.mpc.comparing import Fractions, Program, Source, chosen, conjunctions, either, largest, negative, products
from fedsift.mpc.dealer import Bits
from fedsift.mpc.ring import Ring
from fedsift.mpc.wide import WORDS, Wide, add, from_ints, minus, shifted, widen

_SHIFT, _HESSIAN = np.uint64(HESSIAN_SUM_BITS), np.uint64(2**HESSIAN_SUM_BITS - 1)
_REST = 64 - HESSIAN_SUM_BITS  # bits of a gradient sum's share
_OFFSET = 2**COMPARED_GRADIENT_BITS
assert COMPARED_HESSIAN_BITS < HESSIAN_SUM_BITS
assert COMPARED_GRADIENT_BITS + 1 < _REST
#: More than any fraction of a candidate, with room for cross products: a node that is not to be cut.
NEVER = 2**126


@dataclass(frozen=True)
class Shape:
    """The candidates of a level, tree after tree, node after node: which node each is of, and its place there."""

    nodes: int
    width: int  # of the longest node
    node: Numbers
    place: Numbers

    @classmethod
    def of(cls, level: Level, cuts: Sequence[TreeCuts]) -> Shape:
        node, place, start = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        for part in cuts:
            count = len(part.candidates)
            node.append(start + np.repeat(np.arange(level.nodes), count))
            place.append(np.tile(np.arange(count), level.nodes))
            start += level.nodes
        width = max([1, *(len(part.candidates) for part in cuts)])
        return cls(start, width, np.concatenate(node), np.concatenate(place))


@dataclass(frozen=True)
class NodeFacts:
    """What the label holder knows of the nodes, one number a node; all zeros at the other party."""

    gradient: Numbers
    hessian: Numbers
    rows: Numbers
    penalty: Numbers  # lambda, in units of hessians, at least 1
    least_weight: Numbers
    least_rows: Numbers

    @classmethod
    def unknown(cls, nodes: int) -> NodeFacts:
        return cls(*(np.zeros(nodes, np.int64) for _ in range(6)))

    @property
    def whole(self) -> Numbers:
        """T."""
        return self.hessian + 2 * self.penalty


def flat_sums(sums: list[Ring]) -> tuple[Ring, np.ndarray]:
    """Shares of the sums and counts of all candidates of a level, tree after tree, node after node."""
    nothing = [np.zeros(0, np.uint64)]
    values = np.concatenate(nothing + [part[:, :, 0].ravel() for part in sums])
    counts = np.concatenate(nothing + [part[:, :, 1].ravel() for part in sums])
    return values, counts.astype(np.uint32)


def best_cuts(source: Source, shape: Shape, values: Ring, counts: Counts, facts: NodeFacts) -> Program[Fractions]:
    """Shares of the best candidate of every node (nodes x 1) and of its place, the first of equally good ones."""
    gradient, hessian = yield from _lifted(source, values)
    node = shape.node
    weight = add(hessian, widen(facts.penalty[node]))
    whole = widen(facts.whole)
    scaled, shifted_by = yield from products(source, [(whole, gradient), (widen(facts.gradient), weight)], places=node)
    across = minus(scaled, shifted_by)
    over, under = yield from products(source, [(across, across), (weight, minus(whole[node], weight))])
    fits = yield from _fitting(source, node, values & _HESSIAN, counts, facts)
    (over,) = yield from chosen(source, fits, [over], [np.zeros_like(over)])
    return (yield from largest(source, _by_node(source, shape, over, under)))


def _lifted(source: Source, values: Ring) -> Program[tuple[Wide, Wide]]:
    """Shares of gradient and hessian sums as wide numbers."""
    low = values & _HESSIAN
    wrapped = yield from either(source, (low >> np.uint64(HESSIAN_SUM_BITS - 1)).astype(bool))
    hessian = minus(widen(low), shifted(wrapped, HESSIAN_SUM_BITS))
    mine = np.array(_OFFSET if source.number == 0 else 0, dtype=np.uint64)
    high = ((values >> _SHIFT) + wrapped[:, 0] + mine) & np.uint64(2**_REST - 1)
    wrapped = yield from either(source, (high >> np.uint64(_REST - 1)).astype(bool))
    return minus(minus(widen(high), shifted(wrapped, _REST)), widen(mine)), hessian


def _fitting(source: Source, node: Numbers, hessian: Ring, counts: Counts, facts: NodeFacts) -> Program[Bits]:
    """Shares of whether both sides of each candidate have enough rows and weight: four signs of 32-bit numbers."""
    rows, least = facts.rows[node].astype(np.uint32), facts.least_rows[node].astype(np.uint32)
    low, up = hessian.astype(np.uint32), np.uint32(32 - HESSIAN_SUM_BITS)
    total, weight = facts.hessian[node].astype(np.uint32), facts.least_weight[node].astype(np.uint32)
    tests = [counts - least, rows - counts - least, (low - weight) << up, (total - low - weight) << up]
    padded = np.zeros((4, -(-len(node) // 8) * 8), dtype=np.uint64)  # whole bytes of bits each
    padded[:, : len(node)] = tests
    signs = yield from negative(source, padded.reshape(-1, 1), bits=32)
    if source.number == 0:
        signs = ~signs
    (fits,) = yield from conjunctions(source, list(signs.reshape(4, 1, -1)), [(0, 1, 2, 3)])
    return fits


def _by_node(source: Source, shape: Shape, over: Wide, under: Wide) -> Fractions:
    """Groups of candidates; shorter ones are filled up with 0 / 1, which nothing loses against."""
    size = (shape.nodes, shape.width)
    found = Fractions(*(np.zeros((*size, WORDS), dtype=np.uint64) for _ in range(3)))
    if source.number == 0:
        found.under[:, :, 0] = 1
        found.label[:, :, 0] = np.arange(shape.width, dtype=np.uint64)
    found.over[shape.node, shape.place] = over
    found.under[shape.node, shape.place] = under
    return found


def winners(source: Source, finals: Fractions) -> Program[list[int]]:
    """Which of the parties (in their order) has the best cut of each node; party 0 alone reads it."""
    best = yield from largest(source, finals)
    label = best.label[:, 0]
    mine = label if source.number == 1 else np.zeros_like(label)
    (theirs,) = yield [mine]
    return [int(value) for value in add(label, theirs)[:, 0]] if source.number == 0 else []


def finalists(source: Source, places: int, own: int, bar: tuple[list[int], list[int]], bests: dict[int, Fractions]
              ) -> Fractions:  # fmt: skip
    """The last comparison: ``own`` is the label holder's place, ``bests`` the others' best candidates (shares)."""
    nodes = len(next(iter(bests.values())).over)
    table = [np.zeros((nodes, places, WORDS), dtype=np.uint64) for _ in range(3)]
    if source.number == 0:
        table[0][:, own], table[1][:, own] = from_ints(bar[0]), from_ints(bar[1])
        table[2][:, :, 0] = np.arange(places, dtype=np.uint64)
    for place, best in bests.items():
        table[0][:, place], table[1][:, place] = best.over[:, 0], best.under[:, 0]
    return Fractions(*table)
