"""CKKS vectors as they travel: bytes until somebody computes with them. Lengths depend on public numbers only."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from fedsift.core.message import wire_type
from fedsift.crypto.ckks.keys import CkksPublicKey, CkksVector
from fedsift.errors import CiphertextError

_HEADER = struct.Struct("<4sII")  # magic, ring degree, number of vectors
_LENGTH = struct.Struct("<QI")  # bytes, chunks
_MAGIC = b"FSB2"


@wire_type(40)
class CkksCiphertexts:
    """Encrypted vectors of one key in a message. ``vectors(public)`` reads them, checked."""

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

    def vectors(self, public: CkksPublicKey) -> list[CkksVector]:
        """The vectors under that key; ``CiphertextError`` for anything else."""
        return [CkksVector.from_bytes(data, public) for data, _ in self._parts]

    def to_bytes(self) -> bytes:
        out = [_HEADER.pack(_MAGIC, self.degree, len(self._parts))]
        for data, chunks in self._parts:
            out += [_LENGTH.pack(len(data), chunks), data]
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
            length, chunks = _LENGTH.unpack_from(data, position)
            position += _LENGTH.size
            if position + length > len(data):
                raise CiphertextError("CKKS vectors: a declared length does not fit the data")
            parts.append((data[position : position + length], chunks))
            position += length
        if position != len(data):
            raise CiphertextError(f"CKKS vectors: {len(data) - position} bytes too many")
        return cls(parts, degree)
