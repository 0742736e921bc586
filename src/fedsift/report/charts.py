"""Small charts without a library: bars as HTML, lines, heat maps and points as SVG.

Why not plotly: its script alone is 4.8 MB, and a report may have 5 MB. These charts are some kilobytes, follow light
and dark by themselves (colours are CSS variables), print well, and every mark says its value when pointed at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedsift.report.markup import Html, h, join, name, short, size

#: How a number is written.
Shown = Callable[[float], str]

COLOURS = 8
_MAX_POINTS = 240
_MAX_LINES = 150
MAX_CELLS = 48


def bars(rows: Sequence[tuple[str, float, str]], *, shown: Shown = short) -> Html:
    """A bar a row: (name, value, class). Values below 0 go to the left of the zero line."""
    values = [value for _, value, _ in rows if math.isfinite(value)]
    low, high = min([0.0, *values]), max([0.0, *values])
    span = (high - low) or 1.0
    lines = []
    for label, value, class_ in rows:
        good = value if math.isfinite(value) else 0.0
        left, width = (min(good, 0.0) - low) / span, abs(good) / span
        bar = h("span", class_=f"bar {class_}", style=f"margin-left:{left:.2%};width:{width:.2%}")
        track = h("span", bar, class_="track", aria_hidden="true")
        lines.append(h("li", name(label, "bar-name"), track, h("span", shown(value), class_="value")))
    return h("ul", lines, class_="bars")


def stacks(rows: Sequence[tuple[str, Sequence[tuple[str, float, str]]]], *, shown: Shown = size) -> Html:
    """A bar a row, cut into parts: (name, [(class, value, what it is), ...])."""
    most = max([sum(value for _, value, _ in parts) for _, parts in rows], default=0) or 1
    lines = []
    for label, parts in rows:
        total = sum(value for _, value, _ in parts)
        pieces = [
            h("span", class_=f"bar {class_}", style=f"width:{value / most:.2%}", title=f"{what}: {shown(value)}")
            for class_, value, what in parts if value
        ]  # fmt: skip
        track = h("span", pieces, class_="track", aria_hidden="true")
        lines.append(h("li", name(label, "bar-name"), track, h("span", shown(total), class_="value")))
    return h("ul", lines, class_="bars")


def dots(rows: Sequence[tuple[str, float, float, str]], *, shown: Shown = short, zero: bool = False) -> Html:
    """A dot a row with its spread: (name, value, spread, class). The scale fits the values; its ends are written.

    ``zero`` puts a mark at zero, where that is on the scale.
    """
    good = [(v, 0.0 if math.isnan(s) else s) for _, v, s, _ in rows if math.isfinite(v)]
    if not good:
        return h("p", "No values to draw.", class_="quiet")
    low, high = min(v - s for v, s in good), max(v + s for v, s in good)
    pad = (high - low) * 0.06 or 0.01
    low, high = low - pad, high + pad
    lines = []
    nothing = h("span", class_="zero", style=f"left:{-low / (high - low):.2%}") if zero and low < 0 < high else None
    for label, value, spread, class_ in rows:
        marks = [nothing] if nothing is not None else []
        if math.isfinite(value):
            half = 0.0 if math.isnan(spread) else spread
            left, width = (value - half - low) / (high - low), 2 * half / (high - low)
            marks.append(h("span", class_=f"bar spread {class_}", style=f"left:{left:.2%};width:{width:.2%}"))
            marks.append(h("span", class_=f"bar dot {class_}", style=f"left:{(value - low) / (high - low):.2%}"))
        track = h("span", marks, class_="track open", aria_hidden="true")
        lines.append(h("li", name(label, "bar-name"), track, h("span", shown(value), class_="value")))
    ends = h("li", h("span"), h("span", h("span", short(round(low, 3))), h("span", short(round(high, 3))),
                                class_="ends quiet"), h("span"), aria_hidden="true")  # fmt: skip
    return h("ul", lines, ends, class_="bars")


def legend(entries: Sequence[tuple[str, str]]) -> Html:
    """(class, text) pairs."""
    return h("p", [h("span", h("i", class_=f"bar {c}"), text, class_="key") for c, text in entries], class_="legend")


def _svg(width: int, height: int, children: object, label: str) -> Html:
    return h("svg", children, viewBox=f"0 0 {width} {height}", role="img", aria_label=label,
             xmlns="http://www.w3.org/2000/svg")  # fmt: skip


def _ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers that span the range."""
    if high <= low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.ceil(low / step) * step
    return [first + i * step for i in range(int((high - first) / step + 1e-9) + 1)]


#: Room of a letter in a picture, where it is largest: on a phone (style.py).
_BROAD, _TALL = 11, 20


