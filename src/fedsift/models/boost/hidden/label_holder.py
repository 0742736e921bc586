"""What the label holder does: hide gradients by node, add its half of the sums, cut own columns, divide rows.

Its gradients and nodes leave it under masks, sealed. It learns which rows of a node go left at another party's cut, not
which column that is, nor any sum: those are opened by the coordinator, from two halves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import PartyName
from fedsift.core.operation import Array, ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.boost.growing_tree import (
    Boosting,
    Job,
    Node,
    cut_own,
    make_children,
    splittable,
)
from fedsift.models.boost.hidden.blur import Hidden, NodeNoise, RowOrder, Salts, blurred, own_lines, width_of
from fedsift.models.boost.hidden.cuts import Layout, Numbers, TreeCuts
from fedsift.models.boost.hidden.shares import (
    Bins,
    Corrections,
    Counts,
    Half,
    LayoutFields,
    Level,
    Piece,
    Tree,
    check_columns,
    check_corrections,
    check_openings,
    draw_counts,
    draw_shuffles,
    level_products,
    masked_half,
    next_histogram,
    pack,
    read_trees,
)
from fedsift.models.boost.plan import Plan
from fedsift.models.boost.rounds import check_first_tree, new_jobs
from fedsift.mpc.dealer import Bits, Dealt, open_and
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring


@dataclass
class Peer:
    """What the label holder has of one other party."""

    name: str
    layouts: dict[int, Layout]
    hidden: dict[int, list[Piece]] = field(default_factory=dict)  # its cuts under a mask, by number of bins
    salts: dict[int, dict[int, Salts]] = field(default_factory=dict, repr=False)  # of the pieces, for noise in sums
    tree_cuts: list[TreeCuts] = field(default_factory=list)
    histograms: list[Ring | None] = field(default_factory=list)

    def salted(self, bins: int) -> Salts:
        """Of all its cuts."""
        parts = self.salts.get(bins, {})
        return Salts.together([parts[piece] for piece in sorted(parts)])


@dataclass
class HiddenGradients:
    """State of a run. ``places``: for each tree the nodes of the level, ``None`` where there is none to cut."""

    peers: dict[str, Peer]
    order: RowOrder
    step: int = 0
    summed: int = -1  # the last step whose sums were told: they have one mask
    trees: list[Tree] = field(default_factory=list)
    level: int = 0
    places: list[list[Node | None]] = field(default_factory=list)
    parents: list[list[Node | None]] = field(default_factory=list)
    values: Ring = field(default_factory=lambda: np.zeros((0, 0), np.uint64), repr=False)
    counts: Counts = field(default_factory=lambda: np.zeros((0, 0), np.uint32), repr=False)
    nodes: Bits = field(default_factory=lambda: np.zeros((0, 0), np.uint8), repr=False)

    def now(self) -> tuple[Level, list[int]]:
        return Level.of(self.trees, self.level), [n for n, tree in enumerate(self.trees) if tree.depth > self.level]


@operation(
    "boost.meet_cuts",
    when="protection=coordinator|all",
    times="1 a session",
    discloses="control",
    about="acknowledgement",
    learns="how many cuts each column has",
)
def meet_cuts(party: Party, *, bins: Bins, layouts: dict[str, list[LayoutFields]]) -> None:
    """How many candidate cuts the other parties' columns have."""
    if not set(layouts) <= set(party.held(Pairs).peers) or any(len(fields) != len(bins) for fields in layouts.values()):
        raise OperationRefused(party.name, "meet_cuts", "layouts are of the parties that it has met, one for each bins")
    peers = {}
    for name, fields in layouts.items():
        read = [Layout.read(f["counts"], f["categories"], f["counts"].size, name) for f in fields]
        peers[name] = Peer(name, dict(zip(bins, read)))
    party.keep(HiddenGradients(peers, RowOrder.of(party)))


@operation(
    "boost.keep_cuts",
    when="protection=coordinator|all",
    times="100000 a session",
    discloses="control",
    receives="masked",
    about="acknowledgement",
    learns="which of the other party's unnamed cuts are the same; nothing of the cuts: they are under a mask",
)
def keep_cuts(party: Party, *, sender: PartyName, bins: int, piece: int, box: SealedBox) -> None:
    peer = party.held(HiddenGradients).peers.get(sender)
    pieces = peer.layouts[bins].pieces(party.n_rows) if peer is not None and bins in peer.layouts else []
    if peer is None or not 0 <= piece < len(pieces):
        raise OperationRefused(party.name, "keep_cuts", "there is no such piece of anybody's cuts")
    first, last = pieces[piece]
    told = party.held(Pairs).open(box, sender=sender, about=f"boost: cuts of {bins} bins", number=piece)
    hidden = Hidden.read(told, (party.n_rows, last - first), width_of(party) > 0, sender)
    peer.hidden.setdefault(bins, []).append(Piece(first, last, hidden.cuts))
    peer.salts.setdefault(bins, {})[piece] = hidden.salts


