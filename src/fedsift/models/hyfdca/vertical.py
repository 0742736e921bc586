"""HyFDCA over one row block: the parties have different columns of the same rows, and one of them the labels.

A party without labels that reads sums of its columns times duals, or its weights round by round, can solve for labels
(X'y is a linear programme). So here the coordinator moves all weights, and the parties compute with them blindly
(``mpc/shared_descent.py``); before its final weights a party without labels learns nothing. The label holder reads the
total score of each row in each round, as it must to set the duals.

Steps are as good as those of a grid: each party turns its columns into their principal components, scaled so that
blocks * curvature * X'X + alpha is the unit matrix. Of its columns the coordinator is told those scales.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import Between
from fedsift.core.checks import check_above_zero
from fedsift.core.design import counted_rows
from fedsift.core.federation import Federation
from fedsift.core.labels import amounts
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party
from fedsift.errors import DataError, OperationRefused, PartyGone, PartyTimeout, ReplyError
from fedsift.models.design import Design, LinearPart
from fedsift.models.hyfdca.loss import best_duals, check_centres, curvature, first_centre
from fedsift.models.hyfdca.party import _bounded as bounded
from fedsift.models.hyfdca.search import Measures, Search
from fedsift.models.hyfdca.setup import _signs as signs
from fedsift.models.hyfdca.track import Track
from fedsift.mpc import shared_descent
from fedsift.mpc.column_scores.weighing import whole_weights
from fedsift.mpc.shared_descent import Columns, SharedDescent

Floats = NDArray[np.float64]
_ATTEMPTS = 10  # a party that is away is asked again, at growing distances (in all some 2 seconds)


@dataclass
class Components:
    """What a party keeps of a run: its design, and how weights of components become weights of columns."""

    design: Design
    back: Floats  # columns x components
    centre: float = 0.0
    scale: float = 1.0
    classes: tuple[str, ...] = ()
    duals: Duals | None = None


@dataclass
class Duals:
    """The label holder's: the loss with its target, and what it knows of its rows after a round."""

    loss: str
    target: Floats
    centre: Floats
    weights: Floats | None = None  # of the rows, 1 in the mean
    last: Floats | None = field(default=None, repr=False)

    def __call__(self, scores: Floats) -> tuple[Floats, Floats]:
        """Objective, primal, dual and distance from the centre, by output; residuals are minus the duals."""
        found = best_duals(self.loss, scores, self.target, self.centre, self.weights)
        self.last = found.signed
        told = np.concatenate([found.objective, found.primal, found.dual, found.moved])
        return told, -bounded(found.signed if self.weights is None else self.weights * found.signed)


# --- what the parties do ----------------------------------------------------------------------------------------------


@operation(
    "hyfdca.open_columns",
    times="1 a session",
    discloses="aggregate",
    about="scales of the principal components of its columns",
    reply=Array("f"),
    settings=("alpha",),
)
def open_columns(
    party: Party, *, loss: Literal["squared", "logistic", "hinge"], alpha: Annotated[float, Between(0, 1e12)],
    blocks: Annotated[int, Between(1, 1000)], outputs: Annotated[int, Between(1, 1000)], classes: list[str] | None,
) -> Floats:  # fmt: skip
    """Columns as principal components; the label holder has a column of ones beside them, and the loss.

    ``classes`` are told to the label holder only (none: its label is a number).
    """
    check_above_zero(party.name, "open_columns", "alpha", alpha)
    told = "auto" if party.run.job is None else party.run.job.parameters.get("loss", "auto")
    if told not in ("auto", loss):
        raise OperationRefused(party.name, "open_columns", "its loss is another than that of the accepted job")
    design = Design.fit(party.table)
    values = design.matrix(party.table)
    left, sizes, right = np.linalg.svd(values, full_matrices=False)
    scales = 1.0 / np.sqrt(blocks * curvature(loss) * sizes**2 + alpha)
    long = np.sqrt(party.n_rows)
    components = party.keep(Components(design, right.T * scales * long))
    columns = party.keep(Columns(left * (sizes * scales * long), outputs))
    if classes is not None:
        label = party.table.label
        if label is None:
            raise DataError(f"party {party.name!r} is to hold the labels of its rows, but it has no label column")
        components.classes = tuple(classes)
        target = signs(label, classes) if classes else _standard(party, components, label)
        centre = first_centre(loss, (party.n_rows, outputs))
        components.duals = Duals(loss, target, centre, _weights(party, "classification" if classes else "regression"))
        columns.loss = components.duals
        columns.values = np.hstack([columns.values, np.ones((party.n_rows, 1))])
    return scales


