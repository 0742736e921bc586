"""How sure: p-values and false-discovery rates beside scores equal scipy's, and noise is called noise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency, false_discovery_control

import fedsift as fs
from fedsift.report import render_html, render_text, summarize
from fedsift.report.record import Report
from fedsift.select.sureness import false_discovery, independence


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
