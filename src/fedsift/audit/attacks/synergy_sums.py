"""Who took part in a Fed-IIFE search by analysis of variance, and with which label, from sums over all parties' rows.

The coordinator opens, of all columns by name, counts of the 4 x 4 cells of every two of them, and sums of what an
additive model (whose coefficients it knows) leaves of the label in each cell. To somebody who has the records of a list
of people, among them all who took part, these are linear equations: of each person whether it counts, and then what is
left of its label. There are sixteen of either kind for every two columns, more than people from a few columns on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc
from fedsift.audit.views import Message, Truth, View
from fedsift.core.expressions import CLIP
from fedsift.engineer.fed_iife.synergy import additive_basis
from fedsift.models.fed_linear import with_intercept
from fedsift.mpc.ring import from_words

_KNOWS = "whole records of a list of people, among them all who took part"
_SILENT = "nothing to read: no tables of pairs, or nobody who did not take part is here"
_CELLS = 4
_MOST_PAIRS = 300
Floats = NDArray[np.float64]


class _Tables:
    """Tables of pairs over all parties' rows, and people in the units that all parties were told."""

    def __init__(self, asked: Message, told: Message, replies: list[Message], truth: Truth):
        assert truth.fresh is not None
        self.edges, self.coefficients = (np.asarray(asked.content[key]) for key in ("edges", "coefficients"))
        inside, outside = (np.vstack(list(each.values())) for each in (truth.columns, truth.fresh.columns))
        centre, deviation = (np.asarray(told.content[key], dtype=np.float64) for key in ("centre", "deviation"))
        self.fits = len(centre) == outside.shape[1] == len(self.edges)
        if not self.fits:
            return
        scaled = (np.vstack([inside, outside]) - centre) / np.where(deviation > 0, deviation, 1.0)
        self.people = np.clip(np.nan_to_num(scaled), -CLIP, CLIP)
        self.member = np.repeat([1, 0], [len(inside), len(outside)])
        first, second = np.triu_indices(len(self.edges), 1)
        words = np.asarray(np.sum([message.content for message in replies], axis=0, dtype=np.uint64))
        outputs = self.coefficients.shape[1]
        tables = np.asarray(from_words(words))[:-outputs].reshape(1 + outputs, len(first), _CELLS**2)
        few = np.sort(np.random.default_rng(0).permutation(len(first))[:_MOST_PAIRS])
        self.counts, self.left = tables[0, few].ravel(), tables[1:, few].reshape(outputs, -1).T
        self.first, self.second = first[few], second[few]

    def cells(self) -> Floats:
        """People x cells: which cell of every pair each is in."""
        at = (self.people[:, :, None] >= self.edges).sum(axis=2)
        place = np.arange(len(self.first)) * _CELLS**2 + at[:, self.first] * _CELLS + at[:, self.second]
        inside = np.zeros((len(at), len(self.first) * _CELLS**2))
        inside[np.arange(len(at))[:, None], place] = 1.0
        return inside


def _read(view: View, truth: Truth) -> _Tables | None:
    first = {message.party: message for message in reversed(view.replies("pair_tables"))}
    asked, told = view.requests("pair_tables"), view.requests("scale_features")
    if truth.fresh is None or set(first) < set(view.job.parties) or not asked or not told:
        return None
    tables = _Tables(asked[0], told[-1], list(first.values()), truth)
    return tables if tables.fits else None


def _solved(cells: Floats, sums: Floats) -> Floats:
    """One number a person such that they add up to these sums, a small one where that is open."""
    return np.asarray(np.linalg.solve(cells @ cells.T + 1e-3 * np.eye(len(cells)), cells @ sums))


@attack(
    reads=["pair_tables", "additive_moments", "grid_counts"], role="coordinator", target="membership",
    declared="no", knows=_KNOWS,
)  # fmt: skip
def pair_tables_tell_members(view: View, truth: Truth) -> Measure:
    """AUC of whether a person took part, solved for from counts of the cells of pairs of columns."""
    tables = _read(view, truth)
    if tables is None:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    found = _solved(tables.cells(), tables.counts)
    return Measure("auc", auc(found, tables.member), 0.5, 0.5, note=f"{tables.counts.size} counts, {len(found)} people")


@attack(
    reads=["pair_tables", "additive_moments", "grid_counts"], role="coordinator", target="labels",
    declared="no", knows=f"{_KNOWS}, and the labels of those who did not",
)  # fmt: skip
def pair_tables_tell_labels(view: View, truth: Truth) -> Measure:
    """AUC of the labels, solved for from sums of residuals in the cells of pairs of columns."""
    tables = _read(view, truth)
    if tables is None or truth.n_classes != 2 or truth.fresh is None:
        return Measure("auc", 0.5, 0.5, 0.5, note=_SILENT)
    cells, here = tables.cells(), tables.member == 1
    taken = _solved(cells, tables.counts)[here] > 0.5
    left = np.zeros((int(here.sum()), tables.left.shape[1]))
    left[taken] = _solved(cells[here][taken], tables.left)
    fitted = with_intercept(additive_basis(tables.people[here], tables.edges)) @ tables.coefficients
    score = (fitted + left)[:, -1]
    public = LogisticRegression(max_iter=500).fit(tables.people[~here], truth.fresh.labels)
    baseline = max(0.5, auc(public.decision_function(tables.people[here]), truth.labels))
    note = f"{tables.left.shape[0]} sums, {int(taken.sum())} people"
    return Measure("auc", auc(score, truth.labels), 0.5, baseline, note=note)
