"""Which bin each row of a passive party's column lies in, from exact gradient sums over the same bins in every tree.

The label holder knows the gradient of every row and which rows lie in a node. A sum over a bin is then a linear
equation in the membership of the rows, with known coefficients; every tree brings new coefficients for the same
unknowns. A bin holds few of the rows, so that its membership is sparse and not negative: far fewer equations than rows
determine it (Donoho and Tanner 2005), and non-negative least squares finds it. The sums are exact whole numbers: where
a rounded answer meets all of them, its rows are no unknowns of the other bins any more.

The limit: rows of equal gradients in every tree (same label, same leaves) cannot be told apart by any sum. On an easy
label and few shallow trees most rows have such a double, and the attack finds little; it is no protection to rely on.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from fedsift.audit.boost_messages import NodeSums, sums_opened
from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View, bins_told
from fedsift.core.binning import ColumnBins
from fedsift.core.table import Table
from fedsift.models.boost.bins import safe_groups

_PASSES = 4
_HAIR = 1e-6
_CELLS_TRIED = 16_000
_MOST_NODES = 120  # of one bin, those of most rows: more cost time and add little


@dataclass(frozen=True)
class ColumnFound:
    """One column of one party: the bin (as numbered at a root) in which each row is thought to lie."""

    party: str
    column: int
    ordered: bool
    codes: np.ndarray
    certain: np.ndarray  # rows whose bin meets every equation exactly, and that no other row could stand in for


def bins_of_rows(sums: Iterable[NodeSums], n_rows: int) -> list[ColumnFound]:
    """Columns about which sums were read: all of a short table, the first of a long one, for time."""
    by_party: dict[str, list[NodeSums]] = {}
    for node in sums:
        by_party.setdefault(node.party, []).append(node)
    found = []
    for party, nodes in by_party.items():
        equations = np.zeros((len(nodes), nodes[0].gradients.shape[1], n_rows))
        for place, node in enumerate(nodes):
            equations[place][:, node.rows] = node.gradients.T
        sizes = np.maximum(np.linalg.norm(equations, axis=2), 1e-300)
        for column in range(min(len(nodes[0].groups), columns_tried(n_rows))):
            codes, certain = _Column(nodes, column, equations, sizes).solve()
            found.append(ColumnFound(party, column, bool(nodes[0].ordered[column]), codes, certain))
    return found


def columns_tried(n_rows: int) -> int:
    """Of each party: least squares takes some seconds a column at 4,000 rows, some hundredths at 200."""
    return max(1, _CELLS_TRIED // max(1, n_rows))


class _Column:
    """The equations of one column: of each bin those nodes in which it is a group of its own."""

    def __init__(self, nodes: list[NodeSums], column: int, equations: np.ndarray, sizes: np.ndarray):
        self.equations, self.sizes = equations, sizes
        self.n_bins = len(nodes[0].group_of[column])
        self.of_bin: list[tuple[np.ndarray, np.ndarray]] = []  # nodes, and their sums
        fitting = [n for n, node in enumerate(nodes) if len(node.group_of[column]) == self.n_bins]
        group_of = np.array([nodes[n].group_of[column] for n in fitting])
        starts = [int(nodes[n].groups[:column].sum()) for n in fitting]
        for number in range(self.n_bins):
            alone = np.flatnonzero((group_of == group_of[:, [number]]).sum(axis=1) == 1)
            alone = np.array(sorted(alone, key=lambda a: -len(nodes[fitting[a]].rows))[:_MOST_NODES], dtype=np.int64)
            wanted = [nodes[fitting[a]].sums[starts[a] + group_of[a, number]] for a in alone]
            self.of_bin.append((np.array(fitting)[alone], np.array(wanted)))

    def solve(self) -> tuple[np.ndarray, np.ndarray]:
        n_rows = self.equations.shape[2]
        free, codes = np.ones(n_rows, dtype=bool), np.zeros(n_rows, dtype=np.int64)
        certain = np.zeros(n_rows, dtype=bool)
        shares = np.zeros((self.n_bins, n_rows))
        left = list(range(self.n_bins))
        for _ in range(_PASSES):
            unsure = []
            for number in left:
                shares[number] = self._membership(number, free)
                inside = shares[number] > 0.5
                if self._meets(number, inside):
                    codes[inside], free[inside] = number, False
                    certain |= inside & self._without_double(number)
                else:
                    unsure.append(number)
            if len(unsure) in (0, len(left)):
                break
            left = unsure
        if free.any():
            codes[free] = np.array(left)[shares[left][:, free].argmax(axis=0)]
        return codes, certain

    def _membership(self, number: int, free: np.ndarray) -> np.ndarray:
        """How much of each free row lies in the bin, by least squares.

        k of n rows need about k log(n / k) equations. A bin with fewer is not determined: it gets every row by a hair,
        the more the larger it is, so that rows that no other bin claims fall to the likeliest one.
        """
        nodes, wanted = self.of_bin[number]
        size = self._about_how_many(number)
        share = np.full(len(free), _HAIR * size / len(free))
        needed = size * np.log(len(free) / size) if size > 0 else 0.0
        if len(nodes) and free.any() and needed <= wanted.size:
            scaled = (self.equations[nodes][:, :, free] / self.sizes[nodes][:, :, None]).reshape(-1, int(free.sum()))
            with suppress(RuntimeError):  # it did not settle: no opinion
                share[free] = nnls(scaled, (wanted / self.sizes[nodes]).ravel())[0]
        return share

    def _about_how_many(self, number: int) -> float:
        """Rows of a bin, by its share of the last value (the second derivative, never negative) at a root."""
        nodes, wanted = self.of_bin[number]
        if not len(nodes):
            return 0.0
        whole = float(self.equations[nodes[0], -1].sum())
        return float(wanted[0, -1] / whole * self.equations.shape[2]) if whole > 0 else 0.0

    def _without_double(self, number: int) -> np.ndarray:
        """Rows that no other row has the same coefficients as: exchanging doubles would meet the equations too."""
        columns = self.equations[self.of_bin[number][0]].reshape(-1, self.equations.shape[2]).T
        _, kind, sizes = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
        return np.asarray(sizes[kind.ravel()] == 1)

    def _meets(self, number: int, inside: np.ndarray) -> bool:
        nodes, wanted = self.of_bin[number]
        return bool(len(nodes)) and np.array_equal(np.rint(self.equations[nodes] @ inside.astype(float)), wanted)


def true_bins(values: np.ndarray, ordered: bool, bins: int, least: int) -> np.ndarray:
    """The bin of each value as the party numbers them at a root: for scoring."""
    if ordered:
        table = Table.read(pd.DataFrame({"values": values}), id=None, label=None, name="truth")
        codes = ColumnBins.fit(table, "values", bins).codes(table).astype(np.int64)
    else:
        codes = np.unique(values, return_inverse=True)[1]
    counts = np.bincount(codes)
    return safe_groups(counts, np.zeros_like(counts), least, ordered)[codes]


@attack(
    reads=["choose_splits"],
    role="active",
    target="columns",
    knows="the gradients of its own rows",
    declared="hardly",
    line=5,
)
def sums_give_bins(view: View, truth: Truth) -> Measure:
    """Share of the cells of passive parties' columns that are put into their true bin."""
    settings = view.job.parameters
    bins = bins_told(view.job, 32)
    least = max(int(settings.get("min_cell", 5)), int(settings.get("min_leaf", 5)))
    right, mode, certain = [], [], []
    guessed: dict[str, list[np.ndarray]] = {}
    truly: dict[str, list[np.ndarray]] = {}
    found = {(each.party, each.column): each for each in bins_of_rows(sums_opened(view), view.own_table.n_rows)}
    for party, columns in truth.columns.items():
        for number in range(min(columns.shape[1], columns_tried(len(columns))) if party != view.name else 0):
            guess = found.get((party, number))
            true = true_bins(columns[:, number], guess is None or guess.ordered, bins, least)
            mode.append(np.bincount(true).max() / len(true))
            right.append(mode[-1] if guess is None else float(np.mean(guess.codes == true)))
            certain.append(0.0 if guess is None else float(guess.certain.mean()))
            guessed.setdefault(party, []).append(np.full(len(true), mode_of(true)) if guess is None else guess.codes)
            truly.setdefault(party, []).append(true)
    note = (
        f"{np.mean(certain):.3f} of the cells of {len(right)} columns certain"
        if found
        else "nothing to read: no sums were opened"
    )
    guess_rate = float(np.mean(mode))
    return Measure(
        "cells in their true bin", float(np.mean(right)), guess_rate, guess_rate, note=note,
        columns={party: np.stack(codes, axis=1) for party, codes in guessed.items()},
        bins={party: np.stack(codes, axis=1) for party, codes in truly.items()},
    )  # fmt: skip


def mode_of(codes: np.ndarray) -> int:
    return int(np.bincount(codes).argmax())
