"""What a booster minimises at the label holder: the loss of a class or a number, weighted, or Cox's partial likelihood.

Weights multiply gradients and hessians, as in xgboost. With an event (``core/design.py``) the score of a row is the
logarithm of its hazard, up to a constant: the gradients are those of the partial likelihood with Breslow's rule for
ties, over the training rows alone (xgboost's ``survival:cox`` where no times are tied). All of it is computed where the
labels are, from what the label holder has anyway; what leaves it has the form that gradients always have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.design import by_class, class_weights_of, survival_of, weights_of
from fedsift.core.labels import LabelCopy
from fedsift.core.party import Labels, Party
from fedsift.core.survival import at_risk, concordance
from fedsift.models.boost.tree import gradients, loss, start_margin

Floats = NDArray[np.float64]
Rows = NDArray[np.bool_]
_FAR = 50.0  # a row's score counts as no further than this from the others': e to it is a number
_LEAST_HESSIAN = 1e-16


@dataclass(frozen=True)
class Objective:
    """Of one view's rows; ``survival`` are times and events."""

    labels: Labels
    weights: Floats | None = None
    class_weights: object = None  # "balanced", or by class
    survival: tuple[Floats, Rows] | None = None

    @classmethod
    def of(cls, party: Party, labels: Labels) -> Objective:
        """By the design of the accepted job. A job that learns from a copy of the labels has residuals for times."""
        survival = None if LabelCopy in party.run.kept else survival_of(party)
        return cls(labels, weights_of(party), class_weights_of(party), survival)

    @property
    def weighted(self) -> bool:
        return self.weights is not None or self.class_weights is not None

    def counted(self, train: Rows) -> Floats:
        """What each row counts: its weight times that of its class, balanced over the training rows."""
        own = np.ones(len(train)) if self.weights is None else self.weights
        return own * by_class(self.labels, self.class_weights, train)

    def gradients(self, margins: Floats, train: Rows) -> tuple[Floats, Floats]:
        """First and second derivatives, rows x outputs; rows outside ``train`` have none that count."""
        if self.survival is not None:
            return self._cox(margins[:, 0], train)
        g, h = gradients(self.labels.task, margins, self.labels.values)
        if not self.weighted:
            return g, h
        counted = self.counted(train)[:, None]
        return g * counted, h * counted

    def _cox(self, margins: Floats, train: Rows) -> tuple[Floats, Floats]:
        g, h = np.zeros((len(train), 1)), np.full((len(train), 1), _LEAST_HESSIAN)
        times, events = self._times(train)
        weights = self.counted(train)[train]
        odds = np.exp(np.clip(margins[train] - margins[train].max(), -_FAR, 0.0))
        place, risk = at_risk(times, weights * odds)
        happened = np.bincount(place, weights=weights * events, minlength=len(risk))
        first = np.cumsum(happened / risk)[place]
        second = np.cumsum(happened / risk**2)[place]
        g[train, 0] = weights * (odds * first - events)
        h[train, 0] = np.maximum(weights * (odds * first - weights * odds**2 * second), _LEAST_HESSIAN)
        return g, h

    def start(self, train: Rows, outputs: int, base_score: float | None, noise: NDArray[Any] | None) -> Floats:
        """The score before the first tree."""
        if self.survival is not None:
            return np.zeros(1)  # the partial likelihood knows differences only
        weighted = self.counted(train)[train] if self.weighted else None
        return start_margin(self.labels.task, self.labels.values[train], outputs, base_score, noise, weighted)

    def loss(self, margins: Floats, rows: Rows) -> float:
        """What early stopping watches, of held-out rows."""
        if self.survival is not None:
            times, events = self._times(rows)
            place, risk = at_risk(times, np.exp(np.clip(margins[rows, 0], -_FAR, _FAR)))
            return -float((margins[rows, 0] - np.log(risk[place]))[events].sum()) / max(1, int(events.sum()))
        return loss(self.labels.task, margins[rows], self.labels.values[rows])

    def concordance(self, margins: Floats, rows: NDArray[np.int64]) -> float:
        times, events = self._times(rows)
        return concordance(times, events, margins[rows, 0])

    def _times(self, rows: Rows | NDArray[np.int64]) -> tuple[Floats, Rows]:
        assert self.survival is not None
        times, events = self.survival
        return times[rows], events[rows]
