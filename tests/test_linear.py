"""Linear models over rows of several parties equal scikit-learn's on the pooled table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from doubles import Faulty
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

import fedsift as fs
from fedsift.core.transports.base import Delivery
from fedsift.errors import DataError, ParameterError, PartyGone
from fedsift.models.fed_linear import FedLinear

SPLITS = ["equal", "unequal", "target", "kmeans"]


def amounts(n=160, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal([0, 500, 3], [1, 20, 0.01], (n, 3)), columns=["a", "b b", "c"])
    y = 3 * X["a"] - 0.1 * X["b b"] + 50 * X["c"] + rng.normal(0, 1, n)
    return X, y


def classes(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(0, [1, 5, 1], (n, 3)), columns=["a", "b", "c"])
    logits = np.c_[X["a"], 0.3 * X["b"], -X["a"] + X["c"]]
    return X, pd.Series((logits + rng.gumbel(size=logits.shape)).argmax(axis=1))


def split(X, y, how="equal", parties=4):
    return fs.Federation.split(X, y, parties=parties, partition="horizontal", how=how)


def over(X):
    """The rows in their order, at two parties; a model only predicts here."""
    X = X.assign(y=np.arange(len(X)) % 2)
    parts = {"p": X.iloc[: len(X) // 2], "q": X.iloc[len(X) // 2 :]}
    return fs.Federation.from_tables(parts, id=None, label="y", partition="horizontal")


@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("solver", ["fedavg", "exact"])
def test_a_ridge_that_differs_from_the_pooled_one(how, solver):
    X, y = amounts()
    penalty = 0.1
    model = FedLinear(penalty=penalty, solver=solver, rounds=400).fit(split(X, y, how))
    scaler = StandardScaler().fit(X)
    oracle = Ridge(alpha=penalty * len(X)).fit(scaler.transform(X), y)
    np.testing.assert_allclose(model.coef_[:, 0] * scaler.scale_, oracle.coef_, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.predict(over(X)), oracle.predict(scaler.transform(X)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("how", SPLITS)
def test_a_logistic_regression_that_differs_from_the_pooled_one(how):
    X, y = classes()
    penalty = 0.05
    model = FedLinear(penalty=penalty, rounds=400).fit(split(X, y, how, parties=3))
    scaler = StandardScaler().fit(X)
    oracle = LogisticRegression(C=1 / (penalty * len(X)), tol=1e-8, max_iter=1000).fit(scaler.transform(X), y)
    np.testing.assert_allclose(model.predict_proba(over(X)), oracle.predict_proba(scaler.transform(X)), atol=1e-3)
    assert (model.predict(over(X)) == oracle.predict(scaler.transform(X))).all()


def test_more_local_steps_that_do_not_save_rounds():
    X, y = amounts()
    one = FedLinear(penalty=0.1, rounds=1).fit(split(X, y))
    five = FedLinear(penalty=0.1, rounds=1, local_steps=5).fit(split(X, y))
    exact = FedLinear(penalty=0.1, solver="exact").fit(split(X, y))
    gap = [np.abs(model.predict(over(X)) - exact.predict(over(X))).mean() for model in (one, five)]
    assert gap[1] < gap[0]


def test_a_penalty_that_was_not_chosen():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 20))).add_prefix("x")
    y = X["x0"] + rng.normal(0, 3, 60)  # mostly noise: a strong penalty is better
    model = FedLinear(solver="exact").fit(split(X, y))
    assert model.penalty_ >= 0.1


def test_missing_values_constants_and_categories():
    X, y = amounts()
    X = X.assign(still=7.0, word=np.where(y > y.mean(), "high", "low"))
    X.loc[::7, "a"] = np.nan
    model = FedLinear(penalty=0.01, solver="exact").fit(split(X, y))
    assert model.columns_ == ["a", "b b", "c", "still"]
    filled = X[model.columns_].fillna(X.mean(numeric_only=True))
    scaler = StandardScaler().fit(filled.drop(columns="still"))
    deviation = np.sqrt(np.nanmean((X["a"] - X["a"].mean()) ** 2))  # of the values that are there
    design = scaler.transform(filled.drop(columns="still"))
    design[:, 0] = (filled["a"] - X["a"].mean()) / deviation
    oracle = Ridge(alpha=0.01 * len(X)).fit(design, y).predict(design)
    np.testing.assert_allclose(model.predict(over(X)), oracle, rtol=1e-6)


def test_parties_whose_columns_differ():
    X, y = amounts()
    frames = {"p": X.assign(y=y), "q": X.rename(columns={"a": "aa"}).assign(y=y)}
    fed = fs.Federation.from_tables(frames, id=None, label="y", partition="horizontal")
    with pytest.raises(DataError, match="'a'"):
        FedLinear().fit(fed)


def test_settings_that_make_no_sense():
    X, y = amounts()
    fed = split(X, y)
    for bad in ({"solver": "magic"}, {"penalty": -1}, {"penalty": "best"}, {"validation": 1.5}, {"validation": 0}):
        with pytest.raises(ParameterError):
            FedLinear(**bad).fit(fed)
    with pytest.raises(ParameterError, match="horizontal"):
        FedLinear().fit(fs.Federation.split(X, y, parties=2))
    with pytest.raises(ParameterError, match="validation names the party"):
        FedLinear(validation="nobody").fit(fed)
    with pytest.raises(DataError, match="same in all"):
        FedLinear(penalty=1.0).fit(fs.Federation.split(X, np.full(len(X), 0.5), parties=2, partition="horizontal"))


def test_a_class_that_only_one_party_has():
    X, y = classes()
    y = y.replace({0: "red", 1: "green", 2: "blue"})
    parts = {"p": X[y != "blue"].assign(y=y[y != "blue"]), "q": X[y == "blue"].assign(y="blue")}
    fed = fs.Federation.from_tables(parts, id=None, label="y", partition="horizontal")
    model = FedLinear(penalty=0.05, rounds=200).fit(fed)
    assert model.classes_.tolist() == ["blue", "green", "red"]
    assert (model.predict(over(X)) == y).mean() > 0.5


def test_a_party_that_leaves_between_two_steps_ends_the_run():
    X, y = amounts()
    fed = split(X, y)
    answered = [0]

    def leave(reply):
        answered[0] += 1
        return reply if answered[0] < 20 else Delivery(None, 0.0, "gone")

    fed._link.transport = Faulty(fed._link.transport, "party3", leave)
    with pytest.raises(PartyGone, match="party3"):
        FedLinear(penalty=1e-4, rounds=300).fit(fed)
