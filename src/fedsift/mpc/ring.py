"""Numbers as elements of Z_2^64: fixed point in and out, sums and matrix products that wrap, streams that mask.

The one ring of shared computing. A value is round(x * 2^exponent) modulo 2^64; ``room`` is the largest magnitude that
the protocol promises, refused where it is not kept, because a product that wraps would be a wrong answer in silence.
A stream is ChaCha20 under a key derived for one seed, one purpose and one number: uniform to whoever lacks the seed.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from fedsift.crypto.ring_product import transposed_product
from fedsift.crypto.sealed_box import frame
from fedsift.errors import OverflowGuard, SecurityError

Ring = NDArray[np.uint64]
SEED_BYTES = 32
_REST_BITS = 52


def to_ring(values: NDArray[np.floating], exponent: int, room: float) -> Ring:
    """Fixed point with ``exponent`` fractional bits. A number of ``room`` or more in size is refused."""
    array = np.asarray(values, dtype=np.float64)
    if array.size and not np.abs(array).max() < room:
        raise OverflowGuard(f"a number is not below {room:g} in size, which shared computing has room for")
    return np.rint(np.ldexp(array, exponent)).astype(np.int64).view(np.uint64)


def from_ring(ring: Ring, exponent: int) -> NDArray[np.float64]:
    """The numbers back; those above half of the ring are negative."""
    return np.ldexp(ring.view(np.int64).astype(np.float64), -exponent)


def uniform(shape: tuple[int, ...]) -> Ring:
    """Uniform elements from the operating system."""
    return np.frombuffer(secrets.token_bytes(8 * int(np.prod(shape))), dtype=np.uint64).reshape(shape)


def new_seed() -> bytes:
    return secrets.token_bytes(SEED_BYTES)


def to_words(values: NDArray[np.floating], summands: int) -> Ring:
    """Floats as two elements each, whole parts and then rests in 2^-52: totals of ``summands`` are exact to 1e-15."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    whole = np.rint(flat)
    return to_ring(np.concatenate([whole, np.rint(np.ldexp(flat - whole, _REST_BITS))]), 0, 2.0**63 / summands)


def from_words(total: Ring) -> NDArray[np.float64]:
    """The numbers back, flat."""
    whole, rest = np.split(from_ring(total, 0), 2)
    return np.asarray(whole + np.ldexp(rest, -_REST_BITS))


def stream(seed: bytes, purpose: str, number: int, shape: tuple[int, ...]) -> Ring:
    """Uniform elements that all holders of ``seed`` can make. Never use one pair (purpose, number) for two things."""
    return key_stream(seed, purpose, number, shape)


def key_stream(seed: bytes, purpose: str, number: int, shape: tuple[int, ...], kind: str = "<u8") -> NDArray[Any]:
    """The same as unsigned integers of another width."""
    key = hashlib.sha256(frame(b"fedsift stream v1", seed, purpose.encode(), number.to_bytes(8, "big"))).digest()
    out = np.zeros(shape, dtype=kind)
    if out.size:
        flat = out.reshape(-1).view(np.uint8).data
        Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update_into(flat, flat)  # zeros: the stream itself
    return out.astype(out.dtype.newbyteorder("="), copy=False)


def lowest_bytes(numbers: NDArray[np.unsignedinteger], count: int) -> NDArray[np.uint8]:
    """Numbers as they travel where so many bytes of each are needed; one axis more."""
    little = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder("<"), copy=False))
    return np.ascontiguousarray(little.view(np.uint8).reshape(*numbers.shape, numbers.itemsize)[..., :count])


def from_lowest_bytes(raw: NDArray[np.uint8], kind: type[np.unsignedinteger]) -> NDArray[Any]:
    """Back, with zeros above."""
    little = np.dtype(kind).newbyteorder("<")
    out = np.zeros((*raw.shape[:-1], little.itemsize), dtype=np.uint8)
    out[..., : raw.shape[-1]] = raw
    return out.view(little)[..., 0].astype(kind, copy=False)


def check_shape(numbers: NDArray[Any], shape: tuple[int, ...], party: str) -> None:
    """Refuse what came in another shape than its mask has: NumPy would spread one mask over several numbers, and the
    difference of two of these is then in the open."""
    if numbers.shape != shape:
        raise SecurityError(f"party {party!r}: expected numbers of the shape {shape}, got {numbers.shape}")


def product(left: Ring, right: Ring) -> Ring:
    """Matrix product modulo 2^64; quickest where ``left`` is a transposed matrix (``x.T``): nothing is copied then."""
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise SecurityError(f"matrices of the shapes {left.shape} and {right.shape} have no product")
    return transposed_product(left.T, right)
