"""Evaluation without pooling: in each fold the parties train the model together, and the label holder measures it.

A fold is a view of the training rows and one of the test rows, dealt by the label holder without a look at the label.
Each selector and each model is a job of its own, which every party's policy judges. A model that can be is measured on
shares (``models/unseen.py``): the coordinator opens one figure a fold, and nobody sees the score of a row. Elsewhere
predictions of the test rows stay with the label holder, and so do the measures of single folds; it releases one rounded
summary at the end (``holder.py``). Folds go side by side (``core/in_step.py``), in as many round trips as one takes. No
column and no label is sent to anybody, on whatever transport.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fedsift.core.federation import Federation
from fedsift.core.in_step import in_step, room_for
from fedsift.core.ledger import FORMS
from fedsift.core.row_draws import TEST, TRAIN, Sides
from fedsift.errors import ParameterError, ReplyError
from fedsift.evaluate.candidates import facts_of, gather, named_selectors, seeded
from fedsift.evaluate.holder import EvaluationJob, deal_folds, release
from fedsift.evaluate.intervals import summaries
from fedsift.evaluate.result import ALL, Evaluation, Release, next_to, random_as
from fedsift.evaluate.value_holder import ValueJob
from fedsift.models.base import FederatedModel
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.models.metrics import check_metrics
from fedsift.models.splitnn.model import SplitNN
from fedsift.models.vertical_additive import VerticalAdditive
from fedsift.select.base import Selector
from fedsift.select.baselines.nulls import AllFeatures

MODELS = ("boost", "additive", "linear", "network")
NOTE = (
    "evaluate pooled nothing: the label holder measured the joint models' predictions of test rows and released one "
    "rounded summary over all folds"
)
UNSEEN = (
    "evaluate pooled nothing: the joint models were measured on shares; the coordinator opened their figures fold by "
    "fold, and nobody saw the score of a row"
)


def make_joint_model(model: object, task: str, random_state: int) -> FederatedModel:
    """A fresh joint model: one of ``MODELS`` by name, or a copy of a model of fedsift."""
    if isinstance(model, FederatedModel):
        fresh: FederatedModel = clone(model)
        return fresh
    if model == "boost":
        kind = SecureBoostClassifier if task == "classification" else SecureBoostRegressor
        return kind(n_estimators=30, max_depth=4, learning_rate=0.2, random_state=random_state)
    if model in ("additive", "linear"):
        return VerticalAdditive(bins=8 if model == "additive" else None)
    if model == "network":
        return SplitNN(random_state=random_state)
    raise ParameterError(
        f"model must be one of {', '.join(MODELS)} or a model of fedsift; got {model!r}. Any other model needs the "
        "columns in one place: pooled=True, in a simulation"
    )


def _job(methods: tuple[str, ...], model: str, cv: int | float, random_state: int, nulls: bool) -> EvaluationJob:
    folds, train = (cv, None) if isinstance(cv, int) else (1, cv)
    beside = ALL if nulls else None
    return EvaluationJob(
        methods=methods, model=model, folds=folds, train=train, beside=beside, random_state=random_state
    )


def jobs_within(
    selector: Selector,
    model: str | FederatedModel | None,
    cv: int | float,
    random_state: int,
    nulls: bool,
    next_column: bool = False,
) -> list[tuple[str, dict[str, Any]]]:
    """The jobs beside the selector's own that one evaluation of it puts to the parties: a site opened for it takes
    these and no others."""
    chosen = model or "boost"
    models = [make_joint_model(chosen, task, random_state) for task in ("classification", "regression")]
    shown = chosen if isinstance(chosen, str) else type(chosen).__name__
    found = [_job(tuple(named_selectors(selector)), shown, cv, random_state, nulls).announcement()]
    found += [made.announcement() for made in models]
    return [*found, AllFeatures().announcement()] if nulls or next_column else found


def evaluate_jointly(
    fed: Federation, selectors: Any, model: Any, cv: int | float, metrics: Any, random_state: int, nulls: bool,
    repeats: int, digits: int, next_column: bool = False,
) -> Evaluation:  # fmt: skip
    """Score selectors with a model that the parties train together (see ``evaluate``)."""
    named = named_selectors(selectors)
    if fed.partition != "vertical":
        raise ParameterError("joint models are scored for vertical parties; horizontal ones need pooled=True")
    shown = model if isinstance(model, str) else type(model).__name__
    asked = None if metrics is None else (metrics,) if isinstance(metrics, str) else tuple(metrics)
    job = replace(_job(tuple(named), shown, cv, random_state, nulls), metrics=asked, repeats=repeats, digits=digits)
    job = replace(job, next_column=next_column)
    with fed.session(*job.announcement()) as run:
        task, columns, rows = run.task, run.n_columns, run.n_rows
        chosen = check_metrics(metrics, "survival" if fed.design.event is not None else task)
        trial = make_joint_model(model, task, random_state)  # an impossible model is an error before the long work
        unseen = trial.measured_unseen and bool(run.passive) and fed.design.event is None
        whole = fed.named_view(fed._view)
        whole._task = task  # what the whole label says; the few values of a fold might look like another task
        folds = [fold_sides(run, repeat, job) for repeat in range(repeats)]
        defined = [fold_views(run, sides) for sides in folds]
    # The views outlive the session in which the parties defined them.
    splits = [[tuple(whole.named_view(view._view) for view in pair) for pair in views] for views in defined]
    fed.ledger.note(UNSEEN if unseen else NOTE)
    settings = {
        "pooled": False, "task": task, "model": shown, "cv": cv, "how": how_words(fed, cv), "repeats": repeats,
        "random_state": random_state, "random_draws": 1, "rows": rows,
    }  # fmt: skip
    methods = {name: facts_of(selector) for name, selector in named.items()}
    result = Evaluation([], chosen, methods, settings, sum(columns.values()))
    record = f"evaluation-{secrets.token_hex(8)}"

    def turn(repeat: int, fold: int) -> _Turn:
        train, test = splits[repeat][fold]
        fresh = make_joint_model(model, task, random_state)
        return _Turn(train, test, record, chosen, fresh, repeat, fold, unseen, next_column)

    turns = [[turn(repeat, fold) for fold in range(len(split))] for repeat, split in enumerate(splits)]
    result.rows += _taken(fed, turns, named, columns if nulls else None, random_state, room_for(whole))
    if unseen:
        share = 1.0 / job.folds if job.train is None else 1.0 - job.train
        figures: dict[str, list[dict[str, float]]] = {}
        for name, found in ((name, found) for each in turns for fold in each for name, found in fold.figures.items()):
            figures.setdefault(name, []).append(found)
        summary = summaries(figures, chosen, beside=job.beside, share=share, digits=digits)
    else:
        tested = np.flatnonzero(np.any([(sides == TEST).any(axis=0) for sides in folds], axis=0))
        summary = _from_holder(fed, job, record, None if len(tested) == rows else tested)
    result.released = _read(summary, chosen, fed.active)
    gather(result, nulls)
    return result


def _taken(
    fed: Federation, turns: list[list[_Turn]], named: Mapping[str, Selector], columns: dict[str, int] | None,
    random_state: int, at_once: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """The rows of all folds, repeat by repeat; so many folds side by side."""
    rows: list[dict[str, Any]] = []
    for folds in fed.track(turns, "repeat"):
        told = [partial(each.whole, named, columns, random_state) for each in folds]
        for found in in_step(fed, told, "fold", at_once):
            rows += found
    return rows


def _from_holder(fed: Federation, job: EvaluationJob, record: str, tested: NDArray[np.int64] | None) -> dict[str, Any]:
    """What the label holder releases of the models that it measured; of one split: about its test rows."""
    with fed.session(*job.announcement()) as run:
        about = run if tested is None else run.view(rows=tested)
        told: dict[str, Any] = about.ask(release, to=run.active, record=record)
        return told


def dealt(run: Federation, repeat: int, folds: int) -> NDArray[np.int64]:
    """The fold of each row, from the label holder."""
    fold: NDArray[np.int64] = run.ask(deal_folds, to=run.active, repeat=repeat)
    if len(fold) != run.n_rows or not 0 <= fold.min() <= fold.max() < max(2, folds):
        raise ReplyError(run.active, "deal_folds", "it dealt other rows or folds than there are")
    return fold


def fold_sides(run: Federation, repeat: int, job: EvaluationJob | ValueJob) -> Sides:
    """Folds x rows: which rows are trained on and which are tested, by the design where it names a group or a time."""
    if run.design.deals is not None:
        return run.dealt_sides(job.folds, getattr(job, "train", None) or 0.5)
    fold = dealt(run, repeat, job.folds)
    return np.where(fold[None, :] == np.arange(job.folds)[:, None], TEST, TRAIN)


def fold_views(run: Federation, sides: Sides) -> list[tuple[Federation, Federation]]:
    """Training and test rows of each fold."""
    return [tuple(run.view(rows=np.flatnonzero(fold == side)) for side in (TRAIN, TEST)) for fold in sides]  # type: ignore[misc]


def how_words(fed: Federation, cv: int | float) -> str:
    """How rows were dealt."""
    dealt_by = {"group": ", whole groups", "time": ", earlier rows for training"}.get(fed.design.deals or "", "")
    return (f"{cv} folds" if isinstance(cv, int) else f"one split, {cv:g} of the rows for training") + dealt_by


@dataclass
class _Turn:
    """One fold: fits every method and its nulls on the training rows and lets the label holder measure them."""

    train: Federation
    test: Federation
    record: str
    metrics: tuple[str, ...]
    model: FederatedModel
    repeat: int
    fold: int
    unseen: bool  # whether models are measured on shares
    next_column: bool  # whether one column more than was kept is scored, too

    def __post_init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.figures: dict[str, dict[str, float]] = {}  # by name, of models that are measured on shares

    def whole(
        self, named: Mapping[str, Selector], columns: dict[str, int] | None, random_state: int
    ) -> list[dict[str, Any]]:
        """Every method, and the nulls beside them where the number of ``columns`` is given."""
        tracked = self.train.track(named.items(), "method", len(named), alike=False)
        rows = [row for name, selector in tracked for row in self.method(name, seeded(selector, self.repeat))]
        return rows + (self.nulls(columns, random_state) if columns is not None else [])

    def method(self, name: str, selector: Selector) -> list[dict[str, Any]]:
        """Fit the selector on the training rows, then the model on what its ``transform`` gives."""
        start = time.perf_counter()
        with self.train.session(*selector.announcement()) as accepted:
            selector.fit(accepted)
            seconds = time.perf_counter() - start
            train = selector.transform(accepted)
            test = selector.transform(accepted.named_view(self.test._view))
            kept = train.column_names()
        self._measure(self._outside(train), self._outside(test), [name])
        features = [f"{party}.{column}" for party, columns in kept.items() for column in columns]
        self.kept[name] = len(features)
        ledger = selector.ledger_
        row = {
            "method": name, "repeat": self.repeat, "fold": self.fold, "n_features": len(features),
            "seconds": seconds, "bytes": ledger.bytes(), "rounds": ledger.rounds(), "features": tuple(features),
            "encryption": ledger.encryption_line(),
            "forms": [form for form in FORMS if any(e.form == form for e in ledger.entries)],
            "notes": list(ledger.notes),
        }  # fmt: skip
        return [row, *self._next(name, selector)]

    def _next(self, name: str, selector: Selector) -> list[dict[str, Any]]:
        """What the method kept, and the first that it left out, where it kept columns as they are."""
        found, names = selector.selection_, self.train.column_names()
        left = [row for row in sorted(found.scores, key=lambda row: row["rank"]) if not row["selected"]]
        if not self.next_column or found.engineered or found.groups or not left:
            return []
        wanted = {party: list(columns) for party, columns in found.selected.items()}
        wanted[left[0]["party"]].append(left[0]["feature"])
        mine = {party: sorted(names[party].index(column) for column in columns) for party, columns in wanted.items()}
        self._measure(*self._with(mine), [next_to(name)])
        return [self._null(next_to(name), self.kept[name] + 1)]

    def _with(self, mine: dict[str, list[int]]) -> tuple[Federation, Federation]:
        """Training and test rows with these columns of each party."""
        with self.train.session(*AllFeatures().announcement()) as run:
            train = run.view(columns=mine)
            test = run.named_view(self.test._view).view(columns=mine)
        return self._outside(train), self._outside(test)

    def nulls(self, columns: dict[str, int], random_state: int) -> list[dict[str, Any]]:
        """All columns, and random ones for each number that a method kept."""
        total = sum(columns.values())
        self._measure(self.train, self.test, [ALL])
        rows = [self._null(ALL, total)]
        generator = np.random.default_rng([random_state, self.repeat, self.fold])
        owners = [(party, position) for party, count in columns.items() for position in range(count)]
        for count in sorted(set(self.kept.values())):
            names = [random_as(name) for name, kept in self.kept.items() if kept == count]
            drawn = [owners[i] for i in generator.choice(total, min(count, total), replace=False)]
            mine = {party: sorted(p for who, p in drawn if who == party) for party in columns}
            self._measure(*self._with(mine), names)
            rows += [self._null(name, min(count, total)) for name in names]
        return rows

    def _measure(self, train: Federation, test: Federation, names: list[str]) -> None:
        fresh: FederatedModel = clone(self.model)
        fresh.fit(train)
        if self.unseen:
            self.figures |= dict.fromkeys(names, fresh.figures(test, self.metrics))
        else:
            for name in names:
                fresh.measure(test, self.record, name, self.metrics)
        fresh.forget()

    def _outside(self, view: Federation) -> Federation:
        """A view that was defined in a session, as the next job sees it."""
        return self.train.named_view(view._view)

    def _null(self, name: str, size: int) -> dict[str, Any]:
        place = {"method": name, "repeat": self.repeat, "fold": self.fold, "n_features": size}
        return {**place, "seconds": 0.0, "bytes": 0, "rounds": 0}


def _read(reply: dict[str, Any], metrics: tuple[str, ...], holder: str) -> dict[str, dict[str, Release]]:
    try:
        return {name: {m: Release(**found[m]) for m in metrics} for name, found in reply.items()}
    except (KeyError, TypeError):
        raise ReplyError(holder, "release", "it released other figures than were asked for") from None
