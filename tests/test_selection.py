"""Results: saved, loaded, cut to one party, applied."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import fedsift as fs
from fedsift.core.files import write_atomic
from fedsift.errors import DataError, ParameterError
from fedsift.select.selection import Selection


@pytest.fixture
def selection(small_fed):
    return fs.SFFS(n_features=4).fit(small_fed).selection_


def test_saved_and_loaded_it_is_the_same(selection, tmp_path):
    path = selection.save(tmp_path / "deep" / "selection.json")
    loaded = Selection.load(path)
    assert loaded.selected == selection.selected
    pd.testing.assert_frame_equal(loaded.frame(), selection.frame())
    assert json.loads(path.read_text())["format"] == "fedsift-selection"


def test_a_partys_copy_has_its_own_columns_only(selection, small_fed):
    names = small_fed.column_names()
    for party in small_fed.parties:
        text = selection.for_party(party).to_json()
        for other in small_fed.parties:
            if other != party:
                assert not any(f'"{column}"' in text for column in names[other])


def test_a_partys_copy_tells_choices_and_no_score(selection, small_fed):
    for party in small_fed.parties:
        own = selection.for_party(party)
        assert own.selected[party] == selection.selected[party]
        assert [row["score"] for row in own.scores] == [float(row["selected"]) for row in own.scores]
        frame = own.frame()
        for _, part in frame.groupby("selected"):  # within kept and left out: the order of the table
            names = [row["feature"] for row in own.scores]
            assert sorted(part.feature, key=names.index) == part.feature.tolist()
    whole = selection.frame()
    order = whole[whole.selected & (whole.party == "bank")].feature.tolist()
    assert selection.for_party("bank", order=True).selected["bank"] == order
    assert {row["score"] for row in selection.for_party("bank", order=True).scores} <= {0.0, 1.0}


def test_apply_keeps_ids_label_and_selected_columns(selection):
    frame = pd.DataFrame({c: np.arange(3.0) for c in ["signal", "weak", "noise", "extra"]} | {"who": ["a", "b", "c"]})
    table = fs.Table.read(frame, id="who")
    part = Selection("x", {"bank": ["weak", "signal"]}).apply(table)
    assert part.columns == ["weak", "signal"]
    assert part.ids.tolist() == ["a", "b", "c"]
    with pytest.raises(DataError, match="'gone'"):
        Selection("x", {"bank": ["gone"]}).apply(table)
    with pytest.raises(ParameterError, match="say which"):
        selection.apply(table)


def test_transformer_works_in_a_pipeline():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
    y = (X["b"] > 0).astype(int)
    keeper = Selection("x", {"bank": ["b"], "shop": []}).transformer("bank")
    pipeline = make_pipeline(keeper, LogisticRegression()).fit(X, y)
    assert pipeline.score(X, y) > 0.9
    assert keeper.get_feature_names_out().tolist() == ["b"]
    with pytest.raises(DataError, match="'b'"):
        keeper.transform(X.drop(columns="b"))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "not a selection"),
        ("[]", "not a fedsift selection"),
        ('{"format": "fedsift-selection", "version": 99}', "version 99"),
        ('{"format": "fedsift-selection", "version": 1}', "lacks"),
        ('{"format": "fedsift-selection", "version": 1, "method": "x", "selected": {"a": "b"}}', "'a'"),
    ],
)
def test_files_that_are_no_selection_are_refused(tmp_path, content, what):
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(DataError, match=what):
        Selection.load(path)
    with pytest.raises(DataError, match="no selection file"):
        Selection.load(tmp_path / "nothing.json")


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_atomic(tmp_path / "a.json", "old")

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_it_is_frozen(selection):
    with pytest.raises(AttributeError):
        selection.method = "other"


def test_column_names_are_escaped_in_notebooks():
    assert "<script>" not in Selection("x", {"a": ["<script>alert(1)</script>"]})._repr_html_()
