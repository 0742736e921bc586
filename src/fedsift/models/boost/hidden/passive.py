"""What a party without labels does: hide its candidate cuts once, multiply hidden gradients, say which rows go left.

It sees gradients and nodes under masks that it does not have, and learns which of its own cuts were taken. Its cuts
leave it under a mask from the dealer, sealed for the label holder; its half of the sums carries a mask that the
coordinator does not know; which rows go left is told for the rows of the node alone, by an AND on shares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.core.arguments import PartyName
from fedsift.core.binning import ColumnBins
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused
from fedsift.models.boost.bins import fitted_bins, held_bits
from fedsift.models.boost.hidden.blur import Hidden, RowOrder, Salts
from fedsift.models.boost.hidden.cuts import (
    Cut,
    Layout,
    Numbers,
    Shuffle,
    TreeCuts,
    candidate_bits,
    candidate_count,
    first_of,
    read_cut,
)
from fedsift.models.boost.hidden.shares import (
    Bins,
    CutFields,
    Level,
    Piece,
    Tree,
    check_columns,
    draw_shuffles,
    draw_splits,
    level_products,
    masked_half,
    next_histogram,
    read_options,
    read_trees,
)
from fedsift.models.boost.stored import Sides, SplitRecords, digest_of
from fedsift.mpc.dealer import Bits, Dealt, answer_and
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring

_KEPT = 1 << 26  # elements of masks that are held; above, a mask is drawn again for every level


def dealt_pieces(dealt: Dealt, layouts: dict[int, Layout], rows: int) -> dict[int, list[Piece]]:
    """The masks of a party's cuts, at the party and at the dealer; what would take too much memory is drawn again."""
    pieces: dict[int, list[Piece]] = {}
    held = 0
    for bins, layout in layouts.items():
        pieces[bins] = []
        for number, (first, last) in enumerate(layout.pieces(rows)):
            drawn = dealt.keep(mask_purpose(bins), number, (rows, last - first))
            held += drawn.size
            if held <= _KEPT:
                pieces[bins].append(Piece(first, last, drawn))
            else:
                pieces[bins].append(Piece(first, last, drawn=(dealt, mask_purpose(bins), number)))
    return pieces


def mask_purpose(bins: int) -> str:
    return f"boost: cuts of {bins} bins"


@dataclass
class OwnCuts:
    """A party's columns cut into so many bins."""

    bins: list[ColumnBins]
    codes: np.ndarray
    layout: Layout

    @classmethod
    def of(cls, party: Party, bins: int) -> OwnCuts:
        fitted, codes = fitted_bins(party, bins)
        counts = np.array([candidate_count(b) for b in fitted], dtype=np.int64)
        return cls(fitted, codes, Layout(counts, np.array([not b.ordered for b in fitted], dtype=bool)))

    def bits(self, first: int, last: int) -> np.ndarray:
        """Rows x candidates, from ``first`` to ``last`` of all columns together."""
        starts = self.layout.starts
        inside = np.flatnonzero((starts[:-1] < last) & (starts[1:] > first) & (self.layout.counts > 0)).tolist()
        found = np.hstack([candidate_bits(self.bins[c], self.codes[:, c]) for c in inside])
        return found[:, first - starts[inside[0]] :][:, : last - first]

    def cut(self, candidates: Numbers) -> Cut:
        """What candidates of one column mean."""
        column = int(np.searchsorted(self.layout.starts, candidates[0], side="right")) - 1
        places = candidates - self.layout.starts[column]
        if (places < 0).any() or (places >= self.layout.counts[column]).any():
            raise ValueError("candidates of several columns")
        return read_cut(self.bins[column], column, places)


@dataclass
class HiddenCuts:
    """State of a run: own cuts, the trees of the round, shares of their sums."""

    peer: PartyName  # the label holder
    order: RowOrder
    cuts: dict[int, OwnCuts] = field(default_factory=dict)
    masks: dict[int, list[Piece]] = field(default_factory=dict)
    step: int = 0  # of all levels of the run
    trees: list[Tree] = field(default_factory=list)
    models: list[int] = field(default_factory=list)  # that take part in the round
    tree_cuts: list[TreeCuts] = field(default_factory=list)
    level: int = 0
    histograms: list[Ring | None] = field(default_factory=list)
    shuffles: list[Shuffle] = field(default_factory=list)
    nodes: Bits | None = None
    columns: list[int] = field(default_factory=list)  # of the cuts taken, in order

    def now(self) -> tuple[Level, list[int]]:
        """The level, and which of the trees take part in it."""
        return Level.of(self.trees, self.level), [n for n, tree in enumerate(self.trees) if tree.depth > self.level]


