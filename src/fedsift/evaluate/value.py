"""Is the partner worth it? What each partner's columns add to the label holder's own, before anybody signs anything.

The label holder's model alone, with each partner, without each, with all, on the same folds of the rows that all
parties share; each gain is paired over folds, with a corrected interval (``intervals.py``), and beside it stands the
gain of the same partner with its rows shuffled, which must be none. Nothing is pooled and no party learns a weight of
any model (``models/vertical_additive.py``) or the score of a row (``models/unseen.py``): the coordinator opens one
figure a model and fold, and who asks gets gains, rounded. The folds' models are trained side by side
(``core/in_step.py``): as many round trips as for one fold.

Why an additive model of steps: on bank_marketing and default_credit it finds nearly the gains of boosted trees (a
linear model does not), its intervals are narrower, and of boosted trees the label holder would read the score of every
row, for each partner and fold, at many times the cost. ``benchmarks/value.py`` has the figures.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedsift.core.checks import check_choice, check_number
from fedsift.core.federation import Federation
from fedsift.core.in_step import in_step, room_for
from fedsift.core.party import define_view
from fedsift.core.row_draws import TEST, TRAIN
from fedsift.errors import ParameterError
from fedsift.evaluate.gains import coalition_name, coalitions, gains, shuffled_name
from fedsift.evaluate.joint import fold_sides
from fedsift.evaluate.value_holder import (
    LEAST_FOLD,
    ValueJob,
    shuffle_rows,
)
from fedsift.evaluate.worth import Valuation
from fedsift.models.vertical_additive import VerticalAdditive

NOTE = (
    "value pooled nothing: models with and without partners were measured on shares; the coordinator opened one "
    "figure a model and fold, and no party learned a weight or the score of a row"
)


def value(
    fed: Federation,
    *,
    folds: int = 10,
    null: bool = True,
    bins: int | None = 8,
    metric: str = "auto",
    digits: int = 3,
    random_state: int = 0,
) -> Valuation:
    """What each partner adds to the label holder's model, with an interval and a shuffled null. Nothing is pooled.

    Parameters
    ----------
    folds : of the cross-validation; ten give narrower intervals than five.
    null : also value each partner with its rows shuffled (by itself, under a draw of its own): must show no gain.
    bins : of the additive model's steps; ``None`` for a linear model.
    metric : ``auto`` is ``auc`` for classes (one against the rest) and ``r2`` for a number.
    digits : of the answer, at most 4.

    Examples
    --------
    >>> import fedsift as fs, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 6))
    >>> y = (X[:, 0] + X[:, 2] + 0.5 * np.random.default_rng(1).normal(size=500) > 0).astype(int)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop", "clinic"])
    >>> print(fs.value(fed, folds=5).lines[1].words("AUC"))
    clinic adds nothing that we can see
    """
    _check(fed, folds, bins, digits, random_state)
    check_choice("metric", metric, ("auto", "auc", "r2"))
    job = ValueJob(metric=metric, folds=folds, null=null, bins=bins, digits=digits, random_state=random_state)
    mark, start = len(fed.ledger), time.perf_counter()
    with fed.session(*job.announcement()) as run:
        task, partners, columns = run.task, run.passive, run.n_columns
        chosen = {"auto": "auc" if task == "classification" else "r2"}.get(metric, metric)
        if (chosen == "auc") != (task == "classification"):
            raise ParameterError(f"metric={metric!r} does not fit the label, which is for {task}")
        whole = run.named_view(run._view)
        whole._task = task  # what the whole label says; the few values of a fold might look like another task
        dealt_rows = fold_sides(whole, 0, job)
        fold = np.where((dealt_rows == TEST).any(axis=0), np.argmax(dealt_rows == TEST, axis=0), folds)
        tried = [(coalition_name(group), group, whole) for group in coalitions(partners)]
        if null:
            tried += [(shuffled_name(partner), (partner,), _shuffled(whole, partner, fold)) for partner in partners]
        figures: dict[str, list[float]] = {}
        at_once = room_for(whole)
        for name, group, rows in fed.track(tried, "model", alike=False):
            turns = [partial(_measured, job, rows, sides, columns, group, chosen) for sides in dealt_rows]
            figures[name] = in_step(fed, turns, "fold", at_once)
    fed.ledger.note(NOTE)
    found = gains(figures, partners, null=null, digits=digits)
    return Valuation(
        fed.active, chosen, found.lines, found.together, found.scores,
        {**job.get_params(), "rows": fed.n_rows, "parties": fed.n_columns}, time.perf_counter() - start,
        fed.ledger.since(mark).bytes(),
    )  # fmt: skip


def _measured(
    job: ValueJob, rows: Federation, sides: NDArray[np.int64], columns: dict[str, int], group: Sequence[str],
    metric: str,
) -> float:  # fmt: skip
    """Train the label holder's model with these partners on some rows; how good it is on those that are tested."""
    kept = {who: list(range(count)) if who in (*group, rows.active) else [] for who, count in columns.items()}
    model = VerticalAdditive(
        bins=job.bins, max_iter=job.max_iter, tol=job.tol, reg_lambda=job.reg_lambda, memory=job.memory,
        min_cell=job.min_cell,
    )  # fmt: skip
    with rows.session() as own:  # of this fold: others go side by side
        train, test = (own.view(rows=np.flatnonzero(of), columns=kept) for of in (sides == TRAIN, sides == TEST))
        model.fit(train)
        found = model.figures(test, [metric])[metric]
        model.forget()
    return found


def _shuffled(view: Federation, partner: str, fold: NDArray[np.int64]) -> Federation:
    """The same rows, but at one partner in an order that it alone knows."""
    name = view.new_view("shuffled")
    others = [who for who in view.parties if who != partner]
    view.ask(shuffle_rows, to=partner, view=name, fold=fold)
    view.ask(define_view, to=others, view=name)
    return view.named_view(name)


def _check(fed: object, folds: object, bins: object, digits: object, random_state: object) -> None:
    if not isinstance(fed, Federation):
        raise ParameterError(f"value takes a Federation, got {type(fed).__name__}; see Federation.from_tables")
    if fed.partition != "vertical" or not fed.passive:
        raise ParameterError("value is for vertical parties: a label holder and partners with other columns")
    rows = min(size.rows for size in fed.sizes().values())
    check_number("folds", folds, 2, max(2, rows // LEAST_FOLD), whole=True)
    check_number("bins", bins, 2, 255, whole=True, none=True)
    check_number("digits", digits, 1, 4, whole=True)
    check_number("random_state", random_state, 0, whole=True)
