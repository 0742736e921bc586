"""What a party without labels does while trees grow: sum encrypted gradients by groups of bins, and divide rows.

It sees row gradients as ciphertexts only, which rows lie together in a node (the known leak of SecureBoost: instance
spaces), and which of its own columns was cut where. Its bin edges stay in its state; the split records that a kept
model needs go into the site's own store. It sends sums over at least ``least`` rows, and for a node that is split by
one of its columns, one bit a row.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsift.core.binning import ColumnBins
from fedsift.core.checks import check_positions
from fedsift.core.ledger import Release
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.core.workers import side_by_side
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.errors import OperationRefused
from fedsift.models.boost.bins import chosen_codes, fitted_bins, held_bits, safe_groups
from fedsift.models.boost.joint_powers import GroupTable
from fedsift.models.boost.level_messages import LevelNodes, TreeJobs, check_nodes
from fedsift.models.boost.stored import Sides, SplitRecords, digest_of
from fedsift.models.boost.sums import GRADIENTS, Ask, GradientLayout, encrypted_sums, set_offsets, vouched_parts
from fedsift.mpc.pairs import check_vouched

SUM_BITS = 24.0  # of one gradient sum that the label holder reads


@dataclass
class _Job:
    """One tree: which ciphertexts are its rows, which columns take part."""

    start: int
    size: int
    place: np.ndarray  # of each row of the view: its number in the gradient set, -1 if it is not in training
    codes: np.ndarray  # bins, rows x columns
    bins: list[ColumnBins]

    def table(self, node: _Node, rows: np.ndarray) -> GroupTable:
        """Rows of training by their group in each column; which groups are asked for is not said yet."""
        nothing = np.zeros(0, np.int64)
        every = len(rows) == len(self.codes)
        return GroupTable(
            self.place[rows], self.codes, node.groups, nothing, nothing, None if every else rows, node.group_of
        )


@dataclass
class _Node:
    rows: np.ndarray
    group_of: np.ndarray  # columns x bins: the group of each bin
    groups: np.ndarray  # groups of each column
    missing: np.ndarray  # of each column: its last group holds missing values alone


@dataclass
class _Summing:
    """One round: the ciphertexts of the rows and the trees that grow from them."""

    key: PublicKey
    rows: Ciphertexts
    layout: GradientLayout
    jobs: list[_Job]
    least: int
    nodes: dict[tuple[int, int], _Node] = field(default_factory=dict)


@operation(
    "boost.receive_gradients",
    when="protection=open",
    times="20000 a session",
    discloses="control",
    about="acknowledgement",
    receives="ciphertext",
    learns="nothing: gradients, encrypted",
    min_cell="least",
    role="passive",
)
def receive_gradients(
    party: Party, *, key: PublicKey, rows: Ciphertexts, layout: dict[str, int], sets: list[np.ndarray], note: bytes,
    jobs: TreeJobs, columns: list[np.ndarray], bins: list[int], least: int,
) -> None:  # fmt: skip
    """Row ciphertexts of one round and the trees that will be grown from them, if the label holder vouches for them."""
    check_vouched(party, note, str(party.job.active), GRADIENTS, *vouched_parts(key, rows, layout, sets))
    shape = GradientLayout.read(layout, party.n_rows, key.plaintext_bits)
    train = [np.unpackbits(bits, count=party.n_rows).astype(bool) for bits in sets]
    offsets = set_offsets([int(mask.sum()) for mask in train], shape)
    if len(rows) != offsets[-1]:
        raise OperationRefused(party.name, "receive_gradients", f"{len(rows)} ciphertexts instead of {offsets[-1]}")
    places = [np.where(mask, np.cumsum(mask) - 1, -1) for mask in train]
    check_positions(party.name, "receive_gradients", "set", jobs["set"], len(sets))
    check_positions(party.name, "receive_gradients", "model", jobs["model"], min(len(bins), len(columns)))
    trees = []
    for number, model in zip(jobs["set"].tolist(), jobs["model"].tolist()):
        fitted, codes = fitted_bins(party, int(bins[model]))
        check_positions(party.name, "receive_gradients", "columns", columns[model], len(fitted))
        chosen = columns[model].astype(np.int64)
        start, size = int(offsets[number]), int(train[number].sum())
        trees.append(_Job(start, size, places[number], chosen_codes(codes, chosen), [fitted[c] for c in chosen]))
    if SplitRecords not in party.state:
        party.keep(SplitRecords())
    party.keep(_Summing(key, rows, shape, trees, int(least)))


@operation(
    "boost.level_sums", when="protection=open", times="240000 a session",
    discloses="aggregate",
    receives="pseudonymous",
    about="encrypted gradient sums over groups of bins of unnamed columns, no group below the minimum cell",
    learns="which rows lie together in a node of a tree",
    opened="aggregate: gradient sums over groups of bins of unnamed columns",
    opened_by="active",
    releases=lambda reply: Release(2 * int(np.unpackbits(reply["filled"]).sum()), SUM_BITS),
    reply={"sums": Ciphertexts, "columns": Array("i"), "groups": Array("i"), "left_out": Array("i"),
           "filled": Array("u"), "ordered": Array("b"), "missing": Array("b"), "joined": Array("b"),
           "into": Array("i")},
)  # fmt: skip
def level_sums(party: Party, *, nodes: LevelNodes) -> dict[str, Any]:
    """Sums of the smaller child of every split node (and of roots); the other child follows by subtraction."""
    state = party.held(_Summing)
    check_nodes(party.name, nodes, len(state.jobs))
    answer = _Answer()
    position = 0
    bits = np.unpackbits(nodes["bits"]).astype(bool)
    lines = [nodes["job"], nodes["parent"], nodes["small"], nodes["big"]]
    for job_number, parent, small, big in zip(*(each.tolist() for each in lines)):
        job: _Job = state.jobs[job_number]
        if parent < 0:
            child, sibling, above = np.arange(party.n_rows), np.zeros(0, np.int64), _root(job, party.n_rows)
        else:
            if (job_number, parent) not in state.nodes:
                raise OperationRefused(party.name, "level_sums", "it knows no such node above")
            above = state.nodes[job_number, parent]
            inside = bits[position : position + len(above.rows)]
            position += len(above.rows)
            if len(inside) != len(above.rows):
                raise OperationRefused(party.name, "level_sums", "these are fewer bits than the nodes above have rows")
            child, sibling = above.rows[inside], above.rows[~inside]
        into, node = _regrouped(job, above, child, sibling, state.least)
        state.nodes[job_number, small] = node
        if parent >= 0:
            state.nodes[job_number, big] = _Node(sibling, node.group_of, node.groups, node.missing)
        answer.add(job, node, None if parent < 0 else into)  # a root has no parent to bring into line
    sums = encrypted_sums(state.key, state.rows, state.layout, answer.asks)
    return {"sums": sums, **answer.shapes()}


def _root(job: _Job, rows: int) -> _Node:
    counts = np.array([b.count for b in job.bins], dtype=np.int64)
    group_of = np.tile(np.arange(max(counts, default=1), dtype=np.int16), (len(counts), 1))
    return _Node(np.arange(rows), group_of, counts, np.array([b.missing for b in job.bins], dtype=bool))


def _counted(job: _Job, node: _Node, rows: np.ndarray) -> np.ndarray:
    """Training rows in each group: columns x groups."""
    rows = rows[job.place[rows] >= 0]
    width, table = int(node.groups.max(initial=1)), job.table(node, rows)

    def count(column: int) -> np.ndarray:
        return np.bincount(table.column(column), minlength=width)

    return np.array(side_by_side(count, range(len(node.groups)))).reshape(len(node.groups), width)


def _regrouped(
    job: _Job, above: _Node, child: np.ndarray, sibling: np.ndarray, least: int
) -> tuple[list[np.ndarray] | None, _Node]:
    """The child with groups joined until neither it nor its sibling has a small one. ``None``: nothing to join."""
    same = _Node(child, above.group_of, above.groups, above.missing)
    if least <= 1 or not len(job.bins):
        return None, same
    here, there = _counted(job, above, child), _counted(job, above, sibling)
    small = ((here > 0) & (here < least)) | ((there > 0) & (there < least))
    if not small.any():
        return None, same
    into, groups, missing = [], above.groups.copy(), above.missing.copy()
    group_of = above.group_of.copy()
    for column, count in enumerate(above.groups.tolist()):
        new = safe_groups(here[column, :count], there[column, :count], least, job.bins[column].ordered)
        into.append(new)
        groups[column] = int(new.max()) + 1
        missing[column] &= count < 2 or bool(new[-1] != new[:-1].max())
        group_of[column] = new[np.minimum(group_of[column], count - 1)]
    return into, _Node(child, group_of, groups, missing)


class _Answer:
    """Collects the reply to ``level_sums``: what to sum, and how the sums are to be read."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.columns: list[int] = []
        self.joined: list[bool] = []
        self.parts: dict[str, list[np.ndarray]] = {
            name: [] for name in ("groups", "left_out", "filled", "ordered", "missing", "into")
        }

    def add(self, job: _Job, node: _Node, into: list[np.ndarray] | None) -> None:
        rows = node.rows[job.place[node.rows] >= 0]
        columns = len(node.groups)
        starts = np.concatenate([[0], np.cumsum(node.groups)]).astype(np.int64)
        counted = _counted(job, node, rows)
        sizes = counted[np.arange(counted.shape[1]) < node.groups[:, None]]
        left_out = np.array([sizes[a:b].argmax() for a, b in itertools.pairwise(starts)], dtype=np.int64)
        sizes[(starts[:-1] + left_out).astype(np.int64)] = 0
        sent = sizes > 0
        table = replace(job.table(node, rows), left_out=left_out, sizes=sizes)
        self.asks.append(Ask(job.start, job.size, table))
        self.columns.append(columns)
        self.joined.append(into is not None)
        ordered = np.array([b.ordered for b in job.bins], dtype=bool)
        # A category column's missing values are one more category.
        for name, value in (("groups", node.groups), ("left_out", left_out), ("filled", sent.astype(np.uint8)),
                            ("ordered", ordered), ("missing", node.missing & ordered)):  # fmt: skip
            self.parts[name].append(value)
        self.parts["into"] += into or []

    def shapes(self) -> dict[str, Any]:
        kinds = {"groups": np.int16, "left_out": np.int16, "into": np.int16, "ordered": bool, "missing": bool}
        flat = {
            name: (np.concatenate(values) if values else np.zeros(0)).astype(kinds.get(name, np.uint8))
            for name, values in self.parts.items()
        }
        flat["filled"] = np.packbits(flat["filled"])
        return {"columns": np.array(self.columns, dtype=np.int32), "joined": np.array(self.joined, dtype=bool), **flat}