@operation(
    "boost.describe_cuts",
    when="protection=coordinator|all",
    times="1 a session",
    discloses="aggregate",
    about="how many candidate cuts each column has, and which columns have categories",
    reply=[{"counts": Array("i"), "categories": Array("b")}],
)
def describe_cuts(party: Party, *, bins: Bins, peer: PartyName) -> list[dict[str, Any]]:
    """Cut own columns into bins, for the run with this label holder."""
    state = party.keep(HiddenCuts(peer, RowOrder.of(party)))
    if SplitRecords not in party.state:
        party.keep(SplitRecords())
    state.cuts = {count: OwnCuts.of(party, count) for count in bins}
    layouts = {count: own.layout for count, own in state.cuts.items()}
    state.masks = dealt_pieces(party.held(Dealt), layouts, party.n_rows)
    return [{"counts": layout.counts, "categories": layout.categories} for layout in layouts.values()]


@operation(
    "boost.hide_cuts",
    when="protection=coordinator|all",
    times="100000 a session",
    discloses="masked",
    about="its candidate cuts, a bit a row, under a mask and sealed for the label holder",
    opened="nobody",
    reply=SealedBox,
)
def hide_cuts(party: Party, *, bins: int, piece: int) -> SealedBox:
    """Once for the whole training: the cuts do not change, nor does their mask."""
    state = party.held(HiddenCuts)
    if bins not in state.masks or not 0 <= piece < len(state.masks[bins]):
        raise OperationRefused(party.name, "hide_cuts", "there is no such piece of its cuts")
    part = state.masks[bins][piece]
    bits = state.cuts[bins].bits(part.first, part.last)
    hidden = Hidden(bits.astype(np.uint64) - part.matrix(), Salts.of(party, state.order, bits))
    return party.held(Pairs).seal(hidden.as_dict(), to=state.peer, about=f"boost: cuts of {bins} bins", number=piece)


@operation(
    "boost.expect_trees",
    when="protection=coordinator",
    times="20000 a session",
    discloses="control",
    about="acknowledgement",
)
def expect_trees(party: Party, *, trees: list[list[int]], live: list[int], columns: list[np.ndarray]) -> None:
    """The trees of a round, and which of its columns each may use."""
    state, read = party.held(HiddenCuts), read_trees(trees, party)
    for tree in read:
        if not 0 <= tree.model < min(len(live), len(columns)):
            raise OperationRefused(party.name, "expect_trees", "a tree of a model that takes no part")
        if tree.bins not in state.cuts:
            raise OperationRefused(party.name, "expect_trees", "a number of bins that it has no cuts of")
        check_columns(columns[tree.model], len(party.columns), party)
    state.trees, state.models = read, live
    state.tree_cuts = [state.cuts[t.bins].layout.tree(columns[t.model].astype(np.int64)) for t in state.trees]
    state.histograms, state.level = [None] * len(state.trees), 0


@operation(
    "boost.half_sums",
    when="protection=coordinator",
    times="240000 a session",
    discloses="masked",
    receives="masked",
    about="its half of the gradient sums of candidate cuts, shuffled and unnamed, under a mask",
    opened="aggregate: gradient sums (with the noise of sum_noise) and numbers of rows of its candidate cuts, unnamed",
    concerns="own columns and labels",
    learns="nothing: gradients and nodes under masks that it does not have",
    reply={"values": Array("i"), "counts": Array("i")},
)
def half_sums(party: Party, *, box: SealedBox) -> dict[str, np.ndarray]:
    """Multiply the hidden gradients of one level."""
    state, pairs = party.held(HiddenCuts), party.held(Pairs)
    level, places = state.now()
    cuts = [state.tree_cuts[place] for place in places]
    sums = own_shares(party, state, box)
    state.shuffles = draw_shuffles(pairs, state.peer, state.step, level, cuts)
    return masked_half(pairs, state.peer, state.step, sums, cuts, state.shuffles).as_dict()