@dataclass
class OwnSums:
    """What the label holder tells of a level: its halves; sums of each node; the best gain of its own columns there."""

    halves: dict[str, Half]
    totals: Numbers  # nodes x (gradients, hessians, rows); zeros where there is nothing to cut
    gains: NDArray[np.float64]
    sizes: NDArray[np.float64]  # the deviation of the noise in sums of gradients of each node
    units: NDArray[np.float64]  # of each tree: of gradients, of hessians

    def as_dict(self) -> dict[str, object]:
        halves = {name: half.as_dict() for name, half in self.halves.items()}
        return {"halves": halves, "totals": self.totals, "gains": self.gains, "sizes": self.sizes, "units": self.units}

    @classmethod
    def read(cls, reply: dict[str, Any], holder: str) -> OwnSums:
        """At the coordinator, from the label holder's reply."""
        halves = {name: Half.read(half, holder) for name, half in reply["halves"].items()}
        return cls(halves, reply["totals"], reply["gains"], reply["sizes"], reply["units"])


GRADIENTS = {"boxes": ByName(SealedBox), "more": bool}


@operation(
    "boost.hide_gradients",
    when="protection=coordinator",
    times="20000 a session",
    discloses="masked",
    about="gradients of the rows by node, under a mask and sealed for the other parties",
    opened="nobody",
    reply=GRADIENTS,
)
def hide_gradients(
    party: Party, *, live: list[int], columns: dict[str, list[np.ndarray]], trees: list[list[int]]
) -> dict[str, Any]:
    """One more tree of each live model (one an output): its roots."""
    state, boosting = party.held(HiddenGradients), party.held(Boosting)
    read = read_trees(trees, party)
    check_first_tree(party, boosting, live, columns)
    jobs = new_jobs(party, boosting, live, columns, sample=True)
    state.trees, state.level = read, 0
    if state.trees != [_planned(boosting.models[job.model].plan, live.index(job.model), job) for job in jobs]:
        raise ReplyError(party.name, "hide_gradients", "the trees are not those of its models")
    for peer in state.peers.values():
        chosen = columns.get(peer.name, [])
        if len(chosen) != len(live) or any(tree.bins not in peer.layouts for tree in state.trees):
            raise OperationRefused(party.name, "hide_gradients", "columns or bins of a party are missing")
        for tree in state.trees:
            check_columns(chosen[tree.model], len(peer.layouts[tree.bins].counts), party)
        peer.tree_cuts = [peer.layouts[t.bins].tree(chosen[t.model].astype(np.int64)) for t in state.trees]
        peer.histograms = [None] * len(state.trees)
    state.places = [[job.nodes[0] if splittable(boosting, job, job.nodes[0]) else None] for job in jobs]
    state.parents = [[None] for _ in jobs]
    return hidden_level(party, state, boosting)


