"""A coordinator that announces one form of a method and runs another: the job promises shares or noise, and the steps
of the open or the exact form are asked.

Every site ran them: ``top_gain`` announced with ``protection="all"`` went through in its open form (the label holder
reads exact sums), Fed-IIFE's own sums were given in the clear in a job with masks, and MUSE's exact tables in a job
with an epsilon. Steps say since then of which form they are (``when=``).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from method_cases import NEEDS_TORCH, QUICK

from fedsift import testing
from fedsift.core.federation import Federation
from fedsift.engineer.flafe.private import plan_columns
from fedsift.engineer.flafe.products import multiply_columns, multiply_noisy
from fedsift.errors import OperationRefused, ReplyError
from fedsift.methods import METHODS, MODELS
from hostile.cases import noisy
from hostile.coordinator import Hostile, refused

FORMS = {
    "fedsdg": ("shares", "lattice", "open"), "stochastic_gate": ("shares", "lattice", "open"),
    "split_network": ("shares", "lattice", "open"), "less_vfl": ("shares", "open"), "group_lasso": ("shares", "open"),
    "vflfs": ("shares", "open"), "top_gain": ("coordinator", "all", "open"), "boruta": ("coordinator", "all", "open"),
    "pso_evffs": ("coordinator", "all", "open"), "boost_classifier": ("coordinator", "all", "open"),
    "vertical_flafe": ("columns", "statistics", "open"), "hybrid_flafe": ("columns", "open"),
    "fed_iife": ("sums", "open"), "fed_halving": ("sums", "open"), "feature_election": ("sums", "open"),
    "fed_linear": ("sums", "open"),
}  # fmt: skip
SMALL = {
    "boost_classifier": {"n_estimators": 2, "max_depth": 2},
    "split_network": {"epochs": 1},
    "fedsdg": {"init": "half"},
}
#: Which of the label holder's labels a network sees under an epsilon is decided where they are, by the job.
NOISE_AT_THE_SITE = {"fedsdg", "group_lasso", "stochastic_gate", "vflfs", "split_network"}
KNOWN = {**METHODS, **MODELS}
NOISY = [name for name, kind in KNOWN.items() if "epsilon" in kind().get_params() and name != "boost_regressor"]
#: Announced, and run. A job that announces the open form promises nothing.
PAIRS = [
    (name, *pair) for name, forms in FORMS.items() for pair in itertools.permutations(forms, 2) if pair[0] != "open"
]


def announced_as(method: str, told: dict[str, Any], **run: Any) -> Any:
    """The method as it runs, under an announcement that says something else."""
    made = KNOWN[method](**{**QUICK.get(method, {}), **SMALL.get(method, {}), **run})
    name, parameters = made.announcement()
    made.announcement = lambda: (name, {**parameters, **told})
    return made


def test_every_method_with_a_choice_of_protection_is_looked_at():
    chosen = {name for name, kind in KNOWN.items() if "protection" in kind().get_params()}
    assert chosen == {*FORMS, "boost_regressor"}


@pytest.mark.parametrize(("method", "announced", "run"), PAIRS)
def test_another_form_than_the_announced_one_is_refused(method, announced, run):
    if method in NEEDS_TORCH or method == "split_network":
        pytest.importorskip("torch")
    fed = testing.federation(KNOWN[method].partitions[0])
    with pytest.raises(OperationRefused, match=f"no step of a job with protection = '{announced}'|no label is shown"):
        announced_as(method, {"protection": announced}, protection=run).fit(fed)


@pytest.mark.parametrize("method", [name for name in NOISY if name not in NOISE_AT_THE_SITE])
def test_exact_steps_are_refused_in_a_job_with_noise(method):
    """The filters' parties add noise by the job whatever they are asked: what comes does not add up for the liar."""
    fed = testing.federation(KNOWN[method].partitions[0])
    with pytest.raises((OperationRefused, ReplyError), match=r"epsilon|do not add up"):
        announced_as(method, {"epsilon": 1.0}).fit(fed)


def test_own_sums_are_not_given_in_the_clear_where_the_method_has_no_open_form():
    """Knockoffs between horizontal parties sum under masks; the operation without them is registered all the same."""
    hostile = Hostile()
    job = hostile.of(METHODS["knockoffs"](), partition="horizontal", active=None, label_parties=("bank", "shop"))
    session = hostile.begin(job)
    refused(hostile.send("bank", "study.feature_sums.open", session=session, job=job.hash), "protection = 'unsaid'")


@pytest.mark.parametrize("exact", [False, True], ids=["the noisy product", "the exact product"])
def test_columns_are_not_combined_without_the_noise_that_the_job_promises(monkeypatch, exact):
    """Until November 2026 the noise was what an earlier step had left: a coordinator that skipped that step got
    products without any, and their holder the other party's columns."""
    ask = Federation.ask

    def skipping(self, function, **asked):
        if function is plan_columns:
            return {}
        return ask(self, multiply_columns if exact and function is multiply_noisy else function, **asked)

    monkeypatch.setattr(Federation, "ask", skipping)
    fitted = KNOWN["vertical_flafe"](n_operands=2, n_features=2, **noisy())
    with pytest.raises(OperationRefused, match="epsilon = 'set'" if exact else "an earlier step .* must come first"):
        fitted.fit(testing.federation("vertical"))
