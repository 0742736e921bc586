"""``fedsift reproduce``: an earlier run, run again and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsift.cli import console
from fedsift.jobs import reproduce as jobs
from fedsift.jobs import runs


def reproduce(
    run_dir: Annotated[Path, typer.Argument(help="The result folder of a run.", show_default=False)],
    job: Annotated[Path | None, typer.Option(help="The job file, if it has moved.", metavar="FILE")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every step, on stderr.")] = False,
) -> None:
    """Run a job again and show that it gives the same answer.

    Compares the job, the files, the versions, the selected columns and their scores with an earlier run, and writes
    nothing. Ends with 1 where the answer is another one.
    """
    facts = jobs.earlier(run_dir)
    loaded = jobs.job_of(run_dir, facts, job)
    with console.progress(quiet, verbose) as progress:
        ready = runs.open_parties(loaded, progress.say)
        runs.select(ready, progress.say)
    found = jobs.compared(run_dir, facts, ready)
    console.table(
        [[line.what, "same" if line.same else "other", line.said] for line in found.lines], ["", "", "then and now"]
    )
    console.show(f"\n{found.sentence()}")
    if not found.same:
        raise typer.Exit(1)
