"""What an evaluation gives: a record of every fit, and a line for each method and each null."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedsift.evaluate.scoring import jaccard, kuncheva

ALL = "all features"


def random_as(method: str) -> str:
    """How the null of as many random columns as this method keeps is called."""
    return f"random, as many as {method}"


def next_to(method: str) -> str:
    """How the columns that this method keeps, and the best one that it left out, are called."""
    return f"{method} and the next column"


@dataclass(frozen=True)
class Release:
    """What the label holder let out of one method and measure: over all folds, rounded.

    ``low`` and ``high`` are of the difference to the model of all columns (95 %, paired over folds).
    """

    mean: float
    deviation: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class EvaluationLine:
    """A method, or a null: means over the folds, and the standard deviation of each measure (NaN of a single fold)."""

    method: str
    null: bool
    mean: dict[str, float]
    spread: dict[str, float]
    n_features: float
    seconds: float
    bytes: float
    rounds: float
    jaccard: float
    kuncheva: float
    #: Where nothing was pooled: the difference to all columns, from and to.
    difference: dict[str, tuple[float, float]] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        """Side by side, for a table: each measure with its deviation as ``MEASURE_std``."""
        fields = asdict(self)
        means, spreads, differences = fields.pop("mean"), fields.pop("spread"), fields.pop("difference")
        measures = {key: value for m in means for key, value in ((m, means[m]), (f"{m}_std", spreads[m]))}
        for m, (low, high) in differences.items():
            measures[f"{m}_from"], measures[f"{m}_to"] = low, high
        first = {key: fields.pop(key) for key in ("method", "null")}
        return {**first, **measures, **fields}


@dataclass
class Evaluation:
    """Scores of selectors and their nulls. ``rows`` has a record for each fit; ``frame()`` a line for each method.

    ``methods`` tells about each selector: class, parameters, what it leaks. ``settings`` tells how it was scored.

    Examples
    --------
    >>> import fedsift as fs
    >>> import numpy as np
    >>> import pandas as pd
    >>> X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 4)), columns=["age", "income", "visits", "basket"])
    >>> y = (X["income"] + X["basket"] > 0).astype(int)
    >>> fed = fs.Federation.split(X, y, parties=["bank", "shop"])
    >>> result = fs.evaluate(fed, fs.GiniFilter(n_features=2), model="linear", cv=2)
    >>> result.frame()["method"].tolist()
    ['GiniFilter', 'all features', '2 random columns']
    >>> bool(result.frame()["accuracy"][0] > 0.9)
    True
    """

    rows: list[dict[str, Any]]
    metrics: tuple[str, ...]
    methods: dict[str, dict[str, Any]]
    settings: dict[str, Any]
    n_features: int
    selected: dict[str, list[frozenset[str]]] = field(default_factory=dict)
    #: Method -> measure -> what the label holder released; empty where the columns were pooled.
    released: dict[str, dict[str, Release]] = field(default_factory=dict)

    def frame(self) -> pd.DataFrame:
        """One line a method, then the nulls: mean and standard deviation over the folds of each measure."""
        return pd.DataFrame([line.flat() for line in self.lines()])

    def lines(self) -> list[EvaluationLine]:
        """The same, a record a method."""
        by_name = dict(list(pd.DataFrame(self.rows).groupby("method", sort=False)))
        return [self._line(name, by_name[name]) for name in sorted(by_name, key=lambda n: n not in self.methods)]

    def _line(self, name: str, rows: pd.DataFrame) -> EvaluationLine:
        sets = self.selected.get(name, [])
        cost = {key: float(rows[key].mean()) for key in ("n_features", "seconds", "bytes", "rounds")}
        if self.released:
            found = self.released[name]
            mean = {m: found[m].mean for m in self.metrics}
            spread = {m: _number(found[m].deviation) for m in self.metrics}
            difference = {m: (_number(found[m].low), _number(found[m].high)) for m in self.metrics}
        else:
            mean = {m: float(rows[m].mean()) for m in self.metrics}
            spread = {m: float(rows[m].std(ddof=1)) if len(rows) > 1 else float("nan") for m in self.metrics}
            difference = {}
        return EvaluationLine(
            method=name,
            null=name not in self.methods,
            mean=mean,
            spread=spread,
            difference=difference,
            jaccard=jaccard(sets),
            kuncheva=kuncheva(sets, self.n_features),
            **cost,
        )

    def null_of(self, method: str) -> str | None:
        """The name of the random columns, as many as ``method`` kept; None without nulls."""
        return self.methods[method].get("null") if method in self.methods else None

    def __str__(self) -> str:
        s = self.settings
        head = f"{s['task']}, model {s['model']}, {s['how']}, {s['rows']} rows, {self.n_features} columns"
        shown = self.frame().drop(columns="null")
        return f"{head}\n{shown.to_string(index=False, float_format=lambda v: f'{v:.4g}', na_rep='')}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        frame = self.frame().drop(columns="null")
        head = "".join(f"<th>{html.escape(str(column))}</th>" for column in frame.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_shown(value))}</td>" for value in row) + "</tr>"
            for row in frame.itertuples(index=False)
        )
        title = html.escape(f"{self.settings['task']}, model {self.settings['model']}, {self.settings['how']}")
        return f"<p>{title}</p><table><tr>{head}</tr>{body}</table>"


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _shown(value: object) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return str(value)
