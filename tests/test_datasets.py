"""Benchmark data are found or explained; the demo's organisations are what the documentation says."""

import numpy as np
import pandas as pd
import pytest

from fedsift.core.table import Table
from fedsift.errors import DataError, ParameterError
from fedsift.evaluate.datasets import demo_tables, friedman, load, write_demo
from fedsift.jobs.columns_seen import look_at


@pytest.fixture(scope="module")
def demo():
    return demo_tables()


@pytest.fixture
def folder(tmp_path):
    frame = pd.DataFrame({"f0": [1.0, np.nan], "kind": pd.Categorical(["u", "v"]), "target": [0, 1]})
    frame.to_parquet(tmp_path / "colon.parquet", index=False)
    return tmp_path


def test_load_finds_the_table_by_argument_file_or_environment(folder, monkeypatch):
    monkeypatch.delenv("FEDSIFT_DATA", raising=False)
    for path in (folder, str(folder), folder / "colon.parquet"):
        X, y = load("colon", path)
        assert list(X.columns) == ["f0", "kind"]
        assert y.tolist() == [0, 1]
        assert y.name == "target"
    monkeypatch.setenv("FEDSIFT_DATA", str(folder))
    assert load("colon")[0].shape == (2, 2)


def test_a_data_set_that_is_not_there_is_explained(folder, monkeypatch):
    monkeypatch.delenv("FEDSIFT_DATA", raising=False)
    cases = [
        (lambda: load("madelon"), ("madelon", "FEDSIFT_DATA", "path=", "ASU", "target")),
        (lambda: load("colonn", folder), ("Did you mean 'colon'",)),
        (lambda: load("madelon", folder / "none"), ("no Parquet files",)),
    ]
    for call, words in cases:
        with pytest.raises(DataError) as caught:
            call()
        assert all(word in str(caught.value) for word in words)


def test_a_file_without_a_target_or_broken_is_refused(folder):
    pd.DataFrame({"x": [1]}).to_parquet(folder / "other.parquet")
    with pytest.raises(DataError, match="no column 'target'"):
        load("other", folder)
    (folder / "broken.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"broken\.parquet cannot be read"):
        load("broken", folder)


def test_friedman_depends_on_its_five_columns_only():
    X, y = friedman(200, 15, random_state=0)
    assert X.shape == (200, 20)
    assert list(X.columns[:6]) == ["x1", "x2", "x3", "x4", "x5", "noise_1"]
    formula = 10 * np.sin(np.pi * X.x1 * X.x2) + 20 * (X.x3 - 0.5) ** 2 + 10 * X.x4 + 5 * X.x5
    np.testing.assert_allclose(y, formula)
    pd.testing.assert_series_equal(y, friedman(200, 15, random_state=0)[1])
    assert friedman()[0].shape == (1000, 1000)
    with pytest.raises(ParameterError, match="n_noise=-1"):
        friedman(n_noise=-1)


def test_demo_is_the_same_every_time_and_differs_by_seed(demo):
    again, other = demo_tables(0), demo_tables(1)
    for name in demo:
        pd.testing.assert_frame_equal(demo[name], again[name])
        assert set(demo[name]["patient"]) != set(other[name]["patient"])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_demo_ids_overlap_partly_and_extras_belong_to_one_party(seed):
    tables = demo_tables(seed)
    ids = {name: set(table["patient"]) for name, table in tables.items()}
    assert all(len(ids[name]) == len(table) for name, table in tables.items())
    everywhere = set.intersection(*ids.values())
    assert 385 <= len(everywhere) <= 430
    for name, own in ids.items():
        others = set().union(*(i for n, i in ids.items() if n != name))
        assert len(own - others) >= 20
        assert 460 + 20 <= len(own) <= 475 + 60
    assert all(len(i) == 8 and i[0] == "P" and i[5] == "-" for i in everywhere)
    shared = [[i for i in t["patient"] if i in everywhere] for t in tables.values()]
    assert shared[0] != shared[1] != shared[2]


def test_demo_has_a_duplicated_column_gaps_noise_and_a_weak_category(demo):
    hospital, lab, insurer = (demo[name].set_index("patient") for name in ("hospital", "lab", "insurer"))
    both = hospital.join(lab, how="inner")
    assert len(both) > 400
    assert (both["texture"] == both["nuclear_texture"]).all()
    assert 0.01 < lab.isna().mean().max() < 0.15
    assert not lab["nuclear_texture"].isna().any()
    ill = (hospital["malignant"] == "yes").astype(float)
    noise = [abs(lab[f"assay_{i}"].corr(ill.reindex(lab.index))) for i in range(1, 6)]
    assert max(noise) < 0.15
    label = ill.reindex(insurer.index)
    premium = (insurer["plan"] == "premium").astype(float)
    assert 0 < premium.corr(label) < 0.2
    assert lab["worst_radius"].corr(ill.reindex(lab.index)) > 0.6


def test_demo_has_a_leak_that_a_check_of_the_file_names(demo):
    table = Table.read(demo["hospital"], id="patient", label="malignant", name="hospital")
    warned = [line for line in look_at(table).warnings if "nearly alone" in line]
    assert [line.split(":")[0] for line in warned] == ["therapy_days"]


def test_patients_who_come_later_are_known_to_all_and_none_was_there_before(demo):
    later = demo_tables(0, new=True)
    ids = [set(table["patient"]) for table in later.values()]
    assert ids[0] == ids[1] == ids[2]
    assert len(ids[0]) == 69
    assert not ids[0] & set().union(*(table["patient"] for table in demo.values()))
    assert [list(table.columns) for table in later.values()] == [list(table.columns) for table in demo.values()]


def test_demo_extra_patients_are_plausible(demo):
    for table in demo.values():
        numbers = table.select_dtypes("number")
        assert (numbers.fillna(0) >= 0).all().all()
        assert numbers.nunique().min() > 1


def test_written_demo_reads_back_with_the_kinds_that_it_shows_off(tmp_path):
    paths = write_demo(tmp_path / "new" / "demo")
    assert [path.name for path in paths.values()] == ["hospital.csv", "lab.csv", "insurer.parquet"]
    hospital = Table.read(paths["hospital"], id="patient", label="malignant")
    insurer = Table.read(paths["insurer"], id="patient")
    lab = Table.read(paths["lab"], id="patient")
    assert set(hospital.label) == {"yes", "no"}
    assert hospital.kinds["ward"] == "categorical"
    assert hospital.n_columns == 7
    assert set(insurer.kinds.values()) == {"numeric", "categorical", "date", "boolean"}
    assert set(lab.kinds.values()) == {"numeric"}
    assert np.isnan(lab.matrix()).any()
    again = write_demo(tmp_path / "again")
    assert all(again[name].read_bytes() == paths[name].read_bytes() for name in paths)
