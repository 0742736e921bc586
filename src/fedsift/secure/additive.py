"""Additively homomorphic encryption of integer vectors: one small interface over three back-ends.

``generate_key(scheme)`` gives a ``SecretKey``; its ``public`` part encrypts, adds, scales, sums by groups and blinds
``Ciphertexts``. Back-ends: Okamoto-Uchiyama and Paillier of sf-heu (C++, both cores), and Paillier on gmpy2 where that
wheel does not exist. ``scheme="auto"`` takes the fastest that imports; its name travels with every ciphertext.

What is promised:
- Keys have 2048 bits or more; randomness comes from the operating system (inside sf-heu and OpenSSL too).
- Encryption is randomised. Sums and products of ciphertexts are not fresh until ``blind`` adds an encryption of zero;
  whoever sends a computed ciphertext to the key holder blinds it first, or the key holder could recompute it.
- Nothing wraps silently: plaintexts outside the bound raise ``OverflowGuard`` at encryption, and ``decrypt`` takes the
  bound that the protocol promises and raises ``CiphertextError`` for anything outside it. That check is also what
  keeps an Okamoto-Uchiyama key safe: decrypting a chosen ciphertext to an arbitrary value would give its factor away.
- A ciphertext carries its key's fingerprint; another key's ciphertext is refused by name, not decrypted to noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedsift.errors import CiphertextError, MissingExtra, OverflowGuard, ParameterError
from fedsift.message import wire_type
from fedsift.secure import _gmp, _heu

MIN_BITS = 2048
_BACKENDS: dict[str, Any] = {"ou": _heu, "zpaillier": _heu, "paillier": _gmp}
SCHEMES = ("auto", *_BACKENDS)
_SCHEME_CODES = {"ou": 1, "zpaillier": 2, "paillier": 3}
_SCHEME_NAMES = {"ou": "Okamoto-Uchiyama", "zpaillier": "Paillier (sf-heu)", "paillier": "Paillier (gmpy2)"}
_MAX_LOADED_KEYS = 16
_KEY_BLOCK = 64  # bytes; a public key takes a whole number of blocks on the wire
_loaded_keys: dict[bytes, Any] = {}
_MAX_BUCKETS = 127  # of sf-heu's kernel; a wider column is counted in several passes


def available_schemes() -> list[str]:
    """Schemes that work on this machine, the fastest first."""
    return (["ou", "zpaillier"] if _heu.installed() else []) + ["paillier"]


def generate_key(scheme: str = "auto", bits: int = MIN_BITS) -> SecretKey:
    """A fresh key pair. Less than 2048 bits is refused."""
    if scheme == "auto":
        scheme = available_schemes()[0]
    if scheme not in _BACKENDS:
        raise ParameterError(f"scheme must be one of {', '.join(map(repr, SCHEMES))}; got {scheme!r}")
    if bits < MIN_BITS:
        raise ParameterError(f"keys have at least {MIN_BITS} bits; got {bits}")
    if scheme not in available_schemes():
        raise MissingExtra("sf-heu", "all")
    return SecretKey(scheme, bits, _BACKENDS[scheme].generate(scheme, bits))


@wire_type(33)
class Ciphertexts:
    """A vector of ciphertexts under one key. Opaque: only the key's methods compute with it.

    What came in a message stays as bytes until somebody computes with it: the coordinator only passes it on.
    """

    def __init__(self, scheme: str, bits: int, fingerprint: bytes, payload: Any = None, raw: bytes | None = None):
        self.scheme = scheme
        self.bits = bits
        self.fingerprint = fingerprint
        self._payload = payload
        self._raw = raw  # fixed-width values, one after the other
        self._flat: Any = None

    @property
    def payload(self) -> Any:
        """The back-end's own form; a value that no encryption gives is found here."""
        if self._payload is None and self._raw is not None:
            backend = _BACKENDS[self.scheme]
            self._payload = backend.load_raw(self._raw, backend.width(self.scheme, self.bits), self.scheme)
        return self._payload

    @property
    def flat(self) -> Any:
        """The form from which sums are taken: made once, because a histogram asks again and again."""
        if self._flat is None:
            self._flat = _BACKENDS[self.scheme].flat(self.payload)
        return self._flat

    @property
    def scheme_name(self) -> str:
        return f"{_SCHEME_NAMES[self.scheme]} {self.bits} bits"

    def __len__(self) -> int:
        if self._raw is not None:
            return len(self._raw) // _BACKENDS[self.scheme].width(self.scheme, self.bits)
        return _BACKENDS[self.scheme].length(self.payload)

    def take(self, positions: Sequence[int] | np.ndarray) -> Ciphertexts:
        return self._with(_BACKENDS[self.scheme].take(self.payload, [int(p) for p in positions]))

    @staticmethod
    def concat(parts: Sequence[Ciphertexts]) -> Ciphertexts:
        first = parts[0]
        for part in parts:
            if part.fingerprint != first.fingerprint:
                raise CiphertextError("ciphertexts under different keys cannot be joined")
        return first._with(_BACKENDS[first.scheme].concat([part.payload for part in parts]))

    def _with(self, payload: Any) -> Ciphertexts:
        return Ciphertexts(self.scheme, self.bits, self.fingerprint, payload)

    def to_bytes(self) -> bytes:
        """Header (scheme, bits, key fingerprint, count, width) and fixed-width values: the size tells nothing."""
        width = _BACKENDS[self.scheme].width(self.scheme, self.bits)
        if self._raw is None:
            self._raw = b"".join(_BACKENDS[self.scheme].dump(self.payload, self.scheme, self.bits)[1])
        header = bytes([_SCHEME_CODES[self.scheme]]) + self.bits.to_bytes(4, "little") + self.fingerprint
        return header + len(self).to_bytes(6, "little") + width.to_bytes(4, "little") + self._raw

    @classmethod
    def from_bytes(cls, data: bytes) -> Ciphertexts:
        scheme, bits, fingerprint, rest = _read_header(data, "ciphertext vector")
        if len(rest) < 10:
            raise CiphertextError("a ciphertext vector is truncated")
        count, width = int.from_bytes(rest[:6], "little"), int.from_bytes(rest[6:10], "little")
        body = rest[10:]
        if width != _BACKENDS[scheme].width(scheme, bits) or len(body) != count * width:
            raise CiphertextError("a ciphertext vector is truncated or has the wrong width")
        return cls(scheme, bits, fingerprint, raw=body)

    def __repr__(self) -> str:
        return f"<{len(self)} ciphertexts, {self.scheme_name}, key {self.fingerprint.hex()[:8]}>"


