"""Knockoffs from sums: the distribution of knockoffs of rows, the filter, secure equal to pooled, the realised rate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Lasso

import fedsift as fs
from fedsift.errors import OperationRefused
from fedsift.select.knockoff_sums import contrasts, discoveries, knockoff_scales, lasso, shrunk, with_knockoffs
from fedsift.select.knockoffs import normal_scores


def chain(rows, columns, seed, link=0.6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    for column in range(1, columns):
        X[:, column] = link * X[:, column - 1] + np.sqrt(1 - link**2) * X[:, column]
    return X


def correlation(columns=6, link=0.6):
    return link ** np.abs(np.subtract.outer(np.arange(columns), np.arange(columns)))


# --- mathematics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 5])
def test_scales_leave_a_covariance_that_exists_and_are_no_smaller_than_equal_ones(copies):
    """Entropy of the best equal scales is the yardstick: maximal entropy is at least that."""
    model, top = correlation(), (copies + 1) / copies

    def entropy(scales):
        left = np.linalg.eigvalsh(top * model - np.diag(scales))
        return -np.inf if left[0] <= 0 else np.log(left).sum() + copies * np.log(scales).sum()

    scales = knockoff_scales(model, copies)
    assert (scales > 0).all()
    assert np.linalg.eigvalsh(top * model - np.diag(scales))[0] > 0
    equal = max(entropy(np.full(6, value)) for value in np.linspace(0.01, 1, 100))
    assert entropy(scales) >= equal - 1e-6


def test_columns_that_repeat_each_other_get_knockoffs_all_the_same():
    model = shrunk(np.ones((3, 3)), 500)
    scales = knockoff_scales(model, 5)
    assert np.isfinite(scales).all()
    assert (scales > 0).all()


def test_sums_drawn_without_rows_go_as_those_of_knockoffs_of_rows():
    """Means over 400 seeded draws: X~ goes with other columns as X does, and with the label as far as X carries it.

    A mean product of 300 rows has a standard deviation below 0.1, the mean of 400 draws below 0.005; asked: 0.03."""
    rows, copies = 300, 2
    X = chain(rows, 4, 0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = X[:, 0] + np.random.default_rng(1).normal(size=rows)
    joint = np.column_stack([X, (y - y.mean()) / y.std()])
    gram, generator = joint.T @ joint / rows, np.random.default_rng(2)
    draws = [with_knockoffs(gram, 1, rows, copies, generator) for _ in range(400)]
    sums, linear = np.mean([d[0] for d in draws], axis=0), np.mean([d[1] for d in draws], axis=0)
    model = shrunk(gram[:4, :4], rows)
    scales = np.diag(knockoff_scales(model, copies))
    for copy in range(1, copies + 1):
        at = slice(4 * copy, 4 * copy + 4)
        np.testing.assert_allclose(sums[at, at], gram[:4, :4], atol=0.03)
        np.testing.assert_allclose(sums[:4, at], gram[:4, :4] - scales, atol=0.03)
        carried = (np.eye(4) - np.linalg.inv(model) @ scales).T @ gram[:4, 4]
        np.testing.assert_allclose(linear[at, 0], carried, atol=0.03)
    np.testing.assert_allclose(sums[4:8, 8:12], gram[:4, :4] - scales, atol=0.03)
    np.testing.assert_allclose(sums, sums.T, atol=1e-9)


def test_one_draw_is_positive_definite_also_where_rows_are_few():
    for rows in (20, 300):
        X = chain(rows, 5, 0)
        joint = np.column_stack([X, X[:, 0]])
        joint = (joint - joint.mean(axis=0)) / joint.std(axis=0)
        sums, _ = with_knockoffs(joint.T @ joint / rows, 1, rows, 3, np.random.default_rng(0))
        assert np.linalg.eigvalsh(sums)[0] > -1e-9


def test_the_lasso_of_sums_is_that_of_rows():
    X = chain(200, 6, 3)
    y = X[:, 1] - 2 * X[:, 4] + np.random.default_rng(0).normal(size=200)
    expected = Lasso(alpha=0.1, fit_intercept=False, tol=1e-10).fit(X, y).coef_
    found = lasso(X.T @ X / 200, (X.T @ y / 200)[:, None], 0.1)[:, 0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_filter_keeps_columns_that_win_where_knockoffs_seldom_do():
    importance = np.array([[9.0, 8.0, 7.0, 0.1, 0.0], [0.0, 0.1, 0.0, 0.3, 0.0], [0.1, 0.0, 0.0, 0.0, 0.0]])
    winner, margin = contrasts(importance)
    assert winner[:4].tolist() == [0, 0, 0, 1]
    assert discoveries(winner, margin, 2, 0.2).tolist() == [True, True, True, False, False]
    assert not discoveries(winner, margin, 2, 0.1).any()  # 1 / copies of three is more than a tenth
    assert discoveries(winner, margin, 5, 0.1).tolist() == [True, True, True, False, False]


def test_normal_scores_know_ranks_only():
    values = np.array([3.0, np.nan, 1.0, 2.0, 2.0])
    scores = normal_scores(values)
    np.testing.assert_array_equal(scores, normal_scores(np.exp(values)))
    assert np.isnan(scores[1])
    assert scores[3] == scores[4]
    assert scores[2] < scores[3] < scores[0]


# --- the method ------------------------------------------------------------------------------------------------------


def planted(seed=0, rows=600, columns=12):
    X = chain(rows, columns, seed, 0.4)
    y = X[:, 0] - X[:, 5] + X[:, 9] ** 2 + np.random.default_rng(seed + 1).normal(size=rows)
    return pd.DataFrame(X, columns=[f"x{i:02d}" for i in range(columns)]), y


def test_three_parties_have_the_answer_of_one_pooled_table():
    X, y = planted()
    found = [fs.Knockoffs().fit(fs.Federation.split(X, y, parties=parties)).scores_ for parties in (1, 3)]
    one, three = (frame.set_index("feature").sort_index() for frame in found)
    np.testing.assert_allclose(three["score"], one["score"], atol=1e-6)
    assert set(one.index[one["selected"]]) == set(three.index[three["selected"]]) == {"x00", "x05", "x09"}


def test_horizontal_parties_have_the_answer_of_one_pooled_table():
    X, y = planted()
    label = y > np.median(y)
    found = []
    for parties in (2, 3):
        fed = fs.Federation.split(X, label.astype(int), parties=parties, partition="horizontal")
        frame = fs.Knockoffs(squares=False).fit(fed).scores_
        found.append(frame[frame["party"] == "party1"].set_index("feature").sort_index()["score"])
    np.testing.assert_allclose(*found, atol=1e-6)


@pytest.mark.parametrize("kind", ["two", "three", "amount"])
def test_every_kind_of_label(kind):
    X, y = planted(rows=800)
    label = {"two": y > np.median(y), "three": np.digitize(y, np.quantile(y, [1 / 3, 2 / 3])), "amount": y}[kind]
    fitted = fs.Knockoffs().fit(fs.Federation.split(X, label.astype(float if kind == "amount" else int), parties=2))
    kept = {column for columns in fitted.selected_.values() for column in columns}
    assert {"x00", "x05"} <= kept
    assert len(kept - {"x00", "x05", "x09"}) <= 1


def test_a_table_of_noise_has_nothing_to_be_found_in_most_draws():
    """Seeded: of 20 tables without a true column, in how many is something kept? Asked: a rate of 0.1."""
    kept = 0
    for seed in range(20):
        X = pd.DataFrame(np.random.default_rng(seed).normal(size=(200, 8)))
        y = np.random.default_rng(seed + 100).normal(size=200)
        fitted = fs.Knockoffs(random_state=seed).fit(fs.Federation.split(X, y, parties=1))
        found = fitted.selection_.n_selected > 0
        kept += found
        assert any("nothing was kept" in note for note in fitted.ledger_.notes) != found
    assert kept <= 3


def test_columns_that_are_constant_or_no_numbers_take_part_or_not_without_harm(small_fed):
    fitted = fs.Knockoffs(fdr=0.5, open_tables=True).fit(small_fed)
    assert np.isfinite(fitted.scores_["score"]).all()
    score = fitted.scores_.set_index("feature")["score"]
    assert score["constant"] == 0.0


def test_categories_and_columns_of_few_values_are_refused_unless_the_job_says_that_their_tables_are_opened():
    """Of two such columns the exact correlation that the coordinator reads is their table of counts."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(300, 4)), columns=["a", "b", "c", "d"])
    y = X["a"] + rng.normal(size=300)
    few = {"flag": rng.integers(0, 2, 300).astype(float), "town": rng.choice([f"t{i}" for i in range(9)], 300)}
    assert fs.Knockoffs().fit(fs.Federation.split(X, y, parties=2)).selected_
    for name, values in few.items():
        fed = fs.Federation.split(X.assign(**{name: values}), y, parties=2)
        with pytest.raises(OperationRefused, match=f"'{name}'.*tables of counts"):
            fs.Knockoffs().fit(fed)
        assert fs.Knockoffs(open_tables=True).fit(fed).selected_
