"""The swarm and TopGain: what they find, what steers them, interruptions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import mixed_table

import fedsift as fs
from fedsift.core.job import Run
from fedsift.core.party import read_labels
from fedsift.errors import DataError, ParameterError, PartyGone
from fedsift.models.boost.growing import Booster
from fedsift.models.boost.plan import fold_numbers, fold_rules, training_rows
from fedsift.models.boost.scoring import Protection, by_party, cross_validate, flat
from fedsift.models.boost.tree import TreeSettings
from fedsift.select.pso import selector as pso_evffs
from fedsift.select.pso.selector import PsoEvffs
from fedsift.select.pso.swarm import Bounds, Swarm, decode, first_swarm, learn, move, particle_key, read_key, vote
from fedsift.select.top_gain import TopGain, sizes_to_try

SMALL = {"popsize": 3, "iterations": 2, "models": 2, "max_trees": 2, "max_depth": 2, "folds": 2}
SMALL["protection"] = "coordinator"  # the swarm is the same at every level


def table(n=70, columns=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns))
    y = (X[:, 0] + X[:, 5] + rng.normal(0, 0.3, n) > 0).astype(int)
    return X, y


# --- the swarm alone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["fiis", "ris", "pis"])
def test_first_positions_lie_in_their_range(init):
    importance = np.array([0.5, 0.0, 0.2, 0.1, 0.3, 0.05, 0.02, 0.01, 0.15, 0.4])
    bounds = Bounds.of(6, 6)
    swarm = first_swarm(200, bounds, importance, init, 0.3, np.random.default_rng(0))
    assert (swarm.x[:, :5] >= bounds.low).all()
    assert (swarm.x[:, :5] <= bounds.high).all()
    places = swarm.x[:, 5:]
    assert places.min() >= 0
    assert places.max() <= 1
    if init == "fiis":  # equation 5 at alpha 0.3: the best fifth above 0.38, the worst below 0.62
        edge = 1 / (1 + np.exp(-2)) - 0.5
        assert places[:, [0, 9]].min() >= edge
        assert places[:, [1, 7]].max() <= 1 - edge
        assert places[:, 3].min() < edge
        assert swarm.x[:, :2].min() >= 3
    if init == "pis":
        assert set(np.unique(places)) <= {0.0, 1.0}


def test_velocities_positions_and_masks_stay_bounded():
    bounds = Bounds.of(6, 4)
    swarm = first_swarm(20, bounds, np.ones(7), "ris", 0.3, np.random.default_rng(1))
    for _ in range(30):
        hyper, masks = decode(swarm, bounds)
        assert masks.any(axis=1).all()
        assert ((hyper >= bounds.low) & (hyper <= bounds.high)).all()
        learn(swarm, masks, masks[:, :2].sum(axis=1) - 0.1 * masks.sum(axis=1))
        move(swarm, bounds, 0.73, 1.496, 1.496, 0.2)
        assert (np.abs(swarm.v[:, 5:]) <= 0.2 + 1e-12).all()
    assert swarm.best_masks[swarm.leader].tolist()[:2] == [True, True]
    assert [c["best"] for c in swarm.curve] == sorted(c["best"] for c in swarm.curve)


def test_the_mask_that_was_scored_is_the_one_kept():
    """The stored mask wins, not a new random decoding of the position."""
    swarm = first_swarm(4, Bounds.of(6, 6), np.ones(6), "ris", 0.3, np.random.default_rng(2))
    _, masks = decode(swarm, Bounds.of(6, 6))
    learn(swarm, masks, np.array([0.1, 0.9, 0.2, 0.3]))
    assert (swarm.best_masks[swarm.leader] == masks[1]).all()


def test_a_checkpoint_goes_on_where_it_stopped():
    bounds = Bounds.of(6, 6)
    swarm = first_swarm(5, bounds, np.ones(9), "ris", 0.3, np.random.default_rng(3))
    _, masks = decode(swarm, bounds)
    learn(swarm, masks, masks.sum(axis=1).astype(float))
    again = Swarm.read(json.loads(json.dumps(swarm.as_dict())))
    for one in (swarm, again):
        move(one, bounds, 0.73, 1.496, 1.496, 0.2)
    np.testing.assert_array_equal(swarm.x, again.x)
    np.testing.assert_array_equal(decode(swarm, bounds)[1], decode(again, bounds)[1])
    with pytest.raises(DataError, match="damaged"):
        Swarm.read({"x": []})


def test_keys_and_votes():
    hyper, mask = np.array([3, 2, 10, 1, 20]), np.array([True, False] * 6 + [True])
    back = read_key(particle_key(hyper, mask), 13)
    assert (back[0] == hyper).all()
    assert (back[1] == mask).all()
    swarm = first_swarm(2, Bounds.of(6, 6), np.ones(4), "ris", 0.3, np.random.default_rng(0))
    for fitness, bits in ((0.9, [1, 1, 0, 0]), (0.8, [1, 0, 1, 0]), (0.7, [1, 1, 0, 0]), (0.1, [0, 0, 0, 1])):
        swarm.known[particle_key(hyper + round(10 * fitness), np.array(bits, bool))] = fitness
    votes, chosen = vote(swarm, np.array([0.1, 0.2, 0.3, 0.4]), 0.75, 2)
    np.testing.assert_allclose(votes, [1, 2 / 3, 1 / 3, 0])
    assert chosen.tolist() == [True, True, False, False]
    assert vote(swarm, np.ones(4), 0.75, 4)[1].tolist() == [True, True, True, False]  # never without a vote


# --- rows -----------------------------------------------------------------------------------------------------------


def test_folds_are_even_private_and_the_same_for_the_same_seed():
    y = np.array([0] * 30 + [1] * 10)
    fed = fs.Federation.split(np.arange(80.0).reshape(40, 2), y, parties=2)
    party = fed.simulated[fed.active]._party("", "", 0, Run())
    labels = read_labels(y, "bank")
    fold = fold_numbers(labels, party, 4, seed=1)
    assert (fold == fold_numbers(labels, party, 4, seed=1)).all()
    assert (fold != fold_numbers(labels, party, 4, seed=2)).any()
    other = fs.Federation.split(np.arange(80.0).reshape(40, 2) + 1, y, parties=2)  # another site, another secret
    elsewhere = fold_numbers(labels, other.simulated[other.active]._party("", "", 0, Run()), 4, seed=1)
    assert (fold != elsewhere).any()
    assert np.bincount(fold).tolist() == [10, 10, 10, 10]
    for f in range(4):
        assert 2 <= labels.codes[fold == f].sum() <= 3
        train = training_rows({"kind": "fold", "fold": f, "folds": 4, "seed": 1}, labels, party)
        assert (train == (fold != f)).all()


def test_lockstep_models_do_not_influence_each_other():
    X, y = table()
    fed = fs.Federation.split(X, y, parties=2)
    sets = [np.arange(8), np.array([0, 5]), np.array([1, 2, 6])]
    boosters = [
        Booster(TreeSettings(max_depth=depth, min_rows=5), by_party(fed, columns), trees, bins=bins)
        for columns, depth, trees, bins in zip(sets, (3, 1, 2), (2, 3, 1), (8, 5, 6))
    ]
    rules = fold_rules(2, 0)
    together = cross_validate(fed, boosters, rules, Protection("coordinator"), "auc")
    alone = np.vstack([cross_validate(fed, [booster], rules, Protection("coordinator"), "auc") for booster in boosters])
    np.testing.assert_array_equal(together, alone)
    assert together[1].mean() > together[2].mean()


# --- the methods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("final", ["best", "vote"])
def test_the_swarm_finds_the_columns_that_matter(final):
    X, y = table()
    fed = fs.Federation.split(X, y, parties=2)
    level = "all" if final == "best" else "coordinator"
    swarm = PsoEvffs(**{**SMALL, "popsize": 6, "protection": level}, final=final).fit(fed)
    assert "f0" in swarm.selected_["party1"] or "f5" in swarm.selected_["party2"]
    facts = swarm.details_
    assert facts["fits_done"] <= facts["fits_asked"] == 6 * 2 * 2
    assert len(facts["curve"]) == 2
    assert set(facts["hyper_parameters"]) == {"trees", "depth", "bins", "gamma", "lambda"}
    assert swarm.model_.predict_proba(swarm.transform(fed)).shape == (70, 2)


def test_fitness_never_sees_rows_outside_the_federation():
    """The swarm fitted on training rows is the same whatever the test rows hold (and the sites' secrets the same)."""
    X, y = table(90)
    other = X.copy()
    chosen = []
    for data in (X, other):
        fed = fs.Federation.split(data, y, parties=2)
        for site in fed.simulated.values():
            site._secret = bytes(32)
        train, test = fed.rows(train=0.7, random_state=0)
        rows = fed._link.transport.sites["party1"].views[test._view][0]
        other[rows] = -other[rows] * 7
        chosen.append(PsoEvffs(**SMALL, refit=False).fit(train))
    assert chosen[0].selected_ == chosen[1].selected_
    assert chosen[0].details_["curve"] == chosen[1].details_["curve"]
    assert "fitness" not in PsoEvffs().get_params()


def test_equal_particles_are_scored_once(monkeypatch):
    X, y = table()
    fed = fs.Federation.split(X, y, parties=2)
    scored = []

    def count(self, run, boosters):
        scored.append(len(boosters))
        return np.linspace(0.5, 0.9, len(boosters))

    monkeypatch.setattr(PsoEvffs, "_scores", count)
    monkeypatch.setattr(
        pso_evffs,
        "decode",
        lambda swarm, bounds: (np.tile([1, 1, 5, 1, 1], (3, 1)), np.ones((3, swarm.x.shape[1] - 5), bool)),
    )
    swarm = PsoEvffs(**SMALL, refit=False).fit(fed)
    assert scored == [1, 0]
    assert swarm.details_["fits_asked"] == 12
    assert swarm.details_["fits_done"] == 2


def test_an_interrupted_search_ends_where_an_uninterrupted_one_does(tmp_path, monkeypatch):
    X, y = table()
    fed = fs.Federation.split(X, y, parties=2)
    options = {**SMALL, "iterations": 3, "refit": False, "patience": None}
    straight = PsoEvffs(**options).fit(fed)
    file = tmp_path / "swarm.json"
    original, calls = PsoEvffs._scores, []

    def fail(self, run, boosters):
        calls.append(1)
        if len(calls) == 3:
            raise PartyGone("party2", "level_sums", "it cannot be reached any more")
        return original(self, run, boosters)

    monkeypatch.setattr(PsoEvffs, "_scores", fail)
    with pytest.raises(PartyGone):
        PsoEvffs(**options, checkpoint=str(file)).fit(fed)
    assert json.loads(file.read_text())["swarm"]["iteration"] == 2
    resumed = PsoEvffs(**options, checkpoint=str(file)).fit(fed)
    assert len(calls) == 4
    assert resumed.selected_ == straight.selected_
    assert resumed.details_["curve"] == straight.details_["curve"]
    with pytest.raises(DataError, match="another search"):
        PsoEvffs(**{**options, "popsize": 4}, checkpoint=str(file)).fit(fed)


def test_mixed_columns_and_several_classes_break_nothing():
    X, y = mixed_table(60, classes=3)
    fed = fs.Federation.split(X, y, parties=3)
    found = TopGain(n_features=3, n_estimators=3, max_depth=2).fit(fed)
    assert found.selection_.n_selected == 3
    assert sum(len(c) for c in PsoEvffs(**SMALL, refit=False).fit(fed).selected_.values()) >= 1


@pytest.mark.parametrize("parties", [1, 2])
def test_one_tree_for_all_classes_could_be_grown_as_one_for_each(parties):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(90, 6))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=90), [-0.5, 0.5])
    fed = fs.Federation.split(X, y, parties=parties, task="classification")
    ranked = TopGain(n_features=1, n_estimators=2, max_depth=2, multi_output=True, protection="coordinator").fit(fed)
    assert [column for columns in ranked.selected_.values() for column in columns] == ["f0"]
    swarm = PsoEvffs(**SMALL, multi_output=True).fit(fed)
    assert swarm.model_.multi_output
    assert swarm.model_.predict_proba(swarm.transform(fed)).shape == (90, 3)
    apart = PsoEvffs(**SMALL).fit(fed)
    assert parties == 1 or swarm.ledger_.bytes() < apart.ledger_.bytes()


