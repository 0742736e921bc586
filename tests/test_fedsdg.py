"""FedSDG-FS and its baselines: the right columns, honest search, secure equals plain."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_table
from oracles import gini_impurity, slow_bins

import fedsift as fs
from fedsift.core.party import Party
from fedsift.errors import ParameterError
from fedsift.models.splitnn.layers.interactive import STEP_BITS
from fedsift.models.splitnn.layers.shared_gates import SharedGates
from fedsift.select.fedsdg.gate_search import SECOND_LOOK, GateRun, candidates
from fedsift.select.fedsdg.selector import FedSDG
from fedsift.select.fedsdg.shared_training import (
    TAKES_PART,
    GateMeans,
    GateSettings,
    gate_seed,
    lots,
    train_gates,
)
from fedsift.select.fedsdg.stochastic_gate import StochasticGate
from fedsift.select.less_vfl.vflfs import VFLFS

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

SMALL = {
    "protection": "open", "embedding": 6, "hidden": (8,), "top_hidden": (6,), "batch_size": 64, "learning_rate": 0.02,
    "trace_every": 5,
}  # fmt: skip


def noisy(n=300, noise=8, seed=0, task="classification"):
    """Two columns that matter together (and each a little), the rest noise."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, noise + 2)), columns=["a", "b", *(f"noise{i}" for i in range(noise))])
    signal = X["a"] + 0.7 * X["b"] + 0.8 * X["a"] * X["b"]
    y = (signal > 0).astype(int) if task == "classification" else signal
    return X[[*X.columns[::2], *X.columns[1::2]]], y  # a and b at different parties


def names(selector):
    return {name for columns in selector.selected_.values() for name in columns}


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_gates_keep_noise_or_close_on_the_signal(task):
    X, y = noisy(task=task)
    fed = fs.Federation.split(X, y, parties=2)
    selector = FedSDG(**SMALL, penalty=0.005, epochs=40, refit_epochs=20, refit_decay=0.0).fit(fed)
    assert {"a", "b"} <= names(selector)
    assert len(names(selector)) <= 4
    assert selector.network_.score(fed) > 0.8
    trace = selector.details_["gates_by_epoch"]
    assert trace[-1]["epoch"] == 40
    by_epoch, story = selector.details_["bytes_by_epoch"], selector.details_["score_by_bytes"]
    assert len(by_epoch["up"]) == len(by_epoch["down"]) == len(story["score"]) == 40
    assert story["bytes"] == sorted(story["bytes"])
    assert story["score"][-1] > story["score"][0]


def test_a_higher_price_opens_no_more_gates():
    X, y = noisy()
    fed = fs.Federation.split(X, y, parties=2)
    with pytest.warns(UserWarning, match="keeps no column"):
        counts = [
            len(names(FedSDG(**SMALL, penalty=value, epochs=25, refit_epochs=1, init="half").fit(fed)))
            for value in (0.0, 0.05, 5.0)
        ]
    assert counts[0] >= 8  # the first weights are the sites' own: a gate may close without a price
    assert counts[0] >= counts[1] >= counts[2] == 0


def test_lambda_is_chosen_by_the_refitted_network_on_held_out_rows():
    X, y = noisy()
    fed = fs.Federation.split(X, y, parties=2)
    train, _ = fed.rows(train=0.7)
    selector = FedSDG(**SMALL, penalties=(0.001, 0.005, 3.0), epochs=35, refit_epochs=15).fit(train)
    path = selector.details_["path"]
    assert [entry["lambda"] for entry in path] == [0.001, 0.005, 3.0]
    assert path[-1]["validation"] is None
    assert path[-1]["columns"] == 0
    assert selector.details_["lambda"] != 3.0
    assert {"a", "b"} <= names(selector)
    best = max(entry["validation"] or 0.0 for entry in path)
    chosen = next(e for e in path if e["lambda"] == selector.details_["lambda"])
    assert chosen["validation"] >= best - 0.1


