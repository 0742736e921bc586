"""Filter by information value (weight of evidence), from label counts that are summed under encryption.

What credit scoring calls IV, and FATE and SecretFlow offer: IV = sum over bins of (P(bin|yes) - P(bin|no)) *
ln(P(bin|yes) / P(bin|no)). More than two classes: one against the rest, averaged by class size. An empty cell counts
as 0.5, as is usual. Equal-frequency bins; a bin a category; a bin for missing values; bins below ``min_cell`` merged.

The label holder learns, for every column of another party, the size and the label counts of bins without name or
order, none smaller than ``min_cell``. The other parties learn which of their columns were kept. Rounds: 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsift.core.checks import check_scores
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.crypto.additive.keys import SCHEMES, Ciphertexts, PublicKey
from fedsift.errors import ReplyError
from fedsift.mpc.column_scores.countable_bins import countable_bins
from fedsift.mpc.encrypted_histogram import RowLayout, binned_sums, encrypt_classes, own_key, read_sums
from fedsift.select.base import Outcome, Selector, check_choice, check_number, check_size


@operation(
    "iv.label_sums",
    discloses="aggregate",
    receives="ciphertext",
    about="sizes and encrypted label sums of shuffled bins of unnamed columns",
    reply={"sums": [Ciphertexts], "sizes": Array("i"), "bins": Array("i")},
    role="passive",
    opened="aggregate: label sums of shuffled bins of unnamed columns, to the label holder",
    min_cell="min_cell",
    settings=("bins", "min_cell"),
    times=1,
)
def label_sums(party: Party, *, key: PublicKey, layers: list[Any], bins: int, min_cell: int) -> dict[str, Any]:
    codes, counts = countable_bins(party, bins, min_cell)
    sizes = [np.bincount(codes[:, j], minlength=count) for j, count in enumerate(counts)]
    sums = []
    if counts:
        for layer in layers:
            layout = RowLayout.read(layer["layout"], party.n_rows)
            sums.append(binned_sums(key, layer["rows"], layout, codes, counts))
    flat = np.concatenate(sizes) if sizes else np.zeros(0, np.int64)
    return {"sums": sums, "sizes": flat.astype(np.int64), "bins": np.asarray(counts, dtype=np.int64)}


@operation(
    "iv.information_values",
    discloses="aggregate",
    receives="ciphertext",
    about="one information value a column",
    learns="label counts of shuffled bins of unnamed columns of the other parties",
    reply=dict,
    role="active",
    concerns="own columns and labels",
    min_cell="min_cell",
    settings=("bins", "min_cell", "scheme"),
    after="labels.encrypt_classes",
    times=1,
)
def information_values(
    party: Party, *, replies: dict[str, Any], layouts: list[Any], bins: int, min_cell: int, scheme: str, task: str
) -> dict[str, np.ndarray]:
    labels = party.labels(task=task)
    totals = np.bincount(labels.codes, minlength=labels.n_classes)
    scores = {}
    for name, reply in replies.items():
        sizes, counts = reply["sizes"], reply["bins"]
        if counts.min(initial=1) < 1 or counts.sum() != len(sizes) or sizes.sum() != len(counts) * party.n_rows:
            raise ReplyError(name, "label_sums", "bin sizes do not add up to the number of rows")
        parts = [
            np.array(
                read_sums(own_key(party, scheme), sums, RowLayout.read(layout, party.n_rows), len(sizes)),
                dtype=np.int64,
            )
            for sums, layout in zip(reply["sums"], layouts)
        ]
        table = np.hstack(parts) if parts else np.zeros((0, labels.n_classes - 1), np.int64)
        if len(table) != len(sizes) or (table.sum(axis=1) > sizes).any():
            raise ReplyError(name, "label_sums", "label counts are larger than their bins")
        scores[name] = _by_column(np.column_stack([table, sizes - table.sum(axis=1)]), counts, totals)
    codes, counts = countable_bins(party, bins, min_cell, shuffle=False)
    own = [
        np.bincount(c * labels.n_classes + labels.codes, minlength=n * labels.n_classes)
        for c, n in zip(codes.T, counts)
    ]
    table = np.concatenate(own).reshape(-1, labels.n_classes) if own else np.zeros((0, labels.n_classes), np.int64)
    scores[party.name] = _by_column(table, np.asarray(counts, dtype=np.int64), totals)
    return scores


def _by_column(table: np.ndarray, counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    ends = np.cumsum(counts)
    return np.array([information_value(table[end - n : end], totals) for n, end in zip(counts, ends)], dtype=np.float64)


def information_value(table: np.ndarray, totals: np.ndarray) -> float:
    """IV of one column from its bins x classes counts and the sizes of the classes."""
    classes = range(len(totals)) if len(totals) > 2 else [0]
    rows = totals.sum()
    value, weight = 0.0, 0.0
    for k in classes:
        inside = np.where(table[:, k] == 0, 0.5, table[:, k]) / totals[k]
        rest = table.sum(axis=1) - table[:, k]
        outside = np.where(rest == 0, 0.5, rest) / (rows - totals[k])
        value += totals[k] * float(((inside - outside) * np.log(inside / outside)).sum())
        weight += totals[k]
    return value / weight if len(table) > 1 else 0.0


class InformationValue(Selector):
    """Keep the columns with the highest information value.

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least value to keep (0.02 is the usual "some use"); one of the two.
    bins : equal-frequency bins of a numeric column.
    min_cell : bins with fewer rows are merged with a neighbour before anybody counts them.
    scheme : additive encryption: ``auto``, ``ou`` or ``paillier``.
    """

    name = "information_value"
    paper = "Weight of evidence as in FATE and SecretFlow (baseline FATE-IV of MUSE)"
    leaks = (
        "label holder: sizes and label counts of shuffled, unnamed bins; others: nothing but which columns were kept"
    )
    operations = (encrypt_classes, label_sums, information_values)
    cell_parameters = ("min_cell",)

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        bins: int = 10,
        min_cell: int = 5,
        scheme: str = "auto",
    ):
        self.n_features = n_features
        self.threshold = threshold
        self.bins = bins
        self.min_cell = min_cell
        self.scheme = scheme

    def _check(self, fed: Federation) -> None:
        check_size(self.n_features, self.threshold)
        check_choice("scheme", self.scheme, SCHEMES)
        check_number("bins", self.bins, 2, 100, whole=True)
        check_number("min_cell", self.min_cell, 1, whole=True)

    def _select(self, fed: Federation) -> Outcome:
        answers = self.bins * max((fed.n_columns[name] for name in fed.passive), default=0)
        labels = fed.ask(encrypt_classes, to=fed.active, scheme=self.scheme, task=fed.asked_task, answers=answers)
        replies = fed.ask(
            label_sums,
            to=fed.passive,
            key=labels["key"],
            layers=labels["layers"],
            bins=self.bins,
            min_cell=self.min_cell,
        )
        scores = fed.ask(
            information_values, to=fed.active, replies=replies, layouts=[layer["layout"] for layer in labels["layers"]],
            bins=self.bins, min_cell=self.min_cell, scheme=self.scheme, task=fed.asked_task,
        )  # fmt: skip
        if self.min_cell == 1:
            fed.ledger.note("min_cell=1: bins of a single row may have been counted")
        return Outcome.best(check_scores(scores, fed.n_columns, fed.active), self.n_features, self.threshold)
