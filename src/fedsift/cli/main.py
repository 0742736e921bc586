"""The command line: init, run, check, compare, value, train, predict, report, reproduce, apply, audit, party and more.

Results go to stdout, everything else to stderr. A failure is one line on stderr and an exit code that tells its kind
(see ``errors.py``); ``--verbose`` adds the traceback. An interruption ends with 130 and leaves nothing half-written.
"""

from __future__ import annotations

import errno
import functools
import inspect
import json
import logging
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsift import __version__
from fedsift.cli import (
    applying,
    approval,
    audit,
    console,
    desk,
    init,
    journal,
    party,
    reproduce,
    schema,
    secrets,
    statistics,
    train,
    value,
)
from fedsift.cli.deploy import KitOption, On, OnOption, ResumeOption, run_elsewhere
from fedsift.crypto import kernel
from fedsift.crypto.additive import cuda
from fedsift.errors import FedsiftError, OperationFailed, ParameterError
from fedsift.jobs import runs
from fedsift.jobs.job_file import load_job
from fedsift.jobs.text import nearest
from fedsift.jobs.tracking import check_tracking, track_run
from fedsift.methods import GROUPS, METHODS, OTHERS, Selector, group_of

app = typer.Typer(
    help="Find the features that matter when the tables may not be pooled.", no_args_is_help=True,
    pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip


class Format(str, Enum):
    table = "table"
    json = "json"


JobArgument = Annotated[Path, typer.Argument(help="The job file (TOML).", show_default=False)]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key: --set method.n_features=20.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="A table for people or JSON for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress on stderr.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Every step, logs, and the traceback of an error, on stderr.")
]
LogJson = Annotated[
    bool, typer.Option("--log-json", help="stderr has one JSON object a line: every step, its bytes and seconds.")
]


def _command(name: str | None = None, on: typer.Typer = app) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose failures become one line and an exit code."""

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        @on.command(name)
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            verbose, as_json = bool(kwargs.get("verbose")), bool(kwargs.get("log_json"))
            try:
                with _logs(verbose, as_json):
                    function(*args, **kwargs)
            except KeyboardInterrupt:
                _complain("interrupted: nothing was written", 130, None, verbose, as_json)
                raise typer.Exit(130) from None
            except (FedsiftError, OSError) as error:
                if isinstance(error, OSError) and error.errno == errno.EPIPE:
                    raise  # the reader of a pipe has gone: typer ends quietly
                code = getattr(error, "exit_code", 1)
                _complain(_one_line(error, verbose), code, error, verbose, as_json)
                raise typer.Exit(code) from None

        return function

    return mark


def _complain(text: str, code: int, error: Exception | None, verbose: bool, as_json: bool) -> None:
    trace = traceback.format_exc() if verbose and error is not None else ""
    if as_json:
        kind = type(error).__name__ if error is not None else "interrupted"
        facts = {"event": "error", "kind": kind, "text": text, "exit_code": code}
        console.log_line({**facts, "traceback": trace} if trace else facts)
        return
    if trace:
        sys.stderr.write(trace)
    console.remark(text)


def _one_line(error: Exception, verbose: bool) -> str:
    if isinstance(error, OSError) and not isinstance(error, FedsiftError):
        return f"error: {error.strerror or error}: {error.filename}" if error.filename else f"error: {error}"
    hint = " (--verbose shows that party's log)" if isinstance(error, OperationFailed) and not verbose else ""
    return "\n".join(f"error: {line}" for line in str(error).splitlines()) + hint


@contextmanager
def _logs(verbose: bool, as_json: bool) -> Iterator[None]:
    """Logs on stderr when asked for. A party's own log may quote data, so it is silent otherwise."""
    logger = logging.getLogger("fedsift")
    before = logger.level, logger.propagate
    handler: logging.Handler = logging.NullHandler()
    if verbose:
        handler = console.JsonLog() if as_json else logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.CRITICAL)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


# --- run -------------------------------------------------------------------------------------------------------------


