"""Labels from what a party hears about its own candidate features (FLAFE): score inversion once more (line 6).

A few columns make hundreds of candidates. FLAFE used to tell a party how much of the target's variance each explains,
which is the purity of its bins: many exact scores of columns that the party knows. Then it told which columns of a wide
table were worth growing from, and the chosen candidates in their order, the best first. Now it tells which candidates
were chosen and which combined columns are kept, in the order of the party's own. Labels are looked for under which the
chosen ones score above all others that do not merely follow them, and above each other where an order was told. The
baseline knows which were chosen, which is the answer, no order, and not which columns were looked at first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsift.audit.exposure import Measure
from fedsift.audit.inversion import BinScore, climb_down, cut, distance, invert, leading
from fedsift.audit.registry import attack
from fedsift.audit.scoring import (
    accuracy,
    auc,
    control_accuracy,
    nothing_to_read,
    own_component,
    own_rows_accuracy,
    standardise,
    up_to_names,
)
from fedsift.audit.views import Truth, View
from fedsift.core.binning import codes_of
from fedsift.engineer.flafe.candidates import OwnFeatures, Pool
from fedsift.engineer.flafe.choice import Alike
from fedsift.engineer.flafe.importance import BINS, feature_codes
from fedsift.engineer.flafe.products import Operands

_MOST = 400  # candidates that are looked at: those told most of, and some others
_LOST = 200  # of those that were not chosen


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


def share(purities: np.ndarray, bins: np.ndarray, rows: int, ones: int) -> np.ndarray:
    """The other way round; features are the last axis."""
    mean = ones / rows
    explained = ((purities - 1 + 2 * mean) / 2 - mean**2) / (mean * (1 - mean))
    return np.asarray(1 - (1 - explained) * (rows - 1) / np.maximum(rows - bins, 1))


@dataclass(frozen=True)
class Choice:
    """Features of a party (rows x features), the chosen ones first and in order, and for each of the others the chosen
    one that it cannot beat."""

    values: np.ndarray
    chosen: int
    beaten_by: np.ndarray
    ordered: bool = True
    first_look: bool = False  # which columns candidates are grown from: no part of the answer

    @classmethod
    def screened(cls, values: np.ndarray, chosen: list[int]) -> Choice:
        """Columns of a wide table that candidates are grown from: as many as there is room for, told in no order."""
        others = np.setdiff1d(np.arange(values.shape[1]), chosen)
        others = others[:: max(1, len(others) // _LOST)]
        last = np.full(len(others), len(chosen) - 1)
        return cls(values[:, [*chosen, *others]], len(chosen), last, ordered=False, first_look=True)

    @classmethod
    def of(cls, values: np.ndarray, chosen: list[int], columns: np.ndarray) -> Choice:
        """The others are those that follow no column of the party's (these were never in question)."""
        alike = Alike.among(values, columns)
        others = np.setdiff1d(np.flatnonzero(~alike.flat & ~alike.column), chosen)
        others = others[:: max(1, len(others) // _LOST)]
        follows = alike.pairs[others][:, chosen]
        beaten_by = np.where(follows.any(axis=1), follows.argmax(axis=1), len(chosen) - 1)
        return cls(values[:, [*chosen, *others]], len(chosen), beaten_by, ordered=chosen != sorted(chosen))

    def broken(self, shares: np.ndarray, ordered: bool) -> np.ndarray:
        """By how much shares (... x features) are not in the order told, or do not have the chosen ones on top."""
        chosen, others = shares[..., : self.chosen], shares[..., self.chosen :]
        if ordered and self.ordered:
            swapped = np.maximum(np.diff(chosen, axis=-1), 0.0).sum(axis=-1)
            return np.asarray(swapped + np.maximum(others - chosen[..., self.beaten_by], 0.0).sum(axis=-1))
        free = self.beaten_by == self.chosen - 1  # who follows whom is of no use without the order
        return np.asarray(np.maximum(others[..., free] - chosen.min(axis=-1)[..., None], 0.0).sum(axis=-1))


def choices_told(view: View) -> list[Choice]:
    """Which columns of a wide table were grown from, which candidates became operands, which combined ones are kept."""
    own, pool, operands = view.last_kept(OwnFeatures), view.last_kept(Pool), view.last_kept(Operands)
    told, found = view.requests("take_operands"), []
    if own is None or not told or not told[-1].content["chosen"]:
        return []
    loaded = [message.content["columns"] for message in view.requests("load_numbers")]
    if len(loaded) > 1:
        raw = np.nan_to_num(standardise(view.own_table.matrix(loaded[0])))[own.train]
        found.append(Choice.screened(raw, [loaded[0].index(name) for name in loaded[-1]]))
    nothing = np.empty((int(own.train.sum()), 0))
    found.append(Choice.of(own.values[own.train], list(told[-1].content["chosen"]), nothing))
    kept = view.requests("compare_matrix")
    if pool is not None and operands is not None and kept:
        count = operands.columns.shape[1]
        combined = [position - count for position in kept[-1].content["kept"] if position >= count]
        if combined:
            known = np.hstack([own.base, operands.columns])[own.train]
            found.append(Choice.of(pool.values[own.train][:, count:], combined, known))
    return found


def labels_of_choices(
    choices: list[Choice], sizes: tuple[int, int], start: np.ndarray, ordered: bool, min_cell: int
) -> np.ndarray:
    """Labels under which what was chosen would have been: first by the first choice alone, then by all."""
    first = _Told(choices[:1], sizes, ordered, min_cell)
    vector = leading(first.score, first.weights)[0]
    ways = [first.nearest(cut(way, sizes[1])) for way in (vector, -vector, start, -start)]
    best = min(ways, key=lambda labels: float(first.loss(first.score.of(labels))))
    return _Told(choices, sizes, ordered, min_cell).nearest(best) if len(choices) > 1 else best


class _Told:
    """Some choices as a loss of labels."""

    def __init__(self, choices: list[Choice], sizes: tuple[int, int], ordered: bool, min_cell: int):
        self.choices, self.sizes, self.ordered = choices, sizes, ordered
        codes = np.hstack([feature_codes(each.values, min_cell)[0] for each in choices]).astype(np.int64)
        self.score, self.bins = BinScore(codes, sizes, "purity"), codes.max(axis=0) + 1
        self.ends = np.cumsum([each.values.shape[1] for each in choices])[:-1]

    def loss(self, purities: np.ndarray) -> np.ndarray:
        shares = share(purities, self.bins, sum(self.sizes), self.sizes[1])
        parts = zip(self.choices, np.split(shares, self.ends, axis=-1))
        return np.asarray(sum(each.broken(part, self.ordered) for each, part in parts))

    @property
    def weights(self) -> np.ndarray:
        """A form for the leading vector: the chosen ones up, the best most, the others down."""
        parts = []
        for each in self.choices:
            up = np.linspace(1.5, 0.5, each.chosen) if self.ordered and each.ordered else np.ones(each.chosen)
            lost = len(each.beaten_by)
            parts += [up / each.chosen, np.full(lost, -1.0 / max(1, lost))]
        return np.concatenate(parts)

    def nearest(self, labels: np.ndarray) -> np.ndarray:
        return climb_down(self.score, self.loss, labels, steps=40)


@attack(
    reads=["choose_operands", "choose_final", "take_operands"], role="passive", target="labels", declared="in words",
    line=6, knows="how candidates are formed and scored, the class sizes and names",
)  # fmt: skip
def importance_of_operands(view: View, truth: Truth) -> Measure:
    """Labels from the importances of the party's own candidate features, or from which of them were chosen."""
    own, told = view.last_kept(OwnFeatures), importances_told(view)
    if own is None or truth.n_classes != 2:
        return nothing_to_read(truth, "no candidates, or more than two classes")
    labels = truth.labels[own.train]
    sizes = int((labels == 0).sum()), int((labels == 1).sum())
    guess, baseline = max(sizes) / len(labels), own_rows_accuracy(view, truth)
    choices = [] if told is not None else choices_told(view)
    if told is not None and (told[1] > 0).any():
        found, note = _from_importances(told[0][own.train], told[1], sizes)
    elif choices:
        start = own_component(view.columns)[own.train]
        min_cell = int(view.job.parameters.get("min_cell", 1))
        found = labels_of_choices(choices, sizes, start, True, min_cell)
        answer = [each for each in choices if not each.first_look]
        hinted = labels_of_choices(answer, sizes, start, False, min_cell)
        baseline = max(baseline, up_to_names(hinted, labels))
        order = "" if any(each.ordered for each in choices) else " in no order"
        note = f"{sum(each.chosen for each in choices)} choices{order}, {len(labels)} rows"
    else:
        return nothing_to_read(truth, "no candidate explains anything, or none was chosen")
    named = found if accuracy(found, labels) >= 0.5 else 1 - found
    control = control_accuracy(view, truth, named) if len(named) == view.own_table.n_rows else None
    return Measure("accuracy", accuracy(named, labels), guess, baseline, control, note, auc(named, labels))


def _from_importances(values: np.ndarray, shares: np.ndarray, sizes: tuple[int, int]) -> tuple[np.ndarray, str]:
    positive = np.flatnonzero(shares > 0)  # a share of none says little
    order = positive[np.argsort(-shares[positive], kind="stable")]
    looked = np.unique(np.concatenate([order[: _MOST // 2], order[_MOST // 2 :: max(1, len(order) // (_MOST // 2))]]))
    codes = codes_of(values[:, looked].T, BINS).T.astype(np.int64)
    score = BinScore(codes, sizes, "purity")
    wanted = purity(shares[looked], codes.max(axis=0) + 1, len(values), sizes[1])
    found = invert(score, wanted, sizes[1], starts=4)
    return found, f"{len(looked)} candidates, {len(values)} rows, distance {distance(score, wanted, found):.1e}"
