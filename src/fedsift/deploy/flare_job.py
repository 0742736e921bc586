"""A fedsift job as a FLARE job folder: which components to build, and the job's own words. No code, no data, no paths.

What travels: the method with its parameters, the settings of the federation, and who holds the label. Where a party's
data lie is not in it; each site knows that itself. The folder has no ``custom`` part, so FLARE treats the job as one
without code of its own, and each site builds only the classes on its own list (``CLASSES``).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, cast

from fedsift.errors import JobError, ParameterError
from fedsift.evaluate.value_holder import ValueJob
from fedsift.jobs.job_file import Job, JobFile
from fedsift.statistics.job import StatisticsJob

FILE = "fedsift_job.json"
PARTY_FILE = "party.toml"  # at a site: its data and its policy
FORMAT = "fedsift-job"
VERSION = 1
#: All that a site has to allow; the first two are FLARE's own, without which no collab job runs.
CLASSES = (
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
    "fedsift.deploy.coordinator.Coordinator",
    "fedsift.deploy.party_app.PartyApp",
)
#: Seconds that sites have to read their data before the first request.
_START = 600
#: Seconds after which FLARE gives up a party whose process is gone (its default is 60).
_GRACE = 20.0


class PartyFacts(TypedDict, total=False):
    """What everybody gets to know of a party."""

    id: bool
    label: bool
    grid: list[int] | None
    price: float | None
    prices: dict[str, float]


class Told(TypedDict):
    """The least that a job says."""

    method: dict[str, object]
    federation: dict[str, object]
    parties: dict[str, PartyFacts]


class Content(Told, total=False):
    """A job as it is submitted; what stands last only some have, for their ``work`` (``model_jobs.py``)."""

    format: str
    version: int
    name: str
    evaluate: dict[str, object] | None
    rules: dict[str, object] | None
    design: dict[str, object] | None
    model: dict[str, object]
    resume: bool
    work: str
    purpose: str
    known: dict[str, object]
    columns: dict[str, list[str]]
    asked: Asked


class Asked(TypedDict):
    """What is asked of a model."""

    repeats: int
    by: list[str]


def public_job(job: Job, work: ValueJob | StatisticsJob | None = None) -> Content:
    """What the coordinator and the parties get to know of a job file; ``work`` takes the place of its method."""
    for name in job.settings.parties:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) or name == "server":
            raise JobError(
                f"{job.source.where(('parties', name))}: on FLARE a party's name has letters, digits, '-', '_' and '.' "
                f"only (it is the name in its certificate), and is not 'server'; got {name!r}"
            )
    parameters = {key: value for key, value in job.parameters.items() if key != "checkpoint"}
    method = {"name": job.method, **parameters} if work is None else {"name": work.name, **work.get_params()}
    evaluate = job.settings.evaluate if work is None else None
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": re.sub(r"[^A-Za-z0-9_-]", "-", job.path.stem) or "job",  # as FLARE takes it
        "method": method,
        "evaluate": None if evaluate is None or unscored(job) else evaluate.model_dump(),
        "federation": job.settings.federation.model_dump(),
        "rules": None if job.settings.rules is None else job.settings.rules.model_dump(),
        "design": None if job.settings.design is None else job.settings.design.model_dump(),
        "parties": {
            name: {
                "id": party.id is not None,
                "label": party.label is not None,
                "grid": party.grid,
                **_prices(job, name),
            }
            for name, party in job.settings.parties.items()
        },
    }


def _prices(job: Job, party: str) -> PartyFacts:
    """What the party and its columns cost, where a budget asks for it; whoever gets the job can read it."""
    rules, section = job.settings.rules, job.settings.parties[party]
    return {} if rules is None or rules.budget is None else {"price": section.price, "prices": dict(section.prices)}


def unscored(job: Job) -> str:
    """Why the job's evaluation cannot be done between machines; empty if it can."""
    if job.settings.evaluate is None:
        return ""
    if job.settings.evaluate.pooled:
        return "pooled = true needs all columns in one place"
    if job.settings.federation.partition != "vertical":
        return "joint models are scored for vertical parties"
    return ""


def write_job(content: Content, folder: Path, classes: Sequence[str] = CLASSES) -> Path:
    """The FLARE job folder. Sites build ``classes`` only where their own lists have them."""
    controller, executor, coordinator, party = classes
    parties = list(content["parties"])
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    meta = {
        "name": folder.name,
        "resource_spec": {},
        "min_clients": len(parties),
        "mandatory_clients": parties,
        "deploy_map": {"app": ["server", *parties]},
    }
    arguments = {"server_obj_id": "_server", "sync_task_timeout": _START}
    server = {
        "format_version": 2,
        "dead_client_grace_period": _GRACE,
        "workflows": [{"id": "controller", "path": controller, "args": arguments}],
        "components": [{"id": "_server", "path": coordinator, "args": {}}],
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": {"path": executor, "args": {"client_obj_id": "_client"}}}],
        "components": [{"id": "_client", "path": party, "args": {}}],
    }
    for path, value in (
        (folder / "meta.json", meta),
        (config / "config_fed_server.json", server),
        (config / "config_fed_client.json", client),
        (config / FILE, content),
    ):
        path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return folder


def read_job(config: Path) -> Content:
    """The job that came with a FLARE job folder, checked for its shape."""
    try:
        content = json.loads((config / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise JobError(f"the FLARE job holds no readable {FILE}: submit it with `fedsift run --on flare`") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") != VERSION:
        raise JobError(f"{FILE} is of another fedsift: use the same release everywhere")
    method, parties = content.get("method"), content.get("parties")
    if not isinstance(method, dict) or not isinstance(method.get("name"), str) or not isinstance(parties, dict):
        raise JobError(f"{FILE} lacks the method or the parties")
    return cast(Content, content)


def quiet_calls() -> None:
    """FLARE writes several lines into four logs for each call; a job makes thousands, which the ledger lists anyway."""
    logging.getLogger("nvflare.collab").setLevel(logging.WARNING)


def settings_of(content: Content) -> JobFile:
    """The job's settings as a job file would give them; the column names of ids and labels stay with the sites."""
    parties = {
        name: {
            "id": "id" if party["id"] else None,
            "label": "label" if party["label"] else None,
            "grid": party.get("grid"),
            "price": party.get("price"),
            "prices": party.get("prices") or {},
        }
        for name, party in content["parties"].items()
    }
    try:
        return JobFile.model_validate(
            {
                "parties": parties,
                "method": content["method"],
                "federation": content["federation"],
                "evaluate": content.get("evaluate"),
                "model": content.get("model"),
                "rules": content.get("rules"),
                "design": content.get("design"),
            }
        )
    except ValueError as error:
        raise ParameterError(f"{FILE} does not hold a valid job: {str(error).splitlines()[0]}") from None
