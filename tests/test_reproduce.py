"""Runs that repeat: the same job, files and seed give the same answer, and ``fedsift reproduce`` shows it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from method_cases import NEEDS_TORCH, QUICK, federation, selector
from sklearn.base import clone
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli import main as cli
from fedsift.cli.schema import job_schema
from fedsift.methods import METHODS
from fedsift.site.settings import PartyFile

EXAMPLE = Path(__file__).parents[1] / "examples" / "two_files"
VERTICAL = [name for name in METHODS if METHODS[name].partitions[0] == "vertical"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ran")
    for name in ("bank.csv", "shop.csv", "job.toml"):
        shutil.copy(EXAMPLE / name, folder)
    assert fedsift("run", folder / "job.toml", "--set", "method.n_features=3", "-q").exit_code == 0
    return folder


@pytest.fixture
def run(ran, tmp_path):
    """A copy that a test may spoil."""
    shutil.copytree(ran, tmp_path / "there")
    return tmp_path / "there"


def fedsift(*args):
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


def result(folder: Path) -> Path:
    return next(path.parent for path in folder.glob("*/run.json"))


def test_the_same_job_and_files_repeat_although_the_folder_has_moved(run):
    shown = fedsift("reproduce", result(run), "-q")
    assert shown.exit_code == 0, shown.output
    assert "The run repeats" in shown.stdout
    assert "other" not in shown.stdout


def test_rows_in_another_order_are_other_bytes_and_the_same_answer(run):
    shop = pd.read_csv(run / "shop.csv", dtype=str, keep_default_na=False)
    shop.iloc[::-1].to_csv(run / "shop.csv", index=False)
    shown = fedsift("reproduce", result(run), "-q")
    assert shown.exit_code == 0, shown.output
    assert "other bytes at shop" in shown.stdout


def test_a_value_that_changed_is_found_and_its_file_named(run):
    bank = pd.read_csv(run / "bank.csv")
    kept = json.loads((result(run) / "selection.json").read_text())["selected"]["bank"][0]
    bank[kept] = bank[kept].to_numpy()[::-1]
    bank.to_csv(run / "bank.csv", index=False)
    shown = fedsift("reproduce", result(run), "-q")
    assert shown.exit_code == 1
    assert "there changed: files" in shown.stdout


def test_a_job_file_that_has_gone_or_moved_is_asked_for(run):
    (run / "job.toml").rename(run / "other.toml")
    assert "--job FILE" in fedsift("reproduce", result(run), "-q").stderr
    assert fedsift("reproduce", result(run), "--job", run / "other.toml", "-q").exit_code == 0


def test_what_is_no_run_is_refused_in_one_line(run):
    for spoil, words in (('{"format": "x"}', "not written by fedsift"), ("{", "damaged"), (None, "no run.json")):
        (run / "empty").mkdir(exist_ok=True)
        (run / "empty" / "run.json").unlink(missing_ok=True)
        if spoil is not None:
            (run / "empty" / "run.json").write_text(spoil)
        said = fedsift("reproduce", run / "empty")
        assert said.exit_code != 0
        assert words in said.stderr


@pytest.mark.parametrize("method", [name for name in METHODS if name not in VERTICAL])
def test_four_runs_of_a_method_over_rows_or_a_grid_are_equal(method):
    """The others are in the next test, in four orders of rows; what FLARE gives is compared in test_flare."""
    first, *others = (selector(method).fit(federation(method)) for _ in range(4))
    for other in others:
        scores = [fit.scores_["score"].to_numpy(dtype=float) for fit in (other, first)]
        np.testing.assert_allclose(*scores, rtol=max(first.repeats_within, 1e-9), atol=1e-9)
        assert first.selected_ == other.selected_
        assert first.selection_.engineered == other.selection_.engineered


@pytest.mark.parametrize("method", VERTICAL)
def test_the_order_of_the_files_rows_changes_nothing(method):
    if method in NEEDS_TORCH:
        pytest.importorskip("torch", reason="the extra nn is not installed")
    first, *others = (fitted(method, order) for order in (1, 2, 3, 4))
    allowed = max(first.repeats_within, 1e-9)
    for other in others:
        np.testing.assert_allclose(other.scores_["score"], first.scores_["score"], rtol=allowed, atol=1e-9)
        if allowed < 0.01:  # shares round: where scores may move, so may what stands at the border
            assert first.selected_ == other.selected_


@pytest.mark.parametrize("method", ["information_value", "gini", "sffs", "muse"])
def test_copies_tie_in_every_run_and_one_of_two_is_always_the_same(method):
    """Bins are shuffled anew in each run: sums of fractions in another order would differ in the last digit."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "c"])
    y = (X["a"] + X["b"] + rng.normal(size=300) > 0).astype(int)
    X = pd.concat([X, X.add_suffix("_copy")], axis=1)
    chosen = METHODS[method](**({"preselect": False} if method == "muse" else {}), n_features=1)
    fits = [clone(chosen).fit(fs.Federation.split(X, y, parties=2)) for _ in range(6)]
    for fit in fits[1:]:
        assert fit.selected_ == fits[0].selected_
        pd.testing.assert_frame_equal(fit.scores_, fits[0].scores_, check_exact=True)


def fitted(method: str, order: int) -> fs.Selector:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(120, 8))
    left, right = pd.DataFrame(X[:, :4]).add_prefix("a"), pd.DataFrame(X[:, 4:]).add_prefix("b")
    left["y"] = (X[:, 0] + X[:, 5] + 0.5 * rng.normal(size=120) > 0).astype(int)
    for frame in (left, right):
        frame["id"] = [f"p{row:03d}" for row in range(120)]
    shuffled = np.random.default_rng(order)
    tables = {name: frame.iloc[shuffled.permutation(120)] for name, frame in (("A", left), ("B", right))}
    selector = METHODS[method](**QUICK.get(method, {}))
    if "random_state" in selector.get_params():
        selector.set_params(random_state=0)
    return selector.fit(fs.Federation.from_tables(tables, id="id", label=("A", "y")))


# --- schemas ---------------------------------------------------------------------------------------------------------


def test_the_schema_takes_the_example_and_finds_a_wrong_parameter():
    jsonschema = pytest.importorskip("jsonschema")
    tomllib = pytest.importorskip("tomllib")
    job = tomllib.loads((EXAMPLE / "job.toml").read_text(encoding="utf-8"))
    checker = jsonschema.Draft202012Validator(job_schema())
    checker.validate(job)
    for place, key in (("method", "n_feature"), ("federation", "partitions")):
        wrong = json.loads(json.dumps(job))
        wrong.setdefault(place, {})[key] = 3
        assert not checker.is_valid(wrong), f"{place}.{key}"
    assert not checker.is_valid({**job, "method": {"name": "informationvalue"}})


def test_the_schema_of_a_party_file_is_printed_whole():
    printed = json.loads(fedsift("schema", "party").stdout)
    assert set(printed["properties"]) == set(PartyFile.model_fields)
