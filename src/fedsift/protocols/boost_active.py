"""What the label holder does while trees grow: encrypt gradients, read sums, choose splits, keep the trees.

Its gradients leave it as ciphertexts only. It reads sums of other parties' unnamed, unordered-by-name columns over
groups of at least the minimum cell, and one bit a row where such a column was cut. Several models grow in lock-step
(the folds of a cross-validation, a whole swarm): one message carries the same level of all of them, and trees that
start from equal gradients share one set of ciphertexts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.errors import ReplyError
from fedsift.operation import Array, operation
from fedsift.party import Party
from fedsift.protocols.boost_bins import ColumnBins, fitted_bins
from fedsift.protocols.boost_party import split_record
from fedsift.protocols.boost_rows import training_rows
from fedsift.protocols.boost_sums import GradientLayout, encrypt_sets, read_sums
from fedsift.protocols.boost_tree import (
    Histogram,
    Split,
    TreeSettings,
    Units,
    best_split,
    gradients,
    leaf_value,
    loss,
    start_margin,
    whole_numbers,
)
from fedsift.protocols.histogram import own_key
from fedsift.secure.additive import Ciphertexts, PublicKey


@dataclass
class _Model:
    """One booster: its settings, its rows, its score of every row so far."""

    settings: TreeSettings
    plan: dict[str, Any]
    train: np.ndarray
    margins: np.ndarray
    base: np.ndarray
    generator: np.random.Generator
    trees: list[dict[str, Any]] = field(default_factory=list)
    history: list[float] = field(default_factory=list)
    uses: dict[str, dict[int, list[float]]] = field(default_factory=dict)  # party -> column -> [splits, gain]
    stopped: bool = False


@dataclass
class _Node:
    number: int
    depth: int
    rows: np.ndarray
    train: np.ndarray  # rows of the node that are in training
    total: np.ndarray
    hists: dict[str, Histogram] = field(default_factory=dict)
    best: tuple[str, Split] | None = None


@dataclass
class _Job:
    """One tree that is growing."""

    model: int
    output: int | None  # which output it is for; None: for all
    set: int
    train: np.ndarray
    exact: tuple[np.ndarray, np.ndarray]
    numbers: np.ndarray
    units: Units
    bins: list[ColumnBins]
    codes: np.ndarray
    columns: dict[str, np.ndarray]  # of each party: which of its columns take part
    nodes: dict[int, _Node] = field(default_factory=dict)
    open: list[_Node] = field(default_factory=list)  # with a known split, not yet cut
    cutting: list[_Node] = field(default_factory=list)
    tree: dict[int, dict[str, Any]] = field(default_factory=dict)
    leaves: int = 1


@operation(
    discloses="control",
    about="number of outputs of a tree",
    reply={"outputs": int, "task": str},
)
def begin_boosting(
    party: Party, *, models: list[dict[str, Any]], order: list[str], scheme: str, task: str, bits: int
) -> dict[str, Any]:
    """Prepare models that will grow in lock-step. Which rows each learns from is drawn here and stays here."""
    labels = party.labels(task=task)
    outputs = 1 if labels.task == "regression" or labels.n_classes == 2 else labels.n_classes
    prepared = []
    for plan in models:
        train = training_rows(plan["rows"], labels, party.n_rows)
        base = start_margin(labels.task, labels.values[train], outputs, plan["base_score"])
        prepared.append(
            _Model(TreeSettings.read(plan["settings"]), plan, train, np.tile(base, (party.n_rows, 1)), base,
                   np.random.default_rng(plan["seed"]))
        )  # fmt: skip
    party.state["boost"] = {
        "models": prepared, "scheme": scheme, "bits": bits, "labels": labels, "outputs": outputs, "records": [],
        "order": order, "me": party.name, "jobs": [], "wanted": [],
    }  # fmt: skip
    return {"outputs": outputs, "task": labels.task}


@operation(
    discloses="ciphertext",
    about="gradient of each row, encrypted",
    reply={"key": PublicKey, "rows": Ciphertexts, "layout": dict, "sets": [Array("i")],
           "jobs": {"set": Array("i"), "model": Array("i")}, "nodes": dict},
)  # fmt: skip
def next_trees(
    party: Party, *, live: list[int], columns: dict[str, list[np.ndarray]], per: int, local: bool
) -> dict[str, Any]:
    """Gradients of one more tree of each live model (a tree an output). ``local``: grow them from own columns alone."""
    state = party.state["boost"]
    jobs, sets = _new_jobs(party, live, columns)
    state["jobs"], state["local"] = jobs, local
    key = own_key(party, state["scheme"]).public
    wide = jobs[0].numbers.shape[1] // 2 if jobs else 1
    layout = GradientLayout.fit(party.n_rows, wide, state["bits"], per, key.plaintext_bits)
    state["layout"], state["wanted"] = layout, []
    entries = [(number, None, job.nodes[0], None) for number, job in enumerate(jobs) if _splittable(state, job, job.nodes[0])]
    if local:
        while entries or _unfinished(state):
            state["wanted"] = entries
            _choose(party, {})
            entries = _advance(party, {})
        sets, nodes = [], _nodes_message([])
    else:
        state["wanted"] = entries
        nodes = _nodes_message(entries)
    return {
        "key": key,
        "rows": encrypt_sets(key, [job_numbers[train] for train, job_numbers in sets], layout),
        "layout": layout.as_dict(),
        "sets": [np.packbits(train) for train, _ in sets],
        "jobs": {
            "set": np.array([job.set for job in jobs], dtype=np.int64),
            "model": np.array([live.index(job.model) for job in jobs], dtype=np.int64),
        },
        "nodes": nodes,
    }


def _new_jobs(
    party: Party, live: list[int], columns: dict[str, list[np.ndarray]]
) -> tuple[list[_Job], list[tuple[np.ndarray, np.ndarray]]]:
    state = party.state["boost"]
    labels = state["labels"]
    jobs: list[_Job] = []
    sets: list[tuple[np.ndarray, np.ndarray]] = []
    known: dict[bytes, int] = {}
    for index, model_number in enumerate(live):
        model: _Model = state["models"][model_number]
        train = model.train
        if model.plan["subsample"] < 1:
            train = train & (model.generator.random(party.n_rows) < model.plan["subsample"])
        g, h = gradients(labels.task, model.margins, labels.values)
        fitted, codes = fitted_bins(party, model.plan["bins"])
        mine = {name: chosen[index].astype(np.int64) for name, chosen in columns.items()}
        own = mine[party.name]
        together = model.plan["multi_output"] or state["outputs"] == 1
        for output in [None] if together else range(state["outputs"]):
            part = slice(None) if output is None else slice(output, output + 1)
            exact = g[:, part], h[:, part]
            numbers, units = whole_numbers(exact[0][train], exact[1][train], state["bits"])
            whole = np.zeros((party.n_rows, numbers.shape[1]), dtype=np.int64)
            whole[train] = numbers
            fingerprint = np.packbits(train).tobytes() + numbers.tobytes()
            if fingerprint not in known:
                known[fingerprint] = len(sets)
                sets.append((train, whole))
            job = _Job(model_number, output, known[fingerprint], train, exact, whole, units,
                       [fitted[c] for c in own], codes[:, own], mine)  # fmt: skip
            job.nodes[0] = _make_node(job, 0, 0, np.arange(party.n_rows))
            jobs.append(job)
    return jobs, sets


def _make_node(job: _Job, number: int, depth: int, rows: np.ndarray) -> _Node:
    train = rows[job.train[rows]]
    return _Node(number, depth, rows, train, job.numbers[train].sum(axis=0))


def _splittable(state: dict[str, Any], job: _Job, node: _Node) -> bool:
    settings = state["models"][job.model].settings
    outputs = job.numbers.shape[1] // 2
    weight = float((node.total[outputs:] * job.units.hessian).mean())
    roomy = len(node.train) >= 2 * settings.min_rows and weight >= 2 * settings.min_child_weight
    return roomy and (settings.max_depth == 0 or node.depth < settings.max_depth)


_Entry = tuple[int, "_Node | None", _Node, "_Node | None"]


def _nodes_message(entries: list[_Entry]) -> dict[str, np.ndarray]:
    """Which nodes to sum: the smaller child as one bit a row of its parent."""
    bits = [np.isin(parent.rows, small.rows, assume_unique=True) for _, parent, small, _ in entries if parent]
    return {
        "job": np.array([job for job, *_ in entries], dtype=np.int32),
        "parent": np.array([-1 if parent is None else parent.number for _, parent, *_ in entries], dtype=np.int32),
        "small": np.array([small.number for _, _, small, _ in entries], dtype=np.int32),
        "big": np.array([-1 if big is None else big.number for *_, big in entries], dtype=np.int32),
        "bits": np.packbits(np.concatenate(bits)) if bits else np.zeros(0, np.uint8),
    }


@operation(
    discloses="aggregate",
    receives="ciphertext",
    about="which column of a party is cut, and between which groups of its bins",
    learns="gradient sums over groups of bins of unnamed columns of the other parties",
    reply=dict,
)
def choose_splits(party: Party, *, replies: dict[str, Any]) -> dict[str, Any]:
    return _choose(party, replies)


def _choose(party: Party, replies: dict[str, Any]) -> dict[str, Any]:
    state = party.state["boost"]
    readers = {name: _Reader(party, name, reply) for name, reply in replies.items()}
    for number, parent, small, big in state["wanted"]:
        job = state["jobs"][number]
        _own_histograms(party.name, job, parent, small, big)
        for name, reader in readers.items():
            reader.next_node(name, parent, small, big)
        if parent is not None:
            parent.hists = {}
        for node in (small, big):
            if node is not None and _splittable(state, job, node):
                node.best = _best(state, job, node)
                if node.best is not None:
                    job.open.append(node)
            if node is not None and node.best is None:
                node.hists = {}
    for reader in readers.values():
        reader.finish()
    return _cuts(party)


class _Reader:
    """Walks through one party's answer, node by node."""

    def __init__(self, party: Party, name: str, reply: dict[str, Any]):
        state = party.state["boost"]
        self.name, self.reply = name, reply
        total = int(reply["groups"].sum())
        self.filled = np.unpackbits(reply["filled"], count=total).astype(bool)
        count = int(self.filled.sum())
        self.sums = read_sums(own_key(party, state["scheme"]), reply["sums"], state["layout"], count, name)
        if len(reply["columns"]) != len(state["wanted"]) or reply["columns"].sum() != len(reply["groups"]):
            raise ReplyError(name, "level_sums", "another number of nodes or columns than it was asked for")
        self.node = self.column = self.group = self.sum = self.join = 0

    def next_node(self, name: str, parent: _Node | None, small: _Node, big: _Node | None) -> None:
        columns = int(self.reply["columns"][self.node])
        here = slice(self.column, self.column + columns)
        groups = self.reply["groups"][here].astype(np.int64)
        count = int(groups.sum())
        filled = self.filled[self.group : self.group + count]
        sums = np.zeros((count, self.sums.shape[1]), dtype=np.int64)
        sent = int(filled.sum())
        sums[filled] = self.sums[self.sum : self.sum + sent]
        starts = np.concatenate([[0], np.cumsum(groups)[:-1]]).astype(np.int64)
        if columns and count:
            others = np.add.reduceat(sums, starts, axis=0)
            sums[starts + self.reply["left_out"][here]] += small.total - others
        missing = self.reply["missing"][here]
        small.hists[name] = Histogram(sums, groups, self.reply["ordered"][here], missing)
        if parent is not None and big is not None:
            above = parent.hists[name]
            if self.reply["joined"][self.node]:
                width = int(above.groups.sum())
                above = above.coarsened(groups, self.reply["into"][self.join : self.join + width], missing)
                self.join += width
            big.hists[name] = above.minus(small.hists[name])
        self.node, self.column = self.node + 1, self.column + columns
        self.group, self.sum = self.group + count, self.sum + sent

    def finish(self) -> None:
        if self.sum != len(self.sums):
            raise ReplyError(self.name, "level_sums", "another number of sums than it says")


