"""What docs/exposure.md measures: conversations to record, by the name that the page gives them, and on which sets.

Every registered method stands here with its defaults and with its strongest options (noise under a budget, the highest
level of protection); ``exposure_models.py`` has the models. The bare name of a selector on trees is the selector as a
user gets it, with nothing lowered; "few trees" and "small swarm" are smaller runs of the same, and another level of
protection than the default stands in the name. Of the other methods settings that only take longer and show the same
messages are lowered.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import fedsift as fs
from fedsift import methods as select
from fedsift.audit.attacks.differencing import two_jobs
from fedsift.audit.attacks.folds import ask_for_draws
from fedsift.core import row_draws
from fedsift.core.federation import Federation

ROWS = 800
FILES = {
    "bank": "bank_marketing", "default": "default_credit", "phishing": "phishing_websites", "adult": "adult",
    "wdbc": "breast_cancer_wdbc", "madelon": "madelon", "sonar": "sonar", "musk": "musk_v1", "colon": "colon",
    "leukemia": "leukemia", "arcene": "arcene",
}  # fmt: skip
SIX = ("wdbc", "colon", "phishing", "bank", "default", "madelon")  # of docs/exposure.md: every method
TALL = ("bank", "default", "phishing", "wdbc", "madelon")
WIDE = ("leukemia", "arcene")
FEW = ("wdbc", "phishing", "bank", "default")


@dataclass(frozen=True)
class Case:
    """A conversation to record, and the sets on which it is measured."""

    make: Callable[[], Any]
    sets: tuple[str, ...] = SIX
    every_step: bool = False
    rows: int = ROWS
    few: bool = False  # the label holder has 3 columns only, as in the first review
    partition: str = "vertical"
    weighted: bool = False  # rows count differently: weights that the label holder has set aside
    bounded: bool = False  # ranges of columns are public: those of rows that did not take part
    smaller: str = ""  # the case of a smaller run, whose figure stands where this one takes too long


def _selector(method: str, **settings: Any) -> Any:
    return select.METHODS[method](**settings)


def selector(method: str, **settings: Any) -> Callable[[], Any]:
    return partial(_selector, method, **settings)


def model(module: str, name: str, **settings: Any) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(f"fedsift.models.{module}"), name)(**settings)


def three_runs() -> Callable[[Federation], list[Any]]:
    few = {"n_estimators": 2, "max_depth": 2, "protection": "coordinator"}
    return lambda fed: [select.TopGain(random_state=seed, **few).fit(fed) for seed in range(3)]


def draws() -> Any:
    return ask_for_draws(row_draws.draw_rows, calls=24)


def statistic(name: str, **said: Any) -> Callable[[], Callable[[Federation], Any]]:
    return lambda: lambda fed: getattr(fs, name)(fed, **said)


def stability() -> Callable[[Federation], Any]:
    return lambda fed: fs.psi(fed, range(fed.n_rows // 2), range(fed.n_rows // 2, fed.n_rows))


def parted() -> Callable[[Federation], Any]:
    """The samples are parted at the median of the other party's first column of numbers."""

    def conversation(fed: Federation) -> Any:
        table = fed.simulated["shop"].table
        column = table.numeric_columns[0]
        return fs.psi(fed, by=f"shop.{column}", at=float(np.nanmedian(table.values(column))))

    return conversation


def weighted(name: str) -> Callable[[], Callable[[Federation], Any]]:
    return lambda: lambda fed: select.METHODS[name]().fit(fed.designed(fs.Design(class_weight="balanced")))


def logistic() -> Callable[[Federation], Any]:
    return lambda fed: fs.significance(fed, model="logistic", open_scores=True)


def partners() -> Callable[[Federation], Any]:
    return lambda fed: fs.value(fed, folds=5)


def shuffled() -> Callable[[Federation], Any]:
    """Each column, or the first few of a wide party: a measure hides all columns anew, recordings keep that."""

    def conversation(fed: Federation) -> Any:
        few = {name: found[: 6 if len(found) > 50 else None] for name, found in fed.column_names().items()}
        return fs.explain(fed, fs.VerticalAdditive().fit(fed), repeats=1, columns=few)

    return conversation


TREES = {"n_estimators": 2, "max_depth": 2}
STUMPS = {"protection": "all", "n_estimators": 1, "max_depth": 2, "n_bins": 4}  # each candidate cut is a comparison
SWARM = {"popsize": 2, "iterations": 1, "models": 1, "folds": 2, "max_trees": 2, "max_depth": 2}
#: The level that was the default of trees until 2026-11, at which the label holder hears which rows go left.
TOLD = {"protection": "coordinator"}
SHADOWED = {"rounds": 3, "n_estimators": 2, "max_depth": 2}
ROW_BLOCKS = {"candidates": 8, "max_iter": 5, "refinements": 1, "halvings": 1}

