"""Encrypted labels: what the label holder sends of them, and what a party takes.

The label holder encrypts something of every row (``encrypts_labels``), with a sealed note for each party to check;
a party takes nothing without that note. Labels of many rows travel in blocks, one after the other (``row_blocks``):
which rows a block has, and so how large it is, follows from the layout and the number of rows. Each has a note with its
number, so a party takes it once and in its order. ``two_halves.py`` opens what is summed of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between, LabelHolder
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import Answering, operation
from fedsift.core.party import Labels, Party, Task
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.crypto.sealed_box import SealedBox, frame
from fedsift.errors import OperationRefused, SecurityError
from fedsift.mpc.encrypted_histogram import HIDING_BITS, RowLayout, aligned_sums, encrypt_rows, own_key, row_blocks
from fedsift.mpc.pairs import Pairs

_LABELS = "encrypted labels"
MAX_BLOCKS = 1000


@dataclass
class LabelLayers:
    """What the label holder keeps of the labels that it encrypted: how to read sums of them, and who has answered."""

    scheme: str
    labels: Labels
    layouts: list[RowLayout]
    step: int = 0
    opened: set[str] = field(default_factory=set)
    columns: NDArray[np.generic] = field(default_factory=lambda: np.zeros((0, 0), np.uint8), repr=False)
    row_bits: int = 1
    blocks: list[slice] = field(default_factory=list)  # of rows, that go out one after the other
    sent: int = 0


@dataclass(frozen=True)
class EncryptedLabels:
    """The labels as a party holds them, once it has seen the label holder's note."""

    key: PublicKey
    rows: list[Ciphertexts]
    layouts: list[RowLayout]
    holder: str
    step: int = 0
    here: slice = field(default_factory=lambda: slice(None))  # the rows of this block
    last: bool = True

    @property
    def block_layouts(self) -> list[RowLayout]:
        """How the rows of this block lie in its ciphertexts."""
        return self.layouts if self.here == slice(None) else [layout.of_rows(self.here) for layout in self.layouts]

    @property
    def values(self) -> int:
        """Classes that are counted."""
        return sum(layout.values for layout in self.layouts)

    def by_bin(self, codes: np.ndarray, counts: list[int]) -> list[Ciphertexts]:
        """Encrypted sums of each layer over the bins of some columns: the bin of each row, and how many there are."""
        layers = zip(self.rows, self.layouts) if counts else ()
        return [aligned_sums(self.key, rows, layout, codes, counts) for rows, layout in layers]


Scheme = Literal["auto", "ou", "paillier"]
Layouts = list[dict[str, int]]
Answers = Annotated[int, Between(0, 10**9)]
WeightBits = Annotated[int, Between(0, 128)]


@message
@dataclass(frozen=True)
class GivenLabels:
    """Encrypted labels as one party gets them, with the label holder's note for it."""

    key: PublicKey
    rows: list[Ciphertexts]
    layouts: Layouts
    note: bytes
    holder: LabelHolder


@message
@dataclass(frozen=True)
class SentLabels:
    """Encrypted labels on their way to the parties, with a note for each."""

    key: PublicKey
    rows: list[Ciphertexts]
    layouts: Layouts
    notes: dict[str, bytes]

    def each(self, holder: str, parties: Iterable[str]) -> dict[str, dict[str, GivenLabels]]:
        """What each party is given of them."""
        return {
            name: {"given": GivenLabels(self.key, self.rows, self.layouts, self.notes.get(name, b""), holder)}
            for name in parties
        }

    def read_layouts(self, rows: int) -> list[RowLayout]:
        return [RowLayout.read(layout, rows) for layout in self.layouts]


def encrypts_labels(
    id: str, *, about: str = "class of each row, encrypted", when: str | tuple[str, ...] = (), epsilon: str = ""
) -> Callable[[Callable[..., SentLabels]], Answering[SentLabels]]:
    """Mark a step in which the label holder encrypts something of every row, for the others to sum."""
    return operation(
        id, discloses="ciphertext", about=about, opened="nobody", reply=SentLabels, role="active", concerns="labels",
        times=1, settings=("scheme",), when=when, epsilon=epsilon,
    )  # fmt: skip


