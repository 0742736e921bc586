"""How many rows of each class lie in each bin of every column: what information value and Gini impurity are made of.

Bins come from a column alone (``core/binning.py``; with ``epsilon`` their edges are paid for, see ``paid_bins.py``):
none has fewer than ``min_cell`` rows, small ones are merged, and numbers of bins are shuffled, so that a number says
nothing about the values in it. That a *cell* (bin and class) is small nobody can check before it is opened, so bins are
made coarser by their sizes alone; a cell may still be small, and ``epsilon`` is the answer to that.

The sums are opened by the coordinator from two halves (``mpc/two_halves.py``). It learns, for every column, sizes and
label counts of bins without names, and so the sizes of the classes; whoever knows a public sample of the population
may recognise a column by the sizes of its bins. The label holder and the other parties learn nothing here. Rounds: 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import LabelHolder
from fedsift.core.design import design_of
from fedsift.core.federation import Federation
from fedsift.core.ledger import Release, numbers_in
from fedsift.core.message import message
from fedsift.core.operation import operation
from fedsift.core.party import Party, Task
from fedsift.core.workers import side_by_side
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc.column_scores.noise import TableNoise, drawn, note_hidden, rank_classes, rho_of, room_bits
from fedsift.mpc.column_scores.paid_bins import coded, countable_bins, searched
from fedsift.mpc.column_scores.weighing import ROW_BITS, STEPS, class_factors, counted_weights
from fedsift.mpc.encrypted_histogram import RowLayout, aligned_sums
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.two_halves import (
    OPERATIONS as OPENING,
)
from fedsift.mpc.two_halves import (
    Answers,
    ForHolder,
    Halves,
    LabelLayers,
    Layouts,
    SentLabels,
    TableSums,
    WeightBits,
    encrypt_classes,
    encrypted,
    encrypted_columns,
    join_halves,
    masked,
    open_halves,
    take_labels,
)

MAX_BINS = 100
DEFAULT_BINS = 10
_WEIGHTED_BITS = 24.0  # of an opened weighted count
_MOST_COUNTED = 2.0**48  # rows, their weights and noise are less


@dataclass(frozen=True)
class TableSettings:
    """What a job says about its tables."""

    n_bins: int
    min_cell: int
    epsilon: float | None = None
    delta: float = 1e-6

    @classmethod
    def of(cls, party: Party) -> TableSettings:
        """As the party has accepted them."""
        told = party.job.parameters
        epsilon, delta = told.get("epsilon"), told.get("delta")
        unsaid = 1 if epsilon is None else DEFAULT_BINS  # a job that says no bins (SFFS) has no exact tables
        n_bins, min_cell = int(told.get("n_bins") or unsaid), int(told.get("min_cell") or 1)
        if not 2 <= n_bins <= MAX_BINS:
            raise OperationRefused(party.name, "tables", f"n_bins must lie between 2 and {MAX_BINS}")
        if epsilon is None:
            return cls(n_bins, min_cell)
        return cls(n_bins, min_cell, float(epsilon), float(delta if delta is not None else 1e-6))

    def least_rows(self, columns: dict[str, int], active: bool, name: str) -> int:
        """Of a bin of this party's, as its search for bins had them; 1 without noise."""
        noise = self.noise()
        if noise is None:
            return 1
        scale = noise.holder_scale(sum(columns.values())) if active else noise.party_scale(columns[name])
        return noise.min_rows(scale, self.min_cell)

    def noise(self, ranked: int = 0) -> TableNoise | None:
        """None for exact tables; ``ranked`` is the number of classes of a regression target."""
        return None if self.epsilon is None else TableNoise(rho_of(self.epsilon, self.delta), ranked)


@dataclass(frozen=True)
class ColumnTables:
    """Counts by bin and class of one party's columns, as the coordinator opened them."""

    cells: np.ndarray  # bins of all columns, one column after the other, x classes
    bins: np.ndarray  # how many bins each column has
    variance: float  # of the noise in each cell, independent from cell to cell

    def columns(self) -> Iterator[np.ndarray]:
        """One column's table after the other."""
        ends = np.cumsum(self.bins)
        return (self.cells[end - count : end] for count, end in zip(self.bins, ends))

    @property
    def owner(self) -> np.ndarray:
        """The column of each bin."""
        return np.repeat(np.arange(len(self.bins)), self.bins)


