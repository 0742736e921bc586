"""The command line as its users meet it: what is printed where, what is written, and how it fails."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from conftest import cached_key
from typer.testing import CliRunner

from fedsift import errors
from fedsift.cli import console
from fedsift.cli import main as cli
from fedsift.cli.methods import TABLES
from fedsift.cli.statistics import What
from fedsift.core.ledger import Entry, Ledger
from fedsift.jobs import runs
from fedsift.jobs.job_file import load_job
from fedsift.methods import GROUPS, METHODS
from fedsift.mpc import encrypted_histogram as histogram
from fedsift.mpc.column_scores.counting import masked_counts
from fedsift.select.selection import Selection

EXAMPLE = Path(__file__).parents[1] / "examples" / "two_files"
FILES = {
    "ledger.csv", "report.html", "run.json", "scores.csv", "selection-bank.json", "selection-shop.json",
    "selection.json", "summary-bank.json", "summary-shop.json", "summary.json", "traffic.csv",
}  # fmt: skip


@pytest.fixture
def job(tmp_path):
    for name in ("bank.csv", "shop.csv", "job.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    return tmp_path / "job.toml"


def fedsift(*args):
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


def in_process(*args, **options):
    command = [sys.executable, "-c", "from fedsift.cli.main import main; main()", *map(str, args)]
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
    assert ledger.loc[ledger["phase"] == "align", "operation"].str.startswith("align.blind").any()
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


@pytest.fixture
def clinics(tmp_path):
    """Two parties with the same columns about other people; what counts is a product."""
    rng = np.random.default_rng(0)
    lines = []
    for name in ("north", "south"):
        frame = pd.DataFrame(rng.normal(size=(120, 4)), columns=["age", "dose", "pulse", "weight"])
        frame.assign(risk=frame["dose"] * frame["weight"] + 0.1 * rng.normal(size=120)).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
        lines += [f"[parties.{name}]", f'file = "{name}.csv"', 'label = "risk"']
    lines += ["[federation]", 'partition = "horizontal"', "[method]", 'name = "fed_iife"']
    lines += ["n_pairs = 2", "max_features = 1", "shortlist = 3"]
    path = tmp_path / "job.toml"
    path.write_text("\n".join(lines))
    return path


def test_parties_with_the_same_columns_run_too_and_new_features_are_shown(clinics):
    result = fedsift("run", clinics)
    assert result.exit_code == 0, result.output
    assert "4 of 4 columns kept, 240 rows, 2 parties" in result.stdout
    assert result.stdout.count("pulse") == 1
    out = clinics.parent / "job-result"
    (formula,) = json.loads((out / "run.json").read_text())["engineered"]
    assert formula in result.stdout
    assert {"dose", "weight"} <= set(re.findall(r"\w+", formula))
    assert formula in fedsift("report", out, "--party", "north").stdout.replace("\n    ", " ").replace("\n  ", " ")
    assert fedsift("apply", out / "selection-north.json", clinics.parent / "north.csv").exit_code == 0
    assert formula in pd.read_csv(clinics.parent / "north-selected.csv").columns
    wrong = fedsift("compare", clinics, "--methods", "all,gini")
    assert wrong.exit_code == 2
    assert "gini is for vertical parties" in wrong.stderr


@pytest.mark.parametrize(("how", "note"), [("", "evaluate pooled nothing"), ("pooled = true\n", "evaluate pooled all")])
def test_an_evaluated_job_says_whether_columns_were_pooled(job, how, note):
    with job.open("a") as file:
        file.write(f'[evaluate]\nmodel = "linear"\n{how}')
    result = fedsift("run", job, "-q")
    assert result.exit_code == 0, result.output
    assert "all features" in result.stdout
    assert "random" in result.stdout
    assert f"note: {note}" in result.stdout
    facts = json.loads((job.parent / "result" / "run.json").read_text())
    assert len(facts["evaluation"]) == 3
    assert (job.parent / "result" / "evaluation.csv").is_file()


# --- failures --------------------------------------------------------------------------------------------------------

KINDS = [
    errors.ParameterError("x"), errors.DataError("x"), errors.AlignmentError("x"), errors.JobError("x"),
    errors.MessageError("x"), errors.PartyTimeout("shop", "masked_counts", "x"), errors.SealError("x"),
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

    monkeypatch.setattr("fedsift.mpc.column_scores.counting.countable_bins", broken)
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
        ledger = Ledger([Entry(7, "shop", "coordinator", "masked_counts", 1_200_000, "plain", "")])
        progress.asking(masked_counts, 7, ledger)
    assert "round 7  masked_counts  1.2 MB" in sys.stderr.getvalue()
    monkeypatch.setattr(sys, "stderr", Terminal())
    with console.progress(True) as progress:
        progress.say("nothing")
    assert sys.stderr.getvalue() == ""


# --- report ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of one run, for tests that only look at it."""
    folder = tmp_path_factory.mktemp("ran")
    for name in ("bank.csv", "shop.csv", "job.toml"):
        shutil.copy(EXAMPLE / name, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram, "generate_key", cached_key)
        result = fedsift("run", folder / "job.toml", "-q", "--set", "method.name=sffs")
    assert result.exit_code == 0, result.output
    return folder / "result"