@encrypts_labels("labels.encrypt_classes")
def encrypt_classes(
    party: Party, *, scheme: Scheme, task: Task, answers: Answers = 0, weight_bits: WeightBits = 0,
    in_blocks: bool = False,
) -> SentLabels:  # fmt: skip
    """Indicators of all classes but the last, which is the rest. In blocks it is the first of them."""
    labels = party.labels(task=task)
    return encrypted(
        party, scheme, labels, labels.n_classes - 1, answers=answers, weight_bits=weight_bits, in_blocks=in_blocks
    )


@operation(
    "labels.encrypt_more",
    discloses="ciphertext",
    about="class of each row (and what it counts), encrypted: the next block of rows",
    opened="nobody",
    reply=SentLabels,
    role="active",
    concerns="labels",
    after=("labels.encrypt_classes", "tables.encrypt_every_class", "tables.encrypt_weighted_classes"),
    times=f"{MAX_BLOCKS} a session",
)
def encrypt_more(party: Party) -> SentLabels:
    """The block that follows on those that went out."""
    return _next_block(party, party.held(LabelLayers))


def encrypted(
    party: Party, scheme: str, labels: Labels, counted: int, *, answers: int, weight_bits: int, step: int = 0,
    in_blocks: bool = False,
) -> SentLabels:  # fmt: skip
    """A reply: indicators of the first ``counted`` classes, so many a ciphertext as fit, and a note for each peer.

    ``answers`` is how many sums will be asked for; ``weight_bits`` leaves room for weights (or noise) of that size.
    ``step`` tells conversations of one run apart.
    """
    one_hot = (labels.codes[:, None] == np.arange(counted)).astype(np.uint8)
    return encrypted_columns(
        party, scheme, labels, one_hot, row_bits=1, answers=answers, weight_bits=weight_bits, step=step,
        in_blocks=in_blocks,
    )  # fmt: skip


