"""A rehearsal: what would a job disclose here? Played in this process on made-up rows, no real value in it.

A list of a method's disclosures that somebody keeps by hand is wrong one day. So the method is really run, with all its
parties, on random numbers in columns of the same kinds, and the party's own site judges every request by its policy
and writes it down in place of refusing it. What is judged is the code that would run.

From this party's data come the kinds of its columns and the number of classes of its label, nothing else; of the other
parties nothing is known, so each gets a few columns. Parameters that only say how long a method works are lowered, and
``min_cell`` (which 120 made-up rows could not meet) is judged as the job has it but not used; both are told.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedsift.core.federation import Federation
from fedsift.core.job import Job as Contract
from fedsift.core.job import Run
from fedsift.core.labels import is_amount
from fedsift.core.operation import Operation
from fedsift.core.party import Party, Site
from fedsift.core.table import Table
from fedsift.core.transports.inprocess import InProcess
from fedsift.errors import FedsiftError, ParameterError, PolicyRefused
from fedsift.jobs.job_design import design_of
from fedsift.jobs.job_file import Job
from fedsift.methods import Selector
from fedsift.mpc import psi
from fedsift.site.journal_rules import Asked
from fedsift.site.policy import Policy
from fedsift.site.site import PolicySite

_ROWS = 120
_COLUMNS = 12  # of this party, at most: more of the same kind show nothing new
_CLASSES = 4
#: Parameters that say how long a method works, with what is enough for every operation to be asked once.
_EFFORT = {
    "n_features": 3, "epochs": 2, "refit_epochs": 2, "pretrain_epochs": 1, "stage_epochs": 2, "batch_size": 60,
    "popsize": 3, "iterations": 1, "models": 1, "folds": 2, "max_trees": 2, "n_estimators": 2, "max_depth": 2,
    "max_iter": 3, "candidates": 4, "levels": 2, "rounds": 2, "refinements": 1, "halvings": 1, "n_pairs": 2,
    "max_features": 2, "n_bins": 4,
}  # fmt: skip
_CELLS = {"min_cell": 1, "min_leaf": 1}


@dataclass
class Disclosure:
    """One operation that this party was asked for."""

    operation: str
    form: str
    about: str
    learns: str
    times: int = 0
    refusal: PolicyRefused | None = None
    id: str = ""  # the operation's full name


@dataclass
class Rehearsal:
    """What the job would ask of this party, and what the policy says to it."""

    party: str
    method: str
    parameters: dict[str, Any]
    holds_label: bool
    job_refusal: PolicyRefused | None
    lowered: dict[str, Any]
    seen: list[Disclosure] = field(default_factory=list)
    stopped: str = ""  # why the method did not come to its end

    @property
    def refusals(self) -> list[PolicyRefused]:
        """The job's first, then the operations' in the order in which they were asked for."""
        found = [self.job_refusal, *(line.refusal for line in self.seen)]
        return [refusal for refusal in found if refusal is not None]


def rehearse(job: Job, party: str, table: Table, policy: Policy) -> Rehearsal:
    """Play the job with made-up data; ``table`` is this party's, for the kinds of its columns."""
    parties = job.settings.parties
    if party not in parties:
        raise ParameterError(f"{job.path} has no party {party!r}; it has {', '.join(parties)}")
    holders = [name for name, section in parties.items() if section.label is not None]
    if party in holders and table.label is None:
        raise ParameterError(
            f"{job.path} counts on the label of {party!r}, but its party file names none: write "
            'label = "COLUMN" under [party]'
        )
    method, parameters = job.selector().announcement()
    selector, lowered = _lowered(job.selector())
    matched = {"matching": job.settings.federation.matching}
    refusal = _refusal(policy, party, method, parameters) or _refusal(policy, party, psi.JOB, matched)
    result = Rehearsal(party, method, parameters, party in holders, refusal, lowered)
    site = _Witness(party, _made_up(table, party in holders, job), policy)
    sites: dict[str, Site] = {}
    for number, name in enumerate(parties):
        sites[name] = site if name == party else Site(name, _other(name, number, table, name in holders, job))
    try:
        _play(job, sites, selector, holders)
    except FedsiftError as error:
        result.stopped = str(error)
    result.seen = list(site.seen.values())
    return result


def _refusal(policy: Policy, party: str, method: str, parameters: Mapping[str, object]) -> PolicyRefused | None:
    try:
        policy.check_job(party, method, parameters)
    except PolicyRefused as refusal:
        return refusal
    return None


def _lowered(selector: Selector) -> tuple[Selector, dict[str, object]]:
    """The same method with less to do, and what was changed."""
    given = selector.get_params(deep=False)
    changed = {
        name: most
        for name, most in {**_EFFORT, **_CELLS}.items()
        if name in given and _is_more(name, given[name], most)
    }
    return selector.set_params(**changed), {name: changed[name] for name in changed if name not in _CELLS}


def _is_more(name: str, value: object, most: int) -> bool:
    """Epochs that nobody names are as many as the rows ask for."""
    if value is None:
        return name == "epochs"
    return isinstance(value, int) and not isinstance(value, bool) and value > most


def _play(job: Job, sites: dict[str, Site], selector: Selector, holders: list[str]) -> None:
    settings = job.settings.federation
    vertical = settings.partition == "vertical"
    design = design_of(job.settings.design)
    fed = Federation(
        InProcess(sites), list(sites), active=holders[0] if vertical else None, partition=settings.partition,
        task=settings.task, names=settings.names, coordinator=settings.coordinator, dealer=settings.dealer,
        submitter=settings.submitter,
    )  # fmt: skip
    try:
        if vertical and any(section.id is not None for section in job.settings.parties.values()):
            fed = psi.align(fed, matching=settings.matching)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what made-up values lead to is no news
            selector.fit(fed.designed(design))
    finally:
        fed.close()


