"""``train``, ``predict`` and ``explain`` between machines: what is submitted, and what the coordinator does with it.

Every party writes its part of the model into the folder ``models`` beside its own party.toml, and reads it from there
when rows are predicted; a part never travels. Predictions stay with the label holder, in a file there. Whoever
submitted gets the model card, the selection and ``model.json`` (what the coordinator knows), of predictions only how
many there are, and of an explanation what every explanation tells: figures of columns and of groups of rows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedsift.core.checks import check_number
from fedsift.core.federation import Federation
from fedsift.core.files import write_atomic
from fedsift.core.job import PREDICTIONS
from fedsift.deploy.flare_job import FORMAT, VERSION, Asked, Content, PartyFacts, public_job
from fedsift.errors import DataError, FedsiftError, ParameterError
from fedsift.jobs import runs, training
from fedsift.jobs.card import ModelCard, read_card
from fedsift.jobs.job_file import FederationSection, Job
from fedsift.jobs.job_model import ModelSection
from fedsift.methods import MODELS
from fedsift.models.base import FederatedModel
from fedsift.report.explain import Explained

TRAIN, PREDICT, EXPLAIN = "train", "predict", "explain"
MODEL_FILE, PREDICTED, EXPLAINED = "model.json", "predicted.json", "explained.json"
MOST_GROUPINGS = 20
PARTS = "models"  # the folder of a site's own parts, beside its party.toml


def train_content(job: Job) -> Content:
    """What is submitted to train: the job and its table [model]."""
    section = job.settings.model or ModelSection()
    return {**public_job(job), "evaluate": None, "work": TRAIN, "model": section.model_dump(), "resume": False}


def predict_content(folder: Path) -> Content:
    """What is submitted to predict: the model's name and parameters, and what the coordinator knows of it."""
    card = read_card(folder)
    known = json.loads((folder / MODEL_FILE).read_text(encoding="utf-8"))
    kind = model_class(card.kind)
    made = kind(**{name: None if value == "none" else value for name, value in card.parameters.items()})
    name, parameters = made.announcement()
    parties: dict[str, PartyFacts] = {
        party: {"id": facts.id is not None, "label": party == card.label_holder, "grid": None}
        for party, facts in card.data.items()
    }
    return {
        "format": FORMAT, "version": VERSION, "name": "predict", "method": {"name": name, **parameters},
        "evaluate": None, "federation": {**FederationSection().model_dump(), "task": card.task, "min_overlap": 1},
        "parties": parties, "work": PREDICT, "known": known, "resume": False,
        "columns": {party: facts.columns for party, facts in card.data.items()},
        "purpose": PREDICTIONS if predicts_each(kind, made.get_params()) else "",
    }  # fmt: skip


def explain_content(folder: Path, repeats: int, by: Sequence[str]) -> Content:
    """What is submitted to explain: the same, and what is asked of the model."""
    asked: Asked = {"repeats": repeats, "by": list(by)}
    return {**predict_content(folder), "name": EXPLAIN, "work": EXPLAIN, "asked": asked, "purpose": ""}


def predicts_each(kind: type[FederatedModel], parameters: Mapping[str, object]) -> bool:
    """Whether a job may be for this model's predictions alone, and so be about few rows."""
    return bool(kind.predicting) and parameters.get("protection") not in ("open", "lattice")


def model_class(name: str) -> type[FederatedModel]:
    found = next((kind for kind in MODELS.values() if kind.__name__ == name), None)
    if found is None:
        raise DataError(f"this fedsift has no model {name!r}")
    return found


# --- at the coordinator ----------------------------------------------------------------------------------------------


def train(run: runs.Run, folder: Path) -> None:
    """Select, score and train; the parties keep their parts, ``folder`` gets what the submitter is to have."""
    trained = training.train_run(run)
    folder.mkdir()
    trained.model.save(folder)
    training.write_card(trained, folder)


