"""What a party keeps of a model and does with it: its part, what it has just predicted, a score, a file.

A part stays at its site (``core/state.py``). A score is of predictions that the label holder made itself a moment
ago: no request brings predictions, which would be a way to ask for labels one by one. Several label holders add up what
they count under masks. Measures of several models (the folds of an evaluation) stay with the label holder until it
releases a summary. A part's file is written and read at its site, in the site's own folder; no pickle.
"""

from __future__ import annotations

import csv
import re
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost
from fedsift.core.design import survival_of
from fedsift.core.federation import Federation
from fedsift.core.files import private
from fedsift.core.ledger import later, rounded_numbers
from fedsift.core.message import decode, encode
from fedsift.core.operation import Array, Operation, operation
from fedsift.core.party import Party, Site
from fedsift.core.survival import concordance
from fedsift.errors import DataError, MessageError, OperationRefused, ParameterError
from fedsift.models import predicted
from fedsift.models.performance import performance_rows
from fedsift.models.predicted import Predicted
from fedsift.mpc import secure_sum
from fedsift.mpc.secure_sum import summed

Floats = NDArray[np.float64]
PartClass = TypeVar("PartClass", bound="Part")
JobHash = Annotated[str, AtMost(64)]

SCORE_DIGITS = 4


# --- what a party keeps ----------------------------------------------------------------------------------------------


class Part(Protocol):
    """A party's part of a model that can be written to a file: plain values and arrays, no row."""

    def to_plain(self) -> dict[str, Any]: ...

    @classmethod
    def from_plain(cls, content: dict[str, Any]) -> Part: ...


_kinds: dict[str, type[Part]] = {}


def model_part(kind: type[PartClass]) -> type[PartClass]:
    """Let parts of this class be written and read; its name is written into the file."""
    _kinds[kind.__name__] = kind
    return kind


@dataclass
class Measured:
    """At the label holder: measures of models by name, fold by fold, until a summary is released."""

    metrics: tuple[str, ...]
    values: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    rows: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)  # by name: the test rows of each fold

    def paired(self) -> dict[str, list[dict[str, float]]]:
        """The measures of each name in one order of the folds: those of folds side by side come in any."""
        order = {name: np.argsort([told.tobytes() for told in rows], kind="stable") for name, rows in self.rows.items()}
        return {name: [found[place] for place in order[name]] for name, found in self.values.items()}

    def check_rows(self, party: Party, *, evenly: bool) -> None:
        """What is released is about the rows of this view: each name was measured on all of them, and on no others.

        Else a coordinator measures on rows of its choice, and the journal counts the figures for many more. ``evenly``:
        on each row as often as on any other.
        """
        whole = np.unique(party.row_numbers)
        for told in self.rows.values():
            found, often = np.unique(np.concatenate(told), return_counts=True)
            if not np.array_equal(found, whole) or (evenly and often.min() != often.max()):
                raise OperationRefused(party.name, "release", "it was measured on other rows than these, or not evenly")


# --- what a party does -----------------------------------------------------------------------------------------------


@operation(
    "model.class_names",
    discloses="plain",
    about="names of the classes",
    reply=[str],
    needs=("class names",),
    times="1 a session",
)
def class_names(party: Party, *, task: str) -> list[str]:
    return list(party.labels(task=task).classes)


@operation(
    "model.label_kind", discloses="control", about="whether labels are text or numbers", reply=str, times="1 a session"
)
def label_kind(party: Party) -> str:
    if party.table.label is None:
        raise DataError(f"party {party.name!r} has no label column")
    return party.table.label.dtype.kind


@summed(
    "model.score_sums",
    times="2 x parties a session",
    about="number of rows, of right predictions, squared errors",
    receives="control",
    of_holders=True,
)
def score_sums(party: Party) -> Floats:
    """Rows, right ones, then rows, sum, sum of squares and squared errors of an amount."""
    predicted, label = party.held_here(Predicted), party.judged_label
    if label is None or len(label) != len(predicted.scores):
        raise DataError(f"party {party.name!r} has no labels of the rows that were predicted")
    if predicted.classes:
        right = int((predicted.truth(label) == predicted.chosen()).sum())
        return np.array([len(label), right, 0.0, 0.0, 0.0])
    values = label.astype(np.float64)
    errors = ((values - predicted.scores[:, 0]) ** 2).sum()
    return np.array([len(label), 0.0, values.sum(), (values**2).sum(), errors])


