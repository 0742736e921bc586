"""An encrypted vector under CKKS: its arithmetic with plain numbers, its bookkeeping of bounds, its bytes.

Every operation follows two public numbers: how large a value can be (so that nothing wraps around unseen) and how
large its error can be (so that the key owner knows how much noise covers it). A vector travels with both, with its
length and depth, and with the fingerprint of its public key. A checksum finds damage, not forgery: authentic delivery
is the channel's work.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsift.core.message import wire_type
from fedsift.crypto import seal_io
from fedsift.crypto.ckks.parameters import CkksParameters, Ring
from fedsift.crypto.seal_io import Seal
from fedsift.errors import CiphertextError, OverflowGuard, ParameterError

MAX_LENGTH = 2**24
DEFAULT_BOUND = 32.0
"""Values are promised to lie within this unless a caller states another public bound."""

_FLOOD_REACH = 9.0  # a complex Gaussian of deviation 1 in both parts is beyond 9 with probability 2**-58
_HEADER = struct.Struct("<4sBBIQdd32s")  # magic, depth left, paired, chunks, length, bound, error, fingerprint
_DIGEST_BYTES = 32
_BOX_HEADER = struct.Struct("<4sII")  # magic, ring degree, number of vectors
_BOX_LENGTH = struct.Struct("<QI")  # bytes, chunks
_BOX_MAGIC = b"FSB2"


class PublicKey(Protocol):
    """What a vector needs of the key that it is encrypted under (``keys.CkksPublicKey``)."""

    parameters: CkksParameters
    ring: Ring
    fingerprint: bytes

    def encrypt_zero(self, depth: int) -> Seal: ...


class CkksVector:
    """An encrypted vector. Operations return new vectors and leave their operands as they were.

    ``length``, ``depth_left`` (multiplications still possible), ``bound`` (largest possible magnitude), ``error``
    (worst-case error of a value) and ``paired`` (the values are complex) are public. The magnitude of the plain operand
    is published through ``bound``, so name a public one: ``a.multiply(x, bound=5)``.
    """

    __slots__ = ("_chunks", "bound", "depth_left", "error", "length", "paired", "public")

    def __init__(
        self, public: PublicKey, chunks: list[Seal], length: int, depth_left: int, bound: float, error: float,
        paired: bool = False,
    ):  # fmt: skip
        self.public, self._chunks, self.length, self.depth_left = public, chunks, length, depth_left
        self.bound, self.error, self.paired = float(bound), float(error), bool(paired)

    def __repr__(self) -> str:
        return (
            f"CkksVector(length={self.length}, depth_left={self.depth_left}, bound={self.bound:g}, "
            f"error={self.error:.1g}, key={self.public.fingerprint.hex()[:16]})"
        )

    def __len__(self) -> int:
        return self.length

    def add(self, plain: ArrayLike, bound: float = DEFAULT_BOUND) -> CkksVector:
        """With plain numbers, value by value."""
        pairs, error, paired = self._pairs(plain, bound)
        self._guard(self.bound + bound + self.error + error)
        chunks = [self._made("add_plain", left, right) for left, right in pairs]
        bound, error = self.bound + bound, self.error + error
        return CkksVector(self.public, chunks, self.length, self.depth_left, bound, error, paired)

    def multiply(self, plain: ArrayLike, bound: float = DEFAULT_BOUND) -> CkksVector:
        """By plain numbers, value by value; costs one unit of depth."""
        pairs, error, paired = self._pairs(plain, bound)
        parameters = self.public.parameters
        if self.depth_left == 0:
            raise CiphertextError(
                f"no multiplication is left: the key allows {parameters.depth} in a row; generate it with more depth"
            )
        # a plain factor of nothing but zeros gives a fresh encryption of zero
        error = max(parameters.product_error(self.bound, self.error, bound, error), parameters.fresh_error(0.0))
        self._guard(self.bound * bound + error)
        chunks = [self._product(left, right) for left, right in pairs]
        return CkksVector(self.public, chunks, self.length, self.depth_left - 1, self.bound * bound, error, paired)

    def blind(self, flood_bits: int = 0) -> CkksVector:
        """The same values in a ciphertext that cannot be linked to those it was computed from.

        ``flood_bits=0`` adds a fresh encryption of zero: who has no secret key (a relay) cannot tell what was done.
        The key owner still reads the error, and it tells about the operands. Against the owner, ``flood_bits=f`` adds
        Gaussian noise of deviation ``s = 2**f * sqrt(N) * error`` to the real and the imaginary part of every slot: in
        all N dimensions of the plaintext. An error of at most ``error`` in each slot moves it by at most
        ``sqrt(N) * error`` in all, so the Kullback-Leibler divergence from noise on the exact result is at most
        ``2**-(2f + 1)`` and the statistical distance ``2**-(f + 1)``. The other half of the ciphertext looks random to
        the owner too: it is hidden by that of the fresh encryption, a ring-LWE sample in its one-time secret.
        ``error`` shows the cost.
        """
        if flood_bits < 0:
            raise ParameterError(f"flood_bits must be 0 or more, not {flood_bits!r}")
        parameters = self.public.parameters
        width = 2.0**flood_bits * math.sqrt(parameters.poly_modulus_degree) * self.error if flood_bits else 0.0
        error = self.error + parameters.fresh_error(0.0) + _FLOOD_REACH * width
        if flood_bits:
            error += parameters.encoding_error(_FLOOD_REACH * width)
        self._guard(self.bound + error)
        chunks = []
        for chunk in self._chunks:
            chunks.append(self._made("add", chunk, self.public.encrypt_zero(self.depth_left)))
            if flood_bits:
                noise = width * os_gaussian(2 * parameters.slots).view(np.complex128)
                self._evaluator.add_plain_inplace(chunks[-1], self.public.ring.encode(noise.tolist(), self.depth_left))
        return CkksVector(self.public, chunks, self.length, self.depth_left, self.bound, error, self.paired)

    @property
    def _evaluator(self) -> Seal:
        return self.public.ring.evaluator

    def _made(self, function: str, *operands: Seal) -> Seal:
        """A new ciphertext by SEAL's function of that name."""
        out = self.public.ring.api.Ciphertext(self.public.ring.context)
        getattr(self._evaluator, function)(*operands, out)
        return out

    def _pairs(self, plain: ArrayLike, bound: float) -> tuple[list[tuple[Seal, Seal]], float, bool]:
        """The chunks, each with its part of the plain numbers; the error of those; whether the result is complex."""
        parameters = self.public.parameters
        array = as_vector(plain)
        self._check_length(len(array))
        check_bound(array, bound, parameters)
        parts = [self.public.ring.encode(part, self.depth_left) for part in split(array, parameters.slots)]
        return list(zip(self._chunks, parts)), parameters.encoding_error(bound), self.paired or np.iscomplexobj(array)

    def _product(self, chunk: Seal, plain: Seal) -> Seal:
        if plain.is_zero():  # the product would be a plain zero for all to see
            return self.public.encrypt_zero(self.depth_left - 1)
        product = self._made("multiply_plain", chunk, plain)
        self._evaluator.rescale_to_next_inplace(product)
        product.scale = self.public.parameters.scale
        return product

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
        """Of the same length for all vectors of that length and level."""
        numbers = (self.depth_left, self.paired, len(self._chunks), self.length, self.bound, self.error)
        head = _HEADER.pack(b"FSV2", *numbers, self.public.fingerprint)
        return add_digest(head + b"".join(seal_io.read(chunk) for chunk in self._chunks))

    @classmethod
    def from_bytes(cls, data: bytes, public: PublicKey) -> CkksVector:
        """Read what `to_bytes` wrote. CiphertextError on anything damaged, foreign, oversized or inconsistent."""
        body = check_digest(data, b"FSV2", _HEADER.size, "vector")
        _, depth, paired, count, length, bound, error, fingerprint = _HEADER.unpack_from(body)
        parameters = public.parameters
        if fingerprint != public.fingerprint:
            raise CiphertextError("vector: it was encrypted under another public key")
        if not 1 <= length <= MAX_LENGTH or count != math.ceil(length / parameters.slots):
            raise CiphertextError(f"vector: {count} chunks cannot hold {length} values (at most {MAX_LENGTH})")
        fits = 0 <= bound <= parameters.max_bound and 0 <= error <= parameters.max_bound
        if depth > parameters.depth or paired > 1 or not fits:
            raise CiphertextError("vector: its declared depth, bound or error is impossible")
        size = public.ring.chunk_bytes(depth)
        if len(body) != _HEADER.size + count * size:
            raise CiphertextError(f"vector: {len(body)} bytes are not {count} chunks of {size}")
        chunks = [
            _read_chunk(body[start : start + size], public, depth) for start in range(_HEADER.size, len(body), size)
        ]
        return cls(public, chunks, length, depth, bound, max(error, parameters.rounding_error), bool(paired))