def encrypted_columns(
    party: Party, scheme: str, labels: Labels, columns: np.ndarray, *, row_bits: int, answers: int,
    weight_bits: int = 0, step: int = 0, in_blocks: bool = False,
) -> SentLabels:  # fmt: skip
    """The same for any non-negative whole numbers of ``row_bits`` bits (rows x columns), made of the ``labels``."""
    key = own_key(party, scheme).public
    bits, size = key.plaintext_bits - HIDING_BITS - 1, row_bits + weight_bits
    room = max(1, bits // (size + len(columns).bit_length()))
    layouts = [
        RowLayout.fit(len(columns), len(part), size, bits, answers=answers, scheme=key.scheme)
        for part in (range(columns.shape[1])[start : start + room] for start in range(0, columns.shape[1], room))
    ]
    blocks = row_blocks(key, layouts) if in_blocks else [slice(0, len(columns))]
    return _next_block(party, party.keep(LabelLayers(scheme, labels, layouts, step, set(), columns, row_bits, blocks)))


def _next_block(party: Party, kept: LabelLayers) -> SentLabels:
    """The next rows, encrypted, with a note for each peer."""
    if kept.sent >= len(kept.blocks):
        raise OperationRefused(party.name, "encrypt_more", "all rows were sent")
    here, number = kept.blocks[kept.sent], kept.step * MAX_BLOCKS + kept.sent
    key, rows, start = own_key(party, kept.scheme).public, [], 0
    for layout in kept.layouts:
        part = kept.columns[here, start : start + layout.values]
        rows.append(encrypt_rows(key, part, layout.of_rows(here), kept.row_bits))
        start += layout.values
    met, told = party.state.get(Pairs), [layout.as_dict() for layout in kept.layouts]
    digest = _digest(key, rows, told)
    notes = {} if met is None else {name: note_for(party, digest, name, _LABELS, number) for name in met.peers}
    kept.sent += 1
    return SentLabels(key, rows, told, notes)


def take_labels(
    party: Party, given: GivenLabels, step: int = 0, n_rows: int | None = None, block: int | None = None
) -> EncryptedLabels:
    """The encrypted labels, if they are those that the label holder vouches for: of all rows, of ``n_rows``, or of a
    ``block`` of rows."""
    key, rows, layouts, holder = given.key, given.rows, given.layouts, given.holder
    vouched = read_note(party, given.note, holder, _LABELS, step * MAX_BLOCKS + (block or 0))
    if len(rows) != len(layouts) or vouched != _digest(key, rows, layouts):
        raise SecurityError(f"party {party.name!r}: these are not the labels that {holder!r} encrypted")
    read = [RowLayout.read(layout, party.n_rows if n_rows is None else n_rows) for layout in layouts]
    if any(layout.answer_bits + HIDING_BITS + 1 > key.plaintext_bits for layout in read):
        raise SecurityError(f"party {party.name!r}: the labels leave no room for a mask")
    if block is None:
        return EncryptedLabels(key, rows, read, holder, step)
    blocks = row_blocks(key, read)
    if block >= len(blocks):
        raise SecurityError(f"party {party.name!r}: the labels of all rows have come")
    taken = EncryptedLabels(key, rows, read, holder, step, blocks[block], block == len(blocks) - 1)
    expected = [-(-layout.rows // layout.per_ciphertext) for layout in taken.block_layouts]
    if [len(layer) for layer in rows] != expected:
        raise SecurityError(f"party {party.name!r}: a block of labels has another size than its rows")
    return taken


B = TypeVar("B", bound="BlockSums")


@dataclass(frozen=True)
class BlockSums:
    """What the blocks of labels that have come add up to, before masks, of one view's rows and columns, under the key
    and layouts of the first."""

    columns: list[str]
    key: PublicKey
    layouts: list[RowLayout]
    sums: list[Ciphertexts]
    blocks: int

    def with_block(self: B, sums: list[Ciphertexts]) -> B:
        return replace(self, sums=[self.key.add(*both) for both in zip(self.sums, sums)], blocks=self.blocks + 1)


def so_far(party: Party, kind: type[B]) -> B | None:
    """What earlier blocks have left here; of this very view, by whose rows the answer is judged, and for whose columns
    noise is made."""
    if kind not in party.state:
        return None
    found = party.held_here(kind)
    if found.columns != party.columns:
        raise OperationRefused(party.name, "labels", "the labels before were added up for other columns than these")
    return found


def next_block(party: Party, before: BlockSums | None, given: GivenLabels) -> EncryptedLabels:
    """The block of labels that is next, after those that were added up ``before``."""
    labels = take_labels(party, given, block=before.blocks if before else 0)
    if before and (labels.layouts != before.layouts or given.key.fingerprint != before.key.fingerprint):
        raise SecurityError(f"party {party.name!r}: {given.holder!r} encrypted this block otherwise than the first")
    return labels


def all_but_last(run: Federation, labels: SentLabels, adding: Answering[None], **same: Any) -> SentLabels:
    """The conversation: block after block of the labels to the parties, the next one encrypted when all have added up
    the one before. The last is what comes back."""
    blocks = len(row_blocks(labels.key, labels.read_layouts(run.n_rows)))
    for done in range(blocks - 1):
        run.progress(done, blocks, "blocks of labels")
        run.ask(adding, to=run.passive, each=labels.each(run.active, run.passive), **same)
        labels = run.ask(encrypt_more, to=run.active)
    return labels


def note_for(party: Party, digest: bytes, to: str, about: str, step: int) -> bytes:
    """A sealed digest. As bytes: what it vouches for is not sealed, and the ledger is to say so."""
    return party.held(Pairs).seal(digest, to=to, about=about, number=step).to_bytes()


def read_note(party: Party, note: bytes | None, sender: str, about: str, step: int) -> object:
    if not isinstance(note, bytes):
        raise SecurityError(f"party {party.name!r}: {sender!r} vouches for nothing here")
    return party.held(Pairs).open(SealedBox.from_bytes(note), sender=sender, about=about, number=step)


def _digest(key: PublicKey, rows: list[Ciphertexts], layouts: Layouts) -> bytes:
    parts = [part for layer, layout in zip(rows, layouts) for part in (layer.to_bytes(), _layout_text(layout))]
    return hashlib.sha256(frame(b"fedsift labels", key.to_bytes(), *parts)).digest()


def _layout_text(layout: dict[str, int]) -> bytes:
    return json.dumps({name: int(value) for name, value in layout.items()}, sort_keys=True).encode()
