"""Sums over a group of parties that the coordinator adds up and cannot read: only the group's readers can.

Plain secure aggregation (``aggregate.py``) tells the coordinator the total. Here a total is for parties alone, so every
vector travels in Z_2^64 under two kinds of one-time masks, all of them ChaCha20 streams:

1. Pairwise masks between those who take part: they cancel in the sum and hide every single vector, from the coordinator
   and from the readers alike.
2. One cover on top, added by the first of those who take part and taken off by the readers. Its seed is that of a pair
   (one reader) or a secret of the group (every member reads), which its first member draws and seals for the others.

Why it is secure (semi-honest parties, nobody works together with the coordinator): seeds come from X25519 agreements
between parties, with keys made for this run. To the coordinator each vector, and the total too, is uniform. A reader
learns the total; one that took part itself learns the total of the others. A party alone with the reader is readable to
it: that is the meaning of a sum of one, and ``lone`` rounds are refused where the group has more parties.

A mask is bound to a purpose and a number that a party accepts once, in ascending order: no stream is used twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import PUBLIC_BYTES, SealedBox, SealKey, pair_key, seal, unseal
from fedsift.errors import DataError, OverflowGuard, ReplyError, SecurityError
from fedsift.mpc.pairwise_masks import decode, encode
from fedsift.mpc.shared_product import Ring, add_pairwise, ring_stream

_KEY, _SEEDS, _SECRETS, _USED = "group key", "group seeds", "group secrets", "group numbers"
_REST_BITS = 52
_ABOUT = "group secret"


# --- a party's side --------------------------------------------------------------------------------------------------


@operation("group.offer_group_key", discloses="control", about="a public key made for this run", reply=bytes)
def offer_group_key(party: Party) -> bytes:
    for name in (_SEEDS, _SECRETS, _USED):
        party.state.pop(name, None)  # a new key is a new beginning
    party.state[_KEY] = SealKey.generate()
    return party.state[_KEY].public


@operation(
    "group.meet_groups",
    discloses="ciphertext",
    about="secrets of the groups that it leads, sealed for their members",
    learns="the other parties' public keys and who is in which group",
    reply=dict,
)
def meet_groups(party: Party, *, publics: dict[str, bytes], groups: dict[str, list[str]]) -> dict[str, Any]:
    """Agree on a seed with every peer; the first member of a group draws its secret."""
    key = party.state.get(_KEY)
    if key is None or publics.get(party.name) != key.public:
        raise SecurityError(f"party {party.name!r}: the list of public keys does not hold its own key")
    if len(set(publics.values())) != len(publics):
        raise SecurityError(f"party {party.name!r}: two parties have the same public key")
    party.state[_SEEDS] = {
        name: pair_key(key, public, name=name, purpose="group sums")
        for name, public in publics.items()
        if name != party.name
    }
    party.state[_SECRETS], party.state[_USED], boxes = {}, {}, {}
    for group, members in groups.items():
        if party.name not in members:
            raise SecurityError(f"party {party.name!r} is no member of the group {group!r}")
        if members[0] == party.name:
            secret = party.state[_SECRETS][group] = secrets.token_bytes(32)
            boxes[group] = {
                name: seal(
                    secret, key=key, peer=publics[name], sender=party.name, receiver=name, round=0,
                    about=f"{_ABOUT} {group}",
                )
                for name in members[1:]
            }  # fmt: skip
    return boxes


@operation(
    "group.take_group_secrets",
    discloses="control",
    receives="ciphertext",
    about="acknowledgement",
    learns="the secrets of its groups",
)
def take_group_secrets(party: Party, *, publics: dict[str, bytes], boxes: dict[str, Any]) -> None:
    for group, sent in boxes.items():
        leader = sent["leader"]
        party.state[_SECRETS][group] = unseal(
            sent["box"], key=party.state[_KEY], peer=publics[leader], sender=leader, receiver=party.name, round=0,
            about=f"{_ABOUT} {group}",
        )  # fmt: skip


def hide(party: Party, vector: Ring, purpose: str, number: int, among: Sequence[str], cover: str | None) -> Ring:
    """``vector`` as it may travel: under pairwise masks of those in ``among``, and under the cover if ``party`` leads.

    ``cover`` is the name of the one party that reads the total, the name of a group whose members do, or ``None``: then
    the coordinator reads the total.
    """
    if party.name not in among:
        raise SecurityError(f"party {party.name!r} does not take part in the sum {purpose!r}")
    if cover is None and len(among) < 2:
        raise SecurityError(f"party {party.name!r} is alone: the coordinator would read its own vector")
    _use_once(party, purpose, number)
    seeds = {name: _seed(party, name) for name in among if name != party.name}
    total = add_pairwise(vector, party.name, seeds, f"sum of {purpose}", number)
    if cover is not None and among[0] == party.name:
        total = total + ring_stream(_seed(party, cover), f"cover of {purpose}", number, vector.shape)
    return total


def cover_for(party: Party, vector: Ring, purpose: str, number: int, reader: str) -> Ring:
    """``vector`` for one party or for a group, through the coordinator, which cannot read it."""
    _use_once(party, f"{purpose} for {reader}", number)
    return vector + ring_stream(_seed(party, reader), f"cover of {purpose}", number, vector.shape)


def uncover(party: Party, covered: Any, purpose: str, number: int, cover: str, shape: tuple[int, ...]) -> Ring:
    """The total (or vector) without its cover, for a reader."""
    if not isinstance(covered, np.ndarray) or covered.dtype != np.uint64 or covered.shape != shape:
        raise DataError(f"party {party.name!r}: what came as {purpose!r} has not the expected shape {shape}")
    return covered - ring_stream(_seed(party, cover), f"cover of {purpose}", number, shape)


def group_secret(party: Party, group: str) -> bytes:
    return _seed(party, group)


def _seed(party: Party, name: str) -> bytes:
    for known in (party.state.get(_SEEDS, {}), party.state.get(_SECRETS, {})):
        if name in known:
            return known[name]
    raise SecurityError(f"party {party.name!r} shares no secret with {name!r} in this run")


def _use_once(party: Party, purpose: str, number: int) -> None:
    used = party.state.setdefault(_USED, {})
    if not isinstance(number, int) or number <= used.get(purpose, 0):
        raise SecurityError(
            f"party {party.name!r}: mask {number} of {purpose!r} was used before; it is never used twice"
        )
    used[purpose] = number


# --- numbers in the ring ---------------------------------------------------------------------------------------------


def to_words(values: np.ndarray) -> Ring:
    """Floats as two ring elements each, whole part and rest: totals up to 1e15 over many parties, exact to 1e-15."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    whole = np.rint(flat)
    return encode(np.concatenate([whole, np.ldexp(flat - whole, _REST_BITS)]), exponent=0, summands=1024)


