"""``fedsift run``, ``check``, ``compare`` and ``report``: a job, from its file to its report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedsift.cli import console
from fedsift.cli.deploy import KitOption, On, OnOption, ResumeOption, run_elsewhere
from fedsift.cli.options import Format, FormatOption, JobArgument, LogJson, Quiet, SetOption, Verbose, print_json
from fedsift.jobs import cost, runs
from fedsift.jobs.job_file import load_job
from fedsift.jobs.tracking import check_tracking, track_run

# --- run -------------------------------------------------------------------------------------------------------------


def run(
    job: JobArgument,
    set: SetOption = None,
    format: FormatOption = Format.table,
    out: Annotated[Path | None, typer.Option(help="Where the result goes; else [output] dir.", metavar="DIR")] = None,
    on: OnOption = On.local,
    kit: KitOption = None,
    resume: ResumeOption = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Run a job file and write the result folder."""
    if on is not On.local or resume:
        bar, is_json = console.progress(quiet, verbose, log_json), format is Format.json
        return run_elsewhere(job, set or (), on=on, kit=kit, resume=resume, out=out, as_json=is_json, progress=bar)
    loaded = load_job(job, set or ())
    folder = out or loaded.out
    runs.check_folder(folder)
    check_tracking(loaded)
    with console.progress(quiet, verbose, log_json) as progress:
        done = runs.execute(loaded, progress.say, folder)
        facts = runs.write(done, folder)
    track_run(loaded, facts, folder)
    if format is Format.json:
        scores = done.selection.frame().to_dict("records")
        seen = [each.plain() for each in console.disclosures(done.ledger())]
        print_json({**facts, "out": str(folder), "scores": scores, "disclosures": seen})
        return
    console.show_run(done)
    console.show()
    console.show(f"written to {folder}: {', '.join(facts['files'])}")


# --- check -----------------------------------------------------------------------------------------------------------


def check(
    job: JobArgument,
    set: SetOption = None,
    format: FormatOption = Format.table,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Look at a job without running it.

    Reads the files, aligns the parties, and says what is in them and what the method would give away.
    """
    loaded = load_job(job, set or ())
    with console.progress(quiet, verbose) as progress:
        ready = runs.prepare(loaded, progress.say)
    fed, tables = ready.fed, ready.tables
    parties = {name: console.Described.of(table) for name, table in tables.items()}
    facts = console.Checked(
        job=str(job),
        method=loaded.method,
        parameters=ready.selector.get_params(deep=False),
        partition=fed.partition,
        task=console.TIMES if fed.design.event is not None else fed.task,
        classes=fed.n_classes if fed.task == "classification" else None,
        design=fed.design.told(),
        rows=fed.n_rows,
        parties=parties,
        leaks=ready.selector.leaks,
        names=fed.names,
        cost=cost.job_cost(
            loaded.method,
            rows=fed.n_rows,
            columns=sum(fed.n_columns.values()),
            parties=len(fed.parties),
            matched=any(party.id is not None for party in loaded.settings.parties.values()),
        ),
    )
    if format is Format.json:
        print_json(asdict(facts))
    else:
        console.show_check(facts)


# --- compare ---------------------------------------------------------------------------------------------------------


def compare(
    job: JobArgument,
    methods: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help="The methods, with commas between.", show_default=False)
    ],
    folds: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Folds of the cross-validation; else [evaluate] folds, or 5.")
    ] = None,
    set: SetOption = None,
    format: FormatOption = Format.table,
    out: Annotated[
        Path | None, typer.Option(help="Also write a page: FILE.html (or FILE.txt).", metavar="FILE")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Set several methods side by side on the same rows.

    Each is fitted on the same folds of the job's rows and scored on the rest by a joint model, beside all and random
    columns. Nothing is pooled, unless the job says pooled = true under [evaluate].
    """
    loaded = load_job(job, set or ())
    if out is not None:
        runs.check_page(out)
    with console.progress(quiet, verbose, log_json) as progress:
        comparison = runs.compare_methods(loaded, methods, folds, progress.say)
    if out is not None:
        comparison.report(out)
        runs.adopt(out)
    if format is Format.json:
        print_json(comparison.to_dict())
        return
    console.show_comparison(comparison)
    if out is not None:
        console.show(f"\nwritten to {out}")


# --- report ----------------------------------------------------------------------------------------------------------


def report(
    run_dir: Annotated[Path, typer.Argument(help="The result folder of a run.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Write FILE.html (or FILE.txt) in place of text here.", metavar="FILE")
    ] = None,
    party: Annotated[str | None, typer.Option(help="One party's own report: its own columns only.")] = None,
    verbose: Verbose = False,
) -> None:
    """Show the report of an earlier run again, or write it as a page.

    A party that was given its own record alone can name that file (summary-PARTY.json) in place of the folder.
    """
    if out is not None:
        runs.check_page(out)
    shown = runs.render(runs.read_record(run_dir, party), out)
    console.show(shown if out is None else f"written to {shown}")
