"""A linear or additive model over vertically split columns whose weights no party that holds rows ever learns.

Least squares with a ridge penalty (for classes: on -1 and 1, the second-order approximation of logistic regression, one
class against the rest) on each party's columns, standardised, or on indicators of their bins: an additive model of
steps, which follows bends that a straight line misses. For asking what columns are worth: evaluation trains many
models and keeps none, and final weights of many models would tell parties about labels. So weights stay with the
coordinator, which holds no rows, in training and in prediction (``mpc/shared_descent.py``).

Who learns what: the coordinator: weights and gradients of columns (bins) by number, in every step, and how good a model
is. A party without labels: nothing. The label holder: nothing when a model is measured (``unseen.py``: its scores stay
shares); when it is asked for predictions, the total score of each row (with one other party, that party's score).

After Yang et al. 2019 (quasi-Newton steps on the quadratic loss); the masks are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between
from fedsift.core.checks import check_number
from fedsift.core.design import WEIGHTED
from fedsift.core.federation import Federation
from fedsift.core.ledger import later
from fedsift.core.operation import Array, operation, together
from fedsift.core.party import Party
from fedsift.errors import DataError
from fedsift.models import parts, unseen
from fedsift.models.base import FederatedModel
from fedsift.models.design import BinnedDesign, Design
from fedsift.models.lbfgs import descend
from fedsift.models.metrics import probabilities
from fedsift.models.parts import class_names
from fedsift.models.predicted import Predicted, ScoresOpened, class_codes
from fedsift.models.shuffling import ColumnPlace, Repeat, Shuffled, own_numbers, told_each
from fedsift.models.unseen import SharedScores, Truth
from fedsift.mpc import row_weights, shared_descent
from fedsift.mpc.ranking import reach_of
from fedsift.mpc.row_weights import whole_row_weights
from fedsift.mpc.score_shares import share_scores_at
from fedsift.mpc.shared_descent import Columns, SharedDescent, check_neutral, spread

Floats = NDArray[np.float64]
Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class BlindPart:
    """What a party keeps of a model: how its columns become numbers; the label holder's target. No weight."""

    design: Design | BinnedDesign
    outputs: int
    classes: tuple[str, ...] = ()
    centre: float = 0.0  # of a number as label: prediction = centre + scale * score
    scale: float = 1.0
    holder: bool = False  # of the label


@operation(
    "additive.open_columns",
    discloses="aggregate",
    about="how many numbers its columns make, and the largest variance of a combination",
    reply={"width": int, "spread": float},
    settings=("bins", "min_cell"),
    min_cell="min_cell",
    times="1 a session",
)
def open_columns(
    party: Party, *, model: Annotated[str, AtMost(64)], task: Task, outputs: Annotated[int, Between(1, 1000)],
    bins: Annotated[int, Between(2, 255)] | None, min_cell: Annotated[int, Between(1, 2**31)],
) -> dict[str, Any]:  # fmt: skip
    """Columns as numbers; the label holder has a column of ones beside them, and the target."""
    design = Design.fit(party.table) if bins is None else BinnedDesign.fit(party.table, bins, min_cell)
    columns = party.keep(Columns(design.matrix(party.table), outputs))
    wide = spread(columns.values)
    part = BlindPart(design, outputs)
    if party.table.label is not None:
        labels = party.labels(task=task)
        if labels.task == "regression":
            centre, scale = float(labels.values.mean()), float(labels.values.std()) or 1.0
            columns.target = 2.0 * (labels.values[:, None] - centre) / scale
            part = BlindPart(design, outputs, (), centre, scale / 2.0, holder=True)
        else:
            wanted = np.arange(outputs) if outputs > 1 else np.array([1])
            columns.target = np.where(labels.codes[:, None] == wanted, 2.0, -2.0)
            part = BlindPart(design, outputs, labels.classes, holder=True)
        columns.values = np.hstack([columns.values, np.ones((party.n_rows, 1))])
        columns.row_weights = whole_row_weights(party, labels)
    party.models.keep(model, part)
    return {"width": columns.values.shape[1], "spread": wide}


@operation(
    "additive.open_rows",
    discloses="control",
    about="acknowledgement",
    learns="nothing; the label holder, in the next step, the total score of each row",
    times="1 a session",
    releases=later,
)
def open_rows(party: Party, *, model: Annotated[str, AtMost(64)]) -> None:
    """New rows as numbers, in the way of the training rows."""
    part = party.models.part(model, BlindPart)
    if not part.holder:
        party.held_here(ScoresOpened)
    columns = party.keep(Columns(part.design.matrix(party.table), part.outputs, use="predictions"))
    if part.holder:
        columns.values = np.hstack([columns.values, np.ones((party.n_rows, 1))])

        def keep_scores(scores: Floats) -> tuple[Floats, Floats]:
            """The label holder's: scores are its predictions, and nothing is learned from them."""
            if not part.classes:
                party.keep(Predicted(part.centre + part.scale * scores))
            else:
                party.keep(Predicted(scores, part.classes, "one against the rest"))
            return np.zeros(1), np.zeros_like(scores)

        columns.loss = keep_scores


