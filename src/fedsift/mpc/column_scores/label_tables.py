"""How many rows of each class lie in each bin of every column: what information value and Gini impurity are made of.

Bins come from a column alone (``core/binning.py``; with ``epsilon`` from ranks, see ``noise.py``): none has fewer than
``min_cell`` rows, small ones are merged, and numbers of bins are shuffled, so that a number says nothing about the
values in it. That a *cell* (bin and class) is small nobody can check before it is opened: coarser bins or ``epsilon``
are the answer to that.

The sums are opened by the coordinator from two halves (``mpc/two_halves.py``). It learns, for every column, sizes and
label counts of bins without names, and so the sizes of the classes; whoever knows a public sample of the population
may recognise a column by the sizes of its bins. The label holder and the other parties learn nothing here. Rounds: 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.additive.keys import PublicKey
from fedsift.errors import ReplyError
from fedsift.mpc.column_scores.countable_bins import countable_bins
from fedsift.mpc.column_scores.noise import Noise, bin_sizes, drawn, make_noise, rank_bins
from fedsift.mpc.encrypted_histogram import RowLayout, aligned_sums
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.two_halves import (
    MASKED,
    LabelLayers,
    encrypt_classes,
    join_halves,
    masked,
    open_halves,
    take_labels,
)
from fedsift.mpc.two_halves import (
    OPERATIONS as OPENING,
)


@dataclass(frozen=True)
class ColumnTables:
    """Counts by bin and class of one party's columns, as the coordinator opened them."""

    cells: np.ndarray  # bins of all columns, one column after the other, x classes
    bins: np.ndarray  # how many bins each column has
    variance: float  # of the noise in each cell; in the last class, which is the rest, once for each other class

    def columns(self) -> Iterator[np.ndarray]:
        """One column's table after the other."""
        ends = np.cumsum(self.bins)
        return (self.cells[end - count : end] for count, end in zip(self.bins, ends))

    @property
    def owner(self) -> np.ndarray:
        """The column of each bin."""
        return np.repeat(np.arange(len(self.bins)), self.bins)


@operation(
    "tables.masked_counts",
    discloses="aggregate",
    receives="ciphertext",
    about="encrypted label counts of shuffled bins of unnamed columns under masks; to the coordinator the sizes of the "
    "bins, and the masks, with which it opens what the label holder decrypts",
    reply={**MASKED, "sizes": Array("i"), "bins": Array("i")},
    role="passive",
    opened="aggregate: label counts of shuffled bins of unnamed columns, to the coordinator",
    concerns="own columns and labels",
    min_cell="min_cell",
    epsilon="epsilon",
    settings=("n_bins", "n_bins=bins", "min_cell", "epsilon", "delta"),
    times=1,
)
def masked_counts(
    party: Party, *, key: PublicKey, layers: list[Any], note: bytes, holder: str, n_bins: int, min_cell: int,
    epsilon: float | None, delta: float,
) -> dict[str, Any]:  # fmt: skip
    labels = take_labels(party, key, layers, note, holder)
    noise = make_noise(epsilon, delta, party.n_rows, labels.values + 1, n_bins)
    codes, counts = countable_bins(party, n_bins, min_cell) if noise is None else rank_bins(party, n_bins)
    sizes = [np.bincount(codes[:, j], minlength=count) for j, count in enumerate(counts)]
    flat = np.concatenate(sizes) if sizes else np.zeros(0, np.int64)
    sums = [
        aligned_sums(labels.key, rows, layout, codes, counts) for rows, layout in zip(labels.rows, labels.layouts)
    ] if counts else []  # fmt: skip
    added = None if noise is None else drawn((len(flat), labels.values), noise.party_scale(len(counts)))
    reply = masked(party, labels, sums, offset=noise is not None, noise=added)
    return {**reply, "sizes": flat.astype(np.int32), "bins": np.asarray(counts, dtype=np.int32)}


@operation(
    "tables.open_counts",
    discloses="aggregate",
    receives="masked",
    about="label counts of the other parties' bins, under masks that only the coordinator can take off; and label "
    "counts of shuffled bins of the label holder's own columns",
    reply={"halves": dict, "own": Array("i", 2), "bins": Array("i")},
    role="active",
    concerns="own columns and labels",
    min_cell="min_cell",
    epsilon="epsilon",
    settings=("n_bins", "n_bins=bins", "min_cell", "epsilon", "delta"),
    after="labels.encrypt_classes",
    times=1,
)
def open_counts(
    party: Party, *, sums: dict[str, Any], columns: dict[str, int], n_bins: int, min_cell: int, epsilon: float | None,
    delta: float,
) -> dict[str, Any]:  # fmt: skip
    labels = party.held(LabelLayers).labels
    noise = make_noise(epsilon, delta, party.n_rows, labels.n_classes, n_bins)
    codes, counts = countable_bins(party, n_bins, min_cell) if noise is None else rank_bins(party, n_bins)
    tables = [
        np.bincount(c * labels.n_classes + labels.codes, minlength=n * labels.n_classes)
        for c, n in zip(codes.T, counts)
    ]
    own = np.concatenate(tables) if tables else np.zeros(0, np.int64)
    own = own.reshape(-1, labels.n_classes)[:, :-1]
    added = None
    if noise is not None:
        scale = noise.holder_scale(len(counts), sum(columns.values()))
        own = own + drawn(own.shape, scale)
        added = {name: drawn((columns[name] * n_bins, labels.n_classes - 1), scale) for name in sums}
    sizes = (
        np.concatenate([np.bincount(c, minlength=n) for c, n in zip(codes.T, counts)]) if counts else own.sum(axis=1)
    )
    table = np.column_stack([own, sizes - own.sum(axis=1)])
    return {"halves": open_halves(party, sums, added), "own": table, "bins": np.asarray(counts, dtype=np.int32)}


