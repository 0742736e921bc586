"""A site's policy: what this organisation lets a job do with its data, whoever asks.

A rule is judged from what the site itself knows: the operation that it has installed under the asked name (its form of
disclosure and what its receiver can open, its module), the arguments that the operation would run with, and the rows of
the view it would run on. What the coordinator *says* about the job narrows things down further, it never widens them:
the announced method must be an allowed one, and then only the operations that this method lists
(``operations`` of a selector, a model, an evaluation) are run. So a coordinator that announces one method and asks for
another is refused at the
first operation. Which parameters and arguments carry a cell size or an epsilon is declared with the method
(``Selector.cell_parameters``, ``Selector.epsilon_parameters``) and the operation, not guessed from a name.

A refusal is a ``PolicyRefused`` that names the rule and what to change. It quotes names of methods, parameters and
operations and numbers of the policy, never anything that was read from the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from fedsift.core.job import Job
from fedsift.core.ledger import FORMS
from fedsift.core.operation import Operation, is_own
from fedsift.errors import OperationRefused, PolicyRefused
from fedsift.evaluate import announced
from fedsift.jobs.text import Section
from fedsift.mpc import psi
from fedsift.mpc.psi import CURVE
from fedsift.site.journal_noise import check_noise
from fedsift.statistics.job import StatisticsJob

COLUMN_NAMES, CLASS_NAMES, ERRORS, ALIGNMENT = "column names", "class names", "error messages", "alignment"

#: What a site may let out although it does not accept the form, in words; a run can hardly do without the first three.
EXCEPTIONS = {
    COLUMN_NAMES: "the names of the columns that take part, to whoever runs the job",
    CLASS_NAMES: "the names of the label's classes, to whoever runs the job",
    ERRORS: "the text of an error: it may name columns, rows by number and counts, never a value",
    ALIGNMENT: "ids under pseudonyms, to find the rows that all parties share",
}
DEFAULT_EXCEPTIONS = [COLUMN_NAMES, CLASS_NAMES, ERRORS]
#: What no method lists: sizes, names, views of rows, the beginning and the end of a job, and its result.
CORE = ("core", "delivery")
#: What a site answers before a job was put to it. Alignment is a job of its own (``mpc/psi.py``).
FREE = ("core.count_table", "core.share_names", "core.propose_jobs", "core.begin_job", "core.end_session",
        "delivery.keep_end", "delivery.keep_failure", "delivery.keep_result")  # fmt: skip


#: Of a job's parameters: the largest whole number, the longest text, the longest list.
MAX_WHOLE, MAX_TEXT, MAX_ITEMS = 1_000_000, 10_000, 10_000


#: Digits of a job's hash by which it is accepted: so many that nobody finds another job with the same ones.
ACCEPTED = 32


class Policy(Section):
    """The table ``[policy]`` of a party file. What is left out is as strict as it can be and still be of use."""

    methods: Literal["any"] | list[str] = Field(
        default="any", description='"any" or a list of methods, such as ["gini", "muse"] (see: fedsift methods)'
    )
    min_rows: int = Field(default=50, ge=1, description="a whole number of rows, 1 or more")
    min_cell: int = Field(default=10, ge=0, description="a whole number of rows; 0 for no such rule")
    max_epsilon: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="a number above 0, such as 1.0"
    )
    forms: list[Literal["control", "ciphertext", "masked", "pseudonymous", "aggregate", "plain"]] = Field(
        default=["control", "ciphertext", "masked", "pseudonymous", "aggregate"],
        description=f"a list out of {', '.join(FORMS)}",
    )
    exceptions: list[str] = Field(
        default=DEFAULT_EXCEPTIONS, description=f"a list out of {', '.join(map(repr, EXCEPTIONS))}, or of operations"
    )
    plugins: list[str] = Field(default=[], description='a list of Python modules, such as ["my_methods"]')
    max_label_auc: float = Field(default=0.7, ge=0.5, le=1, description="an AUC from 0.5 (a guess) to 1, such as 0.7")
    max_column_r2: float = Field(default=0.3, ge=0, le=1, description="an R2 from 0 to 1, such as 0.3")
    require_audit: bool = Field(default=False, description="true or false")
    partners: Literal["any"] | list[str] = Field(
        default="any", description='"any" or a list of parties, such as ["shop"]'
    )
    max_bits: Literal["any"] | Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=0.1, description='a number of bits a row, such as 0.1, or "any"'
    )
    accept_bits: list[str] = Field(
        default=[], description="a list of jobs, each by 32 or more digits of its hash, as a refusal quotes them"
    )
    partner_columns: int = Field(default=100, ge=1, description="a whole number of columns, 1 or more")
    total_epsilon: float = Field(default=10.0, gt=0, allow_inf_nan=False, description="a number above 0, such as 10.0")
    max_id_lists: int = Field(default=100, ge=1, description="a whole number, 1 or more")
    keyed_matching: bool = Field(default=False, description="true or false")
    max_row_scores: int = Field(default=20, ge=0, description="a whole number of scores a row, 0 or more")
    max_sides: Literal["any"] | Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=3.0, description='a number of sides for each bit that the columns hold, such as 3.0, or "any"'
    )
    few_rows_a_day: int = Field(default=100, ge=0, description="a whole number of rows; 0 for none below min_rows")
    rows_by: Literal["any"] | list[str] = Field(
        default=[], description='"any" or a list of columns of this party, such as ["customer", "month"]'
    )
    max_share: float = Field(default=0.9, gt=0, le=1, description="a share of a sum, such as 0.9; 1 for no such rule")

    approval: Literal["policy", "person", "two persons"] = Field(
        default="policy", description='"policy", "person" or "two persons"'
    )
    approval_days: int = Field(default=7, ge=1, le=366, description="a whole number of days, 1 or more")

    # -- before a job ----------------------------------------------------------------------------------------------

    def check_job(self, party: str, method: str, parameters: Mapping[str, object]) -> None:
        """Refuse a method that is not allowed, or parameters that are too weak; what is not told is the default."""
        if method == psi.JOB:
            return self._check_matching(party, parameters)
        known = announced.find_job(method)
        allowed = announced.job_names() if self.methods == "any" else self.methods
        if known is None or method not in allowed:
            what = "is not allowed here" if known else "is not known here"
            raise PolicyRefused.by(
                "methods", party, "begin_job",
                f"the method {_short(method)} {what}; allowed are {', '.join(allowed)}. Take one of these, or ask the "
                "party to allow it (methods)",
            )  # fmt: skip
        defaults = known().get_params(deep=False)
        unknown = next((name for name in parameters if name not in defaults), None)
        if unknown is not None:
            raise OperationRefused(party, "begin_job", f"the method {method!r} has no parameter {_short(unknown)}")
        for name, value in parameters.items():
            if name != "random_state" and not _is_bounded(value):
                raise OperationRefused(party, "begin_job", f"the parameter {_short(name)} is out of all bounds")
        told = {**defaults, **parameters}
        check_noise(party, known, told)
        if known.cell_parameters:
            largest = max(_number(told[name]) for name in known.cell_parameters)
            self._check_cell(party, "begin_job", known.cell_parameters[0], largest)
        for name in known.epsilon_parameters:
            self._check_epsilon(party, "begin_job", name, told[name])
        for name, (least, opened) in known.noise_parameters.items():
            self._check_noise(party, name, _number(told[name]), least, opened)

    # -- before an operation ---------------------------------------------------------------------------------------

    def check_operation(self, party: str, marked: Operation, arguments: Mapping[str, object], job: Job | None) -> None:
        """Refuse an operation for where it comes from, what it discloses, or what it is asked to do."""
        self._check_module(party, marked)
        self._check_form(party, marked)
        if marked.id not in FREE:
            _check_listed(party, marked, job)
        if marked.min_cell:
            value = _declared(marked.min_cell, arguments, job)
            self._check_cell(party, marked.short_name, marked.min_cell, _number(value))
        if marked.epsilon:
            value = _declared(marked.epsilon, arguments, job)
            self._check_epsilon(party, marked.short_name, marked.epsilon, value)

    def check_rows(self, party: str, operation: str, rows: int) -> None:
        """Refuse to work on too few rows. How many there are is not said."""
        if rows < self.min_rows:
            raise PolicyRefused.by(
                "min_rows", party, operation,
                f"its answers so far and this one would together tell about fewer than {self.min_rows} of its rows. "
                'Use more rows (fewer folds, a larger overlap), those of an earlier job (rows = "as in JOB" under '
                "[federation]), or ask the party to lower min_rows",
            )  # fmt: skip

    # -- over all jobs (the journal) -------------------------------------------------------------------------------

    def check_bits(self, party: str, operation: str, bits: float, job: str) -> None:
        """Refuse exact numbers beyond the budget of their rows, unless the party has accepted this very job."""
        accepted = any(len(told) >= ACCEPTED and job.startswith(told) for told in self.accept_bits)
        if self.max_bits != "any" and bits > self.max_bits and not accepted:
            raise PolicyRefused.by(
                "max_bits", party, operation,
                f"exact numbers about the same rows, and refusals, have together at most {self.max_bits:g} bits a row "
                "here. Use noise (epsilon) or more rows. On a short, wide table the answer alone (which columns were "
                f'kept) tells more; the party accepts that knowingly by accept_bits = ["{job[:ACCEPTED]}"]',
            )  # fmt: skip

    def check_total_epsilon(self, party: str, operation: str, epsilon: float) -> None:
        """Refuse noise that the budget of all jobs does not cover any more."""
        if epsilon > self.total_epsilon:
            raise PolicyRefused.by(
                "total_epsilon", party, operation,
                f"the noise of all jobs on this table may cost at most {self.total_epsilon:g} (at delta 1e-6). Ask for "
                "a smaller epsilon, or ask the party to raise total_epsilon",
            )  # fmt: skip

    def check_id_lists(self, party: str, lists: int) -> None:
        """Refuse to match ids once more: each list of the others' may hold other guesses."""
        if lists > self.max_id_lists:
            raise PolicyRefused.by(
                "max_id_lists", party, "begin_job",
                f"this party matches its ids with at most {self.max_id_lists} lists. Ask it to raise max_id_lists",
            )  # fmt: skip

    def check_row_scores(self, party: str, operation: str, often: int) -> None:
        """Refuse one more score of each row: every model of the same rows is a further equation about its columns."""
        if often > self.max_row_scores:
            raise PolicyRefused.by(
                "max_row_scores", party, operation,
                f"the label holder has read {self.max_row_scores} scores of some of these rows, over all jobs. Measure "
                "on shares (fs.value, fs.evaluate with model='additive'), or ask the party to raise max_row_scores",
            )  # fmt: skip

    def check_sides(self, party: str, operation: str, sides: float) -> None:
        """Refuse more sides of cuts: with enough of them the label holder places most cells of this party's columns."""
        if self.max_sides != "any" and sides > self.max_sides:
            raise PolicyRefused.by(
                "max_sides", party, operation,
                "the label holder would hear, over the trees of all jobs, on which side of more than "
                f"{self.max_sides:g} cuts a row lies for each bit that its columns hold: so many place their values. "
                'Write protection = "all" (it tells nobody), grow fewer or shallower trees (n_estimators, max_depth), '
                'evaluate with model = "additive", or ask the party to raise max_sides',
            )  # fmt: skip

    def check_few_rows(self, party: str, operation: str, today: int) -> None:
        """Refuse predictions of single rows, or of fewer than ``min_rows``, beyond so many rows a day."""
        if today > self.few_rows_a_day:
            raise PolicyRefused.by(
                "few_rows_a_day", party, operation,
                f"rows that are predicted alone, or with fewer than {self.min_rows}, are {self.few_rows_a_day} a day "
                "here. Predict more rows together, wait a day, or ask the party to raise few_rows_a_day",
            )  # fmt: skip

    def check_share(self, party: str, operation: str, share: float) -> None:
        """Refuse sums that few rows make up. Which column it is, is not said."""
        if share > self.max_share:
            raise PolicyRefused.by(
                "max_share", party, operation,
                f"of a sum over its rows the largest two make up more than {self.max_share:g}: it would tell about "
                "these. Ask the party to leave such a column out, or to transform it",
            )  # fmt: skip

    def check_persons(self, party: str, job: Job, most_rows: int) -> None:
        """Where a person may have several rows: a cell of so many rows is one of ``min_cell`` persons for sure."""
        known = announced.find_job(job.method)
        if most_rows > 1 and known is not None and known.cell_parameters:
            largest = max(_number(job.parameters.get(name)) for name in known.cell_parameters)
            if largest < self.min_cell * most_rows:
                raise PolicyRefused.by(
                    "min_cell", party, "begin_job",
                    f"min_cell counts persons here ({self.min_cell}), some of whom have several rows. Ask the party "
                    "which min_cell of rows is enough (fedsift party check says it), and write that under [method]",
                )  # fmt: skip

    def check_partition(self, party: str, job: Job) -> None:
        """Refuse a job that says of its parties what its method is not for: who shares rows decides what counts."""
        known = announced.find_job(job.method)
        if known is not None and job.partition not in known.partitions:
            served = " or ".join(known.partitions)
            raise OperationRefused(party, "begin_job", f"the method {job.method!r} is for {served} parties")

    def check_rows_by(self, party: str, job: Job) -> None:
        """Refuse to deal or part rows by a column that is not on the list: everybody hears which rows are alike in it,
        or lie before a value, and whoever names the column or the value reads it row by row."""
        by = [job.design.get("group"), job.design.get("time")]
        if job.method == StatisticsJob.name:
            by.append(job.parameters.get("by"))
        own = [each.removeprefix(f"{party}.") for each in by if isinstance(each, str) and each.startswith(f"{party}.")]
        other = next((column for column in own if self.rows_by != "any" and column not in self.rows_by), None)
        if other is not None:
            raise PolicyRefused.by(
                "rows_by", party, "begin_job",
                f"rows would be dealt or parted by the column {_short(other)}: everybody would hear, of each row, "
                "something of it. Take another column, or ask the party to add it to rows_by",
            )  # fmt: skip

    def check_partners(self, party: str, job: Job) -> None:
        """Refuse a job with somebody who is not on this party's own list."""
        if self.partners != "any":
            foreign = next((name for name in job.parties if name not in (party, *self.partners)), None)
            if foreign is not None:
                raise PolicyRefused.by(
                    "partners", party, "begin_job",
                    f"{_short(foreign)} is none of the parties that it works with. Ask it to add them to partners",
                )  # fmt: skip

    def _check_module(self, party: str, marked: Operation) -> None:
        module = marked.module
        if not is_own(module) and module not in self.plugins:
            raise PolicyRefused.by(
                "plugins", party, marked.short_name,
                f"its module {module!r} is not part of fedsift. Ask the party to install it and to add it to plugins",
            )  # fmt: skip

    def _check_form(self, party: str, marked: Operation) -> None:
        needs = marked.needs
        excepted = marked.id in self.exceptions or (needs and set(needs) <= set(self.exceptions))
        told = {marked.opened_form: marked.opened.partition(": ")[2], marked.discloses: marked.about}
        forms = [form for form in (marked.discloses, marked.opened_form) if form not in (*self.forms, "control")]
        if not forms or excepted:
            return
        missing = [name for name in needs if name not in self.exceptions]
        if missing == [COLUMN_NAMES] and marked.id == "core.share_names":
            way = 'Write names = "private" under [federation] in the job'
        else:
            way = "Take a method or a setting that does without it"
        asked = " and ".join(map(repr, missing)) or repr(marked.id)
        raise PolicyRefused.by(
            "forms", party, marked.short_name,
            f"it discloses {told[forms[0]]!r} in the form {forms[0]!r}, which this party does not accept. {way}, "
            f"or ask the party to add {asked} to exceptions",
        )  # fmt: skip

    def _check_cell(self, party: str, operation: str, name: str, value: float) -> None:
        if value < self.min_cell:
            now = "is not set" if value <= 0 else f"is {value:g}"
            raise PolicyRefused.by(
                "min_cell", party, operation,
                f"{name} {now}, and this party counts no group of fewer than {self.min_cell} rows. "
                f"Write min_cell = {self.min_cell} (or more) under [method] in the job",
            )  # fmt: skip

    def _check_noise(self, party: str, name: str, value: float, least: float, opened: str) -> None:
        if not value >= least and opened not in self.exceptions:
            raise PolicyRefused.by(
                "exceptions", party, "begin_job",
                f"{name} is {value:g}: with less than {least:g} opened sums are equations for single rows. "
                f"Write {name} = {least:g} (or more) under [method] in the job, or ask the party to add {opened!r} to "
                "exceptions",
            )  # fmt: skip

    def _check_matching(self, party: str, parameters: Mapping[str, object]) -> None:
        if parameters.get("matching", CURVE) != CURVE and not self.keyed_matching:
            raise PolicyRefused.by(
                "keyed_matching", party, "begin_job",
                'matching = "keyed" lets the coordinator and any one party together test guesses of all ids. '
                'Write matching = "curve" under [federation] in the job, or ask the party to allow it (keyed_matching)',
            )  # fmt: skip

    def _check_epsilon(self, party: str, operation: str, name: str, value: object) -> None:
        if self.max_epsilon is None:
            return
        number = _number(value)
        if value is None and name != "epsilon":
            return  # a part of the whole, which is judged by itself
        if not 0 < number <= self.max_epsilon:
            now = f"is {number:g}" if number > 0 else "is not set (no noise at all)"
            raise PolicyRefused.by(
                "max_epsilon", party, operation,
                f"{name} {now}, and this party allows at most {self.max_epsilon:g}. "
                f"Write {name} = {self.max_epsilon:g} (or less) under [method] in the job",
            )  # fmt: skip


