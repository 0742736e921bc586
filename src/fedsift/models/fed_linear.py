"""Linear models over row-partitioned tables: FedAvg under secure aggregation, and the exact ridge from summed moments.

McMahan et al. 2017, as federated AutoFE uses it: each round a party starts from the common weights, takes
``local_steps`` gradient steps on its rows, and the weights are averaged by row counts. The average travels as a
secure sum, so the coordinator sees the averaged weights only. Many models (feature masks, penalties) move in
lock-step: one message carries all of them.

With one local step the average is a gradient step on the pooled loss, so with Nesterov's extrapolation between
rounds (restarted when it overshoots) the models converge to the pooled solution: those of scikit-learn's Ridge and
LogisticRegression. More local steps save rounds and bias the result where parties differ, as is known of FedAvg.

The loss is the mean over rows of (y - f)^2 / 2 or of the cross-entropy, plus penalty / 2 * |w|^2 without the
intercept. scikit-learn's alpha is penalty * n, its C is 1 / (penalty * n).

With a weight (each party's own column, ``"*.column"``) means are weighted, and n is the sum of all weights: that and
weighted sums over all parties are what is opened. ``FedLinear`` is the model for users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from fedsift.core.arguments import Between
from fedsift.core.checks import check_choice, check_size
from fedsift.core.federation import Federation
from fedsift.core.operation import Answering, Array, R, operation, together
from fedsift.core.party import Party
from fedsift.errors import DataError, OperationRefused, ParameterError, ReplyError
from fedsift.models import parts
from fedsift.models.base import FederatedModel
from fedsift.models.predicted import Predicted
from fedsift.mpc import horizontal_study as study_room
from fedsift.mpc.column_scores.weighing import own_weights
from fedsift.mpc.horizontal_study import (
    Study,
    Target,
    describe_rows,
    design_of,
    load_columns,
    standardise,
    target_of,
    training_of,
)
from fedsift.mpc.secure_sum import SecureSum, summed

#: Penalties that "auto" chooses from, by the loss on validation rows.
PENALTIES = tuple(10.0**e for e in range(-6, 2))
Kind = Literal["ridge", "logistic"]
#: Fits in one session: FedLinear has one, a search of features some for each feature, halving one a level.
FITS = "10 x parties x max_features or 100 x patience or 5 a session"
STEPS = FITS.replace(" a session", " x max_iter or rounds or 1000 a session")


# --- a party's side --------------------------------------------------------------------------------------------------


@summed(
    "linear.curvature", when="epsilon=none|unsaid", times=FITS, about="largest curvature of the loss",
    receives="control",
)  # fmt: skip
def curvature(party: Party) -> np.ndarray:
    design, counted = with_intercept(design_of(party)[training_of(party)]), own_weights(party, training_of(party))
    total = len(design) if counted is None else counted.sum()
    design = design if counted is None else np.sqrt(counted)[:, None] * design
    # A sum of largest eigenvalues bounds the largest eigenvalue of the sum: a safe step for every mask at once.
    moments = design.T @ design if len(design) > design.shape[1] else design @ design.T
    return np.array([np.linalg.eigvalsh(moments)[-1] if moments.size else 0.0, total])


@summed(
    "linear.local_steps", when="epsilon=none|unsaid", times=STEPS,
    about="weights of the models after local steps, times the number of rows", learns="the averaged weights",
)  # fmt: skip
def local_steps(
    party: Party, *, weights: np.ndarray, masks: np.ndarray, penalties: np.ndarray,
    rate: Annotated[float, Between(0, 1e9)], steps: Annotated[int, Between(1, 1000)], kind: Kind,
) -> np.ndarray:  # fmt: skip
    """``weights`` is models x (features + 1) x outputs, the intercept last; ``masks`` models x features. The number of
    rows comes last, so that an average is right even when a party has left."""
    job, models = party.run.job, len(weights)
    if steps != (1 if job is None else job.parameters.get("local_steps", 1)):
        raise OperationRefused(party.name, "local_steps", "its 'steps' are others than those of the accepted job")
    _check_models(party, "local_steps", weights, kind)
    check_size(party.name, "local_steps", "masks", masks, models, design_of(party).shape[1])
    check_size(party.name, "local_steps", "penalties", penalties, models)
    design, target = with_intercept(design_of(party)[training_of(party)]), _target(party, kind)[training_of(party)]
    counted = own_weights(party, training_of(party))
    if len(design):
        for _ in range(steps):
            weights = weights - rate * gradient(design, target, weights, masks, penalties, kind, counted)
    return (len(design) if counted is None else counted.sum()) * np.append(weights, 1.0)


@summed(
    "linear.validation_scores", when="epsilon=none|unsaid", times=FITS,
    about="errors and losses of the models on the validation rows", learns="the averaged weights",
)  # fmt: skip
def validation_scores(party: Party, *, weights: np.ndarray, kind: Kind, everywhere: bool = False) -> np.ndarray:
    """Sum of absolute errors (or of wrong classes), then sum of losses, for each model."""
    _check_models(party, "validation_scores", weights, kind)
    rows = slice(None) if everywhere else ~training_of(party)
    design, target = with_intercept(design_of(party)[rows]), _target(party, kind)[rows]
    scores, counted = predict(design, weights), own_weights(party, rows)
    each = 1.0 if counted is None else counted[:, None, None]
    if kind == "ridge":
        gap = target[:, None, :] - scores
        return np.stack([(each * np.abs(gap)).sum(axis=(0, 2)), 0.5 * (each * gap**2).sum(axis=(0, 2))])
    wrong = scores.argmax(axis=2) != target.argmax(axis=1)[:, None]
    wrongs = (wrong if counted is None else counted[:, None] * wrong).sum(axis=0)
    return np.stack([wrongs, -(each * target[:, None, :] * log_softmax(scores)).sum(axis=(0, 2))])


@summed(
    "linear.moments", when="epsilon=none|unsaid", times="2 x parties a session",
    about="sums of products of features and target", receives="control",
)  # fmt: skip
def moments(party: Party, *, everywhere: bool = False) -> np.ndarray:
    """The moment matrix of (features, 1, target): all that a ridge needs."""
    rows = slice(None) if everywhere else training_of(party)
    joint = np.hstack([with_intercept(design_of(party)), target_of(party)])[rows]
    counted = own_weights(party, rows)
    product = joint.T @ (joint if counted is None else counted[:, None] * joint)
    return np.asarray(product[np.triu_indices(len(product))])


def _check_models(party: Party, step: str, weights: np.ndarray, kind: Kind) -> None:
    outputs = _target(party, kind).shape[1]
    check_size(party.name, step, "weights", weights, None, design_of(party).shape[1] + 1, outputs)


def _target(party: Party, kind: Kind) -> np.ndarray:
    told = party.held(Target)
    return told.scaled if kind == "ridge" else told.as_told


# --- mathematics of arrays -------------------------------------------------------------------------------------------


def with_intercept(design: np.ndarray) -> np.ndarray:
    return np.hstack([design, np.ones((len(design), 1))])


def predict(design: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """rows x models x outputs, in one matrix product."""
    models, width, outputs = weights.shape
    flat = design @ weights.transpose(1, 0, 2).reshape(width, models * outputs)
    return np.asarray(flat.reshape(len(design), models, outputs))


def log_softmax(scores: np.ndarray) -> np.ndarray:
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def gradient(
    design: np.ndarray, target: np.ndarray, weights: np.ndarray, masks: np.ndarray, penalties: np.ndarray, kind: str,
    counted: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Of the penalised mean loss of each model, weighted by what rows count; zero where a mask leaves a feature out."""
    models, width, outputs = weights.shape
    scores = predict(design, weights)
    residual = scores if kind == "ridge" else np.exp(log_softmax(scores))
    flat = (residual - target[:, None, :]).reshape(len(design), models * outputs)
    flat, total = (flat, len(design)) if counted is None else (counted[:, None] * flat, counted.sum())
    slope: np.ndarray = (design.T @ flat).reshape(width, models, outputs).transpose(1, 0, 2) / total
    slope[:, :-1] += penalties[:, None, None] * weights[:, :-1]
    slope[:, :-1] *= masks[:, :, None]
    return slope


