"""fedsift audit: who plays whom, what a verdict comes to, what is written, and what a site's policy makes of it."""

from __future__ import annotations

import csv
import hashlib
import json
import socket
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedsift.audit import cast, registry
from fedsift.audit.annex import _needed, render_markdown, render_page
from fedsift.audit.cast import MOST_ROWS
from fedsift.audit.exposure import Exposure, Measure
from fedsift.audit.scoring import auc
from fedsift.audit.summary import SHARES, caveats
from fedsift.audit.verdict import Limits, Site, conclude, figure_of, judge
from fedsift.audit.views import numbers
from fedsift.cli import main as cli
from fedsift.core.ledger import Entry, Ledger
from fedsift.core.table import Table
from fedsift.errors import DataError, ParameterError, PolicyRefused
from fedsift.evaluate.joint import jobs_within
from fedsift.jobs.job_file import load_job
from fedsift.jobs.training import SPLIT
from fedsift.methods import SplitNN
from fedsift.report.audit_record import AuditRecord
from fedsift.report.exposures import picture, render_audit
from fedsift.site import verdict as stored
from fedsift.site.policy import Policy
from fedsift.site.site import open_site

LIMITS = Limits(0.7, 0.3)
ROWS = 400
JOB = """\
[parties.bank]
file = "bank.csv"
id = "customer"
label = "default"

[parties.shop]
file = "shop.csv"
id = "customer"

[method]
name = "random"
n_features = 2
"""


def frames(rows: int = ROWS) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    ids = [f"k{i}" for i in range(rows)]
    bank = pd.DataFrame({"customer": ids, **{f"b{i}": rng.normal(size=rows) for i in range(4)}})
    shop = pd.DataFrame({"customer": ids, **{f"s{i}": rng.normal(size=rows) for i in range(3)}})
    shop["city"] = rng.choice(["x", "y", "z"], rows)
    bank["default"] = np.where(bank["b0"] + shop["s0"] + rng.normal(size=rows) > 0, "yes", "no")
    return bank, shop


