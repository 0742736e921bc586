"""Integer vectors under lattice encryption (BFV on SEAL, through TenSEAL), multiplied by plain polynomials.

A plaintext is a polynomial of degree below 8,192 with coefficients modulo 2^bits; a ciphertext times a plain polynomial
is the product modulo X^8192 + 1: one product is thousands of multiplications and additions of coefficients
(``protocols/block_product.py`` lays matrices out so that it is a product of matrices). BFV is exact; its cousin CKKS
would hand a decryption's noise on with the value, and decodes through 53-bit floats, which leaves no room for masks.

Why it is secure:
- Ring degree 8,192 and 180 bits of modulus: inside the 128-bit column (218 bits) of the HomomorphicEncryption.org
  standard; SEAL is told to enforce it, and its randomness is the operating system's.
- The owner encrypts with its secret key; half of such a ciphertext is a public seed (SEAL's, Blake2xb).
- A computed ciphertext goes back to the owner, who knows the noise that it put in and could read the factors off what
  came out of it, in either half. ``LatticePublicKey.answer`` therefore adds (1) a fresh public-key encryption of zero,
  which makes the second half look random to the owner too, (2) to each coefficient of the first half that is sent, a
  random number: uniform over the whole gap between two plaintexts together with a uniform plaintext (``hide``: the
  owner sees a uniform number modulo q), or uniform over a range 2^40 times the noise (``show``: the owner reads the
  plaintext and nothing else). (3) Coefficients that are not asked for are not sent at all.
- Against an owner or peer that deviates from the protocol nothing is promised (semi-honest).
"""

from __future__ import annotations

import functools
import hashlib
import secrets
import struct
from typing import NoReturn

import numpy as np

from fedsift.core.message import wire_type
from fedsift.crypto import seal_io
from fedsift.crypto.seal_io import Seal
from fedsift.errors import CiphertextError, OverflowGuard

DEGREE = 8192
_PRIME_BITS = (60, 60, 60)  # the last one serves public-key encryption only
PRIMES = len(_PRIME_BITS) - 1
SHOW_NOISE_BITS = 70  # 40 more than the noise of a product with factors up to 2^22
_NAME = f"BFV lattice {DEGREE}, 128-bit security"
_HEAD = struct.Struct("<BII16s")  # plaintext bits, ciphertexts, coefficients sent of each, key fingerprint


class _Seal:
    """SEAL's context for one plaintext size, and what goes with it."""

    def __init__(self, bits: int):
        api = self.api = seal_io.api()
        self.bits = bits
        self.context = seal_io.context("BFV", DEGREE, _PRIME_BITS, plain_modulus=1 << bits)
        self.evaluator = api.Evaluator(self.context)
        self.level = self.context.first_parms_id()
        self.primes = [m.value() for m in self.context.first_context_data().parms().coeff_modulus()]
        self.modulus = self.primes[0] * self.primes[1]
        self.version = seal_io.version_of(api.Plaintext("1"))
        self.parameters = struct.pack("<4Q", *self.level)

    def plaintext(self, coefficients: np.ndarray) -> Seal:
        plain = self.api.Plaintext()
        seal_io.write(plain, self.context, self.version, seal_io.plaintext_fields(self.version, coefficients))
        return plain

    def factor(self, coefficients: np.ndarray) -> Seal:
        """A plain polynomial ready to multiply with (numbers above half of the modulus count as negative)."""
        plain, ready = self.plaintext(coefficients), self.api.Plaintext()
        self.evaluator.transform_to_ntt(plain, self.level, ready)
        return ready

    def ciphertext(self, words: np.ndarray, seed: bytes = b"") -> Seal:
        ciphertext = self.api.Ciphertext(self.context)
        fields = seal_io.ciphertext_fields(self.version, self.parameters, words, seed)
        seal_io.write(ciphertext, self.context, self.version, fields)
        return ciphertext


@functools.lru_cache(maxsize=4)
def _seal(bits: int) -> _Seal:
    if not 2 <= bits <= 58:
        raise CiphertextError(f"lattice plaintexts have 2 to 58 bits; got {bits}")
    return _Seal(bits)


class _Wire:
    """Ciphertexts in a message: fixed lengths, checked before anything is computed."""

    scheme_name = _NAME

    def __init__(self, bits: int, fingerprint: bytes, words: np.ndarray, rest: bytes):
        self.bits, self.fingerprint = bits, fingerprint
        self.words, self.rest = words, rest  # count x primes x degree; what differs between the two kinds

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"<{len(self)} ciphertexts, {_NAME}, key {self.fingerprint.hex()[:8]}>"

    def _to_bytes(self, sent: int) -> bytes:
        head = _HEAD.pack(self.bits, len(self), sent, self.fingerprint)
        return head + self.words.astype("<u8").tobytes() + self.rest

    @classmethod
    def _read(cls, data: bytes, each: int) -> tuple[int, bytes, np.ndarray, bytes, int]:
        if len(data) < _HEAD.size:
            raise CiphertextError("a lattice ciphertext vector is truncated")
        bits, count, sent, fingerprint = _HEAD.unpack_from(data)
        size = 8 * PRIMES * DEGREE
        rest = each if each else 8 * PRIMES * sent
        if not 2 <= bits <= 58 or sent > DEGREE or len(data) != _HEAD.size + count * (size + rest):
            raise CiphertextError("a lattice ciphertext vector has the wrong length")
        words = np.frombuffer(data, dtype="<u8", count=count * PRIMES * DEGREE, offset=_HEAD.size)
        return bits, fingerprint, words.reshape(count, PRIMES, DEGREE), data[_HEAD.size + count * size :], sent


