"""The one place where bytes meet the transport: requests out, replies in, every byte into the ledger.

An operation's request is encoded, sent to several parties at the same time, and each reply is decoded and checked
against what the operation declares before anybody uses it. Whatever goes wrong at a party becomes an error that names
it. Nothing can be sent past the ledger, because nothing else holds the transport.

Nothing larger than ``PIECE`` goes over a wire at once, however large a request or a reply is.

A message that fits travels as it is. A larger request goes piece by piece, each acknowledged before the next is sent
(so neither side is flooded), and is answered when the last one is there; of a larger reply the first piece comes as the
answer and the others are fetched. A piece is ``b"FP"``, a version byte, what it is (data, or asking for data), 16 bytes
that name the message, its number, how many there are, and the data. Pieces are a matter of the wire: what is decoded,
judged and written into the ledger is the whole message, with all its bytes.

A site holds one request and one reply in pieces at a time, the last that was begun: whoever begins more takes the place
of the earlier one and no further memory. What is too long, out of order or of another message is refused.
"""

from __future__ import annotations

import itertools
import secrets
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from fedsift import errors
from fedsift.core.in_step import side_of
from fedsift.core.job import Job
from fedsift.core.ledger import COORDINATOR, Entry, Ledger
from fedsift.core.message import MAX_BYTES, answered, decode, encode, walk
from fedsift.core.operation import Operation, read_reply
from fedsift.core.progress import Work
from fedsift.core.transports.base import Delivery, Transport
from fedsift.errors import (
    ApprovalPending,
    FedsiftError,
    MessageError,
    OperationFailed,
    PartyError,
    PartyGone,
    PartyTimeout,
    ReplyError,
    SecurityError,
)

PIECE = 32 << 20
_MAGIC, _VERSION = b"FP", 1
_DATA, _FETCH = 0, 1
_HEAD = struct.Struct("<2sBB16sII")


@dataclass(frozen=True)
class Piece:
    """One piece of one message, or the wish to get it."""

    kind: int
    name: bytes
    number: int
    count: int
    data: bytes = field(default=b"", repr=False)

    def to_bytes(self) -> bytes:
        return _HEAD.pack(_MAGIC, _VERSION, self.kind, self.name, self.number, self.count) + self.data

    @classmethod
    def read(cls, data: bytes) -> Piece | None:
        """``None`` for anything that is no piece."""
        if data[:2] != _MAGIC:
            return None
        if len(data) < _HEAD.size or data[2] != _VERSION:
            raise MessageError("a piece of a message is truncated, or of another release of fedsift")
        _, _, kind, name, number, count = _HEAD.unpack_from(data)
        fits = number < count <= 1 + MAX_BYTES // PIECE and len(data) <= PIECE + _HEAD.size
        if kind not in (_DATA, _FETCH) or not fits:
            raise MessageError("a piece of a message is none of its number, or larger than a piece may be")
        return cls(kind, name, number, count, data[_HEAD.size :])


def cut(message: bytes) -> list[bytes]:
    """The message itself, or its pieces."""
    if len(message) <= PIECE:
        return [message]
    name, parts = secrets.token_bytes(16), [message[at : at + PIECE] for at in range(0, len(message), PIECE)]
    return [Piece(_DATA, name, number, len(parts), part).to_bytes() for number, part in enumerate(parts)]


@dataclass
class Joined:
    """A message that comes in pieces, in their order."""

    name: bytes
    count: int
    parts: list[bytes] = field(default_factory=list, repr=False)

    def take(self, piece: Piece) -> bytes | None:
        """The whole message with its last piece. The last piece that came may come again."""
        if (piece.name, piece.count) != (self.name, self.count):
            raise MessageError("a piece of another message than the one under way")
        if piece.number == len(self.parts) - 1 and piece.data == self.parts[-1] and piece.number + 1 < self.count:
            return None
        if piece.number != len(self.parts):
            raise MessageError(f"piece {piece.number} of a message came in place of piece {len(self.parts)}")
        self.parts.append(piece.data)
        return b"".join(self.parts) if len(self.parts) == self.count else None


