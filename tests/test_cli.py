"""The command line as its users meet it: what is printed where, what is written, and how it fails."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedsift import cli, console, demo, errors, runs
from fedsift.ledger import Entry, Ledger
from fedsift.select import METHODS
from fedsift.select.information_value import label_sums
from fedsift.selection import Selection

EXAMPLE = Path(__file__).parents[1] / "examples" / "two_files"
FILES = {
    "ledger.csv", "report.html", "run.json", "scores.csv", "selection-bank.json", "selection-shop.json",
    "selection.json", "traffic.csv",
}  # fmt: skip


@pytest.fixture
def job(tmp_path):
    for name in ("bank.csv", "shop.csv", "job.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    return tmp_path / "job.toml"


def fedsift(*args):
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


def in_process(*args, **options):
    command = [sys.executable, "-c", "from fedsift.cli import main; main()", *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


# --- run -------------------------------------------------------------------------------------------------------------


def test_run_writes_a_whole_folder_and_each_partys_copy_holds_its_own_columns_only(job):
    result = fedsift("run", job)
    assert result.exit_code == 0, result.output
    out = job.parent / "result"
    assert {path.name for path in out.iterdir()} == FILES
    assert left_over(job.parent) == []
    selection = Selection.load(out / "selection.json")
    assert selection.n_selected == 4
    bank, shop = (Selection.load(out / f"selection-{name}.json") for name in ("bank", "shop"))
    assert bank.selected == {"bank": selection.selected["bank"]}
    mine, theirs = (out / "selection-bank.json").read_text(), pd.read_csv(job.parent / "shop.csv").columns
    assert not [column for column in theirs if column in mine]
    assert shop.selected["shop"] == selection.selected["shop"]


def test_run_json_and_ledger_tell_the_same_story_with_the_alignment_in_it(job):
    assert fedsift("run", job).exit_code == 0
    facts = json.loads((job.parent / "result" / "run.json").read_text())
    ledger = pd.read_csv(job.parent / "result" / "ledger.csv")
    traffic = pd.read_csv(job.parent / "result" / "traffic.csv")
    assert facts["bytes"] == ledger["bytes"].sum() == traffic["bytes"].sum() == sum(facts["bytes_by_phase"].values())
    assert facts["messages"] == len(ledger) == traffic["messages"].sum()
    assert set(ledger["phase"]) == {"align", "select"}
    assert ledger.loc[ledger["phase"] == "align", "operation"].str.startswith("blind").any()
    assert facts["rows"] == 240
    assert facts["encryption"]["on"] is True
    assert "2048 bits" in facts["encryption"]["line"]
    assert facts["parameters"]["n_features"] == 4
    assert facts["versions"]["fedsift"]
    assert sorted(facts["files"]) == sorted(FILES)


def test_results_go_to_stdout_and_remarks_to_stderr_without_terminal_codes(job):
    result = fedsift("run", job, "--set", "method.n_features=2")
    assert "information_value: 2 of 12 columns kept, 240 shared rows" in result.stdout
    assert "encryption: on" in result.stdout
    assert "returns_share" in result.stdout
    assert "aligning" in result.stderr
    assert "aligning" not in result.stdout
    assert "\x1b" not in result.output


def test_format_json_is_one_document_although_a_library_prints_at_its_first_use(job):
    """In a process of its own: a C++ library that writes past Python's streams would be seen here."""
    process = in_process("run", job, "--format", "json", "--quiet")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert stderr == ""
    document = json.loads(stdout)
    assert sum(map(len, document["selected"].values())) == 4
    assert len(document["scores"]) == 12
    assert any(row["form"] == "ciphertext" for row in document["disclosures"])


def test_an_interrupted_process_ends_with_130_and_leaves_nothing(job):
    process = in_process("run", job)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("selecting"):
            break
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    assert not (job.parent / "result").exists()
    assert left_over(job.parent) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device", "scores.csv")])
def test_a_failure_while_writing_keeps_the_earlier_result_whole(job, monkeypatch, stop):
    assert fedsift("run", job, "-q").exit_code == 0
    out = job.parent / "result"
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def fail(*_, **__):
        raise stop

    monkeypatch.setattr(runs, "write_report", fail)
    result = fedsift("run", job, "-q", "--set", "method.n_features=2")
    assert result.exit_code == (130 if stop is KeyboardInterrupt else 1)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert left_over(job.parent) == []


def test_a_second_run_replaces_the_first(job):
    for count in (2, 3):
        assert fedsift("run", job, "-q", "--set", f"method.n_features={count}").exit_code == 0
        assert Selection.load(job.parent / "result" / "selection.json").n_selected == count
    assert left_over(job.parent) == []


