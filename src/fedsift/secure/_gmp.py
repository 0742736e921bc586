"""Back-end of ``additive``: Paillier on gmpy2, for Pythons without the sf-heu wheel. Payload: a list of ``mpz``.

Damgard-Jurik-Nielsen's form: g = n + 1; blinding factors are powers of one public h = (-x^2)^n with a short random
exponent of half the key's length (secure under the same assumption as Paillier when p = q = 3 mod 4), read from a
fixed-base table. Decryption by the Chinese remainder theorem, on all cores. Primes come from OpenSSL.
"""

from __future__ import annotations

import functools
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gmpy2
import numpy as np
from cryptography.hazmat.primitives.asymmetric import rsa
from gmpy2 import mpz

from fedsift.errors import CiphertextError

_WINDOW = 8


class _Public:
    def __init__(self, n: Any, h: Any):
        self.n, self.h = mpz(n), mpz(h)
        self.bits = self.n.bit_length()
        self.square = self.n * self.n

    @functools.cached_property
    def table(self) -> list[list[Any]]:
        """``table[i][d]`` = h ^ (d << (8 i)): a blinding factor is one product a byte of its exponent."""
        rows, base = [], self.h
        for _ in range(self.bits // 2 // _WINDOW):
            row = [mpz(1)]
            for _ in range((1 << _WINDOW) - 1):
                row.append(row[-1] * base % self.square)
            rows.append(row)
            base = row[-1] * base % self.square
        return rows

    def blinding(self) -> Any:
        product = mpz(1)
        for row, digit in zip(self.table, secrets.token_bytes(len(self.table))):
            product = product * row[digit] % self.square
        return product


class _Secret:
    def __init__(self, p: int, q: int):
        self.p, self.q = mpz(p), mpz(q)
        n = self.p * self.q
        x = mpz(secrets.randbelow(int(n) - 2) + 1)
        self.public = _Public(n, gmpy2.powmod(-x * x % n, n, n * n))
        self.p2, self.q2 = self.p * self.p, self.q * self.q
        self.hp = gmpy2.invert(self._l(gmpy2.powmod(n + 1, self.p - 1, self.p2), self.p), self.p)
        self.hq = gmpy2.invert(self._l(gmpy2.powmod(n + 1, self.q - 1, self.q2), self.q), self.q)
        self.p_inverse = gmpy2.invert(self.p, self.q)

    @staticmethod
    def _l(x: Any, prime: Any) -> Any:
        return (x - 1) // prime

    def decrypt(self, values: list[Any]) -> list[int]:
        n, half = self.public.n, self.public.n // 2
        powers_p = gmpy2.powmod_base_list(values, self.p - 1, self.p2)
        powers_q = gmpy2.powmod_base_list(values, self.q - 1, self.q2)
        numbers = []
        for at_p, at_q in zip(powers_p, powers_q):
            mp, mq = self._l(at_p, self.p) * self.hp % self.p, self._l(at_q, self.q) * self.hq % self.q
            m = (mp + self.p * ((mq - mp) * self.p_inverse % self.q)) % n
            numbers.append(int(m - n if m > half else m))
        return numbers


def generate(scheme: str, bits: int) -> Any:
    while True:
        numbers = rsa.generate_private_key(65537, bits).private_numbers()
        p, q = numbers.p, numbers.q
        if p % 4 == 3 and q % 4 == 3 and gmpy2.gcd(p - 1, q - 1) == 2 and gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1:
            return _Secret(p, q)


def public_part(key: Any) -> Any:
    return key.public


def dump_public(key: Any) -> bytes:
    size = width("paillier", key.bits)
    return int(key.n).to_bytes(size, "little") + int(key.h).to_bytes(size, "little")


def load_public(scheme: str, bits: int, body: bytes) -> Any:
    size = width(scheme, bits)
    if len(body) != 2 * size:
        raise CiphertextError("a public key has the wrong length")
    n, h = int.from_bytes(body[:size], "little"), int.from_bytes(body[size:], "little")
    if n.bit_length() != bits or n % 2 == 0 or not 1 < h < n * n or gmpy2.gcd(h, n) != 1:
        raise CiphertextError("a public key cannot be read")
    return _Public(n, h)


def plaintext_bits(key: Any) -> int:
    return key.bits - 2


def length(payload: list[Any]) -> int:
    return len(payload)


def check(key: Any, payload: list[Any]) -> None:
    if any(not 0 < c < key.square for c in payload):
        raise CiphertextError("a ciphertext is outside the range of its key")


def encrypt(key: Any, numbers: list[int]) -> list[Any]:
    return [(1 + m % key.n * key.n) * key.blinding() % key.square for m in numbers]


def add(key: Any, a: list[Any], b: list[Any]) -> list[Any]:
    return [x * y % key.square for x, y in zip(a, b)]


def subtract(key: Any, a: list[Any], b: list[Any]) -> list[Any]:
    return [x * gmpy2.invert(y, key.square) % key.square for x, y in zip(a, b)]


def add_plain(key: Any, a: list[Any], numbers: list[int]) -> list[Any]:
    return [x * (1 + m % key.n * key.n) % key.square for x, m in zip(a, numbers)]


def scale(key: Any, a: list[Any], factors: list[int]) -> list[Any]:
    return [gmpy2.powmod(x, f, key.square) for x, f in zip(a, factors)]


def bucket_sums(key: Any, a: list[Any], codes: np.ndarray, width: int) -> list[Any]:
    square, result = key.square, []
    for column in codes.T.tolist():
        sums = [mpz(1)] * width
        for code, value in zip(column, a):
            sums[code] = sums[code] * value % square
        result += sums
    return result


def flat(payload: list[Any]) -> list[Any]:
    return payload


def select_sums(key: Any, a: list[Any], index_lists: list[list[int]]) -> list[Any]:
    result = []
    for indices in index_lists:
        product = mpz(1)
        for index in indices:
            product = product * a[index] % key.square
        result.append(product)
    return result


def take(a: list[Any], positions: list[int]) -> list[Any]:
    return [a[position] for position in positions]


def concat(parts: list[list[Any]]) -> list[Any]:
    return [value for part in parts for value in part]


def decrypt(key: Any, a: list[Any]) -> list[int]:
    workers = min(os.cpu_count() or 1, max(1, len(a) // 4))
    if workers == 1:
        return key.decrypt(a)
    chunks = [a[start : start + 16] for start in range(0, len(a), 16)]
    with ThreadPoolExecutor(workers) as pool:  # gmpy2 releases the lock while it raises a list to a power
        return [number for chunk in pool.map(key.decrypt, chunks) for number in chunk]


def width(scheme: str, bits: int) -> int:
    return bits // 4


def dump(payload: list[Any], scheme: str, bits: int) -> tuple[int, list[bytes]]:
    size = width(scheme, bits)
    return size, [int(value).to_bytes(size, "little") for value in payload]


def load(values: list[bytes], scheme: str) -> list[Any]:
    return [mpz(int.from_bytes(value, "little")) for value in values]


def load_raw(raw: bytes, size: int, scheme: str) -> list[Any]:
    return load([raw[start : start + size] for start in range(0, len(raw), size)], scheme)
