"""Oblivious pseudorandom function on ristretto255: pseudonyms for ids that nobody else can guess or test.

Two forms, one group (128-bit security, order L prime, so no small subgroups):

1. One key: RFC 9497, ciphersuite ristretto255-SHA512, base mode (0x00). A client learns F(k, x) of its own x, the
   server learns nothing about x::

       client                                  server (holds key)
       secret, blinded = blind(ids)   ------>  evaluated = evaluate(key, blinded)
       finalize(ids, secret, evaluated)  <----

2. Two keys: F(x) = H(x)^(k1 * k2), pseudonym = hash(context, F(x)). P1 and P2 each hold one key; each gets the
   pseudonyms of its own ids and no others::

       P1 (holds k1)                                    P2 (holds k2)
       secret, blinded = blind(ids)            ------>  evaluated = evaluate(k2, blinded)
       joint_pseudonyms(k1, secret, evaluated, context)  <----

   and the same with the roles exchanged. More than two parties: let the blinded points pass through every other
   party's ``evaluate`` before they come back.

Why it is secure (semi-honest parties, one-more gap Diffie-Hellman in the random oracle model):

- A blinded point is H(x)^r with a fresh uniform r for each id: a uniform group element, whatever x is. Who evaluates
  learns only how many ids there are; equal ids do not look equal.
- Ids are guessable (names, phone numbers), so a plain or salted hash would fall to a dictionary. Here a guess can be
  tested only with both keys: a coordinator that sees pseudonyms has none, and a party needs one evaluation by the
  other for each guess, which is a query in a counted message.
- Every incoming point is checked to be a canonical encoding of a group element other than the identity, so a peer
  cannot send something on which a key acts degenerately. Points are multiplied in constant time, sixteen at a time
  (``_ristretto.c``) or one (``_ristretto_portable.c``), or by libsodium where nothing was compiled: the same bytes.

Not covered: base mode has no proof that a peer used the same key throughout. A peer that lies spoils the match; it
does not see more. A party may ask about ids that it does not really have: limit the number of ids if that matters.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from fedsift.crypto.kernel import library, shared
from fedsift.crypto.sodium import sodium
from fedsift.errors import CiphertextError, ParameterError

POINT_BYTES = 32
SCALAR_BYTES = 32
OUTPUT_BYTES = 64

_ORDER = 2**252 + 27742317777372353535851937790883648493
_ONE = (1).to_bytes(SCALAR_BYTES, "little")
_SEED_BYTES = 32
_MAX_INPUT_BYTES = 2**16 - 1  # RFC 9497 writes the length of an input in two bytes
_PARALLEL_FROM = 256  # below this many elements starting threads costs more than it saves
_PARALLEL_HASHES = 20_000

_MODE_BASE = b"\x00"
_CONTEXT = b"OPRFV1-" + _MODE_BASE + b"-ristretto255-SHA512"
_DST_GROUP = b"HashToGroup-" + _CONTEXT
_DST_SCALAR = b"HashToScalar-" + _CONTEXT
_DST_KEY = b"DeriveKeyPair" + _CONTEXT
_PSEUDONYM_LABEL = b"fedsift pseudonym v1"
_PRF_LABEL = b"fedsift keyed digest v1"


@dataclass(frozen=True, repr=False, eq=False)
class OprfKey:
    """A secret scalar, 0 < k < L. Make one for each run, so that pseudonyms of two runs cannot be linked."""

    _scalar: bytes

    def __post_init__(self) -> None:
        if not isinstance(self._scalar, bytes) or len(self._scalar) != SCALAR_BYTES:
            raise ParameterError(f"an OPRF key is made from exactly {SCALAR_BYTES} bytes; use OprfKey.generate()")
        if not 0 < int.from_bytes(self._scalar, "little") < _ORDER:
            raise ParameterError("an OPRF key must lie between 1 and the group order; use OprfKey.generate()")

    def __repr__(self) -> str:
        return "OprfKey(<secret>)"

    @classmethod
    def generate(cls) -> OprfKey:
        """A fresh key from the operating system's generator."""
        return cls(sodium.crypto_core_ristretto255_scalar_random())

    def inverse(self) -> OprfKey:
        """The key that undoes this one."""
        return OprfKey(sodium.crypto_core_ristretto255_scalar_invert(self._scalar))

    @classmethod
    def derive(cls, seed: bytes, info: bytes) -> OprfKey:
        """RFC 9497 DeriveKeyPair: the key that belongs to a secret 32-byte ``seed`` and a public ``info``."""
        if not isinstance(seed, bytes) or len(seed) != _SEED_BYTES:
            raise ParameterError(f"seed must be {_SEED_BYTES} secret random bytes")
        if len(info) > _MAX_INPUT_BYTES:
            raise ParameterError(f"info must be at most {_MAX_INPUT_BYTES} bytes, got {len(info)}")
        derivation = seed + len(info).to_bytes(2, "big") + info
        for counter in range(256):
            scalar = hash_to_scalar(derivation + bytes([counter]), dst=_DST_KEY)
            if any(scalar):
                return cls(scalar)
        raise ParameterError("no key follows from this seed; choose another seed")  # probability below 2**-60000


