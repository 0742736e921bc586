"""Sums over a group of parties that the coordinator adds up and cannot read: only the group's readers can.

Plain secure aggregation (``secure_sum.py``) tells the coordinator the total. Here a total is for parties alone, so
every vector travels in Z_2^64 under two kinds of one-time masks:

1. Pairwise masks between those who take part: they cancel in the sum and hide every single vector, from the coordinator
   and from the readers alike.
2. One cover on top, added by the first of those who take part and taken off by the readers. Its seed is that of a pair
   (one reader) or a secret of the group (every member reads), which its first member draws and seals for the others.

Why it is secure (nobody works together with the coordinator): seeds come from the parties' signed handshake
(``pairs.py``). To the coordinator each vector, and the total too, is uniform. A reader learns the total; one that took
part itself learns the total of the others. A party alone with the reader is readable to it: that is the meaning of a
sum of one.

Nobody is left out of a total that the coordinator reads (``cover=None``): it is over all who have met, and who meets
stays the same for the run (``pairs.settled``; ``secure_sum.py`` says why). Of totals that parties read the method says
who takes part; a reader that works together with the coordinator can be given two that differ by one party.

A mask is bound to a purpose and a number that a party accepts once, in ascending order: no stream is used twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from fedsift.core.arguments import AtMost, PartyName
from fedsift.core.federation import Federation
from fedsift.core.operation import ByName, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import SealedBox
from fedsift.errors import DataError, OverflowGuard, ReplyError, SecurityError
from fedsift.mpc import pairs, ring
from fedsift.mpc.pairs import MAX_PARTIES, Names, circle_of, meet_all, settled
from fedsift.mpc.ring import Ring, new_seed, stream, to_ring

CIRCLE = "group"
_ABOUT = "group secret"
_SUMMANDS = 1024  # of a total at the most


# --- a party's side --------------------------------------------------------------------------------------------------


@dataclass
class GroupSecrets:
    """The secrets of the groups that a party is in, and the numbers that it has used of each purpose."""

    of: dict[str, bytes] = field(default_factory=dict, repr=False)
    used: dict[str, int] = field(default_factory=dict, repr=False)

    def cover(self, party: Party, group: str, purpose: str, number: int, shape: tuple[int, ...], put: bool) -> Ring:
        """The stream of a group: put on at most once a number; taken off as often as somebody asks."""
        if group not in self.of:
            raise SecurityError(f"party {party.name!r} shares no secret with {group!r} in this run")
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**62:
            raise SecurityError(f"party {party.name!r}: {number} is no number of {purpose!r}")
        if put and number <= self.used.get(f"{group}: {purpose}", -1):
            raise SecurityError(f"party {party.name!r}: number {number} of {purpose!r} was used before")
        if put:
            self.used[f"{group}: {purpose}"] = number
        return stream(self.of[group], purpose, number, shape)


@operation(
    "group.draw_secrets",
    discloses="ciphertext",
    about="secrets of the groups that it leads, sealed for their members",
    opened="nobody",
    learns="who is in which group",
    reply=ByName(ByName(SealedBox)),
    after="pairs.meet",
    times="10 a session",
)
def draw_secrets(
    party: Party, *, groups: Annotated[dict[str, Names], AtMost(MAX_PARTIES)]
) -> dict[str, dict[str, SealedBox]]:
    """The first member of a group draws its secret; a group has members that this party has met."""
    met, drawn, boxes = circle_of(party, CIRCLE), party.keep(GroupSecrets()), {}
    for group, members in groups.items():
        if party.name not in members or not set(members) <= {party.name, *met.peers}:
            raise SecurityError(f"party {party.name!r}: the group {group!r} is not of parties that it has met")
        if members[0] == party.name:
            drawn.of[group] = new_seed()
            sealed = {
                name: met.seal(drawn.of[group], to=name, about=f"{_ABOUT} {group}", number=0) for name in members[1:]
            }
            boxes[group] = sealed
    return boxes


@operation(
    "group.take_secrets",
    discloses="control",
    receives="ciphertext",
    about="acknowledgement",
    learns="the secrets of its groups",
    after="group.draw_secrets",
    times="10 a session",
)
def take_secrets(
    party: Party,
    *,
    leaders: Annotated[dict[str, PartyName], AtMost(MAX_PARTIES)],
    boxes: Annotated[dict[str, SealedBox], AtMost(MAX_PARTIES)],
) -> None:
    met, drawn = circle_of(party, CIRCLE), party.held(GroupSecrets)
    if set(leaders) != set(boxes) or set(boxes) & set(drawn.of):
        raise SecurityError(f"party {party.name!r}: a group has one secret, from its first member")
    for group, box in boxes.items():
        secret = met.open(box, sender=leaders[group], about=f"{_ABOUT} {group}", number=0)
        if not isinstance(secret, bytes) or len(secret) != ring.SEED_BYTES:
            raise SecurityError(f"party {party.name!r}: what came as the secret of {group!r} is none")
        drawn.of[group] = secret


def hide(party: Party, vector: Ring, purpose: str, number: int, among: Sequence[str], cover: str | None) -> Ring:
    """``vector`` as it may travel: under pairwise masks of those in ``among``, and under the cover if ``party`` leads.

    ``cover`` is the name of the one party that reads the total, the name of a group whose members do, or ``None``: then
    the coordinator reads the total.
    """
    if party.name not in among:
        raise SecurityError(f"party {party.name!r} does not take part in the sum {purpose!r}")
    met = settled(party, CIRCLE)
    if cover is None and set(among) != {party.name, *met.peers}:
        raise SecurityError(f"party {party.name!r}: a total that the coordinator reads is one over all who have met")
    total = vector
    for peer in among:
        if peer != party.name:
            total = total + met.cancelling(peer, f"sum of {purpose}", number, vector.shape)
    if cover is not None and among[0] == party.name:
        total = total + _cover(party, cover, purpose, number, vector.shape, put=True)
    return total


def cover_for(party: Party, vector: Ring, purpose: str, number: int, reader: str) -> Ring:
    """``vector`` for one party or for a group, through the coordinator, which cannot read it."""
    return vector + _cover(party, reader, purpose, number, vector.shape, put=True)


def uncover(party: Party, covered: object, purpose: str, number: int, cover: str, shape: tuple[int, ...]) -> Ring:
    """The total (or vector) without its cover, for a reader."""
    if not isinstance(covered, np.ndarray) or covered.dtype != np.uint64 or covered.shape != shape:
        raise DataError(f"party {party.name!r}: what came as {purpose!r} has not the expected shape {shape}")
    return covered - _cover(party, cover, purpose, number, shape, put=False)


def _cover(party: Party, whose: str, purpose: str, number: int, shape: tuple[int, ...], put: bool) -> Ring:
    """Of a pair (one side puts it on, the other takes it off) or of a group.

    Both sides of a pair may be asked to put one on: two covers then, by their readers, not one that cancels."""
    met = circle_of(party, CIRCLE)
    if whose in met.peers:
        return met.mask(whose, f"cover of {purpose} for {whose if put else party.name}", number, shape)
    return party.held(GroupSecrets).cover(party, whose, f"cover of {purpose}", number, shape, put)


def group_secret(party: Party, group: str) -> bytes:
    held = party.held(GroupSecrets).of
    if group not in held:
        raise SecurityError(f"party {party.name!r} shares no secret with {group!r} in this run")
    return held[group]


# --- numbers in the ring ---------------------------------------------------------------------------------------------


def to_words(values: np.ndarray) -> Ring:
    """Floats as two ring elements each, whole part and rest: totals up to 1e15 over many parties, exact to 1e-15."""
    return ring.to_words(values, _SUMMANDS)


def from_words(total: Ring, shape: tuple[int, ...]) -> np.ndarray:
    return ring.from_words(total).reshape(shape)


def fixed(values: np.ndarray, exponent: int, what: str) -> Ring:
    """round(x * 2^exponent) in Z_2^64; refused when a thousand of them might not fit."""
    try:
        return to_ring(values, exponent, 2.0 ** (63 - exponent) / _SUMMANDS)
    except OverflowGuard:
        raise OverflowGuard(f"{what} grew too large for exact sums; a larger penalty keeps them small") from None


# --- the coordinator's side ------------------------------------------------------------------------------------------


class Groups:
    """Keys and numbers of one run. ``groups`` gives the members of each group of two and more."""

    def __init__(self, run: Federation, groups: Mapping[str, Sequence[str]]):
        self.run = run
        self.groups = {name: list(members) for name, members in groups.items() if len(members) > 1}
        self._number = 0
        meet_all(run, circle=CIRCLE)
        own = {name: {"groups": {g: m for g, m in self.groups.items() if name in m}} for name in run.parties}
        sealed = run.ask(draw_secrets, to=run.parties, each=own)
        each: dict[str, dict[str, dict[str, object]]] = {name: {"leaders": {}, "boxes": {}} for name in run.parties}
        for group, (leader, *others) in self.groups.items():
            for name in others:
                box = sealed[leader].get(group, {}).get(name)
                if not isinstance(box, SealedBox):
                    raise ReplyError(leader, "draw_secrets", f"it sealed no secret of {group!r} for {name!r}")
                each[name]["leaders"][group], each[name]["boxes"][group] = leader, box
        run.ask(take_secrets, to=run.parties, each=each)

    def number(self) -> int:
        """The next number for masks: never the same twice in a run."""
        self._number += 1
        return self._number


def add_up(vectors: Mapping[str, Any], operation: str) -> Ring | None:
    """The total of masked vectors; ``None`` for no vectors. A vector of another shape names its party."""
    total: Ring | None = None
    for name, vector in vectors.items():
        good = isinstance(vector, np.ndarray) and vector.dtype == np.uint64
        if not good or (total is not None and vector.shape != total.shape):
            raise ReplyError(name, operation, "its masked vector has not the shape of the others'")
        total = vector.copy() if total is None else total + vector
    return total


#: What a method lists that uses this layer.
OPERATIONS = (*pairs.OPERATIONS, draw_secrets, take_secrets)
