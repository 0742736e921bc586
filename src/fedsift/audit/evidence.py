"""An evidence file in the form that ACRO and SACRO tools read, for the people who check outputs.

ACRO (https://github.com/AI-SDC/ACRO) helps researchers in safe settings to hand in outputs for checking. Version 1.x
leaves a folder: ``results.json``, the files that it names, and a folder ``checksums`` with the SHA-256 of each file as
text. ``results.json`` says which version of the form it is (readers take only their own), which tool wrote it, and has
a record for each output by its uid: a status (pass, fail or review), a type, free properties, the files with their
disclosure findings, a table ``outcome`` (column -> row -> text), the command that made it, a summary in a sentence, a
time, comments, a text that asks for an exception, and free metadata (``fair``).

Here each kind of exposure is an output of type "custom": a CSV file with the figures of the attacks on that target. A
checker's tool shows it as it shows any table. The status is the verdict; what an audit cannot judge is for review.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

from fedsift.audit.verdict import NOTHING
from fedsift.report.audit_record import AuditRecord, Line

#: The version of the form: readers of ACRO 1.x refuse any but their own.
ACRO_VERSION = "1.0.2"
_COLUMNS = (
    "to whom", "attack", "knows", "measure", "success", "guess", "baseline", "control", "over the limit", "verdict",
)  # fmt: skip


def write_evidence(record: AuditRecord, folder: Path) -> None:
    """Write ``results.json``, its tables and their checksums into a new folder."""
    folder.mkdir()
    results = {}
    for number, target in enumerate(dict.fromkeys(line.target for line in record.lines)):
        uid = f"output_{number}"
        lines = [line for line in record.lines if line.target == target]
        (folder / f"{uid}_0.csv").write_text(_table(lines), encoding="utf-8")
        results[uid] = _output(record, uid, target, lines)
    uid = f"output_{len(results)}"
    (folder / f"{uid}_0.csv").write_text(_messages(record), encoding="utf-8")
    results[uid] = _coverage(record, uid)
    told = {
        "version": ACRO_VERSION,
        "tool": {"@type": "SoftwareApplication", "name": "fedsift", "version": record.software},
        "results": results,
    }
    (folder / "results.json").write_text(json.dumps(told, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")
    sums = folder / "checksums"
    for path in [path for path in sorted(folder.iterdir()) if path.is_file()]:
        sums.mkdir(exist_ok=True)
        (sums / f"{path.name}.txt").write_text(hashlib.sha256(path.read_bytes()).hexdigest(), encoding="utf-8")


def _output(record: AuditRecord, uid: str, target: str, lines: list[Line]) -> dict[str, Any]:
    over = [line for line in lines if line.over]
    judged = any(line.concerns and not line.found_nothing for line in lines)
    status = "fail" if over else "pass" if judged and record.outcome != "incomplete" else "review"
    read = [line for line in lines if not line.found_nothing]
    worst = f"; {len(over) or 'none'} of {len(read)} that had something to read over the limit"
    outcome = {
        "attack": {str(i): line.attack for i, line in enumerate(lines)},
        "verdict": {str(i): _word(line) for i, line in enumerate(lines)},
    }
    return _record(
        record, uid, status, f"attacks on {target}{worst}", {"target": target, **asdict(record.limits)}, outcome
    )


def _word(line: Line) -> str:
    return "fail" if line.over else NOTHING if line.found_nothing else "ok" if line.concerns else "not judged"


def _coverage(record: AuditRecord, uid: str) -> dict[str, Any]:
    missing = [line.operation for line in record.coverage if line.status == "none yet"]
    summary = f"no attack yet for {', '.join(missing)}" if missing else "every message is attacked or needs no attack"
    outcome = {
        "message": {str(i): line.operation for i, line in enumerate(record.coverage)},
        "attack": {str(i): line.status for i, line in enumerate(record.coverage)},
    }
    return _record(record, uid, "review" if missing else "pass", summary, {}, outcome)


def _record(
    record: AuditRecord,
    uid: str,
    status: str,
    summary: str,
    properties: Mapping[str, object],
    outcome: Mapping[str, object],
) -> dict[str, Any]:
    return {
        "uid": uid,
        "status": status,
        "type": "custom",
        "properties": {"method": record.method, "rows": record.rows, **properties},
        "files": [{"name": f"{uid}_0.csv", "sdc": {}}],
        "outcome": outcome,
        "command": f"fedsift audit {record.job}",
        "summary": f"{status}; {summary}",
        "timestamp": record.made,
        "comments": list(record.caveats),
        "exception": "",
        "fair": {},
    }


def _table(lines: list[Line]) -> str:
    rows = [
        [line.whom, f"{line.attack} {line.stage}".strip(), line.knows, line.metric, f"{line.value:.4f}",
         f"{line.guess:.4f}", f"{line.baseline:.4f}", "" if line.control is None else f"{line.control:.4f}",
         "yes" if line.over else "no", NOTHING if line.found_nothing else line.judged]
        for line in lines
    ]  # fmt: skip
    return _csv([list(_COLUMNS), *rows])


def _messages(record: AuditRecord) -> str:
    heads = ("operation", "form", "about", "status", "why")
    return _csv([list(heads), *(list(astuple(line)) for line in record.coverage)])


def _csv(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
