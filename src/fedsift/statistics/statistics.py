"""Correlation, variance inflation, p-values and stability of columns that different parties hold. Nothing is pooled.

The first three follow from mean products of all columns, which the coordinator opens in one round (``mpc/moments.py``);
the last each party computes by itself. Equal to the pooled computation up to fixed-point rounding (1e-8 and less).

Who learns what: the coordinator, which holds no rows and whose answer it is: correlations of all numeric columns, for
p-values with the label too; for stability one number of two digits a column. Of columns of few values correlations are
tables of counts, so these are refused unless ``open_tables`` says otherwise. A party that holds rows learns nothing,
and is refused as coordinator or receiver of the first three: with its own columns in hand they are equations about the
others' rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from fedsift.core.checks import check_choice, check_number
from fedsift.core.federation import Federation
from fedsift.errors import DataError, ParameterError, ReplyError
from fedsift.mpc.dealer import check_neutral
from fedsift.mpc.moments import open_moments
from fedsift.statistics.job import (
    CORRELATION,
    KINDS,
    LINEAR,
    LOGISTIC,
    MODELS,
    PSI,
    SIGNIFICANCE,
    VIF,
    StatisticsJob,
    compare_sample,
    keep_sample,
    open_columns,
    sample_rows,
)
from fedsift.statistics.logistic import logistic

Floats = NDArray[np.float64]


def correlation(
    fed: Federation, *, kind: str = "pearson", open_tables: bool = False, min_cell: int = 10
) -> pd.DataFrame:
    """Correlations of all numeric columns of all parties, by party and name.

    Parameters
    ----------
    kind : ``pearson``, or ``spearman`` for ranks. Missing values stand at the mean; a constant column has none (NaN).
    open_tables : let columns of at most four values take part, of which the coordinator then reads the exact tables of
        counts, small cells included. min_cell : the fewest rows that a value of such a column may have.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[:, 2] = X[:, 0] + X[:, 2]
    >>> found = fs.correlation(fs.Federation.split(X, X[:, 0], parties=["bank", "shop"]))
    >>> found.round(2).loc["bank.f0"].tolist()
    [1.0, -0.01, 0.69]
    """
    check_choice("kind", kind, KINDS)
    opened = _opened(fed, _checked(StatisticsJob(CORRELATION, kind, min_cell=min_cell, open_tables=open_tables)))
    return pd.DataFrame(opened.correlations(), opened.names, opened.names)


def vif(fed: Federation, *, open_tables: bool = False, min_cell: int = 10) -> pd.Series:
    """Variance inflation factors: how much less sure a linear model is of a column because others repeat it.

    1 is none, above 10 is usually called too much; infinite where the others give the column exactly.

    Parameters
    ----------
    open_tables : let columns of at most four values take part, of which the coordinator then reads the exact tables of
        counts, small cells included. min_cell : the fewest rows that a value of such a column may have.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[:, 2] = X[:, 0] + X[:, 2]
    >>> fs.vif(fs.Federation.split(X, X[:, 0], parties=["bank", "shop"])).round(1).tolist()
    [1.9, 1.0, 1.9]
    """
    opened = _opened(fed, _checked(StatisticsJob(VIF, min_cell=min_cell, open_tables=open_tables)))
    return pd.Series(inflation(opened.correlations()), opened.names, name="vif")


def significance(
    fed: Federation, *, model: str = LINEAR, max_iter: int = 8, open_scores: bool = False, open_tables: bool = False,
    min_cell: int = 10,
) -> pd.DataFrame:  # fmt: skip
    """A linear or logistic model of the label on all numeric columns: standardised coefficient, error, t (z) and p.

    Parameters
    ----------
    model : ``linear``, for an amount or two classes (a linear probability model): least squares, as statsmodels'
        ``OLS`` with a constant; or ``logistic``, for two classes: maximum likelihood, as its ``Logit``. t, z and p do
        not depend on the scale of a column.
    max_iter : steps of Newton's method at most; in each the label holder reads the rows' total scores.
    open_scores : let parties take part whose columns are no more than these steps, and so can be read from the scores.
    open_tables : let columns of at most four values take part, of which the coordinator then reads the exact tables of
        counts, small cells included. min_cell : the fewest rows that a value of such a column may have.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = X[:, 0] + np.random.default_rng(1).normal(size=200)
    >>> fs.significance(fs.Federation.split(X, y, parties=["bank", "shop"]))["p"].lt(0.01).tolist()
    [True, False, False]
    >>> classes = fs.Federation.split(X, y > 0, parties=["bank", "shop"])
    >>> fs.significance(classes, model="logistic", open_scores=True)["p"].lt(0.01).tolist()
    [True, False, False]
    """
    check_choice("model", model, MODELS)
    check_number("max_iter", max_iter, 1, 100, whole=True)
    check_choice("open_scores", open_scores, (True, False))
    job = _checked(
        StatisticsJob(
            SIGNIFICANCE, model=model, max_iter=max_iter, open_scores=open_scores, open_tables=open_tables,
            min_cell=min_cell,
        )
    )  # fmt: skip
    if model == LOGISTIC:
        return _logistic(fed, job)
    opened = _opened(fed, job)
    return pd.DataFrame(least_squares(opened.joint, opened.rows), index=opened.names)


def psi(
    fed: Federation, before: Sequence[int] | None = None, after: Sequence[int] | None = None, *,
    by: str | None = None, at: float | str | date | None = None, n_bins: int = 10, min_cell: int = 10,
) -> pd.Series:  # fmt: skip
    """Population stability index of every column between two samples of the shared rows, of two digits.

    Below 0.1 is usually called stable, above 0.25 moved.

    Parameters
    ----------
    before, after : positions of the rows of the two samples; bins are those of the first.
    by, at : instead of them: the first sample has the rows whose column ``by`` (``"party.column"``) lies below ``at``,
        the second the others; a date by a date (or "2024-01-31"), a category by its name. Which rows these are becomes
        known to all.
    n_bins, min_cell : bins of a column, and rows of a bin at least.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> X[200:, 1] += 1
    >>> fed = fs.Federation.split(X, X[:, 0], parties=["bank", "shop"])
    >>> fs.psi(fed, range(200), range(200, 400)).gt(0.25).to_dict()
    {'bank.f0': False, 'shop.f1': True}
    """
    _check_vertical(fed)
    check_number("n_bins", n_bins, 2, 255, whole=True)
    check_number("min_cell", min_cell, 1, whole=True)
    listed = before is not None and after is not None
    if listed == (by is not None) or (by is None) != (at is None):
        raise ParameterError("psi compares two samples of rows: give before and after, or by and at")
    value = at.isoformat() if isinstance(at, date) else at
    job = StatisticsJob(what=PSI, n_bins=n_bins, min_cell=min_cell, by=by, at=value)
    with fed.session(*job.announcement()) as run:
        names = run.column_names()
        samples = [before, after] if by is None else _parted(run, by, names)
        first, second = (np.asarray(sample, dtype=np.int64) for sample in samples)
        if not len(first) or not len(second) or len(np.intersect1d(first, second)):
            raise ParameterError("psi compares two samples of rows, each with some and none in both")
        run.view(rows=first).ask(keep_sample, to=run.parties)
        found = run.view(rows=second).ask(compare_sample, to=run.parties)
    for party, values in found.items():
        if len(values) != len(names[party]):
            raise ReplyError(party, "compare_sample", "another number of columns than it has")
    told = {f"{party}.{name}": value for party in names for name, value in zip(names[party], found[party])}
    return pd.Series(told, name="psi", dtype=float)


def _parted(run: Federation, by: str, names: dict[str, list[str]]) -> list[NDArray[np.int64]]:
    """The rows before and from the job's value on, as the party of the column says."""
    party, _, column = by.partition(".")
    if party not in names or (run.names == "shared" and column not in names[party]):  # of private names the site judges
        raise ParameterError(
            f"by must be PARTY.COLUMN of a column that takes part (none that is set aside), got {by!r}"
        )
    sides = run.ask(sample_rows, to=party)
    if len(sides) != run.n_rows:
        raise ReplyError(party, "sample_rows", f"expected a number for each of {run.n_rows} rows")
    if not (sides == 1).any() or not (sides == 0).any():
        empty = "from the value on" if (sides == 1).any() else "before the value"
        raise ParameterError(f"no row lies {empty} at which {by!r} is parted")
    return [np.flatnonzero(sides == 1), np.flatnonzero(sides == 0)]


