"""Scoring on a pooled table, for simulations: selection, preparation and model see training rows only.

The folds are drawn within each class, every selector is fitted anew inside each fold on a view
of the training rows, and two nulls stand beside it: all columns, and random ones, as many as the selector kept.

**Scoring pools the columns.** A downstream model over the columns of several parties needs them in one place. So this
is a facility for simulation: use it on data that you may pool, such as public benchmarks. It reads the tables of an
in-process federation directly and refuses any other transport: no column is ever sent to be scored. A note in the
federation's ledger says that it was done.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.ledger import FORMS
from fedsift.core.party import Party, read_labels
from fedsift.core.row_draws import TEST, TRAIN
from fedsift.core.splits import train_test_rows
from fedsift.errors import ParameterError
from fedsift.evaluate.candidates import facts_of, gather, named_selectors, seeded
from fedsift.evaluate.pool import Pool
from fedsift.evaluate.result import ALL, Evaluation
from fedsift.evaluate.scoring import Columns, make_model, score
from fedsift.models.metrics import check_metrics
from fedsift.select.base import Selector

NOTE = "evaluate pooled all columns and the label in this process to score a downstream model"


def folds_of(party: Party, folds: int, stratify: bool, seed: int, task: str) -> np.ndarray:
    """The fold of each row: rows of a class in random order, dealt in turn, so that folds differ by one row at most.

    No operation: who scores holds all tables, so nothing is hidden from it, and between machines nobody can ask.
    """
    strata = party.labels(task=task).codes if stratify else np.zeros(party.n_rows, dtype=np.int64)
    order = party.table.by_id
    order = order[np.random.default_rng(seed).permutation(party.n_rows)]
    order = order[np.argsort(strata[order], kind="stable")]
    fold = np.empty(party.n_rows, dtype=np.int64)
    fold[order] = np.arange(party.n_rows) % folds
    return fold


def evaluate_pooled(
    fed: Federation, selectors: object, model: object, cv: int | float, metrics: object, random_state: int, nulls: bool,
    repeats: int, random_draws: int,
) -> Evaluation:  # fmt: skip
    """Score selectors with a model of the pooled columns (see ``evaluate``)."""
    named = named_selectors(selectors)
    _check(fed)
    task = fed.task
    fed = fed.named_view(fed._view)
    fed._task = task  # what the whole label says; the few values of a fold might look like another task
    chosen = check_metrics(metrics, task)
    make_model(model, task, random_state)  # an impossible model is an error before the long work
    pool = Pool(fed)
    fed.ledger.note(NOTE)
    methods = {name: facts_of(selector) for name, selector in named.items()}
    settings = {
        "pooled": True, "task": task, "model": model if isinstance(model, str) else type(model).__name__, "cv": cv,
        "how": f"{cv} folds" if isinstance(cv, int) else f"one split, {cv:g} of the rows for training",
        "repeats": repeats, "random_state": random_state, "random_draws": random_draws, "rows": fed.n_rows,
    }  # fmt: skip
    result = Evaluation([], chosen, methods, settings, len(pool.names(fed)))
    for repeat in fed.track(range(repeats), "repeat"):
        splits = _splits(pool, fed, cv, random_state + repeat)
        for fold, (train, test) in fed.track(enumerate(splits), "fold", len(splits)):
            run = _Fold(pool, train, test, repeat, fold, model, task, chosen, random_state)
            for name, selector in fed.track(named.items(), "method", alike=False):
                result.rows.append(run.method(name, seeded(selector, repeat)))
            if nulls:
                result.rows += run.nulls(random_draws)
    gather(result, nulls)
    return result


def _check(fed: Federation) -> None:
    if not fed.simulated:
        raise ParameterError(
            f"pooled=True pools the columns to score them, so it runs only in one process; this federation's transport "
            f"is {fed.transport!r}. Leave pooled=True out: the parties then train the model together"
        )


def _splits(pool: Pool, fed: Federation, cv: int | float, seed: int) -> list[tuple[Federation, Federation]]:
    """Views of the training and of the test rows, a pair a fold."""
    stratify = fed.task == "classification"
    holders = dict.fromkeys(fed.parties, fed.active) if fed.partition == "vertical" else {n: n for n in fed.parties}
    parties = {holder: pool.party(fed, holder) for holder in holders.values()}
    if fed.design.deals is not None:
        dealt = fed.dealt_sides(1, cv) if isinstance(cv, float) else fed.dealt_sides(int(cv))
        return [tuple(fed.view(rows=np.flatnonzero(fold == side)) for side in (TRAIN, TEST)) for fold in dealt]  # type: ignore[misc]
    if isinstance(cv, float):
        drawn = {name: _tested(party, cv, stratify, seed, fed._task) for name, party in parties.items()}
        tests = [drawn]
    else:
        folds = {name: folds_of(party, int(cv), stratify, seed, fed._task) for name, party in parties.items()}
        tests = [{name: fold == k for name, fold in folds.items()} for k in range(int(cv))]
    return [
        (
            fed.view(rows={name: np.flatnonzero(~test[holder]) for name, holder in holders.items()}),
            fed.view(rows={name: np.flatnonzero(test[holder]) for name, holder in holders.items()}),
        )
        for test in tests
    ]


def _tested(party: Party, share: float, stratify: bool, seed: int, task: str) -> np.ndarray:
    """Which rows one split leaves for the test."""
    order = party.table.by_id
    strata = party.labels(task=task).codes[order] if stratify else None
    tested = np.zeros(party.n_rows, dtype=bool)
    tested[order[train_test_rows(party.n_rows, share, stratify_on=strata, random_state=seed)[1]]] = True
    return tested


class _Fold:
    """One training part and one test part: fits and scores every method and its nulls on them."""

    def __init__(
        self, pool: Pool, train: Federation, test: Federation, repeat: int, fold: int, model: object, task: str,
        metrics: tuple[str, ...], random_state: int,
    ):  # fmt: skip
        self.pool, self.train, self.test = pool, train, test
        self.place = {"repeat": repeat, "fold": fold}
        self.how: dict[str, Any] = {"model": model, "task": task, "metrics": metrics, "random_state": random_state}
        raw_train, raw_test = pool.labels(train), pool.labels(test)
        values = read_labels(np.concatenate([raw_train, raw_test]), "pooled", task=task)
        y = values.codes if task == "classification" else values.values
        self.y_train, self.y_test = y[: len(raw_train)], y[len(raw_train) :]
        self.kept: dict[str, int] = {}
        self.generator = np.random.default_rng([random_state, repeat, fold])

    def method(self, name: str, selector: Selector) -> dict[str, Any]:
        """Fit the selector on the training view; score what its ``transform`` gives."""
        start = time.perf_counter()
        selector.fit(self.train)
        seconds = time.perf_counter() - start
        train = self.pool.columns(selector.transform(self.train))
        test = self.pool.columns(selector.transform(self.test))
        self.kept[name] = len(train.names)
        ledger = selector.ledger_
        return {
            "method": name, **self.place, **self._score(train, test), "n_features": len(train.names),
            "seconds": seconds, "bytes": ledger.bytes(), "rounds": ledger.rounds(), "features": train.names,
            "encryption": ledger.encryption_line(),
            "forms": [form for form in FORMS if any(e.form == form for e in ledger.entries)],
            "notes": list(ledger.notes),
        }  # fmt: skip

    def nulls(self, draws: int) -> list[dict[str, Any]]:
        """All columns, and the mean of some draws of random ones for each number that a method kept."""
        train, test = self.pool.columns(self.train), self.pool.columns(self.test)
        rows = [self._null(ALL, len(train.names), self._score(train, test))]
        for count in sorted(set(self.kept.values())):
            size = min(count, len(train.names))
            scores = []
            for _ in range(draws):
                names = [train.names[i] for i in self.generator.choice(len(train.names), size, replace=False)]
                scores.append(self._score(train.keep(names), test.keep(names)))
            mean = {metric: float(np.mean([s[metric] for s in scores])) for metric in self.how["metrics"]}
            for name in (n for n, kept in self.kept.items() if kept == count):
                rows.append(self._null(f"random, as many as {name}", size, mean))
        return rows

    def _null(self, name: str, size: int, scores: dict[str, float]) -> dict[str, Any]:
        return {"method": name, **self.place, **scores, "n_features": size, "seconds": 0.0, "bytes": 0, "rounds": 0}

    def _score(self, train: Columns, test: Columns) -> dict[str, float]:
        return score(train, self.y_train, test, self.y_test, **self.how)
