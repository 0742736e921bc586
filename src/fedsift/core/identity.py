"""Who a site is to the others: a signing key, the fingerprints of its peers, and the secret that its draws come from.

What parties tell each other passes through a coordinator, which could put a key of its own under a party's name. So a
site signs its part of a handshake (Ed25519), and takes a peer's part only under the signing key that it knows to be
that peer's: people exchange the fingerprints, and each site writes down those of its peers in its own ``party.toml``
(``Pins``). Where all sites run in one process nobody stands between them, and they are introduced to each other.

A fingerprint is 20 bytes of SHA-256 of the public key: to pass for a site one would have to find a second key with
the same 160 bits. Written as hex, or as ten words of two syllables each that can be read out over a telephone.

A site also has a secret of draws that it can repeat and nobody else can recompute.

Folds, splits, samples, first weights, gates, shadows: whatever depends on something secret is drawn from
HMAC(secret of the site, purpose, row set, label, random_state). The same site, rows and seed give the same draw, in
every run and on every transport; who knows the seed but not the secret learns nothing from it. Masks, keys, pads and
noise never come from here: they are the operating system's, drawn by the party that they protect, and used once.

A deployed site keeps its secret in a file. A simulated one derives it from its own table, so that two Python sessions
on the same data agree; whoever simulates holds the data anyway.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedsift.core.table import Table
from fedsift.errors import ParameterError

FINGERPRINT_BYTES = 20
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64

_ONSETS = ["b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z"]
_RHYMES = ["a", "e", "i", "o", "u", "ai", "ei", "ou", "al", "el", "il", "ol", "an", "en", "in", "on"]
_SYLLABLES = {a + b: 16 * i + j for i, a in enumerate(_ONSETS) for j, b in enumerate(_RHYMES)}
#: A rhyme ends where the next onset and vowel begin: "bana" is ba-na, "banda" is ban-da.
_SYLLABLE = re.compile(rf"[{''.join(_ONSETS)}](?:ai|ei|ou|[aeio]l(?![aeiou])|[aeio]n(?![aeiou])|[aeiou])")


@dataclass(frozen=True)
class Fingerprint:
    """The short form of a public signing key."""

    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) != FINGERPRINT_BYTES:
            raise ParameterError(f"a fingerprint has {FINGERPRINT_BYTES} bytes, got {len(self.data)}")

    @classmethod
    def of(cls, public: bytes) -> Fingerprint:
        return cls(hashlib.sha256(b"fedsift site key v1" + public).digest()[:FINGERPRINT_BYTES])

    @classmethod
    def read(cls, text: str) -> Fingerprint:
        """From hex or words, however grouped; ``ParameterError`` for anything else."""
        letters = re.sub(r"[\s:.,-]", "", text.lower())
        if re.fullmatch(rf"[0-9a-f]{{{2 * FINGERPRINT_BYTES}}}", letters):
            return cls(bytes.fromhex(letters))
        codes = [_SYLLABLES.get(syllable) for word in re.split(r"[\s:.,-]+", text.lower()) for syllable in _cut(word)]
        if len(codes) != FINGERPRINT_BYTES or None in codes:
            raise ParameterError(
                f"this is no fingerprint: it has {2 * FINGERPRINT_BYTES} hex digits or {FINGERPRINT_BYTES // 2} words, "
                "as `fedsift party fingerprint` prints them"
            )
        return cls(bytes(code for code in codes if code is not None))

    @property
    def hex(self) -> str:
        """In groups of four digits."""
        return " ".join(re.findall("....", self.data.hex()))

    @property
    def words(self) -> str:
        syllables = [_ONSETS[byte >> 4] + _RHYMES[byte & 15] for byte in self.data]
        return " ".join(first + second for first, second in zip(syllables[::2], syllables[1::2]))

    def __str__(self) -> str:
        return self.hex


def _cut(word: str) -> list[str]:
    syllables = _SYLLABLE.findall(word)
    return syllables if "".join(syllables) == word else ["?"]


class SigningKey:
    """A site's own key. ``public`` is for everybody, the rest never leaves the site."""

    __slots__ = ("_private", "public")

    def __init__(self, private: bytes):
        self._private = Ed25519PrivateKey.from_private_bytes(private)
        self.public: bytes = self._private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> SigningKey:
        """A fresh key from the operating system's generator."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint.of(self.public)

    def sign(self, statement: bytes) -> bytes:
        return self._private.sign(statement)

    def __repr__(self) -> str:
        return f"SigningKey({self.fingerprint})"


def is_signed(statement: bytes, signature: bytes, public: bytes) -> bool:
    """Whether the holder of ``public`` has signed exactly this."""
    if len(public) != PUBLIC_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass
class Identity:
    """A site's signing key, and whom it knows. ``peers`` is ``None`` until somebody has said who they are."""

    key: SigningKey = field(default_factory=SigningKey.generate)
    peers: Mapping[str, Fingerprint] | None = None


class _HasIdentity(Protocol):
    identity: Identity


def introduce(sites: Mapping[str, _HasIdentity]) -> None:
    """Tell the sites of one process who the others are; a site that was told by its own file keeps to that."""
    known = {name: site.identity.key.fingerprint for name, site in sites.items()}
    for site in sites.values():
        if site.identity.peers is None:
            site.identity.peers = known


SECRET_BYTES = 32


def simulated_secret(name: str, table: Table) -> bytes:
    """A secret that follows from a table's own content, in whatever order its rows stand."""
    order = table.by_id
    digest = hashlib.sha256(f"fedsift simulated site: {name}".encode())
    digest.update(rows_digest(table))
    for column in table.columns:
        digest.update(column.encode())
        values = table.codes(column)[0] if table.kinds[column] == "categorical" else table.values(column)
        digest.update(np.ascontiguousarray(values[order]).tobytes())
    if table.label is not None:
        digest.update("\0".join(map(str, table.label[order].tolist())).encode())
    return digest.digest()


def rows_digest(table: Table) -> bytes:
    """Which rows these are, in whatever order they stand."""
    digest = hashlib.sha256()
    for number, ids in enumerate(table.sorted_ids()):
        digest.update(("\0" * (number > 0) + "\0".join(ids)).encode())
    return digest.digest()


def private_generator(secret: bytes, table: Table, purpose: str, random_state: object) -> np.random.Generator:
    """The generator of one purpose over these rows and this label."""
    if isinstance(random_state, (np.random.Generator, np.random.RandomState)):
        raise ParameterError(
            "random_state must be a whole number (or None) where parties draw: a generator cannot travel"
        )
    told = json.dumps([purpose, table.label_name, random_state], default=int)
    key = hmac.new(secret, told.encode() + b"\0" + rows_digest(table), hashlib.sha256).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "big")))
