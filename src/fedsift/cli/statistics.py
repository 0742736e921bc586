"""``fedsift statistics``: correlation, inflation, p-values and stability over the parties of a job, nothing pooled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import typer

from fedsift.cli import console
from fedsift.cli.deploy import KitOption, On, OnOption
from fedsift.core.files import plain, write_atomic
from fedsift.deploy.run import statistics_on
from fedsift.errors import ParameterError
from fedsift.jobs import runs
from fedsift.jobs.job_file import load_job
from fedsift.statistics.job import StatisticsJob
from fedsift.statistics.statistics import computed

What = Literal["correlation", "vif", "significance", "psi"]
#: Of a correlation matrix people are shown so many pairs, the closest first.
_PAIRS = 20


def statistics(
    job: Annotated[Path, typer.Argument(help="The job file (TOML).", show_default=False)],
    what: Annotated[What, typer.Option(help="What to compute; psi of all columns, others of numeric ones.")] = (
        "correlation"
    ),
    kind: Annotated[
        Literal["pearson", "spearman"], typer.Option(help="Of a correlation: values or ranks.")
    ] = "pearson",
    model: Annotated[
        Literal["linear", "logistic"], typer.Option(help="Of p-values: least squares, or maximum likelihood.")
    ] = "linear",
    open_scores: Annotated[
        bool, typer.Option("--open-scores", help="Logistic: parties with few columns too, which scores give away.")
    ] = False,
    open_tables: Annotated[
        bool, typer.Option("--open-tables", help="Columns of few values too, whose tables of counts are given away.")
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(metavar="PARTY.COLUMN", help="Of psi: the column that parts the rows."),
    ] = None,
    at: Annotated[str | None, typer.Option(metavar="VALUE", help="Of psi: rows below it are the first sample.")] = None,
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the job.")
    ] = None,
    format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="A table for people or JSON for scripts.")
    ] = "table",
    out: Annotated[Path | None, typer.Option(help="Also write all of it: FILE.csv.", metavar="FILE")] = None,
    on: OnOption = On.local,
    kit: KitOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every step and tracebacks, on stderr.")] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="stderr has one JSON object a line.")] = False,
) -> None:
    """Correlation, variance inflation, p-values or stability of columns that different parties hold. Nothing is pooled.

    For a coordinator that holds no rows: to a party the answer would be equations about the others' rows.
    """
    if out is not None and out.suffix.lower() != ".csv":
        raise ParameterError(f"{out} must end in .csv; give another --out FILE")
    if (what == "psi") != (by is not None and at is not None):
        raise ParameterError("--what psi compares two samples: give --by PARTY.COLUMN and --at VALUE, and only there")
    work = StatisticsJob(
        what, kind, model=model, open_scores=open_scores, by=by, at=_number(at), open_tables=open_tables
    )
    loaded = load_job(job, set or [], files=on is not On.flare)
    with console.progress(quiet, verbose, log_json) as progress:
        if on is On.local:
            fed = runs.prepare(loaded, progress.say).fed
            progress.say(f"computing {what}")
            frame = computed(fed, work)
        else:
            frame = statistics_on(loaded, on.value, work, kit=kit, say=progress.say)
    if out is not None:
        write_atomic(out, frame.to_csv(index_label="column"))
    if format == "json":
        console.show(json.dumps(plain(frame.to_dict("index")), indent=2, ensure_ascii=False))
        return
    _show(frame, what)
    if out is not None:
        console.show(f"\nwritten to {out}")


def _number(text: str | None) -> float | str | None:
    """A value as it is meant: a number where it is one."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _show(frame: pd.DataFrame, what: What) -> None:
    if what == "correlation":
        pairs = [
            (abs(frame.iloc[i, j]), [frame.index[i], frame.index[j], f"{frame.iloc[i, j]:.3f}"])
            for i in range(len(frame))
            for j in range(i)
            if not pd.isna(frame.iloc[i, j])
        ]
        closest = [row for _, row in sorted(pairs, key=lambda pair: -pair[0])[:_PAIRS]]
        console.table(closest, ["column", "column ", "correlation"], right=("correlation",), title="Closest pairs")
        return
    by = "p" if what == "significance" else what
    order = frame.sort_values(by, ascending=what == "significance", kind="stable")
    rows = [[name, *(f"{value:.4g}" for value in values)] for name, values in zip(order.index, order.to_numpy())]
    console.table(rows, ["column", *order.columns], right=tuple(order.columns))