@wire_type(44)
class LatticeCiphertexts(_Wire):
    """Fresh from the key's owner: the first polynomial of each, and the seed of the second."""

    def to_bytes(self) -> bytes:
        return self._to_bytes(0)

    @classmethod
    def from_bytes(cls, data: bytes) -> LatticeCiphertexts:
        bits, fingerprint, words, rest, _ = cls._read(data, seal_io.SEED_BYTES)
        return cls(bits, fingerprint, words, rest)


@wire_type(45)
class LatticeAnswers(_Wire):
    """On the way back to the owner: the second polynomial of each, and the asked coefficients of the first."""

    def to_bytes(self) -> bytes:
        return self._to_bytes(len(self.rest) // (8 * PRIMES * max(1, len(self))))

    @classmethod
    def from_bytes(cls, data: bytes) -> LatticeAnswers:
        bits, fingerprint, words, rest, _ = cls._read(data, 0)
        return cls(bits, fingerprint, words, rest)


@wire_type(46)
class LatticePublicKey:
    """Multiplies and answers; holds no secret."""

    def __init__(self, bits: int, body: bytes):
        self.bits, self._body = bits, body
        self.fingerprint = hashlib.sha256(bytes([bits]) + body).digest()[:16]
        self._encryptor: Seal = None

    def __repr__(self) -> str:
        return f"<public key {self.fingerprint.hex()[:8]}, {_NAME}, {self.bits}-bit numbers>"

    def to_bytes(self) -> bytes:
        return bytes([self.bits]) + self._body

    @classmethod
    def from_bytes(cls, data: bytes) -> LatticePublicKey:
        if len(data) < 2 or not 2 <= data[0] <= 58:
            raise CiphertextError("a lattice public key is truncated or has a refused size")
        return cls(data[0], data[1:])

    def load(self, ciphertexts: LatticeCiphertexts) -> list[Seal]:
        """Fresh ciphertexts, ready to be multiplied."""
        if not isinstance(ciphertexts, LatticeCiphertexts) or ciphertexts.fingerprint != self.fingerprint:
            raise CiphertextError("expected lattice ciphertexts of this public key")
        seal, ready = _seal(self.bits), []
        for place, words in enumerate(ciphertexts.words):
            seed = ciphertexts.rest[place * seal_io.SEED_BYTES : (place + 1) * seal_io.SEED_BYTES]
            ciphertext = seal.ciphertext(words[None], seed)
            seal.evaluator.transform_to_ntt_inplace(ciphertext)
            ready.append(ciphertext)
        return ready

    def factors(self, polynomials: np.ndarray) -> list[Seal]:
        """Plain polynomials (count x degree, modulo 2^bits), ready to multiply with; ``None`` for zero."""
        seal = _seal(self.bits)
        return [seal.factor(p) if p.any() else None for p in polynomials]

    def answer(self, pairs: list[tuple[Seal, Seal]], plain: np.ndarray, places: np.ndarray, hide: bool) -> Seal:
        """Sum of ciphertext x factor plus ``plain`` (at ``places``), blinded. With ``hide`` ``plain`` is a mask that
        must be uniform, and what the owner's rounding adds to it at each place comes back (0 or 1)."""
        seal, api = _seal(self.bits), _seal(self.bits).api
        total, term = None, api.Ciphertext(seal.context)
        for ciphertext, factor in pairs:
            if factor is None:
                continue
            if total is None:
                total = api.Ciphertext(seal.context)
                seal.evaluator.multiply_plain(ciphertext, factor, total)
            else:
                seal.evaluator.multiply_plain(ciphertext, factor, term)
                seal.evaluator.add_inplace(total, term)
        blinding = api.Ciphertext(seal.context)
        self._public().encrypt_zero(blinding)
        if total is not None:
            seal.evaluator.transform_from_ntt_inplace(total)
            seal.evaluator.add_inplace(blinding, total)
        message = np.zeros(DEGREE, dtype=np.uint64)
        message[places] = plain
        seal.evaluator.add_plain_inplace(blinding, seal.plaintext(message))
        words, _ = seal_io.ciphertext_words(seal_io.read(blinding), PRIMES, DEGREE)
        noise, carries = _noise(seal, len(places), hide)
        primes = np.array(seal.primes, dtype=np.uint64)[:, None]
        return words[1], (words[0][:, places] + noise) % primes, carries

    def _public(self) -> Seal:
        if self._encryptor is None:
            seal = _seal(self.bits)
            key = seal.api.PublicKey()
            seal_io.write(key, seal.context, seal.version, self._body)
            self._encryptor = seal.api.Encryptor(seal.context, key)
        return self._encryptor

    def pack(self, answers: list[Seal]) -> LatticeAnswers:
        words = np.stack([answer[0] for answer in answers])
        return LatticeAnswers(self.bits, self.fingerprint, words, np.stack([a[1] for a in answers]).tobytes())


def _noise(seal: _Seal, count: int, hide: bool) -> tuple[np.ndarray, np.ndarray]:
    """Random numbers below the gap between two plaintexts (``hide``), or within 2^70 of 0, modulo each prime.

    A number is high * 2^60 + low. The primes lie a little below 2^60, so 2^60 is a small number modulo each of them.
    """
    gap = seal.modulus >> seal.bits
    primes = np.array(seal.primes, dtype=np.uint64)[:, None]
    fold = np.uint64(1 << 60) - primes
    if hide:
        high, low = _random_below(gap, count)
        half = (gap + 1) // 2
        carries = _at_least(high, low, half).astype(np.uint64)
        return (low + high * fold) % primes, carries
    if gap.bit_length() < SHOW_NOISE_BITS + 2:
        raise OverflowGuard("the noise that hides an answer does not fit these lattice parameters")
    high, low = _random_below(1 << (SHOW_NOISE_BITS + 1), count)
    centre = np.array([[(1 << SHOW_NOISE_BITS) % prime] for prime in seal.primes], dtype=np.uint64)
    return ((low + high * fold) % primes + primes - centre) % primes, np.zeros(count, dtype=np.uint64)


def _at_least(high: np.ndarray, low: np.ndarray, bound: int) -> np.ndarray:
    top, rest = np.uint64(bound >> 60), np.uint64(bound & ((1 << 60) - 1))
    return np.asarray((high > top) | ((high == top) & (low >= rest)))


def _random_below(bound: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Uniform numbers below ``bound`` (at most 2^80) as their bits from 60 up and below 60; drawn again until below."""
    bits = (bound - 1).bit_length()
    high, low = np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=np.uint64)
    open_places = np.arange(count)
    while len(open_places):
        drawn = np.frombuffer(secrets.token_bytes(16 * len(open_places)), dtype=np.uint64).reshape(2, -1)
        high[open_places] = drawn[0] & np.uint64((1 << max(0, bits - 60)) - 1)
        low[open_places] = drawn[1] & np.uint64((1 << min(60, bits)) - 1)
        open_places = open_places[_at_least(high[open_places], low[open_places], bound)]
    return high, low


class LatticeSecretKey:
    """Encrypts and decrypts. Never leaves its party: it has no wire type, and its text shows nothing."""

    def __init__(self, bits: int):
        seal = _seal(bits)
        generator = seal.api.KeyGenerator(seal.context)
        secret, public = generator.secret_key(), seal.api.PublicKey()
        generator.create_public_key(public)
        self._encryptor = seal.api.Encryptor(seal.context, secret)
        self._decryptor = seal.api.Decryptor(seal.context, secret)
        self.public = LatticePublicKey(bits, seal_io.read(public))

    def __repr__(self) -> str:
        return f"<secret key of {self.public!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key is not serialised")

    def encrypt(self, polynomials: np.ndarray) -> LatticeCiphertexts:
        """Polynomials (count x degree) with coefficients modulo 2^bits."""
        seal, words, seeds = _seal(self.public.bits), [], []
        for polynomial in polynomials:
            made = self._encryptor.encrypt_symmetric(seal.plaintext(polynomial))
            first, seed = seal_io.ciphertext_words(seal_io.read(made), PRIMES, DEGREE)
            if len(seed) != seal_io.SEED_BYTES or len(first) != 1:
                raise CiphertextError(
                    "this build of SEAL writes seeded ciphertexts in a way that fedsift does not read"
                )
            words.append(first[0])
            seeds.append(seed)
        return LatticeCiphertexts(self.public.bits, self.public.fingerprint, np.stack(words), b"".join(seeds))

    def open(self, answers: LatticeAnswers, places: np.ndarray) -> np.ndarray:
        """The plaintexts at ``places``: answers x places, modulo 2^bits."""
        if not isinstance(answers, LatticeAnswers) or answers.fingerprint != self.public.fingerprint:
            raise CiphertextError("expected an answer under this secret key")
        seal = _seal(self.public.bits)
        if len(answers.rest) != 8 * len(answers) * PRIMES * len(places):
            raise CiphertextError(f"expected {len(places)} coefficients of each of {len(answers)} answers")
        firsts = np.frombuffer(answers.rest, dtype="<u8").reshape(len(answers), PRIMES, len(places))
        numbers, wanted = np.zeros((len(answers), len(places)), dtype=np.uint64), places.tolist()
        for place, (second, first) in enumerate(zip(answers.words, firsts)):
            words = np.zeros((2, PRIMES, DEGREE), dtype=np.uint64)
            words[0][:, places], words[1] = first, second
            plain = seal.api.Plaintext()
            self._decryptor.decrypt(seal.ciphertext(words), plain)
            count = plain.coeff_count()
            numbers[place] = [plain[i] if i < count else 0 for i in wanted]
        return numbers
