"""The end of a job at a party: it gets its own part of the result, or the reason why there is none.

The coordinator sends a party which of its own columns were kept (``Selection.for_party``) and its own record, without
a score; the party writes them at its own site. Where column names are private the coordinator knows numbers, and the
party puts its own names back. Nothing comes back but an acknowledgement.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fedsift.core.arguments import AtMost
from fedsift.core.files import write_atomic
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.deploy.status import FAILED, FINISHED, write_status
from fedsift.errors import DataError, FedsiftError, OperationRefused
from fedsift.report import write_report
from fedsift.select.selection import Selection

Text = Annotated[str, AtMost(1 << 26)]  # a result with the names of very many columns


@operation(
    "delivery.keep_result",
    discloses="control",
    about="acknowledgement",
    receives="aggregate",
    learns="which of its own columns were kept, and what this job disclosed of it",
    times=10,
)
def keep_result(party: Party, *, selection: Text, record: Text) -> None:
    """Write selection.json, summary.json and the report into this job's folder at the site."""
    folder = _folder(party)
    names = {f"column {i}": name for i, name in enumerate(party.site.table.columns)}
    content = _read(selection, party.name)
    own = Selection.from_dict(_renamed(content, party.name, names), "the selection from the coordinator")
    if list(own.selected) != [party.name]:
        raise DataError(f"party {party.name!r}: the selection from the coordinator is not for this party")
    told = _read(record, party.name)
    if not isinstance(told, dict) or told.get("party") != party.name:
        raise DataError(f"party {party.name!r}: the record from the coordinator is not for this party")
    told = _renamed(told, party.name, names)
    site = party.site.table  # its own name of the ids and form of its file, for fedsift apply
    own = replace(own, details={**own.details, "id": site.id_name, "form": site.written.again.told()})
    own.with_evidence(party.models).save(folder / "selection.json")
    write_atomic(folder / "summary.json", json.dumps(told, allow_nan=False) + "\n")
    try:
        write_report(told, folder / "report.html", party=party.name)
    except FedsiftError as error:
        raise DataError(f"party {party.name!r}: no report can be made of the coordinator's record: {error}") from None
    write_status(folder, FINISHED, selected=len(own.selected[party.name]))


@operation(
    "delivery.keep_end",
    discloses="control",
    about="acknowledgement",
    learns="that the job has finished; its result is with whoever submitted it",
    times=10,
)
def keep_end(party: Party) -> None:
    """Note at this site that the job is done, where there is no part of the result for a party."""
    write_status(_folder(party), FINISHED)


@operation(
    "delivery.keep_failure",
    discloses="control",
    about="acknowledgement",
    learns="that the job failed, and why",
    times=10,
)
def keep_failure(party: Party, *, why: str) -> None:
    """Note at this site that there will be no result."""
    write_status(_folder(party), FAILED, why=str(why)[:2000])


def _read(text: str, party: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise DataError(f"party {party!r}: what came as a result is no JSON") from None


def _folder(party: Party) -> Path:
    folder: Path | None = getattr(party.site, "job_folder", None)
    if folder is None:
        raise OperationRefused(party.name, "keep_result", "this party keeps no results: it is not a deployed site")
    return folder


def _renamed(value: object, party: str, names: dict[str, str]) -> Any:
    """The coordinator's numbers for private columns ("column 3") as this party's names, wherever they stand alone."""
    if isinstance(value, dict):
        return {key: _renamed(item, party, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, party, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value
