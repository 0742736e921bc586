"""CKKS vectors: the arithmetic against NumPy, and each way in which they could betray a secret or lie about a value."""

import copy
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.crypto import seal_io
from fedsift.crypto.ckks import vector as ckks_vector
from fedsift.crypto.ckks.keys import CkksPublicKey, CkksSecretKey, CkksVector, choose_parameters
from fedsift.crypto.ckks.parameters import ring_of
from fedsift.errors import CiphertextError, OverflowGuard, ParameterError, SecurityError

# HomomorphicEncryption.org security standard (2018), table 1: 128-bit classical security, ternary secret.
STANDARD = {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438}


@pytest.fixture(scope="module")
def keys():
    return {depth: CkksSecretKey.generate(depth=depth) for depth in (1, 2, 3)}


@pytest.fixture(scope="module")
def key(keys):
    return keys[2]


def draw(length, bound=25.0, seed=0):
    return np.random.default_rng(seed).uniform(-bound, bound, length)


# --- parameters -------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.integers(0, 44), st.integers(1, 40))
def test_parameters_never_leave_the_128_bit_table(depth, precision, magnitude):
    try:
        parameters = choose_parameters(depth, precision, magnitude)
    except ParameterError:
        return
    assert sum(parameters.coeff_mod_bit_sizes) <= STANDARD[parameters.poly_modulus_degree]


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_ordinary_precision_is_always_reachable(depth):
    parameters = choose_parameters(depth, 20)
    assert len(parameters.coeff_mod_bit_sizes) >= depth + 2
    assert sum(parameters.coeff_mod_bit_sizes) <= STANDARD[parameters.poly_modulus_degree]


@pytest.mark.parametrize(
    ("depth", "precision", "magnitude"),
    [(3, 60, 19), (1, 50, 19), (4, 20, 19), (-1, 20, 19), (1, -3, 19), (1.5, 20, 19), (1, 20, 0), (1, 20, 65)],
)
def test_what_cannot_be_met_is_refused(depth, precision, magnitude):
    with pytest.raises(ParameterError):
        choose_parameters(depth, precision, magnitude)


@pytest.mark.parametrize(("depth", "precision"), [(0, 12), (1, 16), (2, 30)])
def test_promised_precision_holds(depth, precision):
    key = CkksSecretKey.generate(depth, precision)
    values = draw(500, bound=1.0)
    vector = key.public.encrypt(values, bound=1.0)
    for seed in range(depth):
        factor = draw(500, bound=1.0, seed=seed + 1)
        vector, values = vector.multiply(factor, bound=1.0), values * factor
    assert vector.error <= 2.0**-precision
    assert np.abs(key.decrypt(vector) - values).max() <= vector.error


# --- arithmetic against the plaintext oracle ------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("more", ["one", "short", "full", "longer"])
def test_products_equal_numpy(keys, depth, more):
    key = keys[depth]
    slots = key.public.parameters.slots
    length = {"one": 1, "short": 100, "full": slots, "longer": slots + 7}[more]
    factors = [draw(length, seed=seed) for seed in range(depth + 1)]
    product, expected = key.public.encrypt(factors[0], bound=25), factors[0]
    for factor in factors[1:]:
        product, expected = product.multiply(factor, bound=25), expected * factor
    found = key.decrypt(product)
    assert found.shape == (length,)
    assert product.depth_left == 0
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * 25**depth * 1e-2)
    assert np.abs(found - expected).max() <= product.error


OPERATIONS = {
    "add": lambda a, x: a.add(x, bound=5) if isinstance(a, CkksVector) else a + x,
    "multiply": lambda a, x: a.multiply(x, bound=5) if isinstance(a, CkksVector) else a * x,
}
CHAINS = [["add"], ["multiply"], ["add", "multiply"], ["multiply", "add"], ["multiply", "add", "multiply", "add"]]