def test_prices_that_close_every_gate_end_the_search():
    """ARCENE: on 10,000 columns every price of the list closed all gates, and nothing was selected."""
    X, y = noisy()
    train, _ = fs.Federation.split(X, y, parties=2).rows(train=0.7)
    common = {**SMALL, "epochs": 35, "refit_epochs": 15}
    selector = FedSDG(**common, penalties=(3.0, 5.0)).fit(train)
    tried = [entry["lambda"] for entry in selector.details_["path"]]
    assert tried == sorted(tried)
    assert tried[-2:] == [3.0, 5.0]
    assert len(tried) in (4, 6, 8)
    assert selector.details_["lambda"] < 0.2
    assert {"a", "b"} <= names(selector)
    free = FedSDG(**common, penalties=(0.0, 5.0)).fit(train)  # below nothing there is nothing
    assert [entry["lambda"] for entry in free.details_["path"]] == [0.0, 5.0]


def test_gini_start_is_that_of_the_plain_impurities():
    X, y = noisy()
    fed = fs.Federation.split(X, y, parties=2)
    selector = FedSDG(**{**SMALL, "learning_rate": 1e-9}, penalty=0.0, epochs=1, refit_epochs=1).fit(fed)
    scores = {row.feature: row.score for row in selector.scores_.itertuples()}
    impurity = {}
    for column in X:
        impurity[column] = gini_impurity(slow_bins(X[column], 8, 5), y.to_numpy(), 8, 2)
    purity = {c: 1 / g for c, g in impurity.items()}
    low, high = min(purity.values()), max(purity.values())
    for column in X:
        assert scores[column] == pytest.approx(0.3 + 0.4 * (purity[column] - low) / (high - low), abs=1e-4)


def test_dual_and_input_gates_differ_by_the_embedding_gates():
    X, y = noisy()
    fed = fs.Federation.split(X, y, parties=2)
    dual = FedSDG(**SMALL, penalty=0.01, epochs=2, refit_epochs=1).fit(fed)
    single = FedSDG(**SMALL, penalty=0.01, epochs=2, refit_epochs=1, gates="input").fit(fed)
    assert all(count == 6 for count in dual.details_["components_open"].values())
    assert all(count == 0 for count in single.details_["components_open"].values())


def test_the_same_seed_gives_the_same_gates():
    X, y = mixed_table()
    fed = fs.Federation.split(X, y, parties=3)
    runs = [FedSDG(**SMALL, penalty=0.01, epochs=4, refit_epochs=1).fit(fed) for _ in range(2)]
    pd.testing.assert_frame_equal(runs[0].scores_, runs[1].scores_)


def test_false_discoveries_are_estimated_by_copies():
    X, y = noisy()
    fed = fs.Federation.split(X, y, parties=2)
    loose = FedSDG(**SMALL, penalty=0.0, epochs=3, refit_epochs=1, init="half", false_discovery=True).fit(fed)
    assert loose.details_["false_discovery_rate"] == 1.0  # everything is open, copies too
    strict = FedSDG(**SMALL, penalty=0.005, epochs=40, refit_epochs=1, false_discovery=True).fit(fed)
    assert strict.details_["false_discovery_rate"] <= 0.5


TINY = {"embedding": 3, "hidden": (4,), "top_hidden": (3,), "batch_size": 18, "learning_rate": 0.02, "refit_epochs": 1}


def test_gates_under_ciphertexts_equal_plain_ones():
    X, y = noisy(n=36, noise=4)
    fed = fs.Federation.split(X, y, parties=2)
    common = {**TINY, "penalty": 0.02, "epochs": 2}
    hidden = FedSDG(**common, protection="lattice").fit(fed)
    plain = FedSDG(**common, protection="open", interactive_rate=2.0**-STEP_BITS).fit(fed)
    merged = hidden.scores_.merge(plain.scores_, on=["party", "feature"])
    np.testing.assert_allclose(merged.score_x, merged.score_y, atol=1e-3)
    assert hidden.selected_ == plain.selected_
    assert set(hidden.ledger_.frame().query("form == 'plain'").operation) <= {"core.share_names"}
    assert hidden.network_.predict(fed).shape == (36,)
    assert "network.bottom_round" in set(plain.ledger_.frame().operation)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_gates_on_shares_close_on_the_signal_and_show_no_row(task):
    X, y = noisy(task=task)
    fed = fs.Federation.split(X, y, parties=2)
    selector = FedSDG(batch_size=64, penalties=(0.003, 0.01), epochs=40, refit_epochs=15).fit(fed)
    assert {"a", "b"} <= names(selector)
    assert len(names(selector)) <= 4
    assert selector.network_.score(fed) > 0.8
    tried = [entry["lambda"] for entry in selector.details_["path"]]
    assert tried == sorted(tried)  # lower ones may have been tried
    assert tried[-2:] == [0.003, 0.01]
    assert selector.details_["gates_by_epoch"][-1]["epoch"] in (40, 45)
    sent = selector.ledger_.frame()
    assert set(sent.query("form == 'plain'").operation) <= {"core.share_names"}
    assert not {"network.embed_rows", "network.bottom_round", "network.top_round"} & set(sent.operation)
    aggregate = set(sent.query("form == 'aggregate'").operation)
    aggregates = {
        "sine_gates.set_gates", "sine_gates.drop_inputs", "sine_network.score", "tables.masked_counts",
        "tables.open_counts", "core.draw_rows",
    }  # fmt: skip
    assert aggregate <= aggregates, aggregate