@dataclass(frozen=True)
class CountedBins:
    """The bin of each row and column (rows x columns) as they were counted, kept for the rest of the run."""

    rows: np.ndarray
    columns: list[str]
    codes: np.ndarray

    @classmethod
    def of(cls, party: Party) -> CountedBins:
        """Those of this very view."""
        found = party.run.kept.get(cls)
        if not isinstance(found, cls):
            raise OperationRefused(party.name, "counted bins", "the tables of this run must be counted first")
        if found.columns != party.columns or not np.array_equal(found.rows, party.row_numbers):
            raise OperationRefused(party.name, "counted bins", "other rows or columns were counted than these")
        return found


@dataclass(frozen=True)
class BinPlaces:
    """Where the bins of the columns stand that were counted with noise, kept for the rest of the run."""

    places: NDArray[np.float64]


@message
@dataclass(frozen=True)
class OpenedCounts:
    """The label holder's halves of the others' counts; the counts of its own columns, and their bins."""

    halves: Halves
    own: NDArray[np.int64]
    bins: NDArray[np.int32]


@operation(
    "tables.encrypt_every_class",
    discloses="ciphertext",
    about="class of each row, encrypted",
    reply=SentLabels,
    role="active",
    concerns="labels",
    epsilon="epsilon",
    settings=("scheme",),
    times=1,
)
def encrypt_every_class(
    party: Party, *, scheme: Literal["auto", "ou", "paillier"], task: Task, answers: Answers, weight_bits: WeightBits
) -> SentLabels:
    """With noise the last class is counted too: its sums are not the rest of sizes that nobody tells.

    A regression target has classes of ranks (``noise.py``).
    """
    labels = party.labels(task=task)
    if labels.task == "regression":
        labels = replace(labels, codes=rank_classes(labels.values, labels.n_classes))
    return encrypted(party, scheme, labels, labels.n_classes, answers=answers, weight_bits=weight_bits)


@operation(
    "tables.encrypt_weighted_classes",
    when="epsilon=none",
    discloses="ciphertext",
    about="class of each row and what it counts, encrypted",
    reply=SentLabels,
    role="active",
    concerns="labels",
    settings=("scheme",),
    times=1,
)
def encrypt_weighted_classes(
    party: Party, *, scheme: Literal["auto", "ou", "paillier"], task: Task, answers: Answers
) -> SentLabels:
    """The weight of each row in the place of its class (``weighing.py``); every class is counted."""
    labels, weights = party.labels(task=task), counted_weights(party)
    if weights is None:
        raise OperationRefused(party.name, "encrypt_weighted_classes", "the job's design names no weight")
    columns = weights[:, None] * (labels.codes[:, None] == np.arange(labels.n_classes))
    return encrypted_columns(party, scheme, labels, columns, row_bits=ROW_BITS, answers=answers)


def _released(reply: TableSums) -> Release:
    """The sizes of bins; where none are told, what is opened of each bin: a weighted count, in 4096ths."""
    told = numbers_in(reply)
    bins = int(np.sum(reply.bins))
    return told if len(reply.sizes) else Release(told.statistics + bins, max(told.precision, _WEIGHTED_BITS))


@operation(
    "tables.masked_counts",
    discloses="aggregate",
    receives="ciphertext",
    about="encrypted label counts of shuffled bins of unnamed columns under masks; to the coordinator the sizes of the "
    "bins (with epsilon: nothing but their number), and the masks, with which it opens what the label holder decrypts",
    reply=TableSums,
    role="passive",
    opened="aggregate: label counts of shuffled bins of unnamed columns, to the coordinator",
    concerns="own columns and labels",
    min_cell="min_cell",
    epsilon="epsilon",
    times=1,
    releases=_released,
)
def masked_counts(
    party: Party, *, key: PublicKey, rows: list[Ciphertexts], layouts: Layouts, note: bytes, holder: LabelHolder
) -> TableSums:
    labels = take_labels(party, key, rows, layouts, note, holder)
    settings = TableSettings.of(party)
    noise = settings.noise()
    scale = noise.party_scale(len(party.columns)) if noise else 0.0
    codes, counts = _bins(party, settings, scale)
    sums = [
        aligned_sums(labels.key, layer, layout, codes, counts) for layer, layout in zip(labels.rows, labels.layouts)
    ] if counts else []  # fmt: skip
    added = drawn((sum(counts), labels.values), scale) if noise else None
    reply = masked(party, labels, sums, len(counts), offset=noise is not None, noise=added)
    told = noise is None and design_of(party).weight is None  # beside weighted counts sizes would tell weights
    return TableSums(
        **vars(reply), sizes=_sizes(codes, counts if told else []), bins=np.asarray(counts, dtype=np.int32)
    )


