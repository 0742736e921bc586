"""A coordinator that grows other trees than the accepted job says: on rows of its choice, deeper, more of them.

What a label holder is told of a model travels as a plan. Until November 2026 it was the coordinator's: in a job without
held-out rows it could ask for two models side by side, one of all rows and one of all rows but one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.errors import OperationRefused, PolicyRefused, ReplyError
from fedsift.methods import METHODS
from fedsift.models.boost.growing import Booster, grow
from fedsift.models.boost.plan import fold_rules
from fedsift.models.boost.settings import tree_settings
from hostile.coordinator import ROWS, Hostile

TREES = {"n_estimators": 2, "max_depth": 2}
MADE: dict[str, Any] = {
    "boost_classifier": fs.SecureBoostClassifier(**TREES, protection="coordinator"),
    "top_gain": METHODS["top_gain"](**TREES, n_features=2, protection="coordinator"),
    "boruta": METHODS["boruta"](**TREES, rounds=2, fdr=0.5, protection="coordinator"),
    "pso_evffs": METHODS["pso_evffs"](
        popsize=3, iterations=1, models=1, folds=2, max_trees=2, max_depth=2, protection="coordinator"
    ),
}


def plan_of(method: Any, fed: Federation, **changed: Any) -> Booster:
    """What an honest run would ask for, with something else in it."""
    columns = {name: np.arange(count) for name, count in fed.n_columns.items()}
    settings = tree_settings(method)
    if "settings" in changed:
        settings = replace(settings, **changed.pop("settings"))
    trees = getattr(method, "n_estimators", 2)
    return replace(Booster(settings, columns, trees, bins=getattr(method, "n_bins", 16)), **changed)


def grown(method: Any, *boosters: dict[str, Any], local: bool = True) -> None:
    with Hostile().aligned().session(*method.announcement()) as run:
        plans = [plan_of(method, run, **changed) for changed in boosters]
        grow(run, plans, protection="coordinator", least=10, first_tree_local=local)


@pytest.mark.parametrize("method", MADE)
def test_an_honest_plan_grows(method):
    grown(MADE[method], {}, local=method != "boruta")


@pytest.mark.parametrize("method", MADE)
@pytest.mark.parametrize(
    "rows",
    [fold_rules(ROWS, 0)[0], fold_rules(2, 7)[0], {"kind": "validation", "share": 1e-6, "seed": 0}],
    ids=["all rows but one", "half of them, by a seed", "nearly all of them"],
)
def test_rows_of_the_coordinator_s_choice_are_refused(method, rows):
    """Sums of all rows less sums of all but one are that row's gradient; the score of one held-out row is its label."""
    with pytest.raises(OperationRefused, match="'rows' is another than that of the accepted job"):
        grown(MADE[method], {}, {"rows": rows})


def of_fold(**changed: Any) -> dict[str, Any]:
    return {"rows": fold_rules(3, 0)[0], **changed}


def test_a_model_of_a_fold_may_be_smaller_than_the_job_s_and_no_larger():
    """It compares numbers of columns. A smaller one shows less; on all rows there is none but the job's own."""
    method = MADE["top_gain"]
    grown(method, of_fold(n_estimators=1, settings={"max_depth": 1}))
    larger = [{"n_estimators": 3}, {"n_estimators": 0}, {"settings": {"max_depth": 3}}]
    for changed in (*larger, {"subsample": 0.5}, {"seed": 3}, {"bins": 200}):
        with pytest.raises(OperationRefused, match="accepted job"):
            grown(method, of_fold(**changed))
    for changed in ({"n_estimators": 1}, {"settings": {"max_depth": 1}}):
        with pytest.raises(OperationRefused, match="accepted job"):
            grown(method, changed)


@pytest.mark.parametrize("changed", [{"gamma": -1.0}, {"gamma": 21.0}, {"reg_lambda": 1e9}, {"max_depth": 3}], ids=str)
def test_what_a_swarm_tries_is_inside_its_ranges(changed):
    with pytest.raises(OperationRefused, match="accepted job"):
        grown(MADE["pso_evffs"], {"settings": changed})


