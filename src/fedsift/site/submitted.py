"""What a submitted job may put to a site: its method, and what scoring that method takes. A site runs no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsift.core.files import plain
from fedsift.errors import JobError, ParameterError
from fedsift.evaluate import announced
from fedsift.evaluate.joint import jobs_within
from fedsift.jobs.job_evaluate import EvaluateSection
from fedsift.jobs.job_file import Job
from fedsift.jobs.job_model import ModelSection
from fedsift.jobs.training import jobs_within_training
from fedsift.methods import METHODS
from fedsift.select.base import Selector

Announcement = tuple[str, dict[str, Any]]  # name and parameters


def read_submitted(job: Job | Mapping[str, Any]) -> tuple[list[str], list[Announcement]]:
    """The parties, and the jobs with all their parameters: the submitted one first, then those of its evaluation."""
    if isinstance(job, Job):
        parties, section = list(job.settings.parties), job.settings.evaluate
        name, given = job.selector().announcement()
    else:
        method = dict(job["method"])
        parties, name, given = list(job["parties"]), str(method.pop("name")), method
        section = _section(job.get("evaluate"))
    known = announced.find_job(name)
    jobs = [(name, {**(known().announcement()[1] if known is not None else {}), **plain(given)})]
    jobs = _with_inner(name, given) or jobs
    if section is not None and not section.pooled and name in METHODS:
        jobs += jobs_within(
            METHODS[name](), section.model, section.cv, section.seed, section.nulls, section.next_column
        )
    if not isinstance(job, Job) and job.get("work") == "train" and name in METHODS:
        jobs += jobs_within_training(METHODS[name](), _model(job.get("model")))
    return parties, jobs


def purpose_of(job: Job | Mapping[str, object]) -> str:
    """What the submitted job is for alone (``Job.purpose``); empty where it says nothing."""
    return "" if isinstance(job, Job) else str(job.get("purpose", ""))


def _with_inner(name: str, given: Mapping[str, object]) -> list[Announcement]:
    """A method that fits another one: its own job, which tells that one's parameters, and the inner jobs."""
    if name not in METHODS or METHODS[name].jobs_within is Selector.jobs_within:
        return []
    try:
        selector = METHODS[name](**given)
        return [selector.announcement(), *selector.jobs_within()]
    except (TypeError, ParameterError):
        raise JobError(f"the submitted job's parameters are none of {name!r}") from None


def _model(told: object) -> ModelSection:
    try:
        return ModelSection.model_validate(told)
    except ValueError:
        raise JobError("the submitted job's table [model] is not valid") from None


def _section(told: object) -> EvaluateSection | None:
    try:
        return None if told is None else EvaluateSection.model_validate(told)
    except ValueError:
        raise JobError("the submitted job's table [evaluate] is not valid") from None
