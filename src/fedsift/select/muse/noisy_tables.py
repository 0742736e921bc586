"""MUSE's tables under differential privacy: counted under encryption, with noise before anything is opened.

Bin matching shows the coordinator exact tables, so it cannot carry noise. Here the party of the newly chosen column
(at the beginning: the label holder, with the label) encrypts which bin each of its rows lies in; the others add up
ciphertexts by their own bins, and the coordinator opens the joint tables from two halves (``mpc/two_halves.py``), as
the filters do. Rows must stand in the same order everywhere, as after alignment.

All tables have the job's bins, small ones merged; what small cells are worth is weighed where they are read
(``counted.py``). A column has the same bins with the label and with others, so that what it says and what of that is
known already are told by the same. (Tables of two columns had few bins once, so that a cell held more than noise: what
these hid was more, and most of it in columns of many categories, which seemed to repeat nothing.)

*Guarantee* (neighbours and mechanism as in ``mpc/column_scores/noise.py``): edges of bins are paid for first, and each
step has a share of a party's rho that follows from the job (``spending.py``); the shares add
up to one. Given the edges, a replaced row leaves one cell of a table and enters another, so a table has a squared L2
sensitivity of 2 for whichever of its two parties the row is replaced at; a step's tables are one release, for each
party those that it takes part in. Which columns a step is about follows from what was released before (adaptive
composition of zCDP). Every party adds full noise for itself, and takes part in a step once.

*Scores*: mutual information of a noisy table, less what noise and few rows add to it in the mean (to second order).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between, PartyName
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import Array, operation
from fedsift.core.party import Labels, Party, Task
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc import pairs
from fedsift.mpc.column_scores.noise import drawn, note_hidden, rank_classes, room_bits
from fedsift.mpc.column_scores.paid_bins import coded, searched
from fedsift.mpc.encrypted_labels import (
    Answers,
    GivenLabels,
    LabelLayers,
    Scheme,
    SentLabels,
    WeightBits,
    encrypted,
    take_labels,
)
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.two_halves import ForHolder, Halves, MaskedSums, join_halves, masked, open_halves
from fedsift.select.muse.counted import Counted
from fedsift.select.muse.spending import EDGES_SHARE, Spending

LABEL = -1  # stands for the label among the label holder's columns
Step = Annotated[int, Between(0, 10**6)]
Column = Annotated[int, Between(-1, 10**7)]


@dataclass
class NoisyBins:
    """What a party keeps during a run: its bins, the label, and its last step."""

    spending: Spending
    codes: np.ndarray  # rows x columns
    counts: list[int]  # of bins
    label: Labels | None
    last: int = -1

    def begin(self, step: int, party: Party) -> None:
        """A step is taken part in once, and steps go forward: no more is spent than there is."""
        if not self.last < step < self.spending.n_features:
            raise OperationRefused(party.name, "step", f"step {step} is over, or there is none")
        self.last = step

    def column(self, column: int, step: int, party: Party) -> Labels:
        if column == LABEL and step == 0 and self.label is not None:
            return self.label
        if step == 0:
            raise OperationRefused(party.name, "column", f"column {column} is none of step 0, which is the label's")
        codes, count = self.counted(column, step, party)
        return Labels("classification", codes, count, (), codes.astype(np.float64))

    def counted(self, column: int, step: int, party: Party) -> tuple[np.ndarray, int]:
        """A column's bins in the tables of a step."""
        if not 0 <= column < len(self.counts):
            raise OperationRefused(party.name, "column", f"column {column} is none of step {step}")
        return self.codes[:, column], self.counts[column]