def _weights(party: Party, task: Literal["classification", "regression"]) -> Floats | None:
    """What rows count by the job's design, rows x 1 and 1 in the mean; no row so much that sums would show it."""
    whole_weights(party)
    counted = counted_rows(party, party.labels(task=task))
    return None if counted is None else (counted / counted.mean())[:, None]


def _standard(party: Party, components: Components, label: np.ndarray) -> Floats:
    values = amounts(label, party.name)
    components.centre, components.scale = float(values.mean()), float(values.std())
    if not components.scale > 1e-12 * max(1.0, abs(components.centre)):
        raise DataError(f"party {party.name!r}: the target is the same in all rows; there is nothing to learn")
    return ((values - components.centre) / components.scale)[:, None]


@operation("hyfdca.recentre", times="rounds or 1000 a session", discloses="control", about="acknowledgement")
def recentre(party: Party, *, outputs: NDArray[np.bool_]) -> None:
    """The label holder, hinge loss: the proximal term stands at the present duals from now on."""
    duals = party.held(Components).duals
    if duals is None:
        raise OperationRefused(party.name, "recentre", "this party holds no labels of these rows")
    check_centres(party.name, "recentre", outputs, duals.target.shape[1], duals.loss)
    if duals.last is not None:
        duals.centre = np.where(outputs, duals.last * duals.target, duals.centre)


@operation(
    "hyfdca.keep_weights",
    times="1 a session",
    discloses="control",
    receives="aggregate",
    about="acknowledgement",
    learns="the final weights of its own columns",
)
def keep_weights(party: Party, *, model: str, weights: Floats) -> None:
    """Own weights stay at the site."""
    kept, columns = party.held(Components), party.held(Columns)
    columns.check_final(party.name, weights)
    intercept = None if kept.duals is None else weights[-1]
    own = kept.back @ (weights if kept.duals is None else weights[:-1])
    party.models.keep(model, LinearPart(kept.design, own, intercept, kept.centre, kept.scale, kept.classes))


OPERATIONS = (*shared_descent.OPERATIONS, open_columns, recentre, keep_weights)


# --- the coordinator's side -------------------------------------------------------------------------------------------


