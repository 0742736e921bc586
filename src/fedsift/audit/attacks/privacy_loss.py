"""The privacy loss of a release, measured from below on two neighbouring tables.

Where a release is epsilon-private, no event is more than e^epsilon times as likely on a table as on a neighbour of it.
So an event that is gives a lower bound on epsilon (Jagielski et al. 2020; Ding et al. 2018): draw the release often on
both, choose on one half of the draws the event that tells them apart best, count it on the other half, bound the two
probabilities by Clopper and Pearson. The bound holds with the given confidence, whatever the release is.

What it does not say: so many draws cannot show more than about log(draws) - 2, and a loss that needs a rare event stays
unseen. ``movement`` is the other side: how far the release moves without its noise, which over the noise's scale is the
epsilon of the worst event. A release of many values can have a large movement and a small loss in nearly every draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta

from fedsift.audit.exposure import Measure
from fedsift.audit.registry import attack
from fedsift.audit.views import Truth, View
from fedsift.core.expressions import evaluate_columns, parse
from fedsift.core.table import Table
from fedsift.crypto.dp import rho_to_epsilon
from fedsift.engineer.flafe.features import BOUND
from fedsift.engineer.flafe.privacy import Plan, sensitivity

Release = Callable[[Any], np.ndarray]
Statistic = Callable[[np.ndarray], float]

_DRAWS = 2_000
_FAR = 1e6  # the neighbour's row lies so many times as far out as the farthest value


@dataclass(frozen=True)
class Loss:
    """A lower bound on epsilon, and how it was counted."""

    epsilon: float
    draws: int
    hits: tuple[int, int]  # of the event, on the table where it is likelier and on the other
    confidence: float


def epsilon_from_below(
    release: Release, table: object, neighbour: object, draws: int, *, statistic: Statistic | None = None,
    delta: float = 0.0, confidence: float = 0.95,
) -> Loss:  # fmt: skip
    """A lower bound on the epsilon of ``release`` (at ``delta``), from ``draws`` draws on each of two tables.

    Parameters
    ----------
    release : makes a vector of numbers from a table, with fresh noise at each call.
    statistic : one number from a release, by which the tables are told apart; where the law of the noise is known the
        likelihood ratio (``laplace_ratio``) is the best there is. None: a direction that the first half of the draws
        shows, which is weak where a release has more values than there are draws.
    """
    half = draws // 2
    if statistic is not None:
        first, second = ([statistic(np.ravel(release(data))) for _ in range(draws)] for data in (table, neighbour))
    else:
        drawn = [np.array([np.ravel(release(data)) for _ in range(draws)]) for data in (table, neighbour)]
        scores = _told_apart(drawn[0][:half], drawn[1][:half])
        first, second = (scores(each).tolist() for each in drawn)
    one, other = np.array(first, dtype=np.float64), np.array(second, dtype=np.float64)
    event = _best_event(one[:half], other[:half], delta)
    likely, rare = (other, one) if event.on_second else (one, other)
    hits = event.count(likely[half:]), event.count(rare[half:])
    return Loss(_bound(*hits, draws - half, delta, confidence), draws, hits, confidence)


def laplace_ratio(first: np.ndarray, second: np.ndarray, scale: float) -> Statistic:
    """The log of how much likelier a release is on the second table, where both are known and the noise is Laplace."""
    return lambda seen: float((np.abs(seen - first) - np.abs(seen - second)).sum() / scale)


def gaussian_ratio(first: np.ndarray, second: np.ndarray) -> Statistic:
    """The same for Gaussian noise, up to its scale."""
    direction = second - first
    return lambda seen: float((seen - first) @ direction)


def _told_apart(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A number for each draw: along the difference of the means, each component by its own spread.

    Medians and mean deviations, since noise may have heavy tails.
    """
    middle = np.median(first, axis=0)
    spread = np.abs(first - middle).mean(axis=0) + np.abs(second - np.median(second, axis=0)).mean(axis=0)
    direction = (np.median(second, axis=0) - middle) / np.maximum(spread, 1e-300) ** 2
    scale = float(np.abs(direction).max())
    direction = direction / scale if scale > 0 else direction

    def scores(draws: np.ndarray) -> np.ndarray:
        return np.asarray((draws - middle) @ direction)

    return scores