@pytest.fixture
def folder(tmp_path, monkeypatch):
    bank, shop = frames()
    bank.to_csv(tmp_path / "bank.csv", index=False)
    shop.sample(frac=1, random_state=0).to_csv(tmp_path / "shop.csv", index=False)
    (tmp_path / "job.toml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def party_file(folder: Path, name: str = "bank", policy: str = "") -> Path:
    label = 'label = "default"\n' if name == "bank" else ""
    path = folder / f"{name}.toml"
    path.write_text(f'[party]\nname = "{name}"\nfile = "{name}.csv"\nid = "customer"\n{label}\n[policy]\n{policy}\n')
    return path


def fedsift(*args):
    return CliRunner().invoke(cli.app, ["audit", *map(str, args)])


#: Messages that every job has; with these nothing of the job is without an attack.
EVERYWHERE = ("share_names", "blind_ids", "blind_again")


def attacked_by(monkeypatch, *functions, role="coordinator", target="labels", reads=EVERYWHERE):
    """Only these attacks are known, on a message that every job has."""
    registry.load_attacks()
    known = {
        function.__name__: registry.Attack(function, tuple(reads), role, target, "nothing", "no", None)
        for function in functions
    }
    monkeypatch.setattr(registry, "load_attacks", lambda: known)
    monkeypatch.setattr("fedsift.audit.summary.load_attacks", lambda: known)


def reads_everything(view, truth):
    """Every label, as if it had been sent."""
    return Measure("accuracy", 1.0, truth.guess, truth.guess)


def reads_nothing(view, truth):
    """No label."""
    return Measure("accuracy", truth.guess, truth.guess, truth.guess)


def breaks_down(view, truth):
    """Not well written."""
    raise KeyError("a message that is no longer there")


# --- the verdict -----------------------------------------------------------------------------------------------------


def exposure(
    value, guess=0.6, baseline=0.6, *, metric="accuracy", target="labels", role="passive", party="shop", note=""
):
    return Exposure("an_attack", role, party, target, metric, value, guess, baseline, None, 0.0, "nothing", "no", note)


def test_figures_are_brought_to_the_kind_of_their_limit():
    assert figure_of(exposure(0.6)) == 0.5
    assert figure_of(exposure(1.0)) == 1.0
    assert figure_of(exposure(0.8)) == pytest.approx(0.75)
    assert figure_of(exposure(0.8, 0.5, metric="auc")) == 0.8
    assert figure_of(exposure(0.4, 0.0, metric="r2", target="columns")) == 0.4
    assert figure_of(exposure(-0.5, 0.0, metric="correlation", target="columns")) == 0.25
    assert figure_of(exposure(0.75, 0.5, metric="cells", target="columns")) == 0.5


def test_who_took_part_is_stored_under_the_limit_that_it_is_judged_by():
    """Else a policy that has become stricter since does not find it in the stored audit."""
    member = exposure(0.64, 0.5, metric="auc", target="membership", role="coordinator", party="coordinator")
    told = conclude([judge(member, LIMITS, Site("bank", True))], [], [])
    assert told.label_auc == 0.64


def test_an_exposure_is_over_only_above_the_limit_and_above_what_the_attacker_knows_anyway():
    everybody = Site(None, True)
    assert judge(exposure(0.9), LIMITS, everybody).over
    assert not judge(exposure(0.7), LIMITS, everybody).over  # an AUC of 0.625
    assert not judge(exposure(0.9, baseline=0.9), LIMITS, everybody).over  # its own columns say as much
    assert not judge(exposure(0.9, note="nothing to read: no message"), LIMITS, everybody).over
    assert judge(exposure(0.9), Limits(0.5, 0.3), everybody).over
    assert judge(exposure(2.0, 0.0, 1.0, metric="epsilon", target="membership"), LIMITS, everybody).over
    assert not judge(exposure(0.8, 0.0, 1.0, metric="epsilon", target="membership"), LIMITS, everybody).over


def test_a_site_judges_what_is_about_its_own_data():
    holder, other = Site("bank", True), Site("shop", False)
    assert judge(exposure(1.0, party="shop"), LIMITS, holder).concerns
    assert not judge(exposure(1.0, role="active", party="bank"), LIMITS, holder).concerns
    assert not judge(exposure(1.0, party="shop"), LIMITS, other).concerns  # the planted label is nobody's
    columns = exposure(1.0, 0.0, 0.0, metric="r2", target="columns", role="active", party="bank")
    assert not judge(columns, LIMITS, holder).concerns
    assert judge(columns, LIMITS, other).over
    by_coordinator = exposure(1.0, 0.0, 0.0, metric="r2", target="columns", role="coordinator", party="coordinator")
    assert judge(by_coordinator, LIMITS, holder).over
    assert judge(by_coordinator, LIMITS, other).over


def test_named_columns_count_only_where_names_are_private():
    named = exposure(1.0, 0.1, 0.1, metric="columns named", target="columns", role="coordinator", party="coordinator")
    assert not judge(named, LIMITS, Site("shop", False, names_shared=True)).over
    assert judge(named, LIMITS, Site("shop", False, names_shared=False)).over


def test_a_message_without_an_attack_or_a_broken_attack_is_no_pass():
    fine = [judge(exposure(0.6), LIMITS, Site(None, True))]
    bad = [judge(exposure(0.95), LIMITS, Site(None, True))]
    assert conclude(fine, [], []).outcome == "passed"
    assert conclude(fine, ["boost.level_sums"], []).outcome == "incomplete"
    assert conclude(fine, [], ["an_attack"]).outcome == "incomplete"
    assert conclude(bad, ["boost.level_sums"], []).outcome == "failed"
    assert conclude(bad, [], []).label_auc == pytest.approx(0.9375)
    assert conclude(fine, [], []).label_auc == 0.5


def test_a_rehearsal_in_which_nothing_was_measured_is_no_pass():
    site = Site("shop", False)
    silent = judge(exposure(0.5, target="columns", role="coordinator", note="nothing to read: no sums"), LIMITS, site)
    planted = judge(exposure(0.6), LIMITS, site)  # after the planted label, which is nobody's
    for judged in ([], [silent], [planted], [silent, planted]):
        verdict = conclude(judged, [], [])
        assert verdict.outcome == "incomplete"
        assert "nothing was tested" in verdict.reasons[0]
    tried = judge(exposure(0.0, 0.0, 0.0, metric="r2", target="columns", role="active", party="bank"), LIMITS, site)
    assert conclude([silent, tried], [], []).outcome == "passed"


def test_a_verdict_says_what_was_not_tested():
    """A pass on who took part is no pass on values: at a passive site that is often all that there is to read."""
    site = Site("shop", False)
    by_coordinator = {"role": "coordinator", "party": "coordinator"}
    members = judge(exposure(0.51, 0.5, 0.5, metric="auc", target="membership", **by_coordinator), LIMITS, site)
    named = judge(
        exposure(0.9, 0.1, 0.1, metric="columns named", target="columns", **by_coordinator),
        LIMITS, Site("shop", False, names_shared=False),
    )  # fmt: skip
    values = judge(exposure(0.0, 0.0, 0.0, metric="r2", target="columns", **by_coordinator), LIMITS, site)
    assert conclude([members], [], [], holds_label=False).untested == ("values of columns",)
    assert conclude([members, named], [], [], holds_label=False).untested == ("values of columns",)
    assert conclude([members, values], [], [], holds_label=False).untested == ()
    assert conclude([members, values], [], []).untested == ("labels",)


def test_names_of_columns_and_who_took_part_have_limits_of_their_own():
    private = Site(None, True, names_shared=False)
    followed = exposure(
        0.9, 0.0, 0.0, metric="cuts followed", target="columns", role="coordinator", party="coordinator"
    )
    assert judge(followed, LIMITS, private).over
    assert not judge(followed, LIMITS, Site(None, True)).over
    assert judge(exposure(0.75, 0.5, 0.5, metric="auc", target="membership"), LIMITS, private).over
    assert not judge(exposure(0.6, 0.5, 0.5, metric="auc", target="membership"), LIMITS, private).over


# --- who plays whom --------------------------------------------------------------------------------------------------


def tables(rows: int = ROWS) -> dict[str, Table]:
    bank, shop = frames(rows)
    shop = shop.sample(frac=1, random_state=0)
    return {
        "bank": Table.read(bank, id="customer", label="default", name="bank"),
        "shop": Table.read(shop, id="customer", name="shop"),
    }


def test_all_parties_play_the_same_rows_and_the_others_are_the_control():
    both = tables()
    made = cast.all_parties(both, "bank", by_id=True, rows=200)
    assert list(made.tables["bank"].ids) == list(made.tables["shop"].ids)
    assert made.n_rows == 200
    assert made.n_fresh == 200
    assert not set(made.tables["bank"].ids) & set(made.fresh["bank"].ids)
    rest = cast.all_parties(both, "bank", by_id=True)  # a fifth is kept back where nobody says how many
    assert (rest.n_rows, rest.n_fresh) == (320, 80)


def test_a_rehearsal_has_at_most_four_thousand_rows():
    made = cast.label_holder(tables(6000)["bank"], "bank", ["bank", "shop"], by_id=True)
    assert made.n_rows == MOST_ROWS == 4000
    assert made.n_fresh == 1000


def test_a_label_holder_deals_its_own_columns_and_keeps_the_label():
    table = tables()["bank"]
    made = cast.label_holder(table, "bank", ["shop", "bank", "telecom"], by_id=True, rows=300)
    dealt = [column for each in made.tables.values() for column in each.columns if column in table.columns]
    assert sorted(dealt) == sorted(table.columns)
    assert "b0" in made.tables["bank"].columns  # what tells most about the label stays
    assert [name for name, each in made.tables.items() if each.label is not None] == ["bank"]
    share = (table.label == "yes").mean()
    assert (made.tables["bank"].label == "yes").mean() == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(("columns", "partner"), [(None, 20), (2, 2), (57, 57)])
def test_partners_bring_as_many_columns_as_is_said(columns, partner):
    made = cast.label_holder(tables()["bank"], "bank", ["bank", *"abcdef"], by_id=False, columns=columns)
    assert {each.n_columns for name, each in made.tables.items() if name != "bank"} == {partner}
    mixed = numbers(made.tables["a"])
    assert np.linalg.matrix_rank(mixed) == min(mixed.shape)  # no column is a copy


@pytest.mark.parametrize("strength", [0.5, 0.65, 0.8, 0.95])
def test_a_planted_label_is_as_strong_as_asked_for(strength):
    columns = np.random.default_rng(3).normal(size=(3000, 4))
    label = cast.planted(columns, strength)
    weights = np.linalg.lstsq(np.column_stack([columns, np.ones(3000)]), label, rcond=None)[0]
    assert auc(columns @ weights[:4], label) == pytest.approx(strength, abs=0.03)
    assert label.mean() == pytest.approx(0.5, abs=0.01)


def test_a_passive_party_plays_its_own_columns_and_nobody_elses_label():
    table = tables()["shop"]
    made = cast.passive(table, "shop", ["bank", "shop"], "bank", by_id=True)
    assert made.tables["shop"].columns == table.columns
    assert made.tables["shop"].label is None
    assert made.tables["shop"].kinds == table.kinds
    assert set(made.tables["bank"].label) == {"yes", "no"}
    assert numbers(made.tables["shop"]).shape == (made.n_rows, 4)


def test_too_few_rows_and_a_strength_that_is_none_are_refused_in_words():
    with pytest.raises(DataError, match="an audit needs 20"):
        cast.label_holder(tables(10)["bank"], "bank", ["bank", "shop"], by_id=True)
    with pytest.raises(ParameterError, match=r"between 0\.5 and 1; got 0\.3"):
        cast.passive(tables()["shop"], "shop", ["bank", "shop"], "bank", by_id=True, strength=0.3)


# --- the command -----------------------------------------------------------------------------------------------------


def test_a_job_that_is_read_by_nobody_passes_and_leaves_its_files(folder, monkeypatch):
    attacked_by(monkeypatch, reads_nothing)
    result = fedsift("job.toml", "-q")
    assert result.exit_code == 0, result.output
    assert "PASSED" in result.output
    assert "a pass is no proof" in result.output
    made = {path.name for path in (folder / "job-audit").iterdir()}
    assert made == {"audit.json", "audit.html", "annex.md", "annex.html", "acro"}
    record = json.loads((folder / "job-audit" / "audit.json").read_text())
    assert (record["method"], record["rows"], record["verdict"]["outcome"]) == ("random", 320, "passed")


def test_a_job_whose_labels_are_read_fails_with_an_exit_code(folder, monkeypatch):
    attacked_by(monkeypatch, reads_everything)
    result = fedsift("job.toml", "-q", "--format", "json")
    assert result.exit_code == 5
    record = json.loads(result.stdout)
    assert record["verdict"]["outcome"] == "failed"
    line = record["exposures"][0]
    assert line["over"]
    assert line["value"] == 1.0
    assert line["guess"] < 0.6
    assert line["how"].startswith("Every label")
    assert "reads everything" in (folder / "job-audit" / "audit.html").read_text()


def test_a_broken_attack_is_told_and_is_no_pass(folder, monkeypatch):
    attacked_by(monkeypatch, breaks_down, reads_nothing)
    result = fedsift("job.toml", "-q")
    assert result.exit_code == 5
    assert "INCOMPLETE" in result.output
    assert "breaks down broke down: KeyError" in result.output


@pytest.mark.parametrize("name", ["bank", "shop"])
def test_one_site_audits_with_its_own_file_alone_and_sends_nothing(folder, monkeypatch, name):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    (folder / ("shop.csv" if name == "bank" else "bank.csv")).unlink()
    attacked_by(monkeypatch, reads_nothing, target="columns")
    result = fedsift("job.toml", "--party", party_file(folder, name), "-q")
    assert result.exit_code == 0, result.output
    verdicts = stored.read_verdicts(folder / "audits")
    assert [(v.party, v.holds_label, v.outcome) for v in verdicts] == [(name, name == "bank", "passed")]


def test_a_party_without_the_label_can_rehearse_a_job_about_amounts(folder, monkeypatch):
    attacked_by(monkeypatch, reads_nothing, target="columns")
    job = JOB.replace("[method]", '[federation]\ntask = "regression"\n\n[method]')
    (folder / "job.toml").write_text(job)
    result = fedsift("job.toml", "--party", party_file(folder, "shop"), "-q")
    assert result.exit_code == 0, result.output


def test_attacks_on_what_others_hold_are_told_and_not_run(folder, monkeypatch):
    attacked_by(monkeypatch, reads_everything)  # labels: the shop has none
    result = fedsift("job.toml", "--party", party_file(folder, "shop"), "-q")
    assert result.exit_code == 5
    assert "after what others hold: reads everything" in result.output
    assert "nothing was tested" in result.output


HORIZONTAL = """\
[federation]
partition = "horizontal"
[parties.bank]
file = "bank.csv"
label = "default"
[parties.shop]
file = "other.csv"
label = "default"
[method]
name = "feature_election"
"""


@pytest.mark.parametrize("alone", [False, True])
def test_parties_with_rows_of_their_own_are_rehearsed_and_attacked(folder, alone):
    bank = frames(600)[0].drop(columns="customer")
    bank.iloc[:300].to_csv("bank.csv", index=False)
    bank.iloc[300:].to_csv("other.csv", index=False)
    (folder / "job.toml").write_text(HORIZONTAL)
    (folder / "bank.toml").write_text('[party]\nname = "bank"\nfile = "bank.csv"\nlabel = "default"\n')
    if alone:
        (folder / "other.csv").unlink()
    result = fedsift("job.toml", "-q", "--format", "json", *(["--party", "bank.toml"] if alone else []))
    record = json.loads(result.stdout)
    assert record["broken"] == {}
    assert record["verdict"]["outcome"] == "passed"
    attackers = {(line["attack"], line["party"]) for line in record["exposures"] if not line["found_nothing"]}
    expected = {("column_means_tell_members", "coordinator"), ("means_less_own_rows", "shop")}
    assert attackers == (expected if alone else expected | {("means_less_own_rows", "bank")})
    assert record["rows"] == (240 if alone else 480)


def test_a_hybrid_job_is_not_rehearsed_at_one_site(folder):
    text = JOB.replace("[parties.bank]", '[federation]\npartition = "hybrid"\n[parties.bank]\ngrid = [0, 0]')
    (folder / "job.toml").write_text(text.replace("[parties.shop]", "[parties.shop]\ngrid = [0, 1]"))
    result = fedsift("job.toml", "--party", party_file(folder), "-q")
    assert result.exit_code == 2
    assert "with all parties' files" in result.output.replace("\n", " ")


def test_the_real_attacks_run_on_a_real_filter(folder):
    """No attack breaks down on a shipped method, and the verdict is one of three."""
    result = fedsift("job.toml", "-q", "--format", "json", "--rows", "100", "--set", "method.name=information_value")
    record = json.loads(result.stdout)
    assert record["broken"] == {}
    assert record["rows"] == 100
    assert result.exit_code == (0 if record["verdict"]["outcome"] == "passed" else 5)
    assert {line["status"] for line in record["coverage"]} <= {"attacked", "needs none", "none yet"}


def test_an_empty_audit_at_a_site_says_so_and_does_not_count(folder, monkeypatch):
    attacked_by(monkeypatch, reads_everything)  # after labels, and the shop has none
    party = party_file(folder, "shop", "require_audit = true")
    done = fedsift("job.toml", "--party", party)
    assert done.exit_code == 5
    assert "NOTHING WAS TESTED: this is no pass" in done.stdout
    assert "PASSED" not in done.stdout
    assert "Nothing was tested" in (folder / "job-audit" / "audit.html").read_text()
    told = json.loads((folder / "job-audit" / "acro" / "results.json").read_text())["results"]
    assert not any(output["status"] == "pass" for output in told.values() if output["summary"].find("attacks on") > 0)
    with pytest.raises(PolicyRefused, match="require_audit"):
        open_site(party, load_job(folder / "job.toml"))
    [verdict] = stored.read_verdicts(folder / "audits")
    assert not verdict.complete


def test_progress_tells_the_attack_that_is_running(folder, monkeypatch):
    attacked_by(monkeypatch, reads_nothing, reads_everything)
    result = fedsift("job.toml", "--log-json")
    events = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    of = 2 * 3  # two attacks on all that was seen, on the alignment and on the method's own job
    assert any(event.get("what") == "attack" and event["of"] == of for event in events)


def test_an_interruption_leaves_nothing_half_written_and_the_earlier_audit_whole(folder, monkeypatch):
    def interrupted(view, truth):
        raise KeyboardInterrupt

    attacked_by(monkeypatch, interrupted)
    before = {path.name for path in folder.iterdir()}
    assert fedsift("job.toml", "-q").exit_code == 130
    assert {path.name for path in folder.iterdir()} == before
    attacked_by(monkeypatch, reads_nothing)
    assert fedsift("job.toml", "-q").exit_code == 0
    kept = (folder / "job-audit" / "audit.json").read_text()
    monkeypatch.setattr("fedsift.audit.folder.write_evidence", lambda *_: interrupted(None, None))
    assert fedsift("job.toml", "-q").exit_code == 130
    assert (folder / "job-audit" / "audit.json").read_text() == kept
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_folder_with_other_files_is_not_replaced(folder):
    (folder / "job-audit").mkdir()
    (folder / "job-audit" / "letter.txt").write_text("mine")
    result = fedsift("job.toml", "-q")
    assert result.exit_code == 2
    assert "no earlier audit" in result.output
    assert "--out DIR" in result.output
    assert (folder / "job-audit" / "letter.txt").read_text() == "mine"


MISTAKES = {
    "no such job": (["jub.toml"], "there is no job file jub.toml; did you mean 'job.toml'?"),
    "too many rows": (["job.toml", "--rows", "5000"], "--rows is 5,000; give a number from 20 to 4,000"),
    "too few rows": (["job.toml", "--rows", "5"], "an audit needs 20 rows or more"),
    "no such party file": (["job.toml", "--party", "telecom.toml"], "there is no party file telecom.toml"),
    "a misspelt method": (["job.toml", "--set", "method.name=randum"], "did you mean 'random'?"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_words_and_nothing_is_written(folder, mistake):
    arguments, words = MISTAKES[mistake]
    result = fedsift(*arguments, "-q")
    assert result.exit_code == 2, result.output
    assert words in result.output.replace("\n", " ")
    assert not (folder / "job-audit").exists()


def test_a_file_that_is_elsewhere_is_told_with_its_line_and_the_way_out(folder):
    (folder / "shop.csv").unlink()
    result = fedsift("job.toml", "-q")
    assert result.exit_code == 2
    assert "job.toml, line 7" in result.output
    assert "--party party.toml" in result.output


def test_a_party_that_is_not_in_the_job_or_has_no_label_is_told(folder):
    other = party_file(folder, "shop").read_text().replace('name = "shop"', 'name = "telecom"')
    (folder / "telecom.toml").write_text(other)
    result = fedsift("job.toml", "--party", "telecom.toml", "-q")
    assert result.exit_code == 2
    assert "has no party 'telecom'" in result.output
    assert "bank, shop" in result.output
    path = party_file(folder, "bank")
    path.write_text(path.read_text().replace('label = "default"\n', ""))
    result = fedsift("job.toml", "--party", path, "-q")
    assert result.exit_code == 2
    assert 'write label = "COLUMN" under [party]' in result.output.replace("\n", " ")


MODEL = '[model]\nname = "linear"\nmax_iter = 5\n'


def test_a_job_with_a_model_is_audited_with_its_training_and_its_scoring(folder):
    """``fedsift train`` puts three jobs to a site; ``require_audit`` refused two of them for ever."""
    (folder / "job.toml").write_text(f"{JOB}\n{MODEL}")
    path = party_file(folder, "bank", "require_audit = true\nmax_label_auc = 0.9")
    result = fedsift("job.toml", "--party", path, "--rows", "120", "-q", "--format", "json")
    record = json.loads(result.stdout)
    assert record["broken"] == {}
    assert record["verdict"]["outcome"] == "passed"
    assert {line["stage"] for line in record["exposures"]} == {"", "training", "scoring"}
    assert "final_weights" in {line["attack"] for line in record["exposures"] if line["stage"] == "training"}
    needed = {line.operation: _needed(line, record["method"]) for line in AuditRecord.read(record).disclosures}
    assert needed["logistic.keep_weights"] == "to train the model that the job names, and to use it"
    assert needed["scores.tell_figures"].startswith("to measure how good")
    site, job = open_site(path), load_job(folder / "job.toml")
    model = job.settings.model.make("classification")
    for announced in (job.selector().announcement(), model.announcement()):
        site.check_audit(*announced)
    [put] = [v for v in stored.read_verdicts(folder / "audits") if v.method == "evaluate"]
    jobs = jobs_within(job.selector(), model, SPLIT, 0, False)
    assert put.parameters == stored.parameters_hash(*jobs[0])
    with pytest.raises(PolicyRefused):
        site.check_audit(*SplitNN().announcement())


@pytest.mark.parametrize("kept", ["b0", "s0"])
def test_attacks_stand_a_party_of_which_no_column_was_kept_and_values_that_are_missing(folder, kept):
    bank, shop = frames()
    both = pd.concat([bank, shop], axis=1)
    bank["default"] = np.where(both[kept] > 0, "yes", "no")
    bank.loc[::9, "b1"], shop.loc[::7, "s1"] = np.nan, np.nan
    bank.to_csv(folder / "bank.csv", index=False)
    shop.to_csv(folder / "shop.csv", index=False)
    job = JOB.replace('"random"', '"information_value"').replace("n_features = 2", "n_features = 1")
    (folder / "job.toml").write_text(f"{job}\n{MODEL}")
    record = json.loads(fedsift("job.toml", "-q", "--format", "json", "--rows", "150").stdout)
    assert record["broken"] == {}
    assert "training" in {line["stage"] for line in record["exposures"]}


# --- the policy ------------------------------------------------------------------------------------------------------

TODAY = datetime.now(timezone.utc)


def passed(table: Table, **changes) -> stored.StoredVerdict:
    kind = stored.Fingerprint.of(table)
    given = {
        "party": "bank", "holds_label": True, "method": "random",
        "parameters": stored.parameters_hash("random", {"n_features": 2}), "software": stored.software_version(),
        "schema": kind.schema, "rows": kind.rows, "made": TODAY.isoformat(), "outcome": "passed", "complete": True,
        "label_auc": 0.6, "column_r2": 0.1, **changes,
    }  # fmt: skip
    return stored.StoredVerdict(**given)


def why(folder: Path, table: Table, policy: str = "", **parameters) -> str:
    given = {"n_features": 2, **parameters}
    rules = Policy(**json.loads(policy or "{}"))
    return stored.why_no_audit(folder, rules, "bank", "random", given, table)


def test_an_audit_counts_for_the_same_method_parameters_version_and_kind_of_table(tmp_path):
    table = tables()["bank"]
    assert "no audit of random" in why(tmp_path, table)
    passed(table).save(tmp_path)
    assert why(tmp_path, table) == ""
    assert "other parameters" in why(tmp_path, table, n_features=3)
    assert "other columns" in why(tmp_path, table.select(table.columns[:2]))
    assert "max_label_auc is 0.55" in why(tmp_path, table, '{"max_label_auc": 0.55}')
    assert "max_column_r2 is 0.05" in why(tmp_path, table, '{"max_column_r2": 0.05}')


def test_a_table_that_grows_daily_stays_valid_and_one_that_shrinks_does_not(tmp_path):
    passed(tables(400)["bank"]).save(tmp_path)
    assert why(tmp_path, tables(401)["bank"]) == ""
    assert why(tmp_path, tables(1600)["bank"]) == ""
    assert "now there are 1,601" in why(tmp_path, tables(1601)["bank"])
    assert why(tmp_path, tables(320)["bank"]) == ""
    assert "now there are 319" in why(tmp_path, tables(319)["bank"])


REJECTED = {
    "another version": ({"software": "0.0.9"}, "another version"),
    "too old": ({"made": (TODAY - timedelta(days=93)).isoformat()}, "valid for 92 days"),
    "from the future": ({"made": (TODAY + timedelta(days=1)).isoformat()}, "valid for 92 days"),
    "failed": ({"outcome": "failed"}, "did not pass"),
    "incomplete": ({"complete": False}, "incomplete"),
    "another party": ({"party": "shop"}, "no audit of random"),
    "another role": ({"holds_label": False}, "other columns"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_an_audit_does_not_count_if_it_is_of(case, tmp_path):
    changes, words = REJECTED[case]
    table = tables()["bank"]
    passed(table, **changes).save(tmp_path)
    assert words in why(tmp_path, table)


def test_a_file_that_somebody_has_edited_is_named(tmp_path):
    path = passed(tables()["bank"]).save(tmp_path)
    path.write_text(path.read_text().replace('"rows": 400', '"rowz": 400'))
    with pytest.raises(DataError, match=path.name):
        stored.read_verdicts(tmp_path)


def test_a_site_accepts_a_job_only_after_its_own_audit_has_passed(folder, monkeypatch):
    path, job = party_file(folder, "bank", "require_audit = true"), load_job(folder / "job.toml")
    with pytest.raises(PolicyRefused) as refusal:
        open_site(path, job)
    assert refusal.value.rule == "require_audit"
    attacked_by(monkeypatch, reads_everything)
    assert fedsift("job.toml", "--party", path, "-q").exit_code == 5
    with pytest.raises(PolicyRefused) as failed:
        open_site(path, job)
    assert str(failed.value) == str(refusal.value)  # a refusal does not tell why
    attacked_by(monkeypatch, reads_nothing)
    assert fedsift("job.toml", "--party", path, "-q").exit_code == 0
    assert open_site(path, job).name == "bank"
    with pytest.raises(PolicyRefused):
        open_site(path, load_job(folder / "job.toml", ["method.n_features=3"]))


def test_an_announcement_is_judged_as_a_job_is(folder):
    site = open_site(party_file(folder, "bank", "require_audit = true"))
    with pytest.raises(PolicyRefused, match="require_audit"):
        site.check_audit("random", {"n_features": 2})
    passed(site.table).save(folder / "audits")
    site.check_audit("random", {"n_features": 2})
    site.audits = None
    with pytest.raises(PolicyRefused, match="require_audit"):
        site.check_audit("random", {"n_features": 2})


def test_party_check_says_why_an_audit_is_missing(folder):
    path = party_file(folder, "bank", "require_audit = true")
    result = CliRunner().invoke(cli.app, ["party", "check", "job.toml", "--party", str(path)])
    assert result.exit_code == 5
    assert "require_audit: there is no audit of random here" in result.output


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("max_label_auc = 0.4", "an AUC from 0.5"),
        ("max_column_r2 = 2", "an R2 from 0"),
        ("require_audit = 1", "true or"),
    ],
)
def test_a_rule_that_cannot_be_is_told_with_its_line(folder, rule, words):
    result = fedsift("job.toml", "--party", party_file(folder, "bank", rule), "-q")
    assert result.exit_code == 2
    assert "bank.toml, line 8" in result.output
    assert words in result.output


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.fixture
def record(folder, monkeypatch):
    attacked_by(monkeypatch, reads_everything)
    return json.loads(fedsift("job.toml", "-q", "--format", "json").stdout)


def test_evidence_has_the_form_that_output_checkers_read(folder, record):
    acro = folder / "job-audit" / "acro"
    told = json.loads((acro / "results.json").read_text())
    assert told["version"].startswith("1.")
    assert told["tool"]["name"] == "fedsift"
    keys = {"uid", "status", "type", "properties", "files", "outcome", "command", "summary", "timestamp", "comments",
            "exception", "fair"}  # fmt: skip
    for uid, output in told["results"].items():
        assert set(output) == keys
        assert output["uid"] == uid
        assert output["status"] in ("pass", "fail", "review")
        name = output["files"][0]["name"]
        rows = list(csv.reader((acro / name).read_text(encoding="utf-8").splitlines()))
        assert len({len(row) for row in rows}) == 1
        assert len(rows) > 1
        assert len({len(column) for column in output["outcome"].values()}) == 1
    assert told["results"]["output_0"]["status"] == "fail"
    for path in acro.glob("*.*"):
        assert (acro / "checksums" / f"{path.name}.txt").read_text() == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_annex_says_what_leaves_what_could_be_inferred_and_what_remains(record):
    text = render_markdown(AuditRecord.read(record))
    for title in ("1. The processing", "2. What leaves, to whom, and why", "3. What could be inferred",
                  "4. Which measures hold", "5. What remains"):  # fmt: skip
        assert f"## {title}" in text
    assert "names of the columns that took part" in text
    assert "to name and count what takes part" in text
    assert "The audit has failed:" in text
    assert "accuracy 1.000" in text
    assert "a pass is no proof" in text
    assert "[to be completed" in text
    widths = [line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("|")]
    assert min(widths) >= 3


def test_steps_that_tell_the_same_are_one_line_of_the_annex(record):
    told = AuditRecord.read(record)
    line = next(each for each in told.disclosures if each.form == "aggregate")
    rows = render_markdown(replace(told, disclosures=(line, line))).splitlines()
    assert [each for each in rows if each.endswith(f"| {line.form} | {2 * line.bytes:,} |")]
    assert not [each for each in rows if each.endswith(f"| {line.form} | {line.bytes:,} |")]


def test_names_that_somebody_else_chose_cannot_become_markup(record):
    name = "<script>alert(1)</script>|x"
    record["exposures"][0].update(party=name, role="passive")
    record["parties"] = {name: 3}
    told = AuditRecord.read(record)
    for made in (render_audit(told), render_page(told)):
        assert "<script>alert" not in made
        assert "&lt;script&gt;alert" in made
    assert "alert(1)</script>\\|x" in render_markdown(told)


def test_the_picture_has_a_mark_for_success_baseline_and_guess(record):
    drawn = picture(AuditRecord.read(record).exposures)
    line = record["exposures"][0]
    for word in ("success 1.000", f"guess {line['guess']:.3f}", f"baseline {line['baseline']:.3f}"):
        assert word in drawn
    assert "over the limit" in drawn


def test_the_report_of_a_run_shows_the_audit_of_the_same_job_only(folder, record):
    run = CliRunner().invoke(cli.app, ["run", "job.toml", "-q"])
    assert run.exit_code == 0, run.output
    assert "What could be inferred" in (folder / "job-result" / "report.html").read_text()
    other = CliRunner().invoke(cli.app, ["run", "job.toml", "-q", "--set", "method.n_features=3"])
    assert other.exit_code == 0
    assert "What could be inferred" not in (folder / "job-result" / "report.html").read_text()


@pytest.mark.parametrize(
    ("operation", "said"), [("dealer.take_seed", True), ("descent.share_scores", True), ("tables.open_counts", False)]
)
def test_an_audit_of_a_job_on_shares_says_that_the_coordinator_is_trusted_to_compute(operation, said):
    ledger = Ledger([Entry(1, "bank", "coordinator", operation, 10, "control", "something")])
    assert (SHARES in caveats(ledger)) is said
