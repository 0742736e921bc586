"""A method's own picture: how the selection came about, drawn from ``details``.

``PICTURES`` knows what to make of the entries that the methods leave; any other entry is drawn by its shape (numbers
as a line, a square of numbers as a heat map, records as a table), so a new method gets pictures without code here.
``@picture("key")`` adds one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fedsift.report import charts
from fedsift.report.markup import Html, h, name, short, table

Record = Mapping[str, Any]
Picture = Callable[[Any, Record], Html | None]

PICTURES: dict[str, tuple[str, str, Picture]] = {}


def picture(*keys: str, title: str, caption: str = "") -> Callable[[Picture], Picture]:
    """Register ``draw(value, record) -> Html`` for entries of ``details`` with one of these keys."""

    def mark(draw: Picture) -> Picture:
        for key in keys:
            PICTURES[key] = (title, caption, draw)
        return draw

    return mark


def draw_details(record: Record) -> list[Html]:
    """Figures for all entries of ``record["details"]``; single values come together in one table at the end."""
    figures, facts = [], []
    for key, value in record["details"].items():
        if value is None or value == [] or value == {}:
            continue
        title, caption, draw = PICTURES.get(key, (readable(key), "", _by_shape))
        drawn = _tried(draw, value, record)
        if drawn is None:
            facts.append([readable(key), _flat(value)])
        else:
            figures.append(_figure(title, drawn, caption))
    if facts:
        figures.append(_figure("In numbers", table(["what", "value"], facts), ""))
    return figures


def _tried(draw: Picture, value: Any, record: Record) -> Html | None:
    """A picture made for a key, or one by shape where the value is not what that picture expects."""
    try:
        return draw(value, record)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return _by_shape(value, record)


def _figure(title: str, drawn: Html, caption: str) -> Html:
    return h("figure", h("h3", title), drawn, h("figcaption", caption) if caption else None)


def readable(key: str) -> str:
    text = key.replace("_", " ").strip()
    return text[:1].upper() + text[1:]


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(v is None or _number(v) for v in value)


def _floats(values: list[Any]) -> list[float]:
    return [float("nan") if v is None else float(v) for v in values]


def _by_shape(value: Any, record: Record) -> Html | None:
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
        return _matrix(value, record)
    if isinstance(value, dict) and set(value) == {"labels", "matrix", "of"}:
        return _labelled(value)
    if isinstance(value, dict) and value:
        return _mapping(value, record)
    return h("details", h("summary", "as JSON"), h("pre", json.dumps(value, indent=1)[:20_000]))


def _labelled(value: dict[str, Any]) -> Html:
    note = f"The first {len(value['labels'])} of {value['of']:,}." if value["of"] > len(value["labels"]) else ""
    drawn = charts.heat([_floats(row) for row in value["matrix"]], value["labels"])
    return h("div", drawn, h("p", note, class_="quiet") if note else None)


def _mapping(value: dict[str, Any], record: Record) -> Html | None:
    counts = record["answer"]["columns"]
    if all(isinstance(v, list) and len(v) == counts.get(k) for k, v in value.items()):
        return _by_column(value, record)
    if all(_number(v) for v in value.values()):
        kept = kept_names(record)
        return charts.bars([(k, float(v), "on" if k in kept else "off") for k, v in list(value.items())[:80]])
    if all(_numbers(v) for v in value.values()):
        return charts.lines({k: _floats(v) for k, v in value.items()}, strong=sorted(kept_names(record)))
    if all(isinstance(v, dict) for v in value.values()):
        return _records([{"name": k, **v} for k, v in value.items()])
    return table(["what", "value"], [[readable(k), _flat(v)] for k, v in value.items()])


def _by_column(value: dict[str, list[Any]], record: Record, most: int = 40) -> Html | None:
    """A value for each column of each party: the largest as bars, or how many where it is yes or no."""
    if all(isinstance(v, bool) for values in value.values() for v in values):
        rows = [[name(party), f"{sum(values):,} of {len(values):,}"] for party, values in value.items()]
        return table(["party", "columns"], rows)
    kept = {row["place"] for row in record["answer"]["scores"] if row["selected"]}
    labels, place, entries = column_labels(record), 0, []
    starts = {}
    for party in record["parties"]:
        starts[party] = place
        place += record["answer"]["columns"].get(party, 0)
    for party, values in value.items():
        for i, number in enumerate(_floats(values)):
            where = starts[party] + i
            entries.append((labels[where], number, "on" if where in kept else "off"))
    entries.sort(key=lambda entry: -entry[1] if entry[1] == entry[1] else float("inf"))
    more = h("p", f"The largest {most} of {len(entries):,}.", class_="quiet") if len(entries) > most else None
    return h("div", charts.bars(entries[:most]), charts.legend([("on", "kept"), ("off", "left out")]), more)


def _records(rows: list[dict[str, Any]]) -> Html:
    heads = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[(_flat(row.get(key)), row.get(key) if _number(row.get(key)) else None) for key in heads] for row in rows]
    numeric = tuple(i for i, key in enumerate(heads) if all(row.get(key) is None or _number(row[key]) for row in rows))
    return table([readable(key) for key in heads], cells, numeric=numeric)


def _matrix(rows: list[list[Any]], record: Record) -> Html:
    labels = column_labels(record)
    if len(labels) != len(rows):
        labels = [str(i + 1) for i in range(len(rows))]
    across = labels if len(rows[0]) == len(rows) else [str(j + 1) for j in range(len(rows[0]))]
    return charts.heat([_floats(row) for row in rows], labels, across)


def _flat(value: Any) -> str:
    if isinstance(value, (list, dict)):
        text = json.dumps(value)
        return text if len(text) <= 400 else text[:399] + "…"
    return short(value)


def column_labels(record: Record) -> list[str]:
    """party.column of all scored columns, in the order of the parties and of their columns."""
    rows = sorted(record["answer"]["scores"], key=lambda row: row["place"])
    return [f"{row['party']}.{row['feature']}" for row in rows]


def kept_names(record: Record) -> set[str]:
    """The kept columns, as ``column``, ``party.column`` and ``party: column``."""
    names: set[str] = set()
    for party, columns in record["answer"]["selected"].items():
        for column in columns:
            names |= {column, f"{party}.{column}", f"{party}: {column}", f"{party}/{column}"}
    return names
