"""What a site still lets out, judged by what its journal says that it let out before.

Two moments. Before an operation runs, its rows are entered (``enter``): an exact release must leave no atom below
``min_rows`` persons, noise must fit into ``total_epsilon``, and what the job's answer tells must fit into ``max_bits``.
When it has run and the reply has not left yet, the line is written (``write``), with the numbers that its readers get.

**Which bits count.** Those that reach somebody who holds rows of the same people: the other parties of a vertical job,
and the coordinator where one of them runs it or gets its results. Such a reader knows columns of every single row, and
few exact sums on many rows are then equations for the rest (ten sums on 100 rows, 24 bits each, give every label by
lattice reduction). A neutral coordinator holds no row: the same sums are, to it, about nobody it knows, so its openings
are written down and not counted; but for figures of the answer itself (how good a model is, what a partner adds), which
count a tenth: a coordinator that chooses models and asks for their scores would read labels otherwise. What is told row
by row would exceed any such budget at once, and has limits of its own (``journal_rows.py``): how often the label holder
reads scores of a row (predictions), and on how many sides of cuts it hears that a row lies, over the trees of all jobs.
The answer counts too: which of its columns were kept tells a party something about the labels. So does a refusal, one
bit each, and a stratified draw of rows, whoever hears it. What a job with noise tells without any (such a draw, how
many classes there are) counts as in any other job.

The same number told again to the same reader, by the same step of the same job about the same rows, tells nothing new
and is counted once. Not so a figure of the answer: the score of another model may be equal, and that is news.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsift.core.identity import simulated_secret
from fedsift.core.job import PREDICTIONS, Job
from fedsift.core.ledger import row_by_row
from fedsift.core.message import encode
from fedsift.core.operation import Operation
from fedsift.core.table import Table
from fedsift.crypto.dp import rho_to_epsilon
from fedsift.errors import DataError, OperationRefused, PolicyRefused
from fedsift.site.answer_bits import answer_bits
from fedsift.site.journal import Journal, Line, RowSet, a_day_ago, now
from fedsift.site.journal_atoms import Whole
from fedsift.site.journal_noise import carries_none, is_noisy, spent
from fedsift.site.journal_readers import COORDINATOR, NOBODY, RESULT, reader_of_noise, readers_of, released_to
from fedsift.site.journal_rows import ROW_BY_ROW, SIDES, check_few, check_scores, enter_sides
from fedsift.site.policy import Policy

log = logging.getLogger("fedsift.site.journal")

ANSWER, ALIGNMENT, REFUSAL = "the answer", "alignment", "refusal"
FEW_IDS = "alignment of few ids"  # for predictions
ROWS, DESCRIBED = "rows", "number of classes"
#: What a figure of the answer counts where nobody who holds rows gets it: budgets of 0.1 bits a row then let out less
#: than one bit a row, however many models, evaluations and values are asked for.
NEUTRAL_PART = 0.1
VOID = "void: its reader has exact numbers about the same rows"
#: At which delta the noise of all jobs is told as one epsilon.
DELTA = 1e-6
MAX_SETS = 64
SHORT = 12  # digits of a job's hash that people are shown


@dataclass(frozen=True)
class Asked:
    """What is asked: the operation, the accepted job, the run, and the rows and columns that it is about."""

    marked: Operation
    job: Job
    run: str
    rows: Whole
    columns: tuple[str, ...]


class JournalRules:
    """One site's rules over all its jobs. Not for several threads at once: the site has a lock."""

    def __init__(self, party: str, table: Table, persons: NDArray[np.generic] | None, policy: Policy, journal: Journal):
        self.party = party
        self.policy = policy
        self.journal = journal
        self._table = table
        self._people = persons
        self._numbers: Whole | None = None  # of the table's rows, in the journal
        self._sets: dict[int, tuple[Whole, RowSet]] = {}  # for the arrays of rows used last
        self._written: set[tuple[str, str, bytes]] = set()  # run, operation, row set: they have their line
        self._refused = False  # whether something was since the site was started: then what is left is looked at again
        self._columns: dict[str, int] = {}  # how many the other parties have, as an alignment told

    # -- before an operation ---------------------------------------------------------------------------------------

    def enter(self, asked: Asked) -> None:
        """Refuse what the journal does not allow; else the rows are entered, before anything is computed."""
        rows = self._row_set(asked)
        if (asked.run, asked.marked.id, rows.id) in self._written and not self._refused:
            return
        with self._entering(asked) as journal:
            self._enter_noise(asked, rows)
            noisy = is_noisy(asked.job)
            exact = (carries_none(asked.marked) or not noisy) and asked.marked.releases is not row_by_row
            self._check_left(asked.marked.short_name, asked.job, rows if exact else None)
            if noisy and asked.job.role_of(self.party) == "active":
                self._describe(asked, rows)
            if exact:
                self._cut(asked, rows)
            if exact and not noisy:
                self._enter_answer(asked, rows)
            journal.keep_set(rows, exact=exact)

    def enter_rows(self, asked: Asked, *, told: bool) -> None:
        """The rows of a step that has no line of its own: what it does depends on them too (how many categories there
        are, that it fails), so they cut the table like any others. Under noise they do not; what is ``told`` there
        without noise, how many classes the label has, counts as a refusal does: one bit for each new row set."""
        rows = self._row_set(asked)
        kind = (asked.run, DESCRIBED if told else ROWS, rows.id)
        if kind in self._written and not self._refused:
            return
        with self._entering(asked) as journal:
            self._check_left(asked.marked.short_name, asked.job)
            if not is_noisy(asked.job):
                self._cut(asked, rows)
                journal.keep_set(rows, exact=True)
            elif told:
                self._describe(asked, rows)
        self._written.add(kind)

    def _describe(self, asked: Asked, rows: RowSet) -> None:
        """Under noise: how many classes the label has in these rows is told as it is, also by how large a step's reply
        is. Once for each row set."""
        if self.journal.has("row_set = ? AND operation = ?", rows.id, DESCRIBED):
            return
        self.journal.keep_set(rows, exact=False)
        self.journal.add(
            self._line(asked, rows, operation=DESCRIBED, readers=COORDINATOR, form=REFUSAL, statistics=1, bits=1.0,
                       counted=1.0)
        )  # fmt: skip

    def _cut(self, asked: Asked, rows: RowSet) -> None:
        if self.journal.known(rows):
            return
        atoms, new = self.journal.atoms.cut(self.journal.inside(rows))
        smallest = atoms.smallest(new, self.journal.persons)
        if smallest is not None:
            self.policy.check_rows(self.party, asked.marked.short_name, smallest)
        self.journal.keep_atoms(atoms)

    def _enter_answer(self, asked: Asked, rows: RowSet) -> None:
        """What everybody learns in the end: which columns were kept. Once for a job on the same rows and values."""
        job = asked.job
        told = f"{job.hash.hex()} {rows.id.hex()} {self._content}"
        digest = hashlib.blake2b(told.encode(), digest_size=16).digest()
        if self.journal.has("digest = ? AND operation = ?", digest, ANSWER):
            return
        bits = self._answer_bits(job)
        counted = bits if self._holders(job) else 0.0
        self._charge(asked, rows, counted)
        self.journal.add(
            self._line(asked, rows, operation=ANSWER, readers=", ".join(self._holders(job)) or COORDINATOR,
                       form="aggregate", statistics=math.ceil(bits), bits=bits, counted=counted, digest=digest,
                       note=self._with(job.parties))
        )  # fmt: skip

    def _answer_bits(self, job: Job) -> float:
        """Of the columns of the others, or of horizontal parties of these."""
        if job.partition == "horizontal":
            return answer_bits(job, len(self._table.columns))
        assumed = self.policy.partner_columns
        return answer_bits(job, sum(self._columns.get(name, assumed) for name in job.parties if name != self.party))

    def _enter_noise(self, asked: Asked, rows: RowSet) -> None:
        """Charge the noise of a run once, when it first works on rows."""
        epsilon, rho = spent(asked.job)
        if rho <= 0 or self.journal.has("run = ? AND rho > 0", asked.run):
            return
        void = self._is_void(asked, rows)
        total = self.journal.total_rho() + rho
        self.policy.check_total_epsilon(self.party, asked.marked.short_name, rho_to_epsilon(total, DELTA))
        self.journal.add(
            self._line(asked, rows, operation=asked.marked.id, readers=reader_of_noise(asked.job, self.party),
                       form="noise", epsilon=epsilon, rho=rho,
                       note=self._with(asked.job.parties) + (VOID if void else ""))
        )  # fmt: skip

    def _is_void(self, asked: Asked, rows: RowSet) -> bool:
        """Whether the reader has exact numbers about the same rows: noise does not keep it from them any more."""
        reader, inside = reader_of_noise(asked.job, self.party), self.journal.inside(rows)
        told = [line.row_set for line in self.journal.lines() if line.bits > 0 and reader in line.readers.split(", ")]
        void = any(inside[self.journal.members(row_set)].any() for row_set in set(told) if row_set)
        if void and self.policy.max_epsilon is not None:
            raise PolicyRefused.by(
                "max_epsilon", self.party, asked.marked.short_name,
                f"{reader!r} was told exact numbers about the same rows before, so that noise would promise nothing "
                "towards it. Let somebody else run the job, or ask the party to do without max_epsilon",
            )  # fmt: skip
        return void

    # -- before a reply leaves -------------------------------------------------------------------------------------

    def write(self, asked: Asked, value: Any) -> None:
        """The line of a reply that is about to leave, and its bits."""
        marked, sharing = asked.marked, self._holders(asked.job)
        readers, released = readers_of(marked, asked.job, sharing), released_to(marked, asked.job, sharing, value)
        if released.by_row:
            holders = tuple(name for name in sharing if asked.job.role_of(name) == "active")
            if holders or marked.releases is row_by_row:  # its own scores a label holder may read
                self._write_row_by_row(asked, holders or readers)
            return
        noisy = bool(marked.epsilon) and spent(asked.job)[1] > 0
        bits = 0.0 if noisy else released.bits
        counted = bits if not {COORDINATOR, NOBODY} & set(readers) or marked.opened_form == "pseudonymous" else 0.0
        if marked.opened_by == RESULT and readers == (COORDINATOR,):
            counted = bits * NEUTRAL_PART
        rows = self._row_set(asked)
        kind = (asked.run, marked.id, rows.id)
        if kind in self._written and not counted:
            return
        with self._writing(marked.short_name) as journal:
            asked_for = f"{asked.job.hash.hex()} {marked.id} {rows.id.hex()} ".encode()  # an equal answer to another
            digest = hashlib.blake2b(asked_for + encode(value), digest_size=16).digest() if counted else b""  # is news
            told = ", ".join(readers)
            if counted and marked.opened_by != RESULT and journal.has("digest = ? AND readers = ?", digest, told):
                counted = 0.0
            self._charge(asked, rows, counted)
            journal.add(
                self._line(asked, rows, operation=marked.id, readers=told, form=marked.opened_form,
                           statistics=released.statistics, bits=bits, counted=counted, digest=digest)
            )  # fmt: skip
        self._written.add(kind)

    def _write_row_by_row(self, asked: Asked, readers: tuple[str, ...]) -> None:
        """Numbers of every row: how often those of one row may be read is limited, not how many bits they have."""
        rows, each, operation = self._row_set(asked), row_by_row(None), asked.marked.short_name
        with self._writing(operation) as journal:
            check_scores(journal, self.policy, self.party, operation, rows)
            if asked.job.purpose == PREDICTIONS and rows.persons < self.policy.min_rows:
                check_few(journal, self.policy, self.party, operation, rows)
            journal.keep_set(rows, exact=False)
            told = {"operation": asked.marked.id, "readers": ", ".join(readers), "form": ROW_BY_ROW}
            count = len(rows.numbers)
            journal.add(self._line(asked, rows, **told, statistics=count, bits=each.bits * count))

    def tell_sides(self, asked: Asked, sides: int, held: float, answer: bytes = b"") -> None:
        """On which side of so many cuts each row may be told to lie, of columns that ``held`` bits a row would tell."""
        rows, part = self._row_set(asked), sides / max(1.0, held)
        told = {"operation": asked.marked.id, "readers": asked.job.active or COORDINATOR, "form": SIDES}
        line = self._line(asked, rows, **told, statistics=sides, bits=part, digest=answer)
        with self._writing(asked.marked.short_name) as journal:
            enter_sides(journal, self.policy, self.party, rows, line)

    def _holders(self, job: Job) -> tuple[str, ...]:
        """The other parties that hold rows of the same people.

        Horizontal parties hold other people, says the job; with whom ids were matched before, that does not count.
        """
        others = tuple(name for name in job.parties if name != self.party)
        return others if job.partition != "horizontal" else tuple(n for n in others if n in self._matched())

    def _matched(self) -> set[str]:
        lines = self.journal.lines(f"form = '{ALIGNMENT}'")
        return {name for line in lines for name in line.readers.split(", ")}

    # -- budgets ---------------------------------------------------------------------------------------------------

    def _charge(self, asked: Asked, rows: RowSet, bits: float) -> None:
        if bits <= 0:
            return
        self._cut(asked, rows)  # bits are kept by atoms
        inside = self.journal.inside(rows)
        self.journal.keep_atoms(self.journal.atoms.charged(inside, bits, rows.persons))
        self._check_left(asked.marked.short_name, asked.job, rows)

    def _check_left(self, operation: str, job: Job, rows: RowSet | None = None) -> None:
        """Refuse where these rows, or refusals alone, have told as much as they may."""
        told = self.journal.count("form = ?", REFUSAL) / max(1, self._table.n_rows)
        if rows is not None:
            told += self.journal.atoms.most_bits(self.journal.inside(rows))
        self.policy.check_bits(self.party, operation, told, job.hash.hex())

    def check_refusals(self, operation: str, job: Job) -> None:
        """Refuse once more where refusals have told enough about who is in which row."""
        with self._writing(operation):
            self._check_left(operation, job)

    def note_refusal(self, marked: Operation, job: Job, run: str) -> None:
        """A refusal, or an error, tells one bit about the rows."""
        self._refused = True
        with self._writing(marked.short_name) as journal:
            journal.add(
                Line(now(), job.hash.hex(), run, job.method, marked.id, COORDINATOR, b"", 0, "", REFUSAL,
                     statistics=1, bits=1.0, counted=1.0)
            )  # fmt: skip

    # -- alignment -------------------------------------------------------------------------------------------------

    def enter_alignment(self, job: Job, run: str, few: int = 0) -> None:
        """Each alignment lets the others ask about another list of ids: so many, no more. One of ``few`` ids, for
        predictions, counts by these, so many a day."""
        told, what = job.parameters.get("columns"), FEW_IDS if few else ALIGNMENT
        with self._writing("blind_ids") as journal:
            if few:
                today = journal.lines(f"operation = '{FEW_IDS}' AND at >= '{a_day_ago()}'")
                self.policy.check_few_rows(self.party, "blind_ids", few + sum(line.statistics for line in today))
            else:
                self.policy.check_id_lists(self.party, journal.count("operation = ?", ALIGNMENT) + 1)
            sizes = job.parameters.get("rows")
            listed = ", ".join(f"{name}: {size}" for name, size in sizes.items()) if isinstance(sizes, dict) else ""
            others = ", ".join(name for name in job.parties if name != self.party)
            journal.add(
                Line(now(), job.hash.hex(), run, job.method, what, others, b"", self._table.n_rows, "", ALIGNMENT,
                     statistics=few, note=listed[:500])
            )  # fmt: skip
        if isinstance(told, Mapping):
            whole = {name: count for name, count in told.items() if isinstance(count, int) and count >= 0}
            self._columns = {name: count for name, count in whole.items() if name in job.parties}

    def _with(self, parties: tuple[str, ...]) -> str:
        return f"with {', '.join(sorted(name for name in parties if name != self.party))}; "

    def rows_of_job(self, job: str, parties: tuple[str, ...]) -> Whole:
        """The rows of this table that releases of an earlier job were about; ``job`` is the beginning of its hash.

        It must have been a job with the same parties: which rows another partner shares is told to nobody else.
        """
        if len(job) < SHORT or not set(job) <= set("0123456789abcdef"):
            raise OperationRefused(self.party, "rows", f'rows = "as in JOB" names a job by {SHORT} digits of its hash')
        known = self._known("rows")
        others = self._with(parties)
        with self._writing("rows") as journal:
            same = journal.has("substr(job, 1, ?) = ? AND substr(note, 1, ?) = ?", len(job), job, len(others), others)
            found = np.flatnonzero(np.isin(known, journal.rows_of_job(job)))
        if not same or not len(found):
            raise OperationRefused(self.party, "rows", "its journal knows no such job")
        return found

    # -- helpers ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self, operation: str) -> Iterator[Journal]:
        """A transaction; where the journal cannot be written nothing leaves, and why is told in this site's log."""
        try:
            with self.journal.writing() as journal:
                yield journal
        except DataError as error:
            log.error("%s: %s", self.party, error)
            raise PolicyRefused.by(
                "journal", self.party, operation,
                "it cannot write its journal, and nothing leaves without a line there. Try again later; its own log "
                "says why",
            ) from None  # fmt: skip

    @contextlib.contextmanager
    def _entering(self, asked: Asked) -> Iterator[Journal]:
        """The same for rows that are entered; that too few would be told apart is a refusal that tells something."""
        try:
            with self._writing(asked.marked.short_name) as journal:
                yield journal
        except PolicyRefused as refusal:
            if refusal.rule == "min_rows":
                self.note_refusal(asked.marked, asked.job, asked.run)
            raise

    def _known(self, operation: str) -> Whole:
        """The numbers of the table's rows; those that are new are entered, as rows that no release was about."""
        if self._numbers is None:
            rows = self.journal.hashed(self._table.ids)
            persons = rows if self._people is None else self.journal.hashed(self._people)
            with self._writing(operation) as journal:
                numbers = journal.numbers(rows)
                new = numbers < 0
                if new.any():
                    numbers[new] = journal.add_rows(rows[new], persons[new])
                journal.keep_persons(numbers, persons)
            self._numbers = numbers
        return self._numbers

    def _row_set(self, asked: Asked) -> RowSet:
        _, found = self._sets.get(id(asked.rows), (None, None))
        if found is None:
            found = self.journal.row_set(self._known(asked.marked.short_name)[asked.rows])
            self._sets[id(asked.rows)] = (asked.rows, found)  # the array is kept, so that its id stays its own
            while len(self._sets) > MAX_SETS:
                self._sets.pop(next(iter(self._sets)))
        return found

    @cached_property
    def _content(self) -> str:
        """What the table holds: a job on other values has another answer."""
        return simulated_secret(self.party, self._table).hex()

    def _line(self, asked: Asked, rows: RowSet, **said: Any) -> Line:
        job = asked.job
        return Line(
            at=now(), job=job.hash.hex(), run=asked.run, method=job.method, row_set=rows.id, rows=len(rows.numbers),
            columns=", ".join(asked.columns)[:2000], **said,
        )  # fmt: skip
