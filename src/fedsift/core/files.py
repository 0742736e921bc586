"""Files that are whole or not there, and values as JSON has them.

Folders of results that are whole or not there, and that never replace what somebody else has put there.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedsift.errors import ParameterError

T = TypeVar("T")


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


def private(path: str, flags: int) -> int:
    """For ``open(..., opener=private)``: a new file that nobody but its owner can read."""
    return os.open(path, flags | os.O_EXCL, 0o600)


def plain(value: object) -> Any:
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


def read_plain(kind: type[T], data: object) -> T:
    """Plain data, as JSON has them, as a dataclass whose fields (and theirs) fit; ``ValueError`` says what does not."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(data)


def write_plain(value: object) -> dict[str, object]:
    """A dataclass as plain data: the names of its fields, or their aliases."""
    from pydantic import TypeAdapter

    return dict(plain(TypeAdapter(type(value)).dump_python(value, by_alias=True)))


def announced(value: object) -> object:
    """A parameter as a job tells it: data as they are, anything else (a function, a generator) by its kind."""
    if value is None or isinstance(value, (bool, int, float, str, list, tuple, dict, set, np.generic, np.ndarray)):
        return plain(value)
    return f"a {type(value).__name__}"


def check_folder(out: Path, what: str, is_earlier: str, files_of: Callable[[Path], set[str]]) -> None:
    """Refuse a folder that holds anything but an earlier one of the same kind. Called first, so that no work is lost.

    ``what`` goes there ("the audit"), ``is_earlier`` is what may be there ("earlier audit"); ``files_of`` gives the
    names of the files of such a folder, none if it is no such folder.
    """
    if not out.exists():
        parent = next(folder for folder in out.absolute().parents if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise ParameterError(f"cannot write into {parent}; give another folder for {what} (--out DIR)")
        return
    if not out.is_dir():
        raise ParameterError(f"{out} is a file; give a folder for {what} (--out DIR)")
    there = {path.name for path in out.iterdir()}
    if not there:
        return
    written = files_of(out)
    if not written:
        raise ParameterError(f"the folder {out} is not empty and {is_earlier}; give another one (--out DIR)")
    strange = sorted(there - written)
    if strange:
        raise ParameterError(
            f"the folder {out} holds {strange[0]!r}, which fedsift did not write; move it or give another --out DIR"
        )


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """A hidden folder beside ``out`` to write into, renamed at the end: an interruption leaves the old one or none."""
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    staging, old = (out.with_name(f".{out.name}.{token}.{kind}") for kind in ("partial", "old"))
    staging.mkdir()
    try:
        yield staging
        if out.exists():
            os.rename(out, old)
        try:
            os.rename(staging, out)
        except BaseException:
            if old.exists():
                os.rename(old, out)
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
