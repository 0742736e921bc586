"""Shared fixtures. Keys are real (2048 bits) but made once a test process: key generation is not what is tested."""

from __future__ import annotations

import pytest

import fedsift as fs
from fedsift.crypto.additive import keys as additive
from fedsift.mpc import encrypted_histogram as histogram
from fedsift.testing.tables import mixed_table

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


@pytest.fixture
def small_fed():
    X, y = mixed_table()
    return fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
