"""Scores of held-out rows, by which boosted models are compared, at every level."""

from __future__ import annotations

import numpy as np
import pandas as pd

import fedsift as fs
from fedsift.audit import attacks_on, record
from fedsift.audit.attacks.held_out_scores import compared_scores_give_columns, scores_compared

ROWS = 400


def table() -> tuple[pd.DataFrame, np.ndarray]:
    """The label is told by the shop's columns alone, and the bank has noise."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(ROWS, 6)), columns=list("abcdef"))
    return X, (X["d"] + 0.7 * X["e"] > 0).to_numpy().astype(int)


def recorded(**settings):
    method = fs.TopGain(n_estimators=4, max_depth=2, n_bins=8, protection="coordinator", **settings)
    return record(*table(), method, parties=["bank", "shop"])


def test_scores_by_which_models_are_compared_give_columns():
    seen = recorded(folds=2)
    view = seen["bank"]
    assert "compared_scores_give_columns" in [each.name for each in attacks_on(view.operations, "active")]
    vectors = scores_compared(view)
    assert len(vectors) > 1
    assert all(len(scores) == ROWS and (scores != 0).all() for scores in vectors), "a score of every row for each model"
    found = compared_scores_give_columns.run(view, seen.truth)
    assert found.value > found.baseline + 0.1


def test_where_the_number_of_columns_is_given_nothing_is_compared():
    seen = recorded(n_features=3)
    found = compared_scores_give_columns.run(seen["bank"], seen.truth)
    assert (found.value, found.note[:15]) == (0.0, "nothing to read")


def test_the_highest_level_shows_them_too():
    """Nobody hears which rows go left there, but the models are compared in the same way."""
    method = fs.TopGain(n_estimators=1, max_depth=1, n_bins=3, folds=2, protection="all")
    X, y = table()
    seen = record(X.iloc[:150, 2:5], y[:150], method, parties=["bank", "shop"])
    assert len(scores_compared(seen["bank"])) >= 1