def predict(content: Content, fed: Federation, folder: Path, scratch: Path) -> None:
    """Predict rows that all parties have now; the label holder keeps the predictions."""
    model, view = _at_hand(content, fed, scratch)
    model.predict_by_id(view, to="label holder")
    folder.mkdir()
    write_atomic(folder / PREDICTED, json.dumps({"rows": view.n_rows, "model": model.model_id_}) + "\n")


def explain(content: Content, fed: Federation, folder: Path, scratch: Path) -> None:
    """Which columns the model goes by on rows that all parties have now, and how it does where they have labels."""
    repeats, by = content["asked"]["repeats"], content["asked"]["by"]
    check_number("repeats", repeats, 1, 100, whole=True)
    if not isinstance(by, list) or len(by) > MOST_GROUPINGS or not all(isinstance(name, str) for name in by):
        raise ParameterError(f"by names at most {MOST_GROUPINGS} columns of the label holder's")
    model, view = _at_hand(content, fed, scratch)
    told = training.explained_on(model, view, repeats, by)
    folder.mkdir()
    write_atomic(folder / EXPLAINED, json.dumps(told.to_dict(), allow_nan=False) + "\n")


def _at_hand(content: Content, fed: Federation, scratch: Path) -> tuple[FederatedModel, Federation]:
    """The model, of which each party reads its part, and the columns that it uses."""
    scratch.mkdir(exist_ok=True)
    write_atomic(scratch / MODEL_FILE, json.dumps(content["known"]))
    names, wanted = fed.column_names(), content["columns"]
    places = {}
    for party, columns in wanted.items():
        missing = next((column for column in columns if column not in names.get(party, ())), None)
        if missing is not None:
            raise DataError(f"party {party!r} lacks the column {missing!r} that the model uses")
        places[party] = sorted(names[party].index(column) for column in columns)
    told = dict(content["method"])
    with fed.session(str(told.pop("name")), told) as accepted:
        defined = accepted.view(columns=places)
    view = fed.named_view(defined._view)  # it outlives the session
    return model_class(str(content["known"]["class"])).load(scratch, view), view


# --- where all parties are on this machine ---------------------------------------------------------------------------


def parts_of(site: Path) -> Path:
    """The folder of a site's parts, from that of a job's results there."""
    return site.parent.parent / PARTS


def take_model(job: Job, result: Path, out: Path, sites: Mapping[str, Path]) -> ModelCard:
    """The model folder of the submitter; where the parties are played here, with their parts.

    What columns of ids and labels are called does not travel: the card gets it from the submitter's own job file.
    """
    training.check_model_folder(out)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(result, out)
    for site in sites.values():
        for part in sorted(parts_of(site).glob("*")):
            shutil.copy(part, out / part.name)
    card = read_card(out)
    own = job.settings.parties
    data = {
        name: replace(each, id=own[name].id, categorical=list(own[name].categorical))
        for name, each in card.data.items()
    }
    card = replace(card, data=data, label=own[card.label_holder].label)
    card.save(out)
    return card


def take_predictions(result: Path, holder: str, sites: Mapping[str, Path]) -> tuple[int, str | None]:
    """How many rows were predicted, and the predictions where the label holder is played here."""
    try:
        told = json.loads((result / PREDICTED).read_text(encoding="utf-8"))
        rows, model = int(told["rows"]), str(told["model"])
    except (OSError, ValueError, KeyError, TypeError):
        raise FedsiftError(f"the job left no readable {PREDICTED}: see the server's log") from None
    if holder not in sites:
        return rows, None
    found = list(parts_of(sites[holder]).glob(f"*.{model}.predictions.csv"))
    return rows, found[0].read_text(encoding="utf-8") if found else None


def take_explanation(result: Path) -> Explained:
    """What was told of the model."""
    try:
        return Explained.from_dict(json.loads((result / EXPLAINED).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise FedsiftError(f"the job left no readable {EXPLAINED}: see the server's log") from None


def give_parts(parts: Path, name: str, folder: Path) -> None:
    """A party that is played here gets its part of a model into the folder of its site's parts."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts.glob(f"{name}.*.*"):
        shutil.copy(part, folder / part.name)
