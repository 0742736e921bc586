"""Texts and dates become columns by rules that a party computes alone, and new rows get them from their names."""

from __future__ import annotations

import datetime
import hashlib

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app
from fedsift.core.encoding import Rule, source_of
from fedsift.errors import DataError, JobError, ParameterError

FRAME = pd.DataFrame(
    {
        "id": ["a", "b", "c", "d"],
        "joined": pd.to_datetime(["2024-01-31", "2023-07-02", None, "2020-02-29"]),
        "note": ["Late again, late", "on time", None, "again"],
        "x": [1.0, 2.0, 3.0, 4.0],
    }
)


def read(encode, frame=FRAME, **more):
    return fs.Table.read(frame, id="id", encode=encode, name="bank", **more)


def test_dates_become_numbers():
    table = read({"joined": ["year", "quarter", "month", "weekday", "day", "hour", "age:2024-01-31"]})
    assert "joined" not in table.columns
    for rule, values in {"year": [2024, 2023, 2020], "month": [1, 7, 2], "weekday": [3, 7, 6], "day": [31, 2, 29],
                         "quarter": [1, 3, 1], "hour": [0, 0, 0]}.items():  # fmt: skip
        found = table.values(f"{rule}(joined)")
        assert found[[0, 1, 3]].tolist() == values
        assert np.isnan(found[2])
    ages = table.values("age:2024-01-31(joined)")
    assert ages[0] == 0.0
    assert ages[3] == pytest.approx((datetime.date(2024, 1, 31) - datetime.date(2020, 2, 29)).days / 365.25)


def test_texts_become_buckets():
    table = read({"note": ["words:4", "hash:8", "length", "value"]})
    words = table.matrix([f"words:4:{place}(note)" for place in range(4)])
    assert words[0].sum() == 3  # late twice
    assert words[0].max() >= 2
    assert np.isnan(words[2]).all()
    assert (words[3] <= words[0]).all()  # "again" is among its words
    assert table.values("length(note)")[1] == 7
    assert table.kinds["hash:8(note)"] == table.kinds["note"] == "categorical"


def test_a_bucket_is_the_same_at_every_party_and_in_every_run():
    one, other = read({"note": "hash:8"}), read({"note": "hash:8"}, FRAME.iloc[::-1].reset_index(drop=True))
    column = "hash:8(note)"
    assert one.column(column).to_list() == other.column(column).to_list()[::-1]
    digest = hashlib.blake2b(b"late again, late", digest_size=8).digest()  # another hash would break stored selections
    assert one.column(column).to_list()[0] == f"h{int.from_bytes(digest, 'big') % 8}"


def test_texts_that_are_dates_are_read_as_such():
    frame = FRAME.assign(joined=["2024-01-31", "2023-07-02", None, "2020-02-29"])
    assert read({"joined": "month"}, pl.DataFrame(frame)).values("month(joined)")[1] == 7


def test_a_name_says_how_a_column_is_made():
    assert source_of("month(joined)") == (Rule("month"), "joined")
    assert source_of("words:16:3(a (b))") == (Rule("words", "16"), "a (b)")
    for name in ("words:16:16(note)", "sum(x)", "month", "woe(x)", "words:16(note)"):
        assert source_of(name) is None
    table = read(None, columns=["month(joined)", "x"])
    assert table.columns == ["x", "month(joined)"]


def test_a_selection_makes_its_columns_for_new_rows():
    found = fs.Selection("by hand", {"bank": ["x", "month(joined)", "hash:8(note)"]})
    kept = found.apply(FRAME, "bank")
    assert kept.columns == ["x", "month(joined)", "hash:8(note)"]
    frame = found.transform(FRAME, "bank")
    assert list(frame.columns) == ["x", "month(joined)", "hash:8(note)"]
    assert frame["month(joined)"].tolist()[:2] == [1.0, 7.0]
    assert found.transform(pl.DataFrame(FRAME), "bank").columns == ["x", "month(joined)", "hash:8(note)"]
    with pytest.raises(DataError, match=r"lack the column 'hash:8.note.'"):
        found.transform(FRAME.drop(columns="note"), "bank")


