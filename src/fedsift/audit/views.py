"""What each role has seen of a run: the bytes on the wire, decoded, and nothing else.

A recording transport stands between a federation and its parties and keeps every request and reply. From it ``View``
is made, one a role:

- a party: the requests that it got and its own replies, its own table and keys, and what its own operations kept
  while they ran (what it decrypted is its own state);
- the coordinator: every request and every reply, for they all pass through it;
- everybody: what the job says (method, parameters and with them the seed, the parties, who holds the label).

No view holds another party's table, keys or state; a test plants a canary. ``Truth`` holds what an attack is after, to
score it: an attack may look there only after it has its answer.

    views, truth = record(X, y, SFFS(n_features=5), parties=["bank", "shop"])
    views["shop"].requests("class_sums")      # what the shop was sent with this operation
    views["coordinator"].replies("f_statistics")
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import numpy as np

from fedsift.audit.naming import matches
from fedsift.errors import FedsiftError
from fedsift.federation import Federation
from fedsift.ledger import COORDINATOR
from fedsift.message import decode, encode
from fedsift.party import Site, read_labels
from fedsift.protocols.align import align
from fedsift.simulate import simulated_sites
from fedsift.table import Table
from fedsift.transports.base import Delivery, Transport
from fedsift.transports.inprocess import InProcess

END_OF_RUN = "end_session"
DELIVERY = "fedsift.deploy.delivery:keep_result"


@dataclass(frozen=True)
class Message:
    """One request or reply, decoded. ``content`` is a request's arguments or a reply's value."""

    number: int  # its place in the conversation
    party: str  # at the other end from the coordinator
    is_request: bool
    operation: str  # as it travels
    view: str
    session: str
    content: Any
    bytes: int


@dataclass(frozen=True)
class Job:
    """What the announcement of the job tells every role."""

    method: str
    parameters: Mapping[str, Any]
    parties: tuple[str, ...]
    active: str


@dataclass(frozen=True)
class State:
    """What a party's own operations had kept after one of them had run (its own, so its own knowledge)."""

    number: int  # of the reply after which it was taken
    operation: str
    session: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class View:
    """Everything that one role received, and for a party everything of its own."""

    role: str  # "passive", "active" or "coordinator"
    name: str
    job: Job
    messages: tuple[Message, ...]
    table: Table | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    states: tuple[State, ...] = ()
    kept: np.ndarray | None = None  # the answer that a party is entitled to: which of its columns were kept

    def requests(self, operation: str, session: str | None = None) -> list[Message]:
        """Requests for an operation, in order (``naming.matches`` reads the name)."""
        return [m for m in self._of(operation, session) if m.is_request]

    def replies(self, operation: str, session: str | None = None) -> list[Message]:
        """Replies of an operation, in order; for a party these are its own."""
        return [m for m in self._of(operation, session) if not m.is_request]

    def _of(self, operation: str, session: str | None) -> list[Message]:
        return [
            m for m in self.messages if matches(operation, m.operation) and (session is None or m.session == session)
        ]

    def job_of(self, session: str) -> Job:
        """The job that was announced for a run (or for the run around it); the last one if none was."""
        for message in reversed(self.messages):
            inside = session == message.session or session.startswith(f"{message.session}.")
            if message.is_request and message.session and inside and matches("begin_job", message.operation):
                told = message.content
                return Job(str(told["method"]), dict(told["parameters"]), self.job.parties, self.job.active)
        return self.job

    @property
    def operations(self) -> set[str]:
        """Names, as they travel, of all operations in this view."""
        return {message.operation for message in self.messages}

    @property
    def columns(self) -> np.ndarray:
        """The party's own numbers, rows x columns: categories as codes, missing values as NaN."""
        return numbers(self.own_table)

    @property
    def own_table(self) -> Table:
        if self.table is None:
            raise FedsiftError("the coordinator has no table")
        return self.table


@dataclass(frozen=True)
class Fresh:
    """Rows that did not take part: the control of an attack."""

    columns: Mapping[str, np.ndarray]
    labels: np.ndarray


