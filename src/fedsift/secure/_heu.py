"""Back-end of ``additive``: Okamoto-Uchiyama and Paillier of sf-heu. Payload: a ``CiphertextArray`` of shape (n, 1).

On the wire each ciphertext is its fixed-width value only: sf-heu's own framing (MessagePack) is taken off when dumping
and put on again when loading, so that damaged bytes can never make the C++ reader allocate or walk astray.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

import numpy as np

from fedsift.errors import CiphertextError

_TAILS = {"ou": (1).to_bytes(8, "little"), "zpaillier": (4).to_bytes(8, "little")}  # sf-heu ends each number so


@functools.cache
def installed() -> bool:
    try:
        _modules()
    except ImportError:
        return False
    return True


@functools.cache
def _modules() -> tuple[Any, Any]:
    from heu import numpy as heu_numpy
    from heu import phe

    # sf-heu's thread pool greets on standard output when it is first used, which would spoil `--format json`.
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        kit = heu_numpy.setup(phe.SchemaType.Mock, 2048)
        many = np.arange(512, dtype=np.int64).reshape(-1, 1)
        kit.encryptor().encrypt(kit.array(many, phe.IntegerEncoder(kit.get_schema(), 1)))
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
    return phe, heu_numpy


class _Key:
    """A kit (public or with the secret) and the encoder of Python integers that goes with it."""

    def __init__(self, kit: Any):
        phe, _ = _modules()
        self.kit = kit
        self.encoder = phe.BigintEncoder(kit.get_schema())
        self.encryptor = kit.encryptor()
        self.evaluator = kit.evaluator()

    def plain(self, numbers: list[int]) -> Any:
        column = np.empty((len(numbers), 1), dtype=object)
        column[:, 0] = numbers
        return self.kit.array(column, self.encoder)


def generate(scheme: str, bits: int) -> Any:
    _, heu_numpy = _modules()
    return _Key(heu_numpy.setup(_schema(scheme), bits))


def _schema(scheme: str) -> Any:
    phe, _ = _modules()
    return {"ou": phe.SchemaType.OU, "zpaillier": phe.SchemaType.ZPaillier}[scheme]


def public_part(key: Any) -> Any:
    _, heu_numpy = _modules()
    return _Key(heu_numpy.setup(key.kit.public_key()))


def dump_public(key: Any) -> bytes:
    return key.kit.public_key().serialize()


def load_public(scheme: str, bits: int, body: bytes) -> Any:
    phe, heu_numpy = _modules()
    _check_public_frame(body)
    try:
        key = _Key(heu_numpy.setup(phe.PublicKey.load_from(body)))
    except Exception:
        raise CiphertextError("a public key cannot be read") from None
    if key.kit.get_schema() != _schema(scheme):
        raise CiphertextError("a public key is of another scheme than it says")
    return key


def _check_public_frame(body: bytes) -> None:
    if not 64 < len(body) < 1 << 16:
        raise CiphertextError("a public key has an impossible length")


def plaintext_bits(key: Any) -> int:
    return int(key.kit.public_key().plaintext_bound()).bit_length() - 2


def length(payload: Any) -> int:
    return payload.rows


def check(key: Any, payload: Any) -> None:
    """The fingerprint decides whose ciphertext it is; values are bounded by their width."""


def encrypt(key: Any, numbers: list[int]) -> Any:
    return key.encryptor.encrypt(key.plain(numbers))


def add(key: Any, a: Any, b: Any) -> Any:
    return key.evaluator.add(a, b)


def subtract(key: Any, a: Any, b: Any) -> Any:
    return key.evaluator.sub(a, b)


def add_plain(key: Any, a: Any, numbers: list[int]) -> Any:
    return key.evaluator.add(a, key.plain(numbers))


def scale(key: Any, a: Any, factors: list[int]) -> Any:
    return key.evaluator.mul(a, key.plain(factors))


def bucket_sums(key: Any, a: Any, codes: np.ndarray, width: int) -> Any:
    everyone = np.ones((1, codes.shape[0]), dtype=np.int8)
    return key.evaluator.feature_wise_bucket_sum(a, everyone, np.ascontiguousarray(codes), width, False)


def select_sums(key: Any, a: Any, index_lists: list[list[int]]) -> Any:
    filled = [number for number, indices in enumerate(index_lists) if indices]
    if len(filled) == len(index_lists):
        return _column(key.evaluator.batch_select_sum(a.transpose()[0], index_lists))
    zero = key.encryptor.encrypt(key.plain([0]))
    if not filled:
        return take(zero, [0] * len(index_lists))
    sums = _column(key.evaluator.batch_select_sum(a.transpose()[0], [index_lists[n] for n in filled]))
    place = {number: position for position, number in enumerate(filled)}
    return take(concat([sums, zero]), [place.get(n, len(filled)) for n in range(len(index_lists))])


def _column(vector: Any) -> Any:
    return vector if vector.ndim == 2 else concat([vector])


def take(a: Any, positions: list[int]) -> Any:
    return a[positions, :] if positions else a[0:0, :]


def concat(parts: list[Any]) -> Any:
    """Joined by way of the values: sf-heu has no such call. The tail of a number tells its scheme."""
    filled = [part for part in parts if length(part)]
    if len(filled) <= 1 and all(part.ndim == 2 for part in parts):
        return (filled or parts)[0]
    tail = filled[0].serialize()[-8:]
    scheme = next(name for name, value in _TAILS.items() if value == tail)
    return load([value for part in filled for value in _values(part)], scheme)


def decrypt(key: Any, a: Any) -> list[int]:
    if length(a) == 0:
        return []
    numbers = key.kit.decryptor().decrypt(a).to_numpy(key.encoder)
    return [int(number) for number in numbers.ravel()]


def width(scheme: str, bits: int) -> int:
    """Bytes of a ciphertext: the modulus may be a few bits longer than asked; Paillier works modulo its square."""
    return bits // 8 + 8 if scheme == "ou" else bits // 4 + 8


def dump(payload: Any, scheme: str, bits: int) -> tuple[int, list[bytes]]:
    size = width(scheme, bits)
    return size, [value.ljust(size, b"\0") for value in _values(payload)]


def load(values: list[bytes], scheme: str) -> Any:
    """Rebuild sf-heu's framing around the bare values."""
    if not values:
        return load([b"\x01"], scheme)[0:0, :]  # sf-heu crashes when it reads an empty array
    _, heu_numpy = _modules()
    out = [b"\x94", _number(len(values)), b"\x01\x02", _array_head(len(values))]
    for value in values:
        bare = value.rstrip(b"\0")
        if not bare:
            raise CiphertextError("a ciphertext is zero, which no encryption gives")
        if bare[-1] & 0x80:  # sf-heu writes two's complement: a positive number's top bit is clear
            bare += b"\0"
        inner = b"\x91" + _string_head(len(bare)) + bare + _TAILS[scheme]
        out += [_string_head(len(inner)), inner]
    try:
        return heu_numpy.CiphertextArray.load_from(b"".join(out))
    except Exception:
        raise CiphertextError("a ciphertext vector cannot be read") from None


