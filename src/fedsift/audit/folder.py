"""The folder of an audit: record, page, annex and evidence, whole or not there at all.

``audit.json`` is the record, ``audit.html`` the page, ``annex.md`` and ``annex.html`` the data-protection annex,
``acro`` the evidence for output checkers.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsift.audit.annex import render_markdown, render_page
from fedsift.audit.evidence import write_evidence
from fedsift.errors import ParameterError
from fedsift.report.exposures import FORMAT, render_audit

RECORD = "audit.json"
FILES = (RECORD, "audit.html", "annex.md", "annex.html", "acro")


def check_folder(out: Path) -> None:
    """Refuse a folder that holds anything but an earlier audit. Called first, so that no work is lost."""
    if not out.exists():
        parent = next(folder for folder in out.absolute().parents if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise ParameterError(f"cannot write into {parent}; give another folder for the audit (--out DIR)")
        return
    if not out.is_dir():
        raise ParameterError(f"{out} is a file; give a folder for the audit (--out DIR)")
    there = {path.name for path in out.iterdir()}
    if not there:
        return
    if not _is_audit(out / RECORD):
        raise ParameterError(f"the folder {out} is not empty and no earlier audit; give another one (--out DIR)")
    strange = sorted(there - set(FILES))
    if strange:
        raise ParameterError(
            f"the folder {out} holds {strange[0]!r}, which fedsift did not write; move it or give another --out DIR"
        )


def _is_audit(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_audit(record: Mapping[str, Any], out: Path) -> Path:
    """Write into a hidden folder beside ``out`` and rename it: an interruption leaves the old one or none."""
    check_folder(out)
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    staging, old = (out.with_name(f".{out.name}.{token}.{kind}") for kind in ("partial", "old"))
    try:
        staging.mkdir()
        text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
        (staging / RECORD).write_text(text + "\n", encoding="utf-8")
        for name, render in (("audit.html", render_audit), ("annex.md", render_markdown), ("annex.html", render_page)):
            (staging / name).write_text(render(record), encoding="utf-8")
        write_evidence(record, staging / "acro")
        _replace(staging, out, old)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return out


def _replace(staging: Path, out: Path, old: Path) -> None:
    if not out.exists():
        os.rename(staging, out)
        return
    os.rename(out, old)
    try:
        os.rename(staging, out)
    except BaseException:
        os.rename(old, out)
        raise
