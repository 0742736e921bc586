"""Rows that count differently, in tables of bins and classes.

*Weights* of rows are the label holder's: it encrypts the weight of each row in the place of its class's 1, in 4096ths
of the mean weight, so that what is opened are weighted counts which add up to the number of rows. Finer weights would
make every sum a puzzle of its own: with many digits only one set of rows adds up to it. Sizes of bins are not told
beside weighted counts: both together tell the mean weight of a bin. Two things make a row stand out of every sum that
it is in, so that its whole record is read, and are refused (``audit/attacks/weighted_counts.py``): a weight that few
others have among weights that many share (a sum is then a multiple of these, or it is not), and a weight so much above
all others that a bin is heavier by it than bins differ anyway.

*Classes* that count differently need no encryption: the coordinator multiplies the opened counts of a class.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedsift.core.design import design_of, weights_of
from fedsift.core.party import Party
from fedsift.errors import DataError, ParameterError

STEPS = 1 << 12  # of the mean weight
MOST = 20  # times the mean weight
#: Rows of one weight, so that a sum tells of a group; and rows of other weights in each cell, so that a sum is that of
#: very many sets of them.
SHARED = 10
ROW_BITS = (STEPS * MOST).bit_length()


def whole_weights(party: Party) -> NDArray[np.int64] | None:
    """What each row counts, in steps; ``None`` where all count alike."""
    shares = _shares(party)
    return None if shares is None else np.asarray(np.maximum(np.rint(shares * STEPS), 1), dtype=np.int64)


def counted_weights(party: Party) -> NDArray[np.int64] | None:
    """The same for sums over bins, in which no row may stand out."""
    steps = whole_weights(party)
    if steps is not None:
        check_weights(party, steps)
    return steps


def _shares(party: Party) -> NDArray[np.float64] | None:
    """Weights by their mean."""
    weights = weights_of(party)
    if weights is None:
        return None
    shares = weights / weights.mean()
    if shares.max(initial=0.0) > MOST:
        raise DataError(
            f"party {party.name!r}: a row weighs more than {MOST} times the mean weight: it would show in every sum "
            "that it is in; trim the weights"
        )
    return np.asarray(shares)


def own_weights(party: Party, rows: NDArray[np.bool_] | slice) -> NDArray[np.float64] | None:
    """Parties with rows: what these rows of its own count, in the unit of all parties' weights."""
    if not design_of(party).of_rows:
        return None
    _shares(party)
    weights = weights_of(party)
    return None if weights is None else np.asarray(weights[rows])


def check_weights(party: Party, steps: NDArray[np.int64]) -> None:
    """Refuse weights by which a row would stand out of the sums of its bins."""
    bins = int(party.job.parameters.get("n_bins") or 10)
    cells = bins * party.labels(task=party.job.task).n_classes
    rare = rare_weights(steps)
    if 0 < rare < SHARED * cells:
        raise DataError(
            f"party {party.name!r}: {rare} rows have weights that fewer than {SHARED} rows share, among {cells} cells "
            f"of bins and classes: which bins they are in would show in every sum; round the weights until {SHARED} "
            "rows share each of them, or ask for fewer bins"
        )
    if stands_out(steps, len(steps) / bins):
        raise DataError(
            f"party {party.name!r}: one row weighs so much more than all others that every bin it is in would show; "
            "trim the weights"
        )


def rare_weights(steps: NDArray[np.int64]) -> int:
    """Rows whose weight fewer than ``SHARED`` rows have."""
    counts = np.unique(steps, return_counts=True)[1]
    return int(counts[counts < SHARED].sum())


def stands_out(steps: NDArray[np.int64], rows: float) -> bool:
    """Whether the heaviest is above the tenth heaviest by more than the sums of so many of the others differ."""
    order = np.sort(steps)
    if len(order) <= SHARED:
        return bool(np.ptp(order) > 0)
    return bool(order[-1] - order[-SHARED] > np.sqrt(rows) * order[:-SHARED].std())


def class_factors(told: object, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the rows of each class count, so that all together they are as many as they were."""
    if isinstance(told, Mapping):
        if len(told) != len(sizes):
            raise ParameterError(f"class_weight names {len(told)} classes, and the label has {len(sizes)}")
        factors = np.array([float(told[name]) for name in _in_order(list(told))])
    else:
        factors = sizes.sum() / (len(sizes) * np.maximum(sizes, 1.0))
    return np.asarray(factors * sizes.sum() / (factors * sizes).sum(), dtype=np.float64)


def _in_order(names: list[str]) -> list[str]:
    """As the label holder numbers its classes: numbers by size, texts by the alphabet."""
    try:
        return sorted(names, key=float)
    except ValueError:
        return sorted(names)
