"""Networks under an epsilon: labels are seen through one randomised copy a job, and through nothing else."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta
from shared_networks import CLOSE, federation, joined_weights, numbers, parts_of, sites
from sklearn.base import clone

import fedsift as fs
from fedsift.core import labels as label_module
from fedsift.core.labels import LabelCopy, geometric, noisy, randomised, stays
from fedsift.core.party import Party
from fedsift.errors import OperationRefused, ParameterError
from fedsift.models.splitnn.layers.shared_network import count_inputs
from fedsift.models.splitnn.layers.shared_parts import Rows
from fedsift.models.splitnn.layers.shared_run import SharedRun
from fedsift.models.splitnn.layers.targets import Targets
from fedsift.models.splitnn.model import SplitNN
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
    monkeypatch.setattr(label_module, "randomised", lambda codes, classes, epsilon: copy)
    monkeypatch.setattr(Party, "generator", lambda party, purpose, seed: np.random.default_rng(7))
    curves, weights = [], []
    for labels in (y, 1 - y, pd.Series(np.arange(len(y)) % 2)):
        fed = federation(X, labels)
        with fed.session(*SplitNN(label_epsilon=1.0, batch_size=25, width=6, random_state=3).announcement()) as run:
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

    monkeypatch.setattr(label_module, "randomised", record)
    X, y = numbers()
    fed = federation(X, y)
    with fed.session(*SplitNN(label_epsilon=1.0, batch_size=25, width=4, random_state=0).announcement()) as run:
        seen = []
        for rows in (np.arange(60), np.arange(30, 120)):
            with run.view(rows=rows).session() as inner:
                net = SharedRun.begin(inner, "m", width=4, seed=0, rate=0.3, batch_size=30)
                net.hide()
                held = sites(fed)[fed.active].sessions[inner._session][Rows]
                seen.append(np.sign(held.target.view(np.int64)[:, 0]))
    assert drawn == [120]
    np.testing.assert_array_equal(seen[0][30:], seen[1][:30])
    with fed.session(*SplitNN(label_epsilon=1.0, batch_size=25, width=4, random_state=0).announcement()) as run:
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
    monkeypatch.setattr(label_module, "uniform", _seeded(np.random.default_rng(11)))
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(800, 4)), columns=list("abcd"))
    fed = federation(X, (X["a"] + X["c"] > 0).astype(int))
    network = SplitNN(epochs=6, width=8, label_epsilon=2.0).fit(fed)
    assert network.score(fed) > 0.9
    assert any("epsilon 2 for the label of one row" in note for note in network.ledger_.notes)


def _seeded(rng):
    return lambda count: rng.integers(0, 2**64, count, dtype=np.uint64)


def test_a_saved_network_puts_its_probabilities_right_too(tmp_path):
    fed = federation(*numbers())
    network = SplitNN(epochs=2, width=4, label_epsilon=1.0).fit(fed)
    network.save(tmp_path)
    np.testing.assert_allclose(SplitNN.load(tmp_path, fed).predict_proba(fed), network.predict_proba(fed), atol=5e-3)


def test_a_score_within_the_job_that_learned_from_a_copy_is_of_the_copy(monkeypatch):
    monkeypatch.setattr(label_module, "randomised", lambda codes, classes, epsilon: (1 - codes).astype(np.int32))
    fed = federation(*numbers(200, 4))
    with fed.session(*SplitNN(label_epsilon=1.0, batch_size=25, width=8, random_state=0).announcement()) as run:
        net = SharedRun.begin(run, "m", width=8, seed=0, rate=0.5, batch_size=50)
        net.train(8)
        assert net.score(run) > 0.7  # of labels that are all turned round
        assert LabelCopy in sites(fed)[fed.active].runs[run._session].kept


@pytest.mark.parametrize(
    ("method", "word"),
    [
        (SplitNN(label_epsilon=0.0), "label_epsilon must be"),
        (VFLFS(label_epsilon=True), "label_epsilon must be"),
        (fs.LessVFL(label_epsilon=1e9), "label_epsilon must be"),
        (fs.FedSDG(label_epsilon=1.0, label_range=(1.0, 0.0)), "label_range must be"),
        (GroupLasso(label_epsilon=1.0, label_range=(0.0, math.inf)), "label_range must be"),
    ],
)
def test_what_is_no_epsilon_is_named(method, word):
    with pytest.raises(ParameterError, match=word):
        method.fit(federation(*numbers()))


def test_an_epsilon_for_numbers_needs_their_public_range():
    fed = federation(*numbers(task="regression"))
    with pytest.raises(ParameterError, match="needs label_range"):
        SplitNN(label_epsilon=1.0).fit(fed)
    # A coordinator that announces such a job all the same is refused by the label holder.
    said = {"label_epsilon": 1.0, "protection": "shares"}
    with fed.session("split_network", said) as run, pytest.raises(OperationRefused, match="range"):
        SharedRun.begin(run, "m", width=4, seed=0, rate=0.3, batch_size=30)


# --- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_loss_of_a_noisy_number_measured_from_below_is_its_epsilon(epsilon):
    """Labels at the two ends of the range: over the bins of what comes out, one is at most e^epsilon likelier than
    under the other, by bounds that hold but once in 10^9 a bin; and in the tails it is nearly that."""
    n = 40_000
    out = [noisy(np.full(n, end), -2.0, 2.0, epsilon) for end in (-2.0, 2.0)]
    edges = np.concatenate([[-np.inf], np.linspace(-2.0, 2.0, 9), [np.inf]])
    seen = np.array([np.histogram(values, edges)[0] for values in out])
    low, high = beta.ppf(1e-9, seen, n - seen + 1), beta.ppf(1 - 1e-9, seen + 1, n - seen)
    surely = np.log(low[0] / high[1]).max()
    assert surely <= epsilon
    assert np.log(high[0] / low[1])[0] >= epsilon  # below the range: the whole loss
    assert surely > 0.7 * epsilon


def test_a_geometric_number_drawn_by_digits_has_its_distribution():
    """Frequencies of 0 to 5 within 7 deviations: one of 12 fails by chance once in 3 * 10^10 runs."""
    n = 50_000
    for rate in (0.3, 2.0):
        drawn = geometric(n, rate)
        for k in range(6):
            p = (1 - math.exp(-rate)) * math.exp(-rate * k)
            assert abs(np.mean(drawn == k) - p) < 7 * math.sqrt(p / n) + 7 / n
        assert drawn.min() == 0


def test_noise_lies_on_the_range_s_own_grid_and_far_or_missing_labels_are_brought_in():
    values = np.array([-1e9, 0.0, 1e9, np.nan, np.inf])
    steps = (noisy(values, 0.0, 1.0, 1.0) - 0.0) * 2**16
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
    # Without noise to speak of (epsilon 100: a deviation of 0.014) they are the ends and the middle of the range;
    # 0.5 is 50 e-foldings of the noise away.
    np.testing.assert_allclose(noisy(values, 0.0, 1.0, 100.0), [0.0, 0.0, 1.0, 0.5, 0.5], atol=0.5 - 1e-9)


def test_a_network_learns_numbers_from_the_copy(monkeypatch):
    """With a copy that is seeded: the noise is a third of the label's own deviation, and averages out over 900 rows."""
    monkeypatch.setattr(label_module, "uniform", _seeded(np.random.default_rng(11)))
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(900, 4)), columns=list("abcd"))
    fed = federation(X, 10 * (X["a"] + X["c"]) + 50)
    network = SplitNN(epochs=8, width=8, label_epsilon=12.0, label_range=(10, 90)).fit(fed)
    assert network.score(fed) > 0.85  # R2 of the labels themselves


