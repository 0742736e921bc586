"""CKKS keys and vectors as they travel: bytes until somebody computes with them, and always of the same length.

TenSEAL compresses what it writes, so two encryptions of the same kind differ by a few bytes. Lengths that depend on
randomness would make a run's traffic differ from the next one's, so everything is filled up to the largest size that
its public parameters allow. Filling adds nothing secret and is checked to be zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from fedsift.errors import CiphertextError
from fedsift.message import wire_type
from fedsift.secure.ckks import CkksParameters, CkksPublicKey, CkksVector

_HEADER = struct.Struct("<4sII")  # magic, ring degree, number of vectors
_LENGTH = struct.Struct("<QQI")  # filled length, true length, chunks
_KEY_LENGTH = struct.Struct("<Q")
_MAGIC = b"FSB1"
_MORE = 4096  # headers of SEAL and protobuf


@wire_type(40)
class CkksCiphertexts:
    """Encrypted vectors of one key in a message. ``vectors(public)`` reads them, checked."""

    __slots__ = ("_parts", "chunks", "degree")

    def __init__(self, parts: list[tuple[bytes, int, int]], degree: int):
        self._parts = parts  # bytes, filled length, chunks
        self.degree = degree
        self.chunks = sum(count for _, _, count in parts)

    @classmethod
    def pack(cls, vectors: Sequence[CkksVector]) -> CkksCiphertexts:
        degree = vectors[0].public.parameters.poly_modulus_degree if vectors else 0
        parts = []
        for vector in vectors:
            data = vector.to_bytes()
            parts.append((data, max(len(data), _room(vector)), len(vector._chunks)))
        return cls(parts, degree)

    @property
    def scheme_name(self) -> str:
        """For the ledger."""
        return f"CKKS, degree {self.degree}"

    def __len__(self) -> int:
        """Ciphertexts in all: a long vector has several."""
        return self.chunks

    def __repr__(self) -> str:
        return f"CkksCiphertexts({len(self._parts)} vectors, {self.chunks} ciphertexts)"

    def vectors(self, public: CkksPublicKey) -> list[CkksVector]:
        """The vectors under that key; ``CiphertextError`` for anything else."""
        return [CkksVector.from_bytes(data, public) for data, _, _ in self._parts]

    def to_bytes(self) -> bytes:
        out = [_HEADER.pack(_MAGIC, self.degree, len(self._parts))]
        for data, filled, chunks in self._parts:
            out += [_LENGTH.pack(filled, len(data), chunks), data, bytes(filled - len(data))]
        return b"".join(out)

    @classmethod
    def from_bytes(cls, data: bytes) -> CkksCiphertexts:
        if len(data) < _HEADER.size or data[:4] != _MAGIC:
            raise CiphertextError("these bytes are no CKKS vectors, or cut short")
        _, degree, count = _HEADER.unpack_from(data)
        parts, position = [], _HEADER.size
        for _ in range(count):
            if position + _LENGTH.size > len(data):
                raise CiphertextError("CKKS vectors: cut short")
            filled, length, chunks = _LENGTH.unpack_from(data, position)
            position += _LENGTH.size
            end = position + filled
            if length > filled or end > len(data) or any(data[position + length : end]):
                raise CiphertextError("CKKS vectors: a declared length does not fit the data")
            parts.append((data[position : position + length], filled, chunks))
            position = end
        if position != len(data):
            raise CiphertextError(f"CKKS vectors: {len(data) - position} bytes too many")
        return cls(parts, degree)


def _room(vector: CkksVector) -> int:
    """What the bytes of such a vector take at most: two polynomials a chunk, eight bytes a coefficient."""
    parameters = vector.public.parameters
    chunk = 2 * 8 * parameters.poly_modulus_degree * parameters.primes_at(vector.depth_left) + _MORE
    return len(vector._chunks) * chunk + _MORE


def key_to_wire(public: CkksPublicKey) -> bytes:
    data = public.to_bytes()
    room = max(len(data), _key_room(public.parameters, public.rotations))
    return _KEY_LENGTH.pack(len(data)) + data + bytes(room - len(data))


def key_from_wire(data: bytes) -> CkksPublicKey:
    if not isinstance(data, bytes) or len(data) < _KEY_LENGTH.size:
        raise CiphertextError("these bytes are no CKKS public key")
    (length,) = _KEY_LENGTH.unpack_from(data)
    if length > len(data) - _KEY_LENGTH.size or any(data[_KEY_LENGTH.size + length :]):
        raise CiphertextError("CKKS public key: its declared length does not fit the data")
    return CkksPublicKey.from_bytes(data[_KEY_LENGTH.size : _KEY_LENGTH.size + length])


def _key_room(parameters: CkksParameters, rotations: bool) -> int:
    primes = len(parameters.coeff_mod_bit_sizes)
    pairs = 1 + primes * (1 + (2 * parameters.slots.bit_length() if rotations else 0))
    return pairs * 2 * 8 * parameters.poly_modulus_degree * primes + 16 * _MORE
