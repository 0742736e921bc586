"""Boosted trees as pure mathematics: objectives, whole-number gradients, histograms and the best split of a node.

XGBoost's second-order objective (Chen and Guestrin 2016). Nothing here knows of parties or encryption. Gradients are
whole numbers (a unit times an integer), so that sums taken under encryption and sums taken in the clear are the same
numbers, and ties between columns fall as they would in one pooled table. Leaf values are computed from the exact
gradients, never from the rounded ones: rounding can only decide between splits whose gains all but agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsift.errors import ParameterError

#: A gradient is rounded to this many bits below the largest one; swarm fitness needs fewer than a final model.
PRECISION_BITS = 20
#: Sums on shares: a gradient sum and a hessian sum share a 64-bit number (sign, 35 and 28 bits).
GRADIENT_SUM_BITS, HESSIAN_SUM_BITS = 35, 28
_LEAST_GAIN = 1e-6  # as xgboost: a smaller gain is rounding
_LEAST_HESSIAN = 1e-16


@dataclass(frozen=True)
class TreeSettings:
    """How a tree grows; names as in xgboost."""

    max_depth: int = 6
    max_leaves: int = 0  # 0: as many as the depth allows
    leaf_wise: bool = False
    gamma: float = 0.0
    reg_lambda: float = 1.0
    min_child_weight: float = 1.0
    learning_rate: float = 0.3
    min_rows: int = 1  # on each side of a split

    @classmethod
    def read(cls, fields: dict[str, Any]) -> TreeSettings:
        if set(fields) != set(cls.__dataclass_fields__):
            raise ParameterError(f"tree settings must have exactly {', '.join(cls.__dataclass_fields__)}")
        return cls(**fields)


# --- objectives ------------------------------------------------------------------------------------------------------


def gradients(task: str, margins: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second derivatives of the loss, rows x outputs, with the conventions of xgboost.

    One output for two classes (logistic loss) and for regression (squared error), one a class otherwise (softmax).
    """
    if task == "regression":
        return margins - target[:, None], np.ones_like(margins)
    chance = probabilities(margins)
    if margins.shape[1] == 1:
        chance = chance[:, 1:]
        return chance - target[:, None], np.maximum(chance * (1 - chance), _LEAST_HESSIAN)
    hot = target[:, None] == np.arange(margins.shape[1])
    return chance - hot, np.maximum(2 * chance * (1 - chance), _LEAST_HESSIAN)


def probabilities(margins: np.ndarray) -> np.ndarray:
    """Class probabilities from raw scores."""
    if margins.shape[1] == 1:
        chance = 1 / (1 + np.exp(-np.clip(margins, -500, 500)))
        return np.hstack([1 - chance, chance])
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def loss(task: str, margins: np.ndarray, target: np.ndarray) -> float:
    """What early stopping watches: mean log loss or squared error."""
    if task == "regression":
        return float(((margins[:, 0] - target) ** 2).mean())
    chance = probabilities(margins)[np.arange(len(target)), target.astype(np.int64)]
    return float(-np.log(np.maximum(chance, 1e-15)).mean())


