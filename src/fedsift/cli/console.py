"""What the command line shows: tables on stdout, progress (``progress_bar.py``) and remarks on stderr."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from rich import box
from rich.table import Table

from fedsift.core import table as tables
from fedsift.core.ledger import COORDINATOR, FORMS, Ledger
from fedsift.core.progress_bar import follow
from fedsift.core.terminal import clean, open_console, size
from fedsift.core.terminal import remark as remark
from fedsift.evaluate import joint, pooled
from fedsift.evaluate.result import Evaluation, EvaluationLine
from fedsift.jobs.columns_seen import ColumnSeen, look_at
from fedsift.jobs.runs import Run
from fedsift.jobs.text import toml_value
from fedsift.methods import METHODS
from fedsift.report import Comparison
from fedsift.report.record import Report, ScoredColumn
from fedsift.report.summary import verdict
from fedsift.report.words import beyond_chance, recommended, the_same, too_good

_SHOWN = 60  # columns of a file
progress = follow  # the command line shows through this module


def show(text: str = "") -> None:
    open_console().print(clean(text), soft_wrap=True)


def table(rows: Iterable[Sequence[Any]], header: Sequence[str], *, right: Sequence[str] = (), title: str = "") -> None:
    """Rows under a header; numbers to the right."""
    console = open_console()
    grid = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, padding=(0, 2, 0, 0))
    cells = [[clean(cell) for cell in row] for row in rows]
    for place, name in enumerate(header):
        # The first column says what a row is about: it is not broken up to make room for the others.
        least = min(24, max((len(row[0]) for row in cells), default=0)) if place == 0 else None
        grid.add_column(
            name, justify="right" if name in right else "left", overflow="fold", no_wrap=name in right,
            vertical="top", min_width=least,
        )  # fmt: skip
    for row in cells:
        grid.add_row(*row)
    if title:
        console.print(f"\n{clean(title)}")
    console.print(grid)


# --- a run -----------------------------------------------------------------------------------------------------------


def show_run(run: Run) -> None:
    """The result for a person: what was kept, who learned what, and whether encryption was on."""
    report = Report.read(run.record())
    answer = report.answer  # it tells columns that all parties have once
    shared = "shared rows" if run.fed.partition == "vertical" else "rows"
    title = (
        f"{run.job.method}: {answer.kept:,} of {answer.of:,} columns kept, "
        f"{run.fed.n_rows:,} {shared}, {len(run.tables)} parties"
    )
    show_scores([column for column in answer.scores if column.selected], title)
    tested = beyond_chance(report) if any(column.q is not None for column in answer.scores) else ""
    for line in (too_good(answer), recommended(report), tested, the_same(answer)):
        if line:
            show(f"\n{line}")
    if answer.engineered:
        show("\nNew features, as formulas:")
        for formula in answer.engineered:
            show(f"  {formula}")
    if run.evaluation is not None:
        show_evaluation(run.evaluation)
    show_disclosures(run)
    show()
    for phase, words in (("align", "alignment"), ("select", "selection")):
        ledger = run.ledger(phase)
        show(f"{words}: {ledger.rounds()} rounds, {size(ledger.bytes())}, {run.seconds[phase]:.1f} s")
    whole = run.ledger()
    show(whole.encryption_line())
    for note in whole.notes:
        show(f"note: {note}")


def show_scores(columns: Sequence[ScoredColumn], title: str) -> None:
    """With the false-discovery rate where the method's test gives one."""
    rows = [[c.rank, c.party, c.feature, "" if c.score is None else f"{c.score:.4g}"] for c in columns]
    head = ["rank", "party", "column", "score"]
    if any(c.q is not None for c in columns):
        rows = [[*row, "" if c.q is None else f"{c.q:.2g}"] for row, c in zip(rows, columns)]
        head.append("FDR")
    table(rows, head, right=["rank", "score", "FDR"], title=title)


def show_evaluation(evaluation: Evaluation) -> None:
    """Scores on unseen rows: mean and, over several folds, standard deviation."""
    rows = [
        [line.method, f"{line.n_features:.0f}", *(_score(line, metric) for metric in evaluation.metrics)]
        for line in evaluation.lines()
    ]
    header = ["columns from", "columns", *evaluation.metrics]
    how = f"model {evaluation.settings['model']}, {evaluation.settings['how']}"
    title = f"How good is it? Scores on rows that selection and training did not see ({how})"
    table(rows, header, right=header[1:], title=title)
    for method in evaluation.methods:
        show(f"{method}: {verdict(evaluation, method, evaluation.metrics[0])}")


