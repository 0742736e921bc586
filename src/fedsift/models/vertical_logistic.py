"""Vertical logistic regression (VFLR): second-order approximation, gradients that no party reads, quasi-Newton steps.

Yang et al. 2019, a baseline of PSO-EVFFS. With labels y = +-1 and score z = x.w the loss log(1 + exp(-y z)) is replaced
by log 2 - y z / 2 + z^2 / 8, so the gradient is linear in the scores: X'(z - 2y) / 4. Several classes: one against
the rest. Departures: columns are standardised, the quasi-Newton method is limited-memory BFGS, and no ciphertexts:
the paper's parties read their own gradients, which is enough to solve for the labels (X'y is a linear programme). Here
the coordinator, which holds no rows, moves all weights, and scores and residuals stay in shares that nobody opens
(``mpc/shared_descent.py``). Three rounds a step; four where rows count differently (``mpc/row_weights.py``).

Who learns what: the coordinator: weights and gradients of columns by number, in every step. A party: its final weights,
nothing before. For prediction the other parties' scores are added up under masks that the label holder takes off; it
reads their total of each row (with one other party, that party's score).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import LabelHolder, Outputs, PartyName
from fedsift.core.checks import check_number
from fedsift.core.design import WEIGHTED
from fedsift.core.federation import Federation
from fedsift.core.operation import Answering, Array, operation, together
from fedsift.core.party import Party
from fedsift.errors import DataError, ReplyError
from fedsift.models import parts, unseen
from fedsift.models.base import FederatedModel
from fedsift.models.design import Design, LinearPart
from fedsift.models.lbfgs import descend
from fedsift.models.metrics import probabilities
from fedsift.models.parts import class_names
from fedsift.models.predicted import Predicted, ScoresOpened, class_codes
from fedsift.models.shuffling import ColumnPlace, Repeat, Shuffled, own_numbers, told_each
from fedsift.models.unseen import SharedScores, Truth
from fedsift.mpc import pairs, row_weights, shared_descent
from fedsift.mpc.pairs import Pairs, meet_all
from fedsift.mpc.ranking import reach_of
from fedsift.mpc.ring import Ring, check_shape, from_ring, to_ring
from fedsift.mpc.row_weights import whole_row_weights
from fedsift.mpc.score_shares import ScoreShare
from fedsift.mpc.shared_descent import Columns, SharedDescent, check_neutral, spread

Floats = NDArray[np.float64]
_SCORE_BITS = 32  # of the fraction of a score
_SCORE_ROOM = 2.0**24
_READ, _UNSEEN = "part scores", "unseen part scores"  # two kinds of masks


@dataclass
class _Training:
    """What a party keeps of a run beside its columns."""

    design: Design
    classes: tuple[str, ...]


# --- what the parties do ----------------------------------------------------------------------------------------------


@operation(
    "logistic.open_columns",
    times="1 a session",
    discloses="aggregate",
    about="how many numbers its columns make, and the largest variance of a combination",
    reply={"width": int, "spread": float},
)
def open_columns(party: Party, *, task: str, outputs: Outputs) -> dict[str, Any]:
    """Standardise own columns; the label holder has a column of ones beside them, and the target."""
    design = Design.fit(party.table)
    classes: tuple[str, ...] = ()
    values = design.matrix(party.table)
    columns = party.keep(Columns(values, outputs))
    if party.table.label is not None:
        labels = party.labels(task=task)
        classes = labels.classes
        wanted = np.arange(outputs) if outputs > 1 else np.array([1])
        columns.target = np.where(labels.codes[:, None] == wanted, 2.0, -2.0)
        columns.values = np.hstack([values, np.ones((party.n_rows, 1))])
        columns.row_weights = whole_row_weights(party, labels)
    party.keep(_Training(design, classes))
    return {"width": columns.values.shape[1], "spread": spread(values)}


@operation(
    "logistic.keep_weights",
    times="1 a session",
    discloses="control",
    receives="aggregate",
    about="acknowledgement",
    learns="the final weights of its own columns",
)
def keep_weights(party: Party, *, model: str, weights: Floats) -> None:
    """Own weights stay at the site."""
    kept, columns = party.held(_Training), party.held(Columns)
    columns.check_final(party.name, weights)
    intercept = None
    if columns.target is not None:
        weights, intercept = weights[:-1], weights[-1]
    party.models.keep(model, LinearPart(kept.design, weights, intercept, classes=kept.classes))


@operation(
    "logistic.part_scores",
    times="1 a session",
    discloses="masked",
    about="its part of the scores of the rows under masks that it shares with the label holder",
    opened="pseudonymous: the score of each row, in total over all parties",
    opened_by="active",
    reply=Array("i", 2),
)
def part_scores(party: Party, *, model: str, label_holder: LabelHolder) -> Ring:
    party.held_here(ScoresOpened)
    return _hidden(party, party.models.part(model, LinearPart).scores(party.table), label_holder, _READ)


def _hidden(party: Party, scores: Floats, label_holder: LabelHolder, purpose: str) -> Ring:
    return to_ring(scores, _SCORE_BITS, _SCORE_ROOM) + party.held(Pairs).mask(label_holder, purpose, 1, scores.shape)


@operation(
    "logistic.unseen_scores",
    times="1 a session",
    discloses="masked",
    about="its part of the scores of the rows under masks shared with the label holder, for a measure on shares",
    opened="nobody",
    reply=Array("i", 2),
    role="passive",
)
def unseen_scores(
    party: Party, *, model: str, label_holder: LabelHolder, shuffled: ColumnPlace = None, repeat: Repeat = 0
) -> Ring:
    """Under other masks than ``part_scores``: nobody can read these. One of its columns may be shuffled."""
    part = party.models.part(model, LinearPart)
    return _hidden(party, part.of(own_numbers(party, part.design, shuffled, repeat)), label_holder, _UNSEEN)


@operation(
    "logistic.keep_total", times="1 a session", discloses="control", receives="masked", about="acknowledgement",
    learns="a share of the scores, which is uniform to it", role="passive",
)  # fmt: skip
def keep_total(party: Party, *, model: str, total: Ring) -> None:
    """One party's share of the scores: all parties' parts under their masks."""
    part = party.models.part(model, LinearPart)
    check_shape(total, (party.n_rows, part.weights.shape[1]), party.name)
    party.keep(ScoreShare(total, _SCORE_BITS))


@operation(
    "logistic.keep_own", times="1 a session", discloses="control", about="acknowledgement",
    learns="nothing: its own part of the scores, less masks", role="active",
)  # fmt: skip
def keep_own(
    party: Party, *, model: str, others: list[PartyName], shuffled: ColumnPlace = None, repeat: Repeat = 0
) -> None:
    """The label holder's share: its own part less the masks."""
    part = party.models.part(model, LinearPart)
    share = to_ring(part.of(own_numbers(party, part.design, shuffled, repeat)), _SCORE_BITS, _SCORE_ROOM)
    for name in others:
        share = share - party.held(Pairs).mask(name, _UNSEEN, 1, share.shape)
    if party.table.label is None:
        raise DataError(f"party {party.name!r} has no labels of these rows to measure with")
    party.keep(ScoreShare(share, _SCORE_BITS))
    party.keep(Truth(class_codes(party.table.label, part.classes)))


