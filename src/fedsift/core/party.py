"""A party: a private table and what may be done with it.

``Site`` is the long-lived side of an organisation: it owns the table and the keys, takes request bytes and gives
reply bytes; it is what a transport talks to. ``Party`` is what an operation sees for the length of one call: the
rows and columns of the current view, the state of the current run, and the site's keys.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fedsift import errors
from fedsift.core.binning import ColumnBins, codes_of
from fedsift.core.draws import private_generator, simulated_secret
from fedsift.core.message import decode, encode
from fedsift.core.model_store import ModelStore
from fedsift.core.operation import Operation, find_operation, operation
from fedsift.core.splits import is_amount, train_test_rows
from fedsift.core.table import Table
from fedsift.errors import DataError, FedsiftError, OperationRefused, PartyError

log = logging.getLogger("fedsift.core.party")
T = TypeVar("T")

#: Cross-validation makes many views; what is derived from one is kept for so many.
MAX_CACHED_VIEWS = 8


@dataclass(frozen=True)
class Labels:
    """The label column as the label holder sees it."""

    task: str  # "classification" or "regression"
    codes: np.ndarray  # class of each row; quantile classes for a regression target
    n_classes: int
    classes: tuple[str, ...]  # names of the classes, empty for a regression target
    values: np.ndarray  # the target as floats (class codes for classification)


class Site:
    """One organisation's end of the conversation: bytes in, bytes out. Data never leave but in a declared reply."""

    def __init__(self, name: str, table: Table, secret: bytes | None = None):
        self.name = name
        self.table = table
        self._secret = secret
        self.views: dict[str, tuple[np.ndarray | None, list[str] | None]] = {"": (None, None)}
        self.sessions: dict[str, dict[Any, Any]] = {}
        self.keys: dict[str, Any] = {}
        self.models = ModelStore(name)
        self._caches: dict[str, dict[Any, Any]] = {}
        self._lock = threading.Lock()

    @property
    def secret(self) -> bytes:
        """What this site's own draws come from (``draws.py``); never sent, never shown."""
        if self._secret is None:
            self._secret = simulated_secret(self.name, self.table)
        return self._secret

    def handle(self, data: bytes) -> bytes:
        """Answer one request. Errors come back as data too, so that the coordinator can raise them by name."""
        name = "?"
        try:
            request = decode(data)
            name, arguments = self._read(request)
            marked = find_operation(name, self.name)
            with self._lock:  # one operation at a time: state is not shared between threads
                self._before(marked, request)
                party = self._party(request["view"], request["session"], request["round"])
                value = self._run(marked, party, arguments)
                self._after(marked, request)
            return encode({"ok": value})
        except PartyError as error:
            return encode({"error": type(error).__name__, "what": self._told(error, error.what)})
        except FedsiftError as error:
            return encode({"error": type(error).__name__, "what": self._told(error, str(error))})
        except Exception as error:
            # The text of an unforeseen error may hold data: it stays here, in this site's own log.
            log.exception("operation %s failed at %s", name, self.name)
            return encode({"error": "OperationFailed", "what": f"it raised {type(error).__name__}; see its log"})

    # What a site with a policy (site.py) does beside; a site without one lets everything pass.

    def _before(self, marked: Operation, request: dict[str, Any]) -> None:
        """Called with each request before its operation runs; raises to refuse it."""

    def _after(self, marked: Operation, request: dict[str, Any]) -> None:
        """Called when the operation has run and its reply has not left yet; raises to keep the reply here."""

    def _told(self, error: FedsiftError, text: str) -> str:
        """What the coordinator gets to read of an error."""
        return text

    def _read(self, request: Any) -> tuple[str, dict[str, Any]]:
        fields = {"operation": str, "view": str, "session": str, "round": int, "arguments": dict}
        if not isinstance(request, dict) or set(request) != set(fields):
            raise errors.MessageError("a request must have operation, view, session, round and arguments")
        for key, kind in fields.items():
            if not isinstance(request[key], kind):
                raise errors.MessageError(f"the request's {key!r} has the wrong type")
        return request["operation"], request["arguments"]

    def _run(self, marked: Operation, party: Party, arguments: dict[str, Any]) -> Any:
        try:
            return marked.function(party, **arguments)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise OperationRefused(self.name, marked.short_name, "unknown or missing arguments") from None
            raise

    def _party(self, view: str, session: str, round: int) -> Party:
        if view not in self.views:
            raise OperationRefused(self.name, "view", "no such view of the rows at this party")
        state = self.sessions.setdefault(session, {}) if session else {}
        return Party(self, view, state, round)

    def cache(self, view: str) -> dict[Any, Any]:
        """What was computed for a view: a table, bins. Kept for the views used last; the rest is made again."""
        cache = self._caches.pop(view, {})
        self._caches[view] = cache
        while len(self._caches) > MAX_CACHED_VIEWS:
            self._caches.pop(next(iter(self._caches)))
        return cache

    def __repr__(self) -> str:
        return f"Site {self.name!r} ({self.table!r})"


