"""The report as one HTML file, from the summary record."""

from __future__ import annotations

from collections.abc import Mapping

from fedsift.report import charts
from fedsift.report.audit_record import AuditRecord
from fedsift.report.exposures import exposure_section
from fedsift.report.formulas import formula_gains, readable_formula
from fedsift.report.markup import Html, duration, h, join, name, plural, short, size, table
from fedsift.report.next_steps import run_facts, what_next
from fedsift.report.officer import officer_section
from fedsift.report.page import page, section
from fedsift.report.pictures import draw_details
from fedsift.report.record import Answer, Disclosure, Json, Quality, QualityLine, Report
from fedsift.report.words import (
    about_forms,
    about_share,
    by_place,
    in_plain_words,
    is_warning,
    repeat,
    sentence,
    title,
    why_these,
)

_BARS = 30


def render_html(record: Mapping[str, Json]) -> str:
    """The whole page, from the record that ``summarize`` made."""
    report = Report.read(record)
    audit = AuditRecord.read(record["audit"]) if "audit" in record else None
    parts = [
        ("privacy", "Who can read what", officer_section(report, audit)),
        ("answer", "The answer", _answer(report)),
        ("how", "How it came about", _how(report)),
        ("cost", "What it cost", _cost(report)),
        ("ledger", "Who learned what", _ledger(report)),
        ("repeat", "Settings", _settings(report)),
    ]
    if audit:
        parts.insert(5, ("audit", "What could be inferred", exposure_section(audit)))
    foot = f"Made by fedsift {report.versions.get('fedsift', '')}. This file loads nothing from anywhere."
    return page(f"fedsift: {title(report)}", _head(report), parts, foot)


def _head(report: Report) -> Html:
    answer, cost, method = report.answer, report.cost, report.method
    encryption = report.ledger.encryption
    share = report.ledger.hidden_share
    schemes = f" ({', '.join(encryption.schemes)})" if encryption.on else ""
    whose = f"Report for {report.party} only: its own columns and messages. " if report.party else ""
    facts = report.federation
    shared = "shared rows" if facts.get("partition") == "vertical" else "rows"
    rows = f" over {facts['rows']:,} {shared}" if facts.get("rows") else ""
    tiles = [
        (f"{answer.kept:,} of {answer.of:,}", "columns kept"),
        (size(cost.bytes), f"sent in {plural(cost.messages, 'message')}"),
        (f"{cost.rounds:,}", "rounds of questions"),
        (duration(cost.seconds), "of computing"),
        ("–", "only instructions were sent") if share is None else
        (about_share(share), f"of the bytes encrypted or masked{schemes}"),
    ]  # fmt: skip
    return join(
        h("h1", title(report)),
        h("p", f"{whose}{method.name}{rows}: {method.what}", class_="lead"),
        h("div", [h("div", h("b", big), h("span", small), class_="tile") for big, small in tiles], class_="tiles"),
        [h("p", note, class_="note") for note in report.ledger.notes if is_warning(note)],
    )


# -- the answer --------------------------------------------------------------------------------------------------------


def _answer(report: Report) -> Html:
    answer = report.answer
    cards = []
    for party, columns in answer.selected.items():
        count = h("span", f"{len(columns):,} of {answer.columns[party]:,}")
        chips = [name(column, "chip") for column in columns[:60]]
        rest = (
            h("p", f"and {len(columns) - 60:,} more, in the table below", class_="quiet") if len(columns) > 60 else None
        )
        none = h("p", "None of its columns was kept.", class_="quiet") if not columns else None
        cards.append(h("div", h("h3", name(party), count), chips, rest, none, class_="party"))
    return section(
        "answer",
        "Which columns to keep",
        _facts(report),
        h("div", cards, class_="cards"),
        _engineered(report),
        None if report.quality is None and report.party is not None else _quality(report),
        h("h3", "Why these"),
        [h("p", text) for text in why_these(report)],
        None if by_place(answer) or report.party is not None else _score_bars(answer),
        h("h3", "Every column"),
        _scores(answer) if report.party is None else _own_columns(answer),
        h("h3", "What next"),
        h("ul", [h("li", text) for text in what_next(report)]),
    )


def _facts(report: Report) -> Html:
    """Label, rows, job, files, date."""
    rows = [[key, value] for key, value in run_facts(report)]
    inputs = [h("li", name(party), " ", h("code", digest)) for party, digest in report.run.inputs.items()]
    files = h("details", h("summary", "Digests (SHA-256) of the files that were read"), h("ul", inputs))
    listed = h("dl", [[h("dt", key), h("dd", name(value))] for key, value in rows], class_="facts")
    return join(listed, files if inputs else None)


