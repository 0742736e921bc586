"""The section of a report that shows an audit, from its record: the verdict, one picture, the figures, the limits.

The picture has a line an attack: grey is a guess, orange what the attacker reaches without the messages, blue what it
reaches with them (red: over the site's limit). What lies between the last two is what the messages give away.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedsift.report import charts
from fedsift.report.audit_record import AuditRecord, Line, readable
from fedsift.report.markup import Html, duration, h, join, name, plural, table
from fedsift.report.page import page, section

_WORDS = {
    "passed": ("Passed", "No attack reads more than the policy allows and the attacker knows anyway."),
    "failed": ("Failed", "An attack reads more than the policy allows."),
    "incomplete": ("Incomplete", "Nothing over the limits was found, but not everything could be measured."),
}


def render_audit(record: AuditRecord) -> str:
    """The whole page of an audit."""
    parts = [
        ("audit", "What could be inferred", exposure_section(record)),
        ("coverage", "What was attacked", _coverage(record)),
        ("leaves", "What leaves", _leaves(record)),
        ("settings", "Settings", _settings(record)),
    ]
    foot = f"Made by fedsift {record.software} on {record.made[:10]}. This file loads nothing from anywhere."
    return page(f"fedsift audit: {record.method}, {record.verdict.outcome}", _head(record), parts, foot)


def _head(record: AuditRecord) -> Html:
    title, _ = _words(record)
    tried = record.tried
    tiles = [
        (title, "the verdict"),
        (f"{sum(line.over for line in tried):,} of {len(tried):,}", "attacks over the limit"),
        (f"{record.rows:,}", f"rows, {len(record.parties)} parties"),
        (duration(record.seconds), "for rehearsal and attacks"),
    ]  # fmt: skip
    whose = record.site.party
    return join(
        h("h1", f"Audit of {record.method}" + (f" for {whose}" if whose else "")),
        h("p", f"The job {record.job} was rehearsed in one process, nothing was sent, and what each role received "
          "was attacked.", class_="lead"),
        h("div", [h("div", h("b", big), h("span", small), class_="tile") for big, small in tiles], class_="tiles"),
    )  # fmt: skip


def exposure_section(record: AuditRecord) -> Html:
    """What an audit found: also a section of a run's report, where the same job was audited before."""
    title, meaning = _words(record)
    shown = record.tried
    quiet = [line for line in record.lines if line.found_nothing]
    failed = record.verdict.outcome != "passed"
    return section(
        "audit", "What could be inferred",
        h("p", h("b", f"{title}. "), meaning, class_="note" if failed else "note info"),
        h("ul", [h("li", reason) for reason in record.verdict.reasons]) if failed else None,
        _untested(record.verdict.untested),
        h("p", f"Stand-ins: {record.site.stand_ins}. {record.rows:,} rows took part, "
          f"{record.fresh_rows:,} others were kept for control. Limits of the policy: labels, AUC "
          f"{record.limits.max_label_auc:g}; columns, R2 {record.limits.max_column_r2:g}.", class_="quiet"),
        h("h3", "What the messages add"), picture(shown),
        h("h3", "Every attack"), _figures(shown),
        _nothing(quiet), _skipped(record.skipped), _broken(record.broken),
        h("h3", "What this does not say"), h("ul", [h("li", text) for text in record.caveats]),
    )  # fmt: skip


def _words(record: AuditRecord) -> tuple[str, str]:
    if record.verdict.is_empty:
        return "Nothing was tested", "This is no pass: no attack on what is here had anything to read."
    return _WORDS[record.verdict.outcome]


def _untested(kinds: tuple[str, ...]) -> Html | None:
    if not kinds:
        return None
    return h("p", h("b", "Not tested"), f", because no attack on it had anything to read: {', '.join(kinds)}.",
             class_="note mild")  # fmt: skip


def picture(lines: list[Line]) -> Html:
    """A line an attack: guess, baseline and success between 0 and 1."""
    drawn = [line for line in lines if 0 <= line.value <= 1]
    if not drawn:
        return h("p", "No attack had anything to read.", class_="quiet")
    rows = []
    for line in drawn:
        known = min(max(line.guess, line.baseline, 0.0), 1.0)
        colour = "plain" if line.over else "on"
        low, high = sorted((known, line.value))
        marks = [
            h("span", class_=f"bar spread {colour if line.adds else 'off'}",
              style=f"left:{low:.2%};width:{high - low:.2%}"),
            h("span", class_="bar dot off", style=f"left:{min(max(line.guess, 0), 1):.2%}",
              title=f"guess {line.guess:.3f}"),
            h("span", class_="bar dot second", style=f"left:{known:.2%}", title=f"baseline {line.baseline:.3f}"),
            h("span", class_=f"bar dot {colour}", style=f"left:{line.value:.2%}",
              title=f"success {line.value:.3f}"),
        ]  # fmt: skip
        track = h("span", marks, class_="track open", aria_hidden="true")
        label = f"{line.target}, {line.whom}: {line.titled}"
        rows.append(h("li", name(label, "bar-name"), track, h("span", f"{line.value:.3f}", class_="value")))
    ends = h("li", h("span"), h("span", h("span", "0"), h("span", "1"), class_="ends quiet"), h("span"),
             aria_hidden="true")  # fmt: skip
    keys = [("off", "guess"), ("second", "without the messages"), ("on", "with them"), ("plain", "over the limit")]
    return join(h("ul", rows, ends, class_="bars long"), charts.legend(keys))


