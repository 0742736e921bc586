"""From a job to a kept model to predictions of new rows by id: in the caller's order, without labels."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import precision_score, recall_score, roc_curve
from typer.testing import CliRunner

import fedsift as fs
from fedsift.cli.main import app
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import DataError, JobError, ParameterError, PolicyRefused
from fedsift.jobs import training
from fedsift.jobs.card import read_card
from fedsift.jobs.job_file import load_job
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite

MODELS = {
    "boost": 'name = "boost"\nn_estimators = 3\nmax_depth = 3\n',
    "linear": 'name = "linear"\nmax_iter = 6\n',
    "network": 'name = "network"\nepochs = 2\n',
}


def tables(rows, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, 4))
    ids = [f"person {seed}-{i:04d}" for i in generator.permutation(rows)]
    label = np.where(X[:, 0] + X[:, 2] > 0, "yes", "no")
    bank = pd.DataFrame({"id": ids, "a": X[:, 0], "b": X[:, 1], "default": label})
    shop = pd.DataFrame({"id": ids, "c": X[:, 2], "town": np.where(X[:, 3] > 0, "north", "south")})
    return bank, shop.sample(frac=1, random_state=seed)


def job_file(folder, model="boost"):
    bank, shop = tables(300)
    bank.to_csv(folder / "bank.csv", index=False)
    shop.to_csv(folder / "shop.csv", index=False)
    file = folder / "job.toml"
    file.write_text(
        '[parties.bank]\nfile = "bank.csv"\nid = "id"\nlabel = "default"\n'
        '[parties.shop]\nfile = "shop.csv"\nid = "id"\n'
        f'[method]\nname = "all"\n[model]\n{MODELS[model]}'
    )
    return file


@pytest.fixture(scope="module", params=MODELS)
def kept(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    trained = training.train(load_job(job_file(folder, request.param)))
    return trained, training.write_model(trained, folder / "model")


@pytest.fixture(scope="module")
def boosted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boosted")
    return training.write_model(training.train(load_job(job_file(folder))), folder / "model")


@pytest.fixture
def new(tmp_path):
    bank, shop = tables(60, seed=1)
    bank.to_csv(tmp_path / "truth.csv", index=False)
    bank.drop(columns="default").to_csv(tmp_path / "bank.csv", index=False)
    shop.to_csv(tmp_path / "shop.csv", index=False)
    return {"bank": tmp_path / "bank.csv", "shop": tmp_path / "shop.csv"}


def test_new_rows_without_labels_are_predicted_by_id_in_the_order_of_the_label_holders_file(kept, new):
    _, folder = kept
    truth = pd.read_csv(new["bank"].with_name("truth.csv"))
    found = training.predict(folder, new)
    assert list(found) == truth["id"].tolist()
    right = np.mean([(p > 0.5) == (label == "yes") for p, label in zip(found.values(), truth["default"])])
    assert right > 0.75, "the probability of an id is that person's"


@pytest.mark.parametrize("model", MODELS)
def test_a_party_of_which_no_column_was_chosen_still_says_which_rows_it_shares(model, new, tmp_path):
    """The demo's own model could not predict: one of its parties keeps no column."""
    (tmp_path / "job").mkdir()
    file = job_file(tmp_path / "job", model)
    file.write_text(file.read_text().replace('name = "all"', 'name = "information_value"\nn_features = 1'))
    trained = training.train(load_job(file))
    kept = {name: facts.columns for name, facts in trained.card.data.items()}
    assert sorted(map(len, kept.values())) == [0, 1]
    found = training.predict(training.write_model(trained, tmp_path / "model"), new)
    truth = pd.read_csv(new["bank"].with_name("truth.csv"))
    assert list(found) == truth["id"].tolist()
    assert np.mean([(p > 0.5) == (label == "yes") for p, label in zip(found.values(), truth["default"])]) > 0.6


def test_one_row_is_predicted_as_in_the_batch(kept, new, tmp_path):
    _, folder = kept
    whole = training.predict(folder, new)
    one = pd.read_csv(new["bank"]).iloc[[17]]
    one.to_csv(tmp_path / "one.csv", index=False)
    found = training.predict(folder, {**new, "bank": tmp_path / "one.csv"})
    assert list(found) == [one["id"].iloc[0]]
    assert found[one["id"].iloc[0]] == pytest.approx(whole[one["id"].iloc[0]], abs=5e-3)  # a network is exact to 1e-3


def test_the_card_says_what_a_reader_must_know(kept):
    trained, folder = kept
    card = json.loads((folder / "card.json").read_text())
    assert card["job_hash"] == trained.model.job_hash_
    assert len(card["job_hash"]) == 64
    assert card["metrics"]["auc"] > 0.7
    assert set(card["data"]) == {"bank", "shop"}
    assert any("pooled nothing" in note for note in card["notes"])
    text = (folder / "card.md").read_text()
    for words in ("Data", "How it was made", "How good", "Who can read what", "What was inferred", "What was sent"):
        assert f"## {words}" in text
    read = card["exposure"]["read"]
    assert {"reader": "bank", "of": ["shop"], "about": "one person"} in [
        {key: line[key] for key in ("reader", "of", "about")} for line in read
    ], "who is a client of both"
    assert all(len(line["of"]) == len(set(line["of"])) for line in read)
    assert json.loads((folder / "model.json").read_text())["known"]["job_hash_"] == card["job_hash"]
    text = "".join(path.read_text(errors="replace") for path in folder.iterdir())
    assert "person 0-" not in text, "no row is in the model folder"


