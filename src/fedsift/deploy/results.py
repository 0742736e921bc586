"""What a job on FLARE left behind: the run folder, or the error that ended it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedsift import errors
from fedsift.errors import FedsiftError, PartyError, PartyGone
from fedsift.evaluate.worth import Valuation
from fedsift.jobs import runs

OUTCOME = "outcome.json"
RESULT = "fedsift"  # the folder of the result inside FLARE's job folder
STATISTICS = "statistics.csv"  # in that folder, a row a column
VALUE = "value.json"  # in that folder, the result of a valuation


def check_outcome(left: Path, status: str) -> None:
    """Raise what ended the job, as the type that it was at the coordinator."""
    try:
        outcome = json.loads((left / OUTCOME).read_text(encoding="utf-8"))
        state = outcome["state"]
    except (OSError, ValueError, KeyError, TypeError):
        raise FedsiftError(f"the job ended without a result; FLARE says {status}: see the server's log") from None
    if state == "finished":
        return
    waiting = outcome.get("waiting")
    if state == "ended" and isinstance(waiting, list) and len(waiting) == 1:
        what = f"FLARE ended the job ({status}) before it answered: its process died, or somebody aborted the job"
        raise PartyGone(str(waiting[0]), "handle", what)
    if state != "failed":
        names = ", ".join(map(repr, waiting)) if isinstance(waiting, list) and waiting else "no party"
        raise FedsiftError(
            f"the job was ended before there was a result, while it waited for {names}; FLARE says {status} "
            "(--resume submits it again)"
        )
    kind = getattr(errors, str(outcome.get("error")), FedsiftError)
    if isinstance(kind, type) and issubclass(kind, PartyError) and outcome.get("party"):
        raise kind(outcome["party"], str(outcome["operation"]), str(outcome["detail"]))
    if isinstance(kind, type) and issubclass(kind, FedsiftError) and kind is not errors.MissingExtra:
        raise kind(str(outcome.get("what")))
    raise FedsiftError(str(outcome.get("what")))


def read_value(result: Path) -> Valuation:
    """The result of a valuation."""
    try:
        return Valuation.from_dict(json.loads((result / VALUE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise FedsiftError(f"the job left no readable {VALUE}: see the server's log") from None


def read_statistics(result: Path) -> pd.DataFrame:
    """The result of a statistics job: a row a column."""
    try:
        return pd.read_csv(result / STATISTICS, index_col="column")
    except (OSError, ValueError):
        raise FedsiftError(f"the job left no readable {STATISTICS}: see the server's log") from None


def place(result: Path, out: Path, sites: Mapping[str, Path]) -> dict[str, Any]:
    """Move a result to where the user wants it, whole or not at all; ``sites`` are results of parties on this machine.

    A party's own files carry its own column names, so where they are at hand they replace the coordinator's.
    """
    runs.check_folder(out)
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    staging, old = (out.with_name(f".{out.name}.{token}.{kind}") for kind in ("partial", "old"))
    try:
        shutil.copytree(result, staging)
        for name, folder in sites.items():
            shutil.copy(folder / "selection.json", staging / f"selection-{name}.json")
            shutil.copy(folder / "summary.json", staging / f"summary-{name}.json")
        facts: dict[str, Any] = json.loads((staging / "run.json").read_text(encoding="utf-8"))
        if out.exists():
            os.rename(out, old)
        os.rename(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return facts
