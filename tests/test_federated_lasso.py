"""The federated lasso against scikit-learn on the pooled table, and what each side sees."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from doubles import Faulty, Recording
from sklearn.linear_model import Lasso, LogisticRegression

import fedsift as fs
from fedsift import errors
from fedsift.core.message import decode, encode, walk
from fedsift.core.transports.base import Delivery
from fedsift.mpc.ring import hide_left, left_share, open_product, right_message
from fedsift.select.baselines.federated_lasso import FederatedLasso


def pooled(n=60, columns=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns))
    X[:, 1] += 0.7 * X[:, 0]
    return pd.DataFrame(X, columns=[f"f{i}" for i in range(columns)]), rng


def coefficients(fitted):
    return np.vstack(list(fitted.details_["_coefficients"].values()))


def chosen(fitted):
    return [name for names in fitted.selected_.values() for name in names]


def scaled(X):
    return ((X - X.mean()) / X.std(ddof=0)).to_numpy()


@pytest.mark.parametrize("parties", [1, 2, 3])
def test_linear_lasso_equals_scikit_learn(parties):
    X, rng = pooled()
    y = 2 * X["f0"] - X["f5"] + rng.normal(scale=0.3, size=len(X))
    fed = fs.Federation.split(X, y, parties=parties)
    fitted = FederatedLasso(n_features=2, penalty=0.05, tol=1e-7, max_iter=500).fit(fed)
    reference = Lasso(alpha=0.05, tol=1e-10).fit(scaled(X), (y - y.mean()) / y.std(ddof=0))
    np.testing.assert_allclose(coefficients(fitted)[:, 0], reference.coef_, atol=1e-4)
    assert sorted(chosen(fitted)) == ["f0", "f5"]


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_and_multinomial_lasso_equal_scikit_learn(classes):
    X, rng = pooled(n=90)
    noisy = X["f0"] - X["f6"] + rng.normal(scale=0.5, size=90)
    y = np.digitize(noisy, np.quantile(noisy, np.linspace(0, 1, classes + 1)[1:-1]))
    fed = fs.Federation.split(X, y, parties=3)
    fitted = FederatedLasso(n_features=3, penalty=0.04, tol=1e-7, max_iter=800).fit(fed)
    reference = LogisticRegression(l1_ratio=1.0, C=1 / (0.04 * 90), solver="saga", tol=1e-8, max_iter=20000)
    reference.fit(scaled(X), y)
    np.testing.assert_allclose(coefficients(fitted).T, reference.coef_, atol=2e-3)
    losses = fitted.details_["loss"]
    assert losses[-1] < losses[0]


def test_zero_coefficients_are_ranked_by_how_near_they_came():
    X, rng = pooled()
    y = X["f0"] + 0.2 * X["f3"] + rng.normal(scale=0.1, size=len(X))
    fed = fs.Federation.split(X, y, parties=2)
    fitted = FederatedLasso(n_features=8, penalty=0.4, tol=1e-6).fit(fed)
    frame = fitted.scores_.set_index("feature")["score"]
    assert frame["f0"] > 0
    assert (frame.drop(["f0", "f1"]) <= 0).all()
    assert frame.drop(["f0", "f1"]).nunique() == 6


def test_mixed_columns_and_constant_ones():
    X, y = mixed_table(50)
    fed = fs.Federation.split(X, y, parties=3)
    fitted = FederatedLasso(n_features=3, max_iter=60).fit(fed)
    assert {"signal", "copy"} & set(chosen(fitted))
    constant = fitted.scores_.set_index("feature").loc["constant", "score"]
    assert constant <= 0


def words(leaf) -> np.ndarray:
    """The 64-bit words that a leaf of a message holds: those of an array, those at every place of a string of bytes.

    Not those of the whole message: a length of two bytes between zeros, as frames have them, is no value of a column.
    """
    if isinstance(leaf, (int, float)):
        return np.array([leaf], dtype=np.float64).view(np.int64)
    if isinstance(leaf, np.ndarray) and leaf.dtype.itemsize == 8:
        return np.ascontiguousarray(leaf).view(np.int64).ravel()
    data = leaf.tobytes() if isinstance(leaf, np.ndarray) else leaf if isinstance(leaf, bytes) else b""
    data = leaf.to_bytes() if hasattr(leaf, "to_bytes") else data
    places = [np.frombuffer(data[start:], dtype=np.int64, count=len(data[start:]) // 8) for start in range(8)]
    return np.concatenate(places)


def readable(log: Recording, secret: np.ndarray) -> set[int]:
    """Which of the values are on the wire, as floats or as whole numbers of the ring at any precision."""
    sent = np.unique(np.concatenate([words(leaf) for _, _, data in log.log for leaf in walk(decode(data))]))
    forms = [secret.view(np.int64), *(np.rint(np.ldexp(secret, bits)).astype(np.int64) for bits in range(16, 32))]
    sought = np.concatenate(forms)
    return set(sent[np.isin(sent, sought[np.abs(sought) > 2**12])].tolist())


def test_no_residual_score_or_value_is_on_the_wire():
    """The oracle knows all residuals of every step; none of them, nor a column's value, may be readable anywhere."""
    X, rng = pooled(n=40, columns=4)
    y = X["f0"] + rng.normal(scale=0.3, size=40)
    fed = fs.Federation.split(X, y, parties=2)
    log = Recording(fed._link.transport)
    fed._link.transport = log
    FederatedLasso(n_features=2, max_iter=3).fit(fed)
    target = ((y - y.mean()) / y.std(ddof=0)).to_numpy()
    secret = np.concatenate([target, -target, scaled(X).ravel()])
    assert not readable(log, secret)
    to_passive = [decode(data) for _, receiver, data in log.log if receiver == "party2"]
    received = {key for request in to_passive for key in request["arguments"]}
    announced = {"method", "parameters"}
    told = {"helper", "widths", "reads_scores", "weights", "seed", "step", "label_holder", "share", "outputs", "task"}
    assert received - announced <= told | {"among", "circle", "offers", "session", "view", "rows", "columns", "job"}
    masked = [leaf for _, _, data in log.log for leaf in walk(decode(data)) if isinstance(leaf, np.ndarray)]
    words = np.concatenate([leaf.ravel() for leaf in masked if leaf.dtype == np.uint64 and leaf.size > 20])
    # Fixed-point numbers without a mask start with the byte 0 or 255, uniform ones hardly ever do (1 in 128).
    assert len(words) > 300
    assert np.isin(words >> np.uint64(56), [0, 255]).mean() < 0.06