def _check_listed(party: str, marked: Operation, job: Job | None) -> None:
    if job is None:
        raise PolicyRefused.by(
            "methods", party, marked.short_name,
            "no method was announced for this run. Fit a selector of fedsift (it announces itself), or call "
            "Federation.session(method, parameters)",
        )  # fmt: skip
    allowed = {other.id for other in listed(job.method, job.purpose)}
    if not (is_core(marked) and job.method != psi.JOB) and marked.id not in allowed:
        what = f"{job.purpose} of the method" if job.purpose else "the announced method"
        raise PolicyRefused.by(
            "methods", party, marked.short_name,
            f"it is no part of {what} {job.method!r}. Announce the method that is really run",
        )  # fmt: skip


def listed(method: str, purpose: str = "") -> tuple[Operation, ...]:
    """The operations that a method, or the alignment before it, declares."""
    return psi.OPERATIONS if method == psi.JOB else announced.listed(method, purpose)


def _declared(name: str, arguments: Mapping[str, object], job: Job | None) -> object:
    """What carries a rule's number: an argument of the request, else a parameter of the accepted job."""
    if name in arguments:
        return arguments[name]
    return job.parameters.get(name) if job is not None else None


def _number(value: object) -> float:
    """A number as it is; 0 for what is none, so that it counts as not set."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value else 0.0


def _is_bounded(value: object, depth: int = 3) -> bool:
    """Whether a parameter is of a size that a person would choose: nothing is looped over 10^12 times."""
    if isinstance(value, (list, dict)):
        items = list(value.values()) if isinstance(value, dict) else value
        return depth > 0 and len(items) <= MAX_ITEMS and all(_is_bounded(item, depth - 1) for item in items)
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    return not isinstance(value, int) or abs(value) <= MAX_WHOLE


def _short(text: str) -> str:
    return repr(text[:60])


def is_core(marked: Operation) -> bool:
    return is_own(marked.module) and marked.family in CORE


__all__ = ["EXCEPTIONS", "FREE", "Policy", "is_core", "listed"]