def _engineered(report: Report) -> Html | None:
    answer = report.answer
    if not answer.engineered and report.details.get("features") == []:
        return h("p", "No new feature was found that helps on rows kept aside; the columns stay as they are.")
    if not answer.engineered:
        return None
    gains = formula_gains(report)
    what = next((gain.what for gain in gains.values()), "")
    rows = []
    for formula in answer.engineered[:200]:
        gain = gains.get(formula)
        worth = [(short(gain.value), gain.value) if gain is not None else "–"] if what else []
        rows.append([name(readable_formula(formula)), *worth, h("code", formula)])
    heads = ["feature", *([what] if what else []), "formula to compute it by"]
    return join(
        h("h3", "New features to make"),
        h("p", "Columns are brought to mean 0 and deviation 1 first; the last column has the numbers.", class_="quiet"),
        table(heads, rows, numeric=(1,) if what else (), stack=True),
    )


def _score_bars(answer: Answer) -> Html:
    rows = answer.scores[:_BARS]
    drawn = charts.bars(
        [(f"{r.party}: {r.feature}", float("nan") if r.score is None else float(r.score),
          "on" if r.selected else "off") for r in rows]
    )  # fmt: skip
    more = f" The best {_BARS} of {answer.of:,} are drawn." if answer.of > _BARS else ""
    keys = charts.legend([("on", "kept"), ("off", "left out")])
    return join(drawn, keys, h("p", f"Score of the method, higher is better.{more}", class_="quiet"))


def _own_columns(answer: Answer) -> Html:
    """In a party's own copy: its flags, which are no scores and have no ranks."""
    rows = [[name(r.feature), h("span", "kept", class_="word") if r.selected else ""] for r in answer.scores]
    kept = {i: "kept" for i, r in enumerate(answer.scores) if r.selected}
    return table(["column", "kept"], rows, classes=kept, filter="Filter by column", kind="listed")


def _scores(answer: Answer) -> Html:
    fits, tested = answer.fits, any(r.p is not None for r in answer.scores)
    rows = []
    for r in answer.scores:
        mark = h("span", "kept", class_="word") if r.selected else ""
        folds = [(f"{r.folds}/{fits}", r.folds)] if fits else []
        rank, score = (short(r.rank), r.rank), (short(r.score), r.score)
        chance = [(short(r.p), r.p), (short(r.q), r.q)] if tested else []
        rows.append([rank, name(r.feature), name(r.party), score, mark, *folds, *chance])
    kept = {i: "kept" for i, r in enumerate(answer.scores) if r.selected}
    heads = [
        "rank",
        "column",
        "party",
        "score",
        "kept",
        *(["folds"] if fits else []),
        *(["p", "FDR"] if tested else []),
    ]
    return table(heads, rows, numeric=(0, 3, 5, 6, 7), classes=kept, filter="Filter by party or column", kind="listed")


def _quality(report: Report) -> Html:
    quality = report.quality
    if quality is None:
        return h(
            "p",
            "How good this choice is was not measured. fs.evaluate(fed, selector) scores it in cross-validation beside "
            "all columns and beside random ones; give the result to the report as evaluation=.",
            class_="note mild",
        )
    return join(h("h3", "How good"), h("p", sentence(quality.verdict)), quality_table(quality))


def quality_table(quality: Quality) -> Html:
    """Methods and nulls, a line each; the first measure as bars."""
    metrics, settings = quality.metrics, quality.settings
    if "accuracy" in metrics:  # micro-averaged F1 of one label a row is the accuracy again
        metrics = [metric for metric in metrics if metric != "f1_micro"]
    first, lines = metrics[0], quality.read_lines
    kind = ["good" if line.method == quality.method else ("off" if line.null else "on") for line in lines]
    drawn = charts.dots(
        [(line.method, _nan(line.mean[first]), _nan(line.spread[first]), k) for line, k in zip(lines, kind)],
        shown=_three,
    )
    heads = ["columns chosen by", *metrics, "columns", "stability"]
    rows = []
    for line in lines:
        scores = [(_with_spread(line, metric), line.mean[metric]) for metric in metrics]
        rows.append([line.method, *scores, (short(line.n_features), line.n_features),
                     (short(line.jaccard), line.jaccard)])  # fmt: skip
    classes = {i: "null" if line.null else "mine" for i, line in enumerate(lines)}
    caption = (
        f"{settings['how']}, drawn {plural(settings['repeats'], 'time')}; model: {settings['model']}; "
        f"{settings['rows']:,} rows. Selection, preparation and model saw training rows only. ± is the spread between "
        "folds. Grey: the nulls, what you get without any selection and with random columns, and the selection with "
        "one column more where that was asked for. Stability: the share of kept columns that two folds have in common "
        "(1 is always the same)."
    )
    grid = table(heads, rows, numeric=tuple(range(1, len(heads))), classes=classes, stack=True)
    return join(h("h4", first), drawn, grid, h("p", caption, class_="quiet"))


def _with_spread(line: QualityLine, metric: str) -> str:
    mean, spread = line.mean[metric], line.spread[metric]
    return _three(mean) if spread is None else f"{_three(mean)} ± {_three(spread)}"


def _three(value: float | None) -> str:
    """Three decimals, all of them, so that the numbers of a column stand below each other."""
    return short(None) if value is None or value != value else f"{value:.3f}"


def _nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)


# -- how, and what it cost -------------------------------------------------------------------------------------------


