"""A party: a private table and what may be done with it.

``Site`` is the long-lived side of an organisation: it owns the table and the keys, takes request bytes and gives
reply bytes; it is what a transport talks to. ``Party`` is what an operation sees for the length of one call: the
rows and columns of the current view, the state of the current run, and the site's keys.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedsift import errors
from fedsift.core.arguments import AtMost
from fedsift.core.binning import used_bins
from fedsift.core.checks import LabelFacts, TableSize
from fedsift.core.design import check_here, labelled
from fedsift.core.exchange import Request
from fedsift.core.identity import Identity, private_generator, simulated_secret
from fedsift.core.job import Job, Run, run_of
from fedsift.core.labels import LabelCopy, label_copy
from fedsift.core.labels import Labels as Labels
from fedsift.core.labels import read_labels as read_labels
from fedsift.core.message import encode, plain_message
from fedsift.core.operation import Operation, find_operation, operation
from fedsift.core.pieces import Pieces
from fedsift.core.state import ModelStore, undo
from fedsift.core.state import State as State
from fedsift.core.table import Table
from fedsift.core.workers import limited
from fedsift.errors import UNFORESEEN, DataError, FedsiftError, OperationRefused, disk_words

log = logging.getLogger("fedsift.core.party")
T = TypeVar("T")

MAX_CACHED_VIEWS, MANY_CACHED_VIEWS, SMALL = 8, 32, 2**20  # what is derived from a view; of small tables, for more
MAX_VIEWS = 100_000  # names of subsets that a site keeps; so often a run may ask for what is asked of each
Task = Literal["auto", "classification", "regression"]


@dataclass(frozen=True)
class Came:
    """What is remembered of a message after it was read."""

    size: int
    digest: bytes


class Site:
    """One organisation's end of the conversation: bytes in, bytes out. Data never leave but in a declared reply."""

    def __init__(self, name: str, table: Table, secret: bytes | None = None, identity: Identity | None = None):
        self.name = name
        self.table = table
        self._secret = secret
        self.identity = identity or Identity()
        self.views: dict[str, tuple[np.ndarray | None, list[str] | None]] = {"": (None, None)}
        self.sessions: dict[str, State] = {}
        self.runs: dict[str, Run] = {}
        self.keys: dict[str, Any] = {}
        self.models = ModelStore(name)
        self.pad_rows = 1  # how many rows there are is told as a multiple of this
        self.min_cell = 0  # rows of a group of which anything is told, where its people say more than a step does
        self.workers: int | None = None  # threads at most
        self.engine: str | None = None  # the address of a Dask cluster of its own
        self.rows_of_job: Callable[[str, tuple[str, ...]], np.ndarray] | None = None  # where it remembers its jobs
        self._caches: dict[str, tuple[object, dict[object, object]]] = {}
        self._lock = threading.Lock()
        self.pieces = Pieces()

    @property
    def secret(self) -> bytes:
        """What this site's own draws come from (``core/identity.py``); never sent, never shown."""
        if self._secret is None:
            self._secret = simulated_secret(self.name, self.table)
        return self._secret

    @property
    def told_rows(self) -> int:
        return -(-self.table.n_rows // self.pad_rows) * self.pad_rows

    def receive(self, data: bytes) -> bytes:
        """Answer what comes over a wire: a request, or a piece of one or for one."""
        return self.pieces.answer(data, self.handle)

    def handle(self, data: bytes) -> bytes:
        """Answer one request. Errors come back as data too, so that the coordinator can raise them by name."""
        name = "?"
        try:
            request, came = Request.read(data), Came(len(data), hashlib.sha256(data).digest())
            del data  # a large message is gone from memory once it was read
            name = request.operation
            marked = find_operation(name, self.name)
            marked.check_arguments(request.arguments, self.name)
            with self._lock, limited(self.workers, self.engine):  # one at a time: state is not shared between threads
                return self._answer(marked, request, came)
        except FedsiftError as error:
            told = self._told(error, getattr(error, "what", str(error)))
            return encode({"error": type(error).__name__, "what": told})
        except Exception as error:
            # The text of an unforeseen error may hold data: it stays here, in this site's own log.
            log.exception("operation %s failed at %s", name, self.name)
            if isinstance(error, (TypeError, ValueError, LookupError, AttributeError)):  # shapes, keys
                told = f"{UNFORESEEN} ({type(error).__name__}; see its log)"
                return encode({"error": "OperationRefused", "what": told})
            what = disk_words(error) or f"it raised {type(error).__name__}; see its log"
            return encode({"error": "OperationFailed", "what": what})

    def _answer(self, marked: Operation, request: Request, came: Came) -> bytes:
        """Judge, run, remember. One that is refused before it runs changes nothing; one that fails counts as asked."""
        session, round = request.session, request.round
        run = self.runs.get(run_of(session)) or Run()
        run.check_job(request.job, self.name, marked.short_name)
        if session:
            stored = run.stored_reply(session, round, came.digest, self.name, marked.short_name)
            if stored is not None:
                return stored
        run.check_step(marked, request.arguments, session, self.name)
        if request.view not in self.views:
            raise OperationRefused(self.name, "view", "no such view of the rows at this party")
        self._before(marked, request)
        party = self._party(request.view, session, round, run)
        if session:
            self.runs[run_of(session)] = run
            run.count(marked, session)
        before = dict(party.state)
        try:
            value = self._run(marked, request, party)
            self._after(marked, request, value)
        except Exception:
            undo(party.state, before)
            raise
        reply = encode({"ok": value})
        self._answered(marked, request, came.size, len(reply))
        if session:
            run.keep_reply(session, round, came.digest, reply)
        return reply

    def _run(self, marked: Operation, request: Request, party: Party) -> Any:
        try:
            return plain_message(marked.function(party, **marked.built(request.arguments)))
        except Exception as error:
            if isinstance(error, (DataError, errors.OverflowGuard)) or not isinstance(error, FedsiftError):
                self._failed(marked, request)
            raise

    # What a site with a policy (site.py) does beside; a site without one lets everything pass.
    def _before(self, marked: Operation, request: Request) -> None:
        """Called with each request before its operation runs; raises to refuse it."""

    def _after(self, marked: Operation, request: Request, value: object) -> None:
        """Called when the operation has run and its reply has not left yet; raises to keep the reply here."""

    def enter_part(self, party: Party, rows: NDArray[np.int64], step: str) -> None:
        """Called by a step that sets some of its view's rows apart: sums over them are about these alone."""

    def tell_sides(self, party: Party, step: str, sides: int, held: float, answer: bytes = b"") -> None:
        """Called by a step that tells of each row so many ``sides`` of cuts at most; its columns hold ``held`` bits."""

    def _failed(self, marked: Operation, request: Request) -> None:
        """Called when an operation has ended in an error that may depend on the rows: that it came tells something."""

    def _answered(self, marked: Operation, request: Request, received: int, sent: int) -> None:
        """Called when a reply is about to leave, for a site that keeps a ledger of its own."""

    def proposed(self, jobs: Sequence[Job]) -> str:
        """Until when the site's people may approve these jobs; empty where nobody has to, or all have."""
        return ""

    def _told(self, error: FedsiftError, text: str) -> str:
        """What the coordinator gets to read of an error."""
        return text

    def _party(self, view: str, session: str, round: int, run: Run) -> Party:
        state = self.sessions.setdefault(session, State(self.name)) if session else State(self.name)
        return Party(self, view, state, round, run, session)

    def cache(self, view: str) -> dict[object, object]:
        """What was computed for a view: a table, bins. Kept for the views used last; the rest is made again. A view
        that was defined anew has other rows: nothing of the old ones is taken for them."""
        defined, cache = self._caches.pop(view, (None, {}))
        if defined is not self.views[view]:
            cache = {}
        self._caches[view] = (self.views[view], cache)
        most = MAX_CACHED_VIEWS if self.table.n_rows * len(self.table.columns) > SMALL else MANY_CACHED_VIEWS
        while len(self._caches) > most:
            self._caches.pop(next(iter(self._caches)))
        return cache

    def __repr__(self) -> str:
        return f"Site {self.name!r} ({self.table!r})"


class Party:
    """What an operation may use: this view's rows and columns, this run's state, this site's keys.

    Examples
    --------
    >>> import fedsift as fs
    >>> @fs.operation("example.rows", discloses="control", about="how many rows it has", reply=int)
    ... def rows(party: fs.Party) -> int:
    ...     return party.n_rows
    >>> fed = fs.Federation.split([[1.0, 8.0], [2.0, 7.0], [4.0, 6.0]], [0, 1, 0], parties=["bank", "shop"])
    >>> fs.register_plugin(rows.module)
    >>> fed.ask(rows, to=fed.parties)
    {'bank': 3, 'shop': 3}
    """

    def __init__(
        self, site: Site, view: str, state: State | None = None, round: int = 0, run: Run | None = None,
        session: str = "",
    ):  # fmt: skip
        self.site = site
        self.session = session
        self.run = run or Run()
        self.name = site.name
        self.state = State(site.name) if state is None else state
        self.keys = site.keys
        self.models = site.models
        self.round = round
        self._view = view
        self._rows, self._columns = site.views[view]
        self._cache = site.cache(view)

    def keep(self, value: T) -> T:
        """Keep an object of a protocol for the rest of this run; its type is its name."""
        self.state[type(value)] = value
        self.state["rows", type(value)] = self._rows
        return value

    def held(self, kind: type[T]) -> T:
        """What an earlier step of this run kept; asked for out of order, it is refused."""
        value: T = self.state[kind]
        return value

    def held_here(self, kind: type[T]) -> T:
        """The same, where it must be about the rows of this very view: what a rule says of these rows is then about
        what was computed."""
        value, rows = self.held(kind), self.state["rows", kind]
        if rows is not self._rows and (rows is None or self._rows is None or not np.array_equal(rows, self._rows)):
            raise OperationRefused(self.name, kind.__name__, "an earlier step computed it for other rows than these")
        return value

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """What is derived from the rows and columns of this view, and made once for them."""
        if key not in self._cache:
            self._cache[key] = make()
        return cast(T, self._cache[key])

    @property
    def row_numbers(self) -> NDArray[np.int64]:
        """Which rows of the site's table this view has, in its order."""
        return np.arange(self.site.table.n_rows) if self._rows is None else self._rows

    @property
    def job(self) -> Job:
        """The job that this site has accepted for this run: every setting is read from here."""
        if self.run.job is None:
            raise OperationRefused(self.name, "job", "no job was announced for this run")
        return self.run.job

    @property
    def view(self) -> str:
        """The name of this view."""
        return self._view

    @property
    def table(self) -> Table:
        """The rows and columns of this view."""
        return self.cached(("table", self._design_key), self._chosen)

    def _chosen(self) -> Table:
        table = self.site.table if self._columns is None else self.site.table.select(self._columns)
        return labelled(self, table if self._rows is None else table.take(self._rows))

    @property
    def _design_key(self) -> str:
        """What the job says of labels: a view has another table where it says something else."""
        design = {} if self.run.job is None else self.run.job.design
        return ", ".join(f"{part}={design.get(part)}" for part in ("label", "event", "weight") if part in design)

    @property
    def columns(self) -> list[str]:
        return self.table.columns if self._columns is None else list(self._columns)

    @property
    def n_rows(self) -> int:
        return self.site.table.n_rows if self._rows is None else len(self._rows)

    def binned(self, column: str, n_bins: int, min_rows: int = 1) -> tuple[np.ndarray, int]:
        """Bin of each row and the number of bins, by this view's rows alone (see ``binning``)."""
        key = ("binned", column, n_bins, min_rows)
        return self.cached(key, lambda: used_bins(self.table, column, n_bins, min_rows))

    def whole(self) -> Party:
        """The same party and job, with all rows of its table."""
        return Party(self.site, "", self.state, self.round, self.run, self.session)

    def generator(self, purpose: str, random_state: Any) -> np.random.Generator:
        """For what only this party may foresee: the same for the same rows, label, purpose and ``random_state``.

        Draw in the order of the ids (``party.table.by_id``): alignment orders rows anew each time.
        """
        return private_generator(self.site.secret, self.table, purpose, random_state)

    def labels(self, classes: int = 5, task: str = "auto") -> Labels:
        """The label column, or the copy of a job with ``label_epsilon``; quantile ``classes`` of a number."""
        copy = label_copy(self.run, lambda: self.whole().table.label, self.name, task)
        if copy is not None:
            return copy.of(self.row_numbers, self.name, classes)
        task = "regression" if self.run.job is not None and "event" in self.run.job.design else task
        key = ("labels", classes, task, self._design_key)
        return self.cached(key, lambda: read_labels(self.table.label, self.name, classes, task))

    @property
    def judged_label(self) -> NDArray[np.generic] | None:
        """The label column by which answers are judged: the copy, where this very job has learned from one."""
        copy = self.run.kept.get(LabelCopy)
        return copy.column(self.row_numbers) if isinstance(copy, LabelCopy) else self.table.label

    def __repr__(self) -> str:
        return f"Party {self.name!r}: {self.table!r}"


@operation(
    "core.count_table", discloses="control", about="number of rows and columns", reply=TableSize,
    times=MAX_VIEWS,
)  # fmt: skip
def count_table(party: Party) -> TableSize:
    rows = party.site.told_rows if party._rows is None else party.n_rows
    return TableSize(rows, len(party.columns))


@operation(
    "core.describe_label", discloses="control", about="the kind of task and the number of classes",
    reply=LabelFacts, role="active", concerns="labels", times=MAX_VIEWS,
)  # fmt: skip
def describe_label(party: Party, *, task: Task) -> LabelFacts:
    task = "regression" if party.run.job is not None and "event" in party.run.job.design else task
    labels = read_labels(party.table.label, party.name, task=task)  # what it may tell is no secret of a row
    return LabelFacts(labels.task, labels.n_classes)


@operation(
    "core.share_names", discloses="plain", about="names of the columns that took part", reply=[str],
    needs=("column names",), times=MAX_VIEWS,
)  # fmt: skip
def share_names(party: Party) -> list[str]:
    return party.columns


@operation("core.define_view", discloses="control", about="acknowledgement", times=MAX_VIEWS)
def define_view(
    party: Party, *, view: Annotated[str, AtMost(100)], rows: NDArray[np.int64] | None = None,
    columns: list[int] | None = None,
) -> None:  # fmt: skip
    """Name a subset of this view's rows and columns (by position), for later requests."""
    base_rows = np.arange(party.site.table.n_rows) if party._rows is None else party._rows
    if rows is not None and (rows.ndim != 1 or (len(rows) and (rows.min() < 0 or rows.max() >= len(base_rows)))):
        raise OperationRefused(party.name, "define_view", "row positions out of range")
    names = party.columns
    if columns is not None and any(not 0 <= position < len(names) for position in columns):
        raise OperationRefused(party.name, "define_view", "column positions out of range")
    if view == "" or (view not in party.site.views and len(party.site.views) >= MAX_VIEWS):
        raise OperationRefused(party.name, "define_view", f"a view has a name, and a site keeps at most {MAX_VIEWS}")
    chosen = None if columns is None and party._columns is None else names
    if columns is not None:
        chosen = [names[position] for position in columns]
    picked = party._rows if rows is None else base_rows[rows]
    party.site.views[view] = (picked, chosen)


@operation("core.begin_job", discloses="control", about="acknowledgement", times=1)
def begin_job(party: Party, *, job: bytes) -> None:
    """Accept a job for this run. A site with a policy has judged it before this runs."""
    party.run.job = Job.read(job, party.name)
    if party.run.job.design:
        check_here(party)


@operation("core.end_session", discloses="control", about="acknowledgement", times=MAX_VIEWS)
def end_session(party: Party, *, session: Annotated[str, AtMost(1000)]) -> None:
    """Forget what a finished run, or a session inside one, kept at this party."""
    site = party.site
    for name in [name for name in site.sessions if name == session or name.startswith(f"{session}.")]:
        del site.sessions[name]
    if session == run_of(session):
        site.runs.pop(session, None)
    elif run_of(session) in site.runs:
        site.runs[run_of(session)].answered.pop(session, None)
    if not site.runs:
        site.pieces.forget()
