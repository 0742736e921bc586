"""A fitted selector in a notebook: the answer, its cost and what it disclosed, in a few lines."""

from __future__ import annotations

from fedsift.report.markup import Html, duration, h, join, name, short, size
from fedsift.report.record import Report
from fedsift.report.summary import summarize
from fedsift.report.words import how_clear, is_warning, sentence, title
from fedsift.select.base import Selector


def notebook_html(selector: Selector) -> str:
    """No style sheet and no script: a notebook has its own."""
    if not hasattr(selector, "selection_"):
        parameters = ", ".join(f"{key}={value!r}" for key, value in selector.get_params(deep=False).items())
        return join(h("p", h("b", type(selector).__name__), f"({parameters}), not fitted"))
    report = Report.read(summarize(selector))
    answer, cost, ledger = report.answer, report.cost, report.ledger
    kept = [
        h("tr", h("td", name(party)), h("td", f"{len(columns)} of {answer.columns[party]}"),
          h("td", [join(", " if i else None, name(c)) for i, c in enumerate(columns[:40])],
            f" and {len(columns) - 40} more" if len(columns) > 40 else None))
        for party, columns in answer.selected.items()
    ]  # fmt: skip
    best = [
        h("tr", h("td", row.rank), h("td", name(row.party)), h("td", name(row.feature)),
          h("td", short(row.score)), h("td", "kept" if row.selected else ""))
        for row in answer.scores[:10]
    ]  # fmt: skip
    warnings = [h("p", note, style="color:#b3261e" if is_warning(note) else None) for note in ledger.notes]
    return join(
        h("p", h("b", report.method.name), f": {title(report)}. {how_clear(answer)}"),
        _table(["party", "kept", "columns"], kept),
        h("details", h("summary", "best scores"), _table(["rank", "party", "column", "score", ""], best)),
        h("p", f"{size(cost.bytes)}, {cost.messages:,} messages, {cost.rounds:,} rounds, "
          f"{duration(cost.seconds)}; {ledger.encryption.line}"),
        h("p", sentence(report.method.leaks)) if report.method.leaks else None,
        warnings,
    )  # fmt: skip


def _table(heads: list[str], rows: list[Html]) -> Html:
    return h("table", h("tr", [h("th", head) for head in heads]), rows)
