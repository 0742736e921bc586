"""A method's own picture: how the selection came about, drawn from ``details``.

``PICTURES`` knows what to make of the entries that the methods leave; any other entry is drawn by its shape (numbers
as a line, a square of numbers as a heat map, records as a table), so a new method gets pictures without code here.
``@picture("key")`` adds one.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from fedsift.report import charts
from fedsift.report.markup import Html, h, name, short, size, table
from fedsift.report.record import Json, Report
from fedsift.report.summary import EVERY

#: ``draw(value, report)``: one entry of the details, and all that the report is made of.
Picture = Callable[[Json, Report], Html | None]

PICTURES: dict[str, tuple[str, str, Picture]] = {}


def picture(*keys: str, title: str, caption: str = "") -> Callable[[Picture], Picture]:
    """Register ``draw(value, report) -> Html`` for entries of ``details`` with one of these keys."""

    def mark(draw: Picture) -> Picture:
        for key in keys:
            PICTURES[key] = (title, caption, draw)
        return draw

    return mark


def draw_details(report: Report) -> list[Html]:
    """Figures for all entries of ``report.details``; single values come together in one table at the end."""
    figures, facts = [], []
    for key, value in report.details.items():
        if value is None or value == [] or value == {}:
            continue
        title, caption, draw = PICTURES.get(key, (readable(key), "", _by_shape))
        drawn = _tried(draw, value, report)
        if drawn == "":
            continue
        if drawn is None:
            facts.append([readable(key), _flat(value)])
        else:
            figures.append(_figure(title, drawn, caption))
    if facts:
        figures.append(_figure("In numbers", table(["what", "value"], facts), ""))
    return figures


def _tried(draw: Picture, value: Json, report: Report) -> Html | None:
    """A picture made for a key, or one by shape where the value is not what that picture expects."""
    try:
        return draw(value, report)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return _by_shape(value, report)


def _figure(title: str, drawn: Html, caption: str) -> Html:
    return h("figure", h("h3", title), drawn, h("figcaption", caption) if caption else None)


def readable(key: str) -> str:
    text = key.replace("_", " ").strip()
    return text[:1].upper() + text[1:]


def _number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numbers(value: Json) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(v is None or _number(v) for v in value)


def _floats(values: list[Json]) -> list[float]:
    return [float("nan") if v is None else float(v) for v in values]


def _by_shape(value: Json, report: Report) -> Html | None:
    if isinstance(value, (bool, int, float, str)):
        return None
    if _numbers(value) and len(value) < 4:
        return None
    if _numbers(value):
        return charts.lines({"value": _floats(value)})
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return h("ol", [h("li", name(v)) for v in value[:200]], class_="names")
    if isinstance(value, list) and all(isinstance(v, dict) for v in value):
        return _records(value)
    if isinstance(value, list) and all(_numbers(row) for row in value) and len({len(row) for row in value}) == 1:
        return _matrix(value, report)
    if isinstance(value, dict) and set(value) == {"labels", "columns", "matrix", "of"}:
        return _labelled(value)
    if isinstance(value, dict) and value:
        return _mapping(value, report)
    return h("details", h("summary", "as JSON"), h("pre", json.dumps(value, indent=1)[:20_000]))


def _labelled(value: dict[str, Json]) -> Html:
    note = f"The first {len(value['labels'])} of {value['of']:,}." if value["of"] > len(value["labels"]) else ""
    drawn = charts.heat([_floats(row) for row in value["matrix"]], value["labels"], value["columns"])
    return h("div", drawn, h("p", note, class_="quiet") if note else None)


def _mapping(value: dict[str, Json], report: Report) -> Html | None:
    counts = report.answer.columns
    if all(isinstance(v, list) and len(v) == counts.get(k) for k, v in value.items()):
        return _by_column(value, report)
    if all(_number(v) for v in value.values()):
        columns, kept = set(column_labels(report)), kept_names(report)
        if columns.isdisjoint(value):
            return charts.bars([(k.replace("_", " "), float(v), "on") for k, v in list(value.items())[:80]])
        return charts.bars([(k, float(v), "on" if k in kept else "off") for k, v in list(value.items())[:80]])
    if all(_numbers(v) for v in value.values()):
        return charts.lines({k: _floats(v) for k, v in value.items()}, strong=sorted(kept_names(report)))
    if all(isinstance(v, dict) for v in value.values()):
        return _records([{"name": k, **v} for k, v in value.items()])
    return table(["what", "value"], [[readable(k), _flat(v)] for k, v in value.items()])


def _by_column(value: dict[str, list[Json]], report: Report, most: int = 40) -> Html | None:
    """A value for each column of each party: the largest as bars, or how many where it is yes or no."""
    if all(isinstance(v, bool) for values in value.values() for v in values):
        rows = [[name(party), f"{sum(values):,} of {len(values):,}"] for party, values in value.items()]
        return table(["party", "columns"], rows)
    kept = {row.place for row in report.answer.scores if row.selected}
    labels, place, entries = column_labels(report), 0, []
    starts = {}
    for party in report.parties:
        starts[party] = place
        place += report.answer.columns.get(party, 0)
    for party, values in value.items():
        for i, number in enumerate(_floats(values)):
            where = starts[party] + i
            entries.append((labels[where], number, "on" if where in kept else "off"))
    entries.sort(key=lambda entry: -entry[1] if entry[1] == entry[1] else float("inf"))
    more = h("p", f"The largest {most} of {len(entries):,}.", class_="quiet") if len(entries) > most else None
    return h("div", charts.bars(entries[:most]), charts.legend([("on", "kept"), ("off", "left out")]), more)


def _records(rows: list[dict[str, Json]]) -> Html:
    heads = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[(_flat(row.get(key)), row.get(key) if _number(row.get(key)) else None) for key in heads] for row in rows]
    numeric = tuple(i for i, key in enumerate(heads) if all(row.get(key) is None or _number(row[key]) for row in rows))
    return table([readable(key) for key in heads], cells, numeric=numeric)


def _matrix(rows: list[list[Json]], report: Report) -> Html:
    labels = column_labels(report)
    if len(labels) != len(rows):
        labels = [str(i + 1) for i in range(len(rows))]
    across = labels if len(rows[0]) == len(rows) else [str(j + 1) for j in range(len(rows[0]))]
    return charts.heat([_floats(row) for row in rows], labels, across)


def _flat(value: Json) -> str:
    if isinstance(value, (list, dict)):
        text = json.dumps(value)
        return text if len(text) <= 400 else text[:399] + "…"
    return short(value)


def column_labels(report: Report) -> list[str]:
    """party.column of all scored columns, in the order of the parties and of their columns."""
    rows = sorted(report.answer.scores, key=lambda row: row.place)
    return [row.feature if row.party == EVERY else f"{row.party}.{row.feature}" for row in rows]


def kept_names(report: Report) -> set[str]:
    """The kept columns, as ``column``, ``party.column`` and ``party: column``."""
    names: set[str] = set()
    for party, columns in report.answer.selected.items():
        for column in columns:
            names |= {column, f"{party}.{column}", f"{party}: {column}", f"{party}/{column}"}
    return names


# -- what the methods leave ------------------------------------------------------------------------------------------


@picture(
    "gates_by_epoch", title="Gates while training",
    caption="A gate a column. It opens or closes as the network learns; columns whose gate ends above 0 are kept.",
)  # fmt: skip
def _gates(value: Json, report: Report) -> Html:
    return _traced(value, "gates", "gate", report)


@picture(
    "norms_by_epoch", title="Weights while training",
    caption="The weight norm of each column. The penalty pulls those that do not help to 0; what stays above is kept.",
)  # fmt: skip
def _norms(value: Json, report: Report) -> Html:
    return _traced(value, "norms", "norm", report)


def _traced(value: list[dict[str, Json]], key: str, what: str, report: Report) -> Html:
    """A line a column from readings ``{"epoch": 10, key: {party: [...]}}``; the kept columns in colour."""
    labels = column_labels(report)
    read = [[v for party in report.parties for v in entry[key].get(party, [])] for entry in value]
    if any(len(row) != len(labels) for row in read):
        raise ValueError(f"no {what} for each column")
    if len(read) < 2:  # a short training was read once: there is no way to draw, only where it ended
        return _by_column(value[-1][key], report) or Html("")
    places = {label: i for i, label in enumerate(labels)}
    kept = [labels[row.place] for row in report.answer.scores if row.selected]  # best first
    order = [*kept, *(label for label in labels if label not in set(kept))]
    series = {label: _floats([row[places[label]] for row in read]) for label in order}
    return charts.lines(series, x=[entry["epoch"] for entry in value], x_name="epoch", y_name=what, strong=kept)


@picture(
    "order", title="The order of choice",
    caption="Chosen from the first step to the last. Relevance: what the column tells of the label. Redundancy: what "
    "it repeats of the columns chosen before it.",
)  # fmt: skip
def _order(value: Json, report: Report) -> Html | None:
    return _by_shape(value, report)


@picture(
    "information", title="Mutual information",
    caption="The fuller the square, the more two columns tell of each other; empty where nobody asked.",
)  # fmt: skip
def _information(value: Json, report: Report) -> Html | None:
    return _by_shape(value, report)


@picture("loss_curve", "loss", title="Loss while training", caption="Lower is better; flat means that it has settled.")
def _loss(value: Json, report: Report) -> Html:
    return charts.lines({"loss": _floats(value)}, x_name="epoch", y_name="loss")


@picture(
    "path", title="How strict to be",
    caption="Each line is a try with another price a column; the choice is made on rows that the try did not see.",
)  # fmt: skip
def _path(value: Json, report: Report) -> Html:
    drawn = None
    if len(value) > 2 and {"columns", "validation"} <= set(value[0]):
        drawn = charts.lines(
            {"validation": _floats([row["validation"] for row in value])}, x=[row["columns"] for row in value],
            x_name="columns kept", y_name="validation score",
        )  # fmt: skip
    return h("div", drawn, _records(value))


@picture("bytes", "bytes_by_stage", title="Bytes by stage")
def _bytes(value: Json, report: Report) -> Html:
    return charts.bars([(str(stage), float(count), "on") for stage, count in value.items()], shown=size)


@picture("bytes_by_epoch", title="Bytes by epoch")
def _bytes_by_epoch(value: Json, report: Report) -> Html:
    series = {"from the parties": _floats(value["up"]), "to the parties": _floats(value["down"])}
    return charts.lines(series, x_name="epoch", y_name="bytes", y_shown=size, from_zero=True)


@picture(
    "score_by_bytes", title="Score by bytes",
    caption="Accuracy (R2 for an amount) on training rows as the training saw them, over the bytes that had travelled "
    "both ways since it began. It shows how training went, not how good the model is on new rows.",
)  # fmt: skip
def _score_by_bytes(value: Json, report: Report) -> Html:
    spent = [count / 1e6 for count in value["bytes"]]
    return charts.lines({"score": _floats(value["score"])}, x=spent, x_name="megabytes", y_name="score")


@picture(
    "curve", "swarm", title="Score on the way",
    caption="Measured on training rows that the try did not use; test rows steer nothing.",
)  # fmt: skip
def _curve(value: Json, report: Report) -> Html | None:
    """Numbers, or records with ``score`` (or ``best``) over ``columns``, ``iteration`` or ``step``."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value) or len(value) < 2:
        return _by_shape(value, report)
    over = next((key for key in ("iteration", "step", "columns", "round", "epoch") if key in value[0]), None)
    shown = [key for key in value[0] if key != over and all(_number(row.get(key)) for row in value)]
    shown = [key for key in shown if key in ("score", "best", "mean", "fitness", "auc", "accuracy", "r2")] or shown
    series = {key: _floats([row[key] for row in value]) for key in shown}
    x = _floats([row[over] for row in value]) if over else None
    return charts.lines(series, x=x, x_name=over or "step", y_name="score")


@picture(
    "ranking", title="Which pairs work together",
    caption="Pairs of columns by how much more they tell of the target together than one by one.",
)  # fmt: skip
def _ranking(value: Json, report: Report) -> Html | None:
    if not isinstance(value, list) or not value or not {"first", "second", "score"} <= set(value[0]):
        return _by_shape(value, report)
    best = sorted(value, key=lambda row: -row["score"])[:30]
    return h("div", charts.bars([(f"{r['first']} × {r['second']}", float(r["score"]), "on") for r in best]),
             h("p", f"The best 30 of {len(value):,}.", class_="quiet") if len(value) > 30 else None)  # fmt: skip


@picture("features", title="New features, in the order found")
def _features(value: Json, report: Report) -> Html | None:
    return _by_shape(value, report)


@picture("p_values", "sure", "why", title="")
def _p_values(value: Json, report: Report) -> Html | None:
    """Shown beside the scores already."""
    return Html("")


@picture("expressions", title="")
def _expressions(value: Json, report: Report) -> Html | None:
    """Shown with the answer already."""
    return Html("") if report.answer.engineered else _by_shape(value, report)