class _Witness(PolicySite):
    """Judges every request as the real site would, and writes the verdict down in place of acting on it."""

    def __init__(self, name: str, table: Table, policy: Policy):
        super().__init__(name, table, policy)
        self.seen: dict[str, Disclosure] = {}

    def _judge(self, marked: Operation, arguments: Mapping[str, object], job: Contract | None) -> None:
        line = self._line(marked)
        try:
            # Cells come from the lowered parameters; what the job's own say about them is judged with the job.
            told = {name: self.policy.min_cell for name in (marked.min_cell,) if name}
            super()._judge(marked, {**arguments, **told}, job)
        except PolicyRefused as refusal:
            line.refusal = line.refusal or refusal

    def _judge_job(self, job: Contract, session: str) -> None:
        """Judged before, by the parameters that the job really has."""

    def _check_approved(self, job: Contract) -> None:
        """Nobody has to approve a rehearsal."""

    def _judge_rows(self, marked: Operation, view: str, run: Run | None) -> None:
        """Made-up rows say nothing about the real ones."""

    def _judge_sums(self, marked: Operation, view: str) -> None:
        """Neither do sums of them."""

    def _enter_alignment(self, job: Contract, attempt: str) -> None:
        """No list of ids is entered."""

    def enter_part(self, party: Party, rows: np.ndarray, step: str) -> None:
        """Nor do parts of them."""

    def tell_sides(self, party: Party, step: str, sides: int, held: float, answer: bytes = b"") -> None:
        """Nor sides of cuts of their columns."""

    def _enter(self, asked: Asked) -> None:
        """And nothing is let out."""

    def _write(self, asked: Asked, value: object) -> None:
        """So there is nothing to write down."""

    def _line(self, marked: Operation) -> Disclosure:
        if marked.id not in self.seen:
            self.seen[marked.id] = Disclosure(
                marked.short_name, marked.discloses, marked.about, marked.learns, id=marked.id
            )
        self.seen[marked.id].times += 1
        return self.seen[marked.id]


# --- made-up tables --------------------------------------------------------------------------------------------------


def _made_up(table: Table, labelled: bool, job: Job) -> Table:
    """Random values in columns of the same kinds and names as this party's."""
    rng = np.random.default_rng(0)
    target = _target(rng, table, job)
    columns = {name: _column(rng, table.kinds[name], target) for name in table.columns[:_COLUMNS]}
    aside = _aside(rng, table.name, job)
    return _as_table(table.name, columns, target if labelled else None, table.label_name or "label", aside)


def _other(name: str, number: int, table: Table, labelled: bool, job: Job) -> Table:
    """Another party: the same columns when rows are what is shared out, else a few of its own."""
    rng = np.random.default_rng(number + 1)
    target = _target(np.random.default_rng(0), table, job)
    if job.settings.federation.partition == "horizontal":
        columns = {c: _column(rng, table.kinds[c], target) for c in table.columns[:_COLUMNS]}
    else:
        kinds = ["numeric", "numeric", "numeric", "categorical"]
        columns = {f"{name} {i + 1}": _column(rng, kind, target) for i, kind in enumerate(kinds)}
    aside = _aside(rng, name, job)
    return _as_table(name, columns, target if labelled else None, table.label_name or "label", aside)


def _aside(rng: np.random.Generator, name: str, job: Job) -> dict[str, np.ndarray]:
    """What the job's design says of this party's rows, made up: numbers above 0, and 0 or 1 for an event."""
    design = design_of(job.settings.design)
    events = [] if design.event is None else [design.event.removeprefix(f"{name}.")]
    made = {column: np.arange(_ROWS) // 2 + 1.0 for column in design.columns_of(name)}
    return {**made, **{column: rng.integers(0, 2, _ROWS) for column in events if column in made}}


def _target(rng: np.random.Generator, table: Table, job: Job) -> np.ndarray:
    task, label = job.settings.federation.task, table.label
    if job.settings.design is not None and job.settings.design.event is not None:
        return np.arange(_ROWS) / 7.0  # a time
    if task == "regression" or (task == "auto" and label is not None and is_amount(label)):
        return rng.normal(0, 1, _ROWS)
    classes = 2 if label is None else max(2, min(_CLASSES, len(np.unique(label.astype(str)))))
    return np.arange(_ROWS) % classes


def _column(rng: np.random.Generator, kind: str, target: np.ndarray) -> object:
    noise = rng.normal(0, 1, _ROWS) + rng.random() * target
    if kind == "categorical":
        return np.array(["a", "b", "c"], dtype=object)[np.digitize(noise, [0, 1])]
    if kind == "boolean":
        return noise > 0.5
    if kind == "date":
        return pd.Timestamp("2020-01-01") + pd.to_timedelta(np.rint(noise * 100), unit="D")
    return noise


def _as_table(
    name: str, columns: Mapping[str, object], target: np.ndarray | None, label: str, aside: Mapping[str, np.ndarray]
) -> Table:
    frame = pd.DataFrame({**columns, **aside}, index=range(_ROWS))
    id_name = "row"
    while id_name in frame.columns or id_name == label:
        id_name += "_"
    frame.insert(0, id_name, [str(row) for row in range(_ROWS)])
    if target is not None:
        text = target.dtype.kind in "iu"
        frame[label] = [f"class {value}" for value in target] if text else target
    return Table.read(frame, id=id_name, label=label if target is not None else None, name=name, aside=list(aside))
