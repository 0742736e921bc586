"""The label column as its holder reads it: class codes, or numbers with quantile classes that stand in for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsift.core.binning import codes_of
from fedsift.core.splits import is_amount
from fedsift.errors import DataError


@dataclass(frozen=True)
class Labels:
    """The label column as the label holder sees it."""

    task: str  # "classification" or "regression"
    codes: np.ndarray  # class of each row; quantile classes for a regression target
    n_classes: int
    classes: tuple[str, ...]  # names of the classes, empty for a regression target
    values: np.ndarray  # the target as floats (class codes for classification)


def read_labels(raw: np.ndarray | None, party: str, classes: int = 5, task: str = "auto") -> Labels:
    """Class codes or numbers from a raw label column."""
    if raw is None:
        raise DataError(f"party {party!r} has no label column")
    array = np.asarray(raw)
    numeric = array.dtype.kind in "iuf"
    if task == "auto":
        task = "regression" if is_amount(array) else "classification"
    if task == "regression":
        if not numeric and array.dtype.kind != "b":
            raise DataError(f"party {party!r}: the label is text, so it cannot be a regression target")
        values = array.astype(np.float64)
        codes = codes_of(values[None, :], classes)[0]
        names: Sequence[str] = ()
        count = int(codes.max(initial=0)) + 1
    else:
        distinct, codes = np.unique(array, return_inverse=True)
        values = codes.astype(np.float64)
        names = [str(value) for value in distinct]
        count = len(distinct)
    if count < 2:
        raise DataError(
            f"party {party!r}: the label has one value only in these {len(array)} rows; "
            "selection needs at least two classes (or a target that varies)"
        )
    return Labels(task, codes.astype(np.int32), count, tuple(names), values)
