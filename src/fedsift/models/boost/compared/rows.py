"""What is computed on shares of rows while a tree grows: gradients, who goes left, sums of nodes laid out, new scores.

Party 0 is the label holder, party 1 all other parties together: they hold the same shares (``state.py``). Who is in a
node is a shared bit a row and node. A level's left children are multiplied with the gradients, which were opened under
a mask once a tree; right children are what is left. A node that is not cut sends its rows right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsift.models.boost.compared.scales import HALF_CELL, Scales
from fedsift.models.boost.hidden.shares import Counts
from fedsift.mpc.comparing import Program, Source, conjunctions
from fedsift.mpc.dealer import Bits
from fedsift.mpc.ring import Ring
from fedsift.mpc.row_programs import Opened, Words, as_numbers, looked_up, mixed, opened, scaled, selected


@dataclass
class Rows:
    """Shares of one level of a tree. ``values`` and ``counts``: summed nodes x rows."""

    bits: Bits  # nodes x bytes
    gradients: Opened
    values: Ring
    counts: Counts


def root_bits(number: int, rows: int) -> Bits:
    """Everybody is in the root: party 0's share says it."""
    return np.full((1, (rows + 7) // 8), 255 if number == 0 else 0, dtype=np.uint8)


def started(source: Source, scales: Scales, scores: Words, targets: Ring, learnt: Bits | None) -> Program[Rows]:
    """The gradients of a tree. ``targets`` and ``learnt`` (which rows it learns from, if not all) are the label
    holder's; zeros at the others."""
    source.word = scales.word
    if scales.logistic:
        half = scores.dtype.type(HALF_CELL if source.number == 0 else 0)
        words = yield from looked_up(source, scores + half, scales.sigmoid)
    else:
        words = scales.from_scores(scores, source.number)
    words = words - targets
    if learnt is not None:
        words = yield from selected(source, learnt, words)
    seen = yield from opened(source, words)
    count = len(scores)
    ones = np.full((1, count), source.number == 0, dtype=np.uint32)
    return Rows(root_bits(source.number, count), seen, seen.share(source.number)[None], ones)


def descended(source: Source, bits: Bits, cuts: Bits) -> Program[tuple[Bits, Bits]]:
    """The left children of all nodes, and all children in their order. ``cuts``: shares of who goes left."""
    (left,) = yield from conjunctions(source, [bits, cuts], [(0, 1)])
    below = np.empty((2 * len(bits), bits.shape[1]), dtype=np.uint8)
    below[0::2], below[1::2] = left, bits ^ left
    return left, below


def divided(source: Source, rows: Rows, cuts: Bits) -> Program[Rows]:
    """The next level."""
    left, below = yield from descended(source, rows.bits, cuts)
    values, ones = yield from scaled(source, left, len(rows.gradients.rest), rows.gradients)
    return Rows(below, rows.gradients, values, ones.astype(np.uint32))


def scored(source: Source, scores: Words, bits: Bits, cuts: Bits, leaves: Ring, width: int) -> Program[Words]:
    """New scores from the last cuts of trees and the shares of their leaves (trees x leaves).

    A leaf is a code: its sign bit s, in the highest place, and below it the bits of its size, all turned where s is
    set. So it is the number of these bits less s (2^(width - 1) - 1), a sum over shared bits.
    """
    _, below = yield from descended(source, bits, cuts)
    trees, kind = len(leaves), scores.dtype.type
    table = np.packbits((leaves.reshape(-1, 1) >> np.arange(width, dtype=np.uint64)) & np.uint64(1) > 0, axis=1)
    found = []
    for part, codes in zip(np.split(below, trees), np.split(table, trees)):
        found.append((yield from mixed(source, part, codes, width)))
    ones = yield from as_numbers(source, np.concatenate(found), len(scores), kind)
    weights = np.array([*(2**place for place in range(width - 1)), 1 - 2 ** (width - 1)]).astype(kind)
    return scores + (ones.reshape(trees, width, -1) * weights[:, None]).sum(axis=(0, 1), dtype=kind)
