"""``protection="statistics"`` without epsilon: a linear model with cross-party features of which only sums leave.

1. A ridge over the parties' own columns and features is fitted from masked sums (`joint_moments.py`): the *local-only*
   model. What it misses, the residual, is never put together: the label holder has its target less its own scores, the
   others have theirs, each held within bounds that fit the ring.
2. ``rounds`` times: the sums over training rows of every cross-party product with the residual are computed on shares
   (`shared_residual.py`); the largest gives the product and its weight (``step`` of the way), and the product is taken
   off the residual, all on shares.
3. Prediction for new rows: scores and weighted products are added up on shares; the label holder reads the total.

The coordinator reads sums without noise, of columns in an order and with signs that it does not know, the joint second
moments of the local-only model, and mean squares of chosen columns; parties read their weights. Under an epsilon none
of this is sent: `private.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Annotated

import numpy as np

from fedsift.core.arguments import Between
from fedsift.core.expressions import Call, parse, scaled
from fedsift.core.federation import Federation
from fedsift.core.job import Job
from fedsift.core.operation import operation
from fedsift.core.party import Party, Task
from fedsift.crypto.sealed_box import SealedBox
from fedsift.engineer.flafe.candidates import OwnFeatures, formed, own_target
from fedsift.engineer.flafe.features import BOUND, FUNCTIONS, read_record
from fedsift.engineer.flafe.joint_moments import JointMatrices, JointProducts, best_ridge, fraction_bits
from fedsift.engineer.flafe.products import Operands
from fedsift.engineer.flafe.shared_residual import (
    NumberedPair,
    Residual,
    Sides,
    arrange_sides,
    column_ring,
    deal_triple,
    hide_factor,
    name_choice,
    pair_name,
    ring_bits,
    share_product,
    split_residual,
    take_shares,
)
from fedsift.errors import DataError, OperationRefused, ReplyError
from fedsift.mpc.ring import from_ring, to_ring

_LIMIT = 16.0
SCORE_ROOM = 2.0**37  # far beyond any score, and their sums fit the ring
_MOST = 15.0  # of the residual
Fraction = Annotated[int, Between(1, 62)]  # bits after the point
MOST_WEIGHT = 10.0  # of it for all products together; the rest is for what the local-only model misses
_HOLDER = 0.6  # of that for the label holder's part


@dataclass
class LocalModel:
    """A party's part of the local-only model during a fit; centre, deviation and target at the label holder alone."""

    formulas: list[str]
    design: np.ndarray
    centre: float | None = None
    deviation: float = 1.0
    target: np.ndarray = field(default_factory=lambda: np.empty(0))  # standardised
    weights: np.ndarray = field(default_factory=lambda: np.empty(0))
    means: np.ndarray = field(default_factory=lambda: np.empty(0))  # under an epsilon: of its columns, with noise


@dataclass(frozen=True)
class Factor:
    """A party's own factor of a cross-party term."""

    formula: str
    power: int


@dataclass(frozen=True)
class ModelPart:
    """What a site remembers of a fitted model; centre and deviation of the target at the label holder alone."""

    formulas: list[str]
    weights: np.ndarray
    centre: float | None
    deviation: float
    factors: list[Factor]
    bits: int
    means: np.ndarray | None = None  # under an epsilon


@dataclass
class Term:
    """A cross-party term of the model, as the coordinator knows it. Left and right are positions of operands."""

    first: str
    second: str
    left: int
    right: int
    left_power: int
    right_power: int
    square: float
    moment: float
    weight: float = 0.0
    round: int = 0
    left_formula: str = ""
    right_formula: str = ""

    @property
    def function(self) -> str:
        return next(name for name, powers in FUNCTIONS.items() if powers == (self.left_power, self.right_power))


# --- a party's side --------------------------------------------------------------------------------------------------


