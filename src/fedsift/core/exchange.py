"""The one place where bytes meet the transport: requests out, replies in, every byte into the ledger.

An operation's request is encoded, sent to several parties at the same time, and each reply is decoded and checked
against what the operation declares before anybody uses it. Whatever goes wrong at a party becomes an error that names
it. Nothing can be sent past the ledger, because nothing else holds the transport.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any, NoReturn

from fedsift import errors
from fedsift.core import pieces
from fedsift.core.job import Job
from fedsift.core.ledger import COORDINATOR, Entry, Ledger
from fedsift.core.message import decode, encode, walk
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


class Exchange:
    """What all views of one federation share: the transport, the ledger, the round counter, the loops under way."""

    def __init__(self, transport: Transport, timeout: float | None):
        self.transport = transport
        self.timeout = timeout
        self.ledger = Ledger()
        self.rounds = itertools.count(1)
        self.views = itertools.count(1)
        self.lock = threading.Lock()
        self.work = Work()
        self.planned: list[Job] = []  # what will be announced, for people who approve it

    def __reduce__(self) -> NoReturn:
        raise SecurityError(
            "a federation is never pickled or deep-copied: it holds connections and, simulated, the parties' tables "
            "and keys. Make it again there (Federation.from_tables, Federation.split); n_jobs stays 1"
        )

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
        with self.lock:
            round = next(self.rounds)
        self.work.asking(operation, round, self.ledger)
        requests = {}
        for name, given in arguments.items():
            request = {
                "operation": operation.id,
                "view": view,
                "session": session,
                "job": job,
                "round": round,
                "arguments": given,
            }
            requests[name] = encode(request)
            self._record(operation, round, COORDINATOR, name, len(requests[name]), operation.receives, given)
        limit = timeout if timeout is not None else self.timeout
        deliveries = pieces.exchange(self.transport, requests, limit)
        replies, failures = {}, []
        for name in arguments:
            try:
                replies[name] = self._receive(operation, round, name, deliveries[name], limit)
            except FedsiftError as error:
                failures.append(error)
        self.work.asked(operation, round, self.ledger)
        if failures:  # what ends the job comes before what can be waited for
            raise min(failures, key=lambda error: isinstance(error, ApprovalPending))
        return replies

    def _receive(self, operation: Operation, round: int, name: str, delivery: Delivery, limit: float | None) -> Any:
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
        payload: Any,
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


def _typed_error(name: str, operation: str, reply: dict[str, Any]) -> FedsiftError:
    """The error that a party sent, as the same type here."""
    kind = getattr(errors, str(reply["error"]), None)
    what = str(reply.get("what", ""))[:2000]
    if isinstance(kind, type) and issubclass(kind, PartyError) and kind is not PartyError:
        return kind(name, operation, what)
    if isinstance(kind, type) and issubclass(kind, FedsiftError) and kind not in (PartyError, errors.MissingExtra):
        return kind(what if f"party {name!r}" in what else f"party {name!r}, operation {operation!r}: {what}")
    return OperationFailed(name, operation, what)