@pytest.mark.parametrize("names", CHAINS, ids=", ".join)
def test_operations_equal_numpy(key, names):
    length = key.public.parameters.slots + 3
    expected = draw(length, bound=5)
    result = key.public.encrypt(expected, bound=5)
    for seed, name in enumerate(names, 1):
        x = draw(length, bound=5, seed=seed)
        result, expected = OPERATIONS[name](result, x), OPERATIONS[name](expected, x)
    found = key.decrypt(result)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(found - expected).max() <= result.error
    assert np.abs(expected).max() <= result.bound


@settings(max_examples=8, deadline=None)
@given(st.lists(st.floats(-25, 25), min_size=1, max_size=20), st.integers(0, 2**31))
def test_any_short_vector_survives(keys, values, seed):
    x, y = np.array(values), draw(len(values), seed=seed)
    np.testing.assert_allclose(keys[1].decrypt(keys[1].public.encrypt(x).multiply(y)), x * y, atol=1e-4)


# --- operands stay as they were -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_changes_its_operand(key, name):
    x = draw(50, bound=3)
    first = key.public.encrypt(x, bound=3)
    for vector in (first, first.multiply(x, bound=3)):
        before = vector.to_bytes(), key.decrypt(vector)
        OPERATIONS[name](vector, x)
        assert vector.to_bytes() == before[0]
        np.testing.assert_array_equal(key.decrypt(vector), before[1])
        assert vector._chunks[0].coeff_modulus_size() == key.public.parameters.primes_at(vector.depth_left)


# --- limits are errors, not garbage ---------------------------------------------------------------------------------


def test_multiplying_beyond_the_depth_is_refused(keys):
    product = keys[1].public.encrypt([1.0, 2.0]).multiply([3.0, 4.0])
    with pytest.raises(CiphertextError, match="more depth"):
        product.multiply([1.0, 1.0])


def test_values_that_might_wrap_around_are_refused_before_they_do(key):
    vector = key.public.encrypt(draw(10), bound=1000)
    with pytest.raises(OverflowGuard, match="magnitude_bits"):
        vector.multiply(draw(10), bound=1000)
    many = key.public.encrypt(draw(10), bound=2e5)
    with pytest.raises(OverflowGuard):
        many.add(draw(10), bound=2e5)
    with pytest.raises(OverflowGuard):
        key.public.encrypt([1.0]).blind(flood_bits=60)


def test_largest_promised_value_does_not_wrap():
    key = CkksSecretKey.generate(depth=1, magnitude_bits=10)
    root = math.sqrt(key.public.parameters.max_bound) * 0.999
    full = np.full(key.public.parameters.slots, root)
    vector = key.public.encrypt(full, bound=root)
    np.testing.assert_allclose(key.decrypt(vector.multiply(full, bound=root)), root**2, rtol=1e-5)


def test_a_value_beyond_its_bound_is_refused_without_naming_it(key):
    with pytest.raises(OverflowGuard) as caught:
        key.public.encrypt([1.0, 33.123])
    assert "33.1" not in str(caught.value)
    with pytest.raises(OverflowGuard):
        key.public.encrypt([1.0]).multiply([7.5], bound=5)


@pytest.mark.parametrize(
    "values",
    [[], [[1.0]], [math.nan], [math.inf], ["a"], 3.0, None],
    ids=["empty", "2d", "nan", "inf", "text", "0d", "none"],
)
def test_what_is_no_vector_is_refused(key, values):
    with pytest.raises(ParameterError):
        key.public.encrypt(values)


def test_lengths_must_match(key):
    vector = key.public.encrypt([1.0, 2.0])
    for other in ([1.0], [1.0, 2.0, 3.0]):
        with pytest.raises(ParameterError, match="2 values"):
            vector.add(other)
    with pytest.raises(ParameterError):
        vector.multiply([math.nan, 1.0])


# --- what a ciphertext shows ----------------------------------------------------------------------------------------


