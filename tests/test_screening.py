"""Groups of columns first, then columns: what is found, and that only columns of kept groups are ever summed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.audit import record
from fedsift.errors import ParameterError
from fedsift.mpc.column_scores.grouped_f import alike

ROWS, COLUMNS, BLOCK = 300, 120, 6


def wide(seed=0):
    """Blocks of columns that are alike or opposite; the first block tells about the label."""
    rng = np.random.default_rng(seed)
    common = np.repeat(rng.normal(size=(ROWS, COLUMNS // BLOCK)), BLOCK, axis=1)
    X = common * np.where(np.arange(COLUMNS) % 2, -1.0, 1.0) + 0.5 * rng.normal(size=(ROWS, COLUMNS))
    y = (common[:, 0] + common[:, -1] + rng.normal(size=ROWS) > 0).astype(int)
    return pd.DataFrame(X).add_prefix("c"), y


def test_columns_that_are_alike_or_opposite_make_a_group():
    X, _ = wide()
    values = X.to_numpy()
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    group, sign = alike(values.T @ np.random.default_rng(0).normal(size=(ROWS, 64)), BLOCK)
    assert np.bincount(group).max() <= BLOCK
    pure = [len(set(np.flatnonzero(group == g) // BLOCK)) == 1 for g in range(group.max() + 1)]
    assert np.mean(pure) > 0.7
    first = group == group[0]
    turned = values[:, first] * sign[first]
    assert np.corrcoef(turned.T).min() > 0.2


@pytest.mark.parametrize("count", [0, 1, 5, 4100])
def test_every_column_is_in_one_group(count):
    found = np.random.default_rng(0).normal(size=(count, 8))
    found[::7] = 0.0  # constant columns
    group, sign = alike(found, 10)
    assert len(group) == count
    assert set(np.abs(sign)) <= {1.0}
    assert np.bincount(group, minlength=1).max() <= 10


def test_screening_keeps_what_every_column_would_with_exact_scores():
    X, y = wide()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    exact = fs.SFFS(n_features=8).fit(fed)
    screened = fs.SFFS(n_features=8, screen=BLOCK, screen_share=0.3).fit(fed)
    both = exact.scores_.merge(screened.scores_, on=["party", "feature"])
    scored = both.score_y > 0
    assert scored.sum() < 0.5 * COLUMNS
    np.testing.assert_allclose(both.score_x[scored], both.score_y[scored], rtol=1e-6)
    kept = {(p, c) for p, names in screened.selected_.items() for c in names}
    best = {(p, c) for p, names in exact.selected_.items() for c in names}
    assert len(kept & best) >= 7
    assert sum(screened.details_["screened"].values()) == scored.sum()


def test_categories_and_missing_values_are_screened_too():
    X, y = wide()
    X["town"] = np.where(y == 1, "Ulm", "Bonn")
    X["town"] = X["town"].where(np.arange(ROWS) % 11 > 0, None)
    X.loc[::7, "c0"] = np.nan
    X["same"] = 1.0
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    kept = fs.SFFS(n_features=2, screen=4, screen_share=0.3).fit(fed)
    assert "town" in kept.selected_["shop"]


def test_all_groups_going_on_is_every_column():
    X, y = wide(1)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    assert (
        fs.SFFS(n_features=8, screen=4, screen_share=1.0).fit(fed).selected_ == fs.SFFS(n_features=8).fit(fed).selected_
    )


def test_columns_of_groups_that_are_left_are_never_summed():
    X, y = wide()
    seen = record(X, y, fs.SFFS(n_features=4, screen=BLOCK, screen_share=0.2), parties=["bank", "shop"])
    groups = seen["coordinator"].replies("masked_group_sums")
    columns = seen["coordinator"].replies("f_test.masked_class_sums")
    assert len(groups) == len(columns) == 1
    assert len(groups[0].content["owner"]) <= COLUMNS // 2 // BLOCK + 1
    assert len(columns[0].content["owner"]) < 0.4 * COLUMNS


def test_a_job_without_screening_answers_no_sums_of_groups():
    X, y = wide()
    with pytest.raises(fs.FedsiftError, match="comes after"):
        record(X, y, lambda fed: asked_without(fed), parties=["bank", "shop"])


def asked_without(fed):
    from fedsift.mpc.column_scores.grouped_f import columns_of_groups

    with fed.session(*fs.SFFS(n_features=4).announcement()) as run:
        run.ask(columns_of_groups, to="shop", kept=np.arange(3))


@pytest.mark.parametrize(
    ("given", "words"),
    [({"screen": 1}, "screen must be"), ({"screen": 8, "epsilon": 1.0}, "screen or epsilon"),
     ({"screen": 8, "screen_share": 0.0}, "screen_share")],
)  # fmt: skip
def test_settings_are_checked(given, words):
    X, y = wide()
    with pytest.raises(ParameterError, match=words):
        fs.SFFS(n_features=4, **given).fit(fs.Federation.split(X, y, parties=2))