def test_a_report_that_differs_from_the_one_of_the_run(ran, tmp_path):
    result = fedsift("report", ran, "--out", tmp_path / "again.html")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "again.html").read_bytes() == (ran / "report.html").read_bytes()
    text = fedsift("report", ran).stdout
    assert "Keep 4 of 12 columns of 2 parties" in text
    assert "WHO LEARNED WHAT" in text
    assert fedsift("report", ran, "--out", tmp_path / "again.txt").exit_code == 0
    assert (tmp_path / "again.txt").read_text().strip() == text.strip()


def test_a_partys_report_that_tells_of_anothers_columns(ran, tmp_path):
    result = fedsift("report", ran, "--party", "bank", "--out", tmp_path / "bank.html")
    assert result.exit_code == 0, result.output
    shown = (tmp_path / "bank.html").read_text() + fedsift("report", ran, "--party", "bank").stdout
    shown += (ran / "summary-bank.json").read_text()
    assert "overdrafts" in shown
    foreign = ("basket_mean", "late_payments", "returns_share", "newsletter", "favourite", "currency")
    assert not [name for name in foreign if name in shown]


def test_a_party_that_was_given_its_record_alone_can_read_it(ran, tmp_path):
    shutil.copy(ran / "summary-shop.json", tmp_path)
    assert "shop: keep" in fedsift("report", tmp_path / "summary-shop.json").stdout
    assert "shop: keep" in fedsift("report", tmp_path, "--party", "shop").stdout
    assert "--party shop" in fedsift("report", tmp_path).stderr
    wrong = fedsift("report", tmp_path / "summary-shop.json", "--party", "bank")
    assert wrong.exit_code == 2
    assert "the record of party 'shop'" in wrong.stderr


def test_a_partys_own_report_has_its_names_where_names_are_private(job):
    settings = ("--set", "federation.names=private", "--set", "method.name=sffs")
    assert fedsift("run", job, "-q", *settings).exit_code == 0
    out = job.parent / "result"
    assert "late_payments" not in fedsift("report", out).stdout
    shop = fedsift("report", out, "--party", "shop").stdout
    assert "late_payments" in shop
    assert "overdrafts" not in shop


@pytest.mark.parametrize(
    ("remove", "options", "code", "words"),
    [
        ((), ["--party", "shp"], 2, "did you mean 'shop'?"),
        (("summary.json", "summary-bank.json", "summary-shop.json"), [], 3, "lacks summary.json: an older fedsift"),
        (tuple(FILES), [], 3, "it has no run.json and no summary.json"),
        ((), ["--out", "bank.csv"], 2, "must end in .html"),
        ((), ["--out", "run.json"], 2, "must end in .html"),
    ],
)
def test_a_folder_that_is_no_run_says_what_is_missing(ran, tmp_path, remove, options, code, words):
    folder = shutil.copytree(ran, tmp_path / "copy")
    for name in remove:
        (folder / name).unlink()
    result = fedsift("report", folder, *options)
    assert result.exit_code == code
    assert words in result.stderr
    assert result.stdout == ""


def test_a_record_that_is_damaged_or_something_else_is_one_line_not_a_traceback(ran, tmp_path):
    assert "there is no folder" in fedsift("report", tmp_path / "nothing").stderr
    assert "is no JSON" in fedsift("report", ran / "ledger.csv").stderr
    assert "is no record of a run" in fedsift("report", ran / "run.json").stderr
    record = json.loads((ran / "summary.json").read_text())
    del record["cost"]["by_party"]
    (tmp_path / "summary.json").write_text(json.dumps(record))
    result = fedsift("report", tmp_path)
    assert result.exit_code == 3
    assert "damaged" in result.stderr
    (tmp_path / "summary.json").write_text(json.dumps({**record, "version": 99}))
    assert "version 99" in fedsift("report", tmp_path).stderr


def test_a_page_written_into_the_folder_does_not_stop_the_next_run(ran, tmp_path):
    folder = shutil.copytree(ran, tmp_path / "copy")
    assert fedsift("report", folder, "--party", "shop", "--out", folder / "report-shop.html").exit_code == 0
    runs.check_folder(folder)
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(errors.ParameterError, match="thesis"):
        runs.check_folder(folder)


