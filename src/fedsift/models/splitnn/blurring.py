"""Gradients of a network in the clear that say less about labels than they would: for research, by name."""

from __future__ import annotations

import secrets

import numpy as np

LABEL_PROTECTIONS = (None, "max_norm", "noise")


def protected(gradient: np.ndarray, how: str, scale: float) -> np.ndarray:
    """Gradients that say less about labels; the noise is from the operating system.

    ``max_norm`` (Li et al. 2022): each row gets noise along its own gradient so that all rows have, in expectation,
    the norm of the largest; ``noise``: Gaussian noise of ``scale`` times the mean row norm in every component.
    """
    generator = np.random.default_rng(secrets.randbits(128))
    norms = np.linalg.norm(gradient, axis=1, keepdims=True)
    if how == "max_norm":
        ratio = norms.max(initial=0.0) / np.maximum(norms, 1e-12)
        deviation = np.minimum(np.sqrt(np.maximum(ratio**2 - 1, 0.0)), 1e3)
        return (gradient * (1 + scale * deviation * generator.standard_normal(norms.shape))).astype(np.float32)
    noise = generator.standard_normal(gradient.shape) * scale * norms.mean() / np.sqrt(gradient.shape[1])
    return (gradient + noise).astype(np.float32)
