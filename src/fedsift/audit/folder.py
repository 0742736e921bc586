"""The folder of an audit: record, page, annex and evidence, whole or not there at all.

``audit.json`` is the record, ``audit.html`` the page, ``annex.md`` and ``annex.html`` the data-protection annex,
``acro`` the evidence for output checkers.
"""

from __future__ import annotations

import json
from pathlib import Path

from fedsift.audit.annex import render_markdown, render_page
from fedsift.audit.evidence import write_evidence
from fedsift.core import files
from fedsift.report.audit_record import FORMAT, AuditRecord
from fedsift.report.exposures import render_audit

RECORD = "audit.json"
FILES = (RECORD, "audit.html", "annex.md", "annex.html", "acro")


def check_folder(out: Path) -> None:
    """Refuse a folder that holds anything but an earlier audit."""
    files.check_folder(out, "the audit", "no earlier audit", _files)


def _files(out: Path) -> set[str]:
    """What an audit has written there; nothing if the folder is no audit's."""
    try:
        mine = json.loads((out / RECORD).read_text(encoding="utf-8"))["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return set(FILES) if mine else set()


def write_audit(record: AuditRecord, out: Path) -> Path:
    """Record, page, annex and evidence, in one folder."""
    check_folder(out)
    with files.written_whole(out) as staging:
        text = json.dumps(record.write(), indent=2, ensure_ascii=False, allow_nan=False)
        (staging / RECORD).write_text(text + "\n", encoding="utf-8")
        for name, render in (("audit.html", render_audit), ("annex.md", render_markdown), ("annex.html", render_page)):
            (staging / name).write_text(render(record), encoding="utf-8")
        write_evidence(record, staging / "acro")
    return out.absolute()
