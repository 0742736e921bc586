"""Numbers as elements of Z_2^64: fixed point in and out, sums and matrix products that wrap, streams that mask.

The one ring of shared computing. A value is round(x * 2^exponent) modulo 2^64; ``room`` is the largest magnitude that
the protocol promises, refused where it is not kept, because a product that wraps would be a wrong answer in silence.
A stream is ChaCha20 under a key derived for one seed, one purpose and one number: uniform to whoever lacks the seed.

*Inner products* of two parties' columns that only the coordinator reads, and of which it reads nothing else. Left party
L holds X (rows x a), right party R holds Y (rows x b); both share a secret seed that the coordinator does not have.
From it both draw the same one-time masks A (rows x a), B (rows x b), C (a x b), uniform in Z_2^64, and send

    L: U = X + A,   left  = X'B + C            R: V = Y + B,   right = A'(Y + B) - C

The coordinator computes U'V - left - right = X'Y, exactly, in the ring.

Why it is secure (semi-honest, the coordinator colludes with neither): given X'Y, the coordinator's view can be made up
without the data: U, V and left are uniform and independent (masked by A, B and C, each used once), and right is then
fixed by the result. So it learns X'Y and nothing about a single row. L and R receive nothing at all. U may serve many
Y's, as long as B and C are fresh for each: U is still uniform, and the argument is the same for every one of them.
The coordinator together with L can read Y, and together with R can read X: the masks are theirs.

``Precision`` is how many bits the numbers of a descent under masks may take (``shared_descent.py``), so that none
wraps.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from fedsift.crypto.kernel import transposed_product
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


def key_stream(
    seed: bytes, purpose: str, number: int, shape: tuple[int, ...], kind: str = "<u8"
) -> NDArray[np.unsignedinteger]:
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


def from_lowest_bytes(raw: NDArray[np.uint8], kind: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Back, with zeros above."""
    little = np.dtype(kind).newbyteorder("<")
    out = np.zeros((*raw.shape[:-1], little.itemsize), dtype=np.uint8)
    out[..., : raw.shape[-1]] = raw
    return out.view(little)[..., 0].astype(kind, copy=False)


def check_shape(numbers: np.ndarray, shape: tuple[int, ...], party: str) -> None:
    """Refuse what came in another shape than its mask has: NumPy would spread one mask over several numbers, and the
    difference of two of these is then in the open."""
    if numbers.shape != shape:
        raise SecurityError(f"party {party!r}: expected numbers of the shape {shape}, got {numbers.shape}")


def product(left: Ring, right: Ring) -> Ring:
    """Matrix product modulo 2^64; quickest where ``left`` is a transposed matrix (``x.T``): nothing is copied then."""
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise SecurityError(f"matrices of the shapes {left.shape} and {right.shape} have no product")
    return transposed_product(left.T, right)


def hide_left(x: Ring, seed: bytes, number: int) -> Ring:
    """U: what the left party sends once for all products with this ``x`` under this ``number``."""
    return x + stream(seed, "left mask", number, x.shape)


def left_share(x: Ring, seed: bytes, number: int, width: int) -> Ring:
    """What the left party sends for product ``number`` with a right side of ``width`` columns."""
    mask = stream(seed, "right mask", number, (x.shape[0], width))
    return product(x.T, mask) + stream(seed, "product mask", number, (x.shape[1], width))


def right_message(y: Ring, seed: bytes, left_number: int, number: int, left_width: int) -> tuple[Ring, Ring]:
    """V and the right share, for product ``number`` with the left side that was hidden under ``left_number``."""
    hidden = y + stream(seed, "right mask", number, y.shape)
    left_mask = stream(seed, "left mask", left_number, (y.shape[0], left_width))
    return hidden, product(left_mask.T, hidden) - stream(seed, "product mask", number, (left_width, y.shape[1]))


def open_product(hidden_left: Ring, share_left: Ring, hidden_right: Ring, share_right: Ring) -> Ring:
    """The coordinator's step: X'Y in the ring."""
    return product(hidden_left.T, hidden_right) - share_left - share_right


Floats = NDArray[np.float64]

SCORE_ROOM = 2.0**14  # of a score that the label holder reads, or that is measured on shares
RESIDUAL_ROOM = 64.0  # root mean square of residuals
WEIGHT_BITS = 8  # of the fraction of a row's weight, whose mean is 1
WEIGHT_ROOM = 32.0
_MOST_FRACTION = 22


@dataclass(frozen=True)
class Precision:
    """Fractional bits of columns, weights and residuals: sums of products over all rows stay within the ring."""

    columns: int
    weights: int
    residuals: int

    @classmethod
    def of(cls, rows: int, reads_scores: bool, weighed: bool = False) -> Precision:
        """``weighed``: residuals that nobody reads are multiplied by what their rows count (``row_weights.py``)."""
        room = 62 - rows.bit_length() - int(math.log2(RESIDUAL_ROOM))
        if reads_scores:
            columns = min(_MOST_FRACTION, room // 2)
            return cls(columns, 62 - int(math.log2(SCORE_ROOM)) - columns, room - columns)
        room -= WEIGHT_BITS + int(math.log2(WEIGHT_ROOM)) if weighed else 0
        columns = room // (4 if weighed else 3)  # what columns are rounded by averages out over rows; weights' does not
        return cls(columns, room - 2 * columns, room - columns)


def check_room(lengths: Floats, spread: float, target: float) -> None:
    """For linear residuals, which nobody reads: refuse weights whose scores might not fit the masks' room.

    ``lengths`` are those of the weights (by output), ``spread`` the sum of the parties' spreads, ``target`` the root
    mean square of the target.
    """
    if math.sqrt(spread) * float(np.max(lengths, initial=0.0)) + target >= RESIDUAL_ROOM:
        raise OverflowGuard("the weights grew beyond what the masks leave room for; use a stronger penalty")
