"""What filters share that score a column by its table of bins and classes: parameters, the conversation, the choice.

The coordinator opens the tables from two halves (``mpc/column_scores/label_tables.py``) and scores them; a party learns
which of its columns were kept, the label holder nothing about the others' columns. Rounds: 5.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedsift.core.design import DRAWN, WEIGHTED
from fedsift.core.federation import Federation
from fedsift.core.operation import Operation
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.mpc.column_scores.counting import MAX_BINS, TableSettings
from fedsift.mpc.column_scores.label_tables import (
    OPERATIONS,
    ColumnTables,
    class_sizes,
    label_tables,
)
from fedsift.mpc.column_scores.noise import check_privacy
from fedsift.select.base import Outcome, Selector, check_choice, check_number, check_opener, check_size, note_privacy
from fedsift.select.sureness import LEVEL, copies_of, leaks_of, p_values, warn_below


class LabelTableFilter(Selector):
    """Base of such filters: a subclass says what a table is worth (``_scores``).

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least score to keep; one of the two.
    n_bins : bins of a numeric column (twice as many at most, where heavy values lie between others).
    min_cell : bins with fewer rows are merged with a neighbour before anybody counts them.
    scheme : additive encryption: ``auto``, ``ou`` or ``paillier``.
    epsilon, delta : differential privacy of each party's rows (``mpc/column_scores/noise.py``); None: exact counts.
    """

    leaks = "coordinator: sizes and label counts of shuffled, unnamed bins; parties: which of their columns were kept"
    operations: ClassVar[tuple[Operation, ...]] = OPERATIONS
    cell_parameters = ("min_cell",)
    epsilon_parameters = ("epsilon",)

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        n_bins: int = 10,
        min_cell: int = 10,
        scheme: str = "auto",
        epsilon: float | None = None,
        delta: float = 1e-6,
    ):
        self.n_features = n_features
        self.threshold = threshold
        self.n_bins = n_bins
        self.min_cell = min_cell
        self.scheme = scheme
        self.epsilon = epsilon
        self.delta = delta

    def _scores(self, table: ColumnTables, totals: np.ndarray) -> np.ndarray:
        """One number a column, the higher the better, from its counts and the sizes of the classes."""
        raise NotImplementedError

    def _noise_reaches(self, freedom: np.ndarray, totals: np.ndarray, level: float) -> np.ndarray:
        """The score that a column of so many bins less one, unrelated to the label, passes with this probability."""
        raise NotImplementedError

    def _how_sure(self, fed: Federation, tables: dict[str, ColumnTables], totals: np.ndarray) -> dict[str, object]:
        """What the counts say beside the scores: p-values, how high noise reaches, columns that are alike."""
        freedom = np.concatenate([np.maximum(table.bins - 1, 1) for table in tables.values()])
        floor = float(self._noise_reaches(freedom, totals, LEVEL / len(freedom)).max())
        warn_below(fed, self.threshold, floor, len(freedom))
        names = fed.column_names()
        return {
            "p_values": p_values(tables),
            "sure": {"test": "chi-squared", "noise_floor": floor, "copies": copies_of(tables, names),
                     "leaks": leaks_of(tables, names)},
        }  # fmt: skip

    def _serves(self) -> tuple[str, ...]:
        return WEIGHTED if self.epsilon is None else DRAWN

    def _check(self, fed: Federation) -> None:
        check_size(self.n_features, self.threshold)
        check_choice("scheme", self.scheme, SCHEMES)
        check_number("n_bins", self.n_bins, 2, MAX_BINS, whole=True)
        check_number("min_cell", self.min_cell, 1, whole=True)
        check_privacy(self.epsilon, self.delta)
        check_opener(fed, self.epsilon)

    def _select(self, fed: Federation) -> Outcome:
        settings = TableSettings(self.n_bins, self.min_cell, self.epsilon, self.delta)
        tables = label_tables(fed, settings, self.scheme)
        totals = np.maximum(class_sizes(tables), 1.0)
        scores = {name: self._scores(table, totals) for name, table in tables.items()}
        note_privacy(fed, self.epsilon, self.delta, self.min_cell)
        outcome = Outcome.best(scores, self.n_features, self.threshold)
        if self.epsilon is None:
            outcome.details |= self._how_sure(fed, tables, totals)
        self._after(fed, tables, totals, outcome)
        return outcome

    def _after(self, fed: Federation, tables: dict[str, ColumnTables], totals: np.ndarray, outcome: Outcome) -> None:
        """What else a subclass makes of the tables, once the columns are chosen."""