@dataclass(frozen=True, repr=False, eq=False)
class Blind:
    """The random scalars that hide a batch of ids, one an id. They stay with the party that made them."""

    _scalars: bytes

    def __post_init__(self) -> None:
        if len(self._scalars) % SCALAR_BYTES:
            raise ParameterError(f"a Blind holds {SCALAR_BYTES} bytes an id; get one from blind(ids)")

    def __len__(self) -> int:
        return len(self._scalars) // SCALAR_BYTES

    def __repr__(self) -> str:
        return f"Blind(<{len(self)} secrets>)"

    def _divide(self, numerator: bytes) -> bytes:
        """numerator / blind for each blind, packed.

        Montgomery's trick: from numerator / (r_0 * ... * r_i) step down through the products r_0 * ... * r_(i-1). Three
        multiplications a scalar and one inversion in all, where an inversion alone takes half as long as a point.
        """
        if not len(self):
            return b""
        times = sodium.crypto_core_ristretto255_scalar_mul
        scalars = _split(self._scalars)
        products = list(accumulate(scalars, times))
        rest = times(numerator, sodium.crypto_core_ristretto255_scalar_invert(products[-1]))
        quotients = []
        for index in range(len(scalars) - 1, 0, -1):
            quotients.append(times(rest, products[index - 1]))
            rest = times(rest, scalars[index])
        return b"".join([rest, *reversed(quotients)])


def hash_to_group(ids: Sequence[bytes]) -> bytes:
    """H(x) for each id (RFC 9497 HashToGroup), packed 32 bytes a point."""
    uniform = _uniform(ids)
    kernel = library()
    if kernel is not None:
        return _by_kernel(
            len(ids), lambda start, count, out: kernel.fedsift_ristretto_map(uniform[64 * start :], count, out)
        )
    from_hash = sodium.crypto_core_ristretto255_from_hash

    def work(start: int, stop: int) -> bytes:
        return b"".join([from_hash(uniform[at : at + 64]) for at in range(64 * start, 64 * stop, 64)])

    return _in_parallel(len(ids), work)


def hash_and_multiply(ids: Sequence[bytes], key: OprfKey) -> bytes:
    """``multiply(hash_to_group(ids), key)``, which is faster in one go: points between the two need no encoding."""
    return _hash_and_scale(ids, key._scalar)


def hash_to_scalar(message: bytes, *, dst: bytes = _DST_SCALAR) -> bytes:
    """A scalar below the group order, as 32 bytes (RFC 9497 HashToScalar)."""
    scalar: bytes = sodium.crypto_core_ristretto255_scalar_reduce(_expand_message(message, dst))
    return scalar


def multiply(points: bytes, key: OprfKey) -> bytes:
    """Raise every packed point to the key. Refuses what is no valid point, and names its index."""
    return _scale(points, key._scalar)


def blind(ids: Sequence[bytes]) -> tuple[Blind, bytes]:
    """Hide each id under a scalar of its own: what to keep, and the points to send (RFC 9497 Blind)."""
    scalars = b"".join([sodium.crypto_core_ristretto255_scalar_random() for _ in range(len(ids))])
    return _blind_with(ids, Blind(scalars))


def evaluate(key: OprfKey, blinded: bytes) -> bytes:
    """The other side's step, in the same order (RFC 9497 BlindEvaluate)."""
    return multiply(blinded, key)


def finalize(ids: Sequence[bytes], blind: Blind, evaluated: bytes) -> bytes:
    """Take the blinds off and hash: the 64-byte outputs of the one-key form, packed (RFC 9497 Finalize)."""
    _check_ids(ids)
    if len(ids) != len(blind):
        raise ParameterError(f"{len(ids)} ids do not belong to a Blind of {len(blind)}; pass the ids that were blinded")
    _check_answers(blind, evaluated)
    points = _scale(evaluated, blind._divide(_ONE))
    point_length = POINT_BYTES.to_bytes(2, "big")
    outputs = [
        hashlib.sha512(len(each).to_bytes(2, "big") + each + point_length + point + b"Finalize").digest()
        for each, point in zip(ids, _split(points))
    ]
    return b"".join(outputs)