class OneBlock:
    """All weights in one place: components of every party in turn, the intercept after the label holder's."""

    def __init__(self, run: Federation, loss: str, alpha: float, classes: list[str]):
        self.run, self.alpha = run, alpha
        self.outputs = len(classes) if len(classes) > 2 else 1
        each = {name: {"classes": classes if name == run.active else None} for name in run.parties}
        found = run.ask(
            open_columns,
            to=run.parties,
            each=each,
            loss=loss,
            alpha=alpha,
            blocks=len(run.parties),
            outputs=self.outputs,
        )
        for name, scales in found.items():
            if not (scales > 0).all():
                raise ReplyError(name, "open_columns", "its scales are not above zero")
        ones = 1.0 / np.sqrt(curvature(loss) * run.n_rows)
        blocks = [np.append(found[n], ones) if n == run.active else found[n] for n in run.parties]
        self.widths = {n: len(block) for n, block in zip(run.parties, blocks)}
        self.ends = np.cumsum(list(self.widths.values()))
        self.intercept = int(dict(zip(run.parties, self.ends))[run.active]) - 1
        self.scales = np.concatenate(blocks)[:, None]
        self.shrunk = alpha * self.scales**2  # the penalty's second derivative
        self.shrunk[self.intercept] = 0.0
        # What is told to multiply a column by: components have the length of all rows.
        self.unit = np.full_like(self.scales, 1.0 / np.sqrt(run.n_rows))
        self.unit[self.intercept] = ones
        self.descent = SharedDescent(run, self.widths, self.outputs, reads_scores=True)

    def weights(self, u: Floats) -> dict[str, Floats]:
        return dict(zip(self.run.parties, np.split(u * self.unit, self.ends[:-1])))

    def as_told(self, track: Track) -> Track:
        """The place that the parties compute at: weights are told with so many digits only."""
        told = 1.0 / self.descent.resolution
        return replace(track, u=np.rint(track.u * self.unit * told) / told / self.unit)

    def gradient(self, u: Floats) -> tuple[Floats, Floats]:
        """What the label holder measured (4 x outputs), and the gradient of losses and penalty."""
        told, found = self._asked(u)
        rows = self.run.n_rows
        if told.shape != (4 * self.outputs,):
            raise ReplyError(str(self.run.active), "open_residuals", "expected four numbers for each output")
        return told.reshape(4, self.outputs), rows * self.unit * np.vstack(list(found.values())) + self.shrunk * u

    def _asked(self, u: Floats) -> tuple[Floats, dict[str, Floats]]:
        """A round in which a party goes missing is played again with everybody, under new masks."""
        for attempt in range(_ATTEMPTS):
            try:
                return self.descent.at(self.weights(u))
            except (PartyGone, PartyTimeout) as error:
                if attempt == _ATTEMPTS - 1:
                    raise
                self.run.ledger.note(f"party {error.party!r} missed rounds of HyFDCA; they were played again")
                time.sleep(min(0.3, 0.02 * 2**attempt))
        raise AssertionError

    def measures(self, track: Track, told: Floats) -> Measures:
        """What ``Search`` judges by, as means over the rows (see ``party._vector``)."""
        own = np.ones(len(track.u), dtype=bool)
        own[self.intercept] = False
        u, g, s = track.u[own], track.g[own], self.scales[own]
        away = g / (self.alpha * s)  # weights less those that the duals give, in the directions of the components
        lengths = [self.alpha * (each**2).sum(axis=0) for each in (s * u, away, s * u - away)]
        balance = np.abs(track.g[self.intercept] / self.unit[self.intercept])
        found = (track.products(), *lengths, balance, *told)
        return Measures(*(each / self.run.n_rows for each in found))


def train(
    block: OneBlock, search: Search, rounds: int, memory: int, model: str, callback: Callable[..., object] | None
) -> tuple[list[dict[str, float]], int]:
    """Rounds until it is enough; the history of what was measured, and the rounds played. Weights go to the parties."""
    run, history = block.run, []
    track = Track.start(len(block.scales), block.outputs)
    for turn in run.track(range(1, rounds + 1), "round", at_most=True):
        told, gradient = block.gradient(track.u)
        track = track.measured(gradient, memory, full=True)
        measures = block.measures(track, told)
        if callback is not None:
            callback(run, turn)
        history.append({"round": block.descent.step, **search.judge(measures, since_last=1)})
        if search.enough():
            break
        if turn < rounds:
            decision, centres = search.decision(measures)
            track = block.as_told(track.decided(decision))
            if centres.any():
                run.ask(recentre, to=run.active, outputs=centres)
    last = track.u if track.anchor is None else track.anchor[0]
    final = last if track.best is None else np.where(search.back, track.best[0], last)
    each = {name: {"weights": part} for name, part in block.weights(final).items()}
    run.ask(keep_weights, to=run.parties, each=each, model=model)
    return history, block.descent.step