class _Frame:
    """Axes with ticks and names, and the way from values to places."""

    width, height, right, top, bottom = 560, 260, 14, 12, 42

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], *, log_x: bool = False, y_shown: Shown = short
    ):  # fmt: skip
        self.log_x, self.y_shown = log_x, y_shown
        self.steps = all(float(end).is_integer() for end in x)  # epochs, rounds: nothing lies between two of them
        self.x0, self.x1 = (math.log10(v) for v in x) if log_x else x
        self.y0, self.y1 = y
        if self.x1 == self.x0:
            self.x0, self.x1 = self.x0 - 0.5, self.x1 + 0.5
        if self.y1 == self.y0:
            self.y0, self.y1 = self.y0 - 0.5, self.y1 + 0.5
        longest = max(len(y_shown(round(tick, 10))) for tick in _ticks(self.y0, self.y1))
        self.left = max(62, 36 + 11 * longest)  # room for the axis's name and the widest number, on a phone too

    def px(self, value: float) -> float:
        value = math.log10(value) if self.log_x else value
        return self.left + (value - self.x0) / (self.x1 - self.x0) * (self.width - self.left - self.right)

    def py(self, value: float) -> float:
        return self.top + (self.y1 - value) / (self.y1 - self.y0) * (self.height - self.top - self.bottom)

    def draw(self, marks: object, x_name: str, y_name: str, x_shown: Shown = short) -> Html:
        floor, right = self.height - self.bottom, self.width - self.right
        parts: list[object] = []
        for tick in _ticks(self.y0, self.y1):
            y = f"{self.py(tick):.1f}"
            parts.append(h("line", class_="grid", x1=self.left, x2=right, y1=y, y2=y))
            parts.append(h("text", self.y_shown(round(tick, 10)), class_="end", x=self.left - 6, y=y, dy="0.35em"))
        ticks = [10.0**k for k in range(math.ceil(self.x0), math.floor(self.x1) + 1)] if self.log_x else None
        if ticks is None or len(ticks) < 2:
            ends = (10.0**self.x0, 10.0**self.x1) if self.log_x else None
            ticks = list(ends) if ends else _ticks(self.x0, self.x1, 5)
            whole = [tick for tick in ticks if float(tick).is_integer()]
            ticks = whole if self.steps and len(whole) > 1 else ticks
        for tick in ticks:
            place = self.px(tick)
            anchor = "end" if place > right - 24 else "middle"  # the last one would stick out
            parts.append(h("text", x_shown(round(tick, 10)), class_=anchor, x=f"{place:.1f}", y=floor + 16))
        parts.append(h("text", x_name, class_="axis middle", x=(self.left + right) / 2, y=self.height - 6))
        turn = f"translate(18 {(self.top + floor) / 2:.0f}) rotate(-90)"
        parts.append(h("text", y_name, class_="axis middle", transform=turn))
        return _svg(self.width, self.height, [parts, marks], f"{y_name} by {x_name}")


def lines(
    series: Mapping[str, Sequence[float]], *, x: Sequence[float] | None = None, x_name: str = "step",
    y_name: str = "value", strong: Sequence[str] = (), y_shown: Shown = short, from_zero: bool = False,
) -> Html:  # fmt: skip
    """A line a series over 1, 2, 3, ... or ``x``. With more than ``COLOURS`` series only the strong have a colour."""
    arrays = {key: np.asarray(values, dtype=np.float64) for key, values in series.items()}
    arrays = {key: values for key, values in arrays.items() if len(values) and np.isfinite(values).any()}
    if not arrays:
        return h("p", "No values to draw.", class_="quiet")
    coloured = list(arrays) if len(arrays) <= COLOURS else [key for key in strong if key in arrays][:COLOURS]
    order = [key for key in arrays if key not in coloured][: _MAX_LINES - len(coloured)] + coloured
    longest = max(len(arrays[key]) for key in order)
    places = np.arange(1.0, max(longest, 2) + 1) if x is None else np.asarray(x, dtype=np.float64)
    everything = np.concatenate([arrays[key] for key in order])
    everything = everything[np.isfinite(everything)]
    ends = (float(places.min()), float(places.max()))
    lowest = min(0.0, float(everything.min())) if from_zero else float(everything.min())
    frame = _Frame(ends, (lowest, float(everything.max())), y_shown=y_shown)
    marks = []
    for key in order:
        values = arrays[key]
        steps = np.unique(np.linspace(0, len(values) - 1, min(len(values), _MAX_POINTS)).astype(int))
        points = " ".join(
            f"{frame.px(places[i]):.1f},{frame.py(values[i]):.1f}" for i in steps if np.isfinite(values[i])
        )
        class_ = f"line c{coloured.index(key) % COLOURS}" if key in coloured else "line faint"
        marks.append(h("polyline", h("title", key), points=points, class_=class_))
    keys = [(f"c{i % COLOURS}", key) for i, key in enumerate(coloured)]
    if len(order) > len(coloured):
        keys.append(("faint", f"{len(arrays) - len(coloured):,} others"))
    return join(frame.draw(marks, x_name, y_name), legend(keys) if len(arrays) > 1 else None)


