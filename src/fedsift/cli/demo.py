"""The demo: three organisations that know different things about partly the same patients.

It writes their files and a job file and does what a newcomer would: ask what each partner is worth, select columns,
train a joint model, predict patients who came later, and ask why. All of it is what ``fedsift value``, ``run``,
``train`` and ``predict`` do; a user's own job starts as an edited copy.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedsift.cli import console
from fedsift.cli.options import Quiet, Verbose
from fedsift.cli.value import show_offers, show_value
from fedsift.core.files import write_atomic
from fedsift.errors import ParameterError
from fedsift.evaluate.datasets import new_file, write_demo
from fedsift.evaluate.value import value
from fedsift.jobs import runs, training
from fedsift.jobs.job_evaluate import EvaluateSection
from fedsift.jobs.job_file import Job, load_job
from fedsift.report.explain import write_explanation
from fedsift.report.value import write_value

JOB_FILE = """\
# fedsift demo. Edit this file to use your own tables: one [parties.NAME] for each, paths start here.
# fedsift check job.toml   reads the files and says what would be given away
# fedsift value job.toml   says what each partner adds
# fedsift train job.toml   selects columns and trains a joint model; fedsift predict gives new rows' predictions
# fedsift run job.toml     only selects

[parties.hospital]
file = "hospital.csv"          # CSV, TSV, Excel, Parquet or Feather
id = "patient"                 # rows are matched by it, privately
label = "malignant"            # what is to be predicted: one party has it
# Only these take part. therapy_days was written down after the diagnosis and would give it away: a leak (put it in, and
# fedsift check warns of it).
columns = ["texture", "smoothness", "symmetry", "fractal_dimension", "age", "ward"]

[parties.lab]
file = "lab.csv"
id = "patient"
price = 40                     # what it would cost to work with this partner

[parties.insurer]
file = "insurer.parquet"
id = "patient"
price = 25

[method]
name = "information_value"     # fedsift methods lists them all
n_features = 5                 # fedsift methods information_value lists its parameters

# A joint model, trained on the parties' shares, says how good the selection is. Nothing is pooled.
# [evaluate]
# model = "boost"              # or "additive", "linear", "network"
# folds = 5

[model]                        # for fedsift train: a joint model on the selected columns
name = "linear"                # or "boost", "network"

# [rules]                      # whatever the method says
# always = ["hospital.age"]
# never = ["insurer.plan"]
# budget = 50

[output]
dir = "result"
"""
FOLDS = 10  # of the value


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the demo.", metavar="DIR")] = Path("fedsift-demo"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write example files and run a job on them."""
    run_demo(out, quiet)


def run_demo(folder: Path, quiet: bool) -> None:
    """Write the files (an edited job file is kept), value the partners, select, train, predict, explain."""
    job_file = folder / "job.toml"
    _prepare(folder, job_file)
    job = load_job(job_file)
    runs.check_folder(job.out)
    training.check_model_folder(folder / "model")
    _value(job, folder, quiet)
    _select(job, quiet)
    _model(job, folder, quiet)
    _next(job_file)


def _value(job: Job, folder: Path, quiet: bool) -> None:
    console.show("1. Is a partner worth it?\n")
    with console.progress(quiet) as progress:
        fed = runs.prepare(job, progress.say).fed
        progress.say("valuing the partners")
        found = value(fed, folds=FOLDS)
    show_value(found)
    prices = {name: price for name, price in job.whole_prices.items() if name != found.holder}
    show_offers(found, prices, None)
    write_value(found, folder / "value.html", prices)


def _select(job: Job, quiet: bool) -> None:
    console.show("\n2. Which columns?\n")
    with console.progress(quiet) as progress:
        done = runs.execute(job, progress.say)
        if done.evaluation is None:
            progress.say("scoring the selection beside all and random columns")
            with done.phase("evaluate"):
                done.evaluation = runs.evaluation(done, EvaluateSection(model="linear", folds=3))
    console.show_run(done)
    console.show(
        "The parties trained the scored models together: nothing was pooled, and nobody saw the score of a row."
    )
    runs.write(done, job.out)


def _model(job: Job, folder: Path, quiet: bool) -> None:
    console.show("\n3. A joint model, patients who came later, and why\n")
    files = {name: new_file(job.file(name)) for name in job.settings.parties}
    with console.progress(quiet) as progress:
        trained = training.train(job, progress.say)
        training.write_model(trained, folder / "model")
        if not all(file.is_file() for file in files.values()):
            return  # a job of the user's own: no patients who came later
        predictions = training.predict(folder / "model", files, progress.say)
        told = training.explained(folder / "model", files, 2, progress.say)
    classes = [str(name) for name in trained.card.classes]
    write_atomic(folder / "predictions.csv", training.predictions_table(predictions, classes))
    write_explanation(told, folder / "explain.html")
    console.show(trained.card.text())
    shown = [[who, f"{chance:.2f}"] for who, chance in list(predictions.items())[:5] if isinstance(chance, float)]
    console.table(shown, ["patient", "probability"], title=f"The first of {len(predictions)} predictions")
    lines = told.explanation.frame.head(5).itertuples()
    rows = [[line.party, line.feature, f"{line.importance:.3f}"] for line in lines]
    console.table(rows, ["party", "column", "importance"], title=told.explanation.by)


def _next(job_file: Path) -> None:
    folder, command = job_file.parent, "fedsift" if shutil.which("fedsift") else _called()
    console.show(f"Pages: {folder / 'value.html'}, {load_job(job_file).out / 'report.html'}, {folder / 'explain.html'}")
    console.show(f"Files: {folder / 'predictions.csv'}, {folder / 'model'} (its card, each party's part)")
    news = " ".join(f"{name}=NEW_FILE" for name in load_job(job_file).settings.parties)
    console.show("\nNext: put tables of your own into the job file, check it, and the same in three commands:")
    console.show(f"  edit {job_file}")
    console.show(f"  {command} check {job_file}")
    console.show(f"  {command} audit {job_file}    (what could be inferred: attacked here, nothing is sent)")
    console.show(f"  {command} value {job_file} --out value.html")
    console.show(f"  {command} train {job_file} --out model")
    console.show(f"  {command} predict model {news} --out predictions.csv --explain explain.html")


def _called() -> str:
    """How the command was started."""
    return "python -m fedsift" if sys.argv[0].endswith("__main__.py") else sys.argv[0]


def _prepare(folder: Path, job_file: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder} is a file; give a folder for the demo (--out DIR)")
    if folder.is_dir() and any(folder.iterdir()) and not job_file.is_file():
        raise ParameterError(f"the folder {folder} is not empty and no earlier demo; give another one (--out DIR)")
    write_demo(folder)
    if not job_file.exists():
        job_file.write_text(JOB_FILE, encoding="utf-8")
    elif job_file.read_text(encoding="utf-8") != JOB_FILE:
        console.remark(f"{job_file} was edited: running it as it is (delete it to get the demo's own again)")
