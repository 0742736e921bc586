"""SecureBoost against an independent plaintext booster and the xgboost library; what leaves a party; model files."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import xgboost
from conftest import mixed_table
from doubles import Faulty, Recording
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import fedsift as fs
from fedsift.core.binning import ColumnBins
from fedsift.core.message import decode, encode
from fedsift.core.table import Table
from fedsift.core.transports.base import Delivery
from fedsift.crypto.additive.keys import generate_key
from fedsift.errors import DataError, ParameterError, PartyGone, ReplyError, SecurityError
from fedsift.models.boost.bins import safe_groups
from fedsift.models.boost.model import SecureBoostClassifier, SecureBoostRegressor
from fedsift.models.boost.passive import receive_gradients
from fedsift.models.boost.sums import Ask

BARE = {"min_cell": 1, "min_leaf": 1, "first_tree_local": False, "sum_noise": 0}  # the same trees as in one table
FORMS = ["coordinator", "open"]


def whole_table(n: int = 160, columns: int = 5, seed: int = 0, holes: float = 0.0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 8, (n, columns)).astype(float)
    signal = X[:, 0] + X[:, 3] * (X[:, 1] > 3) - X[:, 2] / 2 + rng.normal(0, 2, n)
    X[rng.random(X.shape) < holes] = np.nan
    return X, signal


# --- an independent booster: recursion, floats, no histograms -------------------------------------------------------


def plain_tree(X, g, h, rows, depth, lam, gamma, weight):
    """Nested tuples (column, threshold, missing left, left tree, right tree) or a leaf value; xgboost's rules."""
    best = (1e-6, None)
    G, H = g[rows].sum(), h[rows].sum()

    def score(a, b):
        return a * a / (b + lam)

    if depth > 0:
        for column in range(X.shape[1]):
            x = X[rows, column]
            levels = np.unique(x[~np.isnan(x)])
            for missing_left in (False, True) if np.isnan(x).any() else (False,):
                cuts = levels if not missing_left else levels[::-1]
                for cut in cuts:
                    left = (x <= cut) | (np.isnan(x) & missing_left)
                    if left.all() or not left.any():
                        continue
                    gl, hl = g[rows][left].sum(), h[rows][left].sum()
                    if min(hl, H - hl) < weight:
                        continue
                    gain = score(gl, hl) + score(G - gl, H - hl) - score(G, H)
                    if gain > best[0] + 1e-9 and gain >= gamma:
                        best = (gain, (column, cut, missing_left))
    if best[1] is None:
        return -G / (H + lam)
    column, cut, missing_left = best[1]
    x = X[rows, column]
    left = (x <= cut) | (np.isnan(x) & missing_left)
    more = (depth - 1, lam, gamma, weight)
    return column, cut, missing_left, plain_tree(X, g, h, rows[left], *more), plain_tree(X, g, h, rows[~left], *more)


def walk(tree, x):
    while isinstance(tree, tuple):
        column, cut, missing_left, left, right = tree
        value = x[column]
        tree = left if (missing_left if np.isnan(value) else value <= cut) else right
    return tree


def plain_splits(tree, counts):
    if isinstance(tree, tuple):
        counts[tree[0]] = counts.get(tree[0], 0) + 1
        plain_splits(tree[3], counts)
        plain_splits(tree[4], counts)
    return counts


def plain_boost(X, y, trees, depth, lam=1.0, gamma=0.0, weight=1.0, eta=0.3):
    margins, counts = np.zeros(len(y)), {}
    for _ in range(trees):
        p = 1 / (1 + np.exp(-margins))
        tree = plain_tree(X, p - y, p * (1 - p), np.arange(len(y)), depth, lam, gamma, weight)
        margins = margins + eta * np.array([walk(tree, x) for x in X])
        plain_splits(tree, counts)
    return margins, counts


def raw_scores(model, fed):
    scores = model.decision_function(fed)
    return scores[:, None] if scores.ndim == 1 else scores


