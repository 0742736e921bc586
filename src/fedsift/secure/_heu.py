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
from fedsift.secure._shift import Shifter

_FEW_SQUARINGS = 8  # shifts by fewer bits are left to sf-heu
_UNKNOWN = object()
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
        self.shifter: Any = _UNKNOWN

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
    first = factors[0] if factors else 0
    if first > 1 << _FEW_SQUARINGS and first & (first - 1) == 0 and factors.count(first) == len(factors):
        shift = _shifter(key)
        if shift is not None:
            return load(shift(_values(a), first.bit_length() - 1), "ou")
    return key.evaluator.mul(a, key.plain(factors))


def _shifter(key: Any) -> Any:
    """GMP squares twice as fast as sf-heu multiplies. ``None``, where its numbers are not what we take them for."""
    if key.shifter is _UNKNOWN:
        key.shifter = None
        modulus = _ou_modulus(key)
        if modulus is not None:
            pair = encrypt(key, [3, 5])
            first, second = _values(pair)
            product = _values(add(key, take(pair, [0]), take(pair, [1])))[0]
            shifter = Shifter(modulus, first, second, product)
            bits = 3 * _FEW_SQUARINGS
            if shifter([first, second], bits) == _values(key.evaluator.mul(pair, key.plain([1 << bits] * 2))):
                key.shifter = shifter
    return key.shifter


def _ou_modulus(key: Any) -> int | None:
    """The modulus of an Okamoto-Uchiyama key: the first number of its serialised form."""
    if key.kit.get_schema() != _schema("ou"):
        return None
    body = dump_public(key)
    start, size = _read_string_head(body, 1)
    return int.from_bytes(body[start : start + size], "little")


def bucket_sums(key: Any, a: Any, codes: np.ndarray, width: int) -> Any:
    everyone = np.ones((1, codes.shape[0]), dtype=np.int8)
    return key.evaluator.feature_wise_bucket_sum(a, everyone, np.ascontiguousarray(codes), width, False)


def flat(payload: Any) -> Any:
    """The vector that ``select_sums`` reads; it takes a payload too, and then makes it each time."""
    return payload.transpose()[0] if payload.ndim == 2 and length(payload) else payload


def select_sums(key: Any, a: Any, index_lists: list[list[int]]) -> Any:
    a = flat(a)
    filled = [number for number, indices in enumerate(index_lists) if indices]
    if len(filled) == len(index_lists):
        return _column(key.evaluator.batch_select_sum(a, index_lists))
    zero = key.encryptor.encrypt(key.plain([0]))
    if not filled:
        return take(zero, [0] * len(index_lists))
    sums = _column(key.evaluator.batch_select_sum(a, [index_lists[n] for n in filled]))
    place = {number: position for position, number in enumerate(filled)}
    return take(concat([sums, zero]), [place.get(n, len(filled)) for n in range(len(index_lists))])


def _column(vector: Any) -> Any:
    """A vector as a column: sf-heu has no such call either, but its framing says (rows, 1, dimensions)."""
    if vector.ndim == 2:
        return vector
    data = bytearray(vector.serialize())
    at, _ = _read_number(data, 1)
    if data[at : at + 2] != b"\x01\x01":
        raise CiphertextError("sf-heu wrote a vector in an unknown format: use the pinned version")
    data[at + 1] = 2
    return _modules()[1].CiphertextArray.load_from(bytes(data))


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
    return bits // 8 + 2 if scheme == "ou" else bits // 4 + 4


def dump(payload: Any, scheme: str, bits: int) -> tuple[int, list[bytes]]:
    size = width(scheme, bits)
    return size, [value.ljust(size, b"\0") for value in _values(payload)]


def load(values: list[bytes], scheme: str) -> Any:
    size = max(map(len, values), default=0) + 1  # a free byte: the top bit is the sign
    return load_raw(b"".join([value.ljust(size, b"\0") for value in values]), size, scheme)


def load_raw(raw: bytes, size: int, scheme: str) -> Any:
    """Rebuild sf-heu's framing around the bare values, ``size`` bytes each."""
    count = len(raw) // size if size else 0
    if not count:
        return load_raw(b"\x01\x00", 2, scheme)[0:0, :]  # sf-heu crashes when it reads an empty array
    table = np.frombuffer(raw, dtype=np.uint8).reshape(count, size)
    if not table.any(axis=1).all():
        raise CiphertextError("a ciphertext is zero, which no encryption gives")
    if (table[:, -1] & 0x80).any():  # sf-heu writes two's complement
        raise CiphertextError("a ciphertext is negative, which no encryption gives")
    _, heu_numpy = _modules()
    head, tail = b"\x91" + _string_head(size), _TAILS[scheme]
    head = _string_head(len(head) + size + len(tail)) + head
    framed = np.empty((count, len(head) + size + len(tail)), dtype=np.uint8)
    framed[:, : len(head)] = np.frombuffer(head, dtype=np.uint8)
    framed[:, len(head) : -len(tail)] = table
    framed[:, -len(tail) :] = np.frombuffer(tail, dtype=np.uint8)
    try:
        return heu_numpy.CiphertextArray.load_from(
            b"\x94" + _number(count) + b"\x01\x02" + _array_head(count) + framed.tobytes()
        )
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
    seen: dict[bytes, int] = {}  # most heads are one of two or three: read each kind once
    for _ in range(count):
        size = seen.get(data[position : position + 7])
        if size is None:
            after, outer = _read_string_head(data, position)
            start, size = _read_string_head(data, after + 1)
            if data[after] != 0x91 or start + size + 8 != after + outer:
                raise CiphertextError("sf-heu wrote a ciphertext in an unknown format: use the pinned version")
            if start == position + 7:
                seen[data[position:start]] = size
        else:
            start = position + 7
        values.append(data[start : start + size])
        position = start + size + 8
    return values


def _number(n: int) -> bytes:
    if n < 128:
        return bytes([n])
    if n < 256:
        return b"\xcc" + n.to_bytes(1, "big")
    return b"\xcd" + n.to_bytes(2, "big") if n < 1 << 16 else b"\xce" + n.to_bytes(4, "big")


def _read_number(data: bytes | bytearray, at: int) -> tuple[int, int]:
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
