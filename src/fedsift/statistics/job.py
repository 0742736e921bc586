"""What the parties are told of a statistic, and what they do for it: their columns as numbers, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from fedsift.core.binning import ColumnBins
from fedsift.core.ledger import later, rounded_numbers
from fedsift.core.operation import Array, Operation, operation, together
from fedsift.core.party import Party, Task
from fedsift.errors import DataError, OperationRefused
from fedsift.mpc.moments import OPERATIONS as MOMENTS
from fedsift.mpc.moments import MomentColumns, check_few_values, scaled
from fedsift.mpc.shared_descent import OPERATIONS as DESCENT
from fedsift.mpc.weighted_moments import OPERATIONS as WEIGHTED
from fedsift.statistics.logistic import open_logistic

Floats = NDArray[np.float64]
CORRELATION, VIF, SIGNIFICANCE, PSI = WHAT = ("correlation", "vif", "significance", "psi")
PEARSON, SPEARMAN = KINDS = ("pearson", "spearman")
LINEAR, LOGISTIC = MODELS = ("linear", "logistic")


@operation(
    "statistics.open_columns",
    discloses="aggregate",
    about="which of its columns are numbers, by position, and how many numbers stand for the label",
    reply={"columns": Array("i"), "targets": int},
    times=1,
)
def open_columns(party: Party, *, task: Task) -> dict[str, Any]:
    """Numbers (or their ranks) of mean 0 and mean square 1; the label beside them where the statistic is about it."""
    asked, table = party.job.parameters, party.table
    numeric = [name for name in party.columns if table.kinds[name] != "categorical"]
    values = table.matrix(numeric)
    check_few_values(party, dict(zip(numeric, values.T)))
    if asked["kind"] == SPEARMAN:
        values = ranks(values)
    targets = np.zeros((party.n_rows, 0))
    if asked["what"] == SIGNIFICANCE and table.label is not None:
        targets = _target(party, task)
    party.keep(MomentColumns(np.hstack([scaled(values), scaled(targets)])))
    positions = np.array([party.columns.index(name) for name in numeric], dtype=np.int64)
    return {"columns": positions, "targets": targets.shape[1]}


def ranks(values: Floats) -> Floats:
    """Of each column; equal values share the mean of theirs, missing values stay missing."""
    found = np.full(values.shape, np.nan)
    for column, ranked in zip(values.T, found.T):
        present = ~np.isnan(column)
        ranked[present] = rankdata(column[present])
    return found


def _target(party: Party, task: Task) -> Floats:
    labels = party.labels(task=task)
    if labels.task == "regression":
        return np.asarray(labels.values[:, None], dtype=np.float64)
    if labels.n_classes > 2:
        raise DataError(f"party {party.name!r}: p-values are for an amount or two classes")
    return np.asarray(labels.codes[:, None] == 1, dtype=np.float64)


@operation(
    "statistics.sample_rows",
    discloses="pseudonymous",
    about="of each row whether it lies before the job's value of one column, or has none: one bit a row",
    reply=Array("i"),
    times=1,
)
def sample_rows(party: Party) -> NDArray[np.int64]:
    """1 before the value, 0 from it on, -1 where it is missing; a category by its name, as dates in ISO form sort."""
    asked = party.job.parameters
    owner, _, column = str(asked["by"] or "").partition(".")
    if asked["what"] != PSI or owner != party.name or column not in party.columns:
        raise OperationRefused(party.name, "sample_rows", "the job does not part rows by a column of this party")
    if party.table.kinds[column] == "categorical":
        codes, names = party.table.codes(column)
        before = np.append(np.array([name < str(asked["at"]) for name in names], dtype=np.int64), -1)
        return np.asarray(before[codes])
    at, values = _cut(party, column, asked["at"]), party.table.values(column)
    return np.where(np.isnan(values), -1, (values < at).astype(np.int64))


def _cut(party: Party, column: str, at: object) -> float:
    """Where a column's rows are parted, in the unit of its values: of dates days since 1970 (UTC)."""
    wanted = "numbers; part its rows at a number"
    if party.table.kinds[column] == "date":
        wanted = "dates; part its rows at a date such as 2024-01-31"
        with suppress(ValueError):
            when = datetime.fromisoformat(str(at))
            return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp() / 86_400
    elif isinstance(at, int | float):
        return float(at)
    raise DataError(f"party {party.name!r}: {column!r} holds {wanted}, not {at!r}")


