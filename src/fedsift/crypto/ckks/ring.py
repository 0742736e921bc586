"""SEAL's tools for one CKKS parameter set: the context, its levels, encoding and decoding. It holds no key."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.crypto import seal_io
from fedsift.crypto.ckks.parameters import CkksParameters


class Ring:
    def __init__(self, parameters: CkksParameters):
        self.api, self.parameters = seal_io.api(), parameters
        self.context = seal_io.context("CKKS", parameters.poly_modulus_degree, parameters.coeff_mod_bit_sizes)
        self.evaluator = self.api.Evaluator(self.context)
        self.version = seal_io.version_of(self.api.Plaintext("1"))
        self._encoder = self.api.CKKSEncoder(self.context)
        #: SEAL's name of the level of a ciphertext with that much depth left.
        self.levels: dict[int, Any] = {}
        data = self.context.first_context_data()
        for depth in range(parameters.depth, -1, -1):
            self.levels[depth] = data.parms_id()
            data = data.next_context_data()

    def encode(self, values: list[Any], depth_left: int) -> Any:
        plain = self.api.Plaintext()
        self._encoder.encode(values, self.levels[depth_left], self.parameters.scale, plain)
        return plain

    def decode(self, plain: Any, paired: bool) -> NDArray[Any]:
        if paired:
            return np.array(self._encoder.decode_complex(plain), dtype=np.complex128)
        return np.array(self._encoder.decode_double(plain), dtype=np.float64)

    def chunk_bytes(self, depth_left: int) -> int:
        """What a ciphertext of that level takes on the wire."""
        words = 2 * self.parameters.primes_at(depth_left) * self.parameters.poly_modulus_degree
        return seal_io.ciphertext_bytes(words)


@functools.lru_cache(maxsize=16)
def ring_of(parameters: CkksParameters) -> Ring:
    return Ring(parameters)