@wire_type(40)
class CkksCiphertexts:
    """Encrypted vectors of one key in a message: bytes until ``vectors(public)`` reads them, checked.

    Lengths depend on public numbers only.
    """

    __slots__ = ("_parts", "chunks", "degree")

    def __init__(self, parts: list[tuple[bytes, int]], degree: int):
        self._parts = parts  # bytes, chunks
        self.degree = degree
        self.chunks = sum(count for _, count in parts)

    @classmethod
    def pack(cls, vectors: Sequence[CkksVector]) -> CkksCiphertexts:
        degree = vectors[0].public.parameters.poly_modulus_degree if vectors else 0
        return cls([(vector.to_bytes(), len(vector._chunks)) for vector in vectors], degree)

    @property
    def scheme_name(self) -> str:
        """For the ledger."""
        return f"CKKS, degree {self.degree}"

    def __len__(self) -> int:
        """Ciphertexts in all: a long vector has several."""
        return self.chunks

    def __repr__(self) -> str:
        return f"CkksCiphertexts({len(self._parts)} vectors, {self.chunks} ciphertexts)"

    def vectors(self, public: PublicKey) -> list[CkksVector]:
        """The vectors under that key; ``CiphertextError`` for anything else."""
        return [CkksVector.from_bytes(data, public) for data, _ in self._parts]

    def to_bytes(self) -> bytes:
        out = [_BOX_HEADER.pack(_BOX_MAGIC, self.degree, len(self._parts))]
        for data, chunks in self._parts:
            out += [_BOX_LENGTH.pack(len(data), chunks), data]
        return b"".join(out)

    @classmethod
    def from_bytes(cls, data: bytes) -> CkksCiphertexts:
        if len(data) < _BOX_HEADER.size or data[:4] != _BOX_MAGIC:
            raise CiphertextError("these bytes are no CKKS vectors, or cut short")
        _, degree, count = _BOX_HEADER.unpack_from(data)
        parts, position = [], _BOX_HEADER.size
        for _ in range(count):
            if position + _BOX_LENGTH.size > len(data):
                raise CiphertextError("CKKS vectors: cut short")
            length, chunks = _BOX_LENGTH.unpack_from(data, position)
            position += _BOX_LENGTH.size
            if position + length > len(data):
                raise CiphertextError("CKKS vectors: a declared length does not fit the data")
            parts.append((data[position : position + length], chunks))
            position += length
        if position != len(data):
            raise CiphertextError(f"CKKS vectors: {len(data) - position} bytes too many")
        return cls(parts, degree)


