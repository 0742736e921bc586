"""Groups of columns first, then columns: what is found, and that only columns of kept groups are ever summed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_selection import f_classif

import fedsift as fs
from fedsift.audit import record
from fedsift.audit.attacks.coarse_bits import bits_name_columns, bits_tell_members
from fedsift.audit.opened_at_coordinator import opened_bits
from fedsift.errors import ParameterError
from fedsift.mpc.column_scores.coarse_f import LEAST_ROWS, encrypt_for_bits, f_of_bits
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
    [({"screen": 1}, "screen must be"), ({"screen": "fine"}, "screen must be"),
     ({"screen": 8, "epsilon": 1.0}, "screen or epsilon"), ({"screen": 8, "screen_share": 0.0}, "screen_share")],
)  # fmt: skip
def test_settings_are_checked(given, words):
    X, y = wide()
    with pytest.raises(ParameterError, match=words):
        fs.SFFS(n_features=4, **given).fit(fs.Federation.split(X, y, parties=2))


# --- every column coarsely -------------------------------------------------------------------------------------------


def scattered(seed=0, rows=800, columns=300):
    """Columns that have nothing in common; the first five of each party tell about the label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    telling = [*range(5), *range(columns // 2, columns // 2 + 5)]
    y = (X[:, telling].sum(axis=1) + 2.0 * rng.normal(size=rows) > 0).astype(int)
    return pd.DataFrame(X).add_prefix("c"), y


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("rows", [90, 400])
def test_the_f_statistic_of_bits_is_that_of_the_columns_cut_at_their_means(classes, rows):
    rng = np.random.default_rng(classes + rows)
    X, y = rng.normal(size=(rows, 6)), rng.integers(0, classes, rows)
    X[:, 0] += y
    bits = np.greater(X, X.mean(axis=0)).astype(int)
    sizes = np.bincount(y, minlength=classes)
    counts = np.stack([bits[y == k].sum(axis=0) for k in range(classes - 1)], axis=1)
    np.testing.assert_allclose(f_of_bits(counts, bits.sum(axis=0), sizes), f_classif(bits, y)[0], rtol=1e-9)


def test_the_coordinator_opens_the_counts_of_the_plain_table():
    X, y = scattered(rows=300, columns=40)
    seen = record(X, y, fs.SFFS(n_features=4, screen="coarse", screen_share=0.2), parties=["bank", "shop"])
    reply = seen["coordinator"].replies("f_test.masked_bit_sums")[0].content
    shop = X.iloc[:, 20:].to_numpy()
    above = shop > shop.mean(axis=0)
    np.testing.assert_array_equal(reply["above"], above.sum(axis=0))
    own = seen["coordinator"].replies("f_test.open_bit_sums")[0].content
    bank = X.iloc[:, :20].to_numpy()
    np.testing.assert_array_equal(own["own"][:, 0], (bank > bank.mean(axis=0))[y == 0].sum(axis=0))


def test_independent_columns_are_found_coarsely_where_groups_miss_them():
    X, y = scattered()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    best = {(p, c) for p, names in fs.SFFS(n_features=10).fit(fed).selected_.items() for c in names}
    found = {}
    for screen in ("coarse", 10):
        fitted = fs.SFFS(n_features=10, screen=screen, screen_share=0.1).fit(fed)
        found[screen] = len(best & {(p, c) for p, names in fitted.selected_.items() for c in names})
        assert sum(fitted.details_["screened"].values()) <= 0.15 * X.shape[1]
    assert found["coarse"] >= 9
    assert found["coarse"] > found[10]


def test_scores_of_columns_that_go_on_are_those_of_every_column():
    X, y = scattered()
    X["town"] = np.where((y == 1) ^ (np.arange(len(y)) % 5 == 0), "Ulm", "Bonn")
    X.loc[::7, "c0"] = np.nan
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    both = fs.SFFS(n_features=10).fit(fed).scores_.merge(
        fs.SFFS(n_features=10, screen="coarse", screen_share=0.1).fit(fed).scores_, on=["party", "feature"]
    )  # fmt: skip
    scored = both.score_y > 0
    np.testing.assert_allclose(both.score_x[scored], both.score_y[scored], rtol=1e-6)
    assert {"c0", "town"} <= set(both.feature[scored])


def test_no_cut_parts_a_few_rows_from_the_others():
    """A far value would be alone above the mean, with its label: the median cuts there. Rare values are not cut out."""
    X, y = scattered(rows=300, columns=40)
    X["far"] = X["c0"].where(np.arange(300) != 7, 1e6)
    X["rare"] = (np.arange(300) < 4).astype(float)
    X["same"] = 1.0
    seen = record(X, y, fs.SFFS(n_features=4, screen="coarse"), parties=["bank", "shop"])
    above = seen["coordinator"].replies("f_test.masked_bit_sums")[0].content["above"]
    own = seen["coordinator"].replies("f_test.open_bit_sums")[0].content["above"]
    every = np.concatenate([own, above])
    assert ((every == 0) | ((every >= LEAST_ROWS) & (every <= 300 - LEAST_ROWS))).all()
    assert (every == 0).sum() == 2
    assert above[-3] == 150


def test_a_job_that_does_not_screen_coarsely_answers_no_counts():
    X, y = scattered(rows=100, columns=10)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    for given in ({}, {"screen": 4}):
        with (
            fed.session(*fs.SFFS(n_features=4, **given).announcement()) as run,
            pytest.raises(fs.FedsiftError, match="does not screen columns coarsely"),
        ):
            run.ask(encrypt_for_bits, to="bank", scheme="auto", task="classification", answers=5)


def test_the_audit_reads_what_the_first_pass_opens():
    """Label counts of the halves of columns are sums over people: an attack that knows a public sample reads them."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 900))).add_prefix("c")
    y = rng.integers(0, 2, 60)
    fresh = pd.DataFrame(rng.normal(size=(400, 900))).add_prefix("c"), rng.integers(0, 2, 400)
    seen = record(
        X, y, fs.SFFS(n_features=4, screen="coarse", screen_share=0.01), parties=["bank", "shop"], fresh=fresh
    )
    opened = list(opened_bits(seen["coordinator"]))
    assert len(opened) == 1
    shop = X.iloc[:, 450:].to_numpy()
    above = shop > shop.mean(axis=0)
    np.testing.assert_array_equal(opened[0].sums[1::2, 0], above[y == 0].sum(axis=0))
    np.testing.assert_array_equal(opened[0].sizes[::2], 60 - above.sum(axis=0))
    found = bits_tell_members.run(seen["coordinator"], seen.truth)
    assert found.value > 0.75  # sixty rows and 450 columns: who took part shows
    assert found.control is None or found.control < 0.65


def test_columns_that_are_above_their_means_by_different_shares_are_named_by_it():
    rng = np.random.default_rng(1)
    shares = np.tile(np.linspace(0.05, 0.95, 12), 2)
    X, fresh = (pd.DataFrame((rng.random((3000, 24)) < shares).astype(float)).add_prefix("c") for _ in range(2))
    y, other = rng.integers(0, 2, 3000), rng.integers(0, 2, 3000)
    seen = record(X, y, fs.SFFS(n_features=4, screen="coarse"), parties=["bank", "shop"], fresh=(fresh, other))
    assert bits_name_columns.run(seen["coordinator"], seen.truth).value > 0.9
