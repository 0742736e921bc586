"""Back-end of ``additive``: Paillier (1999) in Damgard, Jurik and Nielsen's form, the best-known scheme of its kind.

A number m is encrypted as (1 + m n) h^r modulo n^2. h = (-x^2)^n is public, and r has half the key's length, which is
secure under the same assumption as Paillier when p = q = 3 mod 4. Powers of h come from a table of all digits of eight
bits; decryption by the Chinese remainder theorem. Primes come from OpenSSL. Twice the bytes of ``_ou`` and slower.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Sequence

import gmpy2
import numpy as np
from cryptography.hazmat.primitives.asymmetric import rsa
from gmpy2 import mpz

from fedsift.crypto.additive.montgomery import cpu_modulus, modulus
from fedsift.errors import CiphertextError


class Public:
    def __init__(self, n: int, h: int):
        self.n, self.h = mpz(n), h
        self.bits = self.n.bit_length()
        self.square = self.n**2
        self.modulus = modulus(int(self.square))
        self.plaintext_bits = self.bits - 2

    @functools.cached_property
    def _table(self) -> object:
        return self.modulus.power_table(self.h, self.bits // 16)

    @functools.cached_property
    def _wide_table(self) -> object:
        return self.modulus.power_table(self.h, self._wide_bytes)

    @property
    def _wide_bytes(self) -> int:
        """The order of h is below n; 64 bits more make its powers uniform up to 2^-64, to the key's holder too."""
        return int(self.bits) // 8 + 8

    def blinding(self, count: int, wide: bool = False) -> np.ndarray:
        """So many fresh encryptions of zero; ``wide`` ones hide from the key's holder, too, what they are added to."""
        table, size = (self._wide_table, self._wide_bytes) if wide else (self._table, self.bits // 16)
        return self.modulus.table_powers(table, secrets.token_bytes(size * count), count)

    def embed(self, numbers: Sequence[int]) -> np.ndarray:
        """Ciphertexts without randomness."""
        return self.modulus.numbers([int(1 + m % self.n * self.n) for m in numbers])

    def to_bytes(self) -> bytes:
        size = width(self.bits)
        return int(self.n).to_bytes(size, "little") + self.h.to_bytes(size, "little")


class _Half:
    """Decryption modulo one prime."""

    def __init__(self, prime: int, n: int):
        self.prime, self._square = mpz(prime), mpz(prime) ** 2
        self._modulus = cpu_modulus(int(self._square))
        self._factor = gmpy2.invert(self._log(gmpy2.powmod(n + 1, prime - 1, self._square)), prime)

    def _log(self, x: mpz) -> mpz:
        return (x - 1) // self.prime

    def read(self, values: list[int]) -> list[mpz]:
        small = self._modulus.numbers([int(mpz(value) % self._square) for value in values])
        raised = self._modulus.power(small, [int(self.prime - 1)] * len(values))
        return [self._log(mpz(each)) * self._factor % self.prime for each in self._modulus.integers(raised)]


class Secret:
    """What decrypts; its text shows nothing."""

    def __init__(self, p: int, q: int):
        n = p * q
        x = mpz(secrets.randbelow(n - 2) + 1)
        self.public = Public(n, int(gmpy2.powmod(-x * x % n, n, n * n)))
        self._p, self._q = _Half(p, n), _Half(q, n)
        self._p_inverse = gmpy2.invert(p, q)

    def decrypt(self, ciphertexts: np.ndarray) -> list[int]:
        values = self.public.modulus.integers(ciphertexts)
        p, q, n, numbers = self._p.prime, self._q.prime, self.public.n, []
        for at_p, at_q in zip(self._p.read(values), self._q.read(values)):
            m = at_p + p * ((at_q - at_p) * self._p_inverse % q)
            numbers.append(int(m - n if m > n // 2 else m))
        return numbers


def generate(bits: int) -> Secret:
    while True:
        numbers = rsa.generate_private_key(65537, bits).private_numbers()
        p, q = numbers.p, numbers.q
        if p % 4 == 3 and q % 4 == 3 and gmpy2.gcd(p - 1, q - 1) == 2 and gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1:
            return Secret(p, q)


def load_public(bits: int, body: bytes) -> Public:
    size = width(bits)
    if len(body) != 2 * size:
        raise CiphertextError("a public key has the wrong length")
    n, h = int.from_bytes(body[:size], "little"), int.from_bytes(body[size:], "little")
    if n.bit_length() != bits or n % 2 == 0 or not 1 < h < n * n or gmpy2.gcd(h, n) != 1:
        raise CiphertextError("a public key cannot be read")
    return Public(n, h)


def width(bits: int) -> int:
    return bits // 4
