"""The first ``party.toml`` of an organisation: what its table looks like, which columns had better stay out, the text.

``look`` decides what can be seen in the file: which column is the id, and which columns identify people or hold free
text, so that they do not take part unless somebody names them. It is a help for the person who answers for the file,
not a protection: the person reads the list.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsift.core.files import write_atomic
from fedsift.core.ledger import FORMS
from fedsift.core.table import ColumnFacts, Table
from fedsift.errors import ParameterError
from fedsift.jobs.text import Source, toml_value
from fedsift.site.policy import EXCEPTIONS, Policy
from fedsift.site.settings import checked_party

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ID_WORDS = {"id", "ids", "uid", "uuid", "guid", "key", "nr", "no", "number", "customer", "client", "patient", "person",
             "user", "account", "member", "case", "record"}  # fmt: skip
_PERSON_WORDS = {"name", "surname", "firstname", "lastname", "email", "mail", "phone", "telephone", "mobile", "address",
                 "street", "ssn", "iban", "passport", "birthday", "birthdate", "dob"}  # fmt: skip
_FREE_TEXT = 40  # characters on average
_SHARE = 0.5  # a text column with more different values than this share of the rows is nearly an id


@dataclass(frozen=True)
class Column:
    """One column of the file and what becomes of it."""

    name: str
    kind: str
    distinct: int
    missing: int
    role: str  # "id", "label", "column" or "out"
    why: str = ""


@dataclass(frozen=True)
class Look:
    """What was seen in a file."""

    rows: int
    columns: list[Column]

    def of(self, role: str) -> list[str]:
        return [column.name for column in self.columns if column.role == role]


def look(
    file: Path, *, name: str, id: str | None, label: str | None, columns: Sequence[str] | None, with_id: bool = True
) -> Look:
    """Read the file and give each column its role; what the caller named is taken as it is."""
    table = Table.read(file, id=None, name=name)
    records = table.describe()
    if id is None and with_id:
        id = _find_id(table, records, {label, *(columns or ())})
    if columns is not None:
        Table.read(
            file, id=id, label=label, columns=columns, name=name
        )  # complains by name about one that is not there
    found = []
    for record in records:
        role, why = _role(table, record, id, label, columns)
        found.append(Column(record.column, record.kind, record.distinct, record.missing, role, why))
    for column, what in ((id, "id"), (label, "label")):
        if column is not None and column not in table.columns:
            Table.read(file, id=id, label=label, name=name)  # complains with the nearest name
            raise ParameterError(f"{file} has no column {column!r} (the {what})")
    return Look(table.n_rows, found)


def _find_id(table: Table, records: list[ColumnFacts], taken: set[str | None]) -> str | None:
    """The column whose values are all there and all different: one that is called like an id, else the first column."""
    unique: list[str] = [r.column for r in records if _could_be_id(table, r) and r.column not in taken]
    named = [column for column in unique if _words(column) & _ID_WORDS]
    if named:
        return named[0]
    return unique[0] if unique and unique[0] == table.columns[0] else None


def _could_be_id(table: Table, record: ColumnFacts) -> bool:
    column = record.column
    if record.missing or record.distinct < table.n_rows or record.kind not in ("categorical", "numeric"):
        return False
    return record.kind == "categorical" or bool((table.values(column) % 1 == 0).all())


def _role(
    table: Table, record: ColumnFacts, id: str | None, label: str | None, columns: Sequence[str] | None
) -> tuple[str, str]:
    column = record.column
    if column in (id, label):
        return ("id", "") if column == id else ("label", "")
    if columns is not None:
        return ("column", "") if column in columns else ("out", "not named in --columns")
    words = _words(column)
    if words & _PERSON_WORDS:
        return "out", "its name says that it identifies a person"
    if _could_be_id(table, record) and (record.kind == "categorical" or words & _ID_WORDS):
        return "out", "a different value in each row: an id"
    if record.kind == "categorical":
        _, categories = table.codes(column)
        if sum(map(len, categories)) > _FREE_TEXT * max(1, len(categories)):
            return "out", "long texts: free text"
        if record.distinct > max(20, _SHARE * table.n_rows):
            return "out", "hardly any text occurs twice: an id or free text"
    return "column", ""


def _words(column: str) -> set[str]:
    """'customerId', 'customer_id' and 'Customer ID' have the same words."""
    return set(re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", column).lower()))


# --- the text --------------------------------------------------------------------------------------------------------


def party_text(name: str, file: str, seen: Look, categorical: Sequence[str]) -> str:
    """The file with every rule explained where it stands."""
    policy = Policy()
    left_out = [f"#   {toml_value(c.name)}: {c.why}" for c in seen.columns if c.role == "out"]
    id, label = (next(iter(seen.of(role)), None) for role in ("id", "label"))
    lines = [
        "# What this organisation gives to federated feature selection, and under which rules.",
        "# Written by `fedsift party init`. Edit it as you like; `fedsift party check JOB.toml` says what a job would",
        "# disclose under it. Nothing that comes from outside can change or go round what stands here.",
        "",
        "[party]",
        f"name = {toml_value(name)}  # this party's name in job files",
        f"file = {toml_value(file)}  # the data. A path starts at this file's folder; no job can name another file",
        f"id = {toml_value(id)}  # rows are matched by it, privately"
        if id
        else '# id = "..."  # none: rows cannot be matched',
        f"label = {toml_value(label)}  # what is to be predicted"
        if label
        else '# label = "..."  # if the label is here',
        '# person = "..."  # whose row it is, where one may have several: the rules below then count persons',
        "# workers = 4  # how many threads this party computes on at most; all cores by default",
        '# engine = "tls://10.0.0.5:8786"  # the scheduler of a Dask cluster of ours, for sums that are too large here',
        "# pad_rows = 1000  # how many rows there are is told rounded up to a multiple of this (matched by ids only)",
        "# keep_results = 366  # days after which the folder of a job that has ended is removed from results",
        "# Only these columns are read; a column that is added to the file later stays out until it is added here.",
        *(["# Left out:", *left_out] if left_out else []),
        _list("columns", seen.of("column")),
        "# Columns that are codes although they look like numbers.",
        _list("categorical", categorical),
        "# Columns that are no features but say what the rows are, for a job's [design]: whose, when, what they count.",
        '# aside = ["customer", "month"]',
        "# What texts and dates become, by this party alone.",
        '# encode = {joined = ["month", "weekday"], note = "words:16"}',
        "",
        *_policy_lines(policy),
        "",
        "# The other parties, by the fingerprints that their people told yours over a safe way (the telephone, say).",
        "# `fedsift party fingerprint` shows your own. Nobody who is not in this list can pass for a party.",
        "[peers]",
        '# shop = "3f2a 90b1 ..."',
    ]
    return "\n".join(lines) + "\n"


def _policy_lines(policy: Policy) -> list[str]:
    return [
        "[policy]",
        '# Which methods may be run: "any" that is installed here, or a list such as ["information_value", "gini"].',
        f"methods = {toml_value(policy.methods)}",
        "# No operation of a method works on fewer rows than this (different ones: a row named twice counts once).",
        f"min_rows = {policy.min_rows}",
        "# No group of fewer rows is counted or summed. A job whose method has min_cell must set it as high as this.",
        f"min_cell = {policy.min_cell}",
        "# The largest privacy loss (epsilon) of a job whose method adds noise. Without it, such a job may do without.",
        "# max_epsilon = 1.0",
        "# The forms in which something may leave. Not in this list: plain.",
        *(f"#   {form}: {meaning}" for form, meaning in FORMS.items()),
        _list("forms", policy.forms),
        "# What may leave although its form is not accepted; an operation's full name is possible, too.",
        *(f"#   {name}: {meaning}" for name, meaning in EXCEPTIONS.items()),
        _list("exceptions", policy.exceptions),
        "# Python modules installed here, beside fedsift, whose methods and operations may be used.",
        "plugins = []",
        "# What attacks may read of this party's labels in a rehearsal (`fedsift audit`): an AUC, 0.5 is a guess.",
        f"max_label_auc = {policy.max_label_auc}",
        "# The same for its columns: an R2, 0 is nothing.",
        f"max_column_r2 = {policy.max_column_r2}",
        "# Whether a job is accepted only after it has passed an audit here.",
        f"require_audit = {toml_value(policy.require_audit)}",
        '# Who says yes to a job that these rules allow: the "policy" alone, a "person" or "two persons" of this site.',
        f"approval = {toml_value(policy.approval)}",
        "# How long a job waits for them, and how long their approval holds.",
        f"approval_days = {policy.approval_days}",
        *_journal_lines(policy),
    ]


def _journal_lines(policy: Policy) -> list[str]:
    return [
        "# The next rules look at all jobs together, in this site's journal (`fedsift party journal`).",
        '# With whom a job may be: "any", or a list such as ["shop"].',
        f"partners = {toml_value(policy.partners)}",
        "# How many bits of exact numbers others that hold rows of the same people may get, a row: a tenth of a bit.",
        f"max_bits = {policy.max_bits}",
        "# Jobs that may exceed it, by the first 32 digits of their hash (a refusal quotes them).",
        _list("accept_bits", policy.accept_bits),
        "# How many columns another party has, at most, where no alignment has told: for what an answer can tell.",
        f"partner_columns = {policy.partner_columns}",
        "# The privacy loss of all jobs with noise together, at delta 1e-6.",
        f"total_epsilon = {policy.total_epsilon}",
        "# How often ids are matched: each time the others may bring another list.",
        f"max_id_lists = {policy.max_id_lists}",
        '# Whether ids may be matched under a key that all parties have (matching = "keyed"): faster, but the',
        "# coordinator together with any one party can then test guesses of ids.",
        f"keyed_matching = {str(policy.keyed_matching).lower()}",
        "# How often the label holder may read a model's score of one and the same row (predictions), over all jobs.",
        f"max_row_scores = {policy.max_row_scores}",
        "# On which side of how many cuts the label holder may hear that a row lies, over the trees of all jobs:",
        '# so many for each bit that the columns hold, or "any".',
        f"max_sides = {toml_value(policy.max_sides)}",
        "# How many rows a day may be predicted alone, or with fewer others than min_rows; 0 for none.",
        f"few_rows_a_day = {policy.few_rows_a_day}",
        "# Columns by which a job may deal or part rows (groups, time, the two samples of psi): everybody then hears,",
        '# of each row, something of them. "any" for all.',
        _list("rows_by", policy.rows_by),
        "# The share of a sum over rows that its largest two may make up; 1.0 for no such rule.",
        f"max_share = {policy.max_share}",
    ]


def _list(key: str, names: Sequence[str]) -> str:
    """On one line when it fits, else one name a line."""
    line = f"{key} = [{', '.join(map(toml_value, names))}]"
    if len(line) <= 110:
        return line
    return "\n".join([f"{key} = [", *(f"    {toml_value(name)}," for name in names), "]"])


def write_party(path: Path, text: str, *, force: bool) -> Path:
    """Write it whole or not at all, and only if it can be read again; a file that is there stays unless ``force``."""
    if path.is_dir():
        raise ParameterError(f"{path} is a folder; give a file in it, such as {path / 'party.toml'} (--out FILE)")
    if path.exists() and not force:
        raise ParameterError(f"{path} is there already; --force writes it anew, --out FILE writes another")
    checked_party(Source(path, text, tomllib.loads(text)))
    return write_atomic(path, text)
