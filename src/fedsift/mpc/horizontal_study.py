"""Row-partitioned tables: agree on columns and classes, set validation rows aside, standardise by secure sums.

Every party has all columns and the labels of its rows. What the coordinator learns: the names and kinds of columns,
the names of the classes that a party has (not how many rows of each), and totals over all parties: numbers of rows,
means and deviations. Validation rows are drawn inside each party from its site's secret and the job's seed, or are all
rows of one named party (the paper's server-held set); they take no part in means, fits or scores of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsift.core.arguments import AtMost, Between
from fedsift.core.checks import check_above_zero, check_known, check_size
from fedsift.core.labels import is_amount
from fedsift.core.operation import Operation, operation
from fedsift.core.party import Party
from fedsift.core.splits import ROW_PARTS, dealt_parts, rows_of_parts
from fedsift.errors import DataError, OperationRefused, ParameterError, ReplyError, SecurityError
from fedsift.mpc import secure_sum
from fedsift.mpc.secure_sum import SecureSum, both, summed, told_alike

_MAX_CLASSES = 100
#: Once, and again for every party that leaves in between: a search then begins anew.
ONCE = "2 x parties a session"


@dataclass(frozen=True)
class Study:
    """What all parties have agreed on."""

    task: str
    classes: list[str]  # empty for regression
    n_train: int
    n_validation: int
    centre: np.ndarray  # of the target: its mean, or the shares of the classes
    deviation: float  # of a regression target; 1 for classes

    @property
    def outputs(self) -> int:
        return len(self.centre)


@dataclass(frozen=True)
class TrainingRows:
    """Which of a party's rows are not for validation."""

    mask: NDArray[np.bool_]


@dataclass(frozen=True)
class Target:
    """A party's labels: a column for a number, one for each class else; scaled, and as they came."""

    scaled: NDArray[np.float64]
    as_told: NDArray[np.float64]


@dataclass(frozen=True)
class RawColumns:
    """The features as the table has them."""

    values: NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """The features that a model reads: standardised over all parties, no value missing."""

    values: NDArray[np.float64]


def training_of(party: Party) -> NDArray[np.bool_]:
    return party.held(TrainingRows).mask


def target_of(party: Party) -> NDArray[np.float64]:
    return party.held(Target).scaled


def raw_of(party: Party) -> NDArray[np.float64]:
    return party.held(RawColumns).values


def design_of(party: Party) -> NDArray[np.float64]:
    return party.held(Design).values


@operation(
    "study.describe_rows",
    times=ONCE,
    discloses="plain",
    about="which columns are numbers, whether labels look like amounts, and the names of the classes present",
    reply={"numeric": [str], "other": [str], "amount": bool, "classes": [str]},
    needs=("column names", "class names"),
)
def describe_rows(party: Party, *, task: str) -> dict[str, Any]:
    label = party.table.label
    if label is None:
        raise DataError(f"party {party.name!r} has no label column; horizontal parties each hold their rows' labels")
    numeric = party.table.numeric_columns
    amount = task == "regression" or (task == "auto" and is_amount(label))
    if amount and label.dtype.kind not in "iufb":
        raise DataError(f"party {party.name!r}: the label is text, so it cannot be a regression target")
    classes = [] if amount else sorted({class_name(value) for value in np.unique(label)})
    return {
        "numeric": numeric,
        "other": [name for name in party.columns if name not in numeric],
        "amount": bool(amount),
        "classes": classes,
    }


def class_name(value: Any) -> str:
    """One spelling for a class, whether a party's file had it as 1, 1.0 or "1"."""
    number = isinstance(value, (float, np.floating))
    return str(int(value)) if number and float(value).is_integer() else str(value)


@operation(
    "study.keep_rows",
    when="epsilon=none|unsaid",
    times=ONCE,
    discloses="control",
    receives="plain",
    about="acknowledgement",
    learns="the names of the classes that occur anywhere in the federation",
)
def keep_rows(
    party: Party,
    *,
    task: Literal["classification", "regression"],
    classes: Annotated[list[str], AtMost(_MAX_CLASSES)],
    validation: Annotated[float, Between(0, 1)] | str,
) -> None:
    """Set up the target and draw the validation rows: a share of this party's rows, or all of one named party.

    A party whose rows are all for validation has no part in training sums, so only the accepted job can name it.
    """
    job = party.run.job
    told = None if job is None else job.parameters.get("validation")
    if job is not None and (type(validation) is not float or validation != 0.0) and validation != told:
        raise SecurityError(f"party {party.name!r}: other rows for validation than those of the accepted job")
    target = _target(party, task, classes)
    party.keep(Target(target, target))
    share = float(party.name == validation) if isinstance(validation, str) else validation
    train = _training_rows(party, share, None if job is None else job.random_state)
    if not train.all() and train.any():
        party.site.enter_part(party, party.row_numbers[train], "study.keep_rows")
    party.keep(TrainingRows(train))
    told_alike(party, "keep_rows", task=task, classes=classes, validation=validation)