@operation(
    "logistic.read_scores",
    times="1 a session",
    discloses="plain",
    receives="masked",
    about="predicted scores of the rows",
    learns="the sum of the other parties' scores of each row",
    reply=Array("f", 2),
)
def read_scores(party: Party, *, model: str, total: Ring | None, others: list[PartyName]) -> Floats:
    return _read(party, model, total, others).scores


@operation(
    "logistic.hold_scores",
    discloses="control",
    receives="masked",
    about="acknowledgement",
    learns="the sum of the other parties' scores of each row",
    role="active",
    times="1 a session",
)
def hold_scores(party: Party, *, model: str, total: Ring | None, others: list[PartyName]) -> None:
    """The same, and they stay with the label holder."""
    _read(party, model, total, others)


def _read(party: Party, model: str, total: Ring | None, others: list[PartyName]) -> Predicted:
    part = party.models.part(model, LinearPart)
    scores = part.scores(party.table)
    if total is not None:
        if total.shape != scores.shape or total.dtype != np.uint64:
            raise ReplyError("another party", "part_scores", "another number of scores than rows")
        for name in others:
            total = total - party.held(Pairs).mask(name, _READ, 1, scores.shape)
        scores = scores + from_ring(total, _SCORE_BITS)
    return party.keep(Predicted(scores, part.classes, "one against the rest"))


OPERATIONS = together(
    parts.OPERATIONS,
    shared_descent.OPERATIONS,
    row_weights.OPERATIONS,
    unseen.OPERATIONS,
    (open_columns, keep_weights, part_scores, read_scores, hold_scores, unseen_scores, keep_total, keep_own),
)


# --- the coordinator's side -------------------------------------------------------------------------------------------


