"""An encrypted vector under CKKS: its arithmetic, its bookkeeping of bounds, its bytes. Keys are in `ckks`.

Every operation follows two public numbers: how large a value can be (so that nothing wraps around unseen) and how
large its error can be (so that the key owner knows how much noise covers it). A vector travels with both, with its
length and depth, and with the fingerprint of its public key. A checksum finds damage, not forgery: authentic delivery
is the channel's work.
"""

from __future__ import annotations

import hashlib
import math
import operator
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsift.errors import CiphertextError, OverflowGuard, ParameterError
from fedsift.secure.ckks_parameters import CkksParameters

if TYPE_CHECKING:
    from fedsift.secure.ckks import CkksPublicKey

MAX_LENGTH = 2**24
DEFAULT_BOUND = 32.0
"""Values are promised to lie within this unless a caller states another public bound."""

_FLOOD_STEP = 8  # well below the 21 deviations of a fresh error's coefficients, so that the steps leave no gaps
_HEADER = struct.Struct("<4sBIQdd32s")  # magic, depth left, chunks, length, bound, error, fingerprint
_CHUNK_HEADER = struct.Struct("<I")
_DIGEST_BYTES = 32


class CkksVector:
    """An encrypted vector. Operations return new vectors and leave their operands as they were.

    ``length``, ``depth_left`` (multiplications still possible), ``bound`` (largest possible magnitude) and ``error``
    (worst-case error of a value) are public. With plain arrays the operand's magnitude is published through ``bound``,
    so name a public one: ``a.multiply(x, bound=5)``; the operators take DEFAULT_BOUND. Scalars count as public.
    """

    __slots__ = ("_chunks", "bound", "depth_left", "error", "length", "public")
    __array_ufunc__ = None  # lets numpy_array * vector come to __rmul__

    def __init__(
        self, public: CkksPublicKey, chunks: list[Any], length: int, depth_left: int, bound: float, error: float
    ):
        self.public, self._chunks, self.length, self.depth_left = public, chunks, length, depth_left
        self.bound, self.error = float(bound), float(error)

    def __repr__(self) -> str:
        return (
            f"CkksVector(length={self.length}, depth_left={self.depth_left}, bound={self.bound:g}, "
            f"error={self.error:.1g}, key={self.public.fingerprint.hex()[:16]})"
        )

    def __len__(self) -> int:
        return self.length

    def __add__(self, other: Any) -> CkksVector:
        return self.add(other)

    def __sub__(self, other: Any) -> CkksVector:
        return self.subtract(other)

    def __mul__(self, other: Any) -> CkksVector:
        return self.multiply(other)

    def __rsub__(self, other: Any) -> CkksVector:
        return (-self).add(other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> CkksVector:
        return self._like([-chunk for chunk in self._chunks])

    negate = __neg__

    def square(self) -> CkksVector:
        return self.multiply(self)

    def add(self, other: Any, bound: float = DEFAULT_BOUND) -> CkksVector:
        return self._linear(operator.add, other, bound)

    def subtract(self, other: Any, bound: float = DEFAULT_BOUND) -> CkksVector:
        return self._linear(operator.sub, other, bound)

    def multiply(self, other: Any, bound: float = DEFAULT_BOUND) -> CkksVector:
        """Value by value; costs one unit of depth, with a plain operand too."""
        pairs, depth, bound, error = self._pairs(other, bound)
        parameters = self.public.parameters
        if depth == 0:
            raise CiphertextError(
                f"no multiplication is left: the key allows {parameters.depth} in a row; generate it with more depth"
            )
        # a plain factor of nothing but zeros gives a fresh encryption of zero
        error = max(parameters.product_error(self.bound, self.error, bound, error), parameters.fresh_error(0.0))
        self._guard(self.bound * bound + error)
        chunks = [self._product(left, right) for left, right in pairs]
        return CkksVector(self.public, chunks, self.length, depth - 1, self.bound * bound, error)

    def sum_chunks(self) -> CkksVector:
        """Add the chunks of a long vector up: slot by slot partial sums, as short as one ciphertext.

        The key owner sees the partial sums, not just the total: see `total`.
        """
        count = len(self._chunks)
        self._guard(count * (self.bound + self.error))
        chunk = self._chunks[0]
        for more in self._chunks[1:]:
            chunk = chunk + more
        length = min(self.length, self.public.parameters.slots)
        return CkksVector(self.public, [chunk], length, self.depth_left, count * self.bound, count * self.error)

    def total(self) -> CkksVector:
        """The sum of all values as a vector of length 1. Needs a key generated with ``rotations=True``."""
        if not self.public.rotations:
            raise ParameterError("total() rotates ciphertexts: generate the key with rotations=True")
        if self.length == 1:
            return self
        parameters = self.public.parameters
        folded = self.sum_chunks()
        error = parameters.slots * (folded.error + parameters.key_switch_error())
        self._guard(self.length * self.bound + error)
        chunk = folded._chunks[0].sum()
        return CkksVector(self.public, [chunk], 1, self.depth_left, self.length * self.bound, error)

    def blind(self, flood_bits: int = 0) -> CkksVector:
        """The same values in a ciphertext that cannot be linked to those it was computed from.

        ``flood_bits=0`` adds a fresh encryption of zero: who has no secret key (a relay) cannot tell what was done.
        The key owner still reads the error, and it tells about the operands. Against the owner, ``flood_bits=f`` hides
        it under noise about ``2**f * sqrt(N)`` times as wide as the worst error, in all N dimensions of the ciphertext
        (noise on the values alone leaves their imaginary parts bare): the sum of 8**i times fresh encryptions of zero,
        whose errors are near Gaussian. Statistical distance then about ``2**-f``; ``error`` shows the cost.
        """
        if flood_bits < 0:
            raise ParameterError(f"flood_bits must be 0 or more, not {flood_bits!r}")
        parameters = self.public.parameters
        steps = 0
        if flood_bits:
            width = 2.0**flood_bits * math.sqrt(parameters.poly_modulus_degree) * self.error
            steps = max(0, math.ceil(math.log(width / parameters.rounding_deviation, _FLOOD_STEP)))
        growth = sum(float(_FLOOD_STEP) ** step for step in range(steps + 1))
        error = self.error + growth * parameters.fresh_error(0.0)
        self._guard(self.bound + error)
        chunks = [chunk + self._flood_chunk(chunk, steps) for chunk in self._chunks]
        return CkksVector(self.public, chunks, self.length, self.depth_left, self.bound, error)

    def _flood_chunk(self, like: Any, steps: int) -> Any:
        zeros = [0.0] * like.size()
        noise = self.public._encrypt_chunk(zeros)
        for _ in range(steps):
            for _ in range(_FLOOD_STEP.bit_length() - 1):
                noise = noise + noise
            noise = noise + self.public._encrypt_chunk(zeros)
        return noise

    def _linear(self, function: Callable[[Any, Any], Any], other: Any, bound: float) -> CkksVector:
        pairs, depth, bound, error = self._pairs(other, bound)
        self._guard(self.bound + bound + self.error + error)
        try:
            chunks = [function(left, right) for left, right in pairs]
        except RuntimeError as problem:
            if "transparent" not in str(problem):
                raise CiphertextError(f"the vectors cannot be combined ({problem})") from None
            # A ciphertext minus itself would be a plain zero for all to see; SEAL refuses it.
            return self.blind()._linear(function, other, bound)
        return CkksVector(self.public, chunks, self.length, depth, self.bound + bound, self.error + error)

    def _pairs(self, other: Any, bound: float) -> tuple[list[tuple[Any, Any]], int, float, float]:
        """Operands chunk by chunk, the depth they share, and the other one's bound and error."""
        parameters = self.public.parameters
        if not isinstance(other, CkksVector):
            if np.ndim(other) == 0:
                other = np.repeat(as_vector([other]), self.length)
                bound = abs(other[0])
            array = as_vector(other)
            self._check_length(len(array))
            check_bound(array, bound, parameters)
            plain = split(array, parameters.slots)
            return list(zip(self._chunks, plain)), self.depth_left, float(bound), parameters.encoding_error(bound)
        if other.public.fingerprint != self.public.fingerprint:
            raise CiphertextError("the two vectors were encrypted under different public keys")
        self._check_length(other.length)
        left, right = self._chunks, other._chunks
        # TenSEAL brings the fresher operand down to the other's level in place: give it a copy to spoil.
        if self.depth_left > other.depth_left:
            left = [_copy(chunk) for chunk in left]
        elif other.depth_left > self.depth_left:
            right = [_copy(chunk) for chunk in right]
        return list(zip(left, right)), min(self.depth_left, other.depth_left), other.bound, other.error

    def _product(self, left: Any, right: Any) -> Any:
        product = left * right
        if _primes(product) < _primes(left):
            return product
        # TenSEAL answers a plain factor of zeros with a fresh zero at the top level, which would show that it was zero.
        lower = left * 1.0
        return (lower + product) - lower

    def _like(self, chunks: list[Any]) -> CkksVector:
        return CkksVector(self.public, chunks, self.length, self.depth_left, self.bound, self.error)

    def _check_length(self, length: int) -> None:
        if length != self.length:
            raise ParameterError(f"a vector of {self.length} values cannot be combined with one of {length}")

    def _guard(self, largest: float) -> None:
        most = self.public.parameters.max_bound
        if not largest <= most:
            raise OverflowGuard(
                f"values up to {largest:g} could wrap around: the key holds up to {most:g}; "
                "generate it with more magnitude_bits, or state smaller bounds"
            )

    def to_bytes(self) -> bytes:
        numbers = (self.depth_left, len(self._chunks), self.length, self.bound, self.error)
        parts = [_HEADER.pack(b"FSV1", *numbers, self.public.fingerprint)]
        for chunk in self._chunks:
            body = chunk.serialize()
            parts += [_CHUNK_HEADER.pack(len(body)), body]
        return add_digest(b"".join(parts))

    @classmethod
    def from_bytes(cls, data: bytes, public: CkksPublicKey) -> CkksVector:
        """Read what `to_bytes` wrote. CiphertextError on anything damaged, foreign, oversized or inconsistent."""
        body = check_digest(data, b"FSV1", _HEADER.size, "vector")
        _, depth, count, length, bound, error, fingerprint = _HEADER.unpack_from(body)
        parameters = public.parameters
        if fingerprint != public.fingerprint:
            raise CiphertextError("vector: it was encrypted under another public key")
        if not 1 <= length <= MAX_LENGTH or count != math.ceil(length / parameters.slots):
            raise CiphertextError(f"vector: {count} chunks cannot hold {length} values (at most {MAX_LENGTH})")
        if depth > parameters.depth or not (0 <= bound <= parameters.max_bound and 0 <= error <= parameters.max_bound):
            raise CiphertextError("vector: its declared depth, bound or error is impossible")
        chunks, position = [], _HEADER.size
        for _ in range(count):
            chunk, position = _read_chunk(body, position, public, depth, 1 if length == 1 else parameters.slots)
            chunks.append(chunk)
        if position != len(body):
            raise CiphertextError(f"vector: {len(body) - position} bytes too many after the last chunk")
        return cls(public, chunks, length, depth, bound, max(error, parameters.rounding_error))


def _read_chunk(body: bytes, position: int, public: CkksPublicKey, depth: int, size: int) -> tuple[Any, int]:
    import tenseal

    parameters = public.parameters
    primes = parameters.primes_at(depth)
    start = position + _CHUNK_HEADER.size
    if start > len(body):
        raise CiphertextError("vector: it ends before its last chunk")
    end = start + _CHUNK_HEADER.unpack_from(body, position)[0]
    most = 2 * 8 * parameters.poly_modulus_degree * primes + 4096  # two polynomials, eight bytes a coefficient
    if end > len(body) or end - start > most:
        raise CiphertextError(f"vector: a chunk of {end - start} bytes is longer than the data, or than {most}")
    try:
        chunk = tenseal.ckks_vector_from(public._context, body[start:end])
        (ciphertext,) = chunk.ciphertext()
        found = (chunk.size(), ciphertext.size(), ciphertext.coeff_modulus_size(), ciphertext.scale)
        transparent = ciphertext.is_transparent()
    except Exception as problem:  # SEAL and protobuf raise many kinds on bytes that are no ciphertext
        raise CiphertextError(f"vector: a chunk is no ciphertext of this key ({type(problem).__name__})") from None
    if found != (size, 2, primes, parameters.scale) or transparent:
        raise CiphertextError("vector: a chunk's size, level or scale is not what the header declares")
    return chunk, end


def add_digest(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def check_digest(data: bytes, magic: bytes, header: int, what: str) -> bytes:
    """The data without its checksum, once magic, smallest length and checksum are right."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise CiphertextError(f"{what}: expected bytes, not {type(data).__name__}")
    data = bytes(data)
    if len(data) < header + _DIGEST_BYTES or data[: len(magic)] != magic:
        raise CiphertextError(f"{what}: these {len(data)} bytes are not one of ours, or cut short")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise CiphertextError(f"{what}: the checksum does not match: truncated or changed on the way")
    return body


def as_vector(values: ArrayLike) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"expected a vector of numbers, not {type(values).__name__}") from None
    if array.ndim != 1 or not 1 <= array.size <= MAX_LENGTH:
        raise ParameterError(f"expected a vector of 1 to {MAX_LENGTH} numbers, not an array of shape {array.shape}")
    if not np.isfinite(array).all():
        raise ParameterError("a vector to encrypt or combine has missing or infinite values: fill or drop them first")
    return array


def check_bound(array: NDArray[np.float64], bound: float, parameters: CkksParameters) -> None:
    """The public bound must hold; the message does not say by how much it fails, which would be private."""
    if not 0 <= bound <= parameters.max_bound:
        raise ParameterError(f"bound must lie between 0 and {parameters.max_bound:g} for this key, not {bound!r}")
    if np.abs(array).max() > bound:
        raise OverflowGuard(f"a value exceeds its public bound of {bound:g}: clip the values or pass a larger bound=")


def split(array: NDArray[np.float64], slots: int) -> list[list[float]]:
    """Chunks of exactly ``slots`` values, padded with zeros; a single value stays alone (TenSEAL repeats it)."""
    if array.size == 1:
        return [array.tolist()]
    padded = np.zeros(math.ceil(array.size / slots) * slots)
    padded[: array.size] = array
    return padded.reshape(-1, slots).tolist()


def _copy(chunk: Any) -> Any:
    return (-chunk).neg_()  # TenSEAL's own copy() takes the context along and is 400 times slower


def _primes(chunk: Any) -> int:
    return chunk.ciphertext()[0].coeff_modulus_size()
