"""Groups first, then columns: the F statistic of very wide tables, where one of every column takes too long.

Each party puts columns that are alike into groups of so many, by itself (``alike``). Of a group it takes the mean of
the standardised columns, turned so that they go the same way, and has the F statistic of these means; only columns of
the best groups are then scored one by one, exactly (``f_statistic.py``). The idea is that of VFS (vertical federated
selection): groups first, then features.

*What is told* of a group is what is told of a column: per-class sums of an unnamed column of mean 0 and variance 1,
opened by the coordinator from two halves. They are fewer numbers than of all columns, and columns of groups that are
left are never summed by themselves. The coordinator says which groups go on; who is in a group only its party knows,
and it tells by position which columns are scored.

*What may be missed*: a column whose group is not like it. A mean of g columns that have nothing in common shows a
column's effect on the F statistic g times smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.core.binning import used_bins
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party, Task
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc.column_scores.f_statistic import (
    ClassSums,
    OpenedSums,
    class_sums,
    f_of_parties,
    fraction_bits,
)
from fedsift.mpc.two_halves import (
    Answers,
    ForHolder,
    GivenLabels,
    LabelLayers,
    Scheme,
    SentLabels,
    ask_halves,
    encrypted,
    encrypts_labels,
    masked,
    open_halves,
    take_labels,
)

Floats = NDArray[np.float64]
_SKETCH = 64  # numbers by which columns are told alike
_PART = 2000  # columns among which those that are alike are looked for
_BLOCK = 256  # columns that are standardised at a time
_CLIP = 5.0
_BITS = 12  # of a value of a group: two passes over the rows; it only has to rank


@dataclass(frozen=True)
class Groups:
    """Which group each column is in, and the standardised mean of each group (rows x groups)."""

    of: NDArray[np.int64]
    means: Floats


def standard(party: Party, places: range) -> NDArray[np.float32]:
    """Columns (rows x columns) of mean 0 and variance 1, clipped; of a category its commonest value's indicator.

    A constant column is 0.
    """
    table, names = party.table, [party.columns[place] for place in places]
    numbers = [name for name in names if table.kinds[name] != "categorical"]
    values = np.empty((party.n_rows, len(names)), dtype=np.float32, order="F")  # half the memory; it only has to rank
    values[:, [table.kinds[name] != "categorical" for name in names]] = table.matrix(numbers)
    for place, name in enumerate(names):
        if table.kinds[name] == "categorical":
            codes, count = used_bins(table, name, 2, 1)
            values[:, place] = codes == np.bincount(codes, minlength=count).argmax()
    missing = np.isnan(values)
    if missing.any():
        there = np.maximum((~missing).sum(axis=0), 1)
        values = np.where(missing, np.where(missing, 0.0, values).sum(axis=0) / there, values)
    values -= values.mean(axis=0)
    spread = values.std(axis=0)
    values /= np.where(spread > 1e-12, spread, np.inf)
    return np.clip(values, -_CLIP, _CLIP, out=values)


def blocks(party: Party) -> Iterator[tuple[range, NDArray[np.float32]]]:
    """The party's standardised columns, some at a time: all of them are not in memory twice."""
    count = len(party.columns)
    for start in range(0, count, _BLOCK):
        places = range(start, min(start + _BLOCK, count))
        yield places, standard(party, places)


def sketches(party: Party) -> Floats:
    """Columns x a few numbers: products with random rows, by which columns that are alike are near each other."""
    generator = np.random.default_rng(0)
    rows = (generator.normal(size=(party.n_rows, _SKETCH)) / np.sqrt(party.n_rows)).astype(np.float32)
    parts = [values.T @ rows for _, values in blocks(party)]
    return np.vstack([np.zeros((0, _SKETCH)), *parts])