def _score(line: EvaluationLine, metric: str) -> str:
    spread = line.spread[metric]
    return f"{line.mean[metric]:.3f}" + ("" if isnan(spread) else f" ± {spread:.3f}")


def show_disclosures(run: Run) -> None:
    seen = disclosures(run.ledger("align", "select"))
    table(
        ([", ".join(each.senders), ", ".join(each.receivers), each.what, each.form, size(each.bytes)] for each in seen),
        ["from", "to", "what", "form", "size"], right=["size"], title="Who learned what, in which form",
    )  # fmt: skip
    show()
    for form, meaning in FORMS.items():
        if any(each.form.split(",")[0] == form for each in seen):
            show(f"  {form}: {meaning}")
    if any("opened" in each.form for each in seen):
        show("  opened: The receiver holds the key and decrypts it.")


@dataclass
class Disclosed:
    """One kind of thing that was told, in which form, by whom and to whom."""

    what: str
    form: str
    senders: list[str] = field(default_factory=list)
    receivers: list[str] = field(default_factory=list)
    bytes: int = 0

    def plain(self) -> dict[str, object]:
        return {"from": self.senders, "to": self.receivers, "what": self.what, "form": self.form, "bytes": self.bytes}


def disclosures(ledger: Ledger) -> list[Disclosed]:
    """What went where in which form, one record a kind, parties that did the same together; control messages left out.

    What the coordinator hands to a party it has from other parties: such a line says what the party learned from it.
    """
    found: dict[tuple[bool, str, str], Disclosed] = {}
    for e in ledger.entries:
        learns = e.sender == COORDINATOR and not e.about.startswith("request: ")
        if e.form == "control" and not learns:
            continue
        about, form = e.about, e.form
        if learns:
            about = f"it learns {about}"
            form = "ciphertext, opened" if form == "ciphertext" else form
        elif e.sender == COORDINATOR:
            about = f"what {e.operation} needs from other parties"
        form += ", relayed unread" if e.relayed else ""
        told = found.setdefault((e.sender == COORDINATOR, form, about), Disclosed(about, form))
        for ends, name in ((told.senders, e.sender), (told.receivers, e.receiver)):
            if name not in ends:
                ends.append(name)
        told.bytes += e.bytes
    return list(found.values())


# --- several methods -------------------------------------------------------------------------------------------------


def show_comparison(comparison: Comparison) -> None:
    """Methods and nulls, the best first: how good, how many columns, how steady, at what price, and what leaks."""
    evaluation = comparison.evaluation
    settings, shown = evaluation.settings, evaluation.metrics[:2]
    rows = []
    for line in comparison.lines():
        steady = "" if isnan(line.jaccard) else f"{line.jaccard:.2f}"
        cost = [size(round(line.bytes)), f"{line.rounds:.0f}", f"{line.seconds:.1f}"]
        scores = [_score(line, metric) for metric in shown]
        rows.append([line.method, *scores, f"{line.n_features:.4g}", steady, *(["", "", ""] if line.null else cost)])
    header = ["columns from", *shown, "columns", "stability", "traffic", "rounds", "seconds"]
    methods = "1 method" if len(evaluation.methods) == 1 else f"{len(evaluation.methods)} methods"
    how = f"{settings['how']}, {settings['rows']:,} rows, {evaluation.n_features:,} columns, model {settings['model']}"
    table(rows, header, right=header[1:], title=f"{methods} on the same rows: {how}")
    show("stability: how alike the columns are that the folds keep (1: the same); cost: of one selection, on average")
    show(f"\n{comparison.advice()}")
    for name in evaluation.methods:
        show(f"  {name}: {verdict(evaluation, name, comparison.metric)}")
    told = [
        [name, _arguments(_changed(name, facts["parameters"])) or "defaults", facts["leaks"] or "see its page"]
        for name, facts in evaluation.methods.items()
    ]
    table(told, ["method", "parameters", "gives away"], title="What each method gives away")
    show(f"\nnote: {pooled.NOTE if evaluation.settings['pooled'] else joint.NOTE}")


