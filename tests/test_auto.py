"""Auto: the rule, conditions and budget, what sites allow and count, and the words that it gives for its choice."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import JobError, ParameterError, PolicyRefused
from fedsift.select.contest import CANDIDATES, Candidate, Facts, Rung, Tried, choose, enough, first_rung, over
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite
from fedsift.site.submitted import read_submitted

TWO = ["gini", "sffs"]


def planted(rows=480, columns=8, seed=0):
    """Columns a and e make the label; the others are noise."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(rows, columns)), columns=list("abcdefghij")[:columns])
    return X, (X["a"] + X["e"] + 0.5 * rng.normal(size=rows) > 0).astype(int)


def small(**given):
    return fs.Auto(**{"n_features": 2, "candidates": TWO, "model": "linear", "folds": 2, **given})


def told(name, score, deviation=0.0, **more):
    return Tried(name, "", score, deviation, allowed=True, **more)


# --- the rule --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "tolerance", "taken"),
    [
        ([0.90, 0.92, 0.93], 0.005, "c"),  # both are further below than the tolerance
        ([0.90, 0.928, 0.93], 0.005, "b"),
        ([0.90, 0.928, 0.93], 0.05, "a"),  # a wide tolerance: within one standard error of the best
        ([0.80, 0.928, 0.93], 0.5, "b"),  # but never outside of that error
        ([0.93, 0.93, 0.93], 0.0, "a"),
    ],
)
def test_the_first_within_the_error_and_the_tolerance_is_taken(scores, tolerance, taken):
    tried = [told(name, score, 0.08) for name, score in zip("abc", scores)]  # standard error of four folds: 0.04
    found, best = choose(tried, 4, tolerance)
    assert (found.name, best.score) == (taken, 0.93)


def test_without_any_score_the_first_that_is_allowed_is_taken():
    tried = [Tried("a", "refused"), Tried("b", "measured by nobody", allowed=True), Tried("c", allowed=True)]
    assert choose(tried, 3, 0.01) == (tried[1], None)
    assert choose(tried[:1], 3, 0.01) == (None, None)


def test_conditions_and_budget_are_said_in_words():
    facts = Facts(rows=40, columns=900, parties=2, task="classification", classes=7)
    assert Candidate("muse", least_rows=50).unsuited(facts) == "it is for 50 rows and more"
    assert Candidate("muse", most_columns=500).unsuited(facts) == "it is for 500 columns at most"
    assert Candidate("top_gain", most_classes=5).unsuited(facts) == "it is for 5 classes at most"
    assert "scores of rows" in Candidate("federated_lasso", shows_scores=True).unsuited(facts)
    assert Candidate("gini").unsuited(facts) == ""
    assert "max_minutes" in over((50.0, 0.0), (11.0, 0.0), (60.0, 1e9))
    assert "max_bytes" in over((0.0, 5e8), (1.0, 6e8), (60.0, 1e9))
    assert over((0.0, 0.0), (60.0, 1e9), (60.0, 1e9)) == ""


def test_the_declared_candidates_are_methods_that_take_a_number_and_are_measured():
    from fedsift.jobs.cost import expected, exposure

    for candidate in CANDIDATES:
        assert small().made(candidate).get_params()["n_features"] == 2
        assert expected(candidate.name, rows=1000, columns=20, parties=2) is not None
        assert exposure(candidate.name) != "none measured"


# --- the answer ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X, y = planted()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    return fed, small().fit(fed)


def test_it_keeps_what_the_taken_method_keeps_on_all_rows(fitted):
    fed, auto = fitted
    alone = fs.GiniFilter(n_features=2).fit(fed)
    assert auto.details_["chose"] == "gini"
    assert auto.selected_ == alone.selected_ == {"bank": ["a"], "shop": ["e"]}
    pd.testing.assert_frame_equal(auto.scores_, alone.scores_)


def test_scores_are_those_of_an_evaluation_of_all_candidates_together(fitted):
    fed, auto = fitted
    together = fs.evaluate(
        fed, {"gini": fs.GiniFilter(n_features=2), "sffs": fs.SFFS(n_features=2)}, model="linear", cv=2
    )
    expected = {line.method: line.mean["auc"] for line in together.lines()}
    found = {each["method"]: each["score"] for each in auto.details_["candidates"]}
    assert found == {name: expected[name] for name in TWO}
    assert auto.details_["nulls"] == {"all": expected["all features"], "random": expected["2 random columns"]}


def test_the_paragraph_has_the_table_the_figures_and_the_nulls(fitted):
    _, auto = fitted
    said, details = auto.why_, auto.details_
    assert said.startswith("Auto took gini, one of 2 candidates, for 480 rows, 8 columns of 2 parties and a label of 2")
    figures = {*details["nulls"].values(), *(each["score"] for each in details["candidates"])}
    assert {f"{figure:.3f}" for figure in figures} <= set(re.findall(r"\d\.\d+", said))
    assert "a linear model AUC" in said
    assert fs.GiniFilter.leaks in said
    for shown in (auto.report(), auto._repr_html_()):
        assert "Auto" in shown
    assert said.split(".")[0] in " ".join(auto.report().split())


