"""Labels from the importance of a party's own candidate features (FLAFE): score inversion once more (line 6).

FLAFE lets a party choose among the features that it has formed from its own columns, and tells it for each how much of
the target's variance it explains. That is the purity of its bins, and a few columns make hundreds of candidates: many
exact scores of columns that the party knows.
"""

from __future__ import annotations

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.inversion import BinScore, distance, invert
from fedsift.audit.registry import attack
from fedsift.audit.scoring import accuracy, auc, nothing_to_read, own_rows_accuracy
from fedsift.audit.views import Truth, View
from fedsift.core.binning import codes_of
from fedsift.engineer.flafe.candidates import OwnFeatures, Pool
from fedsift.engineer.flafe.importance import _BINS

_MOST = 400  # candidates that are looked at: those told most of, and some others


def importances_told(view: View) -> tuple[np.ndarray, np.ndarray] | None:
    """Features of the party (rows x features) and the importance of each: its candidates, or what it may keep."""
    own, pool = view.last_kept(OwnFeatures), view.last_kept(Pool)
    for name, features in (("choose_operands", own), ("choose_final", pool)):
        told = view.requests(name)
        if told and features is not None and features.values.shape[1] == len(told[-1].content["scores"]):
            return features.values, np.asarray(told[-1].content["scores"])
    return None


def purity(shares: np.ndarray, bins: np.ndarray, rows: int, ones: int) -> np.ndarray:
    """The purity of the bins of a candidate, from its share of a binary target's variance (adjusted for its bins)."""
    mean = ones / rows
    explained = 1 - (1 - shares) * np.maximum(rows - bins, 1) / (rows - 1)
    return np.asarray(2 * (explained * mean * (1 - mean) + mean**2) - 2 * mean + 1)


@attack(
    reads=["choose_operands", "choose_final"], role="passive", target="labels", declared="in words", line=6,
    knows="how candidates are formed and scored, the class sizes and names",
)  # fmt: skip
def importance_of_operands(view: View, truth: Truth) -> Measure:
    """Labels from the importances of the party's own candidate features."""
    own, told = view.last_kept(OwnFeatures), importances_told(view)
    if told is None or own is None or truth.n_classes != 2:
        return nothing_to_read(truth, "no importances, or more than two classes")
    values, shares = told[0][own.train], told[1]
    positive = np.flatnonzero(shares > 0)  # a share of none says little
    order = positive[np.argsort(-shares[positive], kind="stable")]
    looked = np.unique(np.concatenate([order[: _MOST // 2], order[_MOST // 2 :: max(1, len(order) // (_MOST // 2))]]))
    labels = truth.labels[own.train] if own.train.dtype == bool or len(own.train) <= len(truth.labels) else truth.labels
    sizes = int((labels == 0).sum()), int((labels == 1).sum())
    if not len(looked):
        return nothing_to_read(truth, "no candidate explains anything")
    codes = codes_of(values[:, looked].T, _BINS).T.astype(np.int64)
    score = BinScore(codes, sizes, "purity")
    wanted = purity(shares[looked], codes.max(axis=0) + 1, len(labels), sizes[1])
    found = invert(score, wanted, sizes[1], starts=4)
    named = found if accuracy(found, labels) >= 0.5 else 1 - found
    note = f"{len(looked)} candidates, {len(labels)} rows, distance {distance(score, wanted, found):.1e}"
    guess = max(sizes) / len(labels)
    return Measure("accuracy", accuracy(named, labels), guess, own_rows_accuracy(view, truth), note=note,
                   auc=auc(named, labels))  # fmt: skip