@operation(
    "additive.open_unseen_rows",
    discloses="control",
    about="acknowledgement",
    learns="nothing: the scores of these rows stay shares",
    times="1 a session",
    releases=later,
)
def open_unseen_rows(
    party: Party, *, model: Annotated[str, AtMost(64)], shuffled: ColumnPlace = None, repeat: Repeat = 0
) -> None:
    """New rows as numbers, for a measure: nobody reads a score. One of its columns may be shuffled."""
    part = party.models.part(model, BlindPart)
    columns = party.keep(Columns(own_numbers(party, part.design, shuffled, repeat), part.outputs, use="a measure"))
    if not part.holder:
        return
    columns.values = np.hstack([columns.values, np.ones((party.n_rows, 1))])
    label = party.table.label
    if label is None:
        raise DataError(f"party {party.name!r} has no labels of these rows to measure with")
    if part.classes:
        party.keep(Truth(class_codes(label, part.classes)))
    else:
        party.keep(Truth((label.astype(np.float64) - part.centre) / part.scale))


@operation(
    "additive.tell_scores",
    discloses="plain",
    about="predicted scores of the rows",
    reply=Array("f", 2),
    role="active",
    concerns="own columns and labels",
    times="1 a session",
)
def tell_scores(party: Party) -> Floats:
    return party.held(Predicted).scores


OPERATIONS = together(
    parts.OPERATIONS, shared_descent.OPERATIONS, row_weights.OPERATIONS, unseen.OPERATIONS,
    (open_columns, open_rows, open_unseen_rows, tell_scores),
)  # fmt: skip


class VerticalAdditive(FederatedModel):
    """A linear model, or an additive one of steps, whose weights no party that holds rows learns.

    Parameters
    ----------
    bins : quantile bins of a column, each with an indicator; ``None`` takes columns as they are (a linear model).
    max_iter : steps. tol : stop when the gradient is shorter. reg_lambda : weight of the squared weights.
    memory : steps that the quasi-Newton method remembers. min_cell : rows of a bin at least.

    Examples
    --------
    >>> import numpy as np, fedsift as fs
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> fed = fs.Federation.split(X, np.where(X[:, 0] ** 2 + X[:, 3] > 1, "yes", "no"), parties=2)
    >>> model = fs.VerticalAdditive().fit(fed)
    >>> model.classes_.tolist(), model.score(fed) > 0.8
    (['no', 'yes'], True)
    """

    name = "vertical_additive"
    designs = WEIGHTED
    operations = OPERATIONS
    cell_parameters = ("min_cell",)
    _on_shares = True

    def __init__(
        self, *, bins: int | None = 8, max_iter: int = 15, tol: float = 1e-4, reg_lambda: float = 0.01,
        memory: int = 8, min_cell: int = 10,
    ):  # fmt: skip
        self.bins = bins
        self.max_iter = max_iter
        self.tol = tol
        self.reg_lambda = reg_lambda
        self.memory = memory
        self.min_cell = min_cell

    def _check(self, fed: Federation) -> None:
        check_neutral(fed, type(self).__name__)
        check_number("bins", self.bins, 2, 255, whole=True, none=True)
        check_number("max_iter", self.max_iter, 1, whole=True)
        check_number("memory", self.memory, 1, 50, whole=True)
        check_number("min_cell", self.min_cell, 1, whole=True)
        check_number("tol", self.tol, 0)
        check_number("reg_lambda", self.reg_lambda, 0)

    def _fit(self, run: Federation) -> Sequence[str]:
        names = run.ask(class_names, to=run.active, task=run.asked_task) if run.task == "classification" else []
        outputs = len(names) if len(names) > 2 else 1
        opened = run.ask(
            open_columns, to=run.parties, model=self.model_id_, task=run.task, outputs=outputs, bins=self.bins,
            min_cell=self.min_cell,
        )  # fmt: skip
        self._widths = {name: reply["width"] for name, reply in opened.items()}
        descent = SharedDescent(run, self._widths, outputs, reads_scores=False)
        wide = max(1.0, sum(reply["spread"] for reply in opened.values()))
        found = descend(
            run, descent, wide, max_iter=self.max_iter, tol=self.tol, reg_lambda=self.reg_lambda, memory=self.memory
        )
        self._weights, self.curve_, self._deviation = found.weights, found.curve, found.deviation
        run.ledger.note("weights stayed with the coordinator: no party that holds rows learned any")
        self.n_iter_ = len(self.curve_)
        return list(names)

    @property
    def numbers_a_row(self) -> int:
        return sum(self._widths.values())

    def _hold(self, run: Federation) -> None:
        """One step of a descent in which the label holder opens the scores and nothing is learned from them."""
        run.ask(open_rows, to=run.parties, model=self.model_id_)
        outputs = len(next(iter(self._weights.values()))[0]) if self._weights else 1
        SharedDescent(run, self._widths, outputs, reads_scores=True).at(self._weights)

    def _share(self, run: Federation, shuffled: Shuffled | None = None) -> SharedScores:
        """The same step, in which nobody opens the scores: they stay shares of the label holder and its helper."""
        run.ask(open_unseen_rows, to=run.parties, each=told_each(run.parties, shuffled), model=self.model_id_)
        weights = self._weights[run.active]
        descent = SharedDescent(run, self._widths, weights.shape[1], reads_scores=True)
        fraction = share_scores_at(descent, self._weights)
        classes = len(self.classes_) if self.task_ == "classification" else 0
        return SharedScores(descent.helper, fraction, weights.shape[1], classes, reach_of(self._deviation))

    def _decision(self, run: Federation) -> Floats:
        self._hold(run)
        scores: Floats = run.ask(tell_scores, to=run.active)
        return scores

    def _probabilities(self, scores: Floats) -> Floats:
        return probabilities(scores, "one against the rest")
