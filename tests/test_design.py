"""Designs: groups of rows stay together, training comes before testing, and nothing more is told than that."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedsift as fs
from fedsift.audit import load_attacks, record
from fedsift.cli.main import app
from fedsift.core.design import Design
from fedsift.core.message import walk
from fedsift.core.row_draws import TEST, TRAIN, draw_designed_rows
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import DataError, ParameterError, PolicyRefused
from fedsift.evaluate.holder import EvaluationJob
from fedsift.jobs.job_file import load_job
from fedsift.jobs.runs import execute
from fedsift.mpc.psi import align
from fedsift.site.site import open_site

ROWS = 400


def table(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(ROWS, 4)), columns=["age", "income", "visits", "basket"])
    return X, (X["income"] + X["basket"] + 0.5 * rng.normal(size=ROWS) > 0).astype(int).to_numpy()


def federation(aside: dict[str, np.ndarray]) -> fs.Federation:
    X, y = table()
    return fs.Federation.split(X, y, parties=["bank", "shop"], aside=aside)


CUSTOMER = np.arange(ROWS) // 3
MONTH = np.random.default_rng(5).permutation(ROWS) % 40


def grouped() -> fs.Federation:
    return federation({"customer": CUSTOMER}).designed(Design(group="bank.customer"))


def timed(**gap: float) -> fs.Federation:
    return federation({"month": MONTH}).designed(Design(time="bank.month", **gap))


@pytest.mark.parametrize("folds", [2, 3, 5, 10])
def test_a_persons_rows_stay_in_one_fold(folds):
    sides = grouped().dealt_sides(folds)
    assert ((sides == TEST).sum(axis=0) == 1).all()
    assert ((sides != TEST) == (sides == TRAIN)).all()
    for fold in sides:
        assert not set(CUSTOMER[fold == TEST]) & set(CUSTOMER[fold == TRAIN])


def test_all_draws_by_groups_are_made_of_the_same_ten_parts():
    """Whoever keeps the masks of many draws learns one assignment to ten parts, and nothing of groups inside them."""
    fed, seen = grouped(), []
    for folds in (2, 3, 4, 5, 7, 10):
        seen += list(fed.dealt_sides(folds) == TEST)
    for share in np.linspace(0.1, 0.9, 17):
        seen += list(fed.dealt_sides(1, float(share)) == TEST)
    views = fed.simulated["bank"].views
    train, again = fed.rows(train=0.8)[0], fed.rows(train=0.8, random_state=1)[0]
    assert np.array_equal(views[train._view][0], views[again._view][0])
    assert len(np.unique(np.array(seen).T, axis=0)) <= 10


def test_folds_inside_a_fold_tell_no_more():
    fed = grouped()
    outer = fed.dealt_sides(5)
    whole = np.array(fed.dealt_sides(10) == TEST).argmax(axis=0)
    for fold in outer:
        rows = np.flatnonzero(fold == TRAIN)
        inner = fed.view(rows=rows).dealt_sides(3)
        for side in inner:
            for part in np.unique(whole[rows]):
                assert len(np.unique(side[whole[rows] == part])) == 1


@pytest.mark.parametrize("folds", [1, 4, 6])
def test_a_model_learns_from_earlier_rows_than_it_is_tested_on(folds):
    for fold in timed().dealt_sides(folds, 0.7):
        assert MONTH[fold == TRAIN].max() < MONTH[fold == TEST].min()


def test_a_gap_lies_between():
    for fold in timed(gap=3).dealt_sides(4):
        assert MONTH[fold == TEST].min() - MONTH[fold == TRAIN].max() >= 3


def test_all_draws_by_time_tell_twenty_parts_at_most():
    seen = []
    for gap in (0.0, 1.0, 2.0, 3.5):
        fed = timed(gap=gap)
        for folds in (1, 2, 3, 5):
            seen += [side for fold in fed.dealt_sides(folds, 0.6) for side in (fold == TEST, fold == TRAIN)]
    assert len(np.unique(np.array(seen).T, axis=0)) <= 20


def test_groups_of_another_party_are_dealt_there():
    X, y = table()
    bank = X[["age", "income"]].assign(label=y)
    shop = X[["visits", "basket"]].assign(household=CUSTOMER)
    fed = fs.Federation.from_tables(
        {"bank": bank, "shop": shop}, id=None, label=("bank", "label"), aside={"shop": ["household"]}
    ).designed(Design(group="shop.household"))
    assert fed.column_names()["shop"] == ["visits", "basket"]
    result = fs.evaluate(fed, fs.GiniFilter(n_features=2), model="linear", cv=3)
    assert result.settings["how"] == "3 folds, whole groups"
    dealt = [entry for entry in fed.ledger.entries if entry.operation == "core.draw_designed_rows"]
    assert {entry.sender for entry in dealt} - {"coordinator"} == {"shop"}
    with pytest.raises(fs.FedsiftError, match="the design's group column is another party's"):
        fs.TopGain().fit(fed)


def test_a_split_group_inflates_the_score_and_a_whole_one_does_not():
    """Rows of a person are copies of each other and the label is a coin of the person: there is nothing to learn."""
    rng = np.random.default_rng(3)
    person = np.repeat(np.arange(100), 4)
    X = pd.DataFrame(rng.normal(size=(100, 6))).iloc[person].reset_index(drop=True)
    y = rng.integers(0, 2, 100)[person]
    fed = fs.Federation.split(X, y, parties=["bank", "shop"], aside={"person": person})
    model = fs.SecureBoostClassifier(
        n_estimators=10, max_depth=4, learning_rate=0.5, min_leaf=1, min_cell=1, protection="coordinator"
    )
    told = {}
    for name, design in {"rows": Design(), "groups": Design(group="bank.person")}.items():
        result = fs.evaluate(fed.designed(design), fs.RandomFeatures(n_features=6), model=model, cv=5, nulls=False)
        told[name] = float(result.frame()["auc"].iloc[0])
    assert told["rows"] > 0.8
    assert 0.3 < told["groups"] < 0.65


def test_boosting_holds_out_whole_groups_and_later_rows():
    for fed in (grouped(), timed()):
        kept = fs.TopGain(n_features=2, protection="coordinator").fit(fed).selected_
        assert sum(map(len, kept.values())) == 2
    model = fs.SecureBoostClassifier(n_estimators=3, max_depth=2, early_stopping_rounds=1)
    model.fit(timed())


def test_value_goes_by_the_design():
    for fed in (grouped(), timed()):
        found = fs.value(fed, folds=4, bins=None)
        assert found.lines


def test_a_pooled_evaluation_goes_by_the_design():
    for fed, how in ((grouped(), 3), (timed(), 0.7)):
        result = fs.evaluate(fed, fs.GiniFilter(n_features=2), pooled=True, model="linear", cv=how, nulls=False)
        assert float(result.frame()["accuracy"].iloc[0]) > 0.7


def test_stability_selection_halves_by_groups():
    fed = grouped()
    fs.Stable("gini", q=2, pairs=2, blocks=6).fit(fed)
    views = [view for view in fed.simulated["bank"].views.values() if view[0] is not None and 0 < len(view[0]) < ROWS]
    assert views
    for rows, _ in views:
        assert not set(CUSTOMER[rows]) & set(np.delete(CUSTOMER, rows))


def test_the_draw_is_no_secret_operation_of_a_job_without_a_design():
    fed = federation({"customer": CUSTOMER})
    with pytest.raises(fs.FedsiftError, match="names no group and no time"), fed.session("rows", {}) as run:
        run.ask(draw_designed_rows, to="bank", folds=5, train=0.5)


def test_nothing_that_is_set_aside_is_ever_sent():
    X, y = table()
    names = np.array([f"canary-{person}" for person in CUSTOMER])
    weight = np.random.default_rng(0).uniform(1.0, 2.0, ROWS)

    def conversation(fed: fs.Federation) -> None:
        fs.GiniFilter(n_features=2).fit(fed.designed(Design(group="bank.customer", weight="bank.weight")))
        fs.evaluate(fed.designed(Design(group="bank.customer")), fs.GiniFilter(n_features=2), model="linear", cv=2)

    seen = record(X, y, conversation, parties=["bank", "shop"], aside={"customer": names, "weight": weight})
    own = {*weight.tolist(), *(weight / weight.mean()).tolist()}
    for message in seen["coordinator"].messages:
        for part in walk(message.content):
            assert "canary-" not in str(part)
            if isinstance(part, np.ndarray) and part.dtype.kind == "f":
                assert not own & set(part.ravel().tolist())


def test_many_draws_link_no_more_rows_than_ten_parts_must():
    """Whoever runs many evaluations has each row linked to another of its person no more often than by ten parts."""
    X, y = table()

    def conversation(fed: fs.Federation) -> None:
        designed = fed.designed(Design(group="bank.customer"))
        for folds in (2, 3, 4, 5, 6, 7, 8, 9, 10):
            designed.dealt_sides(folds)
        for share in np.linspace(0.1, 0.9, 9):
            designed.dealt_sides(1, float(share))

    seen = record(X, y, conversation, parties=["bank", "shop"], aside={"customer": CUSTOMER})
    found = load_attacks()["persons_from_draws"].run(seen["coordinator"], seen.truth)
    assert found.value <= 1.2 * found.baseline
    assert found.value < 0.06  # each time anew: above 0.9 (tests/leaky/draws.py)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Design(group="customer"), r'a column as "party.column"'),
        (lambda: Design(group="bank.a", time="bank.b"), "group or time, one of the two"),
        (lambda: Design(gap=3), "gap is a number, 0 or more, beside time"),
        (lambda: Design(class_weight={"a": -1.0}), "class_weight"),
        (lambda: federation({}).designed(Design(group="baker.a")), "no column of a party"),
        (lambda: federation({}).designed(Design(weight="shop.w")), "a column of the label holder 'bank'"),
    ],
)
def test_a_design_that_makes_no_sense_is_refused_in_words(made, words):
    with pytest.raises(ParameterError, match=words):
        made()


@pytest.mark.parametrize(
    ("aside", "design", "words"),
    [
        ({}, Design(group="bank.customer"), "bank.*the design's group column 'customer' is not set aside"),
        ({"w": np.full(ROWS, -1.0)}, Design(weight="bank.w"), "party 'bank': weights must be above 0"),
        ({"e": np.full(ROWS, 3)}, Design(event="bank.e"), "party 'bank': an event is 1"),
        ({"t": np.array(["x"] * ROWS)}, Design(time="bank.t"), "party 'bank': the design's time column must hold"),
        ({"c": np.zeros(ROWS)}, Design(group="bank.c"), "party 'bank': its groups make 1 parts here"),
        ({"c": np.zeros(ROWS)}, Design(time="bank.c"), "party 'bank': its rows are of 1 different times"),
    ],
)
def test_a_column_that_cannot_be_what_it_is_named_for_is_refused(aside, design, words):
    fed = federation(aside).designed(design)
    with pytest.raises((DataError, fs.FedsiftError), match=words):
        fs.evaluate(fed, fs.InformationValue(n_features=2), cv=4, model="linear")


def test_a_method_says_which_part_it_does_not_go_by():
    fed = federation({"w": np.ones(ROWS)}).designed(Design(weight="bank.w"))
    with pytest.raises(ParameterError, match="Muse does not go by the design's weight"):
        fs.Muse(n_features=2).fit(fed)


def test_a_job_without_a_design_is_the_job_that_it_was():
    fed = federation({"customer": CUSTOMER})
    assert b"design" not in fed.job("gini", {}).canonical
    assert fed.designed(Design(group="bank.customer")).job("gini", {}).hash != fed.job("gini", {}).hash


JOB = """
[parties.bank]
file = "bank.csv"
id = "id"
label = "default"

