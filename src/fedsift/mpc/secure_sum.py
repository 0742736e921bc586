"""Secure aggregation: the coordinator learns the sum of the parties' vectors and no party's own vector.

A party-side function that returns numbers is marked ``@summed(about=...)``; ``SecureSum(fed).sum(function, ...)`` asks
all parties for it and returns the total. The numbers travel in fixed point under pairwise masks (Bonawitz et al. 2017,
without their double masks):

1. The parties meet under fresh, signed keys (``pairs.py``).
2. In each sum a party adds, for every peer, a mask that only those two can derive, one of them with the opposite sign;
   the masks cancel in the total and nowhere else. A mask's number is the round of the request: none is used twice.

Why it is secure (the coordinator works with nobody): without a pair seed a masked vector is uniform, so the
coordinator's view can be simulated from the totals alone. What the totals say is what it learns, and what it passes on
is what the parties learn; of two parties each can subtract its own part from a total that it is told.

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
from fedsift.errors import DataError, ParameterError, PartyGone, PartyTimeout, ReplyError
from fedsift.mpc import pairs
from fedsift.mpc.pairs import Names, circle_of, meet_all
from fedsift.mpc.ring import Ring, from_words, to_words

CIRCLE = "sum"


class Summed:
    """A party-side function that returns an array of floats, as two operations: under masks, and in the clear."""

    def __init__(self, id: str, function: Callable[..., Any], about: str, **declared: Any):
        self.function = function
        hidden = f"{about}, masked: only the total over all parties is readable"
        self.masked = _mark(id, function, _masked_reply, "masked", hidden, declared)
        self.open = _mark(f"{id}.open", function, _open_reply, "aggregate", f"{about} of this party alone", declared)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def summed(
    id: str, *, about: str, receives: str = "aggregate", learns: str = "", epsilon: str = "",
    times: int | str | None = None, sums: bool = False,
) -> Callable[[Callable[..., Any]], Summed]:  # fmt: skip
    """Mark ``f(party, **arguments) -> array`` as something that parties only ever give as a total.

    ``epsilon``, ``times``, ``sums`` are those of an operation; a sum is repeated for every party that leaves a run.
    """

    def mark(function: Callable[..., Any]) -> Summed:
        return Summed(id, function, about, receives=receives, learns=learns, epsilon=epsilon, times=times, sums=sums)

    return mark


def _mark(
    id: str, function: Callable[..., Any], reply: Callable[..., Any], form: str, about: str, declared: dict[str, Any]
) -> Operation:
    def run(party: Party, **arguments: Any) -> Any:
        return reply(party, np.asarray(function(party, **arguments), dtype=np.float64))

    run.__module__, run.__name__ = function.__module__, function.__name__
    run.__qualname__ = f"{function.__qualname__}.{form}"  # the registered name: two operations, one function
    run.__doc__ = function.__doc__
    run.__wrapped__ = function  # type: ignore[attr-defined]  # its annotations are the arguments' schema
    return operation(id, discloses=form, about=about, reply=Array("i"), **declared)(run)


def _words(values: np.ndarray, summands: int) -> Ring:
    flat = values.ravel()
    if not np.isfinite(flat).all():
        raise DataError(f"number {int(np.argmin(np.isfinite(flat)))} of a sum is not finite")
    return to_words(flat, summands)


def _masked_reply(party: Party, values: np.ndarray) -> Ring:
    met = circle_of(party, CIRCLE)
    total = _words(values, len(met.peers) + 1)
    for peer in met.peers:
        total += met.cancelling(peer, "secure sum", party.round, total.shape)
    return total


def _open_reply(party: Party, values: np.ndarray) -> Ring:
    return _words(values, 1024)


@operation(
    "sum.go_on_without",
    discloses="control",
    about="acknowledgement",
    learns="who has left the run",
    after="pairs.meet",
    times="50 a session",
)
def go_on_without(party: Party, *, left: Names) -> None:
    """Mask with fewer peers from now on. Nobody joins, nobody comes back, and nobody stays alone."""
    circle_of(party, CIRCLE).without(left)


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
            meet_all(fed, self.parties, CIRCLE)
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
            numbers = from_words(np.sum(list(replies.values()), axis=0, dtype=np.uint64))
        else:
            numbers = np.sum([from_words(reply) for reply in replies.values()], axis=0)
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
            self._survive(lambda: self.fed.ask(go_on_without, to=self.parties, left=[error.party]))


def both(*functions: Summed) -> tuple[Operation, ...]:
    """The operations of functions that a method sums: under masks, and in the clear where it may be told to."""
    return tuple(marked for function in functions for marked in (function.masked, function.open))


#: What a method lists that uses this layer, beside ``both(...)`` of what it sums.
OPERATIONS = (*pairs.OPERATIONS, go_on_without)
