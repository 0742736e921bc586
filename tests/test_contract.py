"""Every registered method and every model, in every secure form, under the rules of ``fedsift.testing``."""

from __future__ import annotations

from typing import Any

import pytest

import fedsift as fs
from fedsift.methods import METHODS
from fedsift.testing import MODEL_CHECKS, SELECTOR_CHECKS, ModelCase, SelectorCase, check_model, check_selector

#: Parameters that make a method quick on small data; what is not named here runs with its defaults.
QUICK: dict[str, dict[str, Any]] = {
    "muse": {"n_features": 4, "n_bins": 4},
    "fedsdg": {"lambda_": 0.01, "epochs": 2, "refit_epochs": 2},
    "less_vfl": {
        "pretrain_epochs": 2,
        "epochs": 1,
        "stage_epochs": 2,
        "batch_size": 24,
        "quantile": 0.5,
        "lambda_components": 0.0,
    },
    "pso_evffs": {"popsize": 3, "iterations": 1, "models": 1, "folds": 2, "max_trees": 2, "max_depth": 2},
    "top_gain": {"n_features": 3, "n_estimators": 2, "max_depth": 2, "folds": 2},
    "information_value": {"n_features": 4},
    "gini": {"n_features": 4},
    "sffs": {"n_features": 4},
    "federated_lasso": {"n_features": 4, "max_iter": 3},
    "group_lasso": {"epochs": 2, "batch_size": 24},
    "local_lasso": {"pretrain_epochs": 1, "epochs": 1, "stage_epochs": 2, "batch_size": 24},
    "stochastic_gate": {"lambda_": 0.01, "epochs": 2, "refit_epochs": 2},
    "vflfs": {"n_features": 4, "epochs": 1, "pretrain_epochs": 1},
    "fed_iife": {"n_pairs": 2, "max_features": 2},
    "vertical_flafe": {"n_operands": 2, "n_features": 2, "functions": ["ab"]},
    "hybrid_flafe": {"n_operands": 2, "n_features": 2, "functions": ["ab"]},
    "fed_halving": {"candidates": 4, "levels": 2, "max_iter": 2, "refinements": 1, "halvings": 1},
    "random": {"n_features": 4},
}
#: How else a method can be protected.
FORMS: dict[str, list[dict[str, Any]]] = {
    "fedsdg": [{"protection": "open"}, {"protection": "lattice"}],
    "stochastic_gate": [{"protection": "open"}],
    "vertical_flafe": [{"protection": "open"}, {"protection": "statistics"}],
    "hybrid_flafe": [{"protection": "open"}],
    "fed_iife": [{"protection": "open"}],
    "fed_halving": [{"protection": "open"}],
    "feature_election": [{"secure": False}],
}
NEEDS_TORCH = {"fedsdg", "less_vfl", "group_lasso", "local_lasso", "stochastic_gate", "vflfs", "SplitNN"}
TRAINED = {"epochs": 2, "embedding": 4, "batch_size": 30}
#: Every model in every form, on every partition that it serves.
MODELS: dict[str, ModelCase] = {
    "SecureBoost": ModelCase(fs.SecureBoostClassifier(n_estimators=2, max_depth=2)),
    "SecureBoost leafwise": ModelCase(
        fs.SecureBoostClassifier(n_estimators=2, max_depth=0, max_leaves=3, grow_policy="lossguide")
    ),
    "SplitNN": ModelCase(fs.SplitNN(epochs=2, batch_size=30), repeats=1e-2),
    "SplitNN open": ModelCase(fs.SplitNN(protection="open", **TRAINED), repeats=1e-5),
    "SplitNN lattice": ModelCase(fs.SplitNN(protection="lattice", **TRAINED), repeats=1e-3),
    "VerticalLogisticRegression": ModelCase(fs.VerticalLogisticRegression(max_iter=3)),
    "HyFDCA vertical": ModelCase(fs.HyFDCA(tol=0.2)),
    "HyFDCA hinge": ModelCase(fs.HyFDCA(loss="hinge", tol=0.2)),
    "HyFDCA horizontal": ModelCase(fs.HyFDCA(tol=0.2), partition="horizontal"),
    "HyFDCA hybrid": ModelCase(fs.HyFDCA(tol=0.2), partition="hybrid"),
    "FedLinear": ModelCase(fs.FedLinear(rounds=30, penalty=0.1)),
    "FedLinear open": ModelCase(fs.FedLinear(rounds=30, penalty=0.1, secure=False)),
}


def spelled(method: str, form: dict[str, Any]) -> str:
    return " ".join([method, *(f"{key}={value}" for key, value in form.items())])


CASES = {
    spelled(method, form): SelectorCase(METHODS[method](**QUICK.get(method, {}), **form))
    for method in sorted(METHODS)
    for form in ({}, *FORMS.get(method, ()))
}


def skip_without_torch(name: str) -> None:
    if name.split()[0] in NEEDS_TORCH:
        pytest.importorskip("torch", reason="the extra nn is not installed")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("check", SELECTOR_CHECKS, ids=lambda check: check.__name__)
def test_selector(name, check):
    skip_without_torch(name)
    check(CASES[name])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_model(name, check):
    skip_without_torch(name)
    check(MODELS[name])


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_registered_method_says_where_it_comes_from_and_what_it_gives_away(method):
    assert METHODS[method].paper
    assert METHODS[method].leaks


class Forgetful(fs.Selector):
    """Breaks a rule: another answer every time."""

    calls = 0

    def _select(self, fed):
        type(self).calls += 1
        scores = {name: [float(self.calls * i % 7) for i in range(count)] for name, count in fed.n_columns.items()}
        return fs.Outcome.best(scores, 2, None)


def test_a_selector_that_breaks_a_rule_is_found():
    with pytest.raises(AssertionError, match="same seed"):
        check_selector(Forgetful())


class Wrong(fs.VerticalLogisticRegression):
    """Breaks a rule: a score from outside."""

    def score(self, fed, y=None):
        return 0.5


def test_a_model_that_breaks_a_rule_is_found():
    with pytest.raises(AssertionError, match="score"):
        check_model(Wrong(max_iter=1))
