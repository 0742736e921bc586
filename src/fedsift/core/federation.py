"""The federation: a coordinator that asks, relays and counts. It holds no data.

``Federation.ask`` is the one way to reach a party; ``exchange.py`` carries it out.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, overload

import numpy as np

from fedsift.core import party
from fedsift.core.approval import announce
from fedsift.core.checks import check_number
from fedsift.core.design import Design
from fedsift.core.encoding import Encoders
from fedsift.core.exchange import Exchange
from fedsift.core.files import plain
from fedsift.core.job import NEUTRAL, PREDICTIONS, Job
from fedsift.core.ledger import Ledger
from fedsift.core.notebook import federation_html
from fedsift.core.operation import Answering, Operation, R
from fedsift.core.party import Site
from fedsift.core.progress import Item
from fedsift.core.row_access import Facts, RowAccess
from fedsift.core.simulate import WORDS, check_grid, hybrid_grid, label_columns, open_tables, simulated_sites
from fedsift.core.splits import RandomState
from fedsift.core.transports.base import Aborted, Transport
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import ParameterError, PartyError

Each = Mapping[str, Mapping[str, object]] | None


class Federation(RowAccess):
    """Parties of one table, seen by a coordinator without any: ``from_tables`` (theirs) or ``split`` (simulated).

    Parameters
    ----------
    transport : what carries bytes to the parties and back. parties : their names.
    active : who holds the label, where one does. label_parties : who else does (horizontal, hybrid).
    partition : ``"vertical"``, ``"horizontal"`` or ``"hybrid"``, with ``grid`` as in ``from_tables``.
    task : ``"auto"``, ``"classification"`` or ``"regression"``. timeout : seconds that a reply may take.
    names : whether column names are ``"shared"`` with the coordinator or ``"private"``.
    coordinator, dealer, submitter : who runs it, deals randomness, gets the results: ``"neutral"`` or a party.

    Examples
    --------
    >>> from fedsift import Federation
    >>> Federation.split([[1.0, 8.0], [2.0, 7.0], [4.0, 6.0]], [0, 1, 0], parties=["bank", "shop"]).n_columns
    {'bank': 1, 'shop': 1}
    """

    #: Alignment is a protocol and stands to the right: the package hands it over (``_public.py``).
    _alignment: ClassVar[Callable[..., Federation]]

    def __init__(
        self,
        transport: Transport,
        parties: Sequence[str],
        *,
        active: str | None,
        partition: str = "vertical",
        task: str = "auto",
        timeout: float | None = None,
        names: str = "shared",
        grid: Mapping[str, tuple[int, int]] | None = None,
        label_parties: Sequence[str] | None = None,
        coordinator: str = NEUTRAL,
        dealer: str | None = None,
        submitter: str | None = None,
    ):
        for what, given in {"partition": partition, "names": names, "task": task}.items():
            if given not in (words := WORDS[what]):
                raise ParameterError(f"{what} must be one of {', '.join(words)}; got {given!r}")
        check_number("timeout", timeout, 0, none=True)
        self._link = Exchange(transport, timeout)
        self.parties = list(parties)
        self._active, self._task = active, task
        self.partition, self.names = partition, names
        if partition != "hybrid":
            grid = {name: (0, i) if partition == "vertical" else (i, 0) for i, name in enumerate(parties)}
        self._grid, self._label_parties = grid, label_parties
        self._runners = (coordinator, dealer or coordinator, submitter or coordinator)
        self._job: Job | None = None
        self._design = Design()
        self._purpose = ""
        self._view, self._session = "", ""
        self._facts = Facts()

    # -- making one ------------------------------------------------------------------------------------------------

    @classmethod
    def from_tables(
        cls,
        tables: Mapping[str, object],
        *,
        id: str | Mapping[str, str] | None,
        label: tuple[str, str | None] | str | Mapping[str, str],
        partition: str = "vertical",
        columns: Mapping[str, Sequence[str]] | None = None,
        categorical: Mapping[str, Sequence[str]] | None = None,
        aside: Mapping[str, Sequence[str]] | None = None,
        encode: Mapping[str, Encoders] | None = None,
        task: str = "auto",
        timeout: float | None = None,
        names: str = "shared",
        min_overlap: int = 10,
        grid: Mapping[str, tuple[int, int]] | None = None,
        coordinator: str = NEUTRAL,
        dealer: str | None = None,
        submitter: str | None = None,
        random_state: RandomState = 0,
        matching: str = "curve",
    ) -> Federation:
        """A federation of real tables, aligned by private set intersection of their ids (vertical, hybrid).

        Parameters
        ----------
        tables : party name -> CSV, Parquet or Arrow file, pandas, polars or Arrow table.
        id : the id column, the same everywhere or by party; ``None`` when rows are already in the same order.
        label : ``(party, column)``, column ``None`` for rows to predict; for horizontal parties the label column's
            name; for hybrid ones a name, or party -> column (at least one party of each row block).
        columns : which columns of a party may take part; all by default.
        categorical : columns that are codes although they look like numbers, by party.
        aside : columns that are no features, for ``designed``: whose row it is, when it was, what it counts; by party.
        encode : what texts and dates become, by party and column: ``{"bank": {"joined": ["month", "weekday"]}}``.
        min_overlap : the smallest number of shared ids that is worth going on with.
        grid : for hybrid parties: party -> (row block, column block). Parties of a row block know the same ids, parties
            of a column block have the same columns. Rows are aligned within each row block.
        coordinator : who runs it: ``"neutral"`` (nobody who holds rows) or a party's name.
        dealer, submitter : who deals randomness and who gets the results, in the same words; else who runs it.
        random_state : shared rows are ordered at random; the same parties and number give the same order again.
        matching : ``"curve"``, or ``"keyed"``: faster by far, leans on a coordinator that colludes with no party.
        """
        check_number("min_overlap", min_overlap, 1, whole=True)
        holders = label_columns(label, tables)
        if partition == "hybrid":
            grid = check_grid(grid, tables, holders)
        active = None if isinstance(label, (str, Mapping)) else label[0]
        if active is not None and active not in tables:
            raise ParameterError(f"label names the party {active!r}, but the parties are {', '.join(tables)}")
        if partition == "vertical" and active is None:
            raise ParameterError(f"for vertical parties label is (party, column), e.g. ('bank', {label!r})")
        sites = open_tables(tables, id, holders, columns or {}, categorical or {}, aside or {}, encode or {})
        fed = cls(
            InProcess(sites), list(sites), active=active, partition=partition, task=task, timeout=timeout, names=names,
            grid=grid, label_parties=list(holders), coordinator=coordinator, dealer=dealer, submitter=submitter,
        )  # fmt: skip
        given = {"min_overlap": min_overlap, "random_state": random_state, "matching": matching}
        return cls._alignment(fed, by_id=id is not None, **given)

    @classmethod
    def split(
        cls,
        X: object,
        y: object,
        *,
        parties: int | Sequence[str] = 4,
        partition: str = "vertical",
        how: str = "equal",
        duplicates: bool = False,
        task: str = "auto",
        random_state: RandomState = 0,
        label_party: str | None = None,
        timeout: float | None = None,
        grid: tuple[int, int] | None = None,
        coordinator: str = NEUTRAL,
        aside: Mapping[str, Sized] | None = None,
    ) -> Federation:
        """Simulate parties from one table: columns (vertical), rows (horizontal) or both (hybrid grid).

        ``how`` is ``equal``, ``random`` or ``lognormal`` for columns and ``equal``, ``unequal``, ``target`` or
        ``kmeans`` for rows. ``duplicates=True`` gives half of the parties copies of half of their columns (MUSE).
        ``grid=(2, 3)`` makes 2 row blocks x 3 column blocks; every party has its rows' labels, or with
        ``label_party="columns1"`` those of that column block only.
        The rows of simulated vertical parties are in the same order by construction, so no ids are exchanged.
        ``aside`` gives columns that are no features to the label holder, or with their rows to parties that hold rows,
        one value a row (``designed``).
        """
        sites, active = simulated_sites(
            X, y, parties=parties, partition=partition, how=how, duplicates=duplicates, random_state=random_state,
            label_party=label_party, grid=grid, aside=aside or {},
        )  # fmt: skip
        holders = [name for name, site in sites.items() if site.table.label_name is not None]
        return cls(
            InProcess(sites), list(sites), active=active, partition=partition, task=task, timeout=timeout,
            grid=hybrid_grid(sites) if partition == "hybrid" else None, label_parties=holders, coordinator=coordinator,
        )  # fmt: skip

    # -- who is there ----------------------------------------------------------------------------------------------

    @property
    def active(self) -> str:
        """The party that holds the label."""
        if self._active is None:
            raise ParameterError(f"in a {self.partition} federation every party holds labels: there is no active one")
        return self._active

    @property
    def passive(self) -> list[str]:
        """The parties without the label."""
        return [name for name in self.parties if name != self._active]

    @property
    def grid(self) -> dict[str, tuple[int, int]]:
        """Row block and column block of each party: who shares rows and who shares columns with whom."""
        if self._grid is None:
            raise ParameterError("this hybrid federation was made without grid=, so nobody knows who shares rows")
        return dict(self._grid)

    @property
    def label_parties(self) -> list[str]:
        """The parties that hold labels: one, all, or some of each row block."""
        return list(self._label_parties or ([self._active] if self._active else self.parties))

    @property
    def asked_task(self) -> str:
        """What the user said about the label: ``auto``, ``classification`` or ``regression``."""
        return self._task

    @property
    def ledger(self) -> Ledger:
        return self._link.ledger

    @property
    def transport(self) -> str:
        return self._link.transport.name

    # -- the one idea ----------------------------------------------------------------------------------------------

    @overload
    def ask(
        self, operation: Answering[R], *, to: str, each: Each = None, timeout: float | None = None, **same: Any
    ) -> R: ...

    @overload
    def ask(
        self, operation: Answering[R], *, to: Sequence[str], each: Each = None, timeout: float | None = None,
        **same: Any,
    ) -> dict[str, R]: ...  # fmt: skip

    def ask(
        self, operation: Answering[R], *, to: str | Sequence[str], each: Each = None, timeout: float | None = None,
        **same: Any,
    ) -> R | dict[str, R]:  # fmt: skip
        """Ask one party (and get its reply) or several at the same time (and get a dictionary of replies).

        ``same`` goes to everybody, ``each[name]`` to one party only.
        """
        if not isinstance(operation, Operation):
            raise ParameterError(f"ask takes a function marked with @operation, got {operation!r}")
        receivers = [to] if isinstance(to, str) else list(to)
        unknown = [name for name in receivers if name not in self.parties]
        if unknown:
            raise ParameterError(f"no party {unknown[0]!r}; the parties are {', '.join(self.parties)}")
        arguments = {name: {**same, **(each[name] if each is not None else {})} for name in receivers}
        job = self._job.hash if self._job is not None else b""
        replies = self._link.ask(operation, arguments, view=self._view, session=self._session, job=job, timeout=timeout)
        return replies[to] if isinstance(to, str) else replies

    def track(
        self, items: Iterable[Item], what: str, of: int | None = None, at_most: bool = False, alike: bool = True
    ) -> Iterator[Item]:
        """The items one by one, told to whoever watches: ``for epoch in fed.track(range(epochs), "epoch")``.

        The loop may end sooner (``at_most``); no time left is told where its turns are not ``alike``.
        """
        return self._link.work.track(items, what, of, at_most, alike)

    def progress(self, done: int, of: int, what: str, at_most: bool = False) -> None:
        """Tell whoever watches that ``done`` of ``of`` turns of a loop are over; with ``at_most`` it may end sooner."""
        self._link.work.progress(done, of, what, at_most)

    # -- views and runs --------------------------------------------------------------------------------------------

    def view(self, *, rows: Any = None, columns: Mapping[str, Any] | None = None) -> Federation:
        """The same federation with fewer rows (positions) or columns (positions by party)."""
        name = self.new_view("view")
        each = {}
        for member in self.parties:
            member_rows = rows[member] if isinstance(rows, Mapping) else rows
            each[member] = {
                "rows": None if member_rows is None else np.asarray(member_rows, dtype=np.int64),
                "columns": None if columns is None else [int(c) for c in columns.get(member, [])],
            }
        self.ask(party.define_view, to=self.parties, each=each, view=name)
        return self.named_view(name)

    def new_view(self, what: str) -> str:
        """A name that no view of this federation has yet."""
        return f"{what}-{next(self._link.views)}"

    def named_view(self, name: str) -> Federation:
        """The same federation, seen through a view that its parties have already defined."""
        other = copy.copy(self)
        other._view, other._facts = name, Facts()
        return other

    def outside(self) -> Federation:
        """Outside of any run: what is fitted there is a job of its own."""
        other = copy.copy(self)
        other._session, other._job = "", None
        return other

    def for_predictions(self) -> Federation:
        """The same parties for predictions alone: every job says so, and sites answer nothing else of a model then.

        Rows are matched anew under it (``fedsift.mpc.psi.align``). Few rows can be predicted so, where a site refuses
        any other work on them (``min_rows``).
        """
        other = self.outside()
        other._purpose = PREDICTIONS
        return other

    def job(self, method: str, parameters: Mapping[str, object]) -> Job:
        """The contract of one method on this federation; ``parameters`` are plain values, defaults included."""
        return Job(
            method, plain(parameters), tuple(self.parties), self._active, tuple(self.label_parties), self.partition,
            self._task, *self._runners, design=self._design.told(), purpose=self._purpose,
        )  # fmt: skip

    @property
    def neutral(self) -> bool:
        """Whether nobody who holds rows runs the coordinator, deals the randomness or gets the results."""
        return self.job("", {}).neutral

    @property
    def run_by(self) -> str | None:
        """A party that runs the coordinator, deals the randomness or gets the results; ``None`` where none does."""
        return next((name for name in self._runners if name != NEUTRAL), None)

    def announce(self, method: str, parameters: Mapping[str, object]) -> None:
        """Put the job to every party, once a session: one whose policy forbids it refuses before anything is computed.
        Every later request names the job's hash."""
        job = self.job(method, parameters)
        announce(self, job)
        self._job = job

    @contextmanager
    def session(self, method: str = "", parameters: Mapping[str, object] | None = None) -> Iterator[Federation]:
        """A run of one method: state that its operations keep at the parties is forgotten at the end.

        A session inside a session (a method that trains a model) belongs to the outer one's job: its name says so.
        """
        other = copy.copy(self)
        other._session = f"{self._session}.{secrets.token_hex(8)}" if self._session else secrets.token_hex(8)
        try:
            if method and (self._job is None or self._job != self.job(method, parameters or {})):
                other.announce(method, parameters or {})
            with self._link.work.inside():
                yield other
        finally:
            # Who is gone cannot be told, nor who was ended; the error that ended the run is the one that matters.
            with suppress(PartyError, Aborted):
                self.ask(party.end_session, to=self.parties, session=other._session, timeout=5.0)

    @property
    def simulated(self) -> dict[str, Site]:
        """The sites, where all parties are simulated in this process; none between machines."""
        return dict(getattr(self._link.transport, "sites", {}))

    def close(self) -> None:
        self._link.transport.close()

    def __repr__(self) -> str:
        holder = f", label at {self._active!r}" if self._active else ""
        shown = ", ".join(self.parties[:6]) + (", ..." if len(self.parties) > 6 else "")
        return f"Federation of {len(self.parties)} {self.partition} parties ({shown}){holder}"

    def _repr_html_(self) -> str:
        """For notebooks. Shows only what was asked before: looking at a federation sends nothing."""
        return federation_html(self.parties, self._active, self._facts.sizes, len(self.ledger), self.partition)
