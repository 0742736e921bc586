"""One handshake for everything that two parties keep from the coordinator: one-time masks and sealed payloads.

Every party makes a fresh X25519 key, signs it with its site's own key (``Offer``), and takes the others' offers
(``meet_all``). From then on any two parties have a seed that nobody else knows, from which both draw the same masks
(``Pairs.mask``), and can send each other boxes that only the other opens (``Pairs.seal``, ``Pairs.open``).

Offers travel through the coordinator, which could put a key of its own under a party's name. So a party takes an offer
only if it is signed by the key whose fingerprint this site has pinned to that name (``core/identity.py``), over the
job, the session, the round, the circle, who offers and to whom. An unknown, invented or replaced peer, an offer of
another job or session, a changed key: each ends the handshake. Seeds and boxes are bound to all offers together.

A mask belongs to a peer, a purpose and a number. A party accepts a purpose's numbers in ascending order only, so no
mask is ever used twice, whatever it is asked (a mask that repeats is a two-time pad). Both sides must ask for the same
shape: a different one gives other numbers and garbage, never a leak.

Why it is secure: Diffie-Hellman with both shares signed under keys that people have compared, so whoever stands between
has neither private half. To whoever lacks the seed a mask is uniform, so what it is added to is hidden perfectly; boxes
are authenticated and bound to job, session, sender, receiver, purpose and number (``crypto/sealed_box.py``).

A protocol that needs a handshake beside others of the same session has a circle of its own (``circle="sum"``). Its
parties may meet again, always under fresh keys; those of the plain circle meet once a session.

By notes a party vouches to its peers for what travels openly through the coordinator. Public keys and ciphertexts are
no secret, but whoever relays them could put its own in their place: a key of the coordinator's instead of a peer's, and
everything that is encrypted under it is the coordinator's to read. So the sender seals a digest of what it sent for
each peer (only a pinned peer can make the box, for this meeting, purpose and number), and a peer uses nothing that the
note does not vouch for. Numbers ascend: an older note is not taken again.

A note is bytes, not a box: what it vouches for is not sealed, and the ledger is to say so.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fedsift.core.arguments import AtMost, PartyName
from fedsift.core.federation import Federation
from fedsift.core.identity import PUBLIC_BYTES as SIGNER_BYTES
from fedsift.core.identity import SIGNATURE_BYTES, Fingerprint, Identity, is_signed
from fedsift.core.message import decode, encode, wire_type
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import (
    PUBLIC_BYTES,
    SealedBox,
    SealKey,
    frame,
    pair_key,
    round_bytes,
    seal,
    unseal,
)
from fedsift.errors import OperationRefused, SecurityError
from fedsift.mpc.ring import Ring, stream

MAX_PARTIES = 1000
Names = Annotated[list[PartyName], AtMost(MAX_PARTIES)]


@wire_type(35)
@dataclass(frozen=True, repr=False)
class Offer:
    """A party's half of the handshake: a key made for it, and who says so."""

    key: bytes
    signer: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        return self.key + self.signer + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> Offer:
        if len(data) != PUBLIC_BYTES + SIGNER_BYTES + SIGNATURE_BYTES:
            raise SecurityError("an offer has a key, a signer and a signature; this one was cut short or is none")
        signer = data[PUBLIC_BYTES : PUBLIC_BYTES + SIGNER_BYTES]
        return cls(data[:PUBLIC_BYTES], signer, data[PUBLIC_BYTES + SIGNER_BYTES :])


@dataclass(frozen=True)
class Meeting:
    """What an offer is good for: one handshake of one session of one job, among these parties."""

    job: bytes
    session: str
    round: int
    circle: str
    among: tuple[str, ...]

    def statement(self, sender: str, key: bytes) -> bytes:
        """What a party signs."""
        names = [name.encode() for name in sorted(self.among)]
        where = [self.job, self.session.encode(), round_bytes(self.round), self.circle.encode()]
        return frame(b"fedsift handshake v1", *where, sender.encode(), key, *names)


