"""Additive encryption against plain integers, and what must never happen with it."""

from __future__ import annotations

import copy
import pickle
import secrets

import gmpy2
import numpy as np
import pytest
from conftest import cached_key
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.core.message import decode, encode
from fedsift.crypto.additive import keys as additive
from fedsift.crypto.additive import okamoto_uchiyama as ou
from fedsift.crypto.additive.grouped import group_sums
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey, generate_key
from fedsift.errors import CiphertextError, MessageError, OverflowGuard, ParameterError

SCHEMES = additive.SCHEMES[1:]


@pytest.fixture(params=SCHEMES)
def secret(request):
    return cached_key(request.param)


def test_the_fast_scheme_is_chosen():
    assert cached_key().public.scheme == SCHEMES[0] == "ou"


@given(values=st.lists(st.integers(-(2**200), 2**200), min_size=1, max_size=6), data=st.data())
@settings(max_examples=10, deadline=None)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_sums_and_products_equal_plain_integers(scheme, values, data):
    secret = cached_key(scheme)
    public = secret.public
    other = data.draw(st.lists(st.integers(-(2**200), 2**200), min_size=len(values), max_size=len(values)))
    factors = data.draw(st.lists(st.integers(-(2**100), 2**100), min_size=len(values), max_size=len(values)))
    a, b = public.encrypt(values), public.encrypt(other)

    def opened(c):
        return secret.decrypt(c, bits=400, signed=True)

    assert opened(a) == values
    assert opened(public.add(a, b)) == [x + y for x, y in zip(values, other)]
    assert opened(public.add_plain(a, other)) == [x + y for x, y in zip(values, other)]
    assert opened(public.scale(a, factors)) == [x * f for x, f in zip(values, factors)]
    assert opened(public.sum_all(a)) == [sum(values)]
    assert opened(public.blind(a)) == values
    assert opened(Ciphertexts.concat([a, b])) == values + other
    assert opened(a.take([0, 0])) == [values[0]] * 2


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("groups", [[4], [2, 3, 2, 5], [130], [10, 10, 32, 127], [1, 1]])
def test_group_sums_equal_plain_histograms(scheme, groups):
    """Joint counting, sparse columns, wide columns and empty groups give what a plain loop gives."""
    secret = cached_key(scheme)
    rng = np.random.default_rng(len(groups))
    rows = 90
    values = rng.integers(0, 2**30, rows)
    codes = np.stack([rng.integers(0, g, rows) for g in groups], axis=1)
    codes[:, -1] = np.where(rng.random(rows) < 0.9, 0, codes[:, -1])  # a sparse one
    sums = group_sums(secret.public, secret.public.encrypt(values), codes, groups)
    expected = [int(values[codes[:, j] == g].sum()) for j, count in enumerate(groups) for g in range(count)]
    assert secret.decrypt(sums, bits=60) == expected


def test_group_numbers_out_of_range_are_refused(secret):
    c = secret.public.encrypt([1, 2])
    with pytest.raises(ParameterError, match="out of range"):
        group_sums(secret.public, c, np.array([[0], [3]]), [3])


def test_equal_plaintexts_give_different_ciphertexts(secret):
    c = secret.public.encrypt([7] * 5)
    values = {bytes(part) for part in np.frombuffer(body(c), np.uint8).reshape(5, -1)}
    assert len(values) == 5
    assert body(secret.public.blind(c)) != body(c)


def body(c: Ciphertexts) -> bytes:
    return c.to_bytes()[31:]


def test_public_metadata_is_the_same_whatever_the_plaintext(secret):
    """A fixed exponent: 0, 1 and a million cannot be told apart from header or size."""
    seen = {(c.to_bytes()[:31], len(c.to_bytes())) for c in (secret.public.encrypt([v]) for v in (0, 1, 10**6))}
    assert len(seen) == 1


def test_no_paillier_ciphertext_is_unblinded():
    """An unblinded Paillier ciphertext is 1 + m n: (c - 1) mod n would be 0 and m readable."""
    secret = cached_key("paillier")
    n = int(secret.public._key.n)
    c = secret.public.encrypt([0, 1, 5])
    leaving = [c, secret.public.blind(c), secret.public.add_plain(c, [1, 2, 3])]
    for vector in leaving:
        assert all((value - 1) % n != 0 for value in secret.public._key.modulus.integers(vector.payload))


def test_overflow_raises_before_anything_wraps(secret):
    big = 1 << secret.public.plaintext_bits
    for values in ([big], [-big], [0, big]):
        with pytest.raises(OverflowGuard):
            secret.public.encrypt(values)
        with pytest.raises(OverflowGuard):
            secret.public.add_plain(secret.public.encrypt([0] * len(values)), values)


