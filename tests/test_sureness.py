"""How sure: p-values and false-discovery rates beside scores equal scipy's, and noise is called noise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency, false_discovery_control

import fedsift as fs
from fedsift.methods import METHODS
from fedsift.mpc.column_scores.label_tables import ColumnTables
from fedsift.report import render_html, render_text, summarize
from fedsift.report.record import Report
from fedsift.select.filters.information_value import information_value
from fedsift.select.sureness import copies_of, f_p_values, f_reaches, false_discovery, independence, leaks_of


def test_the_p_value_of_a_table_is_that_of_scipys_test():
    generator = np.random.default_rng(0)
    for _ in range(20):
        table = generator.integers(1, 40, size=(generator.integers(2, 8), generator.integers(2, 5)))
        assert independence(table) == pytest.approx(chi2_contingency(table, correction=False).pvalue, rel=1e-9)
    assert independence(np.array([[3, 4]])) == 1.0
    assert independence(np.array([[3, 0], [4, 0]])) == 1.0


def test_false_discovery_rates_are_those_of_scipy():
    p = np.random.default_rng(1).random(50) ** 3
    assert false_discovery(p) == pytest.approx(false_discovery_control(p), rel=1e-12)


@pytest.fixture(scope="module")
def fitted():
    generator = np.random.default_rng(2)
    X = pd.DataFrame(generator.normal(size=(300, 6)), columns=["income", "n1", "n2", "basket", "n3", "n4"])
    y = (X["income"] + X["basket"] > 0).astype(int)
    return fs.InformationValue(n_features=3).fit(fs.Federation.split(X, y, parties=["bank", "shop"]))


def test_what_is_related_is_told_from_noise_and_a_kept_noise_column_is_named(fitted):
    record = summarize(fitted)
    rows = {row.feature: row for row in Report.read(record).answer.scores}
    assert rows["income"].q < 1e-6 > rows["basket"].q
    assert all(row.p <= row.q for row in rows.values())
    noise = next(row for row in rows.values() if row.selected and row.feature.startswith("n"))
    text = render_text(record)
    assert ("not told from noise" in text) == (noise.q > 0.05)
    assert ">FDR<" in render_html(record)


def test_a_partys_own_report_has_no_p_value_and_neither_has_noise(fitted):
    own = Report.read(summarize(fitted, party="shop"))
    assert all(row.p is None for row in own.answer.scores)
    X = pd.DataFrame(np.random.default_rng(3).normal(size=(200, 4)), columns=list("abcd"))
    fed = fs.Federation.split(X, (X["a"] > 0).astype(int), parties=["bank", "shop"])
    noisy = fs.InformationValue(n_features=2, epsilon=2.0).fit(fed)
    assert "p_values" not in noisy.details_


# --- every filter ----------------------------------------------------------------------------------------------------

FILTERS = {"iv": fs.InformationValue, "iv as it is": fs.InformationValue, "gini": fs.GiniFilter, "sffs": fs.SFFS}
AS_IT_IS = {"iv as it is": {"bias_correction": False}}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("classes", [2, 3])
def test_noise_passes_the_floor_in_about_one_run_of_twenty_and_p_values_are_even(name, classes):
    generator = np.random.default_rng(5)
    highest, p = [], []
    for _ in range(20):
        X = pd.DataFrame(generator.normal(size=(400, 6)))
        X[5] = generator.integers(0, 5, 400).astype(float)  # few values
        y = generator.choice(classes, 400, p=[0.7, 0.3] if classes == 2 else [0.5, 0.3, 0.2])
        fed = fs.Federation.split(X, y, parties=2)
        fitted = FILTERS[name](n_features=1, **AS_IT_IS.get(name, {})).fit(fed)
        highest.append(fitted.scores_["score"].max() > fitted.details_["sure"]["noise_floor"])
        p += [value for values in fitted.details_["p_values"].values() for value in values]
    assert sum(highest) <= 5  # at a rate of 0.05, six of 20 are five deviations away
    assert 0.5 - 0.15 < np.mean(p) < 0.5 + 0.15
    assert 0.0 < np.mean(np.array(p) < 0.1) < 0.25


def test_the_floor_is_near_what_noise_does_and_not_far_above():
    """The highest of many null tables reaches it about as often as is said: a floor of infinity would be safe, too."""
    generator = np.random.default_rng(6)
    y = generator.random(1000) < 0.3
    fed = fs.Federation.split(generator.normal(size=(1000, 20)), y, parties=2)
    for name, make in FILTERS.items():
        fitted = make(n_features=1, **AS_IT_IS.get(name, {})).fit(fed)
        scores = fitted.scores_["score"]
        spread = scores.max() - scores.median()
        assert fitted.details_["sure"]["noise_floor"] < scores.max() + 3 * spread, name


def test_the_bias_of_information_value_is_taken_off():
    """Noise with many categories scored above a real column with few bins; its mean is 0 now."""
    generator = np.random.default_rng(7)
    n, values = 1500, {True: [], False: []}
    for _ in range(60):
        y = generator.random(n) < 0.3
        codes = generator.integers(0, 40, n)
        table = np.array([[np.sum(~y[codes == k]), np.sum(y[codes == k])] for k in range(40)], dtype=float)
        for correct in values:
            values[correct].append(information_value(table, table.sum(axis=0), bias_correction=correct))
    assert np.mean(values[False]) > 0.1
    assert abs(np.mean(values[True])) < 0.25 * np.mean(values[False])
    y = generator.random(n) < 0.3
    X = pd.DataFrame({"weak": generator.random(n) < np.where(y, 0.35, 0.25), "town": generator.integers(0, 40, n)})
    X["town"] = "t" + X["town"].astype(str)
    kept = {}
    for correct in (True, False):
        fed = fs.Federation.split(X, y.astype(int), parties=["bank", "shop"])
        kept[correct] = fs.InformationValue(n_features=1, bias_correction=correct).fit(fed).selected_
    assert kept == {True: {"bank": ["weak"], "shop": []}, False: {"bank": [], "shop": ["town"]}}


@pytest.mark.parametrize(("make", "low", "high"), [
    (fs.InformationValue, 0.001, 5.0), (fs.GiniFilter, 0.5, 0.99), (fs.SFFS, 1.0, 1e6),
])  # fmt: skip
def test_a_threshold_that_noise_passes_is_told_and_says_no_number_about_labels(make, low, high):
    X = np.random.default_rng(8).normal(size=(200, 4))
    fed = fs.Federation.split(X, X[:, 0] > 0, parties=2)
    told = [note for note in make(n_features=None, threshold=low).fit(fed).ledger_.notes if "noise floor" in note]
    assert len(told) == 1
    assert f"threshold {low:g} is below the noise floor" in told[0]
    assert not any("noise floor" in note for note in make(n_features=None, threshold=high).fit(fed).ledger_.notes)


def test_the_f_test_is_scipys_and_the_best_of_several_parts_counts_as_so_many_tries():
    generator = np.random.default_rng(9)
    y = generator.integers(0, 3, 120)
    X = generator.normal(size=(120, 4)) + 0.2 * y[:, None]
    from scipy.stats import f_oneway

    tests = [f_oneway(*(column[y == k] for k in range(3))) for column in X.T]
    f = np.array([test.statistic for test in tests])
    p = f_p_values(f, np.arange(4), 4, 3, 120)
    assert p == pytest.approx([test.pvalue for test in tests], rel=1e-9)
    assert f_p_values(f, np.array([0, 0, 1, 1]), 2, 3, 120)[0] == pytest.approx(2 * min(p[:2]))
    fitted = fs.SFFS(n_features=2).fit(fs.Federation.split(X, y, parties=2))
    found = [value for values in fitted.details_["p_values"].values() for value in values]
    assert found == pytest.approx(p, rel=1e-3)
    assert f_reaches(1, 3, 120) == pytest.approx(3.0738, abs=1e-3)


def test_a_copy_of_a_kept_column_is_named_with_its_party():
    generator = np.random.default_rng(10)
    X = pd.DataFrame(generator.normal(size=(300, 3)), columns=["income", "age", "visits"])
    X["salary"] = 12 * X["income"] + 7
    X["flag"] = (X["age"] > 0).astype(int)
    y = (X["income"] + X["age"] > 0).astype(int)
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])  # income, age, visits | salary, flag
    for make in (fs.InformationValue, fs.GiniFilter):
        fitted = make(n_features=2).fit(fed)
        assert fitted.details_["sure"]["copies"] == [["bank", "income", "shop", "salary"]]
        record = summarize(fitted)
        assert "salary (shop) says the same as income (bank)" in render_text(record)
        assert "salary (shop) says the same as income (bank)" in render_html(record)
        assert "income" not in render_text(summarize(fitted, party="shop"))
    two = ColumnTables(np.array([[3.0, 4.0], [5.0, 6.0]] * 2), np.array([2, 2]), 0.0)
    assert copies_of({"a": two}, {"a": ["x", "y"]}) == [], "two bins may agree by chance"


def test_a_column_that_tells_the_label_nearly_alone_is_called_too_good_and_a_strong_one_is_not():
    generator = np.random.default_rng(4)
    X = pd.DataFrame(generator.normal(size=(400, 3)), columns=["income", "age", "visits"])
    y = (X["income"] + 0.7 * generator.normal(size=400) > 0).astype(int)
    X["closed"] = np.where(y == 1, generator.integers(1, 28, 400), np.nan)  # filled after the outcome only
    for make in (fs.InformationValue, fs.GiniFilter):
        fitted = make(n_features=2).fit(fs.Federation.split(X, y, parties=["bank", "shop"]))
        assert fitted.details_["sure"]["leaks"] == [["shop", "closed"]]
        for told in (render_text(summarize(fitted)), render_html(summarize(fitted))):
            assert "Too good? shop: closed tells the label nearly alone" in " ".join(told.split())
        assert "Too good" not in render_text(summarize(fitted, party="shop")), "it would tell of labels"
    three = ColumnTables(np.array([[30.0, 1.0], [1.0, 30.0]] * 2), np.array([2, 2]), 0.0)
    assert leaks_of({"a": three}, {"a": ["x", "y"]}) == []


@pytest.mark.parametrize("method", ["muse", "federated_lasso", "top_gain", "knockoffs", "random", "information_value"])
def test_where_nothing_can_be_said_the_report_says_so(method):
    from method_cases import federation, selector

    given = {"epsilon": 1e9} if method == "information_value" else {}
    text = " ".join(render_text(summarize(selector(method).set_params(**given).fit(federation(method)))).split())
    words = {
        "knockoffs": "holds how much of what it keeps is noise", "random": "",
        "information_value": "with epsilon the noise that was added",
    }.get(method, "How far this is from noise cannot be said")  # fmt: skip
    assert words in text or not METHODS[method]().get_params().get("fdr")
    assert ("How far this is from noise" in text) == (method not in ("knockoffs", "random"))
