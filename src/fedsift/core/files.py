"""Files that are whole or not there, and values as JSON has them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_atomic(path: str | Path, text: str | bytes) -> Path:
    """Write a file (text in UTF-8) so that an interruption leaves the old file or none, never half of one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def plain(value: Any) -> Any:
    """NumPy values as JSON has them; what is not a number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def announced(value: Any) -> Any:
    """A parameter as a job tells it: data as they are, anything else (a function, a generator) by its kind."""
    if value is None or isinstance(value, (bool, int, float, str, list, tuple, dict, set, np.generic, np.ndarray)):
        return plain(value)
    return f"a {type(value).__name__}"