# --- every method, every operation -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*keeps no column")
def test_whatever_operation_asks_for_labels_gets_the_copy(monkeypatch):
    """Class sums, impurities, networks of any form: other labels with the same copy give the same."""
    X, y = numbers(200, 6)
    copy = np.random.default_rng(5).integers(0, 2, len(X)).astype(np.int32)
    monkeypatch.setattr(label_module, "randomised", lambda codes, classes, epsilon: copy)
    found = []
    for labels in (y, 1 - y):
        fed = federation(X, labels)
        screen = fs.LessVFL(label_epsilon=1.0, epochs=1, screen_level=1.0).fit(fed)
        gates = fs.FedSDG(label_epsilon=1.0)
        with fed.session(gates.name, gates.announcement()[1]) as run:
            start = gates._begin_gates(run)
        found.append([screen.scores_["score"].to_numpy(), *start.values()])
        site = sites(fed)[fed.active]
        assert not np.array_equal(site.table.label, copy)
    for first, second in zip(*found):
        np.testing.assert_allclose(first, second, atol=1e-9)


@pytest.mark.parametrize(
    "method",
    [
        fs.FedSDG(label_epsilon=2.0, epochs=2, refit_epochs=1, width=4, lambdas=(0.005,)),
        fs.LessVFL(label_epsilon=2.0, epochs=1, width=4),
        VFLFS(label_epsilon=2.0, epochs=1, pretrain_epochs=1, refit_epochs=1, width=4, n_features=2),
        GroupLasso(label_epsilon=2.0, epochs=1, refit_epochs=1, width=4),
    ],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.filterwarnings("ignore:.*keeps no column")
def test_every_network_method_takes_an_epsilon_for_classes_and_numbers(method, monkeypatch):
    """One copy a fit; a score afterwards draws none, it is of the labels themselves."""
    drawn = []
    for name in ("randomised", "noisy"):
        draw = getattr(label_module, name)
        monkeypatch.setattr(label_module, name, lambda *given, draw=draw: drawn.append(1) or draw(*given))
    for task, between in (("two classes", None), ("regression", (0.0, 100.0))):
        fed = federation(*numbers(160, 5, task=task))
        fitted = clone(method).set_params(label_range=between).fit(fed)
        assert any("epsilon 2 for the label of one row" in note for note in fitted.ledger_.notes)
        assert np.isfinite(fitted.network_.score(fed))
    assert len(drawn) == 2


def test_a_second_copy_of_another_kind_is_refused():
    fed = federation(*numbers(120, 4))
    with fed.session("split_network", {"label_epsilon": 1.0, "label_range": [0.0, 1.0], "protection": "shares"}) as run:
        run.ask(count_inputs, to=run.active, task="classification")
        with run.session() as inner, pytest.raises(OperationRefused, match="one copy"):
            inner.ask(count_inputs, to=run.active, task="regression")