class Pieces:
    """A site's end: requests that come in pieces, replies that leave in pieces."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coming: Joined | None = None
        self._leaving: tuple[bytes, bytes] | None = None  # a reply and its name

    def answer(self, data: bytes, handle: Callable[[bytes], bytes]) -> bytes:
        """What goes back: the answer to a whole request, an acknowledgement, or a piece of a reply."""
        try:
            piece = Piece.read(data)
            with self._lock:
                if piece is not None and piece.kind == _FETCH:
                    return self._fetched(piece)
                whole = [data] if piece is None else self._taken(piece)
                if not whole:
                    return Piece(_FETCH, piece.name, piece.number, piece.count).to_bytes() if piece else b""
        except MessageError as error:
            return encode({"error": "MessageError", "what": str(error)})
        del data, piece
        reply = answered(whole, handle)
        with self._lock:
            self._leaving = (secrets.token_bytes(16), reply) if len(reply) > PIECE else None
            return reply if len(reply) <= PIECE else self._part(0)

    def _part(self, number: int) -> bytes:
        """A piece of the reply, cut when it is asked for: the reply is in memory once."""
        assert self._leaving is not None
        name, reply = self._leaving
        part = reply[number * PIECE : (number + 1) * PIECE]
        return Piece(_DATA, name, number, -(-len(reply) // PIECE), part).to_bytes()

    def _taken(self, piece: Piece) -> list[bytes]:
        """The whole message, once it is there."""
        if piece.number == 0 and (self._coming is None or self._coming.name != piece.name):
            self._coming = Joined(piece.name, piece.count)
        if self._coming is None:
            raise MessageError("a piece of a message whose beginning did not come")
        whole = self._coming.take(piece)
        if whole is None:
            return []
        self._coming = None
        return [whole]

    def _fetched(self, piece: Piece) -> bytes:
        name, reply = self._leaving or (b"", b"")
        if not reply or (name, -(-len(reply) // PIECE)) != (piece.name, piece.count):
            raise MessageError("no such reply is held here in pieces")
        found = self._part(piece.number)
        if piece.number + 1 == piece.count:
            self._leaving = None
        return found


def carry(transport: Transport, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
    """``transport.exchange`` for messages of any size. Each piece has the whole time to itself."""
    waiting = {name: cut(data) for name, data in requests.items()}
    done: dict[str, Delivery] = {}
    while waiting:
        asked = {name: parts[0] for name, parts in waiting.items()}
        for name, came in transport.exchange(asked, timeout).items():
            more = len(waiting[name]) > 1
            if came.data is None or (more and not _acknowledges(came.data, asked[name])):
                done[name] = came  # gone, late, or an error before everything was there
                del waiting[name]
            elif more:
                del waiting[name][0]
            else:
                done[name] = came
                del waiting[name]
    return _gathered(transport, done, timeout)


def _acknowledges(data: bytes, sent: bytes) -> bool:
    try:
        piece, asked = Piece.read(data), Piece.read(sent)
    except MessageError:
        return False
    return piece is not None and asked is not None and replace(asked, kind=_FETCH, data=b"") == piece


def _gathered(transport: Transport, came: dict[str, Delivery], timeout: float | None) -> dict[str, Delivery]:
    """Replies of which the first piece came, with the others; what is no piece stays as it is."""
    coming: dict[str, Joined] = {}
    for name, delivery in came.items():
        piece = _first(delivery.data)
        if piece is not None:
            coming[name] = Joined(piece.name, piece.count, [piece.data])
    while coming:
        asked = {
            name: Piece(_FETCH, joined.name, len(joined.parts), joined.count).to_bytes()
            for name, joined in coming.items()
        }
        for name, delivery in transport.exchange(asked, timeout).items():
            seconds = came[name].seconds + delivery.seconds
            try:
                piece = Piece.read(delivery.data) if delivery.data is not None else None
                whole = coming[name].take(piece) if piece is not None else None
            except MessageError:
                piece, whole = None, None
            if piece is None or whole is not None:  # the end, or something else than the next piece
                data = whole if piece is not None else (None if delivery.data is None else b"")
                came[name] = Delivery(data, seconds, delivery.failure)
                del coming[name]
            else:
                came[name] = replace(came[name], seconds=seconds)
    return came


def _first(data: bytes | None) -> Piece | None:
    try:
        piece = Piece.read(data) if data is not None else None
    except MessageError:
        return None
    return piece if piece is not None and piece.kind == _DATA and piece.number == 0 and piece.count > 1 else None


@dataclass(frozen=True)
class Request:
    """What a party is asked: an operation of a job, in a session of its run, on a view of its rows."""

    operation: str
    view: str
    session: str
    job: bytes
    round: int
    arguments: dict[str, Any]

    def to_bytes(self) -> bytes:
        return encode(vars(self))

    @classmethod
    def read(cls, data: bytes) -> Request:
        content = decode(data)
        if not isinstance(content, dict) or set(content) != set(_REQUEST):
            raise MessageError(f"a request must have {', '.join(_REQUEST)}")
        for key, kind in _REQUEST.items():
            if not isinstance(content[key], kind):
                raise MessageError(f"the request's {key!r} has the wrong type")
        return cls(**content)


_REQUEST = {"operation": str, "view": str, "session": str, "job": bytes, "round": int, "arguments": dict}


class Exchange:
    """What all views of one federation share: the transport, the ledger, the round counter, the loops under way."""

    def __init__(self, transport: Transport, timeout: float | None):
        self.transport = transport
        self.timeout = timeout
        self.book = Ledger()
        self.rounds = itertools.count(1)
        self.views = itertools.count(1)
        self.lock = threading.Lock()
        self._work = Work()
        self.planned: list[Job] = []  # what will be announced, for people who approve it

    def __reduce__(self) -> NoReturn:
        raise SecurityError(
            "a federation is never pickled or deep-copied: it holds connections and, simulated, the parties' tables "
            "and keys. Make it again there (Federation.from_tables, Federation.split); n_jobs stays 1"
        )

    @property
    def ledger(self) -> Ledger:
        """Of everything; of one of several conversations side by side (``in_step.py``) its own."""
        side = side_of(self)
        return self.book if side is None else side.ledger

    @property
    def work(self) -> Work:
        """The loops under way; each of several conversations has its own."""
        side = side_of(self)
        return self._work if side is None else side.work

    def next_round(self) -> int:
        with self.lock:
            return next(self.rounds)

    def carry(self, requests: dict[str, bytes], limit: float | None) -> dict[str, Delivery]:
        """Messages of any size there and back."""
        return carry(self.transport, requests, limit)

    def ask(
        self,
        operation: Operation,
        arguments: dict[str, dict[str, Any]],
        *,
        view: str,
        session: str,
        job: bytes = b"",
        timeout: float | None,
    ) -> dict[str, Any]:
        """The checked replies of all parties in ``arguments``; the first failure is raised when all have answered."""
        side = side_of(self)
        round = side.round if side is not None else self.next_round()
        self.work.asking(operation, round, self.book)
        requests = {}
        for name, given in arguments.items():
            requests[name] = Request(operation.id, view, session, job, round, given).to_bytes()
            self._record(operation, round, COORDINATOR, name, len(requests[name]), operation.receives, given)
        limit = timeout if timeout is not None else self.timeout
        deliveries = (self if side is None else side).carry(requests, limit)
        replies, failures = {}, []
        for name in arguments:
            try:
                replies[name] = self._receive(operation, round, name, deliveries[name], limit)
            except FedsiftError as error:
                failures.append(error)
        self.work.asked(operation, round, self.book)
        if failures:  # what ends the job comes before what can be waited for
            raise min(failures, key=lambda error: isinstance(error, ApprovalPending))
        return replies

    def _receive(self, operation: Operation, round: int, name: str, delivery: Delivery, limit: float | None) -> object:
        short = operation.short_name
        if delivery.data is None:
            if delivery.failure == "timeout":
                raise PartyTimeout(name, short, f"no reply within {limit:g} s; raise timeout= or look at that party")
            raise PartyGone(name, short, "it cannot be reached any more")
        size = len(delivery.data)
        try:
            reply = decode(delivery.data)
            if not isinstance(reply, dict) or not (set(reply) == {"ok"} or "error" in reply):
                raise MessageError("neither a result nor an error")
        except MessageError as error:
            self._record(operation, round, name, COORDINATOR, size, "plain", None, delivery.seconds)
            raise ReplyError(name, short, f"its reply is no valid message: {error}") from None
        if "error" in reply:
            self._record(operation, round, name, COORDINATOR, size, "plain", None, delivery.seconds, "an error message")
            raise _typed_error(name, short, reply)
        value = reply["ok"]
        self._record(operation, round, name, COORDINATOR, size, operation.discloses, value, delivery.seconds)
        return read_reply(operation.reply, value, name, short)

    def _record(
        self,
        operation: Operation,
        round: int,
        sender: str,
        receiver: str,
        size: int,
        form: str,
        payload: object,
        seconds: float = 0.0,
        about: str | None = None,
    ) -> None:
        count, schemes, sealed = 0, set(), False
        for leaf in walk(payload):
            if hasattr(leaf, "scheme_name"):
                count += len(leaf)
                schemes.add(leaf.scheme_name)
            sealed = sealed or type(leaf).__name__ == "SealedBox"
        opened, opened_by = "", ""
        if about is None:
            opened = operation.opened if receiver == COORDINATOR else operation.learns
            opened_by = operation.opened_by if receiver == COORDINATOR else receiver
            request = operation.learns or f"request: {operation.short_name}"
            about = operation.about if receiver == COORDINATOR else request
        self.ledger.add(
            Entry(round, sender, receiver, operation.id, size, form, about, sealed, count,
                  ", ".join(sorted(schemes)), seconds, opened, opened_by)
        )  # fmt: skip


def _typed_error(name: str, operation: str, reply: Mapping[str, object]) -> FedsiftError:
    """The error that a party sent, as the same type here."""
    kind = getattr(errors, str(reply["error"]), None)
    what = str(reply.get("what", ""))[:2000]
    if isinstance(kind, type) and issubclass(kind, PartyError) and kind is not PartyError:
        return kind(name, operation, what)
    if isinstance(kind, type) and issubclass(kind, FedsiftError) and kind not in (PartyError, errors.MissingExtra):
        return kind(what if f"party {name!r}" in what else f"party {name!r}, operation {operation!r}: {what}")
    return OperationFailed(name, operation, what)
