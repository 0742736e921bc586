"""Messages of any size over a wire: nothing larger than ``PIECE`` at once, nothing large held between the parties.

A message that fits travels as it is. A larger request goes piece by piece, each acknowledged before the next is sent
(so neither side is flooded); its last piece is small and sets its party to work, so all begin together when everybody
has everything. Of a larger reply comes an index first, all of it but the insides of its large blocks (``relayed.py``);
the rest stays at its party until it is asked for. So a coordinator that passes a block on reads some pieces of it while
the request that has it goes out, ``AT_ONCE`` parties at a time, all parties' first pieces before anybody's second: a
block for everybody is read once.

A piece is ``b"FP"``, a version byte, what it is (data, asking for data, an index, that a reply is no longer needed), 16
bytes that name the message, its number, how many there are, and the data.

A site holds one request in pieces at a time, the last that was begun, and of replies that wait no more than ``HELD``
bytes, the latest: whoever begins more takes the place of the earlier ones and no further memory. What is too long, out
of order or of another message is refused.
"""

from __future__ import annotations

import secrets
import struct
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO

import numpy as np

from fedsift.core.message import MAX_BYTES, answered, decode, encode, large_blocks
from fedsift.core.relayed import Holed, Parts, whole
from fedsift.core.transports.base import Delivery, Transport
from fedsift.errors import MessageError, ReplyError

PIECE = 32 << 20
#: Bytes of the last piece of a request.
LAST = 1024
#: Parties that are sent a piece together: so many pieces are in memory.
AT_ONCE = 4
#: Blocks of so many bytes stay at their party, but for their first bytes.
LARGE = 1 << 16
_FIRST = 64
#: Bytes of replies that a site keeps for a coordinator.
HELD = MAX_BYTES
_MAGIC, _VERSION = b"FP", 1
_DATA, _FETCH, _INDEX, _DONE = 0, 1, 2, 3
_HEAD = struct.Struct("<2sBB16sII")


@dataclass(frozen=True)
class Piece:
    """One piece of one message, the wish to get it, an index of a reply, or that nobody needs it any longer."""

    kind: int
    name: bytes
    number: int
    count: int
    data: bytes = field(default=b"", repr=False)

    def to_bytes(self) -> bytes:
        return _HEAD.pack(_MAGIC, _VERSION, self.kind, self.name, self.number, self.count) + self.data

    @property
    def is_index(self) -> bool:
        return self.kind == _INDEX

    @classmethod
    def read(cls, data: bytes) -> Piece | None:
        """``None`` for anything that is no piece."""
        if data[:2] != _MAGIC:
            return None
        if len(data) < _HEAD.size or data[2] != _VERSION:
            raise MessageError("a piece of a message is truncated, or of another release of fedsift")
        _, _, kind, name, number, count = _HEAD.unpack_from(data)
        fits = number < count <= 2 + MAX_BYTES // PIECE and len(data) <= PIECE + _HEAD.size
        if kind not in (_DATA, _FETCH, _INDEX, _DONE) or not fits:
            raise MessageError("a piece of a message is none of its number, or larger than a piece may be")
        return cls(kind, name, number, count, data[_HEAD.size :])


