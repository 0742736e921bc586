"""What a job does beside selecting columns, rehearsed on its own: training the model that it names, and scoring it.

``fedsift train`` puts three jobs to the parties: the selection, the model on the selected columns, and an evaluation of
both on held-out rows. Each is recorded by itself, so that an attack reads the job that it is about; of the evaluation,
which fits both once more on fewer rows, only those messages are attacked that the others do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sklearn.base import clone

from fedsift.audit.cast import Cast
from fedsift.audit.recording import Recording
from fedsift.core.federation import Federation
from fedsift.core.job import Job as Contract
from fedsift.core.party import read_labels
from fedsift.core.table import Table
from fedsift.evaluate.evaluation import evaluate
from fedsift.jobs.job_file import Job
from fedsift.jobs.training import SPLIT
from fedsift.models.base import FederatedModel
from fedsift.mpc import psi
from fedsift.select.base import Selector

TRAINING, SCORING = "training", "scoring"  # of the model


@dataclass(frozen=True)
class Stage:
    """A conversation beside the selection, with whom it is had, and the columns that take part."""

    name: str
    cast: Cast
    conversation: Callable[[Federation], Any]


def stages(job: Job, cast: Cast, selector: Selector) -> Iterator[Stage]:
    """``selector`` is the fitted one: the model is trained on what it kept."""
    section = job.settings.model
    if section is None or cast.active is None:
        return
    label, task = cast.tables[cast.active].label, job.settings.federation.task
    assert label is not None
    model = section.make(read_labels(label, cast.active, task=task).task)
    yield Stage(TRAINING, _kept(cast, selector), _trained(clone(model)))
    yield Stage(SCORING, cast, lambda fed: evaluate(fed, clone(selector), model=model, cv=SPLIT, nulls=False))


def _trained(model: FederatedModel) -> Callable[[Federation], FederatedModel]:
    def conversation(fed: Federation) -> FederatedModel:
        model.fit(fed)
        model.predict(fed)
        return model

    return conversation


def _kept(cast: Cast, selector: Selector) -> Cast:
    """The same with the selected columns alone; where columns are engineered, with all."""
    selected = selector.selection_.selected
    if selector.selection_.engineered:
        return cast

    def part(name: str, table: Table) -> Table:
        wanted = set(selected[name])
        return table.select([column for column in table.columns if column in wanted])

    def parts(tables: Mapping[str, Table]) -> dict[str, Table]:
        return {name: part(name, table) for name, table in tables.items()}

    return replace(cast, tables=parts(cast.tables), fresh=None if cast.fresh is None else parts(cast.fresh))


#: The rows are matched once; the selection's recording has it.
ALIGNMENT = frozenset(marked.id for marked in psi.OPERATIONS)


def jobs_put(seen: Recording, party: str | None) -> list[tuple[str, dict[str, Any]]]:
    """The jobs that were put to this party (to the first, where all are here): method and parameters."""
    name = party or next(iter(view.name for view in seen.views.values() if view.table is not None))
    told = [Contract.read(message.content["job"], name) for message in seen[name].requests("begin_job")]
    return [(each.method, dict(each.parameters)) for each in told if each.method != psi.JOB]
