"""How sure a score is: would a column without any relation to the label score as high?

From the tables of bins and classes that the coordinator has opened anyway: the chi-squared test of independence gives a
p-value a column, and Benjamini and Hochberg's procedure over the columns of all parties the false-discovery rate at
which a column would be called related. Nothing is asked for it. Counts with noise give no p-value: their errors are not
those of sampling rows. SFFS has the F test in the same way. The noise floor is the score that the best of as many
columns of noise passes once in twenty runs; a threshold below it is told.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from scipy.stats import f as f_distribution

from fedsift.core.federation import Federation
from fedsift.mpc.column_scores.label_tables import ColumnTables

Floats = NDArray[np.float64]
LEAK = 0.95  # the share of errors that go away with a column that is called a leak
LEVEL = 0.05  # the false-discovery rate above which a report calls a column not told from noise


def independence(table: NDArray[np.float64]) -> float:
    """The p-value of the chi-squared test on a table of bins and classes; 1 where it has one bin or one class."""
    counts = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0].astype(float)
    freedom = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    if freedom <= 0:
        return 1.0
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), freedom))


def p_values(tables: Mapping[str, ColumnTables]) -> dict[str, list[float]]:
    """Of each party's columns, in their order."""
    return {name: [independence(np.asarray(part)) for part in each.columns()] for name, each in tables.items()}


def one_sided(freedom: NDArray[np.int64], level: float) -> Floats:
    """What chi-squared with these degrees of freedom passes with this probability."""
    return np.asarray(chi2.isf(level, freedom), dtype=np.float64)


def warn_below(fed: Federation, threshold: float | None, floor: float, columns: int) -> None:
    """A note where a threshold lets noise pass."""
    if threshold is not None and threshold < floor:
        fed.ledger.note(
            f"threshold {threshold:g} is below the noise floor: the best of {columns:,} columns that have nothing to "
            "do with the label would pass it in more than one run of twenty (the whole report has the floor)"
        )


def copies_of(tables: Mapping[str, ColumnTables], names: Mapping[str, list[str]]) -> list[list[str]]:
    """Pairs [party, column, party, column] whose bins have the same counts of every class: copies, most likely.

    Two columns of two bins may agree by chance, so three bins are asked for.
    """
    first: dict[bytes, tuple[str, str]] = {}
    found = []
    for party, table in tables.items():
        for name, cells in zip(names[party], table.columns()):
            if len(cells) < 3:
                continue
            ordered = cells[np.lexsort(cells.T[::-1])]
            other = first.setdefault(ordered.tobytes(), (party, name))
            if other != (party, name):
                found.append([*other, party, name])
    return found


def leaks_of(tables: Mapping[str, ColumnTables], names: Mapping[str, list[str]]) -> list[list[str]]:
    """Pairs [party, column] whose bins tell the class nearly alone: most likely known only after the outcome.

    What counts is how many of the errors of the commonest class go away when each bin has its own commonest one.
    """
    found = []
    for party, table in tables.items():
        for name, cells in zip(names[party], table.columns()):
            wrong = cells.sum() - cells.sum(axis=0).max()
            if wrong > 0 and cells.sum() - cells.max(axis=1).sum() < (1 - LEAK) * wrong:
                found.append([party, name])
    return found


def f_p_values(f: Floats, owner: NDArray[np.int64], columns: int, classes: int, rows: int) -> list[float]:
    """Of each column, from the F of its components; the best of several counts as so many tries (Bonferroni)."""
    single = f_distribution.sf(np.maximum(f, 0.0), classes - 1, max(1, rows - classes))
    least = np.ones(columns)
    np.minimum.at(least, owner, single)
    return [float(p) for p in np.minimum(1.0, least * np.bincount(owner, minlength=columns))]


def f_reaches(tries: int, classes: int, rows: int) -> float:
    """The F that the best of so many components of noise passes once in twenty runs."""
    return float(f_distribution.isf(LEVEL / max(1, tries), classes - 1, max(1, rows - classes)))


def false_discovery(p: Floats) -> Floats:
    """The smallest false-discovery rate at which each hypothesis falls (Benjamini and Hochberg 1995)."""
    order = np.argsort(p, kind="stable")
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    lowest = np.minimum.accumulate(scaled[::-1])[::-1]
    found = np.empty(len(p))
    found[order] = np.minimum(lowest, 1.0)
    return found