@pytest.mark.parametrize(("protection", "per"), [("coordinator", None), ("open", 1), ("open", 3)])
def test_trees_are_those_of_plain_boosting(protection, per):
    X, signal = whole_table(holes=0.1)
    y = (signal > np.median(signal)).astype(int)
    margins, counts = plain_boost(X, y, trees=2, depth=3, lam=2.0, gamma=0.3)
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(
        n_estimators=2, max_depth=3, reg_lambda=2.0, gamma=0.3, base_score=0.5, rows_per_ciphertext=per,
        protection=protection, **BARE,
    ).fit(fed)  # fmt: skip
    np.testing.assert_allclose(model.decision_function(fed), margins, atol=1e-6)
    used = model.feature_importances_["splits"].to_numpy()
    assert {i: int(n) for i, n in enumerate(used) if n} == counts


@pytest.mark.parametrize("protection", FORMS)
@pytest.mark.parametrize(
    ("kind", "ours", "theirs"),
    [
        ("two", {"max_depth": 4, "min_child_weight": 2.0}, {"max_depth": 4, "min_child_weight": 2}),
        ("number", {"max_depth": 3, "gamma": 5.0}, {"max_depth": 3, "gamma": 5}),
        ("three", {"max_depth": 2}, {"max_depth": 2}),
        # The library ignores min_child_weight in trees of several outputs.
        ("three", {"max_depth": 3, "multi_output": True, "min_child_weight": 0.0},
         {"max_depth": 3, "multi_strategy": "multi_output_tree"}),
        ("two", {"max_depth": 0, "max_leaves": 6, "grow_policy": "lossguide"},
         {"max_depth": 0, "max_leaves": 6, "grow_policy": "lossguide"}),
    ],
)  # fmt: skip
def test_predictions_are_those_of_the_xgboost_library(kind, ours, theirs, protection):
    if protection == "coordinator" and "grow_policy" in ours:
        pytest.skip("trees on shares grow level by level")
    X, signal = whole_table(140, holes=0.0 if "multi_output" in ours else 0.15, seed=3)
    objective = {"two": "binary:logistic", "number": "reg:squarederror", "three": "multi:softprob"}[kind]
    y = {"two": (signal > 3).astype(int), "number": signal, "three": np.digitize(signal, [1, 4])}[kind]
    if kind == "three":
        theirs = {**theirs, "num_class": 3}
    cls = SecureBoostRegressor if kind == "number" else SecureBoostClassifier
    fed = fs.Federation.split(X, y, parties=2, task="regression" if kind == "number" else "classification")
    model = cls(n_estimators=2, base_score=0.5, n_bins=32, protection=protection, **ours, **BARE).fit(fed)
    booster = xgboost.train(
        {"objective": objective, "tree_method": "hist", "base_score": 0.5, "eta": 0.3, "nthread": 1, **theirs},
        xgboost.DMatrix(X, y), 2,
    )  # fmt: skip
    new, _ = whole_table(60, holes=0.2 if "multi_output" not in ours else 0.0, seed=9)
    newfed = fs.Federation.split(new, y[:60], parties=2, task=fed.task)
    got = raw_scores(model, newfed)
    expected = booster.predict(xgboost.DMatrix(new), output_margin=True).reshape(got.shape)
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_more_than_two_classes_start_at_their_shares_as_the_library_does():
    X, signal = whole_table(150, seed=5)
    y = np.digitize(signal, [-1, 6])
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(n_estimators=2, max_depth=2, protection="coordinator", **BARE).fit(fed)
    booster = xgboost.train(
        {"objective": "multi:softprob", "num_class": 3, "tree_method": "hist", "max_depth": 2, "nthread": 1},
        xgboost.DMatrix(X, y), 2,
    )  # fmt: skip
    np.testing.assert_allclose(model.predict_proba(fed), booster.predict(xgboost.DMatrix(X)), atol=1e-4)


@pytest.mark.parametrize("protection", FORMS)
def test_categories_missing_values_constants_and_small_parties_break_nothing(small_fed, protection):
    model = SecureBoostClassifier(n_estimators=3, max_depth=3, protection=protection).fit(small_fed)
    chance = model.predict_proba(small_fed)
    _, y = mixed_table()
    assert chance.shape == (60, 2)
    np.testing.assert_allclose(chance.sum(axis=1), 1)
    assert (model.predict(small_fed) == y).mean() > 0.7
    assert set(model.predict(small_fed)) <= {0, 1}


