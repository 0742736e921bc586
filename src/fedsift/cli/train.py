"""``fedsift train``, ``predict`` and ``explain``: a joint model in one job, what it says of new rows, and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedsift.cli import console
from fedsift.cli.deploy import KitOption, On, OnOption
from fedsift.core.files import write_atomic
from fedsift.deploy.run import explain_on, predict_on, train_on
from fedsift.errors import ParameterError
from fedsift.jobs import training
from fedsift.jobs.card import card_text
from fedsift.jobs.job_file import load_job
from fedsift.jobs.runs import check_page
from fedsift.jobs.tracking import check_tracking, track_model
from fedsift.report.explain import Explained, write_explanation

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
    kit: KitOption = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Select columns and train a joint model on them. Nothing is pooled; each party keeps its part."""
    loaded = load_job(job, set or [], files=on is not On.flare)
    folder = out or loaded.path.parent / f"{loaded.path.stem}-model"
    training.check_model_folder(folder)
    check_tracking(loaded)
    with console.progress(quiet, verbose) as progress:
        if on is On.local:
            trained = training.train(loaded, progress.say)
            training.write_model(trained, folder)
            card = trained.card
        else:
            card = train_on(loaded, on.value, folder, kit=kit, say=progress.say)
    track_model(loaded, card, folder)
    if format == "json":
        console.show(json.dumps({**card, "out": str(folder)}, indent=2, ensure_ascii=False))
        return
    console.show(card_text(card))
    console.show(f"written to {folder}: card.md is the model card; every party has a part of its own")


def predict(
    model: Annotated[Path, typer.Argument(help="The folder that fedsift train wrote.", show_default=False)],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="PARTY=FILE...", help="New rows of each party; no label. On flare: none."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a CSV file; else to stdout.", metavar="FILE")] = None,
    explain: Annotated[
        Path | None, typer.Option(help="Also write why, and with labels how good: FILE.html.", metavar="FILE")
    ] = None,
    on: OnOption = On.local,
    kit: KitOption = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict new rows, by id, in the order of the label holder's file."""
    given = _given(files or [])
    if explain is not None:
        check_page(explain)
    with console.progress(quiet, verbose) as progress:
        if on is On.local:
            predictions = training.predict(model, given, progress.say)
            classes = [str(name) for name in training.read_card(model)["classes"]]
            rows, text = len(predictions), training.predictions_table(predictions, classes)
        else:
            rows, told = predict_on(model, on.value, given, kit=kit, say=progress.say)
            text = told or ""
    if not text:
        console.remark(f"{rows:,} predictions are with the label holder, in the models folder of its site")
    elif out is None:
        sys.stdout.write(text)
    else:
        write_atomic(out, text)
        console.remark(f"{rows:,} predictions written to {out}")
    if explain is not None:  # the predictions are there, whatever may be said of them
        with console.progress(quiet, verbose) as progress:
            found = _explained(model, given, 3, [], on, kit, progress.say)
        write_explanation(found, explain)
        console.remark(f"why is written to {explain}")


def explain(
    model: Annotated[Path, typer.Argument(help="The folder that fedsift train wrote.", show_default=False)],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="PARTY=FILE...", help="Rows of each party; linear: with label. On flare: none."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Shuffles of each column.")] = 3,
    by: Annotated[
        list[str] | None, typer.Option("--by", metavar="COLUMN", help="Fairness by a column of the label holder's.")
    ] = None,
    format: FormatOption = "table",
    out: Annotated[
        Path | None, typer.Option(help="Also write a page: FILE.html (or FILE.txt).", metavar="FILE")
    ] = None,
    on: OnOption = On.local,
    kit: KitOption = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Say which columns a model goes by, and how it does on rows with labels: calibration, ROC, lift, thresholds."""
    if out is not None:
        check_page(out)
    with console.progress(quiet, verbose) as progress:
        found = _explained(model, _given(files or []), repeats, by or [], on, kit, progress.say)
    if out is not None:
        write_explanation(found, out)
    if format == "json":
        console.show(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
        return
    lines = found.explanation.frame.itertuples()
    rows = [[line.party, line.feature, f"{line.importance:.4f}"] for line in lines]
    console.table(rows, ["party", "column", "importance"], title=found.explanation.by)
    for name, frame in {"group": found.groups, **found.by}.items():
        if frame is not None and not frame.empty:
            shown = [[_two(value) for value in line] for line in frame.itertuples(index=False)]
            console.table(shown, [str(head).replace("_", " ") for head in frame.columns], title=f"By {name}")
    if out is not None:
        console.show(f"\nwritten to {out}")


def _explained(
    model: Path, files: dict[str, Path], repeats: int, by: list[str], on: On, kit: Path | None, say: training.Say
) -> Explained:
    if on is On.local:
        return training.explained(model, files, repeats, say, by)
    return explain_on(model, on.value, files, repeats, by, kit=kit, say=say)


def _two(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _given(files: list[str]) -> dict[str, Path]:
    given = {}
    for text in files:
        party, found, file = text.partition("=")
        if not found or not party or not file:
            raise ParameterError(f"{text!r}: give each party's file as PARTY=FILE, such as bank=new.csv")
        given[party] = Path(file)
    return given