@dataclass
class Pairs:
    """A party's secrets with each of its peers, for one meeting."""

    me: str
    meeting: Meeting
    identity: Identity = field(repr=False)
    key: SealKey = field(default_factory=SealKey.generate, repr=False)
    _publics: dict[str, bytes] = field(default_factory=dict, repr=False)
    _seeds: dict[str, bytes] = field(default_factory=dict, repr=False)
    _used: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)
    _bound: bytes = field(default=b"", repr=False)  # to all offers of the meeting

    def offer(self) -> Offer:
        """This party's half, signed."""
        key = self.identity.key
        return Offer(self.key.public, key.public, key.sign(self.meeting.statement(self.me, self.key.public)))

    def meet(self, offers: Mapping[str, Offer]) -> None:
        """Agree on a seed with every peer. Once: a meeting's peers neither change nor come later."""
        if self._seeds:
            raise SecurityError(f"party {self.me!r} has met its peers already in this run")
        if set(offers) != set(self.meeting.among):
            raise SecurityError(f"party {self.me!r}: these are not the offers of those among whom it meets")
        publics = {name: offer.key for name, offer in offers.items()}
        if publics[self.me] != self.key.public or len(set(publics.values())) != len(publics):
            raise SecurityError(f"party {self.me!r}: the list of offers lacks its own key, or has one key twice")
        for name, offer in offers.items():
            if name != self.me:
                self._check(name, offer)
        self._publics = publics
        told = [part for name in sorted(publics) for part in (name.encode(), publics[name])]
        self._bound = hashlib.sha256(frame(self.meeting.statement("", b""), *told)).digest()
        self._seeds = {
            name: pair_key(self.key, public, name=name, purpose="pairs", context=self._bound)
            for name, public in publics.items()
            if name != self.me
        }

    def _check(self, name: str, offer: Offer) -> None:
        """Refuse an offer that is not that of the party of this name, for this meeting."""
        pinned = self.identity.peers
        if pinned is None:
            raise SecurityError(
                f"party {self.me!r} knows no peers: exchange fingerprints (fedsift party fingerprint) and write them "
                "into [peers] of its party.toml"
            )
        if name not in pinned:
            raise SecurityError(f"party {self.me!r}: {name[:60]!r} is not among the [peers] of its party.toml")
        if Fingerprint.of(offer.signer) != pinned[name]:
            raise SecurityError(
                f"party {self.me!r}: what came as {name!r} is signed by another key than the one that this party has "
                "pinned; compare fingerprints with that party before anything else"
            )
        if not is_signed(self.meeting.statement(name, offer.key), offer.signature, offer.signer):
            raise SecurityError(
                f"party {self.me!r}: what came as the offer of {name!r} is not signed for this job, session and round"
            )

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

    def secret(self, peer: str, purpose: str, context: bytes = b"") -> bytes:
        """32 bytes that both derive alike, once a purpose, for a protocol with streams of its own."""
        self._use(peer, f"secret: {purpose}", 0)
        return hashlib.sha256(frame(b"fedsift pair secret", self._seed(peer), purpose.encode(), context)).digest()

    def seal(self, payload: object, *, to: str, about: str, number: int) -> SealedBox:
        """Anything that can travel, for one peer alone."""
        self._use(to, f"seal: {about}", number)
        return seal(
            encode(payload), key=self.key, peer=self._public(to), sender=self.me, receiver=to, round=number,
            about=about, context=self._bound,
        )  # fmt: skip

    def open(self, box: object, *, sender: str, about: str, number: int) -> Any:
        """What ``sender`` sealed for this party under the same purpose and number."""
        if not isinstance(box, SealedBox):
            raise SecurityError(f"party {self.me!r}: what came from {sender!r} about {about!r} is no sealed box")
        payload = unseal(
            box, key=self.key, peer=self._public(sender), sender=sender, receiver=self.me, round=number, about=about,
            context=self._bound,
        )  # fmt: skip
        self._use(sender, f"open: {about}", number)
        return decode(payload)

    def _public(self, peer: str) -> bytes:
        self._seed(peer)
        return self._publics[peer]

    def _seed(self, peer: str) -> bytes:
        if peer not in self._seeds:
            raise SecurityError(f"party {self.me!r} shares no secret with {peer!r} in this run")
        return self._seeds[peer]

    def _use(self, peer: str, purpose: str, number: int) -> None:
        last = self._used.get((peer, purpose), -1)
        if not isinstance(number, int) or isinstance(number, bool) or not last < number < 2**62:
            raise SecurityError(f"party {self.me!r}: number {number} of {purpose!r} was used before, or is none")
        self._used[peer, purpose] = number


