"""Selection and joint model in one job, kept in a folder; predictions for new rows from that folder.

``train`` selects columns, scores the choice without pooling (one split, so that the card has an honest figure), trains
the model on all rows, and writes the model folder: each party's part, what the coordinator knows (``model.json``), the
selection, and a model card. ``predict`` aligns the parties' new files, which need no label, and gives the label holder
``{id: p}`` in the order of its own file. In a deployment every party keeps its part in its own folder.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.base import clone

from fedsift.core.encoding import source_of
from fedsift.core.federation import Federation
from fedsift.core.table import Table
from fedsift.errors import DataError, ParameterError
from fedsift.evaluate.evaluation import evaluate
from fedsift.evaluate.explaining import explain
from fedsift.evaluate.joint import jobs_within
from fedsift.jobs.card import CARD, ModelCard, model_card, read_card
from fedsift.jobs.job_file import Job
from fedsift.jobs.job_model import ModelSection
from fedsift.jobs.runs import Run, prepare
from fedsift.jobs.text import nearest
from fedsift.methods import MODELS
from fedsift.models.base import FederatedModel
from fedsift.models.parts import label_kind
from fedsift.report.explain import Explained
from fedsift.report.write import write_report
from fedsift.select.base import Selector

SPLIT = 0.7  # of the rows train, for the card's figures
Say = Callable[[str], None]


@dataclass
class Trained:
    """A model that the parties have trained on the selected columns."""

    run: Run
    model: FederatedModel
    card: ModelCard


def train(job: Job, say: Say = lambda text: None) -> Trained:
    """Select, score on held-out rows, and train on all rows."""
    return train_run(prepare(job, say), say)


def train_run(run: Run, say: Say = lambda text: None) -> Trained:
    """The same, where the parties are ready."""
    job, fed = run.job, run.fed
    section = job.settings.model or ModelSection()
    with fed.session(*run.selector.announcement()) as accepted:
        model = section.make(accepted.task)
    say("scoring selection and model on rows that they have not seen")
    with run.phase("evaluate"):
        run.evaluation = evaluate(fed, clone(run.selector), model=model, cv=SPLIT, nulls=False)
    say(f"selecting by {job.method}")
    with run.phase("select"), fed.session(*run.selector.announcement()) as accepted:
        run.selector.fit(accepted)
        chosen = run.selector.transform(accepted)
    say(f"training {type(model).__name__}")
    with run.phase("train"):
        model.fit(fed.named_view(chosen._view))  # the view outlives the session in which it was defined
    return Trained(run, model, model_card(run, model))


def write_model(trained: Trained, folder: Path) -> Path:
    """The model folder: parts, model.json, selection.json, card.json and card.md."""
    check_model_folder(folder)
    for old in folder.glob("*.*.*") if folder.is_dir() else ():  # parts: PARTY.MODEL.part (or .json)
        old.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    trained.model.save(folder)
    write_card(trained, folder)
    return folder


def write_card(trained: Trained, folder: Path) -> None:
    """The selection with its report, and the model card."""
    write_report(trained.run.record(), folder / "report.html")
    trained.run.selection.save(folder / "selection.json")
    trained.card.save(folder)


def jobs_within_training(selector: Selector, section: ModelSection) -> list[tuple[str, dict[str, object]]]:
    """The jobs beside the selector's own that a training puts to the parties, for classes or a number.

    Which it is turns out later; parameters may fit a model of one of them only.
    """
    found: list[tuple[str, dict[str, object]]] = []
    for task in ("classification", "regression"):
        with suppress(ParameterError):
            found += jobs_within(selector, section.make(task), SPLIT, 0, nulls=False)
    return found


def check_model_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier model. Called before the work, so that none is lost."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / CARD).is_file())):
        raise ParameterError(f"{folder} is not empty and no model folder; give another one (--out DIR)")


# --- new rows ---------------------------------------------------------------------------------------------------------


def predict(folder: Path, files: Mapping[str, Path], say: Say = lambda text: None) -> dict[str, Any]:
    """``{id: p}`` of the rows that all parties' new files share, in the order of the label holder's file."""
    model, fed = _with_new_rows(folder, files, say)
    say(f"predicting {fed.n_rows:,} rows")
    return model.predict_by_id(fed)


def explained(
    folder: Path, files: Mapping[str, Path], repeats: int, say: Say = lambda text: None, by: Sequence[str] = ()
) -> Explained:
    """Which columns the model goes by, on these rows; with labels in the label holder's file also how it does.

    ``by`` names columns of the label holder's by which its rows are grouped.
    """
    card = read_card(folder)
    check_parties(card, files)
    labelled = check_label(card, files, by)
    model, fed = _with_new_rows(folder, files, say, labelled=labelled, also=by)
    say(f"explaining the model on {fed.n_rows:,} rows")
    return explained_on(model, fed, repeats, by, labelled=labelled)


def explained_on(
    model: FederatedModel, fed: Federation, repeats: int, by: Sequence[str] = (), *, labelled: bool | None = None
) -> Explained:
    """The same for a model at hand. ``labelled``: whether the rows have labels; the label holder is asked if unsaid."""
    told, name = explain(fed, model, repeats=repeats), type(model).__name__
    if model.task_ == "regression" or len(model.classes_) != 2 or labelled is False:
        return Explained(name, fed.n_rows, told)
    if labelled is None and not _labelled(fed, model):
        return Explained(name, fed.n_rows, told)
    grouped = {column: model.performance(fed, by=column) for column in by}
    return Explained(name, fed.n_rows, told, model.performance(fed), grouped)


def _labelled(fed: Federation, model: FederatedModel) -> bool:
    with model._run(fed) as run:
        try:
            run.ask(label_kind, to=run.active)
        except DataError:
            return False
    return True


def has_label(card: ModelCard, files: Mapping[str, Path]) -> bool:
    """Whether the label holder's new file has the label; no where the file is not here."""
    holder = card.label_holder
    if holder not in files:
        return False
    form = card.data[holder].form_of(files[holder], [])
    return card.label in Table.look(files[holder], holder, form)[0].columns


