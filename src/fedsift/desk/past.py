"""What a site's past would have been under other rules: its jobs, what each sent, and the journal played again.

A job is refused by rules that look at it before it begins, by the form of something that it sent (the site's ledger of
its run), or by what was let out altogether: the journal is gone through from its first line on, as it was written, with
the same arithmetic of rows and bits (``site/journal_atoms.py``) and the new limits. A job that the new rules refuse
leaves no further line. Row sets that were told apart without a number are not in the lines, so that a limit of rows may
refuse a little more than is shown here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsift.core.job import Job
from fedsift.core.operation import Operation, find_operation
from fedsift.crypto.dp import rho_to_epsilon
from fedsift.errors import OperationRefused, PolicyRefused
from fedsift.site import gate
from fedsift.site.journal import Journal, Line
from fedsift.site.journal_atoms import Atoms, count_persons
from fedsift.site.journal_facts import DECISION
from fedsift.site.journal_rows import ROW_BY_ROW
from fedsift.site.journal_rules import ALIGNMENT, DELTA, REFUSAL
from fedsift.site.policy import Policy, listed
from fedsift.site.record import NAME


@dataclass(frozen=True)
class PastJob:
    """A job that was put to this site or ran here, and the operations of its method that were answered."""

    job: Job
    answered: tuple[Operation, ...] = ()


@dataclass(frozen=True)
class Refusal:
    job: Job
    why: str


def ran_in(folder: Path, party: str) -> Iterator[PastJob]:
    """The jobs that one run's folder remembers, each with what its ledger says was answered."""
    answered = _answered(folder / NAME, party)
    for file in gate.remembered(folder):
        with suppress(OSError, OperationRefused):
            job = Job.read(file.read_bytes(), party, any_version=True)
            own = {marked.id for marked in listed(job.method, job.purpose)}
            yield PastJob(job, tuple(marked for marked in answered if marked.id in own))


def _answered(ledger: Path, party: str) -> list[Operation]:
    found: dict[str, Operation] = {}
    with suppress(OSError, csv.Error, UnicodeDecodeError), ledger.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row.get("outcome") == "answered":
                with suppress(OperationRefused):  # of another version
                    found[str(row["operation"])] = find_operation(str(row["operation"]), party)
    return list(found.values())


def refused_by(policy: Policy, party: str, past: list[PastJob], journal: Journal) -> list[Refusal]:
    """Of each past job that these rules would have refused, the first reason."""
    replayed = Replay(policy, party, journal).refusals()
    judged = [(each.job, _why_not(policy, party, each) or replayed.get(each.job.hash.hex(), "")) for each in past]
    return [Refusal(job, why) for job, why in judged if why]


def _why_not(policy: Policy, party: str, past: PastJob) -> str:
    job = past.job
    try:
        policy.check_job(party, job.method, job.parameters)
        policy.check_partition(party, job)
        policy.check_partners(party, job)
        for marked in past.answered:
            # Cells and noise come from the job, which was judged above; some operations carry them as arguments.
            told = {marked.min_cell: policy.min_cell, marked.epsilon: policy.max_epsilon}
            policy.check_operation(party, marked, {name: value for name, value in told.items() if name}, job)
    except OperationRefused as refusal:
        return refusal.what
    return ""


class Replay:
    """The journal, line by line, under other limits."""

    def __init__(self, policy: Policy, party: str, journal: Journal):
        self._policy, self._party, self._journal = policy, party, journal
        self._atoms = Atoms.none().grown(len(journal.rows))
        self._scores = np.zeros(len(journal.rows), dtype=np.int64)
        self._noisy: set[str] = set()  # jobs whose numbers carry noise: they tell no rows apart
        self._rho, self._lists, self._refusals = 0.0, 0, 0

    def refusals(self) -> dict[str, str]:
        """By the hash of a job, why it would not have been let through."""
        found: dict[str, str] = {}
        lines = self._journal.lines()
        self._noisy = {line.job for line in lines if line.rho > 0}
        for line in lines:
            if line.job not in found and line.form != DECISION:
                try:
                    self._take(line)
                except PolicyRefused as refusal:
                    found[line.job] = refusal.what
        return found

    def _take(self, line: Line) -> None:
        party, operation = self._party, line.operation.rpartition(".")[2]
        if line.form == ALIGNMENT:
            self._lists += 1
            self._policy.check_id_lists(party, self._lists)
        elif line.form == REFUSAL:
            self._refusals += 1
        elif line.form == ROW_BY_ROW:
            rows = self._journal.members(line.row_set)
            self._scores[rows] += 1
            self._policy.check_row_scores(party, operation, int(self._scores[rows].max(initial=0)))
        elif line.rho > 0:
            self._rho += line.rho
            self._policy.check_total_epsilon(party, operation, rho_to_epsilon(self._rho, DELTA))
        elif line.row_set and line.job not in self._noisy:
            self._take_exact(line, operation)

    def _take_exact(self, line: Line, operation: str) -> None:
        inside = np.zeros(len(self._journal.rows), dtype=bool)
        inside[self._journal.members(line.row_set)] = True
        atoms, new = self._atoms.cut(inside)
        smallest = atoms.smallest(new, self._journal.persons)
        if smallest is not None:
            self._policy.check_rows(self._party, operation, smallest)
        self._atoms = atoms.charged(inside, line.counted, count_persons(self._journal.persons, inside))
        told = self._atoms.most_bits(inside) + self._refusals / max(1, len(self._journal.rows))
        self._policy.check_bits(self._party, operation, told, line.job)
