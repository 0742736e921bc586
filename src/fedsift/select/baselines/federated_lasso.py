"""Lasso on vertical data, trained under one-time masks; columns are ranked by the size of their coefficient.

The baseline "FATE-Lasso" of the MUSE paper. Minimises mean loss + alpha * |W|_1 over standardised columns (squared loss
for a number, logistic for two classes, softmax for more; the intercept is free) by accelerated proximal gradient
(FISTA with restarts). Departures from FATE: full batches, an exact proximal step instead of sub-gradients, and no
residual leaves the label holder in a form that another party can read.

One step takes two rounds:

1. The coordinator sends each party its own coefficients. Each returns its part of the rows' scores under pairwise masks
   that cancel in the sum, so that only the total can be read, and only by the label holder, whose masks come off last.
2. The label holder computes residuals and returns them under masks that it shares with each party; together with what
   the party sent in 1, the coordinator reads the gradient X'r of each column (``protocols/masked_product.py``), and
   nothing about a row. It takes the proximal step.

Who learns what: the coordinator: coefficients and gradients of columns by number (it holds no row of anything). The
label holder: the rows' total scores in each step; with a single other party, that party's scores. A party: its own
coefficients in each step; from those not at zero it could work out that many sums X'r over its own columns a step,
though never r itself; it receives nothing else. Coordinator and label holder together can read a party's columns, and
coordinator and a party together the residuals, hence labels: the masks are theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import ANY, Array, operation
from fedsift.core.party import Labels, Party
from fedsift.core.scaling import standardised
from fedsift.crypto.sealed_box import SealKey, pair_key
from fedsift.errors import OperationRefused, OverflowGuard, ReplyError
from fedsift.mpc import pairwise_masks as masks
from fedsift.mpc.shared_product import add_pairwise, hide_left, left_share, open_product, right_message
from fedsift.select.base import Outcome, Selector, check_number, check_size

_SCORE_BITS = 24
_ROOM = 16.0  # residuals may be this many times longer than a vector of ones


def _fraction_bits(rows: int) -> int:
    """Bits for a value and for a residual, so that an inner product over all rows stays within the ring."""
    return (61 - rows.bit_length() - int(np.log2(_ROOM))) // 2


def _to_ring(values: np.ndarray, bits: int) -> np.ndarray:
    return np.rint(np.ldexp(values, bits)).astype(np.int64).view(np.uint64)


# --- what the parties do ----------------------------------------------------------------------------------------------


@operation(
    "lasso.lasso_begin",
    discloses="aggregate",
    about="public key, the column that each standardised feature belongs to, and the largest variance of a combination",
    reply={"seal": bytes, "owner": Array("i"), "spread": float},
)
def lasso_begin(party: Party) -> dict[str, Any]:
    values, owner = standardised(party)
    key = SealKey.generate()  # for this run only: the masks count steps from the start
    party.state.update(values=values, key=key, step=0)
    side = values if values.shape[0] < values.shape[1] else values.T
    spread = float(np.linalg.eigvalsh(side @ side.T)[-1]) / party.n_rows if values.size else 0.0
    return {"seal": key.public, "owner": owner, "spread": spread}


@operation(
    "lasso.hide_columns", discloses="masked", about="standardised columns under one-time masks", reply=Array("i", 2)
)
def hide_columns(party: Party, *, seals: dict[str, bytes], active: str) -> np.ndarray:
    """Once a run. Under the masks the values are uniform numbers to everybody but the label holder."""
    _meet(party, seals)
    ring = _to_ring(party.state["values"], _fraction_bits(party.n_rows))
    party.state["ring"] = ring
    return hide_left(ring, party.state["seeds"][active], 0)


@operation("lasso.meet_parties", discloses="control", about="acknowledgement")
def meet_parties(party: Party, *, seals: dict[str, bytes]) -> None:
    _meet(party, seals)


def _meet(party: Party, seals: dict[str, bytes]) -> None:
    party.state["seeds"] = {
        name: pair_key(party.state["key"], public, name=name, purpose="lasso")
        for name, public in seals.items()
        if name != party.name
    }


def _next_step(party: Party, step: int) -> None:
    if step <= party.state["step"]:
        raise OperationRefused(party.name, "lasso", f"step {step} was asked before: a mask is used once")
    party.state["step"] = step


def _masked_scores(party: Party, scores: np.ndarray, step: int) -> np.ndarray:
    seeds = party.state["seeds"]
    return add_pairwise(masks.encode(scores, _SCORE_BITS, len(seeds) + 1), party.name, seeds, "scores", step)


@operation(
    "lasso.partial_scores",
    discloses="masked",
    receives="aggregate",
    about="the rows' partial scores under pairwise masks, and a masked share of the gradient",
    learns="its own coefficients in this step",
    reply={"scores": Array("i", 2), "share": Array("i", 2)},
)
def partial_scores(party: Party, *, weights: Any, step: int, active: str) -> dict[str, np.ndarray]:
    _next_step(party, step)
    state = party.state
    scores = _masked_scores(party, state["values"] @ weights, step)
    return {"scores": scores, "share": left_share(state["ring"], state["seeds"][active], step, weights.shape[1])}


@operation(
    "lasso.masked_residuals",
    discloses="aggregate",
    receives="masked",
    about="loss, gradients of the label holder's own columns, and residuals under one-time masks",
    learns="the total score of each row in this step",
    reply={"loss": float, "own": Array("f", 2), "intercept": Array("f"), "hidden": ANY},
)
def masked_residuals(
    party: Party, *, scores: Any, weights: Any, intercept: Any, step: int, widths: dict[str, int], task: str
) -> dict[str, Any]:
    _next_step(party, step)
    state = party.state
    own = state["values"] @ weights
    if state["seeds"]:
        own = masks.decode(scores + _masked_scores(party, own, step), _SCORE_BITS)
    loss, residuals = loss_and_residuals(own + intercept, party.labels(task=task))
    if np.sqrt((residuals**2).sum(axis=0).max(initial=0.0)) > _ROOM * np.sqrt(party.n_rows):
        raise OverflowGuard("lasso: the residuals grew beyond what the masks leave room for; use a larger alpha")
    ring = _to_ring(residuals, _fraction_bits(party.n_rows))
    hidden = {
        name: list(right_message(ring, state["seeds"][name], 0, step, int(width))) for name, width in widths.items()
    }
    gradient = state["values"].T @ residuals / party.n_rows
    return {"loss": loss, "own": gradient, "intercept": residuals.mean(axis=0), "hidden": hidden}


def loss_and_residuals(scores: np.ndarray, labels: Labels) -> tuple[float, np.ndarray]:
    """Mean loss and its derivative by the scores (times the number of rows)."""
    if labels.task == "regression":
        target = (labels.values - labels.values.mean()) / (labels.values.std() or 1.0)
        residuals = scores - target[:, None]
        return float((residuals**2).mean() / 2), residuals
    if labels.n_classes == 2:
        positive = labels.codes == 1
        probability = 1 / (1 + np.exp(-np.clip(scores[:, 0], -500, 500)))
        loss = np.logaddexp(0, np.where(positive, -scores[:, 0], scores[:, 0])).mean()
        return float(loss), (probability - positive)[:, None]
    shifted = scores - scores.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    one_hot = labels.codes[:, None] == np.arange(labels.n_classes)
    return float(-logs[one_hot].mean()), np.exp(logs) - one_hot


# --- the coordinator's side -------------------------------------------------------------------------------------------


@dataclass
class _Point:
    """Coefficients of all features (in the order of the parties) and intercepts."""

    weights: np.ndarray
    intercept: np.ndarray

    def ahead(self, before: _Point, momentum: float) -> _Point:
        return _Point(
            self.weights + momentum * (self.weights - before.weights),
            self.intercept + momentum * (self.intercept - before.intercept),
        )


class _Gradients:
    """Loss and gradient at a point, by the two rounds of a step."""

    def __init__(self, fed: Federation, outputs: int):
        self.fed, self.outputs, self.step = fed, outputs, 0
        begun = fed.ask(lasso_begin, to=fed.parties)
        self.owner = {name: reply["owner"] for name, reply in begun.items()}
        for name, owner in self.owner.items():
            if set(owner.tolist()) != set(range(fed.n_columns[name])):
                raise ReplyError(name, "lasso_begin", "its features do not cover its columns")
        # All columns together spread at most as far as the parties' sum; the intercept, apart, has a spread of 1.
        self.spread = max(1.0, sum(reply["spread"] for reply in begun.values()))
        ends = np.cumsum([len(self.owner[name]) for name in fed.parties])
        self.slices = {n: slice(end - len(self.owner[n]), end) for n, end in zip(fed.parties, ends)}
        self.features = int(ends[-1])
        seals = {name: reply["seal"] for name, reply in begun.items()}
        fed.ask(meet_parties, to=fed.active, seals=seals)
        self.hidden = fed.ask(hide_columns, to=fed.passive, seals=seals, active=fed.active) if fed.passive else {}
        self.bits = 2 * _fraction_bits(fed.n_rows)
        for name, table in self.hidden.items():
            self._check(name, "hide_columns", table, (fed.n_rows, len(self.owner[name])))

    def at(self, point: _Point) -> tuple[float, _Point]:
        fed, rows, outputs = self.fed, self.fed.n_rows, self.outputs
        self.step += 1
        each = {name: {"weights": point.weights[self.slices[name]]} for name in fed.parties}
        parts = {}
        if fed.passive:
            parts = fed.ask(partial_scores, to=fed.passive, each=each, step=self.step, active=fed.active)
        total = np.zeros((rows, outputs), dtype=np.uint64)
        for name, part in parts.items():
            self._check(name, "partial_scores", part["scores"], (rows, outputs))
            self._check(name, "partial_scores", part["share"], (len(self.owner[name]), outputs))
            total += part["scores"]
        reply = fed.ask(
            masked_residuals, to=fed.active, scores=total, weights=each[fed.active]["weights"], step=self.step,
            intercept=point.intercept, widths={n: len(self.owner[n]) for n in fed.passive}, task=fed.asked_task,
        )  # fmt: skip
        gradient = np.empty_like(point.weights)
        gradient[self.slices[fed.active]] = reply["own"]
        for name in fed.passive:
            sides = reply["hidden"].get(name) if isinstance(reply["hidden"], dict) else None
            if not isinstance(sides, list) or len(sides) != 2:
                raise ReplyError(fed.active, "masked_residuals", f"expected masked residuals for {name!r}")
            self._check(fed.active, "masked_residuals", sides[0], (rows, outputs))
            self._check(fed.active, "masked_residuals", sides[1], (len(self.owner[name]), outputs))
            product = open_product(self.hidden[name], parts[name]["share"], *sides).view(np.int64)
            gradient[self.slices[name]] = np.ldexp(product.astype(np.float64), -self.bits) / rows
        return reply["loss"], _Point(gradient, reply["intercept"])

    @staticmethod
    def _check(name: str, operation: str, table: Any, shape: tuple[int, int]) -> None:
        if not isinstance(table, np.ndarray) or table.dtype != np.uint64 or table.shape != shape:
            raise ReplyError(name, operation, f"expected a masked table of {shape[0]} x {shape[1]} numbers")


class FederatedLasso(Selector):
    """Keep the columns with the largest coefficients of a lasso over all parties' columns.

    Columns with a coefficient of zero follow in the order of how near they came to enter (size of their gradient). A
    category counts by its largest indicator.

    Parameters
    ----------
    n_features, threshold : how many to keep, or the least coefficient to keep; one of the two.
    alpha : weight of the penalty, as in scikit-learn's ``Lasso`` (0.01 in the MUSE paper).
    max_iter, tol : stop after so many steps, or when the (proximal) gradient is below ``tol`` everywhere.
    """

    name = "federated_lasso"
    paper = "FATE-Lasso, as used as a baseline by MUSE (Ji et al. 2024)"
    leaks = (
        "coordinator: coefficients and gradients of columns by number; label holder: total scores of rows; a party: "
        "its own coefficients in every step"
    )
    operations = (meet_parties, lasso_begin, hide_columns, partial_scores, masked_residuals)

    def __init__(
        self,
        *,
        n_features: int | None = 10,
        threshold: float | None = None,
        alpha: float = 0.01,
        max_iter: int = 200,
        tol: float = 1e-3,
    ):
        self.n_features = n_features
        self.threshold = threshold
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol

    def _check(self, fed: Federation) -> None:
        check_size(self.n_features, self.threshold)
        check_number("alpha", self.alpha, 0)
        check_number("max_iter", self.max_iter, 1, whole=True)
        check_number("tol", self.tol, 0)

    def _select(self, fed: Federation) -> Outcome:
        outputs, curvature = 1, 1.0
        if fed.task == "classification":
            outputs, curvature = (1, 0.25) if fed.n_classes == 2 else (fed.n_classes, 0.5)
        gradients = _Gradients(fed, outputs)
        point, last, losses = self._descend(gradients, curvature)
        fed.ledger.note("columns, scores and residuals travelled under one-time masks (X25519, ChaCha20)")
        nearness = np.minimum(np.abs(last.weights).max(axis=1) - self.alpha, 0.0)
        size = np.abs(point.weights).max(axis=1)
        feature_scores = np.where(size > 0, size, nearness)
        scores = {}
        for name, part in gradients.slices.items():
            scores[name] = np.full(fed.n_columns[name], -np.inf)
            np.maximum.at(scores[name], gradients.owner[name], feature_scores[part])
        details = {
            "steps": gradients.step,
            "loss": losses,
            "nonzero": int((size > 0).sum()),
            "_coefficients": {name: point.weights[part] for name, part in gradients.slices.items()},
            "_intercept": point.intercept,
        }
        return Outcome.best(scores, self.n_features, self.threshold, **details)

    def _descend(self, gradients: _Gradients, curvature: float) -> tuple[_Point, _Point, list[float]]:
        """FISTA: a proximal step from a point ahead of the last two; back to plain steps when it overshoots."""
        rate = 1.0 / (curvature * gradients.spread)
        here = _Point(np.zeros((gradients.features, gradients.outputs)), np.zeros(gradients.outputs))
        ahead, pace, losses = here, 1.0, []
        slope = here
        for _ in gradients.fed.track(range(self.max_iter), "step", at_most=True):
            loss, slope = gradients.at(ahead)
            losses.append(loss)
            moved = ahead.weights - rate * slope.weights
            shrunk = np.sign(moved) * np.maximum(np.abs(moved) - rate * self.alpha, 0.0)
            found = _Point(shrunk, ahead.intercept - rate * slope.intercept)
            # The length of the step by its rate is zero at the solution only, however small the rate.
            distance = max(
                np.abs(found.weights - ahead.weights).max(initial=0.0), np.abs(found.intercept - ahead.intercept).max()
            )
            overshot = float(((ahead.weights - found.weights) * (found.weights - here.weights)).sum()) > 0
            next_pace = 1.0 if overshot else (1 + np.sqrt(1 + 4 * pace**2)) / 2
            momentum = 0.0 if overshot else (pace - 1) / next_pace
            ahead, here, pace = found.ahead(here, momentum), found, next_pace
            if distance <= rate * self.tol:
                break
        return here, slope, losses
