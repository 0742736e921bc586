"""Predictions: what a site lets a job do that is for these alone, also on fewer rows than ``min_rows``.

A new customer is one row, and a rule against work on few rows refuses to predict it. What ``min_rows`` keeps from
others are sums about few rows, and differences of sums. A prediction has neither: the score of a row hangs on that row
and on the model, comes to the label holder in a batch of a million as it does alone, and is counted either way
(``max_row_scores``). So a job may say that it is for predictions (``Job.purpose``); a site then

* answers the steps of a closed list (``FederatedModel.predicting``: reading its part, opening scores, the walk of rows
  through the model under masks, keeping predictions at the label holder), and no other step of the model: no training,
  no measure, no label, no predictions to whoever asks;
* takes rows that were matched by ids in an alignment for predictions, just these, all of them, in their order: no part
  of them, no rows by position, none of an earlier job;
* counts how many rows a day were predicted alone or among few (``few_rows_a_day``): once for the ids that were asked
  about, before they are matched, and once for the scores that were read.

What these rows let out does not cut the table into atoms: nothing is added up over them. Any other job is refused on
them, whatever it asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsift.core.job import PREDICTIONS, Job
from fedsift.core.operation import Operation
from fedsift.core.party import define_view
from fedsift.errors import OperationRefused, PolicyRefused
from fedsift.evaluate import announced
from fedsift.mpc import psi
from fedsift.mpc.shared_rows import keep_shared
from fedsift.site.journal_atoms import Whole
from fedsift.site.journal_rules import JournalRules
from fedsift.site.policy import FREE, is_core

#: What a site answers on rows for predictions beside the model's own steps; of any job, it lets go of them.
_CORE = (*FREE, define_view.id)


@dataclass
class FewRows:
    """One site's rows for predictions."""

    party: str
    rules: JournalRules
    only: str | None = None  # the purpose for which the site was opened, where it was opened for a job
    matched: Whole | None = field(default=None, repr=False)  # what the last alignment for predictions has kept

    # -- a job -----------------------------------------------------------------------------------------------------

    def check_job(self, job: Job) -> None:
        """A job for predictions is an alignment of all rows, or of a model that can be predicted row by row."""
        if self.only is not None and job.purpose != self.only:
            what = f"for {self.only} alone" if self.only else "not for predictions alone"
            raise PolicyRefused.by("methods", self.party, "begin_job", f"this run is {what}, as submitted")
        if job.purpose != PREDICTIONS:
            return
        if job.partition != "vertical" or job.parameters.get("as_in") is not None:
            raise OperationRefused(
                self.party, "begin_job", "predictions are for parties that share rows, all that they have"
            )
        if job.method != psi.JOB and not announced.listed(job.method, job.purpose):
            raise OperationRefused(
                self.party, "begin_job", f"{job.method[:60]!r} is no model whose rows are predicted each by itself"
            )

    def check_step(self, marked: Operation, arguments: Mapping[str, object], job: Job | None) -> None:
        """Refuse what is no step of a prediction, in a job for these."""
        if job is None or job.purpose != PREDICTIONS:
            return
        if is_core(marked) and marked.id not in _CORE:
            raise OperationRefused(self.party, marked.short_name, "it is no step of a prediction")
        if marked is define_view and arguments.get("rows") is not None:
            raise OperationRefused(
                self.party, "define_view", "all rows that were matched are predicted, in their order"
            )

    def is_closed(self, marked: Operation, job: Job | None, rows: Whole | None) -> bool:
        """Whether these are rows for predictions, and this is another job: it needs as many as any."""
        return self._is_few(rows) and marked.id not in FREE and (job is None or job.purpose != PREDICTIONS)

    # -- rows ------------------------------------------------------------------------------------------------------

    def take(self, marked: Operation, job: Job | None, rows: Whole | None) -> None:
        """What an alignment for predictions has matched may be few."""
        if marked is keep_shared and job is not None and job.purpose == PREDICTIONS:
            self.matched = rows

    def allows(self, job: Job | None, rows: Whole | None) -> bool:
        """Whether few rows may be worked on: those that were matched for predictions, by a job for these."""
        return job is not None and job.purpose == PREDICTIONS and self._is_few(rows)

    def _is_few(self, rows: Whole | None) -> bool:
        few = self.rules.policy.few_rows_a_day > 0
        return few and rows is not None and rows is self.matched and len(rows) > 0

    # -- how many ids ----------------------------------------------------------------------------------------------

    def ids_of(self, job: Job) -> int:
        """Of an alignment for predictions that can match few ids at most, how many; of any other 0.

        No party learns of more ids than the shortest list has whether all know them: of the lists of those who share
        rows with this one, whose sizes the alignment holds them to (``shared_rows.agreed``); what else is told is not
        looked at.
        """
        policy, blocks, sizes = self.rules.policy, job.parameters.get("blocks"), job.parameters.get("rows")
        if job.purpose != PREDICTIONS or not job.neutral or not isinstance(blocks, list) or not isinstance(sizes, dict):
            return 0
        block = next((each for each in blocks if isinstance(each, list) and self.party in each), [])
        told = [size for size in (sizes.get(name) for name in job.parties if name in block) if type(size) is int]
        if len(block) != len(job.parties) or len(told) != len(block):
            return 0
        shortest = max(1, min(told))
        return shortest if shortest < policy.min_rows and policy.few_rows_a_day > 0 else 0