@operation(
    "model.score", discloses="aggregate", about="one score of the model over all rows, rounded", reply=float,
    times="1 a session", opened_by="result", releases=rounded_numbers,
)  # fmt: skip
def score_rows(party: Party) -> float:
    """A single label holder: accuracy, R2, or C where it is times, of the predictions that it has just made."""
    found = concordance_of(party, party.held_here(Predicted))
    if found is not None:
        return round(found, SCORE_DIGITS)
    return round(metric(score_sums.function(party), bool(party.held(Predicted).classes)), SCORE_DIGITS)


def concordance_of(party: Party, predicted: Predicted) -> float | None:
    """Harrell's C where the label is a time until an event: a higher prediction is an earlier event. Else ``None``."""
    survival = survival_of(party)
    return None if survival is None else concordance(*survival, predicted.scores[:, 0])


def metric(sums: Floats, classes: bool) -> float:
    rows, right, total, squares, errors = (float(each) for each in sums)
    if classes:
        return right / rows
    return 1.0 - errors / max(squares - total**2 / rows, 1e-300)


@operation(
    "model.measure",
    discloses="control",
    about="acknowledgement: the measures stay here until a summary of all folds is released",
    learns="how good the model is on these rows",
    role="active",
    times="1 a session",
    releases=later,
)
def measure_rows(
    party: Party, *, record: Annotated[str, AtMost(64)], method: Annotated[str, AtMost(200)],
    metrics: Annotated[list[str], AtMost(8)],
) -> None:  # fmt: skip
    """Measure the predictions that were just made, and put the figures beside those of the other folds."""
    predicted, label = party.held_here(Predicted), party.judged_label
    if label is None or len(label) != len(predicted.scores):
        raise DataError(f"party {party.name!r} has no labels of the rows that were predicted")
    begun = record in party.models
    measured = party.models.part(record, Measured) if begun else Measured(tuple(metrics))
    found = concordance_of(party, predicted)
    told = predicted.measures(label, list(measured.metrics)) if found is None else {"c_index": found}
    if not begun:
        party.models.keep(record, measured)
    measured.values.setdefault(method, []).append(told)
    measured.rows.setdefault(method, []).append(party.row_numbers)


@operation(
    "model.tell_by_id",
    discloses="plain",
    about="the prediction of each row, by its id",
    reply={"ids": [str], "values": Array("f", 2)},
    role="active",
    concerns="own columns and labels",
    times="1 a session",
)
def tell_by_id(party: Party) -> dict[str, Any]:
    """What was just predicted, to whoever asked: probabilities (rows x classes), or numbers."""
    return _by_id(party)


@operation(
    "model.keep_by_id",
    discloses="control",
    about="acknowledgement: the predictions stay with the label holder, in a file of its own",
    learns="the prediction of each row, by its id",
    role="active",
    times="1 a session",
)
def keep_by_id(party: Party, *, model: Annotated[str, AtMost(64)]) -> None:
    """The same into this site's model folder, as ``PARTY.MODEL.predictions.csv``: of two classes the second's."""
    told, classes = _by_id(party), party.held(Predicted).classes
    file = part_file(party, model).with_suffix(".predictions.csv")
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(".half")
    half.unlink(missing_ok=True)
    with open(half, "w", encoding="utf-8", newline="", opener=private) as out:
        writer = csv.writer(out)
        first = 1 if len(classes) == 2 else 0
        writer.writerow(["id", *(classes[first:] or ("prediction",))])
        writer.writerows([name, *map(repr, row[first:])] for name, row in zip(told["ids"], told["values"].tolist()))
    half.replace(file)


def _by_id(party: Party) -> dict[str, Any]:
    """In the order of this site's own table: alignment has put rows into an order that nobody knows."""
    predicted = party.held_here(Predicted)
    order = np.argsort(party.row_numbers, kind="stable")
    values = predicted.probabilities() if predicted.classes else predicted.scores
    return {"ids": [str(name) for name in party.table.ids[order]], "values": values[order].astype(np.float64)}