def test_a_candidate_that_does_not_go_by_weights_is_left_out():
    X, y = planted(rows=240, columns=6)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"], aside={"w": np.linspace(1, 2, len(X))})
    for design in (fs.Design(class_weight="balanced"), fs.Design(weight="bank.w")):
        auto = small(candidates=["muse", "gini"]).fit(fed.designed(design))
        part = next(iter(design.parts))
        assert auto.details_["chose"] == "gini"
        assert f"muse (muse does not go by the design's {part}" in auto.why_


def test_a_party_is_not_told_why(fitted):
    """The paragraph speaks of scores over all parties; one party's own report has no word of it."""
    _, auto = fitted
    assert "one of 2 candidates" not in " ".join(auto.report(party="shop").split())


def test_noise_is_said_to_be_no_better_than_random():
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(300, 6)), columns=list("abcdef"))
    y = pd.Series(rng.permutation(np.arange(300) % 2))
    auto = small().fit(fs.Federation.split(X, y, parties=2))
    beaten = auto.details_["nulls"]["random"]
    worse = all(each["score"] <= beaten for each in auto.details_["candidates"])
    assert ("do not rely on it" in auto.why_) == worse


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"candidates": []}, "empty"), ({"candidates": ["nothing"]}, "no method 'nothing'"), ({"folds": 1}, "folds"),
     ({"candidates": ["stable"]}, "fits other methods"), ({"candidates": ["auto"]}, "fits other methods"),
     ({"candidates": ["feature_election"]}, "horizontal parties"), ({"model": "forest"}, "model"),
     ({"candidates": {"gini": {"trees": 3}}}, "no parameter 'trees'"), ({"tolerance": -1}, "tolerance")],
)  # fmt: skip
def test_parameters_that_make_no_sense_are_refused_in_words(small_fed, wrong, said):
    with pytest.raises(ParameterError, match=said):
        small(**wrong).fit(small_fed)


def test_a_candidate_beyond_the_budget_is_named_and_not_run(fitted):
    fed, _ = fitted
    mark = len(fed.ledger)
    auto = small(candidates=["sffs", "top_gain"], max_bytes=3e7).fit(fed)
    assert auto.details_["candidates"][1]["not_run"].endswith("more than is left of max_bytes")
    assert "top_gain (its fits send about" in auto.why_
    assert not any(entry.operation.startswith("boost") for entry in fed.ledger.entries[mark:])


# --- what sites allow ------------------------------------------------------------------------------------------------


def policy_fed(X, y, bank=None, shop=None, accepted=None):
    frame, ids = X.assign(label=y), [f"p{i}" for i in range(len(X))]
    tables = (
        Table.read(frame[["a", "b", "c", "label"]].assign(id=ids), id="id", label="label", name="bank"),
        Table.read(frame[["d", "e", "f"]].assign(id=ids), id="id", name="shop"),
    )
    policies = {"bank": bank or Policy(), "shop": shop or Policy()}
    sites = {t.name: PolicySite(t.name, t, policies[t.name], accepted=accepted) for t in tables}
    return fs.Federation(InProcess(sites), list(sites), active="bank")


MAY = ["auto", "evaluate", "vertical_additive", "all"]


def test_a_method_that_one_site_refuses_is_rehearsed_named_and_not_run():
    X, y = planted(rows=4000, columns=6)
    fed = policy_fed(X, y, shop=Policy(methods=[*MAY, "sffs"]))
    auto = small().fit(fed)
    assert auto.details_["chose"] == "sffs"
    assert "shop" in auto.details_["candidates"][0]["not_run"]
    assert "the method 'gini' is not allowed here" in auto.why_
    assert not any(entry.operation.startswith("histogram") for entry in fed.ledger.entries)


def test_where_no_site_lets_it_measure_the_first_allowed_method_is_taken_and_that_is_said():
    X, y = planted(rows=4000, columns=6)
    auto = small().fit(policy_fed(X, y, bank=Policy(methods=["auto", *TWO])))
    assert auto.details_["chose"] == "gini"
    assert "how good it is here, nobody knows" in auto.why_


def test_where_nothing_is_allowed_every_reason_is_told():
    X, y = planted(rows=400, columns=6)
    with pytest.raises(ParameterError, match=r"gini: .*not allowed here.*sffs: .*not allowed here"):
        small().fit(policy_fed(X, y, bank=Policy(methods=["auto"])))
    with pytest.raises(PolicyRefused, match="methods"):
        small().fit(policy_fed(X, y, bank=Policy(methods=TWO)))


