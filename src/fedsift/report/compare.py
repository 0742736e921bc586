"""Several methods on the same folds: how good, how many columns, how steady, how many bytes and seconds, what leaks.

Scored as ``evaluate`` does: by joint models, nothing pooled, unless ``pooled=True`` is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedsift.core.federation import Federation
from fedsift.core.files import plain, write_atomic
from fedsift.core.wanted import suggest
from fedsift.errors import ParameterError
from fedsift.evaluate.evaluation import evaluate
from fedsift.evaluate.result import ALL, Evaluation, EvaluationLine
from fedsift.methods import METHODS, Selector
from fedsift.report import charts
from fedsift.report.html import quality_table
from fedsift.report.markup import Html, duration, h, join, short, size, table
from fedsift.report.page import page, section
from fedsift.report.record import Json, Quality
from fedsift.report.summary import verdict, versions
from fedsift.report.words import is_warning, sentence
from fedsift.report.write import is_page


@dataclass(frozen=True)
class Facts:
    """What a method's messages were: encryption, forms, who learns what, protections that were turned off."""

    encryption: str
    forms: str
    leaks: str
    notes: str


@dataclass
class Comparison:
    """What ``compare`` gives: ``frame()``, ``report("compare.html")``, and text when printed.

    Parameters
    ----------
    evaluation : what ``fs.evaluate`` gave.

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> y = (X["income"] + X["basket"] > 0).astype(int)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> comparison = fs.Comparison(fs.evaluate(fed, fs.GiniFilter(n_features=2), model="linear", cv=2))
    >>> comparison.metric
    'accuracy'
    """

    evaluation: Evaluation

    def frame(self) -> pd.DataFrame:
        """A line a method with its scores, cost and leaks, the best first; then the nulls."""
        return pd.DataFrame([{**line.flat(), **asdict(self._facts(line.method))} for line in self.lines()])

    def lines(self) -> list[EvaluationLine]:
        """The evaluation's lines in that order."""
        return sorted(self.evaluation.lines(), key=lambda line: (line.null, _descending(line.mean[self.metric])))

    @property
    def metric(self) -> str:
        """The measure that decides the order."""
        return self.evaluation.metrics[0]

    def _facts(self, name: str) -> Facts:
        rows = [row for row in self.evaluation.rows if row["method"] == name and "encryption" in row]
        forms = list(dict.fromkeys(form for row in rows for form in row["forms"] if form != "control"))
        notes = list(dict.fromkeys(note for row in rows for note in row["notes"] if is_warning(note)))
        leaks = self.evaluation.methods.get(name, {}).get("leaks", "")
        return Facts(rows[0]["encryption"] if rows else "", ", ".join(forms), leaks, "; ".join(notes))

    def advice(self) -> str:
        """Which method is best, and which are as good within the spread between folds."""
        metric = self.metric
        lines = [line for line in self.lines() if not line.null and not math.isnan(line.mean[metric])]
        if not lines:
            return "No method could be scored."
        best = lines[0]
        spread = best.spread[metric]
        text = f"{best.method} has the highest {metric}, {best.mean[metric]:.3f}"
        if not math.isnan(spread):
            text += f" ± {spread:.3f}"
        close = [x for x in lines if x.mean[metric] >= best.mean[metric] - (0.0 if math.isnan(spread) else spread)]
        if len(close) > 1:
            cheapest = min(close, key=lambda line: line.bytes)
            others = ", ".join(line.method for line in close if line is not best)
            text += f". Within the spread between its folds are {others}"
            text += f"; the fewest bytes of these are sent by {cheapest.method} ({size(cheapest.bytes)})"
        return text + self._beside_all(best) + "."

    def _beside_all(self, best: EvaluationLine) -> str:
        """A word on all columns where they score higher than the best selection."""
        metric = self.metric
        line = next((line for line in self.lines() if line.method == ALL), None)
        if line is None or not line.mean[metric] > best.mean[metric]:
            return ""
        spread = max(line.spread[metric], best.spread[metric])
        within = ", within the spread" if line.mean[metric] - best.mean[metric] <= spread else ""
        return f". All {line.n_features:.0f} columns score higher{within}: {line.mean[metric]:.3f}"

    def report(self, path: str | Path | None = None) -> str | Path:
        """HTML when the path ends in .html, text for .txt; without a path, return the text."""
        if path is None:
            return str(self)
        return write_atomic(path, render_comparison(self) if is_page(path) else f"{self}\n")

    def to_dict(self) -> dict[str, Json]:
        """Plain data, for JSON."""
        made: dict[str, Json] = plain(
            {"settings": self.evaluation.settings, "metrics": self.evaluation.metrics, "advice": self.advice(),
             "methods": self.evaluation.methods, "lines": self.frame().to_dict("records")}
        )  # fmt: skip
        return made

    def __str__(self) -> str:
        s, metric = self.evaluation.settings, self.metric
        shown = self.frame()[["method", metric, f"{metric}_std", "n_features", "jaccard", "bytes", "seconds"]]
        grid = shown.to_string(index=False, float_format=lambda v: f"{v:.4g}", na_rep="")
        head = f"{s['task']}, model {s['model']}, {s['how']}, {s['rows']} rows"
        leaks = [f"  {name} leaks: {facts['leaks'] or 'not stated'}" for name, facts in self.evaluation.methods.items()]
        return "\n".join([head, grid, self.advice(), *leaks])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return join(h("p", self.advice()), _table(self))


