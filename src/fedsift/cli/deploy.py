"""What ``fedsift run --on simulator | poc | flare`` does at the terminal: its options, and how it shows a result."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fedsift.cli import console
from fedsift.core.ledger import Entry, Ledger
from fedsift.deploy.run import run_on
from fedsift.errors import ParameterError
from fedsift.jobs import runs
from fedsift.jobs.job_file import load_job
from fedsift.jobs.tracking import check_tracking, track_run
from fedsift.select.selection import Selection


class On(str, Enum):
    local = "local"
    simulator = "simulator"
    poc = "poc"
    flare = "flare"


OnOption = Annotated[
    On,
    typer.Option(
        "--on",
        help="Where the parties are: in this process, in FLARE's simulator, as FLARE processes on this machine (poc), "
        "or at their own sites (flare).",
    ),
]
KitOption = Annotated[
    Path | None,
    typer.Option("--kit", metavar="DIR", envvar="FEDSIFT_KIT", help="Your FLARE start kit, for --on flare."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with a job that was interrupted, not on local.")]


def run_elsewhere(
    job: Path,
    overrides: Sequence[str],
    *,
    on: On,
    kit: Path | None,
    resume: bool,
    out: Path | None,
    as_json: bool,
    progress: Any,
) -> None:
    """Run a job file with the parties in other processes; ``progress`` is the context that shows how it goes."""
    if on is On.local:
        raise ParameterError(
            '--resume is for jobs on FLARE (--on ...); in one process a search with checkpoint = "FILE" under '
            "[method] goes on by itself when it is run again"
        )
    loaded = load_job(job, overrides, files=on is not On.flare)
    folder = out or loaded.out
    check_tracking(loaded)
    with progress as shown:
        facts = run_on(loaded, on.value, folder, kit=kit, resume=resume, say=shown.say)
    track_run(loaded, facts, folder)
    if as_json:
        scores = Selection.load(folder / "selection.json").frame().to_dict("records")
        seen = [each.plain() for each in console.disclosures(read_ledger(folder))]
        content = {**facts, "out": str(folder), "scores": scores, "disclosures": seen}
        sys.stdout.write(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
        return
    console.show(runs.render(runs.read_record(folder), None))
    console.show()
    console.show(f"written to {folder}: {', '.join(facts['files'])}")


def read_ledger(folder: Path) -> Ledger:
    """The ledger of a run folder, from its table."""
    table = pd.read_csv(folder / "ledger.csv", keep_default_na=False)
    fields = list(Entry.__dataclass_fields__)
    return Ledger(Entry(**{key: row[key] for key in fields}) for row in table.to_dict("records"))
