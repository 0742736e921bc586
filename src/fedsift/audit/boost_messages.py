"""What the messages of boosted trees say to a party: rows of nodes, and to the label holder, sums that it can open.

Both sides are told (or have decided) which rows lie in which node in the same form: the smaller child of a split as
one bit a row of its parent. The label holder reads the sums with its own key, and the gradients that they are made of
from its own ciphertexts: nothing here looks at a party's memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.audit.naming import matches
from fedsift.audit.views import Message, View
from fedsift.crypto.additive.keys import Ciphertexts, SecretKey
from fedsift.models.boost.sums import GradientLayout, read_sums

FIRST = ("next_trees", "next_sampled_trees")


@dataclass
class Forest:
    """Trees of one round (they grow side by side): the rows of every node that was spoken of."""

    rows: int
    nodes: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)  # (tree, number) -> rows
    deepest: dict[int, np.ndarray] = field(default_factory=dict)  # tree -> the last node in which each row was seen

    def add(self, message: dict[str, np.ndarray]) -> list[tuple[int, int, int, int]]:
        """Take one message about nodes; (tree, parent or -1, smaller child, larger child) of each of its entries."""
        bits = np.unpackbits(message["bits"]).astype(bool)
        position, entries = 0, []
        for tree, parent, small, big in zip(*(message[key].tolist() for key in ("job", "parent", "small", "big"))):
            if parent < 0:
                self.nodes[tree, small] = np.arange(self.rows)
                self.deepest[tree] = np.full(self.rows, small)
            else:
                above = self.nodes[tree, parent]
                inside = bits[position : position + len(above)]
                position += len(above)
                for number, rows in ((small, above[inside]), (big, above[~inside])):
                    self.nodes[tree, number] = rows
                    self.deepest[tree][rows] = number
            entries.append((tree, parent, small, big))
        return entries


def leaves_seen(view: View) -> list[np.ndarray]:
    """Of each tree that a passive party helped to grow: the deepest node in which it saw each row of the table."""
    forests: list[Forest] = []
    n_rows = view.own_table.n_rows
    for message in view.messages:
        if message.is_request and _is(message, "receive_gradients"):
            forests.append(Forest(n_rows))
        elif message.is_request and _is(message, "level_sums") and message.view == "" and forests:
            forests[-1].add(message.content["nodes"])
    grown = [codes for forest in forests for codes in forest.deepest.values()]
    return grown or list(_splits_reached(view, n_rows))


def _splits_reached(view: View, n_rows: int) -> Iterator[np.ndarray]:
    """Predictions in the open form: at each step of the walk, which of the party's splits each row has reached."""
    for message in view.requests("route_rows"):
        place = 0
        for split, count in zip(message.content["splits"].tolist(), message.content["counts"].tolist()):
            rows = message.content["rows"][place : place + count]
            place += count
            yield np.where(np.isin(np.arange(n_rows), rows), split, -1)


@dataclass(frozen=True)
class NodeSums:
    """What the label holder reads of one node from one party: sums of its gradients over groups of bins."""

    party: str
    rows: np.ndarray  # training rows of the node
    gradients: np.ndarray  # of those rows, rows x values, whole numbers
    sums: np.ndarray  # groups of all columns x values
    groups: np.ndarray  # groups of each column
    group_of: list[np.ndarray]  # of each column: the group of each bin of the root
    ordered: np.ndarray


def sums_opened(view: View) -> Iterator[NodeSums]:
    """Every sum that was sent to the label holder, opened with its own key; roots and smaller children."""
    trees: _Trees | None = None
    for message in view.messages:
        if message.view:
            continue
        if not message.is_request and any(_is(message, name) for name in FIRST):
            trees = _Trees(view, message.content)
        elif trees is not None and not message.is_request and _is(message, "advance"):
            trees.wanted = trees.forest.add(message.content["nodes"])
        elif trees is not None and message.is_request and _is(message, "choose_splits"):
            for name, reply in message.content["replies"].items():
                yield from trees.read(name, reply)