class Cut:
    """A message as it goes out: itself, or its pieces, each made when it is sent."""

    def __init__(self, message: bytes | Parts):
        self.message, self.name, size = message, secrets.token_bytes(16), len(message)
        last = max(1, min(LAST, PIECE // 8))
        self.ends = [size] if size <= PIECE else [*range(PIECE, size - last, PIECE), size - last, size]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> bytes:
        if len(self.ends) == 1:
            return whole(self.message)
        number %= len(self.ends)
        start, end = [0, *self.ends][number], self.ends[number]
        part = self.message.read(start, end) if isinstance(self.message, Parts) else self.message[start:end]
        return Piece(_DATA, self.name, number, len(self.ends), part).to_bytes()


@dataclass
class Joined:
    """A message that comes in pieces, in their order; it is in memory once."""

    name: bytes
    count: int
    came: int = 0
    last: bytes = field(default=b"", repr=False)
    data: BytesIO = field(default_factory=BytesIO, repr=False)

    def take(self, piece: Piece) -> bytes | None:
        """The whole message with its last piece. The last piece that came may come again."""
        if (piece.name, piece.count) != (self.name, self.count):
            raise MessageError("a piece of another message than the one under way")
        if piece.number == self.came - 1 and piece.data == self.last and piece.number + 1 < self.count:
            return None
        if piece.number != self.came:
            raise MessageError(f"piece {piece.number} of a message came in place of piece {self.came}")
        self.came, self.last = self.came + 1, piece.data
        self.data.write(piece.data)
        return self.data.getvalue() if self.came == self.count else None


class Pieces:
    """A site's end: requests that come in pieces, replies that wait here until they are fetched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coming: Joined | None = None
        self.waiting: dict[bytes, bytes] = {}  # replies, by their names

    def answer(self, data: bytes, handle: Callable[[bytes], bytes]) -> bytes:
        """What goes back: the answer to a whole request, an acknowledgement, or a piece of a reply."""
        try:
            piece = Piece.read(data)
            with self._lock:
                if piece is not None and piece.kind != _DATA:
                    return self._fetched(piece)
                found = [data] if piece is None else self._taken(piece)
                if not found:
                    return Piece(_FETCH, piece.name, piece.number, piece.count).to_bytes() if piece else b""
        except MessageError as error:
            return encode({"error": "MessageError", "what": str(error)})
        del data, piece
        reply = answered(found, handle)
        return reply if len(reply) <= PIECE else self._kept(reply)

    def forget(self) -> None:
        """At the end of all runs."""
        with self._lock:
            self.waiting.clear()

    def _kept(self, reply: bytes) -> bytes:
        """The index of a reply that waits here from now on."""
        name = secrets.token_bytes(16)
        with self._lock:
            self.waiting[name] = reply
            while len(self.waiting) > 1 and sum(map(len, self.waiting.values())) > HELD:
                self.waiting.pop(next(iter(self.waiting)))
        return Piece(_INDEX, name, 0, -(-len(reply) // PIECE), _index(reply)).to_bytes()

    def _taken(self, piece: Piece) -> list[bytes]:
        """The whole message, once it is there."""
        if piece.number == 0 and (self._coming is None or self._coming.name != piece.name):
            self._coming = Joined(piece.name, piece.count)
        if self._coming is None:
            raise MessageError("a piece of a message whose beginning did not come")
        found = self._coming.take(piece)
        if found is None:
            return []
        self._coming = None
        return [found]

    def _fetched(self, piece: Piece) -> bytes:
        reply = self.waiting.get(piece.name, b"")
        if piece.kind == _INDEX or not reply or -(-len(reply) // PIECE) != piece.count:
            raise MessageError("no such reply is held here in pieces")
        if piece.kind == _DONE:
            del self.waiting[piece.name]
            return Piece(_FETCH, piece.name, piece.number, piece.count).to_bytes()
        part = reply[piece.number * PIECE : (piece.number + 1) * PIECE]
        return Piece(_DATA, piece.name, piece.number, piece.count, part).to_bytes()


def _index(reply: bytes) -> bytes:
    """How a reply begins to be read: its size, and all of it but the insides of large blocks; where that is too large,
    all of it is one block."""
    holes = [(start + _FIRST, stop) for start, stop in large_blocks(reply, max(LARGE, 2 * _FIRST))]
    ends = [0, *(stop for _, stop in holes)]
    outside = [reply[before:start] for before, (start, _) in zip(ends, [*holes, (len(reply), 0)])]
    for skeleton, left_out in ((b"".join(outside), holes), (b"", [(0, len(reply))])):
        found = encode({"size": len(reply), "skeleton": skeleton, "holes": np.array(left_out, np.int64).reshape(-1, 2)})
        if len(found) <= PIECE:
            break
    return found


@dataclass
class Desk:
    """What a coordinator holds of replies that wait at their parties: the pieces that were read last, and the names of
    those that nobody needs any longer."""

    read: OrderedDict[tuple[bytes, int], bytes] = field(default_factory=OrderedDict, repr=False)
    done_with: deque[tuple[str, bytes]] = field(default_factory=deque, repr=False)

    def put(self, name: bytes, number: int, data: bytes) -> bytes:
        self.read[name, number] = data
        while len(self.read) > 2 * AT_ONCE:
            self.read.popitem(last=False)
        return data


class Kept:
    """A reply that waits at its party, as the coordinator knows it."""

    def __init__(self, transport: Transport, party: str, piece: Piece, timeout: float | None, desk: Desk):
        self.transport, self.party, self.timeout, self.desk = transport, party, timeout, desk
        self.name, self.count = piece.name, piece.count
        told = Piece(_DONE, self.name, 0, self.count).to_bytes()
        weakref.finalize(self, desk.done_with.append, (party, told))

    def read(self, start: int, stop: int) -> bytes:
        found = []
        while start < stop:
            number, inside = divmod(start, PIECE)
            part = self._piece(number)[inside : inside + stop - start]
            if not part:
                raise self._broken("a piece of its reply is too short")
            found.append(part)
            start += len(part)
        return b"".join(found)

    def _piece(self, number: int) -> bytes:
        if (self.name, number) in self.desk.read:
            return self.desk.read[self.name, number]
        asked = Piece(_FETCH, self.name, number, self.count)
        delivery = self.transport.exchange({self.party: asked.to_bytes()}, self.timeout)[self.party]
        if delivery.data is None:
            raise self._broken("it did not come in time" if delivery.failure == "timeout" else "its party is gone")
        try:
            piece = Piece.read(whole(delivery.data))
        except MessageError as error:
            raise self._broken(str(error)) from None
        if piece is None or (piece.kind, piece.name, piece.number) != (_DATA, self.name, number):
            raise self._broken("something else came in place of one of its pieces")
        return self.desk.put(self.name, number, piece.data)

    def _broken(self, what: str) -> ReplyError:
        return ReplyError(self.party, "relay", f"its reply is no valid message: {what}")


def carry(
    transport: Transport, requests: Mapping[str, bytes | Parts], timeout: float | None,
    desk: Desk,
) -> dict[str, Delivery]:  # fmt: skip
    """``transport.exchange`` for messages of any size. Each piece has the whole time to itself."""
    while desk.done_with:
        party, told = desk.done_with.popleft()
        transport.exchange({party: told}, timeout)
    cut = {name: Cut(data) for name, data in requests.items()}
    came: dict[str, Delivery] = {}
    for number in range(max(map(len, cut.values()), default=1) - 1):
        going = [name for name, pieces in cut.items() if number < len(pieces) - 1 and name not in came]
        for at in range(0, len(going), AT_ONCE):
            asked = {name: cut[name][number] for name in going[at : at + AT_ONCE]}
            for name, answer in transport.exchange(asked, timeout).items():
                if answer.data is None or not _acknowledges(whole(answer.data), asked[name]):
                    came[name] = answer  # gone, late, or an error before everything was there
    rest = {name: pieces[-1] for name, pieces in cut.items() if name not in came}
    del cut
    came |= transport.exchange(rest, timeout) if rest else {}
    return {name: _read(transport, name, came[name], timeout, desk) for name in requests}


def _acknowledges(answer: bytes, sent: bytes) -> bool:
    kind = len(_MAGIC) + 1
    return answer == sent[:kind] + bytes([_FETCH]) + sent[kind + 1 : _HEAD.size]


def _read(transport: Transport, name: str, came: Delivery, timeout: float | None, desk: Desk) -> Delivery:
    """The reply; of one that waits at its party what its index tells."""
    try:
        piece = Piece.read(came.data) if isinstance(came.data, bytes) else None
        if piece is None or not piece.is_index:
            return came
        index = decode(piece.data)
        kept = Kept(transport, name, piece, timeout, desk)
        holes = np.asarray(index["holes"]).reshape(-1, 2).tolist()
        least, most = (piece.count - 1) * PIECE, piece.count * PIECE
        if not (isinstance(index["skeleton"], bytes) and least < index["size"] <= most):
            raise MessageError("the size of a reply is not that of its pieces")
        starts, stops = [start for start, _ in holes], [stop for _, stop in holes]
        found = Holed(index["size"], index["skeleton"], starts, stops, kept.read)
    except (MessageError, TypeError, KeyError, ValueError):
        return Delivery(b"", came.seconds, came.failure)  # no valid message
    return Delivery(found, came.seconds, came.failure)
