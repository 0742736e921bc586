"""How important a party's features are for the target, with or without telling parties the labels.

- ``forest``: a random forest at the party (the paper). It needs the labels at every party.
- ``bins`` (ours): which share of the target's variance the bins of a feature explain. The label holder sends its target
  encrypted, once; a party sums it by at most sixteen bins of each feature, none of fewer than ``min_cell`` rows; the
  coordinator opens the sums from two halves (`mpc/two_halves.py`). It learns sizes and sums of the target of shuffled
  bins of unnamed features. The label holder learns nothing about other parties' features, a party nothing here: what it
  hears later is which of its features go on (`choice.py`).
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between
from fedsift.core.binning import codes_of, edges
from fedsift.core.federation import Federation
from fedsift.core.message import message
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party, Task
from fedsift.engineer.flafe.candidates import OwnFeatures, Pool, ToldLabels, formed, own_target
from fedsift.engineer.flafe.features import Seed, What
from fedsift.errors import DataError, OperationRefused, ReplyError
from fedsift.mpc.encrypted_labels import (
    Answers,
    EncryptedLabels,
    GivenLabels,
    LabelLayers,
    Scheme,
    SentLabels,
    encrypted_columns,
    encrypts_labels,
)
from fedsift.mpc.encrypted_labels import take_labels as take_encrypted
from fedsift.mpc.secure_sum import summed
from fedsift.mpc.two_halves import ForHolder, Halves, TableSums, join_halves, masked, open_halves

_TARGET_BITS = 12
BINS = 16
_TREES, _FOREST_ROWS = 100, 1000  # rows of one tree: 4,000 were four times as slow on large tables
_FEWEST_TREES = 20  # of a party whose importances are averaged with those of other row blocks
_STEPS: dict[What, int] = {"local": 1, "pool": 2}


def _matrix(party: Party, what: What) -> np.ndarray:
    """Training rows of the candidates (``local``) or of what the party chooses from in the end (``pool``)."""
    own = formed(party)
    return np.asarray((own.values if what == "local" else party.held(Pool).values)[own.train])


def _target(party: Party, task: Task) -> tuple[np.ndarray, bool]:
    """The target of the training rows, and whether it is classes."""
    values, classes = own_target(party, task)
    return values[party.held(OwnFeatures).train], classes


# --- forests ---------------------------------------------------------------------------------------------------------


@operation(
    "flafe.share_labels",
    when="epsilon=none",
    times=1,
    discloses="plain",
    about="the label of every row",
    reply={"values": Array("f", 1, finite=False), "classes": bool},
)
def share_labels(party: Party, *, task: Task) -> dict[str, np.ndarray | bool]:
    job = party.run.job
    if job is not None and job.says("importance") != "forest" and job.says("protection") != "open":
        raise OperationRefused(party.name, "share_labels", "in the accepted job no label is shown")
    values, classes = own_target(party, task)
    return {"values": values, "classes": classes}


@operation(
    "flafe.take_labels",
    when="epsilon=none",
    times=1,
    discloses="control",
    receives="plain",
    about="acknowledgement",
    learns="the label of every row",
)
def take_labels(party: Party, *, values: np.ndarray, classes: bool) -> None:
    if len(values) != party.n_rows:
        raise DataError(f"party {party.name!r} was told {len(values)} labels for {party.n_rows} rows")
    party.keep(ToldLabels(values, classes))


def forest_importances(
    values: np.ndarray, target: np.ndarray, classes: bool, seed: int, trees: int = _TREES
) -> np.ndarray:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    if not values.shape[1] or len(np.unique(target)) < 2:
        return np.zeros(values.shape[1])
    kind = RandomForestClassifier if classes else RandomForestRegressor
    forest = kind(
        trees, max_features=1 / 3, min_samples_leaf=3, random_state=seed,
        max_samples=min(len(values), _FOREST_ROWS),
    )  # fmt: skip
    return np.asarray(forest.fit(values.astype(np.float32), target).feature_importances_)


@operation(
    "flafe.forest_scores",
    when="epsilon=none",
    times=3,
    discloses="aggregate",
    about="one importance a candidate feature, from a local forest",
    reply=Array("f"),
)
def forest_scores(party: Party, *, what: What, task: Task, seed: Seed) -> np.ndarray:
    return forest_importances(_matrix(party, what), *_target(party, task), seed)


@summed(
    "flafe.forest_sums",
    when="epsilon=none",
    times=3,
    about="importances of candidate features from a local forest",
    receives="control",
)
def forest_sums(
    party: Party, *, what: What, task: Task, seed: Seed, blocks: Annotated[int, Between(1, 1000)]
) -> np.ndarray:
    """A party's part: the forests of all row blocks are averaged, so together they have the trees of one."""
    trees = max(_FEWEST_TREES, _TREES // blocks)
    return forest_importances(_matrix(party, what), *_target(party, task), seed, trees)


# --- bins ------------------------------------------------------------------------------------------------------------


def feature_codes(values: np.ndarray, min_cell: int) -> tuple[NDArray[np.int32], list[int]]:
    """Bins of each feature (rows x features), none with fewer than ``min_cell`` rows, and how many there are."""
    wanted = max(1, min(BINS, len(values) // max(1, min_cell)))
    codes = codes_of(values.T, wanted)
    for column, source in zip(codes, values.T):
        if np.bincount(column).min(initial=min_cell) < min_cell:
            column[:] = np.searchsorted(edges(source, wanted, min_cell), source, side="right")
    return codes.T, (codes.max(axis=1) + 1).tolist()


def _shuffled_codes(party: Party, what: What) -> tuple[NDArray[np.int32], list[int]]:
    """The same, under numbers that say nothing about the values in a bin."""
    codes, counts = feature_codes(_matrix(party, what), party.job.parameters["min_cell"])
    generator = np.random.default_rng(secrets.randbits(128))
    for number, count in enumerate(counts):
        codes[:, number] = generator.permutation(count)[codes[:, number]]
    return codes, counts


def _target_columns(party: Party, task: Task) -> NDArray[np.int64]:
    """Non-negative whole numbers, rows x outputs: indicators of all classes but the last, or 12 bits of an amount."""
    target, classes = _target(party, task)
    if classes:
        return np.asarray(target[:, None] == np.unique(target)[:-1], dtype=np.int64)
    z = (target - target.mean()) / max(target.std(), 1e-300)
    half = 1 << (_TARGET_BITS - 1)
    return np.asarray(np.rint(np.clip(z, -4, 4) / 4 * (half - 1)) + half, dtype=np.int64)[:, None]


@encrypts_labels(
    "flafe.encrypt_target",
    about="target of each training row, encrypted",
    when=("protection=columns|statistics", "epsilon=none"),
)
def encrypt_target(party: Party, *, scheme: Scheme, task: Task, answers: Answers) -> SentLabels:
    columns = _target_columns(party, task)
    row_bits = int(columns.max(initial=1)).bit_length()
    return encrypted_columns(party, scheme, party.labels(task=task), columns, row_bits=row_bits, answers=answers)


@operation(
    "flafe.keep_target",
    when=("protection=columns|statistics", "epsilon=none"),
    times=1,
    discloses="control",
    receives="ciphertext",
    about="acknowledgement",
    learns="nothing: target of each training row, encrypted",
    role="passive",
)
def keep_target(party: Party, *, given: GivenLabels) -> None:
    train = int(party.held(OwnFeatures).train.sum())
    party.keep(take_encrypted(party, given, n_rows=train))


@operation(
    "flafe.masked_targets",
    when=("protection=columns|statistics", "epsilon=none"),
    times=2,
    discloses="aggregate",
    receives="ciphertext",
    about="encrypted sums of the target by shuffled bins of unnamed features, under masks; to the coordinator the sizes"
    " of the bins, and the masks, with which it opens what the label holder decrypts",
    opened="aggregate: sums of the target by shuffled bins of unnamed features, to the coordinator",
    reply=TableSums,
    role="passive",
    concerns="own columns and labels",
    min_cell="min_cell",
    after="flafe.keep_target",
)
def masked_targets(party: Party, *, what: What) -> TableSums:
    labels = replace(party.held(EncryptedLabels), step=_STEPS[what])
    codes, counts = _shuffled_codes(party, what)
    sizes = [np.bincount(column, minlength=count) for column, count in zip(codes.T, counts)]
    told = np.concatenate(sizes) if sizes else np.zeros(0)
    reply = masked(party, labels, labels.by_bin(codes, counts), len(counts))
    return TableSums(**vars(reply), sizes=told.astype(np.int32), bins=np.asarray(counts, dtype=np.int32))


@message
@dataclass(frozen=True)
class OpenedTargets:
    """The label holder's halves; what its own features explain; means of the target's columns and their variance."""

    halves: Halves
    own: NDArray[np.float64]
    means: NDArray[np.float64]
    variance: float


@operation(
    "flafe.open_targets",
    when=("protection=columns|statistics", "epsilon=none"),
    times=2,
    discloses="aggregate",
    receives="masked",
    about="sums of the target by bins of the other parties' features, under masks that only the coordinator can take "
    "off; the share of the target's variance that each of its own features explains, and that variance",
    reply=OpenedTargets,
    role="active",
    concerns="own columns and labels",
    min_cell="min_cell",
    after="flafe.encrypt_target",
)
def open_targets(party: Party, *, what: What, task: Task, told: ForHolder) -> OpenedTargets:
    layers = party.held(LabelLayers)
    if layers.step >= _STEPS[what]:
        raise OperationRefused(party.name, "open_targets", "these sums were opened before")
    layers.step, layers.opened = _STEPS[what], set()
    halves = open_halves(party, told)
    columns = _target_columns(party, task)
    spread = Spread.of(columns)
    return OpenedTargets(halves, _own_shares(party, what, columns), spread.means, spread.variance)


@operation(
    "flafe.open_shares",
    when="protection=open",
    times=2,
    discloses="aggregate",
    about="share of the target's variance that each candidate explains",
    reply=Array("f"),
)
def open_shares(party: Party, *, what: What, task: Task) -> np.ndarray:
    """With ``protection="open"``: the party was told the labels."""
    return _own_shares(party, what, _target_columns(party, task))


def _own_shares(party: Party, what: What, columns: np.ndarray) -> np.ndarray:
    """Of a party that has the target."""
    codes, counts = feature_codes(_matrix(party, what), party.job.parameters["min_cell"])
    spread, tables = Spread.of(columns), []
    for code, count in zip(codes.T, counts):
        sums = [np.bincount(code, weights=column, minlength=count) for column in columns.T]
        tables.append(spread.explained(np.bincount(code, minlength=count), np.stack(sums, axis=1)))
    return np.array(tables, dtype=float)


@dataclass(frozen=True)
class Spread:
    """Means of the target's columns, and the sum of their squared distances from them."""

    means: np.ndarray
    variance: float

    @classmethod
    def of(cls, columns: np.ndarray) -> Spread:
        means = columns.mean(axis=0)
        return cls(means, float(((columns - means) ** 2).sum()))

    def explained(self, sizes: np.ndarray, sums: np.ndarray) -> float:
        """Share of the variance that bins explain, less what as many random bins would; 0 at least.

        The sum is the same to the last bit in every order of the bins: features that part the rows alike are tied.
        """
        rows, count = int(sizes.sum()), np.maximum(sizes, 1)[:, None]
        parts = ((sums - count * self.means) ** 2) / count
        between = math.fsum(parts.ravel().tolist()) / max(self.variance, 1e-300)
        return max(0.0, 1 - (1 - between) * (rows - 1) / max(rows - len(sizes), 1))


# --- the coordinator's side ------------------------------------------------------------------------------------------


class BinImportance:
    """The conversation of ``importance="bins"``: the target is sent once, then features are scored twice."""

    def __init__(self, fed: Federation, scheme: str, answers: int, rows: int):
        """``answers`` is how many sums will be asked for, of ``rows`` training rows. The parties have met."""
        self.fed = fed
        sent: SentLabels = fed.ask(encrypt_target, to=fed.active, scheme=scheme, task=fed.asked_task, answers=answers)
        fed.ask(keep_target, to=fed.passive, each=sent.each(fed.active, fed.passive))
        self.layouts, self.rows = sent.read_layouts(rows), rows

    def scores(self, what: What) -> dict[str, np.ndarray]:
        """The share of the target's variance that each feature explains, by party."""
        fed = self.fed
        replies: dict[str, TableSums] = fed.ask(masked_targets, to=fed.passive, what=what)
        opened: OpenedTargets = fed.ask(
            open_targets, to=fed.active, what=what, task=fed.asked_task, told=ForHolder.of(replies)
        )
        spread = Spread(opened.means, opened.variance)
        found = {fed.active: opened.own}
        for name, reply in replies.items():
            found[name] = self._shares(name, reply, opened.halves.get(name, []), spread)
        return found

    def _shares(self, name: str, reply: TableSums, halves: list[bytes], spread: Spread) -> np.ndarray:
        sizes, bins = reply.sizes, reply.bins
        if bins.min(initial=1) < 1 or len(sizes) != bins.sum() or sizes.sum() != len(bins) * self.rows:
            raise ReplyError(name, "masked_targets", "bin sizes do not add up to the number of rows")
        sums = join_halves(name, reply.seed, halves, self.layouts, len(sizes)).astype(np.float64)
        if sums.shape[1] != len(spread.means) and len(sizes):
            raise ReplyError(self.fed.active, "open_targets", "another number of outputs than it encrypted")
        ends = np.cumsum(bins)[:-1]
        tables = zip(np.split(sizes, ends), np.split(sums, ends)) if len(bins) else ()
        return np.array([spread.explained(*table) for table in tables], dtype=float)


VERTICAL = (
    encrypt_target,
    keep_target,
    masked_targets,
    open_targets,
    forest_scores,
    open_shares,
    share_labels,
    take_labels,
)
HYBRID = (forest_sums.masked,)