def _own_histograms(me: str, job: _Job, parent: _Node | None, small: _Node, big: _Node | None) -> None:
    small.hists[me] = _own_histogram(job, small)
    if parent is not None and big is not None:
        big.hists[me] = parent.hists[me].minus(small.hists[me])


def _own_histogram(job: _Job, node: _Node) -> Histogram:
    """Own columns need no encryption."""
    groups = np.array([b.count for b in job.bins], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(groups)[:-1]]).astype(np.int64)[: len(groups)]
    count, width = int(groups.sum()), job.numbers.shape[1]
    place = (job.codes[node.train] + starts).ravel()
    sums = np.zeros((count, width), dtype=np.int64)
    for value in range(width):
        weights = np.repeat(job.numbers[node.train, value], len(groups))
        sums[:, value] = np.rint(np.bincount(place, weights=weights, minlength=count))
    ordered = np.array([b.ordered for b in job.bins], dtype=bool)
    missing = np.array([b.missing for b in job.bins], dtype=bool) & ordered
    return Histogram(sums, groups, ordered, missing, np.bincount(place, minlength=count))


def _best(state: dict[str, Any], job: _Job, node: _Node) -> tuple[str, Split] | None:
    """Over all parties in the order of the federation, so that ties fall as in one pooled table."""
    settings = state["models"][job.model].settings
    best: tuple[str, Split] | None = None
    for name in sorted(node.hists, key=state["order"].index):
        split = best_split(node.hists[name], node.total, job.units, settings)
        if split is not None and (best is None or split.gain > best[1].gain):
            best = (name, split)
    return best


