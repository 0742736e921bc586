"""Model files: one a party, written and read at that party's site, in a folder that the site itself chose.

A part holds the party's own split records (column, bin edges, which side); the label holder's also the trees, which
name other parties and split numbers, never their columns. A request can neither name a path nor fetch a part.
"""

from __future__ import annotations

import json

from fedsift.core.binning import ColumnBins
from fedsift.core.files import write_atomic
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.errors import DataError
from fedsift.models.boost.parts import stored_fields
from fedsift.models.parts import JobHash, check_job, job_of, part_file

FORMAT, VERSION = "fedsift-boost-part", 2


@operation("boost.write_part", times="1 a session", discloses="control", about="acknowledgement")
def write_part(party: Party, *, model: str) -> None:
    content = {"format": FORMAT, "version": VERSION, "job": job_of(party, model), **stored_fields(party, model)}
    write_atomic(part_file(party, model).with_suffix(".json"), json.dumps(content, indent=1, allow_nan=False) + "\n")


@operation("boost.read_part", times="1 a session", discloses="control", about="acknowledgement")
def read_part(party: Party, *, model: str, job: JobHash) -> None:
    file = part_file(party, model).with_suffix(".json")
    try:
        part = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"party {party.name!r} has no file {file.name!r} in its model folder") from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise DataError(f"party {party.name!r}: {file.name!r} is not a model file") from None
    if not isinstance(part, dict) or part.get("format") != FORMAT or part.get("version") != VERSION:
        raise DataError(f"party {party.name!r}: {file.name!r} is not a model file of version {VERSION}")
    if part.get("party") != party.name or part.get("model") != model or not isinstance(part.get("records"), list):
        raise DataError(f"party {party.name!r}: {file.name!r} is the file of another party or model")
    check_job(party, model, file, part.get("job"), job)
    for record in part["records"]:
        ColumnBins.read(record["bins"])
    party.keys[f"boost:{model}"] = {
        key: value for key, value in part.items() if key not in ("format", "version", "job")
    }


OPERATIONS = (write_part, read_part)
