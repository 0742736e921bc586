"""How the code looks to whoever moves in next: statements, loose types, and the files that one fit walks through.

    python benchmarks/house.py [--rooms core crypto ...] [--no-fits]

- *statements*: ``ast`` statements of src/fedsift (docstrings left out), ``testing/`` apart: shorter for the same.
- *Any a thousand lines*: the name ``Any`` in annotations and elsewhere, imports of it left out.
- *string subscripts a thousand lines*: ``thing["key"]``; a state or a message with a type has none.
- *files and functions visited*: by a SecureBoost fit and a Vertical-FLAFE fit on a small table, counted by a profiler
  in all threads: what a reader has to open who follows one run.
"""

from __future__ import annotations

import argparse
import ast
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
import pandas as pd

import fedsift as fs

SOURCE = Path(fs.__file__).parent


@dataclass
class Count:
    """What was counted in some files."""

    files: int = 0
    lines: int = 0
    statements: int = 0
    loose: int = 0  # Any
    subscripts: int = 0  # by a string

    def __add__(self, other: Count) -> Count:
        return Count(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def row(self, name: str) -> str:
        per = 1000 / max(self.lines, 1)
        return (
            f"| {name} | {self.files} | {self.lines:,} | {self.statements:,} | {self.loose * per:.1f} | "
            f"{self.subscripts * per:.1f} |"
        )


def count(path: Path) -> Count:
    text = path.read_text(encoding="utf-8")
    found = Count(files=1, lines=len(text.splitlines()))
    for node in ast.walk(ast.parse(text)):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        found.statements += isinstance(node, ast.stmt) and not docstring
        found.loose += isinstance(node, ast.Name) and node.id == "Any"
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            found.subscripts += isinstance(node.slice.value, str)
    return found


def rooms() -> dict[str, Count]:
    counted: dict[str, Count] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).parts
        room = parts[0] if len(parts) > 1 else "(root)"
        counted[room] = counted.get(room, Count()) + count(path)
    return counted


def visited(work: Callable[[], object]) -> tuple[int, int]:
    """Files and functions of fedsift that ``work`` runs through."""
    seen: Counter[tuple[str, str]] = Counter()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            seen[frame.f_code.co_filename, getattr(frame.f_code, "co_qualname", frame.f_code.co_name)] += 1

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len({file for file, _ in seen}), len(seen)


def fits() -> dict[str, Callable[[], object]]:
    """What is followed: federations are made beforehand, so that only the fit counts."""
    generator = np.random.default_rng(0)
    table = pd.DataFrame(generator.normal(size=(120, 6)), columns=list("abcdef"))
    label = (table["a"] + table["e"] > 0).astype(int)
    feds = [fs.Federation.split(table, label, parties=2) for _ in range(2)]
    boost = fs.SecureBoostClassifier(n_estimators=2, max_depth=2)
    flafe = fs.VerticalFLAFE(n_operands=2, n_features=2, functions=["ab"])
    return {"SecureBoost fit": lambda: boost.fit(feds[0]), "Vertical-FLAFE fit": lambda: flafe.fit(feds[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", default=None)
    parser.add_argument("--no-fits", action="store_true")
    given = parser.parse_args()
    counted = rooms()
    print("| room | files | lines | statements | Any a thousand lines | string subscripts a thousand lines |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, found in counted.items():
        if given.rooms is None or name in given.rooms:
            print(found.row(name))
    print(sum((found for name, found in counted.items() if name != "testing"), Count()).row("**all but testing**"))
    if not given.no_fits:
        print("\n| run | files | functions |\n|---|--:|--:|")
        for name, work in fits().items():
            print("| {} | {} | {} |".format(name, *visited(work)))


if __name__ == "__main__":
    main()
