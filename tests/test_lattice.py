"""Lattice ciphertexts: exact products, answers that tell their owner nothing, bytes that are checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.crypto.bfv import (
    DEGREE,
    PRIMES,
    LatticeAnswers,
    LatticeCiphertexts,
    LatticePublicKey,
    LatticeSecretKey,
    _noise,
    _seal,
)
from fedsift.errors import CiphertextError, ParameterError
from fedsift.models.splitnn.layers.block_product import Plan

pytest.importorskip("tenseal")
BITS = 44
MASK = np.uint64((1 << BITS) - 1)


@pytest.fixture(scope="module")
def secret():
    return LatticeSecretKey(BITS)


def ring(values):
    return np.asarray(values, dtype=np.int64).view(np.uint64) & MASK


def answered(key, plan, left, right, plain, hide, encrypted="left"):
    """The whole exchange, over bytes: encrypt, multiply, blind, open."""
    public = LatticePublicKey.from_bytes(key.public.to_bytes())
    inside, outside = (left, right) if encrypted == "left" else (right, left)
    sent = LatticeCiphertexts.from_bytes(key.encrypt(inside).to_bytes())
    ready, factors = public.load(sent), public.factors(outside)
    made = []
    for terms, line in zip(plan.terms(), plan.spread(plain)):
        pairs = [(ready[i], factors[j]) if encrypted == "left" else (ready[j], factors[i]) for i, j in terms]
        made.append(public.answer(pairs, line, plan.places, hide))
    answers = LatticeAnswers.from_bytes(public.pack(made).to_bytes())
    carries = plan.gather(np.stack([carry for _, _, carry in made]))
    return plan.gather(key.open(answers, plan.places)), carries, answers


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.sampled_from([8, 64, 256]), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_a_product_of_polynomials_is_that_of_the_matrices(m, n, k, degree, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-50, 50, (m, n)), rng.integers(-50, 50, (n, k))
    plan = Plan.choose(degree, m, n, k, "left" if seed % 2 else "right")
    left, right = (side.view(np.int64) for side in (plan.left(a.view(np.uint64)), plan.right(b.view(np.uint64))))
    lines = []
    for terms in plan.terms():
        total = np.zeros(degree, dtype=np.int64)
        for i, j in terms:
            whole = np.convolve(left[i], right[j])
            total[: len(whole[:degree])] += whole[:degree]
            total[: len(whole[degree:])] -= whole[degree:]  # X^degree = -1
        lines.append(total[plan.places])
    np.testing.assert_array_equal(plan.gather(np.stack(lines)), a @ b)
    with pytest.raises(ParameterError):
        Plan.choose(0, 1, 1, 1)


@pytest.mark.parametrize("encrypted", ["left", "right"])
@pytest.mark.parametrize("hide", [True, False])
def test_an_encrypted_product_equals_the_plain_one(secret, encrypted, hide):
    rng = np.random.default_rng(0)
    plan = Plan.choose(DEGREE, 6, 70, 30, encrypted)
    small, large = rng.integers(-(2**17), 2**17, (6, 70)), rng.integers(-(2**43), 2**43, (70, 30))
    if encrypted == "right":
        large = rng.integers(-(2**20), 2**20, (70, 30))
    plain = ring(rng.integers(0, 2**43, (6, 30)))
    left, right = plan.left(ring(small)), plan.right(ring(large))
    opened, carries, _ = answered(secret, plan, left, right, plain, hide, encrypted)
    expected = (small.view(np.uint64) @ large.view(np.uint64) + plain + carries) & MASK
    np.testing.assert_array_equal(opened, expected)
    assert carries.any() == hide


def test_zero_factors_leave_no_ciphertext_bare(secret):
    plan = Plan.choose(DEGREE, 2, 3, 2, "left")
    left, right = plan.left(ring(np.ones((2, 3)))), plan.right(np.zeros((3, 2), dtype=np.uint64))
    opened, carries, answers = answered(secret, plan, left, right, np.zeros((2, 2), dtype=np.uint64), True)
    np.testing.assert_array_equal(opened, carries)
    assert answers.words.any()


def test_an_answer_hides_its_factors_from_the_owner(secret):
    """The second polynomial of an unblinded answer is the sent one times the factor: the owner could divide."""
    plan = Plan.choose(DEGREE, 2, 3, 2, "left")
    left, right = plan.left(ring(np.ones((2, 3)))), plan.right(ring(np.arange(6).reshape(3, 2)))
    plain = np.zeros((2, 2), dtype=np.uint64)
    first, second = (answered(secret, plan, left, right, plain, False)[2] for _ in range(2))
    assert np.mean(first.words == second.words) < 1e-3
    public = secret.public
    ready, factors = public.load(secret.encrypt(left)), public.factors(right)
    made = [public.answer([(ready[0], factors[0])], np.zeros(len(plan.places)), plan.places, False) for _ in range(2)]
    assert np.mean(made[0][0] == made[1][0]) < 1e-3  # the same question twice: nothing in common
    assert not np.array_equal(made[0][1], made[1][1])


@pytest.mark.parametrize("hide", [True, False])
def test_the_noise_of_an_answer_is_wide_and_fresh_everywhere(hide):
    seal = _seal(BITS)
    noise, carries = _noise(seal, 2000, hide)
    p, q = seal.primes
    numbers = []
    for a, b in noise.T.tolist():
        number = a + p * ((b - a) * pow(p, -1, q) % q)
        numbers.append(number if number < p * q // 2 else number - p * q)
    gap = seal.modulus >> BITS
    if hide:
        assert min(numbers) >= 0
        assert max(numbers) < gap
        assert abs(np.mean([n / gap for n in numbers]) - 0.5) < 0.05
        assert carries.tolist() == [int(2 * n >= gap) for n in numbers]
    else:
        assert 2**69 < max(map(abs, numbers)) <= 2**70
        assert min(numbers) < 0 < max(numbers)
        assert gap / 2 > 2**70
    assert len(set(numbers)) == 2000


def test_equal_plaintexts_give_different_ciphertexts(secret):
    polynomial = np.zeros((2, DEGREE), dtype=np.uint64)
    made = secret.encrypt(polynomial)
    assert np.mean(made.words[0] == made.words[1]) < 1e-3
    assert made.rest[: len(made.rest) // 2] != made.rest[len(made.rest) // 2 :]
    assert len(made) == 2
    assert made.words.shape == (2, PRIMES, DEGREE)


def test_foreign_or_damaged_bytes_are_refused(secret):
    other = LatticeSecretKey(BITS)
    made = secret.encrypt(np.ones((1, DEGREE), dtype=np.uint64))
    with pytest.raises(CiphertextError, match="public key"):
        other.public.load(made)
    with pytest.raises(CiphertextError):
        LatticeCiphertexts.from_bytes(made.to_bytes()[:-1])
    with pytest.raises(CiphertextError):
        LatticeCiphertexts.from_bytes(b"")
    beyond = LatticeCiphertexts(BITS, made.fingerprint, np.full_like(made.words, 2**63), made.rest)
    with pytest.raises(CiphertextError, match="damaged"):
        secret.public.load(beyond)
    answer = LatticeAnswers(BITS, other.public.fingerprint, made.words, b"")
    with pytest.raises(CiphertextError):
        secret.open(answer, np.arange(3))
    mine = LatticeAnswers(BITS, secret.public.fingerprint, made.words, b"")
    with pytest.raises(CiphertextError, match="coefficients"):
        secret.open(mine, np.arange(3))
    with pytest.raises(CiphertextError):
        LatticePublicKey.from_bytes(b"\x01")
    with pytest.raises(CiphertextError):
        LatticePublicKey(BITS, b"nonsense").answer([], np.zeros(1), np.arange(1), True)


def test_a_secret_key_neither_shows_nor_leaves_itself(secret):
    import pickle

    assert "secret" in repr(secret)
    assert len(repr(secret)) < 150
    with pytest.raises(TypeError, match="serialised"):
        pickle.dumps(secret)
    assert _seal(BITS).context.key_context_data().total_coeff_modulus_bit_count() <= 218
