"""The conversation in which trees grow on shares, for one model or many in lock-step. Runs at the coordinator.

The sums of a level are a product: the passive party's candidate cuts (a bit a row, hidden once under U) times the label
holder's gradients laid out by node (hidden afresh under V each level). The coordinator deals U and V, so it may see
neither factor under its mask nor a bare share: those travel sealed, and the halves that it adds up carry a mask that
only the two parties have (``mpc/dealer.py``). It reads the sums of all candidate cuts, shuffled and unnamed, chooses,
and tells the owner which candidate won. The label holder learns which rows of that node go left; the passive party
nothing about nodes. Cheng et al. 2021 (SecureBoost) for the roles, Beaver 1991 for the products.

The best cut of every node follows from the sums of unnamed, shuffled candidates. The gain formula is xgboost's
(``tree.cut_gains``); categories of a block are put in the order of their gradient ratio (Fisher 1958). Of equally good
candidates all are told to their owner, which takes the one that plain boosting would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.errors import ParameterError, ReplyError
from fedsift.models.boost.hidden import label_holder, passive
from fedsift.models.boost.hidden.blur import ALLOWED
from fedsift.models.boost.hidden.cuts import Flags, Layout, Numbers, TreeCuts
from fedsift.models.boost.hidden.label_holder import (
    OwnSums,
    divide_nodes,
    hide_gradients,
    keep_cuts,
    meet_cuts,
    own_half_sums,
)
from fedsift.models.boost.hidden.passive import (
    cut_columns,
    dealt_pieces,
    describe_cuts,
    expect_trees,
    half_sums,
    hide_cuts,
    take_cuts,
)
from fedsift.models.boost.hidden.shares import (
    MAX_DEPTH,
    Corrections,
    Half,
    Level,
    Piece,
    Tree,
    boxes_for,
    draw_counts,
    draw_splits,
    half_sizes,
    level_products,
    open_halves,
)
from fedsift.models.boost.privacy import LabelNoise
from fedsift.models.boost.rounds import counted
from fedsift.models.boost.tree import TreeSettings, Units, cut_gains, worth_it
from fedsift.mpc import dealer as dealing
from fedsift.mpc import pairs
from fedsift.mpc.dealer import Bits, Dealer, Dealt, and_correction
from fedsift.mpc.pairs import meet_all

Gains = NDArray[np.float64]


@dataclass
class NodeGains:
    """One party's best gain in each node of a tree; -inf where nothing can be cut."""

    best: Gains
    cuts: Gains  # nodes x cuts
    blocks: Gains  # nodes x blocks x prefixes
    order: Numbers  # nodes x blocks x width: categories by their ratio

    def options(self, node: int) -> list[Numbers]:
        """All best candidates of a node: each the places that go left together."""
        gain = self.best[node]
        found = [np.array([place]) for place in np.flatnonzero(self.cuts[node] == gain)]
        offset, width = self.cuts.shape[1], self.order.shape[2]
        for block, last in zip(*np.nonzero(self.blocks[node] == gain)):
            found.append(offset + block * width + self.order[node, block, : last + 1])
        return found


def node_gains(
    sums: Numbers, tree: TreeCuts, totals: Numbers, live: Flags, units: Units, settings: TreeSettings,
    variance: Gains,
) -> NodeGains:  # fmt: skip
    """``sums``: nodes x sent x (gradients, hessians, rows); ``totals``: nodes x the same; ``variance`` of each node."""
    nodes, _, values = sums.shape
    alive = np.flatnonzero(live)
    cuts = np.full((nodes, tree.cuts), -np.inf)
    cuts[alive] = _gains(sums[alive, : tree.cuts], totals[alive], units, settings, variance[alive])
    blocks, width = len(tree.blocks), tree.width
    prefixes, order = np.full((nodes, blocks, width), -np.inf), np.zeros((nodes, blocks, width), dtype=np.int64)
    if blocks and len(alive):
        table = sums[alive, tree.cuts :].reshape(len(alive), blocks, width, values)
        order[alive] = _by_ratio(table, units, settings)
        running = np.cumsum(np.take_along_axis(table, order[alive][..., None], axis=2), axis=2)
        flat = running.reshape(len(alive), blocks * width, values)
        found = _gains(flat, totals[alive], units, settings, variance[alive])
        prefixes[alive] = found.reshape(len(alive), blocks, width)
    best = np.maximum(cuts.max(axis=1, initial=-np.inf), prefixes.reshape(nodes, -1).max(axis=1, initial=-np.inf))
    return NodeGains(best, cuts, prefixes, order)


