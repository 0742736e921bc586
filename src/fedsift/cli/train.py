"""``fedsift train`` and ``fedsift predict``: selection and joint model in one job, and predictions for new rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedsift.cli import console
from fedsift.cli.deploy import On, OnOption
from fedsift.core.files import write_atomic
from fedsift.errors import ParameterError
from fedsift.jobs import training
from fedsift.jobs.job_file import load_job

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress on stderr.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Every step and tracebacks, on stderr.")]
FormatOption = Annotated[
    Literal["table", "json"], typer.Option("--format", help="Words for people or JSON for scripts.")
]


def train(
    job: Annotated[Path, typer.Argument(help="The job file (TOML), with a table [model].", show_default=False)],
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the job.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The model folder; else JOB-model.", metavar="DIR")] = None,
    format: FormatOption = "table",
    on: OnOption = On.local,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Select columns and train a joint model on them. Nothing is pooled; each party keeps its part."""
    _check_place(on, "train")
    loaded = load_job(job, set or [])
    folder = out or loaded.path.parent / f"{loaded.path.stem}-model"
    training.check_model_folder(folder)
    with console.progress(quiet, verbose) as progress:
        trained = training.train(loaded, progress.say)
        training.write_model(trained, folder)
    if format == "json":
        console.show(json.dumps({**trained.card, "out": str(folder)}, indent=2, ensure_ascii=False))
        return
    console.show(training.card_text(trained.card))
    console.show(f"written to {folder}: card.md is the model card; every party has a part of its own")


def predict(
    model: Annotated[Path, typer.Argument(help="The folder that fedsift train wrote.", show_default=False)],
    files: Annotated[list[str], typer.Argument(metavar="PARTY=FILE...", help="New rows of each party; no label.")],
    out: Annotated[Path | None, typer.Option(help="Write a CSV file; else to stdout.", metavar="FILE")] = None,
    on: OnOption = On.local,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict new rows, by id, in the order of the label holder's file."""
    _check_place(on, "predict")
    given = {}
    for text in files:
        party, found, file = text.partition("=")
        if not found or not party or not file:
            raise ParameterError(f"{text!r}: give each party's file as PARTY=FILE, such as bank=new.csv")
        given[party] = Path(file)
    with console.progress(quiet, verbose) as progress:
        predictions = training.predict(model, given, progress.say)
    card = training.read_card(model)
    text = training.predictions_table(predictions, [str(name) for name in card["classes"]])
    if out is None:
        sys.stdout.write(text)
        return
    write_atomic(out, text)
    console.remark(f"{len(predictions):,} predictions written to {out}")


def _check_place(on: On, command: str) -> None:
    if on is not On.local:
        raise ParameterError(
            f"fedsift {command} runs in one process so far, not on FLARE (--on {on.value}): a site keeps no part of a "
            "model after its job yet. fedsift run and fedsift value do run there"
        )