@operation(
    "muse.pay_for_bins",
    when="epsilon=set",
    discloses="aggregate",
    about="how many bins each column has, from counts with noise (and how many classes the label)",
    reply=Array("i", 1),
    epsilon="epsilon",
    times=1,
)
def pay_for_bins(party: Party, *, task: Task, columns: Annotated[int, Between(1, 10**7)]) -> NDArray[np.int32]:
    """``columns`` is how many there are in all: the more, the larger the noise, and so a bin."""
    spending = Spending.of(party.job.parameters)
    n_bins, min_cell = spending.n_bins, int(party.job.parameters.get("min_cell") or 1)
    found = searched(party, n_bins, EDGES_SHARE * spending.rho)
    codes, counts = coded(found, party.n_rows, n_bins, spending.bin_rows(columns, min_cell))
    label = None
    if party.job.active == party.name:
        label = party.labels(task=task)
        if label.task == "regression":
            label = replace(label, codes=rank_classes(label.values, label.n_classes))
    party.keep(NoisyBins(spending, codes, counts, label))
    return np.array([*counts, *([label.n_classes] if label else [])], dtype=np.int32)


@operation(
    "muse.encrypt_bins",
    when="epsilon=set",
    discloses="ciphertext",
    about="the bin of one column (or the class) of each row, encrypted",
    opened="nobody",
    reply=SentLabels,
    epsilon="epsilon",
    settings=("scheme",),
    after="muse.pay_for_bins",
    times="n_features",
)
def encrypt_bins(
    party: Party, *, scheme: Scheme, column: Column, step: Step, answers: Answers, weight_bits: WeightBits
) -> SentLabels:
    kept = party.held(NoisyBins)
    kept.begin(step, party)
    chosen = kept.column(column, step, party)
    return encrypted(party, scheme, chosen, chosen.n_classes, answers=answers, weight_bits=weight_bits, step=step)


@message
@dataclass(frozen=True)
class GivenColumn(GivenLabels):
    """Any party may hold what is counted."""

    holder: PartyName


@operation(
    "muse.masked_tables",
    when="epsilon=set",
    discloses="aggregate",
    receives="ciphertext",
    about="encrypted joint counts of bins of two parties' columns, with noise, under masks; to the coordinator the "
    "masks, with which it opens what the other party decrypts",
    reply=MaskedSums,
    opened="aggregate: joint counts of bins with noise, to the coordinator",
    concerns="own columns and labels",
    epsilon="epsilon",
    after="muse.pay_for_bins",
    times="n_features",
)
def masked_tables(party: Party, *, given: GivenColumn, step: Step, columns: list[int]) -> MaskedSums:
    kept = party.held(NoisyBins)
    kept.begin(step, party)
    bins = take_labels(party, given, step)
    found = [kept.counted(column, step, party) for column in columns]
    codes = np.stack([each for each, _ in found], axis=1) if found else np.zeros((party.n_rows, 0), np.int32)
    counts = [count for _, count in found]
    added = drawn((sum(counts), bins.values), kept.spending.noise(step).party_scale(len(columns)))
    return masked(party, bins, bins.by_bin(codes, counts), len(columns), offset=True, noise=added)


@message
@dataclass(frozen=True)
class OpenedTables:
    """The holder's halves of the others' tables, and those of its own columns."""

    halves: Halves
    own: list[NDArray[np.int64]]


@operation(
    "muse.open_tables",
    when="epsilon=set",
    discloses="aggregate",
    receives="masked",
    about="joint counts of one column's bins (or the label) with other columns, with noise: the other parties' under "
    "masks that only the coordinator can take off, and those of the party's own columns",
    reply=OpenedTables,
    concerns="own columns and labels",
    epsilon="epsilon",
    after="muse.encrypt_bins",
    times="n_features",
)
def open_tables(party: Party, *, told: ForHolder, columns: list[int]) -> OpenedTables:
    """``columns`` are the party's own that are counted with the one that it has encrypted."""
    kept, layers = party.held(NoisyBins), party.held(LabelLayers)
    chosen = layers.labels
    ranked = chosen.n_classes if chosen.task == "regression" else 0
    scale = kept.spending.noise(layers.step, ranked).holder_scale(told.tables + len(columns))
    own = []
    for column in columns:
        codes, count = kept.counted(column, layers.step, party)
        flat = np.bincount(codes * chosen.n_classes + chosen.codes, minlength=count * chosen.n_classes)
        exact = flat.reshape(count, chosen.n_classes)
        own.append(exact + drawn(exact.shape, scale))
    halves = open_halves(party, told, scale)
    party.state.pop(LabelLayers)  # asked again, there is nothing to open: own tables get their noise once
    return OpenedTables(halves, own)


