"""Every registered method and every model, in every secure form, under the rules of ``fedsift.testing``."""

from __future__ import annotations

from typing import Any

import pytest
from method_cases import NEEDS_TORCH, QUICK
from repeated_draws import streams

import fedsift as fs
from fedsift.methods import METHODS
from fedsift.testing import MODEL_CHECKS, SELECTOR_CHECKS, ModelCase, SelectorCase, check_model, check_selector

#: How else a method can be protected.
FORMS: dict[str, list[dict[str, Any]]] = {
    "fedsdg": [{"protection": "open"}, {"protection": "lattice"}],
    "stochastic_gate": [{"protection": "open"}],
    "vertical_flafe": [{"protection": "open"}, {"protection": "statistics"}],
    "hybrid_flafe": [{"protection": "open"}],
    "top_gain": [{"protection": "coordinator"}, {"protection": "open"}],
    "boruta": [{"protection": "coordinator"}],
    "pso_evffs": [{"protection": "coordinator"}],
    "fed_iife": [{"protection": "open"}],
    "fed_halving": [{"protection": "open"}],
    "feature_election": [{"protection": "open"}, {"epsilon": 1e9}, {"epsilon": 1e9, "method": "mutual_information"}],
    # So little noise that two runs are the same: the conversation is that of a real budget.
    "muse": [{"epsilon": 1e9}],
    "information_value": [{"epsilon": 1e9}],
    "gini": [{"epsilon": 1e9}],
}
TRAINED = {"epochs": 2, "embedding": 4, "batch_size": 30}
#: Every model in every form, on every partition that it serves.
MODELS: dict[str, ModelCase] = {
    "SecureBoost": ModelCase(fs.SecureBoostClassifier(n_estimators=2, max_depth=1, n_bins=8)),
    "SecureBoost coordinator": ModelCase(
        fs.SecureBoostClassifier(n_estimators=2, max_depth=2, protection="coordinator")
    ),
    "SecureBoost open": ModelCase(fs.SecureBoostClassifier(n_estimators=2, max_depth=2, protection="open")),
    "SecureBoost leafwise": ModelCase(
        fs.SecureBoostClassifier(n_estimators=2, max_depth=0, max_leaves=3, grow_policy="lossguide", protection="open")
    ),
    "SplitNN": ModelCase(fs.SplitNN(epochs=2, batch_size=30), repeats=3e-3, rounds=2e-3),
    "SplitNN open": ModelCase(fs.SplitNN(protection="open", **TRAINED), repeats=1e-5),
    "SplitNN lattice": ModelCase(fs.SplitNN(protection="lattice", **TRAINED), repeats=1e-3),
    "VerticalLogisticRegression": ModelCase(fs.VerticalLogisticRegression(max_iter=3)),
    "HyFDCA vertical": ModelCase(fs.HyFDCA(tol=0.2)),
    "HyFDCA hinge": ModelCase(fs.HyFDCA(loss="hinge", tol=0.2)),
    "HyFDCA horizontal": ModelCase(fs.HyFDCA(tol=0.2), partition="horizontal"),
    "HyFDCA hybrid": ModelCase(fs.HyFDCA(tol=0.2), partition="hybrid"),
    "FedLinear": ModelCase(fs.FedLinear(rounds=30, penalty=0.1)),
    "FedLinear open": ModelCase(fs.FedLinear(rounds=30, penalty=0.1, protection="open")),
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
    with streams.aside(f"the first run of {name}"):
        assert CASES[name].first
    check(CASES[name])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
def test_model(name, check):
    skip_without_torch(name)
    with streams.aside(f"the first run of {name}"):
        assert MODELS[name].first
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