def _values(payload: Any) -> list[bytes]:
    """The bare values (little-endian two's complement, positive) of an array in sf-heu's framing."""
    if length(payload) == 0:
        return []  # sf-heu crashes when it serialises an empty array
    data = payload.serialize()
    position, _ = _read_number(data, 1)
    position, _ = _read_number(data, position)
    position, _ = _read_number(data, position)
    position, count = _read_array_head(data, position)
    values = []
    for _ in range(count):
        position, size = _read_string_head(data, position)
        start, inner = _read_string_head(data, position + 1)
        if data[position] != 0x91 or start + inner + 8 != position + size:
            raise CiphertextError("sf-heu wrote a ciphertext in an unknown format: use the pinned version")
        values.append(data[start : start + inner])
        position += size
    return values


def _number(n: int) -> bytes:
    if n < 128:
        return bytes([n])
    if n < 256:
        return b"\xcc" + n.to_bytes(1, "big")
    return b"\xcd" + n.to_bytes(2, "big") if n < 1 << 16 else b"\xce" + n.to_bytes(4, "big")


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    tag = data[at]
    size = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}.get(tag, 0)
    return (at + 1 + size, int.from_bytes(data[at + 1 : at + 1 + size], "big")) if size else (at + 1, tag)


def _array_head(n: int) -> bytes:
    if n < 16:
        return bytes([0x90 | n])
    return b"\xdc" + n.to_bytes(2, "big") if n < 1 << 16 else b"\xdd" + n.to_bytes(4, "big")


def _read_array_head(data: bytes, at: int) -> tuple[int, int]:
    tag = data[at]
    size = {0xDC: 2, 0xDD: 4}.get(tag, 0)
    return (at + 1 + size, int.from_bytes(data[at + 1 : at + 1 + size], "big")) if size else (at + 1, tag & 0x0F)


def _string_head(n: int) -> bytes:
    if n < 32:
        return bytes([0xA0 | n])
    return b"\xd9" + n.to_bytes(1, "big") if n < 256 else b"\xda" + n.to_bytes(2, "big")


def _read_string_head(data: bytes, at: int) -> tuple[int, int]:
    tag = data[at]
    size = {0xD9: 1, 0xDA: 2, 0xDB: 4}.get(tag, 0)
    return (at + 1 + size, int.from_bytes(data[at + 1 : at + 1 + size], "big")) if size else (at + 1, tag & 0x1F)