@operation(
    "tables.open_counts",
    discloses="aggregate",
    receives="masked",
    about="label counts of the other parties' bins, under masks that only the coordinator can take off; and label "
    "counts of shuffled bins of the label holder's own columns",
    reply=OpenedCounts,
    role="active",
    concerns="own columns and labels",
    min_cell="min_cell",
    epsilon="epsilon",
    after=("labels.encrypt_classes", "tables.encrypt_every_class", "tables.encrypt_weighted_classes"),
    times=1,
)
def open_counts(
    party: Party, *, sums: dict[str, list[Ciphertexts]], notes: dict[str, bytes], shapes: dict[str, list[int]]
) -> OpenedCounts:
    labels, told, settings = party.held(LabelLayers).labels, ForHolder(sums, notes, shapes), TableSettings.of(party)
    noise = settings.noise(labels.n_classes if labels.task == "regression" else 0)
    scale = noise.holder_scale(len(party.columns) + told.tables) if noise else 0.0
    halves = open_halves(party, told, scale)
    codes, counts = _bins(party, settings, scale)
    classes, weights = labels.n_classes, counted_weights(party)

    def counted(place: int) -> np.ndarray:
        cells = codes[:, place].astype(np.int64) * classes + labels.codes
        return np.bincount(cells, weights=weights, minlength=counts[place] * classes)

    tables = side_by_side(counted, range(len(counts)))
    own = (np.concatenate(tables) if tables else np.zeros(0, np.int64)).reshape(-1, labels.n_classes)
    if noise:
        own = own + drawn(own.shape, scale)
    return OpenedCounts(halves, own.astype(np.int64), np.asarray(counts, dtype=np.int32))


def _bins(party: Party, settings: TableSettings, scale: float) -> tuple[np.ndarray, list[int]]:
    noise = settings.noise()
    if noise is None:
        weighed = party.job.parameters.get("woe")  # weights of evidence need the bins later, monotone ones in order
        found = countable_bins(party, settings.n_bins, settings.min_cell, shuffle=weighed != "monotone")
        if weighed is not None:
            party.run.kept[CountedBins] = CountedBins(party.row_numbers, list(party.columns), found[0])
        return found
    columns, least = searched(party, settings.n_bins, noise.edges_rho), noise.min_rows(scale, settings.min_cell)
    stand = [column.stands(settings.n_bins, least) for column in columns]
    party.run.kept[BinPlaces] = BinPlaces(np.concatenate([np.zeros(0), *stand]))
    return coded(columns, party.n_rows, settings.n_bins, least)


def _sizes(codes: np.ndarray, counts: list[int]) -> np.ndarray:
    sizes = side_by_side(lambda place: np.bincount(codes[:, place], minlength=counts[place]), range(len(counts)))
    return (np.concatenate(sizes) if sizes else np.zeros(0)).astype(np.int32)


OPERATIONS = (*OPENING, encrypt_every_class, encrypt_weighted_classes, masked_counts, open_counts)


