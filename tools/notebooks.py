"""The notebooks of examples/notebooks, run from top to bottom and shown as pages.

python tools/notebooks.py            runs all and writes docs/notebooks/NAME.md and build/notebooks/NAME.ipynb
python tools/notebooks.py NAME ...   only these

A notebook is a Python file in cells (``# %%``), which Jupyter (jupytext), VS Code and Spyder open as one and plain
Python runs. Cells of text are Markdown behind ``#``. The value of a last line is shown, as in Jupyter; an ``assert``
that fails stops the run.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "examples" / "notebooks"
PAGES = ROOT / "docs" / "notebooks"
LONGEST = 160  # characters of a line of output that a page shows


@dataclass
class Cell:
    """One cell; ``output`` is what a run has shown."""

    text: str
    is_code: bool
    output: str = ""


def cells_of(source: str) -> list[Cell]:
    """The cells of a file, in order."""
    found = []
    for part in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        is_code = "[markdown]" not in head
        text = body.strip("\n") if is_code else re.sub(r"^# ?", "", body.strip("\n"), flags=re.MULTILINE)
        found.append(Cell(text, is_code))
    return found


def run(cells: list[Cell], name: str) -> None:
    """All cells of code in one namespace."""
    space: dict[str, Any] = {"__name__": name}
    for number, cell in enumerate(cells):
        if not cell.is_code:
            continue
        tree = ast.parse(cell.text)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            where = f"{name}, cell {number}"
            exec(compile(tree, where, "exec"), space)
            value = None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), space)
            if value is not None:
                print(value)
        cell.output = shown.getvalue().rstrip()


def page(cells: list[Cell], name: str) -> str:
    """The notebook as Markdown, with what it showed."""
    parts = [f"<!-- Made by `make notebooks` from examples/notebooks/{name}.py. -->"]
    for cell in cells:
        parts.append(f"```python\n{cell.text}\n```" if cell.is_code else cell.text)
        if cell.output:
            lines = [line if len(line) <= LONGEST else f"{line[:LONGEST]}…" for line in cell.output.splitlines()]
            parts.append("```text\n" + "\n".join(lines) + "\n```")
    source = f"examples/notebooks/{name}.py"
    parts.append(f"*This page is `{source}`, run: open that file as a notebook, or run it with Python.*")
    return "\n\n".join(parts) + "\n"


def as_ipynb(cells: list[Cell]) -> str:
    """The same in Jupyter's own format, version 4.4."""

    def plain(cell: Cell) -> dict[str, Any]:
        text = {"metadata": {}, "source": cell.text.splitlines(keepends=True)}
        if not cell.is_code:
            return {"cell_type": "markdown", **text}
        shown = [{"output_type": "stream", "name": "stdout", "text": cell.output.splitlines(keepends=True)}]
        return {"cell_type": "code", "execution_count": None, "outputs": shown if cell.output else [], **text}

    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    content = {"cells": [plain(cell) for cell in cells], "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def code_of(markdown: str) -> Iterator[str]:
    """The cells of code that a page shows."""
    return (match[1] for match in re.finditer(r"^```python\n(.*?)\n```$", markdown, re.MULTILINE | re.DOTALL))


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in SOURCES.glob("*.py"))
    built = ROOT / "build" / "notebooks"
    for folder in (PAGES, built):
        folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        cells = cells_of((SOURCES / f"{name}.py").read_text(encoding="utf-8"))
        run(cells, name)
        (PAGES / f"{name}.md").write_text(page(cells, name), encoding="utf-8")
        (built / f"{name}.ipynb").write_text(as_ipynb(cells), encoding="utf-8")
        print(f"docs/notebooks/{name}.md, build/notebooks/{name}.ipynb")


if __name__ == "__main__":
    main()