def from_words(total: Ring, shape: tuple[int, ...]) -> np.ndarray:
    whole, rest = np.split(decode(total, exponent=0), 2)
    return (whole + np.ldexp(rest, -_REST_BITS)).reshape(shape)


def fixed(values: np.ndarray, exponent: int, what: str) -> Ring:
    """round(x * 2^exponent) in Z_2^64; refused when a thousand of them might not fit."""
    try:
        return encode(values, exponent=exponent, summands=1024)
    except OverflowGuard:
        raise OverflowGuard(f"{what} grew too large for exact sums; a larger alpha keeps them small") from None


#: What a method lists that uses this layer.
OPERATIONS = (offer_group_key, meet_groups, take_group_secrets)


# --- the coordinator's side ------------------------------------------------------------------------------------------


class Groups:
    """Keys and numbers of one run. ``groups`` gives the members of each group of two and more."""

    def __init__(self, run: Federation, groups: Mapping[str, Sequence[str]]):
        self.run = run
        self.groups = {name: list(members) for name, members in groups.items() if len(members) > 1}
        self._number = 0
        publics = run.ask(offer_group_key, to=run.parties)
        for name, public in publics.items():
            if len(public) != PUBLIC_BYTES:
                raise ReplyError(name, "offer_group_key", f"a public key has {PUBLIC_BYTES} bytes")
        own = {name: {g: m for g, m in self.groups.items() if name in m} for name in run.parties}
        sealed = run.ask(
            meet_groups, to=run.parties, each={name: {"groups": own[name]} for name in run.parties}, publics=publics
        )
        boxes: dict[str, dict[str, Any]] = {name: {} for name in run.parties}
        for group, members in self.groups.items():
            for name in members[1:]:
                box = sealed[members[0]].get(group, {}).get(name)
                if not isinstance(box, SealedBox):
                    raise ReplyError(members[0], "meet_groups", f"it sealed no secret of {group!r} for {name!r}")
                boxes[name][group] = {"leader": members[0], "box": box}
        run.ask(
            take_group_secrets, to=run.parties, each={name: {"boxes": boxes[name]} for name in run.parties},
            publics=publics,
        )  # fmt: skip

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


OPERATIONS = (offer_group_key, meet_groups, take_group_secrets)