def test_equal_plaintexts_give_different_bytes(key):
    first, second = (key.public.encrypt([1.0, 2.0]).to_bytes() for _ in range(2))
    assert first != second


def test_a_zero_factor_cannot_be_seen(key):
    vector = key.public.encrypt(draw(10))
    hidden = [vector.multiply(factor) for factor in (np.zeros(10), np.full(10, 1e-30), np.ones(10))]
    assert len({product.depth_left for product in hidden}) == 1
    assert len({product._chunks[0].coeff_modulus_size() for product in hidden}) == 1
    assert not any(product._chunks[0].is_transparent() for product in hidden)
    for product in hidden[:2]:
        np.testing.assert_allclose(key.decrypt(product), 0, atol=1e-4)


def test_the_public_bound_does_not_follow_the_data(key):
    vector = key.public.encrypt([1.0, 2.0])
    small, large = vector.multiply([0.1, 0.1]), vector.multiply([30.0, 30.0])
    assert (small.bound, small.error) == (large.bound, large.error)
    assert key.public.encrypt([0.1]).bound == key.public.encrypt([30.0]).bound


def test_blinding_unlinks_but_keeps_the_values(key):
    x = draw(20, bound=3)
    vector = key.public.encrypt(x, bound=3)
    scaled = vector.multiply(np.full(20, 2.0))
    blinded = scaled.blind()
    assert blinded.to_bytes() != scaled.to_bytes()
    assert blinded.depth_left == scaled.depth_left
    np.testing.assert_allclose(key.decrypt(blinded), 2 * x, atol=1e-4)
    with pytest.raises(ParameterError):
        scaled.blind(flood_bits=-1)


def slots_of(key, vector):
    """All that the key owner can see of the first chunk: complex slots."""
    return vector.public.ring.decode(key._opened(vector._chunks[0]), paired=True)


def test_flooding_hides_the_error_from_the_key_owner_in_imaginary_parts_too():
    key = CkksSecretKey.generate(depth=1, precision_bits=36)
    x = draw(key.public.parameters.slots, bound=1)
    product = key.public.encrypt(x, bound=1).multiply(x, bound=1)
    flooded = product.blind(flood_bits=6)
    clear, hidden = slots_of(key, product) - x * x, slots_of(key, flooded) - x * x
    for before, after in ((clear.real, hidden.real), (clear.imag, hidden.imag)):
        assert after.std() >= 2**6 * product.error
        assert after.std() >= 2**6 * np.abs(before).max()
    assert np.abs(hidden.real).max() <= flooded.error


# --- keys -----------------------------------------------------------------------------------------------------------


def test_ciphertexts_of_another_key_are_refused(key):
    other = CkksSecretKey.generate(depth=2)
    foreign = other.public.encrypt([1.0])
    for attempt in (
        lambda: key.decrypt(foreign),
        lambda: CkksVector.from_bytes(foreign.to_bytes(), key.public),
    ):
        with pytest.raises(CiphertextError, match="key"):
            attempt()


def test_the_public_key_cannot_decrypt(key):
    public = CkksPublicKey.from_bytes(key.public.to_bytes())
    api = public.ring.api
    for each in (key.public, public):
        assert not hasattr(each, "decrypt")
        holds = [getattr(each, name) for name in each.__slots__] + list(vars(each.ring).values())
        assert not any(isinstance(thing, (api.SecretKey, api.Decryptor, api.KeyGenerator)) for thing in holds)
    # Another secret of the same parameters opens nothing.
    stranger = CkksSecretKey.generate(depth=2)
    vector = key.public.encrypt([1.0, 2.0])
    assert np.abs(vector.public.ring.decode(stranger._opened(vector._chunks[0]), paired=False)[:2]).min() > 1e3


def test_a_public_key_survives_the_wire(key):
    public = CkksPublicKey.from_bytes(key.public.to_bytes())
    assert public.fingerprint == key.public.fingerprint
    assert public.parameters == key.public.parameters
    np.testing.assert_allclose(key.decrypt(public.encrypt([1.5]).multiply([2.0])), [3.0], atol=1e-4)


