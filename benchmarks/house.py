"""How the code looks to whoever moves in next: statements, loose types, and the files that one fit walks through.

    python benchmarks/house.py [--rooms core crypto ...] [--no-fits] [--walk]

- *statements*: ``ast`` statements of src/fedsift (docstrings left out), ``testing/`` apart: shorter for the same.
- *Any a thousand lines*: the word, in annotations, imports and elsewhere.
- *string subscripts a thousand lines*: ``thing["key"]``; a state or a message with a type has none.
- *files and functions visited*: by a SecureBoost fit and a Vertical-FLAFE fit on a small table, counted by a profiler
  in all threads: what a reader has to open who follows one run. Of the files, *its own* are those of the method's
  folder, *machinery* those of core, crypto and site (how a step is asked, judged, sent, counted, encrypted: read once,
  it serves for every method; *by both* is how many of them both fits visit), *shared parts* the others (mpc, base
  classes). ``--walk`` lists the files in the order of first visit, with the functions visited of each.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
import pandas as pd

import fedsift as fs

SOURCE = Path(fs.__file__).parent
MACHINERY = ("core/", "crypto/", "site/")


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
    found = Count(files=1, lines=len(text.splitlines()), loose=len(re.findall(r"\bAny\b", text)))
    for node in ast.walk(ast.parse(text)):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        found.statements += isinstance(node, ast.stmt) and not docstring
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


@dataclass
class Walk:
    """What one fit runs through: file -> its functions, files in the order of first visit."""

    folder: str  # of the method
    files: dict[str, set[str]]

    def of(self, *rooms: str) -> list[str]:
        return [file for file in self.files if file.startswith(rooms)]

    def row(self, name: str, other: Walk) -> str:
        own, machinery = self.of(self.folder), self.of(*MACHINERY)
        lines = sum(count(SOURCE / file).lines for file in own)
        functions = [sum(len(self.files[file]) for file in files) for files in (self.files, own, machinery)]
        return (
            f"| {name} | {len(self.files)} | {functions[0]} | {len(own)} | {functions[1]} | {lines:,} | "
            f"{len(machinery)} | {functions[2]} | {len(set(machinery) & set(other.files))} | "
            f"{len(self.files) - len(own) - len(machinery)} |"
        )


def walked(folder: str, work: Callable[[], object]) -> Walk:
    """Files and functions of fedsift that ``work`` runs through."""
    seen: dict[str, set[str]] = {}
    start = len(str(SOURCE)) + 1

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
            seen.setdefault(frame.f_code.co_filename[start:], set()).add(name)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return Walk(folder, seen)


def fits() -> dict[str, Walk]:
    """What is followed: federations are made beforehand, so that only the fit counts."""
    generator = np.random.default_rng(0)
    table = pd.DataFrame(generator.normal(size=(120, 6)), columns=list("abcdef"))
    label = (table["a"] + table["e"] > 0).astype(int)
    feds = [fs.Federation.split(table, label, parties=2) for _ in range(2)]
    boost = fs.SecureBoostClassifier(n_estimators=2, max_depth=2, protection="coordinator")
    flafe = fs.VerticalFLAFE(n_operands=2, n_features=2, functions=["ab"])
    return {
        "SecureBoost fit": walked("models/boost/", lambda: boost.fit(feds[0])),
        "Vertical-FLAFE fit": walked("engineer/flafe/", lambda: flafe.fit(feds[1])),
    }


def show(walks: dict[str, Walk], each: bool) -> None:
    print("\n| run | files | functions | its own files | functions | lines | machinery: files | functions | by both | "
          "shared parts |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")  # fmt: skip
    for (name, walk), other in zip(walks.items(), reversed(walks.values())):
        print(walk.row(name, other))
    for name, walk in walks.items() if each else ():
        print(f"\n{name}")
        for file, functions in walk.files.items():
            found = count(SOURCE / file)
            print(f"  {file:45} {found.lines:4} lines, {len(functions):3} functions visited")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", default=None)
    parser.add_argument("--no-fits", action="store_true")
    parser.add_argument("--walk", action="store_true", help="the files of both fits, in the order of first visit")
    given = parser.parse_args()
    counted = rooms()
    print("| room | files | lines | statements | Any a thousand lines | string subscripts a thousand lines |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, found in counted.items():
        if given.rooms is None or name in given.rooms:
            print(found.row(name))
    print(sum((found for name, found in counted.items() if name != "testing"), Count()).row("**all but testing**"))
    if not given.no_fits:
        show(fits(), given.walk)


if __name__ == "__main__":
    main()