def test_a_folder_that_is_not_a_run_is_never_touched(job, monkeypatch):
    monkeypatch.setattr(runs, "execute", lambda *_: pytest.fail("it ran before it looked at the folder"))
    folder = job.parent / "thesis"
    folder.mkdir()
    (folder / "chapter1.txt").write_text("years of work")
    result = fedsift("run", job, "--out", folder)
    assert result.exit_code == 2
    assert "not a fedsift run" in result.stderr
    (folder / "run.json").write_text(json.dumps({"format": runs.FORMAT, "files": ["run.json"]}))
    result = fedsift("run", job, "--out", folder)
    assert result.exit_code == 2
    assert "'chapter1.txt', which fedsift did not write" in result.stderr
    assert (folder / "chapter1.txt").read_text() == "years of work"
    assert fedsift("run", job, "--out", job).exit_code == 2
    assert fedsift("run", job, "--out", job / "below_a_file").exit_code == 2


def test_private_names_stay_out_of_the_shared_result_but_the_partys_copy_can_be_applied(job):
    assert fedsift("run", job, "-q", "--set", "federation.names=private").exit_code == 0
    out = job.parent / "result"
    assert "late_payments" not in "".join((out / name).read_text() for name in FILES if "-" not in name)
    result = fedsift("apply", out / "selection-shop.json", job.parent / "shop.csv")
    assert result.exit_code == 0, result.output
    assert "late_payments" in pd.read_csv(job.parent / "shop-selected.csv").columns


def test_an_evaluated_job_says_that_columns_were_pooled(job):
    with job.open("a") as file:
        file.write('[evaluate]\nmodel = "linear"\n')
    result = fedsift("run", job, "-q")
    assert result.exit_code == 0, result.output
    assert "all features" in result.stdout
    assert "random" in result.stdout
    assert "note: evaluate pooled" in result.stdout
    facts = json.loads((job.parent / "result" / "run.json").read_text())
    assert len(facts["evaluation"]) == 3
    assert (job.parent / "result" / "evaluation.csv").is_file()


# --- failures --------------------------------------------------------------------------------------------------------

KINDS = [
    errors.ParameterError("x"), errors.DataError("x"), errors.AlignmentError("x"), errors.JobError("x"),
    errors.MessageError("x"), errors.PartyTimeout("shop", "label_sums", "x"), errors.SealError("x"),
    errors.OverflowGuard("x"), errors.MissingExtra("torch", "nn"),
]  # fmt: skip