def _gains(left: Numbers, totals: Numbers, units: Units, settings: TreeSettings, variance: Gains) -> Gains:
    nodes, places, values = left.shape
    whole = np.repeat(totals, places, axis=0)
    flat = left.reshape(-1, values)
    usable = np.ones(len(flat), dtype=bool)
    allowed = np.repeat(variance, places)[:, None]
    return cut_gains(flat, whole, values - 1, units, settings, usable, allowed).reshape(nodes, places)


def _by_ratio(table: Numbers, units: Units, settings: TreeSettings) -> Numbers:
    """Categories in the order of their gradient ratio; with several outputs that of the output that spreads most."""
    outputs = (table.shape[3] - 1) // 2
    weight = table[..., outputs : 2 * outputs] * units.hessian + settings.reg_lambda + 1e-12
    ratio = table[..., :outputs] * units.gradient / weight
    widest = np.abs(ratio).sum(axis=2, keepdims=True).argmax(axis=3)[..., None]
    return np.argsort(np.take_along_axis(ratio, widest, axis=3)[..., 0], axis=2, kind="stable")


@dataclass
class OwnerCuts:
    """The cuts of one level that fall to one party, as it is told them."""

    nodes: list[int] = field(default_factory=list)  # among all nodes of the level
    options: list[list[Numbers]] = field(default_factory=list)

    def message(self) -> dict[str, np.ndarray]:
        sizes = [len(places) for options in self.options for places in options]
        flat = [places for options in self.options for places in options]
        return {
            "nodes": np.array(self.nodes, dtype=np.int32),
            "options": np.array([len(options) for options in self.options], dtype=np.int32),
            "sizes": np.array(sizes, dtype=np.int32),
            "places": np.concatenate(flat).astype(np.int32) if flat else np.zeros(0, np.int32),
        }


OPERATIONS = (*pairs.OPERATIONS, *dealing.OPERATIONS, *passive.OPERATIONS, *label_holder.OPERATIONS)


check_neutral = partial(
    dealing.check_neutral,
    instead="protection='open' works there: it shows the label holder sums of the others' columns, and the others "
    "which rows lie together (with epsilon, a classifier's, these rows say nothing of labels); an organisation without "
    "rows that runs it spares you both",
)
#: Of columns of parties without labels: party, model, column, splits, gain.
Uses = list[tuple[str, int, int, int, float]]


def check_settings(settings: TreeSettings) -> None:
    if settings.leaf_wise or not 1 <= settings.max_depth <= MAX_DEPTH:
        policy = "lossguide" if settings.leaf_wise else "depthwise"
        raise ParameterError(
            f"boosting on shares pads every level, so trees grow level by level, max_depth from 1 to {MAX_DEPTH} "
            f"(got grow_policy={policy!r}, max_depth={settings.max_depth}). protection='open' can do otherwise, and "
            "shows the label holder sums of the others' columns, and the others which rows lie together"
        )


@dataclass
class _Peer:
    """What the coordinator keeps for one passive party: layouts, the dealer's masks, the columns of the trees."""

    name: str
    dealt: Dealt
    layouts: dict[int, Layout]
    masks: dict[int, list[Piece]]
    tree_cuts: list[TreeCuts] = field(default_factory=list)
    taken: list[tuple[int, float]] = field(default_factory=list)  # model and gain of each cut, in order