class Party:
    """What an operation may use: this view's rows and columns, this run's state, this site's keys."""

    def __init__(self, site: Site, view: str, state: dict[Any, Any], round: int = 0):
        self.site = site
        self.name = site.name
        self.state = state
        self.keys = site.keys
        self.models = site.models
        self.round = round
        self._view = view
        self._rows, self._columns = site.views[view]
        self._cache = site.cache(view)

    def keep(self, value: T) -> T:
        """Keep an object of a protocol for the rest of this run; its type is its name."""
        self.state[type(value)] = value
        return value

    def held(self, kind: type[T]) -> T:
        """What an earlier step of this run kept; asked for out of order, it is refused."""
        try:
            value: T = self.state[kind]
        except KeyError:
            raise OperationRefused(
                self.name, kind.__name__, "an earlier step of this run must come first; it was not asked"
            ) from None
        return value

    @property
    def table(self) -> Table:
        """The rows and columns of this view."""
        if "table" not in self._cache:
            table = self.site.table
            if self._columns is not None:
                table = table.select(self._columns)
            if self._rows is not None:
                table = table.take(self._rows)
            self._cache["table"] = table
        return self._cache["table"]

    @property
    def columns(self) -> list[str]:
        return self.table.columns if self._columns is None else list(self._columns)

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    def binned(self, column: str, n_bins: int, min_rows: int = 1) -> tuple[np.ndarray, int]:
        """Bin of each row and the number of bins, by this view's rows alone (see ``binning``)."""
        key = ("binned", column, n_bins, min_rows)
        if key not in self._cache:
            self._cache[key] = _binned(self.table, column, n_bins, min_rows)
        return self._cache[key]

    def generator(self, purpose: str, random_state: Any) -> np.random.Generator:
        """For what only this party may foresee: the same for the same rows, label, purpose and ``random_state``.

        Draw in the order of the ids (``np.argsort(party.table.ids)``): alignment orders rows anew each time.
        """
        return private_generator(self.site.secret, self.table, purpose, random_state)

    def labels(self, classes: int = 5, task: str = "auto") -> Labels:
        """The label column, for the party that has it. ``classes`` quantile classes stand in for a number."""
        key = ("labels", classes, task)
        if key not in self._cache:
            if self.table.label is None:
                raise DataError(f"party {self.name!r} has no label column")
            self._cache[key] = read_labels(self.table.label, self.name, classes, task)
        return self._cache[key]

    def __repr__(self) -> str:
        return f"Party {self.name!r}: {self.table!r}"


def _binned(table: Table, column: str, n_bins: int, min_rows: int) -> tuple[np.ndarray, int]:
    # Bins that no row of this view falls into are left out, so that an empty bin is never a message.
    used, codes = np.unique(ColumnBins.fit(table, column, n_bins, min_rows).codes(table), return_inverse=True)
    return codes.astype(np.int32), len(used)


