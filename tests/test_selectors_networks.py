"""``network_`` of every selector that trains a network: it is there after each fit, and answers for other rows."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import fedsift as fs
from fedsift.models.splitnn.layers.choice import grown_batch, refit_batch, usual_epochs

#: As they come: jobs whose batches are larger than those of the network that only predicts.
LARGE = {
    "fedsdg": fs.FedSDG(penalty=0.003, epochs=8, refit_epochs=1, batch_size=128, width=4),
    "less_vfl": fs.LessVFL(epochs=1, width=4),
    "group_lasso": fs.GroupLasso(epochs=2, refit_epochs=1, width=4),
    "vflfs": fs.VFLFS(n_features=3, epochs=2, pretrain_epochs=1, refit_epochs=1, width=4),
}
SHORT = {"batch_size": 64, "random_state": 0}
SELECTORS = {
    "fedsdg": fs.FedSDG(penalties=(0.003,), epochs=12, refit_epochs=12, width=8, **SHORT),
    "stochastic_gate": fs.StochasticGate(penalty=0.003, epochs=12, refit_epochs=12, width=8, **SHORT),
    "less_vfl": fs.LessVFL(epochs=12, width=8, **SHORT),
    "group_lasso": fs.GroupLasso(epochs=12, refit_epochs=12, width=8, **SHORT),
    "vflfs": fs.VFLFS(n_features=3, epochs=8, pretrain_epochs=1, refit_epochs=12, width=8, **SHORT),
    "less_vfl, open": fs.LessVFL(protection="open", epochs=6, **SHORT),
    "local_lasso": fs.LocalLasso(epochs=6, stage_epochs=5, **SHORT),
    "group_lasso, open": fs.GroupLasso(protection="open", epochs=12, **SHORT),
    "vflfs, open": fs.VFLFS(protection="open", n_features=3, epochs=8, pretrain_epochs=1, **SHORT),
}


def _rows(seed, count=300):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(count, 8)), columns=[f"f{i}" for i in range(8)])
    return X, np.where(X["f0"] + X["f5"] + 0.3 * rng.normal(size=count) > 0, "yes", "no")


def _federation(seed, count=300):
    X, y = _rows(seed, count)
    tables = {"bank": X[[f"f{i}" for i in range(4)]].assign(y=y), "shop": X[[f"f{i}" for i in range(4, 8)]]}
    tables = {name: table.assign(id=[f"{seed}-{i}" for i in range(count)]) for name, table in tables.items()}
    return fs.Federation.from_tables(tables, id="id", label=("bank", "y"))


@pytest.mark.parametrize("name", SELECTORS)
def test_the_network_of_a_selector_scores_another_federation(name):
    """Other rows of the same organisations: 300 of them, of which a coin tells 0.65 once in 10^7 draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        selector = clone(SELECTORS[name]).fit(_federation(0))
    other = _federation(1)
    assert selector.network_.score(other) > 0.75
    assert set(selector.network_.predict(other)) <= {"yes", "no"}


def test_the_network_of_a_selector_is_saved_and_loaded(tmp_path):
    other = _federation(1)
    selector = clone(SELECTORS["vflfs"]).fit(_federation(0))
    assert selector.network_.predict_proba(other).shape == (300, 2)  # asks for the names of the classes
    selector.network_.save(tmp_path)
    assert fs.SplitNN.load(tmp_path, other).score(other) > 0.75


def test_a_price_that_leaves_fewer_columns_than_asked_for_is_told():
    with pytest.warns(UserWarning, match="left weights to 0 columns only, and 3 are asked for"):
        clone(SELECTORS["vflfs"]).set_params(penalty=5.0).fit(_federation(0))


def test_a_training_of_no_said_length_is_shorter_where_rows_are_many():
    assert [usual_epochs(None, 30, rows, 128) for rows in (1000, 10_000, 45_000, 100_000, 10**6)] == [30, 30, 11, 5, 3]
    assert usual_epochs(40, 30, 10**6, 128) == 40


@pytest.mark.parametrize("name", LARGE)
def test_the_network_of_few_columns_takes_steps_of_64_rows(name):
    """Plain steps learn by their number; sites take such batches although the job's are larger."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        selector = clone(LARGE[name]).fit(_federation(0))
    assert selector.network_.batch_size == 64


def test_steps_are_larger_where_columns_or_rows_are_many_and_never_larger_than_asked_for():
    assert [refit_batch(None, 20, rows, 18) for rows in (500, 14_000, 15_000, 10**5, 10**6)] == [64, 64, 128, 128, 1024]
    assert [refit_batch(256, 20, rows, 18) for rows in (500, 10**6)] == [64, 256]
    assert refit_batch(256, 65, 500, 18) == 128
    assert refit_batch(256, 20, 500, 600) == 128  # as long as it was said to be
    assert refit_batch(32, 20, 500, 18) == 32


def test_batches_that_nobody_chose_grow_with_a_very_large_table():
    """So a training of 10^6 rows is as many round trips as one of 10^5; eight times as large is the end of it."""
    assert [grown_batch(128, rows) for rows in (10**5, 2 * 10**5, 10**6, 10**8)] == [128, 256, 1024, 1024]
    assert fs.FedSDG()._batch_size(10**5) == 128
    assert fs.FedSDG()._batch_size(10**6) == 512
    assert fs.FedSDG(batch_size=32)._batch_size(10**6) == 32
    assert fs.VFLFS()._batch_size(10**6) == fs.GroupLasso()._batch_size(10**6) == 1024
    assert fs.GroupLasso(protection="open")._batch_size(10**6) == 256
