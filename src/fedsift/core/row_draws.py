"""Which rows are trained on and which are tested, drawn from the site's secret: by groups or by time if a job says so.

A draw's reply names rows by position, to the coordinator and through it to every party. So what it can tell is bounded
once, for all draws of all jobs:

*Groups* (whose row it is): the site deals the groups of its whole table to ten parts, once, from its secret; every
fold, split and sample is made of whole parts, whatever the seed. So all masks together say no more than which of the
ten parts a row is in: rows of different parts are of different persons, and rows of one part are as likely of one
person as the sizes of parts make them. (Folds dealt anew would tell after a few draws whose rows are the same.)

*Time*: the site cuts its whole table into twenty parts in order of time, and training ends and testing begins at their
borders, the gap included. So all masks together say which twentieth of the time a row is from, and that is told: nobody
can train on earlier rows and not know which are earlier. Who has the times decides by accepting the job.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between
from fedsift.core.design import column_of, design_of, times_of
from fedsift.core.identity import private_generator
from fedsift.core.ledger import Release
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party, Task
from fedsift.core.splits import ROW_PARTS, dealt_parts, rows_of_parts, train_test_rows
from fedsift.errors import DataError, OperationRefused

TIME_PARTS = 20
LEFT_OUT, TRAIN, TEST = 0, 1, 2
Sides = NDArray[np.int64]


@operation(
    "core.draw_rows",
    discloses="pseudonymous",
    about="which row positions are for training (classes alike in both parts when stratified)",
    reply={"train": Array("i"), "test": Array("i")},
    role="active",
    concerns="labels",
    times=1,
    opened_by="parties",
    releases=lambda reply: Release(1, 15.0),  # parts alike in their classes: as measured, 7 to 15 bits about the labels
)
def draw_rows(
    party: Party, *, train: Annotated[float, Between(0, 2**31)], stratify: bool, seed: int | None, task: Task
) -> dict[str, np.ndarray]:
    """Drawn from the site's secret, in the order of its ids; the reply, sorted by position, tells nothing of either.

    Stratified, there is one assignment of these rows to ten parts alike in their classes, whatever the seed: it only
    says which parts are for training. (Each further stratified draw would tell some bits about the labels.)
    """
    order = party.table.by_id
    which = party.generator("rows: which", seed)
    if stratify:
        part = dealt_parts(party.labels(task=task).codes[order], ROW_PARTS, party.generator("rows: parts", None))
        chosen, rest = rows_of_parts(part, train, party.generator("rows: inside", None), which)
    else:
        chosen, rest = train_test_rows(party.n_rows, train, random_state=which)
    return {"train": np.sort(order[chosen]), "test": np.sort(order[rest])}


@operation(
    "core.draw_designed_rows",
    discloses="pseudonymous",
    about="which rows are trained on and which are tested in each fold: whole groups, or earlier rows and later ones",
    reply=Array("i", 2),
    concerns="own columns",
    times="2 x repeats",
    opened_by="parties",
    releases=lambda reply: Release(1, 0.0),
)
def draw_designed_rows(
    party: Party, *, folds: Annotated[int, Between(1, 100)], train: Annotated[float, Between(0, 2**31)]
) -> Sides:
    """Folds x rows: 1 for training, 2 for testing, 0 for neither; one split of that share where ``folds`` is 1."""
    return sides(party, folds, train if train < 1 else train / party.n_rows)


def sides(party: Party, folds: int, train: float) -> Sides:
    """Of this view's rows, by the group or the time that the accepted job names."""
    design = design_of(party)
    if column_of(party, "group") is not None:
        return group_sides(group_parts(party), folds, train, party.name)
    if column_of(party, "time") is not None:
        part, times = time_parts(party)
        return time_sides(part, times, folds, train, design.gap, party.name)
    raise OperationRefused(party.name, "draw_designed_rows", "the job names no group and no time of this party")


# --- groups ----------------------------------------------------------------------------------------------------------


def group_parts(party: Party) -> NDArray[np.int64]:
    """The part of each row of this view: groups of the site's whole table, dealt once, the large ones first."""
    column = _whole(party, "group")
    _, group, counts = np.unique(column.astype(str), return_inverse=True, return_counts=True)
    generator = private_generator(party.site.secret, party.site.table, "rows: groups", None)
    # The order must not hang on that of the rows: groups in the order of their names, then by lot.
    order = generator.permutation(len(counts))
    order = order[np.argsort(-counts[order], kind="stable")]
    sizes, part = np.zeros(ROW_PARTS, dtype=np.int64), np.empty(len(counts), dtype=np.int64)
    for number in order:
        part[number] = np.argmin(sizes)
        sizes[part[number]] += counts[number]
    return np.asarray(part[group.reshape(-1)][party.row_numbers])


