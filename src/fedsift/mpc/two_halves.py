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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import Answering
from fedsift.core.party import Party
from fedsift.crypto.additive.keys import Ciphertexts
from fedsift.crypto.dp import whole_gaussian_noise
from fedsift.crypto.sealed_box import frame
from fedsift.errors import OperationRefused, ReplyError, SecurityError
from fedsift.mpc import pairs
from fedsift.mpc.encrypted_histogram import (
    HIDING_BITS,
    RowLayout,
    own_key,
    packed,
    split_sums,
    spread,
)
from fedsift.mpc.encrypted_labels import EncryptedLabels, LabelLayers, SentLabels, encrypt_classes, note_for, read_note
from fedsift.mpc.ring import SEED_BYTES, new_seed, stream

_SUMS = "masked sums"


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
    note = note_for(party, _digest_sums(hidden, shape), labels.holder, _SUMS, labels.step)
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
    vouched = read_note(party, told.notes.get(name), name, _SUMS, kept.step)
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


def _width(layout: RowLayout) -> int:
    return (layout.answer_bits + HIDING_BITS + 2 + 7) // 8


def _masks(seed: bytes, layer: int, count: int, layout: RowLayout) -> list[int]:
    bits = layout.answer_bits + HIDING_BITS
    words = -(-bits // 64)
    raw = stream(seed, "two halves", layer, (count, words))
    return [int.from_bytes(row.tobytes(), "little") >> (64 * words - bits) for row in raw.astype("<u8")]


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
