"""Everything that may be put to a party as a job: methods, models on their own, and the work around them."""

from __future__ import annotations

from fedsift.core.operation import Operation
from fedsift.evaluate.holder import EvaluationJob
from fedsift.evaluate.value_holder import ValueJob
from fedsift.methods import METHODS, MODELS
from fedsift.models.base import FederatedModel
from fedsift.select.base import Selector
from fedsift.statistics.job import StatisticsJob

Work = type[EvaluationJob] | type[ValueJob] | type[StatisticsJob]
Announced = type[Selector] | type[FederatedModel] | Work

#: Work that is neither a method nor a model, by the name that its job has.
WORK: dict[str, Work] = {
    EvaluationJob.name: EvaluationJob,
    ValueJob.name: ValueJob,
    StatisticsJob.name: StatisticsJob,
}


def find_job(name: str) -> Announced | None:
    """The class that declares a job's parameters and operations; ``None`` for a name that nobody knows."""
    return METHODS.get(name) or MODELS.get(name) or WORK.get(name)


def job_names() -> list[str]:
    return sorted({*METHODS, *MODELS, *WORK})


def listed(name: str, purpose: str = "") -> tuple[Operation, ...]:
    """The operations that a job of this name may ask for; one for predictions alone, of what is no model, none."""
    found = find_job(name)
    if purpose:
        return found.predicting if found is not None and issubclass(found, FederatedModel) else ()
    return () if found is None else found.operations
