"""One handshake for everything that two parties keep from the coordinator: one-time masks and sealed payloads.

Once a run every party makes a fresh X25519 key and learns the others' public halves (``meet_all``). From then on any
two parties have a seed that nobody else knows, from which both draw the same masks (``Pairs.mask``), and can send each
other boxes that only the other opens (``Pairs.seal``, ``Pairs.open``).

A mask belongs to a peer, a purpose and a number. A party accepts a purpose's numbers in ascending order only, so no
mask is ever used twice, whatever it is asked (a mask that repeats is a two-time pad). Both sides must ask for the same
shape: a different one gives other numbers and garbage, never a leak.

Why it is secure: to whoever lacks the seed a mask is uniform, so what it is added to is hidden perfectly; boxes are
authenticated and bound to sender, receiver, purpose and number (``crypto/sealed_box.py``). The coordinator relays the
public keys: whether they are truly the peers' is not settled here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsift.core.federation import Federation
from fedsift.core.message import decode, encode
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import PUBLIC_BYTES, SealedBox, SealKey, pair_key, seal, unseal
from fedsift.errors import ReplyError, SecurityError
from fedsift.mpc.ring import Ring, stream


@dataclass
class Pairs:
    """A party's secrets with each of its peers, for one run."""

    me: str
    key: SealKey = field(default_factory=SealKey.generate, repr=False)
    publics: dict[str, bytes] = field(default_factory=dict)
    _seeds: dict[str, bytes] = field(default_factory=dict, repr=False)
    _used: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)

    def meet(self, publics: Mapping[str, bytes]) -> None:
        """Agree on a seed with every peer. Once: a run's peers neither change nor come later."""
        if self.publics:
            raise SecurityError(f"party {self.me!r} has met its peers already in this run")
        if publics.get(self.me) != self.key.public or len(set(publics.values())) != len(publics):
            raise SecurityError(f"party {self.me!r}: the list of public keys lacks its own key, or names one twice")
        self.publics = dict(publics)
        self._seeds = {
            name: pair_key(self.key, public, name=name, purpose="pairs")
            for name, public in publics.items()
            if name != self.me
        }

    @property
    def peers(self) -> list[str]:
        """Everybody else."""
        return list(self._seeds)

    def mask(self, peer: str, purpose: str, number: int, shape: tuple[int, ...]) -> Ring:
        """The mask that this party and ``peer`` share for this purpose and number; drawn once on each side."""
        self._use(peer, f"mask: {purpose}", number)
        return stream(self._seed(peer), purpose, number, shape)

    def cancelling(self, peer: str, purpose: str, number: int, shape: tuple[int, ...]) -> Ring:
        """The same with opposite signs on the two sides: what both add to their halves leaves the sum as it was."""
        mask = self.mask(peer, purpose, number, shape)
        return mask if self.me < peer else -mask

    def seal(self, payload: Any, *, to: str, about: str, number: int) -> SealedBox:
        """Anything that can travel, for one peer alone."""
        self._use(to, f"seal: {about}", number)
        return seal(
            encode(payload), key=self.key, peer=self._public(to), sender=self.me, receiver=to, round=number, about=about
        )

    def open(self, box: Any, *, sender: str, about: str, number: int) -> Any:
        """What ``sender`` sealed for this party under the same purpose and number."""
        if not isinstance(box, SealedBox):
            raise SecurityError(f"party {self.me!r}: what came from {sender!r} about {about!r} is no sealed box")
        payload = unseal(
            box, key=self.key, peer=self._public(sender), sender=sender, receiver=self.me, round=number, about=about
        )
        self._use(sender, f"open: {about}", number)
        return decode(payload)

    def _public(self, peer: str) -> bytes:
        if peer not in self._seeds:
            raise SecurityError(f"party {self.me!r} shares no secret with {peer!r} in this run")
        return self.publics[peer]

    def _seed(self, peer: str) -> bytes:
        self._public(peer)
        return self._seeds[peer]

    def _use(self, peer: str, purpose: str, number: int) -> None:
        last = self._used.get((peer, purpose), -1)
        if not isinstance(number, int) or isinstance(number, bool) or not last < number < 2**62:
            raise SecurityError(f"party {self.me!r}: number {number} of {purpose!r} was used before, or is none")
        self._used[peer, purpose] = number


@operation(
    "pairs.offer_key",
    discloses="control",
    about="a public key made for this run",
    reply=bytes,
    times="1 a session",
)
def offer_key(party: Party) -> bytes:
    return party.keep(Pairs(party.name)).key.public


@operation(
    "pairs.meet",
    discloses="control",
    about="acknowledgement",
    learns="the other parties' public keys",
    times="1 a session",
    after="pairs.offer_key",
)
def meet(party: Party, *, publics: dict[str, bytes]) -> None:
    if party.run.job is not None and not set(publics) <= set(party.run.job.parties):
        raise SecurityError(f"party {party.name!r}: the list of public keys names somebody who is not of this job")
    party.held(Pairs).meet(publics)


#: What a method lists that uses this layer.
OPERATIONS = (offer_key, meet)


def meet_all(run: Federation, parties: Sequence[str] | None = None) -> None:
    """The handshake, inside a session; afterwards every operation has ``party.held(Pairs)``."""
    names = list(run.parties if parties is None else parties)
    publics = run.ask(offer_key, to=names)
    for name, public in publics.items():
        if len(public) != PUBLIC_BYTES:
            raise ReplyError(name, "offer_key", f"a public key has {PUBLIC_BYTES} bytes")
    run.ask(meet, to=names, publics=publics)