def label_tables(fed: Federation, settings: TableSettings, scheme: str) -> dict[str, ColumnTables]:
    """The conversation: the label counts of every column of every party, at the coordinator.

    ``settings`` are those of the job that was announced: the parties read theirs from it.
    """
    noise = settings.noise(fed.n_classes if settings.epsilon is not None and fed.task == "regression" else 0)
    columns = fed.n_columns
    scales = {name: noise.party_scale(columns[name]) if noise else 0.0 for name in fed.passive}
    scales[fed.active] = noise.holder_scale(sum(columns.values())) if noise else 0.0
    with fed.session() as run:
        meet_all(run)
        asked: dict[str, Any] = {"scheme": scheme, "task": run.asked_task}
        asked["answers"] = settings.n_bins * max((columns[name] for name in run.passive), default=0)
        weighted = run.design.weight is not None
        if noise is None:
            ask_for = encrypt_weighted_classes if weighted else encrypt_classes
            labels: SentLabels = run.ask(ask_for, to=run.active, **asked)
        else:
            room = room_bits(
                run.n_rows, run.n_rows, max((scales[name] for name in run.passive), default=0.0), scales[run.active]
            )
            labels = run.ask(encrypt_every_class, to=run.active, **asked, weight_bits=room)
        each = {name: {"note": labels.notes.get(name)} for name in run.passive}
        replies: dict[str, TableSums] = run.ask(
            masked_counts, to=run.passive, each=each, holder=run.active, **labels.same()
        )
        opened: OpenedCounts = run.ask(open_counts, to=run.active, **ForHolder.of(replies).as_arguments())
    layouts = labels.read_layouts(fed.n_rows)
    unit = STEPS if weighted else 0
    tables = {fed.active: _own(fed, opened, scales[fed.active] ** 2, unit)}
    for name, reply in replies.items():
        variance = scales[name] ** 2 + scales[fed.active] ** 2
        tables[name] = _joined(fed, name, reply, opened.halves.get(name, []), layouts, variance, unit)
    if noise is not None:
        note_hidden(fed, {name: table.bins for name, table in tables.items()})
    return _by_class(fed, {name: tables[name] for name in fed.parties})


def _by_class(fed: Federation, tables: dict[str, ColumnTables]) -> dict[str, ColumnTables]:
    """Counts of classes that count differently."""
    if fed.design.class_weight is None:
        return tables
    factors = class_factors(fed.design.class_weight, class_sizes(tables))
    return {name: replace(table, cells=table.cells * factors) for name, table in tables.items()}


def _own(fed: Federation, opened: OpenedCounts, variance: float, unit: int) -> ColumnTables:
    own, bins = opened.own, opened.bins
    if len(bins) != fed.n_columns[fed.active] or own.shape != (bins.sum(), fed.n_classes):
        raise ReplyError(fed.active, "open_counts", "another number of columns, bins or classes than it has")
    table = ColumnTables(own.astype(np.float64) / (unit or 1), bins, variance)
    exact = not variance and not unit
    if bins.min(initial=1) < 1 or np.abs(table.cells).max(initial=0.0) > _MOST_COUNTED:
        raise ReplyError(fed.active, "open_counts", "bins without a place, or counts beyond all bounds")
    if exact and ((own < 0).any() or any(part.sum() != fed.n_rows for part in table.columns())):
        raise ReplyError(fed.active, "open_counts", "its counts do not add up to the number of rows")
    return table


def _joined(
    fed: Federation, name: str, reply: TableSums, halves: list[bytes], layouts: list[RowLayout], variance: float,
    unit: int,
) -> ColumnTables:  # fmt: skip
    sizes, bins = reply.sizes, reply.bins
    if len(bins) != fed.n_columns[name] or bins.min(initial=1) < 1:
        raise ReplyError(name, "masked_counts", f"expected bins of {fed.n_columns[name]} columns")
    total = int(bins.sum())
    if not variance and not unit and (len(sizes) != total or sizes.sum() != len(bins) * fed.n_rows):
        raise ReplyError(name, "masked_counts", "bin sizes do not add up to the number of rows")
    counted = join_halves(name, reply.seed, halves, layouts, total, offset=variance > 0).astype(np.float64)
    if variance or unit:
        return ColumnTables(counted / (unit or 1), bins, variance)
    rest = sizes - counted.sum(axis=1)
    if (rest < 0).any():
        raise ReplyError(name, "masked_counts", "label counts are larger than their bins")
    return ColumnTables(np.column_stack([counted, rest]), bins, 0.0)


def class_sizes(tables: dict[str, ColumnTables]) -> np.ndarray:
    """The sizes of the classes: of every column the sum of its bins; with noise, the mean over the columns."""
    sums = [part.sum(axis=0) for table in tables.values() for part in table.columns()]
    return np.mean(sums, axis=0) if sums else np.zeros(0)
