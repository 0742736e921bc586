"""SecureBoost's messages as they were: rows of nodes to every party, exact sums over fixed bins to the label holder.

The trees are grown from the label holder's own columns, which is enough to say what the old messages said. Gradients
and sums travel as they are in the place of ciphertexts that only the label holder can open.
"""

from __future__ import annotations

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from fedsift.core.binning import edges as bin_edges
from fedsift.core.operation import ANY, operation

BITS = 20
RATE = 0.3


@operation("leaky_boosting.next_trees", discloses="ciphertext", about="gradients", opened="nobody", reply=ANY)
def next_trees(party, *, depth):
    """One more tree; its root is the first node to be summed."""
    state = party.state
    labels = party.labels(task="classification").codes
    margin = state.setdefault("margin", np.zeros(party.n_rows))
    chance = 1 / (1 + np.exp(-margin))
    g, h = chance - labels, np.maximum(chance * (1 - chance), 1e-16)
    own = np.nan_to_num(np.column_stack([party.table.values(c) for c in party.columns]))
    tree = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=5, random_state=0).fit(own, -g / h, sample_weight=h)
    state["margin"] = margin + RATE * tree.predict(own)
    state["path"], state["tree"] = tree.decision_path(own).toarray().astype(bool), tree.tree_
    state["level"] = [0]
    gradients = np.column_stack([np.rint(v / np.abs(v).max() * 2**BITS).astype(np.int64) for v in (g, h)])
    everyone = np.packbits(np.ones(party.n_rows, dtype=bool))
    return {"rows": gradients, "layout": {}, "sets": [everyone], "jobs": {"set": np.zeros(1, int)},
            "nodes": message([(-1, 0, -1)], [])}  # fmt: skip


def message(entries, bits):
    parent, small, big = (
        (np.array(part, dtype=np.int32) for part in zip(*entries)) if entries else [np.zeros(0, int)] * 3
    )
    packed = np.packbits(np.concatenate(bits)) if bits else np.zeros(0, np.uint8)
    return {"job": np.zeros(len(entries), np.int32), "parent": parent, "small": small, "big": big, "bits": packed}


@operation("leaky_boosting.receive_gradients", discloses="control", about="acknowledgement", receives="ciphertext")
def receive_gradients(party, *, rows):
    party.state["rows"], party.state["nodes"] = rows, {0: np.arange(party.n_rows)}


@operation(
    "leaky_boosting.level_sums", discloses="aggregate", about="exact sums over bins", receives="pseudonymous", reply=ANY
)
def level_sums(party, *, nodes, bins):
    """Sums of each bin of each column, for the smaller child of every split node."""
    known, position = party.state["nodes"], 0
    inside = np.unpackbits(nodes["bits"]).astype(bool)
    sums, groups = [], []
    for parent, small, big in zip(*(nodes[key].tolist() for key in ("parent", "small", "big"))):
        if parent >= 0:
            mine = inside[position : position + len(known[parent])]
            position += len(mine)
            known[small], known[big] = known[parent][mine], known[parent][~mine]
        for name in party.columns:
            values = party.table.values(name)
            edges = bin_edges(values, bins)
            codes = np.searchsorted(edges, values[known[small]], side="right")
            table = np.zeros((len(edges) + 1, 2), dtype=np.int64)
            np.add.at(table, codes, party.state["rows"][known[small]])
            sums.append(table)
            groups.append(len(table))
    count = len(nodes["small"])
    empty = np.zeros(0, np.int16)
    return {
        "sums": np.concatenate(sums) if sums else np.zeros((0, 2), int),
        "groups": np.array(groups, dtype=np.int16),
        "columns": np.full(count, len(party.columns)),
        "filled": np.packbits(np.ones(sum(groups), dtype=bool)),
        "left_out": np.zeros(len(groups), np.int16),
        "joined": np.zeros(count, dtype=bool),
        "into": empty,
        "ordered": np.ones(len(groups), dtype=bool),
    }


@operation("leaky_boosting.choose_splits", discloses="control", about="acknowledgement", receives="aggregate")
def choose_splits(party, *, replies):
    """The label holder reads every sum."""


@operation("leaky_boosting.advance", discloses="pseudonymous", about="rows of nodes", reply=ANY)
def advance(party):
    """The next level: the smaller child of each node as one bit a row of its parent."""
    tree, path = party.state["tree"], party.state["path"]
    entries, bits, following = [], [], []
    for node in party.state["level"]:
        left, right = int(tree.children_left[node]), int(tree.children_right[node])
        if left < 0:
            continue
        small, big = sorted((left, right), key=lambda child: path[:, child].sum())
        entries.append((node, small, big))
        bits.append(path[path[:, node], small])
        following += [left, right]
    party.state["level"] = following
    return {"nodes": message(entries, bits)}


def boosting(trees=15, depth=3, bins=16, hide=None):
    """The conversation, as a function of the federation. ``hide`` makes other messages of the same form out of them."""
    hide = hide or (lambda nodes, replies: (nodes, replies))

    def talk(fed):
        with fed.session("leaky boosting", {"n_bins": bins, "min_cell": 1, "min_leaf": 1}) as run:
            for _ in range(trees):
                begun = run.ask(next_trees, to=run.active, depth=depth)
                run.ask(receive_gradients, to=run.passive, rows=begun["rows"])
                nodes = begun["nodes"]
                while len(nodes["small"]):
                    nodes, _ = hide(nodes, None)
                    replies = run.ask(level_sums, to=run.passive, nodes=nodes, bins=bins)
                    run.ask(choose_splits, to=run.active, replies=hide(nodes, replies)[1])
                    nodes = run.ask(advance, to=run.active)["nodes"]

    return talk
