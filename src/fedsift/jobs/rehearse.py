"""What a job asks for beside its method, looked at before the work: scores, model, rules, prices, packages.

``fedsift check`` promises that a job is ready to run; a run that lasts an hour does not end with a typing error in a
table that comes last.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fedsift.core.federation import Federation
from fedsift.core.wanted import suggest
from fedsift.errors import JobError, MissingExtra, ParameterError
from fedsift.evaluate.evaluation import check_evaluation
from fedsift.jobs.job_file import Job
from fedsift.jobs.text import Key
from fedsift.select.base import Selector


def rehearse(job: Job, selector: Selector, fed: Federation) -> None:
    """Say with the line of the job file what a run would stumble over later."""
    if job.column_prices and fed.names == "shared":
        _check_prices(job, fed.column_names())
    if selector.rules is not None:
        with _at(job, ("rules",)):
            selector.rules.check([(party, column) for party, names in fed.column_names().items() for column in names])
    if (section := job.settings.evaluate) is not None:
        with _at(job, ("evaluate",)):
            check_evaluation(fed, section.model, section.cv, pooled=section.pooled, next_column=section.next_column)
    if (model := job.settings.model) is not None:
        with _at(job, ("model",)):
            model.make(fed.task)._check(fed)
    if job.experiment is not None and importlib.util.find_spec("mlflow") is None:
        raise MissingExtra("mlflow", "mlflow")


def _check_prices(job: Job, names: Mapping[str, list[str]]) -> None:
    for party, section in job.settings.parties.items():
        for column in section.prices:
            if column not in names[party]:
                what = f"no column {column!r} of {party!r} takes part. {suggest(column, names[party])}"
                raise job.source.error(("parties", party, "prices"), what)


@contextmanager
def _at(job: Job, key: Key) -> Iterator[None]:
    """A complaint about parameters with the table of the job file that it is about."""
    try:
        yield
    except JobError:
        raise
    except ParameterError as error:
        told = str(error).removeprefix(f"[{key[0]}]: ")
        raise JobError(f"{job.source.where(key)}: {key[0]}: {told}") from None
