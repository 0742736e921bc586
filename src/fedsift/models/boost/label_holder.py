"""What the label holder does while trees grow: encrypt gradients, read sums, choose splits, keep the trees.

Its gradients leave it as ciphertexts only. It reads sums of other parties' unnamed, unordered-by-name columns over
groups of at least the minimum cell, and one bit a row where such a column was cut. Several models grow in lock-step
(the folds of a cross-validation, a whole swarm): one message carries the same level of all of them, and trees that
start from equal gradients share one set of ciphertexts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.errors import ReplyError
from fedsift.models.boost.bins import fitted_bins
from fedsift.models.boost.growing_tree import (
    Entry,
    Job,
    Model,
    Node,
    Reader,
    make_node,
    nodes_message,
    own_histograms,
    splittable,
)
from fedsift.models.boost.passive import split_record
from fedsift.models.boost.rows import large_gradients, training_rows
from fedsift.models.boost.sums import GradientLayout, encrypt_sets
from fedsift.models.boost.tree import (
    Split,
    TreeSettings,
    best_split,
    gradients,
    leaf_value,
    loss,
    start_margin,
    whole_numbers,
)
from fedsift.mpc.encrypted_histogram import own_key


@operation(
    "boost.begin_boosting",
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
            Model(TreeSettings.read(plan["settings"]), plan, train, np.tile(base, (party.n_rows, 1)), base,
                   np.random.default_rng(plan["seed"]))
        )  # fmt: skip
    party.state["boost"] = {
        "models": prepared, "scheme": scheme, "bits": bits, "labels": labels, "outputs": outputs, "records": [],
        "order": order, "me": party.name, "jobs": [], "wanted": [],
    }  # fmt: skip
    return {"outputs": outputs, "task": labels.task}


_TREES = {"key": PublicKey, "rows": Ciphertexts, "layout": dict, "sets": [Array("i")],
          "jobs": {"set": Array("i"), "model": Array("i")}, "nodes": dict}  # fmt: skip


@operation("boost.next_trees", discloses="ciphertext", about="gradient of each row, encrypted", reply=_TREES)
def next_trees(party: Party, *, live: list[int], columns: dict[str, list[np.ndarray]], per: int) -> dict[str, Any]:
    """Gradients of one more tree of each live model (a tree an output)."""
    return _encrypted_start(party, live, columns, per, sample=False)


@operation(
    "boost.next_sampled_trees",
    discloses="pseudonymous",
    about="which rows were sampled (those of large gradients, and some others); their gradients, encrypted",
    reply=_TREES,
)
def next_sampled_trees(
    party: Party, *, live: list[int], columns: dict[str, list[np.ndarray]], per: int
) -> dict[str, Any]:
    """The same from rows sampled by their gradients."""
    return _encrypted_start(party, live, columns, per, sample=True)


def _encrypted_start(
    party: Party, live: list[int], columns: dict[str, list[np.ndarray]], per: int, sample: bool
) -> dict[str, Any]:
    state = party.state["boost"]
    sets = _start(party, live, columns, sample)
    jobs: list[Job] = state["jobs"]
    key = own_key(party, state["scheme"]).public
    wide = jobs[0].numbers.shape[1] // 2 if jobs else 1
    layout = state["layout"] = GradientLayout.fit(party.n_rows, wide, state["bits"], per, key.plaintext_bits)
    return {
        "key": key,
        "rows": encrypt_sets(key, [job_numbers[train] for train, job_numbers in sets], layout),
        "layout": layout.as_dict(),
        "sets": [np.packbits(train) for train, _ in sets],
        "jobs": {
            "set": np.array([job.set for job in jobs], dtype=np.int64),
            "model": np.array([live.index(job.model) for job in jobs], dtype=np.int64),
        },
        "nodes": nodes_message(state["wanted"]),
    }


@operation("boost.grow_own_trees", discloses="control", about="acknowledgement")
def grow_own_trees(party: Party, *, live: list[int], columns: dict[str, list[np.ndarray]]) -> None:
    """One more tree of each live model from own columns alone: nothing is sent, no key is needed, all rows are used."""
    state = party.state["boost"]
    _start(party, live, columns, sample=False)
    while state["wanted"] or _unfinished(state):
        _choose(party, {})
        state["wanted"] = _advance(party, {})


def _start(
    party: Party, live: list[int], columns: dict[str, list[np.ndarray]], sample: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
    """New trees with their roots; the different gradient sets."""
    state = party.state["boost"]
    jobs, sets = _new_jobs(party, live, columns, sample)
    state["jobs"] = jobs
    state["wanted"] = [
        (number, None, job.nodes[0], None) for number, job in enumerate(jobs) if splittable(state, job, job.nodes[0])
    ]
    return sets


def _new_jobs(
    party: Party, live: list[int], columns: dict[str, list[np.ndarray]], sample: bool
) -> tuple[list[Job], list[tuple[np.ndarray, np.ndarray]]]:
    state = party.state["boost"]
    labels = state["labels"]
    jobs: list[Job] = []
    sets: list[tuple[np.ndarray, np.ndarray]] = []
    known: dict[bytes, int] = {}
    for index, model_number in enumerate(live):
        model: Model = state["models"][model_number]
        g, h = gradients(labels.task, model.margins, labels.values)
        train, weights = _sampled(model, g, sample)
        fitted, codes = fitted_bins(party, model.plan["bins"])
        mine = {name: chosen[index].astype(np.int64) for name, chosen in columns.items()}
        own = mine[party.name]
        together = model.plan["multi_output"] or state["outputs"] == 1
        for output in [None] if together else range(state["outputs"]):
            part = slice(None) if output is None else slice(output, output + 1)
            exact = g[:, part], h[:, part]
            heavy = weights[train, None]
            numbers, units = whole_numbers(exact[0][train] * heavy, exact[1][train] * heavy, state["bits"])
            whole = np.zeros((party.n_rows, numbers.shape[1]), dtype=np.int64)
            whole[train] = numbers
            fingerprint = np.packbits(train).tobytes() + numbers.tobytes()
            if fingerprint not in known:
                known[fingerprint] = len(sets)
                sets.append((train, whole))
            job = Job(model_number, output, known[fingerprint], train, exact, whole, units,
                       [fitted[c] for c in own], codes[:, own], mine)  # fmt: skip
            job.nodes[0] = make_node(job, 0, 0, np.arange(party.n_rows))
            jobs.append(job)
    return jobs, sets


def _sampled(model: Model, g: np.ndarray, by_gradient: bool) -> tuple[np.ndarray, np.ndarray]:
    """The rows of one tree and their weights."""
    plan = model.plan
    if by_gradient and plan["top_rate"] < 1:
        return large_gradients(g, model.train, plan["top_rate"], plan["other_rate"], model.generator)
    every = np.ones(len(g))
    if plan["subsample"] < 1:
        return model.train & (model.generator.random(len(g)) < plan["subsample"]), every
    return model.train, every


@operation(
    "boost.choose_splits",
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
    readers = {name: Reader(party, name, reply) for name, reply in replies.items()}
    for number, parent, small, big in state["wanted"]:
        job = state["jobs"][number]
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


def _best(state: dict[str, Any], job: Job, node: Node) -> tuple[str, Split] | None:
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
    "boost.advance",
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
    return {"nodes": nodes_message(state["wanted"]), "more": bool(state["wanted"]) or _unfinished(state)}


def _unfinished(state: dict[str, Any]) -> bool:
    """Leaf by leaf, leaves with a known split may wait although no new node needs sums."""
    return any(job.open for job in state["jobs"])


def _advance(party: Party, sides: dict[str, Any]) -> list[Entry]:
    state = party.state["boost"]
    bits = {name: np.unpackbits(reply["bits"]).astype(bool) for name, reply in sides.items()}
    place = {name: [0, 0] for name in sides}  # bits read, records read
    entries: list[Entry] = []
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
                    raise ReplyError(name, "divide", f"party {name!r} divided another number of rows than the node has")
                record = int(sides[name]["records"][count])
                place[name] = [start + len(node.rows), count + 1]
            entry = _children(state, job, number, node, left, record)
            if entry is not None:
                entries.append(entry)
        job.cutting = []
    return entries


def _cut_own(state: dict[str, Any], job: Job, node: Node, split: Split) -> tuple[np.ndarray, int]:
    state["records"].append(split_record(job.bins[split.column], split.left, split.unseen_left))
    return split.left[job.codes[node.rows, split.column]], len(state["records"]) - 1


def _children(state: dict[str, Any], job: Job, number: int, node: Node, left: np.ndarray, record: int) -> Entry | None:
    assert node.best is not None
    name, split = node.best
    first = max(job.nodes) + 1
    pair = [make_node(job, first, node.depth + 1, node.rows[left]),
            make_node(job, first + 1, node.depth + 1, node.rows[~left])]  # fmt: skip
    for child in pair:
        job.nodes[child.number] = child
    job.tree[node.number] = {"party": name, "split": record, "left": first, "right": first + 1}
    model = state["models"][job.model]
    column = int(job.columns[name][split.column])
    use = model.uses.setdefault(name, {}).setdefault(column, [0, 0.0])
    use[0], use[1] = use[0] + 1, use[1] + split.gain
    small, big = sorted(pair, key=lambda child: len(child.train))
    if splittable(state, job, small) or splittable(state, job, big):
        return number, node, small, big
    node.hists = {}
    return None


@operation("boost.end_round", discloses="control", about="which models go on", reply={"live": Array("i")})
def end_round(party: Party) -> dict[str, Any]:
    """Leaf values, new scores, early stopping."""
    state = party.state["boost"]
    touched: dict[int, Model] = {}
    for job in state["jobs"]:
        model = touched.setdefault(job.model, state["models"][job.model])
        part = slice(None) if job.output is None else slice(job.output, job.output + 1)
        for number, node in job.nodes.items():
            if number in job.tree:
                continue
            # A sample by gradients only chooses splits: the label holder has every row's gradient for the leaves.
            rows = node.rows[model.train[node.rows]] if model.plan["top_rate"] < 1 else node.train
            value = leaf_value(job.exact[0][rows], job.exact[1][rows], model.settings)
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