def points(
    marks: Sequence[tuple[str, float, float]], *, x_name: str, y_name: str, levels: Sequence[tuple[str, float]] = (),
    log_x: bool = True, x_shown: Shown = size,
) -> Html:  # fmt: skip
    """(name, x, y): what a method reaches for what it sends (bytes, on a logarithmic axis); levels are dashed lines."""
    least = 1.0 if log_x else float("-inf")
    good = [(label, max(x, least), y) for label, x, y in marks if math.isfinite(x) and math.isfinite(y)]
    if not good:
        return h("p", "No values to draw.", class_="quiet")
    levels = [(label, y) for label, y in levels if math.isfinite(y)]
    xs, ys = [x for _, x, _ in good], [y for _, _, y in good] + [y for _, y in levels]
    pad = (max(ys) - min(ys)) * 0.12 or 0.05
    wide = (max(xs) - min(xs)) * 0.08 or 1.0
    ends = (min(xs) / 1.6, max(xs) * 1.6) if log_x else (min(xs) - wide, max(xs) + wide)
    frame = _Frame(ends, (min(ys) - pad, max(ys) + pad), log_x=log_x)
    drawn = []
    taken: list[tuple[float, float, float]] = []  # where labels stand already: from, to, height
    for label, y in levels:
        at, right = frame.py(y), frame.width - frame.right
        drawn.append(h("line", class_="level", x1=frame.left, x2=right, y1=f"{at:.1f}", y2=f"{at:.1f}"))
        start = frame.left + 4.0
        while any(start < b and start + _BROAD * len(label) > a and abs(at - 8 - c) < _TALL for a, b, c in taken):
            start += 20  # levels that lie close together have their names side by side
        taken.append((start, start + _BROAD * len(label), at - 8))
        drawn.append(h("text", label, x=f"{start:.0f}", y=f"{at:.1f}", dy="-0.35em", class_="small"))
    for label, x, y in sorted(good, key=lambda mark: mark[1]):
        left, top = frame.px(x), frame.py(y)
        before = left > frame.width * 0.6
        start = left - 9 - _BROAD * len(label) if before else left + 9
        height = _free(taken, start, start + _BROAD * len(label), top)
        drawn.append(
            h("g", h("title", f"{label}: {y_name} {short(float(y))}, {x_name} {x_shown(x)}"),
              h("circle", class_="point", cx=f"{left:.1f}", cy=f"{top:.1f}", r=5),
              h("text", label, class_="end" if before else None, x=f"{left + (-9 if before else 9):.1f}",
                y=f"{height:.1f}", dy="0.35em"))
        )  # fmt: skip
    return frame.draw(drawn, x_name, y_name, x_shown)


def _free(taken: list[tuple[float, float, float]], start: float, end: float, height: float) -> float:
    """The height nearest to the wished one at which a label meets no other."""
    for step in (0, 1, -1, 2, -2, 3, -3):
        at = height + step * (_TALL + 1)
        if not any(start < b and end > a and abs(at - other) < _TALL for a, b, other in taken):
            break
    taken.append((start, end, at))
    return at


def heat(matrix: Sequence[Sequence[float]], labels: Sequence[str], columns: Sequence[str] | None = None) -> Html:
    """A square a cell, the stronger the fuller; below 0 in the second colour. Pointing at a cell names it."""
    values = np.asarray(matrix, dtype=np.float64)[:MAX_CELLS, :MAX_CELLS]
    across = list(columns if columns is not None else labels)[: values.shape[1]]
    down = list(labels)[: values.shape[0]]
    finite = np.abs(values[np.isfinite(values)])
    top = float(finite.max()) if len(finite) and finite.max() > 0 else 1.0
    side = 22 if max(len(down), len(across)) <= 24 else 14
    left, above = (min(170, 14 + 7 * max([len(label) for label in part], default=1)) for part in (down, across))
    above = 0 if across == [str(j + 1) for j in range(len(across))] else above
    cells, names = [], []
    for j, other in enumerate(across if above else []):
        turn = f"translate({left + j * side + side / 2 + 4:.0f} {above - 6}) rotate(-90)"
        names.append(h("text", _cut(other), transform=turn))
    for i, label in enumerate(down):
        names.append(h("text", _cut(label), class_="end", x=left - 5, y=above + i * side + side / 2, dy="0.35em"))
        for j, other in enumerate(across):
            value = values[i, j]
            if not math.isfinite(value):
                continue
            about = h("title", f"{label} / {other}: {short(float(value))}")
            cells.append(
                h("rect", about, class_="cell" if value >= 0 else "cell below", x=left + j * side, y=above + i * side,
                  width=side - 1, height=side - 1, fill_opacity=f"{0.05 + 0.95 * abs(value) / top:.2f}")
            )  # fmt: skip
    width, height = left + len(across) * side + 4, above + len(down) * side + 4
    drawing = _svg(width, height, [names, cells], "heat map")
    scale = h("p", f"From 0 (faint) to {short(top)} (full).", class_="quiet")
    return join(
        h("div", drawing, class_="heat" if side > 14 else "heat dense", style=f"max-width:{max(width, 240)}px"), scale
    )


def _cut(label: str) -> str:
    return label if len(label) <= 24 else label[:23] + "…"
