"""docs/exposure.md, made from benchmarks/results/exposure.jsonl; ``exposure.py`` measures, this only arranges.

A cell is a case (a method with its options) and a set; what stands on the page of a cell is what its last version
showed. ``worst_of`` is the figure of a case; which one docs/choosing.md prints of a method says
``exposure_defaults.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from exposure_cases import SIX
from exposure_models import every_case
from exposure_read import Above, read_lines

from fedsift.audit.verdict import ADDS, NAMES

HERE = Path(__file__).parent
FIGURES = HERE / "results" / "exposure.jsonl"
RULES = HERE / "results" / "exposure_rules.jsonl"
PAGE = HERE.parent / "docs" / "exposure.md"
CHANGE = 0.05  # of what an attack adds: less is within what another draw of masks, folds or noise makes
NOT_RUN, REFUSED = "not run", "\u2020"
Row = dict[str, Any]

HEAD = """\
<!-- Made by `python benchmarks/exposure.py --render` from benchmarks/results/exposure.jsonl: change those. -->
# Exposure: what the messages of a run give away, measured

Every figure is an attack that was run on what one role really received: its success, what a guess reaches (the messages
give nothing), the baseline (what the same attacker reaches from its own rows and the answer that it is entitled to,
such as which of its columns were kept) and the control (the same attack on rows that did not take part: near to the
success, the attack learnt what holds for everybody; far below, it read these rows). An attack has failed when it adds
nothing to guess and baseline. Version is the commit that was measured.

**Attacks are lower bounds**: a figure that shows nothing is no proof that there is nothing, and a pass of
[`fedsift audit`](audit.md) is none either. What nobody has thought of yet is not on this page.

Two parties (four in a grid), at most 800 rows of each set where no other number is given, rounds and epochs lowered:
an attack reads the first ones as it would the last ones; of wide tables `explain` measures twelve columns. Of more
trees it reads more cells, so the bare name of a selector or model on trees is the run that a user gets who names
nothing else; "few trees" and "small swarm" are smaller ones, and another level of protection stands in the name. Where
a method fits others (`auto`, `stable`) each of these jobs is attacked, the figure that adds most stands. In one process
nobody is sent a result: `keep_result`, the end of a deployed job, is added as `Selection.for_party` makes it. Scores
and first components do not say which of two classes is which: that bit is given to attacks and baselines alike. Sites
have no policy here: the [rules of a site](party.md) (bits of exact numbers, sides of cuts, rows of a view, noise under
a budget) refuse some of these runs, statistics of many columns and large searches with boosted trees above all.

A line "gone" is no measurement: the message that the attack read is
not sent any more, and its success is put at the guess. What is sent in its place has attacks of its own, or a written
argument in `audit/waivers.py` why none is needed.
"""


def rows_of() -> list[Row]:
    text = FIGURES.read_text(encoding="utf-8") if FIGURES.is_file() else ""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


@cache
def asked_of_rules() -> dict[tuple[str, str], Row]:
    """What sites with default rules said last (``exposure_rules.py``) to a method on a set."""
    text = RULES.read_text(encoding="utf-8") if RULES.is_file() else ""
    return {(row["method"], row["set"]): row for row in map(json.loads, text.splitlines())}


def refused_by_rules() -> set[tuple[str, str]]:
    return {cell for cell, row in asked_of_rules().items() if row["rule"]}


def added(row: Row) -> float:
    """What the messages add to the better of guess and baseline."""
    return float(row["value"] - max(row["guess"], row["baseline"]))


@dataclass(frozen=True)
class Cell:
    """What the last version of a cell showed, and the last figure before it of each attack and party."""

    now: list[Row]
    before: dict[tuple[str, str], Row]

    @property
    def refusal(self) -> str:
        return next((row["note"] for row in self.now if row["note"].startswith("refused")), "")

    @property
    def given_up(self) -> str:
        return next((row["note"] for row in self.now if row["note"].startswith("too long")), "")

    @property
    def told(self) -> list[Row]:
        """Figures about values, labels and people: which unnamed column is which is no value in it."""
        attacks = [row for row in self.now if row["attack"] and row["metric"] not in NAMES]
        return [row for row in attacks if not row["note"].startswith(("gone", "nothing to read"))]


def by_cell() -> dict[str, dict[str, Cell]]:
    """Cells that are still measured, by case and set."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows_of():
        found.setdefault((row["method"], row["set"]), []).append(row)
    cells: dict[str, dict[str, Cell]] = {name: {} for name in every_case()}
    for (method, name), rows in found.items():
        last = rows[-1]["commit"]
        now = {(row["attack"], row.get("party", "")): row for row in rows if row["commit"] == last}
        before = {(row["attack"], row.get("party", "")): row for row in rows if row["commit"] != last and row["attack"]}
        if method in cells:
            cells[method][name] = Cell(list(now.values()), before)
    return {method: sets for method, sets in cells.items() if sets}