def test_values_would_be_found_on_the_wire_without_masks(monkeypatch):
    monkeypatch.setattr("fedsift.mpc.ring.key_stream", lambda seed, purpose, number, shape: np.zeros(shape, np.uint64))
    X, rng = pooled(n=40, columns=4)
    fed = fs.Federation.split(X, X["f0"] + rng.normal(scale=0.3, size=40), parties=2)
    log = fed._link.transport = Recording(fed._link.transport)
    FederatedLasso(n_features=2, max_iter=3).fit(fed)
    assert len(readable(log, scaled(X).ravel())) > 40


def test_a_step_is_computed_once():
    X, y = mixed_table(40)
    fed = fs.Federation.split(X, y, parties=2)
    from fedsift.select.baselines import federated_lasso as module

    with fed.session() as run:
        gradients = module._Gradients(run, 1)
        point = module._Point(np.zeros((gradients.features, 1)), np.zeros(1))
        gradients.at(point)
        gradients.descent.step = 0
        with pytest.raises(errors.SecurityError, match="used before"):
            gradients.at(point)


def test_a_party_that_sends_the_wrong_shape_is_named():
    X, y = mixed_table(40)
    fed = fs.Federation.split(X, y, parties=2)

    def lie(delivery):
        value = decode(delivery.data).get("ok")
        if isinstance(value, dict) and "products" in value:
            return Delivery(encode({"ok": {**value, "scores": value["scores"][:5]}}), delivery.seconds)
        return delivery

    fed._link.transport = Faulty(fed._link.transport, "party2", lie)
    with pytest.raises(errors.ReplyError, match="party2"):
        FederatedLasso(n_features=2).fit(fed)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_party_without_labels_is_told_nothing_that_depends_on_them(task):
    """Its requests, label holder and data apart, look alike: only uniform numbers differ from run to run."""
    X, rng = pooled(n=40, columns=6)
    y = (X["f0"] + rng.normal(scale=0.3, size=40) > 0).astype(int)
    fed = fs.Federation.split(X, y, parties=2, task=task)
    log = fed._link.transport = Recording(fed._link.transport)
    FederatedLasso(n_features=2, max_iter=20, tol=0).fit(fed)
    requests = [decode(data)["arguments"] for _, receiver, data in log.log if receiver == "party2"]
    numbers = [leaf for each in requests for leaf in walk(each) if isinstance(leaf, np.ndarray)]
    assert all(leaf.dtype == np.uint64 for leaf in numbers)
    words = np.concatenate([leaf.ravel() for leaf in numbers])
    assert len(words) >= 60
    bits = np.unpackbits(words.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(bits))
    assert len(np.unique(words)) == len(words)


def test_bad_parameters_are_quoted():
    fed = fs.Federation.split(*mixed_table(40), parties=2)
    for parameters in ({"penalty": -1}, {"max_iter": 0}, {"n_features": None}, {"tol": -1}):
        with pytest.raises(errors.ParameterError):
            FederatedLasso(**parameters).fit(fed)


def test_masked_product_is_exact_and_fresh():
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-1000, 1000, (20, k)).view(np.uint64) for k in (3, 2))
    hidden, share = hide_left(x, b"k" * 32, 7), left_share(x, b"k" * 32, 8, 2)
    right = right_message(y, b"k" * 32, 7, 8, 3)
    np.testing.assert_array_equal(open_product(hidden, share, *right), x.T @ y)
    assert not (hidden == x).any()
    assert not (right[0] == right_message(y, b"k" * 32, 7, 9, 3)[0]).any()
