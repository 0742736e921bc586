"""The landed Gini protocol, less its masks (they cancel in what the label holder opens): an exact integer a column."""

from __future__ import annotations

import numpy as np

from fedsift.core.operation import operation
from fedsift.crypto.additive.grouped import group_sums
from fedsift.mpc.encrypted_histogram import own_key

SCALE_BITS, HIDING_BITS, MOST_BINS = 28, 40, 128


def pitch(rows):
    term = SCALE_BITS + (rows.bit_length() + 1) // 2 + 1
    return 2 * (term + HIDING_BITS) + (MOST_BINS * 2).bit_length() + 4


@operation(
    "leaky_gini.encrypt_one_hot", discloses="ciphertext", about="classes, encrypted", opened="nobody", reply=dict
)
def encrypt_one_hot(party):
    key = own_key(party, "auto").public
    codes = party.labels().codes.tolist()
    return {"key": key, "layer": key.encrypt([1 << (k * pitch(party.n_rows)) for k in codes])}


@operation(
    "leaky_gini.masked_impurities",
    discloses="masked",
    receives="ciphertext",
    about="scaled label counts of bins",
    opened="nobody",
    reply=dict,
)
def masked_impurities(party, *, key, layer):
    codes = np.column_stack([np.unique(party.table.values(c), return_inverse=True)[1] for c in party.columns])
    counts = [int(c.max()) + 1 for c in codes.T]
    sizes = np.concatenate([np.bincount(c) for c in codes.T])
    sums = group_sums(key, layer, codes.astype(np.int32), counts)
    scaled = key.scale(sums, [round(2**SCALE_BITS / float(np.sqrt(n))) for n in sizes])
    return {"masked": [key.blind(scaled)], "corrections": key.encrypt([0] * len(counts)), "bins": np.array(counts)}


@operation(
    "leaky_gini.open_impurities",
    discloses="aggregate",
    receives="masked",
    about="nothing more",
    learns="one impurity a column",
)
def open_impurities(party, *, replies):
    """What can be opened is in the request."""


def impurities(fed):
    with fed.session("gini", {"n_bins": 8, "min_cell": 1}) as run:
        labels = run.ask(encrypt_one_hot, to=run.active)
        run.ask(open_impurities, to=run.active, replies=run.ask(masked_impurities, to=run.passive, **labels))
