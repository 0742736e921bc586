"""Payload <-> bytes: one codec for every transport, over a closed list of types.

A message is ``b"FS"``, a version byte and one tagged value. Tags stand for None, booleans, integers of any size,
floats, text, bytes, lists, dictionaries with text keys, NumPy arrays of plain number types, and the wire types that
the secure layer registers (ciphertext vectors, sealed boxes, public keys). A dataclass marked ``@message`` travels as
the dictionary of its fields, and who reads it knows from the operation what it is (``core/arguments.py``); what a party
keeps is not marked, so it cannot leave by mistake. There is no way to name code or a class in a message, so decoding
can only ever build data: every length is checked against the bytes that are really there before anything is allocated,
nesting is bounded, and whatever does not parse is a ``MessageError``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeVar, cast

import numpy as np

from fedsift.core.relayed import Elsewhere as Elsewhere
from fedsift.core.relayed import Holed, Part, Parts, whole
from fedsift.errors import MessageError, SecurityError

MAGIC = b"FS"
VERSION = 1
MAX_BYTES = 1 << 31
MAX_DEPTH = 32
MAX_INT_BYTES = 1 << 16

_NONE, _FALSE, _TRUE, _INT, _FLOAT, _STR, _BYTES, _LIST, _DICT, _ARRAY = range(10)
_FIRST_WIRE_TAG = 32

# Fixed codes, little-endian on the wire: plain numbers only, never objects or structures.
_DTYPES = {
    code: np.dtype(name)
    for code, name in enumerate(
        ["?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f4", "<f8"],
    )
}
_DTYPE_CODES = {dtype: code for code, dtype in _DTYPES.items()}

_wire_types: dict[int, tuple[type, Callable[[bytes], object]]] = {}
_wire_tags: dict[type, int] = {}
_views: set[type] = set()
_passed: set[type] = set()


_messages: set[type] = set()
T = TypeVar("T")


def message(cls: type[T]) -> type[T]:
    """Let a dataclass travel as the dictionary of its fields, in the arguments and replies of operations."""
    _messages.add(cls)
    return cls


def is_message(kind: object) -> bool:
    """Whether this is a class marked ``@message``."""
    return isinstance(kind, type) and kind in _messages


def wire_type(tag: int, views: bool = False, passed: bool = False) -> Callable[[type], type]:
    """Let a class with ``to_bytes()`` and ``from_bytes(data)`` travel in messages under a fixed tag.

    Used by the secure layer alone; the tag is part of the format and never changes its meaning. With ``views`` it is
    read from a view of the message, which stays in memory as long as the view is used: large ones are not copied.
    What is ``passed`` on may lie at a party still: it is read from an ``Elsewhere``, and sent as its ``parts()``.
    """

    def register(cls: Any) -> Any:
        if tag < _FIRST_WIRE_TAG or tag > 255 or tag in _wire_types:
            raise ValueError(f"wire tag {tag} is taken or out of range")
        _wire_types[tag] = (cls, cls.from_bytes)
        if views:
            _views.add(cls)
        if passed:
            _passed.add(cls)
        _wire_tags[cls] = tag
        return cls

    return register


def encode(value: object) -> bytes:
    """The bytes of one value; ``MessageError`` if its type is not on the list."""
    return whole(compose(value))


def compose(value: object, before: bytes = b"") -> bytes | Parts:
    """The same to be sent: what lies elsewhere stays there until it goes out."""
    out: list[Part] = [before, MAGIC, bytes([VERSION])]
    _write(value, out, 0)
    size, here = sum(map(len, out)), [part for part in out if not isinstance(part, Elsewhere)]
    if size - len(before) > MAX_BYTES:
        raise MessageError(f"a message of {size:,} bytes is over the limit of {MAX_BYTES:,}: send it in pieces")
    return b"".join(here) if len(here) == len(out) else Parts(out)


def decode(data: bytes | Holed, max_bytes: int = MAX_BYTES) -> Any:
    """The value of one message; ``MessageError`` for anything else."""
    if len(data) > max_bytes:
        raise MessageError(f"a message of {len(data):,} bytes is over the limit of {max_bytes:,}")
    if data[:2] != MAGIC:
        raise MessageError("not a fedsift message")
    if len(data) < 4:
        raise MessageError("the message is truncated")
    if data[2:3] != bytes([VERSION]):
        raise MessageError(f"message version {data[2:3][0]}, this fedsift reads {VERSION}: use the same release")
    reader = _Reader(data, 3)
    value = reader.value(0)
    if reader.position != len(data):
        raise MessageError(f"{len(data) - reader.position} bytes left over after the message")
    return value


def _length(n: int) -> bytes:
    return struct.pack("<Q", n)[:6]  # 48 bits: more than MAX_BYTES, fixed width, no canonical-form questions


def _write(value: Any, out: list[Part], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise MessageError(f"a payload is nested deeper than {MAX_DEPTH} levels")
    tag = _wire_tags.get(type(value))
    if tag is not None:
        parts = value.parts() if type(value) in _passed else [value.to_bytes()]
        out += [bytes([tag]), _length(sum(map(len, parts))), *parts]
    elif isinstance(value, Parts):
        out += [bytes([_BYTES]), _length(len(value)), *value.parts]
    elif value is None:
        out.append(bytes([_NONE]))
    elif isinstance(value, (bool, np.bool_)):
        out.append(bytes([_TRUE if value else _FALSE]))
    elif isinstance(value, (int, np.integer)):
        number = int(value)
        body = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
        if len(body) > MAX_INT_BYTES:
            raise MessageError(f"an integer of {number.bit_length()} bits is too large for a message")
        out += [bytes([_INT]), _length(len(body)), body]
    elif isinstance(value, (float, np.floating)):
        out += [bytes([_FLOAT]), struct.pack("<d", float(value))]
    elif isinstance(value, str):
        body = value.encode("utf-8", "surrogatepass")
        out += [bytes([_STR]), _length(len(body)), body]
    elif isinstance(value, (bytes, bytearray, memoryview)):
        body = bytes(value)
        out += [bytes([_BYTES]), _length(len(body)), body]
    elif isinstance(value, np.ndarray):
        _write_array(value, out)
    elif isinstance(value, (list, tuple)):
        out += [bytes([_LIST]), _length(len(value))]
        for item in value:
            _write(item, out, depth + 1)
    elif isinstance(value, dict):
        out += [bytes([_DICT]), _length(len(value))]
        for key, item in value.items():
            if not isinstance(key, str):
                raise MessageError(f"dictionary keys must be text, got {type(key).__name__}")
            body = key.encode("utf-8", "surrogatepass")
            out += [_length(len(body)), body]
            _write(item, out, depth + 1)
    elif type(value) in _messages:
        _write(_fields(value), out, depth)
    else:
        raise MessageError(f"a value of type {type(value).__module__}.{type(value).__name__} cannot be sent")


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def plain_message(value: object) -> object:
    """The same payload with dictionaries for messages: what a receiver decodes, before it knows what it is."""
    if isinstance(value, dict):
        return {name: plain_message(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_message(item) for item in value]
    if type(value) in _messages:
        return plain_message(_fields(value))
    return value


def _write_array(array: np.ndarray, out: list[Part]) -> None:
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _DTYPE_CODES:
        raise MessageError(f"a NumPy array of type {array.dtype} cannot be sent: only booleans, integers and floats")
    if array.ndim > 8:
        raise MessageError(f"a NumPy array of {array.ndim} dimensions cannot be sent")
    header = bytes([_ARRAY, _DTYPE_CODES[dtype], array.ndim])
    out += [header, *(_length(n) for n in array.shape), np.ascontiguousarray(array, dtype=dtype).tobytes()]


class _Reader:
    """Walks once over the bytes; every read is checked against what is left."""

    def __init__(self, data: bytes | Holed, position: int):
        self.data = data
        self.position = position

    def take(self, n: int) -> bytes:
        end = self.position + n
        if end > len(self.data):
            raise MessageError("the message is truncated")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def length(self) -> int:
        return int.from_bytes(self.take(6), "little")

    def block(self) -> bytes:
        return self.take(self.length())

    def skip(self, n: int | None = None) -> tuple[int, int]:
        """Where a block, or so many bytes, lie."""
        n = self.length() if n is None else n
        start = self.position
        if n > len(self.data) - start:
            raise MessageError("the message is truncated")
        self.position = start + n
        return start, self.position

    def view(self, n: int | None = None) -> memoryview:
        """The same where they lie: nothing is copied."""
        where = slice(*self.skip(n))
        return memoryview(self.data)[where] if isinstance(self.data, bytes) else memoryview(self.data[where])

    def text(self) -> str:
        try:
            return self.block().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise MessageError("text in the message is not UTF-8") from None

    def count(self) -> int:
        """A number of items, each of which needs at least one byte."""
        n = self.length()
        if n > len(self.data) - self.position:
            raise MessageError("the message is truncated")
        return n

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise MessageError(f"the message is nested deeper than {MAX_DEPTH} levels")
        tag = self.take(1)[0]
        if tag == _NONE:
            return None
        if tag in (_FALSE, _TRUE):
            return tag == _TRUE
        if tag == _INT:
            body = self.block()
            if not body or len(body) > MAX_INT_BYTES:
                raise MessageError("an integer in the message is empty or too large")
            return int.from_bytes(body, "little", signed=True)
        if tag == _FLOAT:
            return struct.unpack("<d", self.take(8))[0]
        if tag == _STR:
            return self.text()
        if tag == _BYTES:
            return self.block()
        if tag == _LIST:
            return [self.value(depth + 1) for _ in range(self.count())]
        if tag == _DICT:
            return self.mapping(depth)
        if tag == _ARRAY:
            return self.array()
        return self.wire_value(tag)

    def mapping(self, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for _ in range(self.count()):
            key = self.text()
            if key in result:
                raise MessageError("a dictionary in the message has the same key twice")
            result[key] = self.value(depth + 1)
        return result

    def array_head(self) -> tuple[np.dtype[Any], tuple[int, ...], int]:
        """Type, shape and bytes of an array."""
        code, ndim = self.take(2)
        dtype = _DTYPES.get(code)
        if dtype is None or ndim > 8:
            raise MessageError("an array in the message has an unknown type or too many dimensions")
        shape = tuple(self.length() for _ in range(ndim))
        size = dtype.itemsize
        for n in shape:
            size *= n  # Python integers: cannot wrap
        return dtype, shape, size

    def array(self) -> np.ndarray:
        dtype, shape, size = self.array_head()
        body = self.view(size)
        if dtype == np.dtype("?") and np.frombuffer(body, np.uint8).max(initial=0) > 1:
            raise MessageError("a boolean array in the message holds other bytes than 0 and 1")
        if size == 0 and max(shape, default=0) > MAX_BYTES:
            raise MessageError("an array in the message has an impossible shape")
        return np.frombuffer(body, dtype=dtype).reshape(shape).copy()

    def wire_value(self, tag: int) -> object:
        if tag not in _wire_types:
            raise MessageError(f"unknown type tag {tag} in the message")
        cls, from_bytes = _wire_types[tag]
        try:
            if cls in _passed and isinstance(self.data, Holed):
                block = Elsewhere(self.data, *self.skip())
                return from_bytes(cast(bytes, block) if block.missing else block.read())
            return from_bytes(cast(bytes, self.view()) if cls in _views else self.block())
        except SecurityError as error:
            raise MessageError(f"a {cls.__name__} in the message is not valid: {error}") from None


def large_blocks(data: bytes, least: int) -> list[tuple[int, int]]:
    """Where arrays and blocks of so many bytes or more lie in a message that was made here."""
    reader = _Reader(data, 3)
    found: list[tuple[int, int]] = []

    def pass_over() -> None:
        tag = reader.take(1)[0]
        if tag == _FLOAT:
            reader.take(8)
        elif tag == _LIST:
            for _ in range(reader.count()):
                pass_over()
        elif tag == _DICT:
            for _ in range(reader.count()):
                reader.skip()
                pass_over()
        elif tag == _ARRAY:
            size = reader.array_head()[2]
            found.append((reader.position, reader.position + size))
            reader.position += size
        elif tag not in (_NONE, _FALSE, _TRUE):
            found.append(reader.skip())

    if data[:2] == MAGIC:
        pass_over()
    return [(start, stop) for start, stop in found if stop - start >= least]


def walk(value: object) -> Iterator[Any]:
    """Every leaf of a payload, for those who count ciphertexts or look for sealed boxes."""
    if isinstance(value, dict):
        for item in value.values():
            yield from walk(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from walk(item)
    elif type(value) in _messages:
        yield from walk(_fields(value))
    else:
        yield value


# --- several requests in one message: each is read, judged and answered by itself, in its order (``in_step.py``) ---

#: A message of several: this, and the encoded list of them; its answer likewise. One request travels as it is.
_SEVERAL = b"FT\x01"
#: Requests in one message at most.
MOST_TOGETHER = 64


def pack(messages: Sequence[bytes]) -> bytes:
    """One message as it is, several behind each other."""
    return whole(pack_parts(messages))


def pack_parts(messages: Sequence[bytes | Parts]) -> bytes | Parts:
    """The same to be sent: what lies elsewhere stays there until it goes out."""
    return messages[0] if len(messages) == 1 else compose(list(messages), _SEVERAL)


def unpack(data: bytes) -> list[bytes]:
    """What ``pack`` was given."""
    if data[:2] != _SEVERAL[:2]:
        return [data]
    if data[:3] != _SEVERAL:
        raise MessageError("several requests in one message, of another release of fedsift")
    found = decode(data[3:])
    if (
        not isinstance(found, list)
        or not 2 <= len(found) <= MOST_TOGETHER
        or not all(isinstance(each, bytes) for each in found)
    ):
        raise MessageError(f"several requests in one message are a list of 2 to {MOST_TOGETHER}")
    return found


def answered(data: list[bytes], handle: Callable[[bytes], bytes]) -> bytes:
    """At a site: each request of a message is answered by itself, in its order.

    The message is taken out of its list, so that a large one is gone from memory when its request is.
    """
    try:
        requests = unpack(data.pop())[::-1]
    except MessageError as error:
        return encode({"error": "MessageError", "what": str(error)})
    replies = []
    while requests:
        replies.append(handle(requests.pop()))
    return pack(replies)
