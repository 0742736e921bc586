"""Shared fixtures. Keys are real (2048 bits) but made once a test process: key generation is not what is tested.

No test of luck: randomness comes from streams (``repeated_draws.py``), hypothesis tries the same examples in each run,
and no example has a deadline. ``FEDSIFT_DRAWS`` looks farther.
"""

from __future__ import annotations

import hypothesis
import pytest
import repeated_draws
from repeated_draws import streams

import fedsift as fs
from fedsift.crypto.additive import keys as additive
from fedsift.mpc import encrypted_histogram as histogram
from fedsift.testing.tables import mixed_table

hypothesis.settings.register_profile(
    "repeated", deadline=None, derandomize=repeated_draws.DRAWS == "0",
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)  # fmt: skip
hypothesis.settings.load_profile("repeated")
repeated_draws.install()

_keys: dict[str, additive.SecretKey] = {}


def cached_key(scheme: str = "auto", bits: int = additive.MIN_BITS) -> additive.SecretKey:
    scheme = additive.SCHEMES[1] if scheme == "auto" else scheme
    if scheme not in _keys:
        with streams.aside(f"the key of {scheme}"):
            _keys[scheme] = additive.generate_key(scheme, bits)
    return _keys[scheme]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    streams.begin(None if item.get_closest_marker("flare") else item.nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """A fixture of many tests has a stream of its own: which of them asks first is the scheduler's choice."""
    if fixturedef.scope == "function":
        yield
        return
    with streams.aside(f"{fixturedef.baseid} {fixturedef.argname} {request.param_index}"):
        yield


@pytest.fixture(autouse=True)
def _one_key_a_process(monkeypatch):
    monkeypatch.setattr(histogram, "generate_key", cached_key)


@pytest.fixture
def true_noise():
    """OpenDP's own sampler instead of the streams' normal numbers."""
    with repeated_draws.true_noise():
        yield


@pytest.fixture
def key():
    return cached_key()


@pytest.fixture
def small_fed():
    X, y = mixed_table()
    return fs.Federation.split(X, y, parties=["bank", "shop", "lab"])
