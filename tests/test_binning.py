"""Bins see every column: heavy values, few values, any scale; and only the order of the values counts."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import slow_bins
from sklearn.metrics import roc_auc_score

import fedsift as fs
from fedsift.core import binning
from fedsift.core.binning import ColumnBins, codes_of, edges, most_bins
from fedsift.core.table import Table
from fedsift.models.boost.hidden import blur

TRANSFORMS = {
    "scaled": lambda x: 3.7 * x - 11.0,
    "cubed": lambda x: x**3,
    "squashed": np.arctan,
    "negated": np.negative,
    "scaled down and negated": lambda x: -1e-3 * x,
}


def bins_of(values, n_bins, min_rows=1):
    table = Table.read(pd.DataFrame({"x": np.asarray(values, dtype=float)}), id=None)
    return ColumnBins.fit(table, "x", n_bins, min_rows).codes(table)


def test_few_values_have_a_bin_each():
    assert bins_of([3, 3, 3, 3, 7, 7, 9], 5).tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert len(edges(np.array([]), 5)) == 0
    assert len(edges(np.full(9, 4.0), 5)) == 0


def test_a_heavy_minimum_leaves_bins_for_the_rest():
    codes = bins_of([0] * 920 + list(range(1, 81)), 5)
    assert np.bincount(codes).tolist() == [920, 20, 20, 20, 20]


def test_a_heavy_maximum_and_a_heavy_middle_have_bins_of_their_own():
    assert np.bincount(bins_of([*range(80), *[500] * 920], 5)).tolist() == [20, 20, 20, 20, 920]
    middle = bins_of([*range(40), *[100] * 920, *range(200, 240)], 5)
    assert np.bincount(middle).tolist() == [20, 20, 920, 20, 20]


def test_a_lone_value_beside_a_heavy_one_is_seen():
    """99 % zeros and 200 different others."""
    codes = bins_of([0] * 19_800 + list(range(1, 201)), 10)
    assert np.bincount(codes)[0] == 19_800
    assert len(set(codes)) == 10


def test_few_rows_join_a_heavy_neighbour_and_leave_the_others_apart():
    codes = bins_of([-1, -1, *[0] * 900, *range(1, 99)], 5, min_rows=5)
    assert np.bincount(codes).tolist() == [902, 24, 25, 25, 24]
    assert np.bincount(bins_of([*[0] * 900, *[1] * 90, *[2] * 7, *[3] * 3], 8, min_rows=5)).tolist() == [900, 90, 10]
    assert np.bincount(bins_of([0] * 997 + [1] * 3, 8, min_rows=5)).tolist() == [1000]
    assert np.bincount(bins_of(np.arange(62), 15, min_rows=5)).min() >= 5


def test_neighbouring_floats_are_told_apart():
    first, second = 1.0, np.nextafter(1.0, 2.0)
    assert bins_of([first, second, first], 2).tolist() == [0, 1, 0]
    assert bins_of([-1.7e308, 1.7e308], 2).tolist() == [0, 1]


@st.composite
def columns(draw):
    """Whole numbers with heavy values and without, few and many."""
    spread = draw(st.integers(0, 60))
    light = draw(st.lists(st.integers(-spread, spread), min_size=1, max_size=120))
    heavy = draw(st.lists(st.tuples(st.integers(-spread, spread), st.integers(0, 150)), max_size=3))
    return np.array(light + [v for v, times in heavy for _ in range(times)], dtype=float)


@settings(max_examples=300, deadline=None)
@given(columns(), st.integers(2, 20))
def test_bins_are_those_of_the_slow_oracle(values, n_bins):
    for min_rows in (1, 4):
        np.testing.assert_array_equal(bins_of(values, n_bins, min_rows), slow_bins(values, n_bins, min_rows))


@settings(max_examples=300, deadline=None)
@given(columns(), st.integers(2, 20))
def test_bins_are_full_and_not_too_many(values, n_bins):
    codes = bins_of(values, n_bins)
    sizes = np.bincount(codes)
    assert (sizes > 0).all()
    assert len(sizes) <= most_bins(n_bins)
    assert len(sizes) <= 2 * n_bins
    assert len(sizes) >= min(2, len(set(values.tolist())))
    if len(values) >= 5:
        assert np.bincount(bins_of(values, n_bins, 5)).min() >= 5
    order = np.argsort(values, kind="stable")
    assert (np.diff(codes[order]) >= 0).all()


@settings(max_examples=200, deadline=None)
@given(columns(), st.integers(2, 20))
def test_many_columns_at_once_get_the_same_bins(values, n_bins):
    together = codes_of(np.stack([values, -values, np.arange(len(values)) * 1.0]), n_bins)
    np.testing.assert_array_equal(together[0], bins_of(values, n_bins))
    np.testing.assert_array_equal(together[1], bins_of(-values, n_bins))
    np.testing.assert_array_equal(together[2], bins_of(np.arange(len(values)), n_bins))


@pytest.mark.parametrize("name", TRANSFORMS)
@settings(max_examples=150, deadline=None)
@given(values=columns(), n_bins=st.integers(2, 20))
def test_monotone_transforms_leave_bins_unchanged(name, values, n_bins):
    for min_rows in (1, 4):
        before, after = bins_of(values, n_bins, min_rows), bins_of(TRANSFORMS[name](values), n_bins, min_rows)
        np.testing.assert_array_equal(before, after.max() - after if "negated" in name else after)


def zero_heavy(rows: int = 900) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns that are mostly zero, one of which (``gain``) and a rare flag decide the label."""
    rng = np.random.default_rng(5)
    gain = np.where(rng.random(rows) < 0.12, rng.lognormal(5, 1, rows), 0.0)
    flag = rng.random(rows) < 0.06
    y = (flag | (gain > 150)).astype(int)
    noise = {f"noise{i}": np.where(rng.random(rows) < 0.1, rng.random(rows), 0.0) for i in range(4)}
    return pd.DataFrame({**noise, "flag": flag, "gain": gain}), y