def test_top_gain_chooses_k_by_cross_validation():
    X, y = table(90)
    fed = fs.Federation.split(X, y, parties=2)
    found = TopGain(n_estimators=4, max_depth=2, folds=2, max_share=0.5).fit(fed)
    assert "f0" in found.selected_["party1"]
    assert "f5" in found.selected_["party2"]
    curve = {c["columns"]: c["score"] for c in found.details_["curve"]}
    assert curve[2] > curve[1]
    assert sizes_to_try(60, 1 / 3, 6)[-1] == 20
    assert flat({"party1": np.zeros(4), "party2": np.ones(4)}, fed).tolist() == [0] * 4 + [1] * 4


def test_a_label_that_nothing_explains_says_so():
    fed = fs.Federation.split(np.ones((40, 3)), np.arange(40) % 2, parties=2)
    with pytest.raises(DataError, match="stage 1"):
        PsoEvffs(**SMALL).fit(fed)


@pytest.mark.parametrize("bad", [{"popsize": 1}, {"alpha": 0.9}, {"init": "best"}, {"final": "test"}, {"folds": 1}])
def test_a_bad_parameter_could_start_a_search(bad):
    X, y = table(40)
    with pytest.raises(ParameterError, match=next(iter(bad))):
        PsoEvffs(**bad).fit(fs.Federation.split(X, y, parties=2))
