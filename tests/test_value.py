"""What a partner is worth: true gains are seen; useless and duplicate partners and shuffled rows add nothing."""

from __future__ import annotations

import json
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from doubles import Recording
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app
from fedsift.core.message import decode
from fedsift.core.party import Party
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import OperationRefused, ParameterError
from fedsift.evaluate.gains import coalition_name, coalitions, shapley
from fedsift.evaluate.value_holder import ValueJob, shuffle_rows
from fedsift.evaluate.worth import Gain, PartnerLine
from fedsift.models.design import BinnedDesign
from fedsift.models.parts import Measured
from fedsift.report.value import value_page
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite


def tables(rows=900, seed=0):
    """A bank with the label; a shop that knows more; a clinic of noise; a copy of the bank's columns."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, 4))
    label = X[:, 0] + X[:, 1] ** 2 + 0.8 * generator.normal(size=rows) > 1
    ids = np.array([f"person {i:05d}" for i in generator.permutation(rows)])
    made = {
        "bank": pd.DataFrame({"a": X[:, 0], "z": X[:, 3], "label": np.where(label, "yes", "no")}),
        "shop": pd.DataFrame({"b": X[:, 1], "kind": np.where(X[:, 1] > 0, "canary-up", "canary-down")}),
        "clinic": pd.DataFrame({"n": generator.normal(size=rows), "m": generator.normal(size=rows)}),
        "twin": pd.DataFrame({"a2": X[:, 0]}),
    }
    return {name: table.assign(id=ids) for name, table in made.items()}


def federation(*names, rows=900, seed=0):
    made = tables(rows, seed)
    return fs.Federation.from_tables({n: made[n] for n in names}, id="id", label=("bank", "label"))


@pytest.fixture(scope="module")
def valued():
    return fs.value(federation("bank", "shop", "clinic", "twin"), folds=5)


def line(valuation, partner):
    return next(each for each in valuation.lines if each.partner == partner)


def test_a_partner_that_knows_more_is_seen_and_the_others_are_not(valued):
    assert line(valued, "shop").adds.seen
    assert line(valued, "shop").adds.mean > 0.05
    assert line(valued, "shop").beyond.seen
    for partner in ("clinic", "twin"):
        assert not line(valued, partner).adds.seen
        assert not line(valued, partner).beyond.seen
    assert not any(each.null.seen for each in valued.lines), "shuffled rows add nothing"


def test_shares_add_up_to_the_whole(valued):
    assert sum(each.share.mean for each in valued.lines) == pytest.approx(valued.together.mean, abs=0.002)
    assert line(valued, "shop").share.mean > 10 * abs(line(valued, "clinic").share.mean)


def test_the_answer_is_in_words(valued):
    text = str(valued)
    gain = line(valued, "shop").adds
    assert f"shop adds {gain.mean:.3f} AUC ({gain.low:.3f} to {gain.high:.3f})." in text
    assert "clinic adds nothing that we can see." in text
    assert set(valued.frame()["partner"]) == {"shop", "clinic", "twin"}
    assert "shop adds" in value_page(valued)
    assert json.loads(json.dumps(valued.to_dict()))["metric"] == "auc"


def test_a_gain_that_rounds_to_nothing_is_none():
    assert not Gain(0.0004, 0.0, 0.0008).seen
    suspicious = PartnerLine("shop", Gain(0.1, 0.05, 0.2), Gain(0.1, 0.05, 0.2), None, Gain(0.02, 0.01, 0.03))
    assert "do not trust" in suspicious.words("AUC")


def test_shapley_by_all_orders():
    generator = np.random.default_rng(0)
    partners = ["a", "b", "c"]
    worth = {frozenset(group): generator.random(4) for group in coalitions(partners)}
    for who in partners:
        gains = []
        for order in permutations(partners):
            before = frozenset(order[: order.index(who)])
            gains.append(worth[before | {who}] - worth[before])
        np.testing.assert_allclose(shapley(worth, who, partners), np.mean(gains, axis=0))


def test_many_partners_are_tried_alone_together_and_without_each():
    names = [f"p{i}" for i in range(6)]
    tried = coalitions(names)
    assert len(tried) == 1 + 6 + 6 + 1
    assert len({coalition_name(group) for group in tried}) == len(tried)


@pytest.mark.parametrize("bins", [8, None])
def test_the_joint_model_is_the_ridge_of_the_pooled_table(bins):
    """The plaintext oracle: the same designs side by side, solved outright."""
    fed = federation("bank", "shop", rows=600)
    train, test = fed.rows(train=0.8)
    model = fs.VerticalAdditive(bins=bins, max_iter=60, tol=1e-7).fit(train)
    model.measure(test, "evaluation-1", "joint", ["auc"])
    sites = fed.simulated
    parts = {n: (Party(sites[n], train._view).table, Party(sites[n], test._view).table) for n in fed.parties}
    design = BinnedDesign if bins else fs.models.design.Design
    fitted = {n: design.fit(a, bins, 5) if bins else design.fit(a) for n, (a, _) in parts.items()}
    X, Z = (np.hstack([fitted[n].matrix(parts[n][k]) for n in fed.parties]) for k in (0, 1))
    y = np.where(parts["bank"][0].label == "yes", 2.0, -2.0)
    oracle = Ridge(alpha=4 * 0.01 * len(y)).fit(X, y).predict(Z)
    np.testing.assert_allclose(model.decision_function(test), oracle, atol=2e-3)
    held = sites["bank"].models.part("evaluation-1", Measured).values["joint"][0]["auc"]
    assert held == pytest.approx(roc_auc_score(parts["bank"][1].label == "yes", oracle), abs=2e-3)


def test_a_number_is_valued_by_r2():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 4))
    fed = fs.Federation.split(X, X[:, 0] + X[:, 2] + 0.1 * generator.normal(size=400), parties=["bank", "shop"])
    found = fs.value(fed, folds=4)
    assert found.metric == "r2"
    assert found.lines[0].adds.seen


# -- what travels ----------------------------------------------------------------------------------------------------


def test_no_cell_label_weight_or_prediction_is_on_any_wire():
    made = tables(rows=300)
    made["shop"]["b"] = np.random.default_rng(5).uniform(1e5, 9e5, 300)
    fed = fs.Federation.from_tables({n: made[n] for n in ("bank", "shop")}, id="id", label=("bank", "label"))
    log = Recording(fed._link.transport)
    fed._link.transport = log
    fs.value(fed, folds=2)
    sent = b"".join(data for _, _, data in log.log)
    assert not any(np.float64(cell).tobytes() in sent for cell in made["shop"]["b"])
    assert b"canary-" not in sent
    assert b"person 0" not in sent
    asked = {decode(data)["operation"] for sender, _, data in log.log if sender == "coordinator"}
    assert "scores.tell_figures" in asked
    reading = {"additive.open_rows", "additive.tell_scores", "descent.open_residuals", "model.measure", "model.score"}
    assert not asked & {*reading, "logistic.keep_weights", "core.draw_rows"}, "nobody reads the score of a row"


def test_a_default_policy_accepts_the_job():
    made = tables(rows=600)
    sites = {
        "bank": PolicySite("bank", Table.read(made["bank"], id="id", label="label", name="bank"), Policy()),
        "shop": PolicySite("shop", Table.read(made["shop"], id="id", name="shop"), Policy()),
    }
    found = fs.value(fs.Federation(InProcess(sites), list(sites), active="bank"), folds=5)
    assert found.lines[0].adds.seen


def test_a_partner_shuffles_its_rows_under_its_own_draw_and_once():
    fed = federation("bank", "shop")
    with fed.session(*ValueJob(folds=3).announcement()) as run:
        fold = np.arange(run.n_rows) % 3
        run.ask(shuffle_rows, to="shop", view="shuffled-1", fold=fold)
        with pytest.raises(OperationRefused, match="asked 1 times"):
            run.ask(shuffle_rows, to="shop", view="shuffled-2", fold=fold)
        with pytest.raises(OperationRefused, match="for passive parties"):
            run.ask(shuffle_rows, to="bank", view="shuffled-1", fold=fold)
    site = fed.simulated["shop"]
    before, after = site.views[fed._view][0], site.views["shuffled-1"][0]
    assert all(sorted(before[fold == k]) == sorted(after[fold == k]) for k in range(3)), "a fold keeps its rows"
    assert (before == after).sum() < 25  # by luck one a fold is expected


# -- refusals and the command line -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "message"), [({"folds": 1}, "folds"), ({"metric": "r2"}, "'r2'")])
def test_bad_arguments_name_what_is_wrong(options, message):
    with pytest.raises(ParameterError, match=message):
        fs.value(federation("bank", "shop", rows=100), **options)


def test_a_data_holder_that_runs_the_coordinator_is_refused():
    made = tables(rows=100)
    both = {name: made[name] for name in ("bank", "shop")}
    fed = fs.Federation.from_tables(both, id="id", label=("bank", "label"), coordinator="bank")
    with pytest.raises(ParameterError, match="holds no rows"):
        fs.value(fed, folds=2)


def test_the_command_says_what_partners_add(tmp_path):
    made = tables(rows=400)
    for name in ("bank", "shop", "clinic"):
        made[name].to_csv(tmp_path / f"{name}.csv", index=False)
    parties = "".join(
        f'[parties.{name}]\nfile = "{name}.csv"\nid = "id"\n' + ('label = "label"\n' if name == "bank" else "")
        for name in ("bank", "shop", "clinic")
    )
    (tmp_path / "job.toml").write_text(f'{parties}[method]\nname = "gini"\n')
    page = tmp_path / "value.html"
    done = CliRunner().invoke(app, ["value", str(tmp_path / "job.toml"), "--folds", "4", "-q", "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "shop adds 0." in done.stdout
    assert "clinic adds nothing that we can see" in done.stdout
    assert "Is the partner worth it?" in page.read_text()
