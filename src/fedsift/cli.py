"""The command line: run, check, methods, apply, demo.

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

from fedsift import __version__, console, runs
from fedsift.errors import DataError, FedsiftError, OperationFailed, ParameterError
from fedsift.job import load_job
from fedsift.job_text import nearest
from fedsift.select import METHODS, Selector
from fedsift.selection import Selection
from fedsift.table import Table

app = typer.Typer(
    help="Find the features that matter when the tables may not be pooled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Format(str, Enum):
    table = "table"
    json = "json"


JobArgument = Annotated[Path, typer.Argument(help="The job file (TOML).", show_default=False)]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key: --set method.n_features=20.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="A table for people or JSON for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress on stderr.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Logs, and the traceback of an error, on stderr.")]


def _command(name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose failures become one line and an exit code."""

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        @app.command(name)
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            verbose = bool(kwargs.get("verbose"))
            try:
                with _logs(verbose):
                    function(*args, **kwargs)
            except KeyboardInterrupt:
                console.remark("interrupted: nothing was written")
                raise typer.Exit(130) from None
            except (FedsiftError, OSError) as error:
                if isinstance(error, OSError) and error.errno == errno.EPIPE:
                    raise  # the reader of a pipe has gone: typer ends quietly
                if verbose:
                    traceback.print_exc()
                console.remark(_one_line(error, verbose))
                raise typer.Exit(getattr(error, "exit_code", 1)) from None

        return function

    return mark


def _one_line(error: Exception, verbose: bool) -> str:
    if isinstance(error, OSError) and not isinstance(error, FedsiftError):
        return f"error: {error.strerror or error}: {error.filename}" if error.filename else f"error: {error}"
    hint = " (--verbose shows that party's log)" if isinstance(error, OperationFailed) and not verbose else ""
    return "\n".join(f"error: {line}" for line in str(error).splitlines()) + hint


