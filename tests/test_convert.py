"""Tables too large to hold, written once as Parquet: the same values and types as of a file that is read whole."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app
from fedsift.core import convert as converting
from fedsift.core.convert import convert
from fedsift.core.table import Table
from fedsift.core.wanted import FileForm
from fedsift.errors import DataError, ParameterError, UnclearColumns

N = 300


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(converting, "_BYTES", 1_500)
    monkeypatch.setattr(converting, "_CELLS", 200)
    monkeypatch.setattr(converting, "_ROWS", 70)


def both(source, target, id=None, form=None):
    """The table as it is read whole, and of the converted file."""
    convert(source, target, plain=[id] if id else [], form=form)
    return Table.read(source, id=id, form=form).to_polars(), Table.read(target, id=id).to_polars()


def quoted(i):
    day, flag, note = f"{1 + i % 28:02d}.0{1 + i % 9}.2024", ["true", "false"][i % 2], "" if i % 3 else "x"
    return f'{i:04d},"Me, {i}\nline ""q""",{day},{i}.5,{flag},0{i % 7},{note}\n'


def late(i):
    return f"p{i},{i if i < 280 else i + 0.5},{i}\n"


FILES = {
    "quoted values over lines": "id,name,when,amount,flag,code,note\n" + "".join(map(quoted, range(N))) + "\n\n",
    "whole numbers until the last rows": "id,a,b\n" + "".join(map(late, range(N))),
    "blank lines and a named separator": "sep=;\nid;a\n\n" + "".join(f"{i};{i}\n\n" for i in range(N)),
    "a column of nothing": "id,a,b\n" + "".join(f"{i},,{i}\n" for i in range(N)),
}


@pytest.mark.parametrize("what", FILES)
def test_a_converted_file_is_the_file_read_whole(tmp_path, what):
    source = tmp_path / "table.csv"
    source.write_text(FILES[what], encoding="utf-8")
    whole, again = both(source, tmp_path / "table.parquet", id="id")
    assert whole.schema == again.schema
    assert whole.equals(again)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_encodings_and_decimal_commas_are_those_of_the_whole_file(tmp_path):
    source = tmp_path / "table.csv"
    text = "id;größe;wert\r\n" + "".join(f"{i};1.{i % 900 + 100};{i},25\r\n" for i in range(N))
    source.write_bytes(text.encode("cp1252"))
    whole, again = both(source, tmp_path / "table.parquet", id="id", form=FileForm(decimal=","))
    assert whole.equals(again)
    assert again["größe"][0] == 1100


def test_a_file_packed_by_gzip_is_read_in_pieces(tmp_path):
    import gzip

    source = tmp_path / "table.csv.gz"
    source.write_bytes(gzip.compress(b"id,a\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(N))))
    whole, again = both(source, tmp_path / "table.parquet", id="id")
    assert whole.equals(again)


def test_a_column_that_could_be_read_in_two_ways_is_asked_about_and_nothing_stays(tmp_path):
    source = tmp_path / "table.csv"
    source.write_text("id,a\n" + "".join(f"{i},{'x' if i == 250 else i}\n" for i in range(N)))
    with pytest.raises(UnclearColumns, match="record 251 is not"):
        convert(source, tmp_path / "table.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_a_record_with_too_many_values_is_named_by_its_line_in_the_file(tmp_path):
    source = tmp_path / "table.csv"
    source.write_text("id,a\n" + "".join(f"{i},{'3,4' if i == 250 else i}\n" for i in range(N)))
    with pytest.raises(DataError, match="line 252 has 3 values"):
        convert(source, tmp_path / "table.parquet")


def test_a_query_is_written_some_rows_at_a_time(tmp_path, monkeypatch):
    with sqlite3.connect(tmp_path / "bank.db") as made:
        made.execute("create table t (id text, a real, b integer)")
        made.executemany("insert into t values (?, ?, ?)", [(f"p{i}", i / 3, i % 5) for i in range(N)])
    (tmp_path / "rows.sql").write_text("select * from t;")
    monkeypatch.setenv("BANK_DB", "sqlite:///bank.db")
    form = FileForm(database="BANK_DB")
    convert(tmp_path / "rows.sql", tmp_path / "rows.parquet", form=form)
    whole = Table.read(tmp_path / "rows.sql", id="id", form=form).to_polars()
    assert whole.equals(Table.read(tmp_path / "rows.parquet", id="id").to_polars())


def test_duckdb_gives_its_rows_in_batches(tmp_path, monkeypatch):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "bank.duckdb")) as made:
        made.sql(f"create table t as select 'p' || i as id, i / 3 as a from range({N}) r(i)")
    (tmp_path / "rows.sql").write_text("select * from t")
    monkeypatch.setenv("BANK_DB", "duckdb:///bank.duckdb")
    done = convert(tmp_path / "rows.sql", tmp_path / "rows.parquet", form=FileForm(database="BANK_DB"))
    assert (done.rows, done.columns) == (N, 2)
    assert Table.read(tmp_path / "rows.parquet", id="id").values("a").sum() == pytest.approx(sum(range(N)) / 3)


@pytest.mark.parametrize(("source", "target", "says"), [
    ("table.parquet", "b.parquet", "read as they are"), ("table.csv", "b.csv", "ends in .parquet"),
    ("table.csv", "table.parquet", "there already"),
])  # fmt: skip
def test_what_cannot_be_converted_is_said(tmp_path, source, target, says):
    (tmp_path / "table.csv").write_text("id,a\n1,2\n")
    Table.read(tmp_path / "table.csv", id="id").write(tmp_path / "table.parquet")
    with pytest.raises(ParameterError, match=says):
        convert(tmp_path / source, tmp_path / target)


def test_the_command_converts_and_a_job_reads_columns_of_it(tmp_path, monkeypatch):
    from fedsift.core import stored

    rng = np.random.default_rng(0)
    lines = "".join(f"0{i},{i % 2},{i % 2 + rng.normal():.3f},{rng.normal():.3f}\n" for i in range(N))
    (tmp_path / "table.csv").write_text("id,y,a,b\n" + lines)
    ended = CliRunner().invoke(
        app, ["party", "convert", str(tmp_path / "table.csv"), str(tmp_path / "table.parquet"), "--id", "id"]
    )
    assert ended.exit_code == 0, ended.output
    assert f"{N:,} rows, 4 columns" in ended.output
    monkeypatch.setattr(stored, "MOST_CELLS", 10)  # as of a file that is too large
    table = Table.read(tmp_path / "table.parquet", id="id", label="y")
    assert isinstance(table._frame, stored.Stored)
    assert table.ids[3] == "03"
    tables = {"one": table, "two": Table.read(tmp_path / "table.parquet", id="id", columns=["b"])}
    fed = fs.Federation.from_tables(tables, id="id", label=("one", "y"))
    assert fs.InformationValue(n_features=1).fit(fed).selected_["one"] == ["a"]
