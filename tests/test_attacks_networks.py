"""Attacks on split networks: they read labels and columns from the old messages, and nothing from hidden ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")

from leaky.networks import split_training
from repeated_draws import streams

from fedsift.audit import attacks_on, record
from fedsift.audit.attacks.embedding_decoder import embedding_decoder
from fedsift.audit.attacks.first_weights import first_weights_at_coordinator, first_weights_at_holder
from fedsift.audit.attacks.gate_bits import gates_give_labels, heard_of_columns
from fedsift.audit.attacks.gradient_labels import (
    either_way,
    gradient_cosine,
    gradient_norm,
    gradient_spectral,
    labels_from_summed,
    model_completion,
)
from fedsift.audit.network_messages import batches_at_holder, gradients_of_own
from fedsift.audit.views import Message, View
from fedsift.core.table import Table
from fedsift.models.splitnn.model import SplitNN
from fedsift.select.fedsdg.selector import FedSDG


@pytest.fixture(scope="module")
def table():
    """Two parties of six columns; the label is rare, noisy, and hangs on both."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(500, 12))
    y = (X[:, 0] + X[:, 1] + X[:, 6] + X[:, 7] + generator.normal(0, 1.5, 500) > 2.2).astype(int)
    return pd.DataFrame(X, columns=[f"c{number:02d}" for number in range(12)]), y


@pytest.fixture(scope="module")
def runs(table):
    made = {}

    def run(hide=""):
        if hide not in made:
            with streams.aside(f"the run that hides {hide}"):
                made[hide] = record(*table, split_training(hide=hide), parties=["holder", "other"])
        return made[hide]

    return run


@pytest.mark.parametrize(
    ("attack", "least"), [(gradient_spectral, 0.99), (gradient_norm, 0.9), (gradient_cosine, 0.99)]
)
def test_gradients_of_rows_give_the_labels(runs, attack, least):
    found = attack.run(runs()["other"], runs().truth)
    assert found.value > least
    assert found.value > found.baseline + 0.1


@pytest.mark.parametrize("attack", [gradient_spectral, gradient_norm, gradient_cosine])
def test_gradients_of_exchanged_rows_give_no_label(runs, attack):
    found = attack.run(runs("gradients")["other"], runs().truth)
    assert found.value < 0.62


def test_a_trained_half_gives_more_labels_than_its_columns(runs):
    found = model_completion.run(runs()["other"], runs().truth)
    assert found.value > found.baseline


def test_a_summed_gradient_is_solved_for_its_rows_where_the_embedding_is_wide():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 40)
    d = np.outer(0.3 - labels, generator.normal(size=3))
    wide, narrow = generator.normal(size=(40, 64)), generator.normal(size=(40, 4))
    assert either_way(labels, labels_from_summed(wide, wide.T @ d)) == 1.0
    assert either_way(labels, labels_from_summed(narrow, narrow.T @ d)) < 0.95


@pytest.mark.parametrize(("attack", "name"), [(first_weights_at_holder, "holder"),
                                             (first_weights_at_coordinator, "coordinator")])  # fmt: skip
def test_first_weights_from_the_seed_give_the_columns(runs, attack, name):
    found = attack.run(runs()[name], runs().truth)
    assert found.value > 0.99
    assert "6 inputs" in found.note  # the label holder was not told, and found out
    assert found.guess < 0.5
    assert "128 rows" in found.note  # two batches: the first step was replayed
    assert found.baseline < 0.2


@pytest.mark.parametrize(("attack", "name"), [(first_weights_at_holder, "holder"),
                                             (first_weights_at_coordinator, "coordinator")])  # fmt: skip
def test_secret_first_weights_hide_the_columns(runs, attack, name):
    """The value falls to what weights of any other seed give; that is not 0, as mixtures of columns are found."""
    found = attack.run(runs("weights")[name], runs().truth)
    assert found.value < found.guess + 0.15
    assert found.value < 0.7


def test_a_decoder_finds_the_columns_in_embeddings(runs):
    found = embedding_decoder.run(runs()["holder"], runs().truth)
    assert found.value > 0.7
    assert found.baseline < 0.1


def test_a_decoder_finds_nothing_in_noise(runs):
    found = embedding_decoder.run(runs("embeddings")["holder"], runs().truth)
    assert found.value < 0.05


def test_the_readers_take_the_messages_of_the_open_form_as_they_are(table):
    """The shipped leaky form: the other party sees its gradients, the label holder the same embeddings."""
    seen = record(*table, SplitNN(epochs=1, batch_size=125, protection="open"), parties=["holder", "other"])
    own = gradients_of_own(seen["other"])
    at_holder = [batch for batch in batches_at_holder(seen["holder"]) if batch.party == "other"]
    assert len(own) == len(at_holder) == 4
    for mine, theirs in zip(own, at_holder):
        assert np.array_equal(mine.rows, theirs.rows)
        assert np.array_equal(mine.embedding, theirs.embedding)
        assert np.array_equal(mine.gradient, theirs.gradient)
        assert mine.gradient.shape == (125, 100)
    assert np.array_equal(np.sort(np.concatenate([batch.rows for batch in own])), np.arange(500))
    assert gradient_spectral.run(seen["other"], seen.truth).value > 0.99


def test_on_shares_the_readers_find_nothing(table):
    seen = record(*table, SplitNN(epochs=1, batch_size=125), parties=["holder", "other"])
    assert "sine_network.send_gradients" in seen["holder"].operations
    assert gradients_of_own(seen["other"]) == []
    assert list(batches_at_holder(seen["holder"])) == []
    reading = attacks_on(seen["other"].operations, "passive")
    assert not {gradient_spectral, gradient_norm, gradient_cosine, model_completion}.intersection(reading)
    assert gradient_spectral.run(seen["other"], seen.truth).value == 0.5


def test_gates_give_labels_are_counted_by_column_and_give_no_label(table):
    seen = record(*table, FedSDG(penalty=0.02, epochs=40, refit_epochs=1, batch_size=125), parties=["holder", "other"])
    heard = heard_of_columns(seen["other"])
    blocks = len(seen["other"].requests("set_gates"))
    assert heard.shape == (6,)
    assert 0 < heard.max() <= blocks
    assert heard.min() < heard.max()
    found = gates_give_labels.run(seen["other"], seen.truth)
    assert found.value < found.baseline + 0.05


def test_gates_of_a_category_with_several_inputs_are_read_as_its_columns():
    """Inputs 0, (1, 2, 3), 4: the category leaves first, then the last column."""

    def step(name, **content):
        return Message(0, "shop", True, f"sine_gates.{name}", "", "run", content, 0)

    def gates(*bits):
        return step("set_gates", gates={"shop": np.array(bits)})

    told = Message(0, "shop", False, "sine_gates.input_columns", "", "run", np.array([0, 1, 1, 1, 2]), 0)
    said = [
        told, gates(1, 1, 1, 1, 1), step("drop_inputs", stay={"shop": np.array([1, 0, 0, 0, 1])}), gates(1, 1),
        step("drop_inputs", stay={"shop": np.array([1, 0])}), gates(1), gates(1),
    ]  # fmt: skip
    table = Table.read(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"], "c": [1.0, 3.0]}), id=None, name="shop")
    view = View("passive", "shop", None, tuple(said), table)
    assert heard_of_columns(view).tolist() == [4, 1, 2]
