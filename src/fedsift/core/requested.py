"""What a step checks of the numbers that it is asked with, against what this party holds; the schema knew no sizes.

(Whatever is missed here is refused all the same when NumPy raises, and counted as a fault by ``make fuzz``.)
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fedsift.errors import OperationRefused


def check_size(party: str, step: str, name: str, numbers: np.ndarray, *shape: int | None) -> None:
    """Numbers of another shape than what they are for; ``None`` for any length."""
    fits = numbers.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, numbers.shape))
    if numbers.dtype.kind not in "fiub" or not fits:
        told = " x ".join("any" if want is None else str(want) for want in shape)
        raise OperationRefused(party, step, f"its {name!r} should be {told} numbers")


def check_positions(party: str, step: str, name: str, positions: np.ndarray, count: int, low: int = 0) -> None:
    """Positions, in a row, out of ``count``."""
    whole = positions.ndim == 1 and positions.dtype.kind in "iu"
    if not whole or (positions.size and not low <= positions.min() <= positions.max() < count):
        raise OperationRefused(party, step, f"its {name!r} should be positions among {count}")


def check_known(party: str, step: str, what: str, name: object, known: Collection[object]) -> None:
    """A name that this party has nothing under."""
    if name not in known:
        raise OperationRefused(party, step, f"it has no {what} of that name")


def check_above_zero(party: str, step: str, name: str, numbers: object) -> None:
    """What is divided by."""
    if not np.all(np.asarray(numbers) > 0):
        raise OperationRefused(party, step, f"its {name!r} should be above zero")