@_command()
def run(
    job: JobArgument,
    set: SetOption = None,
    format: FormatOption = Format.table,
    out: Annotated[Path | None, typer.Option(help="Where the result goes; else [output] dir.", metavar="DIR")] = None,
    on: OnOption = On.local,
    kit: KitOption = None,
    resume: ResumeOption = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Run a job file and write the result folder."""
    if on is not On.local or resume:
        bar, is_json = console.progress(quiet, verbose, log_json), format is Format.json
        return run_elsewhere(job, set or (), on=on, kit=kit, resume=resume, out=out, as_json=is_json, progress=bar)
    loaded = load_job(job, set or ())
    folder = out or loaded.out
    runs.check_folder(folder)
    check_tracking(loaded)
    with console.progress(quiet, verbose, log_json) as progress:
        done = runs.execute(loaded, progress.say, folder)
        facts = runs.write(done, folder)
    track_run(loaded, facts, folder)
    if format is Format.json:
        scores = done.selection.frame().to_dict("records")
        seen = console.disclosures(done.ledger())
        _print_json({**facts, "out": str(folder), "scores": scores, "disclosures": seen})
        return
    console.show_run(done)
    console.show()
    console.show(f"written to {folder}: {', '.join(facts['files'])}")


# --- check -----------------------------------------------------------------------------------------------------------


@_command()
def check(
    job: JobArgument,
    set: SetOption = None,
    format: FormatOption = Format.table,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Look at a job without running it.

    Reads the files, aligns the parties, and says what is in them and what the method would give away.
    """
    loaded = load_job(job, set or ())
    with console.progress(quiet, verbose) as progress:
        ready = runs.prepare(loaded, progress.say)
    fed, tables = ready.fed, ready.tables
    parties = {name: console.described(table) for name, table in tables.items()}
    facts = {
        "job": str(job),
        "method": loaded.method,
        "parameters": ready.selector.get_params(deep=False),
        "partition": fed.partition,
        "task": fed.task,
        "classes": fed.n_classes if fed.task == "classification" else None,
        "rows": fed.n_rows,
        "parties": parties,
        "leaks": ready.selector.leaks,
        "names": fed.names,
    }
    if format is Format.json:
        _print_json(facts)
    else:
        console.show_check(facts)


# --- compare ---------------------------------------------------------------------------------------------------------


@_command("compare")
def compare_(
    job: JobArgument,
    methods: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help="The methods, with commas between.", show_default=False)
    ],
    folds: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Folds of the cross-validation; else [evaluate] folds, or 5.")
    ] = None,
    set: SetOption = None,
    format: FormatOption = Format.table,
    out: Annotated[
        Path | None, typer.Option(help="Also write a page: FILE.html (or FILE.txt).", metavar="FILE")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Set several methods side by side on the same rows.

    Each is fitted on the same folds of the job's rows and scored on the rest by a joint model, beside all and random
    columns. Nothing is pooled, unless the job says pooled = true under [evaluate].
    """
    loaded = load_job(job, set or ())
    if out is not None:
        runs.check_page(out)
    with console.progress(quiet, verbose, log_json) as progress:
        comparison = runs.compare_methods(loaded, methods, folds, progress.say)
    if out is not None:
        comparison.report(out)
        runs.adopt(out)
    if format is Format.json:
        _print_json(comparison.to_dict())
        return
    console.show_comparison(comparison)
    if out is not None:
        console.show(f"\nwritten to {out}")


# --- report ----------------------------------------------------------------------------------------------------------


@_command()
def report(
    run_dir: Annotated[Path, typer.Argument(help="The result folder of a run.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Write FILE.html (or FILE.txt) in place of text here.", metavar="FILE")
    ] = None,
    party: Annotated[str | None, typer.Option(help="One party's own report: its own columns only.")] = None,
    verbose: Verbose = False,
) -> None:
    """Show the report of an earlier run again, or write it as a page.

    A party that was given its own record alone can name that file (summary-PARTY.json) in place of the folder.
    """
    if out is not None:
        runs.check_page(out)
    shown = runs.render(runs.read_record(run_dir, party), out)
    console.show(shown if out is None else f"written to {shown}")


# --- methods ---------------------------------------------------------------------------------------------------------


@_command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method in full.", show_default=False)] = None,
    format: FormatOption = Format.table,
    verbose: Verbose = False,
) -> None:
    """List the methods, or show one in full."""
    if name is not None and name not in METHODS:
        raise ParameterError(f"there is no method {name!r}{nearest(name, list(METHODS))}")
    shown = {key: _method_facts(key, method) for key, method in METHODS.items() if name in (None, key)}
    if format is Format.json:
        _print_json(shown[name] if name else list(shown.values()))
    elif name is None:
        for group in (*GROUPS, OTHERS):
            mine = [m for m in shown.values() if m["group"] == group]
            rows = [[m["name"], ", ".join(m["partitions"]), m["paper"], m["leaks"]] for m in mine]
            if rows:
                console.table(rows, ["name", "parties", "paper", "what it gives away"], title=group.capitalize())
        console.show("\nfedsift methods NAME shows a method's parameters.")
    else:
        console.show_method(shown[name])


def _method_facts(name: str, method: type[Selector]) -> dict[str, Any]:
    signature = inspect.signature(method)
    defaults = {
        key: None if parameter.default is inspect.Parameter.empty else parameter.default
        for key, parameter in signature.parameters.items()
    }
    return {
        "name": name,
        "group": group_of(name),
        "class": f"fedsift.{method.__name__}",
        "partitions": list(method.partitions),
        "parameters": defaults,
        "paper": method.paper,
        "leaks": method.leaks,
        "about": inspect.getdoc(method) or "",
    }


# --- demo ------------------------------------------------------------------------------------------------------------


@_command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the demo.", metavar="DIR")] = Path("fedsift-demo"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write example files and run a job on them."""
    from fedsift.cli.demo import run_demo

    run_demo(out, quiet)


# --- audit, party ----------------------------------------------------------------------------------------------------


party_app = typer.Typer(
    help="One organisation's side: its data, its rules.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(party_app, name="party")
for _own in (audit.audit, value.value, statistics.statistics, train.train, train.predict, train.explain, applying.apply,
             init.init, reproduce.reproduce, schema.schema):  # fmt: skip
    _command()(_own)
for _shown in (party.init, party.check, secrets.fingerprint, secrets.secrets, journal.journal):
    _command(_shown.__name__, on=party_app)(_shown)
for _decided in (approval.pending, approval.approve, approval.refuse, approval.stop, approval.approver):
    _command(_decided.__name__, on=party_app)(_decided)
_command("desk", on=party_app)(desk.party_desk)
_command("desk")(desk.desk)


# --- the entry point -------------------------------------------------------------------------------------------------


def _version(value: bool) -> None:
    if value:
        console.show(f"fedsift {__version__} (arithmetic kernel: {kernel.state()}; graphics processor: {cuda.state()})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Find the features that matter when the tables may not be pooled."""


def _terminate(*_: Any) -> None:
    raise SystemExit(143)


def main() -> None:
    """What ``fedsift`` runs. SIGTERM cleans up as an interruption does."""
    signal.signal(signal.SIGTERM, _terminate)
    app()
