"""Pairwise masks: add up vectors of which nobody sees a single one.

1. ``encode`` / ``decode``: real numbers as fixed-point elements of Z_2^64, with one public exponent.
2. Secure aggregation (Bonawitz et al. 2017, without their double masks): every two parties i < j share a key by
   Diffie-Hellman (``sealed_box.pair_key``) and expand it with ChaCha20 to the same mask vector; i adds it, j subtracts
   it. The masks cancel in the sum over all parties and nowhere else.

Why the aggregation is secure (semi-honest parties): the coordinator has no pair key, so a masked vector is
indistinguishable from a uniform one; it learns the sum, exactly, and no more. Even if all parties but two work
together with it, it learns only the sum of those two. Each mask is bound to both keys, both names, the round, the
purpose and the shape.

What the caller must keep to:

- One vector for each (round, about). Two different vectors under the same pair give away their difference.
- New SealKeys for each run, if rounds count from the start again.
- A party that masked with the wrong round, peers or purpose cannot be detected here: the masks do not cancel and the
  sum is uniform garbage (about 2^(62 - exponent) in size: check the sum against what is plausible).
- The sum itself may tell something: of two parties, each knows the other's vector from the sum and its own.
- If a party's vector does not arrive, the round is repeated with the parties that are left.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import ArrayLike, NDArray

from fedsift.crypto.sealed_box import SealKey, frame, pair_key, round_bytes
from fedsift.errors import CiphertextError, DataError, OverflowGuard, ParameterError, SecurityError

Ring = NDArray[np.uint64]
Floats = NDArray[np.float64]

_LITTLE_ENDIAN = np.dtype("<u8")  # both sides must read a keystream alike, whatever their machines
_NONCE = bytes(16)  # constant: every pair, round, purpose and shape has a ChaCha20 key of its own
_MAX_EXPONENT = 62


# --- fixed point ----------------------------------------------------------------------------------------------------


def encode(values: ArrayLike, exponent: int = 24, summands: int = 1) -> Ring:
    """round(x * 2^exponent) in Z_2^64, negative numbers as two's complement.

    Refuses, before anything can wrap, a value so large that ``summands`` of them might not fit. An error gives the
    position, never the value.
    """
    _check_exponent(exponent)
    if summands < 1:
        raise ParameterError(f"summands must be at least 1, got {summands}")
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("only numbers can be encoded in fixed point; encode texts and categories first") from None
    if not np.isfinite(numbers).all():
        raise DataError(f"the value at {_first(~np.isfinite(numbers))} is not a finite number; fill or drop it first")
    with np.errstate(over="ignore"):  # what overflows to infinity is refused two lines below
        scaled = np.rint(np.ldexp(numbers, exponent))
    # ">=": the limit as a float may be rounded up, but the next smaller float is always within it.
    too_large = np.abs(scaled) >= float((2**63 - 1) // summands)
    if too_large.any():
        raise OverflowGuard(
            f"the value at {_first(too_large)} does not fit: with exponent {exponent} and {summands} summands, values "
            f"must stay below {math.ldexp((2**63 - 1) // summands, -exponent):.6g} in size; scale them down or choose "
            "a smaller exponent"
        )
    return np.asarray(scaled.astype(np.int64)).view(np.uint64)


def decode(ring: Ring, exponent: int = 24) -> Floats:
    """The numbers (or the sum of numbers) that ``encode`` put into the ring. Exact up to 2^53 steps of 2^-exponent."""
    _check_exponent(exponent)
    signed = np.ascontiguousarray(ring, dtype=np.uint64).reshape(np.shape(ring)).view(np.int64)
    return np.asarray(np.ldexp(signed.astype(np.float64), -exponent))


# --- secure aggregation ---------------------------------------------------------------------------------------------


def masked(
    vector: ArrayLike,
    *,
    me: str,
    key: SealKey,
    peers: Mapping[str, bytes],
    round: int,
    exponent: int = 24,
    about: str = "",
) -> Ring:
    """What party ``me`` sends: its vector in fixed point under the masks that it shares with each of ``peers``.

    ``peers`` gives the public key of every *other* party that takes part in this sum.
    """
    _check_peers(me, key, peers)
    total = encode(vector, exponent, summands=len(peers) + 1)
    for name, public in peers.items():
        _add(total, _signed_mask(me, key, name, public, round, about, total.shape))
    return total


def unmask_sum(
    vectors: Mapping[str, Ring] | Sequence[Ring], count: int, exponent: int = 24, *,
    expected: Collection[str] | None = None,
) -> Floats:  # fmt: skip
    """The coordinator's step: the sum of the vectors of all ``count`` parties that masked.

    ``expected`` names those parties, so that an error can name who is missing.
    """
    named = dict(vectors) if isinstance(vectors, Mapping) else {f"#{i}": each for i, each in enumerate(vectors)}
    if expected is not None:
        _check_attendance(named, count, expected)
    elif len(named) != count or not named:
        raise SecurityError(
            f"{len(named)} masked vectors arrived but {count} parties masked, so the masks do not cancel; "
            "pass vectors by name and expected= to see who is missing"
        )
    shape = np.shape(next(iter(named.values())))
    total = np.zeros(shape, dtype=np.uint64)
    for name, vector in named.items():
        _add(total, _checked(vector, shape, f"the masked vector of {name!r}"))
    return decode(total, exponent)


def _check_attendance(vectors: Mapping[str, Ring], count: int, expected: Collection[str]) -> None:
    everyone, arrived = set(expected), set(vectors)
    if len(everyone) != count:
        raise ParameterError(f"expected names {len(everyone)} parties, but count is {count}")
    if arrived - everyone:
        raise ParameterError(f"masked vectors came from {sorted(arrived - everyone)}, which expected does not name")
    missing = everyone - arrived
    if missing:
        raise SecurityError(
            f"no masked vector from {', '.join(map(repr, sorted(missing)))}: the masks do not cancel; repeat the round "
            "with the parties that are left"
        )


def _signed_mask(
    me: str, key: SealKey, name: str, public: bytes, round: int, about: str, shape: tuple[int, ...]
) -> Ring:
    """The mask of a pair as ``me`` adds it: plus for the party whose name sorts first, minus for the other."""
    first, second = sorted((me, name))
    dims = frame(*[each.to_bytes(8, "big") for each in shape])
    context = frame(first.encode(), second.encode(), round_bytes(round), about.encode(), dims)
    mask_key = pair_key(key, public, name=name, purpose="pairwise mask", context=context)
    keystream = Cipher(ChaCha20(mask_key, _NONCE), mode=None).encryptor().update(bytes(8 * math.prod(shape)))
    mask = np.frombuffer(keystream, _LITTLE_ENDIAN).astype(np.uint64).reshape(shape)
    return mask if me == first else np.negative(mask, out=mask)


def _add(total: Ring, term: Ring) -> None:
    """In place and as arrays: wrapping is meant, and NumPy would warn of it for scalars."""
    np.add(total, term, out=total)


def _check_peers(me: str, key: SealKey, peers: Mapping[str, bytes]) -> None:
    if not peers:
        raise ParameterError(f"party {me!r} has no peers: the sum would be its own vector, unmasked")
    if me in peers:
        raise ParameterError(f"peers must not contain {me!r} itself; pass the other parties' public keys")
    publics = [*peers.values(), key.public]
    if len(set(publics)) != len(publics):
        raise ParameterError(f"two parties among {me!r} and its peers have the same public key; each needs its own")


def _check_exponent(exponent: int) -> None:
    if not 0 <= exponent <= _MAX_EXPONENT:
        raise ParameterError(f"exponent must be from 0 to {_MAX_EXPONENT}, got {exponent}")


def _checked(array: Ring, shape: tuple[int, ...], what: str) -> Ring:
    if not isinstance(array, np.ndarray) or array.dtype != np.uint64 or array.shape != shape:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise CiphertextError(f"{what} must be a uint64 array of shape {shape}, got {found}")
    return array


def _first(flags: NDArray[np.bool_]) -> str:
    where = np.unravel_index(int(np.argmax(flags)), flags.shape)
    return f"index {', '.join(str(int(each)) for each in where)}" if where else "index 0"