def _cuts(party: Party) -> dict[str, Any]:
    """Take the nodes to cut now: all of a level, or the best leaf when trees grow leaf by leaf."""
    state = party.state["boost"]
    cuts: dict[str, dict[str, list[Any]]] = {}
    for number, job in enumerate(state["jobs"]):
        settings = state["models"][job.model].settings
        job.open.sort(key=lambda node: -node.best[1].gain if settings.leaf_wise else node.number)
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
    discloses="pseudonymous",
    receives="pseudonymous",
    about="which rows lie together in a node of a tree",
    learns="which rows go left where another party's column was cut",
    reply={"nodes": dict, "more": bool},
)
def advance(party: Party, *, sides: dict[str, Any]) -> dict[str, Any]:
    """Make the children of the nodes that were cut; say which of them must be summed next."""
    state = party.state["boost"]
    state["wanted"] = _advance(party, sides)
    return {"nodes": _nodes_message(state["wanted"]), "more": bool(state["wanted"]) or _unfinished(state)}


def _unfinished(state: dict[str, Any]) -> bool:
    """Leaf by leaf, leaves with a known split may wait although no new node needs sums."""
    return any(job.open for job in state["jobs"])


def _advance(party: Party, sides: dict[str, Any]) -> list[_Entry]:
    state = party.state["boost"]
    bits = {name: np.unpackbits(reply["bits"]).astype(bool) for name, reply in sides.items()}
    place = {name: [0, 0] for name in sides}  # bits read, records read
    entries: list[_Entry] = []
    for number, job in enumerate(state["jobs"]):
        for node in job.cutting:
            assert node.best is not None
            name, split = node.best
            if name == party.name:
                left, record = _cut_own(state, job, node, split)
            else:
                start, count = place[name]
                left = bits[name][start : start + len(node.rows)]
                if len(left) != len(node.rows) or count >= len(sides[name]["records"]):
                    raise ReplyError(name, "divide", "it divided another number of rows than the node has")
                record = int(sides[name]["records"][count])
                place[name] = [start + len(node.rows), count + 1]
            entry = _children(state, job, number, node, left, record)
            if entry is not None:
                entries.append(entry)
        job.cutting = []
    return entries


