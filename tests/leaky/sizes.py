"""Sizes of the bins of unnamed columns, in the clear."""

from __future__ import annotations

import numpy as np

from fedsift.core.operation import operation
from fedsift.mpc.column_scores.paid_bins import countable_bins


@operation(
    "leaky_sizes.label_sums", discloses="aggregate", about="sizes of shuffled bins of unnamed columns", reply=dict
)
def label_sums(party, *, bins, min_cell):
    codes, counts = countable_bins(party, bins, min_cell)
    return {"sizes": np.concatenate([np.bincount(c) for c in codes.T]), "bins": np.array(counts)}


def sizes_told(fed):
    with fed.session("information_value", {"n_bins": 10, "min_cell": 5}) as run:
        run.ask(label_sums, to=run.passive, bins=10, min_cell=5)
