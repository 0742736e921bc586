"""Several requests in one message: each is read, judged and answered by itself, in its order.

A message of several is ``b"FT"``, a version byte, and the encoded list of them; its answer likewise. One request
travels as it is. Who sends several, and why, stands in ``in_step.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedsift.core.message import decode, encode
from fedsift.errors import MessageError

_HEAD = b"FT\x01"
#: Requests in one message at most.
MOST = 64


def pack(messages: Sequence[bytes]) -> bytes:
    """One message as it is, several behind each other."""
    return messages[0] if len(messages) == 1 else _HEAD + encode(list(messages))


def unpack(data: bytes) -> list[bytes]:
    """What ``pack`` was given."""
    if data[:2] != _HEAD[:2]:
        return [data]
    if data[:3] != _HEAD:
        raise MessageError("several requests in one message, of another release of fedsift")
    found = decode(data[3:])
    if not isinstance(found, list) or not 2 <= len(found) <= MOST or not all(isinstance(each, bytes) for each in found):
        raise MessageError(f"several requests in one message are a list of 2 to {MOST}")
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