def worst_of(method: str) -> Row | None:
    """What adds most to guess and baseline over all sets of a method; None where nothing was measured."""
    told = [row for cell in by_cell().get(method, {}).values() for row in cell.told]
    return max(told, key=added, default=None)


def above(cells: dict[str, dict[str, Cell]]) -> list[Above]:
    """Every figure that adds more than what is taken for noise."""
    return [
        (method, name, added(row), row)
        for method, sets in cells.items()
        for name, cell in sets.items()
        for row in cell.told
        if added(row) > ADDS
    ]


def render() -> str:
    cells = by_cell()
    larger = {row["set"]: row["guess"] for row in rows_of() if row.get("metric") == "accuracy"}
    lines = [HEAD, *_glance(cells), *read_lines(above(cells), larger), *_rule_lines(cells), *_worst_lines(cells)]
    lines += _change_lines(cells)
    lines += [*_figure_lines(cells), *_attackers(cells)]
    versions = list(dict.fromkeys(row["commit"] for sets in cells.values() for c in sets.values() for row in c.now))
    lines += ["", f"Commits measured: {', '.join(versions)}. `python benchmarks/exposure.py --data DIR`", ""]
    return "\n".join(lines)


def _glance(cells: dict[str, dict[str, Cell]]) -> list[str]:
    lines = ["## At a glance", "",
             "What the best attack of a cell adds to guess and baseline, in its own measure; a dot is at most "
             f"{ADDS}, what is taken", "for noise. Which attack that is stands below. Refused: the method or the label "
             "holder does not take the set, in a", "word why; the whole sentence stands under every figure. Too long: "
             "given up after so many seconds of a processor, which", "stand there too; beside it what a smaller run "
             "showed. Not run: nothing stands against it but its time.",
             f"{REFUSED}: sites with default rules refuse this very run (the rule stands below).", "",
             f"| method | {' | '.join(SIX)} |", f"|--|{'--:|' * len(SIX)}"]  # fmt: skip
    for method, case in every_case().items():
        if set(case.sets) >= set(SIX):
            sets, smaller = (cells.get(each, {}) for each in (method, case.smaller))
            lines.append(f"| {method} | {' | '.join(_beside(sets.get(name), smaller.get(name)) for name in SIX)} |")
    return lines


def _beside(cell: Cell | None, smaller: Cell | None) -> str:
    """A run that took too long, or was not made, with what a smaller one showed."""
    lacking = cell is None or bool(cell.given_up)
    return f"{_short(cell)}; smaller: {_short(smaller)}" if lacking and smaller else _short(cell)


def _short(cell: Cell | None) -> str:
    if cell is None:
        return NOT_RUN
    if cell.given_up:
        return cell.given_up.partition(":")[0]
    if cell.refusal:
        return f"refused: {_in_a_word(cell.refusal)}"
    most = max([added(row) for row in cell.told], default=0.0)
    place = cell.now[0]["method"], cell.now[0]["set"]
    return f"+{most:.3f}{REFUSED if place in refused_by_rules() else ''}" if most > ADDS else "."


#: What a refusal says, and how the table at the top calls it.
WORDS = {
    "a tenth of": "too few rows", "rows cannot": "too few rows", "needs more rows": "too few rows",
    "more rows than columns": "too few rows", "room for": "too wide", "too wide": "too wide",
    "bounds": "no bounds", "scores of": "few columns", "values or fewer": "few values",
    "no maximum": "classes apart", "with some and none": "few values",
}  # fmt: skip


def _in_a_word(refusal: str) -> str:
    """Under every figure stands the whole sentence."""
    return next((word for said, word in WORDS.items() if said in refusal), "see below")


