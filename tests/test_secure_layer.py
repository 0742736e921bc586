"""The protected interactive layer in its three forms: equal to plain training, and nothing readable on the wire."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.core.message import decode, walk
from fedsift.errors import CiphertextError, DataError, OperationRefused, OverflowGuard, ParameterError, ReplyError
from fedsift.models.splitnn.layers import ciphertext as secure_layer
from fedsift.models.splitnn.layers import lattice as lattice_layer
from fedsift.models.splitnn.layers import shared as shared_layer
from fedsift.models.splitnn.layers.choice import run_class
from fedsift.models.splitnn.layers.ciphertext import SecureRun, encrypt_embedding, update_weights, weigh
from fedsift.models.splitnn.layers.lattice import LatticeRun, encrypt_lattice, weigh_lattice
from fedsift.models.splitnn.layers.shared import SharedRun, hide_embedding, hide_weights, shared_step
from fedsift.models.splitnn.model import SplitNN, save_part
from fedsift.models.splitnn.training import SplitRun
from fedsift.mpc import fixed_point as ring
from fedsift.select.fedsdg.gate_training import read_gates

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

GATES = {"sigma": 0.5, "price": 0.01, "embedding": True, "init": "half", "rate": 0.01}
FORMS = [SharedRun, LatticeRun, SecureRun]
MODULES = {SharedRun: shared_layer, LatticeRun: lattice_layer, SecureRun: secure_layer}


def data(n=24, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, d)), columns=[f"f{i}" for i in range(d)])
    return X, (X["f0"] + X["f4"] > 0).astype(int)


def two_parties():
    X, y = data()
    return fs.Federation.split(X, y, parties=["bank", "shop"])


def settings(batch=10, prices=None):
    stack = {} if prices is None else {"copies": len(prices)}
    common = {"seed": 5, "batch_size": batch, "rate": 0.01, "model": "dense" if prices is None else "stacked dense"}
    gates = GATES if prices is None else {**GATES, "price": prices}
    bottom = {**common, "options": {"hidden": [5], **stack}, "gates": gates}
    return bottom, {**common, "options": {"hidden": [3], **stack}}


def train(cls, fed, epochs=1, prices=None):
    bottom, top = settings(prices=prices)
    if cls is SplitRun:
        top = {**top, "interactive": 2.0**-ring.STEP_BITS}
    with fed.session() as run:
        split = cls.start(run, "m", 4, bottom, top)
        split.train(epochs)
        gates = run.ask(read_gates, to=list(split.widths), model="m")
    return split.loss_curve, gates


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("holder_has_columns", [True, False])
def test_secure_training_drifts_from_plain_training(form, holder_has_columns):
    X, y = data()
    if holder_has_columns:
        tables = {"a": X[["f0", "f1"]].assign(y=y), "b": X[["f2", "f3"]], "c": X[["f4", "f5"]]}
    else:
        tables = {"a": pd.DataFrame({"y": y}), "b": X[["f0", "f1", "f2"]], "c": X[["f3", "f4", "f5"]]}
    fed = fs.Federation.from_tables(tables, id=None, label=("a", "y"))
    losses, gates = train(form, fed, epochs=2)
    plain_losses, plain_gates = train(SplitRun, fed, epochs=2)
    np.testing.assert_allclose(losses, plain_losses, atol=1e-3)
    for name in gates:
        for kind in ("columns", "components"):
            np.testing.assert_allclose(gates[name][kind], plain_gates[name][kind], atol=1e-3)
            assert not np.allclose(gates[name][kind], 0.5, atol=1e-3)  # they moved at all


@pytest.mark.parametrize("form", [SplitRun, SharedRun])
def test_networks_side_by_side_disturb_each_other(form):
    fed = two_parties()
    _, together = train(form, fed, epochs=2, prices=[0.01, 0.3])
    _, alone = train(form, fed, epochs=2)
    for name in alone:
        np.testing.assert_allclose(together[name]["columns"][0], alone[name]["columns"], atol=1e-5)
        assert (together[name]["columns"][1] < together[name]["columns"][0]).all()


class Wire:
    """Every byte that a transport carried."""

    def __init__(self, fed):
        self.messages = []
        transport = fed._link.transport
        exchange = transport.exchange

        def listen(requests, timeout):
            replies = exchange(requests, timeout)
            self.messages += [*requests.values(), *(d.data for d in replies.values())]
            return replies

        transport.exchange = listen


@pytest.mark.parametrize("form", FORMS)
def test_no_embedding_or_activation_is_readable_on_the_wire(monkeypatch, form):
    fed, module = two_parties(), MODULES[form]
    wire = Wire(fed)
    seen = {"embeddings": [], "totals": [], "deltas": []}
    forward, step = module.bottom_of, module.top_step

    def spy_step(party, top, total, own, rows):
        loss, delta = step(party, top, total, own, rows)
        seen["totals"].append(total.copy())
        seen["deltas"].append(delta.copy())
        return loss, delta

    def spy_bottom(party, model):
        bottom = forward(party, model)
        if bottom.pending is not None:
            seen["embeddings"].append(bottom.pending.detach().numpy().copy())
        return bottom

    monkeypatch.setattr(module, "top_step", spy_step)
    monkeypatch.setattr(module, "bottom_of", spy_bottom)
    train(form, fed)
    sent = b"".join(wire.messages)
    assert len(sent) > 10_000
    for what, arrays in seen.items():
        assert arrays, what
        values = np.concatenate([a.ravel() for a in arrays])
        every = 1 if form is SharedRun else 7  # megabytes of ciphertext are searched for each
        for pair in list(itertools.pairwise(values))[::every]:  # four bytes alone would be found by chance
            assert np.float32(pair).tobytes() not in sent or 0 in pair
            assert np.float64(pair[0]).tobytes() not in sent or pair[0] == 0
            for exponent in (12, 20, 22, 34, 42, 48, 50, 56, 60):
                fixed = int(np.rint(pair[0] * 2.0**exponent))
                if abs(fixed) > 1 << 40 and fixed % (1 << 20):  # shorter ones would be found by chance
                    for bits in (44, 58, 64):
                        assert (fixed & ((1 << bits) - 1)).to_bytes(8, "little") not in sent


def masked_numbers(wire):
    """The 64-bit numbers of all messages of shared training, by message."""
    for data in wire.messages:
        arrays = [leaf for leaf in walk(decode(data)) if isinstance(leaf, np.ndarray) and leaf.dtype == np.uint64]
        if arrays:
            yield np.concatenate([a.ravel() for a in arrays])


def test_shares_under_masks_are_not_uniform_or_come_twice():
    """The coordinator sees every message: none may tell two runs on the same data from random numbers."""
    runs = []
    for _ in range(2):
        fed = two_parties()
        wire = Wire(fed)
        train(SharedRun, fed, epochs=2)
        runs.append(list(masked_numbers(wire)))
    assert len(runs[0]) == len(runs[1]) > 20
    for first, second in zip(*runs):
        assert not np.intersect1d(first, second).size
    numbers = np.concatenate(runs[0])
    assert len(numbers) > 1000
    for bit in range(64):  # each bit is one half of the time
        share = np.mean((numbers >> np.uint64(bit)) & np.uint64(1))
        assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(len(numbers))


@pytest.mark.parametrize("form", FORMS)
def test_the_ledger_calls_everything_but_gates_ciphertext_or_masked(form):
    fed = two_parties()
    mark = len(fed.ledger)
    train(form, fed)
    frame = fed.ledger.since(mark).frame()
    assert set(frame.form) <= {"control", "ciphertext", "masked", "aggregate"}
    assert set(frame[frame.form == "aggregate"].operation) == {"fedsdg.read_gates"}
    if form is SharedRun:
        assert frame[frame.operation == "network_shares.hide_embedding"].form.eq("masked").all()
    else:
        assert frame[frame.form == "ciphertext"].ciphertexts.sum() > 0


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_seen_by_either_side(form):
    """w~ and eps are each uniform; only together they are the weights."""
    fed = two_parties()
    bottom, top = settings()
    with fed.session() as run:
        split = form.start(run, "m", 4, bottom, top)
        split.train(1)
        sites = fed._link.transport.sites
        holder = next(iter(sites["bank"].sessions.values()))["m/share"]["shop"]
        party = next(iter(sites["shop"].sessions.values()))["m/share"]
    holder, party = (getattr(side, "share", side) for side in (holder, party))
    exponent = shared_layer.WEIGHT_EXPONENT if form is SharedRun else ring.WEIGHT_EXPONENT
    decoded = shared_layer.from_ring if form is SharedRun else ring.from_ring
    for share in (holder, party):
        assert np.abs(decoded(share, exponent)).max() > 1e4
    weights = decoded((holder - party) & np.uint64(2**64 - 1 if form is SharedRun else ring.RING), exponent)
    assert np.abs(weights).max() < 3


@pytest.mark.parametrize("damage", ["rows", "count", "missing"])
def test_a_party_that_lies_about_its_ciphertexts_is_believed(damage):
    fed = two_parties()
    bottom, top = settings()
    with fed.session() as run:
        SecureRun.start(run, "m", 4, bottom, top)
        reply = run.ask(encrypt_embedding, to=["shop"], model="m", epoch=0, start=0)
        if damage == "rows":
            reply["shop"]["rows"] = 5
        elif damage == "count":
            reply["shop"]["by_component"] = reply["shop"]["by_component"].take([0])
        else:
            reply = {}
        with pytest.raises(ReplyError, match="'shop'"):
            run.ask(weigh, to="bank", model="m", embeddings=reply, epoch=0, start=0)
        with pytest.raises(ReplyError, match="'shop'"):
            run.ask(update_weights, to="bank", model="m", replies={})


@pytest.mark.parametrize("damage", ["missing", "field", "kind"])
def test_a_party_that_lies_about_its_lattice_ciphertexts_is_believed(damage):
    fed = two_parties()
    with fed.session() as run:
        split = LatticeRun.start(run, "m", 4, *settings())
        split._meet(run)
        reply = run.ask(encrypt_lattice, to=["shop"], model="m", outputs=3, epoch=0, start=0)
        if damage == "missing":
            reply = {}
        elif damage == "field":
            del reply["shop"]["back"]
        else:
            reply["shop"]["forward"] = reply["shop"]["weights"]  # under the other key
        with pytest.raises((ReplyError, CiphertextError)):
            run.ask(weigh_lattice, to="bank", model="m", replies=reply)


def test_a_mask_is_used_twice():
    fed = two_parties()
    with fed.session() as run:
        split = SharedRun.start(run, "m", 4, *settings())
        split.train(1)
        asked = {"model": "m", "holder": "bank", "epoch": 3, "start": 0}
        with pytest.raises(OperationRefused, match="mask"):
            run.ask(hide_embedding, to=["shop"], step=1, **asked)
        with pytest.raises(OperationRefused, match="mask"):
            run.ask(hide_weights, to="bank", model="m", step=2)


def test_a_lie_about_the_shape_of_a_masked_embedding_is_believed():
    fed = two_parties()
    with fed.session() as run:
        split = SharedRun.start(run, "m", 4, *settings())
        split._meet(run)
        weights = run.ask(hide_weights, to="bank", model="m", step=1)
        reply = run.ask(hide_embedding, to=["shop"], model="m", holder="bank", step=1, epoch=0, start=0)
        reply["shop"]["hidden"] = reply["shop"]["hidden"][:, :3]
        with pytest.raises(ReplyError, match="'shop'"):
            split._sums(reply, weights)


def test_an_embedding_beyond_the_ring_wraps_silently():
    with pytest.raises(OverflowGuard, match="diverged"):
        shared_layer.to_ring(np.array([5000.0]), shared_layer.EMBEDDING_EXPONENT)
    with pytest.raises(OverflowGuard):
        shared_layer.to_ring(np.array([np.nan]), shared_layer.EMBEDDING_EXPONENT)


def network(secure, **more):
    return SplitNN(
        secure=secure, epochs=3, embedding=4, batch_size=12, bottom_options={"hidden": [6]},
        top_options={"hidden": [5]}, **more,
    )  # fmt: skip


def test_the_forms_predict_differently_or_show_predictions_to_score():
    fed = two_parties()
    fitted = {form: network(form).fit(fed) for form in ("shares", "lattice", "additive")}
    expected = fitted["shares"].predict_proba(fed)
    for form, fit in fitted.items():
        np.testing.assert_allclose(fit.predict_proba(fed), expected, atol=2e-3)
        np.testing.assert_allclose(fit.loss_curve_, fitted["shares"].loss_curve_, atol=1e-3)
        mark = len(fed.ledger)
        assert fit.score(fed) == pytest.approx(np.mean(fit.predict(fed) == data()[1].to_numpy()))
        operations = fed.ledger.since(mark).frame().query("operation.str.contains('score|hold')")
        assert not operations.empty, form
        assert "plain" not in set(operations.form), form


def test_a_secure_network_is_lost_between_save_and_load(tmp_path):
    fed = two_parties()
    fitted = network("shares").fit(fed)
    before = fitted.predict_proba(fed)
    fitted.save(tmp_path)
    sites = fed._link.transport.sites
    fitted.forget(fed)
    np.testing.assert_allclose(SplitNN.load(tmp_path, fed).predict_proba(fed), before, atol=1e-5)
    other = network("additive").fit(fed)
    with pytest.raises(DataError, match="additive"):
        save_part(sites["shop"], other.model_, tmp_path / "x.npz")


def test_an_unknown_form_or_a_protection_that_would_not_act_is_accepted():
    fed = two_parties()
    for wrong in ("ckks!", 2, None):
        with pytest.raises(ParameterError, match="secure"):
            run_class(wrong)
    with pytest.raises(ParameterError, match="label_protection"):
        network(True, label_protection="noise").fit(fed)


def test_one_party_alone_needs_no_layer():
    X, y = data()
    tables = {"a": X.assign(y=y), "b": pd.DataFrame({"z": np.zeros(len(X))})}
    fed = fs.Federation.from_tables(tables, id=None, label=("a", "y"))
    only = fed.view(columns={"a": [0, 1, 4], "b": []})
    for form in ("shares", "lattice", "additive"):
        fitted = network(form).fit(only)
        assert fitted.predict(only).shape == (len(X),)
        assert 0 <= fitted.score(only) <= 1


def test_ring_numbers_come_back_and_do_not_wrap_silently():
    values = np.array([-3.25, 0.0, 1e-6, 7.5])
    np.testing.assert_allclose(ring.from_ring(ring.to_ring(values, 36), 36), values, atol=2.0**-36)
    with pytest.raises(OverflowGuard):
        ring.to_ring(np.array([2.0**30]), 36)
    with pytest.raises(OverflowGuard, match="32"):
        ring.shifted(np.array([40.0]), ring.EMBEDDING_EXPONENT, ring.EMBEDDING_BITS, "an embedding")


def test_encrypted_linear_sums_equal_plain_ones(key):
    rng = np.random.default_rng(0)
    packing = ring.Packing(key.public, 70, 4)
    numbers = rng.integers(0, 1 << 18, size=(3, 7))
    weights = rng.integers(0, 1 << 40, size=(2, 3))
    sums = ring.linear_sums(key.public, key.public.encrypt(packing.pack(numbers)), weights)
    np.testing.assert_array_equal(packing.open(key, sums, 7), (weights @ numbers) & ring.RING)
    masks = packing.masks(2, 7)
    hidden = packing.open(key, ring.masked_sums(key.public, sums, packing, masks), 7)
    expected = (weights.astype(object) @ numbers.astype(object) + masks) & ring.RING
    np.testing.assert_array_equal(hidden, expected.astype(np.uint64))
    assert not np.array_equal(hidden, (weights @ numbers) & ring.RING)


def test_a_foreign_ciphertext_is_decrypted(key):
    from fedsift.crypto.additive.keys import generate_key

    other = generate_key("paillier")
    with pytest.raises(CiphertextError):
        ring.Packing(key.public, 70, 4).open(key, other.public.encrypt([1]), 1)


def test_the_top_step_is_told_apart_by_nothing_but_activations():
    """The label holder's step takes the sum over the parties: with shares it never has one party's alone."""
    X, y = data()
    tables = {"a": pd.DataFrame({"y": y}), "b": X[["f0", "f1", "f2"]], "c": X[["f3", "f4", "f5"]]}
    fed = fs.Federation.from_tables(tables, id=None, label=("a", "y"))
    wire = Wire(fed)
    train(SharedRun, fed)
    asked = [r for r in map(decode, wire.messages) if r.get("operation", "").endswith(".shared_step")]
    assert asked
    assert all(request["arguments"]["sums"].shape[-1] == 3 for request in asked)
    assert shared_step.receives == "masked"
