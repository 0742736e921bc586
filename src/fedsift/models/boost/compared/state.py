"""What a party keeps of boosting on shares, and how two talks run: with its peer about cuts, with all about rows.

Everything about rows (scores, gradients, who is in a node) is split in two: one share is the label holder's, the other
is held by every other party alike, drawn from a seed that the dealer gives to all of these. So each of them can
multiply its own columns with it, and one of them, always the same, speaks for them; the others hear what the label
holder says.
Each of them alone has uniform numbers. The label holder together with any other party has both shares.

A talk is a party's side of a program that runs with another party, message by message, sealed from the coordinator.

Models of a group grow in lock-step: a step of a program is about the trees of all of them, one after the other in its
arrays, so that every mask is drawn once, for a place in these. Trees are told deepest first: those that go on below a
level are the first ones of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsift.core.operation import ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import OperationRefused
from fedsift.models.boost.compared.program import Ending, Rows, Shape, Sums, Winners, flat_sums
from fedsift.models.boost.compared.scales import Limits, Scales
from fedsift.models.boost.growing_tree import Boosting, Model
from fedsift.models.boost.hidden.cuts import TreeCuts
from fedsift.models.boost.hidden.passive import HiddenCuts
from fedsift.models.boost.hidden.shares import Level, Piece, Tree, level_products, next_histogram
from fedsift.models.boost.plan import Plan
from fedsift.mpc.comparing import Message, Program
from fedsift.mpc.dealer import Bits, Dealt
from fedsift.mpc.fractions import Fractions
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import Ring
from fedsift.mpc.row_programs import Words
from fedsift.mpc.talking import Talk as Talk

_COMPARING = "boost: comparing"


def purpose(peer: str) -> str:
    """Of the dealer's randomness for the label holder and this party."""
    return f"boost: comparing with {peer}"


@dataclass
class Talks:
    """All of a party's talks, by peer."""

    of: dict[str, Talk]

    def sealed(self, pairs: Pairs, peer: str, message: Message) -> SealedBox:
        talk = self.of[peer]
        box = pairs.seal(message, to=peer, about=_COMPARING, number=talk.number)
        talk.number += 1
        return box


@operation(
    "boost.compare",
    when="protection=all",
    discloses="masked",
    receives="masked",
    about="numbers of one step of comparing cuts, each under a fresh mask, sealed for the other party",
    opened="nobody",
    learns="nothing: numbers under masks that it does not have",
    concerns="own columns and labels",
    reply=ByName(SealedBox),
    times="20000000 a session",
)
def compare(party: Party, *, boxes: dict[str, SealedBox]) -> dict[str, SealedBox]:
    """One step of every program under way; nothing comes back from those that have ended."""
    talks, pairs, answers = party.held(Talks), party.held(Pairs), {}
    for name, box in boxes.items():
        if name not in talks.of:
            raise OperationRefused(party.name, "compare", f"it compares nothing with {name!r}")
        talk = talks.of[name]
        theirs = pairs.open(box, sender=name, about=_COMPARING, number=talk.number - 1)
        message = talk.hear(name, theirs)
        if message is not None:
            answers[name] = talks.sealed(pairs, name, message)
    return answers


_ROWS = "boost: rows"


@dataclass
class Grown:
    """A party's part of the trees of one model: of every node (level after level) the number of its own cut or -1 and
    the column of it, of every leaf a share, of every cut a share of its gain."""

    cuts: list[list[int]] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    leaves: list[list[int]] = field(default_factory=list)
    gains: list[Ring] = field(default_factory=list, repr=False)

    def cut_off(self, trees: int, depth: int) -> None:
        """Keep so many trees."""
        del self.cuts[trees:], self.leaves[trees:], self.gains[trees:], self.columns[trees * (2**depth - 1) :]