def _read_header(data: bytes, what: str) -> tuple[str, int, bytes, bytes]:
    if len(data) < 21:
        raise CiphertextError(f"a {what} is truncated")
    schemes = {code: name for name, code in _SCHEME_CODES.items()}
    scheme, bits = schemes.get(data[0]), int.from_bytes(data[1:5], "little")
    if scheme is None or not MIN_BITS <= bits <= 16384:
        raise CiphertextError(f"a {what} has an unknown scheme or a refused key size")
    if scheme not in available_schemes():
        raise CiphertextError(f"a {what} uses {_SCHEME_NAMES[scheme]}, which is not installed at this party")
    return scheme, bits, data[5:21], data[21:]


@wire_type(32)
class PublicKey:
    """Encrypts and computes; holds no secret."""

    def __init__(self, scheme: str, bits: int, body: bytes, backend_key: Any = None):
        self.scheme = scheme
        self.bits = bits
        self.fingerprint = hashlib.sha256(scheme.encode() + body).digest()[:16]
        self._body = body
        self._backend = _BACKENDS[scheme]
        if backend_key is not None:
            _loaded_keys[self.fingerprint] = backend_key

    @property
    def _key(self) -> Any:
        """The back-end's key, built when first needed and kept for the process: its tables cost up to a second, and
        who only relays a key (the coordinator) never needs them."""
        if self.fingerprint not in _loaded_keys:
            while len(_loaded_keys) >= _MAX_LOADED_KEYS:
                _loaded_keys.pop(next(iter(_loaded_keys)), None)
            _loaded_keys[self.fingerprint] = self._backend.load_public(self.scheme, self.bits, self._body)
        return _loaded_keys[self.fingerprint]

    @property
    def plaintext_bits(self) -> int:
        """Every integer of magnitude below ``2 ** plaintext_bits`` can be encrypted."""
        return self._backend.plaintext_bits(self._key)

    def encrypt(self, values: Iterable[int]) -> Ciphertexts:
        numbers = [int(value) for value in values]
        self._guard(numbers)
        return self._wrap(self._backend.encrypt(self._key, numbers))

    def add(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        self._same_length(len(self._own(a)), len(self._own(b)))
        return self._wrap(self._backend.add(self._key, a.payload, b.payload))

    def add_plain(self, a: Ciphertexts, values: Sequence[int]) -> Ciphertexts:
        self._same_length(len(self._own(a)), len(values))
        numbers = [int(value) for value in values]
        self._guard(numbers)
        return self._wrap(self._backend.add_plain(self._key, a.payload, numbers))

    def scale(self, a: Ciphertexts, factors: Sequence[int] | int) -> Ciphertexts:
        """Each ciphertext times a plain integer. The caller knows the bound of the product."""
        factors = [factors] * len(a) if isinstance(factors, int) else [int(f) for f in factors]
        self._same_length(len(self._own(a)), len(factors))
        self._guard(factors)
        return self._wrap(self._backend.scale(self._key, a.payload, factors))

    def sum_all(self, a: Ciphertexts) -> Ciphertexts:
        """One ciphertext of the sum."""
        self._own(a)
        return self._wrap(self._backend.select_sums(self._key, a.flat, [list(range(len(a)))]))

    def select_sums(self, a: Ciphertexts, index_lists: Sequence[Sequence[int]]) -> Ciphertexts:
        """One ciphertext for each list: the sum of the ciphertexts at its positions."""
        self._own(a)
        lists = [part if isinstance(part, list) else list(part) for part in index_lists]
        return self._wrap(self._backend.select_sums(self._key, a.flat, lists))

    def blind(self, a: Ciphertexts) -> Ciphertexts:
        """The same plaintexts under fresh randomness: what leaves a party tells nothing of how it was computed."""
        return self.add(a, self.encrypt([0] * len(a)))

    def group_sums(self, a: Ciphertexts, codes: np.ndarray, groups: Sequence[int]) -> Ciphertexts:
        """The histogram kernel: for each column of ``codes`` (rows x columns) the sum of each group's ciphertexts.

        The result is column after column, ``sum(groups)`` ciphertexts in all. Columns are counted jointly where the
        product of their groups is small (one addition a row serves them all), and a column that is mostly one group
        (sparse) costs only its other rows: the large group is the total less the rest.
        """
        self._own(a)
        if codes.ndim != 2 or codes.shape[0] != len(a) or codes.shape[1] != len(groups):
            raise ParameterError("codes must have a row for each ciphertext and a column for each entry of groups")
        if codes.size and (codes.min() < 0 or (codes.max(axis=0) >= np.asarray(groups)).any()):
            raise ParameterError("a group number is out of range")
        sums = _GroupSums(self._backend, self._key, a.payload, codes, [int(g) for g in groups])
        return self._wrap(sums.result())

    def to_bytes(self) -> bytes:
        """Filled up with zeros: some keys have a shorter number in them, and messages are to be of one length."""
        header = bytes([_SCHEME_CODES[self.scheme]]) + self.bits.to_bytes(4, "little")
        size = len(self._body).to_bytes(4, "little")
        return header + self.fingerprint + size + self._body + bytes(-len(self._body) % _KEY_BLOCK)

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicKey:
        scheme, bits, fingerprint, rest = _read_header(data, "public key")
        size, body = int.from_bytes(rest[:4], "little"), rest[4:]
        if len(body) != size + -size % _KEY_BLOCK or any(body[size:]):
            raise CiphertextError("a public key is truncated or longer than it says")
        key = cls(scheme, bits, body[:size])
        if key.fingerprint != fingerprint:
            raise CiphertextError("a public key does not match its fingerprint")
        return key

    def _wrap(self, payload: Any) -> Ciphertexts:
        return Ciphertexts(self.scheme, self.bits, self.fingerprint, payload)

    def _own(self, a: Ciphertexts) -> Ciphertexts:
        if not isinstance(a, Ciphertexts):
            raise CiphertextError(f"expected ciphertexts, got {type(a).__name__}")
        if a.fingerprint != self.fingerprint:
            raise CiphertextError(
                f"a ciphertext of key {a.fingerprint.hex()[:8]} was used with key {self.fingerprint.hex()[:8]}"
            )
        self._backend.check(self._key, a.payload)
        return a

    def _guard(self, numbers: Sequence[int]) -> None:
        bound = 1 << self.plaintext_bits
        if numbers and not (-bound < min(numbers) and max(numbers) < bound):
            raise OverflowGuard(f"a plaintext needs more than the {self.plaintext_bits} bits that this key offers")

    @staticmethod
    def _same_length(a: int, b: int) -> None:
        if a != b:
            raise ParameterError(f"vectors of {a} and {b} values cannot be combined")

    def __repr__(self) -> str:
        return f"<public key {self.fingerprint.hex()[:8]}, {_SCHEME_NAMES[self.scheme]} {self.bits} bits>"


class SecretKey:
    """Decrypts. Never leaves its party: it has no wire type, and its text shows nothing."""

    def __init__(self, scheme: str, bits: int, backend_key: Any):
        self._secret = backend_key
        backend, public = _BACKENDS[scheme], _BACKENDS[scheme].public_part(backend_key)
        self.public = PublicKey(scheme, bits, backend.dump_public(public), public)

    def decrypt(self, a: Ciphertexts, *, bits: int, signed: bool = False) -> list[int]:
        """The plaintexts, which the protocol promises to be below ``2 ** bits`` (in magnitude when ``signed``)."""
        self.public._own(a)
        numbers = _BACKENDS[self.public.scheme].decrypt(self._secret, a.payload)
        low, high = (-(1 << bits) if signed else -1), 1 << bits
        if numbers and not (low < min(numbers) and max(numbers) < high):
            raise CiphertextError(
                f"a decrypted value is outside the {bits} bits that the protocol allows: "
                "the ciphertext was damaged or was not made by this protocol"
            )
        return numbers

    def __repr__(self) -> str:
        return f"<secret key of {self.public!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("a secret key is not serialised")


class _GroupSums:
    """Plans and runs one histogram; see ``PublicKey.group_sums``."""

    def __init__(self, backend: Any, key: Any, payload: Any, codes: np.ndarray, groups: list[int]):
        self.backend, self.key, self.payload = backend, key, payload
        self.codes, self.groups = codes, groups
        self.rows = codes.shape[0]
        self.columns: list[Any] = [None] * len(groups)

    def result(self) -> Any:
        dense: list[int] = []
        sparse: list[int] = []
        for column, count in enumerate(self.groups):
            largest = int(np.bincount(self.codes[:, column], minlength=count).max()) if self.rows else 0
            is_sparse = largest > 0.75 * self.rows or count > _MAX_BUCKETS
            (sparse if is_sparse else dense).append(column)
        if dense:
            self._count_dense(dense)
        if sparse:
            self._count_sparse(sparse)
        return self.backend.concat(self.columns)

    def _count_dense(self, dense: list[int]) -> None:
        teams = self._teams(dense)
        joint = np.zeros((self.rows, len(teams)), dtype=np.int8)
        for number, team in enumerate(teams):
            for column in team:
                joint[:, number] = joint[:, number] * self.groups[column] + self.codes[:, column]
        cells = [int(np.prod([self.groups[c] for c in team])) for team in teams]
        width = max(cells)
        counted = self.backend.bucket_sums(self.key, self.payload, joint, width)
        for number, team in enumerate(teams):
            table = self.backend.take(counted, list(range(number * width, number * width + cells[number])))
            if len(team) == 1:
                self.columns[team[0]] = table
                continue
            shape = [self.groups[c] for c in team]
            digits = np.stack(np.unravel_index(np.arange(cells[number]), shape), axis=1).astype(np.int8)
            marginals = self.backend.bucket_sums(self.key, table, digits, max(shape))
            for place, column in enumerate(team):
                start = place * max(shape)
                self.columns[column] = self.backend.take(marginals, list(range(start, start + shape[place])))

    def _teams(self, dense: list[int]) -> list[list[int]]:
        """Columns to count jointly: the product of their groups fits the kernel and is small against the rows."""
        limit = min(_MAX_BUCKETS, self.rows // 4)
        teams: list[list[int]] = []
        cells: list[int] = []
        for column in sorted(dense, key=lambda c: -self.groups[c]):
            for number, size in enumerate(cells):
                if size * self.groups[column] <= limit:
                    teams[number].append(column)
                    cells[number] *= self.groups[column]
                    break
            else:
                teams.append([column])
                cells.append(self.groups[column])
        return teams

    def _count_sparse(self, sparse: list[int]) -> None:
        """Sums of all groups but the largest; the largest is the total less those."""
        index_lists: list[list[int]] = [list(range(self.rows))]
        places: list[tuple[int, int]] = []
        largest = {}
        for column in sparse:
            codes = self.codes[:, column]
            counts = np.bincount(codes, minlength=self.groups[column])
            largest[column] = int(counts.argmax())
            order = np.argsort(codes, kind="stable")
            bounds = np.concatenate([[0], np.cumsum(counts)])
            for group in range(self.groups[column]):
                if group != largest[column]:
                    index_lists.append(order[bounds[group] : bounds[group + 1]].tolist())
                    places.append((column, group))
        sums = self.backend.select_sums(self.key, self.backend.flat(self.payload), index_lists)
        where = {place: number + 1 for number, place in enumerate(places)}
        others = [[where[c, g] for g in range(self.groups[c]) if g != largest[c]] for c in sparse]
        rest = self.backend.select_sums(self.key, self.backend.flat(sums), others)
        big = self.backend.subtract(self.key, self.backend.take(sums, [0] * len(sparse)), rest)
        joined, end = self.backend.concat([sums, big]), len(index_lists)
        for number, column in enumerate(sparse):
            where[column, largest[column]] = end + number
            self.columns[column] = self.backend.take(joined, [where[column, g] for g in range(self.groups[column])])
