"""Folders of results that are whole or not there, and that never replace what somebody else has put there."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsift.errors import ParameterError


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
