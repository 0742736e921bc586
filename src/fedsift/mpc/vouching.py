"""Notes by which a party vouches to its peers for what travels openly through the coordinator.

Public keys and ciphertexts are no secret, but whoever relays them could put its own in their place: a key of the
coordinator's instead of a peer's, and everything that is encrypted under it is the coordinator's to read. So the sender
seals a digest of what it sent for each peer (``pairs.py``: only a pinned peer can make the box, for this meeting,
purpose and number), and a peer uses nothing that the note does not vouch for. Numbers ascend: an older note is not
taken again.

A note is bytes, not a box: what it vouches for is not sealed, and the ledger is to say so.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox, frame
from fedsift.errors import SecurityError
from fedsift.mpc.pairs import circle_of

CIRCLE = "vouching"
_NUMBER = struct.Struct("<Q")


def vouch(party: Party, about: str, *parts: bytes, to: Sequence[str] | None = None) -> dict[str, bytes]:
    """A note for each peer of the circle (or for these): this party has sent ``parts``. Its number is the round of the
    request."""
    met, digest = circle_of(party, CIRCLE), _digest(about, parts)
    number, names = _NUMBER.pack(party.round), met.peers if to is None else to
    return {name: number + met.seal(digest, to=name, about=about, number=party.round).to_bytes() for name in names}


def check_vouched(party: Party, note: bytes, sender: str, about: str, *parts: bytes) -> None:
    """Raise unless ``sender`` vouches for exactly these ``parts``."""
    if len(note) <= _NUMBER.size:
        raise SecurityError(f"party {party.name!r}: {sender!r} vouches for nothing here")
    (number,) = _NUMBER.unpack(note[: _NUMBER.size])
    box = SealedBox.from_bytes(note[_NUMBER.size :])
    if circle_of(party, CIRCLE).open(box, sender=sender, about=about, number=number) != _digest(about, parts):
        raise SecurityError(f"party {party.name!r}: this is not what {sender!r} has sent ({about})")


def _digest(about: str, parts: tuple[bytes, ...]) -> bytes:
    return hashlib.sha256(frame(b"fedsift vouching", about.encode(), *parts)).digest()
