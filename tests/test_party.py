"""What a party makes of its columns and labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedsift.core.binning import MAX_CATEGORY_BINS
from fedsift.core.party import Party, Site, read_labels
from fedsift.core.table import Table
from fedsift.errors import DataError


def party_of(frame: pd.DataFrame, label: str | None = None) -> Party:
    return Party(Site("bank", Table.read(frame, id=None, label=label, name="bank")), "")


def test_missing_values_have_a_bin_of_their_own():
    codes, count = party_of(pd.DataFrame({"x": [1.0, np.nan, 2.0, 3.0, np.nan, 4.0]})).binned("x", 2)
    assert count == 3
    assert codes.tolist() == [0, 2, 0, 1, 2, 1]


def test_constant_and_empty_columns_are_one_bin():
    party = party_of(pd.DataFrame({"c": [5.0] * 4, "m": [np.nan] * 4}))
    for column in ("c", "m"):
        codes, count = party.binned(column, 8)
        assert count == 1
        assert set(codes) == {0}


def test_rare_categories_share_a_bin():
    values = [f"v{i}" for i in range(200) for _ in range(1 + (i < 10))]
    codes, count = party_of(pd.DataFrame({"x": values})).binned("x", 5)
    assert count == MAX_CATEGORY_BINS
    assert len(set(codes)) == MAX_CATEGORY_BINS


def test_equal_frequency_bins_are_equal():
    codes, count = party_of(pd.DataFrame({"x": np.random.default_rng(0).normal(size=1000)})).binned("x", 10)
    assert count == 10
    assert set(np.bincount(codes)) == {100}


@pytest.mark.parametrize(
    ("raw", "task", "classes"),
    [
        (np.array(["no", "yes", "no"], dtype=object), "classification", 2),
        (np.array([True, False, True]), "classification", 2),
        (np.array([0, 1, 2, 1]), "classification", 3),
        (np.array([1.0, 2.0, 1.0]), "classification", 2),
        (np.array([0.5, 1.5, 2.25]), "regression", 3),
        (np.arange(100), "regression", 5),
    ],
)
def test_the_task_is_guessed_from_the_label(raw, task, classes):
    labels = read_labels(raw, "bank")
    assert labels.task == task
    assert labels.n_classes == classes


def test_the_user_may_say_what_the_task_is():
    assert read_labels(np.array([3, 5, 8, 5]), "bank", task="regression").values.tolist() == [3, 5, 8, 5]
    with pytest.raises(DataError, match="text"):
        read_labels(np.array(["a", "b"], dtype=object), "bank", task="regression")


def test_a_party_without_labels_says_so():
    with pytest.raises(DataError, match="'bank' has no label"):
        party_of(pd.DataFrame({"x": [1.0, 2.0]})).labels()