OPERATIONS = (*OPENING, masked_counts, open_counts)


def label_tables(
    fed: Federation, *, n_bins: int, min_cell: int, scheme: str, epsilon: float | None = None, delta: float = 1e-6
) -> dict[str, ColumnTables]:
    """The conversation: the label counts of every column of every party, at the coordinator."""
    noise = make_noise(epsilon, delta, fed.n_rows, fed.n_classes, n_bins)
    passive = {name: fed.n_columns[name] for name in fed.passive}
    settings: dict[str, Any] = {"n_bins": n_bins, "min_cell": min_cell, "epsilon": epsilon, "delta": delta}
    with fed.session() as run:
        meet_all(run)
        labels = run.ask(
            encrypt_classes, to=run.active, scheme=scheme, task=run.asked_task,
            answers=n_bins * max(passive.values(), default=0),
            weight_bits=noise.room_bits(run.n_rows, run.n_columns[run.active], passive) if noise else 0,
        )  # fmt: skip
        each = {name: {"note": labels["notes"].get(name)} for name in passive}
        replies = run.ask(
            masked_counts, to=run.passive, each=each, key=labels["key"], layers=labels["layers"], holder=run.active,
            **settings,
        )  # fmt: skip
        sums = {name: {"sums": reply["sums"], "note": reply["note"]} for name, reply in replies.items()}
        opened = run.ask(open_counts, to=run.active, sums=sums, columns=passive, **settings)
    layouts = [RowLayout.read(layer["layout"], fed.n_rows) for layer in labels["layers"]]
    tables = {fed.active: _own(fed, opened, noise)}
    for name, reply in replies.items():
        tables[name] = _joined(fed, name, reply, opened["halves"].get(name, []), layouts, noise)
    return {name: tables[name] for name in fed.parties}


def _own(fed: Federation, opened: dict[str, Any], noise: Noise | None) -> ColumnTables:
    own, bins = opened["own"], opened["bins"]
    if len(bins) != fed.n_columns[fed.active] or own.shape != (bins.sum(), fed.n_classes):
        raise ReplyError(fed.active, "open_counts", "another number of columns, bins or classes than it has")
    variance = noise.holder_scale(len(bins), sum(fed.n_columns[name] for name in fed.passive)) ** 2 if noise else 0.0
    return ColumnTables(own.astype(np.float64), bins, variance)


def _joined(
    fed: Federation, name: str, reply: dict[str, Any], halves: Any, layouts: list[RowLayout], noise: Noise | None
) -> ColumnTables:
    sizes, bins = reply["sizes"], reply["bins"]
    if noise is not None and (
        len(sizes) % noise.bins or (sizes.reshape(-1, noise.bins) != bin_sizes(fed.n_rows, noise.bins)).any()
    ):
        raise ReplyError(name, "masked_counts", "bins of ranks are equally full")
    if bins.min(initial=1) < 1 or bins.sum() != len(sizes) or sizes.sum() != len(bins) * fed.n_rows:
        raise ReplyError(name, "masked_counts", "bin sizes do not add up to the number of rows")
    if len(bins) != fed.n_columns[name]:
        raise ReplyError(name, "masked_counts", f"expected {fed.n_columns[name]} columns")
    counted = join_halves(name, reply["seed"], halves, layouts, len(sizes), offset=noise is not None).astype(np.float64)
    rest = sizes - counted.sum(axis=1)
    if noise is None and (rest < 0).any():
        raise ReplyError(name, "masked_counts", "label counts are larger than their bins")
    variance = 0.0
    if noise is not None:
        others = sum(fed.n_columns[each] for each in fed.passive)
        variance = noise.party_scale(len(bins)) ** 2 + noise.holder_scale(fed.n_columns[fed.active], others) ** 2
    return ColumnTables(np.column_stack([counted, rest]), bins, variance)


def class_sizes(tables: dict[str, ColumnTables]) -> np.ndarray:
    """The sizes of the classes: of every column the sum of its bins; with noise, the mean over the columns."""
    sums = [part.sum(axis=0) for table in tables.values() for part in table.columns()]
    return np.mean(sums, axis=0) if sums else np.zeros(0)
