"""Shared fixtures. Keys are real (2048 bits) but made once a test process: key generation is not what is tested."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsift as fs
from fedsift.crypto.additive import keys as additive
from fedsift.mpc import encrypted_histogram as histogram

_keys: dict[str, additive.SecretKey] = {}


def cached_key(scheme: str = "auto", bits: int = additive.MIN_BITS) -> additive.SecretKey:
    scheme = additive.SCHEMES[1] if scheme == "auto" else scheme
    if scheme not in _keys:
        _keys[scheme] = additive.generate_key(scheme, bits)
    return _keys[scheme]


@pytest.fixture(autouse=True)
def _one_key_a_process(monkeypatch):
    monkeypatch.setattr(histogram, "generate_key", cached_key)


@pytest.fixture
def key():
    return cached_key()


def mixed_table(n: int = 60, seed: int = 0, classes: int = 2) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, categories, booleans, missing values, a constant and a duplicate; the label depends on some of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    y[:classes] = np.arange(classes)
    frame = pd.DataFrame(
        {
            "signal": y + rng.normal(0, 0.5, n),
            "weak": y * 0.5 + rng.normal(0, 1, n),
            "noise": rng.normal(0, 1, n),
            "colour": rng.choice(["red", "green", "blue"], n),
            "holes": np.where(rng.random(n) < 0.3, np.nan, rng.normal(0, 1, n) + y),
            "flag": rng.random(n) < 0.4 + 0.2 * (y == 0),
            "constant": 3.0,
            "counts": rng.poisson(2 + y, n),
        }
    )
    frame["copy"] = frame["signal"]
    return frame, pd.Series(y, name="outcome")


@pytest.fixture
def small_fed():
    X, y = mixed_table()
    return fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
