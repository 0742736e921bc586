"""Measures of a model whose row scores nobody sees: equal to the pooled ones on the same cells; nothing to read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, r2_score, roc_auc_score

import fedsift as fs
from fedsift.core.party import Party
from fedsift.errors import ParameterError
from fedsift.models.metrics import one_minus_rae
from fedsift.models.predicted import Predicted, let_read
from fedsift.models.vertical_additive import BlindPart
from fedsift.mpc.ring import Precision, product, to_ring
from fedsift.mpc.score_shares import ScoreShare

CLASSES = ["accuracy", "auc", "f1_micro", "f1_macro"]
NAMES = ["bank", "shop", "clinic"]


def table(kind, rows=420):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 6))
    s = X[:, 0] + X[:, 2] + 0.5 * X[:, 4] ** 2 + rng.normal(size=rows)
    y = {"two": np.where(s > 0.8, "yes", "no"), "three": np.digitize(s, [-0.5, 1.2]), "number": 100 + 7 * s}[kind]
    return X, y


def fixed_scores(fed, model):
    """What the parties compute on shares, in the open: whole numbers, exactly."""
    bits, total = Precision.of(fed.n_rows, reads_scores=True), 0
    for name, site in fed.simulated.items():
        party = Party(site, fed._view)
        values = site.models.part(model.model_id_, BlindPart).design.matrix(party.table)
        if name == fed.active:
            values = np.hstack([values, np.ones((len(values), 1))])
        rings = to_ring(values, bits.columns, 2.0**40), to_ring(model._weights[name], bits.weights, 2.0**36)
        total = total + product(*rings)
    return total.astype(np.int64), bits.columns + bits.weights


def truth_of(fed):
    return np.asarray(Party(fed.simulated[fed.active], fed._view).table.label)


@pytest.mark.parametrize(("kind", "parties"), [("two", 2), ("two", 3), ("three", 2)])
def test_figures_of_classes_are_those_of_the_same_scores_pooled(kind, parties):
    fed = fs.Federation.split(*table(kind), parties=NAMES[:parties])
    train, test = fed.rows(train=0.7)
    model = fs.VerticalAdditive().fit(train)
    found = model.figures(test, CLASSES)
    scores, _ = fixed_scores(test, model)
    truth = np.searchsorted(model.classes_, truth_of(test))
    predicted = (scores[:, 0] > 0).astype(int) if kind == "two" else scores.argmax(axis=1)
    assert found["accuracy"] == found["f1_micro"] == pytest.approx((predicted == truth).mean(), abs=1e-12)
    assert found["f1_macro"] == pytest.approx(f1_score(truth, predicted, average="macro"), abs=1e-12)
    wanted = [(1, 0)] if kind == "two" else [(c, c) for c in range(3)]
    exact = [roc_auc_score(truth == c, scores[:, k]) for c, k in wanted]
    assert found["auc"] == pytest.approx(np.mean(exact), abs=1e-6)
    told = model.decision_function(test).reshape(len(truth), -1)
    areas = [roc_auc_score(truth == c, told[:, k]) for c, k in wanted]
    assert found["auc"] == pytest.approx(np.mean(areas), abs=1e-6), "and of the scores that the model tells"


@pytest.mark.parametrize("case", ["ties", "constant", "few", "one class"])
def test_the_area_is_the_pooled_one_with_ties_constant_scores_and_small_classes(case):
    """A column of three values gives three scores; one without any, one; a class of two rows; and a class alone."""
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"a": rng.integers(0, 3, 300), "b": np.ones(300)})
    y = (rng.random(300) < (0.2 + 0.3 * X["a"])).astype(int)
    if case == "constant":
        X["a"] = 7
    if case == "few":
        X["a"], y[:] = rng.normal(size=300), 0
        y[:4] = 1
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    for model in (fs.VerticalAdditive(max_iter=5).fit(fed), fs.VerticalLogisticRegression(max_iter=5).fit(fed)):
        scored = fed.view(rows=np.flatnonzero(truth_of(fed) == 0)) if case == "one class" else fed
        found, scores = model.figures(scored, ["auc"])["auc"], model.decision_function(scored)
        if case == "one class":
            assert np.isnan(found)
        else:
            assert found == pytest.approx(roc_auc_score(truth_of(scored), scores), abs=1e-6)
        if case == "constant":
            assert found == 0.5


def test_figures_of_a_number_are_those_of_the_pooled_scores():
    fed = fs.Federation.split(*table("number"), parties=NAMES)
    train, test = fed.rows(train=0.7)
    model = fs.VerticalAdditive().fit(train)
    found = model.figures(test, ["r2", "1-rae"])
    scores, fraction = fixed_scores(test, model)
    part = fed.simulated["bank"].models.part(model.model_id_, BlindPart)
    predicted = part.centre + part.scale * np.ldexp(scores[:, 0].astype(float), -fraction)
    assert found["r2"] == pytest.approx(r2_score(truth_of(test), predicted), abs=1e-6)
    assert found["1-rae"] == pytest.approx(one_minus_rae(truth_of(test), predicted), abs=1e-6)


def test_a_logistic_model_is_measured_on_shares_too():
    fed = fs.Federation.split(*table("two"), parties=NAMES)
    model = fs.VerticalLogisticRegression().fit(fed)
    scores, truth = model.decision_function(fed), truth_of(fed) == "yes"
    found = model.figures(fed, ["accuracy", "auc"])
    assert found["accuracy"] == pytest.approx(((scores > 0) == truth).mean(), abs=1e-12)
    assert found["auc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-6)
    assert model.score(fed) == round(found["accuracy"], 4)


def test_labels_that_training_did_not_have_are_never_right():
    X, y = table("two")
    model = fs.VerticalAdditive().fit(fs.Federation.split(X, y, parties=NAMES[:2]))
    strange = y.copy()
    strange[:100] = "maybe"
    other = fs.Federation.split(X, strange, parties=NAMES[:2])
    found = model.figures(other, ["accuracy", "f1_macro"])
    right = model.predict(other) == strange
    assert found["accuracy"] == pytest.approx(right.mean(), abs=1e-12)
    assert found["f1_macro"] == pytest.approx(f1_score(strange, model.predict(other), average="macro"), abs=1e-12)


def one_column(rows=600):
    rng = np.random.default_rng(1)
    own, theirs = rng.normal(size=rows), rng.integers(0, 4, size=rows).astype(float)
    y = (own + (theirs - 1.5) + rng.normal(size=rows) > 0).astype(int)
    return fs.Federation.split(np.column_stack([own, theirs]), y, parties=["bank", "shop"]), theirs


def test_a_score_gives_a_partners_only_column_and_a_share_gives_nothing():
    """Who reads scores puts nearly every row into its bin; who holds a share does no better than with any other column.

    The correlation of a uniform share with a fixed column has deviation 1 / sqrt(600): 6 of them are 0.245 (2e-9).
    """
    fed, theirs = one_column()
    model = fs.VerticalAdditive(bins=4).fit(fed)
    with model._run(fed) as run:
        let_read(run)
        model._hold(run)
        site = fed.simulated["bank"]
        read = site.sessions[run._session][Predicted].scores[:, 0]
    own = site.models.part(model.model_id_, BlindPart).design.matrix(site.table) @ model._weights["bank"][:-1]
    left = read - own[:, 0]  # the label holder does not know its weights; it finds them by least squares
    assert all(np.ptp(left[theirs == value]) < 1e-6 for value in range(4)), "four values, one a bin"
    with model._run(fed) as run:
        model._share(run)
        share = site.sessions[run._session][ScoreShare].numbers[:, 0].astype(np.float64)
        assert Predicted not in site.sessions[run._session]
    assert abs(np.corrcoef(share, theirs)[0, 1]) < 0.245


def test_without_a_neutral_dealer_there_is_no_measure_on_shares():
    X, y = table("two", 120)
    fed = fs.Federation.split(X, y, parties=NAMES[:2], coordinator="bank")
    with pytest.raises(ParameterError, match="holds no rows"):
        fs.VerticalLogisticRegression().fit(fed)
