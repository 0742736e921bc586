"""The F statistic of every column where rows count differently (``weighing.py``): that of weighted least squares.

A weighted analysis of variance needs of a standardised column x and of the weights w, for each class c, the sums of w,
w x and w x^2 over the rows of c: nobody but the label holder knows w, so a party cannot centre its column by it. The
label holder encrypts the weight of each row in the place of its class's 1, a party sums x and x^2 over every class, and
the coordinator opens these sums from two halves, as those of plain rows (``f_statistic.py``). With m the weighted mean,

    between = sum over c of (sum w x)^2 / (sum w) - m^2 sum w        within = sum w x^2 - m^2 sum w - between

and F is their ratio by degrees of freedom of the rows, as of a regression on the classes with these weights.

*What is told* is one sum more of each column and class than without weights, that of squares, and the last class's; the
weights of all rows of a class together are told in the place of its size. Classes that count differently need no
encryption: the coordinator multiplies the opened sums of a class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.design import design_of
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import operation
from fedsift.core.party import Party, Task
from fedsift.core.scaling import clipped
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc.column_scores.f_statistic import ClassSums, class_sums, fraction_bits
from fedsift.mpc.column_scores.weighing import ROW_BITS, STEPS, class_factors, whole_weights
from fedsift.mpc.two_halves import (
    Answers,
    ForHolder,
    GivenLabels,
    Halves,
    LabelLayers,
    Scheme,
    SentLabels,
    ask_halves,
    encrypted_columns,
    encrypts_labels,
    join_halves,
    masked,
    open_halves,
    take_labels,
)

_BITS = 36  # of a value, and of a square

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@message
@dataclass(frozen=True)
class OpenedWeighted:
    """The label holder's halves of the others' sums; the sums of its own columns; what the rows of each class weigh."""

    halves: Halves
    own: Floats
    owner: Ints
    sizes: Floats


@dataclass(frozen=True)
class _Parts:
    """Components and their squares side by side, and how finely each is told."""

    values: Floats  # rows x twice the components
    units: Floats
    owner: Ints

    @classmethod
    def of(cls, party: Party) -> _Parts:
        values, owner = clipped(party, 0.0)
        units = np.full(len(owner), 2.0 ** fraction_bits(_BITS, party.n_rows, 0.0))
        squares = np.full(len(owner), 2.0 ** square_bits(party.n_rows))
        return cls(np.hstack([values, values**2]), np.concatenate([units, squares]), owner)


def square_bits(rows: int) -> int:
    """A square is at most the number of rows."""
    return _BITS - 2 - rows.bit_length()


def _weights(party: Party) -> Ints:
    design = design_of(party)
    if design.weight is None and design.class_weight is None:
        raise OperationRefused(party.name, "weighted sums", "the job's design names no weight")
    found = whole_weights(party)
    return np.full(party.n_rows, STEPS, dtype=np.int64) if found is None else found


@encrypts_labels(
    "f_test.encrypt_weights", about="class of each row and what it counts, encrypted", when="epsilon=none|unsaid"
)
def encrypt_weights(party: Party, *, scheme: Scheme, task: Task, answers: Answers) -> SentLabels:
    """The weight of each row in the place of its class, every class, with room for values and squares."""
    labels = party.labels(task=task)
    columns = _weights(party)[:, None] * (labels.codes[:, None] == np.arange(labels.n_classes))
    return encrypted_columns(party, scheme, labels, columns, row_bits=ROW_BITS, answers=answers, weight_bits=_BITS + 1)


@operation(
    "f_test.masked_weighted_sums",
    when="epsilon=none|unsaid",
    discloses="aggregate",
    receives="ciphertext",
    about="encrypted weighted per-class sums of unnamed, standardised columns and of their squares under masks; to the "
    "coordinator the masks, with which it opens what the label holder decrypts",
    reply=ClassSums,
    role="passive",
    opened="aggregate: weighted per-class sums of unnamed standardised columns and their squares, to the coordinator",
    concerns="own columns and labels",
    times=1,
    sums=True,
)
def masked_weighted_sums(party: Party, *, given: GivenLabels) -> ClassSums:
    labels, parts = take_labels(party, given), _Parts.of(party)
    whole = np.rint(parts.values * parts.units).astype(np.int64)
    sums = class_sums(labels, whole, _BITS) if len(parts.owner) else []
    hidden = masked(party, labels, sums, len(set(parts.owner.tolist())), offset=True)
    return ClassSums(**vars(hidden), owner=parts.owner)


@operation(
    "f_test.open_weighted_sums",
    when="epsilon=none|unsaid",
    discloses="aggregate",
    receives="masked",
    about="weighted per-class sums of the other parties' columns, under masks that only the coordinator can take off; "
    "those of the label holder's own columns; what the rows of each class weigh together",
    reply=OpenedWeighted,
    role="active",
    concerns="own columns and labels",
    after="f_test.encrypt_weights",
    times=1,
    sums=True,
)
def open_weighted_sums(party: Party, *, told: ForHolder) -> OpenedWeighted:
    labels, parts = party.held(LabelLayers).labels, _Parts.of(party)
    weights = (_weights(party) / STEPS)[:, None] * (labels.codes[:, None] == np.arange(labels.n_classes))
    return OpenedWeighted(open_halves(party, told), parts.values.T @ weights, parts.owner, weights.sum(axis=0))


OPERATIONS = (encrypt_weights, masked_weighted_sums, open_weighted_sums)


def weighted_f_statistic(sums: Floats, squares: Floats, sizes: Floats, rows: int) -> Floats:
    """F from weighted sums of columns and of their squares (columns x classes) and what the rows of a class weigh."""
    classes = len(sizes)
    even = sums.sum(axis=1) ** 2 / sizes.sum()
    between = np.maximum((sums**2 / np.maximum(sizes, 1e-12)).sum(axis=1) - even, 0.0)
    within = np.maximum(squares.sum(axis=1) - even - between, np.finfo(float).eps * rows)
    return np.asarray((between / (classes - 1)) / (within / (rows - classes)))


def weighted_f(fed: Federation, *, scheme: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The conversation: F of every component of every party, and the column that each belongs to."""
    with fed.session() as run:
        most = 2 * max((run.n_columns[name] for name in run.passive), default=0)
        labels, replies, opened = ask_halves(
            run, encrypt_weights, masked_weighted_sums, open_weighted_sums, scheme=scheme, answers=most
        )
        rows = run.n_rows
    layouts = labels.read_layouts(rows)
    if len(opened.sizes) != sum(layout.values for layout in layouts):
        raise ReplyError(str(fed.active), "open_weighted_sums", "another number of classes than it has encrypted")
    factors = np.ones(len(opened.sizes))
    if fed.design.class_weight is not None:
        factors = class_factors(fed.design.class_weight, opened.sizes)
    scores = {}
    for name in fed.parties:
        if name == fed.active:
            owner, both = opened.owner, opened.own
        else:
            owner = replies[name].owner
            joined = join_halves(
                name, replies[name].seed, opened.halves.get(name, []), layouts, 2 * len(owner), offset=True
            )
            units = np.repeat([2.0 ** fraction_bits(_BITS, rows, 0.0), 2.0 ** square_bits(rows)], len(owner))
            both = joined.astype(np.float64) / units[:, None] / STEPS
        if len(both) != 2 * len(owner) or set(owner.tolist()) != set(range(fed.n_columns[name])):
            raise ReplyError(name, "masked_weighted_sums", "another number of columns than it has")
        sums, squares = np.split(np.asarray(both) * factors, 2)
        scores[name] = (weighted_f_statistic(sums, squares, opened.sizes * factors, rows), owner)
    return scores
