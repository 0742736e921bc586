"""The F statistic of every column under encrypted labels (SFFS, Pan et al.; LESS-VFL's screen).

One-way analysis of variance: does the mean of a column differ between the classes? A party standardises its column to
mean 0 and variance 1 (missing values take the mean), so the F statistic follows from the sum of the column over each
class. Those sums are taken under encryption: the label holder sends encrypted class indicators, the party returns the
encrypted sums of value x indicator; numbers need no bins. A category is scored by its best indicator column.

The label holder learns the per-class sums of unnamed, standardised columns. Rounds: 3. Regression targets are cut into
quantile classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.core.checks import check_scores
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.core.scaling import clipped
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.errors import ReplyError
from fedsift.mpc.encrypted_histogram import (
    RowLayout,
    encrypt_classes,
    finish,
    own_key,
    read_sums,
    weighted_sums,
)

_WEIGHT_BITS = 36


def _fraction_bits(bits: int, rows: int, clip: float) -> int:
    """What a weight's sign and whole part leave: a standardised value is at most sqrt(rows), a clipped one 15.5."""
    return bits - 5 if clip else bits - 2 - (rows.bit_length() + 1) // 2


@operation(
    "f_test.class_sums",
    discloses="ciphertext",
    receives="ciphertext",
    about="encrypted per-class sums of unnamed, standardised columns",
    reply={"sums": [Ciphertexts], "owner": Array("i")},
    role="passive",
    opened="aggregate: per-class sums of unnamed standardised columns, to the label holder",
    times=1,
)
def class_sums(party: Party, *, key: PublicKey, layers: list[Any], bits: int, clip: float) -> dict[str, Any]:
    values, owner = clipped(party, clip)
    # Shifted to be non-negative; the label holder takes the shift off again, for it knows the sizes of the classes.
    weights = np.rint(values * 2.0 ** _fraction_bits(bits, party.n_rows, clip)).astype(np.int64) + (1 << (bits - 1))
    sums = []
    for layer in layers if values.shape[1] else []:
        layout = RowLayout.read(layer["layout"], party.n_rows)
        raw = weighted_sums(key, layer["rows"], layout, weights, bits)
        sums.append(finish(key, raw, layout))
    return {"sums": sums, "owner": owner}


@operation(
    "f_test.f_statistics",
    discloses="aggregate",
    receives="ciphertext",
    about="one F statistic a column",
    learns="per-class sums of unnamed, standardised columns of the other parties",
    reply=dict,
    role="active",
    concerns="own columns and labels",
    after="labels.encrypt_classes",
    times=1,
)
def f_statistics(
    party: Party, *, replies: dict[str, Any], layouts: list[Any], sizes: dict[str, Any], bits: int, clip: float,
    scheme: str, task: str,
) -> dict[str, np.ndarray]:  # fmt: skip
    labels = party.labels(task=task)
    counts = np.bincount(labels.codes, minlength=labels.n_classes)
    scores = {}
    for name, reply in replies.items():
        owner, n_columns = reply["owner"], int(sizes[name])
        parts = []
        for sums, layout in zip(reply["sums"], layouts):
            opened = read_sums(own_key(party, scheme), sums, RowLayout.read(layout, party.n_rows), len(owner))
            parts.append(np.array(opened, dtype=object))
        if not parts:
            scores[name] = np.zeros(n_columns)
            continue
        shifted = np.hstack(parts) - (1 << (bits - 1)) * counts[:-1].astype(object)
        first = shifted.astype(np.float64) / 2.0 ** _fraction_bits(bits, party.n_rows, clip)
        if len(first) != len(owner) or set(owner.tolist()) != set(range(n_columns)):
            raise ReplyError(name, "class_sums", "another number of columns than it has")
        scores[name] = _best(f_statistic(np.column_stack([first, -first.sum(axis=1)]), counts), owner, n_columns)
    values, owner = clipped(party, clip)
    one_hot = labels.codes[:, None] == np.arange(labels.n_classes)
    scores[party.name] = _best(f_statistic(values.T @ one_hot, counts), owner, len(party.columns))
    return scores


def f_statistic(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """F from the per-class sums (columns x classes) of columns with mean 0 and variance 1."""
    rows, classes = counts.sum(), len(counts)
    between = (sums**2 / counts).sum(axis=1)
    within = np.maximum(rows - between, np.finfo(float).eps * rows)
    return (between / (classes - 1)) / (within / (rows - classes))


def _best(values: np.ndarray, owner: np.ndarray, n_columns: int) -> np.ndarray:
    best = np.zeros(n_columns)
    np.maximum.at(best, owner, values)
    return best


def encrypted_f(fed: Federation, *, scheme: str, bits: int = _WEIGHT_BITS, clip: float = 0.0) -> dict[str, np.ndarray]:
    """The conversation: F of every column of every party. Fewer ``bits`` and ``clip`` make it coarser and cheaper."""
    labels = fed.ask(
        encrypt_classes, to=fed.active, scheme=scheme, task=fed.asked_task, weight_bits=bits,
        answers=max((fed.n_columns[name] for name in fed.passive), default=0),
    )  # fmt: skip
    replies = fed.ask(class_sums, to=fed.passive, key=labels["key"], layers=labels["layers"], bits=bits, clip=clip)
    scores = fed.ask(
        f_statistics, to=fed.active, replies=replies, layouts=[layer["layout"] for layer in labels["layers"]],
        sizes=fed.n_columns, bits=bits, clip=clip, scheme=scheme, task=fed.asked_task,
    )  # fmt: skip
    return check_scores(scores, fed.n_columns, fed.active)


OPERATIONS = (encrypt_classes, class_sums, f_statistics)