def joint_points(key: OprfKey, blind: Blind, evaluated: bytes) -> bytes:
    """The two-key form: H(x)^(k1 * k2) for each blinded id, from the points that the other party evaluated.

    Own key and inverse blind are multiplied as scalars first, so that each id costs one point multiplication.
    """
    _check_answers(blind, evaluated)
    return _scale(evaluated, blind._divide(key._scalar))


def pseudonyms(points: bytes, context: bytes, size: int = 16) -> bytes:
    """SHA-512 of (context, point), cut to ``size`` bytes each and packed.

    ``context`` names the run and the purpose: pseudonyms of two contexts cannot be linked without the points. Among n
    ids in all, two different ones meet with probability below n^2 / 2^(8 * size + 1): 2^-69 for a billion at 16 bytes.
    """
    if not 8 <= size <= OUTPUT_BYTES:
        raise ParameterError(f"size must be from 8 to {OUTPUT_BYTES} bytes, got {size}")
    _count(points)
    # The length prefix keeps (context, point) unambiguous; the label keeps it apart from RFC 9497 outputs.
    ends = np.arange(0, len(points) + 1, POINT_BYTES, dtype=np.int64)
    return _digests(points, ends, size, before=_PSEUDONYM_LABEL + len(context).to_bytes(8, "big") + context)


def keyed_digests(messages: Sequence[bytes], key: bytes, size: int = 16) -> np.ndarray:
    """A pseudorandom function of each message under a key of 32 bytes, ``size`` bytes a row: SHA-512(label, key, m).

    At most half of SHA-512's state leaves, so that nobody who sees a value can go on from it to a longer message."""
    if len(key) != 32 or not 0 < size <= 32:
        raise ParameterError(f"keyed digests take a key of 32 bytes and have 1 to 32; got {len(key)} and {size}")
    data, ends = _joined(messages)
    return np.frombuffer(_digests(data, ends, size, before=_PRF_LABEL + key), np.uint8).reshape(len(messages), size)


def joint_pseudonyms(key: OprfKey, blind: Blind, evaluated: bytes, context: bytes, size: int = 16) -> bytes:
    """The last call of the two-key form: the pseudonyms of the ids that were blinded, in their order."""
    return pseudonyms(joint_points(key, blind, evaluated), context, size)


def _blind_with(ids: Sequence[bytes], secret: Blind) -> tuple[Blind, bytes]:
    """Apart from ``blind`` only so that the published test vectors, which fix the scalars, can be checked."""
    return secret, _hash_and_scale(ids, secret._scalars)


def _hash_and_scale(ids: Sequence[bytes], scalars: bytes) -> bytes:
    kernel = library()
    if kernel is None:
        return _scale(hash_to_group(ids), scalars)
    uniform, step = _uniform(ids), _step(scalars, len(ids))

    def work(start: int, count: int, out: object) -> None:
        kernel.fedsift_ristretto_map_scale(uniform[64 * start :], count, scalars[start * step :], step, out)

    return _by_kernel(len(ids), work)


def _uniform(ids: Sequence[bytes]) -> bytes:
    """RFC 9380 expand_message_xmd of each id, 64 bytes: what its point is made of."""
    _check_ids(ids)
    prime = _DST_GROUP + bytes([len(_DST_GROUP)])
    data, ends = _joined(ids)
    first = _digests(data, ends, OUTPUT_BYTES, before=bytes(128), after=(64).to_bytes(2, "big") + b"\x00" + prime)
    return _digests(first, OUTPUT_BYTES * np.arange(len(ids) + 1), OUTPUT_BYTES, after=b"\x01" + prime)


def _joined(messages: Sequence[bytes]) -> tuple[bytes, np.ndarray]:
    """All messages in one piece, and where each begins and ends."""
    ends = np.zeros(len(messages) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)), out=ends[1:])
    return b"".join(messages), ends


def _digests(data: bytes, ends: np.ndarray, size: int, *, before: bytes = b"", after: bytes = b"") -> bytes:
    """The first bytes of SHA-512(before, message, after) of each message ``data[ends[i] : ends[i + 1]]``, packed."""
    count, kernel = len(ends) - 1, library()
    if kernel is None:
        begun, names = hashlib.sha512(before), []
        for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist()):
            state = begun.copy()
            state.update(data[start:stop] + after)
            names.append(state.digest()[:size])
        return b"".join(names)
    places = np.ascontiguousarray(ends, np.int64)

    def part(start: int, stop: int) -> bytes:
        out = ctypes.create_string_buffer(max(1, (stop - start) * size))
        kernel.fedsift_sha512(
            before, len(before), data, places[start:].ctypes.data, stop - start, after, len(after), size, out
        )
        return out.raw[: (stop - start) * size]

    return b"".join(shared(part, np.arange(count + 1), _PARALLEL_HASHES))


