"""Rows of nodes from the sums of unnamed, shuffled cuts that the coordinator of boosting reads (level ``coordinator``).

Of every candidate cut of a node it reads the gradients, hessians and rows on its left. Where these are exact whole
numbers, nobody need tell it gradients, rows, or which cut is which: where two cuts differ by one row their sums differ
by that row's gradient and hessian, and these follow from one another (g = p - y, h = p (1 - p)), so that it sees which
differences are rows. With the gradients of all rows of a node each cut is a subset-sum problem, some fifty bits for as
many unknown ones as the node has rows, and the rows on its left are the vector nearest to it in the lattice of all
relations between the gradients (Lagarias and Odlyzko 1985; LLL, then Babai). What comes out are records without a name:
of each row of the node its score, its label, and which candidate cuts have it on their left.

The figure counts rows read so in any node as placed in all columns of the party, and the others as guessed. To score
it is given more than the coordinator has: which column and bin a candidate is, and whose row is whose. Rows found are
put to true rows by how many cuts each two of them share, which does not hang on the order of the cuts; a node counts
only if all of these numbers are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedsift.audit.exposure import Measure
from fedsift.audit.lattice import Relations
from fedsift.audit.naming import matches
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View
from fedsift.core.binning import ColumnBins
from fedsift.core.table import Table
from fedsift.models.boost.hidden.cuts import Layout, TreeCuts, candidate_bits
from fedsift.models.boost.hidden.shares import Half, Level, Tree, open_halves

_MOST_ROWS = 30  # of a node: as many unknown bits
_MOST_NODES = 400
_MOST_CUTS = 1500
_TRIED = 3  # cuts of a node that are tried before it is given up


@dataclass(frozen=True)
class NodeOpened:
    """What the coordinator reads of one node about one party: candidates x (gradients, hessians, rows), and totals."""

    party: str
    cuts: TreeCuts
    sums: np.ndarray
    total: np.ndarray
    units: np.ndarray  # of gradients, of hessians


def nodes_opened(view: View) -> Iterator[NodeOpened]:
    """Every node with one output whose sums were opened, from the halves that came to the coordinator."""
    layouts: dict[str, dict[int, Layout]] = {}
    bins: list[int] = []
    columns: dict[str, list[np.ndarray]] = {}
    trees: list[Tree] = []
    number, halves = 0, {}
    for message in view.messages:
        if message.is_request:
            if matches("describe_cuts", message.operation):
                bins = message.content["bins"]
            elif matches("hide_gradients", message.operation):
                trees = [Tree(*shape) for shape in message.content["trees"]]
                columns, number = message.content["columns"], 0
        elif matches("describe_cuts", message.operation):
            layouts[message.party] = {
                b: Layout.read(f["counts"], f["categories"], len(f["counts"]), message.party)
                for b, f in zip(bins, message.content)
            }
        elif matches("half_sums", message.operation):
            halves[message.party] = Half.read(message.content, message.party)
        elif matches("own_half_sums", message.operation):
            level, told = Level.of(trees, number), message.content
            for party, half in halves.items():
                cuts = [layouts[party][t.bins].tree(columns[party][t.model].astype(np.int64)) for t in level.trees]
                opened = open_halves(level, cuts, half, Half.read(told["halves"][party], message.party))
                for tree, part, sums, rows, units in zip(level.trees, cuts, opened, level.nodes_of(), told["units"]):
                    for node in range(level.nodes if tree.outputs == 1 else 0):
                        yield NodeOpened(
                            party, part, sums[node], told["totals"][rows][node][:3].astype(np.int64), units
                        )
            number, halves = number + 1, {}


# --- rows of a node ---------------------------------------------------------------------------------------------------


def rows_that_differ(node: NodeOpened) -> np.ndarray:
    """Gradients and hessians (and a one) of single rows: differences of two cuts, or of a cut and none or all rows."""
    cuts = np.unique(node.sums, axis=0)
    cuts = np.random.default_rng(0).permutation(cuts)[:_MOST_CUTS]  # their pairs are compared
    ends = np.unique(np.vstack([cuts, np.zeros((1, 3), np.int64), node.total]), axis=0)
    first, second = np.nonzero(ends[:, None, 2] - ends[None, :, 2] == 1)
    found, seen = np.unique(ends[first] - ends[second], axis=0, return_counts=True)
    chance = np.abs(found[:, 0]) * node.units[0]
    expected, room = chance * (1 - chance), node.units[1] * 0.51 + 2 * node.units[0]
    fits = (chance < 1) & (np.abs(np.maximum(expected, node.units[1]) - found[:, 1] * node.units[1]) <= room)
    if len(np.unique(node.sums[:, 1] - node.sums[:, 2] * (node.total[1] // max(1, node.total[2])))) == 1:
        fits = seen >= 4  # a hessian of one a row says nothing: a row's gradient stands between many cuts
    return np.asarray(found[fits])


def read_node(node: NodeOpened) -> np.ndarray | None:
    """Rows x candidates: which rows each candidate has on its left; ``None`` where they do not all come out."""
    if not 2 <= node.total[2] <= _MOST_ROWS:
        return None
    values = rows_that_differ(node)
    if not 2 <= len(values) <= _MOST_ROWS + 6:
        return None
    times = Relations.between(values).solve(node.total, np.ones(len(values)))
    if times is None or (times < 0).any():
        return None
    values, times = values[times > 0], times[times > 0]
    relations, middle = Relations.between(values), times / 2
    cuts, place = np.unique(node.sums, axis=0, return_inverse=True)
    sides = np.zeros((len(cuts), len(values)), dtype=np.int64)
    missed = 0
    for number, cut in enumerate(cuts):
        x = relations.solve(cut, middle)
        if x is None or (x < 0).any() or (x > times).any():
            missed += 1
            if missed >= _TRIED:
                return None
            continue
        sides[number] = x
    alone = times == 1  # rows of equal score and label stand in for one another
    return None if missed else np.asarray(sides[place.ravel()][:, alone].T)


# --- the score --------------------------------------------------------------------------------------------------------


def true_sides(columns: np.ndarray, layout_of: TreeCuts, bins: int) -> np.ndarray | None:
    """Rows x candidates of a party whose columns are all numbers; ``None`` where they are not those of the tree."""
    parts = []
    for values in columns.T:
        table = Table.read(pd.DataFrame({"values": values}), id=None, label=None, name="truth")
        fitted = ColumnBins.fit(table, "values", bins)
        parts.append(candidate_bits(fitted, fitted.codes(table)))
    sides = np.hstack(parts)
    return sides if sides.shape[1] == len(layout_of.candidates) == layout_of.sent else None


def whose(found: np.ndarray, true: np.ndarray) -> np.ndarray | None:
    """The true rows of the rows found: those that share as many cuts with one another, each number right."""
    seen, real = found @ found.T, true.astype(np.int64) @ true.T.astype(np.int64)
    likely = [np.flatnonzero(np.diag(real) == each) for each in np.diag(seen)]
    order = np.argsort([len(each) for each in likely], kind="stable")
    chosen: list[int] = []

    def place(at: int) -> bool:
        if at == len(order):
            return True
        for row in likely[order[at]]:
            if row not in chosen and (real[row, chosen] == seen[order[at], order[:at]]).all():
                chosen.append(int(row))
                if place(at + 1):
                    return True
                chosen.pop()
        return False

    return np.array(chosen) if len(found) and place(0) else None


@attack(
    reads=["half_sums", "own_half_sums"], role="coordinator", target="columns", declared="in words",
    knows="to score: which column and bin each candidate is, whose row is whose, the sizes of bins (more than it has)",
)  # fmt: skip
def cut_sums_give_records(view: View, truth: Truth) -> Measure:
    """Share of the cells of passive parties' columns in rows that were read as a record without a name."""
    told = view.job.parameters.get("n_bins")
    bins = int(told) if isinstance(told, int) else 0
    solved = tried = 0
    sides: dict[str, np.ndarray | None] = {}
    read = {name: np.zeros(len(truth.labels), dtype=bool) for name in truth.columns}
    for node in nodes_opened(view) if bins else ():
        if not 2 <= node.total[2] <= _MOST_ROWS or tried >= _MOST_NODES:
            continue
        if node.party not in sides:
            sides[node.party] = true_sides(truth.columns[node.party], node.cuts, bins)
        true = sides[node.party]
        if true is None:
            continue
        tried += 1
        found = read_node(node)
        rows = whose(found, true) if found is not None else None
        if rows is not None:
            solved += 1
            read[node.party][rows] = True
    shares = [(float(read[name].mean()), _mode(truth.columns[name], bins)) for name in sides]
    if not shares or not tried:
        return Measure("cells in their true bin", 0.0, 0.0, 0.0, note="nothing to read: no small node of numbers")
    placed, guess = (float(np.mean(part)) for part in zip(*((r + (1 - r) * mode, mode) for r, mode in shares)))
    note = f"{solved} of {tried} small nodes, {np.mean([r for r, _ in shares]):.3f} of the rows; records without names"
    return Measure("cells in their true bin", placed, guess, guess, note=note)


def _mode(columns: np.ndarray, bins: int) -> float:
    table = Table.read(pd.DataFrame(columns).add_prefix("c"), id=None, label=None, name="truth")
    codes = [ColumnBins.fit(table, name, bins).codes(table) for name in table.columns]
    return float(np.mean([np.bincount(code).max() / len(code) for code in codes]))
