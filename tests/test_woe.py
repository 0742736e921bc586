"""Weights of evidence: equal to one pooled table, monotone where asked, applied by each party, and few enough."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import isotonic_regression
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app
from fedsift.core.binning import ColumnBins
from fedsift.core.evidence import Evidence
from fedsift.core.table import Table
from fedsift.errors import DataError, OperationRefused, ParameterError
from fedsift.select.filters.woe import column_weights, joined_bins, let_go, weights_of


def data(rows=4_000, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({f"x{i}": rng.normal(size=rows) for i in range(4)})
    X["x2"] = X["x2"].where(rng.random(rows) > 0.1)  # missing values are a bin
    X["colour"] = rng.choice(list("rgb"), rows)
    y = X["x0"] + np.abs(X["x3"]) + 0.8 * (X["colour"] == "r") + 0.4 * X["x2"].isna() + rng.normal(size=rows) > 1
    return X, y.astype(int).to_numpy()


def pooled(X, y, column, n_bins=10, min_cell=10):
    """The weight of each row, from one table."""
    table = Table.read(X, id=None, name="all")
    codes = ColumnBins.fit(table, column, n_bins, min_cell).codes(table)
    counts = np.array([[np.sum((codes == b) & (y == k)) for k in (0, 1)] for b in range(codes.max() + 1)])
    return np.log((counts[:, 1] / y.sum()) / (counts[:, 0] / (1 - y).sum()))[codes]


def transformed(fitted, fed):
    view = fitted.woe_transform(fed)
    names = view.column_names()
    sites = fed.simulated
    return {name: sites[party].table.values(name) for party in names for name in names[party]}


def test_weights_are_those_of_one_pooled_table():
    X, y = data()
    fed = fs.Federation.split(X, y, parties=2)
    fitted = fs.InformationValue(n_features=5, woe="bins", woe_digits=7, n_bins=6).fit(fed)
    found = transformed(fitted, fed)
    assert set(found) == {f"woe({column})" for column in X}
    for column in X:
        np.testing.assert_allclose(found[f"woe({column})"], pooled(X, y, column, 6), atol=1e-6)


def test_monotone_weights_rise_or_fall_with_the_column():
    X, y = data()
    fed = fs.Federation.split(X, y, parties=2)
    fitted = fs.InformationValue(n_features=5, woe="monotone").fit(fed)
    found = transformed(fitted, fed)
    for column in ("x0", "x1", "x2", "x3"):
        present = X[column].notna().to_numpy()
        steps = np.diff(found[f"woe({column})"][present][np.argsort(X[column][present])])
        assert (steps >= 0).all() or (steps <= 0).all()
    gone = found["woe(x2)"][X["x2"].isna()]
    assert len(np.unique(gone)) == 1  # missing values keep a weight of their own
    assert not np.isin(gone[0], found["woe(x2)"][X["x2"].notna()])


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), min_size=2, max_size=12))
@settings(max_examples=80, deadline=None)
def test_joined_bins_are_those_of_isotonic_regression(counts):
    """Pool adjacent violators on rates: the same groups as scikit-learn's, in the better of the two directions."""
    table = np.array(counts, dtype=float)
    totals = table.sum(axis=0)
    weights = column_weights(table, totals, len(table), 9)
    rates, sizes = table[:, 1] / table.sum(axis=1), table.sum(axis=1)
    fits = [isotonic_regression(rates, sample_weight=sizes, increasing=up) for up in (True, False)]
    expected = [np.log(fit / (1 - fit) * totals[0] / totals[1]) for fit in fits]
    assert any(np.allclose(weights, np.maximum(np.minimum(each, 16), -16), atol=1e-6) for each in expected)
    assert (np.diff(joined_bins(table, totals)) >= 0).all()


def test_an_empty_cell_counts_as_half_a_row():
    assert weights_of(np.array([[0.0, 10.0], [10.0, 10.0]]), np.array([10.0, 20.0]))[0] == pytest.approx(np.log(10))


# --- who may have them ------------------------------------------------------------------------------------------------


