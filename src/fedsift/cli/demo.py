"""The demo: three organisations that know different things about partly the same patients.

It writes their files and a job file, runs the job, puts two other filters beside it and says what to do next. All of it
is what ``fedsift run`` does; a user's own job starts as an edited copy.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from fedsift.cli import console
from fedsift.errors import ParameterError
from fedsift.evaluate.datasets import write_demo
from fedsift.jobs import runs
from fedsift.jobs.job_file import EvaluateSection, load_job
from fedsift.methods import METHODS, Selector

JOB_FILE = """\
# fedsift demo. Edit this file to use your own tables: one [parties.NAME] for each, paths start here.
# fedsift check job.toml   reads the files and says what would be given away
# fedsift run job.toml     runs it

[parties.hospital]
file = "hospital.csv"          # CSV, TSV, Parquet or Feather
id = "patient"                 # rows are matched by it, privately
label = "malignant"            # what is to be predicted: one party has it

[parties.lab]
file = "lab.csv"
id = "patient"

[parties.insurer]
file = "insurer.parquet"
id = "patient"
# columns = ["plan", "claims"] # only these take part; all by default

[method]
name = "information_value"     # fedsift methods lists them all
n_features = 5                 # fedsift methods information_value lists its parameters

# A joint model, trained on the parties' shares, says how good the selection is. Nothing is pooled.
# [evaluate]
# model = "boost"              # or "additive", "linear", "network"
# folds = 5

[model]                        # for fedsift train: a joint model on the selected columns
name = "boost"                 # or "linear", "network"
n_estimators = 20

[output]
dir = "result"
"""
BESIDE = ("gini", "sffs")
# The job keeps 5 columns because of what its scores said: at 10, random columns did as well (accuracy 0.942 against
# 0.939, forest, 3 folds). So the demo's scores show how a result reads; they are no evidence for a method.
CAVEAT = (
    "This data is easy and the number 5 was chosen to show a difference: with 10 columns, random ones score as well. "
    "The scores show how to read a result; for evidence see the benchmarks."
)


def run_demo(folder: Path, quiet: bool) -> None:
    """Write the files (an edited job file is kept), run the job, compare, explain."""
    job_file = folder / "job.toml"
    _prepare(folder, job_file)
    job = load_job(job_file)
    runs.check_folder(job.out)
    with console.progress(quiet) as progress:
        done = runs.execute(job, progress.say)
    console.show_run(done)
    with console.progress(quiet) as progress, done.phase("compare"):
        others = {}
        for name in BESIDE:
            progress.say(f"the same by {name}")
            others[name] = METHODS[name](n_features=max(1, done.selection.n_selected)).fit(done.fed)
    _show_others(done, others)
    if done.evaluation is None:
        with console.progress(quiet) as progress, done.phase("evaluate"):
            progress.say("scoring the selection beside all and random columns")
            done.evaluation = runs.evaluation(done, EvaluateSection(model="linear", folds=3))
        console.show_evaluation(done.evaluation)
        console.show(
            "The parties trained the scored models together: nothing was pooled, and nobody saw the score of a row."
        )
        console.show(CAVEAT)
    facts = runs.write(done, job.out)
    console.show(f"\nReport: {job.out / 'report.html'}")
    console.show(f"Files:  {job.out} ({', '.join(name for name in facts['files'] if name != 'report.html')})")
    command = "fedsift" if shutil.which("fedsift") else sys.argv[0]
    console.show("\nNext: put tables of your own into the job file, check it, run it:")
    console.show(f"  edit {job_file}")
    console.show(f"  {command} check {job_file}")
    console.show(f"  {command} audit {job_file}    (what could be inferred: attacked here, nothing is sent)")
    console.show(f"  {command} value {job_file}    (what each partner adds, before anybody signs)")
    console.show(f"  {command} run {job_file}      (which columns)")
    console.show(f"  {command} train {job_file}    (a joint model; fedsift predict gives new rows' predictions by id)")


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


def _show_others(done: runs.Run, others: dict[str, Selector]) -> None:
    kept = {(party, column) for party, columns in done.selection.selected.items() for column in columns}
    rows = []
    for name, selector in {done.job.method: done.selector, **others}.items():
        mine = {(party, column) for party, columns in selector.selected_.items() for column in columns}
        counts = ", ".join(f"{party} {len(columns)}" for party, columns in selector.selected_.items())
        traffic, seconds = console.size(selector.ledger_.bytes()), f"{selector.seconds_:.1f}"
        rows.append([name, counts, f"{len(mine & kept)} of {len(mine)}", traffic, seconds, selector.leaks])
    header = ["method", "columns kept", "same", "traffic", "seconds", "gives away"]
    console.table(rows, header, right=header[2:5], title="Other filters on the same parties")
