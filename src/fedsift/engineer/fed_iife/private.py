"""Fed-IIFE under an epsilon: products of columns that stand out of the noise of two secure sums.

*Neighbours*: two federations that differ in the values of one person, whose row is at one of the parties; row counts,
names and kinds of columns and of classes, and the job are public. *Bounds*: ``engineer/bounds.py``. *Composition*:
zCDP.

1. Ranges, where they are not public: two sets of histograms, sqrt(2 columns) in L2 each.
2. Sums of v v' over all rows, v = (1, columns, target), the columns of a row cut to length 1, the target within +-1:
   a replaced row moves the upper triangle by sqrt(2) (2 + 1/2) at most (L2; as in FLAFE, with one party). They give an
   additive ridge, which the parties are told.
3. Sums of z z' r over all rows, z the centred columns cut to length 1, r the residual within +-1: by 2 at most. A pair
   of columns (or a column with itself) is taken if its sum stands out of the noise, the strongest first, at most
   ``n_pairs``; scores are corrected for what noise adds to a square.

*Noise*: whole numbers, discrete Gaussian, by every party before its sum is masked, at a scale from the job that it has
accepted. Of the K parties among which a sum is masked (a job may name more) each adds a (K - 1)th of the variance:
whoever takes its own part off still faces the whole noise. (A sum of discrete Gaussians is one up to e^(-19 d^2), d the
deviation in steps, which are many: Kairouz, Liu and Steinke 2021.) Each sum is given once: a party that leaves ends the
run, for a second draw would halve the noise. What is chosen afterwards is made from these sums alone; no validation
rows are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedsift.core.checks import check_above_zero, check_size
from fedsift.core.expressions import CLIP, Column, Expression, call, evaluate, parse, scaled
from fedsift.core.federation import Federation
from fedsift.core.labels import amounts
from fedsift.core.party import Party
from fedsift.crypto.dp import whole_gaussian_noise
from fedsift.engineer.bounds import EDGES, Range, SumsPlan, fine_edges, occupied, piece_counts
from fedsift.engineer.noisy_model import BITS, LocalFit, cut_rows, fit_moments, shrunken, unit_rows
from fedsift.errors import DataError, ParameterError
from fedsift.mpc.horizontal_study import agree_columns, class_name, describe_rows
from fedsift.mpc.secure_sum import SecureSum, crowd_of, summed

_HERE, _TARGET = "all", ""


class Plan(SumsPlan):
    """The noise of one run, from public figures alone."""

    first = 0.5

    def count_scale(self, columns: int) -> float:
        """Standard deviation of the noise that protects a row in each of two sets of histograms."""
        return math.sqrt(2 * columns / self.spending.ranges)

    @property
    def moment_scale(self) -> float:
        """The same for the first sums: columns and target of a row have squared length 2 at most."""
        return self.sums_scale(2)

    @property
    def pair_scale(self) -> float:
        return self.residual_scale(2)

    def part(self, scale: float, crowd: int) -> float:
        """Of what one party adds whose sums are masked among so many."""
        return scale / math.sqrt(max(1, crowd - 1))

    def total(self, scale: float) -> float:
        """Of all that is added."""
        return scale * math.sqrt(self.parties / max(1, self.parties - 1))


# --- a party's side --------------------------------------------------------------------------------------------------


@summed(
    "iife.noisy_counts",
    when="epsilon=set",
    about="numbers of rows between given edges of each column and of an amount, with noise",
    receives="control",
    epsilon="epsilon",
    times=2,
)
def noisy_counts(party: Party, *, columns: list[str], amount: bool, edges: np.ndarray) -> np.ndarray:
    """For ranges: ``edges`` has a row for each column, and a last one for an amount that is to be predicted."""
    values = [*party.table.matrix(columns).T, *([_amounts(party)] if amount else [])]
    counts = np.concatenate([piece_counts(each, ends) for each, ends in zip(values, edges, strict=True)])
    plan = Plan.of(party.job)
    scale = plan.part(plan.count_scale(len(values)), crowd_of(party))
    return np.asarray(counts + whole_gaussian_noise(counts.shape, scale))


def _amounts(party: Party) -> np.ndarray:
    label = party.table.label
    if label is None:
        raise DataError(f"party {party.name!r} has no label column")
    return amounts(label, party.name)


def _rows(
    party: Party, formulas: list[str], classes: list[str], low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Columns within their ranges, rows cut to length 1, and the target within +-1."""
    values = np.nan_to_num(evaluate([parse(text) for text in formulas], party.table, party.name), nan=0.0)
    if classes:
        label = party.table.label
        if label is None:
            raise DataError(f"party {party.name!r} has no label column")
        target = np.array([1.0 if class_name(value) == classes[-1] else -1.0 for value in label])
    else:
        check_above_zero(party.name, "noisy_moments", "high less low", high - low)
        target = np.clip((_amounts(party) - (low + high) / 2) / ((high - low) / 2), -1.0, 1.0)
    return unit_rows(np.clip(values / CLIP, -1.0, 1.0)), target