@pytest.mark.parametrize("error", KINDS, ids=lambda error: type(error).__name__)
def test_each_kind_of_failure_has_its_exit_code_and_one_line(job, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(runs, "execute", fail)
    result = fedsift("run", job)
    assert result.exit_code == type(error).exit_code
    assert result.stderr == f"error: {error}\n"
    assert result.stdout == ""
    assert "Traceback" in fedsift("run", job, "--verbose").stderr


def test_exit_codes_tell_job_data_and_party_apart(job):
    assert fedsift("run", job, "--set", "method.n_feature=3").exit_code == 2
    assert fedsift("run", job, "--set", "parties.bank.label=nothing").exit_code == 3
    assert fedsift("run", job, "--set", "federation.min_overlap=5000").exit_code == 3
    assert fedsift("run", job, "--set", "federation.timeout=0.000001").exit_code == 5


def test_a_partys_log_is_shown_only_when_asked_for(job, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("row 17 holds 4242")

    monkeypatch.setattr("fedsift.select.information_value.countable_bins", broken)
    result = fedsift("run", job)
    assert result.exit_code == 5
    assert "4242" not in result.output
    assert "--verbose" in result.stderr
    assert "4242" in fedsift("run", job, "--verbose").stderr


def test_a_column_name_cannot_command_the_terminal(job, capsys):
    console.table([["\x1b[2Jevil\x07", "[bold]plain[/bold] :smile:"]], ["a", "b"])
    console.remark("\x1b]0;title\x07")
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "\x07" not in shown.out + shown.err
    assert "[bold]plain[/bold] :smile:" in shown.out


def test_progress_shows_round_operation_and_bytes_on_a_terminal_only(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with console.progress(False) as progress:
        progress.observe(label_sums, 7, Ledger([Entry(7, "shop", "coordinator", "label_sums", 1_200_000, "plain", "")]))
    assert "round 7  label_sums  1.2 MB" in sys.stderr.getvalue()
    monkeypatch.setattr(sys, "stderr", Terminal())
    with console.progress(True) as progress:
        progress.say("nothing")
    assert sys.stderr.getvalue() == ""


# --- check, methods, apply, demo -------------------------------------------------------------------------------------


def test_check_reports_the_data_and_runs_no_step_of_the_method(job, monkeypatch):
    monkeypatch.setattr(METHODS["information_value"], "_select", lambda *_: pytest.fail("check ran the method"))
    result = fedsift("check", job, "--format", "json", "-q")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["rows"] == 240
    assert facts["parties"]["shop"]["constant"] == ["currency"]
    assert facts["parties"]["shop"]["missing"] == {"basket_mean": 16}
    assert facts["parties"]["bank"]["kinds"] == {"numeric": 4, "categorical": 1}
    assert facts["leaks"] == METHODS["information_value"].leaks
    text = fedsift("check", job).stdout
    assert "240 rows are shared by all parties; classification, 2 classes" in text
    assert "constant, so of no use: currency" in text
    assert not (job.parent / "result").exists()


def test_check_warns_of_an_id_that_would_be_a_feature(job):
    frame = pd.read_csv(job.parent / "shop.csv")
    frame["email"] = frame["client"] + "@example.org"
    frame.to_csv(job.parent / "shop.csv", index=False)
    assert "a different text in each row (an id?" in fedsift("check", job).stdout


def test_methods_lists_all_and_explains_each(job):
    listed = json.loads(fedsift("methods", "--format", "json").stdout)
    assert [method["name"] for method in listed] == list(METHODS)
    assert all(name in fedsift("methods").stdout for name in METHODS)
    for name in METHODS:
        shown = fedsift("methods", name)
        assert shown.exit_code == 0
        assert all(parameter in shown.stdout for parameter in METHODS[name]._get_param_names())
    result = fedsift("methods", "ginni")
    assert result.exit_code == 2
    assert "did you mean 'gini'?" in result.stderr


@pytest.fixture
def selection(tmp_path):
    chosen = Selection("test", {"bank": ["age"], "shop": ["visits", "favourite"], "lab": []})
    return chosen.save(tmp_path / "selection.json")


def test_apply_keeps_the_selected_columns_and_the_id_and_never_overwrites_the_table(job, selection):
    table = job.parent / "shop.csv"
    whole = table.read_bytes()
    result = fedsift("apply", selection, table, "--party", "shop", "--id", "client")
    assert result.exit_code == 0, result.output
    kept = pd.read_csv(job.parent / "shop-selected.csv")
    assert list(kept.columns) == ["client", "visits", "favourite"]
    pd.testing.assert_frame_equal(kept, pd.read_csv(table)[list(kept.columns)])
    result = fedsift("apply", selection, table, "--party", "shop", "--out", table)
    assert result.exit_code == 2
    assert table.read_bytes() == whole


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ([], 2, "say which with --party"),
        (["--party", "shp"], 2, "did you mean 'shop'?"),
        (["--party", "bank"], 3, "'age' is not there"),
        (["--party", "lab"], 3, "keeps no column"),
        (["--party", "shop", "--id", "clint"], 3, "Did you mean 'client'?"),
    ],
)
def test_apply_says_what_is_wrong(job, selection, options, code, words):
    result = fedsift("apply", selection, job.parent / "shop.csv", *options)
    assert result.exit_code == code
    assert words in result.stderr


def test_demo_runs_explains_and_keeps_an_edited_job_file(tmp_path, monkeypatch):
    out = tmp_path / "demo"
    result = fedsift("demo", "--out", out)
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == {"hospital.csv", "lab.csv", "insurer.parquet", "job.toml", "result"}
    for words in (
        "information_value: 5 of 44",
        "Who learned what",
        "gini",
        "all features",
        "random",
        demo.CAVEAT,
        "Next:",
    ):
        assert words in result.stdout
    assert (out / "result" / "report.html").stat().st_size > 10_000
    edited = (out / "job.toml").read_text().replace("n_features = 5", "n_features = 3")
    (out / "job.toml").write_text(edited)
    monkeypatch.setattr(demo, "BESIDE", ())
    again = fedsift("demo", "--out", out)
    assert again.exit_code == 0, again.output
    assert "information_value: 3 of 44" in again.stdout
    assert "was edited" in again.stderr
    assert (out / "job.toml").read_text() == edited


def test_demo_writes_into_no_folder_of_somebody_else(tmp_path):
    (tmp_path / "lab.csv").write_text("mine")
    result = fedsift("demo", "--out", tmp_path)
    assert result.exit_code == 2
    assert (tmp_path / "lab.csv").read_text() == "mine"
    assert os.listdir(tmp_path) == ["lab.csv"]