def _target(party: Party, task: str, classes: list[str]) -> NDArray[np.float64]:
    """A column for a number, one for each class else."""
    label = party.table.label
    if label is None:
        raise DataError(f"party {party.name!r} has no label column")
    if task == "regression":
        if label.dtype.kind not in "iufb":
            raise DataError(f"party {party.name!r}: the label is text, so it cannot be a regression target")
        return label.astype(np.float64)[:, None]
    code = {name: i for i, name in enumerate(classes)}
    names = [class_name(value) for value in label]
    if len(code) != len(classes) or not set(names) <= set(code):
        raise OperationRefused(party.name, "keep_rows", "its labels are not all among the classes that it was told")
    codes = np.array([code[name] for name in names])
    return np.asarray(codes[:, None] == np.arange(len(classes)), dtype=np.float64)


def _training_rows(party: Party, share: float, random_state: object) -> NDArray[np.bool_]:
    """Which rows are not for validation, drawn from the site's secret: nobody else can recompute them.

    There is one assignment of these rows to ten parts, and the seed says which parts: the sums of any number of jobs
    are about whole parts (``splits.rows_of_parts``; sums over rows that each seed draws anew would be equations for
    single ones).
    """
    rows, order = party.n_rows, party.table.by_id
    size = rows - round(share * rows)
    if not 0 < size < rows:
        return np.full(rows, size > 0)
    part = dealt_parts(np.zeros(rows, dtype=np.int64), ROW_PARTS, party.generator("validation: parts", None))
    inside, which = party.generator("validation: inside", None), party.generator("validation: which", random_state)
    chosen, _ = rows_of_parts(part, size, inside, which)
    train = np.zeros(rows, dtype=bool)
    train[order[chosen]] = True
    return train


@summed(
    "study.target_sums",
    when="epsilon=none|unsaid",
    times=ONCE,
    about="number of training and validation rows and the sum of the target",
    receives="control",
)
def target_sums(party: Party) -> np.ndarray:
    train, target = training_of(party), target_of(party)
    # The constant classes of a small party must not show: everything here is a total over all parties.
    return np.concatenate([[train.sum(), (~train).sum()], target[train].sum(axis=0)])


@summed("study.target_spread", when="epsilon=none|unsaid", times=ONCE, about="sum of squared deviations of the target")
def target_spread(party: Party, *, centre: np.ndarray, unit: float) -> np.ndarray:
    check_size(party.name, "target_spread", "centre", centre, target_of(party).shape[1])
    check_above_zero(party.name, "target_spread", "unit", unit)
    return np.asarray((((target_of(party)[training_of(party)] - centre) / unit) ** 2).sum(axis=0))


@operation(
    "study.scale_target",
    when="epsilon=none|unsaid",
    times=ONCE,
    discloses="control",
    receives="aggregate",
    about="acknowledgement",
    learns="mean and deviation of the target over all parties",
)
def scale_target(party: Party, *, centre: np.ndarray, deviation: float) -> None:
    check_size(party.name, "scale_target", "centre", centre, target_of(party).shape[1])
    check_above_zero(party.name, "scale_target", "deviation", deviation)
    told = party.held(Target).as_told
    party.keep(Target((told - centre) / deviation, told))
    told_alike(party, "scale_target", centre=centre, deviation=deviation)


@operation("study.load_columns", when="epsilon=none|unsaid", times=ONCE, discloses="control", about="acknowledgement")
def load_columns(party: Party, *, columns: list[str]) -> None:
    """Take named columns as the raw features."""
    for name in columns:
        check_known(party.name, "load_columns", "column", name, party.table.numeric_columns)
    party.keep(RawColumns(party.table.matrix(columns)))
    told_alike(party, "load_columns", columns=columns)


@summed(
    "study.feature_sums",
    when="epsilon=none|unsaid",
    times=ONCE,
    about="counts, sums and absolute sums of the features",
    receives="control",
    sums=True,
)
def feature_sums(party: Party) -> np.ndarray:
    raw = raw_of(party)[training_of(party)]
    return np.concatenate([(~np.isnan(raw)).sum(axis=0), np.nansum(raw, axis=0), np.nansum(np.abs(raw), axis=0)])


@summed(
    "study.feature_spread", when="epsilon=none|unsaid", times=ONCE, about="sums of squared deviations of the features"
)
def feature_spread(party: Party, *, centre: np.ndarray, unit: np.ndarray) -> np.ndarray:
    raw = raw_of(party)[training_of(party)]
    check_size(party.name, "feature_spread", "centre", centre, raw.shape[1])
    check_size(party.name, "feature_spread", "unit", unit, raw.shape[1])
    check_above_zero(party.name, "feature_spread", "unit", unit)
    return np.asarray(np.nansum(((raw - centre) / unit) ** 2, axis=0))