def test_a_secret_key_is_not_pickled_copied_or_printed(key):
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy, lambda k: k.__getstate__(), lambda k: k.__reduce__()):
        with pytest.raises(SecurityError):
            attempt(key)
    assert not hasattr(key, "__dict__")
    shown = repr(key) + str(key) + f"{key}"
    assert "secret hidden" in shown
    assert repr(key._decryptor) not in shown


def forged(key, head=None, made_with=None, kind="PublicKey", more=b""):
    """A public key whose header fits ``key`` around a key of the forger's choice."""
    ring = ring_of(made_with or key.public.parameters)
    generator = ring.api.KeyGenerator(ring.context)
    made = ring.api.PublicKey()
    generator.create_public_key(made)
    body = {"PublicKey": seal_io.read(made), "SecretKey": seal_io.read(generator.secret_key()), "": b""}
    return ckks_vector.add_digest((head or key.public.to_bytes()[:7]) + body[kind] + more)


def test_a_public_key_with_a_secret_or_other_parameters_is_refused(keys):
    key = keys[1]
    assert CkksPublicKey.from_bytes(forged(key)).parameters == key.public.parameters  # the forger's tool works
    secret = seal_io.read(key.public.ring.api.KeyGenerator(key.public.ring.context).secret_key())
    for data, reason in (
        (forged(key, more=secret), "declares"),
        (forged(key, kind="SecretKey"), "declares"),
        (forged(key, made_with=choose_parameters(1, 30)), "declares"),
        (forged(key, made_with=choose_parameters(3, 20)), "declares"),
        (forged(key, kind=""), "declares"),
        (forged(key, more=b"x"), "declares"),
        (forged(key, head=b"FSK3" + bytes([9, 20, 19])), "impossible"),
    ):
        with pytest.raises(CiphertextError, match=reason):
            CkksPublicKey.from_bytes(data)


def test_the_owner_encrypts_with_its_secret(key):
    x = draw(5000, bound=3)
    vectors = [key.encrypt(x, bound=3) for _ in range(2)]
    assert vectors[0].to_bytes() != vectors[1].to_bytes()
    for vector in (*vectors, CkksVector.from_bytes(vectors[0].to_bytes(), key.public)):
        assert np.abs(key.decrypt(vector) - x).max() <= vector.error
    np.testing.assert_allclose(key.decrypt(vectors[0].multiply(x, bound=3)), x * x, atol=1e-4)


# --- two numbers in a slot --------------------------------------------------------------------------------------------


def test_a_complex_factor_gives_two_products(keys):
    key, (a, x, y, u, v) = keys[1], [draw(5000, bound=3, seed=seed) for seed in range(5)]
    product = key.public.encrypt(a, bound=3).multiply(x + 1j * y, bound=4.5).add(u + 1j * v, bound=4.5).blind()
    product = CkksVector.from_bytes(product.to_bytes(), key.public)
    found = key.decrypt(product)
    assert product.paired
    assert np.abs(found - (a * (x + 1j * y) + u + 1j * v)).max() <= product.error
    with pytest.raises(OverflowGuard):
        key.public.encrypt(a, bound=3).multiply(x + 1j * y, bound=3)  # each part is within 3, the number is not


# --- bytes ----------------------------------------------------------------------------------------------------------


def test_vectors_survive_the_wire_at_every_level(key):
    for length in (1, 30, key.public.parameters.slots + 1):
        x = draw(length, bound=3)
        vector = key.public.encrypt(x)
        square = vector.multiply(x)
        for sent, expected in ((vector, x), (square, x**2), (square.multiply(x, bound=3), x**3)):
            back = CkksVector.from_bytes(sent.to_bytes(), key.public)
            assert (back.length, back.depth_left, back.bound) == (sent.length, sent.depth_left, sent.bound)
            assert back.error >= sent.error
            assert back.to_bytes()[:-32] == sent.to_bytes()[:-32]
            np.testing.assert_allclose(key.decrypt(back), expected, atol=1e-3)


