"""Commands that are imported when they run, so that ``fedsift --help`` and completion answer at once.

A failure of a command is one line on stderr and an exit code (``errors.py``); that is done here, for all of them.
"""

from __future__ import annotations

import errno
import functools
import importlib
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fedsift.core.terminal import log_line, remark
from fedsift.errors import FedsiftError, OperationFailed


@dataclass(frozen=True)
class Late:
    """A command: the module of ``fedsift.cli`` that has it, its line in the list, its function if not of its name."""

    module: str
    line: str
    function: str = ""

    def load(self, name: str) -> Any:
        """The whole command, its options and all."""
        from fedsift.core.operation import load_whole

        load_whole()
        function = getattr(importlib.import_module(f"fedsift.cli.{self.module}"), self.function or name)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(name)(with_one_line_errors(function))
        return get_command(alone)


class LateCommands(TyperGroup):
    """A group whose list of commands needs no more than a line of each."""

    table: ClassVar[Mapping[str, Late]] = {}

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        lines: dict[str, Any] = {name: TyperCommand(name, help=late.line) for name, late in self.table.items()}
        self.commands = lines | dict(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        late = self.table.get(name or "")
        return name, command if late is None or name is None else late.load(name), rest


def with_one_line_errors(function: Callable[..., None]) -> Callable[..., None]:
    """The function, its failures told as one line and an exit code."""

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

    return wrapped


def _complain(text: str, code: int, error: Exception | None, verbose: bool, as_json: bool) -> None:
    trace = traceback.format_exc() if verbose and error is not None else ""
    if as_json:
        kind = type(error).__name__ if error is not None else "interrupted"
        facts = {"event": "error", "kind": kind, "text": text, "exit_code": code}
        log_line({**facts, "traceback": trace} if trace else facts)
        return
    if trace:
        sys.stderr.write(trace)
    remark(text)


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
        handler = JsonLog() if as_json else logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.CRITICAL)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class JsonLog(logging.Handler):
    """Log records as lines of JSON, for ``--verbose --log-json``."""

    def emit(self, record: logging.LogRecord) -> None:
        log_line({"event": "log", "level": record.levelname, "logger": record.name, "text": self.format(record)})
