"""The page of a model: which columns it goes by, and how it does on rows of two classes, as pictures.

All curves are made of groups of rows (``models/performance.py``), two digits a figure: no row can be read from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fedsift.core.files import plain, write_atomic
from fedsift.errors import DataError
from fedsift.evaluate.explaining import Explanation
from fedsift.report import charts
from fedsift.report.markup import Html, h, join, table
from fedsift.report.page import page, section
from fedsift.report.summary import versions

_MOST = 30  # columns that are drawn
_HINT = "Groups of rows by predicted probability, two digits a figure."


@dataclass(frozen=True)
class Explained:
    """What is told of a model on some rows: ``groups`` by predicted probability, ``by`` a column (its name)."""

    model: str
    rows: int
    explanation: Explanation
    groups: pd.DataFrame | None = None
    by: dict[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def area(self) -> float:
        """The area under the curve of the groups: a little below that of single rows."""
        if self.groups is None or self.groups.empty:
            return float("nan")
        x = [*self.groups["false_alarms"], 0.0]
        y = [*self.groups["reached"], 0.0]
        return float(sum((a - b) * (c + d) / 2 for a, b, c, d in zip(x, x[1:], y, y[1:])))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        lines = {name: frame.to_dict("records") for name, frame in self.by.items()}
        groups = [] if self.groups is None else self.groups.to_dict("records")
        told: dict[str, Any] = plain(
            {"format": "fedsift-explanation", "model": self.model, "rows": self.rows, "by": self.explanation.by,
             "columns": self.explanation.frame.to_dict("records"), "groups": groups, "groups_by": lines}
        )  # fmt: skip
        return told

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Explained:
        """Out of what ``to_dict`` gave; something else is a ``DataError``."""
        try:
            frame = pd.DataFrame(told["columns"], columns=["party", "column", "feature", "importance", "deviation"])
            groups = pd.DataFrame(told["groups"]).astype(_kinds(told["groups"]))
            by = {name: pd.DataFrame(rows).astype(_kinds(rows)) for name, rows in told["groups_by"].items()}
            return cls(told["model"], told["rows"], Explanation(told["by"], frame), groups, by)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise DataError("this is no explanation of a model (fedsift explain)") from None


def _kinds(rows: Sequence[Mapping[str, Any]]) -> dict[str, type]:
    """Figures of few rows were not told; they are no numbers again."""
    return {name: float for name, value in (rows[0] if rows else {}).items() if not isinstance(value, str)}


def explain_page(told: Explained) -> str:
    """The whole page; pictures of rows only where they had labels."""
    frame = told.explanation.frame
    bars = [(f"{line.party}.{line.feature}", float(line.importance), "on") for line in frame.head(_MOST).itertuples()]
    parts = [("columns", "Columns", section("columns", "What the model goes by", charts.bars(bars),
                                            h("p", told.explanation.by, class_="quiet")))]  # fmt: skip
    if told.groups is not None and not told.groups.empty:
        parts += _of_rows(told, told.groups)
    parts += [(f"by-{number}", f"By {name}", _fairness(number, name, lines))
              for number, (name, lines) in enumerate(told.by.items())]  # fmt: skip
    head = join(h("h1", f"{told.model}: why, and how good"), h("p", f"{told.rows:,} rows.", class_="lead"))
    foot = f"Made by fedsift {versions()['fedsift']}. This file loads nothing from anywhere."
    return page("fedsift: explanation", head, parts, foot)


def _of_rows(told: Explained, groups: pd.DataFrame) -> list[tuple[str, str, Html]]:
    chance, rate = groups["chance"].tolist(), groups["rate"].tolist()
    calibration = charts.lines(
        {"this model": rate, "if calibrated": chance}, x=chance, x_name="predicted probability",
        y_name="share of the class", from_zero=True,
    )  # fmt: skip
    alarms, reached = [*groups["false_alarms"], 0.0], [*groups["reached"], 0.0]
    curve = charts.lines(
        {"this model": reached, "by chance": alarms}, x=alarms, x_name="false alarms", y_name="found", from_zero=True
    )
    lifts = [(f"group {line.group}", float(line.lift), "on") for line in groups[::-1].itertuples()]
    rows = [
        [line.group, _two(line.chance), _two(line.rate), _two(line.lift), _two(line.reached), _two(line.false_alarms),
         _two(line.precision)]
        for line in groups[::-1].itertuples()
    ]  # fmt: skip
    heads = ["group", "probability", "of the class", "lift", "found", "false alarms", "precision"]
    listed = table(heads, rows, numeric=(1, 2, 3, 4, 5, 6))
    words = (
        "Act on a group and those above it: found is the share of the class that is among them, precision the share of "
        "them that is of the class. The highest probabilities come first."
    )
    return [
        ("calibration", "Calibration", section("calibration", "Calibration", calibration, _hint())),
        ("roc", "ROC", section("roc", f"ROC curve (area {told.area:.3f} on these groups)", curve, _hint())),
        ("lift", "Lift", section("lift", "Lift", charts.bars(lifts, shown=lambda value: f"{value:.2f}"), _hint())),
        ("thresholds", "Thresholds", section("thresholds", "Threshold table", listed, h("p", words, class_="quiet"))),
    ]  # fmt: skip


def _fairness(number: int, name: str, lines: pd.DataFrame) -> Html:
    picked = [(str(line[name]), float(line["picked"]), "on") for line in lines.to_dict("records")]
    rows = [
        [str(line[name]), *(_two(line[key]) for key in ("share", "rate", "chance", "picked", "hits", "alarms"))]
        for line in lines.to_dict("records")
    ]
    heads = [name, "of all rows", "of the class", "probability", "picked", "found", "false alarms"]
    words = (
        "Picked are as many rows as the class has, those of the highest probability. Fair, in three senses that "
        "exclude one another where shares of the class differ: equal shares picked; equal shares of the class found, "
        "and of the others wrongly picked; equal probability and share of the class. Groups of fewer than ten rows are "
        "left out."
    )
    drawn = charts.bars(picked, shown=lambda value: f"{value:.2f}")
    return section(f"by-{number}", f"Fairness by {name}", h("h3", "Share picked"), drawn,
                   table(heads, rows, numeric=tuple(range(1, 7))), h("p", words, class_="quiet"))  # fmt: skip


def _hint() -> Html:
    return h("p", _HINT, class_="quiet")


def _two(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def write_explanation(told: Explained, path: str | Path) -> Path:
    """HTML when the path ends in .html, text otherwise."""
    as_html = Path(path).suffix.lower() in (".html", ".htm")
    return write_atomic(path, explain_page(told) if as_html else f"{told.explanation}\n")
