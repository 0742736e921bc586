"""Who a site is to the other sites: a signing key of its own, and the fingerprints of its peers.

What parties tell each other passes through a coordinator, which could put a key of its own under a party's name. So a
site signs its part of a handshake (Ed25519), and takes a peer's part only under the signing key that it knows to be
that peer's: people exchange the fingerprints, and each site writes down those of its peers in its own ``party.toml``
(``Pins``). Where all sites run in one process nobody stands between them, and they are introduced to each other.

A fingerprint is 20 bytes of SHA-256 of the public key: to pass for a site one would have to find a second key with
the same 160 bits. Written as hex, or as ten words of two syllables each that can be read out over a telephone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

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
