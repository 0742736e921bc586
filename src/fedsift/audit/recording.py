"""Recording a run: a transport that keeps every byte, and the views that are made from it.

seen = record(X, y, SFFS(n_features=5), parties=["bank", "shop"])
seen["shop"].requests("class_sums")             # what the shop was sent with this operation
seen["coordinator"].replies("f_statistics")
attacks_on(seen["shop"].operations, "passive")  # what could be tried on it
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import numpy as np

from fedsift.audit.naming import matches
from fedsift.audit.views import Boxed, Fresh, Message, State, Truth, View, numbers
from fedsift.core.federation import Federation
from fedsift.core.job import NEUTRAL, Job, run_of
from fedsift.core.ledger import COORDINATOR, Ledger
from fedsift.core.message import decode, encode, pack, unpack
from fedsift.core.party import Site, read_labels
from fedsift.core.pieces import Joined, Piece
from fedsift.core.simulate import hybrid_grid, simulated_sites
from fedsift.core.table import Table
from fedsift.core.transports.base import Delivery, Transport
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import FedsiftError
from fedsift.mpc.encrypted_histogram import JobKeys
from fedsift.mpc.pairs import Pairs
from fedsift.mpc.psi import aligned
from fedsift.mpc.shared_rows import VIEW

END_OF_RUN = "end_session"
DELIVERY = "delivery.keep_result"
#: After these a party has numbers of its own that it forgets before the run ends: masks to take off, scores it read.
NOTED = ("weigh_lattice", "raise_duals")


def _joined(parts: list[Delivery]) -> Delivery:
    """Answers to the requests of one message."""
    failed = next((part for part in parts if part.data is None), None)
    seconds = sum(part.seconds for part in parts)
    return failed or Delivery(pack([part.data for part in parts if isinstance(part.data, bytes)]), seconds)


class Recorder(Transport):
    """Passes everything on to another transport and keeps the bytes, in order.

    ``sites`` are those whose own state is kept for their own view; with ``every_step`` after each operation, else at
    the end of each run and after those of ``NOTED``.
    """

    def __init__(self, inner: Transport, sites: Mapping[str, Site], every_step: bool = False):
        self.inner, self.sites, self.every_step = inner, sites, every_step
        self.name = inner.name
        self.log: list[tuple[int, str, bool, bytes]] = []  # number, party, is it a request, the bytes
        self.states: dict[str, list[State]] = {name: [] for name in sites}
        self.keys: dict[str, dict[str, Any]] = {name: {} for name in sites}  # of the last job that had any
        self.boxes: dict[str, list[Boxed]] = {name: [] for name in sites}
        self._asked: dict[str, list[dict[str, Any]]] = {}  # party -> the requests that it is at
        self._coming: dict[tuple[str, bool], Joined] = {}  # messages that are under way in pieces
        self._lock = threading.Lock()
        self._number = 0

    def exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        """Several requests in one message (of folds side by side) are seen one by one, as a site answers them."""
        apart = {name: unpack(data) for name, data in requests.items()}
        turns = range(max(map(len, apart.values()), default=0))
        given = [self._exchange({n: e[i] for n, e in apart.items() if i < len(e)}, timeout) for i in turns]
        return {name: _joined([each[name] for each in given if name in each]) for name in requests}

    def _exchange(self, requests: dict[str, bytes], timeout: float | None) -> dict[str, Delivery]:
        whole = {name: self._whole(name, True, data) for name, data in requests.items()}
        parts = {name: unpack(data) for name, data in whole.items() if data is not None}
        asked = {name: [self._keep(name, True, each) for each in requests_of] for name, requests_of in parts.items()}
        self._asked.update(asked)
        for name, heads in asked.items():
            for head in heads:
                if matches(END_OF_RUN, head["operation"]):
                    self._snapshot(name, head["arguments"]["session"], head["operation"])
                    self._note_keys(name, head["arguments"]["session"])
        deliveries = self.inner.exchange(requests, timeout)
        for name, delivery in deliveries.items():
            reply = self._whole(name, False, delivery.data) if isinstance(delivery.data, bytes) else None
            if reply is None and delivery.data is not None:
                continue  # more of the request, or of the reply, is still to come
            for each in unpack(reply) if reply is not None else ():
                self._keep(name, False, each)
            for head in self._asked[name]:
                noted = self.every_step or any(matches(each, head["operation"]) for each in NOTED)
                if noted and not matches(END_OF_RUN, head["operation"]):
                    self._snapshot(name, head["session"], head["operation"])
        return deliveries

    def _whole(self, party: str, is_request: bool, data: bytes) -> bytes | None:
        """The message, with its last piece; ``None`` for the pieces before it, and for what asks for another one. A
        reply that waits at its party counts as read when its index comes."""
        piece = Piece.read(data)
        if piece is not None and not is_request:
            return self.sites[party].pieces.waiting[piece.name] if piece.is_index else None
        if piece is None or not piece.data:
            return data if piece is None else None
        if piece.number == 0:
            self._coming[party, is_request] = Joined(piece.name, piece.count)
        return self._coming[party, is_request].take(piece)

    def close(self) -> None:
        self.inner.close()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep what the parties of this process take out of sealed boxes and put into them, each for its own view."""
        opened, sealed = Pairs.open, Pairs.seal

        def open(met: Pairs, box: object, *, sender: str, about: str, number: int) -> Any:
            content = opened(met, box, sender=sender, about=about, number=number)
            self._box(met.me, sender, True, about, number, content)
            return content

        def seal(met: Pairs, payload: object, *, to: str, about: str, number: int) -> Any:
            box = sealed(met, payload, to=to, about=about, number=number)
            self._box(met.me, to, False, about, number, payload)
            return box

        setattr(Pairs, "open", open)  # noqa: B010
        setattr(Pairs, "seal", seal)  # noqa: B010
        try:
            yield
        finally:
            setattr(Pairs, "open", opened)  # noqa: B010
            setattr(Pairs, "seal", sealed)  # noqa: B010

    def _box(self, me: str, peer: str, is_opened: bool, about: str, step: int, content: object) -> None:
        if me in self._asked:
            at = self._asked[me][-1]  # boxes of folds side by side, in pieces too, count as the last one's
            self.boxes[me].append(
                Boxed(self._number, at["operation"], at["view"], at["session"], peer, is_opened, about, step,
                      _copied(content))
            )  # fmt: skip

    def _keep(self, party: str, is_request: bool, data: bytes) -> dict[str, Any]:
        with self._lock:
            self._number += 1
            self.log.append((self._number, party, is_request, data))
        return decode(data) if is_request else {}

    def _note_keys(self, name: str, session: str) -> None:
        """A site forgets the keys of a job with the job; its owner knew them."""
        site = self.sites.get(name)
        run = site.runs.get(run_of(session)) if site is not None else None
        if run is not None and JobKeys in run.kept:
            self.keys[name].update({f"additive:{s}": key for s, key in run.kept[JobKeys].secrets.items()})

    def _snapshot(self, name: str, session: str, operation: str) -> None:
        site = self.sites.get(name)
        if site is None:
            return
        run = site.runs.get(run_of(session))
        kept = {**(run.kept if run is not None else {}), **site.sessions.get(session, {})}
        if kept:
            self.states[name].append(State(self._number, operation, session, _copied(kept)))


