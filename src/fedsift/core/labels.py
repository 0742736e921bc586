"""The label column as its holder reads it: class codes, or numbers with quantile classes that stand in for them.

Labels under an epsilon: a job that says ``label_epsilon`` learns from a randomised copy, drawn once by their holder.

Neighbouring tables differ in the label of one row; which rows take part, their columns, the names of the classes and
the range of a number are no secret here. ``Party.labels`` gives the copy to whatever operation of the job asks, so
gradients, losses, norms, gates, class sums, the columns kept and every prediction follow from it: whatever anybody but
the label holder sees of the job costs a row's label ``label_epsilon`` at most, however many epochs there are and
whatever the others compute from it. No composition within a job. Jobs add up: each draws a copy of its own
(``total_epsilon`` of a site). The copy is of the whole table, so a row has one wherever it appears.

*Classes*: randomised response (Warner 1965; of k classes: Kairouz et al. 2016). A row's class stays with the
probability e^epsilon / (e^epsilon + k - 1), else it becomes one of the others, each alike. No delta.

*Numbers*: clipped to ``label_range``, which the job says and no row moves, laid on a grid of 2^16 steps, plus discrete
Laplace noise (Ghosh et al. 2009: the difference of two geometric numbers) of parameter e^(-epsilon / 2^16): the range
is what one label may change, so that is epsilon. The digits of a geometric number are independent bits, so it is drawn
exactly, without a logarithm whose last bits would tell (Mironov 2012); digits that are set less often than once in 2^64
draws are left out, a delta below 2^-57 a row.

It is no privacy of columns. A copy instead of noise in gradients, because no gradient is opened that noise could be put
on, and noise in every step would have to pay for all of them.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedsift.core.binning import codes_of
from fedsift.core.job import Job, Run
from fedsift.core.table import Table
from fedsift.errors import DataError, OperationRefused

_CLASSES_AT_MOST = 50  # whole numbers with more distinct values than this are amounts, not classes


@dataclass(frozen=True)
class Labels:
    """The label column as the label holder sees it."""

    task: str  # "classification" or "regression"
    codes: np.ndarray  # class of each row; quantile classes for a regression target
    n_classes: int
    classes: tuple[str, ...]  # names of the classes, empty for a regression target
    values: np.ndarray  # the target as floats (class codes for classification)


def is_amount(values: np.ndarray) -> bool:
    """Whether labels are amounts (a regression target) and not classes: fractions, or many different numbers."""
    if values.dtype.kind not in "iuf":
        return False
    distinct = np.unique(values)
    return bool((distinct != np.round(distinct)).any()) or len(distinct) > _CLASSES_AT_MOST


def amounts(label: np.ndarray, party: str) -> NDArray[np.float64]:
    """A label column as what a regression learns."""
    if label.dtype.kind not in "iufb":
        raise DataError(f"party {party!r}: the label is text, so it cannot be a regression target")
    return np.asarray(label.astype(np.float64))


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


Codes = NDArray[np.int32]
GRID = 1 << 16
_SLACK = 2.0**-48  # by so much a class stays less often than epsilon allows: more than floating point takes
_LOST = 2.0**-40  # of an epsilon, for what floating point does to the probabilities of some sixty digits
_LEAST, _MOST = 1e-3, 100.0
_DIGITS = 45.0  # digits that are set with a probability below e^-45 are left out


def is_epsilon(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and _LEAST <= value <= _MOST


def range_of(value: object) -> tuple[float, float] | None:
    """Two finite numbers, the lower one first; ``None`` where it is something else."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return None
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) or not math.isfinite(v) for v in value):
        return None
    low, high = (float(v) for v in value)
    return (low, high) if low < high else None


def uniform(count: int) -> NDArray[np.uint64]:
    """From the operating system."""
    return np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)


def stays(epsilon: float, classes: int) -> float:
    """The probability that a row's class in the copy is its own."""
    return 1.0 / (1.0 + (classes - 1) * math.exp(-epsilon)) - _SLACK


def randomised(codes: Codes, classes: int, epsilon: float) -> Codes:
    """Each code, or another one."""
    draws, others = uniform(len(codes)), uniform(len(codes))
    kept = draws < np.uint64(int(stays(epsilon, classes) * 2**64))
    other = 1 + (others % np.uint64(classes - 1)).astype(np.int32)
    return np.where(kept, codes, (codes + other) % classes).astype(np.int32)