def test_damaged_bytes_are_refused(key):
    data = key.public.encrypt(draw(5)).to_bytes()
    rng = np.random.default_rng(1)
    damaged = [b"", b"FSV2", data[:-1], data[:-40], data[: len(data) // 2], data + b"x", b"x" + data, bytes(len(data))]
    for place in [0, 3, 4, 5, 9, 20, 30, 40, 70, *rng.integers(70, len(data), 20), len(data) - 1]:
        damaged.append(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    for bad in damaged:
        with pytest.raises(CiphertextError):
            CkksVector.from_bytes(bad, key.public)
    with pytest.raises(CiphertextError, match="bytes"):
        CkksVector.from_bytes("text", key.public)
    public = key.public.to_bytes()
    for bad in (b"", public[:-1], public[:50], data, public[:100] + bytes([public[100] ^ 1]) + public[101:]):
        with pytest.raises(CiphertextError):
            CkksPublicKey.from_bytes(bad)


def with_header(data, **changes):
    names = ("magic", "depth", "paired", "count", "length", "bound", "error", "fingerprint")
    header = dict(zip(names, ckks_vector._HEADER.unpack_from(data))) | changes
    return ckks_vector.add_digest(ckks_vector._HEADER.pack(*header.values()) + data[ckks_vector._HEADER.size : -32])


def test_a_header_that_lies_is_refused_even_with_a_right_checksum(key):
    vector = key.public.encrypt(draw(5))
    data = vector.to_bytes()
    CkksVector.from_bytes(with_header(data), key.public)
    lies = [
        {"depth": 1},
        {"depth": 200},
        {"count": 0},
        {"count": 2**31},
        {"count": 2, "length": key.public.parameters.slots + 1},
        {"length": 0},
        {"paired": 7},
        {"length": 2**60},
        {"bound": math.nan},
        {"bound": -1.0},
        {"bound": 1e300},
        {"error": math.nan},
        {"error": -1.0},
        {"fingerprint": bytes(32)},
    ]
    for lie in lies:
        with pytest.raises(CiphertextError):
            CkksVector.from_bytes(with_header(data, **lie), key.public)
    # a bound too small for the values shows at decryption; an error of nothing is not believed
    with pytest.raises(CiphertextError, match="bound"):
        key.decrypt(CkksVector.from_bytes(with_header(data, bound=0.01), key.public))
    assert CkksVector.from_bytes(with_header(data, error=0.0), key.public).error > 0


def test_a_forged_chunk_with_a_right_checksum_never_decrypts_to_garbage(key):
    x = draw(5)
    data = key.public.encrypt(x).to_bytes()[:-32]
    rng = np.random.default_rng(2)
    start = ckks_vector._HEADER.size
    refused = 0
    for place in [*rng.integers(start, start + 150, 40), *rng.integers(start, len(data), 20)]:
        bad = ckks_vector.add_digest(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        try:
            found = key.decrypt(CkksVector.from_bytes(bad, key.public))
        except CiphertextError:
            refused += 1
        else:  # a bit that the format does not use
            np.testing.assert_allclose(found, x, atol=1e-4)
    assert refused >= 40


def test_oversized_vectors_are_refused(key, monkeypatch):
    data = key.public.encrypt(draw(20)).to_bytes()
    monkeypatch.setattr(ckks_vector, "MAX_LENGTH", 10)
    with pytest.raises(CiphertextError, match="at most 10"):
        CkksVector.from_bytes(data, key.public)
    with pytest.raises(ParameterError):
        key.public.encrypt(draw(20))


def test_importing_the_secure_layer_loads_no_heavy_library():
    code = "import sys, fedsift.crypto.ckks.keys, fedsift.crypto.dp; print({'tenseal', 'opendp'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
