"""What holds for every model: classes come back as they went in, scores at the label holder, files, freed memory."""

from __future__ import annotations

import gc
import json
import weakref

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from doubles import Recording

import fedsift as fs
from fedsift.core.message import decode
from fedsift.crypto.additive import keys
from fedsift.crypto.additive import keys as additive
from fedsift.errors import DataError, FedsiftError, OperationRefused, ParameterError
from fedsift.models.base import FederatedModel, as_they_went_in
from fedsift.models.parts import SCORE_DIGITS, score_rows
from fedsift.models.predicted import Predicted

pytest.importorskip("torch", reason="the extra nn is not installed")


def boosted():
    return fs.SecureBoostClassifier(n_estimators=2, max_depth=2)


def network():
    return fs.SplitNN(epochs=3, embedding=4, batch_size=30)


MODELS = {
    "boost": (boosted, "vertical"),
    "network": (network, "vertical"),
    "open network": (lambda: network().set_params(protection="open"), "vertical"),
    "logistic": (lambda: fs.VerticalLogisticRegression(max_iter=6), "vertical"),
    "hyfdca": (lambda: fs.HyFDCA(rounds=60, tol=0.05), "vertical"),
    "hyfdca rows": (lambda: fs.HyFDCA(rounds=60, tol=0.05), "horizontal"),
    "linear": (lambda: fs.FedLinear(rounds=60, penalty=0.01), "horizontal"),
}


@pytest.fixture(params=MODELS)
def case(request):
    return MODELS[request.param]


def split(partition, y=None, rows=60, seed=0):
    X, codes = mixed_table(rows, seed)
    X = X.fillna(0.0) if partition == "horizontal" else X
    return fs.Federation.split(X, codes if y is None else y(codes), parties=["bank", "shop"], partition=partition)


def truth(fed):
    sites = fed._link.transport.sites
    holders = [fed.active] if fed.partition == "vertical" else fed.parties
    return np.concatenate([sites[name].table.label for name in holders])


