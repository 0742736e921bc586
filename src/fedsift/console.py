"""What the command line shows: tables on stdout, progress and remarks on stderr.

Names of columns come from other parties, so text is cleaned of control characters before a terminal sees it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isnan
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from fedsift.evaluate import Evaluation
from fedsift.ledger import FORMS
from fedsift.report.summary import verdict
from fedsift.runs import Run, disclosures, summary

_PLAIN_WIDTH = 120  # of tables that go into a file or a pipe


def clean(text: Any) -> str:
    """Text that is safe to print: control characters (terminal commands among them) become '?'."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in str(text))


def _console(stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PLAIN_WIDTH
    return Console(file=stream, markup=False, highlight=False, emoji=False, width=width, soft_wrap=False)


def show(text: str = "") -> None:
    _console().print(clean(text), soft_wrap=True)


def remark(text: str) -> None:
    """A line for the person at the terminal, on stderr."""
    _console(stderr=True).print(clean(text), soft_wrap=True)


def table(rows: Iterable[Sequence[Any]], header: Sequence[str], *, right: Sequence[str] = (), title: str = "") -> None:
    """Rows under a header; numbers to the right."""
    console = _console()
    grid = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in header:
        grid.add_column(
            name, justify="right" if name in right else "left", overflow="fold", no_wrap=name in right, vertical="top"
        )
    for row in rows:
        grid.add_row(*(clean(cell) for cell in row))
    if title:
        console.print(f"\n{clean(title)}")
    console.print(grid)


def size(count: int) -> str:
    """Bytes as people read them."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000 or unit == "GB":
            break
    return f"{value:.1f} {unit}"


# --- a run -----------------------------------------------------------------------------------------------------------


def show_run(run: Run) -> None:
    """The result for a person: what was kept, who learned what, and whether encryption was on."""
    facts = summary(run)
    total = sum(party["columns"] for party in facts["parties"].values())
    shared = "shared rows" if facts["partition"] == "vertical" else "rows"
    title = (
        f"{facts['method']}: {run.selection.n_selected} of {total} columns kept, "
        f"{facts['rows']:,} {shared}, {len(facts['parties'])} parties"
    )
    kept = [row for row in run.selection.frame().to_dict("records") if row["selected"]]
    show_scores(kept, title)
    if run.evaluation is not None:
        show_evaluation(run.evaluation)
    show_disclosures(run)
    show()
    for phase, words in (("align", "alignment"), ("select", "selection")):
        ledger = run.ledger(phase)
        show(f"{words}: {ledger.rounds()} rounds, {size(ledger.bytes())}, {facts['seconds'][phase]:.1f} s")
    show(facts["encryption"]["line"])
    for note in facts["notes"]:
        show(f"note: {note}")


def show_scores(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    table(
        ([row["rank"], row["party"], row["feature"], f"{row['score']:.4g}"] for row in rows),
        ["rank", "party", "column", "score"], right=["rank", "score"], title=title,
    )  # fmt: skip


def show_evaluation(evaluation: Evaluation) -> None:
    """Scores on unseen rows: mean and, over several folds, standard deviation."""

    def score(row: Mapping[str, Any], metric: str) -> str:
        spread = row[f"{metric}_std"]
        return f"{row[metric]:.3f}" + ("" if isnan(spread) else f" ± {spread:.3f}")

    rows = [
        [row["method"], f"{row['n_features']:.0f}", *(score(row, metric) for metric in evaluation.metrics)]
        for row in evaluation.frame().to_dict("records")
    ]
    header = ["columns from", "columns", *evaluation.metrics]
    how = f"model {evaluation.settings['model']}, {evaluation.settings['how']}"
    title = f"How good is it? Scores on rows that selection and training did not see ({how})"
    table(rows, header, right=header[1:], title=title)
    for method in evaluation.methods:
        show(f"{method}: {verdict(evaluation, method, evaluation.metrics[0])}")


def show_disclosures(run: Run) -> None:
    rows = disclosures(run.ledger("align", "select"))
    table(
        ([", ".join(row["from"]), ", ".join(row["to"]), row["what"], row["form"], size(row["bytes"])] for row in rows),
        ["from", "to", "what", "form", "size"], right=["size"], title="Who learned what, in which form",
    )  # fmt: skip
    show()
    for form, meaning in FORMS.items():
        if any(row["form"].split(",")[0] == form for row in rows):
            show(f"  {form}: {meaning}")
    if any("opened" in row["form"] for row in rows):
        show("  opened: The receiver holds the key and decrypts it.")


# --- progress --------------------------------------------------------------------------------------------------------


class _Watcher:
    """Follows a federation's steps and shows round, operation and bytes, ten times a second at most."""

    def __init__(self, progress: Progress, task: Any):
        self.progress, self.task = progress, task
        self.last = 0.0

    def say(self, text: str) -> None:
        self.progress.update(self.task, description=clean(text))

    def observe(self, operation: Any, round: int, ledger: Any) -> None:
        now = time.monotonic()
        if now - self.last >= 0.1:
            self.last = now
            self.say(f"round {round}  {operation.short_name}  {size(ledger.bytes())}")


class _Quiet:
    observe = None

    def __init__(self, quiet: bool):
        self.quiet = quiet

    def say(self, text: str) -> None:
        if not self.quiet:
            remark(text)


@contextmanager
def progress(quiet: bool) -> Iterator[Any]:
    """A bar when stderr is a terminal, lines when it is not, nothing when quiet."""
    if quiet or not sys.stderr.isatty():
        yield _Quiet(quiet)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
        yield _Watcher(bar, bar.add_task("starting", total=None))
