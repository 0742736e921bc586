"""Files that an earlier version wrote are read, or refused with what to do."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.errors import DataError, JobError
from fedsift.jobs.job_file import load_job
from fedsift.jobs.text import RENAMED
from fedsift.report.record import Report
from fedsift.site.settings import load_party


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 4)), columns=["age", "income", "visits", "basket"])
    return X, (X["income"] + X["basket"] > 0).astype(int)


def changed(file, **entries):
    """The file with other entries at its top."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))


def test_a_selection_of_another_version_is_refused_with_the_command(table, tmp_path):
    file = tmp_path / "selection.json"
    fs.GiniFilter(n_features=2).fit(fs.Federation.split(*table, parties=2)).selection_.save(file)
    assert fs.Selection.load(file).selected
    changed(file, version=0)
    with pytest.raises(DataError, match="fedsift run"):
        fs.Selection.load(file)


@pytest.mark.parametrize("change", [{"version": 1}, {"parameters": {"rounds_of_old": 3}}], ids=str)
def test_a_model_of_another_version_is_to_be_fitted_again(table, tmp_path, change):
    fed = fs.Federation.split(*table, parties=2)
    fs.VerticalLogisticRegression(max_iter=50).fit(fed).save(tmp_path)
    fs.VerticalLogisticRegression.load(tmp_path, fed)
    changed(tmp_path / "model.json", **change)
    with pytest.raises(DataError, match="fit it again and save it"):
        fs.VerticalLogisticRegression.load(tmp_path, fed)


def test_the_record_of_a_run_is_read_or_told_to_be_made_again(table):
    record = fs.report.summarize(fs.GiniFilter(n_features=2).fit(fs.Federation.split(*table, parties=2)))
    assert Report.read(record).answer.kept == 2
    with pytest.raises(DataError, match="fedsift run"):
        Report.read({**record, "version": 0})


def job_text(*lines):
    return "\n".join(
        ['[parties.bank]\nfile = "bank.csv"\nid = "id"\nlabel = "y"', '[parties.shop]\nfile = "shop.csv"\nid = "id"',
         "[method]", *lines, ""]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "old", "new"),
    [("fedsdg", "lambda_", "penalty"), ("fedsdg", "lambdas", "penalties"), ("federated_lasso", "alpha", "penalty"),
     ("feature_election", "secure", "protection"), ("information_value", "bins", "n_bins"),
     ("vertical_flafe", "rounds", "max_iter")],
)  # fmt: skip
def test_a_job_file_with_an_old_name_is_refused_with_the_new_one(tmp_path, method, old, new):
    assert RENAMED[old] == new
    for name in ("bank", "shop"):
        (tmp_path / f"{name}.csv").write_text("id,y\n1,0\n2,1\n")
    file = tmp_path / "job.toml"
    file.write_text(job_text(f'name = "{method}"', f"{old} = 1"))
    with pytest.raises(JobError, match=f"{old}: .*; it is called '{new}' now"):
        load_job(file)


def test_a_party_file_with_an_unknown_key_is_refused_with_its_line(tmp_path):
    """Keys of an earlier party file that are gone are no rules any more: nobody shall believe that they hold."""
    (tmp_path / "bank.csv").write_text("id,y\n1,0\n2,1\n")
    file = tmp_path / "party.toml"
    file.write_text('[party]\nname = "bank"\nfile = "bank.csv"\nid = "id"\n\n[policy]\nmodules = ["fedsift"]\n')
    with pytest.raises(JobError, match=r"party\.toml.*modules"):
        load_party(file)
