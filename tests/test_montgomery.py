"""Modular products: both engines against Python's own integers, and Okamoto-Uchiyama on top of them."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gmpy2
import numpy as np
import pytest
from conftest import cached_key
from device_double import DeviceDouble
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsift.crypto import kernel
from fedsift.crypto.additive import cuda, montgomery
from fedsift.crypto.additive import okamoto_uchiyama as _ou
from fedsift.crypto.additive.grouped import group_sums
from fedsift.crypto.additive.keys import Ciphertexts, PublicKey, generate_key
from fedsift.crypto.kernel import library, state
from fedsift.errors import CiphertextError


def graphics(n: int) -> cuda.Device:
    """Everything on the double of a device, however small."""
    return cuda.Device(montgomery.cpu_modulus(n), DeviceDouble(), large=1)


class Compiled:
    """One way of computing of the compiled library."""

    def __init__(self, name: str):
        self.__name__ = name

    def __call__(self, n: int) -> montgomery._Kernel:
        return montgomery._Kernel(n, kernel.engine(self.__name__))


COMPILED = [Compiled(name) for name in ("AVX-512", "AVX2", "portable") if library() and kernel.engine(name)]
ENGINES = [montgomery._Gmp, *COMPILED] + ([graphics] if shutil.which("cc") else [])
SIZES = (104, 1371, 2054, 3073, 4096)


def odd(bits: int, seed: int = 0) -> int:
    return (
        int.from_bytes(np.random.default_rng(seed).bytes(bits // 8 + 1), "little") % (1 << bits - 1) | 1 << bits - 1 | 1
    )


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.__name__)
def engine(request):
    return request.param


def test_the_kernel_runs_where_the_processor_can():
    """A kernel that silently was not compiled would cost users a factor of seven and fail no other test."""
    processor = Path("/proc/cpuinfo")
    if os.environ.get("FEDSIFT_KERNEL") == "off" or not processor.exists() or not shutil.which("cc"):
        pytest.skip("switched off, or no compiler")
    found = processor.read_text()
    if "FEDSIFT_KERNEL" not in os.environ:
        assert state() == ("AVX-512" if "avx512ifma" in found else "AVX2" if "avx2" in found else "portable")


@pytest.mark.parametrize("bits", SIZES)
def test_numbers_survive_loading_and_dumping(engine, bits):
    n = odd(bits)
    mod, values = engine(n), [0, 1, 2, n - 1, n - 2, 1 << bits - 2]
    assert mod.integers(mod.numbers(values)) == values
    size = (bits + 7) // 8
    too_large = [n, n + 5, (1 << 8 * size) - 1]
    raw = b"".join(value.to_bytes(size, "little") for value in too_large)
    assert mod.integers(mod.load(raw, size)) == [value % n for value in too_large]
    assert mod.integers(mod.numbers([])) == []


@pytest.mark.parametrize("bits", SIZES)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_products_powers_and_inverses_equal_plain_integers(bits, data):
    n = odd(bits, seed=1)
    extreme = st.sampled_from([1, 2, n - 1, n - 2, (1 << bits - 1) - 1])
    values = data.draw(st.lists(st.integers(1, n - 1) | extreme, min_size=1, max_size=19))
    others = data.draw(st.lists(st.integers(1, n - 1) | extreme, min_size=len(values), max_size=len(values)))
    exponents = data.draw(st.lists(st.integers(0, 1 << 70), min_size=len(values), max_size=len(values)))
    times = data.draw(st.integers(0, 40))
    for engine in ENGINES:
        mod = engine(n)
        a, b = mod.numbers(values), mod.numbers(others)
        assert mod.integers(mod.product(a, b)) == [x * y % n for x, y in zip(values, others)]
        assert mod.integers(mod.product(a, b[:1])) == [x * others[0] % n for x in values]
        assert mod.integers(mod.squared(a, times)) == [pow(x, 1 << times, n) for x in values]
        assert mod.integers(mod.power(a, exponents)) == [pow(x, e, n) for x, e in zip(values, exponents)]
        if all(gmpy2.gcd(x, n) == 1 for x in values):
            assert mod.integers(mod.inverse(a)) == [pow(x, -1, n) for x in values]


@pytest.mark.parametrize("bits", SIZES)
def test_limbs_of_ones_and_of_zeros(engine, bits):
    """Every half of a product at its largest and smallest, where rounding would show."""
    for n in ((1 << bits) - 1, (1 << bits - 1) + 1):
        mod, values = engine(n), [1, 2, n - 1, n - 2, n >> 1, (1 << bits - 2) - 1, 1 << bits - 2]
        rows, squares = mod.numbers(values), [pow(value, 1 << 30, n) for value in values]
        assert mod.integers(mod.product(rows, mod.numbers(values[::-1]))) == [
            x * y % n for x, y in zip(values, values[::-1])
        ]
        assert mod.integers(mod.squared(rows, 30)) == squares


def test_rounding_is_as_it_was_afterwards(engine):
    """One way of computing rounds towards zero while it runs; the thread's own numbers do not."""
    mod = engine(odd(2054))
    a = mod.numbers([3, 5, 7])
    mod.integers(mod.power(mod.squared(mod.product(a, a), 2), [1, 2, 3]))
    mod.segments(a, np.array([0, 1, 2]), np.array([0, 3]))
    assert (np.float64(1.0) / np.float64(5.0)).hex() == "0x1.999999999999ap-3"  # towards zero: 9 at its end


