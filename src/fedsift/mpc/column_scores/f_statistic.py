"""The F statistic of every column under encrypted labels (SFFS, Pan et al.; LESS-VFL's screen).

One-way analysis of variance: does the mean of a column differ between the classes? A party standardises its column to
mean 0 and variance 1 (missing values take the mean), so the F statistic follows from the sum of the column over each
class. Those sums are taken under encryption: the label holder sends encrypted class indicators, the party the encrypted
sums of value x indicator; numbers need no bins. A category is scored by its best indicator column. With noise:
``noisy_f.py``.

The sums are opened by the coordinator from two halves (``mpc/two_halves.py``): it learns per-class sums of unnamed,
standardised columns and the sizes of the classes. The label holder and the other parties learn nothing here. Rounds: 5,
and two for each further block of labels, where there are too many rows for one message. Regression targets are cut into
quantile classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.core.scaling import CLIPPED_BOUND, clipped
from fedsift.crypto.additive.keys import Ciphertexts
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc.encrypted_histogram import aligned_sums, weighted_sums
from fedsift.mpc.encrypted_labels import (
    MAX_BLOCKS,
    BlockSums,
    EncryptedLabels,
    GivenLabels,
    LabelLayers,
    SentLabels,
    all_but_last,
    encrypt_classes,
    encrypt_more,
    next_block,
    so_far,
)
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.two_halves import OPERATIONS as OPENING
from fedsift.mpc.two_halves import ForHolder, Halves, MaskedSums, join_halves, masked, open_halves

_WEIGHT_BITS = 36


def fraction_bits(bits: int, rows: int, clip: float) -> int:
    """What a weight's sign and whole part leave: a standardised value is at most sqrt(rows), a clipped one 15.5."""
    return bits - 5 if clip else bits - 2 - (rows.bit_length() + 1) // 2


def _components(party: Party, clip: float) -> tuple[np.ndarray, np.ndarray]:
    """Standardised columns and, where the accepted job says ``squares``, the squares of those with more than two
    values, standardised too: a column that differs between the classes in its spread shows in them.
    """
    values, owner = clipped(party, clip)
    job = party.run.job
    if job is None or job.parameters.get("squares") is not True:
        return values, owner
    squares = np.minimum(values**2, CLIPPED_BOUND)
    squares = squares - squares.mean(axis=0)
    spread = squares.std(axis=0)
    more = spread > 1e-3
    scaled = np.clip(squares[:, more] / spread[more], -CLIPPED_BOUND, CLIPPED_BOUND)
    return np.hstack([values, scaled]), np.concatenate([owner, owner[more]])


def class_sums(labels: EncryptedLabels, values: np.ndarray, bits: int) -> list[Ciphertexts]:
    """Encrypted sums of value x indicator over the labels' rows; values are whole numbers of either sign, of ``bits``.

    They are summed shifted to be non-negative, and the shift is taken off again by the encrypted size of the class.
    """
    weights, shift = values + (1 << (bits - 1)), 1 << (bits - 1)
    sums = []
    for rows, layout in zip(labels.rows, labels.block_layouts):
        raw = weighted_sums(labels.key, rows, layout, weights, bits)
        sizes = aligned_sums(labels.key, rows, layout, np.zeros((len(values), 1), dtype=np.int32), [1])
        sums.append(labels.key.subtract(raw, labels.key.scale(sizes, shift).take([0] * len(raw))))
    return sums


@message
@dataclass(frozen=True)
class ClassSums(MaskedSums):
    """Per-class sums of components, and the column that each component belongs to."""

    owner: NDArray[np.int64]


@message
@dataclass(frozen=True)
class OpenedSums:
    """The label holder's halves of the others' sums; the sums of its own columns; the sizes of the classes."""

    halves: Halves
    own: NDArray[np.float64]
    owner: NDArray[np.int64]
    sizes: NDArray[np.int64]


@dataclass(frozen=True)
class SummedSoFar(BlockSums):
    """What the blocks of labels that have come add up to, and what is summed."""

    values: NDArray[np.int64]
    owner: NDArray[np.int64]
    how: tuple[int, float]  # bits, clip


Bits = Annotated[int, Between(2, 64)]


@operation(
    "f_test.add_class_sums",
    when="epsilon=none|unsaid",
    discloses="control",
    receives="ciphertext",
    about="acknowledgement: a block of encrypted labels was added up, and the sums stay here",
    role="passive",
    settings=("clip",),
    times=f"{MAX_BLOCKS} a session",
)
def add_class_sums(party: Party, *, given: GivenLabels, bits: Bits, clip: float) -> None:
    """Any block of labels but the last, which ``masked_class_sums`` takes."""
    labels, summed = _summed(party, given, bits, clip)
    if labels.last:
        raise OperationRefused(party.name, "add_class_sums", "this is the last block: masked_class_sums takes it")
    party.keep(summed)


def _summed(party: Party, given: GivenLabels, bits: int, clip: float) -> tuple[EncryptedLabels, SummedSoFar]:
    """The next block, and the sums with it. What is summed is the same in all: of other numbers for some of the rows
    the opened sums would be about these rows."""
    before = so_far(party, SummedSoFar)
    labels = next_block(party, before, given)
    if before is None:
        values, owner = _components(party, clip)
        whole = np.rint(values * 2.0 ** fraction_bits(bits, party.n_rows, clip)).astype(np.int64)
    elif before.how != (bits, clip):
        raise OperationRefused(party.name, "class_sums", "blocks of labels are summed with the same bits and clip")
    else:
        whole, owner = before.values, before.owner
    sums = class_sums(labels, whole[labels.here], bits) if len(owner) else []
    if before is None:
        return labels, SummedSoFar(party.columns, labels.key, labels.layouts, sums, 1, whole, owner, (bits, clip))
    return labels, before.with_block(sums)


