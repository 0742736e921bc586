"""All benchmark tables on one page: docs/results.md, made from benchmarks/results/*.md and benchmarks/intros/*.md.

    python benchmarks/render_results.py [--check]

An intro says in a few lines what was reached and what was not. Its figures must stand in the table that it is about, so
that a new run of a benchmark cannot leave old words beside new numbers: ``--check`` (and a test) says which do not.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from provenance import note_of

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"
#: Methods first; then others, by name.
ORDER = ("muse", "fedsdg", "secure_layer", "less_vfl", "pso", "boost", "autofe_horizontal", "autofe_vertical", "hyfdca")
#: Where a table does not name the command that made it.
COMMANDS = {
    "fedsdg": "python benchmarks/fedsdg.py --data DIR",
    "secure_layer": "python benchmarks/fedsdg.py --data DIR --cost",
    "less_vfl": "python benchmarks/less_vfl.py --data DIR",
}
HEAD = """\
<!-- Made by `python benchmarks/render_results.py` from benchmarks/results and benchmarks/intros: change those. -->
# Results

Every table that our benchmarks have written, with the command that made it. Nulls (all columns, random columns,
shuffled labels) stand in the tables themselves. Test rows steered nothing, except where a table names the paper's
protocol. The machine has 2 cores and was shared: seconds say little where the load is high, and seeds are few where a
line says so. Every row in benchmarks/results carries the commit that made it (`<=`: the commit that brought it here,
which may be younger).

`--data DIR` is a folder of Parquet files, or the environment variable FEDSIFT_DATA (see
`fedsift.evaluate.datasets`). To choose a method by what it needs and what it gives away:
[choosing a method](choosing.md).
"""


def tables() -> dict[str, Path]:
    found = {path.stem: path for path in sorted((HERE / "results").glob("*.md"))}
    return {name: found[name] for name in [*ORDER, *found] if name in found}


def intro(name: str) -> str:
    path = HERE / "intros" / f"{name}.md"
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def section(name: str, path: Path) -> str:
    """The intro, the command, a note on old bins, and the table with its headings one level down."""
    text, fenced, lines = path.read_text(encoding="utf-8").strip(), False, []
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("#") and not fenced else line)
    title = lines.pop(0) if lines[0].startswith("## ") else f"## {name}"
    parts = [title, intro(name)]
    if "benchmarks/" not in text and name in COMMANDS:
        parts.append(f"Command: `{COMMANDS[name]}`.")
    return "\n\n".join(part for part in [*parts, note_of(path), "\n".join(lines).strip()] if part)


def anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def render() -> str:
    sections = {name: section(name, path) for name, path in tables().items()}
    listed = []
    for name, text in sections.items():
        title = text.splitlines()[0].removeprefix("## ")
        listed.append(f"- [{title}](#{anchor(title)}): [the table's file](../benchmarks/results/{name}.md)")
    return "\n".join([HEAD, *listed, "", "\n\n".join(sections.values()), ""])


def stale() -> list[str]:
    """Figures of intros that are not in the table they speak of."""
    wrong = []
    for name, path in tables().items():
        there = set(re.findall(r"\d+(?:\.\d+)?", path.read_text(encoding="utf-8")))
        for figure in re.findall(r"(?<![\w.,])\d+\.\d+(?!\w|\.\d)", intro(name)):
            if figure not in there:
                wrong.append(f"benchmarks/intros/{name}.md says {figure}, which is not in benchmarks/results/{name}.md")
    return wrong


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="write nothing; fail when the page is not up to date")
    check = options.parse_args().check
    problems = stale()
    if check and (not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != render()):
        problems.append("docs/results.md is old: run python benchmarks/render_results.py")
    elif not check:
        PAGE.write_text(render(), encoding="utf-8")
    print("\n".join(problems) or f"{PAGE.name}: {len(tables())} tables")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
