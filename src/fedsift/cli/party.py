"""``fedsift party init`` and ``fedsift party check``: for the people who answer for one organisation's data.

Both work at that organisation alone: they read its own file and send nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

from fedsift.cli import console
from fedsift.core.ledger import FORMS
from fedsift.core.table import Table
from fedsift.errors import ParameterError, PolicyRefused
from fedsift.jobs.job_file import load_job
from fedsift.methods import METHODS
from fedsift.site.party_file import Look, look, party_text, write_party
from fedsift.site.policy import Policy
from fedsift.site.rehearsal import Rehearsal, rehearse
from fedsift.site.settings import PartyFile, load_party, read_party
from fedsift.site.verdict import FOLDER, why_no_audit

_SHOWN = 40  # columns in a table for people

PartyOption = Annotated[Path, typer.Option("--party", metavar="FILE", help="This party's file.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="The traceback of an error, on stderr.")]


# --- init ------------------------------------------------------------------------------------------------------------


def init(
    file: Annotated[Path, typer.Argument(help="Your table: CSV, TSV, Parquet or Feather.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="Your name in job files; else the file's name.")] = None,
    id: Annotated[str | None, typer.Option(help="The id column; else the one that looks like it.")] = None,
    no_id: Annotated[bool, typer.Option("--no-id", help="There is no id column.")] = False,
    label: Annotated[str | None, typer.Option(help="The label column, if you hold the label.")] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Only these take part; else all but ids and free text.")
    ] = None,
    categorical: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns that are codes although they look like numbers.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write it.")] = Path("party.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    verbose: Verbose = False,
) -> None:
    """Look at your table and write party.toml: your data and your rules.

    Columns that look like ids, names of people or free text are left out. Read the file before you use it.
    """
    if not file.is_file():
        raise ParameterError(f"there is no file {str(file)!r}")
    if no_id and id is not None:
        raise ParameterError("--id and --no-id contradict each other")
    name = name or file.name.partition(".")[0]
    wanted, codes = _names(columns), _names(categorical) or []
    seen = look(file, name=name, id=id, label=label, columns=wanted, with_id=not no_id)
    own = next(iter(seen.of("id")), None)
    # Read it as a job would: an id that is missing or there twice, a column that is not there, are found now.
    Table.read(file, id=own, label=label, columns=seen.of("column"), categorical=codes, name=name)
    text = party_text(name, _relative(file, out), seen, codes)
    write_party(out, text, force=force)
    _show_look(seen, file, own, asked=id is not None or no_id)
    console.show(f"\nwritten to {out}: read it, change the rules to yours, then try a job:")
    console.show(f"  fedsift party check JOB.toml --party {out}")


def _names(given: str | None) -> list[str] | None:
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


def _relative(file: Path, out: Path) -> str:
    """The table as party.toml names it: beside it or below it by a relative path, else in full."""
    folder, target = out.absolute().parent, file.absolute()
    relative = os.path.relpath(target, folder)
    return Path(relative).as_posix() if not relative.startswith("..") else str(target)


def _show_look(seen: Look, file: Path, own: str | None, asked: bool) -> None:
    roles = {"id": "the id", "label": "the label", "column": "yes", "out": "no"}
    shown = sorted(seen.columns, key=lambda column: column.role == "column")[:_SHOWN]  # the decisions first
    rows = [
        [c.name, c.kind, f"{c.distinct:,}", f"{c.missing:,}", roles[c.role] + (f": {c.why}" if c.why else "")]
        for c in seen.columns
        if c in shown
    ]
    console.table(
        rows, ["column", "kind", "different", "missing", "takes part"], right=["different", "missing"],
        title=f"{file}: {seen.rows:,} rows, {len(seen.columns):,} columns, {len(seen.of('column')):,} take part",
    )  # fmt: skip
    if len(seen.columns) > len(shown):
        console.show(f"... and {len(seen.columns) - len(shown):,} more")
    if own is not None and not asked:
        console.show(f"\n{own!r} was taken as the id: its values are all there and all different (else: --id, --no-id)")
    if own is None and not asked:
        console.show("\nno column looks like an id; rows can be matched by one only (--id COLUMN)")


# --- check -----------------------------------------------------------------------------------------------------------


def check(
    job: Annotated[Path, typer.Argument(help="The job file (TOML).", show_default=False)],
    party: PartyOption = Path("party.toml"),
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the job.")
    ] = None,
    format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="A table for people or JSON for scripts.")
    ] = "table",
    verbose: Verbose = False,
) -> None:
    """Show what a job would disclose of your data, and what your policy says to it.

    The job's method is rehearsed here on made-up rows; nothing is sent. Ends with 0 if your policy allows the job and
    with 5 if it refuses it.
    """
    settings, source = load_party(party)
    loaded = load_job(job, set or (), files=False)
    table, persons = read_party(source, settings.party)
    rehearsal = rehearse(loaded, settings.party.name, table, settings.policy)
    audit = _audit_refusal(rehearsal, settings, table, party.parent / FOLDER)
    facts = _checked(rehearsal, settings, table, audit, persons)
    if format == "json":
        console.show(json.dumps(facts.plain(), indent=2, ensure_ascii=False))
    else:
        _show_check(facts, f"{job} at {settings.party.name}")
    if not facts.allowed:
        raise typer.Exit(PolicyRefused.exit_code)


def _audit_refusal(rehearsal: Rehearsal, settings: PartyFile, table: Table, folder: Path) -> str:
    """Why require_audit refuses the job; empty where it does not."""
    if not settings.policy.require_audit:
        return ""
    return why_no_audit(folder, settings.policy, rehearsal.party, rehearsal.method, rehearsal.parameters, table)


@dataclass(frozen=True)
class Refused:
    """By which rule, and why."""

    rule: str
    what: str

    @classmethod
    def of(cls, refusal: PolicyRefused | None) -> Refused | None:
        return None if refusal is None else cls(refusal.rule, refusal.what)


@dataclass(frozen=True)
class Rows:
    """How many rows the file has beside the policy's least."""

    file: int
    min_rows: int
    too_few: bool


