"""Every registered method, quick on small data: what several test files share."""

from __future__ import annotations

from typing import Any

import fedsift as fs
from fedsift import testing
from fedsift.methods import METHODS

#: Parameters that make a method quick on small data; what is not named here runs with its defaults.
QUICK: dict[str, dict[str, Any]] = {
    "muse": {"n_features": 4, "n_bins": 4},
    "fedsdg": {"penalty": 0.01, "epochs": 2, "refit_epochs": 2},
    "less_vfl": {
        "pretrain_epochs": 2,
        "epochs": 1,
        "stage_epochs": 2,
        "batch_size": 24,
        "quantile": 0.5,
        "lambda_components": 0.0,
    },
    "pso_evffs": {"popsize": 2, "iterations": 1, "models": 1, "folds": 2, "max_trees": 2, "max_depth": 1},
    "top_gain": {"n_features": 3, "n_estimators": 2, "max_depth": 2, "folds": 2},
    "information_value": {"n_features": 4},
    "gini": {"n_features": 4},
    "sffs": {"n_features": 4},
    "federated_lasso": {"n_features": 4, "max_iter": 3},
    "group_lasso": {"epochs": 2, "batch_size": 24},
    "local_lasso": {"pretrain_epochs": 1, "epochs": 1, "stage_epochs": 2, "batch_size": 24},
    "stochastic_gate": {"penalty": 0.01, "epochs": 2, "refit_epochs": 2},
    "vflfs": {"n_features": 4, "epochs": 1, "pretrain_epochs": 1},
    "fed_iife": {"n_pairs": 2, "max_features": 2},
    "vertical_flafe": {"n_operands": 2, "n_features": 2, "functions": ["ab"]},
    "hybrid_flafe": {"n_operands": 2, "n_features": 2, "functions": ["ab"]},
    "fed_halving": {"candidates": 4, "levels": 2, "max_iter": 2, "refinements": 1, "halvings": 1},
    "knockoffs": {"fdr": 0.5, "copies": 2, "open_tables": True},
    "boruta": {"fdr": 0.5, "rounds": 2, "n_estimators": 2, "max_depth": 2},
    "stable": {"selector": "sffs", "q": 3, "pairs": 1, "blocks": 2, "fdr": 1.0},
    "auto": {"n_features": 3, "candidates": ["gini", "sffs"], "model": "linear", "folds": 2},
    "random": {"n_features": 4},
}
NEEDS_TORCH = {"fedsdg", "less_vfl", "group_lasso", "local_lasso", "stochastic_gate", "vflfs", "SplitNN"}


def selector(method: str) -> fs.Selector:
    chosen = METHODS[method](**QUICK.get(method, {}))
    return chosen.set_params(random_state=0) if "random_state" in chosen.get_params() else chosen


def federation(method: str) -> fs.Federation:
    return testing.federation(METHODS[method].partitions[0])
