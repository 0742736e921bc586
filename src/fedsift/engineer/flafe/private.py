"""FLAFE under an epsilon: nothing leaves a party but its column names, and numbers with noise (`privacy.py`).

Operands are the party's own columns, the first ``n_operands`` that have a range (`engineer/bounds.py`): to choose among
candidates by importance would be a release of its own for each of hundreds of them. No rows are held out.

``protection="columns"``: every product of two operands of different parties, with noise, to its holder, who keeps all.

``protection="statistics"``: a linear model with cross-party products, from two noisy sets of sums.

1. Sums of products of all columns and the target (`joint_moments.py`) give means, variances, and a ridge whose penalty
   is the size of the noise. Parties learn their weights.
2. The residual is never put together: every party has its part of it, and for each two parties the others' parts are
   split between them (`shared_residual.py`). Sums of x y r for all products of centred columns are opened once.
3. At most ``max_iter`` products enter the model, one after the other: the one whose sum stands out most, as long as
   noise alone would not show it (the universal threshold), shrunk by what noise explains. What it takes off the other
   sums is known from 1 if parties' columns are independent of each other; as they are not, ``step`` of it is taken.

Predictions are read by the label holder, as without epsilon: they are outside of it (docs/flafe.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import numpy as np

from fedsift.core.arguments import Between
from fedsift.core.expressions import Column, scaled
from fedsift.core.federation import Federation
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.engineer.bounds import Range, bounded_columns, ranges_of, target_range
from fedsift.engineer.flafe.candidates import evaluate_at, own_target
from fedsift.engineer.flafe.features import BOUND
from fedsift.engineer.flafe.grid import Layout
from fedsift.engineer.flafe.joint_moments import JointMatrices, JointProducts
from fedsift.engineer.flafe.privacy import SCORE_LIMIT, Plan
from fedsift.engineer.flafe.products import Combined, NoisyColumns, Operands
from fedsift.engineer.flafe.shared_residual import (
    NumberedPair,
    Residual,
    ResidualShares,
    Sides,
    pair_name,
    read_pairs,
    split_residual,
    take_shares,
)
from fedsift.engineer.flafe.statistics import Factor, LocalModel, ModelPart, Term, keep_part
from fedsift.engineer.noisy_model import BITS, LocalFit, cut_rows, fit_moments, shrunken, unit_rows
from fedsift.errors import DataError, SecurityError
from fedsift.mpc.ring import from_ring, to_ring

WEIGHT_BITS = 9  # after the point


@dataclass(frozen=True)
class PrivateModel:
    """What a party keeps of step 1 for step 2: its rows, its centre, and the range of the target at its holder."""

    rows: np.ndarray
    target: np.ndarray
    scale: Range | None


# --- a party's side --------------------------------------------------------------------------------------------------


@operation(
    "flafe.bounded_operands",
    when=("protection=columns|statistics", "epsilon=set"),
    discloses="plain",
    about="names of its columns of numbers that have a range, and the ranges: public, or drawn under the epsilon",
    opened="plain: names of columns of numbers, and ranges that are public or differentially private",
    reply=[str],
    needs=("column names",),
    times=1,
)
def bounded_operands(party: Party, *, owner: str) -> list[str]:
    """Own columns within their ranges, as operands; formulas."""
    names = bounded_columns(party.job, party.table.numeric_columns, owner)[: party.job.parameters["n_operands"]]
    columns = party.table.matrix(names)
    ranges = ranges_of(party.job, columns, names, owner, _paid(party, len(names)))
    formulas = [str(scaled(Column(name, owner), r.centre, r.half / BOUND)) for name, r in ranges.items()]
    party.keep(Operands(evaluate_at(party, formulas)))
    party.keep(Combined([]))
    party.keep(LocalModel(formulas, np.empty((party.n_rows, 0))))
    return formulas


def _paid(party: Party, columns: int) -> int:
    """In how many parts this party's ranges share what all parties' ranges may cost: a person is at every party."""
    return (columns + (party.job.role_of(party.name) == "active")) * len(party.job.parties)


@operation(
    "flafe.plan_columns",
    when="epsilon=set",
    discloses="control",
    about="acknowledgement",
    times=1,
    after="flafe.bounded_operands",
)
def plan_columns(party: Party, *, columns: Annotated[int, Between(1, 1_000_000)]) -> None:
    """Take note of how many columns all parties release together: the noise is made for so many and no more."""
    plan = Plan.of(party.job)
    scales = {name: plan.column_scale(name, columns) for name in party.job.parameters["functions"]}
    party.keep(NoisyColumns(scales, columns, columns))


@operation(
    "flafe.noisy_moments",
    when="epsilon=set",
    discloses="control",
    about="how many columns it brings into the sums",
    reply=int,
    times=1,
    after="flafe.bounded_operands",
)
def noisy_moments(party: Party) -> int:
    """Own rows for the first sums, with the noise of the accepted job; the label holder adds a one and the target."""
    rows, job = unit_rows(party.held(Operands).columns / BOUND), party.job
    parts, target, scale = [rows], np.empty(0), None
    if job.role_of(party.name) == "active":
        values, classes = own_target(party, job.task)
        scale = Range(0.0, 1.0) if classes else target_range(job, values, party.name, _paid(party, rows.shape[1]))
        target = np.clip((values - scale.centre) / scale.half, -1.0, 1.0)
        parts = [np.ones((len(rows), 1)), rows, target[:, None]]
    ring = to_ring(np.hstack(parts), BITS, 2.0)
    party.keep(PrivateModel(rows, target, scale))
    party.keep(JointMatrices({"moments": ring}, Plan.of(job).moment_scale * 2.0 ** (2 * BITS)))
    return int(ring.shape[1])


@operation(
    "flafe.noisy_residual",
    when="epsilon=set",
    discloses="control",
    receives="aggregate",
    about="acknowledgement",
    learns="weights of its own columns and their means, from sums with noise",
    times=1,
    after="flafe.noisy_moments",
)
def noisy_residual(
    party: Party, *, weights: np.ndarray, means: np.ndarray, target_mean: float, intercept: float
) -> None:
    """Own part of the residual, and own centred columns, for the second sums."""
    own, model = party.held(PrivateModel), party.held(LocalModel)
    if weights.shape != means.shape or weights.shape != (own.rows.shape[1],):
        raise DataError(f"party {party.name!r} was told weights for another number of columns than it has")
    score = (own.rows - means) @ weights
    if own.scale is None:
        part = -np.clip(score, -SCORE_LIMIT, SCORE_LIMIT)
        model.weights = weights
    else:
        part = np.clip(own.target - target_mean - score, -1.0, 1.0)
        model.centre, model.deviation = own.scale.centre, own.scale.half
        model.weights = np.append(weights, intercept)
    model.means = means
    party.keep(Residual(to_ring(part, BITS, 2.0)))
    party.keep(Sides(to_ring(cut_rows(own.rows - means), BITS, 2.0)))


@operation(
    "flafe.noisy_products",
    when="epsilon=set",
    discloses="control",
    about="acknowledgement",
    times=1,
    after="flafe.noisy_residual",
)
def noisy_products(party: Party, *, pairs: list[list[str | int]]) -> None:
    """Own columns and own columns times own share of the residual, for each pair that this party is in."""
    sides, shares = party.held(Sides).columns, party.held(ResidualShares).by_pair
    matrices = {}
    for first, second, _ in read_pairs(party, pairs):
        if party.name in (first, second):
            name = pair_name(first, second)
            parts = [sides * shares[name][:, None], sides]
            matrices[name] = np.vstack(parts if party.name == first else parts[::-1])
    if len(matrices) >= len(party.job.parties):
        raise SecurityError(f"party {party.name!r}: more pairs were named than there are other parties")
    party.keep(JointMatrices(matrices, Plan.of(party.job).product_scale * 2.0 ** (3 * BITS)))


@operation(
    "flafe.keep_private",
    when="epsilon=set",
    discloses="control",
    about="acknowledgement",
    times=1,
    after="flafe.noisy_residual",
)
def keep_private(party: Party, *, model: str, factors: list[Annotated[int, Between(0, 200)]]) -> None:
    """Remember, at this site, own weights and the own factors of cross-party terms."""
    own = party.held(LocalModel)
    kept = [Factor(own.formulas[position], 1) for position in factors]
    keep_part(party, model, ModelPart(own.formulas, own.weights, own.centre, own.deviation, kept, BITS, own.means))


def private_part(party: Party, part: ModelPart) -> tuple[np.ndarray, np.ndarray]:
    """Own rows as the weights take them, and own factors, on the rows of the view."""
    rows = unit_rows(evaluate_at(party, part.formulas) / BOUND)
    factors = cut_rows(rows - part.means)[:, [part.formulas.index(factor.formula) for factor in part.factors]]
    return rows, factors


# --- the coordinator's side ------------------------------------------------------------------------------------------


def agree_operands(fed: Federation, layout: Layout) -> dict[str, list[str]]:
    """Formulas of the operands of each column group."""
    each = layout.each({group: {"owner": group} for group in layout.groups})
    formulas: dict[str, list[str]] = fed.ask(bounded_operands, to=layout.parties, each=each)
    operands = {group: formulas[layout.members(group)[0]] for group in layout.groups}
    for name, told in formulas.items():
        if told != operands[layout.group_of(name)]:
            raise DataError(f"party {name!r} has other columns with a range than its column group")
    if sum(map(bool, operands.values())) < 2:
        raise DataError("at least two parties need columns of numbers with a range (bounds)")
    return operands


class PrivateRun:
    """The conversation of ``protection="statistics"`` under an epsilon."""

    def __init__(self, fed: Federation, operands: dict[str, list[str]], plan: Plan, most: int, step: float):
        self.fed, self.operands, self.plan, self.most, self.step = fed, operands, plan, most, step
        self.rows = fed.n_rows
        self.products = JointProducts(fed, fed.parties)
        self.terms: list[Term] = []

    def fit(self, model: str) -> None:
        fed = self.fed
        widths: dict[str, int] = fed.ask(noisy_moments, to=fed.parties)
        sums = from_ring(self.products.gram(widths, "moments"), 2 * BITS)
        local = fit_moments(sums, widths, fed.active, self.rows, math.sqrt(2) * self.plan.moment_scale)
        told = {n: {"weights": local.weights[n], "means": local.means[n]} for n in fed.parties}
        intercept = local.target_mean - sum(float(local.weights[n] @ local.means[n]) for n in fed.parties)
        fed.ask(noisy_residual, to=fed.parties, each=told, target_mean=local.target_mean, intercept=intercept)
        pairs: list[NumberedPair] = [
            (a, b, self.products.number()) for a, b in combinations(fed.parties, 2)
            if self.operands[a] and self.operands[b]
        ]  # fmt: skip
        sent = fed.ask(split_residual, to=fed.parties, pairs=pairs)
        parts = {n: {"sent": {s: part[n] for s, part in sent.items() if n in part}} for n in fed.parties}
        fed.ask(take_shares, to=fed.parties, each=parts, pairs=pairs, senders=fed.parties, weight=1)
        fed.ask(noisy_products, to=fed.parties, pairs=pairs)
        size = {name: len(formulas) for name, formulas in self.operands.items()}
        opened = self.products.open([(a, pair_name(a, b), size[a], b, pair_name(a, b), size[b]) for a, b, _ in pairs])
        self._choose(pairs, [from_ring(each, 3 * BITS) for each in opened], local)
        factors: dict[str, list[int]] = {name: [] for name in fed.parties}
        for term in self.terms:
            factors[term.first].append(term.left)
            factors[term.second].append(term.right)
        fed.ask(keep_private, to=fed.parties, each={n: {"factors": f} for n, f in factors.items()}, model=model)

    def _choose(self, pairs: list[NumberedPair], sums: list[np.ndarray], local: LocalFit) -> None:
        """One product after the other, the one whose sum stands out most; what it explains is taken off the others."""
        variance, count = 2 * self.plan.product_scale**2, sum(each.size for each in sums)
        tables = [each.copy() for each in sums]
        for number in range(self.most):
            which = int(np.argmax([np.abs(table).max(initial=0.0) for table in tables]))
            (first, second, _), table = pairs[which], tables[which]
            left, right = map(int, np.unravel_index(np.abs(table).argmax(), table.shape))
            one, other = local.covariances[first], local.covariances[second]
            square = float(one[left, left] * other[right, right])
            weight = self.step * shrunken(float(table[left, right]), variance, count) / (self.rows * square)
            weight = float(np.clip(weight, -1 / math.sqrt(square), 1 / math.sqrt(square)))
            weight = round(weight * 2**WEIGHT_BITS) / 2**WEIGHT_BITS
            if not weight:
                return
            self.terms.append(
                Term(first, second, left, right, 1, 1, square, float(table[left, right]), weight, number + 1,
                     self.operands[first][left], self.operands[second][right])
            )  # fmt: skip
            tables[which] = table - self.rows * weight * np.outer(one[:, left], other[:, right])


COLUMNS = (bounded_operands, plan_columns)
STATISTICS = (noisy_moments, noisy_residual, noisy_products, keep_private)
