"""What is computed on shares: of sums the best cut of every node, who has it, and the leaves; of rows what follows.

The label holder is party 0, another party is party 1. With G and H the gradient and hessian sums of a node, L those
that go left, T = H + 2 lambda and a = L's H + lambda, the gain of a cut is (L's G - a G / T)^2 T / (a (T - a)), and a
part that is the same for all cuts of the node. So the candidates are fractions w^2 / (a (T - a)) with
w = L's G T - a G: whole numbers, compared exactly by cross products. The least gain that is worth a cut is a fraction
of the same kind.

Sums come as shares of one 64-bit number (``hidden/shares.py``). A number that leaves the highest bit of its ring free
wraps if and only if one of its shares has that bit set, so both sums are lifted into the wide ring exactly, by one OR
of private bits each. Candidates that leave too few rows or too little weight on a side get the numerator zero; four
signs decide that. A leaf is a quotient, found three bits at a time (long division: compare, subtract).

Of rows: gradients, who goes left, sums of nodes laid out, new scores. Party 1 is all other parties together here: they
hold the same shares (``state.py``). Who is in a node is a shared bit a row and node. A level's left children are
multiplied with the gradients, which were opened under a mask once a tree; right children are what is left. A node that
is not cut sends its rows right.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsift.models.boost.compared.scales import HALF_CELL, MORE_BITS, Limits, Scales
from fedsift.models.boost.hidden.cuts import Numbers, TreeCuts
from fedsift.models.boost.hidden.shares import Counts, Level
from fedsift.mpc.comparing import Program, Source, chosen, conjunctions, either, negative, products
from fedsift.mpc.dealer import Bits
from fedsift.mpc.fractions import Fractions, hidden, largest, multiplied, squares_where
from fedsift.mpc.ring import Ring
from fedsift.mpc.row_programs import Opened, Words, as_numbers, looked_up, mixed, opened, scaled, selected
from fedsift.mpc.wide import WORDS, Wide, add, minus, shifted, times, widen


@dataclass(frozen=True)
class Sums:
    """Shares of packed gradient and hessian sums, and of numbers of rows, one after the other."""

    values: Ring
    counts: Counts

    @classmethod
    def nothing(cls, count: int) -> Sums:
        return cls(np.zeros(count, np.uint64), np.zeros(count, np.uint32))

    def repeated(self, times: int) -> Sums:
        return Sums(np.tile(self.values, times), np.tile(self.counts, times))


@dataclass(frozen=True)
class Shape:
    """The candidates of a level, tree after tree, node after node: which node each is of, and its place there."""

    nodes: int
    sizes: Numbers  # of the nodes
    node: Numbers
    place: Numbers

    @classmethod
    def of(cls, level: Level, cuts: Sequence[TreeCuts]) -> Shape:
        sizes = np.repeat(np.array([len(part.candidates) for part in cuts], dtype=np.int64), level.nodes)
        return cls.sized(sizes)

    @classmethod
    def sized(cls, sizes: Numbers) -> Shape:
        node = np.repeat(np.arange(len(sizes)), sizes)
        return cls(len(sizes), sizes, node, np.arange(len(node)) - (np.cumsum(sizes) - sizes)[node])

    @property
    def width(self) -> int:
        """Of the longest node."""
        return int(self.sizes.max(initial=1))


def flat_sums(parts: Sequence[Ring]) -> Sums:
    """Shares of the sums of all candidates of a level (nodes x candidates x 2 each), part after part."""
    nothing = [np.zeros(0, np.uint64)]
    values = np.concatenate(nothing + [part[:, :, 0].ravel() for part in parts])
    counts = np.concatenate(nothing + [part[:, :, 1].ravel() for part in parts])
    return Sums(values, counts.astype(np.uint32))


def best_cuts(
    source: Source, shape: Shape, cuts: Sums, nodes: Sums, scales: Scales, limits: Limits
) -> Program[Fractions]:  # fmt: skip
    """Shares of the best candidate of every node (nodes x 1), of its place and of its sums; the first of equal ones.
    ``limits``: of the nodes, whose models have the units ``scales`` has."""
    source.parts = scales.parts
    gradients, hessians = yield from _lifted(source, np.concatenate([nodes.values, cuts.values]), scales)
    node, count = shape.node, shape.nodes
    weight = add(hessians[count:], _public(source, limits.penalty[node]))
    whole = add(hessians[:count], _public(source, 2 * limits.penalty))
    seen = yield from hidden(source, [gradients[count:], weight, gradients[:count], whole])
    left, a, gradient, total = seen[0], seen[1], seen[2].at(node), seen[3].at(node)
    across = minus(multiplied(source, left, total), multiplied(source, a, gradient))
    under = multiplied(source, a, total.minus(a))
    fits = yield from _fitting(source, node, cuts, nodes, scales, limits)
    (shown,) = yield from hidden(source, [across])
    over = yield from squares_where(source, fits, shown)
    found = _by_node(source, shape, over, under, cuts.values)
    return (yield from largest(source, found, np.maximum(shape.sizes, 1)))


def _public(source: Source, values: Ring) -> Wide:
    """Shares of public numbers."""
    return widen(values if source.number == 0 else np.zeros_like(values))


def _lifted(source: Source, values: Ring, scales: Scales) -> Program[tuple[Wide, Wide]]:
    """Shares of gradient and hessian sums as wide numbers."""
    low = values & np.uint64(2**scales.low - 1)
    wrapped = yield from either(source, (low >> np.uint64(scales.low - 1)).astype(bool))
    hessian = minus(widen(low), shifted(wrapped, scales.low))
    mine = np.array(scales.offset if source.number == 0 else 0, dtype=np.uint64)
    high = ((values >> np.uint64(scales.low)) + wrapped[:, 0] + mine) & np.uint64(2**scales.high - 1)
    wrapped = yield from either(source, (high >> np.uint64(scales.high - 1)).astype(bool))
    return minus(minus(widen(high), shifted(wrapped, scales.high)), widen(mine)), hessian


def _fitting(
    source: Source, node: Numbers, cuts: Sums, nodes: Sums, scales: Scales, limits: Limits
) -> Program[Bits]:  # fmt: skip
    """Shares of whether both sides of each candidate have enough rows and weight: four signs of 32-bit numbers."""
    mine = np.uint32(source.number == 0)
    least, weight = (part[node].astype(np.uint32) * mine for part in (limits.rows, limits.weight))
    rows, counts = nodes.counts[node], cuts.counts
    total, low = (part.astype(np.uint32) for part in (nodes.values[node], cuts.values))
    up, more = np.uint32(32 - scales.low), np.uint32(32 - 8 * scales.count)
    tests = [
        (counts - least) << more, (rows - counts - least) << more, (low - weight) << up, (total - low - weight) << up
    ]  # fmt: skip
    padded = np.zeros((4, -(-len(node) // 8) * 8), dtype=np.uint64)  # whole bytes of bits each
    padded[:, : len(node)] = tests
    signs = yield from negative(source, padded.reshape(-1, 1), bits=32)
    if source.number == 0:
        signs = ~signs
    (fits,) = yield from conjunctions(source, list(signs.reshape(4, 1, -1)), [(0, 1, 2, 3)])
    return fits


def _by_node(source: Source, shape: Shape, over: Wide, under: Wide, sums: Ring) -> Fractions:
    """Groups of candidates; shorter ones are filled up with 0 / 1, which nothing loses against."""
    found = Fractions.empty(shape.nodes, shape.width)
    if source.number == 0:
        found.under[:, :, 0] = 1
        found.label[:] = np.arange(shape.width, dtype=np.uint64)
    found.over[shape.node, shape.place] = over
    found.under[shape.node, shape.place] = under
    found.sums[shape.node, shape.place] = sums
    return found


# --- who cuts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Winners:
    """Of every node: shares of what goes left (sums); to the label holder alone who cuts it (0: nobody, else the place
    of the party and one), and the place of its own cut where that is itself."""

    left: Ring
    owners: Numbers
    own: Numbers


def winners(
    source: Source, nodes: Sums, bests: Sequence[Fractions], own: int, scales: Scales, limits: Limits, least: Wide
) -> Program[Winners]:
    """``bests``: shares of the parties' best candidates, in their order; ``own``: the place of the label holder;
    ``least``: what a gain of each node must exceed (the label holder's numbers, zeros at the other)."""
    source.parts = scales.parts
    bar = yield from _bar(source, nodes, scales, limits, least)
    finals = Fractions(*(np.concatenate(parts, axis=1) for parts in zip(bar.parts(), *(b.parts() for b in bests))))
    finals.label[:] = 0
    if source.number == 0:
        finals.label[:] = np.arange(1 + len(bests), dtype=np.uint64)
    best = yield from largest(source, finals)
    label = best.label[:, 0]
    (theirs,) = yield [label if source.number == 1 else np.zeros_like(label)]
    owners = (label + theirs).astype(np.int64)
    flags = widen((owners == own + 1).astype(np.uint64) * np.uint64(source.number == 0))
    (wide,) = yield from products(source, [(flags, widen(bests[own].label[:, 0]))])
    place = wide[:, 0]  # labels are words: right modulo 2^64
    (theirs,) = yield [place if source.number == 1 else np.zeros_like(place)]
    return Winners(best.sums[:, 0], owners, (place + theirs).astype(np.int64))


def _bar(source: Source, nodes: Sums, scales: Scales, limits: Limits, least: Wide) -> Program[Fractions]:
    """The gain (w^2 / (a (T - a)) / T + G^2 / T - G^2 / (H + lambda) is to be more than the least one."""
    gradient, hessian = yield from _lifted(source, nodes.values, scales)
    weight = add(hessian, _public(source, limits.penalty))
    whole = add(weight, _public(source, limits.penalty))
    square, area = yield from products(source, [(gradient, gradient), (whole, weight)])
    (enough,) = yield from products(source, [(least, area)])
    bar = Fractions.empty(len(square), 1)
    bar.over[:, 0] = add(enough, times(square, widen(limits.penalty)))
    bar.under[:, 0] = weight
    return bar


# --- leaves ----------------------------------------------------------------------------------------------------------


#: Bits of a quotient that are found at once: seven comparisons beside each other, in a third of the rounds.
_DIGIT = 3


def leaves(source: Source, values: Ring, scales: Scales, limits: Limits) -> Program[tuple[Ring, Ring]]:
    """Shares of the score of each node, -rate G / (H + lambda) rounded towards zero, as a code (``scored``; by
    exclusive or), and of |rate G^2 / (H + lambda)|, in units of 2^-(score and MORE_BITS) and of a gradient."""
    source.parts = scales.parts
    gradient, hessian = yield from _lifted(source, values, scales)
    sign = yield from negative(source, gradient, bits=64)
    (size,) = yield from chosen(source, sign, [minus(np.zeros_like(gradient), gradient)], [gradient])
    weight = add(hessian, _public(source, limits.penalty))
    shift, turn = scales.shift, np.uint8(255 if source.number == 0 else 0)
    rest = shifted(times(size, widen(limits.rate)), max(0, -shift))
    divisor = shifted(weight, max(0, shift))
    nothing, one = np.zeros_like(size), _public(source, np.ones(len(size), np.uint64))
    fine, code = nothing, [sign[0] ^ turn]
    for place in reversed(range(0, scales.leaf_bits, _DIGIT)):
        width = min(_DIGIT, scales.leaf_bits - place)
        rest, step, turned = yield from _digit(source, rest, shifted(divisor, place), shifted(one, place), width)
        fine = add(fine, step)
        kept = min(width, max(0, place + width - MORE_BITS))  # lower ones are for the gain alone
        code += [part ^ sign[0] for part in turned[:kept]]  # turned where the score is negative
    (gain,) = yield from products(source, [(size, fine)])
    bits = np.unpackbits(np.stack(code[::-1]), axis=1, count=len(values)).astype(np.uint64)
    return (bits << np.arange(len(code), dtype=np.uint64)[:, None]).sum(axis=0, dtype=np.uint64), gain[:, 0]


def _digit(
    source: Source, rest: Wide, unit: Wide, one: Wide, bits: int
) -> Program[tuple[Wide, Wide, list[Bits]]]:  # fmt: skip
    """How often a unit goes into what is left: compared with all its multiples at once. What is left then, so many
    ``one``s, and the bits of the number, the highest first, each turned."""
    tries = (1 << bits) - 1
    left = list(itertools.accumulate([unit] * tries, minus, initial=rest))[1:]
    below = yield from negative(source, np.concatenate(left), bits=64)
    nothing = np.zeros((tries * len(unit), WORDS), np.uint64)
    taken = yield from chosen(source, below, [nothing, nothing], [np.tile(unit, (tries, 1)), np.tile(one, (tries, 1))])
    off, step = (list(np.split(part, tries)) for part in taken)
    # Who is no more than the rest are the first ones, so that a bit is the exclusive or of every so manieth:
    signs = np.unpackbits(below[0], count=len(nothing)).reshape(tries, -1)
    found = [np.bitwise_xor.reduce(signs[(1 << place) - 1 :: 1 << place]) for place in reversed(range(bits))]
    return minus(rest, add(*off)), add(*step), [np.packbits(each) for each in found]


def column_gains(source: Source, cut: Bits, gains: Ring) -> Program[Ring]:
    """Shares of the summed gain of each column: ``cut`` has a row a column and a bit a node, set where its owner has
    cut the node at it (zeros at the other party)."""
    seen = yield from opened(source, gains)
    product, _ = yield from scaled(source, cut, len(gains), seen)
    return np.asarray(product.sum(axis=1, dtype=np.uint64))


#: The nodes of the last level of a tree, and its cuts there: shares of who is in a node, and of who goes left.
Ending = tuple[Bits, Bits]


def ended(bits: Bits, cuts: Bits, trees: int, more: int) -> list[Ending]:
    """Of trees on their last level: those after the first ``more`` ones."""
    pairs = zip(np.split(bits, trees), np.split(cuts, trees))
    return list(pairs)[more:]


@dataclass
class Rows:
    """Shares of one level of trees, tree after tree. ``values`` and ``counts``: summed nodes x rows."""

    bits: Bits  # nodes x bytes
    gradients: Opened  # trees x rows
    values: Ring
    counts: Counts


def root_bits(number: int, trees: int, rows: int) -> Bits:
    """Everybody is in the root: party 0's share says it."""
    return np.full((trees, (rows + 7) // 8), 255 if number == 0 else 0, dtype=np.uint8)


def started(source: Source, scales: Scales, scores: Words, targets: Ring, learnt: Bits | None) -> Program[Rows]:
    """The gradients of trees (trees x rows). ``targets`` and ``learnt`` (which rows they learn from, if not all) are
    the label holder's; zeros at the others."""
    source.word = scales.word
    if scales.logistic:
        half = scores.dtype.type(HALF_CELL if source.number == 0 else 0)
        words = yield from looked_up(source, (scores + half).ravel(), scales.sigmoid)
        words = words.reshape(scores.shape)
    else:
        words = scales.from_scores(scores, source.number)
    words = words - targets
    if learnt is not None:
        words = yield from selected(source, learnt, words)
    seen = yield from opened(source, words)
    ones = np.full(scores.shape, source.number == 0, dtype=np.uint32)
    return Rows(root_bits(source.number, *scores.shape), seen, seen.share(source.number), ones)


def descended(source: Source, bits: Bits, cuts: Bits) -> Program[tuple[Bits, Bits]]:
    """The left children of all nodes, and all children in their order. ``cuts``: shares of who goes left."""
    (left,) = yield from conjunctions(source, [bits, cuts], [(0, 1)])
    below = np.empty((2 * len(bits), bits.shape[1]), dtype=np.uint8)
    below[0::2], below[1::2] = left, bits ^ left
    return left, below


def divided(source: Source, rows: Rows, cuts: Bits, trees: int) -> Program[Rows]:
    """The next level of the first ``trees`` of the trees; those after them end here."""
    each = len(rows.bits) // len(rows.gradients.rest)
    left, below = yield from descended(source, rows.bits[: trees * each], cuts[: trees * each])
    seen = Opened(rows.gradients.rest[:trees], rows.gradients.mask[:trees])
    repeated = Opened(np.repeat(seen.rest, each, axis=0), np.repeat(seen.mask, each, axis=0))
    values, ones = yield from scaled(source, left, seen.rest.shape[1], repeated)
    return Rows(below, seen, values, ones.astype(np.uint32))


def scored(source: Source, scores: Words, ends: Sequence[Ending], leaves: Sequence[Ring], width: int) -> Program[Words]:
    """What trees add to scores (trees x rows; ``scores``: their kind), from their last nodes and cuts, and shares of
    their leaves.

    A leaf is a code: its sign bit s, in the highest place, and below it the bits of its size, all turned where s is
    set. So it is the number of these bits less s (2^(width - 1) - 1), a sum over shared bits.
    """
    bits, cuts = (np.concatenate(parts) for parts in zip(*ends))
    _, below = yield from descended(source, bits, cuts)
    place, kind = np.arange(width, dtype=np.uint64), scores.dtype.type
    tables = [np.packbits((codes[:, None] >> place) & np.uint64(1) > 0, axis=1) for codes in leaves]
    parts = np.split(below, np.cumsum([len(codes) for codes in leaves])[:-1])
    found = yield from mixed(source, parts, tables, width)
    ones = yield from as_numbers(source, np.concatenate(found), scores.shape[1], kind)
    weights = np.array([*(2**place for place in range(width - 1)), 1 - 2 ** (width - 1)]).astype(kind)
    return np.asarray((ones.reshape(len(found), width, -1) * weights[:, None]).sum(axis=1, dtype=kind))
