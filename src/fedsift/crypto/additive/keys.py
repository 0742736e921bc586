"""Additively homomorphic encryption of integer vectors: one small interface over two schemes.

``generate_key(scheme)`` gives a ``SecretKey``; its ``public`` part encrypts, adds, scales, sums by groups and blinds
``Ciphertexts``. Schemes: Okamoto-Uchiyama (the default) and Paillier; in both, a sum of
plaintexts is a product of ciphertexts, which ``montgomery`` computes. The scheme travels with every ciphertext.

What is promised:
- Keys have 2048 bits or more; randomness comes from the operating system (inside OpenSSL too).
- Encryption is randomised. Sums and products of ciphertexts are not fresh until ``blind`` adds an encryption of zero;
  whoever sends a computed ciphertext to the key holder blinds it first, or the key holder could recompute it.
- Nothing wraps silently: plaintexts outside the bound raise ``OverflowGuard`` at encryption, and ``decrypt`` takes the
  bound that the protocol promises and raises ``CiphertextError`` for anything outside it. That check is also what
  keeps an Okamoto-Uchiyama key safe: decrypting a chosen ciphertext to an arbitrary value would give its factor away.
- A ciphertext carries its key's fingerprint; another key's ciphertext is refused by name, not decrypted to noise.

Of the public keys that this process has built, with their tables (some 10 MB each), the last few are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedsift.core.message import Elsewhere, wire_type
from fedsift.crypto.additive import okamoto_uchiyama, paillier
from fedsift.crypto.kernel import shared
from fedsift.errors import CiphertextError, OverflowGuard, ParameterError

MOST = 16
_keys: dict[bytes, object] = {}


def remember(fingerprint: bytes, key: object) -> object:
    """Keep a built key for later messages under the same key."""
    _keys[fingerprint] = key
    while len(_keys) > MOST:
        _keys.pop(next(iter(_keys)), None)
    return key


def find(fingerprint: bytes) -> object:
    """The built key, or ``None``."""
    return _keys.get(fingerprint)


MIN_BITS = 2048
MAX_BITS = 4096  # of a key that somebody else has made: larger ones would cost this party hours
_BACKENDS: dict[str, Any] = {"ou": okamoto_uchiyama, "paillier": paillier}
SCHEMES = ("auto", *_BACKENDS)  # the fastest first
_SCHEME_CODES = {"ou": 1, "paillier": 3}
_SCHEME_NAMES = {"ou": "Okamoto-Uchiyama", "paillier": "Paillier"}
_CHECKED = 1 << 12  # numbers whose range is checked that are worth a thread of their own
_AT_ONCE = 1 << 18  # numbers that are encrypted together: what is in memory beside the result
_HEADER = 31  # bytes before the numbers of a vector
_KEY_BLOCK = 64  # bytes; a public key takes a whole number of blocks on the wire


def generate_key(scheme: str = "auto", bits: int = MIN_BITS) -> SecretKey:
    """A fresh key pair. Less than 2048 bits is refused, and more than 4096: nobody would take it."""
    if scheme == "auto":
        scheme = SCHEMES[1]
    if scheme not in _BACKENDS:
        raise ParameterError(f"scheme must be one of {', '.join(map(repr, SCHEMES))}; got {scheme!r}")
    if not MIN_BITS <= bits <= MAX_BITS:
        raise ParameterError(f"keys have at least {MIN_BITS} bits and at most {MAX_BITS}; got {bits}")
    return SecretKey(scheme, bits, _BACKENDS[scheme].generate(bits))


@wire_type(33, views=True, passed=True)
class Ciphertexts:
    """A vector of ciphertexts under one key. Opaque: only the key's methods compute with it.

    What came in a message stays as bytes until somebody computes with it: the coordinator only passes it on, and does
    not even hold it where it is large (``there``).
    """

    def __init__(
        self, scheme: str, bits: int, fingerprint: bytes, payload: Any = None, raw: bytes | memoryview | None = None,
        key: Any = None, there: Elsewhere | None = None,
    ):  # fmt: skip
        self.scheme = scheme
        self.bits = bits
        self.fingerprint = fingerprint
        self._payload = payload
        self._raw = raw  # fixed-width values, one after the other
        self._key = key  # the back-end's public key, known once a ``PublicKey`` has taken the vector for its own
        self._there = there  # header and all

    @property
    def payload(self) -> Any:
        """The numbers, in the form in which ``montgomery`` computes; what no encryption gives is refused here."""
        if self._payload is None:
            raw = self._bytes()
            self._check_range(raw)
            self._payload = self._key.modulus.load(raw, self._width)
            self._raw = None  # not held twice
        return self._payload

    def _check_range(self, raw: bytes | memoryview | None) -> None:
        """Above zero and below the modulus: compared where a number first differs from it, from the highest byte on."""
        rows = np.frombuffer(raw or b"", np.uint8).reshape(-1, self._width)[:, ::-1]
        modulus = np.frombuffer(self._key.modulus.n.to_bytes(self._width, "big"), np.uint8)

        def inside(start: int, end: int) -> bool:
            return all(below(rows[at : min(at + _CHECKED, end)]) for at in range(start, end, _CHECKED))

        def below(some: np.ndarray) -> bool:
            first = (some != modulus).argmax(axis=1)
            return bool(((some[np.arange(len(some)), first] < modulus[first]) & some.any(axis=1)).all())

        if not all(shared(inside, np.arange(len(rows) + 1), _CHECKED)):
            raise CiphertextError("a ciphertext is outside the range of its key: it is damaged")

    @property
    def _width(self) -> int:
        return int(_BACKENDS[self.scheme].width(self.bits))

    @property
    def scheme_name(self) -> str:
        return f"{_SCHEME_NAMES[self.scheme]} {self.bits} bits"

    def __len__(self) -> int:
        if self._there is not None:
            return (len(self._there) - _HEADER) // self._width
        return len(self._payload) if self._raw is None else len(self._raw) // self._width

    def take(self, positions: Sequence[int] | np.ndarray) -> Ciphertexts:
        rows = np.asarray(positions, dtype=np.int64)
        if self._payload is not None:
            return self._with(self._key.modulus.take(self._payload, rows))
        return self._with(raw=np.frombuffer(self._bytes(), np.uint8).reshape(-1, self._width)[rows].tobytes())

    @staticmethod
    def concat(parts: Sequence[Ciphertexts]) -> Ciphertexts:
        first = parts[0]
        for part in parts:
            if part.fingerprint != first.fingerprint:
                raise CiphertextError("ciphertexts under different keys cannot be joined")
        if any(part._payload is None for part in parts):
            return first._with(raw=b"".join(part._bytes() for part in parts))
        return first._with(first._key.modulus.join([part.payload for part in parts]))

    def _with(self, payload: Any = None, raw: bytes | None = None) -> Ciphertexts:
        return Ciphertexts(self.scheme, self.bits, self.fingerprint, payload, raw, self._key)

    def parts(self) -> list[bytes | memoryview | Elsewhere]:
        """Header (scheme, bits, key fingerprint, count, width) and fixed-width values: the size tells nothing."""
        if self._there is not None:
            return [self._there]
        header = bytes([_SCHEME_CODES[self.scheme]]) + self.bits.to_bytes(4, "little") + self.fingerprint
        raw = self._bytes()
        return [header + len(self).to_bytes(6, "little") + self._width.to_bytes(4, "little"), raw]

    def _bytes(self) -> bytes | memoryview:
        if self._there is not None:
            self._raw, self._there = self._there.read(_HEADER), None
        if self._raw is None:
            self._raw = self._key.modulus.dump(self._payload, self._width)
        return self._raw

    def to_bytes(self) -> bytes:
        self._bytes()
        return b"".join(part for part in self.parts() if not isinstance(part, Elsewhere))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview | Elsewhere) -> Ciphertexts:
        there = data if isinstance(data, Elsewhere) else None
        head = data.read(0, _HEADER) if isinstance(data, Elsewhere) else data[:_HEADER]
        scheme, bits, fingerprint, rest = _read_header(head, "ciphertext vector")
        if len(rest) < 10:
            raise CiphertextError("a ciphertext vector is truncated")
        count, width = int.from_bytes(rest[:6], "little"), int.from_bytes(rest[6:10], "little")
        if width != _BACKENDS[scheme].width(bits) or len(data) - _HEADER != count * width:
            raise CiphertextError("a ciphertext vector is truncated or has the wrong width")
        body = None if isinstance(data, Elsewhere) else data[_HEADER:]
        return cls(scheme, bits, fingerprint, raw=body, there=there)

    def __reduce__(self) -> tuple[object, ...]:
        return Ciphertexts.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"<{len(self)} ciphertexts, {self.scheme_name}, key {self.fingerprint.hex()[:8]}>"


def _read_header(data: bytes | memoryview, what: str) -> tuple[str, int, bytes, bytes | memoryview]:
    if len(data) < 21:
        raise CiphertextError(f"a {what} is truncated")
    schemes = {code: name for name, code in _SCHEME_CODES.items()}
    scheme, bits = schemes.get(data[0]), int.from_bytes(data[1:5], "little")
    if scheme is None or not MIN_BITS <= bits <= MAX_BITS:
        raise CiphertextError(f"a {what} has an unknown scheme or a refused key size")
    return scheme, bits, bytes(data[5:21]), data[21:]


@wire_type(32)
class PublicKey:
    """Encrypts and computes; holds no secret."""

    def __init__(self, scheme: str, bits: int, body: bytes, backend_key: Any = None):
        self.scheme = scheme
        self.bits = bits
        self.fingerprint = hashlib.sha256(scheme.encode() + body).digest()[:16]
        self._body = body
        if backend_key is not None:
            remember(self.fingerprint, backend_key)

    @property
    def _key(self) -> Any:
        """The scheme's key, built when first needed; who only relays a key (the coordinator) never needs its tables."""
        found = find(self.fingerprint)
        return found or remember(self.fingerprint, _BACKENDS[self.scheme].load_public(self.bits, self._body))

    @property
    def plaintext_bits(self) -> int:
        """Every integer of magnitude below ``2 ** plaintext_bits`` can be encrypted."""
        return int(self._key.plaintext_bits)

    @property
    def ciphertext_bytes(self) -> int:
        """Of one ciphertext, as it travels."""
        return int(_BACKENDS[self.scheme].width(self.bits))

    def encrypt(self, values: Iterable[int]) -> Ciphertexts:
        numbers = [int(value) for value in values]
        if len(numbers) <= _AT_ONCE:
            return self.add_plain(self._wrap(self._key.blinding(len(numbers))), numbers)
        parts = [self.encrypt(numbers[start : start + _AT_ONCE]) for start in range(0, len(numbers), _AT_ONCE)]
        return Ciphertexts.concat(parts)

    def add(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        self._same_length(len(self._own(a)), len(self._own(b)))
        return self._wrap(self._key.modulus.product(a.payload, b.payload))

    def subtract(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        self._same_length(len(self._own(a)), len(self._own(b)))
        modulus = self._key.modulus
        return self._wrap(modulus.product(a.payload, modulus.inverse(b.payload)))

    def add_plain(self, a: Ciphertexts, values: Sequence[int]) -> Ciphertexts:
        self._same_length(len(self._own(a)), len(values))
        numbers = [int(value) for value in values]
        self._guard(numbers)
        if not any(numbers):
            return a
        return self._wrap(self._key.modulus.product(a.payload, self._key.embed(numbers)))

    def scale(self, a: Ciphertexts, factors: Sequence[int] | int) -> Ciphertexts:
        """Each ciphertext times a plain integer. The caller knows the bound of the product."""
        modulus, payload = self._key.modulus, self._own(a).payload
        if isinstance(factors, int):
            if factors > 0 and factors & (factors - 1) == 0:
                self._guard([factors])
                return self._wrap(modulus.squared(payload, factors.bit_length() - 1))
            factors = [factors] * len(a)
        factors = [int(f) for f in factors]
        self._same_length(len(a), len(factors))
        self._guard(factors)
        powers = modulus.power(payload, [abs(f) for f in factors])
        negative = np.flatnonzero([f < 0 for f in factors])
        if len(negative):
            places = np.arange(len(factors))
            places[negative] = len(factors) + np.arange(len(negative))
            inverted = modulus.inverse(modulus.take(powers, negative))
            powers = modulus.take(modulus.join([powers, inverted]), places)
        return self._wrap(powers)

    def sum_all(self, a: Ciphertexts) -> Ciphertexts:
        """One ciphertext of the sum."""
        return self.sums(a, np.arange(len(a)), np.array([0, len(a)]))

    def select_sums(self, a: Ciphertexts, index_lists: Sequence[Sequence[int] | np.ndarray]) -> Ciphertexts:
        """One ciphertext for each list: the sum of the ciphertexts at its positions."""
        order = np.concatenate([np.asarray(each, dtype=np.int64) for each in [*index_lists, []]])
        return self.sums(a, order, np.cumsum([0, *map(len, index_lists)]))

    def sums(self, a: Ciphertexts, order: np.ndarray, bounds: np.ndarray) -> Ciphertexts:
        """The same for positions that lie one after the other: list ``i`` is ``order[bounds[i]:bounds[i + 1]]``."""
        return self._wrap(self._key.modulus.segments(self._own(a).payload, order, bounds))

    def blind(self, a: Ciphertexts) -> Ciphertexts:
        """The same plaintexts under fresh randomness: how they were made is told to nobody, the holder included."""
        return self._wrap(self._key.modulus.product(self._own(a).payload, self._key.blinding(len(a), wide=True)))

    def to_bytes(self) -> bytes:
        """Filled up with zeros: some keys have a shorter number in them, and messages are to be of one length."""
        header = bytes([_SCHEME_CODES[self.scheme]]) + self.bits.to_bytes(4, "little")
        size = len(self._body).to_bytes(4, "little")
        return header + self.fingerprint + size + self._body + bytes(-len(self._body) % _KEY_BLOCK)

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicKey:
        scheme, bits, fingerprint, rest = _read_header(data, "public key")
        size, body = int.from_bytes(rest[:4], "little"), bytes(rest[4:])
        if len(body) != size + -size % _KEY_BLOCK or any(body[size:]):
            raise CiphertextError("a public key is truncated or longer than it says")
        key = cls(scheme, bits, body[:size])
        if key.fingerprint != fingerprint:
            raise CiphertextError("a public key does not match its fingerprint")
        return key

    def _wrap(self, payload: Any) -> Ciphertexts:
        return Ciphertexts(self.scheme, self.bits, self.fingerprint, payload, key=self._key)

    def concat(self, parts: Sequence[Ciphertexts]) -> Ciphertexts:
        """Vectors under this key one after the other, some of which may have come in messages."""
        for part in parts:
            _ = self._own(part).payload
        return Ciphertexts.concat(parts)

    def groups(self, a: Ciphertexts, codes: np.ndarray, groups: Sequence[int]) -> Ciphertexts | None:
        """The sum of each group's ciphertexts for each column of ``codes``, where the engine has a way of its own."""
        counted = self._key.modulus.grouped(self._own(a).payload, codes, groups)
        return None if counted is None else self._wrap(counted)

    def _own(self, a: Ciphertexts) -> Ciphertexts:
        if not isinstance(a, Ciphertexts):
            raise CiphertextError(f"expected ciphertexts, got {type(a).__name__}")
        if a.fingerprint != self.fingerprint:
            raise CiphertextError(
                f"a ciphertext of key {a.fingerprint.hex()[:8]} was used with key {self.fingerprint.hex()[:8]}"
            )
        if a._key is None:
            a._key = self._key
        return a

    def _guard(self, numbers: Sequence[int]) -> None:
        bound = 1 << self.plaintext_bits
        if numbers and not (-bound < min(numbers) and max(numbers) < bound):
            raise OverflowGuard(f"a plaintext needs more than the {self.plaintext_bits} bits that this key offers")

    @staticmethod
    def _same_length(a: int, b: int) -> None:
        if a != b:
            raise ParameterError(f"vectors of {a} and {b} values cannot be combined")

    def __reduce__(self) -> tuple[object, ...]:
        return PublicKey.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"<public key {self.fingerprint.hex()[:8]}, {_SCHEME_NAMES[self.scheme]} {self.bits} bits>"


class SecretKey:
    """Decrypts. Never leaves its party: it has no wire type, and its text shows nothing."""

    def __init__(self, scheme: str, bits: int, backend_key: Any):
        self._secret = backend_key
        self.public = PublicKey(scheme, bits, backend_key.public.to_bytes(), backend_key.public)

    def decrypt(self, a: Ciphertexts, *, bits: int, signed: bool = False) -> list[int]:
        """The plaintexts, which the protocol promises to be below ``2 ** bits`` (in magnitude when ``signed``)."""
        numbers: list[int] = self._secret.decrypt(self.public._own(a).payload)
        low, high = (-(1 << bits) if signed else -1), 1 << bits
        if numbers and not (low < min(numbers) and max(numbers) < high):
            raise CiphertextError(
                f"a decrypted value is outside the {bits} bits that the protocol allows: "
                "the ciphertext was damaged or was not made by this protocol"
            )
        return numbers

    def __repr__(self) -> str:
        return f"<secret key of {self.public!r}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a secret key is not serialised")