@dataclass
class Circles:
    """The handshakes of one session beside the plain one, by their names."""

    of: dict[str, Pairs] = field(default_factory=dict)


def circle_of(party: Party, circle: str) -> Pairs:
    """What an earlier handshake of this session has left here."""
    met: Pairs | None = party.state.get(Circles, Circles()).of.get(circle)
    if met is None:
        raise SecurityError(f"party {party.name!r} has met no peers in this run for {circle!r}")
    return met


@dataclass
class Crowds:
    """Among whom this site has given vectors that add up to readable totals, for all sessions of the run."""

    of: dict[str, frozenset[str]] = field(default_factory=dict)


def settled(party: Party, circle: str, *, of_holders: bool = False) -> Pairs:
    """The peers to mask a vector among: those of the first vector that this site gave in the run, or it is refused.

    Two totals over different crowds differ by somebody's own vector (``secure_sum.py``). ``of_holders``: in a job in
    which some parties hold no labels, sums about the label alone have a crowd of their own, of parties that hold one.
    Where everybody holds labels there is one crowd for all.
    """
    met, job = circle_of(party, circle), party.run.job
    crowd = frozenset({party.name, *met.peers})
    if len(crowd) < 2:
        raise SecurityError(f"party {party.name!r} is alone: a total would be its own vector")
    apart = of_holders and job is not None and set(job.label_parties) != set(job.parties)
    if apart and job is not None and not crowd <= set(job.label_parties):
        raise SecurityError(f"party {party.name!r}: a sum about the label is among parties that hold labels")
    crowds: Crowds = party.run.kept.setdefault(Crowds, Crowds())
    if crowds.of.setdefault(f"{circle} of labels" if apart else circle, crowd) != crowd:
        raise SecurityError(
            f"party {party.name!r} has given sums among other parties in this run: the two totals would differ by what "
            "one party gave alone. Nobody leaves or joins between sums; start the job again with all parties"
        )
    return met


Circle = Annotated[str, AtMost(20)]


@operation(
    "pairs.offer_key",
    discloses="control",
    about="a public key made for this run, signed by the site",
    reply=Offer,
    times="50 a session",
)
def offer_key(party: Party, *, among: Names, circle: Circle = "") -> Offer:
    job = party.run.job
    if party.name not in among or len(set(among)) != len(among) or (job and not set(among) <= set(job.parties)):
        raise SecurityError(f"party {party.name!r}: a handshake is among parties of the job, this one included")
    meeting = Meeting(job.hash if job else b"", party.session, party.round, circle, tuple(among))
    made = Pairs(party.name, meeting, party.site.identity)
    if circle:
        (party.state.get(Circles) or party.keep(Circles())).of[circle] = made
    elif Pairs in party.state:
        raise OperationRefused(party.name, "offer_key", "it has offered a key already in this session")
    else:
        party.keep(made)
    return made.offer()


@operation(
    "pairs.meet",
    discloses="control",
    about="acknowledgement",
    learns="the other parties' public keys",
    times="50 a session",
    after="pairs.offer_key",
)
def meet(party: Party, *, offers: Annotated[dict[str, Offer], AtMost(MAX_PARTIES)], circle: Circle = "") -> None:
    (circle_of(party, circle) if circle else party.held(Pairs)).meet(offers)


#: What a method lists that uses this layer.
OPERATIONS = (offer_key, meet)


def meet_all(run: Federation, parties: Sequence[str] | None = None, circle: str = "") -> None:
    """The handshake, inside a session; afterwards every operation has ``party.held(Pairs)`` (or ``circle_of``)."""
    names = list(run.parties if parties is None else parties)
    offers = run.ask(offer_key, to=names, among=names, circle=circle)
    run.ask(meet, to=names, offers=offers, circle=circle)


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
