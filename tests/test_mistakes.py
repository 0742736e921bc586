"""Mistakes that were read over in silence, or told without their place: each is one line that names where and what."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli import main as cli
from fedsift.core.wanted import FileForm
from fedsift.errors import DataError, ParameterError

FILES = Path(__file__).parents[1] / "examples" / "two_files"
JOB = """[parties.bank]
file = "bank.csv"
id = "customer"
label = "default"
{bank}
[parties.shop]
file = "shop.csv"
id = "client"

[method]
name = "information_value"
{rest}
"""


def check(tmp_path, bank="", rest=""):
    for name in ("bank.csv", "shop.csv"):
        shutil.copy(FILES / name, tmp_path)
    (tmp_path / "job.toml").write_text(JOB.format(bank=bank, rest=rest))
    return CliRunner().invoke(cli.app, ["check", str(tmp_path / "job.toml"), "-q"])


def test_the_job_without_a_mistake_is_ready(tmp_path):
    asked = '[evaluate]\nmodel = "linear"\nnext_column = true\n[model]\nname = "boost"\nn_estimators = 3'
    assert check(tmp_path, "prices = {age = 3}", asked).stdout.endswith("ready to run\n")


@pytest.mark.parametrize(
    ("bank", "rest", "code", "words"),
    [
        ('categorical = ["agee"]', "", 3, "line 5: table 'bank' (bank.csv): column 'agee' is not there. Did"),
        ('forms = {agee = "number"}', "", 3, "line 5: table 'bank' (bank.csv): column 'agee' is not there"),
        ('sheet = "x"', "", 3, "table 'bank' (bank.csv): sheet is said of an Excel file"),
        ('missing = "-999"', "", 2, "line 5: parties.bank.missing: expected a list of texts"),
        ("prices = {agee = 3}", "", 2, "line 5: parties.bank.prices: no column 'agee' of 'bank' takes part"),
        ("", '[rules]\nalways = ["bank.agee"]', 2, "line 12: rules: there is no column 'bank.agee'"),
        ("", '[rules]\nalways = ["bank.age"]\nnever = ["bank.age"]', 2, "'bank.age' must always be there and never"),
        ("", '[evaluate]\nmodel = "forest"', 2, "line 12: evaluate: model must be one of"),
        ("", "[evaluate]\npooled = true\nnext_column = true", 2, "line 12: evaluate: next_column"),
        ("", "[evaluate]\nfolds = 100000", 2, "line 12: evaluate: cv must be a whole number between 2 and 240"),
        ("", '[model]\nname = "boost"\nn_estimator = 3', 2, "line 12: model: boost has no parameter 'n_estimator'"),
        ("", '[model]\nname = "boost"\nn_estimators = 0', 2, "line 12: model: n_estimators must be"),
    ],
)  # fmt: skip
def test_check_says_what_a_run_would_stumble_over(tmp_path, bank, rest, code, words):
    result = check(tmp_path, bank, rest)
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_column_by_which_rows_meet_is_no_label(tmp_path):
    files, out = [FILES / "bank.csv", FILES / "shop.csv"], tmp_path / "j.toml"
    result = CliRunner().invoke(cli.app, [*map(str, ["init", *files, "--label", "customer", "--out", out])])
    assert (result.exit_code, out.exists()) == (2, False)
    assert "'customer' is the column by which the rows" in result.stderr


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_what_is_said_of_text_is_not_passed_over_in_another_file(tmp_path, ending):
    frame = pd.DataFrame({"id": ["a", "b"], "x": [1.0, -999.0]})
    path = tmp_path / f"t.{ending}"
    frame.to_parquet(path) if ending == "parquet" else frame.to_feather(path)
    for source in (path, frame):
        with pytest.raises(DataError, match="missing is said of a text file"):
            fs.Table.read(source, id="id", form=FileForm(missing=["-999"]))


# --- in Python ---


def two(rows=80):
    draws = np.random.default_rng(0)
    bank = pd.DataFrame(draws.normal(size=(rows, 3)), columns=list("abc")).assign(y=np.arange(rows) % 2)
    bank["a"] += 3 * bank["y"]
    ids = [f"k{i}" for i in range(rows)]
    shop = pd.DataFrame(draws.normal(size=(rows, 2)), columns=list("de"))
    return bank.assign(id=ids), shop.assign(id=ids)


def federation(bank, shop, **options):
    return fs.Federation.from_tables({"bank": bank, "shop": shop}, id="id", label=("bank", "y"), **options)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": ("bank", "y", "z")}, r"label must be \(party, column\)"),
        ({"min_overlap": "5"}, "min_overlap must be a whole number"),
        ({"timeout": -1}, "timeout must be a number at least 0"),
    ],
)
def test_arguments_that_make_no_sense_are_named(change, words):
    bank, shop = two()
    options = {"id": "id", "label": ("bank", "y"), **change}
    with pytest.raises(ParameterError, match=words):
        fs.Federation.from_tables({"bank": bank, "shop": shop}, **options)


@pytest.mark.parametrize(("make", "words"), [(list, "must be a dictionary"), (dict, "a party's name is text")])
def test_tables_come_by_the_names_of_their_parties(make, words):
    bank, shop = two()
    with pytest.raises(ParameterError, match=words):
        fs.Federation.from_tables(
            [bank, shop] if make is list else {"bank": bank, 3: shop}, id="id", label=("bank", "y")
        )


@pytest.mark.parametrize("names", ["shared", "private"])
def test_columns_in_another_order_are_the_same_columns(names):
    """Positions travel: a table with the columns in another order gave other columns, and no word was said."""
    bank, shop = two()
    fed, turned = federation(bank, shop, names=names), federation(bank[["c", "id", "y", "b", "a"]], shop, names=names)
    selector = fs.GiniFilter(n_features=1).fit(fed)
    kept = selector.transform(turned)
    assert kept.simulated["bank"].views[kept._view][1] == ["a"]
    model = fs.VerticalLogisticRegression(max_iter=5).fit(fed)
    before, after = model.predict_by_id(fed), model.predict_by_id(turned)
    assert before.keys() == after.keys()
    assert max(abs(before[who] - after[who]) for who in before) < 1e-3


def test_columns_that_are_not_there_are_an_error():
    bank, shop = two()
    fed, less = federation(bank, shop), federation(bank.drop(columns="a"), shop)
    selector = fs.GiniFilter(n_features=1).fit(fed)
    model = fs.VerticalLogisticRegression(max_iter=2).fit(fed)
    for use in (selector.transform, model.predict):
        with pytest.raises(DataError, match="party 'bank': a column that is needed is not in this table"):
            use(less)
    more = federation(bank.assign(new=1.0)[["new", *bank.columns]], shop)
    assert model.predict_by_id(more).keys() == model.predict_by_id(fed).keys()


def test_a_model_from_a_folder_knows_its_columns(tmp_path):
    bank, shop = two()
    fed, turned = federation(bank, shop), federation(bank[["c", "id", "y", "b", "a"]], shop)
    model = fs.VerticalLogisticRegression(max_iter=5).fit(fed)
    model.save(tmp_path)
    before, after = model.predict_by_id(fed), fs.VerticalLogisticRegression.load(tmp_path, turned).predict_by_id(turned)
    assert max(abs(before[who] - after[who]) for who in before) < 1e-3
    assert b'"a"' not in (tmp_path / "model.json").read_bytes()