@operation(
    "flafe.local_matrix",
    when=("protection=statistics", "epsilon=none"),
    times=1,
    discloses="control",
    about="how many columns it brings into the local-only model",
    reply={"features": int, "target": int},
)
def local_matrix(party: Party, *, holder: bool, task: Task, rows: int) -> dict[str, int]:
    """Columns and own features; the label holder adds a one and its standardised target."""
    own = formed(party)
    train = own.train
    formulas = list(dict.fromkeys([*own.formulas[: len(own.names)], *own.chosen]))
    columns = own.values[:, [own.formulas.index(text) for text in formulas]]
    model = party.keep(LocalModel(formulas, columns))
    parts = [columns]
    if holder:
        values = own_target(party, task)[0]
        model.centre, model.deviation = float(values[train].mean()), float(values[train].std())
        if not model.deviation > 0:
            raise DataError(f"party {party.name!r}: the target is the same in all training rows")
        model.target = (values - model.centre) / model.deviation
        model.design = np.hstack([columns, np.ones((len(train), 1))])
        parts = [model.design, np.clip(model.target, -_LIMIT, _LIMIT)[:, None]]
    ring = to_ring(np.hstack(parts), fraction_bits(rows, _LIMIT), 2 * _LIMIT)
    party.keep(JointMatrices({"train": ring[train], "check": ring[~train]}))
    return {"features": model.design.shape[1], "target": int(holder)}


@operation(
    "flafe.local_residual",
    when=("protection=statistics", "epsilon=none"),
    times=1,
    discloses="control",
    receives="aggregate",
    about="acknowledgement",
    learns="the weights of its own columns in the local-only model",
    after="flafe.local_matrix",
)
def local_residual(party: Party, *, weights: np.ndarray) -> None:
    """Own part of what the local-only model misses: the target less own scores, or minus own scores."""
    model = party.held(LocalModel)
    if weights.shape != (model.design.shape[1],):
        raise OperationRefused(party.name, "local_residual", "these are weights of another number of columns")
    model.weights = weights
    scores = model.design @ weights
    part = -scores if model.centre is None else model.target - scores
    limit = part_limit(party.job, model.centre is not None)
    train = party.held(OwnFeatures).train
    column_bits, weight_bits = ring_bits(int(train.sum()))
    party.keep(Residual(to_ring(np.clip(part[train], -limit, limit), 2 * column_bits + weight_bits, _MOST)))


def part_limit(job: Job, holder: bool) -> float:
    """Within what a party holds its part of the residual, so that all parts and all products fit the ring together."""
    room = _MOST - float(job.parameters["max_iter"] * job.parameters["max_weight"])
    return room * _HOLDER if holder else room * (1 - _HOLDER) / max(1, len(job.parties) - 1)


@operation(
    "flafe.load_sides",
    when=("protection=statistics", "epsilon=none"),
    times=1,
    discloses="control",
    about="acknowledgement",
)
def load_sides(party: Party) -> None:
    """Own features, cut at so many deviations as the job says and divided by them, with their squares where it wants
    those: within +-1, in the ring."""
    settings, train = party.job.parameters, party.held(OwnFeatures).train
    values = party.held(Operands).columns[train] * (settings["clip"] / BOUND) / settings["statistics_clip"]
    bits, powers = ring_bits(int(train.sum()))[0], powers_of(settings["functions"])
    party.keep(Sides(column_ring(np.clip(values, -1.0, 1.0), bits, powers)))


def powers_of(functions: Sequence[str]) -> int:
    """1 for products ab alone, 2 where squares take part."""
    return len(set(functions)) // 2 or 1


@operation(
    "flafe.keep_model",
    when=("protection=statistics", "epsilon=none"),
    times=1,
    discloses="control",
    about="acknowledgement",
)
def keep_model(party: Party, *, model: str, terms: list[dict[str, str | int]], bits: Fraction) -> None:
    """Remember, at this site, own weights and the own factors of cross-party terms."""
    own, factors = party.held(LocalModel), [read_record(Factor, term, party.name) for term in terms]
    keep_part(party, model, ModelPart(own.formulas, own.weights, own.centre, own.deviation, factors, bits))


def keep_part(party: Party, model: str, part: ModelPart) -> None:
    """Where `prediction.py` looks for it."""
    party.models.keep(model, part)


@dataclass(frozen=True)
class Predictions:
    """What the label holder has read of the parties' joint predictions (``prediction.py``)."""

    values: np.ndarray


