"""The best cut of every node, at the coordinator: from the sums of unnamed, shuffled candidates.

The gain formula is xgboost's (``tree.cut_gains``); categories of a block are put in the order of their gradient ratio
(Fisher 1958). Of equally good candidates all are told to their owner, which takes the one that plain boosting would.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedsift.models.boost.hidden.cuts import Flags, Numbers, TreeCuts
from fedsift.models.boost.tree import TreeSettings, Units, cut_gains

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
    variance: float = 0.0,
) -> NodeGains:  # fmt: skip
    """``sums``: nodes x sent x (gradients, hessians, rows); ``totals``: nodes x the same."""
    nodes, _, values = sums.shape
    alive = np.flatnonzero(live)
    cuts = np.full((nodes, tree.cuts), -np.inf)
    cuts[alive] = _gains(sums[alive, : tree.cuts], totals[alive], units, settings, variance)
    blocks, width = len(tree.blocks), tree.width
    prefixes, order = np.full((nodes, blocks, width), -np.inf), np.zeros((nodes, blocks, width), dtype=np.int64)
    if blocks and len(alive):
        table = sums[alive, tree.cuts :].reshape(len(alive), blocks, width, values)
        order[alive] = _by_ratio(table, units, settings)
        running = np.cumsum(np.take_along_axis(table, order[alive][..., None], axis=2), axis=2)
        found = _gains(running.reshape(len(alive), blocks * width, values), totals[alive], units, settings, variance)
        prefixes[alive] = found.reshape(len(alive), blocks, width)
    best = np.maximum(cuts.max(axis=1, initial=-np.inf), prefixes.reshape(nodes, -1).max(axis=1, initial=-np.inf))
    return NodeGains(best, cuts, prefixes, order)


def _gains(left: Numbers, totals: Numbers, units: Units, settings: TreeSettings, variance: float) -> Gains:
    nodes, places, values = left.shape
    whole = np.repeat(totals, places, axis=0)
    flat = left.reshape(-1, values)
    usable = np.ones(len(flat), dtype=bool)
    return cut_gains(flat, whole, values - 1, units, settings, usable, variance).reshape(nodes, places)


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
