"""Tables whose columns stay in their file: the same answers as when all is held, and nothing kept that was read."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import fedsift as fs
from fedsift.core import stored
from fedsift.core.stored import Stored
from fedsift.errors import DataError

KINDS = ["parquet", "feather"]
WAYS = {
    "all": lambda table: table,
    "rows": lambda table: table.take([3, 2, 2, 9]),
    "rows of rows": lambda table: table.take(np.arange(50)[::-1]).take([1, 4]),
    "columns": lambda table: table.take([7, 0]).select(["town", "amount"]),
    "other names": lambda table: table.rename({"amount": "sum"}).select(["sum", "code"]),
    "new columns": lambda table: table.take([5, 6]).with_columns({"new": [1.0, 2.0], "amount": [0, 1]}),
    "new columns, then rows": lambda table: table.with_columns({"new": np.arange(table.n_rows)}).take([8, 8, 1]),
}


def frame(rows: int = 300) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    amount = rng.normal(size=rows)
    return pl.DataFrame(
        {
            "who": [f"id{i:04}" for i in rng.permutation(rows)],
            "amount": np.where(rng.random(rows) < 0.1, np.nan, amount),
            "code": rng.integers(0, 4, rows),
            "town": [["Ulm", "Bonn", None][i] for i in rng.integers(0, 3, rows)],
            "empty": pl.Series([None] * rows, dtype=pl.String),
            "seen": pl.Series(rng.integers(10_000, 20_000, rows)).cast(pl.Int32).cast(pl.Date),
            "noise": rng.normal(size=rows),
            "y": (amount + 0.3 * rng.normal(size=rows) > 0).astype(int),
        }
    )


def written(folder, kind: str, table: pl.DataFrame, name: str = "bank"):
    path = folder / f"{name}.{kind}"
    (table.write_parquet if kind == "parquet" else table.write_ipc)(path)
    return path


@pytest.fixture
def _nothing_held(monkeypatch):
    monkeypatch.setattr(stored, "MOST_CELLS", 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_table_is_the_held_one(tmp_path, monkeypatch, kind, way):
    path = written(tmp_path, kind, frame())
    held = fs.Table.read(path, id="who", label="y", categorical=["code"])
    monkeypatch.setattr(stored, "MOST_CELLS", 0)
    kept = fs.Table.read(path, id="who", label="y", categorical=["code"])
    assert isinstance(kept._frame, Stored)
    assert not isinstance(held._frame, Stored)
    one, two = WAYS[way](held), WAYS[way](kept)
    assert_frame_equal(one.to_polars(), two.to_polars())
    assert one.describe() == two.describe()
    assert one.kinds == two.kinds
    np.testing.assert_array_equal(one.matrix(), two.matrix())
    np.testing.assert_array_equal(one.by_id, np.argsort(one.ids, kind="stable"))
    for column in (name for name, what in one.kinds.items() if what == "categorical"):
        assert one.codes(column)[1] == two.codes(column)[1]
        np.testing.assert_array_equal(one.codes(column)[0], two.codes(column)[0])


def test_few_values_are_held_and_many_stay_in_the_file(tmp_path, monkeypatch):
    path = written(tmp_path, "parquet", frame(100))
    monkeypatch.setattr(stored, "MOST_CELLS", 600)
    assert not isinstance(fs.Table.read(path, id="who", label="y")._frame, Stored)
    monkeypatch.setattr(stored, "MOST_CELLS", 599)
    assert isinstance(fs.Table.read(path, id="who", label="y")._frame, Stored)


@pytest.mark.usefixtures("_nothing_held")
def test_a_file_that_changes_under_a_table_is_an_error(tmp_path):
    path = written(tmp_path, "parquet", frame())
    table = fs.Table.read(path, id="who", label="y")
    written(tmp_path, "parquet", frame(200))
    with pytest.raises(DataError, match=r"bank\.parquet.*the file was changed while it was being used"):
        table.values("amount")
    path.unlink()
    with pytest.raises(DataError, match="the file was changed"):
        table.values("amount")


@pytest.mark.usefixtures("_nothing_held")
def test_what_is_wrong_in_a_stored_file_is_named_like_elsewhere(tmp_path):
    wrong = frame().with_columns(noise=pl.when(pl.arange(0, 300) == 7).then(np.inf).otherwise(0.5))
    path = written(tmp_path, "parquet", wrong)
    with pytest.raises(DataError, match=r"row 7 \(the first is 0\) of column 'noise' is infinite"):
        fs.Table.read(path, id="who", label="y")
    with pytest.raises(DataError, match=r"there is no feature column 'nois'\. Did you mean 'noise'"):
        fs.Table.read(written(tmp_path, "parquet", frame()), id="who", label="y").values("nois")


@pytest.mark.usefixtures("_nothing_held")
def test_a_column_is_read_when_it_is_asked_for_and_no_other(tmp_path, monkeypatch):
    asked = []
    table = fs.Table.read(written(tmp_path, "parquet", frame()), id="who", label="y")
    before = stored.read_columns
    monkeypatch.setattr(stored, "read_columns", lambda path, names: asked.append(names) or before(path, names))
    table.values("noise")
    table.codes("town")
    assert asked == [["noise"], ["town"]]


METHODS = {
    "information value": lambda: fs.InformationValue(n_features=2),
    "gini": lambda: fs.GiniFilter(n_features=2),
    "F statistic": lambda: fs.SFFS(n_features=2),
    "muse": lambda: fs.Muse(n_features=2),
    "gain of trees": lambda: fs.TopGain(n_features=2, n_estimators=2, max_depth=2),
    "lasso": lambda: fs.FederatedLasso(n_features=2),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_selection_from_stored_tables_is_that_from_held_ones(tmp_path, monkeypatch, name):
    whole, rng = frame(), np.random.default_rng(8)
    shop = whole.select("who", "amount", "code", "town").sample(fraction=0.9, seed=2, shuffle=True)
    own = pd.DataFrame({"who": whole["who"].to_list(), "age": rng.normal(size=300), "y": whole["y"].to_numpy()})
    files = {
        "bank": written(tmp_path, "feather", pl.from_pandas(own), "bank"),
        "shop": written(tmp_path, "parquet", shop),
    }
    found = []
    for most in (2**26, 0):
        monkeypatch.setattr(stored, "MOST_CELLS", most)
        fed = fs.Federation.from_tables(files, id="who", label=("bank", "y"))
        found.append(METHODS[name]().fit(fed))
    assert found[0].selected_ == found[1].selected_
    pd.testing.assert_frame_equal(found[0].scores_, found[1].scores_)