def test_more_weights_than_a_tenth_of_the_rows_in_bits_are_refused():
    X, y = data(400)
    fed = fs.Federation.split(X, y, parties=2)
    with pytest.raises(OperationRefused, match="a tenth of 400 rows"):
        fs.InformationValue(n_features=5, woe="bins").fit(fed)


def test_only_a_job_about_weights_lets_them_go():
    fed = fs.Federation.split(*data(), parties=2)
    fitted = fs.InformationValue(n_features=2)
    with fed.session(*fitted.announcement()) as run, pytest.raises(OperationRefused, match="comes after"):
        run.ask(let_go, to="party1", weights=1)
    with pytest.raises(ParameterError, match="fit again"):
        fitted.fit(fed).woe_transform(fed)


def test_noise_three_classes_and_unknown_kinds_are_refused():
    X, y = data()
    for settings_, label, words in (
        ({"woe": "bins", "epsilon": 1.0}, y, "one of the two"),
        ({"woe": "bins"}, y + (X["x0"] > 1).astype(int), "two classes"),
        ({"woe": "spline"}, y, "spline"),
    ):
        with pytest.raises(ParameterError, match=words):
            fs.InformationValue(**settings_).fit(fs.Federation.split(X, label, parties=2))


def test_the_coordinators_selection_has_weights_and_no_edges():
    fed = fs.Federation.split(*data(), parties=2)
    fitted = fs.InformationValue(n_features=3, woe="bins").fit(fed)
    text = fitted.selection_.to_json()
    assert "edges" not in text
    own = fitted.selection_.for_party("party2")
    assert "weights" not in own.to_json()
    assert all("edges" in each for each in own.with_evidence(fed.simulated["party2"].models).evidence)


# --- a party alone, later ---------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path):
    X, y = data()
    ids = [f"p{i}" for i in range(len(X))]
    X[["x0", "x1"]].assign(id=ids, label=y).to_csv(tmp_path / "bank.csv", index=False)
    X[["x2", "x3", "colour"]].assign(id=ids).to_csv(tmp_path / "shop.csv", index=False)
    (tmp_path / "job.toml").write_text(
        '[parties.bank]\nfile = "bank.csv"\nid = "id"\nlabel = "label"\n[parties.shop]\nfile = "shop.csv"\nid = "id"\n'
        '[method]\nname = "information_value"\nn_features = 4\nwoe = "monotone"\n'
    )
    return tmp_path / "job.toml"


def test_a_party_applies_its_own_file_and_new_values_are_neutral(job, tmp_path):
    done = CliRunner().invoke(app, ["run", str(job), "--out", str(tmp_path / "run"), "-q"])
    assert done.exit_code == 0, done.output
    whole, own = (
        json.loads((tmp_path / "run" / name).read_text()) for name in ("selection.json", "selection-shop.json")
    )
    assert whole["evidence"] == []
    assert [each["column"] for each in own["evidence"]] == own["selected"]["shop"]
    fresh = pd.DataFrame({"id": ["n1", "n2"], "x2": [np.nan, 0.1], "x3": [5.0, 0.0], "colour": ["violet", "r"]})
    fresh.to_csv(tmp_path / "new.csv", index=False)
    done = CliRunner().invoke(
        app, ["apply", str(tmp_path / "run" / "selection-shop.json"), str(tmp_path / "new.csv"), "--id", "id"]
    )
    assert done.exit_code == 0, done.output
    made = pd.read_csv(tmp_path / "new-selected.csv")
    assert set(made.columns) == {"id", *(f"woe({column})" for column in own["selected"]["shop"])}
    if "colour" in own["selected"]["shop"]:
        assert made["woe(colour)"][0] == 0.0
    selection = fs.Selection.load(tmp_path / "run" / "selection-shop.json")
    pipeline = selection.transformer().fit(fresh.drop(columns="id"))
    np.testing.assert_allclose(
        pipeline.transform(fresh.drop(columns="id")), made[list(pipeline.get_feature_names_out())], atol=1e-9
    )


def test_damaged_weights_are_an_error_in_words():
    with pytest.raises(DataError, match="run the job again"):
        Evidence.read([{"column": "a", "categories": None, "edges": [1.0], "rest": False, "missing": False}])