CASES: dict[str, Case] = {
    # filters
    "sffs": Case(selector("sffs"), (*SIX, *WIDE, "sonar")),
    "sffs, epsilon 1": Case(selector("sffs", epsilon=1.0)),
    "sffs, screen": Case(selector("sffs", screen=10), ("colon", "madelon", *WIDE)),
    "sffs, coarse": Case(selector("sffs", screen="coarse"), ("colon", "madelon", *WIDE)),
    "sffs, groups of 4": Case(selector("sffs", screen=4, screen_share=0.3)),
    "sffs, weighted": Case(weighted("sffs")),
    "information_value": Case(selector("information_value"), (*SIX, "leukemia", "adult")),
    "information_value, weights": Case(selector("information_value"), FEW, weighted=True),
    "information_value, epsilon 1": Case(selector("information_value", epsilon=1.0)),
    "information_value, weights of evidence": Case(
        selector("information_value", n_features=4, n_bins=3, woe="bins", woe_digits=1), rows=2000
    ),
    "gini": Case(selector("gini"), (*SIX, "leukemia")),
    "gini, epsilon 1": Case(selector("gini", epsilon=1.0)),
    "muse": Case(selector("muse", n_features=10), (*SIX, *WIDE, "sonar")),
    "muse, epsilon 1": Case(selector("muse", n_features=10, epsilon=1.0)),
    # false discoveries
    "knockoffs": Case(selector("knockoffs", copies=1, squares=False)),  # copies are drawn by the coordinator alone
    "knockoffs, open_tables": Case(selector("knockoffs", copies=1, squares=False, open_tables=True), FEW),
    "knockoffs, horizontal": Case(
        selector("knockoffs", copies=1, squares=False), (*FEW, "madelon"), partition="horizontal"
    ),
    "boruta": Case(selector("boruta"), smaller="boruta, few trees"),
    "boruta, few trees": Case(selector("boruta", rounds=2, **STUMPS), rows=300),
    "boruta, coordinator": Case(selector("boruta", **TOLD), FEW),
    "boruta, coordinator, few trees": Case(selector("boruta", **TOLD, **SHADOWED)),
    "stable": Case(selector("stable", pairs=3)),
    "stable, of sffs with epsilon 1": Case(selector("stable", selector="sffs", settings={"epsilon": 1.0}, pairs=3)),
    # one recommendation
    "auto": Case(selector("auto")),
    # linear models
    "federated_lasso": Case(selector("federated_lasso", max_iter=40), (*SIX, *WIDE, "sonar", "musk")),
    "vertical_logistic": Case(model("vertical_logistic", "VerticalLogisticRegression"), (*SIX, "sonar", "musk")),
    "hyfdca": Case(model("hyfdca.model", "HyFDCA", rounds=30, loss="logistic"), (*SIX, "sonar", "musk")),
    "federated_lasso, 3 columns": Case(selector("federated_lasso", max_iter=40), ("sonar", "musk"), few=True),
    "vertical_logistic, 3 columns": Case(
        model("vertical_logistic", "VerticalLogisticRegression"), ("sonar", "musk"), few=True
    ),
    "hyfdca, 3 columns": Case(model("hyfdca.model", "HyFDCA", rounds=30, loss="logistic"), ("sonar", "musk"), few=True),
    # engineers
    "vertical_flafe": Case(selector("vertical_flafe")),
    "vertical_flafe, statistics": Case(selector("vertical_flafe", protection="statistics")),
    "vertical_flafe, epsilon 1": Case(
        selector("vertical_flafe", n_operands=2, n_features=2, functions=["ab"], epsilon=1.0), bounded=True
    ),
    "hybrid_flafe": Case(selector("hybrid_flafe", n_operands=4, n_features=4), partition="hybrid"),
    "fed_iife": Case(selector("fed_iife", max_features=2), partition="horizontal"),
    "fed_iife, epsilon 1": Case(
        selector("fed_iife", max_features=2, epsilon=1.0), partition="horizontal", bounded=True
    ),
    "fed_halving": Case(selector("fed_halving", **ROW_BLOCKS), partition="horizontal"),
    "feature_election": Case(selector("feature_election"), partition="horizontal"),
    "feature_election, epsilon 1": Case(selector("feature_election", epsilon=1.0), partition="horizontal"),
    # boosting
    "top_gain": Case(selector("top_gain"), smaller="top_gain, few trees"),
    "top_gain, few trees": Case(selector("top_gain", folds=2, **STUMPS), rows=300),
    "top_gain, coordinator": Case(selector("top_gain", **TOLD)),
    "top_gain, coordinator, few trees": Case(selector("top_gain", **TOLD, **TREES)),
    "top_gain, coordinator, three runs": Case(three_runs, TALL),
    "pso_evffs": Case(selector("pso_evffs"), smaller="pso_evffs, all, small swarm"),
    "pso_evffs, coordinator, small swarm": Case(selector("pso_evffs", **TOLD, **SWARM)),
    "pso_evffs, all, small swarm": Case(selector("pso_evffs", protection="all", **{**SWARM, "max_trees": 1}), rows=300),
    # nothing but names
    "all": Case(selector("all")),
    "random": Case(selector("random")),
    # statistics and explanations
    "correlation": Case(statistic("correlation")),
    "vif": Case(statistic("vif")),
    "significance": Case(statistic("significance")),
    "correlation, open_tables": Case(statistic("correlation", open_tables=True), ("phishing", "default")),
    "significance, logistic": Case(logistic, FEW),
    "psi": Case(stability),
    "psi, parted by a column": Case(parted, FEW),
    "value": Case(partners, FEW),
    "explain, additive": Case(shuffled),
    # deviations that a site refuses
    "hostile draw_rows": Case(draws, TALL),
    "sffs, two jobs": Case(lambda: two_jobs(select.SFFS, range(0, 125, 5)), ("wdbc",), rows=150),
}