def _rule_lines(cells: dict[str, dict[str, Cell]]) -> list[str]:
    """Of the cells that add something: which rule of a site refuses the run, and which runs all rules let happen."""
    lines = ["", "## What default rules refuse", "",
             "Each cell that adds more than a dot, run once more by sites with the [rules](party.md) that `fedsift "
             "party init` writes: one", "job, in an empty journal. The rule is the first that refuses; a run that they "
             "let happen is the user's to weigh. Cells that", "are not named were not asked about.", "",
             "| rule | refuses, on these rows |", "|--|--|"]  # fmt: skip
    found: dict[str, dict[str, list[str]]] = {}
    for method, name in dict.fromkeys((method, name) for method, name, _, _ in above(cells)):
        row = asked_of_rules().get((method, name))
        if row is not None and not row.get("note"):
            found.setdefault(row["rule"], {}).setdefault(method, []).append(name)
    for rule in sorted(found, key=lambda rule: (not rule, rule)):
        told = "; ".join(f"{method}: {', '.join(names)}" for method, names in found[rule].items())
        lines.append(f"| {f'`{rule}`' if rule else 'none: they let it happen'} | {told} |")
    return lines


def _worst_lines(cells: dict[str, dict[str, Cell]]) -> list[str]:
    lines = ["", "## The worst of each method", "",
             "What adds most to guess and baseline over all sets, whether it adds anything or not. Attacks that say "
             "which unnamed", "column is which (columns named, cuts followed) stand under every figure only.", "",
             "| method | set | attack | role | success | guess | baseline | adds | version |",
             "|--|--|--|--|--:|--:|--:|--:|--|"]  # fmt: skip
    for method in cells:
        row = worst_of(method)
        if row is not None:
            who = f"{row['set']} | {row['attack']} | {row['role']}"
            lines.append(f"| {method} | {who} | {_three(row)} | {added(row):+.3f} | {row['commit']} |")
    return lines


def _three(row: Row) -> str:
    return " | ".join(f"{row[key]:.3f}" for key in ("value", "guess", "baseline"))


def _change_lines(cells: dict[str, dict[str, Cell]]) -> list[str]:
    lines = ["", "## What changed since the version before", "",
             f"Attacks whose success moved by {CHANGE} or more: less is within what a draw makes.", ""]  # fmt: skip
    changed = []
    for method, sets in cells.items():
        for name, cell in sets.items():
            for now in cell.now:
                then = cell.before.get((now["attack"], now.get("party", "")))
                if then is None or abs(now["value"] - then["value"]) < CHANGE:
                    continue
                figures = [f"{row['value']:.3f} ({row['commit']})" for row in (then, now)]
                figures += [f"{added(row):+.3f}" for row in (then, now)]
                changed.append(f"| {' | '.join([method, name, now['attack'], *figures])} |")
    if not changed:
        return [*lines, "No figure was measured on two versions with different results yet."]
    heads = ["| method | set | attack | before | now | added before | adds now |", "|--|--|--|--:|--:|--:|--:|"]
    return [*lines, *heads, *changed]


def _figure_lines(cells: dict[str, dict[str, Cell]]) -> list[str]:
    lines = ["", "## Every figure"]
    for method, sets in cells.items():
        lines += ["", f"### {method}", "",
                  "| set | attack | role | success | guess | baseline | control | AUC | version | note |",
                  "|--|--|--|--:|--:|--:|--:|--:|--|--|"]  # fmt: skip
        for name, cell in sets.items():
            lines += [_figure_line(name, row) for row in cell.now]
        lines += [f"| {name} | | | | | | | | | {NOT_RUN} |" for name in every_case()[method].sets if name not in sets]
    return lines


def _figure_line(name: str, row: Row) -> str:
    if not row["attack"]:
        return f"| {name} | | | | | | | | {row['commit']} | {row['note']} |"
    control, ranked = ("" if row.get(key) is None else f"{row[key]:.3f}" for key in ("control", "auc"))
    who = f"member {row['party']}" if row["role"] == "member" else row["role"]
    figures = f"{_three(row)} | {control} | {ranked}"
    return f"| {name} | {row['attack']} | {who} | {figures} | {row['commit']} | {row['note']} |"


def _attackers(cells: dict[str, dict[str, Cell]]) -> list[str]:
    used = {row["attack"]: row for sets in cells.values() for c in sets.values() for row in c.now if row["attack"]}
    heads = ["", "## What each attacker is after, and what it knows", "",
             "Knowledge is beside its own rows and what it received. Declared: what the pages of the methods say.", "",
             "| attack | role | target | measure | knows | declared |", "|--|--|--|--|--|--|"]  # fmt: skip
    return heads + [
        f"| {attack} | {row['role']} | {row['target']} | {row['metric']} | {row['knows']} | {row['declared']} |"
        for attack, row in sorted(used.items())
    ]
