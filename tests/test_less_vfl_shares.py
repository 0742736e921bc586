"""LESS-VFL in its protected form: noise goes, what is real stays, a party hears bits, and an empty answer says why."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from test_less_vfl import kept, noisy

import fedsift as fs
from fedsift.errors import OperationRefused, ParameterError
from fedsift.select.less_vfl import matching
from fedsift.select.less_vfl.matching import cheapest_match, group_lasso
from fedsift.select.less_vfl.screening import label_screen
from fedsift.select.less_vfl.selector import LessVFL

QUICK = {"epochs": 2, "width": 4}


def test_noise_goes_and_what_is_real_stays():
    fed = noisy(n=600, real=12, noise=60)
    selector = LessVFL(**QUICK).fit(fed)
    assert kept(selector, "real") == 12
    assert kept(selector, "noise") <= 3
    assert LessVFL(epochs=15, width=8).fit(fed).network_.score(fed) > 0.85


def test_the_screen_s_p_values_are_those_of_an_f_test_in_the_clear():
    from scipy.stats import f_oneway

    fed = noisy()
    found = label_screen(fed, "auto")
    rng = np.random.default_rng(0)  # as noisy() draws
    y = rng.integers(0, 2, 400)
    columns = {f"real{i}": y * 1.2 + rng.normal(size=400) for i in range(6)}
    columns |= {f"noise{i}": rng.normal(size=400) for i in range(9)}
    for name, p in found.items():
        for column, value in zip(fed.column_names()[name], p):
            true = f_oneway(columns[column][y == 0], columns[column][y == 1]).pvalue
            assert np.log10(max(value, 1e-300)) == pytest.approx(np.log10(true), rel=0.1, abs=0.05)


def spread_only(n=400):
    """A column that differs between the classes in its spread alone."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, n)
    tables = {
        "a": pd.DataFrame({"mean": y + rng.normal(size=n), "y": y}),
        "b": pd.DataFrame({"spread": rng.normal(size=n) * (1 + 2 * y), "noise": rng.normal(size=n)}),
    }
    return fs.Federation.from_tables(tables, id=None, label=("a", "y"))


def test_squares_find_a_column_that_differs_in_its_spread():
    assert LessVFL(**QUICK).fit(spread_only()).selected_ == {"a": ["mean"], "b": ["spread"]}
    assert LessVFL(**QUICK, squares=False).fit(spread_only()).selected_ == {"a": ["mean"], "b": []}


def test_columns_that_others_explain_are_dropped_by_their_party():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 500)
    base = y * 1.5 + rng.normal(size=500)
    tables = {
        "p0": pd.DataFrame({"other": y + rng.normal(size=500), "y": y}),
        "p1": pd.DataFrame({f"copy{i}": base + 0.05 * rng.normal(size=500) for i in range(6)}),
    }
    fed = fs.Federation.from_tables(tables, id=None, label=("p0", "y"))
    few = LessVFL(**QUICK).fit(fed)
    assert 1 <= len(few.selected_["p1"]) < 6
    assert few.details_["columns_passed"]["p1"] == 6
    assert few.details_["components_explained"]["p1"] >= 0.9
    assert len(LessVFL(**QUICK, match=1.0).fit(fed).selected_["p1"]) == 6


def test_a_party_hears_bits_and_the_wire_carries_no_row():
    selector = LessVFL(**QUICK).fit(noisy())
    frame = selector.ledger_.frame()
    assert set(frame[frame.form == "plain"].operation) == {"core.share_names"}
    told = frame[(frame.operation == "less_vfl.match_components") & (frame.sender == "coordinator")]
    assert told.bytes.max() < 600  # five bits and two settings
    assert selector.details_["bytes"]["selection"] < 300_000
    assert not frame.operation.str.startswith("network.").any()


def test_the_same_seed_gives_the_same_selection():
    first, second = (LessVFL(**QUICK, random_state=4).fit(noisy()) for _ in range(2))
    pd.testing.assert_frame_equal(first.scores_, second.scores_)
    assert first.selected_ == second.selected_


def test_an_empty_answer_says_why_and_what_to_do_and_the_network_answers_with_the_mean():
    rng = np.random.default_rng(1)
    tables = {
        "a": pd.DataFrame(rng.normal(size=(60, 2)), columns=["u", "v"]),
        "b": pd.DataFrame({"w": rng.normal(size=60)}),
    }
    tables["a"]["y"] = np.arange(60) % 3 == 0
    fed = fs.Federation.from_tables(tables, id=None, label=("a", "y"))
    with pytest.warns(UserWarning, match=r"LessVFL keeps no column: over 60 rows none of 3 columns.*What helps: more"):
        selector = LessVFL(**QUICK, screen_level=1e-9).fit(fed)
    assert not any(selector.selected_.values())
    assert any("keeps no column" in note for note in selector.ledger_.notes)
    held = fed.rows(train=0.5, random_state=0)[1]
    assert selector.network_.score(held) == pytest.approx(2 / 3, abs=0.05)


def test_a_message_with_another_number_of_bits_is_refused():
    fed = noisy()
    with pytest.raises(OperationRefused, match="one bit for each column"), fed.session() as run:
        run.ask(matching.match_components, to="p1", passed=np.ones(3, dtype=bool), share=0.9, seed=0)


def test_group_lasso_s_minimum_meets_its_conditions():
    """At the minimum a kept group's gradient is -penalty times its direction, and a dropped one's is shorter."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(200, 8)) @ rng.normal(size=(8, 8))
    groups = np.array([0, 0, 1, 2, 2, 3, 4, 4])
    gram, cross = x.T @ x / 200, x.T @ (x[:, :2] + rng.normal(size=(200, 2))) / 200
    weights = np.zeros_like(cross)
    for _ in range(20):
        weights = group_lasso(gram, cross, weights, groups, 1.5)
    gradient = gram @ weights - cross
    kinds = set()
    for group in range(5):
        mine, norm = gradient[groups == group], np.linalg.norm(weights[groups == group])
        kinds.add(norm > 0)
        if norm > 0:
            np.testing.assert_allclose(mine, -1.5 * weights[groups == group] / norm, atol=0.02)
        else:
            assert np.linalg.norm(mine) <= 1.5 + 0.02
    assert kinds == {True, False}


def test_the_cheapest_match_takes_all_where_no_fewer_explain_enough():
    x = np.random.default_rng(0).normal(size=(300, 5))
    assert cheapest_match(x, np.arange(5), 1.0, np.random.default_rng(0)).kept.all()


@pytest.mark.parametrize(
    ("change", "word"), [({"match": 2}, "match"), ({"protection": "lattice"}, "protection"), ({"width": 1}, "width")]
)
def test_wrong_parameters_are_named_before_anything_is_sent(change, word):
    fed = noisy(50)
    mark = len(fed.ledger)
    with pytest.raises(ParameterError, match=word):
        LessVFL(**change).fit(fed)
    assert len(fed.ledger) == mark