@dataclass
class HiddenTrees:
    """The coordinator's side of one run: ``begin`` once, ``grow`` for every round, ``uses`` at the end."""

    fed: Federation
    dealer: Dealer
    peers: dict[str, _Peer]
    step: int = 0
    variance: float = 0.0  # of the noise in a sum of gradients

    @classmethod
    def begin(cls, fed: Federation, bins: list[int]) -> HiddenTrees:
        """Keys between the parties, the dealer's seeds, and the passive parties' cuts, hidden once."""
        meet_all(fed)
        dealer = Dealer.begin(fed)
        described = fed.ask(describe_cuts, to=fed.passive, bins=bins, peer=fed.active)
        peers = {}
        for name, fields in described.items():
            if len(fields) != len(bins):
                raise ReplyError(name, "describe_cuts", "it described another number of tables than were asked for")
            layouts = {
                count: Layout.read(part["counts"], part["categories"], fed.n_columns[name], name)
                for count, part in zip(bins, fields)
            }
            masks = dealt_pieces(dealer.of[name], layouts, fed.n_rows)
            peers[name] = _Peer(name, dealer.of[name], layouts, masks)
        fed.ask(meet_cuts, to=fed.active, bins=bins, layouts=described)
        for name, peer in peers.items():
            for count in bins:
                for piece in range(len(peer.masks[count])):
                    box = fed.ask(hide_cuts, to=name, bins=count, piece=piece)
                    fed.ask(keep_cuts, to=fed.active, sender=name, bins=count, piece=piece, box=box)
        return cls(fed, dealer, peers)

    def grow(
        self, live: list[int], trees: list[Tree], settings: list[TreeSettings], columns: dict[str, list[Numbers]],
        noise: LabelNoise | None = None,
    ) -> None:  # fmt: skip
        """One more tree of each live model (one an output); ``settings`` and columns of each.

        Where the label holder adds ``noise``, gains are compared with allowance for it.
        """
        self.variance = 0.0 if noise is None else _variance(noise, self.fed, trees[0].bins, columns)
        fed, shapes = self.fed, [tree.as_list() for tree in trees]
        for name, peer in self.peers.items():
            peer.tree_cuts = [peer.layouts[tree.bins].tree(columns[name][tree.model]) for tree in trees]
        fed.ask(
            expect_trees, to=fed.passive, trees=shapes, live=live,
            each={name: {"columns": columns[name]} for name in fed.passive},
        )  # fmt: skip
        hidden = fed.ask(hide_gradients, to=fed.active, live=live, columns=columns, trees=shapes)
        number = 0
        while hidden["more"]:
            level = Level.of(trees, number)
            check_depth(level, fed.active)
            replies = fed.ask(half_sums, to=fed.passive, each=boxes_for(hidden["boxes"], fed.passive, fed.active))
            halves = {name: Half.read(reply, name) for name, reply in replies.items()}
            told = fed.ask(own_half_sums, to=fed.active, corrections=self.corrections(level, trees))
            own = OwnSums.read(told, fed.active)
            owners, cuts = self._choose(level, trees, settings, live, halves, own)
            answers = fed.ask(
                take_cuts, to=fed.passive, each={name: {"cuts": cuts[name].message()} for name in fed.passive}
            )
            openings = self.openings(level, {name: part.nodes for name, part in cuts.items()})
            hidden = fed.ask(divide_nodes, to=fed.active, owners=owners, answers=answers, openings=openings)
            self.step, number = self.step + 1, number + 1

    def uses(self, models: int) -> Uses:
        """Of every cut of a passive party, from what it and the coordinator know."""
        found: Uses = []
        for name, columns in self.fed.ask(cut_columns, to=self.fed.passive).items():
            taken = self.peers[name].taken
            inside = not len(columns) or 0 <= columns.min() <= columns.max() < self.fed.n_columns[name]
            if len(columns) != len(taken) or not inside:
                raise ReplyError(name, "cut_columns", "it named another number of cuts than were taken, or no column")
            found += [(name, model, int(column), 1, gain) for column, (model, gain) in zip(columns, taken)]
        return found

    # -- the dealer's part -------------------------------------------------------------------------------------------

    def corrections(self, level: Level, trees: list[Tree]) -> dict[str, Corrections]:
        """U'V - C for every party: the gradients' masks are the label holder's, the rest the party's."""
        dealt, rows = self.dealer.of[self.fed.active], self.fed.n_rows
        wide = sum(level.summed * tree.outputs for tree in level.trees)
        values = dealt.draw("boost: gradients", self.step, (rows, wide))
        counts = draw_counts(dealt, "boost: counts", self.step, rows, level.summed * len(level.trees))
        result: dict[str, Corrections] = {}
        for name, peer in self.peers.items():
            cuts = of_level(level, trees, peer.tree_cuts)
            products = level_products(level, peer.masks, cuts, values, counts)
            splits = draw_splits(peer.dealt, self.step, level, cuts)
            parts = [found - split for found, split in zip(products, splits)]
            ends = [level.summed * tree.outputs for tree in level.trees]
            result[name] = {
                "values": np.concatenate([part[:, :end].ravel() for part, end in zip(parts, ends)]),
                "counts": np.concatenate([part[:, end:].ravel() for part, end in zip(parts, ends)]).astype(np.uint32),
            }
        return result

    def openings(self, level: Level, cut: Mapping[str, list[int] | slice]) -> dict[str, Bits]:
        """w of the ANDs, for the nodes that were cut at each party."""
        rows, nodes = self.fed.n_rows, level.nodes * len(level.trees)
        b = self.dealer.of[self.fed.active].bits("boost: nodes", self.step, nodes, rows)
        found = {}
        for name, peer in self.peers.items():
            a = peer.dealt.bits("boost: left", self.step, nodes, rows)
            r = peer.dealt.bits("boost: answer", self.step, nodes, rows)
            chosen = cut[name]
            found[name] = and_correction(a[chosen], b[chosen], r[chosen])
        return found

    # -- the best cuts -----------------------------------------------------------------------------------------------

    def _choose(
        self, level: Level, trees: list[Tree], settings: list[TreeSettings], live: list[int],
        halves: dict[str, Half], own: OwnSums,
    ) -> tuple[np.ndarray, dict[str, OwnerCuts]]:  # fmt: skip
        """Who cuts each node (-1: a leaf), and what each passive party is told. Ties fall to the first party."""
        order, active = self.fed.parties, self.fed.active
        cuts = {name: OwnerCuts() for name in self.peers}
        nodes = level.nodes * len(level.trees)
        wide = 1 + 2 * max(tree.outputs for tree in level.trees)
        shapes = own.totals.shape, own.gains.shape, own.sizes.shape, own.units.shape
        if shapes != ((nodes, wide), (nodes,), (nodes,), (len(level.trees), 2)) or set(own.halves) != set(self.peers):
            raise ReplyError(active, "own_half_sums", "it answered for another number of nodes than the level has")
        opened = {name: self._opened(level, trees, peer, halves, own) for name, peer in self.peers.items()}
        candidates = {name: of_level(level, trees, peer.tree_cuts) for name, peer in self.peers.items()}
        owners = np.full(nodes, -1, dtype=np.int16)
        for number, (tree, part) in enumerate(zip(level.trees, level.nodes_of())):
            units = Units(*own.units[number].tolist())
            totals = own.totals[part, : 2 * tree.outputs + 1]
            live_nodes = totals[:, -1] > 0
            found = {
                name: node_gains(
                    opened[name][number], candidates[name][number], totals, live_nodes, units, settings[tree.model],
                    self.variance + ALLOWED * own.sizes[part] ** 2,
                )
                for name in self.peers
            }  # fmt: skip
            for node in np.flatnonzero(live_nodes).tolist():
                index = part.start + node
                best, winner = -np.inf, -1
                for place, name in enumerate(order):
                    gain = float(own.gains[index]) if name == active else float(found[name].best[node])
                    if gain > best and worth_it(gain, settings[tree.model]):
                        best, winner = gain, place
                owners[index] = winner
                if winner >= 0 and order[winner] != active:
                    name = order[winner]
                    cuts[name].nodes.append(index)
                    cuts[name].options.append(found[name].options(node))
                    self.peers[name].taken.append((live[tree.model], best))
        return owners, cuts

    def _opened(
        self, level: Level, trees: list[Tree], peer: _Peer, halves: dict[str, Half], own: OwnSums
    ) -> list[Numbers]:
        """The sums of every tree: nodes x candidates x (gradients, hessians, rows)."""
        cuts = of_level(level, trees, peer.tree_cuts)
        pair = halves[peer.name], own.halves[peer.name]
        for half, name in zip(pair, (peer.name, self.fed.active)):
            if (len(half.values), len(half.counts)) != half_sizes(level, cuts):
                raise ReplyError(name, "half_sums", f"party {name!r} sent another number of sums than the level has")
        return open_halves(level, cuts, *pair)


def _variance(noise: LabelNoise, fed: Federation, bins: int, columns: dict[str, list[Numbers]]) -> float:
    """Of the running sum of half of the bins of a column."""
    return (
        noise.level_scale(*counted(fed.active, {name: chosen[0] for name, chosen in columns.items()})) ** 2 * bins / 2
    )


def check_depth(level: Level, holder: str) -> None:
    """The label holder says whether there is more to cut; there is an end to it."""
    if not level.trees:
        raise ReplyError(holder, "hide_gradients", "it goes on below the deepest level of the trees")


def of_level(level: Level, trees: list[Tree], cuts: list[TreeCuts]) -> list[TreeCuts]:
    return [part for part, tree in zip(cuts, trees) if tree.depth > level.number]
