"""Results, figures and pages to MLflow, by one option: ``mlflow = "EXPERIMENT"`` under ``[output]`` of the job file.

Where the experiments are kept is MLflow's own setting (``MLFLOW_TRACKING_URI``). What goes there is what whoever runs
the job has anyway: parameters, figures, the report, the selection, the ledger, the model card. A party's own files (its
part of a model, its copy of the selection) are never sent.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsift.core.files import plain
from fedsift.errors import MissingExtra
from fedsift.evaluate.worth import Valuation
from fedsift.jobs.card import ModelCard
from fedsift.jobs.job_file import Job
from fedsift.version import VERSION

_RUN_FILES = ("report.html", "run.json", "selection.json", "scores.csv", "ledger.csv", "evaluation.csv")
_MODEL_FILES = ("card.md", "card.json", "selection.json")


def check_tracking(job: Job) -> None:
    """Before the work: the package is there if the job asks for it."""
    if job.experiment is not None:
        _client()


def track_run(job: Job, facts: Mapping[str, Any], folder: Path) -> None:
    """A selection, from what ``run.json`` says and the files of its folder."""
    figures = {"columns": sum(map(len, facts["selected"].values())), "bytes": facts["bytes"], "rounds": facts["rounds"]}
    figures |= {f"seconds_{phase}": value for phase, value in facts["seconds"].items()}
    for line in facts["evaluation"] or ():
        name = "" if not line["null"] else f"{line['method']}."
        skipped = ("method", "null", "n_features", "seconds", "bytes", "rounds")
        figures |= {f"{name}{key}": value for key, value in line.items() if key not in skipped}
    told = {"method": facts["method"], **facts["parameters"], "rows": facts["rows"], "partition": facts["partition"]}
    _log(job, "run", told, figures, {"job_hash": facts["hash"]}, [folder / name for name in _RUN_FILES])


def track_model(job: Job, card: ModelCard, folder: Path) -> None:
    """A trained model, from its card; its parts stay with their parties."""
    told = {"model": card.kind, "method": card.method, **card.parameters, "rows": card.rows}
    figures = {**card.metrics, "bytes": card.bytes}
    _log(job, "train", told, figures, {"job_hash": card.job_hash}, [folder / name for name in _MODEL_FILES])


def track_value(job: Job, found: Valuation, page: Path | None) -> None:
    """What partners are worth."""
    figures: dict[str, Any] = {name.replace(",", " and"): score for name, score in found.scores.items()}
    for line in found.lines:
        figures |= {f"{line.partner} adds": line.adds.mean, f"{line.partner} adds at least": line.adds.low}
    told = {"metric": found.metric, **found.settings}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "value.json"
        file.write_text(json.dumps(plain(found.to_dict()), indent=1) + "\n", encoding="utf-8")
        _log(job, "value", told, {**figures, "bytes": found.bytes}, {}, [file, *([] if page is None else [page])])


def _client() -> Any:
    try:
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise MissingExtra("mlflow", "mlflow") from None
    return MlflowClient()


def _log(
    job: Job, what: str, parameters: Mapping[str, Any], figures: Mapping[str, Any], tags: Mapping[str, str],
    files: Sequence[Path],
) -> None:  # fmt: skip
    """One MLflow run in the job's experiment; nothing where the job names none."""
    if job.experiment is None:
        return
    client = _client()
    known = client.get_experiment_by_name(job.experiment)
    experiment = known.experiment_id if known is not None else client.create_experiment(job.experiment)
    run = client.create_run(
        experiment, run_name=f"{job.path.stem} {what}", tags={"fedsift": VERSION, "fedsift_command": what, **tags}
    ).info.run_id
    for name, value in parameters.items():
        client.log_param(run, name, str(value)[:500])
    for name, value in figures.items():
        if isinstance(value, (int, float)) and math.isfinite(value):
            client.log_metric(run, name, float(value))
    for file in files:
        if file.is_file():
            client.log_artifact(run, str(file))
    client.set_terminated(run)