SELECTORS = {
    "information value": lambda: fs.InformationValue(n_features=2),
    "gini": lambda: fs.GiniFilter(n_features=2),
    "mutual information": lambda: fs.Muse(n_features=2, criterion="mrmr"),
    "gain of trees": lambda: fs.TopGain(n_features=2, n_estimators=4, protection="coordinator"),
}


@pytest.mark.parametrize("name", SELECTORS)
def test_columns_that_are_mostly_zero_are_found(name):
    X, y = zero_heavy()
    chosen = SELECTORS[name]().fit(fs.Federation.split(X, y, parties=2)).selected_
    assert sorted(name for names in chosen.values() for name in names) == ["flag", "gain"]


@pytest.mark.parametrize("name", SELECTORS)
def test_monotone_transforms_leave_scores_unchanged(name, monkeypatch):
    """Of exact sums: the noise in those that boosting opens hangs on the site's secret, which other values change."""
    monkeypatch.setattr(blur, "WIDTH", 0.0)
    X, y = zero_heavy(400)
    turned = ("gain", "noise1") if name != "gain of trees" else ()  # trees: see the next test
    moved = X.astype(float).apply(lambda column: -7.25 * column + 3 if column.name in turned else column**3)
    scores = [SELECTORS[name]().fit(fs.Federation.split(table, y, parties=2)).scores_ for table in (X, moved)]
    first, second = (frame.sort_values(["party", "feature"])["score"].to_numpy() for frame in scores)
    np.testing.assert_allclose(first, second, rtol=1e-9)


@st.composite
def labelled(draw):
    """A column of any shape, and classes that hang on it a little."""
    values = draw(columns().filter(lambda found: len(found) >= 12))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    y = (values + np.abs(values).max() * rng.normal(size=len(values)) > 0).astype(int)
    y[:2] = 0, 1
    return values, y