def unpack_moments(flat: np.ndarray, width: int) -> np.ndarray:
    """The symmetric matrix whose upper triangle ``flat`` holds."""
    matrix = np.zeros((width, width))
    matrix[np.triu_indices(width)] = flat
    return matrix + np.triu(matrix, 1).T


def exact_ridge(matrix: np.ndarray, features: int, penalty: float) -> np.ndarray:
    """Weights ((features + 1) x outputs, intercept last) from the moment matrix: no iteration, no further message."""
    inner = matrix[: features + 1, : features + 1].copy()
    inner[np.arange(features), np.arange(features)] += penalty * matrix[features, features]  # times the rows
    return np.asarray(np.linalg.lstsq(inner, matrix[: features + 1, features + 1 :], rcond=None)[0])


# --- the coordinator's side ------------------------------------------------------------------------------------------


def fed_average(
    total: SecureSum,
    study: Study,
    masks: np.ndarray,
    penalties: Sequence[float] | np.ndarray,
    *,
    rounds: int,
    local_steps_each: int = 1,
    start: np.ndarray | None = None,
    tol: float = 1e-6,
) -> tuple[np.ndarray, int]:
    """Train all models in lock-step; their weights and the number of rounds that it took."""
    kind = "ridge" if study.task == "regression" else "logistic"
    masks, strengths = np.asarray(masks, dtype=bool), np.asarray(penalties, dtype=np.float64)
    shape = (len(masks), masks.shape[1] + 1, study.outputs)
    steepest, rows = total.sum(curvature, (2,))
    bound = steepest / rows * (1.0 if kind == "ridge" else 0.5)
    rate = 1.0 / (bound + float(strengths.max(initial=0.0)))
    current = np.zeros(shape) if start is None else np.array(start, dtype=np.float64)
    ahead, age = current.copy(), np.ones(len(masks))
    for done in total.fed.track(range(1, rounds + 1), "step", at_most=True):
        sums = total.sum(
            local_steps, (int(np.prod(shape)) + 1,), weights=ahead, masks=masks, penalties=strengths, rate=rate,
            steps=local_steps_each, kind=kind,
        )  # fmt: skip
        average = sums[:-1].reshape(shape) / sums[-1]
        step = average - current
        if np.abs(step).max(initial=0.0) < tol:
            return average, done
        # Nesterov's extrapolation, for each model; one that overshoots starts anew.
        age = np.where(((ahead - average) * step).sum(axis=(1, 2)) > 0, 1.0, age)
        following = (1 + np.sqrt(1 + 4 * age**2)) / 2
        ahead = average + ((age - 1) / following)[:, None, None] * step
        current, age = average, following
    return current, rounds


