"""The F statistic of every column under encrypted labels (SFFS, Pan et al.; LESS-VFL's screen).

One-way analysis of variance: does the mean of a column differ between the classes? A party standardises its column to
mean 0 and variance 1 (missing values take the mean), so the F statistic follows from the sum of the column over each
class. Those sums are taken under encryption: the label holder sends encrypted class indicators, the party the encrypted
sums of value x indicator; numbers need no bins. A category is scored by its best indicator column. With ``epsilon`` a
column's ranks take the place of its values (``noise.py``), a category's by its name.

The sums are opened by the coordinator from two halves (``mpc/two_halves.py``): it learns per-class sums of unnamed,
standardised columns and the sizes of the classes. The label holder and the other parties learn nothing here. Rounds: 5.
Regression targets are cut into quantile classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between, LabelHolder
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.core.scaling import CLIPPED_BOUND, clipped
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.errors import ReplyError
from fedsift.mpc.column_scores.noise import RankNoise, drawn, ranks, rho_of, room_bits
from fedsift.mpc.encrypted_histogram import aligned_sums, weighted_sums
from fedsift.mpc.pairs import meet_all
from fedsift.mpc.two_halves import (
    OPERATIONS as OPENING,
)
from fedsift.mpc.two_halves import (
    EncryptedLabels,
    ForHolder,
    Halves,
    LabelLayers,
    Layouts,
    MaskedSums,
    SentLabels,
    encrypt_classes,
    join_halves,
    masked,
    open_halves,
    take_labels,
)

_WEIGHT_BITS = 36


def _fraction_bits(bits: int, rows: int, clip: float) -> int:
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


def _rank_values(party: Party) -> tuple[np.ndarray, np.ndarray]:
    """Ranks as whole numbers of either sign, below the number of rows in size, that add up to 0."""
    return 2 * ranks(party) - (party.n_rows - 1), np.arange(len(party.columns))


def _class_sums(labels: EncryptedLabels, values: np.ndarray, bits: int) -> list[Ciphertexts]:
    """Encrypted sums of value x indicator; values are whole numbers of either sign of ``bits`` bits.

    They are summed shifted to be non-negative, and the shift is taken off again by the encrypted size of the class.
    """
    weights, shift = values + (1 << (bits - 1)), 1 << (bits - 1)
    sums = []
    for rows, layout in zip(labels.rows, labels.layouts):
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


@operation(
    "f_test.masked_class_sums",
    discloses="aggregate",
    receives="ciphertext",
    about="encrypted per-class sums of unnamed, standardised columns under masks; to the coordinator the masks, with "
    "which it opens what the label holder decrypts",
    reply=ClassSums,
    role="passive",
    opened="aggregate: per-class sums of unnamed standardised columns, to the coordinator",
    concerns="own columns and labels",
    epsilon="epsilon",
    settings=("epsilon", "delta", "clip"),
    times=1,
    sums=True,
)
def masked_class_sums(
    party: Party, *, key: PublicKey, rows: list[Ciphertexts], layouts: Layouts, note: bytes, holder: LabelHolder,
    bits: Annotated[int, Between(2, 64)], clip: float, epsilon: float | None, delta: float,
) -> ClassSums:  # fmt: skip
    labels = take_labels(party, key, rows, layouts, note, holder)
    noise = _rank_noise(epsilon, delta, party.n_rows, labels.values + 1)
    if noise is None:
        values, owner = _components(party, clip)
        whole = np.rint(values * 2.0 ** _fraction_bits(bits, party.n_rows, clip)).astype(np.int64)
    else:
        whole, owner = _rank_values(party)
    sums = _class_sums(labels, whole, bits) if len(owner) else []
    added = None if noise is None else drawn((len(owner), labels.values), noise.party_scale(len(owner)))
    hidden = masked(party, labels, sums, len(set(owner.tolist())), offset=True, noise=added)
    return ClassSums(**vars(hidden), owner=owner)


@operation(
    "f_test.open_class_sums",
    discloses="aggregate",
    receives="masked",
    about="per-class sums of the other parties' columns, under masks that only the coordinator can take off; those of "
    "the label holder's own columns; the sizes of the classes",
    reply=OpenedSums,
    role="active",
    concerns="own columns and labels",
    epsilon="epsilon",
    settings=("epsilon", "delta", "clip"),
    after="labels.encrypt_classes",
    times=1,
    sums=True,
)
def open_class_sums(
    party: Party, *, sums: dict[str, list[Ciphertexts]], notes: dict[str, bytes], shapes: dict[str, list[int]],
    clip: float, epsilon: float | None, delta: float,
) -> OpenedSums:  # fmt: skip
    labels, told = party.held(LabelLayers).labels, ForHolder(sums, notes, shapes)
    noise = _rank_noise(epsilon, delta, party.n_rows, labels.n_classes)
    values, owner = _components(party, clip) if noise is None else _rank_values(party)
    one_hot = labels.codes[:, None] == np.arange(labels.n_classes)
    own, sizes, scale = values.T @ one_hot[:, :-1], np.bincount(labels.codes, minlength=labels.n_classes), 0.0
    if noise is not None:
        scale = noise.holder_scale(len(owner), told.tables)
        own = own + drawn(own.shape, scale)
        counted = sizes[:-1] + drawn((1, labels.n_classes - 1), noise.sizes_scale())[0]
        sizes = np.append(counted, party.n_rows - counted.sum())
    halves = open_halves(party, told, scale)
    return OpenedSums(halves, own.astype(np.float64), owner, sizes)


OPERATIONS = (*OPENING, masked_class_sums, open_class_sums)


def f_statistic(sums: np.ndarray, counts: np.ndarray, variance: float = 0.0) -> np.ndarray:
    """F from the sums over all classes but the last (columns x classes - 1) of columns with mean 0 and variance 1.

    ``variance`` is that of noise in each sum: what it adds to the squares is taken off.
    """
    rows, classes = counts.sum(), len(counts)
    counts = np.maximum(counts, 1)
    rest = -sums.sum(axis=1)
    between = (sums**2 / counts[:-1]).sum(axis=1) + rest**2 / counts[-1]
    between = between - variance * ((1 / counts[:-1]).sum() + (classes - 1) / counts[-1])
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
    fed: Federation, *, scheme: str, bits: int = _WEIGHT_BITS, clip: float = 0.0, epsilon: float | None = None,
    delta: float = 1e-6,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """The conversation: F of every component of every party, and the column that each belongs to.

    Fewer ``bits`` and ``clip`` make it coarser and cheaper.
    """
    noise = _rank_noise(epsilon, delta, fed.n_rows, fed.n_classes)
    passive = {name: fed.n_columns[name] for name in fed.passive}
    settings: dict[str, Any] = {"clip": clip, "epsilon": epsilon, "delta": delta}
    room = 1
    if noise is not None:
        bits = (2 * fed.n_rows).bit_length()
        scales = [max(map(noise.party_scale, passive.values()), default=0.0)]
        scales.append(noise.holder_scale(fed.n_columns[fed.active], sum(passive.values())))
        room = max(1, room_bits(2.0**bits * fed.n_rows, fed.n_rows, *scales) - bits)
    with fed.session() as run:
        meet_all(run)
        labels: SentLabels = run.ask(
            encrypt_classes, to=run.active, scheme=scheme, task=run.asked_task, weight_bits=bits + room,
            answers=max(passive.values(), default=0),
        )  # fmt: skip
        each = {name: {"note": labels.notes.get(name)} for name in passive}
        replies: dict[str, ClassSums] = run.ask(
            masked_class_sums, to=run.passive, each=each, holder=run.active, bits=bits, **labels.same(), **settings
        )
        opened: OpenedSums = run.ask(open_class_sums, to=run.active, **ForHolder.of(replies).as_arguments(), **settings)
    layouts = labels.read_layouts(fed.n_rows)
    unit = 2.0 ** _fraction_bits(bits, fed.n_rows, clip) if noise is None else _rank_unit(fed.n_rows)
    if len(opened.sizes) != 1 + sum(layout.values for layout in layouts):
        raise ReplyError(fed.active, "open_class_sums", "another number of classes than it has encrypted")
    scores = {}
    for name in fed.parties:
        if name == fed.active:
            owner, first = opened.owner, opened.own / (1.0 if noise is None else unit)
        else:
            owner = replies[name].owner
            halves = opened.halves.get(name, [])
            joined = join_halves(name, replies[name].seed, halves, layouts, len(owner), offset=True)
            first = joined.astype(np.float64) / unit
        if len(first) != len(owner) or set(owner.tolist()) != set(range(fed.n_columns[name])):
            raise ReplyError(name, "masked_class_sums", "another number of columns than it has")
        variance = 0.0 if noise is None else _variance(fed, name, noise) / unit**2
        scores[name] = (f_statistic(first, opened.sizes, variance), owner)
    return scores


def _rank_noise(epsilon: float | None, delta: float, rows: int, classes: int) -> RankNoise | None:
    return None if epsilon is None else RankNoise(rho_of(epsilon, delta), rows, classes)


def _rank_unit(rows: int) -> float:
    """The standard deviation of ``_rank_values``, the same for every column."""
    return float(np.sqrt((rows**2 - 1) / 3))


def _variance(fed: Federation, name: str, noise: RankNoise) -> float:
    others = sum(fed.n_columns[each] for each in fed.passive)
    holder = noise.holder_scale(fed.n_columns[fed.active], others) ** 2
    return holder if name == fed.active else holder + noise.party_scale(fed.n_columns[name]) ** 2
