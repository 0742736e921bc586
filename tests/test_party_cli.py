"""fedsift party: what init sees and writes, what check shows, and how both fail."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedsift.cli import main as cli
from fedsift.cli import party
from fedsift.core.table import Table
from fedsift.site.party_file import look
from fedsift.site.policy import Policy
from fedsift.site.rehearsal import rehearse
from fedsift.site.settings import load_party
from fedsift.site.site import open_site

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXAMPLE = Path(__file__).parents[1] / "examples" / "two_files"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("bank.csv", "shop.csv", "job.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fedsift(*args):
    return CliRunner().invoke(cli.app, ["party", *map(str, args)])


def initialised(*options) -> str:
    result = fedsift("init", "bank.csv", "--label", "default", *options)
    assert result.exit_code == 0, result.output
    return result.output


# --- init ------------------------------------------------------------------------------------------------------------


def people(rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 80, rows),
            "customerId": [f"k{i}" for i in range(rows)],
            "account_no": np.arange(rows) + 7000,
            "Last Name": rng.choice(["Aa", "Bb"], rows),
            "remark": [f"a long remark of the clerk about the person, {i % 40}" for i in range(rows)],
            "token": [f"t{i % 50}" for i in range(rows)],
            "city": rng.choice(["x", "y", "z"], rows),
            "income": np.arange(rows) + 1000,
            "weight": rng.normal(70, 9, rows),
        }
    )


def test_ids_names_of_people_and_free_text_are_left_out_unless_named(tmp_path):
    people().to_csv(tmp_path / "people.csv", index=False)
    seen = look(tmp_path / "people.csv", name="people", id=None, label=None, columns=None)
    assert seen.of("id") == ["customerId"]
    assert seen.of("column") == ["age", "city", "income", "weight"]  # numbers may well differ in each row
    why = {column.name: column.why for column in seen.columns if column.role == "out"}
    assert set(why) == {"account_no", "Last Name", "remark", "token"}
    assert "an id" in why["account_no"]
    assert "identifies a person" in why["Last Name"]
    assert "free text" in why["remark"]
    assert "hardly any text occurs twice" in why["token"]
    named = look(tmp_path / "people.csv", name="people", id=None, label=None, columns=["remark", "age"])
    assert named.of("column") == ["age", "remark"]


def test_init_writes_a_file_that_opens_and_says_what_it_saw(folder):
    told = initialised()
    assert "bank.csv: 270 rows, 7 columns, 5 take part" in told
    assert "'customer' was taken as the id" in told
    site = open_site(folder / "party.toml")
    assert site.name == "bank"
    assert site.table.columns == ["age", "income", "overdrafts", "years_with_us", "branch"]
    assert (site.table.id_name, site.table.label_name) == ("customer", "default")
    assert site.policy == Policy()


def test_every_rule_is_explained_in_the_file(folder):
    initialised()
    text = (folder / "party.toml").read_text()
    before = ""
    for line in text.splitlines():
        key = line.partition(" = ")[0]
        if key in Policy.model_fields or key == "# max_epsilon":
            assert before.startswith("#"), f"no word about {key}"
        before = line
    assert set(tomllib.loads(text)["policy"]) == set(Policy.model_fields) - {"max_epsilon"}


def test_a_file_that_is_there_is_not_overwritten(folder):
    initialised()
    (folder / "party.toml").write_text("mine")
    result = fedsift("init", "bank.csv")
    assert result.exit_code == 2
    assert "--force" in result.output
    assert (folder / "party.toml").read_text() == "mine"
    initialised("--force")
    assert (folder / "party.toml").read_text() != "mine"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_options_of_init(folder):
    result = fedsift(
        "init", "shop.csv", "--name", "corner shop", "--no-id", "--columns", "basket_mean,visits",
        "--categorical", "visits", "--out", "site/own.toml",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    settings, _ = load_party(folder / "site" / "own.toml")
    assert settings.party.name == "corner shop"
    assert settings.party.id is None
    assert settings.party.columns == ["visits", "basket_mean"]
    assert Path(settings.party.file) == folder / "shop.csv"  # not below party.toml: in full
    assert open_site(folder / "site" / "own.toml").table.kinds["visits"] == "categorical"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("nothing.csv",), "there is no file 'nothing.csv'"),
        (("bank.csv", "--id", "custmer"), "'custmer'"),
        (("bank.csv", "--label", "defalt"), "'defalt'"),
        (("bank.csv", "--columns", "age,agee"), "'agee'"),
        (("bank.csv", "--categorical", "branche"), "'branche'"),
        (("bank.csv", "--id", "branch"), "branch"),
        (("bank.csv", "--id", "customer", "--no-id"), "contradict"),
        (("bank.csv", "--name", "coordinator"), "cannot be a party's name"),
        (("bank.csv", "--out", "."), "is a folder"),
    ],
)
def test_init_fails_in_one_line_and_writes_nothing(folder, options, what):
    result = fedsift("init", *options)
    assert result.exit_code in (2, 3), result.output
    assert what in result.output
    assert result.output.startswith("error: ")
    assert not (folder / "party.toml").exists()


def test_a_name_with_quotes_and_commands_cannot_break_the_file(tmp_path):
    odd = 'a "b"\n[policy]\nforms = []\x1b[2J\x7f'
    pd.DataFrame({"key": ["k1", "k2", "k3"], odd: [1.5, 2.5, 3.5]}).to_parquet(tmp_path / "odd.parquet")
    result = fedsift("init", tmp_path / "odd.parquet", "--out", tmp_path / "party.toml")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    settings, _ = load_party(tmp_path / "party.toml")
    assert settings.party.columns == [odd]
    assert settings.policy == Policy()


# --- check -----------------------------------------------------------------------------------------------------------


def test_check_shows_each_operation_its_form_and_the_verdict(folder):
    initialised()
    result = fedsift("check", "job.toml")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert any("encrypt_classes" in line and "ciphertext" in line and "allowed" in line for line in lines)
    assert any("share_names" in line and "plain" in line and "allowed: exceptions" in line for line in lines)
    assert "bank: your policy allows this job" in result.output


def test_check_needs_no_other_partys_file_and_no_real_value(folder, monkeypatch):
    initialised()
    (folder / "shop.csv").unlink()
    frame = pd.read_csv(folder / "bank.csv")
    frame["branch"], frame["age"] = "CANARY", 918273645
    frame.to_csv(folder / "bank.csv", index=False)
    seen = []
    handle = party.rehearse.__globals__["_Witness"].handle
    monkeypatch.setattr(
        "fedsift.site.rehearsal._Witness.handle", lambda self, data: seen.append(reply := handle(self, data)) or reply
    )
    result = fedsift("check", "job.toml", "--set", "method.name=random")
    assert result.exit_code == 0, result.output
    assert seen
    assert not any(b"CANARY" in reply or b"918273645" in reply for reply in seen)


def test_check_says_which_rule_refuses_and_ends_with_5(folder):
    initialised()
    result = fedsift("check", "job.toml", "--set", "method.name=muse", "--set", "method.n_features=2")
    assert result.exit_code == 5
    assert "by the rule 'min_cell': min_cell is not set" in result.output
    assert "bank: your policy REFUSES this job" in result.output
    fine = fedsift("check", "job.toml", "--set", "method.name=muse", "--set", "method.min_cell=10")
    assert fine.exit_code == 0, fine.output


def test_check_names_each_operation_that_is_refused(folder):
    pytest.importorskip("torch", reason="the extra nn is not installed")
    assert fedsift("init", "shop.csv", "--out", "shop.toml").exit_code == 0
    job = Path("job.toml")
    job.write_text(job.read_text().replace("n_features = 4\n", ""))
    result = fedsift("check", job, "--party", "shop.toml", "--set", "method.name=less_vfl",
                     "--set", "method.protection=open", "--format", "json")  # fmt: skip
    assert result.exit_code == 5, result.output
    facts = json.loads(result.output)
    refused = {line["operation"]: line["refused"]["rule"] for line in facts["operations"] if line["refused"]}
    assert refused == {"bottom_round": "forms", "upload_embeddings": "forms"}
    assert not facts["allowed"]
    assert facts["job"] is None
    assert facts["lowered"]["epochs"] == 2


def test_check_tells_that_the_file_itself_has_too_few_rows(folder):
    initialised()
    text = (folder / "party.toml").read_text().replace("min_rows = 50", "min_rows = 271")
    (folder / "party.toml").write_text(text)
    result = fedsift("check", "job.toml", "--set", "method.name=random")
    assert result.exit_code == 5
    assert "270 rows, too few for min_rows = 271" in result.output


def test_check_of_a_job_without_this_party_or_without_its_label(folder):
    initialised()
    text = (folder / "party.toml").read_text()
    (folder / "party.toml").write_text(text.replace('name = "bank"', 'name = "bakery"'))
    result = fedsift("check", "job.toml")
    assert result.exit_code == 2
    assert "no party 'bakery'; it has bank, shop" in result.output
    (folder / "party.toml").write_text(text.replace('label = "default"', ""))
    result = fedsift("check", "job.toml")
    assert result.exit_code == 2
    assert "counts on the label of 'bank'" in result.output


def test_check_of_a_wrong_job_or_party_file_names_the_line(folder):
    initialised()
    result = fedsift("check", "job.toml", "--set", "method.nme=1")
    assert result.exit_code == 2
    assert "method.nme" in result.output
    (folder / "party.toml").write_text("[party]\nname = bank\n")
    result = fedsift("check", "job.toml")
    assert result.exit_code == 2
    assert "party.toml, line 2: not valid TOML" in result.output


@pytest.mark.parametrize("method", ["fed_halving", "feature_election"])
def test_a_job_on_rows_is_rehearsed_with_the_same_columns_everywhere(folder, method):
    from fedsift.jobs.job_file import load_job

    text = '[parties.a]\nlabel = "default"\n[parties.b]\nlabel = "default"\n[federation]\npartition = "horizontal"\n'
    Path("rows.toml").write_text(f'{text}[method]\nname = "{method}"\n')
    table = Table.read("bank.csv", id="customer", label="default", name="a")
    done = rehearse(load_job("rows.toml", files=False), "a", table, Policy())
    assert done.stopped == ""
    assert done.refusals == []
    assert {line.form for line in done.seen} >= {"masked", "plain"}
    without = rehearse(load_job("rows.toml", files=False), "a", table, Policy(exceptions=["column names"]))
    assert {refusal.rule for refusal in without.refusals} == {"forms"}
    assert "'class names'" in str(without.refusals[0])
