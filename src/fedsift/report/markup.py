"""HTML made of escaped pieces: a string is text unless it is an ``Html`` that this module made.

So a column called ``<script>`` can only ever become text; there is no second way to write a tag. Control characters
are replaced (a terminal or a browser might act on them), and names stand in ``<bdi>``, so that a name with
right-to-left marks cannot reorder the text around it.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from typing import Any

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_VOID = {"br", "input", "meta", "hr"}


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def clean(value: object) -> str:
    """Text without control characters and lone surrogates."""
    return _CONTROL.sub("\ufffd", str(value))


def h(tag: str, *children: object, **attributes: object) -> Html:
    """An element. ``class_`` is ``class``, ``data_x`` is ``data-x``; None and False leave an attribute out."""
    parts = [tag]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        parts.append(name if value is True else f'{name}="{html.escape(clean(value))}"')
    opening = f"<{' '.join(parts)}>"
    return Html(opening) if tag in _VOID else Html(f"{opening}{join(*children)}</{tag}>")


def join(*children: object) -> Html:
    """Pieces one after the other; lists are flattened, None is nothing, all that is not ``Html`` is escaped."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, (list, tuple)):
            parts.append(join(*child))
        else:
            parts.append(html.escape(clean(child)))
    return Html("".join(parts))


def name(text: object, class_: str | None = None) -> Html:
    """A name that somebody else chose: a party, a column."""
    return h("bdi", text, class_=class_)


def table(heads: list[str], rows: Sequence[Sequence[object]], *, numeric: tuple[int, ...] = (), **options: Any) -> Html:
    """A table that sorts by a click on a head and filters by a box above it once it is long.

    A cell is text, ``Html``, or a pair (shown, sort key). Options: ``classes`` (row number -> class), ``filter`` (what
    the box says), ``paper`` (rows that are printed), ``stack`` (rows become cards on a phone), ``kind`` (a class).
    """
    paper, kept, stack = options.get("paper", 60), options.get("classes", {}), options.get("stack", False)

    def cell(i: int, value: object) -> Html:
        shown, key = value if isinstance(value, tuple) else (value, None)
        return h(
            "td",
            shown,
            class_="number" if i in numeric else None,
            data_sort=key,
            data_label=heads[i] if stack else None,
        )

    body = []
    for position, row in enumerate(rows):
        classes = " ".join(filter(None, [kept.get(position), "beyond" if position >= paper else None]))
        body.append(h("tr", [cell(i, value) for i, value in enumerate(row)], class_=classes or None))
    sortable = len(rows) > 1
    head = [
        h("th", h("button", text, type="button") if sortable else text, scope="col",
          class_="number" if i in numeric else None)
        for i, text in enumerate(heads)
    ]  # fmt: skip
    kinds = " ".join(filter(None, ["stack" if stack else None, options.get("kind")]))
    grid = h("table", h("thead", h("tr", head)), h("tbody", body), class_=kinds or None)
    more = h("p", f"{len(rows) - paper:,} more rows in the file.", class_="paper-only") if len(rows) > paper else None
    box = None
    if len(rows) > 12:
        label = options.get("filter", "Filter these rows")
        box = h("p", h("input", type="search", class_="filter", placeholder=label, aria_label=label),
                h("span", class_="count", role="status"), class_="screen-only")  # fmt: skip
    return h("div", box, h("div", grid, class_="scroll", tabindex="0"), more, class_="table")


def short(value: object) -> str:
    """A number for people: four digits that count."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value == round(value) and abs(value) < 1e6:
            return f"{value:,.0f}"
        return f"{value:.4g}"
    return str(value)


def size(count: float) -> str:
    """Bytes for people."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.3g} {unit}"
        amount /= 1000
    return ""


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:,.0f} ms"
    return f"{seconds:,.1f} s" if seconds < 120 else f"{seconds / 60:,.1f} min"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
