"""The label holder's side of growing trees, apart from the conversation: models, trees, nodes and their histograms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedsift.core.binning import ColumnBins
from fedsift.core.party import Labels, Party
from fedsift.core.workers import side_by_side
from fedsift.errors import ReplyError
from fedsift.models.boost.level_messages import LevelSums, check_sums
from fedsift.models.boost.objective import Objective
from fedsift.models.boost.plan import Plan
from fedsift.models.boost.privacy import LabelNoise, whole_noise
from fedsift.models.boost.stored import SplitRecords, StoredNode, StoredTree
from fedsift.models.boost.sums import GradientLayout, read_sums
from fedsift.models.boost.tree import Histogram, Split, TreeSettings, Units
from fedsift.mpc.encrypted_histogram import own_key


@dataclass
class Model:
    """One booster: its settings, its rows, its score of every row so far."""

    settings: TreeSettings
    plan: Plan
    train: np.ndarray
    margins: np.ndarray
    base: np.ndarray
    generator: np.random.Generator
    trees: list[StoredTree] = field(default_factory=list)
    history: list[float] = field(default_factory=list)
    uses: dict[str, dict[int, list[float]]] = field(default_factory=dict)  # party -> column -> [splits, gain]
    stopped: bool = False
    begun: int = 0  # rounds that trees were begun in


@dataclass
class Node:
    number: int
    depth: int
    rows: np.ndarray
    train: np.ndarray  # rows of the node that are in training
    total: np.ndarray
    hists: dict[str, Histogram] = field(default_factory=dict)
    best: tuple[str, Split] | None = None
    told: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # the total as the coordinator is told it

    @property
    def gain(self) -> float:
        return -np.inf if self.best is None else self.best[1].gain


Entry = tuple[int, "Node | None", Node, "Node | None"]


@dataclass
class Job:
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
    nodes: dict[int, Node] = field(default_factory=dict)
    open: list[Node] = field(default_factory=list)  # with a known split, not yet cut
    cutting: list[Node] = field(default_factory=list)
    tree: dict[int, StoredNode] = field(default_factory=dict)
    leaves: int = 1


@dataclass
class Boosting:
    """All that the label holder keeps while models grow in lock-step."""

    me: str
    labels: Labels
    outputs: int
    order: list[str]  # of the parties, in which ties fall
    models: list[Model]
    own: SplitRecords = field(default_factory=SplitRecords)  # own cuts
    jobs: list[Job] = field(default_factory=list)
    # Of the encrypted form alone:
    scheme: str = "auto"
    bits: int = 0
    sums: str = "encrypted"
    noise: LabelNoise | None = None
    wanted: list[Entry] = field(default_factory=list)
    goal: Objective | None = None
    layout: GradientLayout | None = None

    @property
    def objective(self) -> Objective:
        """What the models minimise."""
        return self.goal or Objective(self.labels)

    def settings(self, job: Job) -> TreeSettings:
        return self.models[job.model].settings


def make_node(job: Job, number: int, depth: int, rows: np.ndarray) -> Node:
    train = rows[job.train[rows]]
    return Node(number, depth, rows, train, job.numbers[train].sum(axis=0))


def splittable(state: Boosting, job: Job, node: Node) -> bool:
    settings = state.settings(job)
    outputs = job.numbers.shape[1] // 2
    weight = float((node.total[outputs:] * job.units.hessian).mean())
    roomy = len(node.train) >= 2 * settings.min_rows and weight >= 2 * settings.min_child_weight
    return roomy and (settings.max_depth == 0 or node.depth < settings.max_depth)


def chosen_from(
    state: Boosting, job: Job, node: Node, hists: dict[str, Histogram], scale: float
) -> tuple[dict[str, Histogram], float]:
    """The sums from which a node's cut is chosen (``node.told``: its total), and the variance of their noise.

    Noise of this scale is in what the cut is chosen from and in nothing else: sums of children follow from exact ones.
    """
    node.told = node.total.copy()
    if state.noise is None:
        return hists, 0.0
    unit, outputs = job.units.gradient, job.numbers.shape[1] // 2
    noisy = {}
    for name, hist in hists.items():
        noisy[name] = replace(hist, sums=hist.sums.copy())
        noisy[name].sums[:, :outputs] += whole_noise((len(hist.sums), outputs), scale, unit)
    node.told[:outputs] += whole_noise((outputs,), scale, unit)
    return noisy, scale**2 * state.models[job.model].plan.bins / 2


def nodes_message(entries: list[Entry]) -> dict[str, np.ndarray]:
    """Which nodes to sum: the smaller child as one bit a row of its parent."""
    bits = [_inside(parent.rows, small.rows) for _, parent, small, _ in entries if parent]
    return {
        "job": np.array([job for job, *_ in entries], dtype=np.int32),
        "parent": np.array([-1 if parent is None else parent.number for _, parent, *_ in entries], dtype=np.int32),
        "small": np.array([small.number for _, _, small, _ in entries], dtype=np.int32),
        "big": np.array([-1 if big is None else big.number for *_, big in entries], dtype=np.int32),
        "bits": np.packbits(np.concatenate(bits)) if bits else np.zeros(0, np.uint8),
    }


def _inside(rows: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Of ascending rows, which are among ``some`` of them, ascending as well."""
    inside = np.zeros(len(rows), dtype=bool)
    inside[np.searchsorted(rows, some)] = True
    return inside


