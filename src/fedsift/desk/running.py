"""A job that runs or ran at a site, as its own files tell: the last step, how far it is, what has left."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fedsift.core.ledger import FORMS
from fedsift.core.terminal import rough
from fedsift.deploy.attending import Progress, read_progress
from fedsift.desk.office import JobHere
from fedsift.report.markup import Html, h, name, size, table

_SHOWN = 500  # kinds of steps on a page


@dataclass(frozen=True)
class LedgerLine:
    """A line of the site's own ledger of a job."""

    at: str
    operation: str
    form: str
    about: str
    sent: int
    outcome: str


def read_ledger(file: Path) -> list[LedgerLine]:
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            return [
                LedgerLine(row["at"], row["operation"], row["form"], row["about"], int(row["sent"]), row["outcome"])
                for row in csv.DictReader(lines)
                if row.get("outcome") and str(row.get("sent", "")).isdigit()
            ]
    except (OSError, KeyError, csv.Error, UnicodeDecodeError):
        return []


def sent(job: JobHere) -> int:
    return sum(line.sent for line in read_ledger(job.ledger))


def phase(job: JobHere) -> str:
    """The last step that this site was asked for, and when."""
    lines = read_ledger(job.ledger)
    last = lines[-1] if lines else None
    return f"{last.operation}, {last.at[11:19]}" if last is not None else "–"


def how_far(job: JobHere) -> str:
    """What the coordinator counts, in this site's words, while the job runs."""
    told = read_progress(job.folder) if job.running else None
    return progress_words(told) if told is not None else "–"


def progress_words(told: Progress) -> str:
    """``turn 3 of 200, about 4 min left, round 61 (as who runs it counts)``."""
    parts = [f"turn {min(told.done + 1, told.of)} of {told.of}"] if told.of > 1 else []
    if told.left is not None and told.done < told.of:
        parts.append(f"about {rough(told.left)} left")
    parts.append(f"round {told.round}")
    return f"{', '.join(parts)} (as who runs it counts)"


def took(job: JobHere) -> str:
    """How long a job ran that is over."""
    try:
        began, ended = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (job.since, job.at))
    except ValueError:
        return "–"
    return rough(max(0.0, (ended - began).total_seconds()))


def form_of(word: str) -> Html:
    return h("span", word, class_=f"form {word if word in FORMS else ''}")


def steps(lines: Sequence[LedgerLine]) -> Html:
    """One row a kind of step, in the order in which they came."""
    counts = Counter((line.operation, line.form, line.about, line.outcome) for line in lines)
    total: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        total[line.operation, line.form, line.about, line.outcome] += line.sent
    rows = [
        [name(kind[0]), name(kind[2]), form_of(kind[1]), f"{count:,}", size(total[kind]), name(kind[3])]
        for kind, count in list(counts.items())[:_SHOWN]
    ]
    heads = ["step", "what left", "travels as", "times", "sent", "outcome"]
    return table(heads, rows, numeric=(3, 4), stack=True) if rows else h("p", "Nothing yet.", class_="quiet")