@pytest.mark.parametrize("method", MADE)
@pytest.mark.parametrize(
    "changed",
    [
        {"n_estimators": 50}, {"seed": 3}, {"subsample": 0.01}, {"early_stopping_rounds": 3}, {"top_rate": 0.01},
        {"multi_output": True}, {"bins": 200}, {"settings": {"max_depth": 8}}, {"settings": {"learning_rate": 1.0}},
        {"settings": {"min_rows": 2}},
    ],
    ids=str,
)  # fmt: skip
def test_other_trees_than_the_job_s_are_refused(method, changed):
    told = MADE[method].get_params()
    with pytest.raises(OperationRefused, match="accepted job"):
        grown(MADE[method], changed)
    assert "n_estimators" in told or "max_trees" in told


def test_the_first_tree_is_local_where_the_job_says_so():
    """Gradients of the first tree are labels less one number: sums of them are counts of labels by the other's bins."""
    with pytest.raises(OperationRefused, match="first tree from own columns alone"):
        grown(MADE["boost_classifier"], {}, local=False)
    grown(fs.SecureBoostClassifier(**TREES, first_tree_local=False, protection="coordinator"), {}, local=False)


LEVELS = ("coordinator", "all")


@pytest.mark.parametrize("protection", LEVELS)
def test_a_model_grows_no_more_trees_than_the_job_says(protection):
    """Each tree more has other sums over the same rows."""
    method = fs.SecureBoostClassifier(**TREES, protection=protection)
    with Hostile().aligned().session(*method.announcement()) as run:
        booster = plan_of(method, run)
        honest = booster.plan()
        booster.n_estimators, booster.plan = 4, lambda: honest
        with pytest.raises(OperationRefused, match=r"as many trees|columns or bins that are not there"):
            grow(run, [booster], protection=protection, least=10)


@pytest.mark.parametrize("protection", LEVELS)
def test_trees_are_as_deep_as_the_job_says(protection):
    method = fs.SecureBoostClassifier(**TREES, protection=protection)
    with Hostile().aligned().session(*method.announcement()) as run:
        booster = plan_of(method, run)
        honest = booster.plan()
        booster.settings, booster.plan = replace(booster.settings, max_depth=5), lambda: honest
        with pytest.raises((OperationRefused, ReplyError), match=r"not those of its models|columns or bins"):
            grow(run, [booster], protection=protection, least=10)


@pytest.mark.parametrize("protection", LEVELS)
def test_held_out_rows_of_a_job_are_a_part_of_the_table_like_any_other(protection):
    """Early stopping by 40 of 240 rows: what is told about all and about 200 would be about 40."""
    told = {**TREES, "early_stopping_rounds": 2, "protection": protection}
    with pytest.raises(PolicyRefused, match="min_rows"):
        fs.SecureBoostClassifier(**told, validation_fraction=1 / 6).fit(Hostile().aligned())
    fs.SecureBoostClassifier(**told, validation_fraction=1 / 4).fit(Hostile().aligned())


def test_how_many_trees_a_model_stopped_at_counts_once_against_the_bits_of_each_site():
    """Whoever tries many settings learns a number of trees of each."""
    hostile, told = Hostile(), {**TREES, "max_depth": 1, "early_stopping_rounds": 1, "validation_fraction": 1 / 4}
    fs.SecureBoostClassifier(**told).fit(hostile.aligned())
    for site in hostile.sites.values():
        lines = [line for line in site.journal.journal.lines() if line.operation == "boost.tell_stopped"]
        assert sum(line.counted for line in lines) == 14.0


def test_validation_rows_of_ever_other_seeds_cut_the_table():
    """Which rows FLAFE holds out follows from the job's seed: jobs that differ in it tell about parts of parts."""
    hostile = Hostile(max_bits="any", forms=["control", "ciphertext", "masked", "pseudonymous", "aggregate", "plain"])
    small = {"n_operands": 2, "n_features": 2, "functions": ["ab"], "protection": "statistics"}
    fs.VerticalFLAFE(**small, random_state=0).fit(hostile.aligned())
    with pytest.raises(PolicyRefused, match="min_rows"):
        fs.VerticalFLAFE(**small, random_state=1).fit(hostile.aligned())