def _expand_message(message: bytes, dst: bytes) -> bytes:
    """RFC 9380 expand_message_xmd with SHA-512, for 64 bytes: one output block, so the loop of the RFC is one step."""
    dst_prime = dst + bytes([len(dst)])
    first = hashlib.sha512(bytes(128) + message + (64).to_bytes(2, "big") + b"\x00" + dst_prime).digest()
    return hashlib.sha512(first + b"\x01" + dst_prime).digest()


def _scale(points: bytes, scalars: bytes) -> bytes:
    """Each point times its own scalar, or all times a single one.

    Points are decoded strictly; an invalid encoding and the identity are refused by their number. As scalars are never
    zero and the order is prime, only the identity gives the identity.
    """
    count = _count(points)
    step = _step(scalars, count)
    high = np.frombuffer(points, np.uint8)[POINT_BYTES - 1 :: POINT_BYTES] >> 7
    if high.any():  # RFC 9496 refuses it; libsodium overlooks it
        raise _no_point(int(high.argmax()), count)
    kernel = library()
    if kernel is not None:

        def scaled(start: int, size: int, out: object) -> None:
            given = scalars[start * step :] if step else scalars
            bad = kernel.fedsift_ristretto_scale(points[start * POINT_BYTES :], size, given, step, out)
            if bad >= 0:
                raise _no_point(start + bad, count)

        return _by_kernel(count, scaled)
    multiply_one = sodium.crypto_scalarmult_ristretto255

    def work(start: int, stop: int) -> bytes:
        out: list[bytes] = []
        try:
            for index in range(start, stop):
                own, at = index * step, index * POINT_BYTES
                out.append(multiply_one(scalars[own : own + SCALAR_BYTES], points[at : at + POINT_BYTES]))
        except RuntimeError:
            raise _no_point(start + len(out), count) from None
        return b"".join(out)

    return _in_parallel(count, work)


def _step(scalars: bytes, count: int) -> int:
    """How many bytes lie between the scalars of two points: none where one serves all."""
    step = 0 if len(scalars) == SCALAR_BYTES else SCALAR_BYTES
    if step and len(scalars) != count * SCALAR_BYTES:
        raise ParameterError(f"{count} points need one scalar or {count}, not {len(scalars)} bytes")
    return step


def _no_point(number: int, count: int) -> CiphertextError:
    return CiphertextError(
        f"element {number} of {count} is not a valid group element (damaged, or the identity); "
        "the sender must repeat the message"
    )


def _by_kernel(count: int, work: Callable[[int, int, Any], None]) -> bytes:
    """``work(start, count, where)`` writes so many points."""

    def part(start: int, stop: int) -> bytes:
        out = ctypes.create_string_buffer(max(1, (stop - start) * POINT_BYTES))
        work(start, stop - start, out)
        return out.raw[: (stop - start) * POINT_BYTES]

    return _in_parallel(count, part)


def _in_parallel(count: int, work: Callable[[int, int], bytes]) -> bytes:
    """Join ``work(start, stop)`` over all elements; the kernel and libsodium leave Python's lock free meanwhile."""
    return b"".join(shared(work, np.arange(count + 1), _PARALLEL_FROM))


def _count(points: bytes) -> int:
    if not isinstance(points, bytes):
        raise CiphertextError(f"packed group elements must be bytes, got {type(points).__name__}")
    count, rest = divmod(len(points), POINT_BYTES)
    if rest:
        raise CiphertextError(
            f"packed group elements take {POINT_BYTES} bytes each, but {len(points)} bytes arrived: truncated message"
        )
    return count


def _split(points: bytes) -> list[bytes]:
    return [points[at : at + POINT_BYTES] for at in range(0, len(points), POINT_BYTES)]


def _check_answers(blind: Blind, evaluated: bytes) -> None:
    count = _count(evaluated)
    if count != len(blind):
        raise CiphertextError(f"{len(blind)} blinded elements were sent, but {count} came back evaluated")


def _check_ids(ids: Sequence[bytes]) -> None:
    """The messages give the position, never the id."""
    if {bytes}.issuperset(map(type, ids)) and max(map(len, ids), default=0) <= _MAX_INPUT_BYTES:
        return
    for index, each in enumerate(ids):
        if not isinstance(each, bytes):
            raise ParameterError(f"ids[{index}] must be bytes, got {type(each).__name__}; encode ids first")
        if len(each) > _MAX_INPUT_BYTES:
            raise ParameterError(f"ids[{index}] has {len(each)} bytes; at most {_MAX_INPUT_BYTES} are allowed")
