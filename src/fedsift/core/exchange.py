"""The one place where bytes meet the transport: requests out, replies in, every byte into the ledger.

An operation's request is encoded, sent to several parties at the same time, and each reply is decoded and checked
against what the operation declares before anybody uses it. Whatever goes wrong at a party becomes an error that names
it. Nothing can be sent past the ledger, because nothing else holds the transport.

Messages of any size go over a wire in pieces (``pieces.py``). That is a matter of the wire: what is decoded, judged and
written into the ledger is the whole message, with all its bytes.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from fedsift import errors
from fedsift.core.in_step import side_of
from fedsift.core.job import Job
from fedsift.core.ledger import COORDINATOR, Entry, Ledger
from fedsift.core.message import compose, decode, walk
from fedsift.core.operation import Operation, read_reply
from fedsift.core.pieces import Desk, carry
from fedsift.core.progress import Work
from fedsift.core.relayed import Parts
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


@dataclass(frozen=True)
class Request:
    """What a party is asked: an operation of a job, in a session of its run, on a view of its rows."""

    operation: str
    view: str
    session: str
    job: bytes
    round: int
    arguments: dict[str, Any]

    def compose(self) -> bytes | Parts:
        """What is sent; large blocks of other parties' replies are read where they lie, as it goes out."""
        return compose(vars(self))

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
        self._desk = Desk()

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

    def carry(self, requests: Mapping[str, bytes | Parts], limit: float | None) -> dict[str, Delivery]:
        """Messages of any size there and back."""
        return carry(self.transport, requests, limit, self._desk)

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
        requests: dict[str, bytes | Parts] = {}
        for name, given in arguments.items():
            requests[name] = Request(operation.id, view, session, job, round, given).compose()
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
