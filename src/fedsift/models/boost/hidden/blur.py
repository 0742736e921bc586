"""What keeps exact equations out of the sums that the coordinator opens: noise as large as the largest row of a node.

Exact sums of unnamed cuts give records: where two cuts differ by one row their sums differ by its gradient and hessian,
and with the gradients of a small node's rows each cut is a subset-sum problem that lattice reduction solves
(``audit/attacks/cut_sums.py``: 81 % of Sonar's rows from 20 trees). So the label holder adds to each of its shares
before they leave a normal number whose deviation is ``WIDTH`` times the largest gradient of the node's rows (of
hessians: times the largest distance from their mean, since rows are counted exactly). The largest, not the usual one: a
row of a rare class is many times the root mean square of all, and would stand out. (Where the label is a number, at
most ``FAR`` times the root mean square: rows farther out than that are hidden less.) Of nodes that cannot be cut again
it sends uniform numbers: nobody needs their sums.

**What it is worth.** Take any row of a node and one opened sum: whether the row is on the left moves the sum by at most
one deviation (``WIDTH`` 1), so that whoever knows everything else and guesses from even odds is right at most
Phi(1/2) = 0.69 of the time (the sum is 1/2-zCDP in that bit). Sums of other nodes, trees and columns add up, so it is
no differential privacy of a row (that is ``epsilon``, for labels): a sum still tells what it tells about many rows.
The largest number is rounded up, so that the coordinator may be told how large the noise is: gains are compared with
allowance for it, and the label holder chooses among its own cuts from sums that are as noisy.

**It cannot be averaged away.** The noise of a cut repeats if and only if its sum does: it is a pseudorandom function,
under the label holder's secret, of the node's rows and their numbers, and of a salt of the cut's own rows, which the
other party derives under its secret and sends sealed. So columns that are copies of one another, models of a lock-step
group, other numbers of bins and other jobs get the same noise for the same sum, and a run can be repeated. A cut and
its mirror image (a column turned over) have one salt, and noise of opposite sign, as their sums are. What is left: cuts
that differ in other nodes but agree in a small one have noise of their own. The label holder sees which of the unnamed
cuts of a party are the same.

Under an epsilon this noise comes on top of the other, in a width that no label decides: the largest gradient there is
(hessians follow from what was released before).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedsift.core.identity import rows_digest
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import frame
from fedsift.errors import ReplyError
from fedsift.models.boost.growing_tree import Boosting, Job, Node, chosen_from, own_histograms
from fedsift.models.boost.hidden.cuts import Flags, TreeCuts
from fedsift.models.boost.hidden.shares import pack
from fedsift.models.boost.privacy import running_noise
from fedsift.models.boost.rounds import counted
from fedsift.models.boost.tree import Split, best_split
from fedsift.mpc.ring import Ring, stream, uniform

#: Times the largest number of a row of the node; 0: exact sums.
WIDTH = 1.0
#: Where the label is a number: times the root mean square of the node's gradients, at most.
FAR = 3.0
#: Gains are compared less so many times what noise gains in the mean: the best of some hundred cuts gains more.
ALLOWED = 4.0
_SALT_BYTES = 8
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)


def width_of(party: Party) -> float:
    """As the accepted job says; methods without a word for it have the usual width. Where no sum is opened: none."""
    told = {} if party.run.job is None else party.run.job.parameters
    if told.get("protection") == "all":
        return 0.0
    width = told.get("sum_noise")
    return WIDTH if width is None else float(width)


# --- what the noise hangs on ------------------------------------------------------------------------------------------


@dataclass
class RowOrder:
    """The rows in the order of their ids, so that nothing hangs on how a file is sorted."""

    order: NDArray[np.int64]
    places: NDArray[np.int64]  # of each row in this order
    digest: bytes

    @classmethod
    def of(cls, party: Party) -> RowOrder:
        order = party.table.by_id
        return cls(order, np.argsort(order), rows_digest(party.table))

    def key(self, party: Party, purpose: bytes) -> bytes:
        return hmac.new(party.site.secret, frame(purpose, self.digest), hashlib.sha256).digest()


@dataclass
class Salts:
    """Of each candidate cut: the same for cuts that divide all rows alike, ``turned`` where left and right are swapped.

    Pseudorandom to who lacks the party's secret; nothing where no noise is drawn.
    """

    words: Ring
    turned: Flags

    @classmethod
    def of(cls, party: Party, rows: RowOrder, bits: Flags) -> Salts:
        """``bits``: rows x candidates, which rows go left."""
        if width_of(party) == 0:
            return cls(np.zeros(0, np.uint64), np.zeros(0, bool))
        key = rows.key(party, b"boost: salts of cuts")
        ordered = bits[rows.order].T
        left, right = (_words(key, np.packbits(side, axis=1)) for side in (ordered, ~ordered))
        return cls(left ^ right, right < left)

    @classmethod
    def together(cls, parts: list[Salts]) -> Salts:
        """Of the pieces of a table of cuts, one after the other."""
        words, turned = [part.words for part in parts], [part.turned for part in parts]
        return cls(np.concatenate([np.zeros(0, np.uint64), *words]), np.concatenate([np.zeros(0, bool), *turned]))

    def chosen(self, candidates: NDArray[np.int64]) -> Salts:
        return Salts(self.words[candidates], self.turned[candidates])


def _words(key: bytes, lines: NDArray[np.uint8]) -> Ring:
    told = [hashlib.blake2b(line.tobytes(), key=key, digest_size=_SALT_BYTES).digest() for line in lines]
    return np.frombuffer(b"".join(told), dtype="<u8").astype(np.uint64)


@dataclass
class Hidden:
    """What a party sends of its candidate cuts: a bit a row under a mask, and their salts."""

    cuts: Ring = field(repr=False)
    salts: Salts = field(repr=False)

    def as_dict(self) -> dict[str, object]:
        return {"cuts": self.cuts, "salts": self.salts.words, "turned": self.salts.turned}

    @classmethod
    def read(cls, told: object, shape: tuple[int, int], salted: bool, sender: str) -> Hidden:
        """At the label holder, out of a sealed box."""
        if not isinstance(told, dict) or set(told) != {"cuts", "salts", "turned"}:
            raise ReplyError(sender, "hide_cuts", "what it sent are no hidden cuts")
        cuts, words, turned = told["cuts"], told["salts"], told["turned"]
        if not isinstance(cuts, np.ndarray) or cuts.dtype != np.uint64 or cuts.shape != shape:
            raise ReplyError(sender, "hide_cuts", "it hid another number of rows or cuts than it described")
        wanted = (shape[1] if salted else 0,)
        for part, kind in ((words, np.uint64), (turned, np.bool_)):
            if not isinstance(part, np.ndarray) or part.dtype != kind or part.shape != wanted:
                raise ReplyError(sender, "hide_cuts", "the salts of its cuts are not one for each")
        return cls(cuts, Salts(words, turned))


# --- noise ------------------------------------------------------------------------------------------------------------


def blurred(
    boosting: Boosting, job: Job, nodes: list[Node | None], noises: list[NodeNoise | None], tree: TreeCuts,
    salts: Salts, share: Ring,
) -> Ring:  # fmt: skip
    """Shares of a tree's sums (nodes x candidates x (outputs + 1)), as they may be opened.

    The shares that the next level is made of have no noise. ``salts``: of all candidates, also of those that the tree
    may not use.
    """
    out = share.copy()
    alive = np.array([node is not None for node in nodes])
    if boosting.noise is not None:
        scale = boosting.noise.level_scale(*counted(boosting.me, job.columns))
        private = running_noise(len(nodes), tree.columns, int(tree.blocks.sum()), scale, job.units.gradient)
        out[:, :, 0] += pack(private, np.zeros_like(private))
    out[~alive] = uniform((int((~alive).sum()), *share.shape[1:]))
    if share.shape[1] and any(noise is not None for noise in noises):
        mine = salts.chosen(tree.candidates)
        for place, noise in enumerate(noises):
            if noise is not None:
                out[place, :, :-1] += pack(*noise.of_cuts(mine))
    return out


@dataclass
class NodeNoise:
    """The noise of one node's sums: its seed, and of each output the deviations of gradients and hessians."""

    seed: bytes = field(repr=False)
    sizes: list[tuple[float, float]]

    @classmethod
    def of(cls, party: Party, boosting: Boosting, job: Job, node: Node, rows: RowOrder, width: float) -> NodeNoise:
        """It hangs on which rows these are, and their numbers."""
        here = node.train[np.argsort(rows.places[node.train])]
        content = frame(rows.places[here].tobytes(), job.numbers[here].tobytes())
        seed = hmac.new(rows.key(party, b"boost: noise"), content, hashlib.sha256).digest()
        return cls(seed, _sizes(boosting, job, job.numbers[here], width))

    @property
    def gradient(self) -> float:
        """The largest deviation in sums of gradients."""
        return max(gradient for gradient, _ in self.sizes)

    def of_cuts(self, salts: Salts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Candidates x outputs, of gradients and of hessians."""
        side = np.where(salts.turned, -1, 1)[:, None]
        drawn = [_normal(_words_for(self.seed, k, salts), *size) for k, size in enumerate(self.sizes)]
        return side * np.stack([g for g, _ in drawn], axis=1), side * np.stack([h for _, h in drawn], axis=1)

    def of_own(self, groups: int) -> NDArray[np.int64]:
        """For the label holder's own cuts (2 x groups x (2 * outputs)): they must win by what they are worth, not
        because theirs are the only sums without noise."""
        words = [stream(self.seed, "boost: own", k, (2, groups)) for k in range(len(self.sizes))]
        drawn = [_normal(word, *size) for word, size in zip(words, self.sizes)]
        return np.stack([g for g, _ in drawn] + [h for _, h in drawn], axis=2)


def _sizes(boosting: Boosting, job: Job, numbers: NDArray[np.int64], width: float) -> list[tuple[float, float]]:
    half = numbers.shape[1] // 2
    table = numbers.astype(np.float64)
    most = np.abs(table[:, :half]).max(axis=0)
    if boosting.labels.task == "regression":
        most = np.minimum(most, FAR * np.sqrt((table[:, :half] ** 2).mean(axis=0)))
    if boosting.noise is not None:
        most = np.full(half, 1 / job.units.gradient)
    apart = np.abs(table[:, half:] - table[:, half:].mean(axis=0)).max(axis=0)
    return [(width * g, width * h) for g, h in zip(_rounded(most), _rounded(apart))]


def _rounded(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Up to the next quarter power of two: how large the noise is may be told, the largest number may not."""
    return np.where(sizes > 0, 2.0 ** (np.ceil(4 * np.log2(np.maximum(sizes, 1e-300))) / 4), 0.0)


def _words_for(seed: bytes, output: int, salts: Salts) -> Ring:
    """A word a salt: tables of random words, one for each byte of a salt, of which the chosen ones are added
    (tabulation hashing: any three that differ are independent)."""
    tables = stream(seed, "boost: noise", output, (_SALT_BYTES, 256))
    picked = salts.words[:, None].astype("<u8").view(np.uint8).reshape(-1, _SALT_BYTES)
    return np.asarray(np.bitwise_xor.reduce(tables[np.arange(_SALT_BYTES), picked], axis=1))


def _normal(words: Ring, gradient: float, hessian: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Whole numbers of these deviations, from the halves of uniform words."""
    g, h = (ndtri((half.astype(np.float64) + 0.5) / 2.0**32) for half in (words >> _HALF, words & _LOW))
    return np.rint(g * gradient).astype(np.int64), np.rint(h * hessian).astype(np.int64)


# --- the label holder's own columns while trees grow on shares: sums of every node, and the best cut there ---


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