def _read_chunk(body: bytes, public: PublicKey, depth: int) -> Seal:
    ring = public.ring
    chunk = ring.api.Ciphertext(ring.context)
    seal_io.write(chunk, ring.context, ring.version, body)
    found = (chunk.size(), chunk.parms_id(), chunk.scale, chunk.is_ntt_form())
    if found != (2, ring.levels[depth], public.parameters.scale, True) or chunk.is_transparent():
        raise CiphertextError("vector: a chunk's size, level or scale is not what the header declares")
    return chunk


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


def as_vector(values: ArrayLike) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=np.complex128 if np.iscomplexobj(values) else np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"expected a vector of numbers, not {type(values).__name__}") from None
    if array.ndim != 1 or not 1 <= array.size <= MAX_LENGTH:
        raise ParameterError(f"expected a vector of 1 to {MAX_LENGTH} numbers, not an array of shape {array.shape}")
    if not np.isfinite(array).all():
        raise ParameterError("a vector to encrypt or combine has missing or infinite values: fill or drop them first")
    return array


def check_bound(array: np.ndarray, bound: float, parameters: CkksParameters) -> None:
    """The public bound must hold; the message does not say by how much it fails, which would be private."""
    if not 0 <= bound <= parameters.max_bound:
        raise ParameterError(f"bound must lie between 0 and {parameters.max_bound:g} for this key, not {bound!r}")
    if np.abs(array).max() > bound:
        raise OverflowGuard(f"a value exceeds its public bound of {bound:g}: clip the values or pass a larger bound=")


def split(array: np.ndarray, slots: int) -> list[list[complex]]:
    """Chunks of exactly ``slots`` values, padded with zeros."""
    padded = np.zeros(math.ceil(array.size / slots) * slots, dtype=array.dtype)
    padded[: array.size] = array
    chunks: list[list[complex]] = padded.reshape(-1, slots).tolist()
    return chunks


def os_gaussian(count: int) -> NDArray[np.float64]:
    """Standard Gaussian numbers (Box-Muller) from the operating system's generator."""
    uniform = (np.frombuffer(os.urandom(16 * count), dtype=np.uint64) >> np.uint64(11)) + 0.5
    radius, angle = (uniform * 2.0**-53).reshape(2, count)
    return np.asarray(np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle))
