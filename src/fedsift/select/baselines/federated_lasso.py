"""Lasso on vertical data, trained under one-time masks; columns are ranked by the size of their coefficient.

The baseline "FATE-Lasso" of the MUSE paper. Minimises mean loss + alpha * |W|_1 over standardised columns (squared loss
for a number, logistic for two classes, softmax for more; the intercept is free) by accelerated proximal gradient
(FISTA with restarts). Departures from FATE: full batches, an exact proximal step instead of sub-gradients, and no
party that holds rows sees a coefficient or a gradient: ``mpc/shared_descent.py`` has the protocol and the argument.

Who learns what: the coordinator: coefficients and gradients of columns by number (it holds no row of anything). The
label holder: with classes, the rows' total scores in each step (with a single other party, that party's scores); with a
number as label, nothing. Another party: nothing while training; in the end which of its columns are kept. Coordinator
and label holder together can read a party's columns, and coordinator and a party together labels: the masks are theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Outputs
from fedsift.core.federation import Federation
from fedsift.core.operation import Array, Operation, operation
from fedsift.core.party import Labels, Party
from fedsift.core.scaling import standardised
from fedsift.errors import ReplyError
from fedsift.mpc import shared_descent
from fedsift.mpc.shared_descent import Columns, SharedDescent, check_neutral, check_room, spread
from fedsift.select.base import Outcome, Selector, check_number, check_size

Floats = NDArray[np.float64]


@operation(
    "lasso.open_columns",
    discloses="aggregate",
    about="the column that each standardised feature belongs to, and the largest variance of a combination",
    reply={"owner": Array("i"), "spread": float},
    times=1,
)
def open_columns(party: Party, *, outputs: Outputs, task: str) -> dict[str, Any]:
    """Standardise own columns; the label holder has a column of ones beside them, and the loss."""
    values, owner = standardised(party)
    columns = party.keep(Columns(values, outputs))
    if party.table.label is not None:
        labels = party.labels(task=task)
        columns.values = np.hstack([values, np.ones((party.n_rows, 1))])
        if labels.task == "regression":
            columns.target = standard_target(labels)[:, None]
        else:
            columns.loss = lambda scores: loss_and_residuals(scores, labels)
    return {"owner": owner, "spread": spread(values)}


def standard_target(labels: Labels) -> Floats:
    """A number as label with mean 0 and variance 1."""
    return np.asarray((labels.values - labels.values.mean()) / (labels.values.std() or 1.0), dtype=np.float64)


def loss_and_residuals(scores: Floats, labels: Labels) -> tuple[Floats, Floats]:
    """Mean loss of classes and its derivative by the scores (times the number of rows)."""
    if labels.n_classes == 2:
        positive = labels.codes == 1
        probability = 1 / (1 + np.exp(-np.clip(scores[:, 0], -500, 500)))
        loss = np.logaddexp(0, np.where(positive, -scores[:, 0], scores[:, 0])).mean()
        return np.array([loss]), (probability - positive)[:, None]
    shifted = scores - scores.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    one_hot = labels.codes[:, None] == np.arange(labels.n_classes)
    return np.array([-logs[one_hot].mean()]), np.exp(logs) - one_hot


OPERATIONS: tuple[Operation, ...] = (*shared_descent.OPERATIONS, open_columns)


# --- the coordinator's side -------------------------------------------------------------------------------------------


@dataclass
class _Point:
    """Coefficients of all features (in the order of the parties) and intercepts."""

    weights: Floats
    intercept: Floats

    def ahead(self, before: _Point, momentum: float) -> _Point:
        return _Point(
            self.weights + momentum * (self.weights - before.weights),
            self.intercept + momentum * (self.intercept - before.intercept),
        )


class _Gradients:
    """Loss and gradient at a point, for all features in the order of the parties."""

    def __init__(self, fed: Federation, outputs: int):
        self.fed, self.outputs = fed, outputs
        begun = fed.ask(open_columns, to=fed.parties, outputs=outputs, task=fed.asked_task)
        self.owner = {name: reply["owner"] for name, reply in begun.items()}
        for name, owner in self.owner.items():
            if set(owner.tolist()) != set(range(fed.n_columns[name])):
                raise ReplyError(name, "open_columns", "its features do not cover its columns")
        # All columns together spread at most as far as the parties' sum; the intercept, apart, has a spread of 1.
        self.spread = max(1.0, sum(reply["spread"] for reply in begun.values()))
        ends = np.cumsum([len(self.owner[name]) for name in fed.parties])
        self.slices = {n: slice(end - len(self.owner[n]), end) for n, end in zip(fed.parties, ends)}
        self.features = int(ends[-1])
        self.linear = fed.task == "regression"
        widths = {name: len(owner) + (name == fed.active) for name, owner in self.owner.items()}
        self.descent = SharedDescent(fed, widths, outputs, reads_scores=not self.linear)
        self._first: _Point | None = None

    def at(self, point: _Point) -> tuple[float, _Point]:
        active = self.fed.active
        if self.linear:
            check_room(np.linalg.norm(np.vstack([point.weights, point.intercept]), axis=0), self.spread, 1.0)
        told = {name: point.weights[part] for name, part in self.slices.items()}
        told[active] = np.vstack([told[active], point.intercept])
        losses, found = self.descent.at(told)
        parts = [found[name][:-1] if name == active else found[name] for name in self.slices]
        slope = _Point(np.vstack(parts), found[active][-1])
        self._first = slope if self._first is None else self._first
        if not self.linear:
            return float(losses[0]), slope
        # The loss follows from this gradient and the one at zero, for the target has variance 1.
        return 0.5 + 0.5 * float((point.weights * (slope.weights + self._first.weights)).sum()), slope


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
        "coordinator: coefficients and gradients of columns by number; label holder: with classes, total scores of "
        "rows; a party: which of its columns are kept"
    )
    operations = OPERATIONS

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
        check_neutral(fed, type(self).__name__)
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
        fed.ledger.note("columns, weights, scores and residuals travelled under one-time masks (X25519, ChaCha20)")
        nearness = np.minimum(np.abs(last.weights).max(axis=1) - self.alpha, 0.0)
        size = np.abs(point.weights).max(axis=1)
        feature_scores = np.where(size > 0, size, nearness)
        scores = {}
        for name, part in gradients.slices.items():
            scores[name] = np.full(fed.n_columns[name], -np.inf)
            np.maximum.at(scores[name], gradients.owner[name], feature_scores[part])
        details = {
            "steps": gradients.descent.step,
            "loss": losses,
            "nonzero": int((size > 0).sum()),
            "_coefficients": {name: point.weights[part] for name, part in gradients.slices.items()},
            "_intercept": point.intercept,
        }
        return Outcome.best(scores, self.n_features, self.threshold, **details)

    def _descend(self, gradients: _Gradients, curvature: float) -> tuple[_Point, _Point, list[float]]:
        """FISTA: a proximal step from a point ahead of the last two; back to plain steps when it overshoots."""
        rate = 1.0 / (curvature * gradients.spread)
        tol = max(float(self.tol), gradients.spread * gradients.descent.resolution)  # finer than told is noise
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
            if distance <= rate * tol:
                break
        return here, slope, losses
