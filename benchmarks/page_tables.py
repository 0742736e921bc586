"""Tables of benchmarks that stand in other pages: each is written anew from the benchmark's own file.

    python benchmarks/page_tables.py [--check]

A page says where its table comes from in a comment above it, and this script fills in what follows:

    <!-- table of muse.md: Whole fits -->
    <!-- table of muse.md: colon | method | SVM, inside = {SVM inside} | paper = {paper: accuracy} -->

The first word is a file of benchmarks/results (or benchmarks/published.md: what papers and peers report, which no
benchmark of ours makes), then the beginning of a heading in it; the table is the first one below that. Without more
words it is copied whole. With them each is a column: one of the table by its name, or NAME = TEXT with {columns} of the
table in it. ``rows:COLUMN=a; b`` takes those rows in that order, ``rename:a=b`` shows one otherwise,
``with:FILE: HEADING`` joins another table by the first column, whose own columns are then {HEADING.COLUMN};
``number:2`` takes the second table below the heading, ``across:TEXT`` makes a row of each of several headings (a; b),
whose columns are the first cells of their rows. A second column of one name is ``name#2``. A cell that is not there is
an error, never left as it was. A figure in a sentence: ``<!-- cell of FILE: HEADING | row | column -->5.2<!-- -->``.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
MARK = re.compile(r"^<!-- table of (?P<what>.+?) -->\n\n(?P<old>(?:\|.*\n)*)", re.MULTILINE)

CELL = re.compile(r"<!-- cell of (?P<what>.+?) -->[^<]*<!-- -->")


@dataclass
class Table:
    """A Markdown table: its header line, the line below, and rows by column."""

    head: list[str]
    ruler: list[str]
    rows: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def read(cls, lines: list[str]) -> Table:
        names, ruler, *rows = [cells(line) for line in lines]
        head = [name if (n := names[:i].count(name)) == 0 else f"{name}#{n + 1}" for i, name in enumerate(names)]
        return cls(head, ruler, [dict(zip(head, row)) for row in rows])

    def text(self) -> str:
        lines = [self.head, *([row[name] for name in self.head] for row in self.rows)]
        head, *rows = [f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines]
        return "".join([head, f"|{'|'.join(self.ruler)}|\n", *rows])


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables_below(path: Path, heading: str) -> list[list[str]]:
    """The tables between this heading and the next one that is not below it."""
    found: list[list[str]] = []
    depth, before = 0, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        title = re.match(r"(#+) +(.*)", line)
        if title and depth and len(title[1]) <= depth:
            break
        if title and not depth and title[2].lower().startswith(heading.lower()):
            depth = len(title[1])
        if depth and line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            found[-1].append(line)
        before = line
    if not found:
        raise SystemExit(f"{path.name} has no table below a heading {heading!r}")
    return found


def lines_of(what: str, number: int = 1) -> list[str]:
    file, _, heading = what.partition(":")
    place = HERE / file if file == "published.md" else HERE / "results" / file
    return tables_below(place, heading.strip())[number - 1]


def named(what: str, number: int = 1) -> Table:
    return Table.read(lines_of(what, number))


def made(what: str) -> str:
    """The table that a comment asks for."""
    source, *words = [word.strip() for word in what.split(" | ")]
    options = {key: [word[len(key) :] for word in words if word.startswith(key)] for key in _OPTIONS}
    columns = [word for word in words if not word.startswith(_OPTIONS)]
    number = int((options["number:"] or ["1"])[0])
    if not words:
        return "".join(f"{line}\n" for line in lines_of(source))
    table = _across(source, options["across:"][0]) if options["across:"] else named(source, number)
    _join(table, options["with:"])
    for rule in options["rows:"]:
        column, _, wanted = rule.partition("=")
        table.rows = [row for each in wanted.split(";") for row in _those(table, column, each.strip())]
    return _chosen(table, columns, {**SHOWN, **dict(_pair(each) for each in options["rename:"])}).text()


#: Data sets as the pages call them.
SHOWN = {
    "airfoil_self_noise": "Airfoil",
    "openml_586_fri_c3_1000_25": "OpenML 586",
    "california_housing": "California housing",
    "wine_quality_red": "wine quality (red)",
    "jm1": "JM1",
    "default_credit": "default credit",
}
_OPTIONS = ("rows:", "rename:", "with:", "number:", "across:")


def _across(source: str, cell: str) -> Table:
    """A row for each of several headings: the first column of its table gives the columns here, ``cell`` their text."""
    file, _, headings = source.partition(":")
    rows = []
    for heading in headings.split(";"):
        table = named(f"{file}:{heading}")
        row = {row[table.head[0]]: _text(cell, row) for row in table.rows}
        rows.append({**row, "data": heading.strip(), "seeds": _seeds(file, heading.strip())})
    head = list(dict.fromkeys(name for row in rows for name in row))
    return Table(head, ["---" if name == "data" else "--:" for name in head], rows)


def _seeds(file: str, heading: str) -> str:
    """Of a heading that says so: 'colon, 3 split seeds'."""
    text = (HERE / "results" / file).read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}\b.*?(\d+) (?:split )?seeds", text, re.MULTILINE)
    return found[1] if found else "-"


def _text(template: str, row: dict[str, str]) -> str:
    return _tidy(re.sub(r"\{(.+?)\}", lambda found: row[found[1]], template))


def _those(table: Table, column: str, wanted: str) -> list[dict[str, str]]:
    found = [row for row in table.rows if row[column] == wanted]
    if not found:
        raise SystemExit(f"no row has {wanted!r} as {column!r}")
    return found


def _pair(text: str) -> tuple[str, str]:
    before, _, after = text.partition("=")
    return before.strip(), after.strip()


def _join(table: Table, others: list[str]) -> None:
    """``FILE: HEADING`` or, for the second table below it, ``FILE: HEADING#2``."""
    for what in others:
        place, _, number = what.partition("#")
        other, short = named(place, int(number or 1)), what.partition(":")[2].strip()
        by = {row[other.head[0]]: row for row in other.rows}
        for row in table.rows:
            met = by.get(row[table.head[0]], dict.fromkeys(other.head, "-"))
            row.update({f"{short}.{name}": cell for name, cell in met.items()})


