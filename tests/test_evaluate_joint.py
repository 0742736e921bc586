"""Evaluation without pooling: the figures of a pooled scorer of the same model, and nothing of a row on any wire."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from doubles import Recording, Serial
from sklearn import metrics as sk

import fedsift as fs
from fedsift.core.message import decode
from fedsift.core.party import Party
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import OperationRefused, ParameterError, PolicyRefused
from fedsift.evaluate.holder import EvaluationJob, deal_folds, release
from fedsift.evaluate.intervals import corrected_interval
from fedsift.evaluate.joint import NOTE, UNSEEN
from fedsift.evaluate.result import ALL
from fedsift.models.parts import Measured
from fedsift.report.summary import verdict
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite

QUICK = {
    "boost": fs.SecureBoostClassifier(n_estimators=4, max_depth=3),
    "linear": fs.VerticalAdditive(bins=None, max_iter=5),
    "additive": fs.VerticalAdditive(max_iter=5),
    "logistic": fs.VerticalLogisticRegression(max_iter=5),
    "network": fs.SplitNN(epochs=3),
}


def tables(rows=300, seed=0, classes=2):
    generator = np.random.default_rng(seed)
    X = pd.DataFrame(generator.normal(size=(rows, 6)), columns=list("abcdef"))
    score = X["a"] + X["d"] + 0.3 * generator.normal(size=rows)
    label = pd.qcut(score, classes, labels=[f"class {i}" for i in range(classes)]).astype(str)
    ids = np.array([f"person {i:04d}" for i in generator.permutation(rows)])
    bank = X[["a", "b", "c"]].assign(id=ids, label=label.to_numpy())
    return {"bank": bank, "shop": X[["d", "e", "f"]].assign(id=ids)}


def federation(rows=300, seed=0, classes=2):
    both = tables(rows, seed, classes)
    return fs.Federation.from_tables(both, id="id", label=("bank", "label"))


def with_policy(both, policy=None):
    sites = {
        "bank": PolicySite("bank", Table.read(both["bank"], id="id", label="label", name="bank"), policy or Policy()),
        "shop": PolicySite("shop", Table.read(both["shop"], id="id", name="shop"), policy or Policy()),
    }
    return fs.Federation(InProcess(sites), list(sites), active="bank")


# -- the figures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", QUICK)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_label_holder_measures_what_a_pooled_scorer_of_the_same_model_would(model, classes):
    fed = federation(classes=classes)
    train, test = fed.rows(train=0.7)
    fitted = QUICK[model].__class__(**QUICK[model].get_params()).fit(train)
    names = ["accuracy", "auc", "f1_micro", "f1_macro"]
    fitted.measure(test, "evaluation-1", "mine", names)
    held = fed.simulated["bank"].models.part("evaluation-1", Measured).values["mine"][0]
    chances, guesses = fitted.predict_proba(test), fitted.predict(test)
    site = fed.simulated["bank"]
    truth = site.table.label[site.views[test._view][0]]
    one_hot = truth[:, None] == fitted.classes_[None, :]
    area = sk.roc_auc_score(one_hot[:, 1], chances[:, 1]) if classes == 2 else sk.roc_auc_score(one_hot, chances)
    assert held["accuracy"] == pytest.approx((guesses == truth).mean(), abs=1e-6)
    # a network on shares is exact to 1e-3 from one prediction to the next, so two rows may change places
    assert held["auc"] == pytest.approx(area, abs=1e-6 if model != "network" else 2e-3)
    assert held["f1_macro"] == pytest.approx(sk.f1_score(truth, guesses, average="macro"), abs=1e-6)


def test_a_number_is_measured_too():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 4))
    fed = fs.Federation.split(X, X @ [1.0, 0, 2.0, 0] + 0.1, parties=2, task="regression")
    found = fs.evaluate(fed, fs.AllFeatures(), model="linear", cv=2, nulls=False).frame()
    assert found["r2"][0] > 0.95
    assert found["1-rae"][0] > 0.7


def test_what_is_released_is_rounded_and_stands_beside_nulls():
    result = fs.evaluate(federation(), {"gini": fs.GiniFilter(n_features=2)}, model="linear", cv=3, digits=2)
    frame = result.frame().set_index("method")
    assert list(frame.index) == ["gini", ALL, "2 random columns"]
    assert frame.loc["gini", "auc"] > 0.9 > frame.loc["2 random columns", "auc"]
    figures = [v for found in result.released.values() for each in found.values() for v in vars(each).values()]
    assert all(value is None or value == round(value, 2) for value in figures)
    assert result.released["gini"]["auc"].low < 0.1
    assert result.released[ALL]["auc"].low is None
    assert not any("auc" in row for row in result.rows), "figures of single folds stay with the label holder"


def test_the_same_seed_gives_the_same_figures_on_another_transport():
    both = tables()
    one = fs.Federation.from_tables(both, id="id", label=("bank", "label"))
    other = fs.Federation.from_tables(both, id="id", label=("bank", "label"))
    other._link.transport = Serial(other.simulated)
    told = [fs.evaluate(fed, fs.SFFS(n_features=2), model="linear", cv=2).released for fed in (one, other)]
    assert told[0] == told[1]


def test_selection_and_model_see_training_rows_only():
    """Noise that a selection over all rows would make shine."""
    generator = np.random.default_rng(1)
    X, y = generator.normal(size=(120, 200)), np.tile([0, 1], 60)
    fed = fs.Federation.split(X, y, parties=2)
    found = fs.evaluate(fed, fs.SFFS(n_features=10), model="linear", cv=4, nulls=False)
    assert abs(found.released["SFFS"]["accuracy"].mean - 0.5) < 0.15


@pytest.mark.parametrize("model", ["linear", "logistic", "boost"])
@pytest.mark.parametrize("kept", [1, 2])
def test_the_next_column_is_worth_much_where_it_matters_and_little_where_not(model, kept):
    """Two columns make the label: of one kept the next adds the other, of two kept the next is noise."""
    found = fs.evaluate(
        federation(600), {"iv": fs.InformationValue(n_features=kept)}, QUICK[model], cv=3, next_column=True
    )
    means = {name: released["auc"].mean for name, released in found.released.items()}
    gain = means["iv and the next column"] - means["iv"]
    assert gain > 0.1 if kept == 1 else abs(gain) < 0.03
    told = verdict(found, "iv", "auc")
    assert f"With the next column by rank beside them {means['iv and the next column']:.3f} ({gain:+.3f}" in told
    if kept == 1:
        wanted = QUICK[model].__class__(**QUICK[model].get_params())
        two = fs.evaluate(federation(600), {"iv": fs.InformationValue(n_features=2)}, wanted, cv=3)
        assert two.released["iv"]["auc"].mean == pytest.approx(means["iv and the next column"], abs=0.002)


def test_a_default_policy_lets_the_next_column_pass_and_where_none_is_left_there_is_no_line():
    found = fs.evaluate(
        with_policy(tables(rows=900)), fs.GiniFilter(n_features=2), model="linear", cv=3, nulls=False, next_column=True
    )
    assert list(found.released) == ["GiniFilter", "GiniFilter and the next column"]
    every = fs.evaluate(federation(), fs.GiniFilter(n_features=6), model="linear", cv=2, next_column=True)
    assert "next column" not in " ".join(every.released)
    with pytest.raises(ParameterError, match="leave pooled out"):
        fs.evaluate(federation(), fs.GiniFilter(), pooled=True, next_column=True)


# -- what travels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", QUICK)
def test_no_cell_and_no_label_is_on_any_wire(model):
    generator = np.random.default_rng(3)
    rows = 240
    both = tables(rows)
    both["bank"]["a"] = generator.uniform(1e5, 9e5, rows)
    both["shop"]["d"] = generator.uniform(1e5, 9e5, rows)
    both["shop"]["town"] = [f"canary-{i:05d}" for i in range(rows)]
    both["bank"]["label"] = np.where(both["bank"]["a"] > 5e5, "ill-canary", "well-canary")
    fed = fs.Federation.from_tables(both, id="id", label=("bank", "label"))
    log = Recording(fed._link.transport)
    fed._link.transport = log
    fs.evaluate(fed, fs.GiniFilter(n_features=3), model=QUICK[model], cv=2)
    sent = b"".join(data for _, _, data in log.log)
    cells = np.concatenate([both["bank"]["a"], both["shop"]["d"]])
    assert not any(np.float64(cell).tobytes() in sent for cell in cells)
    assert b"canary-0" not in sent
    assert b"person 0" not in sent
    asked = {decode(data)["operation"] for sender, _, data in log.log if sender == "coordinator"}
    assert not asked & {"boost.predicted", "logistic.read_scores", "sine_network.predict", "core.draw_rows"}
    unseen = model != "boost"
    assert (
        {"evaluate.deal_folds", "scores.tell_figures"} if unseen else {"evaluate.release", "model.measure"}
    ) <= asked
    assert not unseen or not asked & {"model.open_scores", "model.measure"}, "nobody reads the score of a row"
    assert (UNSEEN if unseen else NOTE) in fed.ledger.notes


def test_a_default_policy_lets_it_pass_and_sees_every_job():
    found = fs.evaluate(with_policy(tables(rows=900)), fs.GiniFilter(n_features=2), model="linear", cv=3)
    assert found.released["GiniFilter"]["auc"].mean > 0.9


def test_a_policy_that_allows_no_evaluation_refuses_before_anything_is_drawn():
    fed = with_policy(tables(), Policy(methods=["gini"]))
    with pytest.raises(PolicyRefused, match="'evaluate' is not allowed"):
        fs.evaluate(fed, fs.GiniFilter(n_features=2), model="linear", cv=3)


def test_folds_are_dealt_without_a_look_at_the_label():
    """The same rows with the label turned round have the same folds: nothing in them is about labels."""
    both = tables()
    turned = {
        **both,
        "bank": both["bank"].assign(label=both["bank"]["label"].sample(frac=1, random_state=1).to_numpy()),
    }
    dealt = []
    for each in (both, turned):
        fed = fs.Federation.from_tables(each, id="id", label=("bank", "label"))
        site = fed.simulated["bank"]
        site._secret = bytes(32)
        with fed.session(*EvaluationJob(folds=3).announcement()) as run:
            fold = run.ask(deal_folds, to="bank", repeat=0)
        dealt.append(dict(zip(Party(site, fed._view).table.ids.tolist(), fold.tolist())))
    assert dealt[0] == dealt[1]
    assert sorted(np.bincount(list(dealt[0].values())).tolist()) == [100, 100, 100]


def test_more_folds_than_the_job_has_are_not_released():
    fed = federation()
    model = fs.VerticalLogisticRegression(max_iter=2).fit(fed)
    for _ in range(3):
        model.measure(fed, "evaluation-2", "mine", ["accuracy"])
    with (
        fed.session(*EvaluationJob(methods=("mine",), folds=2).announcement()) as run,
        pytest.raises(OperationRefused, match="more folds"),
    ):
        run.ask(release, to="bank", record="evaluation-2")


# -- intervals and refusals ------------------------------------------------------------------------------------------


def test_the_corrected_interval_by_hand():
    found = corrected_interval([0.1, 0.2, 0.3], 1 / 3)
    reach = 4.302652729911275 * np.sqrt((1 / 3 + 1 / 2) * 0.01)
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, 0.2 - reach, 0.2 + reach))
    assert corrected_interval([0.1], 0.5).low == float("-inf")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "forest"}, "pooled=True"),
        ({"digits": 7}, "digits"),
        ({"metrics": "r2"}, "'r2'"),
    ],
)
def test_bad_arguments_name_what_is_wrong(options, message):
    with pytest.raises(ParameterError, match=message):
        fs.evaluate(federation(), fs.AllFeatures(), **options)


def test_horizontal_parties_are_told_what_to_do():
    fed = fs.Federation.split(np.zeros((20, 2)), np.arange(20) % 2, parties=2, partition="horizontal")
    with pytest.raises(ParameterError, match="pooled=True"):
        fs.evaluate(fed, fs.AllFeatures(), cv=2)