@operation(
    "study.scale_features",
    when="epsilon=none|unsaid",
    times=ONCE,
    discloses="control",
    receives="aggregate",
    about="acknowledgement",
    learns="means and deviations of the features over all parties",
)
def scale_features(party: Party, *, centre: np.ndarray, deviation: np.ndarray) -> None:
    for name, given in (("centre", centre), ("deviation", deviation)):
        check_size(party.name, "scale_features", name, given, raw_of(party).shape[1])
    check_above_zero(party.name, "scale_features", "deviation", deviation)
    party.keep(Design(np.nan_to_num((raw_of(party) - centre) / deviation, nan=0.0)))
    told_alike(party, "scale_features", centre=centre, deviation=deviation)


# --- the coordinator's side ------------------------------------------------------------------------------------------


def agree_columns(described: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Numeric and other columns; an error names the party whose table differs."""
    first = next(iter(described))
    for name, facts in described.items():
        for kind in ("numeric", "other"):
            odd = sorted(set(facts[kind]) ^ set(described[first][kind]))
            if odd:
                raise DataError(
                    f"horizontal parties must have the same columns of the same kinds: column {odd[0]!r} differs "
                    f"between {first!r} and {name!r}"
                )
    return list(described[first]["numeric"]), list(described[first]["other"])


def open_study(total: SecureSum, described: dict[str, Any], validation: float | str) -> Study:
    """Agree on the target and set validation rows aside."""
    amounts = {facts["amount"] for facts in described.values()}
    regression = amounts != {False}  # one party with amounts is enough: others may hold few whole numbers only
    if regression and not all(facts["amount"] for facts in described.values()):
        total.fed.ledger.note("some parties' labels looked like classes, others' like amounts: taken as amounts")
    classes = sorted({c for facts in described.values() for c in facts["classes"]}, key=_class_order)
    if not regression and not 2 <= len(classes) <= _MAX_CLASSES:
        raise DataError(f"the parties have {len(classes)} classes together; 2 to {_MAX_CLASSES} are possible")
    task = "regression" if regression else "classification"
    if isinstance(validation, str) and validation not in total.parties:
        parties = ", ".join(total.parties)
        raise ParameterError(f"validation names the party {validation!r}; the parties are {parties}")
    told = validation if isinstance(validation, str) else float(validation)
    total.ask_all(keep_rows, validation=told, task=task, classes=[] if regression else classes)
    outputs = 1 if regression else len(classes)
    sums = total.sum(target_sums, (2 + outputs,))
    n_train, n_validation = (int(count) for count in np.rint(sums[:2]))
    if n_train < 10:
        raise DataError(f"only {n_train} training rows are left over all parties; at least 10 are needed")
    centre = sums[2:] / n_train
    deviation = 1.0
    if regression:
        unit = max(1.0, abs(float(centre[0])))
        deviation = unit * float(np.sqrt(total.sum(target_spread, (1,), centre=centre, unit=unit)[0] / n_train))
        if not deviation > 1e-12 * unit:
            raise DataError("the target is the same in all training rows; there is nothing to learn")
    total.ask_all(scale_target, centre=centre, deviation=deviation)
    return Study(task, [] if regression else classes, n_train, n_validation, centre, deviation)


def _class_order(name: str) -> tuple[int, float, str]:
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, 0.0, name)


def check_validation(validation: object) -> None:
    good = isinstance(validation, str) or (isinstance(validation, (int, float)) and 0 <= validation < 1)
    if not good or isinstance(validation, bool):
        raise ParameterError(
            f"validation must be a share of each party's rows below 1, or the name of the party whose rows are for "
            f"validation; got {validation!r}"
        )


def standardise(total: SecureSum, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations of the raw features over all training rows; constant features get deviation 1.

    Missing values stand at the mean afterwards.
    """
    sums = total.sum(feature_sums, (3, width))
    counts = np.maximum(sums[0], 1.0)
    if (sums[0] < 0).any():
        raise ReplyError("coordinator", "feature_sums", "a total of counts is negative: the masks did not cancel")
    centre, size = sums[1] / counts, sums[2] / counts
    unit = np.where(size > 0, 2.0 ** np.ceil(np.log2(np.where(size > 0, size, 1.0))), 1.0)
    spread = total.sum(feature_spread, (width,), centre=centre, unit=unit) / counts
    constant = spread <= 1e-14
    deviation = np.where(constant, 1.0, unit * np.sqrt(np.where(constant, 1.0, spread)))
    total.ask_all(scale_features, centre=centre, deviation=deviation)
    return centre, deviation


SCALING = (feature_sums.masked, feature_spread.masked, scale_features)
OPERATIONS: tuple[Operation, ...] = (
    *secure_sum.OPERATIONS,
    *both(feature_sums, feature_spread, target_sums, target_spread),
    scale_features,
    describe_rows,
    keep_rows,
    load_columns,
    scale_target,
)
