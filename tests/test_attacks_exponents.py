"""The holder of an Okamoto-Uchiyama key reads how many rows were added, where it can take a logarithm modulo q."""

from __future__ import annotations

import secrets

import gmpy2
import numpy as np
import pytest

from fedsift.audit.attacks.short_exponents import discrete_log, exponent_of, rows_added
from fedsift.crypto.additive import okamoto_uchiyama as _ou

BITS = 2048
RANDOM_BITS = 8 * _ou._RANDOM_BYTES


def smooth_prime(bits):
    """A prime q of about so many bits whose q - 1 is a product of distinct primes below 2^16, and those primes."""
    generator = np.random.default_rng(0)
    primes = [p for p in range(2**13, 2**16) if gmpy2.is_prime(p)]
    while True:
        factors, product = [2], 2
        for number in generator.permutation(primes).tolist():
            if (product * number).bit_length() > bits:
                break
            factors.append(number)
            product *= number
        if (product + 1).bit_length() >= bits - 16 and gmpy2.is_prime(product + 1):
            return product + 1, factors


@pytest.fixture(scope="module")
def chosen_key():
    """A key of full size, made by a holder that chose q. Nothing in the public key shows it."""
    honest = _ou.generate(BITS)
    q, factors = smooth_prime((BITS + 2) // 3)
    return _ou.Secret(int(honest._p), q, honest._t, BITS), q, factors


def blinded_sum(public, rows):
    """What a party answers: the product of the rows' ciphertexts, blinded once."""
    whole = public.modulus.integers(public.blinding(rows + 1))
    total = 1
    for each in whole:
        total = total * int(each) % public.n
    value = secrets.randbelow(1000)
    return total * pow(public.g, value, public.n) % public.n, value


def test_the_logarithm_is_right():
    q, factors = smooth_prime(200)
    secret = secrets.randbelow(2**100)
    found, modulus = discrete_log(pow(5, secret, q), 5, q, factors)
    assert found == secret % modulus
    assert modulus.bit_length() > 150


def test_sizes_of_blinded_groups_are_read(chosen_key):
    secret, q, factors = chosen_key
    public = secret.public
    sizes, read = [5, 20, 80, 200, 400], []
    for rows in sizes:
        ciphertext, value = blinded_sum(public, rows)
        exponent = exponent_of(ciphertext, value, (public.g, public.h), q, factors)
        assert exponent is not None
        read.append(rows_added(exponent, RANDOM_BITS))
    deviation = np.sqrt((np.array(sizes) + 1) / 3)  # of a sum of uniform numbers, in units of their mean
    assert (np.abs(np.array(read) - sizes) < 7 * deviation).all()
    assert np.corrcoef(sizes, read)[0, 1] > 0.98


def test_a_mask_longer_than_any_sum_hides_the_size(chosen_key):
    secret, q, factors = chosen_key
    public = secret.public
    ciphertext, value = blinded_sum(public, 5)
    long = secrets.randbelow(2 ** (RANDOM_BITS + 32))
    exponent = exponent_of(
        ciphertext * pow(public.h, long, public.n) % public.n, value, (public.g, public.h), q, factors
    )
    assert exponent is not None
    assert rows_added(exponent, RANDOM_BITS) > 10_000  # the mask, and nothing of the five rows