def test_apply_writes_them(tmp_path):
    FRAME.to_csv(tmp_path / "bank.csv", index=False)
    fs.Selection("by hand", {"bank": ["month(joined)", "x"]}).save(tmp_path / "selection.json")
    told = ["apply", str(tmp_path / "selection.json"), str(tmp_path / "bank.csv"), "--id", "id"]
    done = CliRunner().invoke(app, told, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    written = pd.read_csv(tmp_path / "bank-selected.csv")
    assert set(written.columns) == {"id", "month(joined)", "x"}
    assert written["month(joined)"].tolist()[:2] == [1.0, 7.0]


JOB = """
[parties.bank]
file = "bank.csv"
id = "id"
label = "late"

[parties.bank.encode]
{encode}

[parties.shop]
file = "shop.csv"
id = "id"

[method]
name = "sffs"
n_features = 1
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    joined = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1500, 300), unit="D")
    ids = [f"p{i}" for i in range(300)]
    late = (joined.month + rng.normal(size=300) > 6).astype(int)
    pd.DataFrame({"id": ids, "joined": joined.strftime("%Y-%m-%d"), "late": late}).to_csv(
        tmp_path / "bank.csv", index=False
    )
    pd.DataFrame({"id": ids, "z": rng.normal(size=300)}).to_csv(tmp_path / "shop.csv", index=False)
    return tmp_path


def test_a_job_file_declares_them_and_the_partys_file_gets_them(folder):
    (folder / "job.toml").write_text(JOB.format(encode='joined = ["month", "weekday"]'))
    done = CliRunner().invoke(app, ["run", str(folder / "job.toml")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    own = fs.Selection.load(folder / "job-result" / "selection-bank.json")
    assert own.selected["bank"] == ["month(joined)"]
    told = ["apply", str(folder / "job-result" / "selection-bank.json"), str(folder / "bank.csv")]
    assert CliRunner().invoke(app, told, catch_exceptions=False).exit_code == 0
    assert pd.read_csv(folder / "bank-selected.csv").columns.tolist() == ["id", "month(joined)"]


@pytest.mark.parametrize(
    ("encode", "error", "words"),
    [
        ('joined = "moon"', JobError, r"job.toml, line \d+: parties.bank.encode: there is no encoder 'moon'"),
        ('joined = "words:1"', JobError, "there is no encoder 'words:1'"),
        ('left = "month"', DataError, "column 'left' is not there"),
        ("joined = 3", JobError, "expected by column what a text or a date becomes"),
    ],
)
def test_a_mistake_is_named_with_its_place(folder, encode, error, words):
    from fedsift.jobs.job_file import load_job
    from fedsift.jobs.runs import execute

    (folder / "job.toml").write_text(JOB.format(encode=encode))
    with pytest.raises(error, match=words):
        execute(load_job(folder / "job.toml"))


def test_columns_of_a_file_too_large_to_hold_are_made_and_set_aside_too(tmp_path, monkeypatch):
    from fedsift.core import stored

    FRAME.assign(whose=[1, 1, 2, 2]).to_parquet(tmp_path / "bank.parquet")
    held = read({"joined": "month"}, tmp_path / "bank.parquet", aside=["whose"])
    monkeypatch.setattr(stored, "MOST_CELLS", 0)
    large = read({"joined": "month"}, tmp_path / "bank.parquet", aside=["whose"])
    assert isinstance(large._frame, stored.Stored)
    assert sorted(large.columns) == sorted(held.columns) == ["month(joined)", "note", "x"]
    assert large.take([3, 0]).values("month(joined)").tolist() == [2.0, 1.0]
    assert large.take([3, 0]).aside["whose"].to_list() == [2, 1]
    named = read(None, tmp_path / "bank.parquet", columns=["x", "month(joined)"])
    assert sorted(named.columns) == ["month(joined)", "x"]


def test_a_text_is_no_date():
    with pytest.raises(DataError, match="table 'bank': column 'note' has no dates"):
        read({"note": "month"})
    with pytest.raises(ParameterError, match="there is no encoder 'age:soon'"):
        read({"joined": "age:soon"})
