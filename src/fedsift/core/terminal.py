"""Text for a terminal: made safe, in sizes that people read.

Names of columns come from other parties, so text is cleaned of control characters before a terminal sees it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

from rich.console import Console

_PLAIN_WIDTH = 120  # of tables that go into a file or a pipe


def clean(text: object) -> str:
    """Text that is safe to print: control characters (terminal commands among them) become '?'."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in str(text))


def open_console(stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PLAIN_WIDTH
    return Console(file=stream, markup=False, highlight=False, emoji=False, width=width, soft_wrap=False)


def remark(text: str) -> None:
    """A line for the person at the terminal, on stderr."""
    open_console(stderr=True).print(clean(text), soft_wrap=True)


def log_line(facts: Mapping[str, object]) -> None:
    """One JSON object on a line of stderr; in ASCII, so that no name in it can command a terminal."""
    sys.stderr.write(json.dumps(facts) + "\n")
    sys.stderr.flush()


def size(count: int) -> str:
    """Bytes as people read them."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000 or unit == "GB":
            break
    return f"{value:.1f} {unit}"


def rough(seconds: float) -> str:
    """A time as people say it; an estimate is no better than that."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
