"""The label holder's own columns while trees grow on shares: sums of every node, and the best cut there."""

from __future__ import annotations

import numpy as np

from fedsift.models.boost.growing_tree import Boosting, Job, Node, chosen_from, own_histograms
from fedsift.models.boost.hidden.blur import ALLOWED, NodeNoise
from fedsift.models.boost.rounds import counted
from fedsift.models.boost.tree import Split, best_split


def own_lines(
    boosting: Boosting, job: Job, nodes: list[Node | None], parents: list[Node | None], noises: list[NodeNoise | None]
) -> list[tuple[float, float, list[int]]]:
    """Of every node of a tree the best gain of own columns, how large the noise is, and the sums of the node."""
    count_own(boosting, job, nodes, parents)
    lines = []
    for node, noise in zip(nodes, noises):
        if node is None:
            lines.append((-np.inf, 0.0, [0] * (job.numbers.shape[1] + 1)))
            continue
        size = 0.0 if noise is None else noise.gradient * job.units.gradient
        node.best = best_own(boosting, job, node, noise, size)
        lines.append((node.gain, size, [*node.told.tolist(), len(node.train)]))
    return lines


def count_own(boosting: Boosting, job: Job, nodes: list[Node | None], parents: list[Node | None]) -> None:
    """Sums of the label holder's own columns in each node; of two siblings the smaller one is counted."""
    for place in range(0, len(nodes), 2):
        pair = [node for node in nodes[place : place + 2] if node is not None]
        parent = parents[place // 2] if len(nodes) > 1 else None
        if len(pair) == 2 and parent is not None and boosting.me in parent.hists:
            small, big = sorted(pair, key=lambda node: len(node.train))
            own_histograms(boosting.me, job, parent, small, big)
        else:
            for node in pair:
                own_histograms(boosting.me, job, None, node, None)
        if parent is not None:
            parent.hists = {}


def best_own(
    boosting: Boosting, job: Job, node: Node, noise: NodeNoise | None, size: float
) -> tuple[str, Split] | None:
    """The best cut of own columns, from sums as noisy as those of others; with a budget its noise comes on top."""
    scale = 0.0 if boosting.noise is None else boosting.noise.level_scale(*counted(boosting.me, job.columns))
    hists, variance = chosen_from(boosting, job, node, {boosting.me: node.hists[boosting.me]}, scale)
    own = hists[boosting.me]
    added = None if noise is None else noise.of_own(len(own.sums))
    split = best_split(own, node.told, job.units, boosting.settings(job), variance + ALLOWED * size**2, added)
    return None if split is None else (boosting.me, split)