def alike(found: Floats, size: int) -> tuple[NDArray[np.int64], Floats]:
    """Groups of at most ``size`` columns that are alike or opposite, and which way each column goes (1 or -1).

    Columns are halved by how much they have of their principal direction, until parts are small; in a part each group
    is the next column and those that are most like it.
    """
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    unit = found / np.where(lengths > 0, lengths, 1.0)
    group, sign = np.zeros(len(found), dtype=np.int64), np.ones(len(found))
    parts, count = ([np.arange(len(found))] if len(found) else []), 0
    while parts:
        part = parts.pop()
        if len(part) > _PART:
            order = part[np.argsort((unit[part] @ _direction(unit[part])) ** 2, kind="stable")]
            parts += [order[: len(part) // 2], order[len(part) // 2 :]]
            continue
        while len(part):
            near = unit[part] @ unit[part[0]]
            near[0] = np.inf  # a column is in its own group, constant or not
            chosen = np.argsort(-np.abs(near), kind="stable")[:size]
            group[part[chosen]], sign[part[chosen]] = count, np.where(near[chosen] < 0, -1.0, 1.0)
            part, count = np.delete(part, chosen), count + 1
    return group, sign


def _direction(rows: Floats) -> Floats:
    """The first principal direction, by a few rounds of powers."""
    along = rows[0] + 1e-9
    for _ in range(8):
        along = rows.T @ (rows @ along)
        along /= max(float(np.linalg.norm(along)), 1e-300)
    return np.asarray(along)


def groups_of(party: Party, size: int) -> Groups:
    """This party's groups, made once a run."""
    held = party.run.kept.get(Groups)
    if isinstance(held, Groups) and len(held.of) == len(party.columns) and len(held.means) == party.n_rows:
        return held
    made = means_of_groups(party, size)
    party.run.kept[Groups] = made
    return made


def means_of_groups(party: Party, size: int) -> Groups:
    """Made from the party's columns alone, without a label."""
    group, sign = alike(sketches(party), size)
    means = np.zeros((party.n_rows, int(group.max(initial=-1)) + 1), order="F")
    for places, values in blocks(party):
        for column, place in enumerate(places):
            means[:, group[place]] += sign[place] * values[:, column]
    spread = means.std(axis=0)
    return Groups(group, np.clip((means - means.mean(axis=0)) / np.where(spread > 0, spread, 1.0), -15.5, 15.5))


def _asked(party: Party) -> int:
    size = party.job.parameters.get("screen")
    if not isinstance(size, int) or size < 2:
        raise OperationRefused(party.name, "screen", "the accepted job does not screen by groups")
    return size


@encrypts_labels("f_test.encrypt_for_groups", when="epsilon=none|unsaid")
def encrypt_for_groups(party: Party, *, scheme: Scheme, task: Task, answers: Answers) -> SentLabels:
    """Indicators of all classes but the last, with room for the values of groups."""
    _asked(party)
    labels = party.labels(task=task)
    return encrypted(party, scheme, labels, labels.n_classes - 1, answers=answers, weight_bits=_BITS + 1)


@operation(
    "f_test.masked_group_sums",
    when="epsilon=none|unsaid",
    discloses="aggregate",
    receives="ciphertext",
    about="encrypted per-class sums of unnamed, standardised means of groups of columns under masks; to the "
    "coordinator the masks, with which it opens what the label holder decrypts",
    reply=ClassSums,
    role="passive",
    opened="aggregate: per-class sums of unnamed standardised means of groups of columns, to the coordinator",
    concerns="own columns and labels",
    times=1,
    sums=True,
)
def masked_group_sums(party: Party, *, given: GivenLabels) -> ClassSums:
    labels = take_labels(party, given)
    means = groups_of(party, _asked(party)).means
    whole = np.rint(means * 2.0 ** fraction_bits(_BITS, party.n_rows, _CLIP)).astype(np.int64)
    sums = class_sums(labels, whole, _BITS) if means.shape[1] else []
    hidden = masked(party, labels, sums, means.shape[1], offset=True)
    return ClassSums(**vars(hidden), owner=np.arange(means.shape[1]))


@operation(
    "f_test.open_group_sums",
    when="epsilon=none|unsaid",
    discloses="aggregate",
    receives="masked",
    about="per-class sums of the other parties' groups, under masks that only the coordinator can take off; those of "
    "the label holder's own groups; the sizes of the classes",
    reply=OpenedSums,
    role="active",
    concerns="own columns and labels",
    after="f_test.encrypt_for_groups",
    times=1,
    sums=True,
)
def open_group_sums(party: Party, *, told: ForHolder) -> OpenedSums:
    labels = party.held(LabelLayers).labels
    means = groups_of(party, _asked(party)).means
    one_hot = labels.codes[:, None] == np.arange(labels.n_classes)
    sizes = np.bincount(labels.codes, minlength=labels.n_classes)
    return OpenedSums(open_halves(party, told), means.T @ one_hot[:, :-1], np.arange(means.shape[1]), sizes)


@operation(
    "f_test.columns_of_groups",
    discloses="pseudonymous",
    about="which columns, by position, are in the groups that go on",
    learns="which of its groups of columns go on: on short, wide tables that tells about labels",
    reply=Array("i"),
    after=("f_test.masked_group_sums", "f_test.open_group_sums"),
    times=1,
)
def columns_of_groups(party: Party, *, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of columns."""
    groups = groups_of(party, _asked(party)).of
    return np.flatnonzero(np.isin(groups, kept))


OPERATIONS = (encrypt_for_groups, masked_group_sums, open_group_sums, columns_of_groups)


def screened(fed: Federation, *, scheme: str, share: float) -> dict[str, NDArray[np.int64]]:
    """The conversation: which columns of each party go on, this share of all groups by the highest F of their means."""
    size = int(fed._job.parameters["screen"]) if fed._job is not None else 0
    most = {name: -(-count * 2 // max(size, 1)) + 1 for name, count in fed.n_columns.items()}
    with fed.session() as run:
        labels, replies, opened = ask_halves(
            run, encrypt_for_groups, masked_group_sums, open_group_sums, scheme=scheme,
            answers=max((most[name] for name in run.passive), default=0),
        )  # fmt: skip
        found = f_of_parties(run, labels, replies, opened, bits=_BITS, clip=_CLIP)
        every = np.sort(np.concatenate([values for values, _ in found.values()]))[::-1]
        least = every[max(1, round(share * len(every))) - 1] if len(every) else np.inf
        kept = {name: {"kept": np.flatnonzero(values >= least)} for name, (values, _) in found.items()}
        told: dict[str, NDArray[np.int64]] = run.ask(columns_of_groups, to=run.parties, each=kept)
    for name, places in told.items():
        columns = fed.n_columns[name]
        if len(places) and not (places.min() >= 0 and places.max() < columns and (np.diff(places) > 0).all()):
            raise ReplyError(name, "columns_of_groups", "positions of other columns than it has")
    return told