def test_the_first_tree_with_categories_and_holes_is_the_same_in_both_forms():
    """Sums of the first tree are exact in both, so every gain and every tie is the same."""
    X, y = mixed_table(90)
    fed = fs.Federation.split(X, y, parties=3)
    one, other = (SecureBoostClassifier(n_estimators=1, max_depth=4, protection=p, **BARE).fit(fed) for p in FORMS)
    np.testing.assert_allclose(one.decision_function(fed), other.decision_function(fed), atol=1e-9)
    pd.testing.assert_series_equal(one.feature_importances_["splits"], other.feature_importances_["splits"])


@pytest.mark.parametrize("protection", FORMS)
def test_a_new_category_and_a_new_missing_value_are_predicted(protection):
    X, y = mixed_table(60)
    fed = fs.Federation.split(X, y, parties=3)
    model = SecureBoostClassifier(n_estimators=2, max_depth=3, protection=protection, **BARE).fit(fed)
    strange = X.head(10).assign(colour="purple", weak=np.nan)
    out = model.predict_proba(fs.Federation.split(strange, y.head(10), parties=3))
    assert np.isfinite(out).all()


def test_one_party_alone_needs_no_encryption():
    X, signal = whole_table(80)
    fed = fs.Federation.split(X, (signal > 3).astype(int), parties=1)
    model = SecureBoostClassifier(n_estimators=2, max_depth=2).fit(fed)
    assert not model.ledger_.encryption()["on"]
    assert len(model.predict(fed)) == 80


# --- protection -----------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12), st.integers(1, 6), st.booleans()
)
def test_no_group_of_few_rows_is_shown_or_follows_by_subtraction(pairs, least, ordered):
    node, sibling = np.array(pairs).T
    into = safe_groups(node, sibling, least, ordered)
    groups = into.max() + 1
    assert set(into) == set(range(groups))
    if ordered:
        assert (np.diff(into) >= 0).all()
    for rows in (node, sibling):
        sizes = np.bincount(into, weights=rows, minlength=groups)
        if rows.sum() >= least or rows.sum() == 0 or groups > 1:
            assert ((sizes == 0) | (sizes >= least)).all() or rows.sum() < least


@pytest.mark.parametrize("part", ["key", "rows", "sets", "note"])
def test_gradients_that_the_label_holder_does_not_vouch_for_are_refused(monkeypatch, part):
    """Under a key, or with "gradients", of its own the coordinator would read any sums of a party's bins."""
    own, ask = generate_key("paillier").public, fs.Federation.ask

    def forging(self, function, **kw):
        if function is receive_gradients:
            forged = {"key": own, "sets": [~each for each in kw["sets"]]}
            forged["rows"] = kw["key"].encrypt([1] * len(kw["rows"]))
            if part == "note":
                kw["each"] = {name: {**told, "note": b""} for name, told in kw["each"].items()}
            else:
                kw[part] = forged[part]
        return ask(self, function, **kw)

    monkeypatch.setattr(fs.Federation, "ask", forging)
    X, y = mixed_table(80)
    X["noise"] = np.arange(80.0)
    fed = fs.Federation.split(X, y, parties=2)
    said = "vouches for nothing" if part == "note" else "not what"
    with pytest.raises(SecurityError, match=said):
        SecureBoostClassifier(n_estimators=1, max_depth=2, protection="open", **BARE).fit(fed)


def test_no_sum_below_the_minimum_cell_is_sent_in_the_open_form():
    """Every group that is summed has at least ``min_cell`` training rows, in the node and in its sibling."""
    X, y = mixed_table(60)
    fed = fs.Federation.split(X, y, parties=2)
    seen = []
    original = Ask.__init__

    def spy(self, start, size, table):
        seen.extend(table.sizes[table.sizes > 0].tolist())
        original(self, start, size, table)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ask, "__init__", spy)
        SecureBoostClassifier(n_estimators=3, max_depth=4, min_cell=6, protection="open").fit(fed)
    assert seen
    assert min(seen) >= 6