class Reader:
    """Walks through one party's answer, node by node."""

    def __init__(self, party: Party, name: str, reply: LevelSums):
        state = party.held(Boosting)
        if state.layout is None:
            raise ReplyError(name, "level_sums", "no gradients were sent for these sums")
        check_sums(name, reply, len(state.wanted))
        self.name, self.reply = name, reply
        total = int(reply["groups"].sum())
        self.filled = np.unpackbits(reply["filled"], count=total).astype(bool)
        count = int(self.filled.sum())
        self.sums = read_sums(own_key(party, state.scheme), reply["sums"], state.layout, count, name)
        self.node = self.column = self.group = self.sum = self.join = 0

    def next_node(self, name: str, parent: Node | None, small: Node, big: Node | None) -> None:
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
            above = parent.hists.get(name)
            if above is None or len(above.groups) != columns:
                raise self._other()
            if self.reply["joined"][self.node]:
                width = int(above.groups.sum())
                into = self.reply["into"][self.join : self.join + width]
                if len(into) != width or ((into < 0) | (into >= np.repeat(groups, above.groups))).any():
                    raise self._other()
                above = above.coarsened(groups, into, missing)
                self.join += width
            if above.sums.shape != sums.shape:
                raise self._other()
            big.hists[name] = above.minus(small.hists[name])
        self.node, self.column = self.node + 1, self.column + columns
        self.group, self.sum = self.group + count, self.sum + sent

    def _other(self) -> ReplyError:
        return ReplyError(self.name, "level_sums", f"party {self.name!r} answered for other columns than before")

    def finish(self) -> None:
        if self.sum != len(self.sums):
            raise ReplyError(self.name, "level_sums", f"party {self.name!r} sent another number of sums than it says")


def own_histograms(me: str, job: Job, parent: Node | None, small: Node, big: Node | None) -> None:
    small.hists[me] = _own_histogram(job, small)
    if parent is not None and big is not None:
        big.hists[me] = parent.hists[me].minus(small.hists[me])


def _own_histogram(job: Job, node: Node) -> Histogram:
    """Own columns need no encryption."""
    groups = np.array([b.count for b in job.bins], dtype=np.int64)
    starts = np.append(0, np.cumsum(groups))
    sums = np.zeros((int(starts[-1]), job.numbers.shape[1]), dtype=np.int64)
    rows = np.zeros(len(sums), dtype=np.int64)
    weights = np.asfortranarray(job.numbers[node.train], dtype=np.float64)
    every = len(node.train) == len(job.codes)

    def count(column: int) -> None:
        here, width = slice(starts[column], starts[column + 1]), int(groups[column])
        codes = job.codes[:, column] if every else job.codes[:, column].take(node.train)
        rows[here] = np.bincount(codes, minlength=width)
        for value in range(sums.shape[1]):
            sums[here, value] = np.rint(np.bincount(codes, weights=weights[:, value], minlength=width))

    side_by_side(count, range(len(groups)))
    ordered = np.array([b.ordered for b in job.bins], dtype=bool)
    missing = np.array([b.missing for b in job.bins], dtype=bool) & ordered
    return Histogram(sums, groups, ordered, missing, rows)


def cut_own(state: Boosting, job: Job, node: Node, split: Split) -> tuple[np.ndarray, int]:
    """Which rows of the node go left at one of the label holder's own columns, and the number of the record."""
    record = state.own.add(job.bins[split.column], split.left, split.unseen_left)
    column = int(job.columns[state.me][split.column])
    use = state.models[job.model].uses.setdefault(state.me, {}).setdefault(column, [0, 0.0])
    use[0], use[1] = use[0] + 1, use[1] + split.gain
    return split.left[job.codes[node.rows, split.column]], record


def make_children(job: Job, node: Node, party: str, record: int, left: np.ndarray) -> tuple[Node, Node]:
    """Write the cut into the tree; its two nodes."""
    first = max(job.nodes) + 1
    pair = (
        make_node(job, first, node.depth + 1, node.rows[left]),
        make_node(job, first + 1, node.depth + 1, node.rows[~left]),
    )
    for child in pair:
        job.nodes[child.number] = child
    job.tree[node.number] = StoredNode(None, party, record, first, first + 1)
    return pair