def test_many_products_in_a_row_do_not_drift(engine):
    """Rows are kept below 2n, not below n: a bound that did not hold would show after many products only."""
    n = odd(2054, seed=2)
    mod, value = engine(n), n - 1
    a = mod.numbers([value] * 3)
    for _ in range(500):
        a = mod.product(a, a)
    assert mod.integers(a) == [pow(value, 1 << 500, n)] * 3


@pytest.mark.parametrize("lengths", [[], [0], [0, 3, 0], [1] * 20, [5000, 1, 0, 2], [700] * 9, [10] * 1000])
def test_segments_of_any_length(engine, lengths):
    """Empty, single, more than lanes, one far longer than the others, enough for several threads."""
    n = odd(2054, seed=3)
    mod, rng = engine(n), np.random.default_rng(0)
    values = [int.from_bytes(rng.bytes(256), "little") % n for _ in range(50)]
    order = rng.integers(0, 50, sum(lengths))
    bounds = np.cumsum([0, *lengths])
    expected = []
    for start, end in itertools.pairwise(bounds):
        product = gmpy2.mpz(1)
        for place in order[start:end]:
            product = product * values[place] % n
        expected.append(int(product))
    assert mod.integers(mod.segments(mod.numbers(values), order, bounds)) == expected


@pytest.mark.parametrize(("order", "bounds"), [([3], [0, 1]), ([-1], [0, 1]), ([0], [0, 2]), ([0, 1], [0, 2, 1])])
def test_c_is_never_asked_to_read_outside_its_arrays(engine, order, bounds):
    mod = engine(odd(2054))
    with pytest.raises(IndexError):
        mod.segments(mod.numbers([1, 2, 3]), np.array(order), np.array(bounds))
    with pytest.raises(IndexError):
        mod.product(mod.numbers([1, 2, 3]), mod.numbers([1, 2]))
    with pytest.raises(IndexError):
        mod.power(mod.numbers([1, 2, 3]), [1, 2])


def test_table_powers_equal_plain_powers(engine):
    n = odd(2054, seed=4)
    mod = engine(n)
    table = mod.power_table(3, 5)
    exponents = [0, 1, 255, 256, (1 << 40) - 1]
    raw = b"".join(each.to_bytes(5, "little") for each in exponents)
    assert mod.integers(mod.table_powers(table, raw, 5)) == [pow(3, each, n) for each in exponents]


needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="the device's double is compiled")


@needs_compiler
def test_only_what_is_large_goes_to_the_device():
    machine = DeviceDouble()
    mod = cuda.Device(montgomery.cpu_modulus(odd(2054)), machine, large=10)
    mod.product(mod.numbers([3] * 9), mod.numbers([5]))
    assert machine.started == []
    many = mod.numbers([3] * 10)
    assert mod.integers(mod.join([many, mod.numbers([7])])) == [3] * 10 + [7]
    assert mod.integers(mod.product(many, mod.numbers([5]))) == [15] * 10
    assert set(machine.started) == {"products"}