def test_values_outside_the_promised_range_are_not_handed_out(secret):
    c = secret.public.encrypt([300])
    with pytest.raises(CiphertextError, match="outside"):
        secret.decrypt(c, bits=8)
    with pytest.raises(CiphertextError, match="outside"):
        secret.decrypt(secret.public.encrypt([-1]), bits=8)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_foreign_key_is_refused_by_name(scheme):
    mine, other = cached_key(scheme), generate_key("paillier")
    c = mine.public.encrypt([1])
    for act in (
        lambda: other.decrypt(c, bits=8),
        lambda: other.public.blind(c),
        lambda: mine.public.add(c, other.public.encrypt([1])),
    ):
        with pytest.raises(CiphertextError, match="key"):
            act()
    with pytest.raises(CiphertextError, match="different keys"):
        Ciphertexts.concat([c, other.public.encrypt([1])])


def test_truncated_and_tampered_ciphertexts_are_typed_errors(secret):
    data = secret.public.encrypt([1, 2]).to_bytes()
    for bad in (b"", data[:10], data[:-1], data + b"\0", b"\x09" + data[1:], data[:31] + bytes(len(data) - 31)):
        with pytest.raises(CiphertextError):
            secret.decrypt(Ciphertexts.from_bytes(bad), bits=8)
    flipped = bytearray(data)
    flipped[60] ^= 1
    with pytest.raises(CiphertextError):
        secret.decrypt(Ciphertexts.from_bytes(bytes(flipped)), bits=8)


def test_a_number_that_no_encryption_gives_is_computed_with(secret):
    """n is zero to whoever reduces it: sums with it would be zero, and differences could not be formed."""
    data = secret.public.encrypt([1, 2]).to_bytes()
    width, n = (len(data) - 31) // 2, secret.public._key.modulus.n
    for bad in (0, n, n + 1, (1 << 8 * width) - 1):
        damaged = Ciphertexts.from_bytes(data[: 31 + width] + bad.to_bytes(width, "little"))
        with pytest.raises(CiphertextError, match="outside the range"):
            secret.public.subtract(damaged, damaged)
    edge = Ciphertexts.from_bytes(data[: 31 + width] + (n - 1).to_bytes(width, "little"))
    assert len(secret.public.add(edge, edge)) == 2


def test_public_keys_travel_and_damage_is_found(secret):
    again = decode(encode(secret.public))
    assert secret.decrypt(again.encrypt([5]), bits=8) == [5]
    data = bytearray(secret.public.to_bytes())
    data[100] ^= 1
    with pytest.raises(CiphertextError):
        PublicKey.from_bytes(bytes(data))
    for odd in (data[:-1], data + b"\0", secret.public.to_bytes()[:-1] + b"\1"):
        with pytest.raises(CiphertextError):
            PublicKey.from_bytes(bytes(odd))


def test_keys_with_shorter_numbers_take_as_many_bytes(secret):
    """Else the same job would send two bytes more or less with another key, and byte counts could not be compared."""
    shorter = PublicKey(secret.public.scheme, secret.public.bits, secret.public._body[:-2])
    assert len(shorter.to_bytes()) == len(secret.public.to_bytes())


def test_secrets_never_show(secret):
    shown = f"{secret!r} {secret} {secret.public!r} {secret.public.encrypt([5])!r}"
    shown += f" {secret._secret!r} {secret.public._key!r}"
    halves = [each for each in vars(secret._secret).values() if hasattr(each, "prime")]
    hidden = [value for each in (secret._secret, *halves) for value in vars(each).values() if isinstance(value, mpz)]
    assert len(hidden) >= 3
    assert all(str(number) not in shown and hex(number)[2:] not in shown for number in map(int, hidden))
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(secret)


def test_short_keys_are_refused():
    with pytest.raises(ParameterError, match="2048"):
        generate_key("paillier", 2048 - 1)


def test_unknown_scheme_is_named():
    with pytest.raises(ParameterError, match="'rsa'"):
        generate_key("rsa")


def test_paillier_agrees_with_an_independent_one():
    """python-paillier, another implementation, opens our ciphertexts with our primes."""
    phe = pytest.importorskip("phe")
    key = cached_key("paillier")
    public = phe.PaillierPublicKey(int(key._secret.public.n))
    private = phe.PaillierPrivateKey(public, int(key._secret._p.prime), int(key._secret._q.prime))
    ours = key.public._key.modulus.integers(key.public.encrypt([0, 12345]).payload)
    assert [private.raw_decrypt(c) for c in ours] == [0, 12345]


