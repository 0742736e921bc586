"""A recording of several jobs, taken apart: each has its own rows, and every attack comes to its end on one of them."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.audit import attacks_on, record
from fedsift.audit.apart import highest, jobs_apart
from fedsift.audit.exposure import Exposure


@functools.cache
def recommended():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(240, 8))).add_prefix("f")
    y = (X["f0"] + X["f5"] + rng.normal(size=240) > 0).astype(int)
    auto = fs.Auto(n_features=3, candidates=["gini", "sffs"], model="linear", folds=2)
    return record(X, y, auto, parties=["bank", "shop"], fresh=(X[:100] + 0.1, y[:100]))


def test_each_job_has_the_rows_and_columns_that_it_was_announced_for():
    seen = recommended()
    parts = {part["coordinator"].job.method: part for part in jobs_apart(seen)}
    assert {"gini", "sffs"} <= set(parts)
    for part in parts.values():
        rows = len(part.truth.labels)
        assert rows in (120, 240)
        for name in ("bank", "shop"):
            np.testing.assert_array_equal(part[name].columns, part.truth.columns[name])
            assert part.truth.fresh.columns[name].shape[1] == part.truth.columns[name].shape[1]
        label = part["bank"].own_table.label
        np.testing.assert_array_equal(np.asarray(label, dtype=int), part.truth.labels)
    fold = parts["sffs"] if len(parts["sffs"].truth.labels) == 120 else parts["gini"]
    whole = seen.truth.columns["shop"]
    assert all((whole == row).all(axis=1).any() for row in fold.truth.columns["shop"])


def test_messages_of_a_job_stand_in_one_part_and_in_no_other():
    numbers = [m.number for part in jobs_apart(recommended()) for m in part["coordinator"].messages]
    assert len(numbers) == len(set(numbers)) > 0


def test_attacks_that_read_a_candidate_come_to_their_end_on_its_job():
    """On the whole conversation bins of several folds stand in one list: no attack on it could be right."""
    found = {
        (part["coordinator"].job.method, attack.name): attack.run(view, part.truth)
        for part in jobs_apart(recommended())
        for view in part.views.values()
        for attack in attacks_on(view.operations, view.role)
    }
    for method, name in (("gini", "sizes_name_columns"), ("gini", "label_counts_tell_members"),
                         ("sffs", "class_sums_tell_members")):  # fmt: skip
        assert not found[method, name].note.startswith("nothing to read"), (method, name)


@pytest.mark.parametrize("selector", [fs.SFFS(n_features=2), fs.TopGain(n_estimators=2, max_depth=2, n_features=2)])
def test_a_recording_of_one_job_is_not_taken_apart(selector):
    X = np.random.default_rng(0).normal(size=(100, 4))
    assert jobs_apart(record(X, (X[:, 0] > 0).astype(int), selector, parties=["bank", "shop"])) == []


def test_of_the_same_attack_on_several_jobs_the_figure_that_adds_most_stands():
    def figure(value, note="", attack="a"):
        return Exposure(attack, "passive", "shop", "labels", "auc", value, 0.5, 0.5, None, 0.0, "", "no", note)

    read, more, none = figure(0.6), figure(0.7), figure(0.9, "nothing to read: no such message")
    assert highest([none, read, more]) == [more]
    assert highest([read, none]) == [read]
    assert highest([none]) == [none]
    assert len(highest([read, figure(0.6, attack="b")])) == 2
