"""The interactive layer under lattice ciphertexts: equal to plain training, and nothing readable on the wire."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.errors import CiphertextError, OperationRefused, OverflowGuard, ReplyError, SecurityError
from fedsift.models.splitnn.halves import Networks
from fedsift.models.splitnn.layers import interactive as ring
from fedsift.models.splitnn.layers import lattice as lattice_layer
from fedsift.models.splitnn.layers.lattice import LatticeRun, encrypt_lattice, weigh_lattice
from fedsift.models.splitnn.model import SplitNN
from fedsift.models.splitnn.settings import BottomSettings, GateSettings, TopSettings
from fedsift.models.splitnn.training import SplitRun
from fedsift.select.fedsdg.gate_training import read_gates

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

GATES = GateSettings(sigma=0.5, price=0.01, embedding=True, init="half", rate=0.01)


def data(n=24, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, d)), columns=[f"f{i}" for i in range(d)])
    return X, (X["f0"] + X["f4"] > 0).astype(int)


def two_parties():
    X, y = data()
    return fs.Federation.split(X, y, parties=["bank", "shop"])


def settings(batch=10, prices=None):
    stack = {} if prices is None else {"copies": len(prices)}
    model = "dense" if prices is None else "stacked dense"
    gates = GATES if prices is None else replace(GATES, price=prices)
    bottom = BottomSettings(5, batch, 0.01, model, {"hidden": [5], **stack}, gates=gates)
    return bottom, TopSettings(5, batch, 0.01, model, {"hidden": [3], **stack})


JOB = SplitNN(protection="lattice", batch_size=10).announcement()
OPEN = SplitNN(protection="open", batch_size=10).announcement()


def train(cls, fed, epochs=1, prices=None):
    bottom, top = settings(prices=prices)
    if cls is SplitRun:
        top = replace(top, interactive=2.0**-ring.STEP_BITS)
    with fed.session(*(OPEN if cls is SplitRun else JOB)) as run:
        split = cls.start(run, "m", 4, bottom, top)
        split.train(epochs)
        gates = run.ask(read_gates, to=list(split.widths), model="m")
    return split.loss_curve, gates


@pytest.mark.parametrize("holder_has_columns", [True, False])
def test_training_under_ciphertexts_equals_plain_training(holder_has_columns):
    X, y = data()
    if holder_has_columns:
        tables = {"a": X[["f0", "f1"]].assign(y=y), "b": X[["f2", "f3"]], "c": X[["f4", "f5"]]}
    else:
        tables = {"a": pd.DataFrame({"y": y}), "b": X[["f0", "f1", "f2"]], "c": X[["f3", "f4", "f5"]]}
    fed = fs.Federation.from_tables(tables, id=None, label=("a", "y"))
    losses, gates = train(LatticeRun, fed, epochs=2)
    plain_losses, plain_gates = train(SplitRun, fed, epochs=2)
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


def test_no_embedding_or_activation_is_readable_on_the_wire(monkeypatch):
    fed, module = two_parties(), lattice_layer
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
    train(LatticeRun, fed)
    sent = b"".join(wire.messages)
    assert len(sent) > 10_000
    for what, arrays in seen.items():
        assert arrays, what
        values = np.concatenate([a.ravel() for a in arrays])
        every = 7  # megabytes of ciphertext are searched for each
        for pair in list(itertools.pairwise(values))[::every]:  # four bytes alone would be found by chance
            assert np.float32(pair).tobytes() not in sent or 0 in pair
            assert np.float64(pair[0]).tobytes() not in sent or pair[0] == 0
            for exponent in (12, 20, 22, 34, 42, 48, 50, 56, 60):
                fixed = int(np.rint(pair[0] * 2.0**exponent))
                if abs(fixed) > 1 << 40 and fixed % (1 << 20):  # shorter ones would be found by chance
                    for bits in (44, 58, 64):
                        assert (fixed & ((1 << bits) - 1)).to_bytes(8, "little") not in sent


def test_the_ledger_calls_everything_but_gates_ciphertext_or_masked():
    fed = two_parties()
    mark = len(fed.ledger)
    train(LatticeRun, fed)
    frame = fed.ledger.since(mark).frame()
    assert set(frame.form) <= {"control", "ciphertext", "masked", "aggregate"}
    assert set(frame[frame.form == "aggregate"].operation) == {"fedsdg.read_gates"}
    assert frame[frame.form == "ciphertext"].ciphertexts.sum() > 0


def test_neither_side_sees_the_weights():
    """w~ and eps are each uniform; only together they are the weights."""
    fed = two_parties()
    bottom, top = settings()
    with fed.session(*JOB) as run:
        split = LatticeRun.start(run, "m", 4, bottom, top)
        split.train(1)
        sites = fed._link.transport.sites
        holder = next(iter(sites["bank"].sessions.values()))[Networks].of["m"].shares["shop"]
        party = next(iter(sites["shop"].sessions.values()))[Networks].of["m"].share
    for share in (holder, party):
        assert np.abs(ring.from_ring(share, ring.WEIGHT_EXPONENT)).max() > 1e4
    weights = ring.from_ring((holder - party) & np.uint64(ring.RING), ring.WEIGHT_EXPONENT)
    assert np.abs(weights).max() < 3


@pytest.mark.parametrize("damage", ["missing", "field", "kind"])
def test_a_party_that_lies_about_its_ciphertexts_is_named(damage):
    fed = two_parties()
    with fed.session(*JOB) as run:
        split = LatticeRun.start(run, "m", 4, *settings())
        split._meet(run)
        reply = run.ask(encrypt_lattice, to=["shop"], model="m", outputs=3, epoch=0, start=0)
        if damage == "missing":
            reply = {}
        elif damage == "field":
            del reply["shop"]["back"]
        else:
            reply["shop"]["forward"] = reply["shop"]["weights"]  # under the other key
        with pytest.raises((ReplyError, CiphertextError, SecurityError)):
            run.ask(weigh_lattice, to="bank", model="m", replies=reply)


def network(**more):
    return SplitNN(
        protection="lattice", epochs=3, embedding=4, batch_size=12, bottom_options={"hidden": [6]},
        top_options={"hidden": [5]}, **more,
    )  # fmt: skip


def test_a_network_predicts_the_same_after_save_and_load(tmp_path):
    fed = two_parties()
    fitted = network().fit(fed)
    before = fitted.predict_proba(fed)
    fitted.save(tmp_path)
    fitted.forget(fed)
    with pytest.raises(OperationRefused):
        fitted.predict(fed)
    np.testing.assert_allclose(SplitNN.load(tmp_path, fed).predict_proba(fed), before, atol=1e-4)


def test_one_party_alone_needs_no_layer():
    X, y = data()
    tables = {"a": X.assign(y=y), "b": pd.DataFrame({"z": np.zeros(len(X))})}
    fed = fs.Federation.from_tables(tables, id=None, label=("a", "y"))
    only = fed.view(columns={"a": [0, 1, 4], "b": []})
    fitted = network().fit(only)
    assert fitted.predict(only).shape == (len(X),)
    assert 0 <= fitted.score(only) <= 1


def test_ring_numbers_come_back_and_do_not_wrap_silently():
    values = np.array([-3.25, 0.0, 1e-6, 7.5])
    np.testing.assert_allclose(ring.from_ring(ring.to_ring(values, 36), 36), values, atol=2.0**-36)
    with pytest.raises(OverflowGuard):
        ring.to_ring(np.array([2.0**30]), 36)
    with pytest.raises(OverflowGuard, match="32"):
        ring.shifted(np.array([40.0]), ring.EMBEDDING_EXPONENT, ring.EMBEDDING_BITS, "an embedding")
