"""The randomness of a test: a stream that its name gives, so that a test ends the same way in every run.

Masks, keys and noise are the operating system's, and a test that draws them fails once in so many runs, on somebody
else's machine. Here ``os.urandom`` (and with it ``secrets`` and generators without a seed), the keys that libraries
draw by themselves and OpenDP's noise come from a generator seeded by the test's name, the thread (a party is a thread)
and ``FEDSIFT_DRAWS`` (0 unless set). Draws go on within a test: two masks, two keys, two runs still differ.

``FEDSIFT_DRAWS=17 make test`` is another run of luck, ``FEDSIFT_DRAWS=fresh`` the operating system itself: a test must
hold there too, by an argument that it states (how many deviations). SEAL draws for itself, under CKKS and BFV: what
they decrypt is compared within their declared precision. Tests of the sampler itself ask for ``true_noise``, tests
that start FLARE run on the operating system's randomness.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import threading
from collections.abc import Iterator

import numpy as np
import rbcl
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedsift.core.identity import SigningKey
from fedsift.crypto import dp
from fedsift.crypto.sealed_box import SealKey

DRAWS = os.environ.get("FEDSIFT_DRAWS", "0")
_RISTRETTO_ORDER = 2**252 + 27742317777372353535851937790883648493

_system_bytes, _true_noise = os.urandom, dp._add_noise


class Streams:
    """One stream for each thread, all begun anew with each test."""

    def __init__(self) -> None:
        self.name: str | None = None  # None: the operating system's own
        self._threads: dict[str, np.random.Generator] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    def begin(self, name: str | None) -> None:
        with self._lock:
            self.name, self._threads = name, {}

    @contextlib.contextmanager
    def aside(self, name: str) -> Iterator[None]:
        """What is made once and used by many tests must not depend on which of them comes first."""
        before = self.name, self._threads
        if self.name is not None:
            self.begin(name)
        try:
            yield
        finally:
            self.name, self._threads = before

    def generator(self) -> np.random.Generator | None:
        with self._lock:
            if self.name is None or os.getpid() != self._process:  # a forked child must not repeat its parent
                return None
            thread = threading.current_thread().name
            if thread not in self._threads:
                digest = hashlib.sha256(f"{DRAWS}\0{self.name}\0{thread}".encode()).digest()
                self._threads[thread] = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
            return self._threads[thread]


streams = Streams()


def _bytes(count: int) -> bytes:
    generator = streams.generator()
    return _system_bytes(count) if generator is None else generator.bytes(count)


def _scalar() -> bytes:
    return (1 + int.from_bytes(_bytes(64), "little") % (_RISTRETTO_ORDER - 1)).to_bytes(32, "little")


def _noise(values: np.ndarray, scale: float, exponent: int) -> np.ndarray:
    """Rounded normal numbers on the grid, in the place of OpenDP's discrete ones (``test_privacy.py`` has the true)."""
    generator = streams.generator()
    if generator is None:
        return _true_noise(values, scale, exponent)
    spread = float(np.ldexp(scale, -exponent))
    return np.ldexp(np.rint(np.ldexp(values, -exponent)) + np.rint(generator.normal(0, spread, values.shape)), exponent)


def install() -> None:
    """For the whole test process; ``streams.begin`` says whose turn it is."""
    if DRAWS == "fresh":
        return
    os.urandom = random._urandom = _bytes
    rbcl.crypto_core_ristretto255_scalar_random = _scalar
    SealKey.generate = classmethod(lambda cls: cls(X25519PrivateKey.from_private_bytes(_bytes(32))))
    SigningKey.generate = classmethod(lambda cls: cls(_bytes(32)))
    dp._add_noise = _noise
    streams.begin("while tests are collected")


@contextlib.contextmanager
def true_noise() -> Iterator[None]:
    """OpenDP's own sampler."""
    before, dp._add_noise = dp._add_noise, _true_noise
    try:
        yield
    finally:
        dp._add_noise = before
