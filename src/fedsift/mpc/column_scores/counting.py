"""What a party counts of the encrypted labels: its bins, and the sums of each bin's rows, under fresh masks.

Labels of many rows come in blocks (``encrypted_histogram.row_blocks``), so that no message is larger than 64 MB and no
party holds all ciphertexts: what a block's rows add to each bin is computed when it comes, and the block is forgotten.
Which rows a block has follows from the layout and the number of rows, which the party knows. It takes each block once
and in their order, and answers nothing before it has had them all: sums of some of the rows could be subtracted from
sums of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.design import design_of
from fedsift.core.ledger import Release, numbers_in
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.core.workers import side_by_side
from fedsift.errors import OperationRefused
from fedsift.mpc.column_scores.noise import TableNoise, drawn, rho_of
from fedsift.mpc.column_scores.paid_bins import coded, countable_bins, searched
from fedsift.mpc.encrypted_histogram import aligned_sums
from fedsift.mpc.encrypted_labels import MAX_BLOCKS, BlockSums, EncryptedLabels, GivenLabels, next_block, so_far
from fedsift.mpc.two_halves import TableSums, masked

MAX_BINS = 100
DEFAULT_BINS = 10
_WEIGHTED_BITS = 24.0  # of an opened weighted count


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

    def party_scale(self, party: Party) -> float:
        """The deviation of the noise that a party without the label adds to each of its sums."""
        noise = self.noise()
        return noise.party_scale(len(party.columns)) if noise else 0.0

    def noise(self, ranked: int = 0) -> TableNoise | None:
        """None for exact tables; ``ranked`` is the number of classes of a regression target."""
        return None if self.epsilon is None else TableNoise(rho_of(self.epsilon, self.delta), ranked)


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


@dataclass(frozen=True)
class CountedSoFar(BlockSums):
    """What the blocks of labels that have come add to each bin, and the bins."""

    codes: np.ndarray
    counts: list[int]  # of each column


@operation(
    "tables.add_counts",
    discloses="control",
    receives="ciphertext",
    about="acknowledgement: a block of encrypted labels was added up by bins, which stay here",
    role="passive",
    times=f"{MAX_BLOCKS} a session",
)
def add_counts(party: Party, *, given: GivenLabels) -> None:
    """Any block of labels but the last, which ``masked_counts`` takes."""
    before = so_far(party, CountedSoFar)
    labels = next_block(party, before, given)
    if labels.last:
        raise OperationRefused(party.name, "add_counts", "this is the last block of labels: masked_counts takes it")
    party.keep(_counted(party, before, labels))


def _counted(party: Party, before: CountedSoFar | None, labels: EncryptedLabels) -> CountedSoFar:
    """The sums with this block. The bins are cut when the first one comes."""
    if before is None:
        settings = TableSettings.of(party)
        codes, counts = bins_of(party, settings, settings.party_scale(party))
    else:
        codes, counts = before.codes, before.counts
    sums = [
        aligned_sums(labels.key, layer, layout, codes[labels.here], counts)
        for layer, layout in zip(labels.rows, labels.block_layouts)
    ] if counts else []  # fmt: skip
    if before is None:
        return CountedSoFar(party.columns, labels.key, labels.layouts, sums, 1, codes, counts)
    return before.with_block(sums)


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
def masked_counts(party: Party, *, given: GivenLabels) -> TableSums:
    """With the last block of labels, and after all others."""
    before = so_far(party, CountedSoFar)
    labels = next_block(party, before, given)
    if not labels.last:
        raise OperationRefused(party.name, "masked_counts", "the labels of the other rows have not come yet")
    counted = _counted(party, before, labels)
    party.state.pop(CountedSoFar, None)
    settings, codes, counts = TableSettings.of(party), counted.codes, counted.counts
    noise = settings.noise()
    added = drawn((sum(counts), labels.values), settings.party_scale(party)) if noise else None
    reply = masked(party, labels, counted.sums, len(counts), offset=noise is not None, noise=added)
    told = noise is None and design_of(party).weight is None  # beside weighted counts sizes would tell weights
    return TableSums(
        **vars(reply), sizes=_sizes(codes, counts if told else []), bins=np.asarray(counts, dtype=np.int32)
    )


def bins_of(party: Party, settings: TableSettings, scale: float) -> tuple[np.ndarray, list[int]]:
    """The bin of each row and column, and how many bins each column has."""
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
