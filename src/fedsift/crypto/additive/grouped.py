"""The histogram of encrypted rows: for each column the sum of each group's ciphertexts.

An engine with a device sorts and sums there. Otherwise columns are counted jointly where the product of their groups is
small (one addition a row serves them all), and a column that is mostly one group (sparse) costs only its other rows:
the large group is the total less the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsift.core.workers import elsewhere, side_by_side
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey
from fedsift.crypto.kernel import shared
from fedsift.errors import ParameterError

_MOST_CELLS = 4096  # of columns that are counted jointly
_ROWS_OF_A_CELL = 32  # at least, where columns are counted jointly: sums over cells are additions too
_ROWS_AT_ONCE = 1 << 24  # times columns, of a histogram
_WORTH_SENDING = 1 << 22  # rows x columns that are worth the way to a cluster
_COLUMNS_SENT = 16  # at once
_ROWS_OF_A_THREAD = 1 << 15  # times columns, that are worth a thread of their own


def group_sums(key: PublicKey, a: Ciphertexts, codes: np.ndarray, groups: Sequence[int]) -> Ciphertexts:
    """For each column of ``codes`` (rows x columns) the sum of each group's ciphertexts.

    The result is column after column, ``sum(groups)`` ciphertexts in all.
    """
    if codes.ndim != 2 or codes.shape[0] != len(a) or codes.shape[1] != len(groups):
        raise ParameterError("codes must have a row for each ciphertext and a column for each entry of groups")

    def inside(column: int) -> bool:
        return bool(codes[:, column].min() >= 0 and codes[:, column].max() < groups[column])

    if codes.size and not all(side_by_side(inside, range(len(groups)))):
        raise ParameterError("a group number is out of range")
    if codes.size >= _WORTH_SENDING:
        blocks = range(0, len(groups), _COLUMNS_SENT)
        parts = elsewhere(
            _there, (key, a), [(codes[:, b : b + _COLUMNS_SENT], groups[b : b + _COLUMNS_SENT]) for b in blocks]
        )
        if parts is not None:
            return key.concat(parts)
    counted = key.groups(a, codes, groups)
    return _Plan(key, a, codes, [int(g) for g in groups]).result() if counted is None else counted


def _there(key: PublicKey, a: Ciphertexts, block: tuple[np.ndarray, Sequence[int]]) -> Ciphertexts:
    return group_sums(key, a, *block)


class _Plan:
    """Plans and runs one histogram; see ``group_sums``."""

    def __init__(self, key: PublicKey, values: Ciphertexts, codes: np.ndarray, groups: list[int]):
        self.key, self.values = key, values
        self.codes, self.groups = codes, groups
        self.rows = codes.shape[0]
        self.columns: list[Any] = [None] * len(groups)

    def result(self) -> Ciphertexts:
        columns = range(len(self.groups))
        largest = side_by_side(lambda column: np.bincount(self.codes[:, column], minlength=1).max(), columns)
        sparse = [column for column in columns if largest[column] > 0.75 * self.rows]
        dense = [column for column in columns if largest[column] <= 0.75 * self.rows]
        if dense:
            self._count_dense(dense)
        if sparse:
            self._count_sparse(sparse)
        return Ciphertexts.concat(self.columns) if self.columns else self.values.take([])

    def _count_dense(self, dense: list[int]) -> None:
        teams = self._teams(dense)
        cells = [int(np.prod([self.groups[c] for c in team])) for team in teams]
        joint = np.zeros((self.rows, len(teams)), dtype=np.min_scalar_type(max(cells)), order="F")

        def combine(number: int) -> None:  # columns lie one after the other, a byte or two a cell
            for column in teams[number]:
                joint[:, number] *= joint.dtype.type(self.groups[column])
                joint[:, number] += self.codes[:, column].astype(joint.dtype)

        side_by_side(combine, range(len(teams)))

        def apart(pair: tuple[list[int], Ciphertexts]) -> None:
            team, table = pair
            shape = [self.groups[c] for c in team]
            digits = np.stack(np.unravel_index(np.arange(len(table)), shape), axis=1)
            marginals = self._histograms(table, digits, shape) if len(team) > 1 else [table]
            for column, marginal in zip(team, marginals):
                self.columns[column] = marginal

        side_by_side(apart, zip(teams, self._histograms(self.values, joint, cells)))

    def _histograms(self, values: Ciphertexts, codes: np.ndarray, groups: list[int]) -> list[Ciphertexts]:
        """In blocks of columns: their row numbers together take an eighth of a gigabyte at most."""
        step = max(1, _ROWS_AT_ONCE // max(1, len(values)))
        blocks = [slice(first, first + step) for first in range(0, len(groups), step)]
        return [each for block in blocks for each in self._block(values, codes[:, block], groups[block])]

    def _block(self, values: Ciphertexts, codes: np.ndarray, groups: list[int]) -> list[Ciphertexts]:
        order = np.empty((len(groups), len(values)), dtype=np.int64)
        counts: list[Any] = [None] * len(groups)
        small = np.min_scalar_type(max(groups))  # NumPy sorts small numbers by counting them

        def sort(first: int, last: int) -> None:
            for column in range(first, last):
                order[column] = np.argsort(codes[:, column].astype(small), kind="stable")
                counts[column] = np.bincount(codes[:, column], minlength=groups[column])

        shared(sort, np.arange(len(groups) + 1) * len(values), _ROWS_OF_A_THREAD)
        starts = np.append(0, np.cumsum(groups))
        sums = self.key.sums(values, order.ravel(), np.append(0, np.cumsum(np.concatenate(counts))))
        return [sums.take(np.arange(start, end)) for start, end in itertools.pairwise(starts)]

    def _teams(self, dense: list[int]) -> list[list[int]]:
        """Columns to count jointly: the product of their groups is small in itself and against the rows."""
        limit = min(_MOST_CELLS, self.rows // _ROWS_OF_A_CELL)
        teams: list[list[int]] = []
        cells: list[int] = []
        for column in sorted(dense, key=lambda c: -self.groups[c]):
            for number, size in enumerate(cells):
                if size * self.groups[column] <= limit:
                    teams[number].append(column)
                    cells[number] *= self.groups[column]
                    break
            else:
                teams.append([column])
                cells.append(self.groups[column])
        return teams

    def _count_sparse(self, sparse: list[int]) -> None:
        """Sums of all groups but the largest; the largest is the total less those."""
        index_lists: list[np.ndarray] = [np.arange(self.rows)]
        places: list[tuple[int, int]] = []
        largest = {}
        for column in sparse:
            codes = self.codes[:, column]
            counts = np.bincount(codes, minlength=self.groups[column])
            largest[column] = int(counts.argmax())
            order = np.argsort(codes, kind="stable")
            bounds = np.concatenate([[0], np.cumsum(counts)])
            for group in range(self.groups[column]):
                if group != largest[column]:
                    index_lists.append(order[bounds[group] : bounds[group + 1]])
                    places.append((column, group))
        sums = self.key.select_sums(self.values, index_lists)
        where = {place: number + 1 for number, place in enumerate(places)}
        others = [[where[c, g] for g in range(self.groups[c]) if g != largest[c]] for c in sparse]
        rest = self.key.select_sums(sums, others)
        big = self.key.subtract(sums.take([0] * len(sparse)), rest)
        joined, end = Ciphertexts.concat([sums, big]), len(index_lists)
        for number, column in enumerate(sparse):
            where[column, largest[column]] = end + number
            self.columns[column] = joined.take([where[column, g] for g in range(self.groups[column])])