def computed(fed: Federation, job: StatisticsJob) -> pd.DataFrame:
    """The statistic that a job is about: a row a column."""
    tables: dict[str, Any] = {"open_tables": job.open_tables, "min_cell": job.min_cell}
    if job.what == CORRELATION:
        return correlation(fed, kind=job.kind, **tables)
    if job.what == VIF:
        return vif(fed, **tables).to_frame()
    if job.what == PSI:
        return psi(fed, by=job.by, at=job.at, n_bins=job.n_bins, min_cell=job.min_cell).to_frame()
    scores: dict[str, Any] = {"model": job.model, "max_iter": job.max_iter, "open_scores": job.open_scores}
    return significance(fed, **scores, **tables)


# --- from mean products to answers, on arrays ------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """Mean products of columns (the label last, where it takes part) over so many rows."""

    joint: Floats
    names: list[str]
    rows: int

    def correlations(self) -> Floats:
        """With NaN for constant columns."""
        spread = np.sqrt(np.diag(self.joint))
        spread = np.where(spread > 0.5, spread, np.nan)
        found = np.clip(self.joint / np.outer(spread, spread), -1.0, 1.0)
        np.fill_diagonal(found, np.where(np.isnan(spread), np.nan, 1.0))
        return np.asarray(found)


def inflation(correlations: Floats) -> Floats:
    """The diagonal of the inverse; NaN for constant columns, infinite for those that the others give exactly."""
    varies = np.flatnonzero(~np.isnan(np.diag(correlations)))
    found = np.full(len(correlations), np.nan)
    inner = correlations[np.ix_(varies, varies)]
    for place, column in enumerate(varies):
        others = np.delete(np.arange(len(varies)), place)
        weights = np.linalg.lstsq(inner[np.ix_(others, others)], inner[others, place], rcond=1e-12)[0]
        left = 1.0 - float(inner[others, place] @ weights)
        found[column] = 1.0 / left if left > 1e-9 else np.inf
    return found