@operation(
    "flafe.held_out_error",
    when=("protection=statistics", "epsilon=none"),
    after="flafe.read_prediction",
    times=1,
    discloses="aggregate",
    about="mean squared error and variance of the target on held-out rows",
    reply={"error": float, "variance": float},
)
def held_out_error(party: Party, *, task: Task) -> dict[str, float]:
    """Of the predictions that the parties made together, on the rows that nobody trained on: told other ones, or other
    rows, the label holder would answer with labels."""
    target, predicted = own_target(party, task)[0][~party.held(OwnFeatures).train], party.held(Predictions).values
    if len(target) != len(predicted):
        raise OperationRefused(party.name, "held_out_error", "the predictions are of other rows than the held-out ones")
    return {"error": float(((target - predicted) ** 2).mean()), "variance": float(target.var())}


# --- the coordinator's side ------------------------------------------------------------------------------------------


class StatisticsRun:
    """The conversation of one fit, in a vertical federation."""

    def __init__(
        self, fed: Federation, products: JointProducts, operands: dict[str, list[str]], rows: int, n_train: int,
        powers: int,
    ):  # fmt: skip
        self.fed, self.products, self.operands, self.n_train, self.powers = fed, products, operands, n_train, powers
        self.column_bits, self.weight_bits = ring_bits(n_train)
        self.residual_bits = 2 * self.column_bits + self.weight_bits
        self.terms: list[Term] = []
        self.rows = rows

    def local_only(self) -> float:
        """Fit the local-only model and leave with every party its part of the residual; R2 on the validation rows."""
        fed = self.fed
        each = {name: {"holder": name == fed.active} for name in fed.parties}
        widths = fed.ask(local_matrix, to=fed.parties, each=each, task=fed.asked_task, rows=self.rows)
        size = {name: sum(each.values()) for name, each in widths.items()}
        features_of = {name: size[name] - (name == fed.active) for name in fed.parties}
        bits = 2 * fraction_bits(self.rows, _LIMIT)
        train, check = (from_ring(self.products.gram(size, matrix), bits) for matrix in ("train", "check"))
        features: list[int] = []
        offset, target, at = 0, 0, {}
        for name in (name for name in fed.parties if size[name]):
            at[name] = slice(len(features), len(features) + features_of[name])
            features += range(offset, offset + features_of[name])
            target = offset + size[name] - 1 if name == fed.active else target
            offset += size[name]
        score, _, weights = best_ridge(train, check, np.array(features), np.array([target]), self.n_train)
        mine = {name: {"weights": weights[at[name], 0] if name in at else np.zeros(0)} for name in fed.parties}
        fed.ask(local_residual, to=fed.parties, each=mine)
        return score

    def boost(self, rounds: int, *, step: float, max_weight: float) -> None:
        """Find the cross-party terms of the model, one a round."""
        fed = self.fed
        members = [name for name in fed.parties if self.operands[name]]
        fed.ask(load_sides, to=fed.parties)
        pairs = self._numbered(list(combinations(members, 2)))
        self._deliver(pairs, fed.ask(split_residual, to=fed.parties, pairs=pairs), fed.parties, 1)
        for number in fed.track(range(rounds), "cross-party feature"):
            term = self._choose(pairs)
            term.weight, term.round = self._weight(term, step, max_weight), number + 1
            self.terms.append(term)
            if term.weight and number + 1 < rounds:
                self._take_off(term, [(a, b) for a, b, _ in pairs])

    def _numbered(self, pairs: list[tuple[str, str]]) -> list[NumberedPair]:
        return [(a, b, self.products.number()) for a, b in pairs]

    def _choose(self, pairs: list[NumberedPair]) -> Term:
        fed = self.fed
        fed.ask(arrange_sides, to=fed.parties, pairs=pairs)
        width = {name: self.powers * len(self.operands[name]) for name in fed.parties}
        opened = self.products.open([(a, pair_name(a, b), width[a], b, pair_name(a, b), width[b]) for a, b, _ in pairs])
        bits = 2 * self.column_bits + self.residual_bits
        sums = [from_ring(product, bits) for product in opened]
        flat = np.abs(np.concatenate([each.ravel() for each in sums]))
        place, which = int(np.argmax(flat)), 0
        while place >= sums[which].size:
            place, which = place - sums[which].size, which + 1
        (first, second, _), table = pairs[which], sums[which]
        row, column = divmod(place, table.shape[1])
        named = fed.ask(
            name_choice, to=[first, second], pair=pair_name(first, second),
            each={first: {"position": int(row)}, second: {"position": int(column)}},
        )  # fmt: skip
        chosen = [named[name] for name in (first, second)]
        places = []
        for name, each in zip((first, second), chosen):
            count = len(self.operands[name])
            if not 0 <= each.column < self.powers * count:
                raise ReplyError(name, "name_choice", "it named a column that it does not have")
            places.append((each.column % count, 1 + each.column // count))
        (left, left_power), (right, right_power) = places
        square = max(chosen[0].square * chosen[1].square, 1e-6)
        moment = float(table[row, column]) * chosen[0].sign * chosen[1].sign
        return Term(first, second, left, right, left_power, right_power, square, moment)

    def _weight(self, term: Term, step: float, max_weight: float) -> float:
        """Least squares for one term, a step of the way, on a grid."""
        weight = np.clip(step * term.moment / (self.n_train * term.square), -max_weight, max_weight)
        return float(float(np.rint(weight * 2**self.weight_bits)) / 2**self.weight_bits)

    def _take_off(self, term: Term, pairs: list[tuple[str, str]]) -> None:
        """residual <- residual - weight x product, on everybody's shares."""
        fed, first, second = self.fed, term.first, term.second
        numbered, number = self._numbered(pairs), self.products.number()
        dealt = dict(zip((first, second), deal_triple(self.n_train)))
        columns = {
            first: term.left + (term.left_power - 1) * len(self.operands[first]),
            second: term.right + (term.right_power - 1) * len(self.operands[second]),
        }
        peer = {first: second, second: first}
        hidden = fed.ask(
            hide_factor, to=[first, second], number=number,
            each={n: {"peer": peer[n], "columns": [columns[n]], **dealt[n]} for n in (first, second)},
        )  # fmt: skip
        weight = -round(term.weight * 2**self.weight_bits)
        sent = fed.ask(
            share_product, to=[first, second], number=number, pairs=numbered, weight=weight,
            each={n: {"peer": peer[n], "sent": hidden[peer[n]]} for n in (first, second)},
        )  # fmt: skip
        self._deliver(numbered, sent, [first, second], weight)

    def _deliver(
        self,
        pairs: list[NumberedPair],
        sent: dict[str, dict[str, dict[str, SealedBox]]],
        senders: list[str],
        weight: int,
    ) -> None:
        each = {
            name: {"sent": {sender: parts[name] for sender, parts in sent.items() if name in parts}}
            for name in self.fed.parties
        }
        self.fed.ask(take_shares, to=self.fed.parties, each=each, pairs=pairs, senders=senders, weight=weight)

    def keep(self, model: str, clip: float, operand_clip: float) -> None:
        """Let every site remember its part; adds the formulas of the factors to the terms."""
        factors: dict[str, list[Factor]] = {name: [] for name in self.fed.parties}
        for term in self.terms:
            term.left_formula = self._factor(term.first, term.left, clip / operand_clip)
            term.right_formula = self._factor(term.second, term.right, clip / operand_clip)
            factors[term.first].append(Factor(term.left_formula, term.left_power))
            factors[term.second].append(Factor(term.right_formula, term.right_power))
        each = {name: {"terms": [asdict(factor) for factor in mine]} for name, mine in factors.items()}
        self.fed.ask(keep_model, to=self.fed.parties, each=each, model=model, bits=self.column_bits)

    def _factor(self, party: str, position: int, unit: float) -> str:
        """An operand as the model uses it: cut at another number of deviations."""
        formula = parse(self.operands[party][position])
        if not isinstance(formula, Call) or formula.function != "scale":
            raise ReplyError(party, "take_operands", "an operand that it told is not scaled")
        centre, deviation = formula.numbers
        return str(scaled(formula.arguments[0], centre, deviation * unit))


OPERATIONS = (local_matrix, local_residual, load_sides, keep_model, held_out_error)
