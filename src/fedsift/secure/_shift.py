"""Ciphertexts of sf-heu times a power of two, by GMP: repeated squaring is what it does best, and on all cores.

sf-heu keeps a ciphertext ``c`` as ``c * R`` modulo n with a constant ``R`` (Montgomery's form), which it does not tell;
it follows from one product: (a R)(b R) / (a b R) = R. No secret is involved. The key's owner compares a shift by this
class with one by sf-heu before it is used (see ``_heu``).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gmpy2
from gmpy2 import mpz

_CHUNK = 16  # numbers in a call: GMP runs without Python's lock inside it


def _number(value: bytes) -> Any:
    return mpz(int.from_bytes(value, "little"))


class Shifter:
    """Values are bytes, little-endian, as on the wire."""

    def __init__(self, modulus: int, first: bytes, second: bytes, product: bytes):
        self.modulus = mpz(modulus)
        self.constant = _number(first) * _number(second) * gmpy2.invert(_number(product), self.modulus) % self.modulus

    def __call__(self, values: list[bytes], bits: int) -> list[bytes]:
        """Each plaintext times ``2 ** bits``."""
        n, power = self.modulus, mpz(1) << bits
        correction = gmpy2.powmod(gmpy2.invert(self.constant, n), power - 1, n)

        def shifted(chunk: list[bytes]) -> list[bytes]:
            raised = gmpy2.powmod_base_list([_number(value) for value in chunk], power, n)
            return [self._bytes(number * correction % n) for number in raised]

        chunks = [values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK)]
        with ThreadPoolExecutor(min(os.cpu_count() or 1, max(1, len(chunks)))) as pool:
            return [value for part in pool.map(shifted, chunks) for value in part]

    def _bytes(self, number: Any) -> bytes:
        """As sf-heu writes it: no longer than needed, the top bit clear."""
        return int(number).to_bytes(number.bit_length() // 8 + 1, "little")