@dataclass(frozen=True)
class _Event:
    """A score at least, or at most, some threshold."""

    threshold: float
    above: bool
    on_second: bool  # where it is likelier

    def count(self, scores: np.ndarray) -> int:
        return int((scores >= self.threshold if self.above else scores <= self.threshold).sum())


def _best_event(first: np.ndarray, second: np.ndarray, delta: float) -> _Event:
    """The event with the largest bound, on the draws that may be looked at."""
    best, chosen = -math.inf, _Event(0.0, True, True)
    for threshold in np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0.005, 0.995, 199))):
        for above in (True, False):
            for on_second in (True, False):
                event = _Event(float(threshold), above, on_second)
                likely, rare = (second, first) if on_second else (first, second)
                bound = _bound(event.count(likely), event.count(rare), len(first), delta, 0.95)
                if bound > best:
                    best, chosen = bound, event
    return chosen


def _bound(likely: int, rare: int, draws: int, delta: float, confidence: float) -> float:
    """log of the least ratio of two probabilities that is compatible with the counts; at least 0."""
    risk = (1 - confidence) / 2  # each of the two bounds may fail
    low = float(beta.ppf(risk, likely, draws - likely + 1)) if likely else 0.0
    high = float(beta.ppf(1 - risk, rare + 1, draws - rare)) if rare < draws else 1.0
    return math.log((low - delta) / high) if low - delta > high else 0.0


def movement(exact: Release, table: object, neighbour: object) -> float:
    """How far the release without its noise moves in all (L1): what the noise's scale times epsilon must cover."""
    return float(np.abs(np.ravel(exact(table)) - np.ravel(exact(neighbour))).sum())


@attack(
    reads=["multiply_noisy"],
    role="passive",
    target="membership",
    knows="the other rows of the table, and the holder's column",
    declared="no",
    line=12,
)
def combinations_lose_more(view: View, truth: Truth) -> Measure:
    """Epsilon of one released product a*b, from below, beside the one that its noise was made for (the baseline).

    The operand's formula, as the party told it, is computed on its table and on one with another row, so that whatever
    that row moves is seen. Noise is drawn anew at the scale of the accepted job, and the holder's column is a stand-in
    (normal): the party does not have it.
    """
    asked, told = view.requests("multiply_noisy"), view.replies("bounded_operands")
    if not asked or not told:
        return Measure("epsilon", 0.0, 0.0, 0.0, note="nothing to read: the job claims no epsilon")
    job = view.job_of(asked[0].session)
    columns = int(view.requests("plan_columns")[-1].content["columns"])
    plan, delta = Plan.of(job), float(job.parameters["delta"])
    scale = plan.column_scale("ab", columns)
    formula = told[-1].content[int(np.ravel(asked[0].content["products"][0]["columns"])[0])]
    other = np.clip(np.random.default_rng(0).standard_normal(view.own_table.n_rows), -BOUND, BOUND)
    own = operand(view.own_table, formula)
    row = int(np.argmax(np.abs(other) * (BOUND - own)))  # the row that moves farthest when it goes to the upper end
    here, there = own * other, operand(view.own_table, formula, far=row) * other
    generator = np.random.default_rng()
    loss = epsilon_from_below(
        lambda exact: exact + generator.normal(0, scale, len(exact)), here, there, _DRAWS,
        statistic=gaussian_ratio(here, there), delta=delta,
    )  # fmt: skip
    moved = float(np.linalg.norm(here - there))
    note = f"the release moves {moved / sensitivity('ab'):.2f} times as far as its noise was made for; {loss.hits} hits"
    return Measure("epsilon", loss.epsilon, 0.0, rho_to_epsilon(plan.spending.rest / columns, delta), note=note)


def operand(table: Table, formula: str, far: int | None = None) -> np.ndarray:
    """An operand of a table, or of the same with one row far out."""
    frame = pd.DataFrame({name: table.values(name).astype(float) for name in table.numeric_columns})
    if far is not None:
        frame.iloc[far] = frame.abs().max() * _FAR + 1
    return np.nan_to_num(evaluate_columns([parse(formula)], frame)[:, 0], nan=0.0)
