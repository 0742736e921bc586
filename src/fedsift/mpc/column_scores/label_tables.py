"""How many rows of each class lie in each bin of every column: what information value and Gini impurity are made of.

Bins come from a column alone (``core/binning.py``; with ``epsilon`` their edges are paid for, see ``paid_bins.py``):
none has fewer than ``min_cell`` rows, small ones are merged, and numbers of bins are shuffled, so that a number says
nothing about the values in it. That a *cell* (bin and class) is small nobody can check before it is opened, so bins are
made coarser by their sizes alone; a cell may still be small, and ``epsilon`` is the answer to that.

The sums are opened by the coordinator from two halves (``mpc/two_halves.py``). It learns, for every column, sizes and
label counts of bins without names, and so the sizes of the classes; whoever knows a public sample of the population
may recognise a column by the sizes of its bins. The label holder and the other parties learn nothing here. Rounds: 5,
and two more for each further block of labels (``counting.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import operation
from fedsift.core.party import Party, Task
from fedsift.core.workers import side_by_side
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc.column_scores.counting import TableSettings, add_counts, bins_of, masked_counts
from fedsift.mpc.column_scores.noise import drawn, note_hidden, rank_classes, room_bits
from fedsift.mpc.column_scores.weighing import ROW_BITS, STEPS, class_factors, counted_weights
from fedsift.mpc.encrypted_histogram import RowLayout
from fedsift.mpc.encrypted_labels import (
    Answers,
    LabelLayers,
    Scheme,
    SentLabels,
    WeightBits,
    all_but_last,
    encrypt_classes,
    encrypt_more,
    encrypted,
    encrypted_columns,
    encrypts_labels,
)
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.two_halves import OPERATIONS as OPENING
from fedsift.mpc.two_halves import ForHolder, Halves, TableSums, join_halves, open_halves

_MOST_COUNTED = 2.0**48  # rows, their weights and noise are less


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


@message
@dataclass(frozen=True)
class OpenedCounts:
    """The label holder's halves of the others' counts; the counts of its own columns, and their bins."""

    halves: Halves
    own: NDArray[np.int64]
    bins: NDArray[np.int32]


@encrypts_labels("tables.encrypt_every_class", epsilon="epsilon")
def encrypt_every_class(
    party: Party, *, scheme: Scheme, task: Task, answers: Answers, weight_bits: WeightBits
) -> SentLabels:
    """With noise the last class is counted too: its sums are not the rest of sizes that nobody tells.

    A regression target has classes of ranks (``noise.py``).
    """
    labels = party.labels(task=task)
    if labels.task == "regression":
        labels = replace(labels, codes=rank_classes(labels.values, labels.n_classes))
    return encrypted(party, scheme, labels, labels.n_classes, answers=answers, weight_bits=weight_bits, in_blocks=True)


@encrypts_labels(
    "tables.encrypt_weighted_classes", about="class of each row and what it counts, encrypted", when="epsilon=none"
)
def encrypt_weighted_classes(party: Party, *, scheme: Scheme, task: Task, answers: Answers) -> SentLabels:
    """The weight of each row in the place of its class (``weighing.py``); every class is counted."""
    labels, weights = party.labels(task=task), counted_weights(party)
    if weights is None:
        raise OperationRefused(party.name, "encrypt_weighted_classes", "the job's design names no weight")
    columns = weights[:, None] * (labels.codes[:, None] == np.arange(labels.n_classes))
    return encrypted_columns(party, scheme, labels, columns, row_bits=ROW_BITS, answers=answers, in_blocks=True)


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
def open_counts(party: Party, *, told: ForHolder) -> OpenedCounts:
    labels, settings = party.held(LabelLayers).labels, TableSettings.of(party)
    noise = settings.noise(labels.n_classes if labels.task == "regression" else 0)
    scale = noise.holder_scale(len(party.columns) + told.tables) if noise else 0.0
    halves = open_halves(party, told, scale)
    codes, counts = bins_of(party, settings, scale)
    classes, weights = labels.n_classes, counted_weights(party)

    def counted(place: int) -> np.ndarray:
        cells = codes[:, place].astype(np.int64) * classes + labels.codes
        return np.bincount(cells, weights=weights, minlength=counts[place] * classes)

    tables = side_by_side(counted, range(len(counts)))
    own = (np.concatenate(tables) if tables else np.zeros(0, np.int64)).reshape(-1, labels.n_classes)
    if noise:
        own = own + drawn(own.shape, scale)
    return OpenedCounts(halves, own.astype(np.int64), np.asarray(counts, dtype=np.int32))


OPERATIONS = (
    *OPENING, encrypt_every_class, encrypt_weighted_classes, encrypt_more, add_counts, masked_counts, open_counts,
)  # fmt: skip


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
        asked: dict[str, int] = {"answers": settings.n_bins * max((columns[name] for name in run.passive), default=0)}
        encrypting, weighted = encrypt_classes, run.design.weight is not None
        if noise is not None:
            most = max((scales[name] for name in run.passive), default=0.0)
            asked["weight_bits"] = room_bits(run.n_rows, run.n_rows, most, scales[run.active])
            encrypting = encrypt_every_class
        elif weighted:
            encrypting = encrypt_weighted_classes
        else:
            asked["in_blocks"] = True
        labels = run.ask(encrypting, to=run.active, each={run.active: asked}, scheme=scheme, task=run.asked_task)
        layouts = labels.read_layouts(fed.n_rows)
        last = all_but_last(run, labels, add_counts)
        replies: dict[str, TableSums] = run.ask(masked_counts, to=run.passive, each=last.each(run.active, run.passive))
        opened: OpenedCounts = run.ask(open_counts, to=run.active, told=ForHolder.of(replies))
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
