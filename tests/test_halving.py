"""Fed-Halving: finds the columns that matter, takes new features along, and is honest about its masks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.engineer.fed_iife.selector import FedIIFE
from fedsift.errors import ParameterError
from fedsift.select.halving import FedHalving

QUICK = {"candidates": 16, "refinements": 2, "halvings": 1, "levels": 2, "max_iter": 5, "size_penalty": 0.02}


def table(n=200, noise=6, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 2 + noise))).add_prefix("x")
    return X, 2 * X["x0"] - X["x1"] + rng.normal(0, 0.3, n)


def split(X, y, **kw):
    return fs.Federation.split(X, y, parties=3, partition="horizontal", **kw)


def test_columns_that_matter_are_kept():
    X, y = table()
    halving = FedHalving(**QUICK).fit(split(X, y))
    kept = set(halving.selected_["party1"])
    assert {"x0", "x1"} <= kept
    assert len(kept) < 8
    assert halving.selected_["party1"] == halving.selected_["party3"]
    assert halving.details_["score"] > 0.6


def test_classes_and_categories_are_handled():
    X, y = table()
    X["word"] = "w"
    halving = FedHalving(**QUICK).fit(split(X, np.where(y > 0, "yes", "no"), how="target"))
    assert "x0" in halving.selected_["party1"]
    assert halving.details_["without_numbers"] == ["word"]
    assert "word" not in halving.selected_["party1"]


def test_new_features_can_be_selected():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    y = X["a"] * X["b"] + rng.normal(0, 0.1, 200)
    fed = split(X, y)
    halving = FedHalving(**QUICK, expressions=["mul(a, b)", "cube(c)"]).fit(fed)
    assert "mul(a, b)" in halving.selection_.engineered
    assert halving.selection_.apply(X, "party1").columns[-1] in ("mul(a, b)", "cube(c)")
    kept = [*halving.selected_["party1"], *halving.selection_.engineered]
    assert halving.transform(fed).column_names()["party2"] == kept
    engineer = FedIIFE(n_pairs=1, max_features=2, shortlist=3).fit(fed)
    after = FedHalving(**QUICK).fit(engineer.transform(fed))
    assert set(after.selected_["party1"]) & set(engineer.expressions_)


def test_another_model_serves_other_partitions():
    X, y = table(n=60)
    asked = []

    class Fixed:
        features = [("party1", "x0"), ("party2", "x5")]

        def score(self, masks, rounds):
            asked.append((len(masks), rounds))
            return masks[:, 1] - 0.1 * masks[:, 0]

    fed = fs.Federation.split(X, y, parties=2)
    halving = FedHalving(**{**QUICK, "size_penalty": 0.0}, model=lambda fed: Fixed()).fit(fed)
    assert halving.selected_ == {"party1": [], "party2": ["x5"]}
    assert asked[1][1] == 2 * asked[0][1]  # survivors get more rounds
    with pytest.raises(ParameterError, match="pass model="):
        FedHalving().fit(fed)


def test_the_same_seed_gives_the_same_masks():
    X, y = table()
    runs = [FedHalving(**QUICK, random_state=1).fit(split(X, y)) for _ in range(2)]
    assert runs[0].selected_ == runs[1].selected_
    assert runs[0].details_["history"] == runs[1].details_["history"]


def test_settings_that_make_no_sense_are_refused():
    X, y = table(n=60)
    fed = split(X, y)
    for bad in ({"ratio": 1.0}, {"candidates": 1}, {"levels": 0}, {"validation": 0}, {"expressions": ["nope(x0)"]}):
        with pytest.raises(ParameterError):
            FedHalving(**bad).fit(fed)
