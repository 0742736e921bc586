"""``fedsift audit``: attack a job before anybody signs it.

At one site (``--party party.toml``) with that site's own table and stand-ins for the others; or, where the job file
names every party's file, as a simulation with all of them. Nothing is sent either way.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedsift.audit import cast as casting
from fedsift.audit.cast import MOST_ROWS, Cast
from fedsift.audit.folder import check_folder, write_audit
from fedsift.audit.rehearsal import audit_job
from fedsift.audit.summary import audit_record, stored_verdicts
from fedsift.audit.verdict import NAMES, SIZES, Limits, Site
from fedsift.cli import console
from fedsift.core.table import Table
from fedsift.errors import JobError, ParameterError
from fedsift.jobs.job_file import Job, load_job, read_table
from fedsift.report.audit_record import AuditRecord, Line, readable
from fedsift.report.markup import plural
from fedsift.site.policy import Policy
from fedsift.site.settings import load_party
from fedsift.site.verdict import FOLDER

REFUSED = 5  # as for a job that a policy refuses


def audit(
    job: Annotated[Path, typer.Argument(help="The job file (TOML).", show_default=False)],
    party: Annotated[
        Path | None,
        typer.Option("--party", metavar="FILE", help="Audit at this site: its party.toml. Else with all files."),
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the job.")
    ] = None,
    rows: Annotated[int, typer.Option(metavar="N", help=f"Rows to rehearse on, {MOST_ROWS:,} at most.")] = MOST_ROWS,
    columns: Annotated[
        int | None, typer.Option(metavar="N", help="With the label: columns a partner brings; else 20, or as you have.")
    ] = None,
    strength: Annotated[
        float, typer.Option(metavar="AUC", help="Without the label: how well your columns explain the planted one.")
    ] = 0.8,
    format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="A table for people or JSON for scripts.")
    ] = "table",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the audit goes; else JOB-audit beside the job file.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every step and tracebacks, on stderr.")] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="stderr has one JSON object a line.")] = False,
) -> None:
    """Attack a job on your own rows before you agree to it. Nothing is sent.

    The job is rehearsed in this process, attacks run on what every role received, and the figures are judged by your
    policy (max_label_auc, max_column_r2). Ends with 0 if it passed and with 5 if not.
    """
    if not 1 <= rows <= MOST_ROWS:
        raise ParameterError(f"--rows is {rows:,}; give a number from 20 to {MOST_ROWS:,}")
    loaded = _load(job, set or [], party)
    folder = out or loaded.path.parent / f"{loaded.path.stem}-audit"
    check_folder(folder)
    with console.progress(quiet, verbose, log_json) as progress:
        progress.say("reading the data")
        cast, site, policy, table = _parts(loaded, party, rows, columns, strength)
        limits = Limits(policy.max_label_auc, policy.max_column_r2)
        done = audit_job(loaded, cast, site, limits, progress.say)
        record = audit_record(done, table, policy.model_dump())
        write_audit(record, folder)
        stored = []
        if party is not None and table is not None:
            stored = [each.save(party.parent / FOLDER) for each in stored_verdicts(done, table)]
    if format == "json":
        console.show(json.dumps({**record.write(), "out": str(folder)}, indent=2, ensure_ascii=False))
    else:
        _show(record)
        console.show(f"\nwritten to {folder}: audit.html is the report, annex.md and annex.html the data-protection")
        console.show("annex, acro/results.json the evidence for output checkers, audit.json all of it for scripts")
        for file in stored:
            console.show(f"stored for your policy (require_audit): {file}")
    if record.verdict.outcome != "passed":
        raise typer.Exit(REFUSED)


def _load(path: Path, changes: list[str], party: Path | None) -> Job:
    try:
        job = load_job(path, changes, files=party is None)
    except JobError as error:
        if party is None and ("there is no file" in str(error) or ".file is missing" in str(error)):
            raise JobError(f"{error}\nto audit at one site, with its own table: --party party.toml") from None
        raise
    if job.settings.federation.partition == "hybrid" and party is not None:
        raise job.source.error(
            ("federation", "partition"),
            "a hybrid job is rehearsed with all parties' files (one party alone knows neither the others' rows nor "
            "their columns): leave --party out, or see what would leave with fedsift check",
        )
    return job


def _parts(
    job: Job, party: Path | None, rows: int, columns: int | None, strength: float
) -> tuple[Cast, Site, Policy, Table | None]:
    """Who plays whom, whose audit it is, by which policy, and the site's own table."""
    parties, partition = job.settings.parties, job.settings.federation.partition
    if partition != "vertical":
        return _parts_with_rows(job, party, rows)
    active = next(name for name, section in parties.items() if section.label is not None)
    by_id = any(section.id is not None for section in parties.values())
    shared = job.settings.federation.names == "shared"
    if party is None:
        cast = casting.all_parties(job.tables(), active, by_id=by_id, rows=rows)
        return cast, Site(None, True, shared), Policy(), None
    settings, source = load_party(party)
    name = settings.party.name
    if name not in parties:
        raise ParameterError(f"{job.path} has no party {name!r} (the name in {party}); it has {', '.join(parties)}")
    table = read_table(source, ("party",), settings.party, name)
    if name == active:
        if table.label is None:
            raise ParameterError(
                f'{job.path} counts on the label of {name!r}, but {party} names none: write label = "COLUMN" under '
                "[party]"
            )
        cast = casting.label_holder(table, name, list(parties), by_id=by_id, rows=rows, columns=columns)
        return cast, Site(name, True, shared), settings.policy, table
    amount = job.settings.federation.task == "regression"
    cast = casting.passive(table, name, list(parties), active, by_id=by_id, strength=strength, amount=amount, rows=rows)
    return cast, Site(name, False, shared), settings.policy, table


