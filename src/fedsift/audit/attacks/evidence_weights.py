"""Labels from weights of evidence: each is the count of a class in a bin of the party's own rows, rounded.

A party is told the weight of every bin of its kept columns (``select/filters/woe.py``), and knows its bins. The weight
of a bin of n rows is ln((c / C1) / ((n - c) / C0)) for a whole number c: the c that comes nearest is the number of rows
of the second class in that bin. Bins that were joined (``monotone``) share a weight: their rows are one bin. A bin of
one class only gives the labels of all its rows; the others are equations with small whole coefficients, solved for
labels between 0 and 1. Many small bins are as good as a list of labels, so the label holder lets go no more than a
tenth of its rows in bits.

What is left is what a scorecard is made for: a model of the label in the party's own columns. The control, the same
weights on rows that did not take part, says how much of the success that is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.optimize import lsq_linear
from scipy.sparse import csr_matrix, vstack

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc, own_rows_auc
from fedsift.audit.views import Message, Truth, View
from fedsift.mpc.column_scores.counting import CountedBins
from fedsift.select.filters.woe import LARGEST, MONOTONE

READS = ("woe.keep_weights", "hear_evidence")
_PULL = 1e-3  # towards the share of the class, for rows that no equation tells apart


def count_of(weight: float, size: int, sizes: tuple[int, int]) -> int:
    """How many of ``size`` rows are of the second class, where this is their weight of evidence."""
    counts = np.arange(size + 1)
    second, first = np.maximum(counts, 0.5) / sizes[1], np.maximum(size - counts, 0.5) / sizes[0]
    weights = np.clip(np.log(second / first), -LARGEST, LARGEST)
    return int(np.argmin(np.abs(weights - weight)))


def bins_told(view: View) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each kept column: the weight of each of its bins, and the bin of each row."""
    for message in [each for name in READS for each in view.requests(name)]:
        codes = _codes(view, message)
        if codes is None:
            continue
        for place, weights in zip(message.content["columns"], message.content["weights"]):
            yield np.asarray(weights, dtype=np.float64), codes[:, int(place)].astype(np.int64)


def _codes(view: View, message: Message) -> np.ndarray | None:
    """The bins of its rows as they were counted: the party has kept them."""
    if "codes" in message.content:
        return np.asarray(message.content["codes"])
    for state in reversed(view.states):
        kept = state.values.get(CountedBins)
        if isinstance(kept, CountedBins) and len(kept.codes) == view.own_table.n_rows:
            return kept.codes
    return None


@attack(
    reads=READS, role="passive", target="labels", declared="yes",
    knows="its own bins, the class sizes and names",
)  # fmt: skip
def weights_give_labels(view: View, truth: Truth) -> Measure:
    """AUC of labels that are solved for from the counts behind the weights of evidence of the party's own bins."""
    told = list(bins_told(view)) if truth.n_classes == 2 else []
    if not told:
        why = "nothing to read: the party was told no weights of evidence (or there are more than two classes)"
        return Measure("auc", 0.5, 0.5, own_rows_auc(view, truth), note=why)
    rows, sizes = len(truth.labels), truth.class_sizes
    equations, counts, certain = [], [], np.zeros(rows, dtype=bool)
    for weights, codes in told:
        values = np.unique(weights, return_inverse=True)[1] if _is_joined(view) else np.arange(len(weights))
        for group in np.unique(values[codes]):
            inside = values[codes] == group
            count = count_of(float(weights[values == group][0]), int(inside.sum()), sizes)
            equations.append(csr_matrix(inside.astype(np.float64)))
            counts.append(float(count))
            certain |= inside & (count in (0, int(inside.sum())))
    matrix, share = vstack([*equations, csr_matrix(np.ones(rows))]), sizes[1] / rows
    wanted = np.append(counts, float(sizes[1])) - matrix @ np.full(rows, share)
    pulled = vstack([matrix, csr_matrix((np.full(rows, _PULL), (np.arange(rows), np.arange(rows))), (rows, rows))])
    solved = lsq_linear(pulled, np.append(wanted, np.zeros(rows)), (-share, 1 - share), lsmr_tol="auto", max_iter=50)
    score = np.asarray(solved.x)
    note = f"{len(counts)} bins of {len(told)} columns, {rows} rows, {int(certain.sum())} of them certain"
    return Measure("auc", auc(score, truth.labels), 0.5, own_rows_auc(view, truth), note=note, rows=score)


def _is_joined(view: View) -> bool:
    return view.job.parameters.get("woe") == MONOTONE
