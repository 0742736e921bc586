"""Split networks: equal to the same network in one process, honest on the wire, saved without pickle."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table

import fedsift as fs
from fedsift.core.identity import private_generator
from fedsift.core.table import Table
from fedsift.errors import DataError, OperationRefused, ParameterError, ReplyError
from fedsift.models.splitnn.gates import Gates, importance_to_mu, shrink_columns
from fedsift.models.splitnn.halves import Halves
from fedsift.models.splitnn.inputs import InputEncoder
from fedsift.models.splitnn.model import SplitNN, load_part, register_model
from fedsift.models.splitnn.networks import build_model, derived_seed, weights_of
from fedsift.models.splitnn.settings import LABEL_PROTECTIONS, embeddings_of, protected
from fedsift.models.splitnn.training import top_round

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


def numbers(n=80, d=9, seed=0, task="classification"):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, d)), columns=[f"f{i}" for i in range(d)])
    signal = X["f0"] + X["f3"] * X["f6"]
    y = (signal > 0).astype(int) if task == "classification" else signal + 0.25
    return X, y


def small(**changes):
    options = {"embedding": 4, "bottom_options": {"hidden": [8]}, "top_options": {"hidden": [5]}, "batch_size": 20}
    return SplitNN(**{"protection": "open", "epochs": 5, "random_state": 3, **options, **changes})


def sites(fed):
    return fed._link.transport.sites


def own_seed(site, seed):
    """What ``secret_seed`` gives this site: the announced seed alone does not say it."""
    return int(private_generator(site.secret, site.table, "split network", seed).integers(2**53))


def one_process(X, y, fed, seed, epochs, batch, task):
    """The same network written as one module under one autograd graph: the oracle."""
    tables = {name: site.table for name, site in sites(fed).items()}
    inputs = [torch.from_numpy(InputEncoder.fit(t, t.columns).matrix(t)) for t in tables.values()]
    bottoms = [
        build_model("dense", x.shape[1], 4, {"hidden": [8]}, derived_seed(own_seed(site, seed), "bottom", name))
        for (name, site), x in zip(sites(fed).items(), inputs)
    ]
    outputs = 1 if task == "regression" else int(y.max()) + 1
    holder = next(site for site in sites(fed).values() if site.table.label is not None)
    top_seed = derived_seed(own_seed(holder, seed), "top")
    top = build_model("dense", 4 * len(bottoms), outputs, {"hidden": [5]}, top_seed)
    parameters = [p for module in [*bottoms, top] for p in module.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.003)
    if task == "regression":
        target = torch.tensor(((y - y.mean()) / y.to_numpy().std()).to_numpy(), dtype=torch.float32)[:, None]
        criterion = torch.nn.MSELoss()
    else:
        target, criterion = torch.tensor(y.to_numpy()), torch.nn.CrossEntropyLoss()
    losses, scores = [], []
    for epoch in range(epochs):
        order = np.random.default_rng(derived_seed(seed, "rows", epoch)).permutation(len(X))
        for start in range(0, len(X), batch):
            rows = torch.from_numpy(order[start : start + batch])
            out = top(torch.cat([b(x[rows]) for b, x in zip(bottoms, inputs)], dim=1))
            loss = criterion(out, target[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
            right = (out.argmax(dim=1) == target[rows]) if task == "classification" else 1 - loss.detach()
            scores.append(float(right.float().mean()))
    return np.array(losses), np.array(scores), bottoms


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("parties", [2, 3])
def test_split_training_drifts_from_the_same_network_in_one_process(task, parties):
    X, y = numbers(task=task)
    fed = fs.Federation.split(X, y, parties=parties)
    network = small()
    losses, scores, bottoms = one_process(X, y, fed, 3, 5, 20, task)
    network.fit(fed)
    per_epoch = losses.reshape(5, -1).mean(axis=1)
    np.testing.assert_allclose(network.loss_curve_, per_epoch, atol=1e-5)
    story = network.training_["score_by_bytes"]
    np.testing.assert_allclose(story["score"], scores.reshape(5, -1).mean(axis=1), atol=1e-5)
    assert len(losses) >= 20
    for (name, site), oracle in zip(sites(fed).items(), bottoms):
        kept = site.models.part(network.model_, Halves).bottom
        for key, value in weights_of(kept.module).items():
            np.testing.assert_allclose(value, weights_of(oracle)[key], atol=1e-5, err_msg=f"{name} {key}")


def test_a_party_whose_weights_never_change():
    X, y = numbers()
    fed = fs.Federation.split(X, y, parties=3)
    network = small(epochs=1).fit(fed)
    for name, site in sites(fed).items():
        kept = site.models.part(network.model_, Halves).bottom
        fresh = build_model(
            "dense", len(kept.owner), 4, {"hidden": [8]}, derived_seed(own_seed(site, 3), "bottom", name)
        )
        for key, value in weights_of(kept.module).items():
            assert not np.array_equal(value, weights_of(fresh)[key]), (name, key)


def test_it_learns_and_the_same_seed_gives_the_same_predictions():
    X, y = numbers(300)
    fed = fs.Federation.split(X, y, parties=2)
    train, test = fed.rows(train=0.7)
    first, second = small(epochs=40).fit(train), small(epochs=40).fit(train)
    np.testing.assert_array_equal(first.predict_proba(test), second.predict_proba(test))
    assert first.score(test) > 0.7
    np.testing.assert_allclose(first.predict_proba(test).sum(axis=1), 1, atol=1e-5)
    truth = sites(fed)["party1"].table.take(test.ask(positions, to="party1")).label
    assert first.score(test) == pytest.approx(np.mean(first.predict(test) == truth))


@fs.operation(
    "test_splitnn.positions", discloses="control", about="positions of a view, for this test", reply=np.ndarray
)
def positions(party):
    return party._rows


fs.register_plugin(__name__)


def test_regression_is_predicted_in_the_target_s_own_scale():
    X, y = numbers(200, task="regression")
    y = y * 50 + 1000
    fed = fs.Federation.split(X, y, parties=2)
    network = small(epochs=80, learning_rate=0.01).fit(fed)
    assert network.score(fed) > 0.6
    assert abs(network.predict(fed).mean() - y.mean()) < 0.2 * y.std()
    with pytest.raises(ParameterError, match="predict"):
        network.predict_proba(fed)


@pytest.mark.parametrize("classes", [2, 4])
def test_mixed_columns_missing_values_and_several_classes(classes):
    X, y = mixed_table(classes=classes)
    fed = fs.Federation.split(X, y.map(lambda v: f"class {v}"), parties=3)
    network = small(epochs=30, learning_rate=0.01).fit(fed)
    assert network.predict_proba(fed).shape == (60, classes)
    assert network.score(fed) > 1 / classes + 0.2


def test_unseen_categories_and_holes_after_training_give_finite_inputs():
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan], "c": ["x", "y", "x"], "k": [5.0, 5.0, 5.0]})
    encoder = InputEncoder.fit(Table.read(frame, id=None, name="t"), ["a", "c", "k"])
    new = pd.DataFrame({"a": [np.nan, 4.0], "c": ["z", None], "k": [np.nan, 7.0]})
    out = encoder.matrix(Table.read(new, id=None, name="t"))
    assert np.isfinite(out).all()
    assert out.shape[1] == len(encoder.owner) == 2 + 3 + 1
    np.testing.assert_array_equal(out[0, 2:5], [0, 0, 1])  # an unseen category has the place of the rare ones
    np.testing.assert_array_equal(out[1, 2:5], [0, 0, 0])
    assert InputEncoder.from_plain(encoder.to_plain()).columns == encoder.columns
    with pytest.raises(DataError, match="'c'"):
        encoder.matrix(Table.read(frame[["a", "k"]], id=None, name="t"))


def test_a_saved_network_predicts_differently_or_holds_pickle(tmp_path):
    X, y = mixed_table()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    network = small().fit(fed)
    before = network.predict_proba(fed)
    network.save(tmp_path)
    network.forget(fed)
    with pytest.raises(fs.FedsiftError):
        network.predict(fed)
    files = {name: tmp_path / f"{name}.{network.model_}.part" for name in fed.parties}
    for file in files.values():
        with np.load(file, allow_pickle=False) as archive:
            assert all(archive[key].dtype != object for key in archive.files)
    again = SplitNN.load(tmp_path, fed)
    np.testing.assert_allclose(again.predict_proba(fed), before, atol=1e-6)
    with pytest.raises(DataError, match="'bank'"):
        load_part(sites(fed)["shop"], files["bank"])
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="damaged"):
        load_part(sites(fed)["shop"], tmp_path / "bad.npz")


def test_a_module_of_the_user_s_own():
    def make(inputs, outputs, *, slope):
        return torch.nn.Sequential(torch.nn.Linear(inputs, 6), torch.nn.LeakyReLU(slope), torch.nn.Linear(6, outputs))

    register_model("leaky", make)
    X, y = numbers()
    fed = fs.Federation.split(X, y, parties=2)
    network = small(bottom="leaky", bottom_options={"slope": 0.2}).fit(fed)
    kept = sites(fed)["party2"].models.part(network.model_, Halves).bottom
    assert isinstance(kept.module[1], torch.nn.LeakyReLU)
    with pytest.raises(ParameterError, match="register_model"):
        small(bottom="unknown").fit(fed)


def test_a_label_holder_without_columns_and_a_party_with_one():
    X, y = numbers()
    tables = {"label": pd.DataFrame({"y": y}), "one": X[["f0"]], "rest": X.drop(columns="f0")}
    fed = fs.Federation.from_tables(tables, id=None, label=("label", "y"))
    network = small(epochs=3).fit(fed)
    assert set(network.widths_) == {"one", "rest"}
    assert network.predict(fed).shape == (80,)


@pytest.mark.parametrize("bad", ["text", None, np.zeros((20, 4))])
def test_what_is_no_embedding_is_blamed_on_its_sender_and_refused_by_the_label_holder(bad):
    X, y = numbers()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    with pytest.raises(ReplyError, match="'shop'"):
        embeddings_of({"shop": bad})
    with fed.session() as run:
        network = small()
        network.model_ = "m"
        network._start(run)
        with pytest.raises(OperationRefused, match="'embeddings'"):
            run.ask(top_round, to="bank", model="m", embeddings={"shop": bad}, epoch=0, start=0)


@pytest.mark.parametrize("bad", [np.full((20, 4), np.nan, np.float32), np.zeros((20, 3), np.float32)])
def test_a_wrong_embedding_is_used_or_blamed_on_nobody(bad):
    X, y = numbers()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    with fed.session() as run:
        network = small()
        network.model_ = "m"
        network._start(run)
        with pytest.raises(ReplyError, match="'shop'"):
            run.ask(top_round, to="bank", model="m", embeddings={"shop": bad}, epoch=0, start=0)


def test_bytes_are_those_of_the_embeddings_and_little_more():
    X, y = numbers()
    fed = fs.Federation.split(X, y, parties=3)
    network = small(epochs=2).fit(fed)
    frame = network.ledger_.frame()
    up = frame[(frame.operation == "network.bottom_round") & (frame.sender != "coordinator")]
    floats = 2 * 80 * 4 * 2 * 4  # epochs x rows x width x passive parties x bytes
    assert floats <= up.bytes.sum() <= floats + 60 * len(up)
    assert set(up.form) == {"plain"}  # embeddings can be inverted: never called anything better


@pytest.mark.parametrize("how", [p for p in LABEL_PROTECTIONS if p])
def test_label_protection_leaves_norms_that_tell_the_label(how):
    rng = np.random.default_rng(0)
    direction = rng.normal(size=8)
    rare = np.arange(400) < 40
    gradient = (np.where(rare, 0.9, -0.1)[:, None] * direction).astype(np.float32)
    blurred = protected(gradient, how, 8.0)
    norms = np.linalg.norm(blurred, axis=1)
    order = np.argsort(-norms)[:40]
    assert rare[order].mean() < 0.7  # unprotected: 1.0
    assert blurred.dtype == np.float32


def test_protected_training_still_learns():
    X, y = numbers(300)
    fed = fs.Federation.split(X, y, parties=2)
    assert small(epochs=40, label_protection="max_norm").fit(fed).score(fed) > 0.7


def test_early_stop_when_the_loss_is_flat():
    X, y = numbers()
    fed = fs.Federation.split(X, y, parties=2)
    assert len(small(epochs=50, learning_rate=1e-9, patience=3).fit(fed).loss_curve_) < 10


@pytest.mark.parametrize(
    ("change", "word"),
    [({"epochs": 0}, "epochs"), ({"embedding": 0}, "embedding"), ({"label_protection": "x"}, "label_protection"),
     ({"embedding": {"party1": 3}}, "party2")],
)  # fmt: skip
def test_wrong_parameters_are_named_before_anything_is_sent(change, word):
    X, y = numbers()
    fed = fs.Federation.split(X, y, parties=2)
    sent = len(fed.ledger)
    with pytest.raises(ParameterError, match=word):
        small(**change).fit(fed)
    assert len(fed.ledger) == sent


def test_gate_gradients_equal_finite_differences():
    gates = Gates(np.array([-0.4, 0.1, 0.5, 0.9, 1.6]), 0.5, 0.3, seed=1)
    weights = torch.arange(1.0, 6.0)

    def value(mu):
        gates.mu.data = torch.tensor(mu, dtype=torch.float32)
        gates._generator.manual_seed(7)
        return (gates.sample(3) * weights).sum() + gates.penalty()

    mu = np.array([-0.4, 0.1, 0.5, 0.9, 1.6])
    value(mu).backward()
    analytic = gates.mu.grad.numpy().copy()
    for i in range(5):
        step = np.zeros(5)
        step[i] = 1e-3
        numeric = float((value(mu + step) - value(mu - step)).detach()) / 2e-3
        assert analytic[i] == pytest.approx(numeric, abs=2e-2)


def test_proximal_step_equals_its_closed_form():
    rng = np.random.default_rng(0)
    weight = torch.tensor(rng.normal(size=(6, 5)), dtype=torch.float32)
    owner = torch.tensor([0, 1, 1, 2, 3])  # a category of two inputs shares one group
    before = weight.numpy().copy()
    amount = 2.2
    shrink_columns(weight, owner, 4, amount)
    for group in range(4):
        block = before[:, owner.numpy() == group]
        norm = np.linalg.norm(block)
        expected = block * (1 - amount / norm) if norm > amount else np.zeros_like(block)
        np.testing.assert_allclose(weight.numpy()[:, owner.numpy() == group], expected, atol=1e-6)
    assert (weight.numpy()[:, 1:3] != 0).any()


def test_importance_keeps_the_order_of_purity_and_its_range():
    mu = importance_to_mu(np.array([0.5, 0.3, 0.45]), 0.3, 0.7, best=0.3, worst=0.5)
    assert mu[1] == pytest.approx(0.7)
    assert mu[0] == pytest.approx(0.3)
    assert 0.3 < mu[2] < 0.7
    np.testing.assert_allclose(importance_to_mu(np.array([0.5, 0.5]), 0.3, 0.7, 0.5, 0.5), 0.5)


def test_importing_fedsift_drags_torch_in():
    code = "import fedsift, fedsift.models.splitnn.model, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_first_weights_hang_on_the_secret_of_the_site_and_not_on_the_announced_seed():
    X, y = numbers()
    table = fs.Federation.split(X, y, parties=2)
    kept = []
    for secret in (b"1" * 32, b"1" * 32, b"2" * 32):
        for site in sites(table).values():
            site._secret = secret
        network = small(epochs=1, learning_rate=1e-12).fit(table)
        kept.append(
            [
                {key: value.copy() for key, value in weights_of(half.module).items()}
                for halves in (site.models.part(network.model_, Halves) for site in sites(table).values())
                for half in (halves.bottom, halves.top)
                if half is not None
            ]
        )
    assert len(kept[0]) == 3  # two parties' halves and the label holder's top
    for first, again, other in zip(*kept):
        for key, value in first.items():
            np.testing.assert_array_equal(value, again[key])
            assert "weight" not in key or not np.allclose(value, other[key]), key
