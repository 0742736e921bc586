"""Results to MLflow: to a real one in a folder of the test's own, where it is installed."""

from __future__ import annotations

import sys

import pytest
from test_training import job_file
from typer.testing import CliRunner

from fedsift.cli.main import app
from fedsift.errors import MissingExtra
from fedsift.jobs.job_file import load_job
from fedsift.jobs.tracking import check_tracking


def invoke(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments), "-q"])
    assert done.exit_code == 0, done.output


@pytest.fixture
def job(tmp_path):
    file = job_file(tmp_path, "linear")
    file.write_text(f'{file.read_text()}[evaluate]\nmodel = "linear"\n[output]\nmlflow = "partners"\n')
    return file


def test_without_the_package_the_command_to_install_it_is_told_before_the_work(job, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(MissingExtra, match=r"pip install 'fedsift\[mlflow\]'"):
        check_tracking(load_job(job))
    check_tracking(load_job(job_file(job.parent)))
    assert load_job(job).out.name == "job-result", "the name of a folder is not needed"


@pytest.mark.filterwarnings("ignore")  # MLflow's own and its database's
def test_parameters_figures_and_pages_are_in_the_store_and_no_partys_own_file(job, tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    invoke("run", job)
    invoke("value", job, "--folds", 3, "--no-null", "--out", tmp_path / "value.html")
    invoke("train", job)
    client = tracking.MlflowClient()
    found = client.search_runs([client.get_experiment_by_name("partners").experiment_id])
    by_name = {run.info.run_name: run for run in found}
    assert set(by_name) == {"job run", "job value", "job train"}
    files = {name: {file.path for file in client.list_artifacts(run.info.run_id)} for name, run in by_name.items()}
    assert {"report.html", "ledger.csv", "selection.json"} <= files["job run"]
    assert files["job value"] == {"value.json", "value.html"}
    assert files["job train"] == {"card.md", "card.json", "selection.json"}, "parts stay with their parties"
    assert by_name["job run"].data.params["method"] == "all"
    assert by_name["job run"].data.metrics["accuracy"] > 0.8
    assert by_name["job value"].data.metrics["shop adds"] > 0.1
    assert by_name["job train"].data.metrics["accuracy"] > 0.8
    assert len(by_name["job train"].data.tags["job_hash"]) == 64
    assert all(run.info.status == "FINISHED" for run in found)
