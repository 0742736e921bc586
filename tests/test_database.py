"""Tables that are the answer of a query: what is read, what is refused, and that nothing tells an address."""

import sqlite3
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app
from fedsift.errors import DataError, MissingExtra

ROWS = 60


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    income = rng.normal(3000, 500, ROWS).round(2)
    return pd.DataFrame(
        {
            "customer": [f"k{i:03}" for i in range(ROWS)],
            "income": np.where(rng.random(ROWS) < 0.1, np.nan, income),
            "town": rng.choice(["Ulm", "Bonn"], ROWS),
            "children": rng.integers(0, 4, ROWS),
            "y": (income > 3000).astype(int),
        }
    )


def in_sqlite(path):
    with sqlite3.connect(path) as connection:
        frame().to_sql("customers", connection, index=False)
    connection.close()
    return f"sqlite:///{path.name}"


def in_duckdb(path):
    duckdb = pytest.importorskip("duckdb")
    rows = pl.from_pandas(frame())
    with duckdb.connect(str(path)) as connection:
        connection.register("rows", rows)
        connection.execute("create table customers as select * from rows")
    return f"duckdb:///{path.name}"


def by_sqlalchemy(path):
    pytest.importorskip("sqlalchemy")
    in_sqlite(path)
    return f"sqlite+pysqlite:///{path}"


MAKERS = {"sqlite": in_sqlite, "duckdb": in_duckdb, "sqlalchemy": by_sqlalchemy}
QUERY = "select customer, income, town, children, y\nfrom customers where children < 9;\n"


def asked(folder, monkeypatch, kind="sqlite", query=QUERY):
    monkeypatch.setenv("BANK_DB", MAKERS[kind](folder / "bank.db"))
    file = folder / "customers.sql"
    file.write_text(query)
    return file


def read(file, **others):
    return fs.Table.read(file, **{"id": "customer", "label": "y", "form": fs.FileForm(database="BANK_DB"), **others})


@pytest.mark.parametrize("kind", MAKERS)
def test_a_query_gives_the_table_that_a_file_would(tmp_path, monkeypatch, kind):
    found = read(asked(tmp_path, monkeypatch, kind))
    expected = fs.Table.read(frame(), id="customer", label="y")
    assert found.kinds == expected.kinds
    pd.testing.assert_frame_equal(
        found.to_pandas().sort_values("customer", ignore_index=True), expected.to_pandas(), check_dtype=False
    )


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_query_that_writes_is_refused(tmp_path, monkeypatch, kind):
    file = asked(tmp_path, monkeypatch, kind, "delete from customers")
    with pytest.raises(DataError, match="the query failed"):
        read(file)
    file.write_text(QUERY)
    assert read(file).n_rows == ROWS


def test_what_is_missing_is_said_and_no_address_is_told(tmp_path, monkeypatch):
    file = asked(tmp_path, monkeypatch)
    with pytest.raises(DataError, match=r'customers\.sql\): a query needs its database: database = "NAME"'):
        read(file, form=None)
    with pytest.raises(DataError, match="the rows of a query have no order"):
        read(file, id=None)
    with pytest.raises(DataError, match=r"the id column 'client' is not there"):
        read(file, id="client")
    secret = "postgresql://ann:s3cret@db.example/bank"
    monkeypatch.setenv("BANK_DB", secret)
    with pytest.raises(DataError) as told:
        read(file)
    assert "s3cret" not in str(told.value)
    assert "db.example" not in str(told.value)
    monkeypatch.setenv("BANK_DB", "sqlite:///nowhere.db")
    with pytest.raises(DataError, match="the query failed"):
        read(file)
    assert not (tmp_path / "nowhere.db").exists()
    monkeypatch.delenv("BANK_DB")
    with pytest.raises(DataError, match="the environment variable 'BANK_DB' is not set"):
        read(file)
    monkeypatch.setenv("BANK_DB", "sqlite:///bank.db")
    file.write_bytes("select 'Stra\xdfe'".encode("latin-1"))
    with pytest.raises(DataError, match="the query is not written in UTF-8"):
        read(file)
    file.write_text(" \n")
    with pytest.raises(DataError, match="there is no query in the file"):
        read(file)


def test_without_its_packages_it_says_what_to_install(tmp_path, monkeypatch):
    file = asked(tmp_path, monkeypatch)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.setenv("BANK_DB", "postgresql://db.example/bank")
    with pytest.raises(MissingExtra, match=r"fedsift\[sql\]"):
        read(file)


def test_a_job_takes_its_rows_from_a_query(tmp_path, monkeypatch):
    asked(tmp_path, monkeypatch)
    rng = np.random.default_rng(1)
    shop = pd.DataFrame({"customer": frame()["customer"], "basket": rng.normal(size=ROWS)})
    shop.to_csv(tmp_path / "shop.csv", index=False)
    (tmp_path / "job.toml").write_text(
        '[parties.bank]\nfile = "customers.sql"\ndatabase = "BANK_DB"\nid = "customer"\nlabel = "y"\n'
        '[parties.shop]\nfile = "shop.csv"\nid = "customer"\n'
        '[method]\nname = "gini"\nn_features = 1\n[output]\ndir = "result"\n'
    )
    told = CliRunner().invoke(app, ["run", str(tmp_path / "job.toml"), "--format", "json"])
    assert told.exit_code == 0, told.output
    assert fs.Selection.load(tmp_path / "result" / "selection.json").selected["bank"] == ["income"]
