"""Model files: one a party, written and read at that party's site, in a folder that the site itself chose.

A part holds the party's own split records (column, bin edges, which side); the label holder's also the trees, which
name other parties and split numbers, never their columns. A request can neither name a path nor fetch a part.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from fedsift.core.binning import ColumnBins
from fedsift.core.federation import Federation
from fedsift.core.files import write_atomic
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.errors import DataError, ParameterError
from fedsift.models.boost.parts import stored_part

FORMAT, VERSION = "fedsift-boost-part", 1
#: Where a site keeps model files: ``site.keys[FOLDER] = "models"``. Without it nothing is written or read.
FOLDER = "model folder"


def part_file(folder: str | Path, model: str, party: str) -> Path:
    if not re.fullmatch(r"[0-9a-f]{8,64}", model):
        raise ParameterError(f"{model!r} is not the name of a model")
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", party)
    return Path(folder) / f"{safe}.{model}.json"


def _folder(party: Party) -> str:
    if FOLDER not in party.keys:
        raise ParameterError(f"party {party.name!r} has chosen no folder for models: set site.keys[{FOLDER!r}] there")
    return str(party.keys[FOLDER])


@operation("boost.write_part", discloses="control", about="acknowledgement")
def write_part(party: Party, *, model: str) -> None:
    content = {"format": FORMAT, "version": VERSION, **stored_part(party, model)}
    write_atomic(part_file(_folder(party), model, party.name), json.dumps(content, indent=1, allow_nan=False) + "\n")


@operation("boost.read_part", discloses="control", about="acknowledgement")
def read_part(party: Party, *, model: str) -> None:
    file = part_file(_folder(party), model, party.name)
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
    for record in part["records"]:
        ColumnBins.read(record["bins"])
    party.keys[f"boost:{model}"] = {key: value for key, value in part.items() if key not in ("format", "version")}


def choose_folder(fed: Federation, folder: str | Path) -> None:
    """For simulated sites: set each one's model folder. A deployed site has set its own."""
    for site in fed.simulated.values():
        site.keys[FOLDER] = str(folder)


def hand_over(source: Federation | None, target: Federation, model: str) -> None:
    """Simulated sites only: a site of the same name (the same organisation with new rows) knows its own part."""
    if source is None:
        return
    before = source.simulated
    for name, site in target.simulated.items():
        if name in before and f"boost:{model}" in before[name].keys:
            site.keys.setdefault(f"boost:{model}", before[name].keys[f"boost:{model}"])
