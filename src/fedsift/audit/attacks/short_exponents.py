"""What the holder of an Okamoto-Uchiyama key reads beside the plaintext: how many rows were added up.

A ciphertext is G^m H^r modulo n = p^2 q, with r of 320 bits. Adding plaintexts adds the r's, and blinding adds one more
of the same length. The holder knows m and q: modulo q it has H^R, R the sum of all r's, and R / 2^319 is close to the
number of rows plus one. What stands before it is a discrete logarithm modulo q.

Measured here is the arithmetic, at the full size of the key, by a holder that made q so that q - 1 has small factors
only (Pohlig and Hellman 1978): nobody can see that from n. A holder that drew q by lot needs a logarithm modulo a prime
of 683 bits, which is extrapolated, not run: published records of such logarithms are larger (795 bits, Boudot et al.
2020). So there is no attack in the registry: on honest keys nothing was measured, and a pass would say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import gmpy2
from gmpy2 import mpz


def discrete_log(value: int, base: int, prime: int, factors: Sequence[int]) -> tuple[int, int]:
    """``x`` and its modulus with base^x = value modulo ``prime``; ``factors`` are the distinct primes of prime - 1.

    Primes that divide prime - 1 once; a factor that the order of ``base`` lacks says nothing and is left out.
    """
    found, modulus = mpz(0), mpz(1)
    for factor in factors:
        power = (prime - 1) // factor
        step, goal = gmpy2.powmod(base, power, prime), gmpy2.powmod(value, power, prime)
        if step == 1:
            continue
        digit = _by_giant_steps(goal, step, prime, factor)
        found += modulus * ((digit - found) * gmpy2.invert(modulus, factor) % factor)
        modulus *= factor
    return int(found), int(modulus)


def _by_giant_steps(goal: mpz, step: mpz, prime: int, order: int) -> int:
    width = math.isqrt(order) + 1
    table: dict[mpz, int] = {}
    power = mpz(1)
    for small in range(width):
        table.setdefault(power, small)
        power = power * step % prime
    giant = gmpy2.invert(power, prime)
    here = goal
    for large in range(width + 1):
        if here in table:
            return int((large * width + table[here]) % order)
        here = here * giant % prime
    raise ValueError("the value is no power of the base")


def exponent_of(ciphertext: int, plaintext: int, public: tuple[int, int], q: int, factors: Sequence[int]) -> int | None:
    """R of a ciphertext G^m H^R whose m was decrypted; ``public`` is (G, H). None where the logarithm is too short."""
    g, h = public
    bare = mpz(ciphertext) * gmpy2.invert(gmpy2.powmod(g, plaintext, q), q) % q
    found, modulus = discrete_log(int(bare), h % q, q, factors)
    return found if modulus.bit_length() > _LONGEST_SUM else None


def rows_added(exponent: int, bits: int) -> float:
    """How many ciphertexts were added, blinded once: each exponent is about half of 2^bits."""
    return float(exponent / 2 ** (bits - 1)) - 1


_LONGEST_SUM = 360  # bits of a sum of exponents of 320 bits over any table
