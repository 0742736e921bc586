"""p-values of a logistic model over parties that hold different columns: Newton's method, nothing pooled.

In each step the scores of the rows are put together for the label holder (``mpc/shared_descent.py``), which computes
probabilities; the coordinator opens X'(p - y) and X'WX with W = p (1 - p) (``mpc/weighted_moments.py``) and moves the
coefficients, which no party that holds rows sees. The inverse of the last X'WX has the variances. Equal to the pooled
maximum likelihood fit, as statsmodels' ``Logit`` with a constant, up to fixed-point rounding.

Who learns what: the coordinator: coefficients, gradients and weighted mean products of all columns in every step, the
loss. The label holder: the total score of each row in every step, some six of them (with one other party: that party's
part, hence so many combinations of its columns with weights that it does not know). The other parties: nothing.

As many combinations as there are columns are the space of these columns, and of one column the column itself. So a
site without labels refuses a job in which the others' columns are not more than the steps (``max_iter``), unless the
job says ``open_scores``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedsift.core.federation import Federation
from fedsift.core.operation import Array, operation
from fedsift.core.party import Party, Task
from fedsift.errors import DataError, OperationRefused
from fedsift.mpc.moments import check_few_values, scaled
from fedsift.mpc.shared_descent import Columns, SharedDescent
from fedsift.mpc.weighted_moments import RowWeights, WeightedMoments

Floats = NDArray[np.float64]
_TOLERANCE = 1e-7  # of a Newton step, which squares what is left
_LARGEST = 40.0  # coefficient of a standardised column: beyond, classes are separated


@operation(
    "statistics.open_logistic",
    discloses="aggregate",
    about="which of its columns are numbers that vary, by position",
    reply=Array("i"),
    times=1,
)
def open_logistic(party: Party, *, task: Task) -> NDArray[np.int64]:
    """Columns of mean 0 and mean square 1; the label holder's with a constant, and its loss."""
    asked = party.job.parameters
    if asked.get("model") != "logistic":
        raise OperationRefused(party.name, "open_logistic", "this job is not about a logistic model")
    numeric = [name for name in party.columns if party.table.kinds[name] != "categorical"]
    given = party.table.matrix(numeric)
    check_few_values(party, dict(zip(numeric, given.T)))  # in the first step all rows weigh the same
    values = scaled(given)
    varies = np.abs(values).max(axis=0, initial=0.0) > 0
    positions = np.array([party.columns.index(name) for name in numeric], dtype=np.int64)[varies]
    columns = party.keep(Columns(values[:, varies], 1))
    if party.table.label is None and len(positions) <= asked["max_iter"] and not asked["open_scores"]:
        raise OperationRefused(
            party.name, "open_logistic",
            f"it has {len(positions)} numeric columns that vary, and from the scores of {asked['max_iter']} steps the "
            "label holder would read their space: take model='linear', or agree on open_scores=True",
        )  # fmt: skip
    if party.table.label is not None:
        labels = party.labels(task=task)
        if labels.task != "classification" or labels.n_classes != 2:
            raise DataError(f"party {party.name!r}: a logistic model is for two classes")
        columns.values = np.hstack([columns.values, np.ones((party.n_rows, 1))])
        weights, positive = party.keep(RowWeights(np.full(party.n_rows, 0.25))), labels.codes == 1

        def loss(scores: Floats) -> tuple[Floats, Floats]:
            told, weights.values, residuals = log_loss(scores[:, 0], positive)
            return told, residuals[:, None]

        columns.loss = loss
    return np.asarray(positions)


def log_loss(scores: Floats, positive: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """The mean loss, the weight p (1 - p) of each row, and the residuals p - y."""
    probability = 1 / (1 + np.exp(-np.clip(scores, -500, 500)))
    loss = np.logaddexp(0, np.where(positive, -scores, scores)).mean()
    return np.array([loss]), probability * (1 - probability), probability - positive


# --- the coordinator's side -------------------------------------------------------------------------------------------


def logistic(run: Federation, max_iter: int) -> tuple[dict[str, NDArray[np.int64]], dict[str, Floats]]:
    """Which columns of each party took part, and coefficient, error, z and p of each, inside a session."""
    positions: dict[str, NDArray[np.int64]] = run.ask(open_logistic, to=run.parties, task=run.asked_task)
    widths = {name: len(columns) + (name == run.active) for name, columns in positions.items()}
    descent, moments = SharedDescent(run, widths, 1, reads_scores=True), WeightedMoments(run, widths)
    weights, curvature = _maximum(run, descent, moments, max_iter)
    constant = moments.place[run.active].stop - 1
    error = np.sqrt(np.diag(np.linalg.inv(curvature)) / run.n_rows)
    kept = np.delete(np.arange(len(weights)), constant)
    ratio = weights[kept] / error[kept]
    found = {"coefficient": weights[kept], "error": error[kept], "z": ratio, "p": 2 * stats.norm.sf(np.abs(ratio))}
    return positions, found


def _maximum(run: Federation, descent: SharedDescent, moments: WeightedMoments, max_iter: int) -> tuple[Floats, Floats]:
    """Newton's method from 0; a step that makes the loss larger is halved."""
    size, before = sum(moments.widths.values()), np.inf
    weights, step = np.zeros(size), np.zeros(size)
    for _ in run.track(range(max_iter), "step", at_most=True):
        losses, slopes = descent.at({name: weights[place, None] for name, place in moments.place.items()})
        if losses[0] > before + 1e-9:
            step = step / 2
            weights = weights - step
            continue
        before = float(losses[0])
        curvature = moments.open()
        if np.linalg.cond(curvature) > 1e10:
            raise DataError("p-values need columns that no others give exactly (see vif), and classes that overlap")
        slope = np.concatenate([slopes[name][:, 0] for name in run.parties])
        step = -np.linalg.solve(curvature, slope)
        weights = weights + step
        if np.abs(step).max() < _TOLERANCE:
            return weights, curvature
        if np.abs(weights).max() > _LARGEST:
            break
    raise DataError("the logistic model found no maximum: the columns separate the classes, or nearly")