def least_squares(joint: Floats, rows: int) -> dict[str, Floats]:
    """Coefficients of standardised columns, errors, t and p; the label is the last column of ``joint``."""
    size = len(joint) - 1
    if np.diag(joint)[-1] < 0.5:
        raise DataError("the label is the same in all rows; there is nothing to explain")
    varies = np.flatnonzero(np.diag(joint)[:size] > 0.5)
    gram, linear = joint[np.ix_(varies, varies)], joint[varies, -1]
    freedom = rows - len(varies) - 1
    if freedom < 1 or np.linalg.cond(gram) > 1e10:
        raise DataError("p-values need more rows than columns, and no column that the others give exactly (see vif)")
    inverse = np.linalg.inv(gram)
    weights = inverse @ linear
    residual = max(float(joint[-1, -1] - linear @ weights), 0.0)
    names = ("coefficient", "error", "t", "p")
    found = {name: np.full(size, np.nan) for name in names}
    error = np.sqrt(residual / freedom * np.diag(inverse))
    with np.errstate(divide="ignore"):
        ratio = weights / error
    for name, values in zip(names, (weights, error, ratio, 2 * stats.t.sf(np.abs(ratio), freedom))):
        found[name][varies] = values
    return found


# --- the conversation ------------------------------------------------------------------------------------------------


def _opened(fed: Federation, job: StatisticsJob) -> Opened:
    """One job: every party's columns as numbers, then the mean products of all."""
    _check_vertical(fed)
    check_neutral(fed, job.what, because="it opens correlations of all columns")
    with fed.session(*job.announcement()) as run:
        columns = run.column_names()
        told = run.ask(open_columns, to=run.parties, task=run.asked_task)
        names, is_label = [], []
        for party, reply in told.items():
            positions, targets = reply["columns"].tolist(), int(reply["targets"])
            if not set(positions) <= set(range(len(columns[party]))) or len(set(positions)) < len(positions):
                raise ReplyError(party, "open_columns", "these are no positions of its columns")
            if targets != int(party == run.active and job.what == SIGNIFICANCE):
                raise ReplyError(party, "open_columns", "a label is where none is asked for, or none where one is")
            names += [f"{party}.{columns[party][position]}" for position in positions]
            is_label += [False] * len(positions) + [True] * targets
        if not names:
            raise DataError("no party has a numeric column")
        joint = open_moments(
            run, {party: len(reply["columns"]) + int(reply["targets"]) for party, reply in told.items()}
        )
        last = np.argsort(is_label, kind="stable")
        return Opened(joint[np.ix_(last, last)], names, run.n_rows)


def _logistic(fed: Federation, job: StatisticsJob) -> pd.DataFrame:
    """One job: a logistic model of all parties' columns."""
    _check_vertical(fed)
    check_neutral(fed, "a logistic model", because="it reads sums of columns times residuals")
    with fed.session(*job.announcement()) as run:
        columns = run.column_names()
        positions, found = logistic(run, job.max_iter)
        for party, kept in positions.items():
            if not set(kept.tolist()) <= set(range(len(columns[party]))) or len(set(kept.tolist())) < len(kept):
                raise ReplyError(party, "open_logistic", "these are no positions of its columns")
    names = [f"{party}.{columns[party][place]}" for party, kept in positions.items() for place in kept.tolist()]
    return pd.DataFrame(found, index=names)


def _checked(job: StatisticsJob) -> StatisticsJob:
    check_choice("open_tables", job.open_tables, (True, False))
    check_number("min_cell", job.min_cell, 1, whole=True)
    return job


def _check_vertical(fed: Federation) -> None:
    if not isinstance(fed, Federation):
        raise ParameterError(f"it takes a Federation, got {type(fed).__name__}; see Federation.from_tables")
    if fed.partition != "vertical":
        raise ParameterError(f"it is for vertical parties; these are {fed.partition}")
