"""How important a party's features are for the target, with or without telling parties the labels.

- ``forest``: a random forest at the party (the paper). It needs the labels at every party.
- ``bins`` (ours): the label holder sends its target encrypted, once; a party sums it by sixteen bins of each feature;
  the label holder decrypts the sums and the party's bin sizes and says which share of the target's variance the bins
  explain. No label leaves. The label holder sees bin sizes and sums of unnamed features, the party gets one number for
  each of its features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.binning import codes_of
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.engineer.flafe.candidates import OwnFeatures, Pool, ToldLabels, own_target
from fedsift.errors import DataError, ReplyError
from fedsift.mpc.encrypted_histogram import RowLayout, binned_sums, encrypt_rows, join, own_key, read_sums, unpack
from fedsift.mpc.secure_sum import summed

_TARGET_BITS = 12
_BINS = 16
_TREES, _FOREST_ROWS = 100, 1000  # rows of one tree: 4,000 were four times as slow on large tables
_FEWEST_TREES = 20  # of a party whose importances are averaged with those of other row blocks


@dataclass(frozen=True)
class Layer:
    """Some columns of the encrypted target: a ciphertext for several rows, and how the rows lie in it."""

    rows: Ciphertexts
    layout: dict[str, int]


@dataclass(frozen=True)
class EncryptedTarget:
    """The target of the training rows as a party without labels has it during a run."""

    key: PublicKey
    layers: list[Layer]


@dataclass(frozen=True)
class BinnedTarget:
    """What a party answers: sums of the target by the bins of its features, and the bin sizes, encrypted."""

    sums: list[Ciphertexts]
    sizes: Ciphertexts
    bins: list[int]


def _matrix(party: Party, what: str) -> np.ndarray:
    """Training rows of the candidates (``local``) or of what the party chooses from in the end (``pool``)."""
    own = party.held(OwnFeatures)
    return np.asarray((own.values if what == "local" else party.held(Pool).values)[own.train])


def _target(party: Party, task: str) -> tuple[np.ndarray, bool]:
    """The target of the training rows, and whether it is classes."""
    values, classes = own_target(party, task)
    return values[party.held(OwnFeatures).train], classes


@operation("flafe.share_labels", times=1, discloses="plain", about="the label of every row", reply=dict)
def share_labels(party: Party, *, task: str) -> dict[str, Any]:
    values, classes = own_target(party, task)
    return {"values": values, "classes": classes}


@operation(
    "flafe.take_labels",
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
    times=3,
    discloses="aggregate",
    about="one importance a candidate feature, from a local forest",
    reply=Array("f"),
)
def forest_scores(party: Party, *, what: str, task: str, seed: int) -> np.ndarray:
    return forest_importances(_matrix(party, what), *_target(party, task), seed)


@summed("flafe.forest_sums", times=3, about="importances of candidate features from a local forest", receives="control")
def forest_sums(party: Party, *, what: str, task: str, seed: int, blocks: int) -> np.ndarray:
    """A party's part: the forests of all row blocks are averaged, so together they have the trees of one."""
    trees = max(_FEWEST_TREES, _TREES // max(1, blocks))
    return forest_importances(_matrix(party, what), *_target(party, task), seed, trees)


@operation(
    "flafe.encrypt_target",
    times=1,
    discloses="ciphertext",
    about="target of each training row, encrypted",
    reply={"key": PublicKey, "layers": [{"rows": Ciphertexts, "layout": dict}]},
)
def encrypt_target(party: Party, *, scheme: str, task: str, answers: int) -> dict[str, Any]:
    """Class indicators of each row, or 12 bits of an amount."""
    key = own_key(party, scheme).public
    columns = _target_columns(party, task)[:, 1:]
    row_bits = int(columns.max(initial=1)).bit_length()
    room = max(1, key.plaintext_bits // (row_bits + len(columns).bit_length()))
    layers = []
    for start in range(0, columns.shape[1], room):
        part = columns[:, start : start + room]
        layout = RowLayout.fit(
            len(part), part.shape[1], row_bits, key.plaintext_bits, answers=answers, scheme=key.scheme
        )
        layers.append(Layer(encrypt_rows(key, part, layout, row_bits), layout.as_dict()))
    return {"key": key, "layers": [vars(layer) for layer in layers]}


def _target_columns(party: Party, task: str) -> np.ndarray:
    """Non-negative whole numbers, rows x (1 + outputs): a one, to count the rows of a bin, and the target."""
    target, classes = _target(party, task)
    if classes:
        outputs = target[:, None] == np.unique(target)[:-1]
    else:
        z = (target - target.mean()) / max(target.std(), 1e-300)
        half = 1 << (_TARGET_BITS - 1)
        outputs = np.rint(np.clip(z, -4, 4) / 4 * (half - 1)).astype(np.int64)[:, None] + half
    return np.hstack([np.ones((len(target), 1), dtype=np.int64), outputs.astype(np.int64)])


def _codes(values: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Bins of each column, and how many there are."""
    codes = codes_of(values.T, _BINS).T
    return codes, (codes.max(axis=0) + 1).tolist()


@operation(
    "flafe.keep_target",
    times=1,
    discloses="control",
    receives="ciphertext",
    about="acknowledgement",
    learns="nothing: target of each training row, encrypted",
)
def keep_target(party: Party, *, key: PublicKey, layers: list[dict[str, Any]]) -> None:
    party.keep(EncryptedTarget(key, [Layer(**layer) for layer in layers]))


@operation(
    "flafe.binned_targets",
    times=3,
    discloses="ciphertext",
    about="sums of the target by bins of unnamed candidate features, and the bin sizes, encrypted for the label holder",
    reply={"sums": [Ciphertexts], "sizes": Ciphertexts, "bins": [int]},
)
def binned_targets(party: Party, *, what: str) -> dict[str, Any]:
    target, values = party.held(EncryptedTarget), _matrix(party, what)
    key = target.key
    if not values.shape[1]:
        return vars(BinnedTarget([], key.encrypt([]), []))
    codes, counts = _codes(values)
    sums = [
        binned_sums(key, layer.rows, RowLayout.read(layer.layout, len(values)), codes, counts)
        for layer in target.layers
    ]
    sizes = np.concatenate([np.bincount(codes[:, i], minlength=count) for i, count in enumerate(counts)]).tolist()
    packed = join(sizes, *_size_places(len(values), key))
    return vars(BinnedTarget(sums, key.encrypt(packed), counts))


def _size_places(rows: int, key: PublicKey) -> tuple[int, int]:
    """Bits of a bin size, and how many share a ciphertext."""
    width = rows.bit_length()
    return width, key.plaintext_bits // width


@operation(
    "flafe.explained_shares",
    times=3,
    discloses="aggregate",
    receives="ciphertext",
    about="share of the target's variance that each unnamed candidate explains",
    learns="bin sizes and sums of the target by bins of unnamed candidate features of the other parties",
    reply=dict,
)
def explained_shares(
    party: Party,
    *,
    what: str,
    replies: dict[str, dict[str, Any]],
    layouts: list[dict[str, int]],
    scheme: str,
    task: str,
) -> dict[str, np.ndarray]:
    columns, key = _target_columns(party, task), own_key(party, scheme)
    shares = {}
    for name, sent in replies.items():
        reply = BinnedTarget(**sent)
        bins, rows = reply.bins, len(columns)
        width, sizes_per_ciphertext = _size_places(rows, key.public)
        packed = key.decrypt(reply.sizes, bits=width * sizes_per_ciphertext)
        sizes = unpack(packed, width, sizes_per_ciphertext, sum(bins))
        parts = [np.array(sizes, dtype=float)[:, None]]
        parts += [
            np.array(read_sums(key, sums, RowLayout.read(layout, rows), sum(bins)), dtype=float)
            for sums, layout in zip(reply.sums, layouts)
        ]
        if bins and (len(parts) != 1 + len(layouts) or any(len(part) != sum(bins) for part in parts)):
            raise ReplyError(name, "binned_targets", "another number of sums than bins")
        shares[name] = _shares(np.hstack(parts), bins, columns) if bins else np.zeros(0)
    shares[party.name] = _own_shares(party, what, columns)
    return shares


def _own_shares(party: Party, what: str, columns: np.ndarray) -> np.ndarray:
    """The same for a party that has the target."""
    own, counts = _codes(_matrix(party, what))
    tables = [
        np.stack([np.bincount(own[:, i], weights=column, minlength=count) for column in columns.T], axis=1)
        for i, count in enumerate(counts)
    ]
    return _shares(np.vstack(tables), counts, columns) if counts else np.zeros(0)


@operation(
    "flafe.open_shares",
    times=3,
    discloses="aggregate",
    about="share of the target's variance that each candidate explains",
    reply=Array("f"),
)
def open_shares(party: Party, *, what: str, task: str) -> np.ndarray:
    """With ``protection="open"``: the party was told the labels."""
    return _own_shares(party, what, _target_columns(party, task))


def _shares(sums: np.ndarray, bins: list[int], columns: np.ndarray) -> np.ndarray:
    """Explained share of the variance of the target columns, less what as many random bins would explain."""
    rows, means = len(columns), columns[:, 1:].mean(axis=0)
    total = max(float(((columns[:, 1:] - means) ** 2).sum()), 1e-300)
    shares = []
    for table in np.split(sums, np.cumsum(bins)[:-1]):
        count = np.maximum(table[:, :1], 1.0)
        explained = float((((table[:, 1:] - count * means) ** 2) / count).sum()) / total
        free = max(rows - len(table), 1)
        shares.append(max(0.0, 1 - (1 - explained) * (rows - 1) / free))  # adjusted for the number of bins
    return np.array(shares)


VERTICAL = (
    encrypt_target,
    keep_target,
    binned_targets,
    explained_shares,
    forest_scores,
    open_shares,
    share_labels,
    take_labels,
)
HYBRID = (forest_sums.masked,)