@dataclass
class Growing:
    """Trees that grow together, one a model, the deepest first."""

    trees: list[Tree]  # ``model``: the place in the group
    # own candidates of every tree, and those of the parties whose products this party has a share of:
    cuts: dict[str, list[TreeCuts]]
    level: int = 0
    rows: Rows | None = field(default=None, repr=False)
    histograms: dict[str, list[Ring]] = field(default_factory=dict, repr=False)  # of the trees
    totals: list[Sums] = field(default_factory=list, repr=False)  # of the nodes, level after level
    bests: dict[str, Fractions] = field(default_factory=dict, repr=False)
    won: Winners | None = field(default=None, repr=False)
    left: list[Ring] = field(default_factory=list, repr=False)  # what the cuts send left, level after level
    own: list[list[int]] = field(default_factory=list)  # of every node of a tree, the number of the own cut or -1
    going: Bits | None = field(default=None, repr=False)  # share of who goes left at the cuts of the level
    ends: list[Ending] = field(default_factory=list, repr=False)  # of the trees
    leaves: list[Ring] = field(default_factory=list, repr=False)  # of the trees

    def now(self) -> Level:
        return Level.of(self.trees, self.level)

    @property
    def going_on(self) -> int:
        """How many trees (the first ones) are deeper than this level."""
        return len(Level.of(self.trees, self.level + 1).trees)

    @property
    def models(self) -> list[int]:
        return [tree.model for tree in self.trees]

    @property
    def leaf_parts(self) -> list[range]:
        """Which of the nodes and leaves of all trees are a tree's."""
        return nodes_and_leaves(self.trees)


@dataclass
class Learning:
    """A model of the group that is under way."""

    number: int  # of all models of the run
    plan: Plan
    scales: Scales
    due: int  # trees to come before its scores may be shown, once
    summed: bool = False  # its gains were opened, once
    # with early stopping (``stopping.py``):
    unseen: bool = False  # the loss after the last tree has not been compared
    best: int = 0  # a share of the smallest loss so far
    seen: list[int] = field(default_factory=list, repr=False)  # shares of whether the last trees made it smaller


@dataclass
class Shares:
    """State of a run."""

    number: int  # 0: the label holder
    holder: str
    first: str  # who speaks for the other parties
    rows: Talk
    common: Dealt | None = field(default=None, repr=False)  # the other parties' common randomness
    step: int = 0  # of all levels of the run
    told: int = 0  # messages about rows
    scales: Scales | None = None  # of the models under way: their units are the same
    scores: Words = field(default_factory=lambda: np.zeros((0, 0), np.uint16), repr=False)  # of these models x rows
    models: dict[int, Grown] = field(default_factory=dict)
    outputs: int = 1  # of every booster: a model a class where there are more than two
    group: list[Learning] = field(default_factory=list)
    due: int = -1  # of a kept model: trees to come before the scores may be shown, once
    gains: Learning | None = None  # the model whose gains are summed
    summed: int = 0  # models whose gains were opened
    walks: bool = False  # down the trees of a kept model
    samplers: dict[int, np.random.Generator] = field(default_factory=dict, repr=False)  # the label holder's
    now: Growing | None = None

    def growing(self, party: Party) -> tuple[Growing, Scales]:
        if self.now is None or self.scales is None:
            raise OperationRefused(party.name, "boosting", "no tree is growing")
        return self.now, self.scales

    def limits(self, now: Growing, nodes: Sequence[int]) -> Limits:
        """Of so many nodes of each of the first of these trees."""
        return Limits.of([self.group[model].scales for model in now.models[: len(nodes)]], nodes)

    def grown(self, place: int) -> Grown:
        """Of a model of the group."""
        return self.models[self.group[place].number]

    def learner(self, boosting: Boosting, place: int) -> tuple[Model, int]:
        """At the label holder: the booster of a model of the group, and the class that it tells from the rest."""
        booster, output = divmod(self.group[place].number, self.outputs)
        return boosting.models[booster], output

    def speaks(self, party: Party) -> bool:
        return party.name in (self.holder, self.first)

    def owners(self, me: str, peer: str) -> list[str]:
        """Whose columns two parties compare: those of the one without labels, and the label holder's with the first."""
        other = peer if self.number == 0 else me
        return [other, self.holder] if other == self.first else [other]

    def begin_rows(self, party: Party, program: Program[object], corrections: list[np.ndarray]) -> dict[str, SealedBox]:
        """The first message of a program about rows, for those who need it."""
        self.rows.source.corrections = list(corrections)
        return self.sealed(party, self.rows.begin(program))

    def sealed(self, party: Party, message: list[np.ndarray]) -> dict[str, SealedBox]:
        pairs, number = party.held(Pairs), self.told
        self.told += 1
        if self.number == 1 and party.name != self.first:
            return {}
        to = pairs.peers if self.number == 0 else [self.holder]
        return {name: pairs.seal(message, to=name, about=_ROWS, number=number) for name in to}

    def hear_rows(self, party: Party, boxes: dict[str, SealedBox]) -> dict[str, SealedBox]:
        """One step; nothing comes back at the end."""
        sender = self.first if self.number == 0 else self.holder
        if set(boxes) != {sender}:
            raise OperationRefused(party.name, "boosting", "a step about rows is heard from one party")
        theirs = party.held(Pairs).open(boxes[sender], sender=sender, about=_ROWS, number=self.told - 1)
        message = self.rows.hear(sender, theirs)
        return {} if message is None else self.sealed(party, message)

    def masked_cuts(self, party: Party, others: list[str], rows: int, nodes: int) -> tuple[Bits, Bits]:
        """Where not the label holder: the mask of its own cuts of a level, and the share of all of them."""
        assert self.common is not None
        masks = {
            name: self.common.bits(f"boost: cuts of {name}", self.step, nodes, rows) for name in [party.name, *others]
        }
        return masks[party.name], np.bitwise_xor.reduce(list(masks.values()))


