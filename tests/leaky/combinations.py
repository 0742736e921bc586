"""FLAFE's product a*b as it was released: standardised by the column's own mean and deviation, noise for one row.

The noise covers the range of one value (2 * 5 * 5); a replaced row moves the mean and the deviation, and with them the
values of all rows.
"""

from __future__ import annotations

import numpy as np

from fedsift.core.operation import operation

CLIP = 5.0
SENSITIVITY = 2 * CLIP**2


def standardised(values):
    return np.clip((values - values.mean()) / values.std(), -CLIP, CLIP)


@operation(
    "leaky_combinations.multiply_noisy",
    discloses="ciphertext",
    about="a product with noise",
    opened="nobody",
    reply=np.ndarray,
)
def multiply_noisy(party, *, column, other, scale):
    """The product with the holder's column; Laplace noise of a scale that the request names."""
    exact = standardised(party.table.values(column)) * other
    return exact + np.random.default_rng().laplace(0.0, scale, len(exact)) if scale else exact
