"""Back-end of ``additive``: Okamoto-Uchiyama (1998) in the short form of Coron, Naccache and Paillier (1999).

n = p^2 q with p - 1 = t u and a prime t of 256 bits; G = g^u and H = g'^(n u) modulo n. A number m is encrypted as
G^m H^r. Modulo p^2 the t-th power removes H (whose order divides t there) and leaves (g^(p-1))^m = 1 + m L p, from
which m is read modulo p. Adding plaintexts is multiplying ciphertexts; |m| stays below p / 2.

What is ours, and why it is safe:
- r has 320 bits: to whoever lacks the key a discrete logarithm in an interval of that length takes 2^160 steps, and r
  modulo t is uniform up to 2^-64. (sf-heu draws 110 bits for a key of 2048: 2^55 steps confirm a guessed m.)
- What goes back to the key's holder is blinded by some 1,100 bits instead (``wide``). The holder knows q, and takes
  logarithms modulo q if it made q so that q - 1 has small factors only, which nobody can see from n; with 683 bits it
  may do so for any q, which is below published records. Then it reads R, the sum of all r's, modulo the order of H,
  and with r's of 320 bits R tells how many ciphertexts were added up. That order divides t (q - 1), at most 939 bits,
  so 1,104 random bits make R uniform up to 2^-165, whatever was added before.
- t of 256 bits: finding a multiple of it from H by giant steps, which would factor n, takes 2^128 steps. The size of
  n (2048 bits or more) is what limits, as in every such scheme.
- Powers of G and H come from tables of all digits of eight bits. Numbers of one vector take the same steps: zero
  digits are multiplied too, and a negative m is m + 2^k, followed by one G^(-2^k) for the whole vector.
- Decrypting a chosen ciphertext to an arbitrary value gives p away; ``additive`` releases values in range only.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Sequence

import gmpy2
import numpy as np
from gmpy2 import mpz

from fedsift.crypto.additive.montgomery import cpu_modulus, modulus
from fedsift.errors import CiphertextError

_SUBGROUP_BITS = 256
_RANDOM_BYTES = 40
_HIDING_BITS = 160  # of the wide blinding, beside the length of H's order
_ROUNDS = 64  # of Miller and Rabin, beside GMP's Baillie-PSW
_SMALL_PRIMES = gmpy2.primorial(2_000)


class Public:
    def __init__(self, n: int, g: int, h: int, bits: int):
        self.n, self.g, self.h, self.bits = n, g, h, bits
        self.modulus = modulus(n)
        self.plaintext_bits = _third(bits) - 1

    @functools.cached_property
    def _h_table(self) -> object:
        return self.modulus.power_table(self.h, _RANDOM_BYTES)

    @functools.cached_property
    def _wide_table(self) -> object:
        return self.modulus.power_table(self.h, self._wide_bytes)

    @property
    def _wide_bytes(self) -> int:
        return -(-(_third(self.bits) + _SUBGROUP_BITS + _HIDING_BITS) // 8)

    @functools.cached_property
    def _g_table(self) -> object:
        return self.modulus.power_table(self.g, self.plaintext_bits // 8 + 2)  # one for the shift of negative ones

    def blinding(self, count: int, wide: bool = False) -> np.ndarray:
        """So many fresh encryptions of zero; ``wide`` ones hide from the key's holder, too, what they are added to."""
        table, size = (self._wide_table, self._wide_bytes) if wide else (self._h_table, _RANDOM_BYTES)
        return self.modulus.table_powers(table, secrets.token_bytes(size * count), count)

    def embed(self, numbers: Sequence[int]) -> np.ndarray:
        """Ciphertexts without randomness."""
        size = (max(map(abs, numbers), default=0).bit_length() + 7) // 8
        negative = min(numbers, default=0) < 0
        shift = 1 << 8 * size if negative else 0
        raw = b"".join([(number + shift).to_bytes(size + negative, "little") for number in numbers])
        powers = self.modulus.table_powers(self._g_table, raw, len(numbers))
        if not negative:
            return powers
        back = gmpy2.powmod(gmpy2.invert(mpz(self.g), self.n), shift, self.n)
        return self.modulus.product(powers, self.modulus.numbers([int(back)]))

    def to_bytes(self) -> bytes:
        return b"".join(number.to_bytes(width(self.bits), "little") for number in (self.n, self.g, self.h))


class Secret:
    """What decrypts; its text shows nothing."""

    def __init__(self, p: int, q: int, t: int, bits: int):
        self._p, self._t, self._square = mpz(p), t, mpz(p) ** 2
        self._modulus = cpu_modulus(int(self._square))
        n, u = self._square * q, (self._p - 1) // t
        while True:
            g, other = (mpz(secrets.randbelow(int(n))) for _ in range(2))
            raised = gmpy2.powmod(g, self._p - 1, self._square)
            if gmpy2.gcd(g * other, n) == 1 and raised != 1:
                break
        self._factor = gmpy2.invert((raised - 1) // self._p, self._p)
        self.public = Public(int(n), int(gmpy2.powmod(g, u, n)), int(gmpy2.powmod(other, n * u, n)), bits)

    def decrypt(self, ciphertexts: np.ndarray) -> list[int]:
        values = [int(mpz(each) % self._square) for each in self.public.modulus.integers(ciphertexts)]
        raised = self._modulus.power(self._modulus.numbers(values), [self._t] * len(values))
        p, half, numbers = self._p, self._p // 2, []
        for each in self._modulus.integers(raised):
            m = (mpz(each) - 1) // p * self._factor % p
            numbers.append(int(m - p if m > half else m))
        return numbers


def generate(bits: int) -> Secret:
    third = _third(bits)
    t = _prime(lambda: secrets.randbits(_SUBGROUP_BITS) | 1 << (_SUBGROUP_BITS - 1) | 1)
    size = third + 2  # p / 2 leaves room for a third of the key's bits
    low, high = (1 << size - 1) // (2 * t) + 1, (1 << size) // (2 * t)  # u = 2 v: t u + 1 has ``size`` bits
    p = _prime(lambda: 2 * t * (low + secrets.randbelow(high - low)) + 1)
    q = _prime(lambda: secrets.randbits(third) | 1 << (third - 1) | 1)
    return Secret(p, q, t, bits)


def load_public(bits: int, body: bytes) -> Public:
    size = width(bits)
    if len(body) != 3 * size:
        raise CiphertextError("a public key has the wrong length")
    n, g, h = (int.from_bytes(body[start : start + size], "little") for start in range(0, 3 * size, size))
    if not (bits <= n.bit_length() <= bits + 8 and n % 2 and 1 < g < n and 1 < h < n and gmpy2.gcd(g * h, n) == 1):
        raise CiphertextError("a public key cannot be read")
    return Public(n, g, h, bits)


def width(bits: int) -> int:
    """Bytes of a number: n may be a few bits longer than asked."""
    return bits // 8 + 2


def _third(bits: int) -> int:
    return (bits + 2) // 3


def _prime(draw: Callable[[], object]) -> int:
    """The first prime of independent draws."""
    while True:
        candidate = mpz(draw())
        if gmpy2.gcd(candidate, _SMALL_PRIMES) == 1 and gmpy2.is_prime(candidate, _ROUNDS):
            return int(candidate)
