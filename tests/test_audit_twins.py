"""Every attack finds the landed behaviour that it was written for, at about the figures of the first review.

The operations with that behaviour are in ``leaky/``; they stay when the shipped ones are mended. Each test names the
line of the first table of the review that it repeats.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from leaky import draws, gini, jobs, scores, sizes, sums
from sklearn.datasets import load_breast_cancer

import fedsift as fs
from fedsift.audit import Truth, attacks_on, load_attacks, record
from fedsift.audit.attacks.folds import ask_for_draws, ask_for_many_folds
from fedsift.audit.views import Fresh

ATTACKS = load_attacks()


@pytest.fixture(scope="module")
def wdbc():
    return load_breast_cancer(return_X_y=True)


def wide_table(rows: int = 60, columns: int = 160, seed: int = 0):
    """Short and wide, as expression data are: a fifth of the columns tells about the label."""
    rng = np.random.default_rng(seed)
    y = (np.arange(rows) < round(rows * 0.4)).astype(int)
    rng.shuffle(y)
    X = rng.normal(size=(rows, columns))
    X[:, ::5] += 0.8 * y[:, None] * rng.normal(size=X[:, ::5].shape[1])
    return X, y


def attacked(name: str, view, truth):
    """The exposure; and the attack must have found it in the view: against another truth of the same sizes it fails."""
    assert ATTACKS[name] in attacks_on(view.operations, view.role)
    found = ATTACKS[name].run(view, truth)
    elsewhere = ATTACKS[name].run(view, another(truth))
    assert elsewhere.value < max(found.value - 0.15, found.guess + 0.1), "it read the truth"
    return found


def another(truth: Truth) -> Truth:
    """Labels shuffled over the rows, each column too, and the columns of the public sample in another order."""
    rng = np.random.default_rng(5)
    columns = {name: rng.permuted(values, axis=0) for name, values in truth.columns.items()}
    fresh = truth.fresh and Fresh({n: v[:, ::-1] for n, v in truth.fresh.columns.items()}, truth.fresh.labels)
    return Truth(rng.permutation(truth.labels), columns, fresh)


def test_line_1_fold_masks_tell_most_labels_after_one_run(wdbc):
    seen = record(*wdbc, draws.cross_validation([0]), parties=["bank", "shop"])
    for name, view in (("fold_masks_at_party", seen["shop"]), ("fold_masks_at_coordinator", seen["coordinator"])):
        found = attacked(name, view, seen.truth)
        assert found.value > 0.84
        assert found.guess == pytest.approx(0.627, abs=0.001)


def test_line_1_three_runs_tell_nearly_all_labels(wdbc):
    seen = record(*wdbc, draws.cross_validation([0, 1, 2]), parties=["bank", "shop"])
    assert attacked("fold_masks_at_party", seen["shop"], seen.truth).value > 0.97


def test_line_2_draws_under_chosen_seeds_tell_all_labels(wdbc):
    X, y = wdbc
    order = np.random.default_rng(3).permutation(len(y))
    seen = record(X[order], y[order], ask_for_draws(draws.draw_rows, calls=24), parties=["bank", "shop"])
    assert attacked("chosen_seeds", seen["coordinator"], seen.truth).value == 1.0


def test_line_2_a_fold_a_row_tells_all_labels_in_one_request(wdbc):
    seen = record(*wdbc, ask_for_many_folds(draws.draw_folds), parties=["bank", "shop"])
    assert attacked("as_many_folds_as_rows", seen["coordinator"], seen.truth).value == 1.0


def test_line_3_one_split_ranks_the_labels(wdbc):
    seen = record(*wdbc, draws.one_split, parties=["bank", "shop"])
    assert attacked("one_split_at_party", seen["shop"], seen.truth).value > 0.77
    seen = record(*wdbc, draws.early_stopping, parties=["bank", "shop"])
    assert attacked("early_stopping_rows", seen["shop"], seen.truth).value > 0.77


@pytest.mark.parametrize("method", ["sffs", "information_value", "gini"])
def test_line_6_exact_scores_tell_all_labels_of_a_wide_table(method):
    seen = record(*wide_table(), scores.told(method), parties=["bank", "shop"])
    assert seen["shop"].columns.shape == (60, 80)
    found = attacked("scores_of_result", seen["shop"], seen.truth)
    assert found.value == 1.0
    assert found.baseline < 0.9


def test_line_6_relevance_and_impurities_tell_all_labels():
    seen = record(*wide_table(), scores.told("muse", "preselect"), parties=["bank", "shop"])
    assert attacked("relevance_of_columns", seen["shop"], seen.truth).value == 1.0
    seen = record(*wide_table(), scores.told("gini", "take_importance"), parties=["bank", "shop"])
    assert attacked("impurity_of_columns", seen["shop"], seen.truth).value == 1.0


def test_line_6_two_digits_or_ranks_of_many_columns_still_tell_the_labels():
    X, y = wide_table(columns=400)
    seen = record(X, y, scores.told("sffs"), parties=["bank", "shop"])
    assert attacked("rounded_scores_of_result", seen["shop"], seen.truth).value > 0.9
    assert attacked("ranks_of_result", seen["shop"], seen.truth).value > 0.9


def test_line_6_few_scores_tell_little(wdbc):
    _, y = wdbc
    rows = np.random.default_rng(0).permutation(len(y))[:150]
    noise = np.random.default_rng(1).normal(size=(150, 12))
    seen = record(noise, y[rows], scores.told("sffs"), parties=["bank", "shop"])
    assert attacked("scores_of_result", seen["shop"], seen.truth).value < 0.75


@pytest.mark.parametrize(
    ("operation", "attack"),
    [
        (sums.inner_products, "first_gradient"),
        (sums.weigh_rows, "first_duals"),
        (sums.partial_scores, "first_coefficients"),
    ],
)
def test_line_7_sums_over_own_columns_tell_all_labels(operation, attack):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 90))
    y = (X[:, 45:] @ rng.normal(size=45) > 0).astype(int)
    seen = record(X, y, sums.one_step(operation), parties=["bank", "shop"], every_step=True)
    assert seen["shop"].columns.shape == (120, 45)  # far fewer columns than rows
    assert attacked(attack, seen["shop"], seen.truth).value == 1.0


def test_line_7_few_sums_over_unrelated_columns_tell_little():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 20)), rng.integers(0, 2, 120)
    seen = record(X, y, sums.one_step(sums.inner_products), parties=["bank", "shop"], every_step=True)
    assert attacked("first_gradient", seen["shop"], seen.truth).value < 0.8


def test_line_11_the_integer_gives_the_whole_table():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    X = (rng.random((200, 10)) < 0.3 + 0.3 * y[:, None] * rng.random(10)).astype(float)
    seen = record(X, y, gini.impurities, parties=["bank", "shop"])
    found = attacked("integers_give_tables", seen["bank"], seen.truth)
    assert found.value == 1.0
    assert "5 of 5" in found.note


def test_line_14_bin_sizes_name_the_columns():
    rng = np.random.default_rng(0)
    rates = np.geomspace(0.3, 8.0, 18)
    X, other = rng.poisson(rates, size=(2000, 18)), rng.poisson(rates, size=(1000, 18))
    y, other_y = rng.integers(0, 2, 2000), rng.integers(0, 2, 1000)
    seen = record(X, y, sizes.sizes_told, parties=["bank", "shop"], fresh=(other, other_y))
    assert attacked("sizes_name_columns", seen["coordinator"], seen.truth).value > 0.75


def test_line_14_needs_a_public_sample_and_never_the_rows_themselves():
    X, y = np.random.default_rng(0).poisson(3.0, size=(300, 8)), np.arange(300) % 2
    seen = record(X, y, sizes.sizes_told, parties=["bank", "shop"])
    found = attacked("sizes_name_columns", seen["coordinator"], seen.truth)
    assert found.value == 0.0
    assert found.note.startswith("nothing to read")


def test_line_15_two_jobs_tell_the_row_between_them(wdbc):
    X, y = wdbc
    rows = np.random.default_rng(1).permutation(len(y))[:120]
    seen = record(X[rows][:, ::2], y[rows], jobs.with_and_without(range(0, 48, 4)), parties=["bank", "shop"])
    assert attacked("label_of_row_left_out", seen["shop"], seen.truth).value == 1.0
    assert attacked("values_of_row_left_out", seen["bank"], seen.truth).value > 0.8


def test_the_control_is_given_the_class_names_too():
    """A labeling found the wrong way round is turned before fresh rows are predicted from it."""
    rng = np.random.default_rng(2)
    y, fresh_y = (rng.permutation(np.arange(n) % 2) for n in (60, 300))
    X, fresh = (v[:, None] * 1.5 + rng.normal(size=(len(v), 160)) for v in (y, fresh_y))
    for labels, others in ((y, fresh_y), (1 - y, 1 - fresh_y)):
        seen = record(X, labels, scores.told("sffs"), parties=["bank", "shop"], fresh=(fresh, others))
        found = attacked("scores_of_result", seen["shop"], seen.truth)
        assert found.value == 1.0
        assert found.control > 0.9


def test_class_sums_are_read_where_a_party_has_categories():
    """A column of categories is summed as one a category; the attack read nothing of such a party."""

    def drawn(seed, rows):
        rng = np.random.default_rng(seed)
        X = pd.DataFrame({name: rng.normal(size=rows) for name in "abcd"})
        X["colour"] = rng.choice(["red", "green", "blue"], rows, p=[0.6, 0.3, 0.1])
        y = (X["c"] + 2.0 * (X["colour"] == "blue") + 0.5 * X["d"] > 0.3).astype(int)
        return X, y

    seen = record(*drawn(0, 600), fs.SFFS(n_features=2), parties=["bank", "shop"], fresh=drawn(1, 600))
    assert [len(places) for places in seen.truth.coded.values()] == [0, 1]
    wide, fresh = seen.truth.indicators("shop")
    assert wide.shape[1] == fresh.shape[1] == seen.truth.columns["shop"].shape[1] + 2
    found = load_attacks()["class_sums_name_columns"].run(seen["coordinator"], seen.truth)
    assert not found.note.startswith("nothing to read")
    assert found.value > found.guess