def read_labels(raw: np.ndarray, party: str, classes: int = 5, task: str = "auto") -> Labels:
    """Class codes or numbers from a raw label column."""
    array = np.asarray(raw)
    numeric = array.dtype.kind in "iuf"
    if task == "auto":
        task = "regression" if is_amount(array) else "classification"
    if task == "regression":
        if not numeric and array.dtype.kind != "b":
            raise DataError(f"party {party!r}: the label is text, so it cannot be a regression target")
        values = array.astype(np.float64)
        codes = codes_of(values[None, :], classes)[0]
        names: Sequence[str] = ()
        count = int(codes.max(initial=0)) + 1
    else:
        distinct, codes = np.unique(array, return_inverse=True)
        values = codes.astype(np.float64)
        names = [str(value) for value in distinct]
        count = len(distinct)
    if count < 2:
        raise DataError(
            f"party {party!r}: the label has one value only in these {len(array)} rows; "
            "selection needs at least two classes (or a target that varies)"
        )
    return Labels(task, codes.astype(np.int32), count, tuple(names), values)


# The operations every method needs.


@operation(
    "core.count_table", discloses="control", about="number of rows and columns", reply={"rows": int, "columns": int}
)
def count_table(party: Party) -> dict[str, int]:
    return {"rows": party.n_rows, "columns": len(party.columns)}


@operation(
    "core.describe_label",
    discloses="control",
    about="the kind of task and the number of classes",
    reply={"task": str, "classes": int},
)
def describe_label(party: Party, *, task: str) -> dict[str, Any]:
    labels = party.labels(task=task)
    return {"task": labels.task, "classes": labels.n_classes}


@operation(
    "core.share_names",
    discloses="plain",
    about="names of the columns that took part",
    reply=[str],
    needs=("column names",),
)
def share_names(party: Party) -> list[str]:
    return party.columns


@operation("core.define_view", discloses="control", about="acknowledgement")
def define_view(party: Party, *, view: str, rows: Any = None, columns: Any = None) -> None:
    """Name a subset of this view's rows and columns (by position), for later requests."""
    base_rows = np.arange(party.site.table.n_rows) if party._rows is None else party._rows
    if rows is not None and (rows.ndim != 1 or (len(rows) and (rows.min() < 0 or rows.max() >= len(base_rows)))):
        raise OperationRefused(party.name, "define_view", "row positions out of range")
    names = party.columns
    chosen = None if columns is None and party._columns is None else names
    if columns is not None:
        chosen = [names[int(position)] for position in columns]
    picked = party._rows if rows is None else base_rows[rows]
    party.site.views[view] = (picked, chosen)


@operation("core.begin_job", discloses="control", about="acknowledgement")
def begin_job(party: Party, *, method: str, parameters: dict[str, Any]) -> None:
    """Hear which method is to be run, with which parameters. A site with a policy refuses here what it will not do."""
    if not isinstance(method, str) or not isinstance(parameters, dict):
        raise OperationRefused(party.name, "begin_job", "a job announces a method's name and its parameters")


@operation("core.end_session", discloses="control", about="acknowledgement")
def end_session(party: Party, *, session: str) -> None:
    """Forget what a finished run kept at this party."""
    party.site.sessions.pop(session, None)


@operation(
    "core.draw_rows",
    discloses="pseudonymous",
    about="which row positions are for training (drawn within each class when stratified)",
    reply={"train": np.ndarray, "test": np.ndarray},
)
def draw_rows(party: Party, *, train: float, stratify: bool, seed: Any, task: str) -> dict[str, np.ndarray]:
    # Drawn in the order of this party's ids: alignment orders rows anew each time, the same seed must not.
    order = np.argsort(party.table.ids, kind="stable")
    strata = party.labels(task=task).codes[order] if stratify else None
    chosen, rest = train_test_rows(party.n_rows, train, stratify_on=strata, random_state=seed)
    return {"train": order[chosen], "test": order[rest]}