def test_a_party_hears_bits_of_its_gates_and_no_number(monkeypatch):
    """Of each block of batches: which inputs take part. The means stay with the coordinator."""
    heard = []
    monkeypatch.setattr(SharedGates, "set", _recorded(SharedGates.set, heard))
    X, y = noisy()
    FedSDG(batch_size=64, penalty=0.003, epochs=8, refit_epochs=1).fit(fs.Federation.split(X, y, parties=2))
    assert len(heard) == 1 + 8 * 5 // 4
    assert {bits.dtype for gates in heard for bits in gates.values()} == {np.dtype(bool)}
    assert any((heard[0][name] != heard[-1][name]).any() for name in heard[0])


def _recorded(function, heard):
    def record(gates, bits):
        heard.append(bits)
        return function(gates, bits)

    return record


def test_means_of_gates_take_adam_s_steps_on_the_penalised_loss():
    means = GateMeans(np.array([0.5, 0.5, -0.2]), 0.5)
    reference = torch.nn.Parameter(torch.tensor([0.5, 0.5, -0.2], dtype=torch.float64))
    adam = torch.optim.Adam([reference], lr=0.04)
    gains = np.random.default_rng(0).normal(size=(20, 3)) * 0.01
    for gain in gains:
        means.step(gain, 0.003, 0.04)
        opened = 0.5 * (1 + torch.erf(reference / (0.5 * 2**0.5)))
        adam.zero_grad()
        ((torch.tensor(gain) + 0.003) * opened).sum().backward()
        adam.step()
    np.testing.assert_allclose(means.mu, reference.detach().numpy(), atol=1e-9)


def test_lots_do_not_depend_on_the_gates_and_cannot_be_foreseen_from_the_announced_seed(monkeypatch):
    """Which columns take part is the same for one generator whatever the gates begin with and become."""
    drawn = lots(np.random.default_rng(0), 12_000)
    assert abs(drawn.mean() - TAKES_PART) < 7 * (0.24 / 12_000) ** 0.5  # seeded; seven deviations
    heard: list[list[dict]] = [[], []]
    X, y = noisy()
    monkeypatch.setattr(Party, "generator", lambda party, purpose, seed: np.random.default_rng(7))
    for found, begin in zip(heard, (0.5, 0.1)):
        with monkeypatch.context() as patch:
            patch.setattr(SharedGates, "set", _recorded(SharedGates.set, found))
            fed = fs.Federation.split(X, y if begin > 0.2 else 1 - y, parties=2)
            start = {name: np.full(count, begin) for name, count in fed.n_columns.items()}
            train_gates(fed, [0.05], start, GateSettings(4, 64, 4, 0.5, 0))
    for first, second in zip(*heard):
        for name in first:
            np.testing.assert_array_equal(first[name], second[name])
    monkeypatch.undo()
    feds = fs.Federation.split(X, y, parties=2), fs.Federation.split(X + 1, y, parties=2)
    first, second = (fed.ask(gate_seed, to=fed.parties, seed=0) for fed in feds)
    assert not set(first.values()) & set(second.values())


def test_few_rows_get_too_few_steps_for_gates_to_close():
    assert FedSDG(protection="open")._epochs(600) == 160
    assert FedSDG(protection="open")._epochs(1600) == 62
    assert FedSDG()._epochs(600) == 80
    assert FedSDG()._epochs(2000) == 25
    assert FedSDG()._epochs(10**6) == 2
    assert FedSDG()._epochs(5) == 400
    assert [FedSDG()._refit_epochs(rows) for rows in (500, 2000, 10**5)] == [20, 20, 3]
    assert FedSDG(refit_epochs=7)._refit_epochs(10**5) == 7
    assert FedSDG(epochs=7)._epochs(600) == 7