def _how(report: Report) -> Html:
    method = report.method
    figures = draw_details(report)
    about = [
        h("p", in_plain_words(method)),
        h("p", f"Source: {method.paper}", class_="quiet") if method.paper else None,
    ]
    if not figures:
        text = "This method scores each column once and keeps the best; the scores above are the whole story."
        if report.party:
            text = "Pictures of the method hold other parties' columns, so they are not in one party's report."
        figures = [h("p", text, class_="quiet")]
    return section("how", "How the selection came about", about, figures)


def _cost(report: Report) -> Html:
    cost = report.cost
    parties = charts.stacks(
        [(row.party, [("on", row.sent, "sent"), ("second", row.received, "received")])
         for row in cost.by_party]
    )  # fmt: skip
    rounds = charts.bars(
        [(f"{row.round} to {row.to}" if row.to is not None else f"{row.round}  {row.operation}",
          row.bytes, "on") for row in cost.by_round], shown=size,
    )  # fmt: skip
    operations = table(
        ["step", "messages", "bytes", "seconds"],
        [[r.operation, (short(r.messages), r.messages), (size(r.bytes), r.bytes),
          (short(round(r.seconds, 3)), r.seconds)] for r in cost.by_operation],
        numeric=(1, 2, 3),
    )  # fmt: skip
    total = f"{cost.bytes:,} bytes in {cost.messages:,} messages and {cost.rounds:,} rounds"
    return section(
        "cost", "What it cost",
        h("p", f"{total}; {duration(cost.seconds)}. Counted as the bytes were on the wire, both directions."),
        h("h3", "By party"), parties, charts.legend([("on", "sent"), ("second", "received")]),
        h("h3", "By step"), operations,
        h("h3", "By round"), h("div", rounds, class_="rounds"),
    )  # fmt: skip


# -- who learned what --------------------------------------------------------------------------------------------------


def _form(form: str) -> Html:
    return h("span", form, class_=f"form {form}")


def _ledger(report: Report) -> Html:
    ledger, encryption = report.ledger, report.ledger.encryption
    notes = [h("p", note, class_="note" if is_warning(note) else "note info") for note in ledger.notes]
    line = h("p", encryption.line, class_="note info" if encryption.on else "note mild")
    leaks = h("p", h("b", "In short: "), sentence(report.method.leaks)) if report.method.leaks else None
    told = [row for row in ledger.lines if not row.only_instruction]
    rest = [row for row in ledger.lines if row.only_instruction]
    sent = charts.stacks(
        [(party, [(form, count, form) for form, count in parts.items()])
         for party, parts in ledger.sent_by_form.items()]
    )  # fmt: skip
    forms = [(row.form, row.form) for row in ledger.forms]
    return section(
        "ledger", "Who learned what",
        leaks, line, notes,
        h("h3", "What was said"), _lines(told),
        h("h3", "What left each party, by form"), sent, charts.legend(forms),
        h("h3", "What the forms mean"), _forms(report),
        h("details", h("summary", f"Instructions and acknowledgements ({len(rest)} kinds)"), _lines(rest))
        if rest else None,
    )  # fmt: skip


def _lines(lines: list[Disclosure]) -> Html:
    rows = [
        [_names(r.senders), _names(r.receivers), r.what, _form(r.form), r.reader,
         (short(r.messages), r.messages), (size(r.bytes), r.bytes)]
        for r in lines
    ]  # fmt: skip
    if not rows:
        return h("p", "Nothing but instructions.", class_="quiet")
    heads = ["from", "to", "what", "form", "the receiver", "messages", "bytes"]
    return table(heads, rows, numeric=(5, 6), filter="Filter: a party, a form, a word", stack=True)


def _names(parties: list[str]) -> Html:
    shown = parties if len(parties) <= 5 else parties[:4]
    pieces: list[object] = []
    for i, party in enumerate(shown):
        pieces += [", " if i else None, name(party)]
    return h("span", pieces, f" and {len(parties) - 4} more" if len(parties) > 5 else None)


def _forms(report: Report) -> Html:
    items: list[Html] = []
    for form, meaning, amount in about_forms(report.ledger):
        items += [h("dt", _form(form)), h("dd", meaning), h("dd", amount, class_="amount quiet")]
    return h("dl", items, class_="forms")


# -- settings ----------------------------------------------------------------------------------------------------------


def _settings(report: Report) -> Html:
    method = report.method
    parameters = [[key, repr(value) if isinstance(value, str) else short(value)]
                  for key, value in method.parameters.items()]  # fmt: skip
    versions = [[key, value] for key, value in report.versions.items()]
    return section(
        "repeat",
        "Settings, versions, and how to repeat it",
        h("pre", repeat(report)),
        h("p", f"Seed (random_state): {method.seed}. The same seed gives the same selection; keys, masks and noise "
          "come from the operating system and differ every time, as they must."
          if method.seed is not None else
          "This method draws nothing at random; keys, masks and noise come from the operating system."),
        h("div",
          h("div", h("h3", "Parameters"), table(["parameter", "value"], parameters)),
          h("div", h("h3", "Versions"), table(["package", "version"], versions)), class_="split"),
    )  # fmt: skip
