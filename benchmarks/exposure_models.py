"""Models of docs/exposure.md: boosted trees and networks, each with its defaults and its strongest options.

Two parties (``bank`` holds the label and the first half of the columns), at most 2,000 rows, few epochs: what an attack
reads is there from the first ones. Boosted trees by their bare name are as a user gets them. Models predict once after
they are trained. ``exposure.py`` measures them;
``missing`` says which cells of method and set have no figure of a version.
Line 13 of the first review is a demonstration in the tests: nothing of it can be run on an honest key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from exposure_cases import CASES, SIX, TOLD, Case, model, selector

from fedsift.core.federation import Federation
from fedsift.models.boost.model import SecureBoostClassifier

BOOST = ("boost.model", "SecureBoostClassifier")
NETWORK = ("splitnn.model", "SplitNN")
TALL = ("bank", "default", "phishing")


def many_predictions() -> Callable[[Federation], None]:
    """Ten models, each grown on a fifth of the first rows, and all of them predict the rest."""

    def conversation(fed: Federation) -> None:
        first, rest = np.split(np.arange(fed.n_rows), [2 * fed.n_rows // 3])
        for number in range(10):
            dealt = np.random.default_rng(number // 5).permutation(first)
            grown = SecureBoostClassifier(n_estimators=10, max_depth=4, **TOLD)
            grown.fit(fed.view(rows=np.sort(dealt[number % 5 :: 5]))).predict(fed.view(rows=rest))

    return conversation


MODELS: dict[str, Case] = {
    "secureboost": Case(model(*BOOST), smaller="secureboost, all, 20 trees"),
    "secureboost, all, 20 trees": Case(model(*BOOST, n_estimators=20, protection="all")),
    "secureboost, all, few trees": Case(
        model(*BOOST, n_estimators=3, max_depth=3, n_bins=8, protection="all"), rows=300
    ),
    "secureboost, coordinator, 20 trees": Case(
        model(*BOOST, **TOLD, n_estimators=20), (*SIX, "adult", "sonar"), rows=2000
    ),
    "secureboost, coordinator, 60 trees": Case(
        model(*BOOST, **TOLD, n_estimators=60), ("wdbc", "phishing", "bank"), rows=2000
    ),
    "secureboost, coordinator, epsilon 1": Case(model(*BOOST, **TOLD, n_estimators=5, max_depth=3, epsilon=1.0)),
    "secureboost, coordinator, early stopping": Case(
        model(*BOOST, **TOLD, n_estimators=3, max_depth=2, early_stopping_rounds=2)
    ),
    "secureboost, coordinator, many predictions": Case(many_predictions, (*TALL, "wdbc")),
    "secureboost, early stopping": Case(
        model(*BOOST, n_estimators=5, max_depth=3, n_bins=8, early_stopping_rounds=2), rows=300
    ),
    "secureboost, open": Case(model(*BOOST, n_estimators=20, protection="open"), ("wdbc", "phishing"), rows=2000),
    "splitnn": Case(model(*NETWORK, epochs=3), rows=2000),
    "splitnn, epsilon 1": Case(model(*NETWORK, epochs=3, label_epsilon=1.0)),
    "splitnn, open": Case(model(*NETWORK, epochs=3, protection="open"), TALL, rows=2000),
    "splitnn, open, embedding of 4": Case(model(*NETWORK, epochs=3, protection="open", embedding=4), TALL, rows=2000),
    "splitnn, lattice": Case(model(*NETWORK, epochs=3, protection="lattice", embedding=8), ("wdbc",), rows=300),
    "fedsdg": Case(selector("fedsdg", epochs=20, refit_epochs=3)),
    "fedsdg, epsilon 1": Case(
        selector("fedsdg", init="half", penalty=0.005, epochs=3, refit_epochs=3, label_epsilon=1.0)
    ),
    "fedsdg, one lambda": Case(selector("fedsdg", penalty=0.005, epochs=3, refit_epochs=3), ("bank", "phishing")),
    "stochastic_gate": Case(selector("stochastic_gate", penalty=0.005, epochs=20, refit_epochs=3)),
    "stochastic_gate, epsilon 1": Case(
        selector("stochastic_gate", penalty=0.005, epochs=3, refit_epochs=3, label_epsilon=1.0)
    ),
    "vflfs": Case(selector("vflfs", epochs=3, pretrain_epochs=1)),
    "vflfs, epsilon 1": Case(selector("vflfs", epochs=3, pretrain_epochs=1, label_epsilon=1.0)),
    "less_vfl": Case(selector("less_vfl", epochs=3, stage_epochs=5)),
    "group_lasso": Case(selector("group_lasso", epochs=3)),
    "group_lasso, epsilon 1": Case(selector("group_lasso", epochs=3, label_epsilon=1.0)),
    "local_lasso": Case(selector("local_lasso", epochs=3, pretrain_epochs=3, stage_epochs=5)),
}


def every_case() -> dict[str, Case]:
    """Selectors, models and statistics."""
    return {**CASES, **MODELS}


def missing(rows: Iterable[Mapping[str, Any]], commits: Iterable[str]) -> list[tuple[str, str]]:
    """Cells of method and set without a figure (or a refusal) of one of these versions."""
    known = set(commits)
    there = {(row["method"], row["set"]) for row in rows if row["commit"] in known}
    return [(name, each) for name, case in every_case().items() for each in case.sets if (name, each) not in there]