def test_a_sparse_column_costs_its_other_rows_only(monkeypatch, key):
    """99 % of a column in one group: the additions are the total (once) and the few others, not rows x columns."""
    added = []
    original = key.public.sums

    def counting(values, order, bounds):
        added.append(len(order))
        return original(values, order, bounds)

    monkeypatch.setattr(key.public, "sums", counting)
    rows, columns = 100, 20
    codes = np.zeros((rows, columns), dtype=np.int32)
    codes[5, :] = 1
    c = key.public.encrypt(range(rows))
    assert key.decrypt(group_sums(key.public, c, codes, [2] * columns), bits=20) == [4950 - 5, 5] * columns
    assert sum(added) <= rows + 3 * columns


# --- what the holder of an Okamoto-Uchiyama key reads beside the plaintext --------------------------------------------


def smooth_prime(bits: int) -> tuple[int, list[int]]:
    """A prime q so that q - 1 has small factors only, each once, and those factors: what a holder may make unseen."""
    small = [n for n in range(3, 6_000) if gmpy2.is_prime(n)]
    rng = np.random.default_rng(0)
    while True:
        product, factors = mpz(2), [2]
        for prime in rng.permutation(small).tolist():
            if (product * prime).bit_length() > bits:
                continue
            product, factors = product * prime, [*factors, prime]
            if product.bit_length() == bits:
                break
        if product.bit_length() == bits and gmpy2.is_prime(product + 1):
            return int(product + 1), factors


def exponent(value: int, base: int, q: int, factors: list[int]) -> tuple[int, int]:
    """x with base^x = value modulo q, and modulo what it is known (Pohlig and Hellman)."""
    found, known = mpz(0), mpz(1)
    for factor in factors:
        step, goal = (gmpy2.powmod(each, (q - 1) // factor, q) for each in (base, value))
        if step == 1:
            continue
        power, digit = mpz(1), 0
        while power != goal:
            power, digit = power * step % q, digit + 1
        found += known * ((digit - found) * gmpy2.invert(known, factor) % factor)
        known *= factor
    return int(found), int(known)


@pytest.fixture(scope="module")
def smooth_key():
    third = ou._third(2048)
    t = ou._prime(lambda: secrets.randbits(256) | 1 << 255 | 1)
    size = third + 2
    low, high = (1 << size - 1) // (2 * t) + 1, (1 << size) // (2 * t)
    p = ou._prime(lambda: 2 * t * (low + secrets.randbelow(high - low)) + 1)
    q, factors = smooth_prime(third)
    return additive.SecretKey("ou", 2048, ou.Secret(p, q, t, 2048)), q, factors


def rows_added(ciphertexts: Ciphertexts, plaintext: int, smooth_key) -> float:
    """security.md, line 13: from the exponent of a sum, how many ciphertexts of 320 random bits were added up."""
    secret, q, factors = smooth_key
    public = secret._secret.public
    (number,) = public.modulus.integers(ciphertexts.payload)
    bare = mpz(number) * gmpy2.invert(gmpy2.powmod(public.g, plaintext, q), q) % q
    found, known = exponent(int(bare), public.h % q, q, factors)
    assert known.bit_length() > 360
    return found / 2**319 - 1


def test_a_holder_that_takes_logarithms_reads_group_sizes_from_short_blinding(smooth_key):
    """The attack can succeed: on sums blinded as rows are encrypted, it tells how many rows there were."""
    key = smooth_key[0].public
    sums = key.sum_all(key.encrypt([0, 1] * 300))
    short = key.add(sums, key.encrypt([0]))
    found = rows_added(short, 300, smooth_key)
    assert found == pytest.approx(600, rel=0.17)  # seven deviations of a sum of so many uniform numbers


def test_what_goes_back_to_the_holder_hides_how_many_were_added(smooth_key):
    key = smooth_key[0].public
    read = [rows_added(key.blind(key.sum_all(key.encrypt([1] * count))), count, smooth_key) for count in (5, 600)]
    assert min(read) > 2**100
    assert smooth_key[0].decrypt(key.blind(key.encrypt([7])), bits=4) == [7]


def test_many_numbers_are_encrypted_in_parts(secret, monkeypatch):
    monkeypatch.setattr(additive, "_AT_ONCE", 10)
    assert secret.decrypt(secret.public.encrypt(range(35)), bits=6) == list(range(35))


def test_ciphertexts_of_a_message_are_held_once(secret):
    """Read where they lie in the message, and kept as numbers alone once they are computed with."""
    sent = secret.public.encrypt([7, 8])
    data = encode({"it": sent})
    came = decode(data)["it"]
    assert isinstance(came._raw, memoryview)
    assert came._raw.obj is data
    assert came.to_bytes() == sent.to_bytes()
    assert secret.decrypt(secret.public.add(came, came), bits=8) == [14, 16]
    assert came._raw is None
    assert came.to_bytes() == sent.to_bytes()
    with pytest.raises(MessageError, match="truncated"):
        decode(data[:-1])