@needs_compiler
@pytest.mark.parametrize("groups", [[1, 2, 200, 256], [3] * 40])
def test_a_histogram_on_the_device_equals_the_processors(groups):
    """One column that is mostly one group among them, and groups without a row."""
    rng, key = np.random.default_rng(0), cached_key("ou")
    codes = np.stack([rng.integers(0, max(1, g - 1), 300) for g in groups], axis=1)
    codes[:290, 1] = 0
    rows = key.public.encrypt(range(300))
    expected = key.decrypt(group_sums(key.public, rows, codes, groups), bits=64)
    mod = cuda.Device(rows._key.modulus, DeviceDouble(), large=2)
    there = mod.load(rows._bytes(), rows._width)
    counted = mod.grouped(there, codes, groups)
    assert key.decrypt(key.public._wrap(rows._key.modulus.numbers(mod.integers(counted))), bits=64) == expected


@needs_compiler
def test_a_secret_modulus_never_goes_to_the_device(monkeypatch):
    machine = DeviceDouble()
    monkeypatch.setattr(cuda, "machine", lambda: machine)
    secret = _ou.generate(2048)
    assert isinstance(secret.public.modulus, cuda.Device)
    assert not isinstance(secret._modulus, cuda.Device)


# --- Okamoto-Uchiyama ------------------------------------------------------------------------------------------------


def test_the_key_has_the_structure_that_the_argument_needs():
    secret = _ou.generate(2048)
    p, t, public = int(secret._p), secret._t, secret.public
    q = public.n // p**2
    assert public.n == p * p * q
    assert public.n.bit_length() >= 2048
    assert all(gmpy2.is_prime(each) for each in (p, q, t))
    assert (t.bit_length(), p.bit_length(), q.bit_length()) == (256, 685, 683)
    assert (p - 1) % t == 0
    assert pow(public.h, t, p * p) == 1  # what decryption removes
    assert public.h % (p * p) != 1
    assert pow(public.h, t, q) != 1  # else t, and with it p, would follow from H
    assert pow(public.g, p * t, p * p) == 1
    assert pow(public.g, t, p * p) != 1
    assert p // 2 > 1 << public.plaintext_bits
    assert _ou.generate(2048).public.n != public.n


def test_randomness_is_long_enough_for_the_keys_strength():
    """An exponent of b bits is found in 2^(b/2) steps, whatever the modulus."""
    assert _ou._RANDOM_BYTES * 8 // 2 >= 128
    assert _ou._SUBGROUP_BITS // 2 >= 128
    public = cached_key("ou").public._key
    exponent = 1 << 8 * (_ou._RANDOM_BYTES - 1)  # the last digit counts, whichever engine holds the table
    power = public.modulus.table_powers(public._h_table, exponent.to_bytes(_ou._RANDOM_BYTES, "little"), 1)
    assert public.modulus.integers(power) == [pow(public.h, exponent, public.n)]


@pytest.mark.parametrize("values", [[0, 1, 2**100], [-5, 7, 0], [-(2**681)], [2**682 - 1, -(2**682) + 1]])
def test_an_independent_implementation_opens_our_ciphertexts(values):
    """sf-heu, given our primes, reads what we encrypt, and we read what it encrypts."""
    heu = pytest.importorskip("heu.phe")
    key = cached_key("ou")
    secret, public = key._secret, key.public._key
    theirs = heu.setup(_their_public(heu, public), _their_secret(heu, secret))
    radix = _their_radix(theirs, public.n)
    ours = [c * radix % public.n for c in public.modulus.integers(key.public.encrypt(values).payload)]
    opened = [int(theirs.decryptor().decrypt(_their_ciphertext(heu, c))) for c in ours]
    assert opened == values
    made = [_their_value(theirs.encryptor().encrypt(theirs.plaintext(value))) for value in values]
    numbers = public.modulus.numbers([c * pow(radix, -1, public.n) % public.n for c in made])
    assert key.decrypt(key.public._wrap(numbers), bits=683, signed=True) == values