OPERATIONS = (*pairs.OPERATIONS, pay_for_bins, encrypt_bins, masked_tables, open_tables)


# --- the coordinator's side -------------------------------------------------------------------------------------------


class NoisyTables:
    """The conversation of one run: bins first, then a step a chosen column."""

    def __init__(self, fed: Federation, *, parameters: Mapping[str, Any]):
        self.fed, self.scheme = fed, str(parameters["scheme"])
        self.spending = Spending.of(parameters)
        self.tables_made = 0
        self._step = 0
        meet_all(fed)
        self.bins: dict[str, NDArray[np.int32]] = fed.ask(
            pay_for_bins, to=fed.parties, task=fed.asked_task, columns=sum(fed.n_columns.values())
        )
        for name, bins in self.bins.items():
            if bins.shape != (fed.n_columns[name] + (name == fed.active),) or bins.min(initial=1) < 1:
                raise ReplyError(name, "pay_for_bins", f"expected bins of {fed.n_columns[name]} columns")
        note_hidden(fed, {name: bins[: fed.n_columns[name]] for name, bins in self.bins.items()})

    def with_label(self) -> dict[str, list[Counted]]:
        """The tables of every column with the label."""
        return self._step_of(self.fed.active, LABEL, {p: np.arange(count) for p, count in self.fed.n_columns.items()})

    def with_chosen(self, home: str, column: int, others: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Mutual information of a chosen column with others, by party; none is below 0, or noise would be a merit."""
        found = self._step_of(home, column, others)
        return {name: np.array([max(0.0, each.information()) for each in tables]) for name, tables in found.items()}

    def _step_of(self, home: str, column: int, columns: Mapping[str, np.ndarray]) -> dict[str, list[Counted]]:
        fed, step, total = self.fed, self._step, sum(map(len, columns.values()))
        self._step += 1
        self.tables_made += total
        bins = self.bins
        width = int(bins[home][column])
        ranked = width if step == 0 and fed.task == "regression" else 0
        noise = self.spending.noise(step, ranked)
        scales = {name: noise.party_scale(len(columns[name])) for name in columns if name != home}
        scales[home] = noise.holder_scale(total)
        others = [name for name in scales if name != home and len(columns[name])]
        answers = max((int(bins[name][columns[name]].sum()) for name in others), default=0)
        room = room_bits(fed.n_rows, fed.n_rows, *scales.values())
        told: SentLabels = fed.ask(
            encrypt_bins, to=home, scheme=self.scheme, column=column, step=step, answers=answers, weight_bits=room
        )
        each = {name: {**given, "columns": columns[name].tolist()} for name, given in told.each(home, others).items()}
        replies: dict[str, MaskedSums] = fed.ask(masked_tables, to=others, each=each, step=step) if others else {}
        own = columns.get(home, np.zeros(0, dtype=np.int64))
        opened: OpenedTables = fed.ask(open_tables, to=home, told=ForHolder.of(replies), columns=own.tolist())
        layouts = told.read_layouts(fed.n_rows)
        found = {home: [Counted(table, scales[home] ** 2, fed.n_rows) for table in opened.own]}
        for name in others:
            counts = bins[name][columns[name]]
            halves = opened.halves.get(name, [])
            joined = join_halves(name, replies[name].seed, halves, layouts, int(counts.sum()), offset=True)
            variance = scales[name] ** 2 + scales[home] ** 2
            parts = np.split(joined.astype(np.float64), np.cumsum(counts)[:-1])
            found[name] = [Counted(part, variance, fed.n_rows) for part in parts]
        for name, wanted in columns.items():
            shapes = [table.cells.shape for table in found.get(name, [])]
            if shapes != [(int(bins[name][i]), width) for i in wanted]:
                raise ReplyError(name, "open_tables", "tables of another shape than its bins")
        return {name: found.get(name, []) for name in columns}