def test_a_party_that_left_and_a_missing_column_are_named(boosted, new, tmp_path):
    with pytest.raises(DataError, match="'shop', which has left"):
        training.predict(boosted, {"bank": new["bank"]})
    with pytest.raises(ParameterError, match=r"no party 'shopp'.*shop"):
        training.predict(boosted, {**new, "shopp": new["shop"]})
    pd.read_csv(new["shop"]).drop(columns="c").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(DataError, match=r"table 'shop' \(less.csv\): column 'c' is not there"):
        training.predict(boosted, {**new, "shop": tmp_path / "less.csv"})


def test_a_column_that_changed_its_kind_is_named(boosted, new, tmp_path):
    pd.read_csv(new["shop"]).assign(c="text").to_csv(tmp_path / "text.csv", index=False)
    with pytest.raises(DataError, match=r"party 'shop'.*'c' is text"):
        training.predict(boosted, {**new, "shop": tmp_path / "text.csv"})


def test_a_category_that_training_did_not_have_is_predicted_all_the_same(kept, new, tmp_path):
    _, folder = kept
    pd.read_csv(new["shop"]).assign(town="west").to_csv(tmp_path / "west.csv", index=False)
    found = training.predict(folder, {**new, "shop": tmp_path / "west.csv"})
    assert len(found) == 60
    assert all(0 <= p <= 1 for p in found.values())


def test_labels_from_outside_are_refused_and_predictions_by_id_meet_them():
    bank, shop = tables(200)
    fed = fs.Federation.from_tables({"bank": bank, "shop": shop}, id="id", label=("bank", "default"))
    model = fs.VerticalLogisticRegression().fit(fed)
    with pytest.raises(ParameterError, match="takes no labels"):
        model.score(fed, bank["default"])
    found = model.predict_by_id(fed)
    right = np.mean([(found[who] > 0.5) == (label == "yes") for who, label in zip(bank["id"], bank["default"])])
    assert right == pytest.approx(model.score(fed))


def test_more_than_two_classes_and_numbers_by_id():
    bank, shop = tables(150)
    bank["default"] = np.where(bank["a"] > 0.5, "high", np.where(bank["a"] < -0.5, "low", "middle"))
    fed = fs.Federation.from_tables({"bank": bank, "shop": shop}, id="id", label=("bank", "default"))
    found = fs.VerticalLogisticRegression(max_iter=4).fit(fed).predict_by_id(fed)
    first = next(iter(found.values()))
    assert set(first) == {"high", "low", "middle"}
    assert sum(first.values()) == pytest.approx(1)
    bank["default"] = 3.0 * bank["a"] + 100
    fed = fs.Federation.from_tables({"bank": bank, "shop": shop}, id="id", label=("bank", "default"))
    numbers = fs.SecureBoostRegressor(n_estimators=5, max_depth=2).fit(fed).predict_by_id(fed)
    assert np.corrcoef([numbers[who] for who in bank["id"]], bank["default"])[0, 1] > 0.9


def test_under_a_default_policy_predictions_stay_with_the_label_holder(tmp_path):
    bank, shop = tables(120)
    bank, shop = bank.sort_values("id"), shop.sort_values("id")
    sites = {
        "bank": PolicySite("bank", Table.read(bank, id="id", label="default", name="bank"), Policy()),
        "shop": PolicySite("shop", Table.read(shop, id="id", name="shop"), Policy()),
    }
    fed = fs.Federation(InProcess(sites), list(sites), active="bank")
    model = fs.VerticalLogisticRegression(max_iter=4).fit(fed)
    with pytest.raises(PolicyRefused, match="plain"):
        model.predict_by_id(fed)
    sites["bank"].models.folder = tmp_path
    assert model.predict_by_id(fed, to="label holder") == {}
    (file,) = tmp_path.iterdir()
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [row["id"] for row in rows] == bank["id"].tolist()
    assert np.mean([(float(row["yes"]) > 0.5) == (y == "yes") for row, y in zip(rows, bank["default"])]) > 0.8