def test_an_unknown_protection_is_taken_for_none():
    X, y = noisy(40)
    with pytest.raises(ParameterError, match="protection"):
        FedSDG(protection="ckks").fit(fs.Federation.split(X, y, parties=2))


def test_the_original_gate_is_the_single_gate_without_start():
    X, y = noisy()
    fed = fs.Federation.split(X, y, parties=2)
    selector = StochasticGate(penalty=0.02, epochs=3, refit_epochs=1, batch_size=64).fit(fed)
    assert "labels.encrypt_classes" not in set(selector.ledger_.frame().operation)
    assert all(count == 0 for count in selector.details_["components_open"].values())
    assert set(selector.get_params()) >= {"penalty", "sigma", "random_state"}


def test_vflfs_keeps_the_number_it_is_asked_for_and_the_signal():
    X, y = noisy()
    fed = fs.Federation.split(X, y, parties=2)
    selector = VFLFS(protection="open", n_features=3, penalty=0.1, pretrain_epochs=1, epochs=25, batch_size=64,
                     learning_rate=0.01, embedding=6, hidden=(8,), top_hidden=(6,)).fit(fed)  # fmt: skip
    assert len(names(selector)) == 3
    assert "a" in names(selector)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"gates": "three"}, "gates"), ({"init": "zero"}, "init"), ({"penalty": -1}, "penalty"),
     ({"validation": 0.9}, "validation"), ({"init_range": (0.9, 0.1)}, "init_range"), ({"penalties": ()}, "penalties")],
)  # fmt: skip
def test_wrong_parameters_are_named_before_anything_is_sent(change, word):
    X, y = noisy(40)
    fed = fs.Federation.split(X, y, parties=2)
    mark = len(fed.ledger)
    with pytest.raises(ParameterError, match=word):
        FedSDG(**change).fit(fed)
    assert len(fed.ledger) == mark


def test_a_second_look_takes_what_was_found_and_the_best_beginnings():
    start = {"a": np.linspace(0.3, 0.5, 60), "b": np.linspace(0.5, 0.7, 60)}
    scores = {name: np.full(60, -0.5) for name in start}
    scores["a"][0] = 0.1
    places = candidates([GateRun(0.005, scores, [], {})], start)
    assert places["a"][0]
    assert sum(mask.sum() for mask in places.values()) == SECOND_LOOK
    assert places["b"][60 - SECOND_LOOK + 1 :].all()
    assert candidates([GateRun(0.005, {"a": np.ones(60), "b": scores["b"]}, [], {})], start) is None


def test_a_second_look_finds_the_column_that_tells_by_its_square():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-1.7, 1.7, size=(500, 120)), columns=[f"f{i}" for i in range(120)])
    y = 2 * X["f0"] + 1.5 * X["f1"] ** 2 + 0.3 * rng.normal(size=500)
    selector = FedSDG(refit_epochs=6, random_state=0).fit(fs.Federation.split(X, y, parties=2))
    assert names(selector) == {"f0", "f1"}
    assert selector.network_ is not None


def test_an_empty_answer_says_so_and_the_network_answers_with_the_mean():
    fed = fs.Federation.split(*noisy(), parties=2)
    with pytest.warns(UserWarning, match=r"keeps no column: every gate closed.*What helps: a lower penalty"):
        selector = fs.StochasticGate(penalty=5.0, epochs=16, refit_epochs=1, batch_size=64, width=4).fit(fed)
    assert not any(selector.selected_.values())
    assert 0.3 < selector.network_.score(fed) < 0.7


def test_a_search_over_few_rows_and_many_columns_says_what_it_cannot_tell():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 80)), columns=[f"f{i}" for i in range(80)])
    fed = fs.Federation.split(X, (X["f0"] > 0).astype(int), parties=2)
    selector = fs.StochasticGate(penalties=(0.01,), epochs=2, refit_epochs=1, batch_size=16, width=4).fit(fed)
    assert any("few rows: 12 validation rows judge which of 80 columns" in note for note in selector.ledger_.notes)
