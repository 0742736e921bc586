"""The report as plain text, from the summary record: for terminals, mails and where no browser is."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from fedsift.report.formulas import readable_formula
from fedsift.report.markup import clean, duration, short, size
from fedsift.report.next_steps import run_facts, what_next
from fedsift.report.record import Json, Report
from fedsift.report.words import (
    about_forms,
    is_warning,
    repeat,
    sentence,
    title,
    why_these,
)

_WIDTH = 100


def render_text(record: Mapping[str, Json], columns: int = 40) -> str:
    """The same sections as the HTML report; at most ``columns`` columns of the score table."""
    report = Report.read(record)
    blocks = [
        [title(report), "=" * len(title(report))],
        _officer(report), _facts(report), _answer(report, columns), _quality(report), _how(report), _cost(report),
        _ledger(report), _settings(report),
    ]  # fmt: skip
    return "\n".join(line for block in blocks if block for line in [*block, ""])


def _one_line(value: object) -> str:
    """Names may hold line breaks or terminal codes; a report has neither."""
    return clean(value).replace("\n", " ").replace("\t", " ")


def _wrap(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(_one_line(text), _WIDTH, initial_indent=indent, subsequent_indent=indent) or [""]


def _grid(heads: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[int] = ()) -> list[str]:
    cells = [[_one_line(value) for value in row] for row in [list(heads), *rows]]
    widths = [min(46, max(len(row[i]) for row in cells)) for i in range(len(heads))]
    lines = []
    for row in cells:
        fitted = [v if len(v) <= w else v[: w - 1] + "…" for v, w in zip(row, widths)]
        lines.append("  " + "  ".join(v.rjust(w) if i in right else v.ljust(w)
                                      for i, (v, w) in enumerate(zip(fitted, widths))).rstrip())  # fmt: skip
    return lines


def _officer(report: Report) -> list[str]:
    """Of each party's data: what is finally readable, by whom, about one person or a total, linkable or not."""
    lines = ["WHO CAN READ WHAT IN THE END"]
    for party in dict.fromkeys(each.owner for each in report.readings):
        lines.append(f"  of {_one_line(party)}:")
        told = (
            f"{each.reader}: {each.what} [{each.grain}; linkable: {each.linkable}]"
            for each in report.readings
            if each.owner == party
        )
        lines += [line for text in dict.fromkeys(told) for line in _wrap(text, "    ")]
        heard = "; ".join(each.what for each in report.learned if each.party == party)
        lines += _wrap(f"it learned itself: {heard}", "    ") if heard else []
    return lines


def _facts(report: Report) -> list[str]:
    return ["THIS RUN", *[line for key, value in run_facts(report) for line in _wrap(f"{key}: {value}", "  ")]]


def _answer(report: Report, most: int) -> list[str]:
    answer, method = report.answer, report.method
    lines = _wrap(f"{method.name}: {method.what}")
    for party, kept in answer.selected.items():
        lines += _wrap(f"{party}: {', '.join(map(_one_line, kept)) or '(nothing)'}", "  ")
    lines += [line for each in answer.engineered for line in _wrap(f"new: {readable_formula(each)} = {each}", "  ")]
    lines += ["", *[line for text in why_these(report) for line in _wrap(text)], ""]
    rows = answer.scores
    if report.party is not None:  # flags, which are no scores
        lines += _grid(["column", ""], [[r.feature, "kept" if r.selected else ""] for r in rows[:most]])
        return lines + ([f"  ... and {len(rows) - most:,} more"] if len(rows) > most else [])
    lines += _grid(
        ["rank", "party", "column", "score", ""],
        [[r.rank, r.party, r.feature, short(r.score), "kept" if r.selected else ""] for r in rows[:most]],
        right=(0, 3),
    )
    if len(rows) > most:
        lines.append(f"  ... and {len(rows) - most:,} more")
    return lines


def _quality(report: Report) -> list[str]:
    quality = report.quality
    if quality is None:
        return ["HOW GOOD", *_wrap("Not measured; fs.evaluate(fed, selector) does, beside its nulls.", "  ")]
    metrics = quality.metrics
    rows = [
        [line.method, *[short(None if (mean := line.mean[m]) is None else round(mean, 3)) for m in metrics],
         short(line.n_features), short(line.jaccard)]
        for line in quality.read_lines
    ]  # fmt: skip
    heads = ["columns chosen by", *metrics, "columns", "stability"]
    how = f"{quality.settings['how']}, model {quality.settings['model']}; selection inside each fold."
    return [
        "HOW GOOD",
        *_wrap(sentence(quality.verdict), "  "),
        *_grid(heads, rows, range(1, len(heads))),
        *_wrap(how, "  "),
    ]


def _how(report: Report) -> list[str]:
    facts = [f"{key.replace('_', ' ')}: {short(value)}" for key, value in report.details.items()
             if key != "why" and isinstance(value, (bool, int, float, str))]  # fmt: skip
    return ["HOW IT CAME ABOUT", *[line for fact in facts for line in _wrap(fact, "  ")]] if facts else []


def _cost(report: Report) -> list[str]:
    cost = report.cost
    total = f"{cost.bytes:,} bytes, {cost.messages:,} messages, {cost.rounds:,} rounds"
    lines = ["WHAT IT COST", f"  {total}, {duration(cost.seconds)}"]
    parties = [[r.party, size(r.sent), size(r.received)] for r in cost.by_party]
    return [*lines, *_grid(["party", "sent", "received"], parties, (1, 2))]


def _ledger(report: Report) -> list[str]:
    ledger = report.ledger
    lines = ["WHO LEARNED WHAT", f"  {ledger.encryption.line}"]
    for note in ledger.notes:
        lines += _wrap(f"{'WARNING' if is_warning(note) else 'note'}: {note}", "  ")
    if report.method.leaks:
        lines += _wrap(f"In short: {sentence(report.method.leaks)}", "  ")
    for row in ledger.lines:
        if row.only_instruction:
            continue
        ends = f"{', '.join(row.senders)} -> {', '.join(row.receivers)}"
        lines += _wrap(f"{ends}: {row.what} [{row.form}; {row.reader}], {size(row.bytes)}", "  ")
    return [*lines, *[line for f, m, a in about_forms(ledger) for line in _wrap(f"{f} ({a}): {m}", "    ")]]


def _settings(report: Report) -> list[str]:
    lines = ["HOW TO REPEAT IT", *[f"  {_one_line(line)}" for line in repeat(report).splitlines()]]
    versions = ", ".join(f"{key} {value}" for key, value in report.versions.items())
    after = ["", "WHAT NEXT", *[line for text in what_next(report) for line in _wrap(text, "  ")]]
    return [*lines, *_wrap(f"versions: {versions}", "  "), *after]
