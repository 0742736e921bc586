"""Label sums that the coordinator opens from two halves: neither the label holder nor the summing party sees them.

1. The label holder encrypts the classes of its rows, and vouches for them to each party in a sealed note.
2. A party adds up ciphertexts (by bin, or weighted), adds a fresh mask as wide as the whole answer and 40 bits more,
   blinds, and sends: the ciphertexts for the label holder, with a sealed note, and to the coordinator the seed of the
   masks, which is the coordinator's half.
3. The label holder checks the note, decrypts once, and sends the masked numbers to the coordinator: the other half.
4. The coordinator subtracts. It holds no rows; what it gets is sums over rows of columns and bins without names.

Who learns what: the label holder sees numbers within 2^-40 of uniform whatever the sums are, and of which columns they
are not even the scores; the party sees ciphertexts under a key that it lacks; the coordinator the sums. The coordinator
and the label holder together would see no more than that; the coordinator and a party together the label sums of any
bins of that party (``site`` policies bound which). The notes bind what travels through the coordinator: it can give a
party no labels of its own, and the label holder no ciphertexts of its own to decrypt. Sums are masked in whole answers,
so neighbours in an answer need no room for masks of their own; slots that nobody asked for carry another mask, which
the coordinator does not get (``hide_neighbours``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between, LabelHolder
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import Answering, operation
from fedsift.core.party import Labels, Party, Task
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.crypto.dp import whole_gaussian_noise
from fedsift.crypto.sealed_box import SealedBox, frame
from fedsift.errors import OperationRefused, ReplyError, SecurityError
from fedsift.mpc import pairs
from fedsift.mpc.encrypted_histogram import (
    HIDING_BITS,
    RowLayout,
    aligned_sums,
    encrypt_rows,
    own_key,
    packed,
    split_sums,
    spread,
)
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.ring import SEED_BYTES, new_seed, stream

_LABELS, _SUMS = "encrypted labels", "masked sums"


@dataclass
class LabelLayers:
    """What the label holder keeps of the labels that it encrypted: how to read sums of them, and who has answered."""

    scheme: str
    labels: Labels
    layouts: list[RowLayout]
    step: int = 0
    opened: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class EncryptedLabels:
    """The labels as a party holds them, once it has seen the label holder's note."""

    key: PublicKey
    rows: list[Ciphertexts]
    layouts: list[RowLayout]
    holder: str
    step: int = 0

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


@message
@dataclass(frozen=True)
class MaskedSums:
    """Sums of each layer under masks, the seed of the masks, a note for the label holder, how many tables and sums."""

    sums: list[Ciphertexts]
    seed: bytes
    note: bytes
    shape: list[int]


@message
@dataclass(frozen=True)
class TableSums(MaskedSums):
    """The same by bins of columns: rows of each bin (with noise: nothing), bins of each column."""

    sizes: NDArray[np.int32]
    bins: NDArray[np.int32]


Halves = dict[str, list[bytes]]


def encrypts_labels(
    id: str, *, about: str = "class of each row, encrypted", when: str | tuple[str, ...] = (), epsilon: str = ""
) -> Callable[[Callable[..., SentLabels]], Answering[SentLabels]]:
    """Mark a step in which the label holder encrypts something of every row, for the others to sum."""
    return operation(
        id, discloses="ciphertext", about=about, reply=SentLabels, role="active", concerns="labels", times=1,
        settings=("scheme",), when=when, epsilon=epsilon,
    )  # fmt: skip


@encrypts_labels("labels.encrypt_classes")
def encrypt_classes(
    party: Party, *, scheme: Scheme, task: Task, answers: Answers = 0, weight_bits: WeightBits = 0
) -> SentLabels:
    """Indicators of all classes but the last, which is the rest."""
    labels = party.labels(task=task)
    return encrypted(party, scheme, labels, labels.n_classes - 1, answers=answers, weight_bits=weight_bits)


def encrypted(
    party: Party, scheme: str, labels: Labels, counted: int, *, answers: int, weight_bits: int, step: int = 0
) -> SentLabels:
    """A reply: indicators of the first ``counted`` classes, so many a ciphertext as fit, and a note for each peer.

    ``answers`` is how many sums will be asked for; ``weight_bits`` leaves room for weights (or noise) of that size.
    ``step`` tells conversations of one run apart.
    """
    one_hot = (labels.codes[:, None] == np.arange(counted)).astype(np.int64)
    return encrypted_columns(
        party, scheme, labels, one_hot, row_bits=1, answers=answers, weight_bits=weight_bits, step=step
    )