def compare(fed: Federation, selectors: Any, **options: Any) -> Comparison:
    """Fit several selectors on the same folds and set them side by side, with all and with random columns.

    ``selectors`` is a list of selectors or of method names (``fedsift methods``), or a dictionary name -> either.
    ``options`` are those of ``evaluate``: model, cv, metrics, random_state, repeats.

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> y = (X["income"] + X["basket"] > 0).astype(int)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> comparison = fs.compare(fed, ["gini", "sffs"], model="linear", cv=2)
    >>> sorted(comparison.frame()["method"])
    ['4 random columns', 'all features', 'gini', 'sffs']
    """
    if isinstance(selectors, (str, Selector)):
        selectors = [selectors]
    if isinstance(selectors, Mapping):
        named = {str(name): _made(selector) for name, selector in selectors.items()}
    elif all(isinstance(selector, str) for selector in selectors):
        named = {name: _made(name) for name in selectors}
    else:
        return Comparison(evaluate(fed, [_made(selector) for selector in selectors], **options))
    return Comparison(evaluate(fed, named, **options))


def _made(selector: str | Selector) -> Selector:
    if not isinstance(selector, str):
        return selector
    if selector not in METHODS:
        raise ParameterError(f"there is no method {selector!r}. {suggest(selector, list(METHODS))}")
    return METHODS[selector]()


# -- the page ----------------------------------------------------------------------------------------------------------


def _descending(value: float) -> tuple[bool, float]:
    """For sorting: the largest first, what is not a number last."""
    return (True, 0.0) if math.isnan(value) else (False, -value)


def _table(comparison: Comparison) -> Html:
    metric = comparison.metric
    rows, classes = [], {}
    for i, line in enumerate(comparison.lines()):
        mean, spread = line.mean[metric], line.spread[metric]
        value = f"{mean:.3f}" + ("" if math.isnan(spread) else f" ± {spread:.3f}")
        cost = [("–", 0.0), ("–", 0.0), ("–", 0.0)] if line.null else [
            (size(line.bytes), line.bytes), (duration(line.seconds), line.seconds), (short(line.rounds), line.rounds),
        ]  # fmt: skip
        rows.append([line.method, (value, mean), (short(line.n_features), line.n_features),
                     (short(line.jaccard), line.jaccard), *cost])  # fmt: skip
        if line.null:
            classes[i] = "null"
    heads = ["method", metric, "columns", "stability", "bytes", "time", "rounds"]
    return table(heads, rows, numeric=tuple(range(1, len(heads))), classes=classes, stack=True)


def _leaks(comparison: Comparison) -> Html:
    facts = {line.method: comparison._facts(line.method) for line in comparison.lines() if not line.null}
    warned = any(each.notes for each in facts.values())
    rows = [
        [method, sentence(each.leaks) if each.leaks else "not stated", each.forms or "nothing",
         each.encryption.removeprefix("encryption: "), *([h("b", each.notes, class_="bad")] if warned else [])]
        for method, each in facts.items()
    ]  # fmt: skip
    heads = ["method", "who learns what", "forms of messages", "encryption", "protections turned off"]
    return table(heads if warned else heads[:-1], rows, stack=True)


def render_comparison(comparison: Comparison) -> str:
    evaluation, metric = comparison.evaluation, comparison.metric
    settings = evaluation.settings
    lines = comparison.lines()
    marks = [(line.method, line.bytes, line.mean[metric]) for line in lines if not line.null]
    levels = [(line.method, line.mean[metric]) for line in lines if line.null]
    words = [h("li", h("b", name), ": ", verdict(evaluation, name, metric)) for name in evaluation.methods]
    quality = Quality(settings, list(evaluation.metrics), plain([line.flat() for line in lines]), None, "")
    parameters = [
        [name, f"{facts['class']}({', '.join(f'{k}={v!r}' for k, v in facts['parameters'].items())})"]
        for name, facts in evaluation.methods.items()
    ]
    parts = [
        ("answer", "The answer",
         section("answer", "Which method", h("p", comparison.advice(), class_="lead"), _table(comparison),
                 h("h3", "Each beside its nulls"), h("ul", words))),
        ("bytes", "Quality and bytes",
         section("bytes", f"{metric[:1].upper()}{metric[1:]} against bytes sent",
                 charts.points(marks, x_name="bytes sent in one selection", y_name=metric, levels=levels),
                 h("h3", "All measures"), quality_table(quality))),
        ("ledger", "What leaks", section("ledger", "What each method gives away", _leaks(comparison))),
        ("repeat", "Settings",
         section("repeat", "Settings", table(["method", "parameters"], parameters),
                 h("p", ", ".join(f"{key} {value}" for key, value in versions().items()), class_="quiet"))),
    ]  # fmt: skip
    head = join(
        h("h1", f"{len(evaluation.methods)} methods on the same rows"),
        h("p", f"{settings['task'].capitalize()} over {settings['rows']:,} rows and {evaluation.n_features:,} columns; "
          f"{settings['how']}, the same for all; model: {settings['model']}; seed {settings['random_state']}.",
          class_="lead"),
    )  # fmt: skip
    return page("fedsift: comparison", head, parts, "Made by fedsift. This file loads nothing from anywhere.")