def group_sides(part: NDArray[np.int64], folds: int, train: float, party: str) -> Sides:
    """Folds of whole parts, as even as parts allow."""
    numbers, counts = np.unique(part, return_counts=True)
    if len(numbers) < max(2, folds):
        raise DataError(
            f"party {party!r}: its groups make {len(numbers)} parts here (at most {ROW_PARTS}): too few for "
            f"{max(2, folds)} folds; take fewer folds"
        )
    if folds == 1:
        ends = np.cumsum(counts) / len(part)
        last = int(np.clip(np.argmin(np.abs(ends - train)), 0, len(numbers) - 2))
        return np.where(np.isin(part, numbers[: last + 1]), TRAIN, TEST)[None, :].astype(np.int64)
    sizes, of = np.zeros(folds, dtype=np.int64), {}
    for number in np.argsort(-counts, kind="stable"):
        of[int(numbers[number])] = least = int(np.argmin(sizes))
        sizes[least] += counts[number]
    fold = np.array([of[int(each)] for each in part], dtype=np.int64)
    return np.where(fold[None, :] == np.arange(folds)[:, None], TEST, TRAIN).astype(np.int64)


# --- time ------------------------------------------------------------------------------------------------------------


def time_parts(party: Party) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The part of each row of this view, in order of time, and when each part of the whole table begins and ends.

    Parts are of the site's whole table, of about as many rows each; rows of one time are in one part.
    """
    times = _whole_times(party)
    order = np.sort(times)
    at = np.unique(order[(np.arange(1, TIME_PARTS) * len(order)) // TIME_PARTS])
    part = np.searchsorted(at, times, side="right")
    spans = np.array([[times[part == k].min(initial=np.inf), times[part == k].max(initial=-np.inf)]
                      for k in range(len(at) + 1)])  # fmt: skip
    return part[party.row_numbers], spans


def time_sides(
    part: NDArray[np.int64], spans: NDArray[np.float64], folds: int, train: float, gap: float, party: str
) -> Sides:
    """Each fold is trained on all rows before it, and tested on the rows of its time."""
    numbers, counts = np.unique(part, return_counts=True)
    blocks = folds + 1
    if len(numbers) < blocks:
        raise DataError(
            f"party {party!r}: its rows are of {len(numbers)} different times here (at most {TIME_PARTS} are told "
            f"apart): too few for {folds} folds; take fewer folds"
        )
    ends = np.cumsum(counts) / len(part)
    wanted = [train] if folds == 1 else [k / blocks for k in range(1, blocks)]
    cuts = _cuts(ends, wanted)
    found = np.zeros((folds, len(part)), dtype=np.int64)
    for fold, first in enumerate(cuts):
        last = cuts[fold + 1] if fold + 1 < len(cuts) else len(numbers)
        begins = spans[numbers[first], 0]
        learnt = [k for k in numbers[:first] if spans[k, 1] <= begins - gap]
        if not learnt:
            raise DataError(f"party {party!r}: no rows lie {gap:g} before those of fold {fold + 1}: take a smaller gap")
        found[fold][np.isin(part, learnt)] = TRAIN
        found[fold][np.isin(part, numbers[first:last])] = TEST
    return found


def _cuts(ends: NDArray[np.float64], wanted: list[float]) -> list[int]:
    """Before which part each fold begins: near the wanted shares, one after the other, none without a part."""
    cuts: list[int] = []
    for place, share in enumerate(wanted):
        low, high = (cuts[-1] if cuts else 0) + 1, len(ends) - (len(wanted) - place)
        near = int(np.argmin(np.abs(ends - share))) + 1
        cuts.append(int(np.clip(near, low, high)))
    return cuts


def _whole(party: Party, part: str) -> NDArray[np.generic]:
    found = column_of(party.whole(), part)
    if found is None:
        raise OperationRefused(party.name, "draw_designed_rows", f"the job names no {part} of this party")
    return found


def _whole_times(party: Party) -> NDArray[np.float64]:
    found = times_of(party.whole())
    if found is None:
        raise OperationRefused(party.name, "draw_designed_rows", "the job names no time of this party")
    return found
