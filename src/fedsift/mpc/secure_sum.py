"""Secure aggregation: the coordinator learns the sum of the parties' vectors and no party's own vector.

A party-side function that returns numbers is marked ``@summed(about=...)``; ``SecureSum(fed).sum(function, ...)`` asks
all parties for it and returns the total. The numbers travel in fixed point under pairwise masks (``secure/masks.py``):

1. Once a run, every party makes a fresh X25519 key and sends its public half; the coordinator passes all of them on.
2. In each sum a party adds, for every peer, a mask that only those two can derive, bound to the round and purpose;
   the masks cancel in the total and nowhere else. Every ``ask`` has a round number of its own, so no mask is reused.

Why it is secure (semi-honest, the coordinator works with nobody): without a pair key a masked vector is uniform, so
the coordinator's view can be simulated from the totals alone. What the totals say is what it learns, and what it
passes on is what the parties learn; of two parties each can subtract its own part from a total that it is told.

A party that leaves: the survivors repeat the round with masks among themselves only (a new round number, hence new
masks), and the run goes on without that party. No mask is ever uncovered, so nothing that was sent before can be
opened. Known gap: if the missing party's vector of the failed round arrives after all, the difference of two totals
is that vector; ``Federation.ask`` drops late replies unread, and a coordinator is trusted to do the same.

``secure=False`` sends each party's sums as they are, under operations that the ledger calls ``aggregate``. It is for
research (one pooled "party" as a reference) and leaves a note in the ledger.

Precision: a number is split into a whole part and a rest scaled by 2^52, both summed in Z_2^64: totals up to 1e17
over 8 parties, exact to about 1e-15. The same rows give the same total however they are dealt to the parties, up to
the rounding of the parties' own additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, Operation, operation
from fedsift.core.party import Party
from fedsift.crypto.sealed_box import PUBLIC_BYTES, SealKey
from fedsift.errors import DataError, ParameterError, PartyGone, PartyTimeout, ReplyError, SecurityError
from fedsift.mpc.pairwise_masks import decode, encode, masked, unmask_sum

_KEY, _PEERS = "aggregate key", "aggregate peers"
_REST_BITS = 52
_PURPOSE = "secure sum"


class Summed:
    """A party-side function that returns an array of floats, as two operations: under masks, and in the clear."""

    def __init__(
        self, id: str, function: Callable[..., Any], about: str, receives: str, learns: str, times: int | str | None
    ):
        self.function = function
        hidden = f"{about}, masked: only the total over all parties is readable"
        alone = f"{about} of this party alone"
        self.masked = _mark(id, function, _masked_reply, "masked", hidden, receives, learns, times)
        self.open = _mark(f"{id}.open", function, _open_reply, "aggregate", alone, receives, learns, times)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def summed(
    id: str, *, about: str, receives: str = "aggregate", learns: str = "", times: int | str | None = None
) -> Callable[[Callable[..., Any]], Summed]:
    """Mark ``f(party, **arguments) -> array`` as something that parties only ever give as a total."""

    def mark(function: Callable[..., Any]) -> Summed:
        return Summed(id, function, about, receives, learns, times)

    return mark


def _mark(
    id: str, function: Callable[..., Any], reply: Callable[..., Any], form: str, about: str, receives: str, learns: str,
    times: int | str | None,
) -> Operation:  # fmt: skip
    def run(party: Party, **arguments: Any) -> Any:
        return reply(party, np.asarray(function(party, **arguments), dtype=np.float64))

    run.__module__, run.__name__ = function.__module__, function.__name__
    run.__qualname__ = f"{function.__qualname__}.{form}"  # the registered name: two operations, one function
    run.__doc__ = function.__doc__
    run.__wrapped__ = function  # type: ignore[attr-defined]  # its annotations are the arguments' schema
    declared = operation(
        id, discloses=form, about=about, reply=Array("i"), receives=receives, learns=learns, times=times
    )
    return declared(run)


def _two_words(values: np.ndarray) -> np.ndarray:
    """Whole parts, then the rests as whole numbers of 2^-52."""
    flat = values.ravel()
    if not np.isfinite(flat).all():
        raise DataError(f"number {int(np.argmin(np.isfinite(flat)))} of a sum is not finite")
    whole = np.rint(flat)
    return np.concatenate([whole, np.rint(np.ldexp(flat - whole, _REST_BITS))])


def _one_word(totals: np.ndarray) -> np.ndarray:
    whole, rest = np.split(totals, 2)
    return whole + np.ldexp(rest, -_REST_BITS)


def _masked_reply(party: Party, values: np.ndarray) -> np.ndarray:
    if _PEERS not in party.state:
        raise SecurityError(f"party {party.name!r} has met no peers in this run, so its vector cannot be masked")
    return masked(
        _two_words(values), me=party.name, key=party.state[_KEY], peers=party.state[_PEERS], round=party.round,
        exponent=0, about=_PURPOSE,
    )  # fmt: skip


def _open_reply(party: Party, values: np.ndarray) -> np.ndarray:
    return encode(_two_words(values), exponent=0, summands=1024)


@operation("sum.offer_key", discloses="control", about="a public key made for this run", reply=bytes)
def offer_key(party: Party) -> bytes:
    party.state.pop(_PEERS, None)  # a new key is a new beginning: nothing is masked until the peers are known again
    party.state[_KEY] = SealKey.generate()
    return party.state[_KEY].public


@operation("sum.meet", discloses="control", about="acknowledgement", learns="the other parties' public keys")
def meet(party: Party, *, publics: dict[str, bytes]) -> None:
    """Take note of who masks with whom. Called again, with fewer, when a party has left."""
    key = party.state.get(_KEY)
    if key is None or publics.get(party.name) != key.public:
        raise SecurityError(f"party {party.name!r}: the list of public keys does not hold its own key")
    if party.run.job is not None and not set(publics) <= set(party.run.job.parties):
        raise SecurityError(f"party {party.name!r}: the list of public keys names somebody who is not of this job")
    peers = {name: public for name, public in publics.items() if name != party.name}
    if not peers:
        raise SecurityError(f"party {party.name!r} is alone: a sum would be its own vector")
    known = party.state.get(_PEERS)
    if known is not None and any(known.get(name) != public for name, public in peers.items()):
        raise SecurityError(f"party {party.name!r}: peers may leave during a run, but neither join nor change keys")
    party.state[_PEERS] = peers


#: What a method lists that uses this layer, beside its own sums.
OPERATIONS = (offer_key, meet)


class SecureSum:
    """The coordinator's side. ``parties`` are those still there; ``left`` those that went, with the reason.

    Make it inside a session: keys and peers live in the parties' state of that run.
    """

    def __init__(self, fed: Federation, *, secure: bool = True, parties: Sequence[str] | None = None):
        self.parties = list(fed.parties if parties is None else parties)
        if secure and len(self.parties) < 2:
            raise ParameterError(
                "secure aggregation needs at least two parties: the total of one party is its own vector "
                "(secure=False runs a single pooled table for comparison)"
            )
        self.fed = fed
        self.secure = secure
        self.left: dict[str, str] = {}
        if secure:
            self._publics = fed.ask(offer_key, to=self.parties)
            for name, public in self._publics.items():
                if len(public) != PUBLIC_BYTES:
                    raise ReplyError(name, "offer_key", f"a public key has {PUBLIC_BYTES} bytes")
            fed.ask(meet, to=self.parties, publics=self._publics)
        else:
            fed.ledger.note("secure=False: the coordinator saw each party's own sums")

    def sum(self, function: Summed, shape: tuple[int, ...] | None = None, **same: Any) -> np.ndarray:
        """The total of ``function`` over the parties, as an array of ``shape`` (flat by default)."""
        replies = self._replies(function, same)
        sizes = {name: reply.shape for name, reply in replies.items()}
        wanted = None if shape is None else (2 * int(np.prod(shape)),)
        for name, size in sizes.items():
            if size != (wanted or next(iter(sizes.values()))) or size[0] % 2 or replies[name].dtype != np.uint64:
                raise ReplyError(
                    name, function.masked.short_name, f"its vector has the shape {size}, expected {wanted}"
                )
        if self.secure:
            total = unmask_sum(replies, len(replies), exponent=0, expected=self.parties)
        else:
            total = np.sum([decode(reply, exponent=0) for reply in replies.values()], axis=0)
        numbers = _one_word(total)
        return numbers if shape is None else numbers.reshape(shape)

    def ask_all(self, marked: Operation, **same: Any) -> dict[str, Any]:
        """An ordinary request to the parties that are left, with the same care for one that leaves."""
        return self._survive(lambda: self.fed.ask(marked, to=self.parties, **same))

    def _replies(self, function: Summed, same: dict[str, Any]) -> dict[str, np.ndarray]:
        marked = function.masked if self.secure else function.open
        return self._survive(lambda: self.fed.ask(marked, to=self.parties, **same))

    def _survive(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        while True:
            try:
                return ask()
            except (PartyGone, PartyTimeout) as error:
                self._go_on_without(error)

    def _go_on_without(self, error: PartyGone | PartyTimeout) -> None:
        survivors = [name for name in self.parties if name != error.party]
        if len(survivors) < 2 or len(survivors) == len(self.parties):
            raise error  # nobody left to hide among
        self.parties = survivors
        self.left[error.party] = error.what
        self.fed.ledger.note(f"party {error.party!r} left during the run; the others went on without it")
        if self.secure:
            publics = {name: self._publics[name] for name in survivors}
            self._survive(lambda: self.fed.ask(meet, to=self.parties, publics={n: publics[n] for n in self.parties}))


def both(*functions: Summed) -> tuple[Operation, ...]:
    """The operations of functions that a method sums: under masks, and in the clear where it may be told to."""
    return tuple(marked for function in functions for marked in (function.masked, function.open))


#: What a method lists that uses this layer, beside ``both(...)`` of what it sums.
OPERATIONS = (offer_key, meet)
