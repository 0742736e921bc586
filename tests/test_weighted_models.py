"""Linear models of rows that count differently: those of scikit-learn with ``sample_weight`` on the pooled table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC

import fedsift as fs
from fedsift.core.design import Design
from fedsift.errors import DataError, ParameterError

ROWS = 400
RNG = np.random.default_rng(3)
X = pd.DataFrame(RNG.normal(size=(ROWS, 6))).add_prefix("f")
AMOUNT = X["f1"] - 0.5 * X["f2"] + X["f5"] + RNG.normal(size=ROWS)
CLASSES = (AMOUNT > 0.7).astype(int)
KINDS = {"mild": RNG.uniform(0.2, 3.0, ROWS), "few rows count most": np.where(RNG.random(ROWS) < 0.05, 15.0, 0.3)}
Z = ((X - X.mean()) / X.std(ddof=0)).to_numpy()


def vertical(y, weight, task, **design):
    fed = fs.Federation.split(X, y, parties=["bank", "shop"], aside={"w": weight}, task=task)
    return fed.designed(Design(weight="bank.w", **design))


def coefficients(model):
    """Columns x outputs, of standardised columns."""
    return np.vstack([frame.to_numpy() for frame in model.coef_.values()]) * X.std(ddof=0).to_numpy()[:, None]


def apart(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


# --- HyFDCA ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_hyfdca_of_weighted_amounts_is_the_weighted_ridge(kind):
    weight = KINDS[kind] / KINDS[kind].mean()
    model = fs.HyFDCA(tol=1e-5).fit(vertical(AMOUNT, 7.0 * weight, "regression"))  # in the mean of the weights
    assert model.converged_
    expected = Ridge(alpha=1.0).fit(Z, AMOUNT, sample_weight=weight)
    assert apart(coefficients(model), expected.coef_[:, None]) < 1e-5
    assert apart(coefficients(model), Ridge(alpha=1.0).fit(Z, AMOUNT).coef_[:, None]) > 0.02  # weights do something


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("balanced", [False, True])
def test_hyfdca_of_weighted_classes_is_the_weighted_logistic_regression(kind, balanced):
    weight = KINDS[kind]
    fed = vertical(CLASSES, weight, "classification", class_weight="balanced" if balanced else None)
    model = fs.HyFDCA(tol=1e-5).fit(fed)
    if balanced:
        weight = weight / np.bincount(CLASSES)[CLASSES]
    expected = LogisticRegression(tol=1e-10, max_iter=5000).fit(Z, CLASSES, sample_weight=weight / weight.mean())
    assert model.converged_
    assert apart(coefficients(model), expected.coef_.T) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_hyfdca_with_the_hinge_is_the_weighted_support_vector_machine(kind):
    weight = KINDS[kind] / KINDS[kind].mean()
    model = fs.HyFDCA(loss="hinge", tol=1e-3, rounds=2000).fit(vertical(CLASSES, weight, "classification"))
    expected = SVC(kernel="linear", C=1.0, tol=1e-6).fit(Z, CLASSES, sample_weight=weight)
    assert model.converged_
    assert apart(coefficients(model), expected.coef_.T) < 0.03


def test_weights_of_one_leave_hyfdca_as_it_is():
    plain = fs.HyFDCA(tol=1e-5).fit(fs.Federation.split(X, CLASSES, parties=["bank", "shop"]))
    ones = fs.HyFDCA(tol=1e-5).fit(vertical(CLASSES, np.ones(ROWS), "classification"))
    assert apart(coefficients(ones), coefficients(plain)) < 1e-5


def test_a_row_that_would_show_in_every_sum_is_refused():
    heavy = np.ones(ROWS)
    heavy[5] = 30.0
    with pytest.raises(DataError, match="party 'bank': a row weighs more than 20 times the mean"):
        fs.HyFDCA().fit(vertical(CLASSES, heavy, "classification"))


# --- FedLinear: parties that hold rows have their own weights --------------------------------------------------------


def horizontal(y, weight, task="auto"):
    fed = fs.Federation.split(
        X, y, parties=["north", "south", "west"], partition="horizontal", aside={"w": weight}, task=task
    )
    return fed.designed(Design(weight="*.w"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", ["exact", "fedavg"])
def test_fed_linear_of_weighted_amounts_is_the_weighted_ridge(kind, solver):
    weight = KINDS[kind]
    model = fs.FedLinear(penalty=0.02, solver=solver, tol=1e-9, rounds=5000).fit(horizontal(AMOUNT, weight))
    expected = Ridge(alpha=0.02 * weight.sum()).fit(Z, AMOUNT, sample_weight=weight)
    assert apart(model.coef_[:, 0] * X.std(ddof=0).to_numpy(), expected.coef_) < 1e-5
    assert apart(expected.coef_, Ridge(alpha=0.02 * ROWS).fit(Z, AMOUNT).coef_) > 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_fed_linear_of_weighted_classes_is_the_weighted_logistic_regression(kind):
    weight = KINDS[kind]
    model = fs.FedLinear(penalty=0.01, tol=1e-8, rounds=5000).fit(horizontal(CLASSES, weight))
    half = LogisticRegression(C=1 / (0.005 * weight.sum()), tol=1e-12, max_iter=5000)  # two outputs share the penalty
    expected = half.fit(Z, CLASSES, sample_weight=weight).coef_[0]
    got = (model.coef_[:, 1] - model.coef_[:, 0]) * X.std(ddof=0).to_numpy()
    assert apart(got, expected) < 1e-3


def test_weights_of_one_leave_fed_linear_as_it_is():
    plain = fs.FedLinear(penalty="auto", random_state=1)
    plain.fit(fs.Federation.split(X, CLASSES, parties=["north", "south", "west"], partition="horizontal"))
    ones = fs.FedLinear(penalty="auto", random_state=1).fit(horizontal(CLASSES, np.ones(ROWS)))
    np.testing.assert_allclose(ones.coef_, plain.coef_, atol=1e-6)
    assert ones.penalty_ == plain.penalty_


def test_no_weight_of_a_party_leaves_it():
    """What the coordinator reads are sums over all parties: other weights with the same sums look the same."""
    seen = []
    for weight in (np.ones(ROWS), np.full(ROWS, 2.0)):
        fed = horizontal(AMOUNT, weight)
        fs.FedLinear(penalty=0.02, solver="exact").fit(fed)
        seen.append({(e.operation, e.form) for e in fed.ledger.entries})
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("design", "words"),
    [({"weight": "north.w"}, "each party its own column"), ({"group": "*.w"}, "only a weight is a column of every"),
     ({"weight": "*.w", "group": "north.w"}, "nothing stands beside it"), ({"weight": "*.v"}, "not set aside here")],
)  # fmt: skip
def test_designs_of_parties_with_rows_are_refused_in_words(design, words):
    fed = fs.Federation.split(X, AMOUNT, parties=["north", "south"], partition="horizontal", aside={"w": np.ones(ROWS)})
    with pytest.raises(fs.FedsiftError, match=words):
        fs.FedLinear(penalty=0.1).fit(fed.designed(Design(**design)))


@pytest.mark.parametrize("method", [fs.HyFDCA(), fs.FeatureElection(), fs.FedHalving()])
def test_methods_over_rows_that_do_not_weigh_say_so(method):
    with pytest.raises(ParameterError, match="design"):
        method.fit(horizontal(CLASSES, np.ones(ROWS)))
