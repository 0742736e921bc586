"""What the two ends of the layer under lattice encryption send and keep, and the notes that vouch for what is sent.

Everything passes through the coordinator, which could put keys, ciphertexts and numbers of its own in their place. With
a key of its own it would read gradients; with an answer of its own a party would take its embedding off for it; with
numbers added to the masked activations of a row the loss would say which label the row has. So each end vouches in
sealed notes for what it sends (``mpc/pairs.py``), and the loss is told of whole epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedsift.core.checks import check_known
from fedsift.core.message import encode
from fedsift.core.party import Party
from fedsift.crypto.bfv import DEGREE, LatticeAnswers, LatticeCiphertexts, LatticePublicKey, LatticeSecretKey
from fedsift.errors import OperationRefused, ReplyError
from fedsift.models.splitnn.layers.block_product import Plan
from fedsift.mpc.pairs import check_vouched, vouch

Ring = NDArray[np.uint64]
KEYS, ROWS, ANSWER, OPENED, GRADIENTS = (f"lattice {what}" for what in ("keys", "rows", "answer", "opened", "steps"))


class LatticeKeys(TypedDict):
    """A party's public keys: of products with weights, and of changes of weights."""

    value: LatticePublicKey
    weight: LatticePublicKey
    note: bytes


class _Forward(TypedDict):
    forward: LatticeCiphertexts
    note: bytes


class LatticeRows(_Forward, total=False):
    """A party's embeddings of some rows under its keys; for training also what gradients take."""

    weights: LatticeCiphertexts
    back: LatticeCiphertexts


class LatticeAnswer(TypedDict):
    """For a party, under its key: the activations of its rows under the label holder's mask."""

    forward: LatticeAnswers
    note: bytes


class Activations(TypedDict):
    """The same, opened."""

    masked: Ring
    note: bytes


class LatticeGradients(TypedDict):
    """For a party, under its keys: the change of its share, and the gradient of its embedding."""

    weights: LatticeAnswers
    back: LatticeAnswers
    note: bytes


def vouched(party: Party, about: str, to: str, content: Mapping[str, object]) -> dict[str, object]:
    """What goes to one peer, with the note that vouches for it."""
    return {**content, "note": vouch(party, about, encode(content), to=[to])[to]}


def checked(party: Party, about: str, sender: str, sent: object) -> dict[str, Any]:
    """At the peer: what ``sender`` has sent, and nothing else."""
    note = sent.get("note") if isinstance(sent, Mapping) else None
    if not isinstance(sent, Mapping) or not isinstance(note, bytes):
        raise ReplyError(sender, "lattice", f"party {sender!r} vouches for nothing")
    content = {name: value for name, value in sent.items() if name != "note"}
    check_vouched(party, note, sender, about, encode(content))
    return content


@dataclass(frozen=True)
class Plans:
    """The three products, from public sizes alone."""

    forward: Plan
    weights: Plan
    back: Plan

    @classmethod
    def of(cls, rows: int, width: int, outputs: int) -> Plans:
        return cls(
            Plan.choose(DEGREE, rows, width, outputs, "left"), Plan.choose(DEGREE, width, rows, outputs, "left"),
            Plan.choose(DEGREE, rows, outputs, width, "right"),
        )  # fmt: skip


@dataclass
class OwnEnd:
    """A party's side of one network: its keys, and of the batch under way the embeddings as ring elements."""

    value: LatticeSecretKey
    weight: LatticeSecretKey
    sent: tuple[Ring, Plans] | None = None


@dataclass(frozen=True)
class PeerKeys:
    """A party's public keys, as its note vouches for them."""

    value: LatticePublicKey
    weight: LatticePublicKey


@dataclass
class Weighed:
    """At the label holder, of a party's batch: its ciphertexts, ready for products, and the mask on its activations."""

    ready: dict[str, Any]
    mask: Ring
    plans: Plans


@dataclass(frozen=True)
class Weighings:
    """The batches under way at the label holder: network -> party -> batch. Made anew with each, never changed."""

    of: Mapping[str, Mapping[str, Weighed]]


@dataclass
class Ends:
    """A party's sides of the networks of this run: its own keys, and as the label holder its peers'."""

    own: dict[str, OwnEnd] = field(default_factory=dict)
    peers: dict[str, dict[str, PeerKeys]] = field(default_factory=dict)


def ends_of(party: Party) -> Ends:
    return party.held(Ends) if Ends in party.state else party.keep(Ends())


def own_end(party: Party, model: str) -> OwnEnd:
    check_known(party.name, "lattice", "keys of a network", model, ends_of(party).own)
    return ends_of(party).own[model]


def peer_keys(party: Party, model: str) -> dict[str, PeerKeys]:
    check_known(party.name, "lattice", "keys of a network", model, ends_of(party).peers)
    return ends_of(party).peers[model]


def keep_weighed(party: Party, model: str, weighed: dict[str, Weighed]) -> None:
    before = party.held(Weighings).of if Weighings in party.state else {}
    party.keep(Weighings({**before, model: weighed}))


def weighed_of(party: Party, model: str) -> Mapping[str, Weighed]:
    weighed = party.held(Weighings).of.get(model)
    if not weighed:
        raise OperationRefused(party.name, "lattice", "an earlier step of this run must come first; it was not asked")
    return weighed


@dataclass
class Epoch:
    """At the label holder: loss and score of each batch of an epoch, told when all its rows were seen, each once."""

    number: int = -1
    rows: int = 0
    seen: dict[int, dict[str, float]] = field(default_factory=dict)

    def begin(self, party: Party, epoch: int, start: int, batch_size: int) -> None:
        """Before a batch is trained on."""
        if epoch > self.number:
            self.number, self.rows, self.seen = epoch, 0, {}
        if epoch < self.number or start % batch_size or start in self.seen:
            raise OperationRefused(party.name, "lattice", "there is no such batch, or it was trained on before")

    def add(self, start: int, rows: int, seen: dict[str, float], whole: int) -> dict[str, float | None]:
        """After it; nothing is told before the last."""
        self.seen[start], self.rows = seen, self.rows + rows
        if self.rows != whole:
            return dict.fromkeys(seen)
        return {name: float(np.mean([each[name] for each in self.seen.values()])) for name in seen}
