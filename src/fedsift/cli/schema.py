"""``fedsift schema``: the keys of job and party files as a JSON schema, for editors that check and complete TOML."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any

import typer

from fedsift.jobs.job_file import JobFile
from fedsift.methods import METHODS
from fedsift.site.settings import PartyFile


class Kind(str, Enum):
    job = "job"
    party = "party"


def schema(kind: Annotated[Kind, typer.Argument(help="Which file.", show_default=False)]) -> None:
    """Print the JSON schema of job files or of party files.

    Editors with TOML support (Even Better TOML, taplo) check and complete by it: write it to a file and put
    "#:schema ./job.schema.json" into the first line of job.toml.
    """
    made = job_schema() if kind is Kind.job else _titled(PartyFile.model_json_schema(), "A fedsift party file")
    sys.stdout.write(json.dumps(made, indent=2, ensure_ascii=False) + "\n")


def job_schema() -> dict[str, Any]:
    """The job file's keys, and for each method its own parameters."""
    made = _titled(JobFile.model_json_schema(), "A fedsift job file")
    method = made["$defs"]["MethodSection"]
    method["properties"]["name"]["enum"] = list(METHODS)
    method["allOf"] = [
        {
            "if": {"properties": {"name": {"const": name}}},
            "then": {"properties": _parameters(name), "additionalProperties": False},
        }
        for name in METHODS
    ]
    return made


def _parameters(method: str) -> dict[str, Any]:
    """Each parameter with its default; TOML has no null, so that "none" stands for it."""
    defaults = METHODS[method]().get_params(deep=False)
    known = {
        key: {"default": "none" if value is None else value} if _is_plain(value) else {}
        for key, value in defaults.items()
    }
    return {"name": True, **known}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _titled(made: Mapping[str, object], title: str) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": title}