class VerticalLogisticRegression(FederatedModel):
    """Logistic regression over vertically split columns (second-order approximation, L-BFGS).

    Parameters
    ----------
    max_iter : iterations. tol : stop when the gradient is shorter. reg_lambda : weight of the squared weights.
    memory : steps that the quasi-Newton method remembers.

    Examples
    --------
    >>> import numpy as np, fedsift as fs
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> fed = fs.Federation.split(X, np.where(X[:, 0] + X[:, 3] > 0, "yes", "no"), parties=2)
    >>> model = fs.VerticalLogisticRegression().fit(fed)
    >>> model.classes_.tolist(), model.score(fed) > 0.9
    (['no', 'yes'], True)
    """

    name = "vertical_logistic"
    designs = WEIGHTED
    operations = OPERATIONS
    predicting = (*parts.KEPT, *pairs.OPERATIONS, part_scores, hold_scores)
    _on_shares = True
    _saved = ("n_iter_", "curve_", "deviation_", "centre_")

    def __init__(self, *, max_iter: int = 10, tol: float = 1e-5, reg_lambda: float = 0.01, memory: int = 8):
        self.max_iter = max_iter
        self.tol = tol
        self.reg_lambda = reg_lambda
        self.memory = memory

    def _check(self, fed: Federation) -> None:
        check_neutral(fed, type(self).__name__)
        check_number("max_iter", self.max_iter, 1, whole=True)
        check_number("memory", self.memory, 1, 50, whole=True)
        check_number("tol", self.tol, 0)
        check_number("reg_lambda", self.reg_lambda, 0)
        if fed.task != "classification":
            raise DataError(f"VerticalLogisticRegression is for classes; the label of {fed.active!r} is a number")

    def _fit(self, run: Federation) -> Sequence[str]:
        names = run.ask(class_names, to=run.active, task=run.asked_task)
        outputs = 1 if len(names) == 2 else len(names)
        opened = run.ask(open_columns, to=run.parties, task=run.asked_task, outputs=outputs)
        widths = {name: reply["width"] for name, reply in opened.items()}
        descent = SharedDescent(run, widths, outputs, reads_scores=False)
        wide = max(1.0, sum(reply["spread"] for reply in opened.values()))
        found = descend(
            run, descent, wide, max_iter=self.max_iter, tol=self.tol, reg_lambda=self.reg_lambda, memory=self.memory
        )
        self.curve_, self.deviation_ = found.curve, found.deviation
        self.centre_ = found.weights[run.active][-1].tolist()
        each = {name: {"weights": part} for name, part in found.weights.items()}
        run.ask(keep_weights, to=run.parties, each=each, model=self.model_id_)
        run.ledger.note("columns, weights, scores and residuals travelled under one-time masks (X25519, ChaCha20)")
        self.n_iter_ = len(self.curve_)
        return list(names)

    def _decision(self, run: Federation) -> Floats:
        total = self._others(run)
        scores: Floats = run.ask(read_scores, to=run.active, model=self.model_id_, total=total, others=run.passive)
        return scores

    def _hold(self, run: Federation) -> None:
        total = self._others(run)
        run.ask(hold_scores, to=run.active, model=self.model_id_, total=total, others=run.passive)

    def _share(self, run: Federation, shuffled: Shuffled | None = None) -> SharedScores:
        """The others' scores under masks go to one of them; the label holder has its own, less the masks."""
        told = told_each(run.parties, shuffled)
        helper, total = run.passive[0], self._others(run, unseen_scores, {name: told[name] for name in run.passive})
        run.ask(keep_total, to=helper, model=self.model_id_, total=total)
        run.ask(keep_own, to=run.active, model=self.model_id_, others=run.passive, **told[run.active])
        reach, outputs = reach_of(self.deviation_), len(self.centre_)
        return SharedScores(helper, _SCORE_BITS, outputs, len(self.classes_), reach)

    def _others(
        self, run: Federation, what: Answering[Ring] = part_scores, each: dict[str, dict[str, Any]] | None = None
    ) -> Ring | None:
        """The other parties' scores, added up under masks."""
        total = None
        if run.passive:
            meet_all(run)
            sent = run.ask(what, to=run.passive, each=each, model=self.model_id_, label_holder=run.active)
            shape = (run.n_rows, 1 if len(self.classes_) == 2 else len(self.classes_))
            for name, part in sent.items():
                if part.shape != shape or part.dtype != np.uint64:
                    raise ReplyError(name, "part_scores", f"expected masked scores of shape {shape}")
                total = part if total is None else total + part
        return total

    def _probabilities(self, scores: Floats) -> Floats:
        return probabilities(scores, "one against the rest")
