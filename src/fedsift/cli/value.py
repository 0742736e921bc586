"""``fedsift value``: what does each partner add, before anybody signs anything?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedsift.cli import console
from fedsift.core.files import plain
from fedsift.evaluate.value import value as partners_value
from fedsift.evaluate.worth import Gain, Valuation
from fedsift.jobs import runs
from fedsift.jobs.job_file import load_job
from fedsift.report.value import write_value


def value(
    job: Annotated[Path, typer.Argument(help="The job file (TOML).", show_default=False)],
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the job.")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, metavar="N", help="Folds of the cross-validation.")] = 10,
    null: Annotated[bool, typer.Option(help="Also value each partner with shuffled rows: must add nothing.")] = True,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="For folds and shuffles.")] = 0,
    format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="Words for people or JSON for scripts.")
    ] = "table",
    out: Annotated[
        Path | None, typer.Option(help="Also write a page: FILE.html (or FILE.txt).", metavar="FILE")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every step and tracebacks, on stderr.")] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="stderr has one JSON object a line.")] = False,
) -> None:
    """Say what each partner adds to the label holder's model, with intervals. Nothing is pooled.

    The label holder alone, with each partner, without each and with all, on the rows that all parties share.
    """
    loaded = load_job(job, set or [])
    if out is not None:
        runs.check_page(out)
    with console.progress(quiet, verbose, log_json) as progress:
        fed = runs.prepare(loaded, progress.say).fed
        progress.say("valuing the partners")
        found = partners_value(fed, folds=folds, null=null, random_state=seed)
    if out is not None:
        write_value(found, out)
    if format == "json":
        console.show(json.dumps(plain(found.to_dict()), indent=2, ensure_ascii=False))
        return
    show_value(found)
    if out is not None:
        console.show(f"\nwritten to {out}")


def show_value(found: Valuation) -> None:
    """The sentences, and the figures behind them."""
    for sentence in found.sentences():
        console.show(sentence)
    console.show()
    kinds = [kind for kind in ("adds", "beyond", "share", "null") if getattr(found.lines[0], kind) is not None]
    rows = [[line.partner, *(_shown(getattr(line, kind)) for kind in kinds)] for line in found.lines]
    titles = {"adds": "adds", "beyond": "beyond the others", "share": "share", "null": "shuffled"}
    console.table(rows, ["partner", *(titles[kind] for kind in kinds)], title=f"Gain in {found.metric} (95 %)")
    console.show(f"{console.size(found.bytes)} sent, {found.seconds:.0f} s; nothing was pooled")


def _shown(gain: Gain) -> str:
    return f"{gain.mean:.3f}" + ("" if gain.low is None else f" ({gain.low:.3f} to {gain.high:.3f})")
