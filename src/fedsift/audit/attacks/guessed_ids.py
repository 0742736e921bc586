"""Whose rows are there, from blinded ids: does a list of guesses open them?

Ids are guessable (numbers of customers, e-mail addresses), so a hash of an id is no protection. The coordinator carries
the parties' ids as group elements under secret exponents. It tries every guess by every public way to the same bytes
(the group element itself, common hashes), and looks for equal elements in two lists or two alignments, which would link
people. Fresh secret exponents leave it nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View
from fedsift.core.message import walk
from fedsift.crypto import oprf

READS = ("keyed_ids", "blind_ids", "blind_again", "unblind", "blind_rows", "raise_rows", "number_rows")
_SIZES = (16, 20, 32)  # bytes of pseudonyms, of hashes, of group elements
_MOST_IDS = 5000


def public_names(id: bytes) -> list[bytes]:
    """What anybody can compute from an id."""
    hashes = [hashlib.new(name, id).digest() for name in ("md5", "sha1", "sha256")]
    return [*hashes, hashlib.sha256(id).digest()[:16], hashlib.blake2b(id, digest_size=16).digest()]


def chunks(messages: Iterable[bytes]) -> dict[int, set[bytes]]:
    """All pieces of the messages that could be one pseudonym."""
    found: dict[int, set[bytes]] = {size: set() for size in _SIZES}
    for data in messages:
        for size in _SIZES:
            if len(data) % size == 0:
                found[size].update(data[i : i + size] for i in range(0, len(data), size))
    return found


def seen_bytes(view: View) -> list[bytes]:
    return [
        part
        for name in READS
        for message in view.replies(name)
        for part in walk(message.content)
        if isinstance(part, bytes)
    ]


@attack(reads=READS, role="coordinator", target="ids", knows="a list of ids with those of the parties in it",
        declared="denied")  # fmt: skip
def guessed_ids(view: View, truth: Truth) -> Measure:
    """Share of the parties' ids that are recognised in what they sent."""
    there = chunks(seen_bytes(view))
    ids = np.unique(np.concatenate([np.asarray(each, dtype=str) for each in truth.ids.values()] or [np.zeros(0, str)]))
    ids = ids[:_MOST_IDS]
    if not len(ids) or not any(there.values()):
        return Measure("ids", 0.0, 0.0, 0.0, note="nothing to read: no ids were matched")
    raw = [str(each).encode() for each in ids]
    points = oprf.hash_to_group(raw)
    width = len(points) // len(raw)
    found = 0
    for place, id in enumerate(raw):
        names = [*public_names(id), points[width * place : width * (place + 1)]]
        found += any(name in there.get(len(name), ()) for name in names)
    return Measure(
        "ids", found / len(raw), 0.0, 0.0, note=f"{len(raw)} guesses, {sum(map(len, there.values()))} pieces"
    )