def _cut_own(state: dict[str, Any], job: _Job, node: _Node, split: Split) -> tuple[np.ndarray, int]:
    state["records"].append(split_record(job.bins[split.column], split.left, split.unseen_left))
    return split.left[job.codes[node.rows, split.column]], len(state["records"]) - 1


def _children(
    state: dict[str, Any], job: _Job, number: int, node: _Node, left: np.ndarray, record: int
) -> _Entry | None:
    assert node.best is not None
    name, split = node.best
    first = max(job.nodes) + 1
    pair = [_make_node(job, first, node.depth + 1, node.rows[left]),
            _make_node(job, first + 1, node.depth + 1, node.rows[~left])]  # fmt: skip
    for child in pair:
        job.nodes[child.number] = child
    job.tree[node.number] = {"party": name, "split": record, "left": first, "right": first + 1}
    model = state["models"][job.model]
    column = int(job.columns[name][split.column])
    use = model.uses.setdefault(name, {}).setdefault(column, [0, 0.0])
    use[0], use[1] = use[0] + 1, use[1] + split.gain
    small, big = sorted(pair, key=lambda child: len(child.train))
    if _splittable(state, job, small) or _splittable(state, job, big):
        return number, node, small, big
    node.hists = {}
    return None


@operation(discloses="control", about="which models go on", reply={"live": Array("i")})
def end_round(party: Party) -> dict[str, Any]:
    """Leaf values, new scores, early stopping."""
    state = party.state["boost"]
    touched = {}
    for job in state["jobs"]:
        model = touched.setdefault(job.model, state["models"][job.model])
        part = slice(None) if job.output is None else slice(job.output, job.output + 1)
        for number, node in job.nodes.items():
            if number in job.tree:
                continue
            value = leaf_value(job.exact[0][node.train], job.exact[1][node.train], model.settings)
            job.tree[number] = {"value": value.tolist()}
            model.margins[node.rows, part] += value
        nodes = [job.tree[number] for number in sorted(job.tree)]
        model.trees.append({"output": -1 if job.output is None else job.output, "nodes": nodes})
    labels = state["labels"]
    for model in touched.values():
        held = ~model.train
        if model.plan["early_stopping_rounds"]:
            model.history.append(loss(labels.task, model.margins[held], labels.values[held]))
            since = len(model.history) - 1 - int(np.argmin(model.history))
            model.stopped = since >= model.plan["early_stopping_rounds"]
    state["jobs"] = []
    live = [number for number, model in enumerate(state["models"]) if not model.stopped]
    return {"live": np.array(live, dtype=np.int64)}
