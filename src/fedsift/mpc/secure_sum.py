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

Nobody is left out later. Two totals of the same numbers, with and without a party, differ by that party's vector, and
no site can tell a party that has gone from one of which the coordinator only says so. Nor does it help to refuse the
same question for a smaller crowd: a gradient one step further, or the same column in another sum, is near enough. So:

- The first vector that a site gives in a run settles its crowd (``settled``): it gives no other vector of that run
  among others, in whatever session and after whatever handshake. A total comes out only over a crowd whose members
  all mask for exactly each other, so the crowds of any two totals of a run are the same or have nobody in common.
- A mask is drawn for the question too (operation, arguments, view) and for all sums and steps before it in the session
  that parties must be told alike (``told_alike``): vectors that answer different questions, or the same one after
  different scales or columns, do not add up. So a coordinator cannot hold a party back by telling it something else.

A party that leaves therefore ends the run with its name; a lost reply is no loss, since a site repeats its last reply
to the same bytes. No agreement about who is there is needed, and no mask is ever uncovered. What this does not cover is
another job: two jobs about the same rows, with and without a party, have that difference (docs/party.md).

``secure=False`` sends each party's sums as they are, under operations that the ledger calls ``aggregate``. It is for
research (one pooled "party" as a reference) and leaves a note in the ledger.

Precision: a number is split into a whole part and a rest scaled by 2^52, both summed in Z_2^64: totals up to 1e17
over 8 parties, exact to about 1e-15. The same rows give the same total however they are dealt to the parties, up to
the rounding of the parties' own additions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.message import encode
from fedsift.core.operation import Answering, Array, Operation, R, operation
from fedsift.core.party import Party
from fedsift.errors import DataError, ParameterError, ReplyError
from fedsift.mpc import pairs
from fedsift.mpc.pairs import Circles, Pairs, meet_all, settled
from fedsift.mpc.ring import Ring, from_words, to_words

CIRCLE = "sum"
#: In which jobs a party gives its own sums as they are.
OPENLY = "protection=open"


class Summed:
    """A party-side function that returns an array of floats, as two operations: under masks, and in the clear."""

    def __init__(self, id: str, function: Callable[..., np.ndarray], about: str, *, of_holders: bool, **declared: Any):
        def give_masked(party: Party, **arguments: object) -> Ring:
            met, question = settled(party, CIRCLE, of_holders=of_holders), _digest(party, id, arguments)
            masked = _masked_words(party, met, np.asarray(function(party, **arguments), dtype=np.float64), question)
            party.keep(_Told(question))
            return masked

        def give_open(party: Party, **arguments: object) -> Ring:
            return open_words(np.asarray(function(party, **arguments), dtype=np.float64))

        self.function = function
        hidden = f"{about}, masked: only the total over all parties is readable"
        total = {**declared, "opened": f"aggregate: {about}, in total over all parties"}
        self.masked = _mark(id, function, give_masked, "masked", hidden, total)
        openly = {**declared, "when": (*declared["when"], OPENLY)}
        self.open = _mark(f"{id}.open", function, give_open, "aggregate", f"{about} of this party alone", openly)

    def __call__(self, *args: object, **kwargs: object) -> np.ndarray:
        return self.function(*args, **kwargs)


def summed(
    id: str, *, about: str, receives: str = "aggregate", learns: str = "", epsilon: str = "",
    times: int | str | None = None, sums: bool = False, of_holders: bool = False, when: str | tuple[str, ...] = (),
    settings: tuple[str, ...] = (),
) -> Callable[[Callable[..., np.ndarray]], Summed]:  # fmt: skip
    """Mark ``f(party, **arguments) -> array`` as something that parties only ever give as a total.

    ``epsilon``, ``times``, ``sums``, ``when``, ``settings`` are those of an operation. ``of_holders``: it is about the
    label alone, and added up over those who hold labels where others do not (``pairs.settled``).
    """
    declared = {
        "receives": receives, "learns": learns, "epsilon": epsilon, "times": times, "sums": sums,
        "when": ((when,) if when else ()) if isinstance(when, str) else when, "settings": settings,
    }  # fmt: skip

    def mark(function: Callable[..., np.ndarray]) -> Summed:
        return Summed(id, function, about, of_holders=of_holders, **declared)

    return mark


def _mark(
    id: str,
    function: Callable[..., np.ndarray],
    run: Callable[..., Ring],
    form: str,
    about: str,
    declared: dict[str, Any],
) -> Answering[Ring]:
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


@dataclass
class _Told:
    """A digest of all that this party was told in the session and that the others must have been told alike."""

    digest: bytes = b""


def told_alike(party: Party, step: str, **arguments: object) -> None:
    """At the end of an operation on which later sums depend: who was told something else adds up with nobody."""
    party.keep(_Told(_digest(party, step, arguments)))


def _digest(party: Party, step: str, arguments: dict[str, object]) -> bytes:
    before = party.state.get(_Told, _Told()).digest
    told = {"before": before, "step": step, "view": party.view, "arguments": arguments}
    return hashlib.sha256(encode(told)).digest()


def _masked_words(party: Party, met: Pairs, values: np.ndarray, question: bytes) -> Ring:
    total = _words(values, len(met.peers) + 1)
    for peer in met.peers:
        total += met.cancelling(peer, f"secure sum {question.hex()}", party.round, total.shape)
    return total


def crowd_of(party: Party) -> int:
    """Among how many parties this one's vectors are masked: these, and not those that a job names, share the noise of a
    total. One that has met nobody adds all of it."""
    met = party.state.get(Circles, Circles()).of.get(CIRCLE)
    return 1 if met is None else len(met.peers) + 1


def open_words(values: np.ndarray) -> Ring:
    return _words(values, 1024)


class SecureSum:
    """The coordinator's side. ``parties`` are those who take part: all of the federation unless told otherwise.

    Make it inside a session: keys and peers live in the parties' state of that run. A party that leaves ends the run.
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
        if secure:
            meet_all(fed, self.parties, CIRCLE)
        else:
            fed.ledger.note("secure=False: the coordinator saw each party's own sums")

    def sum(self, function: Summed, shape: tuple[int, ...] | None = None, **same: Any) -> np.ndarray:
        """The total of ``function`` over the parties, as an array of ``shape`` (flat by default)."""
        marked = function.masked if self.secure else function.open
        replies = self.fed.ask(marked, to=self.parties, **same)
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

    def ask_all(self, marked: Answering[R], **same: Any) -> dict[str, R]:
        """An ordinary request to those who take part."""
        return self.fed.ask(marked, to=self.parties, **same)


def both(*functions: Summed) -> tuple[Operation, ...]:
    """The operations of functions that a method sums: under masks, and in the clear where it may be told to."""
    return tuple(marked for function in functions for marked in (function.masked, function.open))


#: What a method lists that uses this layer, beside ``both(...)`` of what it sums.
OPERATIONS = pairs.OPERATIONS
