"""What the label holder does while trees grow: encrypt gradients, read sums, choose splits, keep the trees.

Its gradients leave it as ciphertexts only. It reads sums of other parties' unnamed, unordered-by-name columns over
groups of at least the minimum cell, and one bit a row where such a column was cut. Several models grow in lock-step
(the folds of a cross-validation, a whole swarm): one message carries the same level of all of them, and trees that
start from equal gradients share one set of ciphertexts.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from fedsift.core.arguments import Between, PartyName
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.growing_tree import (
    Boosting,
    Entry,
    Job,
    Node,
    Reader,
    chosen_from,
    cut_own,
    make_children,
    nodes_message,
    own_histograms,
    splittable,
)
from fedsift.models.boost.level_messages import LevelSums, Sides
from fedsift.models.boost.rounds import check_first_tree, new_jobs
from fedsift.models.boost.sums import GRADIENTS, GradientLayout, encrypt_sets, vouched_parts
from fedsift.models.boost.tree import Split, best_split
from fedsift.mpc.encrypted_histogram import own_key
from fedsift.mpc.pairs import vouch

RowsShared = Annotated[int, Between(1, 8)]  # rows in one ciphertext
_TREES = {"key": PublicKey, "rows": Ciphertexts, "layout": dict, "sets": [Array("i")], "notes": dict,
          "jobs": {"set": Array("i"), "model": Array("i")}, "nodes": dict}  # fmt: skip
_CUTS = {"job": Array("i"), "node": Array("i"), "column": Array("i"), "unseen_left": Array("b"), "left": Array("i")}


@operation(
    "boost.next_trees",
    when="protection=open",
    times="20000 a session",
    discloses="ciphertext",
    about="gradient of each row, encrypted",
    opened="nobody",
    reply=_TREES,
)
def next_trees(
    party: Party, *, live: list[int], columns: dict[str, list[np.ndarray]], per: RowsShared
) -> dict[str, Any]:
    """Gradients of one more tree of each live model (a tree an output)."""
    return _encrypted_start(party, live, columns, per, sample=False)


@operation(
    "boost.next_sampled_trees",
    when="protection=open",
    times="20000 a session",
    discloses="plain",
    about="which rows were sampled: those of large gradients, which in the first tree are those of a rare class",
    reply=_TREES,
)
def next_sampled_trees(
    party: Party, *, live: list[int], columns: dict[str, list[np.ndarray]], per: RowsShared
) -> dict[str, Any]:
    """The same from rows sampled by their gradients."""
    return _encrypted_start(party, live, columns, per, sample=True)


def _encrypted_start(
    party: Party, live: list[int], columns: dict[str, list[np.ndarray]], per: int, sample: bool
) -> dict[str, object]:
    state = party.held(Boosting)
    check_first_tree(party, state, live, columns)
    jobs = _start(party, state, live, columns, sample)
    sets = list({job.set: (job.train, job.numbers) for job in jobs}.values())
    key = own_key(party, state.scheme).public
    wide = jobs[0].numbers.shape[1] // 2 if jobs else 1
    layout = state.layout = GradientLayout.fit(party.n_rows, wide, state.bits, per, key.plaintext_bits)
    rows = encrypt_sets(key, [job_numbers[train] for train, job_numbers in sets], layout)
    told, packed = layout.as_dict(), [np.packbits(train) for train, _ in sets]
    return {
        "key": key,
        "rows": rows,
        "layout": told,
        "sets": packed,
        "notes": vouch(party, GRADIENTS, *vouched_parts(key, rows, told, packed)),
        "jobs": {
            "set": np.array([job.set for job in jobs], dtype=np.int64),
            "model": np.array([live.index(job.model) for job in jobs], dtype=np.int64),
        },
        "nodes": nodes_message(state.wanted),
    }


@operation(
    "boost.grow_own_trees",
    when="protection=coordinator|open",
    times="20000 a session",
    discloses="control",
    about="acknowledgement",
)
def grow_own_trees(party: Party, *, live: list[int], columns: dict[str, list[np.ndarray]]) -> None:
    """One more tree of each live model from own columns alone: nothing is sent, no key is needed, all rows are used."""
    state = party.held(Boosting)
    _start(party, state, live, columns, sample=False)
    while state.wanted or _unfinished(state):
        _choose(party, {})
        state.wanted = _advance(party, {})


def _start(
    party: Party, state: Boosting, live: list[int], columns: dict[str, list[np.ndarray]], sample: bool
) -> list[Job]:
    """New trees with their roots."""
    jobs = new_jobs(party, state, live, columns, sample)
    state.wanted = [
        (number, None, job.nodes[0], None) for number, job in enumerate(jobs) if splittable(state, job, job.nodes[0])
    ]
    return jobs


@operation(
    "boost.choose_splits",
    when="protection=open",
    times="240000 a session",
    discloses="aggregate",
    receives="ciphertext",
    about="which column of a party is cut, and between which groups of its bins",
    learns="gradient sums over groups of bins of unnamed columns of the other parties",
    reply=ByName(_CUTS),
)
def choose_splits(party: Party, *, replies: dict[PartyName, LevelSums]) -> dict[str, Any]:
    if party.name in replies:
        raise OperationRefused(party.name, "choose_splits", "these are sums of its own columns, which it has itself")
    for _, parent, small, _ in party.held(Boosting).wanted:
        if small.best is not None or (parent is not None and party.name not in parent.hists):
            raise OperationRefused(party.name, "choose_splits", "it has chosen the splits of these nodes already")
    return _choose(party, replies)


def _choose(party: Party, replies: dict[str, LevelSums]) -> dict[str, Any]:
    state = party.held(Boosting)
    readers = {name: Reader(party, name, reply) for name, reply in replies.items()}
    if state.noise is not None and state.wanted:
        state.noise.use_level()
    for number, parent, small, big in state.wanted:
        job = state.jobs[number]
        own_histograms(party.name, job, parent, small, big)
        for name, reader in readers.items():
            reader.next_node(name, parent, small, big)
        if parent is not None:
            parent.hists = {}
        for node in (small, big):
            if node is not None and splittable(state, job, node):
                node.best = _best(state, job, node)
                if node.best is not None:
                    job.open.append(node)
            if node is not None and node.best is None:
                node.hists = {}
    for reader in readers.values():
        reader.finish()
    return _cuts(party)


def _best(state: Boosting, job: Job, node: Node) -> tuple[str, Split] | None:
    """Over all parties in the order of the federation, so that ties fall as in one pooled table."""
    settings = state.settings(job)
    best: tuple[str, Split] | None = None
    scale = 0.0 if state.noise is None else state.noise.level_scale(0, sum(map(len, job.columns.values())))
    hists, variance = chosen_from(state, job, node, node.hists, scale)
    for name in sorted(hists, key=state.order.index):
        split = best_split(hists[name], node.told, job.units, settings, variance)
        if split is not None and (best is None or split.gain > best[1].gain):
            best = (name, split)
    return best


def _cuts(party: Party) -> dict[str, object]:
    """Take the nodes to cut now: all of a level, or the best leaf when trees grow leaf by leaf."""
    state = party.held(Boosting)
    cuts: dict[str, dict[str, list[object]]] = {}
    for number, job in enumerate(state.jobs):
        settings = state.settings(job)
        job.open.sort(key=lambda node: -node.gain if settings.leaf_wise else node.number)
        room = settings.max_leaves - job.leaves if settings.max_leaves else len(job.open)
        take = min(max(0, room), 1 if settings.leaf_wise else len(job.open))
        job.cutting, job.open = job.open[:take], job.open[take:]
        if room <= 0:
            job.open = []
        job.leaves += take
        for node in job.cutting:
            assert node.best is not None
            name, split = node.best
            if name == party.name:
                continue
            cut = cuts.setdefault(name, {"job": [], "node": [], "column": [], "unseen_left": [], "left": []})
            for key, value in (("job", number), ("node", node.number), ("column", split.column),
                               ("unseen_left", split.unseen_left), ("left", split.left)):  # fmt: skip
                cut[key].append(value)
    return {name: _cut_message(cut) for name, cut in cuts.items()}


def _cut_message(cut: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    return {
        **{key: np.array(cut[key], dtype=np.int32) for key in ("job", "node", "column")},
        "unseen_left": np.array(cut["unseen_left"], dtype=bool),
        "left": np.packbits(np.concatenate(cut["left"])),
    }


@operation(
    "boost.advance",
    when="protection=open",
    times="240000 a session",
    discloses="pseudonymous",
    receives="pseudonymous",
    about="which rows lie together in a node of a tree",
    learns="which rows go left where another party's column was cut",
    reply={"nodes": dict, "more": bool},
)
def advance(party: Party, *, sides: dict[PartyName, Sides]) -> dict[str, Any]:
    """Make the children of the nodes that were cut; say which of them must be summed next."""
    state = party.held(Boosting)
    state.wanted = _advance(party, sides)
    return {"nodes": nodes_message(state.wanted), "more": bool(state.wanted) or _unfinished(state)}


def _unfinished(state: Boosting) -> bool:
    """Leaf by leaf, leaves with a known split may wait although no new node needs sums."""
    return any(job.open for job in state.jobs)


def _advance(party: Party, sides: dict[str, Sides]) -> list[Entry]:
    state = party.held(Boosting)
    bits = {name: np.unpackbits(reply["bits"]).astype(bool) for name, reply in sides.items()}
    place = {name: [0, 0] for name in sides}  # bits read, records read
    entries: list[Entry] = []
    for number, job in enumerate(state.jobs):
        for node in job.cutting:
            assert node.best is not None
            name, split = node.best
            if name == party.name:
                left, record = cut_own(state, job, node, split)
            else:
                if name not in sides:
                    raise ReplyError(name, "divide", f"party {name!r} has not divided its node")
                start, count = place[name]
                left = bits[name][start : start + len(node.rows)]
                if len(left) != len(node.rows) or count >= len(sides[name]["records"]):
                    raise ReplyError(name, "divide", f"party {name!r} divided another number of rows than the node has")
                record = int(sides[name]["records"][count])
                place[name] = [start + len(node.rows), count + 1]
            entry = _children(state, job, number, node, left, record)
            if entry is not None:
                entries.append(entry)
        job.cutting = []
    return entries


def _children(state: Boosting, job: Job, number: int, node: Node, left: np.ndarray, record: int) -> Entry | None:
    assert node.best is not None
    name, split = node.best
    pair = make_children(job, node, name, record, left)
    if name != state.me:
        column = int(job.columns[name][split.column])
        use = state.models[job.model].uses.setdefault(name, {}).setdefault(column, [0, 0.0])
        use[0], use[1] = use[0] + 1, use[1] + split.gain
    small, big = sorted(pair, key=lambda child: len(child.train))
    if splittable(state, job, small) or splittable(state, job, big):
        return number, node, small, big
    node.hists = {}
    return None