def _their_number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little")
    head = bytes([0xA0 | len(raw)]) if len(raw) < 32 else b"\xd9" + bytes([len(raw)]) if len(raw) < 256 else b""
    return (head or b"\xda" + len(raw).to_bytes(2, "big")) + raw


_OU = (1).to_bytes(8, "little")


def _their_public(heu, public):
    bound = b"\xcd" + (683).to_bytes(2, "big")
    return heu.PublicKey.load_from(b"\x94" + b"".join(map(_their_number, (public.n, public.g, public.h))) + bound + _OU)


def _their_secret(heu, secret):
    p, n = int(secret._p), secret.public.n
    fields = (p, n // p**2, secret._t, int(secret._factor), p * p, p // 2, n)
    return heu.SecretKey.load_from(b"\x97" + b"".join(map(_their_number, fields)) + _OU)


def _their_ciphertext(heu, value: int):
    return heu.Ciphertext.load_from(b"\x91" + _their_number(value) + _OU)


def _their_value(ciphertext) -> int:
    raw = ciphertext.serialize()
    start = {0xD9: 3, 0xDA: 4}[raw[1]]
    return int.from_bytes(raw[start:-8], "little")


def _their_radix(kit, n: int) -> int:
    """sf-heu keeps c R modulo n; R follows from one product: (a R)(b R) / (a b R)."""
    a, b = (kit.encryptor().encrypt(kit.plaintext(number)) for number in (3, 5))
    return _their_value(a) * _their_value(b) * pow(_their_value(kit.evaluator().add(a, b)), -1, n) % n


def test_a_party_without_the_kernel_takes_part():
    """One site's processor has the instructions, another's has not: the same key and ciphertexts on the wire."""
    key = cached_key("ou")
    sent = key.public.encrypt([5, 6, 7])
    code = (
        "import sys\n"
        "from fedsift.crypto.kernel import library\n"
        "from fedsift.crypto.additive.keys import Ciphertexts, PublicKey\n"
        "assert library() is None\n"
        "key, values = (bytes.fromhex(line) for line in sys.stdin.read().split())\n"
        "key, values = PublicKey.from_bytes(key), Ciphertexts.from_bytes(values)\n"
        "print(key.blind(key.select_sums(values, [[0, 1], [2], []])).to_bytes().hex())\n"
    )
    given = f"{key.public.to_bytes().hex()} {sent.to_bytes().hex()}"
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, text=True,
        env={**os.environ, "FEDSIFT_KERNEL": "off"}, check=True,
    )  # fmt: skip
    answer = Ciphertexts.from_bytes(bytes.fromhex(done.stdout.strip()))
    assert key.decrypt(answer, bits=8) == [11, 7, 0]


def test_public_keys_that_nobody_made_are_refused():
    body = cached_key("ou").public._body
    size = len(body) // 3
    n = int.from_bytes(body[:size], "little")
    even = (n - 1).to_bytes(size, "little") + body[size:]
    large = body[:size] + n.to_bytes(size, "little") + body[2 * size :]
    zero = body[: 2 * size] + bytes(size)
    for bad in (even, large, zero, body[:-1]):
        with pytest.raises(CiphertextError, match="public key"):
            PublicKey("ou", 2048, bad).encrypt([1])


@pytest.mark.parametrize("bits", [2072, 3072])
def test_longer_keys_work(bits):
    """Also one whose numbers take more bytes on the wire than in whole limbs."""
    key = generate_key("ou", bits)
    sent = Ciphertexts.from_bytes(key.public.encrypt([1, -2]).to_bytes())
    assert key.decrypt(sent, bits=5, signed=True) == [1, -2]
    assert key.decrypt(key.public.sum_all(key.public.encrypt([3, 4, -20])), bits=10, signed=True) == [-13]


def test_a_user_is_told_why_encryption_is_slow():
    def said(**change):
        command = [sys.executable, "-c", "from fedsift.cli.main import main; main()", "--version"]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **change}, check=True).stdout

    assert "none: switched off by FEDSIFT_KERNEL" in said(FEDSIFT_KERNEL="off")
    assert state() in " ".join(said().split())
