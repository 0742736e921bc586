"""How many bits the numbers of a descent under masks may take (``shared_descent.py``): none wraps around the ring."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsift.errors import OverflowGuard

Floats = NDArray[np.float64]

SCORE_ROOM = 2.0**14  # of a score that the label holder reads, or that is measured on shares
RESIDUAL_ROOM = 64.0  # root mean square of residuals
_MOST_FRACTION = 22


@dataclass(frozen=True)
class Precision:
    """Fractional bits of columns, weights and residuals: sums of products over all rows stay within the ring."""

    columns: int
    weights: int
    residuals: int

    @classmethod
    def of(cls, rows: int, reads_scores: bool) -> Precision:
        room = 62 - rows.bit_length() - int(math.log2(RESIDUAL_ROOM))
        if reads_scores:
            columns = min(_MOST_FRACTION, room // 2)
            return cls(columns, 62 - int(math.log2(SCORE_ROOM)) - columns, room - columns)
        columns = room // 3
        return cls(columns, room - 2 * columns, room - columns)


def check_room(lengths: Floats, spread: float, target: float) -> None:
    """For linear residuals, which nobody reads: refuse weights whose scores might not fit the masks' room.

    ``lengths`` are those of the weights (by output), ``spread`` the sum of the parties' spreads, ``target`` the root
    mean square of the target.
    """
    if math.sqrt(spread) * float(np.max(lengths, initial=0.0)) + target >= RESIDUAL_ROOM:
        raise OverflowGuard("the weights grew beyond what the masks leave room for; use a stronger penalty")