KINDS = {
    "text": lambda y: pd.Series(np.where(y == 1, "yes", "no"), name="y"),
    "whole": lambda y: pd.Series(np.where(y == 1, 7, -3), name="y"),
    "flag": lambda y: pd.Series(y == 1, name="y"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_classes_come_back_as_they_went_in(case, kind):
    make, partition = case
    fed = split(partition, KINDS[kind])
    model = make().fit(fed)
    expected = truth(fed)
    predicted = model.predict(fed)
    assert set(predicted.tolist()) <= set(expected.tolist())
    assert sorted(model.classes_.tolist()) == sorted(set(expected.tolist()))
    assert model.predict_proba(fed).shape == (60, 2)
    np.testing.assert_allclose(model.predict_proba(fed).sum(axis=1), 1.0, atol=1e-5)
    assert model.score(fed) == pytest.approx(np.mean(predicted == expected), abs=0.51 * 10**-SCORE_DIGITS)
    with pytest.raises(ParameterError, match="takes no labels"):
        model.score(fed, y=np.zeros(3))


def test_another_federation_of_the_same_organisations_is_predicted(case):
    make, partition = case
    model = make().fit(split(partition))
    other = split(partition, rows=24, seed=5)
    assert model.predict(other).shape == (24,)
    assert model.decision_function(other).shape in ((24,), (24, 2))
    assert model.score(other) == pytest.approx(
        np.mean(model.predict(other) == truth(other)), abs=0.51 * 10**-SCORE_DIGITS
    )


def test_a_saved_model_predicts_the_same_elsewhere(case, tmp_path):
    make, partition = case
    model = make().fit(split(partition, KINDS["text"]))
    other = split(partition, KINDS["text"], rows=24, seed=5)
    expected = model.predict_proba(other)
    model.save(tmp_path)
    content = json.loads((tmp_path / "model.json").read_text())
    assert content["format"] == "fedsift-model"
    fresh = split(partition, KINDS["text"], rows=24, seed=5)
    loaded = type(model).load(tmp_path, fresh)
    # A network on shares predicts under fresh masks, whose fixed point ends somewhere.
    np.testing.assert_allclose(loaded.predict_proba(fresh), expected, atol=2e-3 if make is network else 1e-6)
    assert (loaded.predict(fresh) == model.predict(other)).all()
    assert loaded.get_params() == model.get_params()


def test_a_part_of_another_job_is_refused_by_name(case, tmp_path):
    """Every model's files name the job that trained it; the sites compare, and say which party has another one."""
    make, partition = case
    if make is MODELS["linear"][0]:
        pytest.skip("nothing lies with the parties")
    model = make().fit(split(partition))
    model.save(tmp_path)
    known = json.loads((tmp_path / "model.json").read_text())
    assert known["known"]["job_hash_"] == model.job_hash_
    fresh = split(partition)
    again = type(model).load(tmp_path, fresh)
    again.save(tmp_path / "again", fresh)
    kept = json.loads((tmp_path / "again" / "model.json").read_text())["known"]["job_hash_"]
    assert kept == model.job_hash_, "a copy is of the job that trained it"
    type(model).load(tmp_path / "again", split(partition))
    known["known"]["job_hash_"] = "0" * 64
    (tmp_path / "model.json").write_text(json.dumps(known))
    with pytest.raises(DataError, match=f"party '.*of the job {model.job_hash_[:16]}, and the model of the job 0000"):
        type(model).load(tmp_path, split(partition))


def test_a_damaged_or_foreign_file_is_refused(tmp_path):
    fed = split("vertical")
    model = fs.VerticalLogisticRegression(max_iter=1).fit(fed)
    model.save(tmp_path)
    with pytest.raises(DataError, match="HyFDCA"):
        fs.HyFDCA.load(tmp_path, split("vertical"))
    own = tmp_path / f"shop.{model.model_id_}.part"
    own.write_bytes((tmp_path / f"bank.{model.model_id_}.part").read_bytes())
    with pytest.raises(DataError, match="another party"):
        fs.VerticalLogisticRegression.load(tmp_path, split("vertical"))
    own.write_bytes(b"no message")
    with pytest.raises(DataError, match="not a model file"):
        fs.VerticalLogisticRegression.load(tmp_path, split("vertical"))
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(DataError, match="fit it again"):
        fs.VerticalLogisticRegression.load(tmp_path, split("vertical"))


def test_a_forgotten_model_is_gone_from_the_sites(case):
    make, partition = case
    fed = split(partition)
    model = make().fit(fed)
    if not isinstance(model, fs.FedLinear):
        model.forget()
        with pytest.raises(FedsiftError):
            model.predict(fed)
    sites = fed._link.transport.sites.values()
    assert not any(len(site.models) for site in sites)
    assert not any(model.model_id_ in name for site in sites for name in site.keys)


def test_a_model_that_nobody_holds_any_more_is_freed_at_the_sites():
    fed = split("vertical")
    for make in (boosted, network, lambda: fs.VerticalLogisticRegression(max_iter=1), lambda: fs.HyFDCA(tol=0.5)):
        before = {name: set(site.keys) for name, site in fed.simulated.items()}
        model = make().fit(fed)
        name = model.model_id_
        del model
        gc.collect()
        for site in fed.simulated.values():
            assert len(site.models) == 0
            assert not [key for key in set(site.keys) - before[site.name] if name in key]


@pytest.mark.parametrize("name", ["logistic", "hyfdca", "boost"])
def test_memory_does_not_grow_with_fits_on_new_federations(name):
    make, partition = MODELS[name]

    seen = []

    def fit():
        fed = split(partition, rows=40)
        seen.extend(weakref.ref(site) for site in fed.simulated.values())
        make().fit(fed)

    counts = []
    for _ in range(9):
        fit()
        gc.collect()
        counts.append(len(gc.get_objects()))
    # What a fit leaves behind it leaves each time; a cache that fills at some fit, or a thread that ends late, once.
    assert np.median(np.diff(counts[2:])) < 10
    assert not any(reference() for reference in seen)


def test_loaded_keys_are_bounded():
    key = additive.generate_key("ou")
    backend = key.public._key
    for number in range(40):
        additive.PublicKey("ou", 2048, number.to_bytes(4, "big"), backend)
    assert len(keys._keys) <= keys.MOST


def test_a_score_needs_predictions_that_the_label_holder_made_itself():
    fed = split("vertical")
    with fed.session() as run, pytest.raises(OperationRefused):
        run.ask(score_rows, to=run.active)
    model = fs.SecureBoostClassifier(n_estimators=2, max_depth=2).fit(fed)
    log = fed._link.transport = Recording(fed._link.transport)
    model.score(fed)
    asked = [decode(data) for _, to, data in log.log if to == fed.active]
    assert [each["arguments"] for each in asked if each["operation"] == "model.score"] == [{}]


def test_labels_are_compared_by_name_however_a_file_spells_them():
    assert Predicted(np.array([[1.0], [-1.0]])).chosen().tolist() == [1, 0]
    assert as_they_went_in(["0", "1"], {"i"}).dtype.kind == "i"
    assert as_they_went_in(["0.5", "1"], {"f", "i"}).tolist() == [0.5, 1.0]
    assert as_they_went_in(["0", "1"], {"i", "O"}).tolist() == ["0", "1"]


def test_numbers_are_predicted_and_scored():
    X, _ = mixed_table(60)
    amount = X["signal"] * 3 + 10
    fed = fs.Federation.split(X, amount, parties=2, task="regression")
    for model in (fs.SecureBoostRegressor(n_estimators=3, max_depth=2), fs.HyFDCA(), fs.SplitNN(epochs=20)):
        predicted = model.fit(fed).predict(fed)
        assert predicted.shape == (60,)
        r2 = 1 - ((amount - predicted) ** 2).sum() / ((amount - amount.mean()) ** 2).sum()
        assert model.score(fed) == pytest.approx(r2, abs=1e-4)
        assert model.task_ == "regression"
        with pytest.raises(FedsiftError, match="predict_proba"):
            model.predict_proba(fed)


def test_another_label_holder_or_a_missing_party_is_named():
    X, y = mixed_table(40)
    model = fs.VerticalLogisticRegression(max_iter=1).fit(fs.Federation.split(X, y, parties=["bank", "shop"]))
    with pytest.raises(DataError, match="'shop'"):
        model.predict(fs.Federation.split(X, y, parties=["bank", "lab"]))
    swapped = fs.Federation.split(X, y, parties=["bank", "shop"], label_party="shop")
    with pytest.raises(DataError, match="label holder"):
        model.predict(swapped)
    with pytest.raises(FedsiftError, match="Federation"):
        model.predict(X)


@pytest.mark.parametrize(
    "name", ["SecureBoostClassifier", "SplitNN", "VerticalLogisticRegression", "FedLinear", "HyFDCA"]
)
def test_every_model_stands_on_the_base(name):
    model = getattr(fs, name)
    assert issubclass(model, FederatedModel)
    assert model.operations
    assert model.__doc__


@pytest.mark.parametrize(
    "make", [fs.VerticalLogisticRegression, fs.HyFDCA, fs.FederatedLasso, fs.SecureBoostClassifier, fs.SplitNN]
)
def test_a_data_holder_that_runs_the_coordinator_is_refused_before_anything_is_sent(make):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 2
    fed = fs.Federation.split(X, y, parties=["bank", "shop"], coordinator="shop")
    with pytest.raises(ParameterError, match="holds no rows"):
        make().fit(fed)
    assert len(fed.ledger) == 0