@dataclass(frozen=True)
class Truth:
    """What the attacks are after. For scoring only."""

    labels: np.ndarray  # class codes of the common rows
    columns: Mapping[str, np.ndarray]  # of each party, rows x columns
    fresh: Fresh | None = None

    @property
    def n_classes(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def class_sizes(self) -> tuple[int, int]:
        """Rows of class 0 and of the others: for attacks that say in ``knows`` that they know the class sizes."""
        zeros = int((self.labels == 0).sum())
        return zeros, len(self.labels) - zeros

    @property
    def guess(self) -> float:
        """Share of the largest class: what somebody says who knows nothing about a row."""
        return float(np.bincount(self.labels).max() / len(self.labels))


def numbers(table: Table) -> np.ndarray:
    """A table's columns as numbers: categories by their code."""
    parts = []
    for column in table.columns:
        coded = table.kinds[column] == "categorical"
        parts.append(table.codes(column)[0].astype(np.float64) if coded else table.values(column))
    return np.column_stack(parts) if parts else np.zeros((table.n_rows, 0))


class Recorder(Transport):
    """Passes everything on to another transport and keeps the bytes, in order.

    ``sites`` are those whose own state is kept for their own view; with ``every_step`` after each operation, else at
    the end of each run.
    """

    def __init__(self, inner: Transport, sites: Mapping[str, Site], every_step: bool = False):
        self.inner, self.sites, self.every_step = inner, sites, every_step
        self.name = inner.name
        self.log: list[tuple[int, str, bool, bytes]] = []  # number, party, is it a request, the bytes
        self.states: dict[str, list[State]] = {name: [] for name in sites}
        self._lock = threading.Lock()
        self._number = 0

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        heads = {name: self._keep(name, True, data) for name, data in requests.items()}
        ends = {name for name, head in heads.items() if matches(END_OF_RUN, head["operation"])}
        for name in ends:
            self._snapshot(name, heads[name]["arguments"]["session"], heads[name]["operation"])
        deliveries = self.inner.exchange(requests, timeout)
        for name, delivery in deliveries.items():
            if delivery.data is not None:
                self._keep(name, False, delivery.data)
            if self.every_step and name not in ends:
                self._snapshot(name, heads[name]["session"], heads[name]["operation"])
        return deliveries

    def close(self) -> None:
        self.inner.close()

    def _keep(self, party: str, is_request: bool, data: bytes) -> dict[str, Any]:
        with self._lock:
            self._number += 1
            self.log.append((self._number, party, is_request, data))
        return decode(data) if is_request else {}

    def _snapshot(self, name: str, session: str, operation: str) -> None:
        site = self.sites.get(name)
        if site is not None and site.sessions.get(session):
            values = _copied(site.sessions[session])
            self.states[name].append(State(self._number, operation, session, values))


def _copied(value: Any, depth: int = 4) -> Any:
    """Containers, records and arrays anew, so that later steps do not change what was kept; the rest as it is."""
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {key: _copied(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item, depth - 1) for item in value]
    if isinstance(value, np.ndarray):
        return value.copy()
    if is_dataclass(value) and not isinstance(value, type):
        return copy.copy(value)
    return value


@dataclass
class Recording:
    """The views of one recorded conversation, by name (the parties and ``coordinator``), and the truth beside them."""

    views: dict[str, View]
    truth: Truth
    result: Any  # what the conversation gave: the fitted selector, or what the function returned

    def __getitem__(self, name: str) -> View:
        return self.views[name]

    def of_role(self, role: str) -> list[View]:
        return [view for view in self.views.values() if view.role == role]


def record(
    X: Any,
    y: Any,
    conversation: Any,
    *,
    parties: int | Sequence[str] = 2,
    label_party: str | None = None,
    how: str = "equal",
    random_state: int = 0,
    task: str = "auto",
    every_step: bool = False,
    fresh: tuple[Any, Any] | None = None,
) -> Recording:
    """Run a real fit over simulated parties and give the views of all roles.

    Parameters
    ----------
    X, y : one table, dealt by columns to ``parties`` as ``Federation.split`` does (``how``, ``random_state``).
    conversation : a selector or model (anything with ``fit(fed)``), or a function of the federation: what a
        coordinator that deviates would ask. What its last announcement says is the job. A function may return a
        list of fitted selectors: each party is then told its part of each result, in that order.
    every_step : keep each party's own state after each of its operations, not only at the end of a run.
    fresh : ``(X, y)`` of rows that do not take part, for the control.
    """

    def dealt(X: Any, y: Any) -> tuple[dict[str, Site], str | None]:
        return simulated_sites(
            X, y, parties=parties, partition="vertical", how=how, duplicates=False, random_state=random_state,
            label_party=label_party, grid=None,
        )  # fmt: skip

    sites, active = dealt(X, y)
    others = None if fresh is None else dealt(*fresh)[0]
    return record_sites(sites, str(active), conversation, task=task, every_step=every_step, fresh=others)


def record_tables(
    tables: Mapping[str, Any],
    conversation: Any,
    *,
    id: str,
    label: tuple[str, str],
    task: str = "auto",
    every_step: bool = False,
) -> Recording:
    """The same for tables that are aligned by their ids first; the alignment is part of the recording."""
    sites = {
        name: Site(name, Table.read(table, id=id, label=label[1] if name == label[0] else None, name=name))
        for name, table in tables.items()
    }
    return record_sites(sites, label[0], conversation, task=task, every_step=every_step, by_id=True)


def record_sites(
    sites: dict[str, Site],
    active: str,
    conversation: Any,
    *,
    task: str = "auto",
    every_step: bool = False,
    by_id: bool = False,
    fresh: dict[str, Site] | None = None,
) -> Recording:
    """Record a conversation with sites in this process (a site may have a policy)."""
    recorder = Recorder(InProcess(sites), sites, every_step)
    fed = Federation(recorder, list(sites), active=active, task=task)
    try:
        fed = align(fed) if by_id else fed
        result = _converse(fed, conversation)
    finally:
        fed.close()
    tables = _common_rows(_decoded(recorder), sites)
    labels, columns = _labels_and_columns(tables, active, task)
    others = None
    if fresh is not None:
        fresh_labels, fresh_columns = _labels_and_columns({n: s.table for n, s in fresh.items()}, active, task)
        others = Fresh(fresh_columns, fresh_labels)
    return Recording(_views(recorder, sites, tables, active, result), Truth(labels, columns, others), result)


def _converse(fed: Federation, conversation: Any) -> Any:
    if hasattr(conversation, "fit"):
        conversation.fit(fed)
        return conversation
    return conversation(fed)


def _common_rows(messages: list[Message], sites: Mapping[str, Site]) -> dict[str, Table]:
    """Each party's table in the common order of the rows: as it is, or as the alignment has told it."""
    aligned = [m.content["view"] for m in messages if m.is_request and matches("keep_shared", m.operation)]
    tables = {}
    for name, site in sites.items():
        rows = site.views[aligned[-1]][0] if aligned else None
        tables[name] = site.table if rows is None else site.table.take(rows)
    return tables


def _labels_and_columns(
    tables: Mapping[str, Table], active: str, task: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    label = tables[active].label
    if label is None:
        raise FedsiftError(f"party {active!r} has no label column")
    return read_labels(label, active, task=task).codes, {name: numbers(table) for name, table in tables.items()}


def _views(
    recorder: Recorder, sites: Mapping[str, Site], tables: Mapping[str, Table], active: str, result: Any
) -> dict[str, View]:
    messages = _decoded(recorder)
    messages += _deliveries(messages, sites, result)
    job = _job(messages, sites, active, result)
    views = {COORDINATOR: View("coordinator", COORDINATOR, job, tuple(messages))}
    for name, site in sites.items():
        views[name] = View(
            "active" if name == active else "passive",
            name,
            job,
            tuple(m for m in messages if m.party == name),
            tables[name],
            dict(site.keys),
            tuple(recorder.states[name]),
            _kept(result, name),
        )
    return views


def _kept(result: Any, name: str) -> np.ndarray | None:
    last = result[-1] if isinstance(result, list) and result else result
    masks = getattr(last, "masks_", None)
    return None if masks is None else np.asarray(masks[name])


def _decoded(recorder: Recorder) -> list[Message]:
    """Requests and replies as messages; a reply takes its operation from the request that it answers."""
    open_request: dict[str, dict[str, Any]] = {}
    messages = []
    for number, party, is_request, data in recorder.log:
        value = decode(data)
        if is_request:
            open_request[party], content = value, value["arguments"]
        else:
            content = value.get("ok", value)
        head = open_request[party]
        messages.append(
            Message(number, party, is_request, head["operation"], head["view"], head["session"], content, len(data))
        )
    return messages


def _deliveries(messages: list[Message], sites: Mapping[str, Site], result: Any) -> list[Message]:
    """A deployed coordinator ends a job by sending each party its own part of the result; in one process nothing is
    sent, so it stands here, made by the same ``Selection.for_party``."""
    number = messages[-1].number if messages else 0
    told = []
    for selector in result if isinstance(result, list) else [result]:
        if getattr(selector, "selection_", None) is None:
            continue
        for name in sites:
            number += 1
            content = {"selection": selector.selection_.for_party(name).to_json()}
            told.append(Message(number, name, True, DELIVERY, "", "", content, len(encode(content))))
    return told


def _job(messages: list[Message], sites: Mapping[str, Site], active: str, result: Any) -> Job:
    """What was announced last; a model on its own announces nothing, but its job file would name its parameters."""
    announced = [m.content for m in messages if m.is_request and matches("begin_job", m.operation)]
    method, parameters = "", {}
    if announced:
        method, parameters = announced[-1]["method"], announced[-1]["parameters"]
    elif hasattr(result, "get_params"):
        method, parameters = type(result).__name__, result.get_params(deep=False)
    return Job(str(method), dict(parameters), tuple(sites), active)