def check_label(card: ModelCard, files: Mapping[str, Path], by: Sequence[str] = ()) -> bool:
    """Whether there are labels; refused where an explanation needs them. Boosted trees are explained without."""
    labelled, holder = has_label(card, files), card.label_holder
    if not labelled and (by or not card.kind.startswith("SecureBoost")):
        raise DataError(
            f"party {holder!r}: the file has no label {card.label!r}. Which columns a {card.kind} goes by, and "
            "how groups of rows fare, is measured on rows with labels: give such rows to fedsift explain"
        )
    return labelled


def check_parties(card: ModelCard, files: Mapping[str, Path], *, here: bool = True) -> None:
    """Refuse a file of somebody who is no party of the model; where all parties play here, a party without one too."""
    for name in files:
        if name not in card.data:
            raise ParameterError(f"the model has no party {name!r}{nearest(name, list(card.data))}")
    for name in card.data if here else ():
        if name not in files:
            raise DataError(f"the model needs a file of the party {name!r}, which has left: {name}=FILE, or train anew")
        if not files[name].is_file():
            raise DataError(f"party {name!r}: there is no file {str(files[name])!r}")


def _with_new_rows(
    folder: Path, files: Mapping[str, Path], say: Say, *, labelled: bool = False, also: Sequence[str] = ()
) -> tuple[FederatedModel, Federation]:
    """The model again, and the rows that all parties' new files share."""
    card = read_card(folder)
    tables = new_tables(card, files, labelled=labelled, also=also)
    ids: dict[str, Any] = {name: facts.id for name, facts in card.data.items()}
    label = (card.label_holder, card.label if labelled else None)
    say("aligning the parties by private set intersection")
    fed = Federation.from_tables(tables, id=ids, label=label, task=card.task, min_overlap=1)
    kind = next((model for model in MODELS.values() if model.__name__ == card.kind), None)
    if kind is None:
        raise DataError(f"{folder}: this fedsift has no model {card.kind!r}")
    used = {name: [tables[name].columns.index(c) for c in facts.columns] for name, facts in card.data.items()}
    if any(len(tables[name].columns) != len(places) for name, places in used.items()):
        fed = fed.view(columns=used)
    return kind.load(folder, fed), fed


def new_tables(
    card: ModelCard, files: Mapping[str, Path], *, labelled: bool = False, also: Sequence[str] = ()
) -> dict[str, Table]:
    """Each party's new rows, with the columns of the model; what is missing is named with its party.

    A party of which no column was chosen still says which rows it shares: any columns will do. ``labelled``: the label
    holder's rows come with their label; ``also``: and with these columns, which the model need not use.
    """
    check_parties(card, files)
    data, tables = card.data, {}
    for name, facts in data.items():
        label = card.label if labelled and name == card.label_holder else None
        wanted = list(dict.fromkeys([*facts.columns, *(() if name != card.label_holder else also)]))
        form = facts.form_of(files[name], wanted)
        codes = [column for column in facts.codes if source_of(column) is None]
        table = Table.read(
            files[name], id=facts.id, label=label, columns=wanted or None, categorical=codes, name=name, form=form
        )
        _check_kinds(name, table, facts.kinds)
        tables[name] = table
    return tables


def _check_kinds(party: str, table: Table, kinds: Mapping[str, str]) -> None:
    """A column of numbers must still be one."""
    for column, kind in kinds.items():
        now = "categorical" if table.kinds[column] == "categorical" else "numeric"
        if now != kind:
            words = {"categorical": "text", "numeric": "numbers"}
            raise DataError(
                f"party {party!r}: the column {column!r} is {words[now]} now and was {words[kind]} in training"
            )


def predictions_table(predictions: Mapping[str, Any], classes: list[str]) -> str:
    """As CSV: ``id`` and the prediction, or a column a class where there are more than two."""
    several, text = len(classes) > 2, io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", *classes] if several else ["id", classes[1] if classes else "prediction"])
    for who, value in predictions.items():
        writer.writerow([who, *(map(repr, value.values()) if several else [repr(value)])])
    return text.getvalue()
