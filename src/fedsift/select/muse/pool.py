"""The candidates of all parties side by side, and where their mutual information comes from.

A ``Source`` answers for one chosen column and what is left: from exact tables (``ExactTables``, over bin matching) or
from tables with noise (``noisy_tables.NoisyTables``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import pandas as pd

from fedsift.core.federation import Federation
from fedsift.errors import ReplyError
from fedsift.select.muse.criteria import Search
from fedsift.select.muse.mutual_information import BinMatching, Pairs, own_information


class Source(Protocol):
    """Where mutual information comes from."""

    @property
    def tables_made(self) -> int:
        """Across parties, so far."""

    def with_chosen(self, home: str, column: int, others: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Mutual information of a party's column with columns of every party, its own among them."""


class ExactTables:
    """Bin matching across parties; inside a party what it says, or what the preselection has asked for already."""

    def __init__(self, matching: BinMatching, columns: dict[str, np.ndarray], inside: Mapping[str, np.ndarray] | None):
        self.matching, self.columns, self.inside = matching, columns, inside

    @property
    def tables_made(self) -> int:
        return self.matching.computations

    def with_chosen(self, home: str, column: int, others: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = {home: self._inside(home, column, others[home])} if home in others else {}
        away = [name for name in others if name != home]
        wanted = [Pairs(home, np.full(len(others[name]), column), name, others[name]) for name in away]
        return {**found, **dict(zip(away, self.matching.information(wanted)))}

    def _inside(self, home: str, column: int, others: np.ndarray) -> np.ndarray:
        if self.inside is not None:
            place = {int(each): at for at, each in enumerate(self.columns[home])}
            return self.inside[home][place[column], [place[int(each)] for each in others]]
        left = np.full(len(others), column)
        fed = self.matching.fed
        found = fed.ask(own_information, to=home, left=left, right=others, correct=self.matching.correct)
        if len(found) != len(others):
            raise ReplyError(home, "own_information", f"expected {len(others)} values, got {len(found)}")
        return np.asarray(found)


def among(found: Search, columns: np.ndarray) -> np.ndarray:
    """Mutual information among the chosen columns, as the search has got it: that of the earlier with the later."""
    place = {column: step for step, column in enumerate(found.order)}
    among = np.zeros((len(columns), len(columns)))
    for i, a in enumerate(columns.tolist()):
        for j, b in enumerate(columns.tolist()):
            if a != b:
                first, second = (a, b) if place[a] < place[b] else (b, a)
                among[i, j] = found.shared[place[first], second]
    return among


class Pool:
    """The candidates of all parties in one row, and where to get their mutual information."""

    def __init__(self, fed: Federation, source: Source, columns: dict[str, np.ndarray]):
        self.fed, self.source, self.columns = fed, source, columns
        self.sizes = [len(columns[name]) for name in fed.parties]
        self.owner = np.repeat(np.arange(len(fed.parties)), self.sizes)
        self.column = np.concatenate([columns[name] for name in fed.parties]).astype(np.int64)
        self.wanted = 0  # how many of them the search is for

    def gather(self, by_party: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([by_party[name][self.columns[name]] for name in self.fed.parties])

    def where(self, candidate: int) -> tuple[str, int]:
        return self.fed.parties[int(self.owner[candidate])], int(self.column[candidate])

    def information_with(self, chosen: int, others: np.ndarray) -> np.ndarray:
        """One round: the chosen column's party counts it with every candidate that is left."""
        self.fed.progress(len(self.column) - len(others), self.wanted, "column")
        home, column = self.where(chosen)
        spots = {name: np.flatnonzero(self.owner[others] == number) for number, name in enumerate(self.fed.parties)}
        wanted = {name: self.column[others[mine]] for name, mine in spots.items() if len(mine)}
        values = np.empty(len(others))
        for name, found in self.source.with_chosen(home, column, wanted).items():
            values[spots[name]] = found
        return values

    def computations(self, preselected: bool) -> dict[str, int]:
        """Tables counted across parties: as made here, and as the paper counts them with and without preselection."""
        counts = np.array([self.fed.n_columns[name] for name in self.fed.parties])
        kept = np.array(self.sizes if preselected else counts)
        label = int(sum(self.fed.n_columns[name] for name in self.fed.passive))

        def crossings(sizes: np.ndarray) -> int:
            return int((sizes.sum() ** 2 - (sizes**2).sum()) // 2)

        return {
            "made": self.source.tables_made,
            "with_label": label,
            "all_pairs_with_preselection": label + crossings(kept) if preselected else label + crossings(counts),
            "all_pairs_without_preselection": label + crossings(counts),
        }

    def frame(self, found: Search, relevance: dict[str, np.ndarray], names: dict[str, list[str]]) -> pd.DataFrame:
        """Candidates x (label and chosen columns), NaN where nothing was asked."""
        index = [(party, names[party][column]) for party, column in map(self.where, range(len(self.column)))]
        shared = found.shared.copy()
        asked = np.zeros(shared.shape, dtype=bool)
        left = np.ones(len(self.column), dtype=bool)
        for step, chosen in enumerate(found.order):
            left[chosen] = False
            asked[step] = left & (step + 1 < len(found.order))
        columns = [("label", "label"), *(index[chosen] for chosen in found.order)]
        values = np.column_stack([self.gather(relevance), np.where(asked, shared, np.nan).T])
        return pd.DataFrame(
            values,
            index=pd.MultiIndex.from_tuples(index, names=["party", "feature"]),
            columns=pd.MultiIndex.from_tuples(columns),
        )
