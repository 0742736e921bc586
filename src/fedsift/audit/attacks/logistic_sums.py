"""Who took part in a logistic model, from sums that the coordinator opens in its first step.

At coefficients 0 every probability is a half: the weighted products X'WX are a quarter of the correlations, and the
sums X'(p - y) are a half of the differences of the two classes. Both are of all columns, exact to many digits.
Everybody who took part pulls them a little to itself (Homer et al. 2008); later steps weigh rows by what the
coordinator does not know. Read here: the label holder's own columns, which it sums by itself; those of other parties
are opened to the same coordinator in the same form.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.scoring import auc
from fedsift.audit.views import Truth, View

_QUARTER, _FAR = 0.25, 5


@attack(
    reads=["right_sides", "own_gradient"], role="coordinator", target="membership", declared="no",
    knows="whole records and labels of people, some of whom took part, and a public sample",
)  # fmt: skip
def logistic_sums_tell_members(view: View, truth: Truth) -> Measure:
    """AUC of whether a person took part, from products and class differences of the label holder's columns."""
    silent = Measure("auc", 0.5, 0.5, 0.5, note="nothing to read: no such sums, or there is no public sample")
    if truth.fresh is None or truth.n_classes != 2:
        return silent
    rows, half, values, widths = len(truth.labels), len(truth.fresh.labels) // 2, [], []
    for party, places, products, slopes in _first_steps(view):
        inside, outside = truth.columns[party][:, places], truth.fresh.columns[party][:, places]
        centre, spread = np.nanmean(outside[:half], axis=0), np.maximum(np.nanstd(outside[:half], axis=0), 1e-9)
        people = np.clip(np.nan_to_num((np.vstack([inside, outside]) - centre) / spread), -_FAR, _FAR)
        classes = 0.5 - np.concatenate([truth.labels, truth.fresh.labels])
        public, asked = slice(rows, rows + half), np.r_[0:rows, rows + half : len(people)]
        member = np.repeat([1, 0], [rows, len(asked) - rows])
        pull = products / (_QUARTER * rows) - people[public].T @ people[public] / half
        values.append(auc(np.einsum("ij,jk,ik->i", people[asked], pull, people[asked], optimize=True), member))
        if slopes is not None:
            gap = slopes / rows - people[public].T @ classes[public] / half
            values.append(auc((people[asked] * classes[asked, None]) @ gap, member))
        widths.append(len(places))
    return Measure("auc", max(values), 0.5, 0.5, note=f"{max(widths)} columns") if values else silent


def _first_steps(view: View) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray | None]]:
    """The label holder, its columns, their weighted products and sums with residuals, in the first step."""
    for message in view.replies("open_logistic"):
        places, session = np.asarray(message.content, dtype=np.int64), message.session
        products = [m for m in view.replies("right_sides", session) if m.party == message.party]
        if products and len(products[0].content["own"]) == len(places) + 1:  # the last is the constant
            names = ("open_residuals", "own_gradient")
            slopes = [m for name in names for m in view.replies(name, session) if m.party == message.party]
            own = np.asarray(products[0].content["own"], dtype=np.float64)[:-1, :-1]
            first = np.asarray(slopes[0].content["own"], dtype=np.float64)[:-1, 0] if slopes else None
            yield message.party, places, own, first