def score_of(name: str, values: np.ndarray, y: np.ndarray) -> float:
    """Of the other party's only column."""
    X = pd.DataFrame({"own": np.arange(len(y)) % 3, "x": values})
    selector = SELECTORS[name]()
    if name == "gain of trees":
        selector.set_params(n_estimators=2, max_depth=2)
    scores = selector.fit(fs.Federation.split(X, y, parties=2)).scores_
    return float(scores.loc[scores["feature"] == "x", "score"].iloc[0])


@pytest.mark.parametrize("name", SELECTORS)
@settings(max_examples=20, deadline=None)
@given(labelled(), st.sampled_from(sorted(TRANSFORMS)))
def test_no_monotone_transform_of_any_column_changes_its_score(name, table, how):
    values, y = table
    trees = name == "gain of trees"
    assume(not (trees and "negated" in how))  # the next test
    with mock.patch.object(blur, "WIDTH", 0.0):
        before, after = score_of(name, values, y), score_of(name, TRANSFORMS[how](values), y)
    assert after == pytest.approx(before, rel=1e-9, abs=1e-9)


def test_a_negated_column_gives_the_same_trees_on_the_training_rows():
    """Without groups of a least size, which are joined from the left; a row between two bins may go either way."""
    X, y = zero_heavy(400)
    turned = X.astype(float).assign(gain=-X["gain"], flag=-X["flag"].astype(float))
    settings = {"n_estimators": 3, "max_depth": 3, "min_cell": 1, "min_leaf": 1, "first_tree_local": False}
    settings |= {
        "protection": "coordinator",
        "sum_noise": 0,
    }  # the noise hangs on the site's secret, which other values change
    first, second = (
        fs.SecureBoostClassifier(**settings).fit(fed).predict_proba(fed)
        for fed in (fs.Federation.split(table, y, parties=2) for table in (X, turned))
    )
    np.testing.assert_allclose(first, second, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(labelled(), st.sampled_from(["negated", "scaled down and negated"]))
def test_no_negated_column_changes_the_trees_on_the_training_rows(table, how):
    values, y = table
    settings = {"n_estimators": 2, "max_depth": 2, "min_cell": 1, "min_leaf": 1, "first_tree_local": False}
    own = np.zeros(len(y))
    own[0] = 1.0
    first, second = (
        fs.SecureBoostClassifier(**settings, sum_noise=0, protection="coordinator").fit(fed).predict_proba(fed)
        for fed in (
            fs.Federation.split(pd.DataFrame({"own": own, "x": each}), y, parties=2)
            for each in (values, TRANSFORMS[how](values))
        )
    )
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_boosting_on_zero_heavy_columns_is_as_good_as_xgboost():
    xgboost = pytest.importorskip("xgboost")
    X, y = zero_heavy(1600)
    train, test = np.arange(1200), np.arange(1200, 1600)
    fed = fs.Federation.split(X, y, parties=2)
    model = fs.SecureBoostClassifier(n_estimators=8, max_depth=3).fit(fed.view(rows=train))
    ours = roc_auc_score(y[test], model.predict_proba(fed.view(rows=test))[:, 1])
    plain = xgboost.XGBClassifier(n_estimators=8, max_depth=3, tree_method="hist").fit(X.iloc[train], y[train])
    assert ours >= roc_auc_score(y[test], plain.predict_proba(X.iloc[test])[:, 1]) - 0.01


@pytest.mark.parametrize("count", [0, 1, 31, 80, 81, 200])
def test_values_compared_with_every_edge_lie_where_a_search_puts_them(count, monkeypatch):
    """Also on an edge, infinite, and over several blocks of values."""
    monkeypatch.setattr(binning, "_BLOCK", 100)
    rng = np.random.default_rng(count)
    places = np.sort(rng.normal(size=count))
    values = np.concatenate([rng.normal(size=1_000), places, [np.inf, -np.inf, 0.0, -0.0]])
    found = binning._between(values, places)
    np.testing.assert_array_equal(found, np.searchsorted(places, values, side="right"))