def own_shares(party: Party, state: HiddenCuts, box: SealedBox) -> list[Ring]:
    """The party's shares of the sums of a level, tree by tree, from the hidden gradients."""
    hidden = party.held(Pairs).open(box, sender=state.peer, about="boost: gradients", number=state.step)
    level, places = state.now()
    cuts = [state.tree_cuts[place] for place in places]
    products = level_products(level, state.masks, cuts, hidden["values"], hidden["counts"])
    splits = draw_splits(party.held(Dealt), state.step, level, cuts)
    for tree, place, found, split in zip(level.trees, places, products, splits):
        state.histograms[place] = next_histogram(level, tree, state.histograms[place], found + split)
    state.nodes = hidden["nodes"]
    return [part for part in (state.histograms[place] for place in places) if part is not None]


@operation(
    "boost.take_cuts",
    when="protection=coordinator",
    times="240000 a session",
    discloses="masked",
    about="which rows go left, under a mask; the label holder reads them for the rows of the node alone",
    opened="pseudonymous: which rows of a node go left where its column is cut",
    opened_by="active",
    learns="which of its cuts were taken",
    reply=SealedBox,
)
def take_cuts(party: Party, *, cuts: CutFields) -> SealedBox:
    """Every level, also where none of its cuts was taken."""
    state, dealt, records = party.held_here(HiddenCuts), party.held(Dealt), party.held(SplitRecords)
    level, places = state.now()
    if state.nodes is None:
        raise OperationRefused(party.name, "take_cuts", "there are no sums that cuts could be chosen from")
    rows, nodes = party.n_rows, level.nodes * len(level.trees)
    a, r = dealt.bits("boost: left", state.step, nodes, rows), dealt.bits("boost: answer", state.step, nodes, rows)
    held = max(held_bits(own.layout.counts) for own in state.cuts.values())
    chosen, taken, numbers, first = [], [], [], len(records.records)
    for node, options in read_options(cuts, party):
        tree, inside = divmod(node, level.nodes)
        if not 0 <= node < nodes or not options:
            raise OperationRefused(party.name, "take_cuts", "a cut of a node that is not there")
        own = state.cuts[level.trees[tree].bins]
        meant = [_meant(party, own, state.tree_cuts[places[tree]], state.shuffles[tree], inside, o) for o in options]
        cut = first_of(meant)
        left = cut.left[own.codes[:, cut.column]]
        chosen.append(node)
        taken.append(np.packbits(left))
        sides = Sides(f"{first} {tree}", held, digest_of(left))
        numbers.append(records.add(own.bins[cut.column], cut.left, cut.missing_left, sides))
        state.columns.append(cut.column)
    # A row is in one node of a tree's level, so it is told one side a tree at most.
    party.site.tell_sides(party, "boost.take_cuts", len({node // level.nodes for node in chosen}), held)
    bits = np.stack(taken) if taken else np.zeros((0, (rows + 7) // 8), np.uint8)
    d, s = answer_and(bits, state.nodes[chosen], a[chosen], r[chosen])
    box = party.held(Pairs).seal(
        {"hidden": d, "answers": s, "records": np.array(numbers, dtype=np.int64)},
        to=state.peer, about="boost: left", number=state.step,
    )  # fmt: skip
    state.step, state.level, state.nodes = state.step + 1, state.level + 1, None
    return box


def _meant(party: Party, own: OwnCuts, tree: TreeCuts, shuffle: Shuffle, node: int, places: Numbers) -> Cut:
    """Shuffled places back to a cut of a column."""
    if (places >= shuffle.order.shape[1]).any():
        raise OperationRefused(party.name, "take_cuts", "a cut that was not among the candidates")
    old = shuffle.order[node, places]
    if old[0] < tree.cuts:
        return own.cut(tree.candidates[old[:1]])
    block, inside = np.divmod(old - tree.cuts, tree.width)
    if (block != block[0]).any():
        raise OperationRefused(party.name, "take_cuts", "a cut of several columns")
    inside = inside[inside < tree.blocks[block[0]]]  # the rest only fills the block up
    if not len(inside):
        raise OperationRefused(party.name, "take_cuts", "a cut without a category")
    start = tree.cuts + int(tree.blocks[: block[0]].sum())
    return own.cut(tree.candidates[start + inside])


@operation(
    "boost.cut_columns",
    when="protection=coordinator",
    times="1 a session",
    discloses="aggregate",
    about="of each cut that was taken, the number of the column",
    reply=Array("i"),
)
def cut_columns(party: Party) -> np.ndarray:
    """For column importances, at the end."""
    return np.array(party.held(HiddenCuts).columns, dtype=np.int64)


OPERATIONS = (describe_cuts, hide_cuts, expect_trees, half_sums, take_cuts, cut_columns)
