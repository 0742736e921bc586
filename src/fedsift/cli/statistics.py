"""``fedsift statistics``: correlation, variance inflation and p-values over the parties of a job. Nothing is pooled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import typer

from fedsift.cli import console
from fedsift.core.federation import Federation
from fedsift.core.files import plain, write_atomic
from fedsift.errors import ParameterError
from fedsift.jobs import runs
from fedsift.jobs.job_file import load_job
from fedsift.statistics import statistics as found_by

What = Literal["correlation", "vif", "significance"]
#: Of a correlation matrix people are shown so many pairs, the closest first.
_PAIRS = 20


def statistics(
    job: Annotated[Path, typer.Argument(help="The job file (TOML).", show_default=False)],
    what: Annotated[What, typer.Option(help="What to compute of all numeric columns.")] = "correlation",
    kind: Annotated[
        Literal["pearson", "spearman"], typer.Option(help="Of a correlation: values or ranks.")
    ] = "pearson",
    model: Annotated[
        Literal["linear", "logistic"], typer.Option(help="Of p-values: least squares, or maximum likelihood.")
    ] = "linear",
    open_scores: Annotated[
        bool, typer.Option("--open-scores", help="Logistic: parties with few columns too, which scores give away.")
    ] = False,
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the job.")
    ] = None,
    format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="A table for people or JSON for scripts.")
    ] = "table",
    out: Annotated[Path | None, typer.Option(help="Also write all of it: FILE.csv.", metavar="FILE")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every step and tracebacks, on stderr.")] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="stderr has one JSON object a line.")] = False,
) -> None:
    """Correlation, variance inflation or p-values of columns that different parties hold. Nothing is pooled.

    For a coordinator that holds no rows: to a party the answer would be equations about the others' rows.
    """
    if out is not None and out.suffix.lower() != ".csv":
        raise ParameterError(f"{out} must end in .csv; give another --out FILE")
    loaded = load_job(job, set or [])
    with console.progress(quiet, verbose, log_json) as progress:
        fed = runs.prepare(loaded, progress.say).fed
        progress.say(f"computing {what}")
        frame = _found(fed, what, kind, model, open_scores)
    if out is not None:
        write_atomic(out, frame.to_csv(index_label="column"))
    if format == "json":
        console.show(json.dumps(plain(frame.to_dict("index")), indent=2, ensure_ascii=False))
        return
    _show(frame, what)
    if out is not None:
        console.show(f"\nwritten to {out}")


def _found(fed: Federation, what: What, kind: str, model: str, open_scores: bool) -> pd.DataFrame:
    if what == "correlation":
        return found_by.correlation(fed, kind=kind)
    if what == "vif":
        return found_by.vif(fed).to_frame()
    return found_by.significance(fed, model=model, open_scores=open_scores)


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
    order = frame.sort_values("vif" if what == "vif" else "p", ascending=what != "vif", kind="stable")
    rows = [[name, *(f"{value:.4g}" for value in values)] for name, values in zip(order.index, order.to_numpy())]
    console.table(rows, ["column", *order.columns], right=tuple(order.columns))
