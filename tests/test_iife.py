"""Fed-IIFE: pairs and gains equal oracles on the pooled table, whatever the split; no value leaves a party."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from doubles import Faulty, Recording
from scipy.special import digamma
from sklearn.linear_model import LinearRegression

import fedsift as fs
from fedsift.core.expressions import evaluate_columns, parse
from fedsift.core.transports.base import Delivery
from fedsift.engineer.fed_iife.scoring import GramScorer, Pool
from fedsift.engineer.fed_iife.selector import FedIIFE
from fedsift.engineer.fed_iife.similar import minimum_cosine_distances
from fedsift.engineer.fed_iife.synergy import (
    additive_basis,
    all_pairs,
    anova_scores,
    interaction_f,
    interaction_information,
    interaction_scores,
)
from fedsift.errors import DataError, ParameterError, PartyGone
from fedsift.mpc.horizontal_study import (
    Target,
    TrainingRows,
    agree_columns,
    describe_rows,
    load_columns,
    open_study,
    standardise,
)
from fedsift.mpc.secure_sum import SecureSum
from fedsift.select.selection import Selection

SPLITS = ["equal", "unequal", "target", "kmeans"]
QUICK = {"n_pairs": 2, "max_features": 3, "shortlist": 5}
PLANTED = {
    "a*b": lambda a, b: a * b,
    "sin(2ab)": lambda a, b: np.sin(2 * a * b),
    "a^2*max(a,b)": lambda a, b: a**2 * np.maximum(a, b),
    "a*b+2a": lambda a, b: a * b + 2 * a,
}


def planted(function, seed=0, n=800, width=25, noise=0.05):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.7, 1.7, (n, width))
    a, b = sorted(rng.choice(width, 2, replace=False))
    return X, function(X[:, a], X[:, b]) + rng.normal(0, noise, n), (int(a), int(b))


def split(X, y, how="equal", parties=4, **kw):
    return fs.Federation.split(X, y, parties=parties, partition="horizontal", how=how, **kw)


def study_of(run, width, **kw):
    described = run.ask(describe_rows, to=run.parties, task="auto")
    total = SecureSum(run, **kw)
    study = open_study(total, described, 0.0)
    total.ask_all(load_columns, columns=agree_columns(described)[0])
    standardise(total, width)
    return total, study


def pair_scores(fed, width):
    with fed.session() as run:
        total, study = study_of(run, width)
        return anova_scores(total, study, width)


# --- pairs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_pair_is_found_and_its_score_does_not_depend_on_the_split(name):
    X, y, pair = planted(PLANTED[name])
    scores = {how: pair_scores(split(X, y, how), 25) for how in SPLITS}
    where = all_pairs(25).tolist().index(list(pair))
    for how in SPLITS:
        assert (scores[how] > scores[how][where]).sum() < 5
        np.testing.assert_allclose(scores[how], scores["equal"], rtol=1e-9, atol=1e-9)


def test_the_f_statistic_is_the_textbooks():
    rng = np.random.default_rng(0)
    rows, columns, r = rng.integers(0, 4, 300), rng.integers(0, 3, 300), rng.normal(size=300)
    cell = rows * 4 + columns
    counts, sums = np.bincount(cell, minlength=16)[None], np.bincount(cell, r, minlength=16)[None, None]
    ours = interaction_f(counts.astype(float), sums, np.array([(r**2).sum()]), 300)[0]
    additive = np.c_[np.eye(4)[rows], np.eye(3)[columns]]
    saturated = np.eye(16)[cell]
    left = [
        ((r - LinearRegression(fit_intercept=False).fit(d, r).predict(d)) ** 2).sum() for d in (additive, saturated)
    ]
    freedom = (12 - 6, 300 - 12)
    np.testing.assert_allclose(ours, (left[0] - left[1]) / freedom[0] / (left[1] / freedom[1]), rtol=1e-9)


def test_an_additive_effect_is_no_synergy():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 4))
    y = 3 * X[:, 0] ** 2 + np.abs(X[:, 1]) + 0.5 * X[:, 2] * X[:, 3] + rng.normal(0, 0.1, 600)
    scores = pair_scores(split(X, y), 4)
    assert int(np.argmax(scores)) == all_pairs(4).tolist().index([2, 3])
    assert additive_basis(X[:5], np.zeros((4, 3))).shape == (5, 24)


def slow_interaction(a, b, y, k):
    """The same estimator, written as loops over rows."""

    def information(parts, given):
        total = 0.0
        for i in range(len(a)):
            gaps = {name: np.delete(np.abs(v - v[i]), i) for name, v in (parts | given).items()}
            joint = np.max(list(gaps.values()), axis=0)
            radius = np.sort(joint)[k - 1]
            inside = {name: gap <= radius for name, gap in gaps.items()}
            z = np.all([inside[name] for name in given], axis=0) if given else np.ones(len(a) - 1, bool)
            total += digamma((joint <= radius).sum()) + digamma(z.sum())
            total -= sum(digamma((inside[name] & z).sum()) for name in parts)
        return total / len(a)

    pair = {"a": a, "b": b}
    return information(pair, {"y": y}) - information(pair, {})


def one_pair(a, b, y):
    return interaction_information(np.c_[a, b], y, np.array([[0, 1]]), 3)[0]


@pytest.mark.parametrize("kind", ["continuous", "mixed", "repeated"])
def test_interaction_information_is_the_estimators(kind):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 80))
    if kind == "mixed":
        b = rng.integers(0, 3, 80).astype(float)
    if kind == "repeated":
        a, b = np.round(a), np.round(2 * b)
    y = a * b + rng.normal(0, 0.1, 80)
    np.testing.assert_allclose(one_pair(a, b, y), slow_interaction(a, b, y, 3), rtol=1e-10)


def test_xor_is_synergy():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 4000)).astype(float)
    y = np.logical_xor(a, b).astype(float)
    assert one_pair(a, b, y) == pytest.approx(np.log(2), abs=0.01)  # plug-in: all discrete
    assert abs(one_pair(a[:500], b[:500], rng.integers(0, 2, 500).astype(float))) < 0.02


def test_fed_ii_is_the_weighted_average():
    X, y, _ = planted(PLANTED["a*b"], n=150, width=4)
    fed = split(X, y, "unequal", parties=3)
    sites = fed._link.transport.sites
    pairs = all_pairs(4)
    with fed.session() as run:
        total, study = study_of(run, 4)
        ours = interaction_scores(total, pairs, neighbours=3, max_rows=500)
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    expected, rows = np.zeros(len(pairs)), 0
    for site in sites.values():
        Z = (site.table.matrix() - mean) / deviation
        target = (site.table.label - study.centre) / study.deviation
        expected += len(Z) * np.array([one_pair(Z[:, a], Z[:, b], target) for a, b in pairs])
        rows += len(Z)
    np.testing.assert_allclose(ours, expected / rows, rtol=1e-6, atol=1e-9)


def test_interaction_ranks_a_product_first():
    first = 0
    for seed in range(5):
        X, y, pair = planted(PLANTED["a*b"], seed=seed, n=400, width=6)
        with split(X, y).session() as run:
            total, _ = study_of(run, 6)
            scores = interaction_scores(total, all_pairs(6), neighbours=3, max_rows=500)
        first += all_pairs(6)[int(np.argmax(scores))].tolist() == list(pair)
    assert first == 5


# --- candidates ------------------------------------------------------------------------------------------------------


def test_a_gain_is_what_refitting_gives():
    X, y, _ = planted(PLANTED["a*b"], n=200, width=3)
    formulas = ["mul(f0, f1)", "square(f2)", "max(f0, f2)"]
    with split(X, y).session() as run:
        described = run.ask(describe_rows, to=run.parties, task="auto")
        total = SecureSum(run)
        study = open_study(total, described, 0.25)
        total.ask_all(load_columns, columns=["f0", "f1", "f2"])
        standardise(total, 3)
        scorer = GramScorer(total, study, ["f0", "f1", "f2"])
        scorer.offer([*formulas, "sub(f0, f0)", "mul(f0, f1)"])
        gains, ridge = scorer.gains(), scorer.penalty * study.n_train
        scorer.accept(4)
        scorer.offer(["cube(f1)"])
        later = scorer.gains()
        states = [next(iter(site.sessions.values())) for site in run._link.transport.sites.values()]
        pool = np.vstack([s[Pool].values[s[TrainingRows].mask] for s in states])
        target = np.vstack([s[Target].scaled[s[TrainingRows].mask] for s in states])

    def objective(columns):
        S = pool[:, columns]
        w = np.linalg.solve(S.T @ S + ridge * np.eye(len(columns)), S.T @ target)
        return ((target - S @ w) ** 2).sum() + ridge * (w**2).sum()

    assert len(scorer.formulas) == 7  # the constant one and the repeated one were left out
    for c in (3, 4, 5):
        np.testing.assert_allclose(gains[c], objective([0, 1, 2]) - objective([0, 1, 2, c]), rtol=1e-8)
    for c in (3, 5, 6):
        np.testing.assert_allclose(later[c], objective([0, 1, 2, 4]) - objective([0, 1, 2, 4, c]), rtol=1e-8)
    assert later[4] == -np.inf


@pytest.mark.parametrize("settings", [{}, {"functions": "paper"}, {"functions": "paper", "synergy": "interaction"},
                                      {"functions": "paper", "scoring": "fedavg", "max_iter": 30}])  # fmt: skip
def test_a_product_is_built(settings):
    X, y, (a, b) = planted(PLANTED["a*b"], n=240, width=4)
    engineer = FedIIFE(**{**QUICK, **settings}).fit(split(X, y))
    assert engineer.details_["score"] > 0.8
    assert engineer.details_["base_score"] < 0.3
    first = engineer.details_["ranking"][0]
    assert {first["first"], first["second"]} == {f"f{a}", f"f{b}"}
    assert engineer.selection_.engineered == engineer.expressions_ != []
    assert sum(step["gain"] for step in engineer.details_["features"]) > 0.5
    X_new = evaluate_columns([parse(t) for t in engineer.expressions_], {f"f{i}": X[:, i] for i in range(4)})
    assert LinearRegression().fit(np.hstack([X, X_new]), y).score(np.hstack([X, X_new]), y) > 0.9


def test_noise_becomes_no_features():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    engineer = FedIIFE(**{**QUICK, "max_features": 10, "patience": 1, "min_gain": 0.01})
    engineer.fit(split(X, X[:, 0] + rng.normal(0, 0.5, 300)))
    assert len(engineer.expressions_) <= 1


def test_classes_missing_values_categories_and_constants_are_handled():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(240, 3)), columns=["a", "b c", "d"])
    y = np.where(X["a"] * X["b c"] > 0, "yes", "no")
    X = X.assign(still=1.0, word=rng.choice(["u", "v"], 240))
    X.loc[::9, "d"] = np.nan
    engineer = FedIIFE(**QUICK).fit(split(X, y, "target", parties=3))
    assert engineer.details_["columns_without_numbers"] == ["word"]
    assert '"b c"' in engineer.expressions_[0]
    assert engineer.details_["score"] > 0.3
    saved = Selection.from_dict({"format": "fedsift-selection", **vars(engineer.selection_)})
    assert saved.apply(X, "party1").columns == [*X.columns, *engineer.expressions_]


def test_a_transformed_federation_has_its_new_columns():
    X, y, _ = planted(PLANTED["a*b"], n=200, width=3)
    fed = split(X, y)
    engineer = FedIIFE(**QUICK).fit(fed)
    wide = engineer.transform(fed)
    expected = ["f0", "f1", "f2", *engineer.expressions_]
    assert all(columns == expected for columns in wide.column_names().values())
    assert all(columns == expected[:3] for columns in fed.view().column_names().values())
    train, test = wide.rows(train=0.5)  # views of the view have them too
    assert train.column_names()["party1"] == test.column_names()["party1"] == expected


def test_the_same_seed_gives_the_same_result():
    X, y, _ = planted(PLANTED["sin(2ab)"], n=200, width=4)
    runs = [FedIIFE(**QUICK, random_state=3).fit(split(X, y)) for _ in range(2)]
    assert runs[0].expressions_ == runs[1].expressions_


def test_a_party_that_leaves_in_the_middle_ends_the_run():
    X, y, _ = planted(PLANTED["a*b"], n=240, width=4)
    fed = split(X, y)
    answered = [0]

    def leave(reply):
        answered[0] += 1
        return reply if answered[0] < 25 else Delivery(None, 0.0, "gone")

    fed._link.transport = Faulty(fed._link.transport, "party3", leave)
    with pytest.raises(PartyGone, match="party3"):
        FedIIFE(**QUICK).fit(fed)


def test_no_message_carries_a_value():
    canary = 918273.4378125
    rng = np.random.default_rng(0)
    X, y, _ = planted(PLANTED["a*b"], n=120, width=3)
    X[rng.random(X.shape) < 0.1] = canary
    y[::10] = canary
    fed = split(X, y)
    log = fed._link.transport = Recording(fed._link.transport)
    FedIIFE(**QUICK).fit(fed)
    forms = [np.float64(canary).tobytes(), np.float32(canary).tobytes(), str(canary).encode()]
    assert not any(form in data for form in forms for _, _, data in log.log)


def test_a_named_party_holds_the_validation_rows():
    X, y, _ = planted(PLANTED["a*b"], n=240, width=3)
    engineer = FedIIFE(**QUICK, validation="party2").fit(split(X, y))
    assert engineer.details_["score"] > 0.8


def test_one_pooled_party_is_for_research_only():
    X, y, _ = planted(PLANTED["a*b"], n=200, width=3)
    with pytest.raises(ParameterError, match="two parties"):
        FedIIFE(**QUICK).fit(split(X, y, parties=1))
    engineer = FedIIFE(**QUICK, protection="open").fit(split(X, y, parties=1))
    assert engineer.expressions_
    assert any("secure=False" in note for note in engineer.ledger_.notes)


def test_settings_that_make_no_sense_are_refused():
    X, y, _ = planted(PLANTED["a*b"], n=60, width=3)
    fed = split(X, y)
    bad_ones = [{"synergy": "guess"}, {"scoring": "magic"}, {"functions": "all"}, {"n_pairs": 0}, {"validation": 0},
                {"validation": 2.0}, {"scoring": "fedavg"}, {"max_features": 0}, {"min_gain": -1}]  # fmt: skip
    for bad in bad_ones:
        with pytest.raises(ParameterError):
            FedIIFE(**bad).fit(fed)
    with pytest.raises(DataError, match="two columns"):
        FedIIFE().fit(split(X[:, :1], y))
    told = []
    FedIIFE(**QUICK, progress=told.append).fit(fed)
    assert told
    assert {"formula", "gain", "score", "features"} <= set(told[0])


def test_the_same_feature_has_distance_nought():
    rng = np.random.default_rng(0)
    data = {"a": rng.normal(size=200), "b": rng.normal(size=200)}
    distances = minimum_cosine_distances(["mul(a, b)", "cube(a)"], ["mul(b, a)", "abs(b)"], data)
    assert distances[0] == pytest.approx(0.0, abs=1e-12)
    assert distances[1] > 0.8
    with pytest.raises(ParameterError):
        minimum_cosine_distances([], ["a"], data)