def start_margin(
    task: str, target: np.ndarray, outputs: int, base_score: float | None, noise: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """The score before the first tree: the mean (its log odds for two classes), or ``base_score`` as in xgboost.

    More than two classes start at the logarithms of their shares, less the mean of these (xgboost 3.2). ``noise`` is
    added to the number of rows of each class (of the second, where there are two). Means are weighted.
    """
    counted = np.ones(len(target)) if weights is None else weights
    rows = max(float(counted.sum()), 1e-12)
    added = np.zeros(outputs) if noise is None else noise
    least = 1e-7 if noise is None else 0.5 / max(1, len(target))
    if outputs > 1:
        if base_score is not None:
            return np.full(outputs, base_score)
        shares = (np.bincount(target.astype(np.int64), weights=counted, minlength=outputs) + added) / rows
        logs = np.log(np.maximum(shares, least))
        return np.asarray(logs - logs.mean())
    if base_score is not None:
        mean = float(base_score)
    else:
        mean = float(np.average(target, weights=weights))
        mean = mean if noise is None else (float(target.sum()) + float(added[0])) / rows
    if task == "regression":
        return np.array([mean])
    mean = min(max(mean, least), 1 - least)
    return np.array([np.log(mean / (1 - mean))])


# --- whole numbers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Units:
    """What one step of the whole-number gradients is worth."""

    gradient: float
    hessian: float


def whole_numbers(g: np.ndarray, h: np.ndarray, bits: int, largest: float | None = None) -> tuple[np.ndarray, Units]:
    """Rows x (outputs gradients, outputs hessians) as integers of magnitude up to ``2 ** bits``.

    Units are powers of two, so that halves and quarters (the first tree) stay exact. A hessian is at least one unit:
    a group of rows is empty if and only if its sum is zero. ``largest``: a bound of the gradients, where their unit
    must not depend on them.
    """
    units = Units(_unit(g if largest is None else np.array([largest]), bits), _unit(h, bits))
    return np.hstack([np.rint(g / units.gradient), np.maximum(np.rint(h / units.hessian), 1)]).astype(np.int64), units


def whole_for_sums(g: np.ndarray, h: np.ndarray, largest: float | None = None) -> tuple[np.ndarray, Units]:
    """The same with units from the totals: any sum of gradients is below 2^35 in size, and of hessians below 2^28,
    whatever the number of rows, so that both fit into one ring element. ``largest``: a bound of the sums of gradients,
    where their unit must not depend on them."""
    room = 2.0 ** (GRADIENT_SUM_BITS - 1)
    sizes = np.abs(g) if largest is None else np.array([[min(largest, room)]])
    units = Units(_sum_unit(sizes, GRADIENT_SUM_BITS - 1), _sum_unit(h, HESSIAN_SUM_BITS - 1))
    return np.hstack([np.rint(g / units.gradient), np.maximum(np.rint(h / units.hessian), 1)]).astype(np.int64), units


def _sum_unit(sizes: np.ndarray, bits: int) -> float:
    """A power of two that leaves room for rounding: a sum of at most 2^bits units, and half a unit for each row."""
    largest = float(sizes.sum(axis=0).max(initial=0.0)) if sizes.size else 0.0
    return 2.0 ** ((np.ceil(np.log2(largest)) if largest > 0 else 0) - bits)


def _unit(values: np.ndarray, bits: int) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return 2.0 ** ((np.ceil(np.log2(largest)) if largest > 0 else 0) - bits)


def leaf_value(g: np.ndarray, h: np.ndarray, settings: TreeSettings) -> np.ndarray:
    """Of the rows that reached the leaf, from exact gradients: one number an output."""
    if len(g) == 0:
        return np.zeros(g.shape[1])
    return np.asarray(-settings.learning_rate * g.sum(axis=0) / (h.sum(axis=0) + settings.reg_lambda))


# --- histograms ------------------------------------------------------------------------------------------------------


@dataclass
class Histogram:
    """Sums over the rows of one node, by groups of bins, for all columns of one party, column after column."""

    sums: np.ndarray  # groups x (2 * outputs)
    groups: np.ndarray  # number of groups of each column
    ordered: np.ndarray  # of each column: may be cut between neighbours (else any subset: categories)
    missing: np.ndarray  # of each column: its last group holds missing values
    rows: np.ndarray | None = None  # rows in each group, where they are known

    def coarsened(self, groups: np.ndarray, into: np.ndarray, missing: np.ndarray) -> Histogram:
        """With groups joined: group ``i`` of this histogram becomes part of group ``into[i]`` of its column."""
        starts = np.concatenate([[0], np.cumsum(groups)[:-1]])
        place = np.repeat(starts, self.groups) + into
        sums = np.zeros((int(groups.sum()), self.sums.shape[1]), dtype=np.int64)
        np.add.at(sums, place, self.sums)
        return Histogram(sums, groups, self.ordered, missing)

    def minus(self, part: Histogram) -> Histogram:
        """What is left for the sibling."""
        rows = None if self.rows is None or part.rows is None else self.rows - part.rows
        return Histogram(self.sums - part.sums, part.groups, part.ordered, part.missing, rows)


@dataclass
class Split:
    gain: float
    column: int
    left: np.ndarray  # of the column's groups, which go left
    unseen_left: bool  # where values go that training did not have (missing ones, new categories)


def best_split(
    hist: Histogram, total: np.ndarray, units: Units, settings: TreeSettings, variance: float = 0.0,
    noise: np.ndarray | None = None,
) -> Split | None:  # fmt: skip
    """The split of highest gain, or ``None``. Equal gains: the first column, its first cut, missing values right.

    ``noise``: 2 x groups x (2 * outputs), for what goes left at a cut with missing values right and left; of a category
    for its own sums.
    """
    if len(hist.sums) == 0:
        return None
    column_of = np.repeat(np.arange(len(hist.groups)), hist.groups)
    starts = np.concatenate([[0], np.cumsum(hist.groups)[:-1]]).astype(np.int64)
    order = _cut_order(hist, column_of, units, settings)
    is_missing = np.zeros(len(column_of), dtype=bool)
    is_missing[(starts + hist.groups - 1)[hist.missing & (hist.groups > 0)]] = True
    table = hist.sums if hist.rows is None else np.column_stack([hist.sums, hist.rows])
    width = hist.sums.shape[1]
    cuts = hist.ordered[column_of][:, None]
    if noise is not None:
        table = table.copy()
        table[:, :width] += np.where(cuts, 0, noise[0])
        order = _cut_order(replace(hist, sums=table[:, :width]), column_of, units, settings)
    left = _running(np.where(is_missing[:, None], 0, table)[order], starts, column_of)
    exact = left.copy()
    if noise is not None:
        left[:, :width] += np.where(cuts, noise[0], 0)
        exact[:, :width] += np.where(cuts, noise[1], 0)
    if hist.rows is not None:
        total = np.append(total, len_total(hist))
    forward = cut_gains(left, total, width, units, settings, ~is_missing, variance)
    backward = np.full(len(forward), -np.inf)
    if is_missing.any():
        extra = np.zeros((len(hist.groups), table.shape[1]), dtype=np.int64)
        extra[column_of[is_missing]] = table[is_missing]
        usable = ~is_missing & (extra[column_of][:, : hist.sums.shape[1]].any(axis=1))
        backward = cut_gains(exact + extra[column_of], total, width, units, settings, usable, variance)
    place, with_missing = pick(forward, backward, column_of)
    gain = (backward if with_missing else forward)[place]
    if not worth_it(gain, settings):
        return None
    column = int(column_of[place])
    chosen = np.zeros(int(hist.groups[column]), dtype=bool)
    chosen[order[starts[column] : place + 1] - starts[column]] = True
    if hist.missing[column]:
        chosen[-1] = with_missing
    return Split(float(gain), column, chosen, with_missing)


def _running(table: np.ndarray, starts: np.ndarray, column_of: np.ndarray) -> np.ndarray:
    total = np.cumsum(table, axis=0)
    before = np.vstack([np.zeros((1, table.shape[1]), dtype=total.dtype), total])[starts]
    return np.asarray(total - before[column_of])


def _cut_order(hist: Histogram, column_of: np.ndarray, units: Units, settings: TreeSettings) -> np.ndarray:
    """Groups in the order in which cuts run through them: categories by their gradient ratio (Fisher 1958)."""
    if hist.ordered.all():
        return np.arange(len(column_of))
    outputs = hist.sums.shape[1] // 2
    ratio = (
        hist.sums[:, :outputs] * units.gradient / (hist.sums[:, outputs:] * units.hessian + settings.reg_lambda + 1e-12)
    )
    # One ordering must serve all outputs: that of the output whose ratios spread most.
    key = ratio[:, int(np.abs(ratio).sum(axis=0).argmax())]
    key = np.where(hist.ordered[column_of], np.arange(len(column_of)), key)
    return np.lexsort((key, column_of))


def cut_gains(
    left: np.ndarray, total: np.ndarray, width: int, units: Units, settings: TreeSettings, usable: np.ndarray,
    variance: float | np.ndarray = 0.0,
) -> np.ndarray:  # fmt: skip
    """The gain of each cut, from what goes left (gradients, hessians, and rows where they are known) and the total.

    ``total`` is one node's, or one for each cut, and ``variance`` likewise; ``width`` is the number of gradients and
    hessians in a line. Noise of this ``variance`` in the gradient sums would be a gain of its own: twice that is taken
    off.
    """
    outputs = width // 2
    whole = np.atleast_2d(total)
    right = whole - left
    fits = usable.copy()
    if left.shape[1] > width:
        fits &= (left[:, width] >= settings.min_rows) & (right[:, width] >= settings.min_rows)
    value = np.zeros(len(left))
    for side in (left, right):
        weight = side[:, outputs:width] * units.hessian
        if outputs == 1:
            fits &= (side[:, 1] > 0) & (weight[:, 0] >= settings.min_child_weight)
        else:
            fits &= (side[:, outputs:width] > 0).all(axis=1) & (weight.mean(axis=1) >= settings.min_child_weight)
        value += _score(side[:, :outputs] * units.gradient, weight, settings)
        if np.any(variance):
            value -= (2 * variance / (weight + settings.reg_lambda + 1e-12)).sum(axis=1)
    before = _score(whole[:, :outputs] * units.gradient, whole[:, outputs:width] * units.hessian, settings)
    return np.where(fits, value - before, -np.inf)


def least_gain(settings: TreeSettings) -> float:
    """The gain that a cut must have at least."""
    return max(_LEAST_GAIN, settings.gamma)


def worth_it(gain: float, settings: TreeSettings) -> bool:
    """Whether a node is cut for this gain."""
    return gain > _LEAST_GAIN and gain >= settings.gamma


def len_total(hist: Histogram) -> int:
    """Rows of the node: every column counts each once."""
    return 0 if hist.rows is None or not len(hist.groups) else int(hist.rows[: hist.groups[0]].sum())


def _score(g: np.ndarray, h: np.ndarray, settings: TreeSettings) -> np.ndarray:
    weight = h + settings.reg_lambda
    terms = np.divide(g * g, weight, out=np.zeros_like(weight), where=weight > 0)
    return np.asarray(terms[:, 0] if terms.shape[1] == 1 else terms.sum(axis=1))


def pick(forward: np.ndarray, backward: np.ndarray, column_of: np.ndarray) -> tuple[int, bool]:
    """First best cut over columns; missing values to the left only where that is better in the same column."""
    first, second = int(forward.argmax()), int(backward.argmax())
    if backward[second] < forward[first] or not np.isfinite(backward[second]):
        return first, False
    if backward[second] == forward[first] and column_of[second] >= column_of[first]:
        return first, False
    same = np.flatnonzero((backward == backward[second]) & (column_of == column_of[second]))
    return int(same[-1]), True
