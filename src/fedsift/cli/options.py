"""Options that several commands have, in the same words."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


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


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