# --- sums of a level -------------------------------------------------------------------------------------------------


def own_products(party: Party, state: Growing, values: Ring, counts: np.ndarray) -> list[Ring]:
    """Own candidates, in the clear, times the own share of the level's rows."""
    pieces = {}
    for bins in {tree.bins for tree in state.now().trees}:
        own = party.held(HiddenCuts).cuts[bins]
        parts = own.layout.pieces(party.n_rows)
        pieces[bins] = [Piece(first, last, own.bits(first, last).astype(np.uint64)) for first, last in parts]
    return level_products(state.now(), pieces, state.cuts[party.name], values, counts)


def keep_histograms(state: Growing, owner: str, products: Sequence[Ring]) -> None:
    level, above = state.now(), state.histograms.get(owner)
    state.histograms[owner] = [
        next_histogram(level, tree, None if above is None else above[place], products[place])
        for place, tree in enumerate(level.trees)
    ]


def keep_totals(state: Growing, values: Ring, counts: np.ndarray) -> None:
    """Shares of the sums of the level's nodes; ``values``: rows x summed nodes."""
    sums, rows = values.sum(axis=0, dtype=np.uint64), counts.sum(axis=0, dtype=np.uint32)
    if not state.totals:
        state.totals.append(Sums(sums, rows))
        return
    above, rest = state.totals[-1].values[: len(sums)], state.totals[-1].counts[: len(rows)]
    both = np.stack([sums, above - sums], axis=1).ravel(), np.stack([rows, rest - rows], axis=1).ravel()
    state.totals.append(Sums(*both))


def compared_sums(state: Growing, owners: list[str]) -> tuple[Shape, Sums, Sums]:
    """Candidates of these parties, group after group, and the totals of their nodes."""
    level = state.now()
    shape = Shape.of(level, [cuts for name in owners for cuts in state.cuts[name][: len(level.trees)]])
    found = [part for name in owners for part in state.histograms[name]]
    return shape, flat_sums(found), state.totals[-1].repeated(len(owners))


def by_owner(found: Fractions, owners: list[str]) -> dict[str, Fractions]:
    """The best candidates of a pair's comparison, by whose they are."""
    nodes = len(found.over) // len(owners)
    parts = [slice(place * nodes, (place + 1) * nodes) for place in range(len(owners))]
    return {name: Fractions(*(each[part] for each in found.parts())) for name, part in zip(owners, parts)}


def nodes_and_leaves(trees: Sequence[Tree]) -> list[range]:
    """Places of those of each tree, one tree after the other."""
    ends = np.cumsum([0, *(2 ** (tree.depth + 1) - 1 for tree in trees)]).tolist()
    return [range(a, b) for a, b in itertools.pairwise(ends)]


def all_totals(state: Growing) -> Ring:
    """Shares of the sums of all nodes and of the leaves of all trees, tree after tree."""
    found = []
    for place, tree in enumerate(state.trees):
        parts = [slice(place << level, (place + 1) << level) for level in range(tree.depth)]
        found += [totals.values[part] for totals, part in zip(state.totals, parts)]
        left = state.left[tree.depth - 1][parts[-1]]
        found.append(np.stack([left, found[-1] - left], axis=1).ravel())
    return np.concatenate(found)


def node_gains(scores: Ring, depth: int) -> Ring:
    """Of every node: its children's scores less its own (level after level, leaves at the end)."""
    nodes = 2**depth - 1
    node = np.arange(nodes)
    return np.asarray(scores[2 * node + 1] + scores[2 * node + 2] - scores[:nodes])