[parties.shop]
file = "shop.csv"
id = "id"

[design]
{design}

[method]
name = "gini"
n_features = 2

[evaluate]
model = "linear"
folds = 3
nulls = false
"""


@pytest.fixture
def folder(tmp_path):
    X, y = table()
    named = X.assign(id=[f"p{i}" for i in range(ROWS)], customer=CUSTOMER, month=MONTH, default=y)
    named[["id", "age", "income", "customer", "month", "default"]].to_csv(tmp_path / "bank.csv", index=False)
    named[["id", "visits", "basket"]].to_csv(tmp_path / "shop.csv", index=False)
    return tmp_path


def run_job(folder, design):
    path = folder / "job.toml"
    path.write_text(JOB.format(design=design))
    return CliRunner().invoke(app, ["run", str(path)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("design", "said"),
    [
        ('event = "bank.happened"', "survival: times until an event"),
        ('weight = "bank.counted"\nclass_weight = { 0 = 1, 1 = 5 }', "classification, 2 classes"),
        ('event = "bank.happened"\nweight = "bank.counted"', "survival: times until an event"),
    ],
)
def test_check_says_what_a_design_makes_of_the_label(folder, design, said):
    frame = pd.read_csv(folder / "bank.csv").assign(happened=np.arange(ROWS) % 2, counted=1 + np.arange(ROWS) % 3)
    if "event" in design:
        frame["default"] = np.arange(ROWS) / 7.0
    frame.to_csv(folder / "bank.csv", index=False)
    path = folder / "job.toml"
    path.write_text(JOB.format(design=design))
    shown = CliRunner().invoke(app, ["check", str(path)], catch_exceptions=False)
    assert f"; {said}\n" in shown.stdout
    assert "regression" not in shown.stdout
    first = design.split("\n")[0].split(" = ")
    assert f"{first[0]} {first[1].strip(chr(34))}" in " ".join(shown.stdout.split())
    facts = json.loads(CliRunner().invoke(app, ["check", str(path), "--format", "json", "-q"]).stdout)
    assert facts["task"] == said.split(":")[0].split(",")[0]
    assert facts["design"]


@pytest.mark.parametrize("design", ['group = "bank.customer"', 'time = "bank.month"\ngap = 1'])
def test_a_job_file_has_a_design(folder, design):
    done = run_job(folder, design)
    assert done.exit_code == 0, done.output
    told = json.loads((folder / "job-result" / "run.json").read_text())
    assert told["parties"]["bank"]["columns"] == 3  # the fourth is set aside
    assert told["selected"]["shop"] == ["basket"]


@pytest.mark.parametrize(
    ("design", "words"),
    [
        ('group = "banc.customer"', r"job.toml, line \d+: design: group='banc.customer' is no column of a party"),
        ('group = "bank.customers"', "'customers' to set aside is not there. Did you mean 'customer'"),
        ('group = "bank.customer"\ntime = "bank.month"', "give group or time"),
        ("weight = 3", 'expected a column as "party.column"'),
        ('groups = "bank.customer"', "did you mean 'group'"),
    ],
)
def test_a_mistake_in_a_design_is_named_with_its_place(folder, design, words):
    path = folder / "job.toml"
    path.write_text(JOB.format(design=design))
    with pytest.raises(fs.FedsiftError, match=words):
        execute(load_job(path))


def sites(folder, aside: str, design: Design | None = None) -> fs.Federation:
    """A bank and a shop with the default policy, aligned."""
    X, y = table()
    ids = [f"p{i}" for i in range(ROWS)]
    X[["age", "income"]].assign(id=ids, customer=CUSTOMER + 1, default=y).to_csv(folder / "bank.csv", index=False)
    named = 'name = "bank"\nfile = "bank.csv"\nid = "id"\nlabel = "default"\ncolumns = ["age", "income"]'
    (folder / "party.toml").write_text(f"[party]\n{named}\n{aside}\n")
    X[["visits", "basket"]].assign(id=ids).to_csv(folder / "shop.csv", index=False)
    (folder / "shop.toml").write_text('[party]\nname = "shop"\nfile = "shop.csv"\nid = "id"\n')
    transport = InProcess({"bank": open_site(folder / "party.toml"), "shop": open_site(folder / "shop.toml")})
    fed = fs.Federation(transport, ["bank", "shop"], active="bank")
    return align(fed).designed(design or Design(group="bank.customer"))


def test_sites_with_the_default_policy_answer_weighted_counts_and_write_them_down(tmp_path):
    fed = sites(tmp_path, 'aside = ["customer"]', Design(weight="bank.customer"))
    plain = fs.GiniFilter(n_features=2).fit(fed.designed(Design()))
    weighted = fs.GiniFilter(n_features=2).fit(fed)
    assert plain.scores_.score.tolist() != weighted.scores_.score.tolist()
    lines = fed.simulated["shop"].journal.journal.lines()
    bits = [line.bits for line in lines if line.operation == "tables.masked_counts"]
    assert len(bits) == 2
    assert bits[1] > bits[0]


LISTED = '[policy]\nrows_by = ["customer"]'


def test_a_site_deals_by_a_column_that_its_own_file_sets_aside_and_lists(tmp_path):
    with pytest.raises(PolicyRefused, match=r"rows_by.*'customer'"):
        fs.GiniFilter(n_features=2).fit(sites(tmp_path, 'aside = ["customer"]'))
    fed = sites(tmp_path, f'aside = ["customer"]\n{LISTED}')
    fitted = fs.GiniFilter(n_features=2).fit(fed)
    assert "customer" not in fitted.selected_["bank"]
    with fed.session(*EvaluationJob(methods=("gini",), folds=3).announcement()) as run:
        sides = run.dealt_sides(3)
    assert ((sides == TEST).sum(axis=0) == 1).all()
    with pytest.raises(PolicyRefused, match="no method was announced"):
        fed.ask(draw_designed_rows, to="bank", folds=3, train=0.5)


def test_a_site_names_no_column_that_its_own_file_does_not_set_aside(tmp_path):
    with pytest.raises(fs.FedsiftError, match=r"'bank'.*'customer' is not set aside here"):
        fs.GiniFilter(n_features=2).fit(sites(tmp_path, LISTED))
