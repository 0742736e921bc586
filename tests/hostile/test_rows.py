"""Attacks by choosing rows: views of few, of one many times, of two sets that differ in one person."""

from __future__ import annotations

import numpy as np
import pytest

import fedsift as fs
from hostile.coordinator import ROWS, Hostile, refused

IV = fs.InformationValue(n_features=2)
CLASSES = {"scheme": "auto", "task": "auto"}


@pytest.fixture
def hostile():
    return Hostile()


@pytest.fixture
def iv(hostile):
    job = hostile.of(IV)
    return {"session": hostile.begin(job), "job": job.hash}


SMALL = {
    "three rows": np.arange(3),
    "no rows": np.arange(0),
    "one row, many times": np.zeros(ROWS, dtype=np.int64),
    "forty-nine rows, each three times": np.repeat(np.arange(49), 3),
}
BROKEN = {
    "rows that are not there": np.array([ROWS]),
    "rows from behind": np.arange(-60, 0),
    "rows in two dimensions": np.zeros((60, 2), dtype=np.int64),
    "half rows": np.arange(60) / 2,
    "rows as truth values": np.ones(60, dtype=bool),
    "rows as a list": list(range(60)),
}


@pytest.mark.parametrize("attack", SMALL)
def test_a_view_of_few_persons_is_taken_back(hostile, iv, attack):
    says = "each once" if "times" in attack else "min_rows"
    refused(hostile.send("bank", "core.define_view", **iv, view="few", rows=SMALL[attack]), says)
    assert "few" not in hostile.sites["bank"].views
    refused(hostile.send("bank", "labels.encrypt_classes", **iv, on="few", **CLASSES), "no such view")


@pytest.mark.parametrize("attack", BROKEN)
def test_rows_that_are_none(hostile, iv, attack):
    refused(hostile.send("bank", "core.define_view", **iv, view="odd", rows=BROKEN[attack]))
    assert "odd" not in hostile.sites["bank"].views


@pytest.mark.parametrize("columns", [[3], [-1], [0, 99], ["signal"], 5, [0.5], list(range(10**6 + 1))])
def test_columns_that_are_none(hostile, iv, columns):
    refused(hostile.send("bank", "core.define_view", **iv, view="odd", columns=columns))


def test_a_name_of_a_view_has_bounds(hostile, iv):
    refused(hostile.send("bank", "core.define_view", **iv, view="", rows=np.arange(60)), "a view has a name")
    refused(hostile.send("bank", "core.define_view", **iv, view="x" * 101, rows=np.arange(60)), "too long")
    assert hostile.sites["bank"].views[""] == (None, None)


def answer(hostile: Hostile, rows: np.ndarray) -> dict:
    """What a site says to a question about these rows, in a job of its own."""
    job = hostile.of(IV)
    asked = {"session": hostile.begin(job), "job": job.hash}
    view = f"view of {asked['session']}"
    assert hostile.send("bank", "core.define_view", **asked, view=view, rows=rows) == {"ok": None}
    return hostile.send("bank", "labels.encrypt_classes", **asked, on=view, **CLASSES)


def test_rows_and_rows_minus_one(hostile):
    """security.md, read 15: the difference of two answers is one person."""
    assert "ok" in answer(hostile, np.arange(ROWS))
    refused(answer(hostile, np.arange(ROWS - 1)), "min_rows")
    refused(answer(hostile, np.arange(1, ROWS)), "min_rows")
    assert "ok" in answer(hostile, np.arange(ROWS))


def test_four_sets_that_differ_by_many_and_give_one_row_by_alternating_sums():
    """Pairwise differences are not enough of a rule: each two of these differ in 50 rows or more."""
    hostile = Hostile(rows=220)
    parts = np.split(np.arange(220), [55, 110, 165])
    sets = [np.concatenate([parts[i], parts[j]]) for i, j in ((0, 1), (1, 2), (2, 3))]
    for rows in sets:
        assert "ok" in answer(hostile, rows)
    refused(answer(hostile, np.concatenate([parts[0], parts[3][1:]])), "min_rows")


def test_folds_of_a_job_pass(hostile):
    big = Hostile(rows=260)
    folds = np.array_split(np.random.default_rng(0).permutation(260), 5)
    for fold in folds:
        assert "ok" in answer(big, np.setdiff1d(np.arange(260), fold))
