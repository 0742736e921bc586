"""The demo's three commands: what each partner is worth, a model with its selection and report, predictions and why."""

from __future__ import annotations

import csv
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedsift.cli import demo
from fedsift.cli.main import app
from fedsift.core.transports.inprocess import InProcess
from fedsift.evaluate.datasets import demo_tables, new_file, write_demo


@pytest.fixture
def wires(monkeypatch):
    """Every byte that parties and coordinator say to each other, whichever command is run."""
    said, exchange = [], InProcess.exchange

    def recorded(self, requests, timeout):
        replies = exchange(self, requests, timeout)
        said.extend(requests.values())
        said.extend(reply.data for reply in replies.values() if reply.data is not None)
        return replies

    monkeypatch.setattr(InProcess, "exchange", recorded)
    return said


def fedsift(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments), "-q"])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_one_job_file_and_three_commands_give_value_selection_model_predictions_why_and_report(tmp_path, wires):
    """And nothing is pooled: no cell, label or id of anybody is in any message, of any command."""
    paths = write_demo(tmp_path)
    job = tmp_path / "job.toml"
    job.write_text(demo.JOB_FILE)
    worth = fedsift("value", job, "--folds", 2, "--no-null", "--out", tmp_path / "value.html")
    assert "hospital alone" in worth
    fedsift("train", job, "--out", tmp_path / "model")
    written = {file.name for file in (tmp_path / "model").iterdir()}
    assert {"card.md", "card.json", "model.json", "selection.json", "report.html"} <= written
    files = [f"{name}={new_file(path)}" for name, path in paths.items()]
    assert wires, "something was said"
    sent = b"".join(wires)
    wires.clear()
    fedsift("predict", tmp_path / "model", *files, "--out", tmp_path / "out.csv", "--explain", tmp_path / "why.html")
    assert "<h2>Calibration" in (tmp_path / "why.html").read_text()
    told = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    rows = {row["id"]: float(row["yes"]) for row in told}
    truth = demo_tables(new=True)["hospital"].set_index("patient")["malignant"]
    assert set(rows) == set(truth.index)
    assert np.mean([(chance > 0.5) == (truth[who] == "yes") for who, chance in rows.items()]) > 0.8
    assert _found(demo_tables(), sent) == [], "in the first two commands"
    # Predictions go to who asked for them, by id: the label holder's new patients stand in one message, and no others.
    later = demo_tables(new=True)
    assert set(_found(later, b"".join(wires))) <= {"hospital.patient", "lab.patient", "insurer.patient"}
    assert sum(re.search(rb"P\d{4}-[A-Z]\d", data) is not None for data in wires) == 1


def _found(tables, sent):
    """Columns of which cells are in what was sent: ids, long texts, and two numbers of many digits of each column.

    By chance a number is there with 1e-10 (sixty of eight bytes in 40 MB), an id with 5e-9: it has a pattern, and one
    in a thousand of that pattern is a patient's.
    """
    ids = {match.decode() for match in re.findall(rb"P\d{4}-[A-Z]\d", sent)}
    found = []
    for party, table in tables.items():
        if ids & set(table["patient"]):
            found.append(f"{party}.patient")
        for column in table.columns.drop("patient"):
            values = table[column].dropna()
            if pd.api.types.is_float_dtype(values):
                marks = [np.float64(value).tobytes() for value in values if round(value, 2) != value][:2]
            else:
                marks = [str(value).encode() for value in values.unique()[:5] if len(str(value)) > 7]
            found += [f"{party}.{column}"] if any(mark in sent for mark in marks) else []
    return found


def test_the_demo_itself_writes_three_pages_and_keeps_an_edited_job_file(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "FOLDS", 2)
    told = fedsift("demo", "--out", tmp_path / "demo")
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert {"job.toml", "value.html", "result", "model", "predictions.csv", "explain.html"} <= names
    for words in ("information_value: 5 of 44", "Who learned what", "all features", "random", "predictions", "Next:"):
        assert words in told
    assert (tmp_path / "demo" / "result" / "report.html").stat().st_size > 10_000
    edited = demo.JOB_FILE.replace("n_features = 5", "n_features = 3")
    (tmp_path / "demo" / "job.toml").write_text(edited)
    said = []
    monkeypatch.setattr(demo.console, "remark", said.append)
    demo._prepare(tmp_path / "demo", tmp_path / "demo" / "job.toml")
    assert "was edited" in said[0]
    assert (tmp_path / "demo" / "job.toml").read_text() == edited
