"""``fedsift party journal``, persons in party.toml, and the rows of an earlier job in a job file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import mixed_table
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app
from fedsift.core.federation import Federation
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import DataError, JobError
from fedsift.jobs.job_file import load_job
from fedsift.mpc.psi import align
from fedsift.site.site import PolicySite, open_site

PARTY = '[party]\nname = "{name}"\nfile = "{name}.csv"\nid = "id"\n{more}\n[policy]\n{rules}\n'


@pytest.fixture
def folder(tmp_path):
    """Two organisations, each with a folder of its own."""
    X, y = mixed_table(240)
    X.insert(0, "id", [f"c{i}" for i in range(240)])
    X.insert(1, "patient", [f"p{i // 3}" for i in range(240)])
    for name, columns in (("bank", ["id", "patient", "signal", "noise"]), ("shop", ["id", "weak", "counts"])):
        (tmp_path / name).mkdir()
        X[columns].assign(**({"outcome": y} if name == "bank" else {})).to_csv(
            tmp_path / name / f"{name}.csv", index=False
        )
    write(tmp_path, "bank", 'label = "outcome"')
    write(tmp_path, "shop")
    return tmp_path


def write(folder: Path, name: str, more: str = "", rules: str = "") -> Path:
    path = folder / name / "party.toml"
    path.write_text(PARTY.format(name=name, more=more, rules=rules), encoding="utf-8")
    return path


def sites(folder: Path) -> dict[str, PolicySite]:
    return {name: open_site(folder / name / "party.toml") for name in ("bank", "shop")}


def run(folder: Path, method: fs.Selector) -> fs.Selector:
    opened = sites(folder)
    return method.fit(align(Federation(InProcess(opened), list(opened), active="bank")))


def journal(folder: Path, name: str, *options: str):
    return CliRunner().invoke(app, ["party", "journal", "--party", str(folder / name / "party.toml"), *options])


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_journal_tells_an_output_checker_what_left(folder):
    run(folder, fs.InformationValue(n_features=2))
    told = json.loads(journal(folder, "bank", "--json").output)
    by_operation = {line["operation"]: line for line in told["lines"]}
    answer, opened = by_operation["the answer"], by_operation["tables.open_counts"]
    assert (answer["readers"], answer["counted"]) == ("shop", pytest.approx(2.0))  # none, one or both of two columns
    assert (opened["readers"], opened["counted"], opened["rows"]) == ("coordinator", 0.0, 240)
    assert opened["statistics"] > 0
    assert by_operation["labels.encrypt_classes"]["readers"] == "nobody"
    assert told["smallest_atom"] == 240
    assert told["most_bits_a_row"] == pytest.approx(2.0 / 240)
    assert "c17" not in json.dumps(told)


def test_the_journal_as_a_table(folder):
    run(folder, fs.InformationValue(n_features=2, epsilon=1.0))
    result = journal(folder, "shop")
    assert result.exit_code == 0, result.output
    assert "noise: epsilon 1.0" in result.output
    assert "max_bits = 0.1" in result.output


def test_an_empty_journal(folder):
    open_site(folder / "shop" / "party.toml")
    assert "nothing exact was let out yet" in journal(folder, "shop").output


def test_a_journal_that_is_gone_keeps_the_site_from_starting_until_a_person_says_so(folder):
    run(folder, fs.InformationValue(n_features=2))
    (folder / "bank" / "journal-bank.sqlite").unlink()
    with pytest.raises(DataError, match="--restart"):
        open_site(folder / "bank" / "party.toml")
    assert journal(folder, "bank").exit_code == DataError.exit_code
    restarted = journal(folder, "bank", "--restart")
    assert "a new journal has begun" in restarted.output
    assert open_site(folder / "bank" / "party.toml").name == "bank"


def test_a_new_journal_key_is_a_new_journal_by_a_persons_hand(folder):
    open_site(folder / "bank" / "party.toml")
    CliRunner().invoke(app, ["party", "secrets", "rotate", "journal", "--party", str(folder / "bank" / "party.toml")])
    with pytest.raises(DataError, match="another journal key"):
        open_site(folder / "bank" / "party.toml")


# --- persons ---------------------------------------------------------------------------------------------------------


def test_the_column_of_persons_takes_no_part(folder):
    write(folder, "bank", 'label = "outcome"\nperson = "patient"')
    site = open_site(folder / "bank" / "party.toml")
    assert site.table.columns == ["signal", "noise"]
    assert site.distinct_rows("") == 80


def test_persons_beside_a_list_of_columns(folder):
    write(folder, "bank", 'label = "outcome"\nperson = "patient"\ncolumns = ["signal"]')
    assert open_site(folder / "bank" / "party.toml").table.columns == ["signal"]


@pytest.mark.parametrize("person", ["id", "outcome", "signal"])
def test_a_column_of_persons_is_nothing_else(folder, person):
    write(folder, "bank", f'label = "outcome"\nperson = "{person}"\ncolumns = ["signal"]')
    with pytest.raises(JobError, match=r"party\.person"):
        open_site(folder / "bank" / "party.toml")


def test_a_row_of_nobody(folder):
    table = (folder / "bank" / "bank.csv").read_text(encoding="utf-8").replace(",p0,", ",,", 1)
    (folder / "bank" / "bank.csv").write_text(table, encoding="utf-8")
    write(folder, "bank", 'label = "outcome"\nperson = "patient"')
    with pytest.raises(JobError, match="rows without a value"):
        open_site(folder / "bank" / "party.toml")


def test_check_says_which_cell_is_enough_for_persons(folder):
    write(folder, "bank", 'label = "outcome"\nperson = "patient"')
    job = job_file(folder)
    command = ["party", "check", str(job), "--party", str(folder / "bank" / "party.toml")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 5
    assert "min_cell is to be 30 or more" in " ".join(result.output.split())
    fine = CliRunner().invoke(app, [*command, "--set", "method.min_cell=30"])
    assert fine.exit_code == 0, fine.output


# --- the rows of an earlier job --------------------------------------------------------------------------------------


def job_file(folder: Path, more: str = "") -> Path:
    text = (
        '[parties.bank]\nfile = "bank/bank.csv"\nid = "id"\nlabel = "outcome"\n[parties.shop]\nfile = "shop/shop.csv"\n'
        f'id = "id"\n[method]\nname = "information_value"\nn_features = 2\n[federation]\n{more}\n'
    )
    (folder / "job.toml").write_text(text, encoding="utf-8")
    return folder / "job.toml"


def test_a_job_file_names_the_rows_of_an_earlier_job(folder):
    job = load_job(job_file(folder, 'rows = "as in 3f8a21c07b5e"'))
    assert job.settings.federation.as_in == "3f8a21c07b5e"
    assert load_job(job_file(folder)).settings.federation.as_in is None
    with pytest.raises(JobError, match=r"federation\.rows.*--on"):
        load_job(job_file(folder, 'rows = "as in 3f8a21c07b5e"')).federation({})


@pytest.mark.parametrize("rows", ["as in 3f8a", "as in THE LAST", "3f8a21c07b5e", "as in 3f8a21c07b5e; drop"])
def test_a_job_file_names_an_earlier_job_by_its_hash(folder, rows):
    with pytest.raises(JobError, match="as in JOB"):
        load_job(job_file(folder, f'rows = "{rows}"'))


def test_the_hash_stands_in_the_result_and_in_the_journal(folder):
    result = CliRunner().invoke(app, ["run", str(job_file(folder)), "--out", str(folder / "out")])
    assert result.exit_code == 0, result.output
    told = json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))
    run(folder, load_job(folder / "job.toml").selector())
    lines = json.loads(journal(folder, "bank", "--json").output)["lines"]
    assert told["hash"] in {line["job"] for line in lines}


def test_a_site_without_a_journal_knows_no_earlier_job():
    fed = Federation.split(np.eye(60)[:, :4], np.arange(60) % 2, parties=["bank", "shop"])
    with pytest.raises(fs.errors.OperationRefused, match="keeps no journal"):
        align(fed, as_in="3f8a21c07b5e")
