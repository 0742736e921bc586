"""Sealed boxes: what one party tells another through the coordinator, who carries it but cannot read or alter it.

Every party has an X25519 key (``SealKey``) whose public half the others know. A box is

    ephemeral public key (32 bytes) | ChaCha20-Poly1305 ciphertext | tag (16 bytes)

and its key is HKDF-SHA256 of two Diffie-Hellman secrets, DH(ephemeral, receiver) and DH(sender, receiver), bound to
all three public keys. Sender's name, receiver's name, round, purpose and job are associated data.

Why it is secure:

- Secret: only the receiver's private key, or the ephemeral one that is dropped after sealing, gives
  DH(ephemeral, receiver). A sender's key that leaks later opens no box that was sealed before.
- Authentic: DH(sender, receiver) is known to those two only, so no third party can make a box that opens.
- No nonce to repeat: the ephemeral key is fresh, so each box has a key of its own and the nonce can be constant. With
  a static key and random 96-bit nonces the security would decay with the number of boxes; here it does not.
- Not transferable: a box opens only for the same sender, receiver, round and purpose. A box played back at the same
  step opens again; a receiver takes one box a step, so rounds must not repeat within a run.

Not covered: the size of the payload is visible. Whoever steals the *receiver's* key can read its boxes and forge
boxes to it. That a public key is truly the other party's is settled by the handshake (``mpc/pairs.py``).

All keys that follow from a SealKey are derived here, by ``_derive``, each under a purpose label, so that boxes and
masks (``pair_key``) never share key material.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedsift.core.message import Elsewhere, wire_type
from fedsift.errors import ParameterError, SealError

PUBLIC_BYTES = 32
TAG_BYTES = 16
OVERHEAD_BYTES = PUBLIC_BYTES + TAG_BYTES
MAX_PAYLOAD_BYTES = 2**31 - 1 - TAG_BYTES  # the limit of the library in one call

_NONCE = bytes(12)  # constant: see "no nonce to repeat" above


class SealKey:
    """A party's X25519 key. ``public`` is for everybody, the rest never leaves the party."""

    __slots__ = ("_private", "public")

    def __init__(self, private: X25519PrivateKey):
        self._private = private
        self.public: bytes = private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"SealKey(public={self.public.hex()})"

    @classmethod
    def generate(cls) -> SealKey:
        """A fresh key from the operating system's generator."""
        return cls(X25519PrivateKey.generate())


@wire_type(34, passed=True)
@dataclass(frozen=True, repr=False)
class SealedBox:
    """One sealed payload, as it travels; at the coordinator a large one stays where it is until it is passed on."""

    data: bytes | Elsewhere

    def __post_init__(self) -> None:
        if not isinstance(self.data, (bytes, Elsewhere)) or len(self.data) < OVERHEAD_BYTES:
            raise SealError(f"a sealed box has at least {OVERHEAD_BYTES} bytes; this one was cut short or is none")

    def __repr__(self) -> str:
        return f"SealedBox(<{len(self.data)} bytes>)"

    def to_bytes(self) -> bytes:
        return self.data if isinstance(self.data, bytes) else self.data.read()

    def parts(self) -> list[bytes | Elsewhere]:
        return [self.data]

    @classmethod
    def from_bytes(cls, data: bytes) -> SealedBox:
        return cls(data)


def seal(
    payload: bytes, *, key: SealKey, peer: bytes, sender: str, receiver: str, round: int, about: str,
    context: bytes = b"",
) -> SealedBox:  # fmt: skip
    """Close ``payload`` for the party ``receiver``, whose public key is ``peer``; ``context`` says in which job."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ParameterError(
            f"the payload about {about!r} for {receiver!r} has {len(payload)} bytes; a sealed box holds at most "
            f"{MAX_PAYLOAD_BYTES}: send it in parts"
        )
    bindings = _bindings(sender, receiver, round, about, context)
    ephemeral = SealKey.generate()
    secrets = _agree(ephemeral, peer, receiver) + _agree(key, peer, receiver)
    box_key = _derive(secrets, "sealed box", ephemeral.public, key.public, peer)
    return SealedBox(ephemeral.public + ChaCha20Poly1305(box_key).encrypt(_NONCE, payload, bindings))


def unseal(
    box: SealedBox, *, key: SealKey, peer: bytes, sender: str, receiver: str, round: int, about: str,
    context: bytes = b"",
) -> bytes:  # fmt: skip
    """Open a box that the party ``sender``, whose public key is ``peer``, sealed under the same bindings.

    There is one message for every reason of failure: what exactly did not match would help only a forger.
    """
    bindings = _bindings(sender, receiver, round, about, context)
    data = box.to_bytes()
    ephemeral, ciphertext = data[:PUBLIC_BYTES], data[PUBLIC_BYTES:]
    try:
        secrets = _agree(key, ephemeral, sender) + _agree(key, peer, sender)
        box_key = _derive(secrets, "sealed box", ephemeral, peer, key.public)
        return ChaCha20Poly1305(box_key).decrypt(_NONCE, ciphertext, bindings)
    except (InvalidTag, SealError):
        raise SealError(
            f"the sealed payload about {about!r} from {sender!r} does not open: it was altered on the way, or was "
            "sealed with another key or for another receiver, round or purpose; ask the sender to seal it again"
        ) from None


def pair_key(key: SealKey, peer: bytes, *, name: str, purpose: str, context: bytes = b"") -> bytes:
    """32 bytes that the two holders of ``key`` and ``peer`` share and nobody else knows; the same on both sides.

    ``purpose`` and ``context`` separate the keys of different uses; ``name`` says whose key it is in an error.
    """
    first, second = sorted((key.public, peer))
    return _derive(_agree(key, peer, name), "pair: " + purpose, first, second, context)


def frame(*parts: bytes) -> bytes:
    """Join byte strings so that no other list of parts gives the same bytes: each goes after its length."""
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def round_bytes(round: int) -> bytes:
    if not 0 <= round < 2**64:
        raise ParameterError(f"round must be a whole number from 0 to 2**64 - 1, got {round}")
    return int(round).to_bytes(8, "big")


def _bindings(sender: str, receiver: str, round: int, about: str, context: bytes) -> bytes:
    return frame(sender.encode(), receiver.encode(), round_bytes(round), about.encode(), context)


def _agree(key: SealKey, peer: bytes, name: str) -> bytes:
    try:
        # The library refuses low-order points: their shared secret would be zero for every key.
        return key._private.exchange(X25519PublicKey.from_public_bytes(peer))
    except (ValueError, TypeError):
        raise SealError(f"the public key of {name!r} is not a usable X25519 key of {PUBLIC_BYTES} bytes") from None


def _derive(secrets: bytes, purpose: str, *bound: bytes) -> bytes:
    info = frame(b"fedsift v1", purpose.encode(), *bound)
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secrets)
