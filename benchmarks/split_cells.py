"""Rows of a long benchmark in a .jsonl file: one line a measured cell, appended as it comes, so that a run can stop at
any time and go on later, in pieces or in several processes, and the table can be made from what is there."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
from provenance import commit


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows; of a cell that was measured twice, the last."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                row = json.loads(line)
                rows[cell_of(row)] = row
    return list(rows.values())


def cell_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["data"], row["method"], row.get("parties"), row["seed"]


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Write one cell down, with the commit that made it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    row = {**row, "commit": commit()}
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(plain) + "\n")
    print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)


def table(rows: list[dict[str, Any]], by: list[str], columns: list[str]) -> str:
    """Mean and deviation over the seeds."""
    frame = pd.DataFrame(rows)
    lines = [
        f"| {' | '.join(by)} | seeds | {' | '.join(columns)} |",
        "|---" * len(by) + "|--:" * (1 + len(columns)) + "|",
    ]
    for key, group in frame.groupby(by, sort=False, dropna=False):
        cells = []
        for column in columns:
            values = pd.to_numeric(group[column]).dropna() if column in group else pd.Series(dtype=float)
            cells.append("" if values.empty else f"{values.mean():.3g} ± {values.std(ddof=0):.2g}")
        lines.append(f"| {' | '.join(str(part) for part in key)} | {len(group)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