def _parts_with_rows(job: Job, party: Path | None, rows: int) -> tuple[Cast, Site, Policy, Table | None]:
    """The same for parties that have rows of their own."""
    parties, settings = job.settings.parties, job.settings.federation
    shared = settings.names == "shared"
    if party is None:
        by_id = any(section.id is not None for section in parties.values())
        cast = casting.parties_with_rows(job.tables(), by_id=by_id, partition=settings.partition, rows=rows)
        return cast, Site(None, True, shared), Policy(), None
    own, source = load_party(party)
    if own.party.name not in parties:
        raise ParameterError(
            f"{job.path} has no party {own.party.name!r} (the name in {party}); it has {', '.join(parties)}"
        )
    table = read_table(source, ("party",), own.party, own.party.name)
    if table.label is None:
        raise ParameterError(f'{party} names no label, which every horizontal party has: write label = "COLUMN"')
    cast = casting.one_of_the_rows(table, own.party.name, list(parties), rows=rows)
    return cast, Site(own.party.name, True, shared), own.policy, table


# --- what people see -------------------------------------------------------------------------------------------------


def _show(record: AuditRecord) -> None:
    shown = record.tried
    rows = [
        [line.whom, line.target, f"{line.titled}, {line.metric}", f"{line.value:.3f}",
         f"{line.guess:.3f}", f"{line.baseline:.3f}", _verdict(line), line.declared]
        for line in shown
    ]  # fmt: skip
    heads = ["to whom", "what", "how", "success", "guess", "baseline", "verdict", "declared"]
    title = f"{record.method}: what attacks read, rehearsed on {record.rows:,} rows"
    console.table(rows, heads, right=["success", "guess", "baseline"], title=title)
    if not rows:
        console.show("no attack had anything to read")
    console.show(f"\n  {record.site.stand_ins}")
    console.show("  guess: what needs no message; baseline: what the attacker reaches from its own rows and its answer")
    silent = len(record.exposures) - len(shown)
    if silent:
        console.show(f"  {plural(silent, 'more attack')} found nothing to read")
    if record.skipped:
        console.show(f"  not run, for they are after what others hold: {', '.join(map(readable, record.skipped))}")
    _show_coverage(record)
    _show_verdict(record)


def _show_coverage(record: AuditRecord) -> None:
    counted = [line.status for line in record.coverage]
    missing = [line.operation for line in record.coverage if line.status == "none yet"]
    console.show(f"  {len(counted)} kinds of message: {counted.count('attacked')} attacked, "
                 f"{counted.count('needs none')} need no attack, {len(missing)} have none yet")  # fmt: skip
    for key, value in record.lowered.items():
        console.show(f"  rehearsed with {key} = {value}: there are no more columns here")
    for attack, why in record.broken.items():
        console.show(f"  the attack {readable(attack)} broke down: {why}")


def _verdict(line: Line) -> str:
    if line.over:
        return f"OVER: {line.figure:.2f} > {line.limit:.2f}"
    if not line.concerns:
        told = {**dict.fromkeys(NAMES, "names are told anyway"), SIZES: "sizes are told anyway"}
        return told.get(line.metric, "not about you")
    return "below the limit" if line.adds else "adds nothing"


def _show_verdict(record: AuditRecord) -> None:
    limits, outcome = record.limits, record.outcome
    whose = record.site.party or "all parties"
    console.show(f"\nlimits: labels AUC {limits.max_label_auc:g}, columns R2 {limits.max_column_r2:g}")
    over = sum(line.over for line in record.exposures)
    tried = plural(sum(line.concerns and not line.found_nothing for line in record.exposures), "attack")
    words = {
        "passed": f"PASSED: of {tried} on what is here none is over the limits",
        "failed": f"FAILED: of {tried} on what is here {over} {'is' if over == 1 else 'are'} over the limits",
        "incomplete": "INCOMPLETE: nothing over the limits was found, but not everything could be measured",
    }
    empty, untested = record.verdict.is_empty, record.verdict.untested
    console.show(f"{whose}: {'NOTHING WAS TESTED: this is no pass' if empty else words[outcome]}")
    if untested and not empty:
        console.show(f"  not tested, because no attack on it had anything to read: {', '.join(untested)}")
    if outcome == "incomplete":
        for reason in record.verdict.reasons:
            console.show(f"  {reason}")
    console.show("attacks are lower bounds: a pass is no proof")
