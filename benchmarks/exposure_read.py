"""The part of docs/exposure.md that says of every cell above its null what was read, and how a site avoids it.

Words are in ``exposure_words.toml``, one entry an attack; a test demands one for every cell that adds something.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomllib

Row = dict[str, Any]
Above = tuple[str, str, float, Row]  # method, set, what it adds, the row

WORDS: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parent / "exposure_words.toml").read_text(encoding="utf-8")
)
INTRODUCTION = """
## What was read, and how a site avoids it

Every figure that adds more than a dot, by attack, and after each cell what it adds. *By chance*: within two standard
errors of what an attack reaches that has read nothing on so many rows (an accuracy, an area under a curve). Of some two
thousand figures one in forty lies beyond them by chance alone; that an attack is named here with small figures on many
cells, all on one side, is no chance.
"""


def chance(row: Row, larger: float) -> float:
    """The standard error of a figure of which nothing is read; ``larger`` is the share of the set's larger class."""
    rows = max(1, int(row.get("rows") or 1))
    if row["metric"] == "accuracy":
        return float((larger * (1 - larger) / rows) ** 0.5)
    if row["metric"] != "auc":
        return 0.0
    share = larger if row["target"] == "labels" else 0.5
    return float(((rows + 1) / (12 * rows * rows * share * (1 - share))) ** 0.5)


def read_lines(above: Iterable[Above], larger: dict[str, float]) -> list[str]:
    """By attack, that which adds most first."""
    by_attack: dict[str, list[Above]] = {}
    for each in sorted(above, key=lambda each: -each[2]):
        by_attack.setdefault(each[3]["attack"], []).append(each)
    lines = INTRODUCTION.splitlines()
    for attack, cells in by_attack.items():
        row, words = cells[0][3], WORDS[attack]
        said = f"{words['read']} *What a site does:* {words['avoid']}"
        lines += ["", f"**{attack}** ({row['role']}; {row['metric']}). {said}", ""]
        sure = [each for each in cells if each[2] > 2 * chance(each[3], larger.get(each[1], 0.5))]
        rest = [each for each in cells if each not in sure]
        lines += [f"- {_named(sure)}"] if sure else []
        lines += [f"- by chance: {_named(rest)}"] if rest else []
    return lines


def _named(cells: list[Above]) -> str:
    """Methods, and of each the sets."""
    sets: dict[str, list[str]] = {}
    for method, name, adds, _ in cells:
        sets.setdefault(method, []).append(f"{name} +{adds:.3f}")
    return "; ".join(f"{method}: {', '.join(found)}" for method, found in sets.items())
