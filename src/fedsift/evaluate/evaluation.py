"""Score selectors with a downstream model, honestly: selection, preparation and model see training rows only.

The folds are drawn within each class, every selector is fitted anew inside each fold on a view
of the training rows, and two nulls stand beside it: all columns, and random ones, as many as the selector kept.

**Scoring pools the columns.** A downstream model over the columns of several parties needs them in one place. So this
is a facility for simulation: use it on data that you may pool, such as public benchmarks. It reads the tables of an
in-process federation directly and refuses any other transport: no column is ever sent to be scored. A note in the
federation's ledger says that it was done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import clone

from fedsift.core.federation import Federation
from fedsift.core.ledger import FORMS
from fedsift.core.party import Party, read_labels
from fedsift.core.splits import train_test_rows
from fedsift.errors import ParameterError
from fedsift.evaluate.pool import Pool
from fedsift.evaluate.result import ALL, Evaluation
from fedsift.evaluate.scoring import Columns, check_metrics, make_model, score
from fedsift.select.base import Selector, check_number

NOTE = "evaluate pooled all columns and the label in this process to score a downstream model"


def folds_of(party: Party, folds: int, stratify: bool, seed: int, task: str) -> np.ndarray:
    """The fold of each row: rows of a class in random order, dealt in turn, so that folds differ by one row at most.

    No operation: who scores holds all tables, so nothing is hidden from it, and between machines nobody can ask.
    """
    strata = party.labels(task=task).codes if stratify else np.zeros(party.n_rows, dtype=np.int64)
    order = np.argsort(party.table.ids, kind="stable")
    order = order[np.random.default_rng(seed).permutation(party.n_rows)]
    order = order[np.argsort(strata[order], kind="stable")]
    fold = np.empty(party.n_rows, dtype=np.int64)
    fold[order] = np.arange(party.n_rows) % folds
    return fold


def evaluate(
    fed: Federation,
    selectors: Any,
    model: Any = "forest",
    cv: int | float = 5,
    metrics: Any = None,
    random_state: int = 0,
    nulls: bool = True,
    repeats: int = 1,
    *,
    random_draws: int = 3,
) -> Evaluation:
    """Score selectors by cross-validation (or one split), with selection inside each fold.

    Scoring pools the columns: use it on data that you may pool, or with public benchmark data.

    Parameters
    ----------
    selectors : a selector, a list of them, or a dictionary name -> selector.
    model : ``forest``, ``linear``, ``svm``, ``knn`` (3 neighbours) or a scikit-learn estimator.
    cv : a number of folds, or the share of training rows of a single split (below 1).
    metrics : from ``accuracy``, ``auc`` (one against the rest), ``f1_micro``, ``f1_macro``, or ``r2``, ``1-rae``.
    nulls : rows for all columns and for random columns of the same number.
    repeats : how often to draw the folds anew; a selector's ``random_state`` counts up with it.
    random_draws : draws of random columns in each fold; their mean is the null.

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> y = (X["income"] + X["basket"] > 0).astype(int)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> result = fs.evaluate(fed, {"gini": fs.GiniFilter(n_features=2)}, model="linear", cv=0.7)
    >>> result.settings["how"]
    'one split, 0.7 of the rows for training'
    """
    named = _named(selectors)
    _check(fed, cv, repeats, random_draws)
    check_number("random_state", random_state, 0, whole=True)
    task = fed.task
    fed = fed.named_view(fed._view)
    fed._task = task  # what the whole label says; the few values of a fold might look like another task
    chosen = check_metrics(metrics, task)
    make_model(model, task, random_state)  # an impossible model is an error before the long work
    pool = Pool(fed)
    fed.ledger.note(NOTE)
    methods = {name: _facts(selector) for name, selector in named.items()}
    settings = {
        "task": task, "model": model if isinstance(model, str) else type(model).__name__, "cv": cv,
        "how": f"{cv} folds" if isinstance(cv, int) else f"one split, {cv:g} of the rows for training",
        "repeats": repeats, "random_state": random_state, "random_draws": random_draws, "rows": fed.n_rows,
    }  # fmt: skip
    result = Evaluation([], chosen, methods, settings, len(pool.names(fed)))
    for repeat in fed.track(range(repeats), "repeat"):
        splits = _splits(pool, fed, cv, random_state + repeat)
        for fold, (train, test) in fed.track(enumerate(splits), "fold", len(splits)):
            run = _Fold(pool, train, test, repeat, fold, model, task, chosen, random_state)
            for name, selector in fed.track(named.items(), "method", alike=False):
                result.rows.append(run.method(name, _seeded(selector, repeat)))
            if nulls:
                result.rows += run.nulls(random_draws)
    _gather(result, nulls)
    return result


def _check(fed: object, cv: object, repeats: object, random_draws: object) -> None:
    if not isinstance(fed, Federation):
        raise ParameterError(f"evaluate takes a Federation, got {type(fed).__name__}; see Federation.from_tables")
    if not fed.simulated:
        raise ParameterError(
            f"evaluate pools the columns to score them, so it runs only in one process; this federation's transport is "
            f"{fed.transport!r}. Use it in a simulation (Federation.split, Federation.from_tables)"
        )
    if fed.partition == "hybrid":
        raise ParameterError("evaluate scores vertical or horizontal parties; these are hybrid")
    check_number("repeats", repeats, 1, whole=True)
    check_number("random_draws", random_draws, 1, whole=True)
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        most = min(size["rows"] for size in fed.sizes().values())
        check_number("cv", cv, 2, most, whole=True)
    elif not (isinstance(cv, float) and 0.0 < cv < 1.0):
        raise ParameterError(f"cv must be a number of folds (2 or more) or a share between 0 and 1; got {cv!r}")


def _named(selectors: Any) -> dict[str, Selector]:
    if isinstance(selectors, Mapping):
        named = {str(name): selector for name, selector in selectors.items()}
    else:
        listed = [selectors] if isinstance(selectors, Selector) else list(selectors)
        named = {}
        for selector in listed:
            base, name, number = type(selector).__name__, type(selector).__name__, 2
            while name in named:
                name, number = f"{base} {number}", number + 1
            named[name] = selector
    if not named:
        raise ParameterError("selectors is empty: give a selector, a list or a dictionary of them")
    for name, selector in named.items():
        if not isinstance(selector, Selector):
            raise ParameterError(f"selectors[{name!r}] must be a selector, got {type(selector).__name__}")
        if name == ALL or name.startswith("random, as many as ") or name.endswith(" random columns"):
            raise ParameterError(f"the name {name!r} is kept for a null; call the selector something else")
    return named


def _facts(selector: Selector) -> dict[str, Any]:
    return {
        "class": type(selector).__name__,
        "parameters": selector.get_params(deep=False),
        "leaks": selector.leaks,
        "paper": selector.paper,
    }


def _seeded(selector: Selector, repeat: int) -> Selector:
    fresh: Selector = clone(selector)
    seed = fresh.get_params(deep=False).get("random_state")
    if repeat and isinstance(seed, (int, np.integer)):
        fresh.set_params(random_state=int(seed) + repeat)
    return fresh


def _splits(pool: Pool, fed: Federation, cv: int | float, seed: int) -> list[tuple[Federation, Federation]]:
    """Views of the training and of the test rows, a pair a fold."""
    stratify = fed.task == "classification"
    holders = dict.fromkeys(fed.parties, fed.active) if fed.partition == "vertical" else {n: n for n in fed.parties}
    parties = {holder: pool.party(fed, holder) for holder in holders.values()}
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
    order = np.argsort(party.table.ids, kind="stable")
    strata = party.labels(task=task).codes[order] if stratify else None
    tested = np.zeros(party.n_rows, dtype=bool)
    tested[order[train_test_rows(party.n_rows, share, stratify_on=strata, random_state=seed)[1]]] = True
    return tested


class _Fold:
    """One training part and one test part: fits and scores every method and its nulls on them."""

    def __init__(
        self, pool: Pool, train: Federation, test: Federation, repeat: int, fold: int, model: Any, task: str,
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


def _gather(result: Evaluation, nulls: bool) -> None:
    """Sets of kept columns for the stability, and one line for nulls that are the same for several methods."""
    for name in result.methods:
        result.selected[name] = [frozenset(row["features"]) for row in result.rows if row["method"] == name]
    if not nulls:
        return
    by_sizes: dict[tuple[int, ...], list[str]] = {}
    for name in result.methods:
        sizes = tuple(row["n_features"] for row in result.rows if row["method"] == name)
        by_sizes.setdefault(sizes, []).append(name)
    for sizes, names in by_sizes.items():
        same = len(set(sizes)) == 1 and sizes[0] <= result.n_features
        shared = f"{sizes[0]} random columns" if same else f"random, as many as {', '.join(names)}"
        twins = {f"random, as many as {name}" for name in names[1:]}
        result.rows = [row for row in result.rows if row["method"] not in twins]
        for row in result.rows:
            if row["method"] == f"random, as many as {names[0]}":
                row["method"] = shared
        for name in names:
            result.methods[name]["null"] = shared