def _figures(lines: list[Line]) -> Html:
    rows = []
    for line in lines:
        success = h("b", f"{line.value:.3f}") if line.over else f"{line.value:.3f}"
        ranked = "" if line.auc is None else f", with an AUC of {line.auc:.3f}"
        told = h("span", h("b", line.titled), ": ", line.how, h("br"),
                 h("span", f"It knows {line.knows}. Measured in {line.metric}{ranked}; declared: "
                   f"{line.declared}.", class_="quiet"), class_="told")  # fmt: skip
        outcome = h("span", line.judged, class_="bad" if line.over else None)
        rows.append([
            h("span", name(line.whom), ": ", h("b", line.target)), outcome, told,
            (success, line.value), (f"{line.guess:.3f}", line.guess),
            (f"{line.baseline:.3f}", line.baseline), _number(line.control),
        ])  # fmt: skip
    if not rows:
        return h("p", "No attack reads a message of this job.", class_="quiet")
    heads = ["who reads what", "verdict", "how", "success", "guess", "baseline", "control"]
    about = h("p", "Guess: what no message gives. Baseline: what the attacker reaches from its own rows and answer. "
              "Control: the same attack on rows that did not take part.", class_="quiet")  # fmt: skip
    box = "Filter: a party, an attack"
    return join(about, table(heads, rows, numeric=(3, 4, 5, 6), filter=box, stack=True, kind="tall"))


def _number(value: float | None) -> str | tuple[str, float]:
    return "" if value is None else (f"{value:.3f}", value)


def _nothing(lines: list[Line]) -> Html | None:
    if not lines:
        return None
    items = [h("li", f"{readable(line.attack)} ({line.whom}): {line.note}") for line in lines]
    return h("details", h("summary", f"{plural(len(lines), 'attack')} found nothing to read"), h("ul", items))


def _skipped(attacks: list[str]) -> Html | None:
    if not attacks:
        return None
    listed = ", ".join(map(readable, attacks))
    return h("p", f"Not run, because they are after what others hold: {listed}.", class_="quiet")


def _broken(broken: Mapping[str, str]) -> Html | None:
    if not broken:
        return None
    return h("p", "These attacks broke down, which is a fault of the audit: ",
             "; ".join(f"{readable(attack)}: {why}" for attack, why in broken.items()), class_="note")  # fmt: skip


def _coverage(record: AuditRecord) -> Html:
    rows = [
        [line.operation, line.about, h("span", line.form, class_=f"form {line.form}"), line.status,
         line.why]
        for line in record.coverage
    ]  # fmt: skip
    missing = sum(line.status == "none yet" for line in record.coverage)
    note = h("p", f"{plural(missing, 'kind')} of message have no attack yet: nothing is known about them.",
             class_="note mild") if missing else None  # fmt: skip
    about = "Every kind of message that is more than an instruction is attacked, or it is said why that is not needed."
    heads = ["message", "what it tells", "form", "attack", "which, or why none"]
    return section("coverage", "What was attacked, and what was not", h("p", about), note,
                   table(heads, rows, stack=True))  # fmt: skip


def _leaves(record: AuditRecord) -> Html:
    rows = [
        [", ".join(line.senders), ", ".join(line.receivers), line.what,
         h("span", line.form, class_=f"form {line.form}"), f"{line.bytes:,}"]
        for line in record.disclosures
    ]  # fmt: skip
    short = h("p", h("b", "The method says: "), record.leaks) if record.leaks else None
    heads = ["from", "to", "what", "form", "bytes"]
    return section("leaves", "What leaves, in which form", short, table(heads, rows, numeric=(4,), stack=True))


def _settings(record: AuditRecord) -> Html:
    parameters = [[key, "none" if value is None else str(value)] for key, value in record.parameters.items()]
    lowered = [f"{key} = {value}" for key, value in record.lowered.items()]
    return section(
        "settings", "Settings",
        h("p", f"fedsift {record.software}, method {record.method}, {record.partition} parties: "
          + ", ".join(f"{party} ({plural(count, 'column')})" for party, count in record.parties.items()) + "."),
        h("p", f"Lowered for the rehearsal: {', '.join(lowered)}.") if lowered else None,
        table(["parameter", "value"], parameters),
    )  # fmt: skip