@operation(
    "linear.score_rows", times="1 a session", discloses="plain", receives="aggregate",
    about="predicted scores of its own rows", learns="the weights of the model", reply=Array("f", 2),
)  # fmt: skip
def score_rows(
    party: Party, *, columns: list[str], centre: np.ndarray, weights: np.ndarray, intercept: np.ndarray,
    classes: list[str],
) -> np.ndarray:  # fmt: skip
    """Own rows under the common weights."""
    return _scored(party, columns, centre, weights, intercept, classes).scores


@operation(
    "linear.hold_scores", times="1 a session", discloses="control", receives="aggregate",
    about="acknowledgement: the predictions of its own rows stay here", learns="the weights of the model",
)  # fmt: skip
def hold_scores(
    party: Party, *, columns: list[str], centre: np.ndarray, weights: np.ndarray, intercept: np.ndarray,
    classes: list[str],
) -> None:  # fmt: skip
    """The same, for a score."""
    _scored(party, columns, centre, weights, intercept, classes)


def _scored(
    party: Party, columns: list[str], centre: np.ndarray, weights: np.ndarray, intercept: np.ndarray, classes: list[str]
) -> Predicted:
    missing = [name for name in columns if name not in party.columns]
    if missing:
        raise DataError(f"party {party.name!r} lacks the column {missing[0]!r} that the model was trained with")
    check_size(party.name, "score_rows", "weights", weights, len(columns), len(intercept))
    check_size(party.name, "score_rows", "centre", centre, len(columns))
    values = np.column_stack([party.table.values(name) for name in columns])
    scores = np.where(np.isnan(values), centre, values) @ weights + intercept
    return party.keep(Predicted(scores, tuple(classes)))


OPERATIONS = together(parts.OPERATIONS, study_room.OPERATIONS, (
    curvature.masked, curvature.open, local_steps.masked, local_steps.open,
    validation_scores.masked, validation_scores.open, moments.masked, moments.open, score_rows,
    hold_scores,
))  # fmt: skip


