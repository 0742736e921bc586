"""Keys, states and models go with the federation that they were made for."""

from __future__ import annotations

import gc
import tracemalloc
import warnings

import numpy as np

import fedsift as fs
from fedsift.crypto.additive import keys

FITS = (
    lambda: fs.GiniFilter(n_features=1),
    lambda: fs.SecureBoostClassifier(n_estimators=1, max_depth=1, protection="coordinator"),
    lambda: fs.VerticalLogisticRegression(max_iter=3),
)


def traced() -> float:
    """Megabytes that Python and NumPy hold."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1e6


def test_two_hundred_fits_on_new_federations_do_not_grow_memory():
    """A key with its tables is above 10 MB, and the last ``keys.MOST`` stay: after them, each new one takes the place
    of an old one. So the second hundred fits must hold no more than the first, but for a part of one key."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = (X[:, 0] + X[:, 3] > 0).astype(int)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # three steps are too few for a logistic model
            for number in range(200):
                FITS[number % len(FITS)]().fit(fs.Federation.split(X, y, parties=2))
                if number == 99:
                    before = traced()
        assert len(keys._keys) <= keys.MOST
        assert traced() - before < 5
    finally:
        tracemalloc.stop()
