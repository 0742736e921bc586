"""Splits for simulations: every column and row goes to exactly one party, and none is left empty-handed."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.core.splits import column_groups, duplicate_columns, row_groups, train_test_rows
from fedsift.errors import ParameterError


def assert_partition(groups, n, parties):
    assert len(groups) == parties
    assert all(len(group) for group in groups)
    np.testing.assert_array_equal(np.sort(np.concatenate(groups)), np.arange(n))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["equal", "random", "lognormal"]), st.integers(1, 20), st.integers(0, 2**31))
def test_no_column_is_lost_or_held_twice(data, how, parties, seed):
    n = data.draw(st.integers(parties, 200))
    assert_partition(column_groups(n, parties, how, seed), n, parties)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["equal", "unequal", "target"]), st.integers(1, 7), st.integers(0, 2**31))
def test_no_row_is_lost_or_held_twice(data, how, parties, seed):
    n = data.draw(st.integers(2 ** (parties - 1), 150))
    y = data.draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=n, max_size=n))
    assert_partition(row_groups(n, parties, how, y=y, random_state=seed), n, parties)


def test_lognormal_counts_are_as_uneven_as_the_paper_wants():
    sizes = np.array([[len(g) for g in column_groups(2000, 20, "lognormal", seed)] for seed in range(20)])
    assert sizes.min() == 1
    assert np.median(sizes.max(axis=1)) > 600  # sigma 2: one of 20 parties typically holds more than a third
    even = [len(g) for g in column_groups(2000, 20, "lognormal", 0, sigma=0.0)]
    assert max(even) - min(even) <= 1


def test_equal_columns_keep_their_order_and_random_ones_do_not():
    assert [g.tolist() for g in column_groups(5, 2)] == [[0, 1, 2], [3, 4]]
    assert [len(g) for g in column_groups(50, 4, "random", 0)] == [13, 13, 12, 12]
    assert column_groups(50, 2, "random", 0)[0].tolist() != list(range(25))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(0, 2**31))
def test_copies_come_from_other_parties_and_only_some_get_them(parties, seed):
    groups = column_groups(60, parties, "lognormal", seed)
    more = duplicate_columns(groups, 0.5, 0.5, seed)
    grown = [party for party in range(parties) if len(more[party]) > len(groups[party])]
    assert len(grown) == int(parties / 2 + 0.5)
    for party in range(parties):
        own, copies = more[party][: len(groups[party])], more[party][len(groups[party]) :]
        np.testing.assert_array_equal(own, groups[party])
        assert not set(copies) & set(own)
        assert len(set(copies)) == len(copies)
        if party in grown:
            others = 60 - len(own)
            assert len(copies) == min(others, max(1, int(len(own) / 2 + 0.5)))


def test_without_shares_nothing_is_copied():
    groups = column_groups(10, 2)
    assert [g.tolist() for g in duplicate_columns(groups, 0.0)] == [g.tolist() for g in groups]


def test_unequal_rows_are_half_a_quarter_and_so_on():
    assert [len(g) for g in row_groups(1024, 8, "unequal", random_state=0)] == [512, 256, 128, 64, 32, 16, 8, 8]


def test_an_amount_is_cut_into_equally_long_intervals():
    y = np.linspace(10.0, 20.0, 100)
    groups = row_groups(100, 4, "target", y=y, random_state=0)
    for party, group in enumerate(groups):
        assert y[group].min() >= 10 + 2.5 * party
        assert y[group].max() <= 10 + 2.5 * (party + 1)


def test_by_target_parties_differ_in_class_but_none_has_one_class_only():
    few = np.array(["no"] * 60 + ["yes"] * 20)
    assert all(len(set(few[group])) == 2 for group in row_groups(80, 8, "target", y=few, random_state=0))
    y = np.array(["no"] * 300 + ["yes"] * 100)
    groups = row_groups(400, 8, "target", y=y, random_state=0)
    shares = [np.mean(y[group] == "yes") for group in groups]
    assert min(shares) < 0.1
    assert max(shares) > 0.9
    assert all(0 < share < 1 for share in shares)
    assert any(len(set(y[g])) == 1 for g in row_groups(400, 8, "target", y=y, random_state=0, mix=0))


def test_clusters_of_rows_stay_together_whatever_the_scale_and_the_gaps():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 90)
    telling = truth[:, None] + rng.normal(0, 0.05, (90, 4))
    telling[rng.random((90, 4)) < 0.03] = np.nan
    X = np.column_stack([telling, 1e6 * rng.normal(0, 1, 90), np.full(90, np.nan)])
    groups = row_groups(90, 3, "kmeans", X=X, random_state=0)
    assert_partition(groups, 90, 3)
    assert all(len(set(truth[group])) == 1 for group in groups)


@pytest.mark.parametrize("stratify", [False, True])
def test_train_and_test_rows_never_overlap(stratify):
    y = np.array([0] * 70 + [1] * 25 + [2] * 5)
    train, test = train_test_rows(100, 0.7, y if stratify else None, random_state=3)
    assert_partition([train, test], 100, 2)
    assert len(train) == 70
    if stratify:
        assert np.bincount(y[train]).tolist() in ([49, 17, 4], [49, 18, 3])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from("abcde"), min_size=4, max_size=40), st.floats(0.2, 0.8), st.integers(0, 2**31))
def test_stratified_classes_are_on_both_sides_when_there_is_room(labels, share, seed):
    y, n = np.array(labels), len(labels)
    train, test = train_test_rows(n, share, y, random_state=seed)
    assert_partition([train, test], n, 2)
    assert len(train) == int(np.floor(share * n + 0.5))
    _, counts = np.unique(y, return_counts=True)
    shared = int((counts >= 2).sum())
    if shared <= min(len(train), len(test)) and (counts >= 2).all():
        assert set(y[train]) == set(y[test]) == set(y)


def test_a_rare_class_is_not_used_up_by_rounding():
    y = np.array(list("aabbcccccc"))
    for seed in range(5):
        train, test = train_test_rows(10, 0.7, y, random_state=seed)
        assert set(y[train]) == set(y[test]) == set("abc")


def test_amounts_are_stratified_by_their_order():
    y = np.arange(200) ** 1.5 + 0.5
    train, _ = train_test_rows(200, 0.5, y, random_state=0)
    assert np.histogram(train, bins=10, range=(0, 200))[0].tolist() == [10] * 10


def test_the_same_seed_gives_the_same_split_and_another_does_not():
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = X[:, 0]
    calls = [
        lambda seed: column_groups(60, 4, "lognormal", seed),
        lambda seed: duplicate_columns(column_groups(60, 4), random_state=seed),
        lambda seed: row_groups(60, 4, "equal", random_state=seed),
        lambda seed: row_groups(60, 4, "unequal", random_state=seed),
        lambda seed: row_groups(60, 4, "target", y=y > 0, random_state=seed),
        lambda seed: train_test_rows(60, 0.5, y > 0, random_state=seed),
    ]
    for call in calls:
        first, again, other = (np.concatenate(call(seed)).tolist() for seed in (1, 1, 2))
        assert first == again
        assert first != other
    first, again = (np.concatenate(row_groups(60, 4, "kmeans", X=X, random_state=1)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    column_groups(9, 3, "random", np.random.RandomState(0))
    column_groups(9, 3, "random", np.random.default_rng(0))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: column_groups(3, 5), "3 columns.*5 parties.*at most 3"),
        (lambda: column_groups(3, 0), "parties=0"),
        (lambda: column_groups(9, 3, "evenly"), "evenly.*'lognormal'"),
        (lambda: column_groups(9, 3, "random", "seed"), "random_state='seed'"),
        (lambda: duplicate_columns([np.arange(3)]), "another party"),
        (lambda: duplicate_columns([np.arange(3)] * 2, share_columns=1.5), "share_columns=1.5"),
        (lambda: row_groups(3, 5), "3 rows.*5 parties"),
        (lambda: row_groups(20, 8, "unequal"), "8 parties.*at most 6 parties"),
        (lambda: row_groups(20, 2, "target"), "needs y"),
        (lambda: row_groups(20, 2, "target", y=[1] * 19), "19 entries for 20 rows"),
        (lambda: row_groups(3, 2, "target", y=["a", None, "b"]), "missing values"),
        (lambda: row_groups(41, 3, "target", y=[*np.linspace(0, 1, 40), 9.5]), "no rows.*2 parties are possible"),
        (lambda: row_groups(20, 2, "kmeans"), "needs X"),
        (lambda: row_groups(3, 2, "kmeans", X=np.ones((3, 2))), "2 different rows.*X has 1"),
        (lambda: row_groups(2, 2, "kmeans", X=pd.DataFrame({"t": ["u", "v"]})), "numbers only"),
        (lambda: row_groups(20, 2, "cluster"), "cluster"),
        (lambda: train_test_rows(10, 1.5), "train=1.5"),
        (lambda: train_test_rows(10, 10), "10 to train and 0 to test"),
        (lambda: train_test_rows(10, 0.01), "0 to train"),
        (lambda: train_test_rows(10, True), "train=True"),
    ],
)
def test_an_impossible_split_says_what_is_possible(call, words):
    with pytest.raises(ParameterError, match=words):
        call()