@operation("model.write_part", discloses="control", about="acknowledgement", times="1 a session")
def write_part(party: Party, *, model: str) -> None:
    part: Any = party.models.part(model, object)
    if type(part).__name__ not in _kinds:
        raise DataError(f"party {party.name!r}: a {type(part).__name__} cannot be written to a file")
    told = {"kind": type(part).__name__, "party": party.name, "model": model, "job": job_of(party, model)}
    body, file = encode({**told, "part": part.to_plain()}), part_file(party, model)
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(".half")
    half.unlink(missing_ok=True)
    with open(half, "wb", opener=private) as out:
        out.write(body)
    half.replace(file)


@operation("model.read_part", discloses="control", about="acknowledgement", times="1 a session")
def read_part(party: Party, *, model: str, job: JobHash) -> None:
    file = part_file(party, model)
    try:
        content = decode(file.read_bytes())
        kind, owner, part = _kinds[content["kind"]], (content["party"], content["model"]), content["part"]
        found = content["job"]
    except FileNotFoundError:
        raise DataError(f"party {party.name!r} has no file {file.name!r} in its model folder") from None
    except (MessageError, KeyError, TypeError):
        raise DataError(f"party {party.name!r}: {file.name!r} is not a model file of this version") from None
    if owner != (party.name, model):
        raise DataError(f"party {party.name!r}: {file.name!r} is the file of another party or model")
    check_job(party, model, file, found, job)
    party.models.keep(model, kind.from_plain(part))


def job_of(party: Party, model: str) -> str:
    """The hash of the job that this part is of: the one that was accepted when it was first written."""
    return party.models.jobs.setdefault(model, party.job.hash.hex())


def check_job(party: Party, model: str, file: Path, found: object, wanted: str) -> None:
    """Refuse a part of another job than the rest of the model: it was trained on other terms, or with others."""
    if not isinstance(found, str) or found != wanted:
        of = f"the job {found[:16]}" if isinstance(found, str) and found else "an earlier version of fedsift"
        raise DataError(
            f"party {party.name!r}: {file.name!r} is of {of}, and the model of the job {wanted[:16] or 'of no name'}: "
            "take the parts of one training, or train anew"
        )
    party.models.jobs[model] = found


def part_file(party: Party, model: str) -> Path:
    """Where this site has the file of a model: in the folder of its own choice."""
    if party.models.folder is None:
        raise ParameterError(f"party {party.name!r} has chosen no folder for models: set site.models.folder there")
    if not re.fullmatch(r"[A-Za-z0-9_-]{4,64}", model):
        raise ParameterError(f"{model!r} is not the name of a model")
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", party.name)
    return party.models.folder / f"{safe}.{model}.part"


@operation("model.forget", discloses="control", about="acknowledgement", times="1 a session")
def forget_part(party: Party, *, model: str) -> None:
    """Free this site's part of a model."""
    free(party.site, model)


def free(site: Site, model: str) -> None:
    site.models.forget(model)


#: Of a prediction at the sites that keep a model: its part, leave to read scores, and what becomes of them.
KEPT: tuple[Operation, ...] = (read_part, *predicted.OPERATIONS, keep_by_id)
OPERATIONS: tuple[Operation, ...] = (
    class_names, label_kind, score_rows, measure_rows, performance_rows, tell_by_id, keep_by_id, score_sums.masked,
    *secure_sum.OPERATIONS, *predicted.OPERATIONS, write_part, read_part, forget_part,
)  # fmt: skip


# --- simulated sites ------------------------------------------------------------------------------------------------


def same_organisations(source: Federation | None, target: Federation, model: str) -> None:
    """Simulated sites only: a site of the same name is the same organisation with new rows, and knows its own part.

    A deployed site keeps its parts from run to run anyway. The one place where anything passes between simulated sites.
    """
    before = {} if source is None else source.simulated
    for name, site in target.simulated.items():
        if name in before and before[name] is not site:
            site.models.share(before[name].models, model)


def free_all(sites: list[weakref.ref[Site]], model: str) -> None:
    for reference in sites:
        site = reference()
        if site is not None:
            free(site, model)


def choose_folder(fed: Federation, folder: str | Path) -> None:
    """For simulated sites: set each one's model folder. A deployed site has set its own."""
    for site in fed.simulated.values():
        site.models.folder = Path(folder)
