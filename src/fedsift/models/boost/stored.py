"""What a party keeps of trained trees: its own cuts, and at the label holder (or in shares) the trees.

A part can be a file: one a party, written and read at that party's site, in a folder that the site itself chose. It
holds the party's own split records (column, bin edges, which side); the label holder's also the trees, which name other
parties and split numbers, never their columns. A request can neither name a path nor fetch a part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.binning import ColumnBins
from fedsift.core.files import write_atomic
from fedsift.core.operation import operation
from fedsift.core.party import Party
from fedsift.errors import DataError, OperationRefused
from fedsift.models.parts import JobHash, check_job, job_of, part_file

FORMAT, VERSION = "fedsift-boost-part", 2


@dataclass(frozen=True)
class Sides:
    """What a label holder hears of a cut: of each row at most one side a level of a tree; ``max_sides`` counts them."""

    level: str = ""  # cuts of one level of one tree have the same name; empty where it is not known
    held: float = 1.0  # bits a row that all columns held where the cut was taken
    heard: str = ""  # a digest of the sides of the rows that it learned from: told again they are no news


UNHEARD = Sides()


def digest_of(left: NDArray[np.bool_]) -> str:
    """Of the sides of all rows of a view."""
    return hashlib.blake2b(len(left).to_bytes(8, "little") + np.packbits(left).tobytes(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class SplitRecord:
    """One cut of an own column: what a party needs to send a new row left or right."""

    bins: ColumnBins
    left: NDArray[np.bool_]  # of each bin
    unseen_left: bool  # where values go that training did not have
    sides: Sides = UNHEARD

    def to_plain(self) -> dict[str, object]:
        cut = {"bins": self.bins.as_dict(), "left": self.left.tolist(), "unseen_left": self.unseen_left}
        return {**cut, "sides": asdict(self.sides)}

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> SplitRecord:
        left, sides = np.array(fields["left"], dtype=bool), Sides(**fields.get("sides", {}))
        return cls(ColumnBins.read(fields["bins"]), left, bool(fields["unseen_left"]), sides)


@dataclass
class SplitRecords:
    """The cuts of this party's columns that were taken in this run: what a kept model needs of it."""

    records: list[SplitRecord] = field(default_factory=list)

    def add(self, bins: ColumnBins, left: np.ndarray, unseen_left: bool, sides: Sides = UNHEARD) -> int:
        """The number of the new record."""
        self.records.append(SplitRecord(bins, np.array(left, dtype=bool), bool(unseen_left), sides))
        return len(self.records) - 1


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

    def to_plain(self) -> dict[str, object]:
        if self.is_leaf:
            return {"value": self.value}
        return {"party": self.party, "split": self.split, "left": self.left, "right": self.right}


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
class Labelled:
    """What the label holder alone knows of a model: where scores start, their unit, and what they are scores of."""

    base: list[float]
    task: str
    classes: tuple[str, ...]
    size: float = 1.0


@dataclass(frozen=True)
class StoredPart:
    """What a site keeps of a model; ``trees`` and ``labelled`` at the label holder alone."""

    records: list[SplitRecord]
    trees: list[StoredTree] = field(default_factory=list)
    labelled: Labelled = Labelled([], "", ())
    shared: SharedTrees | None = None

    def to_plain(self) -> dict[str, object]:
        told: dict[str, object] = {"records": [record.to_plain() for record in self.records]}
        if self.trees:
            told["trees"] = [
                {"output": tree.output, "nodes": [node.to_plain() for node in tree.nodes]} for tree in self.trees
            ]
        if self.labelled.task:
            told |= asdict(self.labelled)
        return told if self.shared is None else {**told, "shared": asdict(self.shared)}

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> StoredPart:
        trees = [
            StoredTree(tree["output"], [StoredNode(**node) for node in tree["nodes"]])
            for tree in fields.get("trees", [])
        ]
        labelled = Labelled(
            fields.get("base", []), fields.get("task", ""), tuple(fields.get("classes", ())), fields.get("size", 1.0)
        )
        told = fields.get("shared")
        whole = told is not None and set(told) == set(SharedTrees.__dataclass_fields__)
        records = [SplitRecord.read(record) for record in fields["records"]]
        return cls(records, trees, labelled, SharedTrees(**told) if told is not None and whole else None)


@dataclass
class Routes:
    """At the label holder: the node of every row in every tree, and what the others were asked (open form)."""

    at: np.ndarray  # trees x rows
    asked: dict[str, list[tuple[int, int, np.ndarray]]] = field(default_factory=dict)


def stored_part(party: Party, model: str) -> StoredPart:
    """This site's part of a kept model."""
    return party.models.part(model, StoredPart)


def told_records(party: Party, model: str) -> list[SplitRecord]:
    """Own cuts of a kept model, to say which way rows go; refused of one that was grown so that nobody is told."""
    part = stored_part(party, model)
    if part.shared is not None:
        raise OperationRefused(
            party.name, "boost", f"the model {model[:60]!r} was grown with protection = 'all': no side of a row is told"
        )
    return part.records


def goes_left(party: Party, model: str, record: SplitRecord, rows: np.ndarray) -> np.ndarray:
    """Which of the rows one split sends left."""
    codes = party.cached(("boost codes", model, record.bins.column), lambda: record.bins.codes(party.table))
    sides = np.append(record.left, record.unseen_left)
    return np.asarray(sides[codes[rows]])  # -1, what training did not have, is the last entry


def tell_predicted(party: Party, step: str, model: str, records: list[SplitRecord], lefts: np.ndarray) -> None:
    """Before a prediction tells on which side of these cuts rows lie (cuts x rows of the view): refused where it is
    more than the site lets out. What was heard while the trees grew, or in the same prediction, is no news."""
    told = [cut.sides for cut, left in zip(records, lefts) if digest_of(left) != cut.sides.heard]
    sides = len({each.level for each in told} - {""}) + sum(not each.level for each in told)
    answer = hashlib.blake2b(model.encode() + np.packbits(lefts).tobytes(), digest_size=16).digest()
    party.site.tell_sides(party, step, sides, max((each.held for each in told), default=1.0), answer)


@operation("boost.write_part", times="1 a session", discloses="control", about="acknowledgement")
def write_part(party: Party, *, model: str) -> None:
    whose = {"format": FORMAT, "version": VERSION, "job": job_of(party, model), "model": model, "party": party.name}
    content = {**whose, **stored_part(party, model).to_plain()}
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
    try:
        party.models.keep(model, StoredPart.read(part))
    except (KeyError, TypeError, ValueError):
        raise DataError(f"party {party.name!r}: {file.name!r} is not a whole model file") from None


OPERATIONS = (write_part, read_part)