@dataclass(frozen=True)
class Persons:
    """The same where the file says whose row it is; ``min_cell`` is what counts enough of them."""

    file: int
    most_rows: int
    too_few: bool
    min_cell: int
    cell_too_small: bool


@dataclass(frozen=True)
class Judged:
    """What one operation would give away, and the policy's word."""

    operation: str
    form: str
    about: str
    learns: str
    times: int
    refused: Refused | None
    exception: bool

    @property
    def verdict(self) -> str:
        if self.refused is not None:
            return f"refused: {self.refused.rule}"
        return "allowed: exceptions" if self.exception else "allowed"


@dataclass(frozen=True)
class Checked:
    """A job as this party's policy sees it."""

    party: str
    method: str
    holds_label: bool
    allowed: bool
    audit: str  # why require_audit refuses it
    job: Refused | None
    rows: Rows
    columns: list[str]
    operations: list[Judged]
    lowered: dict[str, object]
    stopped: str
    persons: Persons | None = None

    def plain(self) -> dict[str, object]:
        facts = asdict(self)
        return facts if self.persons is not None else {k: v for k, v in facts.items() if k != "persons"}


def _checked(
    rehearsal: Rehearsal, settings: PartyFile, table: Table, audit: str, persons: np.ndarray | None
) -> Checked:
    policy = settings.policy
    rows = Rows(table.n_rows, policy.min_rows, table.n_rows < policy.min_rows)
    counted = None if persons is None else _count_persons(rehearsal, policy, persons)
    enough = not rows.too_few and (counted is None or not (counted.too_few or counted.cell_too_small))
    operations = [
        Judged(line.operation, line.form, line.about, line.learns, line.times, Refused.of(line.refusal),
               line.refusal is None and line.form not in (*policy.forms, "control"))
        for line in rehearsal.seen
    ]  # fmt: skip
    allowed, refused = not rehearsal.refusals and enough and not audit, Refused.of(rehearsal.job_refusal)
    return Checked(
        rehearsal.party, rehearsal.method, rehearsal.holds_label, allowed, audit, refused, rows, table.columns,
        operations, rehearsal.lowered, rehearsal.stopped, counted,
    )  # fmt: skip


def _count_persons(rehearsal: Rehearsal, policy: Policy, persons: np.ndarray) -> Persons:
    _, rows = np.unique(persons, return_counts=True)
    known = METHODS[rehearsal.method].cell_parameters
    cell = max((rehearsal.parameters[name] or 0 for name in known), default=None)
    most = int(rows.max())
    needed = policy.min_cell * most
    return Persons(len(rows), most, len(rows) < policy.min_rows, needed, cell is not None and cell < needed)


def _show_check(facts: Checked, title: str) -> None:
    role = "with the label" if facts.holds_label else "without the label"
    told = [line for line in facts.operations if line.about != "acknowledgement"]
    console.table(
        [[line.operation, line.form, line.about, line.verdict] for line in told],
        ["operation", "form", "what leaves", "your policy"],
        title=f"{title}, {role}: method {facts.method}, rehearsed on made-up rows",
    )  # fmt: skip
    console.show()
    for form, meaning in FORMS.items():
        if any(line.form == form for line in facts.operations):
            console.show(f"  {form}: {meaning}")
    console.show(f"\n{len(facts.operations) - len(told)} more operations give back an acknowledgement only")
    for text in dict.fromkeys(line.learns for line in facts.operations if line.learns):
        console.show(f"this party learns: {text}")
    _show_rows(facts.rows)
    if facts.persons is not None:
        _show_persons(facts.persons)
    if facts.lowered:
        console.show(f"rehearsed with less to do: {', '.join(f'{k}={v}' for k, v in facts.lowered.items())}")
    if facts.stopped:
        console.show(f"the rehearsal did not come to its end: {facts.stopped}")
    _show_verdict(facts)


def _show_rows(rows: Rows) -> None:
    enough = "too few for" if rows.too_few else "enough for"
    console.show(
        f"your file has {rows.file:,} rows, {enough} min_rows = {rows.min_rows}; how many of them all parties "
        "share is known when they are matched, and judged then"
    )


def _show_persons(persons: Persons) -> None:
    enough = "too few" if persons.too_few else "enough"
    cells = "too small" if persons.cell_too_small else "large enough, where it counts cells"
    console.show(
        f"they are of {persons.file:,} persons, {enough}; one has up to {persons.most_rows} rows, so min_cell is "
        f"to be {persons.min_cell} or more: the job's is {cells}"
    )


def _show_verdict(facts: Checked) -> None:
    for refused in (facts.job, *(line.refused for line in facts.operations)):
        if refused is not None:
            console.show(f"refused: {refused.what}")
    if facts.audit:
        console.show(f"refused: require_audit: {facts.audit}; run fedsift audit JOB.toml --party FILE")
    console.show(f"\n{facts.party}: your policy {'allows' if facts.allowed else 'REFUSES'} this job")
