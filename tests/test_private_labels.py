"""Networks under an epsilon: labels are seen through one randomised copy a job, and through nothing else."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta
from shared_networks import CLOSE, federation, joined_weights, numbers, parts_of, sites

import fedsift as fs
from fedsift.core.party import Party
from fedsift.errors import ParameterError
from fedsift.models.splitnn import private_labels
from fedsift.models.splitnn.layers.shared_parts import Rows, Targets
from fedsift.models.splitnn.layers.shared_run import SharedRun
from fedsift.models.splitnn.model import SplitNN
from fedsift.models.splitnn.private_labels import PrivateLabels, randomised, stays
from fedsift.select.less_vfl.lasso_networks import GroupLasso
from fedsift.select.less_vfl.vflfs import VFLFS


@pytest.mark.parametrize(("epsilon", "classes"), [(0.5, 2), (2.0, 2), (1.0, 5)])
def test_the_loss_of_the_copy_measured_from_below_is_its_epsilon(epsilon, classes):
    """Any class of the copy is at most e^epsilon likelier under one label than under another: bounds of the two
    frequencies that hold but once in 10^9, so each of the assertions fails by chance less often than that."""
    n = 40_000
    copies = [randomised(np.full(n, code, dtype=np.int32), classes, epsilon) for code in range(2)]
    seen = np.array([[np.count_nonzero(copy == code) for code in range(classes)] for copy in copies])
    low, high = beta.ppf(1e-9, seen, n - seen + 1), beta.ppf(1 - 1e-9, seen + 1, n - seen)
    surely = np.log(low[0] / high[1]).max()
    assert surely <= epsilon
    assert np.log(high[0] / low[1])[0] >= epsilon  # the loss is there: what stays, stays as often as it may
    assert surely > 0.7 * epsilon


def test_a_class_stays_a_little_less_often_than_epsilon_allows():
    for epsilon in (0.01, 1.0, 30.0):
        for classes in (2, 26):
            p = stays(epsilon, classes)
            assert math.log(p / ((1 - p) / (classes - 1))) <= epsilon
    assert stays(1.0, 2) == pytest.approx(math.e / (1 + math.e))


def test_labels_reach_the_network_through_the_copy_alone(monkeypatch):
    """Two tables with other labels and the same copy give the same network, to the rounding of fresh masks."""
    X, y = numbers()
    copy = np.random.default_rng(5).integers(0, 2, len(X)).astype(np.int32)
    monkeypatch.setattr(private_labels, "randomised", lambda codes, classes, epsilon: copy)
    monkeypatch.setattr(Party, "generator", lambda party, purpose, seed: np.random.default_rng(7))
    curves, weights = [], []
    for labels in (y, 1 - y, pd.Series(np.arange(len(y)) % 2)):
        fed = federation(X, labels)
        with fed.session(*SplitNN(epsilon=1.0, batch_size=25).announcement()) as run:
            net = SharedRun.begin(run, "m", width=6, seed=3, rate=0.3, batch_size=25)
            net.train(3)
            weights.append(joined_weights(parts_of(fed, run), net.roles))
        curves.append(net.loss_curve)
    for other, found in zip(curves[1:], weights[1:]):
        np.testing.assert_allclose(other, curves[0], rtol=5e-3)
        for owner, values in weights[0].items():
            np.testing.assert_allclose(found[owner], values, atol=CLOSE)


def test_a_row_has_one_copy_in_all_views_of_a_job_and_another_in_the_next(monkeypatch):
    drawn = []

    def record(codes, classes, epsilon):
        drawn.append(len(codes))
        return codes[::-1].copy()

    monkeypatch.setattr(private_labels, "randomised", record)
    X, y = numbers()
    fed = federation(X, y)
    with fed.session(*SplitNN(epsilon=1.0, batch_size=25).announcement()) as run:
        seen = []
        for rows in (np.arange(60), np.arange(30, 120)):
            with run.view(rows=rows).session() as inner:
                net = SharedRun.begin(inner, "m", width=4, seed=0, rate=0.3, batch_size=30)
                net.hide()
                held = sites(fed)[fed.active].sessions[inner._session][Rows]
                seen.append(np.sign(held.target.view(np.int64)[:, 0]))
    assert drawn == [120]
    np.testing.assert_array_equal(seen[0][30:], seen[1][:30])
    with fed.session(*SplitNN(epsilon=1.0, batch_size=25).announcement()) as run:
        SharedRun.begin(run, "m", width=4, seed=0, rate=0.3, batch_size=30)
    assert drawn == [120, 120]


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_put_right(classes):
    """A network that knows the copy's shares exactly presents the shares of the labels themselves."""
    share = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])[:, :classes]
    share = share / share.sum(axis=1, keepdims=True)
    truth = stays(1.0, classes)
    other = (1 - truth) / (classes - 1)
    copy = other + (truth - other) * share
    raw = 2 * copy[:, 1:] - 1 if classes == 2 else copy
    targets = Targets("classification", tuple("abc"[:classes]), np.zeros(raw.shape[1]), 1.0, truth)
    np.testing.assert_allclose(targets.presented(raw), share, atol=1e-6)


