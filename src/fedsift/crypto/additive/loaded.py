"""Public keys that this process has built, with their tables (some 10 MB each): the last few, the oldest goes."""

from __future__ import annotations

from typing import Any

MOST = 16
_keys: dict[bytes, Any] = {}


def remember(fingerprint: bytes, key: Any) -> Any:
    """Keep a built key for later messages under the same key."""
    _keys[fingerprint] = key
    while len(_keys) > MOST:
        _keys.pop(next(iter(_keys)), None)
    return key


def find(fingerprint: bytes) -> Any:
    """The built key, or ``None``."""
    return _keys.get(fingerprint)
