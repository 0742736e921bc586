"""The nulls: drawn fairly, the same columns at every party that shares them, and never steered by data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table

import fedsift as fs
from fedsift.errors import ParameterError
from fedsift.evaluate.evaluation import evaluate


def federation(partition, **options):
    X, y = mixed_table(48)
    X = X.select_dtypes("number").fillna(0.0)
    return fs.Federation.split(X, y, parties=3, partition=partition, **options)


def test_parties_that_share_columns_keep_the_same_ones():
    for seed in range(5):
        fitted = fs.RandomFeatures(n_features=3, random_state=seed).fit(federation("horizontal"))
        assert [len(columns) for columns in fitted.selected_.values()] == [3, 3, 3]
        assert len({tuple(columns) for columns in fitted.selected_.values()}) == 1


def test_columns_are_matched_by_name_and_those_missing_at_a_party_left_out():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(20, 4)), columns=list("abcd")).assign(y=np.arange(20) % 2)
    tables = {"north": frame, "south": frame[["d", "y", "c", "a"]]}
    fed = fs.Federation.from_tables(tables, id=None, label="y", partition="horizontal")
    for seed in range(8):
        chosen = fs.RandomFeatures(n_features=2, random_state=seed).fit(fed).selected_
        assert set(chosen["north"]) == set(chosen["south"])
        assert "b" not in chosen["north"]
    assert set(fs.RandomFeatures(n_features=9).fit(fed).selected_["north"]) == set("acd")


def test_a_grid_of_parties_keeps_so_many_columns_in_all():
    fed = federation("hybrid", grid=(2, 2))
    fitted = fs.RandomFeatures(n_features=3).fit(fed)
    assert len({column for columns in fitted.selected_.values() for column in columns}) == 3
    for block in ("columns1", "columns2"):
        assert fitted.selected_[f"rows1-{block}"] == fitted.selected_[f"rows2-{block}"]


@pytest.mark.parametrize("partition", ["vertical", "horizontal"])
def test_no_draw_favours_a_column(partition):
    fed = federation(partition)
    counts: dict[str, int] = {}
    for seed in range(200):
        chosen = fs.RandomFeatures(n_features=2, random_state=seed).fit(fed).selected_
        for column in {column for columns in chosen.values() for column in columns}:
            counts[column] = counts.get(column, 0) + 1
    shares = np.array(list(counts.values())) / 200
    assert len(counts) == len({column for columns in fed.column_names().values() for column in columns})
    assert np.abs(shares - 2 / len(counts)).max() < 0.13


def test_no_draw_looks_at_the_data():
    one, other = federation("horizontal"), federation("horizontal", random_state=7)
    assert fs.RandomFeatures(n_features=3).fit(one).selected_ == fs.RandomFeatures(n_features=3).fit(other).selected_


def test_names_that_stay_private_cannot_be_matched():
    fed = federation("horizontal")
    fed.names = "private"
    with pytest.raises(ParameterError, match="names='shared'"):
        fs.RandomFeatures(n_features=2).fit(fed)


def test_horizontal_methods_can_be_compared_with_it():
    result = evaluate(federation("horizontal"), fs.RandomFeatures(n_features=2), cv=2, model="knn", pooled=True)
    assert set(result.frame()["n_features"]) == {2, 7}