def _chosen(table: Table, columns: list[str], shown: dict[str, str]) -> Table:
    rulers = dict(zip(table.head, table.ruler))
    pairs = [_pair(each) if "{" in each else (each, f"{{{each}}}") for each in columns or table.head]
    rows = [{name: _text(text, row) for name, text in pairs} for row in table.rows]
    rows = [{name: shown.get(cell, cell) for name, cell in row.items()} for row in rows]
    return Table([name for name, _ in pairs], [rulers.get(text[1:-1], "--:") for _, text in pairs], rows)


def _tidy(cell: str) -> str:
    """Two missing figures are one missing figure."""
    return "-" if re.fullmatch(r"[-/ ]+", cell) else cell


def cell(what: str) -> str:
    source, row, column = [word.strip() for word in what.split(" | ")]
    table = named(source)
    return _those(table, table.head[0], row)[0][column]


def filled(page: str) -> str:
    """A page with every table below such a comment, and every such figure, made again."""
    page = CELL.sub(lambda found: f"<!-- cell of {found['what']} -->{cell(found['what'])}<!-- -->", page)
    return MARK.sub(lambda found: f"<!-- table of {found['what']} -->\n\n{made(found['what'])}", page)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="write nothing; fail when a page is not up to date")
    check, old = options.parse_args().check, []
    for path in [*sorted(DOCS.glob("*.md")), HERE.parent / "README.md"]:
        text = path.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            old.append(path.name)
            if not check:
                path.write_text(new, encoding="utf-8")
    print(f"{'to be made again' if check else 'made again'}: {', '.join(old) or 'none'}")
    return int(check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
