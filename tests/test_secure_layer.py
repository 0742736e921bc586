"""The encrypted interactive layer: equal to plain training, and nothing readable on the wire."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.errors import CiphertextError, OverflowGuard, ReplyError
from fedsift.protocols import ring
from fedsift.protocols.gate_training import read_gates
from fedsift.protocols.secure_layer import SecureRun, update_weights, weigh
from fedsift.protocols.split_training import SplitRun

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

GATES = {"sigma": 0.5, "price": 0.01, "embedding": True, "init": "half", "rate": 0.01}


def data(n=24, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, d)), columns=[f"f{i}" for i in range(d)])
    return X, (X["f0"] + X["f4"] > 0).astype(int)


def settings(batch=12):
    common = {"seed": 5, "batch_size": batch, "rate": 0.01, "model": "dense"}
    bottom = {**common, "options": {"hidden": [5]}, "gates": GATES}
    return bottom, {**common, "options": {"hidden": [3]}}


def train(cls, fed, epochs=1):
    bottom, top = settings()
    if cls is SplitRun:
        top = {**top, "interactive": 2.0**-ring.STEP_BITS}
    with fed.session() as run:
        split = cls.start(run, "m", 4, bottom, top)
        split.train(epochs)
        gates = run.ask(read_gates, to=list(split.widths), model="m")
    return split.loss_curve, gates


@pytest.mark.parametrize("holder_has_columns", [True, False])
def test_secure_training_drifts_from_plain_training(holder_has_columns):
    X, y = data()
    if holder_has_columns:
        tables = {"a": X[["f0", "f1"]].assign(y=y), "b": X[["f2", "f3"]], "c": X[["f4", "f5"]]}
    else:
        tables = {"a": pd.DataFrame({"y": y}), "b": X[["f0", "f1", "f2"]], "c": X[["f3", "f4", "f5"]]}
    fed = fs.Federation.from_tables(tables, id=None, label=("a", "y"))
    losses, gates = train(SecureRun, fed, epochs=3)
    plain_losses, plain_gates = train(SplitRun, fed, epochs=3)
    np.testing.assert_allclose(losses, plain_losses, atol=1e-3)
    for name in gates:
        for kind in ("columns", "components"):
            np.testing.assert_allclose(gates[name][kind], plain_gates[name][kind], atol=1e-3)
            assert not np.allclose(gates[name][kind], 0.5, atol=1e-3)  # they moved at all


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


def test_an_embedding_or_an_activation_is_readable_on_the_wire(monkeypatch):
    from fedsift.protocols import secure_layer

    X, y = data()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    wire = Wire(fed)
    seen = {"embeddings": [], "totals": [], "deltas": []}
    forward = secure_layer.bottom_of
    step = secure_layer._top_step

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

    monkeypatch.setattr(secure_layer, "_top_step", spy_step)
    monkeypatch.setattr(secure_layer, "bottom_of", spy_bottom)
    train(SecureRun, fed)
    sent = b"".join(wire.messages)
    assert len(sent) > 10_000
    exponents = {
        "embeddings": ring.EMBEDDING_EXPONENT,
        "totals": ring.ACTIVATION_EXPONENT,
        "deltas": ring.DELTA_EXPONENT,
    }
    for what, arrays in seen.items():
        assert arrays
        for value in np.concatenate([a.ravel() for a in arrays]):
            assert np.float32(value).tobytes() not in sent or value == 0
            assert np.float64(value).tobytes() not in sent or value == 0
            fixed = int(np.rint(value * 2.0 ** exponents[what]))
            if abs(fixed) > 1 << 40:  # shorter ones would be found by chance
                assert (fixed & ring.RING).to_bytes(8, "little") not in sent


def test_the_ledger_calls_everything_but_gates_ciphertext_or_masked():
    X, y = data()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    mark = len(fed.ledger)
    train(SecureRun, fed)
    frame = fed.ledger.since(mark).frame()
    assert set(frame.form) <= {"control", "ciphertext", "masked", "aggregate"}
    assert frame[frame.operation == "encrypt_embedding"].ciphertexts.sum() > 0
    assert set(frame[frame.form == "aggregate"].operation) == {"read_gates"}


def test_weights_are_seen_by_either_side():
    """w~ and eps are each uniform; only together they are the weights."""
    X, y = data()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    bottom, top = settings()
    with fed.session() as run:
        split = SecureRun.start(run, "m", 4, bottom, top)
        split.train(1)
        sites = fed._link.transport.sites
        holder = next(iter(sites["bank"].sessions.values()))["m/layers"]["shop"].share
        party = next(iter(sites["shop"].sessions.values()))["m/layer"].share
    for share in (holder, party):
        assert np.abs(ring.from_ring(share, ring.WEIGHT_EXPONENT)).max() > 1e4
    weights = ring.from_ring((holder - party) & np.uint64(ring.RING), ring.WEIGHT_EXPONENT)
    assert np.abs(weights).max() < 3


@pytest.mark.parametrize("damage", ["rows", "count", "missing"])
def test_a_party_that_lies_about_its_ciphertexts_is_believed(damage):
    X, y = data()
    fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    bottom, top = settings()
    from fedsift.protocols.secure_layer import encrypt_embedding

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
    from fedsift.secure.additive import generate_key

    other = generate_key("paillier")
    with pytest.raises(CiphertextError):
        ring.Packing(key.public, 70, 4).open(key, other.public.encrypt([1]), 1)