@dataclass(frozen=True)
class FirstSample:
    """Bins of the first sample's columns, and how many of its rows are in each."""

    bins: dict[str, ColumnBins]
    counts: dict[str, Floats]


@operation("statistics.keep_sample", discloses="control", about="acknowledgement", times=1, releases=later)
def keep_sample(party: Party) -> None:
    """Bins of this view's rows, none below the job's ``min_cell``, and how many rows are in each; they stay here."""
    asked = party.job.parameters
    bins = {name: ColumnBins.fit(party.table, name, asked["n_bins"], asked["min_cell"]) for name in party.columns}
    party.keep(FirstSample(bins, {name: _counts(party, each) for name, each in bins.items()}))


@operation(
    "statistics.compare_sample",
    discloses="aggregate",
    about="one number a column, of two digits: how far its shares of rows have moved between the two samples",
    reply=Array("f"),
    times=1,
    after="statistics.keep_sample",
    releases=rounded_numbers,
    min_cell="min_cell",
)
def compare_sample(party: Party) -> Floats:
    """The population stability index of each column of this view, against the sample that was kept."""
    first = party.held(FirstSample)
    if list(first.bins) != party.columns:
        raise OperationRefused(party.name, "compare_sample", "the samples have different columns")
    found = [round(stability(first.counts[name], _counts(party, first.bins[name])), 2) for name in party.columns]
    return np.array(found, dtype=np.float64)


def _counts(party: Party, bins: ColumnBins) -> Floats:
    """Rows in each bin; those that no bin takes (a new category) in one more."""
    codes = bins.codes(party.table)
    return np.bincount(np.where(codes < 0, bins.count, codes), minlength=bins.count + 1).astype(np.float64)


def stability(first: Floats, second: Floats) -> float:
    """The population stability index of two samples from their counts; half a row stands for an empty bin."""
    shares = []
    for counts in (first, second):
        counts = counts[(first + second) > 0]
        shares.append(np.maximum(counts, 0.5) / np.maximum(counts, 0.5).sum())
    return float(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum())


@dataclass(frozen=True)
class StatisticsJob:
    """What the parties are told.

    Parameters
    ----------
    what : ``correlation``, ``vif``, ``significance`` or ``psi``. kind : ``pearson`` or ``spearman``, of a correlation.
    n_bins, min_cell : of a stability index. model : ``linear`` or ``logistic``, of p-values.
    by, at : of a stability index: rows are parted at this value of the column ``party.column``.
    open_tables : let columns of few values take part, whose tables of counts the coordinator reads from the answer;
        ``min_cell`` is then the fewest rows of a value.
    max_iter, open_scores : of a logistic model: steps at most, and whether a party may have no more columns than these.
    """

    name: ClassVar[str] = "statistics"
    operations: ClassVar[tuple[Operation, ...]] = together(
        MOMENTS, DESCENT, WEIGHTED, (open_columns, open_logistic, sample_rows, keep_sample, compare_sample)
    )
    partitions: ClassVar[tuple[str, ...]] = ("vertical",)
    cell_parameters: ClassVar[tuple[str, ...]] = ("min_cell",)
    epsilon_parameters: ClassVar[tuple[str, ...]] = ()
    noise_parameters: ClassVar[dict[str, tuple[float, str]]] = {}

    what: str = CORRELATION
    kind: str = PEARSON
    n_bins: int = 10
    min_cell: int = 10
    model: str = LINEAR
    max_iter: int = 8
    open_scores: bool = False
    by: str | None = None
    at: float | str | None = None
    open_tables: bool = False

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        return asdict(self)

    def announcement(self) -> tuple[str, dict[str, object]]:
        return self.name, self.get_params()