def _copied(value: object, depth: int = 4) -> Any:
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
    ledger: Ledger = field(default_factory=Ledger)  # what the run wrote down about itself

    def __getitem__(self, name: str) -> View:
        return self.views[name]

    def of_role(self, role: str) -> list[View]:
        return [view for view in self.views.values() if view.role == role]


def record(
    X: object,
    y: object,
    conversation: object,
    *,
    parties: int | Sequence[str] = 2,
    partition: str = "vertical",
    label_party: str | None = None,
    how: str = "equal",
    random_state: int = 0,
    task: str = "auto",
    every_step: bool = False,
    fresh: tuple[Any, Any] | None = None,
    aside: Mapping[str, Any] | None = None,
) -> Recording:
    """Run a real fit over simulated parties and give the views of all roles.

    Parameters
    ----------
    X, y : one table, dealt to ``parties`` as ``Federation.split`` does: by columns, by rows or both (``partition``).
    conversation : a selector or model (anything with ``fit(fed)``), or a function of the federation: what a
        coordinator that deviates would ask. What its last announcement says is the job. A function may return a
        list of fitted selectors: each party is then told its part of each result, in that order.
    every_step : keep each party's own state after each of its operations, not only at the end of a run.
    fresh : ``(X, y)`` of rows that do not take part, for the control.
    aside : columns of the label holder that are no features (``fs.Design``).
    """

    def dealt(X: object, y: object, aside: Mapping[str, Any] | None = None) -> tuple[dict[str, Site], str | None]:
        return simulated_sites(
            X, y, parties=parties, partition=partition, how=how, duplicates=False, random_state=random_state,
            label_party=label_party, grid=None, aside=aside,
        )  # fmt: skip

    sites, active = dealt(X, y, aside)
    others = None if fresh is None else dealt(*fresh)[0]
    grid = hybrid_grid(sites) if partition == "hybrid" else None
    return record_sites(
        sites, active, conversation, task=task, every_step=every_step, fresh=others, partition=partition, grid=grid
    )


