"""Labels of -1 and 1 from sums of known columns over them, as the audit attacks them (``audit/attacks/sums.py``)."""

from __future__ import annotations

import numpy as np

from fedsift.audit.attacks.sums import Sums, signs_from_sums


def labels_from_sums(columns: np.ndarray, sums: np.ndarray, total: float, tolerance: float = 1e-4) -> np.ndarray | None:
    """Signs of a point of the box [-1, 1] with these sums and this sum of labels; None if there is none."""
    ones = (len(columns) + int(np.rint(total))) // 2
    found = signs_from_sums(Sums(columns, sums), (len(columns) - ones, ones), tolerance=tolerance)
    return None if found is None else np.where(found > 0, 1.0, -1.0)
