"""Vertical logistic regression against the closed form of its quadratic loss."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import mixed_table
from doubles import Recording
from linear_attack import labels_from_sums
from sklearn.datasets import load_breast_cancer

import fedsift as fs
from fedsift.core.message import decode, walk
from fedsift.errors import DataError, ParameterError
from fedsift.models.design import LinearPart
from fedsift.models.lbfgs import direction
from fedsift.models.vertical_logistic import VerticalLogisticRegression


def table(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[:, 4] = X[:, 0] + 0.3 * X[:, 4]
    score = X @ [1.0, -2.0, 0.5, 0.0, 1.0] + rng.normal(0, 1, n)
    return X, score


def closed_form(X, targets, reg):
    """Least squares on +-2 targets: what the second-order approximation comes to."""
    Z = np.hstack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones((len(X), 1))])
    penalty = 4 * reg * len(X) * np.diag([1.0] * X.shape[1] + [0.0])
    return Z @ np.linalg.solve(Z.T @ Z + penalty, Z.T @ (2 * targets))


@pytest.mark.parametrize("parties", [2, 3])
def test_training_ends_at_the_pooled_minimum(parties):
    X, score = table()
    y = (score > 0.3).astype(int)
    fed = fs.Federation.split(X, y, parties=parties)
    model = VerticalLogisticRegression(max_iter=8, reg_lambda=0.02).fit(fed)
    expected = closed_form(X, np.where(y == 1, 1.0, -1.0)[:, None], 0.02)[:, 0]
    got = model.predict_proba(fed)[:, 1]
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-expected)), atol=1e-2)
    assert model.curve_[-1] < 1e-2 * model.curve_[0]


def test_several_classes_agree_with_the_closed_form():
    X, score = table(50)
    y = np.digitize(score, [-1, 1])
    fed = fs.Federation.split(X, y, parties=2)
    model = VerticalLogisticRegression(max_iter=6, reg_lambda=0.02).fit(fed)
    expected = closed_form(X, np.where(y[:, None] == np.arange(3), 1.0, -1.0), 0.02)
    agree = model.predict(fed) == expected.argmax(axis=1)
    assert agree.mean() > 0.97


def test_categories_missing_values_and_new_rows_are_taken(small_fed):
    X, y = mixed_table()
    model = VerticalLogisticRegression(max_iter=2).fit(small_fed)
    assert (model.predict(small_fed) == y).mean() > 0.6
    strange = X.head(12).assign(colour="purple", holes=np.nan)
    again = fs.Federation.split(strange, y.head(12), parties=["bank", "shop", "lab"])
    assert np.isfinite(model.predict_proba(again)).all()


def test_no_score_label_or_gradient_is_in_the_clear():
    X, score = table(40)
    y = (score > 0).astype(int)
    fed = fs.Federation.split(X, y, parties=2)
    fed._link.transport = Recording(fed._link.transport)
    VerticalLogisticRegression(max_iter=2).fit(fed)
    data = b"".join(body for _, _, body in fed._link.transport.log)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    residual = np.where(y == 1, -2.0, 2.0)
    assert not any(np.float64(v).tobytes() in data for v in Z.ravel())
    assert residual.tobytes() not in data
    frame = fed.ledger.frame()
    assert set(frame[frame["form"] == "plain"]["operation"]) == {"model.class_names"}
    told = [decode(data) for _, to, data in fed._link.transport.log if to == "party2"]
    floats = {
        each["operation"]
        for each in told
        for leaf in walk(each["arguments"])
        if isinstance(leaf, np.ndarray) and leaf.dtype != np.uint64
    }
    assert floats == {"logistic.keep_weights"}


def test_the_labels_follow_from_the_gradient_and_not_from_the_final_weights():
    """The attack of the linear programme: exact on the plain gradient, no better than the own scores on the weights."""
    data = load_breast_cancer()
    X, y = data.data[:120], data.target[:120]
    fed = fs.Federation.split(X, y, parties=2)
    model = VerticalLogisticRegression(max_iter=30).fit(fed)
    part = fed.simulated["party2"].models.part(model.model_id_, LinearPart)
    own = part.design.matrix(fed.simulated["party2"].table)
    signs, scores = np.where(y == 1, 1.0, -1.0), own @ part.weights[:, 0]
    assert (labels_from_sums(own, own.T @ signs, signs.sum()) == signs).mean() > 0.9
    told = (own.T @ scores + 4 * 120 * model.reg_lambda * part.weights[:, 0]) / 2
    found = labels_from_sums(own, told, signs.sum())
    ranked = np.where(scores > np.quantile(scores, np.mean(signs < 0)), 1.0, -1.0)
    assert found is None or (found == signs).mean() <= (ranked == signs).mean() + 0.02


def test_the_direction_is_that_of_bfgs():
    rng = np.random.default_rng(0)
    A = np.diag([1.0, 3.0, 9.0])
    x, steps, changes = rng.normal(size=3), [], []
    for _ in range(12):
        g = A @ x
        basis = np.array([*steps, *changes, g])
        step = direction(basis @ basis.T, 0.1) @ basis
        x_new = x + step
        steps, changes = [*steps, step], [*changes, A @ x_new - g]
        x = x_new
    assert np.abs(x).max() < 1e-6


def test_a_number_as_label_is_refused():
    X, score = table(30)
    with pytest.raises(DataError, match="number"):
        VerticalLogisticRegression().fit(fs.Federation.split(X, score, parties=2, task="regression"))
    with pytest.raises(ParameterError, match="max_iter"):
        VerticalLogisticRegression(max_iter=0).fit(fs.Federation.split(X, (score > 0).astype(int), parties=2))