class FedLinear(FederatedModel):
    """Ridge or multinomial logistic regression over row-partitioned parties, equal to the pooled fit.

    Parameters
    ----------
    penalty : strength of the L2 penalty, or ``"auto"``: chosen on the validation rows from 1e-6 to 10.
    solver : ``"fedavg"``, or ``"exact"`` (ridge only: from summed moments, one round).
    rounds, local_steps, tol : of FedAvg.
    validation : share of each party's rows (or the name of the party) that the penalty is chosen on.
    random_state : draws the validation rows.
    protection : what leaves a party: ``"sums"`` (under masks) or ``"open"`` (research: each party's own sums).

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> fed = fs.Federation.split(X, y, parties=["north", "south"], partition="horizontal")
    >>> round(fs.FedLinear(penalty=0.01).fit(fed).score(fed), 2)
    0.96
    """

    partitions = ("horizontal",)
    name = "fed_linear"
    designs = ("weight",)
    operations = OPERATIONS
    _saved = ("columns_", "coef_", "intercept_", "centre_", "class_names_", "penalty_", "n_rounds_")

    def __init__(
        self,
        *,
        penalty: float | str = "auto",
        solver: str = "fedavg",
        rounds: int = 1000,
        local_steps: int = 1,
        tol: float = 1e-6,
        validation: float | str = 0.2,
        random_state: object = 0,
        protection: str = "sums",
    ):
        self.penalty = penalty
        self.solver = solver
        self.rounds = rounds
        self.local_steps = local_steps
        self.tol = tol
        self.validation = validation
        self.random_state = random_state
        self.protection = protection

    def _fit(self, run: Federation) -> Sequence[str]:
        described = run.ask(describe_rows, to=run.parties, task=run.asked_task)
        numeric, _ = study_room.agree_columns(described)
        if not numeric:
            raise DataError("no column is a number at every party; a linear model needs at least one")
        total = SecureSum(run, secure=self.protection != "open")
        study = study_room.open_study(total, described, self.validation if self.penalty == "auto" else 0.0)
        total.ask_all(load_columns, columns=numeric)
        centre, deviation = standardise(total, len(numeric))
        weights = self._train(total, study, len(numeric))
        self.columns_ = numeric
        self.coef_ = weights[:-1] * (study.deviation / deviation)[:, None]
        offset = study.centre if study.task == "regression" else 0.0
        self.intercept_ = weights[-1] * study.deviation + offset - centre @ self.coef_
        self.centre_ = centre  # where missing values stand
        self.class_names_ = list(study.classes)
        return self.class_names_

    def _check(self, fed: Federation) -> None:
        check_choice("protection", self.protection, ("sums", "open"))
        check_choice("solver", self.solver, ("fedavg", "exact"))
        number = isinstance(self.penalty, (int, float)) and not isinstance(self.penalty, bool) and self.penalty >= 0
        if self.penalty != "auto" and not number:
            raise ParameterError(f"penalty must be 'auto' or a number of at least 0; got {self.penalty!r}")
        study_room.check_validation(self.validation)
        if self.penalty == "auto" and self.validation == 0:
            raise ParameterError("penalty='auto' needs validation rows: validation must be above 0")

    def _train(self, total: SecureSum, study: Study, width: int) -> np.ndarray:
        exact = self.solver == "exact"
        if exact and study.task != "regression":
            raise ParameterError("solver='exact' is for regression; classes need solver='fedavg'")
        choices = PENALTIES if self.penalty == "auto" else (float(self.penalty),)
        if exact:
            size = width + 1 + study.outputs
            matrix = unpack_moments(total.sum(moments), size)
            weights = np.stack([exact_ridge(matrix, width, each) for each in choices])
            self.n_rounds_ = 1
        else:
            masks = np.ones((len(choices), width), dtype=bool)
            weights, self.n_rounds_ = fed_average(
                total, study, masks, choices, rounds=self.rounds, local_steps_each=self.local_steps,
                tol=self.tol,
            )  # fmt: skip
        best = 0
        if len(choices) > 1:
            kind = "ridge" if study.task == "regression" else "logistic"
            best = int(np.argmin(total.sum(validation_scores, (2, len(choices)), weights=weights, kind=kind)[1]))
        self.penalty_ = choices[best]
        return np.asarray(weights[best])

    def _decision(self, run: Federation) -> np.ndarray:
        """Every party scores its own rows; party after party."""
        told = self._ask_rows(run, score_rows)
        for name in (name for name, scores in told.items() if scores.shape[1] != self.coef_.shape[1]):
            raise ReplyError(name, "score_rows", "another number of scores a row than the model gives")
        return np.concatenate([told[name] for name in run.parties])

    def _hold(self, run: Federation) -> None:
        self._ask_rows(run, hold_scores)

    def _ask_rows(self, run: Federation, what: Answering[R]) -> dict[str, R]:
        return run.ask(
            what, to=run.parties, columns=self.columns_, centre=self.centre_, weights=self.coef_,
            intercept=self.intercept_, classes=self.class_names_,
        )  # fmt: skip

    def _check_parties(self, fed: Federation) -> None:
        """Any party may be scored that has the columns: the weights are common."""
        if fed.partition not in self.partitions:
            raise ParameterError(f"FedLinear is for horizontal parties; these are {fed.partition}")
        self.holders_ = list(fed.parties)

    def _write_parts(self, run: Federation) -> None:
        """Nothing lies with the parties."""

    def _read_parts(self, run: Federation) -> None:
        """Nothing lies with the parties."""