def _whole(values: np.ndarray) -> np.ndarray:
    """In whole steps of 2^-BITS."""
    return np.asarray(np.rint(np.ldexp(values, BITS)))


@summed(
    "iife.noisy_moments",
    when="epsilon=set",
    about="sums of products of columns and the target, with noise",
    receives="control",
    epsilon="epsilon",
    times=1,
)
def noisy_moments(party: Party, *, formulas: list[str], classes: list[str], low: float, high: float) -> np.ndarray:
    rows, target = _rows(party, formulas, classes, low, high)
    joint = _whole(np.hstack([np.ones((len(rows), 1)), rows, target[:, None]]))
    sums = (joint.T @ joint)[np.triu_indices(joint.shape[1])]
    plan = Plan.of(party.job)
    scale = plan.part(plan.moment_scale, crowd_of(party)) * 2.0 ** (2 * BITS)
    return np.asarray(sums + whole_gaussian_noise(sums.shape, scale))


@summed(
    "iife.noisy_pairs",
    when="epsilon=set",
    about="sums of products of two columns and the residual, with noise",
    learns="the additive model, from sums with noise",
    epsilon="epsilon",
    times=1,
)
def noisy_pairs(
    party: Party, *, formulas: list[str], classes: list[str], low: float, high: float, weights: np.ndarray,
    means: np.ndarray, target_mean: float,
) -> np.ndarray:  # fmt: skip
    rows, target = _rows(party, formulas, classes, low, high)
    for name, given in (("weights", weights), ("means", means)):
        check_size(party.name, "noisy_pairs", name, given, rows.shape[1])
    residual = _whole(np.clip(target - target_mean - (rows - means) @ weights, -1.0, 1.0))
    centred = _whole(cut_rows(rows - means))
    sums = ((centred * residual[:, None]).T @ centred)[np.triu_indices(centred.shape[1])]
    plan = Plan.of(party.job)
    scale = plan.part(plan.pair_scale, crowd_of(party)) * 2.0 ** (3 * BITS)
    return np.asarray(sums + whole_gaussian_noise(sums.shape, scale))


OPERATIONS = (noisy_counts.masked, noisy_moments.masked, noisy_pairs.masked)


# --- the coordinator's side ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A pair of columns that stands out, and the feature that they make."""

    formula: str
    first: str
    second: str
    score: float


