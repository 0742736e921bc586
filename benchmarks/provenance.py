"""Which code made a figure: the commit that every row of a result file carries, and what was measured with old bins.

A row's ``commit`` is the commit that was checked out when the row was measured, with a ``+`` where files differed from
it. Rows from before this module carry ``<=COMMIT``: the commit that brought them into the repository, so the code that
made them is that one or an older one.

With the commit ``BINS`` ("Bins see every column") columns are cut into bins in another way. Rows that used bins and
were measured before carry ``"bins": "old"``, tables without rows of their own are in ``OLD_TABLES`` until a run stamps
them with a commit; the pages show a note for both.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BINS = "c7308ba"
#: Tables that are Markdown alone and whose figures depend on bins.
OLD_TABLES = ("boost", "crypto", "deploy")
_STAMP = re.compile(r"commit [0-9a-f]{7,}\+?")


def commit() -> str:
    """The commit that is checked out, with a ``+`` if tracked files of the package or the benchmarks were changed.

    Where the tree is a copy without its history, FEDSIFT_COMMIT says which.
    """
    if told := os.environ.get("FEDSIFT_COMMIT"):
        return told
    here = Path(__file__).parents[1]
    try:
        head = _git(here, "rev-parse", "--short=7", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/*.py")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def count_old(rows: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """How many rows were measured with old bins, and how many there are."""
    listed = list(rows)
    return sum(row.get("bins") == "old" for row in listed), len(listed)


def note_of(table: Path) -> str:
    """What the page says above a table of ``benchmarks/results``: nothing, or that figures are of the old bins."""
    cells, runs = table.with_suffix(".jsonl"), table.with_suffix(".json")
    if cells.is_file():
        old, total = count_old(json.loads(line) for line in cells.read_text(encoding="utf-8").splitlines() if line)
    elif runs.is_file():
        kept = json.loads(runs.read_text(encoding="utf-8"))
        old, total = count_old(row for rows in kept.values() for row in rows)
    else:
        stamped = _STAMP.search(table.read_text(encoding="utf-8"))
        old = total = int(table.stem in OLD_TABLES and not stamped)
    if not old:
        return ""
    which = "This table was" if old == total else f"{old:,} of the {total:,} rows behind this table were"
    return f'**Old bins.** {which} measured before the commit {BINS} ("Bins see every column") and not yet again.'