@operation(
    "boost.divide",
    when="protection=open",
    times="240000 a session",
    discloses="pseudonymous",
    receives="aggregate",
    about="for nodes cut by one of its columns: which rows go left, one bit a row",
    learns="which of its columns was cut, and between which of its bins",
    reply={"bits": Array("u"), "records": Array("i")},
)
def divide(party: Party, *, cuts: dict[str, np.ndarray]) -> dict[str, Any]:
    """Cut nodes. Bin edges and column names stay here; the record's number is what others get."""
    state, records = party.held_here(_Summing), party.held(SplitRecords)
    held = max(held_bits(np.array([bins.count - 1 for bins in job.bins])) for job in state.jobs)
    sides, numbers, first = [], [], len(records.records)
    lefts = np.unpackbits(cuts["left"]).astype(bool)
    position = 0
    for job_number, number, column, unseen in zip(
        cuts["job"].tolist(), cuts["node"].tolist(), cuts["column"].tolist(), cuts["unseen_left"].tolist()
    ):
        job: _Job = state.jobs[job_number]
        node: _Node = state.nodes[job_number, number]
        if not 0 <= column < len(job.bins):
            raise OperationRefused(party.name, "divide", "a column number is out of range")
        bins, count = job.bins[column], int(node.groups[column])
        left_groups = lefts[position : position + count]
        position += count
        left_bins = left_groups[node.group_of[column, : bins.count]]
        sides.append(left_bins[job.codes[node.rows, column]])
        told = Sides(f"{first} {job_number}", held, digest_of(left_bins[job.codes[:, column]]))
        numbers.append(records.add(bins, left_bins, unseen, told))
    party.site.tell_sides(party, "boost.divide", len(set(cuts["job"].tolist())), held)
    flat = np.concatenate(sides) if sides else np.zeros(0, bool)
    return {"bits": np.packbits(flat), "records": np.array(numbers, dtype=np.int64)}
