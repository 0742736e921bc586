"""The privacy officer's page of a report: who can finally read what, as one picture and one table a party."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedsift.report import charts
from fedsift.report.audit_record import AuditRecord, Line
from fedsift.report.markup import Html, h, join, name, table
from fedsift.report.page import section
from fedsift.report.readings import LABELS, NOTHING, THE_COORDINATOR, Learned, Reading, strongest
from fedsift.report.record import Report

_DRAWN = 8  # parties in the picture
_FORMS = {
    "aggregate": "totals over many rows",
    "pseudonymous": "row by row",
    "plain": "readable as it is",
}
_WIDE, _HIGH, _ROW = 150, 34, 210  # of a box, and where the parties stand
_UNMEASURED = (
    "Whether any of this lets a reader guess labels or columns was not measured for this job: fedsift audit JOB.toml "
    "attacks a rehearsal of it, and the next report has its figures here."
)
_OWN_UNMEASURED = (
    "Whether any of this lets a reader guess labels or columns was not measured here: fedsift audit JOB.toml --party "
    "PARTY.toml attacks a rehearsal of the job with your own rows, and needs no other party."
)


def officer_section(report: Report, audit: AuditRecord | None) -> Html:
    found = report.readings
    shown = [party for party in report.parties if report.party in (None, party)]
    return section(
        "privacy", "Who can read what in the end",
        h("p", _lead(report)),
        _picture(report.parties, found) if report.party is None else None,
        [_party(party, found, report.learned, audit, alone=report.party is not None) for party in shown],
        h("p", _UNMEASURED if report.party is None else _OWN_UNMEASURED, class_="note mild") if audit is None else None,
        h("p", "One person: each number is about one row. Linkable: whether its reader can tell who that person is. "
          "What was encrypted or masked and opened by nobody is not in these tables; Who learned what lists every "
          "message.", class_="quiet"),
    )  # fmt: skip


def _lead(report: Report) -> str:
    people = [each for each in report.readings if each.grain == "one person" and each.target != "membership"]
    rows = "Beside matching, nothing about a single person is readable to anybody."
    if people:
        readers = ", ".join(dict.fromkeys(each.reader for each in people))
        rows = f"Lines about single persons are readable to: {readers}."
    matched = any(each.target == "membership" for each in report.readings)
    told = "Matching ids told every party which of its own clients the others have too. " if matched else ""
    return f"{told}{rows}" if matched else rows.replace("Beside matching, nothing", "Nothing")


def _party(
    party: str, found: Sequence[Reading], heard: Sequence[Learned], audit: AuditRecord | None, *, alone: bool
) -> Html:
    measured = [] if audit is None else [audit]
    kinds: dict[tuple[str, str, str], list[Reading]] = {}
    for each in found:
        if each.owner == party:
            kinds.setdefault((each.what, each.grain, each.linkable), []).append(each)
    rows = []
    for (what, grain, linkable), group in kinds.items():
        readers = name(", ".join(dict.fromkeys(each.reader for each in group)))
        guesses = ["; ".join(dict.fromkeys(guessed(each, figures.exposures) for each in group)) for figures in measured]
        rows.append([what, readers, grain, linkable, *guesses])
    heads = ["what", "finally readable by", "about", "linkable", *(["guessed (audit)"] if measured else [])]
    own = [each.what for each in heard if each.party == party]
    return join(
        h("h3", "Your data" if alone else ["The data of ", name(party)]),
        h("div", table(heads, rows, stack=True, kind="whole"), class_="whole") if rows else
        h("p", "Nobody reads anything of it.", class_="quiet"),
        h("p", h("b", "It learned itself: "), "; ".join(own), ".") if own else None,
    )  # fmt: skip


def guessed(reading: Reading, exposures: Sequence[Line]) -> str:
    """What the audit measured for this reader: how well it guesses, beside chance and what it knows anyway."""
    if reading.target == NOTHING:
        return "–"
    role = "coordinator" if reading.reader == THE_COORDINATOR else ""
    lines = [
        line for line in exposures
        if line.target == reading.target and (line.role == role or line.party == reading.reader)
    ]  # fmt: skip
    if not lines:
        return "no attack for this"
    tried = [line for line in lines if not line.found_nothing]
    if not tried:
        return "attacked: nothing to read"
    worst = max(tried, key=lambda line: line.value - max(line.guess, line.baseline))
    known = f"guess {worst.guess:.2f}, known anyway {worst.baseline:.2f}"
    word = "more than it knows" if worst.adds else "no better than what it knows"
    what = "labels" if reading.target == LABELS else reading.target
    return f"{what}: {worst.metric} {worst.value:.2f} ({known}): {word}"


# -- the picture -------------------------------------------------------------------------------------------------------


def _picture(parties: Sequence[str], found: Sequence[Reading]) -> Html:
    """Parties in a row, others who read above them; an arrow goes from whose data it is to who reads it."""
    drawn = list(parties[:_DRAWN])
    arrows = {pair: form for pair, form in strongest(found).items() if pair[0] in drawn}
    above = list(dict.fromkeys(reader for _, reader in arrows if reader not in parties))
    width = max(420, 20 + (_WIDE + 20) * max(len(drawn), len(above)))
    places = {who: (_place(i, len(drawn), width), _ROW) for i, who in enumerate(drawn)}
    places |= {who: (_place(i, len(above), width), 20) for i, who in enumerate(above)}
    lines = []
    for (a, b), form in arrows.items():
        mutual = b in drawn and arrows.get((b, a)) == form  # one arc with two heads
        if b in places and not (mutual and drawn.index(a) > drawn.index(b)):
            arriving = [first for first, reader in arrows if reader == b]
            aside = 26.0 * (arriving.index(a) - (len(arriving) - 1) / 2) if b in above else 0.0  # each its own place
            end = (places[b][0] + max(-60.0, min(60.0, aside)), places[b][1])
            label = f"{a} and {b}, each to the other: {_FORMS[form]}" if mutual else f"{a} to {b}: {_FORMS[form]}"
            lines.append(_mutual(places[a], end, form, label) if mutual else _arrow(places[a], end, form, label))
    boxes = [_box(who, *place, "reader" if who in above else "holder") for who, place in places.items()]
    depth = _ROW + _HIGH + (90 if any(b in drawn for _, b in arrows) else 10)
    label = "; ".join(f"{b} can read of {a}: {_FORMS[form]}" for (a, b), form in arrows.items())
    svg = h("svg", lines, boxes, viewBox=f"0 0 {width} {depth}", role="img", aria_label=label, class_="readers",
            style=f"max-width:{width * 1.15:.0f}px")  # fmt: skip
    forms = [(form, text) for form, text in _FORMS.items() if form in arrows.values()]
    more = f"The first {_DRAWN} of {len(parties)} parties are drawn." if len(parties) > _DRAWN else ""
    caption = h("figcaption", f"An arrow goes from whose data it is to who can read of it in the end. {more}")
    return h("figure", svg, charts.legend(forms), caption)


def _place(i: int, of: int, width: float) -> float:
    return width * (i + 0.5) / max(1, of)


def _box(who: str, x: float, y: float, kind: str) -> Html:
    most = 17 if kind == "holder" else 19
    shown = who if len(who) <= most else f"{who[: most - 1]}…"
    return h(
        "g", h("title", who),
        h("rect", x=f"{x - _WIDE / 2:.0f}", y=f"{y:.0f}", width=_WIDE, height=_HIGH, rx=7, class_=kind),
        h("text", shown, x=f"{x:.0f}", y=f"{y + 22:.0f}", text_anchor="middle"),
    )  # fmt: skip


def _arrow(start: tuple[float, float], end: tuple[float, float], form: str, label: str) -> Html:
    (x, y), (u, v) = start, end
    if y == v:  # from party to party: an arc below, the deeper the farther; one way left of the middle, one right
        side = 14 if u > x else -14
        x, u, low = x + side, u + side / 2, y + _HIGH
        bend = low + min(80.0, 34 + abs(u - x) / 5) + (0 if u > x else 14)
        path = f"M{x:.0f} {low} Q{(x + u) / 2:.0f} {bend:.0f} {u:.0f} {low + 7}"
        angle = math.atan2(low + 7 - bend, u - (x + u) / 2)
        tip = (u, low + 2.0)
    else:
        top = v + _HIGH
        angle, tip = math.atan2(top + 1 - y, u - x), (u, top + 1.0)
        path = f"M{x:.0f} {y} L{u - 7 * math.cos(angle):.1f} {top + 1 - 7 * math.sin(angle):.1f}"
    return h("g", h("title", label), h("path", d=path, class_=f"line {form}"), _head(tip, angle, form))


def _mutual(start: tuple[float, float], end: tuple[float, float], form: str, label: str) -> Html:
    """An arc below two parties that read the same of each other, with a head at both ends."""
    low = start[1] + _HIGH
    x, u = start[0] + 10, end[0] - 10
    middle, bend = (x + u) / 2, low + min(90.0, 26 + abs(u - x) / 5)
    arc = h("path", d=f"M{x:.0f} {low + 7} Q{middle:.0f} {bend:.0f} {u:.0f} {low + 7}", class_=f"line {form}")
    heads = [_head((tip, low + 1.0), math.atan2(low + 7 - bend, tip - middle), form) for tip in (x, u)]
    return h("g", h("title", label), arc, heads)


def _head(tip: tuple[float, float], angle: float, form: str) -> Html:
    corners = [tip] + [
        (tip[0] - 11 * math.cos(angle + turn), tip[1] - 11 * math.sin(angle + turn)) for turn in (0.45, -0.45)
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return h("polygon", points=points, class_=f"tip {form}")