@contextmanager
def _logs(verbose: bool) -> Iterator[None]:
    """Logs on stderr when asked for. A party's own log may quote data, so it is silent otherwise."""
    logger = logging.getLogger("fedsift")
    before = logger.level, logger.propagate
    handler = logging.StreamHandler(sys.stderr) if verbose else logging.NullHandler()
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
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a job file and write the result folder."""
    loaded = load_job(job, set or ())
    folder = out or loaded.out
    runs.check_folder(folder)
    with console.progress(quiet) as progress:
        done = runs.execute(loaded, progress.observe, progress.say)
        facts = runs.write(done, folder)
    if format is Format.json:
        scores = done.selection.frame().to_dict("records")
        seen = runs.disclosures(done.ledger())
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
    with console.progress(quiet) as progress:
        ready = runs.prepare(loaded, progress.say)
    fed, tables = ready.fed, ready.tables
    parties = {name: _described(table) for name, table in tables.items()}
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
        _show_check(facts)


def _described(table: Table) -> dict[str, Any]:
    columns = table.describe()
    kinds: dict[str, int] = {}
    for column in columns:
        kinds[column["kind"]] = kinds.get(column["kind"], 0) + 1
    unlike = [c["column"] for c in columns if c["kind"] == "categorical" and c["distinct"] == table.n_rows > 1]
    return {
        "rows": table.n_rows,
        "columns": table.n_columns,
        "label": table.label_name,
        "kinds": kinds,
        "missing": {c["column"]: c["missing"] for c in columns if c["missing"]},
        "constant": [c["column"] for c in columns if c["constant"]],
        "all_different": unlike,
    }


def _show_check(facts: dict[str, Any]) -> None:
    rows = []
    for name, party in facts["parties"].items():
        kinds = ", ".join(f"{count} {kind}" for kind, count in party["kinds"].items())
        missing = f"{sum(party['missing'].values()):,} in {len(party['missing'])}" if party["missing"] else "none"
        rows.append([name, f"{party['rows']:,}", party["columns"], kinds, missing, party["label"] or ""])
    header = ["party", "rows", "columns", "kinds", "missing (in columns)", "label"]
    console.table(rows, header, right=["rows", "columns"], title=f"{facts['job']}: {len(rows)} parties")
    console.show()
    for name, party in facts["parties"].items():
        if party["constant"]:
            console.show(f"{name}: constant, so of no use: {', '.join(party['constant'])}")
        if party["all_different"]:
            console.show(
                f"{name}: a different text in each row (an id? leave it out with columns = [...]): "
                f"{', '.join(party['all_different'])}"
            )
    shared = "rows are shared by all parties" if facts["partition"] == "vertical" else "rows over all parties"
    classes = f", {facts['classes']} classes" if facts["classes"] else ""
    console.show(f"{facts['rows']:,} {shared}; {facts['task']}{classes}")
    parameters = ", ".join(f"{name}={value!r}" for name, value in facts["parameters"].items())
    console.show(f"method: {facts['method']}({parameters})")
    console.show(f"it gives away: {facts['leaks'] or 'see its page'}")
    if facts["names"] == "shared":
        console.show('and the names of the columns to the coordinator ([federation] names = "private" keeps them back)')
    console.show("ready to run")


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
        rows = [[m["name"], ", ".join(m["partitions"]), m["paper"], m["leaks"]] for m in shown.values()]
        console.table(rows, ["name", "parties", "paper", "what it gives away"])
        console.show("\nfedsift methods NAME shows a method's parameters.")
    else:
        _show_method(shown[name])


def _method_facts(name: str, method: type[Selector]) -> dict[str, Any]:
    signature = inspect.signature(method)
    defaults = {
        key: None if parameter.default is inspect.Parameter.empty else parameter.default
        for key, parameter in signature.parameters.items()
    }
    return {
        "name": name,
        "class": f"fedsift.{method.__name__}",
        "partitions": list(method.partitions),
        "parameters": defaults,
        "paper": method.paper,
        "leaks": method.leaks,
        "about": inspect.getdoc(method) or "",
    }


def _show_method(facts: dict[str, Any]) -> None:
    console.show(f"{facts['name']} ({facts['class']}), for {' or '.join(facts['partitions'])} parties")
    console.show(f"\n{facts['about']}")
    if facts["parameters"]:
        rows = [[name, '"none"' if value is None else _toml(value)] for name, value in facts["parameters"].items()]
        console.table(rows, ["parameter", "default"], title="In a job file, under [method]:")
    console.show(f"\npaper: {facts['paper']}")
    console.show(f"gives away: {facts['leaks']}")


def _toml(value: Any) -> str:
    """A default as it would stand in a job file."""
    return json.dumps(value, ensure_ascii=False, default=str)


# --- apply -----------------------------------------------------------------------------------------------------------


@_command()
def apply(
    selection: Annotated[Path, typer.Argument(help="selection.json or selection-PARTY.json.", show_default=False)],
    file: Annotated[Path, typer.Argument(help="Your table: CSV, TSV, Parquet or Feather.", show_default=False)],
    party: Annotated[str | None, typer.Option(help="Whose columns, when the selection has several parties'.")] = None,
    id: Annotated[str | None, typer.Option(help="The id column, which is kept.", metavar="COLUMN")] = None,
    label: Annotated[str | None, typer.Option(help="The label column, which is kept.", metavar="COLUMN")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; else NAME-selected beside FILE.")] = None,
    verbose: Verbose = False,
) -> None:
    """Keep the selected columns of your own table. Needs no other party."""
    loaded = Selection.load(selection)
    if party is None and len(loaded.selected) != 1:
        raise ParameterError(f"{selection} is for {', '.join(loaded.selected)}: say which with --party NAME")
    whose = party if party is not None else next(iter(loaded.selected))
    if whose not in loaded.selected:
        raise ParameterError(f"{selection} has no party {whose!r}{nearest(whose, list(loaded.selected))}")
    columns = loaded.selected[whose]
    if not columns:
        raise DataError(f"{selection} keeps no column of party {whose!r}: there is nothing to write")
    table = loaded.apply(Table.read(file, id=id, label=label, columns=columns, name=whose), whose)
    target = out or file.with_name(_selected_name(file.name))
    if target.exists() and target.samefile(file):
        raise ParameterError(f"{target} is the table itself; give another file (--out FILE)")
    table.write(target)
    console.show(f"{target}: {table.n_rows:,} rows, {len(columns)} columns kept for {whose!r}: {', '.join(columns)}")


def _selected_name(name: str) -> str:
    stem, dot, suffix = name.partition(".")
    return f"{stem}-selected{dot}{suffix}"


# --- demo ------------------------------------------------------------------------------------------------------------


@_command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the demo.", metavar="DIR")] = Path("fedsift-demo"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write example files and run a job on them."""
    from fedsift.demo import run_demo

    run_demo(out, quiet)


# --- the entry point -------------------------------------------------------------------------------------------------


def _version(value: bool) -> None:
    if value:
        console.show(f"fedsift {__version__}")
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