def _changed(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the method's defaults."""
    defaults = METHODS[name]().get_params(deep=False)
    return {key: value for key, value in parameters.items() if repr(value) != repr(defaults[key])}


def _arguments(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items())


# --- check and methods -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Described:
    """A party's table, as ``fedsift check`` shows it; ``label`` is the name of that column."""

    rows: int
    columns: int
    label: str | None
    kinds: dict[str, int]
    missing: dict[str, int]
    constant: list[str]
    written: str
    each: list[ColumnSeen]
    warnings: list[str]

    @classmethod
    def of(cls, data: tables.Table) -> Described:
        seen = look_at(data)
        return cls(
            data.n_rows, data.n_columns, data.label_name, dict(Counter(column.kind for column in seen.columns)),
            {c.column: c.missing for c in seen.columns if c.missing},
            [c.column for c in seen.columns if c.distinct <= 1], seen.written, seen.columns, seen.warnings,
        )  # fmt: skip


#: What the task is called where the design names an event.
TIMES = "survival"


def _told(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {each:g}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class Checked:
    """A job that was looked at and not run."""

    job: str
    method: str
    parameters: dict[str, object]
    partition: str
    task: str
    classes: int | None
    design: dict[str, object]
    rows: int
    parties: dict[str, Described]
    leaks: str
    names: str
    cost: dict[str, object] | None


def show_check(facts: Checked) -> None:
    rows = []
    for name, party in facts.parties.items():
        kinds = ", ".join(f"{count} {kind}" for kind, count in party.kinds.items())
        missing = f"{sum(party.missing.values()):,} in {len(party.missing)}" if party.missing else "none"
        rows.append([name, f"{party.rows:,}", party.columns, kinds, missing, party.label or ""])
    header = ["party", "rows", "columns", "kinds", "missing (in columns)", "label"]
    table(rows, header, right=["rows", "columns"], title=f"{facts.job}: {len(rows)} parties")
    for name, party in facts.parties.items():
        show_columns(name, party)
    show()
    for name, party in facts.parties.items():
        for warning in party.warnings:
            show(f"warning: {name}: {warning}")
    shared = "rows are shared by all parties" if facts.partition == "vertical" else "rows over all parties"
    classes = f", {facts.classes} classes" if facts.classes else ""
    words = "survival: times until an event" if facts.task == TIMES else facts.task
    show(f"{facts.rows:,} {shared}; {words}{classes}")
    if facts.design:
        show(f"the design: {'; '.join(f'{part} {_told(value)}' for part, value in facts.design.items())}")
    show(f"method: {facts.method}({_arguments(facts.parameters)})")
    show(f"it gives away: {facts.leaks or 'see its page'}")
    if facts.names == "shared":
        show('and the names of the columns to the coordinator ([federation] names = "private" keeps them back)')
    if facts.cost is not None:
        show(f"it would cost about {facts.cost['words']} (at the method's default settings; docs/scale.md)")
    else:
        show("what it would cost was not measured for this method (docs/scale.md)")
    show("ready to run")


def show_columns(name: str, party: Described) -> None:
    """Every column of a file and how it was read; a wide file's first ones."""
    rows = [[c.column, c.kind, f"{c.missing:,}", f"{c.distinct:,}", c.written] for c in party.each[:_SHOWN]]
    written = f" ({party.written})" if party.written else ""
    header = ["column", "kind", "missing", "distinct", "written as"]
    table(rows, header, right=["missing", "distinct"], title=f"{name}{written}")
    if len(party.each) > _SHOWN:
        show(f"... and {len(party.each) - _SHOWN:,} more (--format json has all)")


def show_method(facts: dict[str, Any]) -> None:
    show(f"{facts['name']} ({facts['class']}), for {' or '.join(facts['partitions'])} parties")
    show(f"\n{facts['about']}")
    if facts["parameters"]:
        rows = [[name, '"none"' if value is None else toml_value(value)] for name, value in facts["parameters"].items()]
        table(rows, ["parameter", "default"], title="In a job file, under [method]:")
    show(f"\npaper: {facts['paper']}")
    show(f"gives away: {facts['leaks']}")
