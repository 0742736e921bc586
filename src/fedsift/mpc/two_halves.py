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
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from fedsift.core.arguments import Between
from fedsift.core.operation import operation
from fedsift.core.party import Labels, Party, Task
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.crypto.sealed_box import SealedBox, frame
from fedsift.errors import OperationRefused, ReplyError, SecurityError
from fedsift.mpc import pairs
from fedsift.mpc.encrypted_histogram import (
    HIDING_BITS,
    RowLayout,
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
    opened: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class EncryptedLabels:
    """The labels as a party holds them, once it has seen the label holder's note."""

    key: PublicKey
    rows: list[Ciphertexts]
    layouts: list[RowLayout]
    holder: str

    @property
    def values(self) -> int:
        """Classes that are counted: all but the last."""
        return sum(layout.values for layout in self.layouts)


@operation(
    "labels.encrypt_classes",
    discloses="ciphertext",
    about="class of each row, encrypted",
    reply={"key": PublicKey, "layers": [{"rows": Ciphertexts, "layout": dict}], "notes": dict},
    role="active",
    concerns="labels",
    settings=("scheme",),
    times=1,
)
def encrypt_classes(
    party: Party,
    *,
    scheme: Literal["auto", "ou", "paillier"],
    task: Task,
    answers: Annotated[int, Between(0, 10**9)] = 0,
    weight_bits: Annotated[int, Between(0, 128)] = 0,
) -> dict[str, Any]:
    """Indicators of all classes but the last (which is the rest), so many classes a ciphertext as fit.

    ``answers`` is how many sums will be asked for; ``weight_bits`` leaves room for weights (or noise) of that size.
    """
    key = own_key(party, scheme).public
    labels = party.labels(task=task)
    one_hot = (labels.codes[:, None] == np.arange(labels.n_classes - 1)).astype(np.int64)
    bits = key.plaintext_bits - HIDING_BITS - 1
    room = bits // (1 + weight_bits + labels.codes.size.bit_length())
    layers, layouts = [], []
    for start in range(0, one_hot.shape[1], room):
        part = one_hot[:, start : start + room]
        layout = RowLayout.fit(len(part), part.shape[1], 1 + weight_bits, bits, answers=answers, scheme=key.scheme)
        layers.append({"rows": encrypt_rows(key, part, layout, 1), "layout": layout.as_dict()})
        layouts.append(layout)
    party.keep(LabelLayers(scheme, labels, layouts))
    met = party.state.get(Pairs)
    told = _digest(key, layers)
    notes = {} if met is None else {name: _note(party, told, name, _LABELS) for name in met.peers}
    return {"key": key, "layers": layers, "notes": notes}


def take_labels(party: Party, key: PublicKey, layers: list[Any], note: bytes, holder: str) -> EncryptedLabels:
    """The encrypted labels, if they are those that the label holder vouches for."""
    if not all(isinstance(layer, dict) and set(layer) == {"rows", "layout"} for layer in layers) or not all(
        isinstance(layer["rows"], Ciphertexts) and isinstance(layer["layout"], dict) for layer in layers
    ):
        raise SecurityError(f"party {party.name!r}: what came as labels has not their form")
    if _read_note(party, note, holder, _LABELS) != _digest(key, layers):
        raise SecurityError(f"party {party.name!r}: these are not the labels that {holder!r} encrypted")
    layouts = [RowLayout.read(layer["layout"], party.n_rows) for layer in layers]
    if any(layout.answer_bits + HIDING_BITS + 1 > key.plaintext_bits for layout in layouts):
        raise SecurityError(f"party {party.name!r}: the labels leave no room for a mask")
    return EncryptedLabels(key, [layer["rows"] for layer in layers], layouts, holder)


def masked(
    party: Party, labels: EncryptedLabels, sums: list[Ciphertexts], offset: bool = False, noise: Any = None
) -> dict[str, Any]:
    """A reply: the sums of each layer under fresh masks, the seed of the masks, and a note for the label holder.

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
    return {"sums": hidden, "seed": seed, "note": _note(party, _digest_sums(hidden), labels.holder, _SUMS)}


#: The shape of ``masked``'s reply.
MASKED: dict[str, Any] = {"sums": [Ciphertexts], "seed": bytes, "note": bytes}


def open_halves(party: Party, masked_by: dict[str, Any], noise: dict[str, Any] | None = None) -> dict[str, list[bytes]]:
    """The label holder's halves: what each party sent, decrypted, still under its masks. Once for each party."""
    kept = party.held(LabelLayers)
    result = {}
    for name, reply in masked_by.items():
        if name in kept.opened:
            raise OperationRefused(party.name, "open_halves", f"the sums of {name!r} were opened before")
        kept.opened.add(name)
        if not isinstance(reply, dict) or not isinstance(reply.get("sums"), list):
            raise SecurityError(f"party {party.name!r}: what came as the sums of {name!r} has not their form")
        if not all(isinstance(each, Ciphertexts) for each in reply["sums"]):
            raise SecurityError(f"party {party.name!r}: what came as the sums of {name!r} has not their form")
        if _read_note(party, reply.get("note"), name, _SUMS) != _digest_sums(reply["sums"]):
            raise SecurityError(f"party {party.name!r}: these are not the sums that {name!r} sent")
        halves, start = [], 0
        for sums, layout in zip(reply["sums"], kept.layouts):
            numbers = own_key(party, kept.scheme).decrypt(sums, bits=layout.answer_bits + HIDING_BITS + 1)
            if noise is not None:
                added = spread(noise[name][:, start : start + layout.values].astype(object), layout)
                numbers = [number + more for number, more in zip(numbers, added)]
            start += layout.values
            halves.append(b"".join(number.to_bytes(_width(layout), "little") for number in numbers))
        result[name] = halves
    return result


def join_halves(
    name: str, seed: bytes, halves: list[bytes], layouts: list[RowLayout], count: int, offset: bool = False
) -> np.ndarray:
    """At the coordinator: sums x counted classes, as integers."""
    if len(seed) != SEED_BYTES or len(halves) != (len(layouts) if count else 0):
        raise ReplyError(name, "masked sums", "another number of halves than there are layers of labels")
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


def _note(party: Party, digest: bytes, to: str, about: str) -> bytes:
    """A sealed digest. As bytes: what it vouches for is not sealed, and the ledger is to say so."""
    return party.held(Pairs).seal(digest, to=to, about=about, number=0).to_bytes()


def _read_note(party: Party, note: Any, sender: str, about: str) -> Any:
    if not isinstance(note, bytes):
        raise SecurityError(f"party {party.name!r}: {sender!r} vouches for nothing here")
    return party.held(Pairs).open(SealedBox.from_bytes(note), sender=sender, about=about, number=0)


def _width(layout: RowLayout) -> int:
    return (layout.answer_bits + HIDING_BITS + 2 + 7) // 8


def _masks(seed: bytes, layer: int, count: int, layout: RowLayout) -> list[int]:
    bits = layout.answer_bits + HIDING_BITS
    words = -(-bits // 64)
    raw = stream(seed, "two halves", layer, (count, words))
    return [int.from_bytes(row.tobytes(), "little") >> (64 * words - bits) for row in raw.astype("<u8")]


def _digest(key: PublicKey, layers: list[Any]) -> bytes:
    parts = [part for layer in layers for part in (layer["rows"].to_bytes(), _layout_text(layer["layout"]))]
    return hashlib.sha256(frame(b"fedsift labels", key.to_bytes(), *parts)).digest()


def _layout_text(layout: dict[str, Any]) -> bytes:
    return json.dumps(layout, sort_keys=True, default=str).encode()


def _digest_sums(sums: list[Ciphertexts]) -> bytes:
    return hashlib.sha256(frame(b"fedsift sums", *(layer.to_bytes() for layer in sums))).digest()


#: What a method lists that uses this layer, beside its own two steps.
OPERATIONS = (*pairs.OPERATIONS, encrypt_classes)