def record_tables(
    tables: Mapping[str, object],
    conversation: object,
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
    active: str | None,
    conversation: object,
    *,
    task: str = "auto",
    every_step: bool = False,
    by_id: bool = False,
    fresh: dict[str, Site] | None = None,
    names: str = "shared",
    partition: str = "vertical",
    grid: Mapping[str, tuple[int, int]] | None = None,
    coordinator: str = NEUTRAL,
) -> Recording:
    """Record a conversation with sites in this process (a site may have a policy).

    ``active`` is the label holder of vertical parties; others have labels where their tables have.
    """
    recorder = Recorder(InProcess(sites), sites, every_step)
    holders = [active] if active else [name for name, site in sites.items() if site.table.label is not None]
    fed = Federation(
        recorder, list(sites), active=active, task=task, names=names, partition=partition, grid=grid,
        label_parties=holders, coordinator=coordinator,
    )  # fmt: skip
    try:
        with recorder.listening():
            fed = aligned(fed, by_id=True, min_overlap=10) if by_id else fed
            result = _converse(fed, conversation)
    finally:
        fed.close()
    tables = _common_rows(_decoded(recorder), sites)
    labels, columns = _labels_and_columns(tables, holders, task)
    others = None
    if fresh is not None:
        fresh_labels, fresh_columns = _labels_and_columns({n: s.table for n, s in fresh.items()}, holders, task)
        others = Fresh(fresh_columns, fresh_labels)
    views = _views(recorder, sites, tables, active, result)
    ids = {name: table.ids for name, table in tables.items() if table.id_name is not None}
    columns_of = {name: table.columns for name, table in tables.items()}
    aside = {name: {c: s.to_numpy() for c, s in table.aside.items()} for name, table in tables.items() if table.aside}
    coded = {n: [i for i, c in enumerate(t.columns) if t.kinds[c] == "categorical"] for n, t in tables.items()}
    return Recording(views, Truth(labels, columns, others, ids, columns_of, aside, coded), result, fed.ledger)


def _converse(fed: Federation, conversation: Any) -> Any:
    if hasattr(conversation, "fit"):
        conversation.fit(fed)
        return conversation
    return conversation(fed)


def _common_rows(messages: list[Message], sites: Mapping[str, Site]) -> dict[str, Table]:
    """Each party's table in the common order of the rows: as it is, or as the alignment has told it."""
    aligned_here = any(m.is_request and matches("keep_shared", m.operation) for m in messages)
    tables = {}
    for name, site in sites.items():
        rows = site.views[VIEW][0] if aligned_here else None
        tables[name] = site.table if rows is None else site.table.take(rows)
    return tables


def _labels_and_columns(
    tables: Mapping[str, Table], holders: Sequence[str], task: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    found = [label for name in holders if (label := tables[name].label) is not None]
    if not found:
        raise FedsiftError(f"party {holders[0]!r} has no label column" if holders else "no party has a label column")
    labels = read_labels(np.concatenate(found), holders[0], task=task).codes
    return labels, {name: numbers(table) for name, table in tables.items()}


def _views(
    recorder: Recorder, sites: Mapping[str, Site], tables: Mapping[str, Table], active: str | None, result: object
) -> dict[str, View]:
    messages = _decoded(recorder)
    messages += _deliveries(messages, sites, result)
    job = _job(messages, sites, active, result)
    views = {COORDINATOR: View("coordinator", COORDINATOR, job, tuple(messages))}
    for name, site in sites.items():
        views[name] = View(
            "member" if active is None else "active" if name == active else "passive",
            name,
            job,
            tuple(m for m in messages if m.party == name),
            tables[name],
            {**site.keys, **recorder.keys[name]},
            tuple(recorder.states[name]),
            _kept(result, name),
            tuple(recorder.boxes[name]),
        )
    return views


def _kept(result: object, name: str) -> np.ndarray | None:
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


def _job(messages: list[Message], sites: Mapping[str, Site], active: str | None, result: object) -> Job:
    """What was announced last; a model on its own announces nothing, but its job file would name its parameters."""
    announced = [m for m in messages if m.is_request and matches("begin_job", m.operation)]
    if announced:
        return Job.read(announced[-1].content["job"], announced[-1].party)
    method, parameters = "", {}
    if hasattr(result, "get_params"):
        method, parameters = type(result).__name__, result.get_params(deep=False)
    return Job(method, dict(parameters), tuple(sites), active or "")
