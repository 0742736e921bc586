"""The report for two readers: who can read what in the end, and what a data scientist asks first."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from method_cases import federation, selector

import fedsift as fs
from fedsift.core.ledger import COORDINATOR, Entry, Ledger
from fedsift.jobs import runs
from fedsift.jobs.job_file import load_job
from fedsift.report import render_html, render_text, summarize
from fedsift.report.audit_record import Line
from fedsift.report.formulas import formula_gains, readable_formula
from fedsift.report.next_steps import run_facts, what_next
from fedsift.report.officer import guessed
from fedsift.report.readings import PERSON, TOTAL, Reading, Roles, learned, readings, strongest
from fedsift.report.record import Report

ROLES = Roles(("bank", "shop"), ("bank",))


def sent(operation: str, sender: str, opened: str, *, relayed: bool = False) -> Entry:
    return Entry(1, sender, COORDINATOR, operation, 100, "plain", "", relayed, opened=opened)


def of(entries: list[Entry], roles: Roles = ROLES) -> list[Reading]:
    """Without the answer, which whoever gets the result always reads."""
    return [each for each in readings(Ledger(entries), roles) if "were kept" not in each.what]


@pytest.fixture(scope="module")
def matched():
    generator = np.random.default_rng(0)
    X = pd.DataFrame(generator.normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    X["id"] = [f"c{i}" for i in range(120)]
    y = (X["income"] + X["basket"] > 0).astype(int)
    tables = {"bank": X[["id", "age", "income"]].assign(default=y), "shop": X[["id", "visits", "basket"]].iloc[:100]}
    return fs.Federation.from_tables(tables, id="id", label=("bank", "default"))


@pytest.fixture(scope="module")
def record(matched):
    return summarize(fs.InformationValue(n_features=2).fit(matched))


def test_matching_stands_in_a_report_that_was_made_from_python(record):
    report = Report.read(record)
    told = {(each.owner, each.reader) for each in report.readings if each.target == "membership"}
    assert {("bank", "shop"), ("shop", "bank")} <= told
    text = render_text(record)
    assert "which of the reader's own clients are in this party's table too" in text
    assert any(line["what"].startswith("ids, blinded") for line in record["ledger"]["lines"])


def test_tables_that_were_not_matched_say_nothing_of_clients():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcd"))
    fed = fs.Federation.split(X, (X["a"] > 0).astype(int), parties=["bank", "shop"])
    found = Report.read(summarize(fs.RandomFeatures(n_features=2).fit(fed))).readings
    assert not any(each.target == "membership" for each in found)


def test_labels_are_the_label_holders_whoever_sends_the_numbers():
    found = of([sent("tables.masked_counts", "shop", "aggregate: label counts of shuffled bins")])
    assert {(each.owner, each.reader, each.target) for each in found} == {
        ("shop", "the coordinator", "columns"), ("bank", "the coordinator", "labels"),
    }  # fmt: skip
    assert {each.grain for each in found} == {TOTAL}


def test_a_row_is_one_person_and_who_has_the_same_rows_knows_whose_it_is():
    scores = sent("model.open_scores", "shop", "pseudonymous: the score of each row")
    (one,) = of([scores])
    assert (one.owner, one.reader, one.grain) == ("shop", "bank", PERSON)
    assert one.linkable.startswith("yes")
    bits = sent("boost.divide", "shop", "pseudonymous: which rows go left, one bit a row")
    assert [each.linkable for each in of([bits])] == ["not by itself: it holds no ids"]
    run_by_bank = Roles(("bank", "shop"), ("bank",), coordinator="bank")
    (one,) = of([bits], run_by_bank)
    assert (one.reader, one.linkable[:3]) == ("bank", "yes")


def test_what_nobody_can_open_is_read_by_nobody():
    hidden = [
        sent("labels.encrypt_classes", "bank", "ciphertext: class of each row, encrypted"),
        sent("boost.half_sums", "shop", "masked: half of the sums"),
        sent("core.count_table", "shop", "control: number of rows"),
    ]
    assert of(hidden) == []


def test_what_is_sealed_is_read_by_the_other_party_not_by_who_passes_it_on():
    sealed = sent("network.embed_rows", "shop", "plain: the embedding of each row", relayed=True)
    assert [(each.reader, each.grain) for each in of([sealed])] == [("bank", PERSON)]


def test_what_a_party_hears_row_by_row_is_about_the_others():
    heard = Entry(1, COORDINATOR, "bank", "boost.divide_nodes", 50, "masked", "which rows of a node go left")
    (one,) = of([heard])
    assert (one.owner, one.reader, one.grain, one.linkable[:3]) == ("shop", "bank", PERSON, "yes")
    gradient = "the gradient of each row's loss in its own embedding: tells about the row's label"
    (one,) = of([Entry(1, COORDINATOR, "shop", "network.bottom_round", 50, "plain", gradient)])
    assert (one.owner, one.target) == ("bank", "labels")
    nothing = Entry(1, COORDINATOR, "shop", "boost.compare", 50, "masked", "nothing: numbers of rows under masks")
    assert of([nothing]) == []
    assert [each.what for each in learned(Ledger([nothing]), ROLES)] == ["which of its own columns were kept"] * 2


def test_the_picture_has_one_arrow_for_each_pair_in_the_colour_of_what_tells_most():
    both = of([
        sent("boost.divide", "shop", "pseudonymous: which rows go left, one bit a row"),
        sent("muse.entropies", "shop", "aggregate: sums"),
        sent("core.share_names", "shop", "plain: names of the columns that took part"),
    ])  # fmt: skip
    assert strongest(both) == {("shop", "the coordinator"): "pseudonymous"}


def test_a_partys_own_copy_says_who_opens_its_numbers_and_nothing_of_others(matched):
    fitted = fs.InformationValue(n_features=2).fit(matched)
    own = Report.read(summarize(fitted, party="shop"))
    assert {each.owner for each in own.readings} == {"shop"}
    assert {each.reader for each in own.readings} >= {"the coordinator", "bank"}
    assert {each.party for each in own.learned} == {"shop"}
    assert own.run.label == ""
    page = render_html(own.write())
    assert "Your data" in page
    assert "The data of" not in page
    assert "fedsift audit JOB.toml --party" in page, "could it be guessed"


def test_a_partys_own_copy_has_flags_and_calls_them_no_scores(matched):
    fitted = fs.InformationValue(n_features=2).fit(matched)
    whole = Report.read(summarize(fitted))
    for party in whole.parties:
        record = summarize(fitted, party=party)
        for page in (render_html(record), render_text(record)):
            assert "Scores go to who gets the result" in page
            assert "Score of the method" not in page
            assert "border between kept and left out" not in page
            assert "How good this choice is was not measured" not in page


def line(target, role, party, metric, value, guess, baseline, adds=False, found_nothing=False):
    return Line(
        attack="some", role=role, party=party, target=target, metric=metric, value=value, guess=guess,
        baseline=baseline, control=None, cpu_seconds=0.0, knows="", declared="no", note="", auc=None,
        added=value - baseline, adds=adds, concerns=True, figure=value, limit=1.0, over=False, why="",
        found_nothing=found_nothing, how="", reads=[],
    )  # fmt: skip


EXPOSURES = [
    line("labels", "coordinator", "coordinator", "AUC", 0.55, 0.5, 0.54),
    line("labels", "passive", "shop", "AUC", 0.9, 0.5, 0.6, adds=True),
    line("columns", "active", "bank", "R2", 0.0, 0.0, 0.0, found_nothing=True),
]


@pytest.mark.parametrize(
    ("reader", "target", "words"),
    [
        ("the coordinator", "labels", "AUC 0.55 (guess 0.50, known anyway 0.54): no better"),
        ("shop", "labels", "AUC 0.90 (guess 0.50, known anyway 0.60): more than it knows"),
        ("bank", "columns", "nothing to read"),
        ("shop", "columns", "no attack"),
        ("shop", "", "–"),
    ],
)
def test_what_could_be_guessed_is_the_audits_figure_for_this_reader(reader, target, words):
    assert words in guessed(Reading("x", reader, "w", "aggregate", TOTAL, "no", target), EXPOSURES)


# -- the data scientist -----------------------------------------------------------------------------------------------


def test_a_run_says_label_rows_job_files_and_the_command_that_repeats_it(tmp_path: Path):
    generator = np.random.default_rng(0)
    for name, columns in (("bank", ["age", "income"]), ("shop", ["visits"])):
        table = pd.DataFrame(generator.normal(size=(60, len(columns))), columns=columns)
        table.insert(0, "id", [f"c{i}" for i in range(60)])
        table = table.assign(outcome=(table["income"] > 0).astype(int)) if name == "bank" else table.iloc[:50]
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "job.toml").write_text(
        '[parties.bank]\nfile = "bank.csv"\nid = "id"\nlabel = "outcome"\n'
        '[parties.shop]\nfile = "shop.csv"\nid = "id"\n[method]\nname = "random"\nn_features = 2\n'
    )
    run = runs.prepare(load_job(tmp_path / "job.toml", ["method.n_features=1"]))
    runs.select(run)
    facts = runs.write(run, tmp_path / "out")
    record = json.loads((tmp_path / "out" / "summary.json").read_text())
    report = Report.read(record)
    told = dict(run_facts(report))
    assert told["label"] == "outcome, held by bank"
    assert told["rows of each party"] == "bank: 60, shop: 50"
    assert told["rows that all share"] == "50"
    assert told["job hash"] == facts["hash"]
    assert report.run.inputs == facts["origin"]["inputs"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "fedsift run job.toml --set method.n_features=1" in page
    assert "fedsift reproduce" in page
    assert facts["origin"]["inputs"]["shop"] in page
    own = json.loads((tmp_path / "out" / "summary-shop.json").read_text())
    assert own["run"] | {"made": "", "job": "", "shared": 0} == {
        "made": "", "label": "", "holders": ["bank"], "rows": {"shop": 50}, "shared": 0, "job": "",
            "inputs": {"shop": facts["origin"]["inputs"]["shop"]},
        "commands": [], "coordinator": "neutral", "submitter": "neutral",
    }  # fmt: skip


def test_a_run_from_python_is_repeated_by_python(record):
    assert "fs.InformationValue(n_features=2).fit(fed)" in render_html(record)
    steps = " ".join(what_next(Report.read(record)))
    assert "fs.evaluate" in steps
    assert "fedsift value" in steps


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        ("mul(scale(basket, 0.0569, 1.006), scale(income, 0.04911, 0.9123))", "basket × income"),
        ("scale(square(scale(bank.age, 0.01, 0.9)), 1.0, 1.2)", "bank.age²"),
        ("mul(scale(mul(a, b), 0.1, 0.8), sigmoid(c))", "(a × b) × sigmoid(c)"),
        ("div1(a, sub(b, c))", "a / (|b − c| + 1)"),
        ("sqrtabs(add(a, b))", "√|a + b|"),
        ("no formula (", "no formula ("),
    ],
)
def test_formulas_read_as_one_would_write_them(formula, shown):
    assert readable_formula(formula) == shown


def test_new_features_stand_with_their_gain():
    fitted = selector("fed_iife").fit(federation("fed_iife"))
    report = Report.read(summarize(fitted))
    gains = formula_gains(report)
    assert set(gains) >= set(report.answer.engineered)
    page = render_html(summarize(fitted))
    assert not report.answer.engineered or "<th" in page.partition("New features to make")[2][:600]
