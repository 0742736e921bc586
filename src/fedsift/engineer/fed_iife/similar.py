"""How alike two sets of engineered features are (the paper's Table 1): minimum cosine distances.

For experiments only: whoever compares holds the table on which both sets are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsift.core.expressions import evaluate_columns, parse
from fedsift.errors import ParameterError


def minimum_cosine_distances(
    important: Sequence[str], found: Sequence[str], columns: Mapping[str, object]
) -> np.ndarray:
    """For each important feature, 1 - the largest |cosine| with a found one, on standardised values.

    The sign is ignored: a linear model does not care for it.
    """
    if not important or not found:
        raise ParameterError("both lists of features must have at least one formula")
    first, second = (_unit(evaluate_columns([parse(text) for text in each], columns)) for each in (important, found))
    return np.asarray(1.0 - np.abs(first.T @ second).max(axis=1))


def _unit(values: np.ndarray) -> np.ndarray:
    values = np.nan_to_num(values - np.nanmean(values, axis=0), nan=0.0)
    size = np.sqrt((values**2).sum(axis=0))
    return values / np.where(size > 0, size, 1.0)