def test_calibration_lift_thresholds_and_fairness_are_of_the_label_holders_rows():
    bank, shop = tables(400)
    bank["sex"] = np.where(np.arange(400) % 2, "f", "m")
    fed = fs.Federation.from_tables({"bank": bank, "shop": shop}, id="id", label=("bank", "default"))
    model = fs.VerticalLogisticRegression().fit(fed)
    found, chances = model.performance(fed, groups=5), model.predict_by_id(fed)
    order = sorted(chances, key=chances.get)
    truth = dict(zip(bank["id"], bank["default"] == "yes"))
    for k in range(5):
        members = order[80 * k : 80 * (k + 1)]
        assert found["rate"][k] == pytest.approx(np.mean([truth[who] for who in members]), abs=0.0051)
        assert found["chance"][k] == pytest.approx(np.mean([chances[who] for who in members]), abs=0.0051)
    assert found["reached"][0] == pytest.approx(1)
    assert found["lift"].iloc[-1] > 1.5 > 0.5 > found["lift"].iloc[0]
    fair = model.performance(fed, by="sex").set_index("sex")
    assert fair.loc["f", "rate"] == pytest.approx((bank["default"][bank["sex"] == "f"] == "yes").mean(), abs=0.0051)
    with pytest.raises(DataError, match="no column 'town'"):
        model.performance(fed, by="town")


def test_groups_have_as_many_rows_as_the_site_says():
    """Ten, whatever a site's ``min_cell`` said: a model is no method that has such a parameter."""
    bank, shop = tables(400)
    bank["town"] = np.where(np.arange(400) < 30, "small", "large")
    fed = fs.Federation.from_tables({"bank": bank, "shop": shop}, id="id", label=("bank", "default"))
    model = fs.VerticalLogisticRegression().fit(fed)
    assert set(model.performance(fed, by="town")["town"]) == {"small", "large"}
    fed.simulated["bank"].min_cell = 40  # as a site with a policy has it from there
    assert set(model.performance(fed, by="town")["town"]) == {"large"}
    assert len(model.performance(fed, groups=20)) == 10


def test_calibration_roc_lift_thresholds_and_fairness_are_those_of_scikit_learn():
    """Two digits a figure are told; what follows of sums of them is off by a little more."""
    bank, shop = tables(600, seed=7)
    bank["sex"] = np.where(np.random.default_rng(0).random(600) < 0.4, "f", "m")
    fed = fs.Federation.from_tables({"bank": bank, "shop": shop}, id="id", label=("bank", "default"))
    model = fs.VerticalLogisticRegression().fit(fed)
    told = model.predict_by_id(fed)
    chance, truth = np.array([told[who] for who in bank["id"]]), (bank["default"] == "yes").to_numpy()
    found = model.performance(fed)
    rate, mean = calibration_curve(truth, chance, n_bins=10, strategy="quantile")
    np.testing.assert_allclose(found["rate"], rate, atol=0.0051)
    np.testing.assert_allclose(found["chance"], mean, atol=0.0051)
    np.testing.assert_allclose(found["lift"], rate / truth.mean(), atol=0.03)
    cuts = [np.sort(chance)[60 * k] for k in range(10)]
    away, hit, _ = roc_curve(truth, chance, drop_intermediate=False)
    for line, cut in zip(found.itertuples(), cuts):
        act = chance >= cut
        assert line.precision == pytest.approx(precision_score(truth, act), abs=0.01)
        assert line.reached == pytest.approx(recall_score(truth, act), abs=0.02)
        assert line.false_alarms == pytest.approx(1 - recall_score(~truth, ~act), abs=0.02)
        assert min(np.hypot(away - line.false_alarms, hit - line.reached)) < 0.02, "a point of the ROC curve"
    picked = chance >= np.sort(chance)[-truth.sum()]
    fair = model.performance(fed, by="sex").set_index("sex")
    for group in ("f", "m"):
        inside, line = (bank["sex"] == group).to_numpy(), fair.loc[group]
        assert line["picked"] == pytest.approx(picked[inside].mean(), abs=0.0051)
        assert line["hits"] == pytest.approx(recall_score(truth[inside], picked[inside]), abs=0.0051)
        assert line["alarms"] == pytest.approx(1 - recall_score(~truth[inside], ~picked[inside]), abs=0.0051)


def test_the_commands_train_and_predict(tmp_path, new):
    (tmp_path / "job").mkdir()
    file = job_file(tmp_path / "job")
    done = CliRunner().invoke(app, ["train", str(file), "-q", "--set", "model.n_estimators=2"])
    assert done.exit_code == 0, done.output
    assert "SecureBoostClassifier over 2 parties" in done.stdout
    model = tmp_path / "job" / "job-model"
    again = CliRunner().invoke(app, ["predict", str(model), *(f"{n}={path}" for n, path in new.items()), "-q"])
    assert again.exit_code == 0, again.output
    assert again.stdout.splitlines()[0] == "id,yes"
    assert len(again.stdout.splitlines()) == 61
    wrong = CliRunner().invoke(app, ["predict", str(model), "bank", "-q"])
    assert wrong.exit_code == 2
    assert "PARTY=FILE" in wrong.stderr


def test_a_folder_of_somebody_elses_files_is_not_written_into(tmp_path, boosted):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ParameterError, match="no model folder"):
        training.check_model_folder(tmp_path)
    training.check_model_folder(boosted)
    with pytest.raises(DataError, match="no model folder"):
        read_card(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"), [("model.name=tree", "model.name"), ("model.n_estimator=2", "'n_estimator'.*n_estimators")]
)
def test_a_wrong_model_section_is_named(tmp_path, change, message):
    with pytest.raises((JobError, ParameterError), match=message):
        training.train(load_job(job_file(tmp_path), [change]))
