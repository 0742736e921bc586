"""Every column coarsely, then the best exactly: the F statistic of wide tables whose columns have nothing in common.

The first pass takes of a column one bit a row, whether the value is above the column's mean, and counts these bits by
class under encryption. Six columns are counted at once (a row's six bits are one of 64 numbers, and one addition a row
serves them all: ``crypto/additive/grouped.py``), so that a row of a column costs a sixth of an addition, where the
exact pass costs six. Only the best columns are then scored exactly (``f_statistic.py``).

*What may be missed.* Of a normal column the bit has 0.8 of the correlation with the label (the square root of 2 / pi),
whatever the other columns are; a mean of g independent columns (``grouped_f.py``) has one part in the square root of g.
A column whose classes differ far out only is weaker in its bits.

*What is told* of each column is what Gini impurity tells of two bins: how many rows are above the mean, and their label
counts, of unnamed columns, opened by the coordinator from two halves. A cut that would part fewer than ten rows from
the others is not made: such a column is cut at its median, and where that parts too few as well it does not go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.binning import used_bins
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import operation
from fedsift.core.party import Party, Task
from fedsift.crypto.additive.keys import Ciphertexts
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc.encrypted_histogram import aligned_sums
from fedsift.mpc.two_halves import (
    Answers,
    EncryptedLabels,
    ForHolder,
    GivenLabels,
    Halves,
    LabelLayers,
    MaskedSums,
    Scheme,
    SentLabels,
    ask_halves,
    encrypted,
    encrypts_labels,
    join_halves,
    masked,
    open_halves,
    take_labels,
)

COARSE = "coarse"  # as the job says it
LEAST_ROWS = 10  # on either side of a cut
_BLOCK = 1200  # columns that are counted at a time

Bits = NDArray[np.uint8]


@message
@dataclass(frozen=True)
class BitSums(MaskedSums):
    """Per-class counts of the rows above the mean of each column, and how many rows that are in all."""

    above: NDArray[np.int64]


@message
@dataclass(frozen=True)
class OpenedBits:
    """The label holder's halves of the others' counts; the counts of its own columns; the sizes of the classes."""

    halves: Halves
    own: NDArray[np.int64]
    above: NDArray[np.int64]
    sizes: NDArray[np.int64]


def above_mean(party: Party, places: range) -> Bits:
    """Rows x columns: 1 where the value is above the column's mean; of a category where it is the commonest.

    A missing value is below. A column that no cut parts well is 0.
    """
    table, names = party.table, [party.columns[place] for place in places]
    numeric = np.array([table.kinds[name] != "categorical" for name in names], dtype=bool)
    bits = np.zeros((party.n_rows, len(names)), dtype=np.uint8, order="F")
    if numeric.any():
        values = np.asarray(table.matrix([name for name, number in zip(names, numeric) if number]), dtype=np.float64)
        bits[:, numeric] = _cut(values)
    for place in np.flatnonzero(~numeric):
        codes, count = used_bins(table, names[place], 2, 1)
        bits[:, place] = codes == np.bincount(codes, minlength=count).argmax()
    bits[:, ~_parted(bits)] = 0
    return bits


def _cut(values: NDArray[np.float64]) -> Bits:
    missing = np.isnan(values)
    there = np.maximum(len(values) - missing.sum(axis=0), 1)
    bits = np.asarray(values > np.where(missing, 0.0, values).sum(axis=0) / there, dtype=np.uint8)
    for place in np.flatnonzero(~_parted(bits) & ~missing.all(axis=0)):
        bits[:, place] = values[:, place] > np.nanmedian(values[:, place])
    return bits


def _parted(bits: Bits) -> NDArray[np.bool_]:
    above = bits.sum(axis=0, dtype=np.int64)
    return np.asarray((above >= LEAST_ROWS) & (above <= len(bits) - LEAST_ROWS))


def _blocks(party: Party) -> Iterator[Bits]:
    """A bit of a value is all that is kept of the table, and that some columns at a time."""
    for start in range(0, len(party.columns), _BLOCK):
        yield above_mean(party, range(start, min(start + _BLOCK, len(party.columns))))


def bit_sums(labels: EncryptedLabels, bits: Bits) -> list[Ciphertexts]:
    """Encrypted counts by class of the rows above, for each layer of labels."""
    counted = []
    for rows, layout in zip(labels.rows, labels.layouts):
        both = aligned_sums(labels.key, rows, layout, bits, [2] * bits.shape[1])
        counted.append(both.take(np.arange(1, 2 * bits.shape[1], 2)))
    return counted


def _check_asked(party: Party) -> None:
    if party.job.parameters.get("screen") != COARSE:
        raise OperationRefused(party.name, "screen", "the accepted job does not screen columns coarsely")


@encrypts_labels("f_test.encrypt_for_bits", when="epsilon=none|unsaid")
def encrypt_for_bits(party: Party, *, scheme: Scheme, task: Task, answers: Answers) -> SentLabels:
    """Indicators of all classes but the last: rows are counted, so that no room for weights is needed."""
    _check_asked(party)
    labels = party.labels(task=task)
    return encrypted(party, scheme, labels, labels.n_classes - 1, answers=answers, weight_bits=0)


@operation(
    "f_test.masked_bit_sums",
    when="epsilon=none|unsaid",
    discloses="aggregate",
    receives="ciphertext",
    about="encrypted label counts of the rows above the mean of unnamed columns under masks, and how many rows that "
    "are; to the coordinator the masks, with which it opens what the label holder decrypts",
    reply=BitSums,
    role="passive",
    opened="aggregate: label counts of the rows above the mean of unnamed columns, to the coordinator",
    concerns="own columns and labels",
    times=1,
    sums=True,
)
def masked_bit_sums(party: Party, *, given: GivenLabels) -> BitSums:
    _check_asked(party)
    labels = take_labels(party, given)
    parts, above = [], [np.zeros(0, dtype=np.int64)]
    for bits in _blocks(party):
        parts.append(bit_sums(labels, bits))
        above.append(bits.sum(axis=0, dtype=np.int64))
    sums = [Ciphertexts.concat([part[layer] for part in parts]) for layer in range(len(labels.rows))] if parts else []
    hidden = masked(party, labels, sums, len(party.columns))
    return BitSums(**vars(hidden), above=np.concatenate(above))


@operation(
    "f_test.open_bit_sums",
    when="epsilon=none|unsaid",
    discloses="aggregate",
    receives="masked",
    about="label counts of the other parties' columns, under masks that only the coordinator can take off; those of "
    "the label holder's own columns; the sizes of the classes",
    reply=OpenedBits,
    role="active",
    concerns="own columns and labels",
    after="f_test.encrypt_for_bits",
    times=1,
    sums=True,
)
def open_bit_sums(party: Party, *, told: ForHolder) -> OpenedBits:
    labels = party.held(LabelLayers).labels
    one_hot = (labels.codes[:, None] == np.arange(labels.n_classes - 1)).astype(np.float32)
    own, above = [np.zeros((0, labels.n_classes - 1), dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for bits in _blocks(party):
        own.append(np.rint(bits.T.astype(np.float32) @ one_hot).astype(np.int64))
        above.append(bits.sum(axis=0, dtype=np.int64))
    sizes = np.bincount(labels.codes, minlength=labels.n_classes)
    return OpenedBits(open_halves(party, told), np.concatenate(own), np.concatenate(above), sizes)


OPERATIONS = (encrypt_for_bits, masked_bit_sums, open_bit_sums)


def f_of_bits(counts: np.ndarray, above: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """F of columns of 0 and 1 from the ones of all classes but the last (columns x classes - 1) and in all."""
    rows, classes = sizes.sum(), len(sizes)
    full = np.hstack([counts, (above - counts.sum(axis=1))[:, None]]).astype(np.float64)
    even = above.astype(np.float64) ** 2 / rows
    between = (full**2 / np.maximum(sizes, 1)).sum(axis=1) - even
    within = np.maximum(above - even - between, np.finfo(float).eps * rows)
    return np.asarray((between / (classes - 1)) / (within / (rows - classes)))


def screened_by_bits(fed: Federation, *, scheme: str, share: float) -> dict[str, NDArray[np.int64]]:
    """The conversation: which columns of each party go on, this share of all by the F of their bits."""
    with fed.session() as run:
        most = max((run.n_columns[name] for name in run.passive), default=0)
        labels, replies, opened = ask_halves(
            run, encrypt_for_bits, masked_bit_sums, open_bit_sums, scheme=scheme, answers=most
        )
        found = _f_of_parties(run, labels, replies, opened)
    every = np.sort(np.concatenate(list(found.values())))[::-1]
    least = every[max(1, round(share * len(every))) - 1] if len(every) else np.inf
    return {name: np.flatnonzero((values >= least) & (values > 0)) for name, values in found.items()}


def _f_of_parties(
    run: Federation, labels: SentLabels, replies: Mapping[str, BitSums], opened: OpenedBits
) -> dict[str, np.ndarray]:
    layouts = labels.read_layouts(run.n_rows)
    if len(opened.sizes) != 1 + sum(layout.values for layout in layouts):
        raise ReplyError(str(run.active), "open_bit_sums", "another number of classes than it has encrypted")
    found = {}
    for name in run.parties:
        if name == run.active:
            counts, above = opened.own, opened.above
        else:
            above, halves = replies[name].above, opened.halves.get(name, [])
            counts = join_halves(name, replies[name].seed, halves, layouts, len(above)).astype(np.float64)
        if not len(counts) == len(above) == run.n_columns[name]:
            raise ReplyError(name, "masked_bit_sums", "another number of columns than it has")
        found[name] = f_of_bits(np.asarray(counts), above, opened.sizes)
    return found
