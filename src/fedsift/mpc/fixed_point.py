"""Fixed-point numbers in the ring of the interactive layer on lattice ciphertexts.

All numbers of the interactive layer are integers modulo 2^58 with public exponents, chosen so that the weight update is
exact (no truncation under a mask): an embedding has 12 fractional bits, a gradient of an activation 20, a weight
12 + 20 + 4 for the step 2^-4. A masked ring element is uniform, so it hides its value perfectly.
"""

from __future__ import annotations

import secrets

import numpy as np

from fedsift.errors import OverflowGuard

RING_BITS = 58
RING = (1 << RING_BITS) - 1
STEP_BITS = 4  # the interactive layer's learning rate is 2^-4
EMBEDDING_EXPONENT, EMBEDDING_BITS = 12, 18  # |g| < 32
DELTA_EXPONENT, DELTA_BITS = 20, 22  # |dL/dz| < 2
WEIGHT_EXPONENT = EMBEDDING_EXPONENT + DELTA_EXPONENT + STEP_BITS
ACTIVATION_EXPONENT = EMBEDDING_EXPONENT + WEIGHT_EXPONENT
GRADIENT_EXPONENT = DELTA_EXPONENT + WEIGHT_EXPONENT


def to_ring(values: np.ndarray, exponent: int) -> np.ndarray:
    """round(x * 2^exponent) modulo 2^58."""
    scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), exponent))
    if scaled.size and np.abs(scaled).max() >= 2.0 ** (RING_BITS - 1):
        raise OverflowGuard("a number of the secure layer does not fit its ring; use a smaller learning rate")
    return scaled.astype(np.int64).view(np.uint64) & np.uint64(RING)


def from_ring(ring: np.ndarray, exponent: int) -> np.ndarray:
    """The numbers back, those above half of the ring as negative ones."""
    signed = (np.asarray(ring, dtype=np.uint64) << np.uint64(64 - RING_BITS)).view(np.int64) >> (64 - RING_BITS)
    return np.ldexp(signed.astype(np.float64), -exponent)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix product in the ring (NumPy wraps at 2^64, a multiple of 2^58)."""
    return (a.astype(np.uint64) @ b.astype(np.uint64)) & np.uint64(RING)


def shifted(values: np.ndarray, exponent: int, bits: int, what: str) -> np.ndarray:
    """Fixed-point numbers made non-negative: x * 2^exponent + 2^(bits - 1), refused when they do not fit ``bits``."""
    scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), exponent))
    if not np.isfinite(scaled).all() or (scaled.size and np.abs(scaled).max() >= 2.0 ** (bits - 1)):
        limit = 2.0 ** (bits - 1 - exponent)
        raise OverflowGuard(f"{what} must stay below {limit:g} in size in the secure layer; scale it down")
    return scaled.astype(np.int64) + (1 << (bits - 1))


def random_ring(shape: tuple[int, ...]) -> np.ndarray:
    """Uniform ring elements from the operating system."""
    count = int(np.prod(shape))
    return (np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64) & np.uint64(RING)).reshape(shape)