# --- compare ---------------------------------------------------------------------------------------------------------


def test_compare_sets_methods_on_the_same_rows_beside_their_nulls(job, tmp_path):
    page = tmp_path / "compare.html"
    settings = ("--folds", 2, "--set", "evaluate.model=linear", "--out", page)
    result = fedsift("compare", job, "--methods", "sffs, random,sffs", *settings)
    assert result.exit_code == 0, result.output
    assert "2 methods on the same rows: 2 folds, 240 rows, 12 columns, model linear" in result.stdout
    for words in ("all features", "4 random columns", "sffs has the highest accuracy", "n_features=4", "pooled"):
        assert words in result.stdout
    assert METHODS["sffs"].leaks.split()[0] in result.stdout
    assert "comparing sffs, random" in result.stderr
    assert "2 methods on the same rows" in page.read_text()
    assert not (job.parent / "result").exists()


def test_compare_as_json_has_the_same_folds_for_all_and_the_parameters_used(job):
    settings = ("--folds", 2, "--format", "json", "--set", "evaluate.model=linear", "-q")
    result = fedsift("compare", job, "--methods", "random,all", *settings)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    document = json.loads(result.stdout)
    lines = {line["method"]: line for line in document["lines"]}
    assert lines["all"]["accuracy"] == lines["all features"]["accuracy"]
    assert document["methods"]["random"]["parameters"]["n_features"] == 4
    assert document["settings"]["cv"] == 2


def test_a_parameter_of_one_method_that_another_lacks_or_means_otherwise(job):
    loaded = runs.methods_named(load_job(job, ["method.n_bins=7"]), "information_value,gini,sffs,all")
    assert [s.get_params().get("n_bins") for s in loaded.values()] == [7, 7, None, None]
    assert [s.get_params().get("n_features") for s in loaded.values()] == [4, 4, 4, None]
    lasso = runs.methods_named(load_job(job, ["method.name=federated_lasso", "method.penalty=0.5"]), "pso_evffs")
    assert lasso["pso_evffs"].alpha == METHODS["pso_evffs"]().alpha
    assert lasso["pso_evffs"].n_features == 4
    text = job.read_text().replace("n_features = 4", "threshold = 0.3")
    job.write_text(text)
    loaded = runs.methods_named(load_job(job), "information_value,gini")
    assert loaded["information_value"].get_params()["threshold"] == 0.3
    assert loaded["information_value"].n_features is None
    assert loaded["gini"].get_params()["threshold"] is None
    assert loaded["gini"].n_features is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--methods", "sffs,ginni"], "--methods: there is no method 'ginni'; did you mean 'gini'?"),
        (["--methods", ","], "--methods is empty"),
        (["--methods", "sffs", "--out", "shop.csv"], "must end in .html"),
        (["--methods", "sffs", "--folds", "1000"], "240 folds at most"),
        (["--methods", "sffs", "--folds", "1"], "--folds"),
        ([], "--methods"),
    ],
)
def test_compare_says_what_is_wrong_before_it_works(job, monkeypatch, options, words):
    monkeypatch.setattr(runs, "compare", lambda *_, **__: pytest.fail("it worked first"))
    result = fedsift("compare", job, *options)
    assert result.exit_code == 2
    assert words in result.stderr


# --- progress and logs -----------------------------------------------------------------------------------------------


def test_log_json_has_a_line_for_every_ask_and_they_add_up_to_the_ledger(job):
    result = fedsift("run", job, "--log-json", "--set", "method.name=sffs", "--set", "evaluate.model=linear")
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stderr.splitlines()]
    asks = [event for event in events if event["event"] == "ask"]
    ledger = pd.read_csv(job.parent / "result" / "ledger.csv")
    assert [ask["round"] for ask in asks] == sorted(ledger["round"].unique())
    assert sum(ask["bytes"] for ask in asks) == ledger["bytes"].sum()
    sent = ledger[ledger["sender"] != "coordinator"].groupby("sender")["bytes"].sum()
    for party in ("bank", "shop"):
        assert sum(ask["parties"].get(party, {}).get("sent", 0) for ask in asks) == sent[party]
    first = ["core.count_table", "core.begin_job", "pairs.offer_key", "pairs.meet", "align.seal_order"]
    assert [ask["operation"] for ask in asks[:5]] == first
    assert asks[0]["seconds"] > 0
    assert "returns_share" not in result.stderr
    steps = [event["text"] for event in events if event["event"] == "step"]
    assert "selecting by sffs" in steps