def geometric(count: int, rate: float) -> NDArray[np.int64]:
    """Whole numbers k >= 0 with probabilities in proportion to e^(-rate k): digit by digit, each a bit of its own."""
    total = np.zeros(count, dtype=np.int64)
    digit = 0
    while rate * 2.0**digit < _DIGITS:
        often = 1.0 / (1.0 + math.exp(rate * 2.0**digit))
        total += (uniform(count) < np.uint64(int(often * 2**64))).astype(np.int64) << digit
        digit += 1
    return total


def noisy(values: NDArray[np.float64], low: float, high: float, epsilon: float) -> NDArray[np.float64]:
    """Numbers of the range on its grid, with noise. What is missing or not finite counts as the middle."""
    inside = np.clip(np.where(np.isfinite(values), values, (low + high) / 2), low, high)
    steps = np.rint((inside - low) / (high - low) * GRID).astype(np.int64)
    rate = (epsilon - _LOST) / GRID
    steps = steps + geometric(len(steps), rate) - geometric(len(steps), rate)
    return np.asarray(low + steps * ((high - low) / GRID), dtype=np.float64)


@dataclass(frozen=True)
class LabelCopy:
    """The copy of one job, of all rows of the site's table: codes of classes, or numbers."""

    epsilon: float
    classes: tuple[str, ...]  # none: numbers
    values: NDArray[Any]

    @property
    def task(self) -> str:
        return "classification" if self.classes else "regression"

    @property
    def truth(self) -> float:
        """How often a class is the true one. Numbers are, in the mean."""
        return stays(self.epsilon, len(self.classes)) if self.classes else 1.0

    def of(self, rows: NDArray[np.int64], party: str, classes: int) -> Labels:
        """The copy of these rows; ``classes`` quantile classes stand in for a number."""
        if self.classes:
            codes = self.values[rows]
            return Labels("classification", codes, len(self.classes), self.classes, codes.astype(np.float64))
        return read_labels(self.values[rows], party, classes, "regression")

    def column(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """As a label column: names of classes, or numbers."""
        return np.asarray(self.classes)[self.values[rows]] if self.classes else self.values[rows]


def label_copy(run: Run, label: Callable[[], NDArray[Any] | None], party: str, task: str) -> LabelCopy | None:
    """The copy that this job learns from, drawn when it is first asked for; ``None`` where the job has no epsilon.

    ``label`` gives the column of all rows.
    """
    said = {} if run.job is None else run.job.parameters
    epsilon = said.get("label_epsilon")
    if epsilon is None:
        return None
    if not is_epsilon(epsilon):
        raise OperationRefused(party, "label_epsilon", "the job's label_epsilon is no number from 0.001 to 100")
    labels = read_labels(label(), party, task=task)
    held = run.kept.get(LabelCopy)
    if isinstance(held, LabelCopy):
        if held.task != labels.task:  # a second copy of another kind would cost as much again
            raise OperationRefused(party, "label_epsilon", "a job has one copy of the labels: as classes or as numbers")
        return held
    if labels.task == "classification":
        codes = randomised(labels.codes, labels.n_classes, float(epsilon))
        copy = LabelCopy(float(epsilon), labels.classes, codes)
    else:
        between = range_of(said.get("label_range"))
        if between is None:
            raise OperationRefused(party, "label_epsilon", "numbers need the job's label_range, as (low, high)")
        copy = LabelCopy(float(epsilon), (), noisy(labels.values, *between, float(epsilon)))
    run.kept[LabelCopy] = copy
    return copy


class _Site(Protocol):
    table: Table


class Holder(Protocol):
    """A party, as far as a job's design goes (``design.py``)."""

    name: str
    run: Run

    @property
    def site(self) -> _Site: ...
    @property
    def job(self) -> Job: ...
    @property
    def table(self) -> Table: ...
    @property
    def row_numbers(self) -> NDArray[np.int64]: ...
    @property
    def n_rows(self) -> int: ...
    def labels(self, *, task: str) -> Labels: ...