@operation(
    "f_test.masked_class_sums",
    when="epsilon=none|unsaid",
    discloses="aggregate",
    receives="ciphertext",
    about="encrypted per-class sums of unnamed, standardised columns under masks; to the coordinator the masks, with "
    "which it opens what the label holder decrypts",
    reply=ClassSums,
    role="passive",
    opened="aggregate: per-class sums of unnamed standardised columns, to the coordinator",
    concerns="own columns and labels",
    settings=("clip",),
    times=1,
    sums=True,
)
def masked_class_sums(party: Party, *, given: GivenLabels, bits: Bits, clip: float) -> ClassSums:
    """With the last block of labels, and after all others."""
    labels, summed = _summed(party, given, bits, clip)
    if not labels.last:
        raise OperationRefused(party.name, "masked_class_sums", "the labels of the other rows have not come yet")
    party.state.pop(SummedSoFar, None)
    hidden = masked(party, labels, summed.sums, len(set(summed.owner.tolist())), offset=True)
    return ClassSums(**vars(hidden), owner=summed.owner)


@operation(
    "f_test.open_class_sums",
    when="epsilon=none|unsaid",
    discloses="aggregate",
    receives="masked",
    about="per-class sums of the other parties' columns, under masks that only the coordinator can take off; those of "
    "the label holder's own columns; the sizes of the classes",
    reply=OpenedSums,
    role="active",
    concerns="own columns and labels",
    settings=("clip",),
    after="labels.encrypt_classes",
    times=1,
    sums=True,
)
def open_class_sums(
    party: Party, *, told: ForHolder,
    clip: float,
) -> OpenedSums:  # fmt: skip
    labels = party.held(LabelLayers).labels
    values, owner = _components(party, clip)
    one_hot = labels.codes[:, None] == np.arange(labels.n_classes)
    own, sizes = values.T @ one_hot[:, :-1], np.bincount(labels.codes, minlength=labels.n_classes)
    return OpenedSums(open_halves(party, told), own.astype(np.float64), owner, sizes)


OPERATIONS = (*OPENING, encrypt_more, add_class_sums, masked_class_sums, open_class_sums)


def f_statistic(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """F from the sums over all classes but the last (columns x classes - 1) of columns with mean 0 and variance 1."""
    rows, classes = counts.sum(), len(counts)
    counts = np.maximum(counts, 1)
    rest = -sums.sum(axis=1)
    between = (sums**2 / counts[:-1]).sum(axis=1) + rest**2 / counts[-1]
    within = np.maximum(rows - between, np.finfo(float).eps * rows)
    return np.asarray((between / (classes - 1)) / (within / (rows - classes)))


def _best(values: np.ndarray, owner: np.ndarray, n_columns: int) -> np.ndarray:
    best = np.full(n_columns, -np.inf)
    np.maximum.at(best, owner, values)
    return best


def best_f(fed: Federation, found: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """F of every column of every party: that of its best component."""
    return {name: _best(values, owner, fed.n_columns[name]) for name, (values, owner) in found.items()}


def component_f(
    fed: Federation, *, scheme: str, bits: int = _WEIGHT_BITS, clip: float = 0.0
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The conversation: F of every component of every party, and the column that each belongs to.

    Fewer ``bits`` and ``clip`` make it coarser and cheaper.
    """
    passive = {name: fed.n_columns[name] for name in fed.passive}
    with fed.session() as run:
        meet_all(run)
        labels: SentLabels = run.ask(
            encrypt_classes, to=run.active, scheme=scheme, task=run.asked_task, weight_bits=bits + 1,
            answers=max(passive.values(), default=0), in_blocks=True,
        )  # fmt: skip
        last = all_but_last(run, labels, add_class_sums, bits=bits, clip=clip)
        replies: dict[str, ClassSums] = run.ask(
            masked_class_sums, to=run.passive, each=last.each(run.active, passive), bits=bits, clip=clip
        )
        opened: OpenedSums = run.ask(open_class_sums, to=run.active, told=ForHolder.of(replies), clip=clip)
    found = f_of_parties(fed, labels, replies, opened, bits=bits, clip=clip)
    for name, (_, owner) in found.items():
        if set(owner.tolist()) != set(range(fed.n_columns[name])):
            raise ReplyError(name, "masked_class_sums", "another number of columns than it has")
    return found


def f_of_parties(
    fed: Federation, labels: SentLabels, replies: Mapping[str, ClassSums], opened: OpenedSums, *, bits: int, clip: float
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """At the coordinator: F of everything that was summed, and what each belongs to."""
    layouts = labels.read_layouts(fed.n_rows)
    unit = 2.0 ** fraction_bits(bits, fed.n_rows, clip)
    if len(opened.sizes) != 1 + sum(layout.values for layout in layouts):
        raise ReplyError(fed.active, "open_class_sums", "another number of classes than it has encrypted")
    scores = {}
    for name in fed.parties:
        if name == fed.active:
            owner, first = opened.owner, opened.own
        else:
            owner = replies[name].owner
            halves = opened.halves.get(name, [])
            joined = join_halves(name, replies[name].seed, halves, layouts, len(owner), offset=True)
            first = joined.astype(np.float64) / unit
        if first.shape != (len(owner), len(opened.sizes) - 1):
            raise ReplyError(name, "masked_class_sums", "another number of columns than it has")
        scores[name] = (f_statistic(first, opened.sizes), owner)
    return scores