class _Trees:
    """The label holder's trees of one round, from its own messages."""

    def __init__(self, view: View, sent: dict[str, Any]):
        n_rows = view.own_table.n_rows
        self.forest = Forest(n_rows)
        self.wanted = self.forest.add(sent["nodes"])
        self.key = _own_key(view, sent["rows"])
        train = [np.unpackbits(bits, count=n_rows).astype(bool) for bits in sent["sets"]]
        self.layout = GradientLayout(**sent["layout"]) if sent["layout"] else None
        opened = _own_gradients(sent["rows"], self.key, self.layout, [int(mask.sum()) for mask in train])
        self.gradients = []
        for mask, values in zip(train, opened):
            whole = np.zeros((n_rows, values.shape[1]), dtype=np.int64)
            whole[mask] = values
            self.gradients.append((mask, whole))
        self.set_of = sent["jobs"]["set"].tolist()
        self.group_of: dict[tuple[str, int, int], list[np.ndarray]] = {}

    def read(self, party: str, reply: dict[str, Any]) -> Iterator[NodeSums]:
        filled = np.unpackbits(reply["filled"], count=int(reply["groups"].sum())).astype(bool)
        opened = self._open(reply["sums"], int(filled.sum()), party)
        column = group = taken = join = 0
        for place, (tree, parent, small, big) in enumerate(self.wanted):
            columns = slice(column, column + int(reply["columns"][place]))
            groups = reply["groups"][columns].astype(np.int64)
            here = filled[group : group + int(groups.sum())]
            rows, gradients = self._training(tree, small)
            sums = np.zeros((len(here), gradients.shape[1]), dtype=np.int64)
            sums[here] = opened[taken : taken + int(here.sum())]
            starts = np.concatenate([[0], np.cumsum(groups)[:-1]]).astype(np.int64)
            for first, width, out in zip(starts, groups, reply["left_out"][columns]):
                sums[first + out] += gradients.sum(axis=0) - sums[first : first + width].sum(axis=0)
            known = self.group_of.get((party, tree, parent), [np.arange(width) for width in groups])
            if parent >= 0 and reply["joined"][place]:
                widths = [int(codes.max()) + 1 for codes in known]
                into = np.split(reply["into"][join : join + sum(widths)].astype(np.int64), np.cumsum(widths)[:-1])
                known, join = [new[codes] for new, codes in zip(into, known)], join + sum(widths)
            for child in (small, big):  # both have the same groups
                self.group_of[party, tree, child] = known
            yield NodeSums(party, rows, gradients, sums, groups, known, reply["ordered"][columns])
            column, group, taken = columns.stop, group + len(here), taken + int(here.sum())

    def _training(self, tree: int, node: int) -> tuple[np.ndarray, np.ndarray]:
        mask, gradients = self.gradients[self.set_of[tree]]
        rows = self.forest.nodes[tree, node]
        rows = rows[mask[rows]]
        return rows, gradients[rows]

    def _open(self, sums: Any, count: int, party: str) -> np.ndarray:
        if isinstance(sums, np.ndarray):
            return sums
        assert self.key is not None
        assert self.layout is not None
        return read_sums(self.key, sums, self.layout, count, party)


def _is(message: Message, name: str) -> bool:
    return matches(name, message.operation)


def _own_key(view: View, rows: Any) -> SecretKey | None:
    """The attacker's own key that fits its own ciphertexts."""
    for key in view.keys.values():
        if isinstance(key, SecretKey) and isinstance(rows, Ciphertexts) and key.public.fingerprint == rows.fingerprint:
            return key
    return None


def _own_gradients(
    rows: Any, key: SecretKey | None, layout: GradientLayout | None, sizes: list[int]
) -> list[np.ndarray]:
    """The whole-number gradients of each set, rows x values, from the label holder's own ciphertexts."""
    if isinstance(rows, np.ndarray):  # sent in the clear
        return np.split(rows, np.cumsum(sizes)[:-1])
    assert key is not None
    assert layout is not None
    shape = layout.row_layout
    numbers = key.decrypt(rows, bits=layout.per * shape.pitch)
    lane_mask, row_mask = (1 << shape.value_bits) - 1, (1 << shape.pitch) - 1
    sets, start = [], 0
    for size in sizes:
        layers = []
        for _ in range(layout.layers):
            packed = numbers[start : start + -(-size // layout.per)]
            start += len(packed)
            single = [(number >> place * shape.pitch) & row_mask for number in packed for place in range(layout.per)]
            layers.append([[(n >> lane * shape.value_bits) & lane_mask for lane in range(layout.lanes)]
                           for n in single[:size]])  # fmt: skip
        values = np.concatenate([np.array(layer, dtype=np.int64) for layer in layers], axis=1)[:, : 2 * layout.outputs]
        values[:, : layout.outputs] -= 1 << layout.bits
        sets.append(values)
    return sets