class PrivateSearch:
    """The conversation of one run under an epsilon."""

    def __init__(self, fed: Federation, plan: Plan, bounds: Mapping[str, tuple[float, float]] | None, most: int):
        self.fed, self.plan, self.bounds, self.most = fed, plan, bounds, most

    def run(self, target_bounds: tuple[float, float] | None) -> tuple[list[Found], list[Found]]:
        """The features, and all pairs by their scores."""
        fed = self.fed
        described = fed.ask(describe_rows, to=fed.parties, task=fed._task)
        numeric, _ = agree_columns(described)
        amount = any(facts["amount"] for facts in described.values())
        classes = [] if amount else sorted({name for facts in described.values() for name in facts["classes"]})
        if not amount and len(classes) != 2:
            raise ParameterError(f"under an epsilon FedIIFE is for amounts and two classes; there are {len(classes)}")
        total = SecureSum(fed)
        ranges, target = self._ranges(total, numeric, amount, target_bounds)
        names = list(ranges)
        if len(names) < 2:
            raise DataError("at least two columns of numbers need a range (bounds)")
        forms = [scaled(Column(name), each.centre, each.half / CLIP) for name, each in ranges.items()]
        told = {"formulas": [str(form) for form in forms], "classes": classes, "low": target.low, "high": target.high}
        width = len(names) + 2
        sums = _square(np.ldexp(total.sum(noisy_moments, (width * (width + 1) // 2,), **told), -2 * BITS), width)
        local = fit_moments(sums, {_HERE: width}, _HERE, fed.n_rows, self.plan.total(self.plan.moment_scale))
        pairs = total.sum(
            noisy_pairs, (len(names) * (len(names) + 1) // 2,), **told, weights=local.weights[_HERE],
            means=local.means[_HERE], target_mean=local.target_mean,
        )  # fmt: skip
        table = _square(np.ldexp(pairs, -3 * BITS), len(names))
        unit = math.sqrt(3 / len(names))
        centred = [
            scaled(Column(name), each.centre + each.half * float(mean) / unit, each.half / CLIP)
            for (name, each), mean in zip(ranges.items(), local.means[_HERE])
        ]
        return self._choose(table, local, names, list(centred))

    def _ranges(
        self, total: SecureSum, numeric: list[str], amount: bool, target_bounds: tuple[float, float] | None
    ) -> tuple[dict[str, Range], Range]:
        """Public, or from two noisy histograms of each column."""
        known = None if target_bounds is None else Range(float(target_bounds[0]), float(target_bounds[1]))
        if self.bounds is not None:
            if amount and known is None:
                raise ParameterError("bounds are public, so the target needs public ones too: set target_bounds")
            ranges = {name: Range(*map(float, self.bounds[name])) for name in numeric if name in self.bounds}
            return ranges, known or Range(-1.0, 1.0)
        searched = [*numeric, *([_TARGET] if amount and known is None else [])]
        coarse = self._counted(total, searched, dict.fromkeys(searched, EDGES))
        fine = self._counted(total, list(coarse), {name: fine_edges(each) for name, each in coarse.items()})
        found = coarse | fine
        if amount and known is None:
            known = found.pop(_TARGET, None)
            if known is None:
                raise DataError("the range of the target does not stand out of the noise: set target_bounds")
        return found, known or Range(-1.0, 1.0)

    def _counted(self, total: SecureSum, names: list[str], edges: dict[str, np.ndarray]) -> dict[str, Range]:
        """Ranges that stand out of a noisy histogram of each column."""
        if not names:
            return {}
        ends, columns = np.array([edges[name] for name in names]), [name for name in names if name != _TARGET]
        counts = total.sum(
            noisy_counts, (len(names), ends.shape[1] - 1), columns=columns, amount=_TARGET in names, edges=ends
        )
        scale = self.plan.total(self.plan.count_scale(len(names)))
        found = {name: occupied(row, scale, edges[name]) for name, row in zip(names, counts)}
        return {name: each for name, each in found.items() if each is not None}

    def _choose(
        self, table: np.ndarray, local: LocalFit, names: list[str], forms: list[Expression]
    ) -> tuple[list[Found], list[Found]]:
        """One pair after the other; what it explains is taken off the others, as if columns were normal."""
        covariance, rows = local.covariances[_HERE], self.fed.n_rows
        scale, count = self.plan.total(self.plan.pair_scale), len(names) * (len(names) + 1) // 2
        variances = np.diag(covariance)
        sizes = np.outer(variances, variances) + covariance**2  # mean of (z_j z_k)^2 less the squared mean, if normal
        sizes = np.maximum(sizes, (scale / rows) ** 2)
        upper = [(j, k) for j in range(len(names)) for k in range(j, len(names))]

        def found(j: int, k: int, value: float) -> Found:
            score = (value**2 - scale**2) / (rows * sizes[j, k])  # what noise adds to a square is taken off
            return Found(str(call("mul", forms[j], forms[k])), names[j], names[k], float(score))

        ranking = sorted((found(j, k, table[j, k]) for j, k in upper if j != k), key=lambda each: -each.score)
        taken: list[Found] = []
        left, open_pairs = table.copy(), set(upper)
        while len(taken) < self.most:
            clear = {(j, k): shrunken(float(left[j, k]), scale**2, count) for j, k in open_pairs}
            j, k = max(clear, key=lambda pair: clear[pair] ** 2 / sizes[pair], default=(0, 0))
            if not clear.get((j, k)):
                break
            taken.append(found(j, k, left[j, k]))
            open_pairs.discard((j, k))
            spread = np.outer(covariance[:, j], covariance[:, k])
            left = left - clear[j, k] / sizes[j, k] * (spread + spread.T) / (1 + (j == k))
        return taken, ranking


def _square(triangle: np.ndarray, width: int) -> np.ndarray:
    """The symmetric matrix of an upper triangle."""
    matrix = np.zeros((width, width))
    matrix[np.triu_indices(width)] = triangle
    return matrix + np.triu(matrix, 1).T