def _planned(plan: Plan, place: int, job: Job) -> Tree:
    return Tree(place, plan.bins, plan.settings.max_depth, job.numbers.shape[1] // 2)


def hidden_level(party: Party, state: HiddenGradients, boosting: Boosting) -> dict[str, object]:
    """The gradients of the nodes that are summed, and which rows the nodes have, both under masks."""
    level, places = state.now()
    more = any(node is not None for place in places for node in state.places[place])
    if not more:
        return {"boxes": {}, "more": False}
    rows = party.n_rows
    state.values = np.zeros((rows, sum(level.summed * tree.outputs for tree in level.trees)), np.uint64)
    state.counts = np.zeros((rows, level.summed * len(level.trees)), np.uint32)
    inside = np.zeros((level.nodes * len(level.trees), rows), dtype=bool)
    for number, (place, tree) in enumerate(zip(places, level.trees)):
        _lay_out(boosting.jobs[place], state.places[place], tree, state.values[:, level.values()[number]],
                 state.counts[:, level.counts()[number]], inside[level.nodes_of()[number]])  # fmt: skip
    state.nodes = np.packbits(inside, axis=1)
    dealt, pairs = party.held(Dealt), party.held(Pairs)
    hidden = {
        "values": state.values - dealt.draw("boost: gradients", state.step, state.values.shape),
        "counts": state.counts - draw_counts(dealt, "boost: counts", state.step, *state.counts.shape),
        "nodes": state.nodes ^ dealt.bits("boost: nodes", state.step, len(inside), rows),
    }
    boxes = {
        name: pairs.seal(hidden, to=name, about="boost: gradients", number=state.step) for name in state.peers
    }  # fmt: skip
    return {"boxes": boxes, "more": True}


def _lay_out(job: Job, nodes: list[Node | None], tree: Tree, values: Ring, counts: Counts, inside: np.ndarray) -> None:
    """Fill in one tree's part. A left child is summed also where only its sibling can be cut."""
    for place, node in enumerate(nodes):
        if node is None:
            continue
        inside[place, node.rows] = True
        if place % 2 and nodes[place - 1] is not None:
            continue  # what its sibling leaves of the parent
        slot = place // 2
        summed = node if place % 2 == 0 else job.nodes[node.number - 1]
        outputs, train = tree.outputs, summed.train
        numbers = job.numbers[train]
        values[train, slot * outputs : (slot + 1) * outputs] = pack(numbers[:, :outputs], numbers[:, outputs:])
        counts[train, slot] = 1


@operation(
    "boost.own_half_sums",
    when="protection=coordinator",
    times="240000 a session",
    discloses="masked",
    about="its half of the sums, under a mask; gradient sums of nodes, and the best gain of its own columns in each",
    opened="aggregate: gradient sums of nodes and of unnamed candidate cuts (with the noise of sum_noise), the best "
    "gain of its own columns",
    concerns="own columns and labels",
    reply={
        "halves": dict,
        "totals": Array("i", 2),
        "gains": Array("f", 1, finite=False),
        "sizes": Array("f", 1),
        "units": Array("f", 2),
    },
)
def own_half_sums(party: Party, *, corrections: dict[str, Corrections]) -> dict[str, Any]:
    """With the dealer's corrections. Nodes that cannot be cut have no rows in ``totals``."""
    state, boosting, pairs = party.held(HiddenGradients), party.held(Boosting), party.held(Pairs)
    level, places = state.now()
    every = {name: [peer.tree_cuts[place] for place in places] for name, peer in state.peers.items()}
    check_corrections(corrections, level, every, party)
    if state.summed == state.step:
        raise OperationRefused(party.name, "own_half_sums", "the sums of this level were told before")
    state.summed = state.step
    if boosting.noise is not None:
        boosting.noise.use_level()
    noises = {place: node_noises(party, state, boosting, place) for place in places}
    halves = {}
    for name, peer in state.peers.items():
        cuts = every[name]
        shares = peer_shares(state, peer, corrections[name])
        sums = []
        for place, tree, part, share in zip(places, level.trees, cuts, shares):
            job, nodes = boosting.jobs[place], state.places[place]
            sums.append(blurred(boosting, job, nodes, noises[place], part, peer.salted(tree.bins), share))
        shuffles = draw_shuffles(pairs, name, state.step, level, cuts)
        halves[name] = masked_half(pairs, name, state.step, sums, cuts, shuffles)
    told = [
        own_lines(boosting, boosting.jobs[place], state.places[place], state.parents[place], noises[place])
        for place in places
    ]
    lines = [line for part in told for line in part]
    widest = max(len(line) for _, _, line in lines)
    totals = np.array([[*line, *[0] * (widest - len(line))] for _, _, line in lines], dtype=np.int64)
    gains, sizes = (np.array(part, dtype=np.float64) for part in zip(*((gain, size) for gain, size, _ in lines)))
    units = [[boosting.jobs[p].units.gradient, boosting.jobs[p].units.hessian] for p in places]
    return OwnSums(halves, totals, gains, sizes, np.array(units)).as_dict()


def node_noises(party: Party, state: HiddenGradients, boosting: Boosting, place: int) -> list[NodeNoise | None]:
    """Of the nodes of a tree; none where there is nothing to open, or exact sums were agreed."""
    job, nodes, width = boosting.jobs[place], state.places[place], width_of(party)
    if not width or not any(peer.tree_cuts[place].sent for peer in state.peers.values()):
        return [None] * len(nodes)
    return [None if n is None else NodeNoise.of(party, boosting, job, n, state.order, width) for n in nodes]


def peer_shares(state: HiddenGradients, peer: Peer, correction: Corrections) -> list[Ring]:
    """The label holder's shares of the sums of a level with one party, tree by tree."""
    level, places = state.now()
    cuts = [peer.tree_cuts[place] for place in places]
    products = level_products(level, peer.hidden, cuts, state.values, state.counts)
    sent = read_corrections(level, cuts, correction)
    for tree, place, found, part in zip(level.trees, places, products, sent):
        peer.histograms[place] = next_histogram(level, tree, peer.histograms[place], found + part)
    return [part for part in (peer.histograms[place] for place in places) if part is not None]


def read_corrections(level: Level, cuts: list[TreeCuts], sent: Corrections) -> list[Ring]:
    """U'V - C of every tree: numbers of the gradients, then of the counts."""
    found, at, row = [], 0, 0
    for tree, part in zip(level.trees, cuts):
        a, wide = len(part.candidates), level.summed * tree.outputs
        values = sent["values"][at : at + a * wide].reshape(a, wide)
        counts = sent["counts"][row : row + a * level.summed].reshape(a, level.summed).astype(np.uint64)
        found.append(np.hstack([values, counts]))
        at, row = at + a * wide, row + a * level.summed
    return found


@operation(
    "boost.divide_nodes",
    when="protection=coordinator",
    times="240000 a session",
    discloses="masked",
    receives="masked",
    about="gradients of the rows of the next level's nodes, under a mask and sealed",
    opened="nobody",
    learns="which rows of a node go left where another party's column was cut",
    reply=GRADIENTS,
)
def divide_nodes(
    party: Party, *, owners: np.ndarray, answers: dict[str, SealedBox], openings: dict[str, Bits]
) -> dict[str, Any]:
    """Cut the nodes: ``owners`` has the number of the party whose column was chosen, -1 for a leaf."""
    state, boosting, pairs = party.held(HiddenGradients), party.held(Boosting), party.held(Pairs)
    level, places = state.now()
    if len(owners) != level.nodes * len(level.trees):
        raise OperationRefused(party.name, "divide_nodes", "another number of nodes than the level has")
    if set(answers) != set(state.peers):
        raise OperationRefused(party.name, "divide_nodes", "not every party has answered")
    check_openings(owners, len(boosting.order), openings, set(state.peers), party)
    lefts = {
        name: _Lefts(name, pairs.open(box, sender=name, about="boost: left", number=state.step), openings[name])
        for name, box in answers.items()
    }
    for number, place in enumerate(places):
        job, nodes = boosting.jobs[place], state.places[place]
        below: list[Node | None] = []
        for inside, node in enumerate(nodes):
            index = number * level.nodes + inside
            owner = int(owners[index])
            pair: tuple[Node | None, Node | None] = (None, None)
            if node is not None and owner >= 0:
                pair = _divided(boosting, job, node, boosting.order[owner], lefts, state.nodes[index], party.n_rows)
            below += pair
        state.parents[place], state.places[place] = nodes, below
    state.step, state.level = state.step + 1, state.level + 1
    return hidden_level(party, state, boosting)


class _Lefts:
    """Walks through one party's answers, cut by cut."""

    def __init__(self, name: str, answer: dict[str, np.ndarray], opening: Bits):
        self.name, self.answer, self.opening, self.at = name, answer, opening, 0
        if not len(opening) == len(answer["records"]) == len(answer["hidden"]) == len(answer["answers"]):
            raise ReplyError(name, "take_cuts", "it answered for another number of cuts than were taken")

    def next(self, mine: Bits, rows: int) -> tuple[np.ndarray, int]:
        if self.at >= len(self.opening):
            raise ReplyError(self.name, "take_cuts", "it answered for fewer cuts than were taken")
        at, self.at = self.at, self.at + 1
        bits = open_and(mine, self.answer["hidden"][at], self.answer["answers"][at], self.opening[at])
        return np.unpackbits(bits, count=rows).astype(bool), int(self.answer["records"][at])


def _divided(
    boosting: Boosting, job: Job, node: Node, owner: str, lefts: dict[str, _Lefts], mine: Bits, rows: int
) -> tuple[Node | None, Node | None]:
    """The children of a node, ``None`` where neither can be cut again."""
    if owner == boosting.me:
        if node.best is None:
            raise ReplyError(owner, "divide_nodes", "an own cut that it did not offer")
        left, record = cut_own(boosting, job, node, node.best[1])
    else:
        bits, record = lefts[owner].next(mine, rows)
        left = bits[node.rows]
    pair = make_children(job, node, owner, record, left)
    first, second = (child if splittable(boosting, job, child) else None for child in pair)
    return first, second


OPERATIONS = (meet_cuts, keep_cuts, hide_gradients, own_half_sums, divide_nodes)
