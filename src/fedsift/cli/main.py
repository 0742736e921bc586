"""The command line: init, run, check, compare, value, train, predict, report, reproduce, apply, audit, party and more.

Results go to stdout, everything else to stderr. A failure is one line on stderr and an exit code that tells its kind
(see ``errors.py``); ``--verbose`` adds the traceback. An interruption ends with 130 and leaves nothing half-written.
A command is imported when it runs (``late.py``).
"""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from fedsift.cli.late import Late, LateCommands
from fedsift.version import VERSION


class Commands(LateCommands):
    """What ``fedsift --help`` lists, in the order in which a newcomer needs it."""

    table = {
        "demo": Late("demo", "See it all at work on example files, in a minute."),
        "init": Late("init", "Look at the parties' files and write a job file."),
        "check": Late("running", "Look at a job without running it: files, warnings, cost."),
        "run": Late("running", "Select columns, or build new ones, as a job file says."),
        "report": Late("running", "Show the report of an earlier run, or write it as a page."),
        "apply": Late("applying", "Keep the selected columns of your own table."),
        "value": Late("value", "Say what each partner adds to a model, with intervals."),
        "train": Late("train", "Select columns and train a joint model on them."),
        "predict": Late("train", "Predict new rows, by id, with a model of train."),
        "explain": Late("train", "Say which columns a model goes by."),
        "compare": Late("running", "Set several methods side by side on the same rows."),
        "statistics": Late("statistics", "Correlation, inflation, p-values, stability of columns."),
        "audit": Late("audit", "Attack a job on your own rows before you agree to it."),
        "methods": Late("methods", "List the methods: what they do, cost and give away."),
        "reproduce": Late("reproduce", "Run a job again and compare the answers."),
        "schema": Late("schema", "Print the JSON schema of job or party files."),
        "desk": Late("desk", "Show your jobs and results as pages on this machine."),
    }


class PartyCommands(LateCommands):
    """What ``fedsift party --help`` lists."""

    table = {
        "init": Late("party", "Look at your table and write party.toml: data and rules."),
        "check": Late("party", "Show what a job would disclose, and what your rules say."),
        "convert": Late("convert", "Write a large table as Parquet, once."),
        "fingerprint": Late("secrets", "Show your site's line for the [peers] of others."),
        "secrets": Late("secrets", "Look after this site's secrets: a copy, new ones."),
        "journal": Late("journal", "Show what this site has let out, and to whom."),
        "pending": Late("approval", "List the jobs that wait for somebody here."),
        "approve": Late("approval", "Let a job that waits here begin."),
        "refuse": Late("approval", "Refuse a job that waits here, or take an approval back."),
        "stop": Late("approval", "Stop a job that runs here."),
        "approver": Late("approval", "Make a key for somebody who approves jobs."),
        "desk": Late("desk", "Show this site's jobs, journal and rules as pages.", "party_desk"),
    }


app = typer.Typer(
    cls=Commands, help="Find the features that matter when the tables may not be pooled.", no_args_is_help=True,
    pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip
app.add_typer(
    typer.Typer(
        cls=PartyCommands, help="One organisation's side: its data, its rules.", no_args_is_help=True,
        rich_markup_mode=None,
    ),
    name="party",
)  # fmt: skip


def _version(value: bool) -> None:
    if value:
        from fedsift.crypto import kernel
        from fedsift.crypto.additive import cuda

        sys.stdout.write(
            f"fedsift {VERSION} (arithmetic kernel: {kernel.state()}; graphics processor: {cuda.state()})\n"
        )
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Find the features that matter when the tables may not be pooled."""


def _terminate(*_: object) -> None:
    raise SystemExit(143)


def main() -> None:
    """What ``fedsift`` runs. SIGTERM cleans up as an interruption does."""
    signal.signal(signal.SIGTERM, _terminate)
    app(prog_name="fedsift")