def test_the_first_tree_uses_the_label_holders_columns_alone():
    X, signal = whole_table()
    fed = fs.Federation.split(X, (signal > 3).astype(int), parties=2)
    model = SecureBoostClassifier(n_estimators=1, max_depth=3).fit(fed)
    frame = model.feature_importances_
    assert frame.loc[frame.party == "party2", "splits"].sum() == 0
    assert frame.loc[frame.party == "party1", "splits"].sum() > 0
    assert not model.ledger_.encryption()["on"]


def test_what_is_shown_and_what_is_turned_off_is_in_the_ledger():
    X, signal = whole_table(60)
    fed = fs.Federation.split(X, (signal > 3).astype(int), parties=2)
    model = SecureBoostClassifier(n_estimators=1, max_depth=1, protection="open", **BARE).fit(fed)
    for said in ("first_tree_local=False", "min_cell=1", "which rows lie together"):
        assert any(said in note for note in model.ledger_.notes)
    model = SecureBoostClassifier(n_estimators=1, max_depth=1).fit(fed)
    assert any("nobody reads a sum, a node, a leaf or a gradient" in note for note in model.ledger_.notes)
    model = SecureBoostClassifier(n_estimators=1, max_depth=1, protection="coordinator").fit(fed)
    assert any(
        "with noise of a row's size (sum_noise; row counts exactly), candidates shuffled and unnamed" in note
        for note in model.ledger_.notes
    )


@pytest.mark.parametrize("protection", FORMS)
def test_neither_gradients_nor_bin_edges_leave_in_the_clear(protection):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=80), "b": rng.normal(size=80) * 1234.56789, "c": rng.normal(size=80)})
    y = (X["b"].rank() > 43).astype(int)
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
    fed._link.transport = Recording(fed._link.transport)
    SecureBoostClassifier(n_estimators=2, max_depth=2, n_bins=4, protection=protection, **BARE).fit(fed)
    log = fed._link.transport.log
    edges = ColumnBins.fit(Table.read(X[["b"]], id=None), "b", 4).edges
    p = y.mean()
    secrets = [*edges, p, p - 1, p * (1 - p)]
    forms = [np.float64(v).tobytes() for v in secrets] + [np.float32(v).tobytes() for v in secrets]
    data = b"".join(body for _, _, body in log)
    assert len(data) > 10_000
    assert not any(form in data for form in forms)
    for sender, _, body in log:
        if sender in ("shop", "lab"):
            assert b"edges" not in body


# --- sampling, early stopping, files --------------------------------------------------------------------------------


def test_the_same_random_state_gives_the_same_model():
    X, signal = whole_table(100)
    fed = fs.Federation.split(X, (signal > 3).astype(int), parties=2)
    model = SecureBoostClassifier(n_estimators=2, max_depth=2, subsample=0.7, colsample_bytree=0.6, random_state=5)
    first, second = clone(model).fit(fed), clone(model).fit(fed)
    np.testing.assert_array_equal(first.decision_function(fed), second.decision_function(fed))


def test_early_stopping_looks_at_held_out_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), rng.integers(0, 2, 120)  # nothing to learn: validation loss must rise
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(
        n_estimators=25, max_depth=3, early_stopping_rounds=2, n_bins=8, protection="coordinator"
    )
    model.fit(fed)
    assert len(model.validation_curve_) < 25
    assert model.n_trees_ == int(np.argmin(model.validation_curve_)) + 1


def test_a_saved_model_predicts_the_same_and_holds_nobody_elses_secret(tmp_path):
    X, y = mixed_table(60)
    X["holes"] = X["holes"] * 1000 + 0.12345
    fed = fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
    model = SecureBoostClassifier(n_estimators=2, max_depth=2, **BARE).fit(fed)
    before = model.predict_proba(fed)
    model.save(tmp_path)
    again = fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
    loaded = SecureBoostClassifier.load(tmp_path, again)
    np.testing.assert_array_equal(loaded.predict_proba(again), before)
    assert loaded.get_params() == model.get_params()
    names = {site: fed._link.transport.sites[site].table.columns for site in fed.parties}
    for party in fed.parties:
        text = (tmp_path / f"{party}.{model.model_id_}.json").read_text()
        others = [column for site in fed.parties if site != party for column in names[site]]
        assert not [column for column in others if json.dumps(column) in text]
    text = (tmp_path / "model.json").read_text()
    assert not [c for site in ("shop", "lab") for c in names[site] if json.dumps(c) in text]