def test_log_json_stays_json_when_it_fails_and_quiet_leaves_asks_only(job, monkeypatch):
    quick = ("--set", "method.name=sffs")
    result = fedsift("run", job, "--log-json", "-q", *quick)
    assert {json.loads(line)["event"] for line in result.stderr.splitlines()} == {"ask"}
    result = fedsift("run", job, "--log-json", "--set", "method.name=sfs")
    (line,) = result.stderr.splitlines()
    assert json.loads(line)["kind"] == "JobError"
    assert json.loads(line)["exit_code"] == result.exit_code == 2

    def broken(*_, **__):
        raise RuntimeError("row 17 holds 4242")

    monkeypatch.setattr("fedsift.mpc.column_scores.counting.countable_bins", broken)
    assert "4242" not in fedsift("run", job, "--log-json").stderr
    result = fedsift("run", job, "--log-json", "--verbose")
    events = [json.loads(line) for line in result.stderr.splitlines()]
    assert any(event["event"] == "log" and "4242" in event["text"] for event in events)
    assert "OperationFailed" in events[-1]["traceback"]


def test_quiet_says_nothing_and_verbose_tells_every_ask(job):
    quick = ("--set", "method.name=sffs")
    assert fedsift("run", job, "-q", *quick).stderr == ""
    assert fedsift("run", job, "-q", "-v", *quick).stderr == ""
    stderr = fedsift("run", job, "-v", *quick).stderr
    assert "round 6  align.blind_ids  bank got" in stderr
    assert stderr.index("round 1") < stderr.index("selecting by sffs")
    assert "error:" in fedsift("run", job, "-q", "--set", "method.name=sfs").stderr


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
    assert "warning: shop: currency: constant, so of no use" in text
    assert not (job.parent / "result").exists()


def test_check_warns_of_an_id_that_would_be_a_feature(job):
    frame = pd.read_csv(job.parent / "shop.csv")
    frame["email"] = frame["client"] + "@example.org"
    frame.to_csv(job.parent / "shop.csv", index=False)
    assert "a different text in each row (an id?" in fedsift("check", job).stdout


def test_every_method_is_listed_under_one_question(job):
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(METHODS)
    shown = fedsift("methods").stdout
    assert shown.index("Few false columns") < shown.index("knockoffs") < shown.index("New features")


def test_what_is_no_method_is_listed_beside_them_with_how_to_ask_for_it(job):
    beside = fedsift("methods").stdout.split("Beside the methods")[1]
    questions = get_args(What)
    for name in [*questions, "weights of evidence", "designs", "texts and dates", "rules", "very wide tables"]:
        assert name in beside
    for how in TABLES:
        if "--what" in how[2]:
            assert how[2].split()[-1] == how[0]
            assert how[0] in questions


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


def test_apply_makes_a_feature_of_columns_that_are_not_kept(job, tmp_path):
    chosen = Selection("test", {"shop": ["visits"]}, engineered=["mul(visits, returns_share)"])
    result = fedsift("apply", chosen.save(tmp_path / "made.json"), job.parent / "shop.csv")
    assert result.exit_code == 0, result.output
    assert "1 new: mul(" in result.stdout
    kept, whole = pd.read_csv(job.parent / "shop-selected.csv"), pd.read_csv(job.parent / "shop.csv")
    assert kept.shape[1] == 2
    np.testing.assert_allclose(kept.iloc[:, 1], whole["visits"] * whole["returns_share"])


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


def test_demo_writes_into_no_folder_of_somebody_else(tmp_path):
    (tmp_path / "lab.csv").write_text("mine")
    result = fedsift("demo", "--out", tmp_path)
    assert result.exit_code == 2
    assert (tmp_path / "lab.csv").read_text() == "mine"
    assert os.listdir(tmp_path) == ["lab.csv"]


def test_a_job_that_fails_leaves_its_ledger(job, monkeypatch):
    """It has told things too, and whoever answers for the data must see which."""

    def stop(self, fed):
        raise errors.DataError("stopped here")

    monkeypatch.setattr(METHODS["sffs"], "_select", stop)
    assert fedsift("run", job, "--set", "method.name=sffs").exit_code == errors.DataError.exit_code
    ledger = pd.read_csv(job.parent / "result-failed-ledger.csv")
    assert {"align.blind_ids", "core.begin_job", "core.share_names"} <= set(ledger["operation"])
    assert not (job.parent / "result").exists()


# --- the list of commands --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [cli.Commands, cli.PartyCommands])
def test_every_command_of_the_list_is_there_and_its_line_fits(group):
    shown = CliRunner().invoke(cli.app, ["--help"] if group is cli.Commands else ["party", "--help"]).output
    for name, late in group.table.items():
        assert f"{late.line}\n" in shown, f"the line of {name} is cut off"
        assert late.load(name).name == name


def test_a_misspelt_command_is_told_the_near_one():
    result = CliRunner().invoke(cli.app, ["chek", "job.toml"])
    assert result.exit_code == 2
    assert "Did you mean 'check'" in result.output
