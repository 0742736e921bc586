"""Predictions of a model with cross-party terms (``protection="statistics"``): only the label holder reads them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsift.core.arguments import LabelHolder, PartyName
from fedsift.core.federation import Federation
from fedsift.core.ledger import row_by_row
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.engineer.flafe.candidates import evaluate_at
from fedsift.engineer.flafe.features import BOUND
from fedsift.engineer.flafe.joint_moments import JointProducts
from fedsift.engineer.flafe.private import private_part
from fedsift.engineer.flafe.shared_residual import (
    Sides,
    deal_triple,
    hidden_total,
    hide_factor,
    multiply_shares,
    read_total,
)
from fedsift.engineer.flafe.statistics import SCORE_ROOM, Fraction, ModelPart, Predictions, Term
from fedsift.errors import OperationRefused, ReplyError
from fedsift.mpc.ring import Ring, from_ring, to_ring

_SCORE_BITS = 24


@dataclass
class Scores:
    """A party's own score of each row of the view, and its shares of the weighted products, in the ring."""

    own: Ring
    products: Ring


def _part(party: Party, model: str) -> ModelPart:
    return party.models.part(model, ModelPart)


@operation(
    "flafe.start_prediction",
    when=("protection=statistics", "epsilon=none"),
    times=1,
    discloses="control",
    about="acknowledgement",
)
def start_prediction(party: Party, *, model: str) -> None:
    """Own score of each row of this view, and own factors of the cross-party terms."""
    part = _part(party, model)
    if part.means is not None:
        design, columns = private_part(party, part)
    else:
        design, columns = evaluate_at(party, part.formulas), _factors(party, part)
    if part.centre is not None:
        design = np.hstack([design, np.ones((party.n_rows, 1))])
    own = to_ring(design @ part.weights, _SCORE_BITS, SCORE_ROOM)
    party.keep(Scores(own, np.zeros(party.n_rows, dtype=np.uint64)))
    party.keep(Sides(to_ring(columns, part.bits, 2.0)))


def _factors(party: Party, part: ModelPart) -> np.ndarray:
    factors = [
        np.clip(evaluate_at(party, [factor.formula])[:, 0] / BOUND, -1.0, 1.0) ** factor.power
        for factor in part.factors
    ]
    return np.column_stack(factors) if factors else np.empty((party.n_rows, 0))


@operation(
    "flafe.add_terms",
    when=("protection=statistics", "epsilon=none"),
    times="parties or 50 a session",
    discloses="control",
    receives="masked",
    about="acknowledgement",
)
def add_terms(party: Party, *, peer: PartyName, sent: Ring, number: int, weights: list[int]) -> None:
    """Add up the shares of the weighted products with one peer."""
    scores, share = party.held(Scores), multiply_shares(party, peer, sent, number)
    if len(share) != len(weights) * len(scores.products):
        raise OperationRefused(party.name, "add_terms", "a weight for each term of these two parties")
    share = share.reshape(len(weights), len(scores.products))
    total = (share * np.array(weights, dtype=np.int64).view(np.uint64)[:, None]).sum(axis=0, dtype=np.uint64)
    scores.products = scores.products + total


@operation(
    "flafe.prediction_share",
    when=("protection=statistics", "epsilon=none"),
    times=1,
    discloses="masked",
    about="its part of the prediction of each row, masked: the label holder reads the total over all parties",
    opened="pseudonymous: the prediction of each row, in total over all parties",
    opened_by="active",
    releases=row_by_row,
    reply=[Array("i")],
)
def prediction_share(party: Party, *, reader: LabelHolder, others: list[PartyName], number: int) -> list[Ring]:
    scores = party.held(Scores)
    both = np.concatenate([scores.own, scores.products])
    return [hidden_total(party, both, reader=reader, others=others, number=number)]


@operation(
    "flafe.read_prediction",
    when=("protection=statistics", "epsilon=none"),
    times=1,
    discloses="plain",
    receives="masked",
    about="predictions of the rows",
    learns="the sum of the other parties' scores of each row, and the cross-party part",
    reply=Array("f"),
)
def read_prediction(
    party: Party, *, model: str, sent: dict[str, list[Ring]], number: int, bits: Fraction
) -> np.ndarray:
    part, scores = _part(party, model), party.held(Scores)
    both = np.concatenate([scores.own, scores.products])
    if sent:
        for name, vectors in sent.items():
            if len(vectors) != 1 or vectors[0].shape != both.shape:
                raise ReplyError(name, "prediction_share", f"it should be one vector of {len(both)} numbers")
        both = both + read_total(party, {name: vectors[0] for name, vectors in sent.items()}, number)
    score, product = np.split(both, 2)
    z = from_ring(score, _SCORE_BITS) + from_ring(product, bits)
    if part.means is not None:
        z = np.clip(z, -1.0, 1.0)  # the target's range
    return party.keep(Predictions(z * part.deviation + (part.centre or 0.0))).values


def predict_jointly(
    run: Federation, products: JointProducts, terms: list[Term], model: str, column_bits: int, weight_bits: int
) -> np.ndarray:
    """Predictions of the rows of a view; the label holder reads them. ``products`` are of the same session."""
    run.ask(start_prediction, to=run.parties, model=model)
    position = dict.fromkeys(run.parties, 0)
    grouped: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for term in terms:
        places = []
        for name in (term.first, term.second):
            places.append(position[name])
            position[name] += 1
        weight = round(term.weight * 2**weight_bits)
        grouped.setdefault((term.first, term.second), []).append((places[0], places[1], weight))
    bits = 2 * column_bits + weight_bits
    for (first, second), members in grouped.items():
        number = products.number()
        dealt = dict(zip((first, second), deal_triple(run.n_rows * len(members))))
        peer = {first: second, second: first}
        columns = {first: [a for a, _, _ in members], second: [b for _, b, _ in members]}
        hidden = run.ask(
            hide_factor, to=[first, second], number=number,
            each={n: {"peer": peer[n], "columns": columns[n], **dealt[n]} for n in (first, second)},
        )  # fmt: skip
        run.ask(
            add_terms, to=[first, second], number=number, weights=[w for _, _, w in members],
            each={n: {"peer": peer[n], "sent": hidden[peer[n]]} for n in (first, second)},
        )  # fmt: skip
    number = products.number()
    sent = {}
    if run.passive:
        sent = run.ask(prediction_share, to=run.passive, reader=run.active, others=run.passive, number=number)
    found: np.ndarray = run.ask(read_prediction, to=run.active, model=model, sent=sent, number=number, bits=bits)
    return found


OPERATIONS = (start_prediction, add_terms, prediction_share, read_prediction)
