"""Long benchmarks in small pieces: a measured cell is a line of a JSON file, and a rerun makes only what is missing.

A cell is known by its key (data, split, seed, method, ...). What was measured is kept with the seconds it took, the
machine's load and the commit that made it; tables are rendered from the file at any time, so that an interrupted run
loses one cell at most.

Many processes can share a benchmark: with FEDSIFT_CLAIMS, an empty folder, each takes the cells that no other has
claimed, and cells of old bins are made again; give each its own ``--out`` beside a copy of the rows, then

    python benchmarks/cells.py results/muse.jsonl OUT/muse-*.jsonl

puts what they measured in the place of what was there.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from provenance import commit

#: What tells a cell from others, in any benchmark that keeps cells.
KEY = ("part", "data", "split", "seed", "row", "popsize", "init", "parties", "epsilon", "bounds", "permuted",
       "function", "method", "settings")  # fmt: skip


def cell_of(row: dict[str, Any]) -> str:
    return json.dumps([row.get(name) for name in KEY])


def claimed(key: dict[str, Any]) -> bool:
    """Whether this process may measure the cell: always, unless processes share a folder of claims."""
    folder = os.environ.get("FEDSIFT_CLAIMS")
    if folder is None:
        return True
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    try:
        os.close(os.open(Path(folder) / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class Cells:
    def __init__(self, path: Path):
        self.path = path
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line.strip()]

    def run(self, measure: Callable[[], dict[str, Any]], **key: Any) -> dict[str, Any]:
        """The cell of this key: read where it is there, measured and written down where it is not."""
        known = [row for row in self.rows if all(row.get(name) == value for name, value in key.items())]
        again = "FEDSIFT_CLAIMS" in os.environ and all(row.get("bins") == "old" for row in known)
        if (known and not again) or not claimed(key):
            return known[0] if known else {}
        start, processor = time.perf_counter(), time.process_time()
        found = measure()
        row = {
            **key,
            **found,
            "wall_s": round(time.perf_counter() - start, 2),
            "cpu_s": round(time.process_time() - processor, 2),
            "load": round(os.getloadavg()[0], 1),
            "commit": commit(),
        }
        self.rows = [each for each in self.rows if each not in known] + [row]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        return row

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows)

    def made(self, part: str) -> str:
        """What a part of the page cost in all: its last command may have measured little or nothing."""
        mine = [row for row in self.rows if row["part"] == part]
        loads = [row["load"] for row in mine]
        return (
            f"Made in pieces: {len(mine)} cells, {sum(row['cpu_s'] for row in mine):,.0f} CPU-s in all, at loads of "
            f"{min(loads, default=0)} to {max(loads, default=0)}; the line below is of the last command."
        )


def merge(path: Path, others: list[Path]) -> str:
    """Put the rows that other processes measured in the place of those of the same cells."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    there = {json.dumps(row) for row in rows}
    lines = (line for other in others for line in other.read_text(encoding="utf-8").splitlines() if line.strip())
    new = {cell_of(row): row for row in map(json.loads, lines) if json.dumps(row) not in there}
    kept = [row for row in rows if cell_of(row) not in new]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*kept, *new.values()]), encoding="utf-8")
    return f"{path.name}: {len(new)} rows new, {len(rows) - len(kept)} replaced"


class Sections:
    """A results page made of parts that are run one by one: a rerun replaces its own part and keeps the others."""

    def __init__(self, path: Path, head: str, order: list[str]):
        self.path, self.head, self.order = path, head.strip(), order
        pieces = path.read_text(encoding="utf-8").split("\n## ")[1:] if path.is_file() else []
        split = (piece.split("\n", 1) for piece in pieces)
        self.parts = {title.strip(): body.strip() for title, body in split}

    def write(self, part: str, body: str, command: str, started: float, load: float) -> None:
        """Replace one part; ``command`` is what made it, ``started`` its ``time.perf_counter()``."""
        stamp = (
            f"`{command}` (commit {commit()}): {time.perf_counter() - started:.0f} s, {os.cpu_count()} cores, load "
            f"{load:.1f} before and {os.getloadavg()[0]:.1f} after (above the number of cores wall seconds say little)."
        )
        self.parts[part] = f"{body.strip()}\n\n{stamp}"
        known = [name for name in self.order if name in self.parts]
        text = "\n\n".join(f"## {name}\n\n{self.parts[name]}" for name in known)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(f"{self.head}\n\n{text}\n", encoding="utf-8")
        print(f"\n## {part}\n\n{self.parts[part]}\n", flush=True)


if __name__ == "__main__":
    print(merge(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))
