"""A site's own part of a kept model, and where rows are on their way down its trees.

Parts can be files: one a party, written and read at that party's site, in a folder that the site itself chose. A part
holds the party's own split records (column, bin edges, which side); the label holder's also the trees, which name other
parties and split numbers, never their columns. A request can neither name a path nor fetch a part.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsift.core.binning import ColumnBins
from fedsift.core.files import write_atomic
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.errors import DataError
from fedsift.models.parts import part_file


@dataclass
class Routes:
    """At the label holder: the node of every row in every tree, and what the others were asked (open form)."""

    at: np.ndarray  # trees x rows
    asked: dict[str, list[tuple[int, int, np.ndarray]]] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredNode:
    """A leaf with its values, or a cut: whose it is, its number there, and the children's numbers."""

    value: list[float] | None = None
    party: str = ""
    split: int = -1
    left: int = -1
    right: int = -1

    @property
    def is_leaf(self) -> bool:
        return self.value is not None


@dataclass(frozen=True)
class StoredTree:
    """As the label holder knows it; ``output`` is -1 where a tree serves all outputs."""

    output: int
    nodes: list[StoredNode]

    @property
    def outputs(self) -> slice:
        return slice(None) if self.output < 0 else slice(self.output, self.output + 1)


@dataclass(frozen=True)
class SharedTrees:
    """Trees whose leaves are shares (level ``all``): own cuts of every node, codes of every leaf."""

    number: int
    first: str
    outputs: int
    score_bits: int
    words: str
    cuts: list[list[int]]
    codes: list[list[int]]

    @property
    def count(self) -> int:
        """Trees of one output."""
        return len(self.codes) // self.outputs


@dataclass(frozen=True)
class StoredPart:
    """What a site keeps of a model; ``trees`` and what follows at the label holder alone."""

    records: list[dict[str, Any]]
    trees: list[StoredTree]
    base: list[float]
    size: float
    task: str
    classes: tuple[str, ...]
    shared: SharedTrees | None

    @classmethod
    def read(cls, fields: dict[str, Any]) -> StoredPart:
        trees = [
            StoredTree(tree["output"], [StoredNode(**node) for node in tree["nodes"]])
            for tree in fields.get("trees", [])
        ]
        told = fields.get("shared")
        whole = told is not None and set(told) == set(SharedTrees.__dataclass_fields__)
        return cls(
            fields["records"], trees, fields.get("base", []), fields.get("size", 1.0), fields.get("task", ""),
            tuple(fields.get("classes", ())), SharedTrees(**told) if told is not None and whole else None,
        )  # fmt: skip


def stored_fields(party: Party, model: str) -> dict[str, Any]:
    """This site's part of a kept model, as its file has it."""
    part: dict[str, Any] | None = party.keys.get(f"boost:{model}")
    if part is None:
        raise DataError(f"party {party.name!r} has no part of the model {model!r}: fit it here, or load its file first")
    return part


def stored_part(party: Party, model: str) -> StoredPart:
    """The same, to be read."""
    return StoredPart.read(stored_fields(party, model))


def goes_left(party: Party, model: str, record: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """Which of the rows one split sends left."""
    bins = ColumnBins.read(record["bins"])
    key = ("boost codes", model, bins.column)
    if key not in party._cache:
        party._cache[key] = bins.codes(party.table)
    sides = np.append(np.array(record["left"], dtype=bool), bool(record["unseen_left"]))
    return sides[party._cache[key][rows]]  # -1, what training did not have, is the last entry


FORMAT, VERSION = "fedsift-boost-part", 1


@operation("boost.write_part", times="1 a session", discloses="control", about="acknowledgement")
def write_part(party: Party, *, model: str) -> None:
    content = {"format": FORMAT, "version": VERSION, **stored_fields(party, model)}
    write_atomic(part_file(party, model).with_suffix(".json"), json.dumps(content, indent=1, allow_nan=False) + "\n")


@operation("boost.read_part", times="1 a session", discloses="control", about="acknowledgement")
def read_part(party: Party, *, model: str) -> None:
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
    for record in part["records"]:
        ColumnBins.read(record["bins"])
    party.keys[f"boost:{model}"] = {key: value for key, value in part.items() if key not in ("format", "version")}


OPERATIONS = (write_part, read_part)
