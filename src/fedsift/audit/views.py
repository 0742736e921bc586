"""What each role has seen of a run: the bytes on the wire, decoded, and nothing else.

``recording.py`` keeps every request and reply of a run; from it a ``View`` is made for each role:

- a party: the requests that it got and its own replies, its own table and keys, what its own operations kept while
  they ran (what it decrypted is its own state), and what was in the sealed boxes that it opened or closed;
- the coordinator: every request and every reply, for they all pass through it;
- everybody: what the job says (method, parameters and with them the seed, the parties, who holds the label).

No view holds another party's table, keys or state; a test plants a canary. ``Truth`` holds what an attack is after, to
score it: beside what it says that it knows (class sizes), an attack looks there only when it has its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from fedsift.audit.naming import matches
from fedsift.core.job import Job
from fedsift.core.table import Table
from fedsift.errors import FedsiftError

T = TypeVar("T")


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
class State:
    """What a party's own operations had kept after one of them had run (its own, so its own knowledge)."""

    number: int  # of the reply after which it was taken
    operation: str
    session: str
    values: Mapping[Any, Any]


@dataclass(frozen=True)
class Boxed:
    """What a party took out of a sealed box, or put into one: only the two parties ever see it."""

    number: int  # of the last message before it
    operation: str  # during which it was opened or sealed
    view: str
    session: str
    peer: str
    is_opened: bool
    about: str
    step: int  # the box's own number
    content: Any


@dataclass(frozen=True)
class View:
    """Everything that one role received, and for a party everything of its own."""

    role: str  # "passive", "active", "coordinator"; "member": one of several parties with rows and labels of its own
    name: str
    job: Job
    messages: tuple[Message, ...]
    table: Table | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    states: tuple[State, ...] = ()
    kept: np.ndarray | None = None  # the answer that a party is entitled to: which of its columns were kept
    boxes: tuple[Boxed, ...] = ()  # a party's own

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
                return Job.read(message.content["job"], message.party)
        return self.job

    def opened(self, about: str) -> list[Boxed]:
        """What the party took out of boxes about this, in order."""
        return [box for box in self.boxes if box.is_opened and box.about == about]

    def last_kept(self, kind: type[T]) -> T | None:
        """The object of this type that the party's operations kept last, if any."""
        for state in reversed(self.states):
            found = state.values.get(kind)
            if isinstance(found, kind):
                return found
        return None

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
    """What the attacks are after. For scoring only.

    Horizontal and hybrid parties have other rows each: ``labels`` are then those of all holders, one after the other.
    """

    labels: np.ndarray  # class codes of the common rows
    columns: Mapping[str, np.ndarray]  # of each party, rows x columns
    fresh: Fresh | None = None
    ids: Mapping[str, np.ndarray] = field(default_factory=dict)  # of each party whose table has any
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of each party's columns
    aside: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)  # of a party: what is no feature
    coded: Mapping[str, Sequence[int]] = field(default_factory=dict)  # of each party: places of columns of categories

    @property
    def n_classes(self) -> int:
        return int(self.labels.max()) + 1

    def indicators(self, party: str) -> tuple[np.ndarray, np.ndarray | None]:
        """A party's columns, and the fresh rows', as protocols sum them: a column of categories is one a category."""
        fresh = None if self.fresh is None else self.fresh.columns[party]
        tables = [self.columns[party], *([] if fresh is None else [fresh])]
        parts: list[list[np.ndarray]] = [[] for _ in tables]
        for place in range(tables[0].shape[1]):
            columns = [table[:, place] for table in tables]
            if place in self.coded.get(party, ()):
                codes = np.arange(1 + max(int(np.nanmax(column, initial=0)) for column in columns))
                columns = [(column[:, None] == codes).astype(np.float64) for column in columns]
            for part, column in zip(parts, columns):
                part.append(column)
        wide = [np.column_stack(part) if part else table for part, table in zip(parts, tables)]
        return wide[0], wide[1] if fresh is not None else None

    @property
    def class_sizes(self) -> tuple[int, int]:
        """Rows of class 0 and of the others: for attacks that say in ``knows`` that they know the class sizes."""
        zeros = int((self.labels == 0).sum())
        return zeros, len(self.labels) - zeros

    @property
    def guess(self) -> float:
        """Share of the largest class: what somebody says who knows nothing about a row."""
        return float(np.bincount(self.labels).max() / len(self.labels))


def bins_told(job: Job, default: int) -> int:
    """How many bins a column is cut into, as the job says, under whichever name."""
    return int(next((job.parameters[key] for key in ("n_bins", "bins") if key in job.parameters), default))


def numbers(table: Table) -> np.ndarray:
    """A table's columns as numbers: categories by their code."""
    parts = []
    for column in table.columns:
        coded = table.kinds[column] == "categorical"
        parts.append(table.codes(column)[0].astype(np.float64) if coded else table.values(column))
    return np.column_stack(parts) if parts else np.zeros((table.n_rows, 0))