def test_a_foreign_or_damaged_model_file_is_refused(tmp_path):
    X, signal = whole_table(60)
    y = (signal > 3).astype(int)
    fed = fs.Federation.split(X, y, parties=2)
    model = SecureBoostClassifier(n_estimators=1, max_depth=1).fit(fed)
    model.save(tmp_path)
    own = tmp_path / f"party2.{model.model_id_}.json"
    own.write_text((tmp_path / f"party1.{model.model_id_}.json").read_text())
    with pytest.raises(DataError, match="another party"):
        SecureBoostClassifier.load(tmp_path, fs.Federation.split(X, y, parties=2))
    own.unlink()
    with pytest.raises(DataError, match="party2"):
        SecureBoostClassifier.load(tmp_path, fs.Federation.split(X, y, parties=2))
    with pytest.raises(DataError, match="SecureBoostRegressor"):
        SecureBoostRegressor.load(tmp_path, fed)


def test_a_party_that_dies_in_a_tree_gives_its_name_and_a_rerun_works():
    X, signal = whole_table(80)
    fed = fs.Federation.split(X, (signal > 3).astype(int), parties=2)
    healthy = fed._link.transport
    calls = []

    def die(delivery):
        calls.append(1)
        return Delivery(None, 0.0, "gone") if len(calls) > 6 else delivery

    fed._link.transport = Faulty(healthy, "party2", die)
    model = SecureBoostClassifier(n_estimators=3, max_depth=3)
    with pytest.raises(PartyGone, match="party2"):
        model.fit(fed)
    fed._link.transport = healthy
    assert model.fit(fed).n_trees_ == 3


def test_a_party_that_lies_about_its_encrypted_sums_is_named():
    X, signal = whole_table(80)
    fed = fs.Federation.split(X, (signal > 3).astype(int), parties=2)

    def lie(delivery):
        reply = decode(delivery.data)
        if isinstance(reply.get("ok"), dict) and "sums" in reply["ok"]:
            sums = reply["ok"]["sums"]
            reply["ok"]["sums"] = sums.take(range(len(sums) - 1))
        return Delivery(encode(reply), delivery.seconds)

    fed._link.transport = Faulty(fed._link.transport, "party2", lie)
    with pytest.raises(ReplyError, match="party 'party2' sent"):
        SecureBoostClassifier(n_estimators=2, max_depth=2, rows_per_ciphertext=2, protection="open").fit(fed)


@pytest.mark.parametrize(
    "bad",
    [
        {"max_depth": 0},
        {"n_bins": 1},
        {"subsample": 0},
        {"grow_policy": "best"},
        {"min_cell": 0},
        {"protection": "none"},
        {"max_depth": 13},
        {"max_leaves": 4, "grow_policy": "lossguide"},
        {"gamma": -1},
        {"sampling_method": "gradient_based", "top_rate": 0.9},
    ],
)
def test_a_bad_parameter_sends_nothing(bad):
    X, signal = whole_table(40)
    fed = fs.Federation.split(X, (signal > 3).astype(int), parties=2)
    name = list(bad)[-1]
    with pytest.raises(ParameterError, match=name):
        SecureBoostClassifier(**bad).fit(fed)
    assert fed.ledger.bytes() == 0
    with pytest.raises(DataError, match="regression"):
        SecureBoostRegressor(n_estimators=1).fit(fed)


def test_importance_picture_names_no_other_partys_column():
    X, y = mixed_table(60)
    fed = fs.Federation.split(X, y, parties=3)
    figure = SecureBoostClassifier(n_estimators=2, max_depth=2, **BARE).fit(fed).plot_importance(by="splits")
    names = " ".join(figure.data[0].y)
    assert "signal" in names
    assert "counts" not in names
