"""For who ran it: the facts of the run in a few lines, what to do next, and how to do it again."""

from __future__ import annotations

from fedsift.evaluate.result import next_to
from fedsift.report.record import Report


def run_facts(report: Report) -> list[tuple[str, str]]:
    """Label and holder, rows a party, what ran it, when, under which hash."""
    run, facts = report.run, []
    holders = ", ".join(run.holders)
    if holders:
        facts.append(("label", f"{run.label}, held by {holders}" if run.label else f"held by {holders}"))
    if run.rows:
        facts.append(("rows of each party", ", ".join(f"{party}: {count:,}" for party, count in run.rows.items())))
    if run.shared is not None:
        partition = report.federation.get("partition")
        what = "rows that all share" if partition == "vertical" else "rows altogether"
        facts.append((what, f"{run.shared:,}"))
    if run.coordinator:
        runner = "somebody who holds no rows" if run.coordinator == "neutral" else run.coordinator
        facts.append(("run by", runner))
    facts += [("made", run.made)] if run.made else []
    facts += [("job hash", run.job)] if run.job else []
    return facts


def what_next(report: Report) -> list[str]:
    """Steps that follow from what this report has and lacks."""
    if report.party is not None:
        return [
            f"Keep the chosen columns of your own file: fedsift apply selection-{report.party}.json FILE.",
            "Keep this file: it says what your organisation gave away, and by the job hash your journal has the rest.",
        ]
    steps = []
    if report.quality is None:
        steps.append("Measure how good the choice is: [evaluate] in the job file, or fs.evaluate(fed, selector).")
    elif "not better than chance" in report.quality.verdict:
        steps.append("The choice is not better than chance: try another method (fedsift compare) or more columns.")
    elif report.quality.method and next_to(report.quality.method) not in {
        line.method for line in report.quality.read_lines
    }:
        steps.append("See what one column more would add: next_column = true under [evaluate], or in fs.evaluate.")
    if not report.answer.fits and report.answer.kept:
        steps.append("See whether the same columns come out on other rows: fs.Stable, or an evaluation with folds.")
    steps += [
        "What does each partner add, before anybody signs anything: fedsift value, fs.value(fed).",
        "Each party keeps its own columns: fedsift apply selection-PARTY.json FILE.",
        "Train a joint model on them and predict: fedsift train, fedsift predict.",
    ]
    return steps