def encrypted_columns(
    party: Party, scheme: str, labels: Labels, columns: np.ndarray, *, row_bits: int, answers: int,
    weight_bits: int = 0, step: int = 0,
) -> SentLabels:  # fmt: skip
    """The same for any non-negative whole numbers of ``row_bits`` bits (rows x columns), made of the ``labels``."""
    key = own_key(party, scheme).public
    bits, size = key.plaintext_bits - HIDING_BITS - 1, row_bits + weight_bits
    room = max(1, bits // (size + len(columns).bit_length()))
    rows, layouts = [], []
    for start in range(0, columns.shape[1], room):
        part = columns[:, start : start + room]
        layout = RowLayout.fit(len(part), part.shape[1], size, bits, answers=answers, scheme=key.scheme)
        rows.append(encrypt_rows(key, part, layout, row_bits))
        layouts.append(layout)
    party.keep(LabelLayers(scheme, labels, layouts, step))
    met = party.state.get(Pairs)
    told = [layout.as_dict() for layout in layouts]
    digest = _digest(key, rows, told)
    notes = {} if met is None else {name: _note(party, digest, name, _LABELS, step) for name in met.peers}
    return SentLabels(key, rows, told, notes)


def take_labels(party: Party, given: GivenLabels, step: int = 0, n_rows: int | None = None) -> EncryptedLabels:
    """The encrypted labels, if they are those that the label holder vouches for: of all rows, or of ``n_rows``."""
    key, rows, layouts, holder = given.key, given.rows, given.layouts, given.holder
    vouched = _read_note(party, given.note, holder, _LABELS, step)
    if len(rows) != len(layouts) or vouched != _digest(key, rows, layouts):
        raise SecurityError(f"party {party.name!r}: these are not the labels that {holder!r} encrypted")
    read = [RowLayout.read(layout, party.n_rows if n_rows is None else n_rows) for layout in layouts]
    if any(layout.answer_bits + HIDING_BITS + 1 > key.plaintext_bits for layout in read):
        raise SecurityError(f"party {party.name!r}: the labels leave no room for a mask")
    return EncryptedLabels(key, rows, read, holder, step)


def masked(
    party: Party, labels: EncryptedLabels, sums: list[Ciphertexts], tables: int, *, offset: bool = False,
    noise: np.ndarray | None = None,
) -> MaskedSums:  # fmt: skip
    """A reply: the sums of each layer under fresh masks, the seed of the masks, and a note for the label holder.

    The note also vouches for how many ``tables`` (columns) and sums there are: the label holder's noise depends on it.
    ``noise`` (sums x counted classes) is added first; with ``offset`` half of each slot's room too, for what may be
    negative.
    """
    seed, start, hidden = new_seed(), 0, []
    for number, (layer, layout) in enumerate(zip(sums, labels.layouts)):
        inside = packed(labels.key, layer, layout)
        added = np.full((len(layer), layout.values), half_room(layout) if offset else 0, dtype=object)
        if noise is not None:
            added = added + noise[:, start : start + layout.values].astype(object)
        start += layout.values
        masks = _masks(seed, number, len(inside), layout)
        plain = [mask + more for mask, more in zip(masks, spread(added, layout))]
        hidden.append(labels.key.blind(labels.key.add_plain(inside, plain)))
    shape = [tables, len(sums[0]) if sums else 0]
    note = _note(party, _digest_sums(hidden, shape), labels.holder, _SUMS, labels.step)
    return MaskedSums(hidden, seed, note, shape)


@message
@dataclass(frozen=True)
class ForHolder:
    """What the coordinator passes on to the label holder of everybody's ``masked`` replies: all but the seeds."""

    sums: dict[str, list[Ciphertexts]]
    notes: dict[str, bytes]
    shapes: dict[str, list[int]]

    @classmethod
    def of(cls, replies: Mapping[str, MaskedSums]) -> ForHolder:
        told = replies.items()
        return cls({n: r.sums for n, r in told}, {n: r.note for n, r in told}, {n: r.shape for n, r in told})

    @property
    def tables(self) -> int:
        """How many there are in all; each is vouched for by a note that ``open_halves`` reads."""
        return sum(shape[0] for shape in self.shapes.values() if shape)


def open_halves(party: Party, told: ForHolder, noise: float = 0.0) -> Halves:
    """The label holder's halves: what each party sent, decrypted, still under its masks. Once for each party.

    ``noise`` is the deviation of what the label holder adds to every sum.
    """
    kept = party.held(LabelLayers)
    return {name: _open_half(party, kept, name, told, noise) for name in told.sums}


def _open_half(party: Party, kept: LabelLayers, name: str, told: ForHolder, noise: float) -> list[bytes]:
    if name in kept.opened:
        raise OperationRefused(party.name, "open_halves", f"the sums of {name!r} were opened before")
    kept.opened.add(name)
    sums, shape = told.sums[name], told.shapes.get(name, [])
    vouched = _read_note(party, told.notes.get(name), name, _SUMS, kept.step)
    if len(shape) != 2 or min(shape) < 0 or vouched != _digest_sums(sums, shape):
        raise SecurityError(f"party {party.name!r}: these are not the sums that {name!r} sent")
    halves = []
    for layer, layout in zip(sums, kept.layouts):
        if len(layer) != -(-shape[1] // layout.answers_per):
            raise SecurityError(f"party {party.name!r}: {name!r} sent another number of sums than it says")
        numbers = own_key(party, kept.scheme).decrypt(layer, bits=layout.answer_bits + HIDING_BITS + 1)
        if noise:
            added = whole_gaussian_noise((shape[1], layout.values), noise).astype(object)
            numbers = [number + more for number, more in zip(numbers, spread(added, layout))]
        halves.append(b"".join(number.to_bytes(_width(layout), "little") for number in numbers))
    return halves


def join_halves(
    name: str, seed: bytes, halves: list[bytes], layouts: list[RowLayout], count: int, offset: bool = False
) -> np.ndarray:
    """At the coordinator: sums x counted classes, as integers."""
    if len(seed) != SEED_BYTES or not isinstance(halves, list) or len(halves) != (len(layouts) if count else 0):
        raise ReplyError(name, "masked sums", "another number of halves than there are layers of labels")
    if not count:  # a party without columns here sends nothing
        return np.zeros((0, sum(layout.values for layout in layouts)), dtype=object)
    parts = [np.zeros((count, 0), dtype=object)]
    for number, (half, layout) in enumerate(zip(halves, layouts)):
        width, answers = _width(layout), -(-count // layout.answers_per)
        if not isinstance(half, bytes) or len(half) != width * answers:
            raise ReplyError(name, "masked sums", f"expected the halves of {count} sums")
        opened = [int.from_bytes(half[i : i + width], "little") for i in range(0, len(half), width)]
        numbers = [a - b for a, b in zip(opened, _masks(seed, number, answers, layout))]
        if min(numbers, default=0) < 0 or max(numbers, default=0).bit_length() > layout.answer_bits:
            raise ReplyError(name, "masked sums", "the two halves do not belong together")
        table = np.array(split_sums(numbers, layout, count), dtype=object).reshape(count, layout.values)
        parts.append(table - half_room(layout) if offset else table)
    return np.hstack(parts)


def half_room(layout: RowLayout) -> int:
    """Added to a slot that may be negative."""
    return 1 << (layout.value_bits - 1)


def _note(party: Party, digest: bytes, to: str, about: str, step: int) -> bytes:
    """A sealed digest. As bytes: what it vouches for is not sealed, and the ledger is to say so."""
    return party.held(Pairs).seal(digest, to=to, about=about, number=step).to_bytes()


def _read_note(party: Party, note: bytes | None, sender: str, about: str, step: int) -> object:
    if not isinstance(note, bytes):
        raise SecurityError(f"party {party.name!r}: {sender!r} vouches for nothing here")
    return party.held(Pairs).open(SealedBox.from_bytes(note), sender=sender, about=about, number=step)


def _width(layout: RowLayout) -> int:
    return (layout.answer_bits + HIDING_BITS + 2 + 7) // 8


def _masks(seed: bytes, layer: int, count: int, layout: RowLayout) -> list[int]:
    bits = layout.answer_bits + HIDING_BITS
    words = -(-bits // 64)
    raw = stream(seed, "two halves", layer, (count, words))
    return [int.from_bytes(row.tobytes(), "little") >> (64 * words - bits) for row in raw.astype("<u8")]


def _digest(key: PublicKey, rows: list[Ciphertexts], layouts: Layouts) -> bytes:
    parts = [part for layer, layout in zip(rows, layouts) for part in (layer.to_bytes(), _layout_text(layout))]
    return hashlib.sha256(frame(b"fedsift labels", key.to_bytes(), *parts)).digest()


def _layout_text(layout: dict[str, int]) -> bytes:
    return json.dumps({name: int(value) for name, value in layout.items()}, sort_keys=True).encode()


def _digest_sums(sums: list[Ciphertexts], shape: list[int]) -> bytes:
    told = json.dumps([int(number) for number in shape]).encode()
    return hashlib.sha256(frame(b"fedsift sums", told, *(layer.to_bytes() for layer in sums))).digest()


S = TypeVar("S", bound=MaskedSums)
R = TypeVar("R")


def ask_halves(
    run: Federation, encrypting: Answering[SentLabels], masking: Answering[S], opening: Answering[R], *, scheme: str,
    answers: int, **room: int,
) -> tuple[SentLabels, dict[str, S], R]:  # fmt: skip
    """The conversation: labels to the parties, their sums under masks, and the label holder's halves of them."""
    pairs.meet_all(run)
    asked = {"answers": answers, **room}
    labels: SentLabels = run.ask(
        encrypting, to=run.active, each={run.active: asked}, scheme=scheme, task=run.asked_task
    )
    replies: dict[str, S] = run.ask(masking, to=run.passive, each=labels.each(run.active, run.passive))
    opened: R = run.ask(opening, to=run.active, told=ForHolder.of(replies))
    return labels, replies, opened


#: What a method lists that uses this layer, beside its own two steps.
OPERATIONS = (*pairs.OPERATIONS, encrypt_classes)