def test_the_job_names_all_candidates_with_all_of_their_parameters():
    auto = small(candidates={"gini": {"n_bins": 4, "min_cell": 7}, "sffs": {}})
    parameters = auto.announcement()[1]["candidates"]
    assert parameters["gini"] == fs.GiniFilter(n_features=2, n_bins=4, min_cell=7).announcement()[1]
    assert parameters["sffs"]["n_features"] == 2


def test_a_site_opened_for_it_takes_what_the_job_names_and_no_other():
    X, y = planted(rows=4000, columns=6)
    method = {"name": "auto", "n_features": 2, "candidates": TWO, "model": "linear", "folds": 2}
    _, accepted = read_submitted({"parties": ["bank", "shop"], "method": method})
    assert {name for name, _ in accepted} >= {"auto", *TWO, "evaluate", "vertical_additive", "all"}
    fed = policy_fed(X, y, accepted=accepted)
    assert small().fit(fed).selected_ == {"bank": ["a"], "shop": ["e"]}
    for other in (small(n_features=3), small(candidates=["gini"]), fs.InformationValue(n_features=2), small(folds=3)):
        with pytest.raises(PolicyRefused, match="as submitted"):
            other.fit(policy_fed(X, y, accepted=accepted))
    with pytest.raises(JobError, match="none of 'auto'"):
        read_submitted({"parties": ["bank"], "method": {"name": "auto", "pairs": 3}})


def test_the_journal_counts_every_fit_and_every_score():
    X, y = planted(rows=4000, columns=6)
    spent = {}
    for name, selector in (("alone", fs.GiniFilter(n_features=2)), ("auto", small())):
        fed = policy_fed(X, y)
        selector.fit(fed)
        spent[name] = [line for line in fed.simulated["bank"].journal.journal.lines() if line.bits]
    bits = {name: sum(line.bits for line in lines) for name, lines in spent.items()}
    methods = {line.method for line in spent["auto"]}
    assert methods >= {*TWO, "vertical_additive"}
    assert bits["auto"] > 5 * bits["alone"]  # two candidates on two folds each, the last fit, and the measures


# --- how many columns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "random", "kept"),
    [
        ([0.80, 0.90, 0.902, 0.89], 0.6, 10),  # twice as many are no better than the tolerance
        ([0.90, 0.902, 0.903, 0.904], 0.6, 5),
        ([0.70, 0.80, 0.85, 0.95], 0.6, 60),  # all of them
        ([0.60, 0.59, 0.58, 0.61], 0.65, 60),  # a choice that is no better than random is none
        ([0.60, 0.59, 0.58, None], 0.65, 20),
    ],
)
def test_the_fewest_columns_that_are_as_good_as_the_best_number_are_kept(scores, random, kept):
    rungs = [Rung(n, s, 0.1) for n, s in zip((5, 10, 20, 60), scores) if s is not None]
    assert enough(rungs, {"random": random}, 4, 0.005).columns == kept


def test_a_given_number_is_kept_whatever_others_would_give():
    assert enough([Rung(7, 0.5, 0.1)], {"random": 0.9, "all": 0.9}, 3, 0.005).columns == 7


@pytest.mark.parametrize(("columns", "first"), [(3, 5), (15, 5), (16, 10), (30, 10), (31, 20), (9999, 20)])
def test_candidates_are_compared_with_about_a_third_of_the_columns(columns, first):
    assert first_rung(columns) == first


def test_a_method_that_random_columns_beat_is_not_taken_before_one_that_they_do_not():
    tried = [told("a", 0.899, 0.1), told("b", 0.9, 0.1)]
    assert choose(tried, 4, 0.005)[0].name == "a"
    assert choose(tried, 4, 0.005, 0.8995)[0].name == "b"
    assert choose(tried, 4, 0.005, 0.95)[0].name == "b"  # none is better: the best


def test_without_a_number_it_finds_one_and_says_what_it_tried():
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.normal(size=(600, 24))).add_prefix("c")
    y = (X.iloc[:, :14].sum(axis=1) + rng.normal(size=600) > 0).astype(int)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    auto = small(n_features=None, candidates=["gini"]).fit(fed)
    tried = {each["columns"]: each["score"] for each in auto.details_["sizes"]}
    assert list(tried) == [10, 20, 24]
    kept = sum(len(names) for names in auto.selected_.values())
    assert kept == auto.details_["n_features"]
    assert kept in (20, 24)  # ten of fourteen columns are not enough
    assert f"{tried[20]:.3f}" in auto.why_
    assert "All columns do better" not in auto.why_


def test_all_sizes_that_may_be_tried_stand_in_the_jobs_that_a_site_opens_for():
    jobs = small(n_features=None, candidates=["gini"]).jobs_within()
    assert [told["n_features"] for name, told in jobs if name == "gini"] == [5, 10, 20, 40, 80]