def test_a_network_learns_from_the_copy(monkeypatch):
    """With a copy that is seeded: of 800 rows at epsilon 2 (12 % of the labels wrong) it tells the true labels."""
    monkeypatch.setattr(private_labels, "uniform", _seeded(np.random.default_rng(11)))
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(800, 4)), columns=list("abcd"))
    fed = federation(X, (X["a"] + X["c"] > 0).astype(int))
    network = SplitNN(epochs=6, width=8, epsilon=2.0).fit(fed)
    assert network.score(fed) > 0.9
    assert any("epsilon 2 for the label of one row" in note for note in network.ledger_.notes)


def _seeded(rng):
    return lambda shape: rng.integers(0, 2**64, shape, dtype=np.uint64)


def test_a_saved_network_puts_its_probabilities_right_too(tmp_path):
    fed = federation(*numbers())
    network = SplitNN(epochs=2, width=4, epsilon=1.0).fit(fed)
    network.save(tmp_path)
    np.testing.assert_allclose(SplitNN.load(tmp_path, fed).predict_proba(fed), network.predict_proba(fed), atol=5e-3)


def test_a_score_within_the_job_that_learned_from_a_copy_is_of_the_copy(monkeypatch):
    monkeypatch.setattr(private_labels, "randomised", lambda codes, classes, epsilon: (1 - codes).astype(np.int32))
    fed = federation(*numbers(200, 4))
    with fed.session(*SplitNN(epsilon=1.0, batch_size=25).announcement()) as run:
        net = SharedRun.begin(run, "m", width=8, seed=0, rate=0.5, batch_size=50)
        net.train(8)
        assert net.score(run) > 0.7  # of labels that are all turned round
        assert PrivateLabels in sites(fed)[fed.active].runs[run._session].kept


@pytest.mark.parametrize(
    ("method", "word"),
    [
        (SplitNN(epsilon=0.0), "epsilon must be"),
        (SplitNN(epsilon=1.0, protection="open"), "protection='shares'"),
        (GroupLasso(epsilon=1.0, protection="open"), "protection='shares'"),
        (VFLFS(epsilon=True), "epsilon must be"),
        (fs.FedSDG(epsilon=1.0), "a number as lambda_, init='half'"),
        (fs.StochasticGate(epsilon=1.0), "a number as lambda_"),
    ],
)
def test_what_an_epsilon_does_not_cover_is_refused(method, word):
    with pytest.raises(ParameterError, match=word):
        method.fit(federation(*numbers()))


def test_an_epsilon_for_numbers_is_refused():
    with pytest.raises(ParameterError, match="classes as labels"):
        SplitNN(epsilon=1.0).fit(federation(*numbers(task="regression")))
